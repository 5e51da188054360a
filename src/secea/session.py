"""What all parties of a session know: parameters, roster, form, and how each kind of message falls into chunks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Ring
from secea.arithmetic.lagrange import Code
from secea.buckets import Buckets, Full, Queries, bucket_count
from secea.errors import ParamsError
from secea.forms import CHOICES
from secea.params import Params
from secea.retrieval import Retrieval, check_paper
from secea.retrieval.paillier import Paillier
from secea.retrieval.reciprocal import Reciprocal
from secea.steps.union import COLUMNS, Geometry
from secea.wire.keys import Roster, digest, spelled
from secea.wire.messages import DIGEST_BYTES, WIRE_VERSION, Announcement, Kind, Layout

FORMS: Final = ("reciprocal", "paillier")
QUERIES: Final = ("buckets", "full")


def check_choice(form: object, queries: object) -> str:
    """The name of one of the paper's forms; what is none, or no kind of queries, is refused."""
    if not isinstance(form, str) or form not in FORMS:
        raise ParamsError(f"form must be one of {', '.join(CHOICES)}, got {form!r}")
    if queries not in QUERIES:
        raise ParamsError(f"queries must be one of {', '.join(QUERIES)}, got {queries!r}")
    return form


@dataclass(frozen=True, init=False)
class Scheme:
    """Parameters and choices: from them follow the field, the code, and the size of every message."""

    params: Params
    """With collusion chosen."""
    _form: str
    queries: str

    def __init__(self, params: Params, form: str = "reciprocal", queries: str = "buckets") -> None:
        if not params.bounded:
            raise ParamsError("max_entities and max_union must be known: set both in Params")
        check_choice(form, queries)
        object.__setattr__(self, "params", check_paper(params))
        object.__setattr__(self, "_form", form)
        object.__setattr__(self, "queries", queries)
        _ = self.form  # refuses parameters that the form cannot work with

    @cached_property
    def form(self) -> Retrieval:
        """The form's public side."""
        return (Reciprocal if self._form == "reciprocal" else Paillier)(self.params, self.query_count)

    @property
    def ring(self) -> Ring:
        """The field, or the residue number system, of shares and queries."""
        return self.form.ring

    @property
    def code(self) -> Code:
        """The polynomial code."""
        return self.form.code

    @property
    def max_union(self) -> int:
        """The public bound on the union."""
        assert self.params.max_union is not None
        return self.params.max_union

    @property
    def max_entities(self) -> int:
        """The public bound on one client's entities."""
        assert self.params.max_entities is not None
        return self.params.max_entities

    @property
    def query_count(self) -> int:
        """The queries that each client sends, whatever it owns: B."""
        return bucket_count(self.max_entities) if self.queries == "buckets" else self.max_entities

    def query_shape(self, tags: NDArray[np.uint64], context: bytes) -> Queries:
        """Which entities each query runs over. The seed of the buckets is public, and no single party chooses it."""
        if self.queries == "full":
            return Full(tags.size, self.query_count)
        return Buckets(tags, self.query_count, context)

    def query_positions(self, M: int) -> int:
        """The length of all queries of one client together."""
        return 3 * M if self.queries == "buckets" else self.query_count * M

    def geometry(self, attempt: int, context: bytes) -> Geometry:
        """The lookup table of a union: its seed is public and new in every attempt."""
        return Geometry.of(self.max_union, attempt, context)

    @cached_property
    def _layouts(self) -> dict[tuple[Kind, int, int, int], Layout]:
        return {}

    def layout(self, kind: Kind, M: int, clients: int, *, attempt: int = 0) -> Layout:
        """How a message of that kind falls into chunks; `clients` take part, M is the size of the union."""
        of = (kind, M, clients, attempt)
        if of not in self._layouts:
            self._layouts[of] = self._layout(*of)
        return self._layouts[of]

    def _layout(self, kind: Kind, M: int, clients: int, attempt: int) -> Layout:
        element, J, form = self.ring.element_bytes, self.query_count, self.form
        match kind:
            case Kind.TABLE:
                return Layout(self.geometry(attempt, b"").cells, COLUMNS * RING61.element_bytes)
            case Kind.TAGS:
                return Layout(M, RING61.element_bytes)
            case Kind.QUERY:
                return Layout(self.query_positions(M) + (J if form.weighted else 0), element)
            case Kind.INDICATOR:
                return Layout(M, element)
            case Kind.OPENING | Kind.RECIPROCAL:
                return Layout(J, element, clients)
            case Kind.RESHARE:  # the queries of all clients, one after the other
                return Layout(clients * self.query_positions(M), element)
            case Kind.SHARE:
                return Layout(M, form.block_length * element)
            case Kind.ANSWER:  # interleaved: the same rows of sums answer the same stretch of everyone's queries
                return Layout(J, form.answer_row_bytes, clients, prefix=DIGEST_BYTES, interleaved=True)
            case Kind.MEAN:  # `clients` answered; the chunks are those of an answer
                step = Layout(J, form.answer_row_bytes).per_chunk
                prefix = self.answered_bytes + clients * DIGEST_BYTES
                return Layout(J, form.mean_row_bytes(clients), 1, step, prefix)
            case _:
                raise AssertionError(f"{kind} has no rows")

    @property
    def answered_bytes(self) -> int:
        """The bytes that say who answered, one bit for each client."""
        return -(-self.params.N // 8)

    def answered_to_bytes(self, clients: tuple[int, ...]) -> bytes:
        """Who answered, as bits."""
        return sum(1 << v for v in clients).to_bytes(self.answered_bytes, "little")

    def answered_from_bytes(self, data: bytes) -> tuple[int, ...]:
        """The clients whose bits are set."""
        bits = int.from_bytes(data, "little")
        return tuple(v for v in range(8 * len(data)) if bits >> v & 1)


@dataclass(frozen=True, init=False)
class Session(Scheme):
    """A scheme and a roster. Its hash binds everything public; parties with different hashes refuse each other."""

    roster: Roster = field(kw_only=True)

    def __init__(self, params: Params, roster: Roster, form: str = "reciprocal", queries: str = "buckets") -> None:
        object.__setattr__(self, "roster", roster)
        super().__init__(params, form, queries)
        if len(roster.clients) != params.clients:
            raise ParamsError(f"the roster has {len(roster.clients)} clients, Params has {params.clients}")

    @cached_property
    def hash(self) -> bytes:
        """32 bytes over wire version, Params with bounds, form, queries, and roster."""
        text = f"secea session {WIRE_VERSION}\n{self.params.canonical()}\n{self.form.name} {self.queries}\n"
        return hashlib.sha256(text.encode() + self.roster.canonical()).digest()

    @property
    def fingerprint(self) -> str:
        """What the parties compare over another channel before they start: roster, parameters, choices, version."""
        return spelled(self.hash)


def label_of(kind: Kind, *, epoch: int, attempt: int, weights: int, round: int) -> dict[str, int]:
    """The numbers in a message's label: a round's do not matter in the set-up, nor do those of the weights."""
    if kind in (Kind.CONTRIBUTORS, Kind.SHARE, Kind.ANSWER, Kind.MEAN, Kind.ABORT):
        return {"epoch": epoch, "attempt": attempt, "weights": weights, "round": round}
    if kind in (Kind.OPENING, Kind.RECIPROCAL, Kind.RESHARE):
        return {"epoch": epoch, "attempt": attempt, "weights": weights, "round": 0}
    return {"epoch": epoch, "attempt": attempt, "weights": 0, "round": 0}


# Contexts: what the parties must agree on at each point, as a digest that goes into every later key. Each is bound to
# the one before it, so that no message made under one history opens under another.


def members_context(epoch: int, attempt: int, greeting: Announcement) -> bytes:
    """After the members of an epoch were announced."""
    return digest(b"members", b"%d %d" % (epoch, attempt), greeting.to_bytes())


def union_context(before: bytes, tags: NDArray[np.uint64]) -> bytes:
    """After the union is known."""
    return digest(b"union", before, tags.astype("<u8").tobytes())


def step_context(before: bytes, number: int, announcement: Announcement) -> bytes:
    """After an announcement: `number` is that of the weights or of the round, where there is one."""
    return digest(announcement.step.name.encode(), before, b"%d" % number, announcement.to_bytes())
