"""What a form of the protocol is: a table of phases, the way of each message, and a part for client and server.

The parties (`secea.party`) know nothing else of a form. A part is a small state machine without labels, keys or order:
it is asked for payloads, and given payloads that are authentic, complete, and of the right length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.errors import ProtocolError
from secea.params import Params
from secea.party.phases import Agreement, Route, Row, begun
from secea.table import Name, Table, TableLike
from secea.wire.keys import Identity, Roster
from secea.wire.link import Link
from secea.wire.messages import Buffer, Layout
from secea.wire.randomness import Entropy

if TYPE_CHECKING:
    from secea.party.session import Session
    from secea.plan import Plan

Got: TypeAlias = Mapping[tuple[IntEnum, int], bytes]
"""What came in a phase: the whole payload of each (kind, sender)."""


class Retry(Exception):
    """What was collected gives no result, and another attempt may."""


class ClientPart(Protocol):
    """What client n does in each phase."""

    link: Link
    """Its connections; set before anything else is asked of it."""

    @property
    def introduction(self) -> bytes:
        """What its hello carries beside keys: a part that was restored says the same as before."""
        ...

    @property
    def faults(self) -> list[ProtocolError]:
        """What others did wrong in the last round, and could be mended."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether a new union has to come before its next round, and it is no secret."""
        ...

    def prepare(self) -> None:
        """Offline, before a round: whatever does not depend on the tables, and needs no message."""
        ...

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """The table that it trained in a training round. `RoundLost` where that round's values cannot go out again."""
        ...

    def means_like(self, table: Table) -> NDArray[np.floating[Any]]:
        """The means of the last round, in the order and the dtype of a table."""
        ...

    def checked(self, table: TableLike) -> Table:
        """The table, if this client can contribute it."""
        ...

    def update(self, names: Iterable[object], *, at_once: bool = True) -> None:
        """Other entities from the next epoch of names on; `at_once`, or as many in each as there is room for."""
        ...

    def inherit(self, before: Session, part: Any) -> None:
        """Take over what a session that follows another one keeps, from this client's part in that one."""
        ...

    def renounce(self) -> None:
        """The session did not come about: the one before goes on, as far as that is still safe."""
        ...

    tick: Callable[[int], None] | None
    """Called with what was done of the long part of a set-up."""

    @property
    def trained(self) -> bool:
        """Whether it has a table for the round that is to begin."""
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
    def renamed(self) -> bool:
        """Whether its entities change with the next epoch of names."""
        ...

    @property
    def next_names(self) -> tuple[Name, ...]:
        """Its entities, from the next epoch of names on."""
        ...

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """What must be agreed on before an announced phase begins."""
        ...

    def check_begin(self, at: Agreement) -> None:
        """Refuse, with a `ValueError`, what the server must not announce now."""
        ...

    def enter(self, at: Agreement) -> None:
        """A phase begins: draw what it needs. Nothing is drawn later, so that a message can be made again."""
        ...

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The chunks of a message for each receiver, each in parts; `SERVER` and `ALL` may be receivers too.

        Those of one receiver come in order; in which order receivers take turns is for the form to say.
        """
        ...

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """A chunk that is read as it comes. A `ProtocolError`, or a `ValueError`, says why it cannot be right."""
        ...

    def plain(self) -> dict[str, Any]:
        """What must survive a restart, for a snapshot."""
        ...

    def restore(self, plain: dict[str, Any]) -> None:
        """The state that was saved. What is held in memory alone is gone."""
        ...

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """All is here: the next state, and what is agreed on now. A `ProtocolError` blames, and changes nothing.

        `Retry` where it cannot go on, and the table says what is sent instead.
        """
        ...


class ClientDefaults:
    """What most forms ask of a client's part: nothing in its hello, nothing that could be mended, nothing ahead."""

    tick: Callable[[int], None] | None = None

    @property
    def introduction(self) -> bytes:
        """Keys alone."""
        return b""

    @property
    def unsettled(self) -> bool:
        """Whatever changes, it is not said openly."""
        return False

    @property
    def without_mean(self) -> tuple[Name, ...]:
        """Every entity gets a mean."""
        return ()

    @property
    def faults(self) -> list[ProtocolError]:
        """None."""
        return []

    def prepare(self) -> None:
        """Nothing is made ahead without messages."""

    def inherit(self, before: Session, part: Any) -> None:
        """A session that follows another one keeps nothing."""

    def renounce(self) -> None:
        """There is nothing to give back."""


class ServerPart(Protocol):
    """What the server does in each phase."""

    link: Link
    """Its connections; set before anything else is asked of it."""

    def prepare(self, at: Agreement) -> None:
        """As for a client."""
        ...

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """As for a client."""
        ...

    def enter(self, at: Agreement) -> None:
        """A phase begins."""
        ...

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        """A chunk of a message that is used as it comes. A `ValueError` says why it cannot be right."""
        ...

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The chunks that can leave now, in order, each with its receiver (`ALL` for all); each is given once."""
        ...

    renamed: bool
    """Whether somebody's entities changed, when the last training was over."""

    def prepared(self, at: Agreement) -> bool:
        """Whether what is made ahead of rounds is there for the next one."""
        ...

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """All is here: what is agreed on now. Or `Retry`."""
        ...


