"""Tables in Parquet files: a column of names, and one of lists or several of numbers; what else comes back as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.arrays import stored_like
from secea.atomic import Content
from secea.commands.formats.heading import KNOWN
from secea.commands.formats.source import MISSING, Faults, File, Layout, Places, Read, column, weight_column
from secea.errors import DataError, MissingExtra
from secea.extras import installing

BATCH_ROWS: Final = 1 << 13
"""Rows of a Parquet file that are in memory together."""
EXPECTED: Final = "expected a column of names, and one of lists or several of numbers"
INDEX: Final = "__index_level_0__"
"""What pandas calls an index without a name."""


def read_parquet(file: File, layout: Layout) -> Read:
    """Names are in the index that pandas wrote, or in the first column."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra(f"{file.shown}: reading parquet needs pyarrow: {installing('pyarrow')}") from None
    try:
        opened = parquet.ParquetFile(file.path)
        schema, count = opened.schema_arrow, opened.metadata.num_rows
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{file.shown} is no parquet file: {str(error).splitlines()[0]}") from None
    if len(schema.names) < 2:
        raise DataError(f"{file.shown} has {len(schema.names)} columns; {EXPECTED}")
    name, numbers, assumed = _roles(file, layout, schema, pyarrow.types)
    weights = weight_column(layout.weights, schema.names, file.shown)
    listed = len(numbers) == 1 and _has_lists(schema.field(numbers[0]).type, pyarrow.types)
    others = [c for c in range(len(schema)) if c not in numbers]
    faults, start = Faults(file.shown), 0
    matrix: Floats | None = None
    kept: list[Any] = []
    holes: set[int] = set()
    try:
        for batch in opened.iter_batches(BATCH_ROWS):
            columns = [batch.column(c) for c in numbers]
            rows = _lists(columns[0], start, faults, matrix, holes) if listed else _flat(columns, start, faults, holes)
            if matrix is None:
                matrix = stored_like(rows, count)
            matrix[start : start + len(rows)] = rows
            start += len(rows)
            kept.append(batch.select(others))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file.shown} cannot be read to its end: {str(error).splitlines()[0]}") from None
    rest = pyarrow.Table.from_batches(kept) if kept else schema.empty_table().select(others)
    names = rest.column(others.index(name)).to_pylist()
    if None in names:
        raise DataError(f"{file.shown}, row {names.index(None)}: the name is missing; drop the row, or give it one")
    if not all(isinstance(each, str | int) and not isinstance(each, bool) for each in names):
        raise DataError(
            f"{file.shown}: the column {schema.names[name]!r} holds {schema.field(name).type}, and names must be texts"
            " or integers; --name-column chooses another column, and an index of pandas is one if it has a name"
        )
    given = None if weights is None else rest.column(others.index(weights)).to_pylist()
    if given is not None and None in given:
        raise DataError(f"{file.shown}, row {given.index(None)}: the weight is missing")

    written = _with_floats(schema, numbers, pyarrow)

    def write(means: Floats) -> Content:
        def into(target: BinaryIO) -> None:
            with parquet.ParquetWriter(target, written) as writer:
                for start in range(0, len(names), BATCH_ROWS):
                    part, same = means[start : start + BATCH_ROWS], rest.slice(start, BATCH_ROWS).combine_chunks()
                    made: list[Any] = [None] * len(schema)
                    for c, values in zip(numbers, [list(part)] if listed else part.T, strict=True):
                        made[c] = pyarrow.array(values, type=written.field(c).type)
                    for place, c in enumerate(others):
                        chunks = same.column(place).chunks
                        made[c] = chunks[0] if chunks else pyarrow.array([], type=written.field(c).type)
                    writer.write_batch(pyarrow.RecordBatch.from_arrays(made, schema=written))

        return into

    table = np.zeros((0, 1 if listed else len(numbers))) if matrix is None else matrix
    return Read(
        file, names, table, Places(range(len(names))), write, faults, given,
        _stored(schema, numbers, pyarrow.types, table),
        heading=tuple(schema.names), kept=tuple(schema.names[c] for c in others if c not in (name, weights)),
        assumed=assumed, holes=frozenset(holes), labels=None if listed else tuple(schema.names[c] for c in numbers),
    )  # fmt: skip


