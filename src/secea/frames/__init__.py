"""DataFrames of pandas and polars, and Arrow tables: what in them is names, embedding and weights, and the way back.

Nothing here imports their libraries: they are there if the caller's own object comes from one. The rules:

* pandas: names are in the index. Where that is an unnamed range, which counts rows, they are in the one text column.
* polars, Arrow: names are in the one text column; without any, in the first column, if no other column has integers.
* All other columns are numbers, or one of them holds the whole embedding as a list. What is neither is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from secea.errors import TableError, TableTypeError
from secea.frames.arrow import ArrowTable
from secea.frames.library import FLOAT, INTEGER, LIST, TEXT, Library, TooLarge
from secea.frames.pandas import PandasFrame, counts_rows, index_names
from secea.frames.polars import PolarsFrame

KINDS: Final[tuple[tuple[str, str, Callable[[Any, Any], Library]], ...]] = (
    ("pandas", "DataFrame", PandasFrame),
    ("polars", "DataFrame", PolarsFrame),
    ("pyarrow", "Table", ArrowTable),
)
HINTS: Final = {
    ("pandas", "Series"): "; make it a frame: series.to_frame()",
    ("polars", "Series"): "; put it in a DataFrame beside its names",
    ("polars", "LazyFrame"): "; collect() it first",
    ("pyarrow", "RecordBatch"): "; make it a table: pyarrow.Table.from_batches([batch])",
    ("numpy", "ndarray"): "; give the names of its rows too: secea.Table(names, matrix)",
    ("torch", "Tensor"): "; give the names of its rows too: secea.Table(names, matrix)",
    ("torch", "Parameter"): "; give the names of its rows too: secea.Table(names, matrix)",
}
TRUTH: Final = ("bool", "boolean", "Boolean", "bool[pyarrow]")
"""Types of columns that may be weights: 1 and 0."""


class Frame(Protocol):
    """A DataFrame of pandas or polars, or a `pyarrow.Table`."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def columns(self) -> Any:
        """Their labels, or what is in them."""


@dataclass(frozen=True)
class Content:
    """What is in a frame."""

    names: Sequence[Any] = field(repr=False)
    rows: NDArray[Any] | list[Any] = field(repr=False)
    """A matrix of float32 or float64; or an array for each name, if these differ in length."""
    weights: NDArray[Any] | None = field(default=None, repr=False)


def _opened(source: object) -> Library | None:
    for name, kind, opened in KINDS:
        library = sys.modules.get(name)
        if library is not None and isinstance(source, getattr(library, kind, ())):
            return opened(library, source)
    return None


def is_frame(source: object) -> bool:
    """Whether this is a frame of one of the libraries."""
    return _opened(source) is not None


def hint_for(source: object) -> str:
    """What to do with an object that is almost a frame."""
    kind = type(source)
    return HINTS.get((kind.__module__.partition(".")[0], kind.__name__), "")


def names_in(names: object) -> object:
    """Names that came as a frame, or as a column of Arrow, as a list; anything else as it is."""
    if (frame := _opened(names)) is not None:
        return _names(frame, _name_column(frame, None))
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(names, (arrow.Array, arrow.ChunkedArray)):
        return names.to_pylist()
    return names


