"""The interface of a *form*, a variant of the protocol: a table of phases, message routes, and client and server parts.

`secea.forms.keyed` and `secea.forms.paillier` implement it. The parties (`secea.party.client`, `secea.party.server`)
know nothing else about a form. A *part* is a small state machine: what a form does on one side. It knows nothing of
labels, keys or message order. The party asks it for payloads, and gives it payloads that are authentic, complete and of
the right length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.errors import ProtocolError
from secea.params import Params
from secea.party.disclosure import Disclosure
from secea.party.phases import Agreement, Route, Row, begun
from secea.table import Name, Table, TableLike
from secea.wire.keys import Identity, Roster
from secea.wire.link import Link
from secea.wire.messages import Buffer, Layout
from secea.wire.randomness import Entropy

if TYPE_CHECKING:
    from secea.party.session import Session

Got: TypeAlias = Mapping[tuple[IntEnum, int], bytes]
"""What arrived in a phase: the whole payload of each (kind, sender)."""
Widths: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""How wide it is what is added below each number of some rows."""


class Retry(Exception):
    """What was collected gives no result, but another attempt may."""


HAD: Final[Sequence[Buffer]] = []
"""In the place of a chunk that is not sent again."""


class ClientPart(Protocol):
    """What client n of a form does in each phase."""

    link: Link
    """Its connections. Set before anything else is called."""

    @property
    def introduction(self) -> bytes:
        """What its hello carries besides keys. A restored part says the same as before."""
        ...

    @property
    def faults(self) -> list[ProtocolError]:
        """What others did wrong in the last round and could be corrected."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether its next round needs a new union first. True only if others may know it."""
        ...

    def prepare(self) -> None:
        """Compute ahead of a round what depends neither on the tables nor on messages."""
        ...

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """Take the table of a training round. `RoundLost` if that round's values must not be sent again."""
        ...

    def means_like(self, table: Table) -> Floats:
        """The means of the last round, in the order and the dtype of a table; its own rows where there is none."""
        ...

    def give_means(self, table: Table) -> Floats:
        """The same, for a caller that keeps them: the part may forget them."""
        ...

    def checked(self, table: TableLike) -> Table:
        """The table, if this client can contribute it."""
        ...

    def update(self, names: Iterable[object], *, at_once: bool = True) -> None:
        """Change the entities from the next epoch of names on.

        With `at_once` all new ones must fit into one epoch. Otherwise those that do not fit wait for another one.
        """
        ...

    def inherit(self, before: Session, part: Any) -> None:
        """In a session that follows another one: take over what is kept, from this client's `part` in that one."""
        ...

    def renounce(self) -> None:
        """The session failed to start. The previous one continues, if that is still safe."""
        ...

    tick: Callable[[int], None] | None
    """Called with the progress of the long part of a set-up."""
    copied: Callable[[Floats], Floats]
    """Makes a client's own copy of a table, in memory or wherever an engine wants it."""

    @property
    def trained(self) -> bool:
        """Whether it has a table for the next round."""
        ...

    @property
    def has_means(self) -> bool:
        """Whether the last round gave means."""
        ...

    @property
    def without_mean(self) -> tuple[Name, ...]:
        """The entities that got no mean in the last round."""
        ...

    @property
    def below_minimum(self) -> tuple[Name, ...]:
        """Those of them that had fewer owners than the minimum."""
        ...

    @property
    def renamed(self) -> bool:
        """Whether its entities change with the next epoch of names."""
        ...

    @property
    def waiting(self) -> tuple[Name, ...]:
        """The new entities that found no room in the last epoch of names. They wait for the next one that is due."""
        ...

    @property
    def next_names(self) -> tuple[Name, ...]:
        """Its entities as it spells them, from the next epoch of names on."""
        ...

    def has(self, names: Iterable[object]) -> bool:
        """Whether these are its entities, from the next epoch of names on."""
        ...

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """The context that must be agreed on before an announced phase begins."""
        ...

    def check_begin(self, at: Agreement) -> None:
        """Refuse a phase that the server must not announce now, with a `ValueError`."""
        ...

    def enter(self, at: Agreement) -> None:
        """Begin a phase: draw its randomness. Nothing is drawn later, so that a message can be made again."""
        ...

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The chunks of a message for each receiver, each in parts. `SERVER` and `ALL` may be receivers too.

        The chunks of one receiver come in order. The form decides how receivers take turns. `HAD` stands
        for a chunk that its receiver is known to have.
        """
        ...

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Use a chunk as soon as it arrives. A `ProtocolError` or a `ValueError` says why it cannot be right."""
        ...

    def plain(self) -> dict[str, Any]:
        """What must survive a restart, for a snapshot."""
        ...

    def restore(self, plain: dict[str, Any]) -> None:
        """Load a saved state. Whatever was kept only in memory is lost."""
        ...

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """Finish a phase when everything has arrived; returns what is agreed on now.

        A `ProtocolError` blames somebody, and nothing changes. `Retry` says that it cannot continue; the table of
        phases then says what is sent instead.
        """
        ...