def _roles(file: File, layout: Layout, schema: Any, types: Any) -> tuple[int, list[int], tuple[str, ...]]:
    """The column of names, those of numbers, and what was assumed."""
    assumed = []
    if layout.name_column is not None:
        name = column(layout.name_column, schema.names, file.shown, "--name-column")
    else:
        name, why = _names(schema, types)
        assumed += [why] * bool(why)
    if layout.columns:
        numbers = [column(each, schema.names, file.shown, "--columns") for each in layout.columns]
        if name in numbers:
            raise DataError(f"{file.shown}: the column {schema.names[name]!r} has the names, and no numbers")
    else:
        numbers, why = _embedding(schema, types, name, layout.weights)
        assumed += [why] * bool(why)
    if not numbers:
        raise DataError(f"{file.shown} has no column of numbers beside the names; {EXPECTED}")
    listed = [c for c in numbers if _has_lists(schema.field(c).type, types)]
    wrong = [c for c in numbers if c not in listed and not _has_numbers(schema.field(c).type, types)]
    if wrong:
        each = schema.field(wrong[0])
        raise DataError(f"{file.shown}: the column {each.name!r} holds {each.type}, not numbers; {EXPECTED}")
    if listed and len(numbers) > 1:
        raise DataError(f"{file.shown}: the column {schema.names[listed[0]]!r} has lists; give --columns it alone")
    return name, numbers, tuple(assumed)


def _names(schema: Any, types: Any) -> tuple[int, str]:
    """The index that pandas wrote, if it is one of names; else the first column."""
    texts = [c for c, each in enumerate(schema) if _has_texts(each.type, types)]
    index = [each for each in _index(schema) if each in schema.names]
    place = schema.names.index(index[0]) if len(index) == 1 else 0
    named = len(index) == 1 and schema.names[place] != INDEX
    counts = schema.names[place] == INDEX and not _has_texts(schema.field(place).type, types)
    if (counts or _has_fractions(schema.field(place).type, types)) and texts:
        known = [c for c in texts if schema.names[c].lower() in KNOWN]
        chosen = (known or texts)[0]
        why = "the index has no name and holds numbers" if counts else "the first one holds fractions"
        return chosen, (
            f"names were taken from the column {schema.names[chosen]!r}, since {why}; --name-column chooses another"
        )
    if texts and not named and place not in texts:
        known = [c for c in texts if schema.names[c].lower() in KNOWN]
        return place, (
            f"names were taken from the column {schema.names[place]!r}, which holds numbers; --name-column"
            f" {schema.names[(known or texts)[0]]} takes texts"
        )
    return place, ""


def _index(schema: Any) -> Sequence[str]:
    """The columns of the index, as pandas wrote them down; one that counts rows is no column."""
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        said = []
    return [each for each in said if isinstance(each, str)] or [INDEX]


def _embedding(schema: Any, types: Any, name: int, weights: str | None) -> tuple[list[int], str]:
    """The one column of lists, or all columns of numbers."""
    rest = [c for c in range(len(schema)) if c != name and schema.names[c] not in (weights, INDEX)]
    listed = [c for c in rest if _has_lists(schema.field(c).type, types)]
    numbers = [c for c in rest if _has_numbers(schema.field(c).type, types)]
    chosen = listed if len(listed) == 1 else numbers if not listed else []
    left = [schema.names[c] for c in rest if c not in chosen]
    if not chosen or not left:
        return chosen or rest, ""
    what = f"the columns {', '.join(map(repr, left))} are" if len(left) > 1 else f"the column {left[0]!r} is"
    return chosen, f"{what} no part of the embedding, and left as {'they are' * (len(left) > 1) or 'it is'}"


