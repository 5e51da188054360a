"""What a federation of any size costs: bytes by formula, and operations counted, which `bench.units` prices.

`Setting.of` is the keyed form as it is. `Setting.wide` is the design of docs/scale.md, which is not built: a committee
holds the key of the names and the shares of masks, and counts are hidden up to a bound.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final

from bench import units
from bench.shapes import Shape
from secea.forms.costs import message_bytes
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.numbers import Numbers, numbers_of
from secea.params import Params
from secea.party.client import ROWS_BYTES
from secea.party.phases import Agreement, Begin, Route
from secea.steps.union import COLUMNS, Geometry
from secea.wire.keys import HELLO_BYTES, KEY_BYTES
from secea.wire.messages import DIGEST_BYTES, HEADER_BYTES, TAG_BYTES, Layout

CORRUPT: Final = 0.05
VANISH: Final = 0.05
"""The shares of clients that conspire with the server, and that vanish in a round: of the design, not as built."""
SIGMA: Final = 40
ROUNDS: Final = 1000
"""Over which these bits are promised."""
CLIENT: Final = "client"
COMMITTEE: Final = "committee"


# ------------------------------------------------------------------------------------------------------- what is run


@dataclass(frozen=True)
class Bounded(Keyed):
    """The keyed form with other numbers: counts are hidden up to a bound, and shown above it."""

    hidden: Numbers | None = None

    def numbers(self, params: Params) -> Numbers:
        """Field, fixed point, fill and noise."""
        return self.hidden or super().numbers(params)


@dataclass(frozen=True)
class Setting:
    """Who takes part in a round, and how many each of them has to do with."""

    form: Keyed
    params: Params
    """Its clients are those who hold the key and the shares: all of them, or the committee."""
    clients: int
    """Those who contribute to a round."""
    union: int
    own: int
    masks: int
    """Neighbours of each. One client has one more where these and the clients are odd in number."""
    noisy: int
    """Noise clients."""
    built: bool = True
    """Without a committee."""

    @classmethod
    def of(cls, shape: Shape, dropouts: int, most: int = 0) -> Setting:
        """The keyed form as it is; or with counts that are hidden up to `most`."""
        form = Keyed()
        params = form.checked(shape.params(dropouts=dropouts))
        N = params.clients
        noisy = form.noise_count(params, N)
        if most:
            form = Bounded(hidden=wide_numbers(params, N, most, noisy))
        return cls(form, params, N, shape.entities, shape.own, min(form.degree(params), N - 1), noisy)

    @classmethod
    def wide(cls, shape: Shape, contributors: int, most: int) -> Setting:
        """The design for `shape.clients`, with counts hidden up to `most`; T and D are shares of all clients."""
        members, T = committee()
        params = Params(
            clients=members, collusion=T, dropouts=T, dim=shape.dim, max_entities=shape.bound or shape.own,
            max_union=shape.entities,
        )  # fmt: skip
        bits = SIGMA + math.log2(ROUNDS)
        noisy, masks = _enough(bits, CORRUPT + VANISH), 2 * _enough(bits + math.log2(contributors), CORRUPT)
        form = Bounded(batch=1, hidden=wide_numbers(params, shape.clients, most, noisy))
        return cls(form, params, contributors, shape.entities, shape.own, masks, noisy, built=False)

    @property
    def numbers(self) -> Numbers:
        """Field, fixed point, fill and noise."""
        return self.form.numbers(self.params)

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return self.numbers.ring.element_bytes

    @property
    def width(self) -> int:
        """Columns of an upload."""
        return self.params.dim + self.numbers.checks + 2

    @property
    def upload(self) -> int:
        """Bytes of the rows of an upload."""
        return self.union * self.width * self.element

    @property
    def means(self) -> int:
        """Bytes of the rows of a broadcast."""
        return self.union * (self.params.dim + self.numbers.checks) * self.element

    def layout(self, kind: IntEnum, *, noisy: bool = False) -> Layout:
        """How a message falls into chunks."""
        everyone = tuple(range(self.params.clients))
        at = Agreement("upload", everyone, everyone, union=1, names=1, round=1, size=self.union)
        turn = self.form.noise_clients(self.params, at)
        others = [n for n in everyone if n not in turn]
        return self.form.layout(kind, self.params, at, turn[0] if noisy or not others else others[0])


def _enough(bits: float, share: float) -> int:
    """The least k with share^k <= 2^-bits."""
    return math.ceil(bits / -math.log2(share))


@lru_cache
def committee(corrupt: float = CORRUPT, bits: int = SIGMA) -> tuple[int, int]:
    """The least committee, drawn at random, in which T = D = (m-1)/3 conspire, or vanish, and no more: m and T."""
    for m in range(4, 1000, 3):
        T = (m - 1) // 3
        tail = sum(math.comb(m, j) * corrupt**j * (1 - corrupt) ** (m - j) for j in range(T + 1, m + 1))
        if tail <= 2.0**-bits:
            return m, T
    raise AssertionError


def wide_numbers(params: Params, clients: int, most: int, noisy: int) -> Numbers:
    """Numbers for counts hidden up to `most`; sums over more owners, whose count is shown, have to fit as well."""
    spare = max(0, math.ceil(math.log2(clients / most)))
    readers = math.ceil(math.log2(max(1.0, clients * CORRUPT / min(params.T, most - 1))))
    return numbers_of(
        replace(
            params, clients=most, collusion=min(params.T, most - 1), dropouts=0, max_union=params.max_entities,
            max_abs=math.ldexp(params.max_abs, spare), precision=params.precision + spare,
            sigma=params.sigma + readers,
        ),
        noisy,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- bytes


@dataclass(frozen=True)
class Message:
    """Messages of one kind and size: how many the clients send, and how many they get. Some are the committee's."""

    kind: str
    size: int
    up: int = 0
    down: int = 0
    by: str = CLIENT
    to: str = CLIENT
    chunks: int = 1


