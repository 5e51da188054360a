"""The public side of the keyed form: its messages and their routes, its table of phases, its rules, and its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from secea.arithmetic.field import RING61
from secea.errors import ParamsError, TwoClients, Uncovered
from secea.forms.keyed import planning
from secea.forms.keyed.numbers import Numbers, numbers_of
from secea.params import Params, integer, span
from secea.party.form import Chore, FormDefaults, Widths
from secea.party.phases import Agreement, Route, Row, row_of
from secea.steps import oprf
from secea.steps.union import COLUMNS, Geometry
from secea.wire.keys import SIGNATURE_BYTES, Identity, Roster
from secea.wire.messages import ALL, CHUNK_BYTES, DIGEST_BYTES, Layout
from secea.wire.randomness import SEED_BYTES, Entropy

if TYPE_CHECKING:
    from secea.forms.keyed.handover import Handover
    from secea.party.disclosure import Disclosure
    from secea.party.session import Session
    from secea.table import Table


class Kind(IntEnum):
    """The messages of the keyed form."""

    HELLO = 1
    BEGIN = 2
    KEY = 3
    DIGEST = 4
    COMMITMENT = 16
    """The hash of a dealer's commitments."""
    DEALING = 17
    """The commitments, and a proof that the dealer knows what it committed to."""
    SHARE = 18
    """A share of a dealer's part of the key."""
    LIST = 19
    """Blinded names, padded."""
    MARK = 20
    """The hash of that list."""
    CONFIRM = 21
    """The hash of all marks: everyone has seen the same lists."""
    LISTS = 22
    """All lists, for those who hold the key."""
    EVALUATION = 23
    """A holder's part of the PRF of each point of a list."""
    PART = 24
    """A part of the shared secret, and a key for masks."""
    TABLE = 25
    """A masked lookup table of tags."""
    TAGS = 26
    """The union."""
    READY = 27
    """A client has trained, and can upload; and, under masks, whether its entities changed."""
    UPLOAD = 28
    """A client's masked rows."""
    MEANS = 29
    """The means under their keys, the same for all."""
    BATCH = 30
    """Public halves of mask keys, and hashes of self seeds, for some rounds ahead."""
    SECRETS = 31
    """Shares of these keys and seeds."""
    VOTE = 32
    """A signature under who is in the sum."""
    VOTES = 33
    """Enough of them."""
    OPENING = 34
    """Shares of what lies over the sum."""


ROUTES: Final[Mapping[IntEnum, Route]] = {
    Kind.COMMITMENT: Route.ALL,
    Kind.DEALING: Route.ALL,
    Kind.SHARE: Route.EACH,
    Kind.LIST: Route.SERVER,
    Kind.MARK: Route.ALL,
    Kind.CONFIRM: Route.ALL,
    Kind.LISTS: Route.BROADCAST,
    Kind.EVALUATION: Route.EACH,
    Kind.PART: Route.EACH,
    Kind.TABLE: Route.SERVER,
    Kind.TAGS: Route.BROADCAST,
    Kind.READY: Route.SERVER,
    Kind.UPLOAD: Route.SERVER,
    Kind.MEANS: Route.BROADCAST,
    Kind.BATCH: Route.ALL,
    Kind.SECRETS: Route.EACH,
    Kind.VOTE: Route.SERVER,
    Kind.VOTES: Route.BROADCAST,
    Kind.OPENING: Route.SERVER,
}

ROWS: Final = (
    Row("commit", (Kind.COMMITMENT,), on_loss="commit", then="deal", announced=True),
    Row("deal", (Kind.DEALING, Kind.SHARE), on_loss="commit", then="list"),
    Row("list", (Kind.LIST, Kind.MARK), on_loss="list", then="confirm", announced=True),
    Row("confirm", (Kind.CONFIRM,), (Kind.LISTS,), on_loss="list", then="evaluate"),
    Row("evaluate", (Kind.EVALUATION,), on_loss="list", then="secret"),
    Row("secret", (Kind.PART,), on_loss="secret", then="table", announced=True),
    Row("table", (Kind.TABLE,), (Kind.TAGS,), on_loss="secret"),
    Row("ready", (Kind.READY,), on_loss="secret", announced=True, counts=""),
    Row("upload", (Kind.UPLOAD,), (Kind.MEANS,), on_loss="secret", announced=True, counts="round", loses_round=True),
    Row("end", announced=True, counts=""),
)
"""The table of phases without drop-outs."""

