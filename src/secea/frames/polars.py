"""DataFrames of polars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from secea.frames.library import FLOAT, INTEGER, LIST, TEXT, narrowed, with_gaps

NARROW: Final = {"Float16": np.float16, "Float32": np.float32}


class PolarsFrame:
    """A polars DataFrame. It has no index."""

    counts_as_names: ClassVar[bool] = True
    how_to_name: ClassVar[str] = (
        "put them in a column of text, or of integers if it is the first column and no other column has integers"
    )
    indexed = False

    def __init__(self, library: Any, frame: Any) -> None:
        self._pl, self._frame = library, frame
        self.rows, self.labels = frame.height, frame.columns

    def index(self) -> list[Any]:
        """There is none."""
        return []

    def kind(self, at: int) -> str:
        """See `Library`."""
        pl, dtype = self._pl, self._frame.dtypes[at]
        if dtype.is_integer():
            return INTEGER
        if dtype.is_float():
            return FLOAT
        if dtype in (pl.String, pl.Categorical, pl.Enum):
            return TEXT
        if dtype in (pl.List, pl.Array) and (dtype.inner.is_float() or dtype.inner.is_integer()):
            return LIST
        return str(dtype)

    def missing(self, at: int) -> NDArray[np.bool_]:
        """Nulls."""
        column = self._frame.to_series(at)
        return np.asarray(column.is_null()) if column.null_count() else np.zeros(self.rows, np.bool_)

    def values(self, at: int) -> NDArray[Any]:
        """The numbers of a column."""
        return np.asarray(self._frame.to_series(at).to_numpy())

    def texts(self, at: int) -> list[Any]:
        """The names in a column."""
        names: list[Any] = self._frame.to_series(at).to_list()
        return names

    def lists(self, at: int) -> NDArray[Any] | list[Any]:
        """A matrix, unless lengths differ."""
        column = self._frame.to_series(at)
        if column.dtype == self._pl.List and (column.list.len().n_unique() != 1 or not column.list.len()[0]):
            return with_gaps(column.to_list())
        flat = column.explode()
        return with_gaps(column.to_list()) if flat.null_count() else np.asarray(flat.to_numpy()).reshape(self.rows, -1)

    def with_numbers(self, columns: Sequence[int], matrix: NDArray[Any]) -> Any:
        """See `Library`."""
        lists = self.kind(columns[0]) == LIST if columns else False
        made = [self._column(at, matrix if lists else matrix[:, i]) for i, at in enumerate(columns)]
        return self._frame.with_columns(made)

    def _column(self, at: int, values: NDArray[Any]) -> Any:
        pl, dtype = self._pl, self._frame.dtypes[at]
        inner = dtype.inner if self.kind(at) == LIST else dtype
        own = inner if inner.is_float() else pl.Float64
        numbers = narrowed(values, np.dtype(NARROW.get(str(own), np.float64)))
        made = pl.Series(self.labels[at], np.ascontiguousarray(numbers))
        return made if values.ndim == 1 else made.cast(pl.List(own) if dtype == pl.List else made.dtype)