class Form(Protocol):
    """One form of the protocol: everything about it that is public."""

    def introduction_bytes(self, params: Params) -> int:
        """The bytes that a client's hello carries beside keys."""
        ...

    def check_introduction(self, params: Params, data: bytes) -> None:
        """Refuse, with a `ValueError`, what a client's hello carries."""
        ...

    @property
    def unsized(self) -> frozenset[IntEnum]:
        """The kinds whose size their receiver does not know before: its part checks it."""
        ...

    def label(self, kind: IntEnum, at: Agreement) -> dict[str, int]:
        """The numbers in the label of a message of this kind."""
        ...

    def begun(self, anchor: bytes, phase: str, numbers: dict[str, int], word: bytes) -> bytes:
        """The context in which an announced phase begins."""
        ...

    @property
    def name(self) -> str:
        """As users write it."""
        ...

    @property
    def kinds(self) -> type[IntEnum]:
        """Its messages; those of `Common` are among them."""
        ...

    @property
    def routes(self) -> Mapping[IntEnum, Route]:
        """The way of each kind."""
        ...

    @property
    def streamed(self) -> frozenset[IntEnum]:
        """The kinds that are used chunk by chunk, and not collected."""
        ...

    def table(self, params: Params) -> tuple[Row, ...]:
        """The table of phases."""
        ...

    def quorum(self, params: Params, at: Agreement) -> int:
        """How many members are enough in a phase that goes on without some."""
        ...

    @property
    def setup_phase(self) -> str:
        """The phase with which a session begins."""
        ...

    @property
    def names_phase(self) -> str:
        """The phase with which changed entities begin; empty where a new union is all that they need."""
        ...

    @property
    def union_phase(self) -> str:
        """The phase with which a union of other participants begins."""
        ...

    @property
    def prepare_phase(self) -> str:
        """The phase in which what rounds need is made ahead."""
        ...

    @property
    def ready_phase(self) -> str:
        """The phase in which clients say that they have trained."""
        ...

    @property
    def round_phase(self) -> str:
        """The phase in which a round begins."""
        ...

    @property
    def end_phase(self) -> str:
        """The phase with which a run is over."""
        ...

    @property
    def last_epoch(self) -> int:
        """The last epoch of names that a session may have."""
        ...

    def patience(self, params: Params, at: Agreement) -> float:
        """Seconds that a slow client may compute in a phase, beyond what its bytes take."""
        ...

    @property
    def guests(self) -> int:
        """Those behind the clients in the roster, who take part in the set-up alone: they leave."""
        ...

    def following(
        self, params: Params, before: Session, parts: Mapping[int, Any], stay: Sequence[int | None]
    ) -> Form | None:
        """The form of a session that follows another one and keeps its keys; None where nothing can be kept.

        `stay` has the old number of each client, or None for a newcomer; `parts` are those of the old members.
        """
        ...

    def checked(self, params: Params) -> Params:
        """The parameters with what was left open filled in; a `ParamsError` where the form cannot work with them."""
        ...

    def canonical(self, params: Params) -> str:
        """The form's line in the session's hash."""
        ...

    def fewest(self, params: Params, phase: str, names: int) -> int:
        """Clients refuse to take part in an announced phase, in this epoch of names, with fewer."""
        ...

    def next_numbers(self, phase: str, at: Agreement, *, again: bool) -> dict[str, int]:
        """The numbers under which a phase is announced next; `again` where the last attempt stalled."""
        ...

    def senders(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """The clients that send this kind."""
        ...

    def receivers(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """The clients that get this kind."""
        ...

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int) -> Layout:
        """How a message falls into chunks."""
        ...

    def cautions(self, asked: Params) -> tuple[UserWarning, ...]:
        """What a user who asks for these parameters should know, though the form can work with them."""
        ...

    def trust(self, params: Params) -> tuple[str, ...]:
        """Who may conspire with whom, and what must be there: sentences for people who plan a federation."""
        ...

    def ticks(self, params: Params, names: int) -> int:
        """What all clients' ticks add up to in a set-up with so many names."""
        ...

    def trial(self, params: Params) -> tuple[Params, int, int]:
        """The parameters of a federation like this one that can be tried out in seconds; bounds are open.

        And the fewest entities that it should have, and the most names of all clients together.
        """
        ...

    def work(self, cost: Plan, phase: str) -> int:
        """What the time of the `setup`, or of a `round`, grows with, in a plan."""
        ...

    def facts(self, params: Params) -> dict[str, int]:
        """What a plan states: `primes` side by side, `sigma_prime`, the bits that hide each element, and more."""
        ...

    def memory(self, params: Params, entities: int) -> dict[str, int]:
        """Bytes that a `client`, the `server`, and all `together` in one process hold; what a client has `kept`."""
        ...

    def products(self, params: Params, entities: int) -> tuple[int, int]:
        """Multiplications of a set-up and of a round, all parties together."""
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
        """The part of client n."""
        ...

    def server(self, params: Params, session: bytes) -> ServerPart:
        """The server's part."""
        ...


class FormDefaults:
    """What most forms share: hellos with keys alone, sizes that all know, one set of numbers for all messages."""

    unsized: ClassVar[frozenset[IntEnum]] = frozenset()

    def introduction_bytes(self, params: Params) -> int:
        """A hello carries keys alone."""
        return 0

    def check_introduction(self, params: Params, data: bytes) -> None:
        """There is nothing to check."""

    def label(self, kind: IntEnum, at: Agreement) -> dict[str, int]:
        """All that is agreed on."""
        return at.numbers

    def cautions(self, asked: Params) -> tuple[UserWarning, ...]:
        """None."""
        return ()

    def begun(self, anchor: bytes, phase: str, numbers: dict[str, int], word: bytes) -> bytes:
        """Bound to what was agreed on before, and to who takes part."""
        return begun(anchor, phase, numbers, word)
