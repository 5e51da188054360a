"""Find the exact distribution of what a party sees, from what real parties send under fresh randomness.

The audit's privacy claims use it to show that two worlds look the same to an adversary. A view that is affine in
uniform field elements is uniform on a coset: an offset plus a linear span. A few more random draws than the coset has
dimensions reveal all of it, except with a probability of about 2^-60 per dimension. Two worlds look the same exactly if
their cosets are equal. (That the elements are uniform is checked elsewhere, with statistics: `secea.audit.tails`.)

In a field of a few elements some of what is drawn can be enumerated. The law is then a `Mixture` of cosets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61
from secea.audit import Objection

View: TypeAlias = NDArray[Any]
"""Elements of the field."""

Tiny: TypeAlias = NDArray[np.int64]
"""Elements of a tiny field."""

SPARE: Final = 4


@dataclass
class Coset:
    """The smallest coset that contains all views added so far."""

    offset: NDArray[np.object_]
    rows: dict[int, NDArray[np.object_]] = field(default_factory=dict)
    """A basis of the span. Each row is stored under the index of its first nonzero entry."""

    def _rest(self, vector: NDArray[np.object_]) -> NDArray[np.object_]:
        left: NDArray[np.object_] = vector % M61
        for pivot, row in self.rows.items():
            if left[pivot]:
                left = (left - left[pivot] * row) % M61
        return left

    def add(self, view: View) -> bool:
        """Add a view. Returns whether it was new, that is, not in the coset yet."""
        left = self._rest(view.astype(object) - self.offset)
        found = np.flatnonzero(left)
        if not found.size:
            return False
        pivot = int(found[0])
        self.rows[pivot] = left * pow(int(left[pivot]), -1, M61) % M61
        return True

    def __contains__(self, vector: NDArray[np.object_]) -> bool:
        return not self._rest(vector - self.offset).any()

    def same(self, other: Coset) -> bool:
        """Whether both cosets are the same."""
        if len(self.rows) != len(other.rows) or self.offset.shape != other.offset.shape:
            return False
        return other.offset in self and all(other.offset + row in self for row in other.rows.values())


def coset_of(views: Sequence[View]) -> Coset:
    """The coset from which these views were drawn. An `Objection` if they are too few to determine it."""
    made = Coset(views[0].astype(object))
    grew = [made.add(view) for view in views[1:]]
    if any(grew[-(SPARE - 1) :]):
        raise Objection(f"{len(views)} draws do not show the whole law of a view of {views[0].size} elements")
    return made


def coset(draw: Callable[[], View]) -> Coset:
    """The coset of a random view. It draws until `SPARE` draws in a row add nothing new."""
    made, known = Coset(draw().astype(object)), 0
    while known < SPARE:
        known = 0 if made.add(draw()) else known + 1
    return made


def same(laws: Sequence[Coset], case: str) -> int:
    """Check that all cosets are the same, and return how many were compared. An `Objection` if they differ."""
    if not all(laws[0].same(other) for other in laws[1:]):
        raise Objection(f"{case}: the view is not the same in {len(laws)} worlds with the same inputs and outputs")
    return len(laws)


# --------------------------------------------------------------------------------------------------------- tiny fields


def reduced(basis: Tiny, points: Tiny, p: int) -> tuple[Tiny, Tiny]:
    """Of many spans at once the reduced bases, and points modulo them: [batch, rows, n] and [batch, points, n]."""
    basis, points = basis % p, points % p
    batch, rows, size = basis.shape
    rank, inverse = np.zeros(batch, np.int64), np.array([0, *(pow(x, -1, p) for x in range(1, p))])
    for column in range(size):
        below = (np.arange(rows) >= rank[:, None]) & (basis[:, :, column] != 0)
        some = np.flatnonzero(below.any(axis=1))
        if not some.size:
            continue
        at, top = below[some].argmax(axis=1), rank[some]
        pivot = basis[some, at] * inverse[basis[some, at, column]][:, None] % p
        basis[some, at] = basis[some, top]
        for each in (basis, points):
            which, row = np.nonzero(each[some, :, column])  # few: most elements are 0
            left = each[some[which], row]
            each[some[which], row] = (left - left[:, [column]] * pivot[which]) % p
        basis[some, top] = pivot
        rank[some] += 1
    return basis[:, : int(rank.max(initial=0))], points


@dataclass(frozen=True)
class Mixture:
    """A law in a tiny field: for each equally likely choice a uniform coset. What is known may move the coset."""

    p: int
    spans: Tiny = field(repr=False)
    """[choices, rows, n], reduced."""
    points: Tiny = field(repr=False)
    """[choices, 1 + known, n], modulo the spans: where the coset is, and how each known element moves it."""

    @classmethod
    def of(cls, p: int, spans: Tiny, points: Tiny) -> Mixture:
        """From any basis of each span, and any points of the cosets."""
        return cls(p, *reduced(spans, points, p))

    @property
    def law(self) -> Counter[bytes]:
        """Canonical forms with their multiplicities: if these are equal, the laws are."""
        size = self.points.shape[2]
        whole = np.zeros((len(self.spans), size, size), np.uint8)
        whole[:, : self.spans.shape[1]] = self.spans
        points = self.points.astype(np.uint8)
        return Counter(a.tobytes() + b.tobytes() for a, b in zip(whole, points, strict=True))

    def free(self, last: int) -> bool:
        """Whether the last elements are uniform given all others, and given what is known."""
        pivots = (self.spans != 0).argmax(axis=2)
        there = self.spans.any(axis=2) & (pivots >= self.points.shape[2] - last)
        return bool((there.sum(axis=1) == last).all())

    def differs(self, other: Mixture) -> bool:
        """Whether two laws differ for certain, given that all known elements are 0.

        Coordinates that no draw moves tell cosets apart. Among those that agree in them, each coset is one point modulo
        all their directions.
        """
        if self.points.shape[2] != other.points.shape[2]:
            return True
        fixed = ~(self.spans.any(axis=(0, 1)) | other.spans.any(axis=(0, 1)))
        groups: dict[bytes, tuple[list[int], list[int]]] = {}
        for which, mixed in enumerate((self, other)):
            for k, point in enumerate(mixed.points[:, 0, fixed]):
                groups.setdefault(point.tobytes(), ([], []))[which].append(k)
        return any(self._apart(mine, other, theirs) for mine, theirs in groups.values())

    def _apart(self, mine: list[int], other: Mixture, theirs: list[int]) -> bool:
        """Whether some cosets of each differ, modulo all their directions."""
        if len(mine) != len(theirs):
            return True
        size = self.points.shape[2]
        every = [mixed.spans[some].reshape(-1, size) for mixed, some in ((self, mine), (other, theirs))]
        whole = np.unique(np.concatenate(every), axis=0)[None]
        _, points = reduced(whole, np.concatenate([self.points[mine, 0], other.points[theirs, 0]])[None], self.p)
        rows = [point.tobytes() for point in points[0]]
        return Counter(rows[: len(mine)]) != Counter(rows[len(mine) :])
