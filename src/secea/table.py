"""Tables, which clients bring and get back: entity names with one embedding each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from operator import is_
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea import frames
from secea.arithmetic.fixedpoint import Floats
from secea.errors import TableError, TableTypeError
from secea.frames import Frame
from secea.notebook import html_table
from secea.tensors import array_of, rows_like

Name: TypeAlias = str | int
"""An entity's name: a non-empty string, or an integer, which is the same name as its decimal text: 7 is "7"."""

SHORT: Final = 10**18
INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,17}", re.ASCII)
"""An integer below SHORT, as it is usually written."""
LARGEST: Final = 10**4000
"""Integers below it are names. Python writes no longer ones as text."""


def canonical_name(name: object) -> Name:
    """A name as this package uses it. Numpy strings and integers become Python's."""
    if isinstance(name, bool | np.bool_):
        raise TableTypeError(f"the entity name {name!r} is a truth value; names are non-empty strings or integers")
    if isinstance(name, str):
        if not name:
            raise TableError("an entity name is empty; names are non-empty strings or integers")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TableError(f"the entity name {name!r} holds a lone surrogate and is no valid unicode text") from None
        return str.__str__(name)  # numpy's own str() would drop trailing zeros
    if isinstance(name, Integral):
        if abs(int(name)) >= LARGEST:
            raise TableError("an entity name is an integer of more than 4,000 digits; give it as a text")
        return int(name)
    raise TableTypeError(
        f"the entity name {name!r} is of type {type(name).__name__}; names are strings or integers{_instead(name)}"
    )


def _instead(name: object) -> str:
    """What to write instead of a name of another type."""
    if name is None or str(name) in ("nan", "NaT", "<NA>"):  # pandas' ways to say that something is missing
        return ": it is missing, so drop the row, or give it a name"
    if isinstance(name, float | np.floating) and float(name).is_integer():
        return f": write {int(name)} (of a pandas index: index.astype(int))"
    if isinstance(name, bytes):
        return ": decode it, name.decode()"
    return ": write it as text, str(name)"


def canonical_names(names: object) -> tuple[Name, ...]:
    """The names, after a check that each is valid and none occurs twice."""
    names = frames.names_in(names)
    if isinstance(names, str | bytes):
        raise TableTypeError(f"expected a collection of entity names, got the single text {names!r}")
    if not isinstance(names, Iterable):
        raise TableTypeError(f"expected a collection of entity names, got {type(names).__name__}")
    result = tuple(canonical_name(name) for name in names)
    if pair := same_twice(result, keys(result)):
        if pair[0] != pair[1]:
            both = f"the entities {pair[0]!r} and {pair[1]!r} are one"
            raise TableError(f"{both}: an integer and its decimal text are the same name; keep one of them")
        raise TableError(f"the entity {pair[0]!r} occurs more than once")
    # Millions of names are kept once, whoever has them.
    return names if isinstance(names, tuple) and all(map(is_, names, result)) else result


def key_of(name: Name) -> Name:
    """What a name is compared by: its text, or the integer that it spells, which takes less room."""
    if isinstance(name, int):
        return name if abs(name) < SHORT else str(name)
    return int(name) if name[-1].isdigit() and INTEGER.fullmatch(name) else name


def keys(names: tuple[Name, ...]) -> tuple[Name, ...]:
    """What names are compared by: the same tuple if they are that themselves, since there may be millions."""
    found = tuple(map(key_of, names))
    return names if all(map(is_, names, found)) else found


def same_twice(names: tuple[Name, ...], keys: Sequence[Name]) -> tuple[Name, Name] | None:
    """Two names with the same key, if there are any."""
    if len(set(keys)) == len(keys):
        return None
    first: dict[Name, Name] = {}
    for name, entity in zip(names, keys, strict=True):
        if entity in first:
            return first[entity], name
        first[entity] = name
    return None


def name_bytes(name: Name) -> bytes:
    """The bytes that are hashed for a name: an "s", then UTF-8 as it is. An integer is its decimal text."""
    return b"s" + str(name).encode()


