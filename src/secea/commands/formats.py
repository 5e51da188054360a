"""Tables of embeddings in files: .npz, .csv, .tsv, .parquet, and word2vec's text (.vec, .txt).

Whatever is wrong with a file is a `DataError` that names it, and the line or row. Names are compared as texts: 7 in one
file and "7" in another are the same entity. A result is written as its source was: names, header and float type, and a
column of weights, if it has one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.grid import blocks
from secea.arrays import read_arrays, stored_like, write_arrays
from secea.atomic import Content
from secea.errors import DataError, MissingExtra, TableError
from secea.extras import installing
from secea.names import Rule, said, text_of
from secea.table import Table

Writer: TypeAlias = Callable[[Floats], Content]
"""The content of a file like the one that was read, with other numbers."""


@dataclass(frozen=True)
class Source:
    """A table that was read: its file, the place of each row, and how to write a file like it."""

    path: Path
    table: Table
    rows: Sequence[str] = field(repr=False)
    """The place of each row, such as "line 7"."""
    write: Writer = field(repr=False)

    def where(self, row: int) -> str:
        """A row, for people."""
        return f"{self.path}, {self.rows[row]}"


def read(path: Path, weights: str | None = None) -> Source:
    """The table in a file; its ending says what it is. `weights` names the column that has the weights of its rows."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path} cannot be read: a table is a file that ends in {', '.join(READERS)}")
    if path.is_dir():
        raise DataError(f"{path} is a folder; give one file for each client")
    try:
        if not path.stat().st_size:
            raise DataError(f"{path} is empty; {EXPECTED[path.suffix.lower()]}")
        return reader(path, weights)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def weighed(source: Source, path: Path) -> Source:
    """The table with weights from another file of any of these formats: a name and a number in each row."""
    given = read(path).table
    if given.dim != 1:
        raise DataError(f"{path} has {given.dim} numbers for a name; weights are one for each name of {source.path}")
    try:
        return replace(source, table=source.table.weighing(dict(zip(given.names, given.matrix[:, 0], strict=True))))
    except TableError as error:
        raise DataError(f"{path}, for {source.path}: {error}") from None


def check(sources: Sequence[Source], max_abs: float, rule: Rule = ()) -> None:
    """All embeddings are of one length, and within the range; no two names of a table are one after normalisation."""
    first = sources[0]
    for source in sources:
        if source.table.dim != first.table.dim:
            raise DataError(
                f"{source.path} has embeddings of length {source.table.dim}, {first.path} of length {first.table.dim};"
                " all clients need the same"
            )
        wrong = _first(source.table.matrix, lambda block: np.abs(block) > max_abs)
        if wrong is not None:
            raise DataError(
                f"{source.where(wrong[0])}: {source.table.matrix[wrong]:g} is outside of [-{max_abs:g}, {max_abs:g}];"
                " give a larger --max-abs, or scale the embeddings down"
            )
        if rule:
            _check_names(source, rule)


def _check_names(source: Source, rule: Rule) -> None:
    first: dict[str, int] = {}
    names = source.table.names
    for row, name in enumerate(names):
        try:
            before = first.setdefault(text_of(name, rule), row)
        except TableError as error:
            raise DataError(f"{source.where(row)}: {error}") from None
        if before != row:
            raise DataError(
                f"{source.where(row)}: the entity {name!r} is {names[before]!r} of {source.rows[before]} after"
                f" --normalize {said(rule)}; join the two rows, or rename one"
            )


def _first(matrix: Floats, wrong: Callable[[Floats], NDArray[np.bool_]]) -> tuple[int, int] | None:
    """The first place at which something is wrong. Tables may be larger than memory."""
    start = 0
    for block in blocks(matrix):
        found = np.argwhere(wrong(block))
        if found.size:
            return start + int(found[0, 0]), int(found[0, 1])
        start += len(block)
    return None


