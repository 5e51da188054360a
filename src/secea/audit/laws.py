"""The exact law of what a party sees, in a tiny field.

A view is a function of `Coins`. Where it is affine in the free ones (this is checked), its law is that of a uniform
element of a coset: the image of the linear part, moved by the offset. `law` finds it from the view at 0 and at every
unit vector, for each choice of what is enumerated. `differ` compares two laws exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from secea.audit import Objection
from secea.audit.coins import Coins, Elements, Label


class Undecided(Objection):
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
        """The linear spaces of the cosets."""
        return {basis for basis, _ in self.cosets}

    def parts(self) -> Iterator[tuple[Elements, Elements, Fraction]]:
        """Basis, offset and weight of each coset."""
        for (basis, offset), weight in self.cosets.items():
            yield np.frombuffer(basis, np.int64).reshape(-1, self.D), np.frombuffer(offset, np.int64), weight

    def hull(self) -> tuple[bytes, bytes]:
        """The smallest coset that holds all of them."""
        parts = list(self.parts())
        first = parts[0][1]
        rows = np.concatenate([*(basis for basis, _, _ in parts), np.stack([offset for _, offset, _ in parts]) - first])
        basis, offset = reduced(self.p, rows[None], first[None])
        return _trimmed(basis[0]), offset.tobytes()

    def points(self, most: int = 1 << 18) -> dict[bytes, Fraction]:
        """Every view with its probability."""
        if sum(self.p ** len(basis) for basis, _, _ in self.parts()) > most:
            raise Undecided("two laws are too large to be compared")
        found: dict[bytes, Fraction] = {}
        for basis, offset, weight in self.parts():
            combined = np.indices((self.p,) * len(basis)).reshape(len(basis), self.p ** len(basis)).T @ basis
            for point in (combined + offset) % self.p:
                key = point.tobytes()
                found[key] = found.get(key, Fraction(0)) + weight / self.p ** len(basis)
        return found


def _trimmed(basis: Elements) -> bytes:
    return basis[basis.any(axis=1)].astype(np.int64).tobytes()


def law_of(p: int, offsets: Elements, linear: Elements) -> Law:
    """The mixture, in equal parts, of the cosets offset + image of linear: [cases, D] and [cases, D, free]."""
    bases, rests = reduced(p, np.ascontiguousarray(linear.transpose(0, 2, 1)), offsets)
    found = Counter(
        (_trimmed(basis), rest.astype(np.int64).tobytes()) for basis, rest in zip(bases, rests, strict=True)
    )
    return Law(p, offsets.shape[1], {coset: Fraction(n, len(offsets)) for coset, n in found.items()})


def differ(one: Law, other: Law) -> bool:
    """Whether two views have different laws; exact in both directions, or `Undecided`."""
    if (one.p, one.D) != (other.p, other.D):
        return True
    if one.cosets == other.cosets:
        return False
    if len(one.bases() | other.bases()) == 1:
        return True  # cosets of one space are equal or disjoint
    if one.hull() != other.hull():
        return True
    return one.points() != other.points()


def any_differ(laws: Iterable[Law]) -> bool:
    """Whether not all of these laws are one."""
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

    def law(self) -> Law:
        """Over all values of the free elements."""
        return law_of(self.p, self.offset, self.linear)


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
    if not fits(linear):
        raise Objection("the view is not affine in what is free: its law is not known")
    return Affine(p, offset, linear, tuple(zero.columns))


def law(view: View, p: int, free: Iterable[str], enumerated: Mapping[str, int] | None = None, **coins: Any) -> Law:
    """The law of a view over the free layers, and over all nonzero values of the first elements of some layers."""
    given = {"free": frozenset(free), "enumerated": enumerated or {}, **coins}
    first = Coins(**given)
    view(first)
    maps: list[Affine] = []
    for chosen in product(range(1, p), repeat=first.asked):
        maps.append(affine(view, p, like=maps[0] if maps else None, **given, chosen=chosen))
    return law_of(p, np.concatenate([m.offset for m in maps]), np.concatenate([m.linear for m in maps]))


Chances: TypeAlias = dict[int, Fraction]
"""A distribution of integers."""


def evenly(values: Sequence[int]) -> Chances:
    """Each of these with the same chance."""
    return {value: Fraction(times, len(values)) for value, times in Counter(values).items()}


def distance(one: Chances, other: Chances) -> Fraction:
    """The statistical distance."""
    none = Fraction(0)
    return sum((abs(one.get(x, none) - other.get(x, none)) for x in one.keys() | other.keys()), none) / 2


def flat(*parts: Any) -> Elements:
    """One view of several messages."""
    return np.concatenate([np.asarray(part, np.int64).ravel() for part in parts])