def _floats(values: object, what: str) -> Floats:
    try:
        array = array_of(values)
    except Exception as error:  # may be anything that an array-like object raises
        hint = "give a numpy array, a PyTorch tensor or lists of floats"
        raise TableError(f"{what} is not a rectangular array of numbers ({error}); {hint}") from None
    if np.ma.isMaskedArray(values):
        raise TableTypeError(f"{what} is a masked array; fill it first, for example with array.filled(0.0)")
    if array.dtype in (np.float32, np.float64):
        return array
    if np.issubdtype(array.dtype, np.integer):
        return array.astype(np.float64)
    if array.size == 0 and array.dtype == object:
        return array.astype(np.float64)
    raise TableTypeError(
        f"{what} has dtype {array.dtype}; use floats, such as float32 (for example array.astype('float32'))"
    )


def row_weights(weights: object, names: Sequence[Name]) -> NDArray[np.int64]:
    """The weight of each row, a whole number from 0 on, in the order of the names."""
    weights = frames.weights_by_name(weights)
    if isinstance(weights, Mapping):
        weighed = canonical_names(weights)
        given, own = dict(zip(keys(weighed), weights.values(), strict=True)), keys(tuple(names))
        if unlike := sorted(given.keys() ^ set(own), key=str):
            where = "has no weight" if unlike[0] in own else "has a weight, but no row"
            as_given = dict(zip(own + keys(weighed), (*names, *weighed), strict=True))[unlike[0]]
            raise TableError(f"the entity {as_given!r} {where}; give each row a weight, and 0 to leave it out")
        weights = [given[text] for text in own]
    array = np.asarray(weights)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.shape != (len(names),):
        raise TableError(f"a table of {len(names)} rows needs as many weights, got shape {array.shape}")
    if array.dtype == np.bool_:
        return array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise TableTypeError(f"weights have dtype {array.dtype}; they are whole numbers, such as counts of samples")
    wrong = ~(np.isfinite(array) & (array >= 0) & (array < 2**53) & (array == np.floor(array)))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise TableError(
            f"the entity {names[place]!r} has the weight {array[place]}; weights are whole numbers from 0 on, such as"
            " counts of samples"
        )
    return array.astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Entity names and one float matrix with a row for each: float32 or float64, shape (names, dim).

    A matrix of float16, and a PyTorch tensor on any device, become arrays: short floats become float32.

    `weights`, if given, has a whole number for each row: how much it counts in a weighted mean. 0 leaves it out.

    >>> Table(["aspirin", "codeine"], np.zeros((2, 3), np.float32))
    Table(2 x 3, float32)
    """

    names: Sequence[Name]
    matrix: Floats
    weights: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        names = canonical_names(self.names)
        matrix = _floats(self.matrix, "the matrix of a table")
        if matrix.ndim != 2 or len(matrix) != len(names):
            raise TableError(
                f"a table of {len(names)} names needs a matrix of {len(names)} rows, got shape {matrix.shape}"
            )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "matrix", matrix)
        if self.weights is not None:
            object.__setattr__(self, "weights", row_weights(self.weights, names))

    @classmethod
    def trusted(cls, names: Sequence[Name], matrix: Floats, weights: NDArray[np.int64] | None = None) -> Self:
        """A table from names that were checked before. The checks are not repeated."""
        table = object.__new__(cls)
        for name, value in (("names", names), ("matrix", matrix), ("weights", weights)):
            object.__setattr__(table, name, value)
        return table

    def weighing(self, weights: object) -> Table:
        """The same rows with these weights: one for each, in order, or by name."""
        return Table.trusted(self.names, self.matrix, row_weights(weights, self.names))

    def __repr__(self) -> str:
        return f"Table({len(self.names)} x {self.dim}, {self.dtype.name})"  # names are private

    def _repr_html_(self) -> str:
        weights = "none" if self.weights is None else f"{int((self.weights > 0).sum()):,} rows above 0"
        facts = ("entities", f"{len(self):,}"), ("dim", self.dim), ("type", self.dtype.name), ("weights", weights)
        return html_table("Table", ["", ""], facts)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Name]:
        return iter(self.names)

    @property
    def dim(self) -> int:
        """The length of an embedding."""
        return int(self.matrix.shape[1])

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """float32 or float64."""
        return self.matrix.dtype

    def __getitem__(self, name: Name) -> NDArray[Any]:
        row: NDArray[Any] = self.matrix[list(map(str, self.names)).index(str(name))]
        return row

    def keys(self) -> Sequence[Name]:
        """The names, as for a mapping."""
        return self.names

    def as_dict(self) -> dict[Name, NDArray[Any]]:
        """One array per entity."""
        return dict(zip(self.names, self.matrix, strict=True))


TableLike: TypeAlias = Table | Mapping[Any, Any] | Frame
"""A `Table`, a mapping of entity names to embeddings, or a DataFrame: of pandas or polars, or a `pyarrow.Table`."""


def as_table(source: TableLike, dim: int | None = None, weights: str | None = None) -> Table:
    """Convert any accepted form to a `Table`. An empty one gets the width `dim`, and others must have it.

    `weights`: the column of a DataFrame that has the weights of its rows.
    """
    if frames.is_frame(source):
        table = _from_frame(source, weights, dim)
    elif weights is not None:
        what = f"weights={weights!r} names a column, and this is a {type(source).__name__} without columns"
        raise TableTypeError(f"{what}; give a whole number for each row, or a DataFrame")
    elif isinstance(source, Table):
        table = source
    elif isinstance(source, Mapping):
        names = canonical_names(source.keys())
        table = _stacked(names, [_floats(source[key], f"the embedding of entity {key!r}") for key in source], dim)
    else:
        raise TableTypeError(
            "expected a secea.Table, a mapping of names to embeddings, or a DataFrame, got"
            f" {type(source).__name__}{frames.hint_for(source)}"
        )
    if dim is not None and table.dim != dim:
        if len(table):
            raise TableError(f"the table has embeddings of length {table.dim}, the federation was set up for dim={dim}")
        table = Table((), np.zeros((0, dim), table.dtype), table.weights)
    return table


def _from_frame(source: object, weights: str | None, dim: int | None) -> Table:
    found = frames.read(source, weights)
    if isinstance(found.rows, np.ndarray):
        return Table(found.names, found.rows, found.weights)
    names = canonical_names(found.names)
    rows = zip(found.names, found.rows, strict=True)
    table = _stacked(names, [_floats(row, f"the embedding of entity {name!r}") for name, row in rows], dim)
    return table if found.weights is None else table.weighing(found.weights)


def _stacked(names: tuple[Name, ...], rows: Sequence[Floats], dim: int | None) -> Table:
    """A table of rows that come one by one."""
    for name, row in zip(names, rows, strict=True):
        if row.ndim != 1:
            raise TableError(f"the embedding of entity {name!r} has shape {row.shape}; one dimension is expected")
        if row.size == 0:
            raise TableError(f"the embedding of entity {name!r} is empty")
        if row.size != (wanted := rows[0].size if dim is None else dim):
            raise TableError(f"the embedding of entity {name!r} has length {row.size}, others have {wanted}")
    dtype = np.result_type(*rows) if rows else np.dtype(np.float64)
    return Table(names, np.stack(rows).astype(dtype) if rows else np.zeros((0, dim or 0), dtype))


def like(source: TableLike, table: Table, matrix: Floats, weights: str | None = None) -> Any:
    """A result of the same type as its source: a `Table`, a dict with the same keys, or the same kind of DataFrame.

    Where a mapping has tensors or float16, its result has them too, and tensors are on the devices of those given.
    """
    result = np.ascontiguousarray(matrix, table.dtype)
    if isinstance(source, Table):
        return Table.trusted(table.names, result)
    if frames.is_frame(source):
        return frames.write(source, table.names, result, weights)
    assert isinstance(source, Mapping)
    return dict(zip(source, rows_like(source.values(), result), strict=True))
