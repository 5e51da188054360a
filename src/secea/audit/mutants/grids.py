"""The form "keyed" with clients that take the grid of a table, or of a row, for another one than the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.audit.mutants.epochs import within

_grid_of = grid.grid_of


def _few_are_fine(matrix: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, float]:
    """With few sizes the finest grid that there is."""
    found = _grid_of(matrix, dtype)
    few = np.unique(np.abs(matrix[np.abs(matrix) >= grid.LEAST])).size < grid.ENOUGH_DISTINCT
    return (52, 0.0) if few else found


def _always_float64(matrix: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, float]:
    """Whatever a table is made of, it is float64."""
    return _grid_of(matrix, np.dtype(np.float64))


FEW_ARE_FINE = within(
    "few-sizes-are-float64",
    "A float32 table of few different sizes is taken for float64.",
    grid,
    "grid_of",
    _few_are_fine,
)
ALWAYS_FLOAT64 = within(
    "dtype-not-looked-at", "Every table is taken for float64 if its numbers are few.", grid, "grid_of", _always_float64
)
MANY_ENOUGH = within(
    "grid-of-64-sizes",
    "The grid of a table is inferred from at least 64 different sizes.",
    grid,
    "ENOUGH_DISTINCT",
    64,
)
MANY_IN_A_ROW = within(
    "grid-of-12-in-a-row",
    "The grid of a row is inferred from at least 12 different sizes.",
    grid,
    "ENOUGH_IN_A_ROW",
    12,
)
