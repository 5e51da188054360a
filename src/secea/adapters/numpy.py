"""An adapter for embeddings in a numpy matrix that the caller owns and trains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.adapters import in_order
from secea.adapters.weights import Weighing, Weights
from secea.arithmetic.fixedpoint import Floats
from secea.errors import TableError, TableTypeError
from secea.table import Table, TableLike, canonical_names


def narrowed(names: tuple[Any, ...], matrix: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The matrix in a model's own type. Refuses numbers that the type cannot hold, and what is not a number."""
    with np.errstate(over="ignore"):  # reported below, with the entity's name
        result = matrix.astype(dtype)
    if not (fine := np.isfinite(result).all(axis=1)).all():
        raise TableError(
            f"the mean of {names[int(fine.argmin())]!r} is not a finite number in the model's type, {dtype}"
        )
    return result


class NumpyRows:
    """Row i of `matrix` belongs to `names[i]`; means are written into this very matrix.

    `weights` says what rows weigh in a round, for `Params(partial=True)` or `max_weight`: see `Weights`. For example
    `weights="trained"` leaves out rows that did not change since the last means.

    >>> matrix = np.zeros((2, 3), np.float32)
    >>> rows = NumpyRows(["aspirin", "codeine"], matrix)
    >>> rows.load({"codeine": [1.0, 2.0, 3.0], "aspirin": [0.5, 0.5, 0.5]})
    >>> matrix[1].tolist(), rows.width
    ([1.0, 2.0, 3.0], 3)
    """

    def __init__(
        self, names: Iterable[object], matrix: NDArray[np.floating[Any]], *, weights: Weights | None = None
    ) -> None:
        self.names = canonical_names(names)
        if not isinstance(matrix, np.ndarray) or matrix.dtype not in (np.float16, np.float32, np.float64):
            kind = getattr(matrix, "dtype", type(matrix).__name__)
            raise TableTypeError(f"the matrix must be a numpy array of float16, float32 or float64, got {kind}")
        if matrix.ndim != 2 or len(matrix) != len(self.names):
            raise TableError(f"{len(self.names)} names need a matrix with as many rows, got shape {matrix.shape}")
        if not matrix.flags.writeable:
            raise TableError("the matrix is read-only: means could not be written into it; give a copy of it")
        self._matrix, self._weighing = matrix, Weighing(weights)

    @property
    def width(self) -> int:
        """Numbers per entity."""
        return int(self._matrix.shape[1])

    def table(self) -> Table:
        """A copy, in float32 or float64, with the weights of its rows if there are any."""
        return self._weighing.weighed(self._copy())

    def _copy(self) -> Table:
        return Table.trusted(self.names, self._matrix.astype(np.promote_types(self._matrix.dtype, np.float32)))

    def load(self, means: TableLike) -> None:
        """Write the means into the matrix."""
        rows = narrowed(self.names, in_order(self.names, self.width, means), self._matrix.dtype)
        with self._weighing.loading(self._copy):
            self._matrix[:] = rows