TOLERANT: Final = (
    *ROWS[:6],
    replace(ROWS[6], then="batch"),
    ROWS[7],
    replace(ROWS[8], answers=(), then="agree", tolerates=True),
    ROWS[9],
    Row("batch", (Kind.BATCH, Kind.SECRETS), on_loss="secret", announced=True, counts=""),
    Row(
        "agree",
        (Kind.VOTE,),
        (Kind.VOTES,),
        on_loss="secret",
        then="open",
        announced=True,
        decides=True,
        counts="",
        tolerates=True,
        loses_round=True,
    ),
    Row("open", (Kind.OPENING,), (Kind.MEANS,), on_loss="secret", counts="", tolerates=True, loses_round=True),
)
"""The table of phases with drop-outs: masks are shared in batches, and opened by those who are left."""


@dataclass(frozen=True)
class Keyed(FormDefaults):
    """The keyed form and its options."""

    min_participants: int | None = None
    """Clients do not take part with fewer participants. None: T + 2, or 2 if everybody else may conspire.

    With drop-outs: N - D.
    """
    max_new_entities: int | None = None
    """The most new names of a client in each later epoch. None: the larger of 16 and a tenth of max_entities."""
    max_updates: int = 16
    """Epochs with new names in a session, after the first."""
    batch: int = 64
    """Rounds for which mask keys are made and shared at once (drop-outs only)."""

    name: ClassVar[Literal["keyed"]] = "keyed"
    kinds: ClassVar[type[IntEnum]] = Kind
    routes: ClassVar[Mapping[IntEnum, Route]] = ROUTES
    rows: ClassVar[tuple[Row, ...]] = ROWS
    streamed: ClassVar[frozenset[IntEnum]] = frozenset({Kind.TABLE, Kind.UPLOAD, Kind.MEANS})
    setup_phase: ClassVar[str] = "commit"
    ready_phase: ClassVar[str] = "ready"
    round_phase: ClassVar[str] = "upload"
    end_phase: ClassVar[str] = "end"
    names_phase: ClassVar[str] = "list"
    union_phase: ClassVar[str] = "secret"
    prepare_phase: ClassVar[str] = "batch"

    def checked(self, params: Params) -> Params:
        """Section 1 of the specification: which N, T and D go together."""
        N, D = params.clients, params.dropouts
        for name in ("min_participants", "max_new_entities", "max_updates", "batch"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name))
        if D > N - 2:
            raise ParamsError(f"dropouts must be {span(0, N - 2)} with {N} clients, got {D}")
        covered = N - 1 - 2 * D  # the largest T with which a deviating server is covered
        T = (covered if covered >= 1 else N - 1 - D) if params.collusion is None else params.collusion
        if T > N - 1 - D:
            raise ParamsError(f"collusion must be {span(1, N - 1 - D)} with {N} clients and {D} drop-outs, got {T}")
        if not 1 <= self.batch <= 1 << 15:
            raise ParamsError(f"batch must be from 1 to {1 << 15} rounds, got {self.batch}")
        resolved = replace(params, collusion=T)
        if not 2 <= self.fewest(resolved) <= N:
            raise ParamsError(f"min_participants must be {span(2, N)}, got {self.min_participants}")
        if self.max_updates < 0 or (self.max_new_entities or 0) < 0:
            raise ParamsError("max_updates and max_new_entities cannot be negative")
        if resolved.bounded:
            self.numbers(resolved)
        return resolved

    def canonical(self, params: Params) -> str:
        """Everything public that the parties must agree on, in one line."""
        n = self.numbers(params)
        return (
            f"{params.canonical()}\nkeyed;min_participants={self.fewest(params)};"
            f"max_new_entities={self.list_size(params, 2)};max_updates={self.max_updates};"
            f"{f'batch={self.batch};' if params.dropouts else ''}"
            f"primes={n.ring.primes};f={n.f};s={n.s};w={n.w};wide={n.noise.wide}"
        )

    def fewest(self, params: Params, phase: str = "secret", names: int = 2) -> int:
        """The fewest participants: of a union or a round; for a key; for new names."""
        N, T = params.clients, params.T
        if phase == self.setup_phase or (phase == self.names_phase and names == 1):
            return N  # a client that missed the first epoch would show by its later lists how many names it has
        if phase == self.names_phase:
            return self.signatures(params)  # more than T, whom a holder needs
        if phase in ("agree", "open"):
            return self.threshold(params)
        if self.min_participants is not None:
            return self.min_participants
        if params.dropouts:
            return self.threshold(params)
        return 2 if T == N - 1 else min(N, T + 2)

    def threshold(self, params: Params) -> int:
        """t: the number of shares that open a mask key. It depends on the roster, not on who takes part."""
        return params.clients - params.dropouts

    def quorum(self, params: Params, at: Agreement) -> int:
        """How many members are enough in a phase that continues without some of them."""
        return self.threshold(params)

    def needed(self, params: Params, at: Agreement) -> tuple[int, ...]:
        """In an upload with a minimum of owners: who subtracts it."""
        designated = self.designated(params, at)
        return () if designated is None or at.phase != self.round_phase else (designated,)

    def table(self, params: Params) -> tuple[Row, ...]:
        """The table of phases: with drop-outs it has three more."""
        return TOLERANT if params.dropouts else ROWS

    # ---------------------------------------------------------------------------------------- from session to session

    @property
    def taken_over(self) -> Handover | None:
        """What a session that follows another one takes over from it."""
        return None

    @property
    def guests(self) -> int:
        """The number of leaving clients. They come last in the roster, and take part only in the set-up."""
        return 0

    @property
    def last_epoch(self) -> int:
        """The last epoch of names that a session may have."""
        return 1 + self.max_updates

    def following(
        self, params: Params, before: Session, parts: Mapping[int, Any], stay: Sequence[int | None]
    ) -> Keyed | None:
        """The form of a session of these clients that keeps the key of its names. None if it must not keep it."""
        from secea.forms.keyed.handover import following

        return following(self, params, before, parts, stay)

    # -------------------------------------------------------------------------------------------- what follows from T

    def noise_count(self, params: Params, members: int) -> int:
        """W: the number of noise clients in a round with `members` participants."""
        return min(members, params.T + params.dropouts + 1)

    def numbers(self, params: Params) -> Numbers:
        """Field, fixed point, fill and noise."""
        return numbers_of(params, self.noise_count(params, params.clients))

    def degree(self, params: Params) -> int:
        """The neighbours of each client in the graph of masks."""
        return params.T + params.dropouts + 1

    def holders(self, params: Params, at: Agreement) -> tuple[int, ...]:
        """O: the members that answer for the key of the names."""
        return at.members[: params.T + 1]

    def noise_clients(self, params: Params, at: Agreement) -> tuple[int, ...]:
        """The members whose turn it is to add noise in this round."""
        size = len(at.participants)
        turn = {at.participants[(at.round + i) % size] for i in range(self.noise_count(params, size))}
        return tuple(sorted(turn & set(at.members)))

    def designated(self, params: Params, at: Agreement) -> int | None:
        """With a minimum of owners: the participant whose turn it is to subtract in every slot. It must be in the sum.

        None if there is no minimum.
        """
        return at.participants[at.round % len(at.participants)] if params.min_owners > 1 else None

    def width(self, params: Params) -> int:
        """The elements of a slot in an upload: data, checks, count and mark; and those of a minimum of owners."""
        return params.columns + self.numbers(params).checks + 2 * params.min_owners

    def list_size(self, params: Params, names: int) -> int:
        """The names that a list has room for, in the first epoch and in later ones."""
        assert params.max_entities is not None
        later = max(16, params.max_entities // 10) if self.max_new_entities is None else self.max_new_entities
        return params.max_entities if names <= 1 else min(params.max_entities, later)

    def signatures(self, params: Params) -> int:
        """Z: how many clients must have seen the same lists before a holder answers."""
        return oprf.signatures_needed(params.clients, params.T)

    def geometry(self, params: Params, at: Agreement) -> Geometry:
        """The lookup table of a union."""
        assert params.max_union is not None
        return Geometry.of(params.max_union, at.attempt, at.context)

    # ------------------------------------------------------------------------------------------------------- messages

    def next_numbers(self, phase: str, at: Agreement, *, again: bool) -> dict[str, int]:
        """A round has the next q; anything else the next union, and new names where they are asked for."""
        numbers = at.numbers
        if phase == self.round_phase:
            return numbers | {"round": at.round + 1}
        if row_of(TOLERANT, phase).counts == "":
            return numbers
        fresh = phase in (self.setup_phase, self.names_phase)
        attempt = at.attempt + 1 if again else 0
        numbers |= {"epoch": at.union + 1, "attempt": attempt, "weights": at.named + 1 if fresh else at.named}
        return numbers

    def senders(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """All members, except for what only holders send."""
        return self.holders(params, at) if kind is Kind.EVALUATION else at.members

    def receivers(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """All members, except for what goes only to holders."""
        return self.holders(params, at) if kind is Kind.LISTS else at.members

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int = ALL) -> Layout:
        """How a message is cut into chunks."""
        points = self.list_size(params, at.names) + 1
        match kind:
            case Kind.COMMITMENT | Kind.MARK | Kind.CONFIRM | Kind.SHARE:
                return Layout(1, 32)
            case Kind.DEALING:
                return Layout(1, 32 * (params.T + 1) + 64)
            case Kind.LIST | Kind.EVALUATION:
                return Layout(points, 32)
            case Kind.LISTS:
                return Layout(points, 32, len(self.senders(Kind.LIST, params, at)))
            case Kind.PART:
                return Layout(1, 2 * SEED_BYTES)
            case Kind.TABLE:
                return Layout(self.geometry(params, at).cells, COLUMNS * RING61.element_bytes)
            case Kind.TAGS:
                return Layout(at.size, RING61.element_bytes)
            case Kind.READY:
                return Layout(1, DIGEST_BYTES + RING61.element_bytes)
            case Kind.BATCH | Kind.SECRETS:
                return Layout(1, 64 * self.batch)  # these are whole, at any size
            case Kind.VOTE:
                return Layout(1, SIGNATURE_BYTES)
            case Kind.VOTES:
                return Layout(1, self.threshold(params) * (2 + SIGNATURE_BYTES))
            case Kind.OPENING:
                return Layout(1, 32 * len(at.participants))
            case Kind.UPLOAD | Kind.MEANS:
                return self._rows(kind, params, at, sender)
            case _:
                raise AssertionError(f"{kind!r} has no rows")

    def _rows(self, kind: IntEnum, params: Params, at: Agreement, sender: int) -> Layout:
        """Uploads and means have the same slots in each chunk."""
        n = self.numbers(params)
        element, columns, width = n.ring.element_bytes, params.columns + n.checks, self.width(params)
        step = max(1, CHUNK_BYTES // (width * element))
        if kind is Kind.MEANS:
            return Layout(at.size, columns * element + 1, per_chunk=step)
        noisy = sender in self.noise_clients(params, at)
        row = (width + (n.checks if noisy else 0)) * element
        return Layout(at.size, row, per_chunk=step, prefix=SEED_BYTES if noisy else 0)

    def patience(self, params: Params, at: Agreement) -> float:
        """The PRF of names takes a fraction of a millisecond for each point of each list."""
        heavy = at.phase in ("list", "confirm", "evaluate", "secret")
        return 1e-3 * self.list_size(params, at.names) * len(at.members) if heavy else 0.0

    # ----------------------------------------------------------------------------------------------------------- plans

    def cautions(self, asked: Params) -> tuple[UserWarning, ...]:
        """Warn if two clients can subtract, and if there are too many drop-outs to cover a deviating server."""
        params = self.checked(asked)
        found: list[UserWarning] = [TwoClients(self.trust(params)[-1])] if params.clients == 2 else []
        if asked.collusion is None and params.clients <= 2 * params.dropouts + params.T:
            found.append(Uncovered(self.trust(params)[2]))
        return tuple(found)

    def trust(self, params: Params) -> tuple[str, ...]:
        """Who may conspire with whom, whether a deviating server is covered, and who is needed for new names."""
        return planning.trust(self, params)

    def disclosure(self, params: Params) -> Disclosure:
        """Who learns what, and what options change, for people who sign it."""
        from secea.forms.keyed.disclosure import disclosure

        return disclosure(self, params)

    def fill_widths(self, params: Params, table: Table) -> Widths:
        """What is below a number's grid is filled."""
        from secea.forms.keyed.tables import fill_widths

        return fill_widths(params, table)

    def ticks(self, params: Params, names: int) -> int:
        """Points that holders answer, and that clients check and unblind."""
        return planning.ticks(self, params, names)

    def chores(self, params: Params, entities: int) -> Mapping[str, Chore]:
        """What takes time in a set-up and in a round."""
        from secea.forms.keyed.chores import chores

        return chores(self, params, entities)

    def idle(self, params: Params, clients: int) -> tuple[Keyed, Params]:
        """One entity each, of length 1, no options, and mask keys for a few rounds."""
        few = replace(
            params, clients=clients, collusion=1, dropouts=min(1, params.dropouts), dim=1, precision=16,
            max_entities=1, max_union=clients, min_owners=1, max_weight=None, partial=False, noise=0.0,
        )  # fmt: skip
        return replace(self, batch=4, min_participants=None), few

    def facts(self, params: Params) -> dict[str, int]:
        """The number of primes, sigma', and how numbers are encoded, filled and hidden by noise."""
        return planning.facts(self, params)

    def memory(self, params: Params, entities: int) -> dict[str, int]:
        """A client holds its encoded rows, its means and a few chunks; the server a few chunks of each client."""
        return planning.memory(self, params, entities)

    def products(self, params: Params, entities: int) -> tuple[int, int]:
        """Group multiplications of the names' PRF, and field multiplications of a round."""
        return planning.products(self, params, entities)

    # ----------------------------------------------------------------------------------------------------------- parts

    def client(
        self,
        params: Params,
        session: bytes,
        roster: Roster,
        number: int,
        identity: Identity,
        names: Iterable[Any],
        entropy: Entropy,
    ) -> Any:
        """The part of client n."""
        from secea.forms.keyed.client import KeyedClient

        return KeyedClient(self, params, session, roster, number, identity, names, entropy)

    def server(self, params: Params, session: bytes) -> Any:
        """The server's part."""
        from secea.forms.keyed.server import KeyedServer

        return KeyedServer(self, params, session)