def _has_lists(kind: Any, types: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _has_numbers(kind: Any, types: Any) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind))


def _with_floats(schema: Any, numbers: Sequence[int], pyarrow: Any) -> Any:
    """The same columns, with float64 where numbers were integers or decimals: a mean is seldom one."""
    types = pyarrow.types
    for c in numbers:
        each = schema.field(c)
        if not _has_lists(each.type, types) and not types.is_floating(each.type):
            schema = schema.set(c, each.with_type(pyarrow.float64()))
        elif _has_lists(each.type, types) and not types.is_floating(each.type.value_type):
            size = each.type.list_size if types.is_fixed_size_list(each.type) else -1
            made = pyarrow.large_list if types.is_large_list(each.type) else pyarrow.list_
            inner = pyarrow.float64()
            schema = schema.set(c, each.with_type(made(inner) if size < 0 else pyarrow.list_(inner, size)))
    return _told_pandas(schema, {schema.names[c] for c in numbers})


def _told_pandas(schema: Any, numbers: AbstractSet[str]) -> Any:
    """What pandas wrote down about columns, for those that hold float64 now."""
    metadata = dict(schema.metadata or {})
    try:
        told = json.loads(metadata[b"pandas"])
        for each in told["columns"]:
            if each["field_name"] in numbers and not str(each["numpy_type"]).lower().startswith(("float", "object")):
                own = "Float64" if str(each["numpy_type"])[:1].isupper() else "float64"
                each |= {"pandas_type": "float64", "numpy_type": own, "metadata": None}
    except (KeyError, TypeError, ValueError):  # pandas did not write it
        return schema
    return schema.with_metadata(metadata | {b"pandas": json.dumps(told).encode()})


def _has_fractions(kind: Any, types: Any) -> bool:
    return bool(types.is_floating(kind))


def _has_texts(kind: Any, types: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _stored(schema: Any, numbers: Sequence[int], types: Any, table: Floats) -> np.dtype[Any]:
    """The shortest float type among the columns."""
    kinds = [schema.field(c).type for c in numbers]
    kinds = [kind.value_type if _has_lists(kind, types) else kind for kind in kinds]
    floats = [np.dtype(kind.to_pandas_dtype()) for kind in kinds if types.is_floating(kind)]
    return min((*floats, table.dtype), key=lambda dtype: dtype.itemsize)


def _lists(values: Any, start: int, faults: Faults, before: Floats | None, holes: set[int]) -> NDArray[Any]:
    """A column of lists of one length. Those that are all there are taken at once."""
    lengths = np.asarray(values.value_lengths().fill_null(0)) if len(values) else np.zeros(0, np.int64)
    dim = before.shape[1] if before is not None else int(lengths[lengths > 0][0]) if lengths.any() else 1
    flat = values.flatten()
    if str(flat.type) in ("float", "double") and not flat.null_count and bool((lengths == dim).all()) and len(values):
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(values), dim)
    rows = np.full((len(values), dim), np.nan)
    for i, row in enumerate(values.to_pylist()):
        where = f"row {start + i}"
        if row is None or len(row) != dim:
            faults.add("rows of another length", where, f"{len(row or [])} numbers; {dim} were expected")
        elif None in row:
            faults.add(MISSING, where, "a number is missing")
        elif wrong := [each for each in row if not isinstance(each, int | float)]:
            faults.add("fields that are not numbers", where, f"{wrong[0]!r} is not a number")
        else:
            rows[i] = row
            continue
        holes.add(start + i)
    return rows


def _flat(columns: Sequence[Any], start: int, faults: Faults, holes: set[int]) -> NDArray[np.float64]:
    parts = []
    for values in columns:
        for row in np.flatnonzero(np.asarray(values.is_null())).tolist() if values.null_count else ():
            faults.add(MISSING, f"row {start + row}", "a number is missing")
            holes.add(start + row)
        parts.append(values.to_numpy(zero_copy_only=False).astype(np.float64))
    return np.ascontiguousarray(np.stack(parts, axis=1))
