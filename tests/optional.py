"""Options of the keyed form, and what numpy says that a round with them owes to everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from secea.forms.keyed import Keyed
from secea.params import Params
from secea.table import Name
from truth import Floats

Weights = Mapping[Name, int]

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "a minimum": {"min_owners": 2},
    "a larger minimum": {"min_owners": 3},
    "weights": {"max_weight": 9},
    "weights and a minimum": {"max_weight": 200, "min_owners": 2},
    "rows left out": {"partial": True},
    "rows left out and a minimum": {"partial": True, "min_owners": 2},
    "noise": {"noise": 0.01},
    "noise and a minimum": {"noise": 0.01, "min_owners": 2},
}
"""All combinations that there are."""


@dataclass(frozen=True)
class Due:
    """What a round owes to all owners of an entity: a mean between two rows; or none, because of the minimum or not."""

    low: Floats | None = None
    high: Floats | None = None
    below: bool = False

    def meets(self, row: Floats, own: Floats) -> bool:
        """Whether an owner with this row of its own has what it should."""
        if self.low is None or self.high is None:
            return np.array_equal(row, own)
        return bool(((self.low <= row) & (row <= self.high)).all())


def dues(params: Params, given: Sequence[tuple[Mapping[Any, Floats], Weights | None]]) -> dict[Name, Due]:
    """What a round owes for each entity, by the tables and weights of those who are in the sum (section K11)."""
    owners: dict[Name, list[tuple[Floats, int]]] = {}
    for table, weights in given:
        for name, row in table.items():
            owners.setdefault(name, []).append((row, 1 if weights is None else int(weights[name])))
    return {name: _due(params, own) for name, own in owners.items()}


def _due(params: Params, own: Sequence[tuple[Floats, int]]) -> Due:
    counted = [(row, weight) for row, weight in own if weight or not params.partial]
    if len(counted) < params.min_owners:
        return Due(below=bool(counted))  # without anybody it is empty
    x, w = np.array([row for row, _ in counted], np.float64), np.array([weight for _, weight in counted], np.float64)
    largest = float(np.abs(x).max(initial=0.0))
    # Rows are filled by half of their last digit, and a result is rounded to it.
    error = 2.0**-22 * largest if any(row.dtype == np.float32 for row, _ in own) else 0.0
    if params.max_weight is None:
        low = high = x.mean(axis=0)
        error += params.resolution
        if params.noise:
            n = Keyed().numbers(params)
            error += n.farthest * 2.0**-n.f / len(counted)
    elif not w.any():
        return Due()
    else:
        (low, high), resolution = _blurred(x, w), params.resolution
        mean = np.maximum(w - 0.5, 0).sum() / len(w) / (params.max_weight + 1)  # the least that the shares can be
        share = resolution / params.max_abs
        error += (resolution + largest * share) / (mean - share)
    return Due(low - error, high + error)


def _blurred(x: Floats, w: Floats) -> tuple[Floats, Floats]:
    """The smallest and the largest mean of the rows with weights w+u, where |u| is half at most, and 0 where w is 0.

    They lie at corners: the weights of the largest numbers go one way, and all others the other way.
    """
    ends = []
    for sign in (-0.5, 0.5):
        columns = []
        for column in x.T:
            order = np.argsort(column)
            half = np.where(w[order] > 0, sign, 0.0)
            tries = [w[order] + np.where(np.arange(len(w)) < k, -half, half) for k in range(len(w) + 1)]
            found = [float(each @ column[order] / each.sum()) for each in tries]
            columns.append(min(found) if sign < 0 else max(found))
        ends.append(np.array(columns))
    return ends[0], ends[1]
