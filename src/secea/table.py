"""Tables, which clients bring and get back: entity names with one embedding each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from operator import is_
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.errors import TableError, TableTypeError

Name: TypeAlias = str | int
"""An entity's name: a non-empty string, or an integer. 1 and "1" are different names."""


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
        return int(name)
    raise TableTypeError(f"the entity name {name!r} is of type {type(name).__name__}; names are strings or integers")


def canonical_names(names: Iterable[object]) -> tuple[Name, ...]:
    """The names, after a check that each is valid and none occurs twice."""
    if isinstance(names, str | bytes):
        raise TableTypeError(f"expected a collection of entity names, got the single text {names!r}")
    if not isinstance(names, Iterable):
        raise TableTypeError(f"expected a collection of entity names, got {type(names).__name__}")
    result = tuple(canonical_name(name) for name in names)
    if len(set(result)) != len(result):
        seen: set[Name] = set()
        twice = next(name for name in result if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise TableError(f"the entity {twice!r} occurs more than once")
    # Millions of names are kept once, whoever has them.
    return names if isinstance(names, tuple) and all(map(is_, names, result)) else result


def name_bytes(name: Name) -> bytes:
    """The bytes that are hashed for a name: its kind, then UTF-8 without normalisation, or the number in base 16."""
    return b"i%x" % name if isinstance(name, int) else b"s" + name.encode()


def _floats(values: object, what: str) -> Floats:
    try:
        array = np.asarray(values)
    except Exception as error:  # may be anything, for example for a tensor that is on a GPU
        hint = "give numpy arrays or lists of floats; for a PyTorch tensor use tensor.detach().cpu().numpy()"
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
        f"{what} has dtype {array.dtype}; use float32 or float64 (for example array.astype('float32'))"
    )


def row_weights(weights: object, names: Sequence[Name]) -> NDArray[np.int64]:
    """The weight of each row, a whole number from 0 on, in the order of the names."""
    if isinstance(weights, Mapping):
        given = {canonical_name(name): weight for name, weight in weights.items()}
        if unlike := sorted(set(names) ^ given.keys(), key=repr):
            where = "has no weight" if unlike[0] in names else "has a weight, but no row"
            raise TableError(f"the entity {unlike[0]!r} {where}; give each row a weight, and 0 to leave it out")
        weights = [given[name] for name in names]
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
        row: NDArray[Any] = self.matrix[self.names.index(name)]
        return row

    def keys(self) -> Sequence[Name]:
        """The names, as for a mapping."""
        return self.names

    def as_dict(self) -> dict[Name, NDArray[Any]]:
        """One array per entity."""
        return dict(zip(self.names, self.matrix, strict=True))


TableLike: TypeAlias = Table | Mapping[Any, Any]
"""A `Table`, or a mapping of entity names to embeddings."""


def as_table(source: TableLike, dim: int | None = None) -> Table:
    """Convert any accepted form to a `Table`. An empty one gets the width `dim`, and others must have it."""
    if isinstance(source, Table):
        table = source
    elif isinstance(source, Mapping):
        names = canonical_names(source)
        rows = [_floats(source[key], f"the embedding of entity {key!r}") for key in source]
        for name, row in zip(names, rows, strict=True):
            if row.ndim != 1:
                raise TableError(f"the embedding of entity {name!r} has shape {row.shape}; one dimension is expected")
            if row.size == 0:
                raise TableError(f"the embedding of entity {name!r} is empty")
            if row.size != (wanted := rows[0].size if dim is None else dim):
                raise TableError(f"the embedding of entity {name!r} has length {row.size}, others have {wanted}")
        dtype = np.result_type(*rows) if rows else np.dtype(np.float64)
        table = Table(names, np.stack(rows).astype(dtype) if rows else np.zeros((0, dim or 0), dtype))
    else:
        raise TableTypeError(f"expected a secea.Table or a mapping of names to embeddings, got {type(source).__name__}")
    if dim is not None and table.dim != dim:
        if len(table):
            raise TableError(f"the table has embeddings of length {table.dim}, the federation was set up for dim={dim}")
        table = Table((), np.zeros((0, dim), table.dtype))
    return table


def like(source: TableLike, table: Table, matrix: Floats) -> Table | dict[Any, Any]:
    """A result of the same type as its source: a `Table` for a `Table`, a dict with the same keys for a mapping."""
    result = np.ascontiguousarray(matrix, table.dtype)
    if isinstance(source, Table):
        return Table.trusted(table.names, result)
    return dict(zip(source, result, strict=True))