class ClientDefaults:
    """Defaults for a client's part: nothing extra in its hello, no corrected faults, nothing computed ahead."""

    tick: Callable[[int], None] | None = None
    copied: Callable[[Floats], Floats] = np.array

    @property
    def introduction(self) -> bytes:
        """Nothing besides keys."""
        return b""

    @property
    def unsettled(self) -> bool:
        """False: whatever changes is not announced openly."""
        return False

    @property
    def waiting(self) -> tuple[Name, ...]:
        """Empty: all new entities come at once."""
        return ()

    @property
    def without_mean(self) -> tuple[Name, ...]:
        """Empty: every entity gets a mean."""
        return ()

    @property
    def below_minimum(self) -> tuple[Name, ...]:
        """Empty: there is no minimum."""
        return ()

    @property
    def faults(self) -> list[ProtocolError]:
        """None."""
        return []

    def give_means(self: ClientPart, table: Table) -> Floats:
        """A copy, as for everybody else."""
        return self.means_like(table)

    def prepare(self) -> None:
        """Nothing is computed ahead without messages."""

    def inherit(self, before: Session, part: Any) -> None:
        """A session that follows another one keeps nothing."""

    def renounce(self) -> None:
        """There is nothing to give back."""


HELD_BYTES: Final = 16 << 20
"""Of messages that count only when they are whole, larger ones may go to a file."""


class Held:
    """The chunks of a message that counts only when it is whole, in memory."""

    def __init__(self, size: int) -> None:
        """`size`: of the whole message, in bytes."""
        self._chunks: list[memoryview] = []

    def put(self, chunk: memoryview) -> None:
        """The next chunk."""
        self._chunks.append(chunk)

    def chunks(self) -> Iterator[memoryview]:
        """All of them, in order."""
        yield from self._chunks

    def close(self) -> None:
        """Forget them."""
        self._chunks.clear()


class Room:
    """Where a server leaves what has to wait, if it is more than `HELD_BYTES` together: here, in memory."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A new array."""
        return np.zeros(shape, dtype)

    def kept(self, message: Buffer) -> Buffer:
        """The same message, until nobody has it any more."""
        return message

    def rest(self, what: Buffer | NDArray[Any]) -> None:
        """It is used later, and need not be in memory until then."""


class ServerDefaults:
    """Defaults for a server's part: everything in memory."""

    held: Callable[[int], Held] = Held
    room: Room = Room()