def _source(
    path: Path, names: Sequence[Any], matrix: Floats, rows: Sequence[str], write: Writer, weights: Any = None
) -> Source:
    """Names are texts, each there once and not empty; numbers are finite; weights are whole."""
    if not len(matrix):
        raise DataError(f"{path} holds no entities; {EXPECTED[path.suffix.lower()]}")
    texts = [str(name) for name in names]
    first: dict[str, int] = {}
    for row, name in enumerate(texts):
        if not name:
            raise DataError(f"{path}, {rows[row]}: the name is empty")
        if first.setdefault(name, row) != row:
            raise DataError(f"{path}, {rows[row]}: the entity {name!r} is in {rows[first[name]]} too; keep one")
    if infinite := _first(matrix, lambda block: ~np.isfinite(block)):
        row = infinite[0]
        held = f"the embedding of {texts[row]!r} holds {matrix[infinite]}"
        raise DataError(f"{path}, {rows[row]}: {held}; every number must be finite")
    try:
        return Source(path, Table(texts, matrix, weights), rows, write)
    except TableError as error:
        raise DataError(f"{path}: {error}") from None


# --------------------------------------------------------------------------------------------------------------- text


class _Line(NamedTuple):
    number: int
    fields: list[str]


def _lines(path: Path) -> Iterator[str]:
    """Decoded line by line, so that what is no text has a line number."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                fault = f"the byte 0x{line[error.start]:02x} is no UTF-8 text"
                raise DataError(f"{path}, line {number}: {fault}; save the file as UTF-8") from None


def _separated(path: Path, delimiter: str) -> Iterator[_Line]:
    reader = csv.reader(_lines(path), delimiter=delimiter)
    try:
        for fields in reader:
            if any(fields):
                yield _Line(reader.line_num, fields)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None


def _spaced(path: Path) -> Iterator[_Line]:
    for number, line in enumerate(_lines(path), 1):
        fields = line.strip(" \r\n").split(" ")
        if fields != [""]:
            yield _Line(number, fields)


def _numbers(fields: Sequence[str], where: str) -> list[float]:
    try:
        values = list(map(float, fields))
    except ValueError:
        wrong = next(text for text in fields if not _is_number(text))
        raise DataError(f"{where}: {wrong!r} is not a number") from None
    if "_" in "".join(fields):
        raise DataError(f"{where}: {next(text for text in fields if '_' in text)!r} is not a number")
    return values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _table(
    path: Path, lines: Iterable[_Line], dim: int | None, write: Callable[[list[str], Floats], bytes],
    weights: Sequence[float] | None = None,
) -> Source:  # fmt: skip
    """A name and equally many numbers in each line."""
    names, values, rows = [], [], []
    for number, fields in lines:
        where = f"{path}, line {number}"
        if dim is None:
            dim = len(fields) - 1
        if len(fields) != dim + 1 or not dim:
            raise DataError(
                f"{where}: a name and {len(fields) - 1} numbers; {f'{dim} were' if dim else 'some are'} expected"
            )
        names.append(fields[0])
        values.append(_numbers(fields[1:], where))
        rows.append(f"line {number}")
    matrix = np.array(values, np.float64).reshape(len(names), dim or 0)
    return _source(path, names, matrix, rows, lambda means: write(names, means), weights)


def _csv(path: Path, weights: str | None) -> Source:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    lines = list(_separated(path, delimiter))
    header = lines and len(lines[0].fields) > 1 and not any(map(_is_number, lines[0].fields[1:]))
    heading = [lines.pop(0).fields] if header else []
    place = _place(path, heading[0] if header else [], weights)
    given = _taken(path, lines, place, len(heading[0])) if place else []

    def write(names: list[str], means: Floats) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerows(heading)
        for i, (name, row) in enumerate(zip(names, means.tolist(), strict=True)):
            fields = [name, *map(repr, row)]
            if place:
                fields.insert(place, given[i])
            writer.writerow(fields)
        return text.getvalue().encode()

    dim = len(heading[0]) - 1 - bool(place) if header else None
    if not place:
        return _table(path, lines, dim, write)
    whole = [_numbers([text], f"{path}, line {line.number}")[0] for text, line in zip(given, lines, strict=True)]
    return _table(path, lines, dim, write, whole)


def _place(path: Path, columns: Sequence[str], weights: str | None) -> int:
    """Which column has the weights; 0, where the names are, for none."""
    if weights is None:
        return 0
    if weights not in columns[1:]:
        there = f"there are {', '.join(columns[1:])}" if columns[1:] else "it has no names of columns"
        raise DataError(f"{path} has no column {weights!r} for weights; {there}; or give them in files")
    return columns.index(weights)


def _taken(path: Path, lines: Sequence[_Line], place: int, width: int) -> list[str]:
    """The fields of one column, which are taken out of the lines."""
    taken = []
    for line in lines:
        if len(line.fields) != width:
            raise DataError(f"{path}, line {line.number}: {len(line.fields)} columns; {width} were expected")
        taken.append(line.fields.pop(place))
    return taken


def _word2vec(path: Path, weights: str | None) -> Source:
    """With a first line of count and length, or without, as GloVe writes it."""
    _place(path, (), weights)
    lines = list(_spaced(path))
    header = lines and len(lines[0].fields) == 2 and all(text.isdecimal() for text in lines[0].fields)
    dim = None
    if header:
        count, dim = map(int, lines.pop(0).fields)
        if count != len(lines):
            raise DataError(f"{path}, line 1: it says {count} entities, and {len(lines)} follow")

    def write(names: list[str], means: Floats) -> bytes:
        heading = f"{len(names)} {means.shape[1]}\n" if header else ""
        rows = (" ".join([name, *map(repr, row)]) for name, row in zip(names, means.tolist(), strict=True))
        return (heading + "\n".join(rows) + "\n").encode()

    return _table(path, lines, dim, write)


# ------------------------------------------------------------------------------------------------------------- arrays


def _npz(path: Path, weights: str | None) -> Source:
    expected = EXPECTED[".npz"]
    arrays = read_arrays(path, expected)
    _place(path, ["names", *arrays], weights)
    also = {} if weights is None else {weights: arrays.pop(weights)}
    if arrays.keys() != {"names", "matrix"}:
        raise DataError(f"{path} holds the arrays {', '.join(arrays) or 'none'}; {expected}")
    names, matrix = arrays["names"], arrays["matrix"]
    if names.ndim != 1 or names.dtype.kind not in "iuU":
        raise DataError(f"{path}: names must be texts or integers in one dimension, got {names.dtype}, {names.shape}")
    if matrix.ndim != 2 or len(matrix) != len(names):
        raise DataError(f"{path}: {len(names)} names need a matrix of as many rows, got the shape {matrix.shape}")
    if matrix.dtype not in (np.float32, np.float64):
        raise DataError(f"{path}: the matrix has dtype {matrix.dtype}; save it as float32 or float64")

    def write(means: Floats) -> Content:
        return lambda file: write_arrays(file, {"names": names, "matrix": means} | also)

    return _source(path, names.tolist(), matrix, _Counted(len(names)), write, also.get(weights or ""))


class _Counted(Sequence[str]):
    """The places of rows that have no names of their own."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: Any) -> Any:
        return f"row {row}"


