"""What the rules of frames ask of a library: one frame, by the positions of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

TEXT: Final = "text"
INTEGER: Final = "integers"
FLOAT: Final = "floats"
LIST: Final = "lists"


class Library(Protocol):
    """A frame of one library."""

    rows: int
    counts_as_names: ClassVar[bool]
    """Whether a first column of integers can hold the names."""
    how_to_name: ClassVar[str]
    """What to do where there are no names."""

    @property
    def labels(self) -> Sequence[object]:
        """What the columns are called."""
        ...

    @property
    def indexed(self) -> bool:
        """Whether the names are in an index."""
        ...

    def index(self) -> list[Any]:
        """The names in the index."""
        ...

    def kind(self, at: int) -> str:
        """What a column holds: text, integers, floats, lists of numbers; or the name of its type."""
        ...

    def missing(self, at: int) -> NDArray[np.bool_]:
        """Which rows have no value in a column."""
        ...

    def values(self, at: int) -> NDArray[Any]:
        """The numbers of a column in which none is missing."""
        ...

    def texts(self, at: int) -> list[Any]:
        """The names in a column."""
        ...

    def lists(self, at: int) -> NDArray[Any] | list[Any]:
        """The lists of a column as a matrix; one by one if their lengths differ or a value is missing."""
        ...

    def with_numbers(self, columns: Sequence[int], matrix: NDArray[Any]) -> Any:
        """The same frame with the columns of a matrix in these places, or with its rows in the one column of lists."""
        ...


class TooLarge(Exception):
    """A mean that the type of its column cannot hold."""

    def __init__(self, row: int, dtype: object) -> None:
        self.row = row
        super().__init__(str(dtype))


def narrowed(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Means in the type of a column."""
    with np.errstate(over="ignore"):
        made = values.astype(dtype)
    if dtype == np.float16 and not (fine := np.isfinite(made)).all():
        raise TooLarge(int(np.argwhere(~fine)[0][0]), dtype)
    return made


def with_gaps(rows: list[Any]) -> list[Any]:
    """Lists of numbers one by one. A value that is missing is NaN from here on."""
    return [np.array([np.nan if value is None else value for value in row], np.float64) for row in rows]
