"""The exact law of what a party sees, in a tiny field: the checker of `test_views.py`.

`Core` is the mathematics of the protocol: the project's own functions, one call for each step, over a ring of one tiny
prime. All randomness is `Coins`: labelled streams, of which some are free and all others fixed. A view is a function of
the coins. Where it is affine in the free ones (this is checked), its law is that of a uniform element of a coset: the
image of the linear part, moved by the offset. `law` finds it from the view at 0 and at every unit vector, for each
choice of what is enumerated. `differ` compares two laws exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.buckets import EMPTY, Buckets, Full, Queries, Rows, place
from secea.field import Residues, Ring, insecure_ring
from secea.lagrange import Code
from secea.messages import Kind, Layout
from secea.params import Params
from secea.retrieval.reciprocal import (
    _Drowner,
    _Padder,
    open_masked,
    opened_masked,
    reciprocals,
    same_at_every_block,
    to_reshare,
)
from secea.sharing import Dealer, blocks, expand_rows, ones_at, seeded_clients, share_from_seed, spread

Elements: TypeAlias = NDArray[np.int64]
Label: TypeAlias = tuple[object, ...]
"""What a stream is for: its layer, then whose it is."""

# --------------------------------------------------------------------------------------------------------- randomness


def unchanged(label: Label) -> Label | None:
    return label


@dataclass
class Coins:
    """The randomness of one run. Streams of one label give the same elements, as at both ends of a pair.

    Elements of the layers in `free` are those of `values`, in the order in which they are first asked for, and 0
    beyond. Elements that must not be 0 come from `chosen` in layers that are enumerated. Everything else is a fixed
    function of label and seed. A mutant renames labels (None: no randomness at all), or repeats the elements of one
    query for all the others: `repeat` gives the axis of the queries.
    """

    free: frozenset[str] = frozenset()
    values: Sequence[int] | Elements = ()
    enumerated: frozenset[str] = frozenset()
    chosen: Sequence[int] = ()
    seed: int = 0
    rename: Callable[[Label], Label | None] = unchanged
    repeat: Mapping[str, int] = field(default_factory=dict)
    columns: list[Label] = field(default_factory=list)
    """The label of each free element."""
    asked: int = 0
    """Enumerated elements that were asked for."""
    _known: dict[tuple[Label, bool, int], Residues] = field(default_factory=dict)

    def stream(self, *label: object) -> Stream:
        return Stream(self, label)

    def from_seed(self, seed: bytes) -> Stream:
        """Stands for `KeyStream`: a seed is the text of its label."""
        return Stream(self, tuple(int(x) if x.lstrip("-").isdigit() else x for x in seed.decode().split("|")))

    def draw(self, label: Label, ring: Ring, shape: tuple[int, ...], call: int, *, nonzero: bool) -> Residues:
        renamed = self.rename(label)
        if renamed is None:
            return ring.zeros(*shape)
        key = (renamed, nonzero, call)
        if key not in self._known:
            axis = self.repeat.get(str(label[0]))
            drawn = list(shape)
            if axis is not None:
                drawn[axis] = 1
            part = self._drawn(renamed, ring, tuple(drawn), call, nonzero=nonzero)
            self._known[key] = np.ascontiguousarray(np.broadcast_to(part, (1, *shape)))
        return self._known[key].reshape(1, *shape).copy()

    def _drawn(self, label: Label, ring: Ring, shape: tuple[int, ...], call: int, *, nonzero: bool) -> Residues:
        count, layer = prod(shape), str(label[0])
        if nonzero and layer in self.enumerated:
            part = [self.chosen[i] if i < len(self.chosen) else 1 for i in range(self.asked, self.asked + count)]
            self.asked += count
        elif not nonzero and layer in self.free:
            start = len(self.columns)
            part = [int(self.values[i]) if i < len(self.values) else 0 for i in range(start, start + count)]
            self.columns += [label] * count
        else:
            rng = np.random.default_rng([self.seed, call, *repr((label, nonzero)).encode()])
            part = rng.integers(int(nonzero), ring.primes[0], count).tolist()
        return ring.constant(part).reshape(1, *shape)


class Stream:
    """Stands for a `KeyStream`."""

    def __init__(self, coins: Coins, label: Label) -> None:
        self.coins, self.label, self.calls = coins, label, 0

    def lane(self, number: int) -> Stream:
        return Stream(self.coins, (*self.label, number))

    def elements(self, ring: Ring, *shape: int) -> Residues:
        self.calls += 1
        return self.coins.draw(self.label, ring, shape, self.calls, nonzero=False)

    def nonzero(self, ring: Ring, *shape: int) -> Residues:
        """Their layer has a star, so that it can be told from that of other elements of the stream."""
        self.calls += 1
        return self.coins.draw((f"{self.label[0]}*", *self.label[1:]), ring, shape, self.calls, nonzero=True)

    def fill(self, out: memoryview) -> None:
        out[:] = self.bytes(len(out))

    def bytes(self, count: int) -> bytes:
        """Fixed, whatever is free."""
        self.calls += 1
        return np.random.default_rng([self.coins.seed, self.calls, *repr(self.label).encode()]).bytes(count)


# --------------------------------------------------------------------------------------------------------------- laws


class UndecidedError(Exception):
    """Two mixtures of cosets that none of the exact criteria tells apart, and that are too large to enumerate."""


def reduced(p: int, rows: Elements, offsets: Elements) -> tuple[Elements, Elements]:
    """For each case the row-reduced basis of the span of `rows` [cases, rows, D], and `offsets` [cases, D] modulo it.

    Two cosets are equal exactly where both of these are.
    """
    rows, offsets = rows % p, offsets % p
    cases, count, D = rows.shape
    rank, every = np.zeros(cases, np.int64), np.arange(count)
    inverses = np.array([0, *(pow(x, -1, p) for x in range(1, p))])
    for d in range(D):
        able = (rows[:, :, d] != 0) & (every >= rank[:, None])
        at = np.flatnonzero(able.any(axis=1))
        if not at.size:
            continue
        pivot, to = able[at].argmax(axis=1), rank[at]
        row = rows[at, pivot] * inverses[rows[at, pivot, d]][:, None] % p
        rows[at, pivot] = rows[at, to]
        factors = rows[at, :, d]
        part = (rows[at] - factors[:, :, None] * row[:, None]) % p
        part[np.arange(at.size), to] = row
        rows[at] = part
        offsets[at] = (offsets[at] - offsets[at, d][:, None] * row) % p
        rank[at] += 1
    return rows[:, : int(rank.max(initial=0))], offsets


@dataclass(frozen=True)
class Law:
    """A mixture of uniform distributions over cosets, each with its weight."""

    p: int
    D: int
    cosets: Mapping[tuple[bytes, bytes], Fraction]
    """(basis, offset) as bytes of int64."""

    def bases(self) -> set[bytes]:
        return {basis for basis, _ in self.cosets}

    def parts(self) -> Iterator[tuple[Elements, Elements, Fraction]]:
        for (basis, offset), weight in self.cosets.items():
            yield np.frombuffer(basis, np.int64).reshape(-1, self.D), np.frombuffer(offset, np.int64), weight

    def hull(self) -> tuple[bytes, bytes]:
        """The smallest coset that holds all of them."""
        parts = list(self.parts())
        first = parts[0][1]
        rows = np.concatenate([*(basis for basis, _, _ in parts), np.stack([offset for _, offset, _ in parts]) - first])
        basis, offset = reduced(self.p, rows[None], first[None])
        return trimmed(basis[0]), offset.tobytes()

    def points(self, most: int = 1 << 18) -> dict[bytes, Fraction]:
        """Every view with its probability."""
        if sum(self.p ** len(basis) for basis, _, _ in self.parts()) > most:
            raise UndecidedError
        found: dict[bytes, Fraction] = {}
        for basis, offset, weight in self.parts():
            combined = np.indices((self.p,) * len(basis)).reshape(len(basis), self.p ** len(basis)).T @ basis
            for point in (combined + offset) % self.p:
                key = point.tobytes()
                found[key] = found.get(key, Fraction(0)) + weight / self.p ** len(basis)
        return found


def trimmed(basis: Elements) -> bytes:
    return basis[basis.any(axis=1)].astype(np.int64).tobytes()


def law_of(p: int, offsets: Elements, linear: Elements) -> Law:
    """The mixture, in equal parts, of the cosets offset + image of linear: [cases, D] and [cases, D, free]."""
    bases, rests = reduced(p, np.ascontiguousarray(linear.transpose(0, 2, 1)), offsets)
    found = Counter((trimmed(basis), rest.astype(np.int64).tobytes()) for basis, rest in zip(bases, rests, strict=True))
    return Law(p, offsets.shape[1], {coset: Fraction(n, len(offsets)) for coset, n in found.items()})


def differ(one: Law, other: Law) -> bool:
    """Whether two views have different laws; exact in both directions, or `UndecidedError`."""
    assert (one.p, one.D) == (other.p, other.D)
    if one.cosets == other.cosets:
        return False
    if len(one.bases() | other.bases()) == 1:
        return True  # cosets of one space are equal or disjoint
    if one.hull() != other.hull():
        return True
    return one.points() != other.points()


def any_differ(laws: Iterable[Law]) -> bool:
    first, *others = laws
    return any(differ(first, other) for other in others)


View: TypeAlias = Callable[[Coins], Elements]
"""What is seen: [elements], or [cases, elements] where cases are enumerated within one run."""


@dataclass(frozen=True)
class Affine:
    """A view as offset + linear * free: [cases, D] and [cases, D, free]; `columns` says whose each free element is."""

    p: int
    offset: Elements
    linear: Elements
    columns: tuple[Label, ...]


def affine(view: View, p: int, *, like: Affine | None = None, **coins: Any) -> Affine:
    """The view at 0 and at each unit vector. That it is affine is checked at two random points.

    `like` is a map whose linear part this view is likely to have: then the random points alone are tried first.
    """
    zero = Coins(**coins)
    offset = np.atleast_2d(view(zero))
    count = len(zero.columns)
    probes = np.random.default_rng([count, offset.size]).integers(0, p, (2, count))
    seen = [np.atleast_2d(view(Coins(**coins, values=probe))) for probe in probes]

    def fits(linear: Elements) -> bool:
        return all(np.array_equal(x, (offset + linear @ probe) % p) for x, probe in zip(seen, probes, strict=True))

    if like is not None and like.linear.shape == (*offset.shape, count) and fits(like.linear):
        return Affine(p, offset, like.linear, tuple(zero.columns))
    linear = np.empty((*offset.shape, count), np.int64)
    for i, unit in enumerate(np.eye(count, dtype=np.int64)):
        linear[:, :, i] = (np.atleast_2d(view(Coins(**coins, values=unit))) - offset) % p
    assert fits(linear), "the view is not affine in what is free"
    return Affine(p, offset, linear, tuple(zero.columns))


def law(view: View, p: int, free: Iterable[str], enumerated: Iterable[str] = (), **coins: Any) -> Law:
    """The law of a view over the free layers, and over all nonzero values in the enumerated ones."""
    given = {"free": frozenset(free), "enumerated": frozenset(enumerated), **coins}
    first = Coins(**given)
    view(first)
    maps: list[Affine] = []
    for chosen in product(range(1, p), repeat=first.asked):
        maps.append(affine(view, p, like=maps[0] if maps else None, **given, chosen=chosen))
    return law_of(p, np.concatenate([m.offset for m in maps]), np.concatenate([m.linear for m in maps]))


# ------------------------------------------------------------------------------------------------------ the federation


@dataclass(frozen=True)
class World:
    """The inputs: for each client, its entities (rows of the union) with their embeddings."""

    owned: tuple[Mapping[int, Sequence[int]], ...]

    @property
    def union(self) -> int:
        return len({m for rows in self.owned for m in rows})

    def counts(self, contributors: Iterable[int]) -> list[int]:
        among = [self.owned[n] for n in contributors]
        return [sum(m in rows for rows in among) for m in range(self.union)]


def tiny_ring(params: Params) -> Ring:
    """The smallest field with room for all points, in which every count has an inverse."""
    p = params.N + params.K + params.T
    while any(p % d == 0 for d in range(2, p)) or params.C % p == 0:
        p += 1
    return insecure_ring(p)


@cache
def three_buckets(M: int) -> Buckets:
    return Buckets(np.arange(M, dtype=np.uint64), 3, bytes(32))


LAYERS = {"query": Kind.QUERY, "indicator": Kind.INDICATOR, "reshare": Kind.RESHARE, "share": Kind.SHARE}


class Core:
    """One epoch and one round of a world, step by step as `client.py` and `server.py` take them.

    The queries of `askers` alone are followed. `counted` says whether rows are (h, 1), as in 7a, or h alone. `memory`
    keeps, for further runs with the same fixed coins, the first shares in layers that are not free.
    """

    def __init__(
        self,
        params: Params,
        world: World,
        coins: Coins,
        *,
        askers: Sequence[int] | None = None,
        queries: int | None = None,
        code: Code | None = None,
        counted: bool = False,
        memory: dict[Label, Residues] | None = None,
    ) -> None:
        self.params, self.world, self.coins, self.counted = params, world, coins, counted
        self.code = code or Code(params, tiny_ring(params))
        self.ring: Ring = self.code.ring
        self.askers = tuple(askers if askers is not None else range(params.N))
        self.M = world.union
        self.shape: Queries = three_buckets(self.M) if queries is None else Full(self.M, queries)
        self._dealt: dict[Label, Residues] = {}
        self._memory = {} if memory is None else memory

    @property
    def p(self) -> int:
        return self.ring.primes[0]

    def everyone(self) -> tuple[int, ...]:
        return tuple(range(self.params.N))

    # ------------------------------------------------------------------------------------------------------- sharing

    def deal(self, layer: str, number: int, n: int, data: Residues) -> Residues:
        """Client n shares data [1, K, rows, width]: what every client gets, T of them from seeds, [1, N, rows, width].

        The label of a seed is (layer, number, n, which of the T seeds, chunk).
        """
        known = self._dealt if layer in self.coins.free or layer == "reshare" else self._memory
        if (layer, number, n) in known:
            return known[layer, number, n]
        turn: Any = SimpleNamespace(kind=LAYERS[layer], epoch=1, weights=number, round=0)
        seeded = seeded_clients(self.params, n, turn)
        seeds = {v: f"{layer}|{number}|{n}|{i}".encode() for i, v in enumerate(seeded)}
        rows, width = data.shape[2:]
        shares = self.ring.empty(self.params.N, rows, width)
        with patch("secea.sharing.KeyStream", self.coins.from_seed):
            dealer = Dealer(self.code, self.everyone(), seeds)
            shares[:, list(dealer.receivers)] = dealer.deal(0, data)
            for v, seed in seeds.items():
                (shares[:, v],) = share_from_seed(seed, self.ring, Layout(rows, width), width)
        known[layer, number, n] = shares
        return shares

    def rows(self, n: int) -> Rows:
        return np.array(sorted(self.world.owned[n]), np.int64)

    def placement(self, n: int) -> Rows:
        stream: Any = self.coins.stream("placement", 0, n)
        found = place(self.rows(n), self.shape, stream)
        assert found is not None
        return found

    def query(self, n: int) -> Residues:
        """Shares of client n's queries and of its marks for dummies: [1, N, positions + queries]."""
        known = self._dealt if "query" in self.coins.free else self._memory
        if ("query", 0, n) in known:
            return known["query", 0, n][..., 0]
        placement, span = self.placement(n), slice(0, self.shape.positions + self.shape.count)
        dummies = self.shape.positions + np.flatnonzero(placement == EMPTY)
        ones = np.concatenate([self.shape.wanted(placement), dummies])
        return self.deal("query", 0, n, ones_at(self.code, ones, span))[..., 0]

    def indicator(self, n: int) -> Residues:
        return self.deal("indicator", 0, n, ones_at(self.code, self.rows(n), slice(0, self.M)))[..., 0]

    def embedding(self, n: int) -> Residues:
        """Shares of client n's rows: [1, N, M, L]."""
        values = np.array([self.world.owned[n][m] for m in self.rows(n).tolist()], np.int64)
        values = values.reshape(len(self.rows(n)), self.params.dim)
        padded = expand_rows(values, self.params)
        own = self.ring.reduce(padded if self.counted else values)
        data = blocks(spread(self.ring, own, self.rows(n), slice(0, self.M)), self.code.K)
        return self.deal("share", 1, n, data)

    # ------------------------------------------------------------------------------------------------------- weights

    def found(self, v: int, contributors: Sequence[int]) -> Residues:
        """Client v's shares of the counts behind the queries: [1, askers, queries]."""
        ring, shape = self.ring, self.shape
        counts = ring.zeros(self.M)
        for n in contributors:
            ring.add_into(counts, np.ascontiguousarray(self.indicator(n)[:, v]))
        found = ring.empty(len(self.askers), shape.count)
        for i, n in enumerate(self.askers):
            query = np.ascontiguousarray(self.query(n)[:, v])
            sums = ring.gather(shape.starts, shape.members, query, counts[:, :, None])[:, :, 0]
            found[:, i] = ring.add(sums, np.ascontiguousarray(query[:, shape.positions :]))
        return found

    def rho(self, contributors: Sequence[int], number: int, *shape: int) -> Residues:
        return self.coins.stream("rho", number).nonzero(self.ring, *shape)

    def openings(self, contributors: Sequence[int], number: int = 1) -> Residues:
        """What the server gets: [1, contributors, askers, queries]."""
        sent = []
        for v in contributors:
            found = self.found(v, contributors)
            rho = self.rho(contributors, number, *found.shape[1:])
            sent.append(open_masked(self.code, found, rho, self.coins.stream("zeta", number), v))
        return np.stack(sent, axis=1)

    def reciprocals(self, contributors: Sequence[int], number: int = 1) -> Residues:
        """What the server shares out: [1, contributors, askers, queries]."""
        openings = self.openings(contributors, number)
        o, _ = opened_masked(self.code, {v: openings[:, i] for i, v in enumerate(contributors)})
        t = reciprocals(self.ring, o, self.params.C)
        assert t.all()
        noise = self.coins.stream("t", number, -1).elements(self.ring, self.code.T, *t.shape[1:])
        return self.code.encode(same_at_every_block(self.code, t), noise, contributors)

    def resharing(self, contributors: Sequence[int], number: int = 1) -> dict[int, Residues]:
        """What each of `need` clients shares out again: [1, N, askers, positions]."""
        resharers, shares = contributors[: self.code.need], self.reciprocals(contributors, number)
        span, dealt = slice(0, self.shape.positions), {}
        for v in resharers:
            t = np.ascontiguousarray(shares[:, contributors.index(v)])
            weights = self.ring.multiply(self.rho(contributors, number, *t.shape[1:]), t)
            products = []
            for i, n in enumerate(self.askers):
                query = np.ascontiguousarray(self.query(n)[:, v, span])
                weight = np.ascontiguousarray(weights[:, i][:, self.shape.query_of(span)])
                products.append(to_reshare(self.code, resharers, v, self.ring.multiply(query, weight)))
            data = np.ascontiguousarray(np.concatenate(products, axis=2)[..., None])
            whole = self.deal("reshare", number, v, data)
            dealt[v] = whole.reshape(1, self.params.N, len(self.askers), self.shape.positions)
        return dealt

    # --------------------------------------------------------------------------------------------------------- rounds

    def answers(self, contributors: Sequence[int], *, weighted: bool, number: int = 1) -> dict[int, list[Residues]]:
        """Each contributor's answers to each asker: [1, queries, L]."""
        ring, shape, N = self.ring, self.shape, self.params.N
        sums = None
        for n in contributors:
            sums = self.embedding(n).copy() if sums is None else ring.add_into(sums, self.embedding(n))
        assert sums is not None
        if weighted:
            weights = ring.zeros(N, len(self.askers), shape.positions)
            for dealt in self.resharing(contributors, number).values():
                ring.add_into(weights, dealt)
        else:
            weights = np.stack([self.query(n)[:, :, : shape.positions] for n in self.askers], axis=2)
        return {
            v: [
                ring.gather(
                    shape.starts,
                    shape.members,
                    np.ascontiguousarray(weights[:, v, i]),
                    np.ascontiguousarray(sums[:, v]),
                )
                for i in range(len(self.askers))
            ]
            for v in contributors
        }

    def covered(self, contributors: Sequence[int]) -> dict[int, list[Residues]]:
        """What the server gets in a round of 7b: answers under pads."""
        found: dict[int, list[Residues]] = {}
        for v, answers in self.answers(contributors, weighted=True).items():
            found[v] = []
            for n, answer in zip(self.askers, answers, strict=True):
                stream: Any = self.coins.stream("pad", v, n)
                body = _Padder(self.ring, stream).cover(0, answer)
                found[v].append(self.ring.from_bytes(body, *answer.shape[1:]))
        return found

    @cached_property
    def form(self) -> Any:
        """As much of `Reciprocal` as a round needs, with noise of one bit."""
        L = -(-self.params.dim // self.code.K)
        return SimpleNamespace(params=self.params, code=self.code, ring=self.ring, block_length=L, noise_bits=1, f=0)

    def means(self, contributors: Sequence[int]) -> dict[int, Residues]:
        """What client n finds under its pads, before it joins the primes: [1, K, queries, L]."""
        covered, found = self.covered(contributors), {}
        for i, n in enumerate(self.askers):
            drowning: Any = self.coins.stream("eta", n)
            answers = {v: self.ring.to_bytes(covered[v][i]) for v in contributors}
            body = _Drowner(self.form, drowning).mask(0, answers, self.shape.count)[0]
            blocks_ = self.ring.from_bytes(body, self.code.K, self.shape.count, self.form.block_length).copy()
            clients = sorted(contributors)[: self.code.need]
            pads = [
                self.coins.stream("pad", v, n).lane(0).elements(self.ring, self.shape.count, self.form.block_length)
                for v in clients
            ]
            decoded = self.code.decode(clients, np.stack(pads, axis=1), degree=self.code.need - 1)
            found[n] = self.ring.subtract(blocks_, decoded)
        return found


def flat(*parts: Residues) -> Elements:
    """One view of several messages."""
    return np.concatenate([np.asarray(part, np.int64).ravel() for part in parts])
