"""The public side of the paper's form: its messages and their routes, its table of phases, its rules, and its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61
from secea.errors import ParamsError
from secea.forms.paillier import planning
from secea.forms.paillier.buckets import Buckets, Full, Queries
from secea.forms.paillier.numbers import Numbers, numbers_of
from secea.forms.paillier.retrieval import public_key
from secea.forms.paillier.sharing import SEED_LAYOUT, seeded_clients
from secea.params import MAX_CLIENTS, Params, span
from secea.party.form import Chore, FormDefaults
from secea.party.phases import Agreement, Route, Row
from secea.steps.union import COLUMNS, Geometry
from secea.wire.keys import Identity, Roster, digest
from secea.wire.messages import DIGEST_BYTES, Layout
from secea.wire.randomness import Entropy

if TYPE_CHECKING:
    from secea.forms.paillier.client import PaillierClient
    from secea.forms.paillier.server import PaillierServer
    from secea.party.disclosure import Disclosure
    from secea.party.session import Session

QueriesName: TypeAlias = Literal["buckets", "full"]
QUERIES: Final[tuple[QueriesName, ...]] = ("buckets", "full")
NO_PLACEMENT: Final = b"placement"
"""What a client says that cannot place its entities."""


class Kind(IntEnum):
    """The messages of the paper's form; sealed to another client, a hello is a part of the shared secret."""

    HELLO = 1
    TABLE = 2
    """A masked lookup table of tags."""
    TAGS = 3
    """The union."""
    QUERY = 4
    """A share of a client's queries."""
    SHARE = 9
    """A share of a client's embeddings."""
    BEGIN = 10
    """The server's word on who takes part, or whose messages count."""
    ANSWER = 11
    """Encrypted shares of all means that somebody asks for."""
    MEAN = 12
    """These, masked by the server."""
    ABORT = 13
    """A client cannot place its entities."""


ROUTES: Final[Mapping[IntEnum, Route]] = {
    Kind.HELLO: Route.EACH,
    Kind.TABLE: Route.SERVER,
    Kind.TAGS: Route.SAME,
    Kind.QUERY: Route.EACH,
    Kind.SHARE: Route.EACH,
    Kind.ANSWER: Route.SERVER,
    Kind.MEAN: Route.OWN,
    Kind.ABORT: Route.SERVER,
}

SECRET, QUERY, SHARE = 1, 2, 6
"""The server's words on whose parts, queries and shares count, by number."""

ROWS: Final = (
    Row("secret", (Kind.HELLO,), on_loss="secret", then="table", announced=True, tolerates=True, settles=SECRET),
    Row("table", (Kind.TABLE,), (Kind.TAGS,), on_loss="secret", then="query"),
    Row("query", (Kind.QUERY,), on_loss="secret", tolerates=True, settles=QUERY, instead=Kind.ABORT),
    Row(
        "share",
        (Kind.SHARE,),
        on_loss="secret",
        then="answer",
        counts="round",
        silent=True,
        tolerates=True,
        settles=SHARE,
        loses_round=True,
    ),
    Row("answer", (Kind.ANSWER,), (Kind.MEAN,), on_loss="secret", counts="", tolerates=True, loses_round=True),
    Row("end", announced=True, counts=""),
)


