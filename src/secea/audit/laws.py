"""Find the exact distribution of what a party sees, from what real parties send under fresh randomness.

The audit's privacy claims use it to show that two worlds look the same to an adversary. A view that is affine in
uniform field elements is uniform on a coset: an offset plus a linear span. A few more random draws than the coset has
dimensions reveal all of it, except with a probability of about 2^-60 per dimension. Two worlds look the same exactly if
their cosets are equal. (That the elements are uniform is checked elsewhere, with statistics: `secea.audit.tails`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61
from secea.audit import Objection

View: TypeAlias = NDArray[Any]
"""Elements of the field."""

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
