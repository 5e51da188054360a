"""The exact law of what a party sees, from what real parties send under fresh randomness.

A view that is affine in uniform elements of the field is uniform on a coset: an offset and a span. Draws of it span
that coset, but for a chance of about 2^-60 for each dimension: a few draws more than there are dimensions show it. Two
worlds look the same exactly where their cosets are the same. (That elements are uniform is for statistics.)
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
    """The smallest coset with all the views that were added."""

    offset: NDArray[np.object_]
    rows: dict[int, NDArray[np.object_]] = field(default_factory=dict)
    """Of its span, each with its first place that is not 0."""

    def _rest(self, vector: NDArray[np.object_]) -> NDArray[np.object_]:
        left: NDArray[np.object_] = vector % M61
        for pivot, row in self.rows.items():
            if left[pivot]:
                left = (left - left[pivot] * row) % M61
        return left

    def add(self, view: View) -> bool:
        """Whether the view was not in the coset yet."""
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
        """Whether two views have one law."""
        if len(self.rows) != len(other.rows) or self.offset.shape != other.offset.shape:
            return False
        return other.offset in self and all(other.offset + row in self for row in other.rows.values())


def coset_of(views: Sequence[View]) -> Coset:
    """The law of which these are draws; an `Objection` where they are too few to know it."""
    made = Coset(views[0].astype(object))
    grew = [made.add(view) for view in views[1:]]
    if any(grew[-(SPARE - 1) :]):
        raise Objection(f"{len(views)} draws do not show the whole law of a view of {views[0].size} elements")
    return made


def coset(draw: Callable[[], View]) -> Coset:
    """Draw until nothing new comes."""
    made, known = Coset(draw().astype(object)), 0
    while known < SPARE:
        known = 0 if made.add(draw()) else known + 1
    return made


def same(laws: Sequence[Coset], case: str) -> int:
    """How many laws were compared; an objection where they are not all one."""
    if not all(laws[0].same(other) for other in laws[1:]):
        raise Objection(f"{case}: the view is not the same in {len(laws)} worlds with the same inputs and outputs")
    return len(laws)
