"""Tables of Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secea.frames.library import FLOAT, INTEGER, LIST, TEXT, narrowed, with_gaps


class ArrowTable:
    """A `pyarrow.Table`. It has no index."""

    counts_as_names: ClassVar[bool] = True
    how_to_name: ClassVar[str] = (
        "put them in a column of text, or of integers if it is the first column and no other column has integers"
    )
    indexed = False

    def __init__(self, library: Any, frame: Any) -> None:
        self._pa, self._frame = library, frame
        self.rows, self.labels = frame.num_rows, frame.column_names

    def index(self) -> list[Any]:
        """There is none."""
        return []

    def kind(self, at: int) -> str:
        """See `Library`."""
        types, dtype = self._pa.types, self._frame.schema.field(at).type
        if types.is_integer(dtype):
            return INTEGER
        if types.is_floating(dtype):
            return FLOAT
        text = dtype.value_type if types.is_dictionary(dtype) else dtype
        if types.is_string(text) or types.is_large_string(text) or types.is_string_view(text):
            return TEXT
        if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
            inner = dtype.value_type
            return LIST if types.is_floating(inner) or types.is_integer(inner) else str(dtype)
        return str(dtype)

    def missing(self, at: int) -> NDArray[np.bool_]:
        """Nulls."""
        column = self._frame.column(at)
        return np.asarray(column.is_null().to_numpy()) if column.null_count else np.zeros(self.rows, np.bool_)

    def values(self, at: int) -> NDArray[Any]:
        """The numbers of a column."""
        return np.asarray(self._frame.column(at).to_numpy())

    def texts(self, at: int) -> list[Any]:
        """The names in a column."""
        names: list[Any] = self._frame.column(at).to_pylist()
        return names

    def lists(self, at: int) -> NDArray[Any] | list[Any]:
        """A matrix, unless lengths differ."""
        column = self._frame.column(at)
        flat = self._pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
        if flat.null_count or not self._even(column, len(flat)):
            return with_gaps(column.to_pylist())
        return np.asarray(flat.to_numpy()).reshape(self.rows, -1)

    def _even(self, column: Any, values: int) -> bool:
        """Whether all lists have the same length, which is not 0."""
        width, rest = divmod(values, self.rows)
        if self._pa.types.is_fixed_size_list(column.type):
            return bool(width > 0)
        lengths = (np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks)
        return bool(rest == 0 and width > 0 and all((each == width).all() for each in lengths))

    def with_numbers(self, columns: Sequence[int], matrix: NDArray[Any]) -> Any:
        """See `Library`."""
        arrays, schema = list(self._frame.columns), self._frame.schema
        for i, at in enumerate(columns):
            arrays[at] = self._column(schema.field(at).type, matrix if self.kind(at) == LIST else matrix[:, i])
            schema = schema.set(at, schema.field(at).with_type(arrays[at].type))
        return self._pa.Table.from_arrays(arrays, schema=schema)

    def _column(self, dtype: Any, values: NDArray[Any]) -> Any:
        pa, types = self._pa, self._pa.types
        if values.ndim == 1:
            own = dtype if types.is_floating(dtype) else pa.float64()
            return pa.array(narrowed(values, np.dtype(own.to_pandas_dtype())), own)
        rows, width = values.shape
        inner = self._column(dtype.value_type, values.reshape(-1))
        if types.is_fixed_size_list(dtype):
            return pa.FixedSizeListArray.from_arrays(inner, width)
        large = types.is_large_list(dtype)
        ends = pa.array(np.arange(rows + 1) * width, pa.int64() if large else pa.int32())
        return (pa.LargeListArray if large else pa.ListArray).from_arrays(ends, inner)