def _sealed(size: int) -> int:
    return message_bytes(Layout(1, size))


def _cut(layout: Layout, message: Message, *, signed: bool = False) -> Message:
    """The message with the size and the chunks that its layout gives it."""
    return replace(message, size=message_bytes(layout, signed=signed), chunks=layout.chunks)


def _whole(s: Setting, kind: IntEnum, up: int, down: int = 0, *, by: str = CLIENT, to: str = CLIENT) -> Message:
    message = Message(kind.name.lower(), 0, up, down, by, to)
    return _cut(s.layout(kind), message, signed=s.form.routes[kind] is Route.ALL)


def _broadcast(s: Setting, kind: IntEnum, receivers: int, to: str = CLIENT) -> list[Message]:
    """A broadcast, its key, and the tag of each receiver."""
    return [
        _whole(s, kind, 0, receivers, to=to),
        Message("key", _sealed(KEY_BYTES + DIGEST_BYTES + ROWS_BYTES), down=receivers, to=to),
        Message("digest", _sealed(TAG_BYTES), down=receivers, to=to),
    ]


def round_messages(s: Setting) -> list[Message]:
    """A round with everybody."""
    n, m = s.clients, s.params.clients
    members = Begin.size(n) if s.built else Begin.size(0) + KEY_BYTES  # all members, or the root of their list
    sent = [
        Message("begin", _sealed(members), down=2 * n),
        _whole(s, Kind.READY, n),
        _cut(s.layout(Kind.UPLOAD, noisy=True), Message("upload", 0, s.noisy)),
        _whole(s, Kind.UPLOAD, n - s.noisy),
        *_broadcast(s, Kind.MEANS, n),
    ]
    if not s.params.dropouts:
        return sent
    who, role = (n, CLIENT) if s.built else (m, COMMITTEE)  # those who vote and open
    there = _sealed(Begin.size(n) if s.built else members + -(-n // 8))  # U, or a bit for each client
    sent += [
        Message("begin", there, down=who, to=role),
        _whole(s, Kind.VOTE, who, by=role),
        *_broadcast(s, Kind.VOTES, who, role),
        Message("opening", _sealed(32 * n), who, by=role),
    ]
    if s.built:
        return sent
    # The keys of each round are made in it: nobody knows long before whether it is drawn.
    return [*sent, _whole(s, Kind.BATCH, n, n * s.masks), _whole(s, Kind.SECRETS, n * m, n * m, to=COMMITTEE)]


def setup_messages(s: Setting, everybody: int = 0) -> list[Message]:
    """The first set-up: of all clients as it is built, or of `everybody` with the committee."""
    N, m, T = everybody or s.clients, s.params.clients, s.params.T
    pairs, role = m * (m - 1), CLIENT if s.built else COMMITTEE
    hello, members = HEADER_BYTES + HELLO_BYTES, Begin.size(N) if s.built else Begin.size(0) + KEY_BYTES
    others, answers = (N * (N - 1), (T + 1) * (N - 1)) if s.built else (N * m, (T + 1) * N)
    lists = _broadcast(s, Kind.LISTS, T + 1, role)
    sent = [
        Message("hello", hello, N, N + others),
        Message("begin", _sealed(members), down=N),
        *(_whole(s, kind, m, pairs, by=role, to=role) for kind in (Kind.COMMITMENT, Kind.DEALING, Kind.CONFIRM)),
        _whole(s, Kind.SHARE, pairs, pairs, by=role, to=role),
        _whole(s, Kind.LIST, N),
        _whole(s, Kind.MARK, N, others, to=role),
        _cut(replace(s.layout(Kind.LISTS), sections=N), lists[0]),
        *lists[1:],
        _whole(s, Kind.EVALUATION, answers, answers, by=role),
        _whole(s, Kind.PART, others, others, by=role),
        _whole(s, Kind.TABLE, N),
        *_broadcast(s, Kind.TAGS, N),
    ]
    if not s.built:
        return [*sent, Message("hello", hello, down=others, to=role)]
    return sent if not s.params.dropouts else [
        *sent, _whole(s, Kind.BATCH, N, others), _whole(s, Kind.SECRETS, others, others)
    ]  # fmt: skip


def total(messages: list[Message], *, up: str = "", down: str = "") -> int:
    """Bytes on all hops, as `secea.plan` counts them; or only those that a role sends, or gets."""
    if not up and not down:
        return sum(each.size * (each.up + each.down) for each in messages)
    return sum(each.size * (each.up * (each.by == up) + each.down * (each.to == down)) for each in messages)


def by_kind(messages: list[Message]) -> Counter[str]:
    """Bytes on all hops, by kind."""
    found: Counter[str] = Counter()
    for each in messages:
        found[each.kind] += each.size * (each.up + each.down)
    return found


# -------------------------------------------------------------------------------------------------------------- work

Work = dict[str, tuple[int, Counter[str]]]
"""For each role: how many have it, and what one of them does. The names are those of `bench.units`."""


def _hops(s: Setting, messages: list[Message], clients: int, work: Work) -> None:
    """Each message and chunk on each leg: half of the work is done at either end, and one end is the server's."""
    legs: Counter[str] = Counter()
    for each in messages:
        legs[each.by] += each.up * each.chunks
        legs[each.to] += each.down * each.chunks
    halves = {CLIENT: legs[CLIENT] // (2 * clients), COMMITTEE: legs[COMMITTEE] // (2 * s.params.clients)}
    work[CLIENT][1]["hop"] = halves[CLIENT]
    if legs[COMMITTEE]:
        work[COMMITTEE][1]["hop"] = halves[COMMITTEE]
    work["server"][1]["hop"] = legs.total() - clients * halves[CLIENT] - s.params.clients * halves[COMMITTEE]


def round_work(s: Setting) -> Work:
    """What each party does in a round with everybody."""
    n, d, M, checks = s.clients, s.params.dim, s.union, s.numbers.checks
    m, t, tolerant = s.params.clients, s.form.threshold(s.params), bool(s.params.dropouts)
    chunks = s.layout(Kind.UPLOAD).chunks
    pad = M * checks * s.element
    client = Counter({
        "encode": s.own * d, "decode": s.own * d, "name": s.own, "write": M, "read": M, "pad": s.noisy * pad,
        "mask": (s.masks + tolerant) * s.upload, "seal": s.upload, "open": s.means, "tag": s.means,
        "derive": (n - 1 if s.built else s.masks) + s.masks + chunks * (2 * (3 + 2 * checks) + s.noisy * checks),
        "turn": 1,
    })  # fmt: skip
    noisy = Counter({"noise": M * d, "weigh": M, "seal": pad})
    server = Counter({
        "open": n * s.upload + s.noisy * pad, "add": n * s.upload, "noise": s.noisy * M * d, "divide": M,
        "seal": s.means, "tag": n * s.means,
    })  # fmt: skip
    if tolerant:
        client["exchange"] = s.masks
        server += Counter({"mask": n * s.upload, "recover": n, "verify": n if s.built else n + m})
    if tolerant and s.built:
        client += Counter({"sign": 1, "verify": t})
        server += Counter({"keep": n * s.upload, "add": n * s.upload})  # it keeps uploads until they are whole
    elif tolerant:
        client += Counter({"sign": 1, "publish": 1, "share": 2, "verify": s.masks})
    roles: Work = {CLIENT: (n, client), "noise client": (s.noisy, noisy), "server": (1, server)}
    if not s.built:
        roles[COMMITTEE] = m, Counter({"sign": 1, "verify": t, "take": n})
    _hops(s, round_messages(s), n, roles)
    return roles


def setup_work(s: Setting, everybody: int = 0) -> Work:
    """What each party does in the first set-up."""
    N, m, T = everybody or s.clients, s.params.clients, s.params.T
    points, batch = s.form.list_size(s.params, 1), s.form.batch
    near = N if s.built else m  # those with whom a client deals itself
    cells = Geometry.of(s.union, 0, b"").cells * COLUMNS * 8
    tags = 8 * s.union
    member = Counter({"verify": 3 * (m - 1), "sign": 3, "commit": 5, "prove": m - 1, "join keys": m, "exchange": m})
    client = Counter({
        "verify": near + (near - 1 if s.built else 0), "exchange": near + (near - 1 if s.built else s.masks), "sign": 2,
        "derive": 2 * near, "blind": points, "finish": points, "new name": s.own, "fill": 1,
        "hide": (N - 1 if s.built else s.masks) * cells, "seal": cells, "open": tags, "tag": tags,
    })  # fmt: skip
    holder = Counter({"evaluate": N * (points + 1)})
    server = Counter({
        "verify": N + 4 * m + (0 if s.built else N), "exchange": N, "peel": 1, "open": N * cells, "add": N * cells,
    })  # fmt: skip
    if s.params.dropouts and s.built:
        client += Counter({"verify": N - 1, "sign": 1, "share": 2 * batch, "publish": 2 * batch, "take": N * batch})
        server["verify"] += N
    if not s.built:
        member += Counter({"verify": N, "exchange": N})
    roles = {CLIENT: (N, client), COMMITTEE: (m, member), "holder": (T + 1, holder), "server": (1, server)}
    _hops(s, setup_messages(s, everybody), N, roles)
    return roles


def cpu(work: Work, prices: units.Units, *roles: str) -> float:
    """CPU seconds of one party that has these roles; of all parties, where none is named."""
    found = {role: sum(amount * prices[name] for name, amount in each.items()) for role, (_, each) in work.items()}
    return sum(found.get(role, 0.0) for role in roles) if roles else sum(work[role][0] * found[role] for role in work)


def prices(s: Setting, parties: units.Units, *, setup: bool = True) -> units.Units:
    """What each operation costs on this machine, on chunks like those of this setting."""
    rows = min(s.union, s.layout(Kind.UPLOAD).per_chunk)
    own = max(1, rows * s.own // s.union)
    found = parties | units.of_tables(s.params, s.numbers, s.own)
    found |= units.of_rows(s.numbers, s.params.dim, rows, own, s.masks + bool(s.params.dropouts))
    found |= units.of_keys(s.params.clients, s.params.T, s.form.threshold(s.params))
    return found | units.of_union(s.union, s.own, max(1, s.masks)) if setup else found


def parties(clients: int = 16, names: int = 1_000) -> units.Units:
    """Prices of messages, and what parties do beside: for each name, message and leg, and turn of a client.

    They are what is left of a tiny federation's set-up and round, when all that is counted is taken off.
    """
    (setup, round_), (long_setup, long_round) = units.spent(clients, 1), units.spent(clients, names)
    many = clients * (names - 1)
    rest = {"name": (long_round - round_) / many, "new name": (long_setup - setup) / many}
    tiny = Setting.of(Shape(clients, 1, 1, 1, 1), 0)
    known = prices(tiny, units.of_messages() | rest | {"hop": 0.0, "turn": 0.0})
    known |= {"blind": 0.0, "evaluate": 0.0, "finish": 0.0}  # its names are hashed
    setup_, each = setup_work(tiny), round_work(tiny)
    rest["hop"] = max(0.0, setup - cpu(setup_, known)) / amount(setup_, "hop")
    rest["turn"] = max(0.0, round_ - cpu(each, known | rest)) / clients
    return {name: known[name] for name in units.MESSAGES} | rest


def amount(work: Work, name: str) -> int:
    """How often all parties together do something."""
    return sum(count * each[name] for count, each in work.values())