class ServerPart(Protocol):
    """What the server of a form does in each phase."""

    link: Link
    """Its connections. Set before anything else is called."""
    held: Callable[[int], Held]
    """Makes room for a message of this size, which counts only when it is whole: in memory, or in a file."""
    room: Room
    """Where sums wait for the last upload, and broadcasts for those who get them."""

    def prepare(self, at: Agreement) -> None:
        """See `ClientPart.prepare`."""
        ...

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """See `ClientPart.anchor`."""
        ...

    def enter(self, at: Agreement) -> None:
        """Begin a phase."""
        ...

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        """Use a chunk as soon as it arrives. A `ValueError` says why it cannot be right."""
        ...

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The chunks that can leave now, in order, each with its receiver (or `ALL`). Each chunk is given once."""
        ...

    renamed: bool
    """Whether somebody's entities had changed by the end of the last training."""

    def prepared(self, at: Agreement) -> bool:
        """Whether what is computed ahead of rounds is ready for the next one."""
        ...

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """Finish a phase when everything has arrived; returns what is agreed on now, or raises `Retry`."""
        ...


@dataclass(frozen=True)
class Chore:
    """A kind of work: a sample of it that can be timed, and how often the parties do the same."""

    prepare: Callable[[], Callable[[], object]]
    """Makes up what the sample works on. What it returns is the sample."""
    times: Mapping[tuple[str, str], float]
    """By phase, "setup" or "round", and party, "client" or "server": how many samples each of them does."""