def _parquet(path: Path, weights: str | None) -> Source:
    """The first column has names; the second has lists of numbers, or all others have one number each."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra(f"{path}: reading parquet needs pyarrow: {installing('pyarrow')}") from None
    try:
        file = parquet.ParquetFile(path)
        schema, count = file.schema_arrow, file.metadata.num_rows
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is no parquet file: {str(error).splitlines()[0]}") from None
    place = _place(path, schema.names, weights)
    kept = [name for name in schema.names if not place or name != weights]
    if len(kept) < 2:
        raise DataError(f"{path} has {len(kept)} columns; {EXPECTED['.parquet']}")
    listed = len(kept) == 2 and _has_lists(schema.field(kept[1]).type, pyarrow)
    names: list[Any] = []
    given: list[Any] = []
    matrix: Floats | None = None
    try:
        for whole in file.iter_batches(BATCH_ROWS):
            batch = whole.select(kept) if place else whole
            given += whole.column(place).to_pylist() if place else []
            rows = _lists(path, batch, len(names)) if listed else _columns(path, batch, len(names), pyarrow)
            if matrix is None:
                matrix = stored_like(rows, count)
            if rows.shape[1] != matrix.shape[1]:
                raise DataError(f"{path}, row {len(names)}: {rows.shape[1]} numbers; {matrix.shape[1]} were expected")
            matrix[len(names) : len(names) + len(rows)] = rows
            names += batch.column(0).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read to its end: {str(error).splitlines()[0]}") from None
    if not all(isinstance(name, str | int) for name in names):
        raise DataError(f"{path}: the column {schema.names[0]!r} must hold texts or integers; {EXPECTED['.parquet']}")

    def write(means: Floats) -> Content:
        def into(target: BinaryIO) -> None:
            with parquet.ParquetWriter(target, schema) as writer:
                for start in range(0, len(names), BATCH_ROWS):
                    part = means[start : start + BATCH_ROWS]
                    columns = [names[start : start + BATCH_ROWS], *([list(part)] if listed else list(part.T))]
                    if place:
                        columns.insert(place, given[start : start + BATCH_ROWS])
                    arrays = [pyarrow.array(x, type=each.type) for x, each in zip(columns, schema, strict=True)]
                    writer.write_batch(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))

        return into

    none = np.zeros((0, 1 if listed else len(kept) - 1))
    if None in given:
        raise DataError(f"{path}, row {given.index(None)}: the weight is missing")
    table = none if matrix is None else matrix
    return _source(path, names, table, _Counted(len(names)), write, given if place else None)


def _has_lists(kind: Any, pyarrow: Any) -> bool:
    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _lists(path: Path, batch: Any, first: int) -> NDArray[np.float64]:
    """The second column of some rows, `first` on. Numbers that are all there and of one length are taken at once."""
    column = batch.column(1)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False) if len(column) else np.zeros(0)
    values = column.flatten()
    whole = not column.null_count and not values.null_count and lengths.size and bool((lengths == lengths[0]).all())
    if whole and lengths[0] and values.type.bit_width in (32, 64) and str(values.type) in ("float", "double"):
        return values.to_numpy(zero_copy_only=False).reshape(len(column), -1)  # type: ignore[no-any-return]
    rows = column.to_pylist()
    dim = len(rows[0]) if rows and rows[0] is not None else 0
    for number, row in enumerate(rows, first):
        if row is None or len(row) != dim or not dim:
            raise DataError(f"{path}, row {number}: {len(row or [])} numbers; {dim or 'some'} were expected")
        if not all(isinstance(value, int | float) for value in row):
            raise DataError(
                f"{path}, row {number}: {next(v for v in row if not isinstance(v, int | float))!r} is not a number"
            )
    return np.array(rows, np.float64).reshape(len(rows), dim)


def _columns(path: Path, batch: Any, first: int, pyarrow: Any) -> NDArray[np.float64]:
    types = pyarrow.types
    for each in list(batch.schema)[1:]:
        if not (types.is_floating(each.type) or types.is_integer(each.type)):
            raise DataError(f"{path}: the column {each.name!r} holds {each.type}, not numbers; {EXPECTED['.parquet']}")
    parts = []
    for column in batch.columns[1:]:
        if column.null_count:
            raise DataError(f"{path}, row {first + column.to_pylist().index(None)}: a number is missing")
        parts.append(column.to_numpy(zero_copy_only=False).astype(np.float64))
    return np.ascontiguousarray(np.stack(parts, axis=1))


BATCH_ROWS: Final = 1 << 13
"""Rows of a Parquet file that are in memory together."""
READERS: Final[dict[str, Callable[[Path, str | None], Source]]] = {
    ".npz": _npz, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".vec": _word2vec, ".txt": _word2vec,
}  # fmt: skip
_TEXT: Final = "expected lines of a name and its numbers"
EXPECTED: Final = {
    ".npz": "expected two arrays: np.savez(file, names=names, matrix=matrix)",
    ".csv": f"{_TEXT}, with commas between",
    ".tsv": f"{_TEXT}, with tabs between",
    ".parquet": "expected a column of names, and one of lists or several of numbers",
    ".vec": f"{_TEXT}, with blanks between",
    ".txt": f"{_TEXT}, with blanks between",
}