@dataclass(frozen=True)
class Paillier(FormDefaults):
    """The paper's form and its options."""

    queries: QueriesName = "buckets"
    """"buckets": three times the union for each client. "full": the paper's, entities times union."""

    name: ClassVar[Literal["paillier"]] = "paillier"
    kinds: ClassVar[type[IntEnum]] = Kind
    routes: ClassVar[Mapping[IntEnum, Route]] = ROUTES
    streamed: ClassVar[frozenset[IntEnum]] = frozenset(Kind) - {Kind.HELLO, Kind.BEGIN}
    unsized: ClassVar[frozenset[IntEnum]] = frozenset({Kind.TAGS, Kind.MEAN})
    setup_phase: ClassVar[str] = "secret"
    union_phase: ClassVar[str] = "secret"
    names_phase: ClassVar[str] = ""
    prepare_phase: ClassVar[str] = ""
    ready_phase: ClassVar[str] = "share"
    round_phase: ClassVar[str] = "share"
    end_phase: ClassVar[str] = "end"
    guests: ClassVar[int] = 0
    last_epoch: ClassVar[int] = 0

    # ---------------------------------------------------------------------------------------------------------- rules

    def checked(self, params: Params) -> Params:
        """Section 1 of the specification: which N, T and D go together."""
        if self.queries not in QUERIES:
            raise ParamsError(f"queries must be one of {', '.join(QUERIES)}, got {self.queries!r}")
        n, T = params.clients, 1 if params.collusion is None else params.collusion
        if params.options:
            raise ParamsError(f'the form "paillier" has no {params.options[0]}; form="keyed" has it')
        if n < 3:
            raise ParamsError(
                f"clients must be from 3 to {MAX_CLIENTS} (with two, each would learn the other's embedding by"
                f' subtraction), got {n}; two clients need form="keyed"'
            )
        minority = (n + 1) // 2 - 1
        if minority < T:
            raise ParamsError(f"collusion must be a minority, {span(1, minority)} of {n} clients, got {T}")
        most = n - 2 * T - 1
        if params.dropouts > most:
            hint = f"with collusion {T}, {n} clients leave room for {most or 'no'} drop-outs"
            raise ParamsError(f"dropouts must be {span(0, most)}: {hint}, got {params.dropouts}")
        resolved = replace(params, collusion=T)
        if resolved.bounded:
            self.numbers(resolved)
        return resolved

    def canonical(self, params: Params) -> str:
        """All parameters, the form and its queries."""
        return f"{params.canonical()}\n{self.name} {self.queries}"

    def numbers(self, params: Params) -> Numbers:
        """Everything that follows from the parameters."""
        return numbers_of(params, self.queries)

    def table(self, params: Params) -> tuple[Row, ...]:
        """The table of phases."""
        return ROWS

    def fewest(self, params: Params, phase: str = "secret", names: int = 0) -> int:
        """T colluders must face two others, and there must be enough answers. Anyone may hear that it is over."""
        return 1 if phase == self.end_phase else max(params.fewest_contributors, params.quorum)

    def quorum(self, params: Params, at: Agreement) -> int:
        """How many members must be left in a phase that continues without some of them."""
        return params.quorum if at.phase == "answer" else self.fewest(params)

    # ------------------------------------------------------------------------------------------------------- messages

    def introduction_bytes(self, params: Params) -> int:
        """A client's hello carries its Paillier modulus."""
        return params.key_bits // 8

    def check_introduction(self, params: Params, data: bytes) -> None:
        """A modulus of the right size without an obvious weakness."""
        public_key(data, params.key_bits)

    def label(self, kind: IntEnum, at: Agreement) -> dict[str, int]:
        """The round's number does not matter in the set-up, but for announcements."""
        turn = at.round if kind in (Kind.BEGIN, Kind.SHARE, Kind.ANSWER, Kind.MEAN, Kind.ABORT) else 0
        return {"epoch": at.union, "attempt": at.attempt, "weights": 0, "round": turn}

    def next_numbers(self, phase: str, at: Agreement, *, again: bool) -> dict[str, int]:
        """A round has the next number; the set-up the next epoch."""
        numbers = self.label(Kind.BEGIN, at)
        if phase == self.round_phase:
            return numbers | {"round": at.round + 1}
        if phase == self.end_phase:
            return numbers
        return numbers | {"epoch": at.union + 1, "attempt": at.attempt + 1 if again else 0}

    def begun(self, anchor: bytes, phase: str, numbers: dict[str, int], word: bytes) -> bytes:
        """The context of an epoch is bound to its members."""
        return digest(b"members", b"%d %d" % (numbers["epoch"], numbers["attempt"]), word)

    def senders(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """All members."""
        return at.members

    def receivers(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """All members."""
        return at.members

    def seeded(self, kind: IntEnum, params: Params, at: Agreement, sender: int) -> tuple[int, ...]:
        """The T clients that get a sender's shares as seeds."""
        label = self.label(kind, at)
        return seeded_clients(params, sender, label["round"] + label["epoch"] + kind)

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int) -> Layout:
        """How a message falls into chunks."""
        if kind in (Kind.QUERY, Kind.SHARE) and receiver in self.seeded(kind, params, at, sender):
            return SEED_LAYOUT
        return self.whole(kind, params, at)

    def whole(self, kind: IntEnum, params: Params, at: Agreement) -> Layout:
        """How a message falls into chunks that does not go as a seed."""
        n, element = self.numbers(params), RING61.element_bytes
        match kind:
            case Kind.TABLE:
                return Layout(self.geometry(params, at).cells, COLUMNS * element)
            case Kind.TAGS:
                return Layout(at.size, element)
            case Kind.QUERY:
                return Layout(n.positions(at.size), element)
            case Kind.SHARE:
                return Layout(at.size, n.block_length * element)
            case Kind.ANSWER:  # interleaved: the same rows of sums answer the same stretch of everyone's queries
                return Layout(n.count, n.answer_row_bytes, len(at.members), prefix=DIGEST_BYTES, interleaved=True)
            case Kind.MEAN:
                return self.mean_layout(params, len(at.members))
            case Kind.ABORT:
                return Layout(1, len(NO_PLACEMENT))
            case _:
                return SEED_LAYOUT

    def mean_layout(self, params: Params, answering: int) -> Layout:
        """The layout for this number of answers. The chunks are those of an answer."""
        n = self.numbers(params)
        step = Layout(n.count, n.answer_row_bytes).per_chunk
        prefix = answered_bytes(params) + answering * DIGEST_BYTES
        return Layout(n.count, answering * n.answer_row_bytes, per_chunk=step, prefix=prefix)

    def geometry(self, params: Params, at: Agreement) -> Geometry:
        """The lookup table of a union: its seed is public and new in every attempt."""
        assert params.max_union is not None
        return Geometry.of(params.max_union, at.attempt, at.context)

    def shape(self, params: Params, tags: NDArray[np.uint64], context: bytes) -> Queries:
        """Which entities each query runs over. The seed of the buckets is public, and no single party chooses it."""
        count = self.numbers(params).count
        return Full(tags.size, count) if self.queries == "full" else Buckets(tags, count, context)

    # ---------------------------------------------------------------------------------------------------------- parts

    def following(self, params: Params, before: Session, parts: Mapping[int, Any], stay: Sequence[int | None]) -> None:
        """A session that follows another one keeps nothing."""

    def client(
        self,
        params: Params,
        session: bytes,
        roster: Roster,
        number: int,
        identity: Identity,
        names: Iterable[Any],
        entropy: Entropy,
    ) -> PaillierClient:
        """The part of client n."""
        from secea.forms.paillier.client import PaillierClient

        return PaillierClient(self, params, number, names, entropy)

    def server(self, params: Params, session: bytes) -> PaillierServer:
        """The server's part."""
        from secea.forms.paillier.server import PaillierServer

        return PaillierServer(self, params)

    # ----------------------------------------------------------------------------------------------------------- plans

    def patience(self, params: Params, at: Agreement) -> float:
        """Seconds that a slow client may encrypt or decrypt."""
        return planning.patience(self, params, at)

    def trust(self, params: Params) -> tuple[str, ...]:
        """Who may conspire with whom."""
        return planning.trust(params)

    def disclosure(self, params: Params) -> Disclosure:
        """Who learns what, for people who sign it."""
        from secea.forms.paillier.disclosure import disclosure

        return disclosure(params)

    def ticks(self, params: Params, names: int) -> int:
        """Nothing in the set-up takes long."""
        return 0

    def chores(self, params: Params, entities: int) -> Mapping[str, Chore]:
        """What takes time in a set-up and in a round."""
        from secea.forms.paillier.chores import chores

        return chores(self, params, entities)

    def idle(self, params: Params, clients: int) -> tuple[Paillier, Params]:
        """One entity each, of length 1, and keys that protect nothing."""
        few = replace(
            params, clients=clients, collusion=1, dropouts=0, dim=1, precision=16, max_entities=1, max_union=clients,
            key_bits=256, insecure_small_keys=True,
        )  # fmt: skip
        return self, few

    def facts(self, params: Params) -> dict[str, int]:
        """What a plan states."""
        return {"primes": 1, "sigma_prime": self.numbers(params).sigma_prime}

    def memory(self, params: Params, entities: int) -> dict[str, int]:
        """Bytes that parties hold."""
        return planning.memory(self, params, entities)

    def products(self, params: Params, entities: int) -> tuple[int, int]:
        """Multiplications of a set-up and of a round."""
        return planning.products(self, params, entities)


# Contexts: what the parties must agree on at each point, as a digest that goes into every later key. Each is bound to
# the one before it, so that no message made under one history opens under another.


def union_context(at: Agreement, tags: NDArray[np.uint64]) -> bytes:
    """After the union is known."""
    return digest(b"union", at.context, tags.astype("<u8").tobytes())


def settled_context(at: Agreement) -> bytes:
    """After the server said whose messages count in a phase."""
    number = at.round if at.phase == "share" else 0
    return digest(at.phase.upper().encode(), at.context, b"%d" % number, at.word)


def answered_bytes(params: Params) -> int:
    """The bytes that say who answered, one bit for each client."""
    return -(-params.N // 8)


def answered_to_bytes(params: Params, clients: Iterable[int]) -> bytes:
    """Who answered, as bits."""
    return sum(1 << v for v in clients).to_bytes(answered_bytes(params), "little")


def answered_from_bytes(data: bytes) -> tuple[int, ...]:
    """The clients whose bits are set."""
    bits = int.from_bytes(data, "little")
    return tuple(v for v in range(8 * len(data)) if bits >> v & 1)