class Form(Protocol):
    """One form of the protocol: everything about it that is public."""

    def introduction_bytes(self, params: Params) -> int:
        """The number of bytes that a client's hello carries besides keys."""
        ...

    def check_introduction(self, params: Params, data: bytes) -> None:
        """Check what a client's hello carries besides keys. A `ValueError` if it is wrong."""
        ...

    @property
    def unsized(self) -> frozenset[IntEnum]:
        """The kinds of messages whose size the receiver does not know beforehand. Its part checks the size."""
        ...

    def label(self, kind: IntEnum, at: Agreement) -> dict[str, int]:
        """The numbers in the label of a message of this kind."""
        ...

    def begun(self, anchor: bytes, phase: str, numbers: dict[str, int], word: bytes) -> bytes:
        """The context in which an announced phase begins."""
        ...

    @property
    def name(self) -> str:
        """The form's name, as users write it."""
        ...

    @property
    def kinds(self) -> type[IntEnum]:
        """The kinds of its messages, including those of `Common`."""
        ...

    @property
    def routes(self) -> Mapping[IntEnum, Route]:
        """The route of each kind of message."""
        ...

    @property
    def streamed(self) -> frozenset[IntEnum]:
        """The kinds of messages that are used chunk by chunk instead of being collected."""
        ...

    def table(self, params: Params) -> tuple[Row, ...]:
        """The table of phases."""
        ...

    def quorum(self, params: Params, at: Agreement) -> int:
        """How many members are enough in a phase that continues without some of them."""
        ...

    def needed(self, params: Params, at: Agreement) -> tuple[int, ...]:
        """The members without whom such a phase cannot continue."""
        ...

    @property
    def setup_phase(self) -> str:
        """The phase with which a session begins."""
        ...

    @property
    def names_phase(self) -> str:
        """The phase that begins an epoch of new names. Empty if changed entities need only a new union."""
        ...

    @property
    def union_phase(self) -> str:
        """The phase that begins a new union, for example with other participants."""
        ...

    @property
    def prepare_phase(self) -> str:
        """The phase in which things are computed ahead of rounds."""
        ...

    @property
    def ready_phase(self) -> str:
        """The phase in which clients say that they have trained."""
        ...

    @property
    def round_phase(self) -> str:
        """The phase with which a round begins."""
        ...

    @property
    def end_phase(self) -> str:
        """The phase that ends a run."""
        ...

    @property
    def last_epoch(self) -> int:
        """The last epoch of names that a session may have."""
        ...

    def patience(self, params: Params, at: Agreement) -> float:
        """Seconds that a slow client may need to compute in a phase, in addition to the time for its bytes."""
        ...

    @property
    def guests(self) -> int:
        """The number of leaving clients. They come last in the roster, and take part only in the set-up."""
        ...

    def following(
        self, params: Params, before: Session, parts: Mapping[int, Any], stay: Sequence[int | None]
    ) -> Form | None:
        """The form of a session that follows another one and keeps its keys. None if nothing can be kept.

        `stay` has the old number of each client, or None for a newcomer. `parts` has the parts of the old members.
        """
        ...

    def checked(self, params: Params) -> Params:
        """The parameters, with open ones filled in. A `ParamsError` if the form cannot work with them."""
        ...

    def canonical(self, params: Params) -> str:
        """The form's line in the session's hash."""
        ...

    def fewest(self, params: Params, phase: str, names: int) -> int:
        """The fewest members with which clients take part in an announced phase, in this epoch of names."""
        ...

    def next_numbers(self, phase: str, at: Agreement, *, again: bool) -> dict[str, int]:
        """The numbers under which a phase is announced next. `again` if the last attempt stalled."""
        ...

    def senders(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """The clients that send this kind."""
        ...

    def receivers(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """The clients that receive this kind."""
        ...

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int) -> Layout:
        """How a message is cut into chunks."""
        ...

    def cautions(self, asked: Params) -> tuple[UserWarning, ...]:
        """Warnings for a user who asks for these parameters, though the form can work with them."""
        ...

    def trust(self, params: Params) -> tuple[str, ...]:
        """Sentences for people who plan a federation: who may conspire with whom, and what the form relies on."""
        ...

    def disclosure(self, params: Params) -> Disclosure:
        """Who learns what, under which assumption, for people who sign it."""
        ...

    def fill_widths(self, params: Params, table: Table) -> Widths:
        """What an owner adds below its numbers: how wide that is for each number of some rows of this table.

        A mean moves by at most half of it.
        """
        ...

    def ticks(self, params: Params, names: int) -> int:
        """The total of all clients' ticks in a set-up with this number of names."""
        ...

    def chores(self, params: Params, entities: int) -> Mapping[str, Chore]:
        """The work of a set-up and of a round that takes time, but for messages, for estimates. Names are unique.

        A chore of another federation with the same name takes the same time.
        """
        ...

    def idle(self, params: Params, clients: int) -> tuple[Form, Params]:
        """A federation of so many clients with the same phases, and almost nothing to do in them, for estimates."""
        ...

    def facts(self, params: Params) -> dict[str, int]:
        """Facts for a plan: the number of `primes`; `sigma_prime`, the bits that hide each element; and more."""
        ...

    def memory(self, params: Params, entities: int) -> dict[str, int]:
        """Memory in bytes: of a `client`, the `server`, all `together` in one process; and what a client has `kept`."""
        ...

    def products(self, params: Params, entities: int) -> tuple[int, int]:
        """The number of multiplications in a set-up and in a round, over all parties."""
        ...

    def client(
        self,
        params: Params,
        session: bytes,
        roster: Roster,
        number: int,
        identity: Identity,
        names: Iterable[Any],
        entropy: Entropy,
    ) -> ClientPart:
        """A new part for client `number`."""
        ...

    def server(self, params: Params, session: bytes) -> ServerPart:
        """A new part for the server."""
        ...


class FormDefaults:
    """Defaults for a form: hellos carry only keys, all sizes are known, and all messages have the same numbers."""

    unsized: ClassVar[frozenset[IntEnum]] = frozenset()

    def introduction_bytes(self, params: Params) -> int:
        """0: a hello carries only keys."""
        return 0

    def check_introduction(self, params: Params, data: bytes) -> None:
        """There is nothing to check."""

    def label(self, kind: IntEnum, at: Agreement) -> dict[str, int]:
        """All numbers that are agreed on."""
        return at.numbers

    def cautions(self, asked: Params) -> tuple[UserWarning, ...]:
        """None."""
        return ()

    def needed(self, params: Params, at: Agreement) -> tuple[int, ...]:
        """Nobody in particular."""
        return ()

    def fill_widths(self, params: Params, table: Table) -> Widths:
        """Nothing is added."""
        return np.zeros_like

    def begun(self, anchor: bytes, phase: str, numbers: dict[str, int], word: bytes) -> bytes:
        """A context that is bound to what was agreed on before, and to who takes part."""
        return begun(anchor, phase, numbers, word)