def weights_by_name(weights: object) -> object:
    """A pandas Series becomes a mapping, unless its index only counts rows; anything else stays as it is."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(weights, getattr(pandas, "Series", ())):
        return weights
    series: Any = weights
    if (missing := series.isna().to_numpy()).any():
        raise TableError(f"the weight in row {int(missing.argmax())} is missing; weights are whole numbers")
    if counts_rows(pandas, series.index):
        return series.to_numpy()
    names = index_names(pandas, series.index)
    if not series.index.is_unique:
        raise TableError(f"the entity {names[int(series.index.duplicated().argmax())]!r} has more than one weight")
    return dict(zip(names, series.to_numpy(), strict=True))


# --------------------------------------------------------------------------------------------------------- in and out


def read(source: object, weights: str | None = None) -> Content:
    """What is in a frame. `weights` is the label of the column that holds them, if one does."""
    frame = _opened(source)
    assert frame is not None
    weighing = _weights_column(frame, weights)
    if not frame.rows:
        return Content((), np.zeros((0, 0)), None if weights is None else np.zeros(0, np.int64))
    column = _name_column(frame, weighing)
    names, columns = _names(frame, column), _embedding(frame, {column, weighing})
    for at in columns if weighing is None else [*columns, weighing]:
        if (missing := frame.missing(at)).any():
            raise _gap(names[int(missing.argmax())], "no value", frame.labels[at])
    given = None if weighing is None else frame.values(weighing)
    if frame.kind(columns[0]) == LIST:
        return Content(names, _widened(frame.lists(columns[0])), given)
    return Content(names, _matrix(frame, columns, names), given)


def check_order(sources: Iterable[tuple[str, object]], weights: str | None = None) -> None:
    """Refuse frames that have the same columns in another order: numbers are averaged by place."""
    each = ((who, _labels(source, weights)) for who, source in sources)
    known = [(who, own) for who, own in each if own]
    for who, own in known[1:]:
        first, order = known[0]
        if own != order and sorted(own) == sorted(order):
            one, other = next((one, other) for one, other in zip(own, order, strict=True) if one != other)
            raise TableError(
                f"{who}: the columns are those of {first} in another order: {one!r} is where {other!r} is there, and"
                " numbers are averaged by place; bring them into one order"
            )


def _labels(source: object, weights: str | None) -> list[str]:
    """What the columns of numbers are called, in their order; nothing of what is no frame."""
    if (frame := _opened(source)) is None or not frame.rows:
        return []
    weighing = _weights_column(frame, weights)
    columns = _embedding(frame, {_name_column(frame, weighing), weighing})
    return [] if frame.kind(columns[0]) == LIST else [str(frame.labels[at]) for at in columns]


def write(source: object, names: Sequence[object], matrix: NDArray[Any], weights: str | None = None) -> Any:
    """The frame again with other embeddings, the rows of `matrix`: in the types of its columns, integers as float64."""
    frame = _opened(source)
    assert frame is not None
    if not frame.rows:
        return frame.with_numbers((), matrix)
    weighing = _weights_column(frame, weights)
    columns = _embedding(frame, {_name_column(frame, weighing), weighing})
    try:
        return frame.with_numbers(columns, matrix)
    except TooLarge as error:
        raise TableError(f"the mean of {names[error.row]!r} is too large for the type of its column, {error}") from None


def _weights_column(frame: Library, label: str | None) -> int | None:
    if label is None:
        return None
    found = [at for at, each in enumerate(frame.labels) if each == label]
    if len(found) != 1:
        what = f"{len(found)} columns are called {label!r}" if found else f"there is no column {label!r}"
        raise TableError(f"{what}, and weights={label!r} names one; the columns are {_some(frame.labels)}")
    (at,) = found
    if frame.rows and frame.kind(at) not in (INTEGER, FLOAT, *TRUTH):
        raise TableTypeError(f"the weights in column {label!r} are of type {frame.kind(at)}; they are whole numbers")
    return at


def _name_column(frame: Library, weighing: int | None) -> int | None:
    """The column that holds the names; None if they are in the index, or if there are no rows to name."""
    if frame.indexed or not frame.rows:
        return None
    kinds = {at: frame.kind(at) for at in range(len(frame.labels)) if at != weighing}
    texts = [at for at, kind in kinds.items() if kind == TEXT]
    if len(texts) == 1:
        return texts[0]
    if texts:
        listed = _some([frame.labels[at] for at in texts])
        raise TableError(f"the columns {listed} hold text: keep the one with the names, and drop the others")
    integers = [at for at, kind in kinds.items() if kind == INTEGER]
    if not frame.counts_as_names or integers != list(kinds)[:1]:
        raise TableError(f"the table has no names: {frame.how_to_name}")
    (at,) = integers
    if not frame.missing(at).any() and np.array_equal(frame.values(at), np.arange(frame.rows)):
        raise TableError(
            f"column {frame.labels[at]!r} counts the rows from 0 on, which says where a row is and not what it is; if"
            " these are the names, make the column text"
        )
    return at


def _names(frame: Library, column: int | None) -> list[Any]:
    if column is None:
        return frame.index() if frame.rows else []
    if (missing := frame.missing(column)).any():
        raise TableError(f"row {int(missing.argmax())} has no name in column {frame.labels[column]!r}; drop the row")
    return frame.texts(column)


def _embedding(frame: Library, others: set[int | None]) -> list[int]:
    """The columns of the embedding: numbers, or one of lists."""
    columns = [at for at in range(len(frame.labels)) if at not in others]
    kinds = {at: frame.kind(at) for at in columns}
    for at, kind in kinds.items():
        if kind == TEXT:
            label = repr(frame.labels[at])
            raise TableTypeError(
                f"column {label} holds text, and the names are in the index; if they are in this column, say so with"
                f" frame.set_index({label}), and if not, drop it"
            )
        if kind not in (INTEGER, FLOAT, LIST):
            raise TableTypeError(
                f"column {frame.labels[at]!r} is of type {kind}, and an embedding has only numbers; drop the column, or"
                " make it numbers"
            )
    lists = [frame.labels[at] for at, kind in kinds.items() if kind == LIST]
    if lists and len(columns) > 1:
        raise TableError(
            f"column {lists[0]!r} holds lists, and other columns are beside it: keep either one column of lists, or"
            " columns of numbers"
        )
    if not columns:
        raise TableError("the table has no columns with numbers")
    return columns


def _gap(name: object, what: str, label: object) -> TableError:
    return TableError(f"the entity {name!r} has {what} in column {label!r}; fill it, or drop the row")


def _matrix(frame: Library, columns: Sequence[int], names: Sequence[object]) -> NDArray[Any]:
    """The numbers of all columns, copied once, a column at a time."""
    matrix = np.empty((frame.rows, len(columns)), _wide(frame.values(columns[0]).dtype))
    for i, at in enumerate(columns):
        column = frame.values(at)
        if matrix.dtype == np.float32 and _wide(column.dtype) == np.float64:
            before, matrix = matrix, np.empty(matrix.shape, np.float64)
            matrix[:, :i] = before[:, :i]  # the rest of it is whatever was in that memory
        matrix[:, i] = column
        if (wrong := np.isnan(matrix[:, i])).any():  # a number in polars and Arrow
            raise _gap(names[int(wrong.argmax())], "NaN", frame.labels[at])
    return matrix


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of a table that holds such numbers."""
    return np.dtype(np.float32 if dtype in (np.float16, np.float32) else np.float64)


def _widened(rows: NDArray[Any] | list[Any]) -> NDArray[Any] | list[Any]:
    if isinstance(rows, np.ndarray):
        return np.asarray(rows, _wide(rows.dtype))
    return [row.astype(np.float32) if getattr(row, "dtype", None) == np.float16 else row for row in rows]


def _some(labels: Sequence[object]) -> str:
    shown = ", ".join(map(repr, labels[:10]))
    return f"{shown} and {len(labels) - 10} more" if len(labels) > 10 else shown
