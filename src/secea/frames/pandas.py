"""DataFrames of pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secea.errors import TableError
from secea.frames.library import FLOAT, INTEGER, LIST, TEXT, narrowed


def counts_rows(pandas: Any, index: Any) -> bool:
    """Whether an index is nothing that anybody chose: an unnamed range, as of a new frame or of a slice of one."""
    return isinstance(index, pandas.RangeIndex) and index.name is None


def index_names(pandas: Any, index: Any) -> list[Any]:
    """The names in an index."""
    if isinstance(index, pandas.MultiIndex):
        raise TableError(
            f"the index has {index.nlevels} levels, and a name is one text or integer: join them, for example with"
            " frame.set_index(frame.index.map('/'.join))"
        )
    if (missing := np.asarray(index.isna())).any():
        raise TableError(f"row {int(missing.argmax())} has no name in the index; drop the row")
    names: list[Any] = index.tolist()
    return names


class PandasFrame:
    """A pandas DataFrame. The index has the names, unless it only counts rows."""

    counts_as_names: ClassVar[bool] = False
    how_to_name: ClassVar[str] = (
        "its rows are numbered, which says where a row is and not what it is; put the names in the index, for example"
        " with frame.set_index('name'), or say that the numbers are the names, with frame.rename_axis('name')"
    )

    def __init__(self, library: Any, frame: Any) -> None:
        self._pd, self._frame = library, frame
        self.rows, self.labels = len(frame), list(frame.columns)
        self._kinds: dict[int, str] = {}

    @property
    def indexed(self) -> bool:
        """Not if the index only counts rows."""
        return not counts_rows(self._pd, self._frame.index)

    def index(self) -> list[Any]:
        """The names in the index."""
        return index_names(self._pd, self._frame.index)

    def kind(self, at: int) -> str:
        """See `Library`; columns of objects are looked through once."""
        if at not in self._kinds:
            self._kinds[at] = self._kind(self._frame.iloc[:, at])
        return self._kinds[at]

    def _kind(self, column: Any) -> str:
        types, dtype = self._pd.api.types, column.dtype
        if types.is_integer_dtype(dtype):
            return INTEGER
        if types.is_float_dtype(dtype):
            return FLOAT
        values = dtype.categories if isinstance(dtype, self._pd.CategoricalDtype) else column
        if types.infer_dtype(values, skipna=True) == "string":
            return TEXT
        return LIST if isinstance(_first(column), (list, tuple, np.ndarray)) else str(dtype)

    def missing(self, at: int) -> NDArray[np.bool_]:
        """What pandas takes for missing."""
        return np.asarray(self._frame.iloc[:, at].isna(), np.bool_)

    def values(self, at: int) -> NDArray[Any]:
        """As numpy's numbers, of nullable and of Arrow's types too."""
        column = self._frame.iloc[:, at]
        own = _numpy_type(column.dtype)
        return np.asarray(column.to_numpy(dtype=own))

    def texts(self, at: int) -> list[Any]:
        """The names in a column."""
        return list(self._frame.iloc[:, at])

    def lists(self, at: int) -> NDArray[Any] | list[Any]:
        """A matrix, if all are arrays of one length; otherwise one by one."""
        rows = list(map(np.asarray, self._frame.iloc[:, at]))
        alike = len({(row.shape, row.dtype) for row in rows}) == 1
        return np.stack(rows) if alike and rows[0].ndim == 1 and rows[0].size and rows[0].dtype.kind in "fiu" else rows

    def with_numbers(self, columns: Sequence[int], matrix: NDArray[Any]) -> Any:
        """Of the same class, with what is attached to it."""
        old, pd = self._frame, self._pd
        if len(columns) == len(self.labels) > 1 and {*old.dtypes} == {matrix.dtype}:
            made = pd.DataFrame(matrix, index=old.index, copy=False)
        else:
            place = {at: i for i, at in enumerate(columns)}
            made = pd.DataFrame(
                {
                    at: self._column(at, matrix, place[at]) if at in place else old.iloc[:, at].copy()
                    for at in range(len(self.labels))
                },
                index=old.index,
                copy=False,
            )
        made.columns = old.columns
        return type(old)(made).__finalize__(old)

    def _column(self, at: int, matrix: NDArray[Any], place: int) -> Any:
        dtype, pd = self._frame.dtypes.iloc[at], self._pd
        if self.kind(at) == LIST:
            return self._lists(self._frame.iloc[:, at], matrix)
        values = matrix[:, place]
        if self.kind(at) == FLOAT:
            return pd.array(narrowed(values, _numpy_type(dtype)), dtype=dtype)
        plain = values.astype(np.float64)
        if isinstance(dtype, np.dtype):
            return plain
        return pd.array(plain, dtype="double[pyarrow]" if isinstance(dtype, pd.ArrowDtype) else "Float64")

    def _lists(self, column: Any, matrix: NDArray[Any]) -> Any:
        if not isinstance(column.dtype, np.dtype):
            return self._pd.array(matrix.tolist(), dtype=column.dtype)
        first = _first(column)
        made = np.empty(len(matrix), object)
        if isinstance(first, np.ndarray):
            rows: list[Any] = list(narrowed(matrix, first.dtype if first.dtype.kind == "f" else np.dtype(np.float64)))
        else:
            rows = [tuple(row) if isinstance(first, tuple) else row for row in matrix.tolist()]
        for i, row in enumerate(rows):
            made[i] = row
        return made


def _first(column: Any) -> object:
    """The first value that is there."""
    there = column.notna().to_numpy()
    return column.iloc[int(there.argmax())] if there.any() else None


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    """Numpy's type for the numbers of a column."""
    own = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    return own if isinstance(own, np.dtype) else np.dtype(np.float64)
