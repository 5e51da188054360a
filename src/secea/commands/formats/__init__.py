"""Tables of embeddings in files: .npz, .npy, .csv, .tsv, .parquet, and word2vec's text (.vec, .txt).

Whatever is wrong with a file is a `DataError` that names it, and the line or row. Names are compared as texts: 7 in one
file and "7" in another are the same entity. A result is written as its source was: names, header and float type, and
the columns that are no part of the embedding.
"""

from __future__ import annotations

import gzip
import math
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.grid import blocks
from secea.commands.formats import columns
from secea.commands.formats.binary import EXPECTED_NPZ, NAMES, read_npy, read_npz
from secea.commands.formats.columns import read_parquet
from secea.commands.formats.heading import counts
from secea.commands.formats.source import File, Layout, Read, Source
from secea.commands.formats.text import read_separated, read_word2vec
from secea.errors import DataError, TableError
from secea.names import Rule, said, text_of

__all__ = [
    "FORMATS",
    "READERS",
    "STDIN",
    "Layout",
    "Source",
    "faults",
    "look",
    "range_of",
    "read",
    "shown",
    "unlike",
    "weighed",
]

STDIN: Final = Path("-")
READERS: Final[dict[str, Callable[[File, Layout], Read]]] = {
    ".npz": read_npz, ".npy": read_npy, ".csv": read_separated, ".tsv": read_separated, ".parquet": read_parquet,
    ".vec": read_word2vec, ".txt": read_word2vec,
}  # fmt: skip
PACKED: Final = (".csv", ".tsv", ".vec", ".txt")
"""Those that are also read as .csv.gz and so on."""
COLUMNS: Final = (".csv", ".tsv", ".parquet")
"""Those in which one chooses the column of names."""
MOST_ABS: Final = 2.0**64
"""Params.max_abs goes no further."""
FORMATS: Final = ("csv", "tsv", "vec", "npz", "parquet")
"""What standard input may hold."""
_TEXT: Final = "expected lines of a name and its numbers"
EXPECTED: Final = {
    ".npz": EXPECTED_NPZ,
    ".npy": f"expected a matrix, with its names in a file that ends in {NAMES}",
    ".csv": f"{_TEXT}, with commas between",
    ".tsv": f"{_TEXT}, with tabs between",
    ".parquet": columns.EXPECTED,
    ".vec": f"{_TEXT}, with blanks between",
    ".txt": f"{_TEXT}, with blanks between",
}
OTHERS: Final = {
    b"\x1f\x8b": "is compressed by gzip; let its name end in {}.gz",
    b"PK\x03\x04": "is a zip archive, such as a workbook of Excel; save the table itself as text",
    b"PAR1": "is a Parquet file; let its name end in .parquet",
}
"""How files begin that are no text."""
ENOUGH_ROWS: Final = 3
COUNTED: Final = (
    "the names only count the rows; where another table does so too, rows of different entities meet; --name-column, if"
    " these numbers are names"
)


def read(path: Path, layout: Layout = Layout()) -> Source:  # noqa: B008 - it is frozen
    """The table in a file; its ending says what it is. What is wrong with it is raised."""
    source = look(path, layout)
    if source.faults:
        raise DataError(source.faults[0])
    return source


def look(path: Path, layout: Layout = Layout()) -> Source:  # noqa: B008 - it is frozen
    """The same, but a table that has faults comes with a list of them. What cannot be read at all is raised."""
    if path == STDIN:
        return _from_stdin(layout)
    return _look(File(path, path, _kind(path)), layout)


def shown(path: Path, layout: Layout) -> Path:
    """What a table is called in messages, and its result: standard input has a name, too."""
    return Path(f"stdin.{layout.format}") if path == STDIN else path


def _from_stdin(layout: Layout) -> Source:
    called = shown(STDIN, layout)
    with tempfile.TemporaryDirectory() as folder:  # arrays may stay in their files, and a Parquet file is read twice
        aside = Path(folder) / called
        with aside.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return _look(File(aside, called, called.suffix), layout)


def _kind(path: Path) -> str:
    packed = path.suffix.lower() == ".gz"
    kind = Path(path.stem).suffix.lower() if packed else path.suffix.lower()
    if kind not in (PACKED if packed else READERS):
        also = f"; also {', '.join(f'{each}.gz' for each in PACKED)}"
        raise DataError(f"{path} cannot be read: a table is a file that ends in {', '.join(READERS)}{also}")
    return kind


def _look(file: File, layout: Layout) -> Source:
    if file.path.is_dir():
        raise DataError(f"{file.shown} is a folder; give one file for each client")
    try:
        if not file.path.stat().st_size:
            raise DataError(f"{file.shown} is empty; {EXPECTED[file.kind]}")
        _refuse_other(file)
        source = READERS[file.kind](file, layout).checked(EXPECTED[file.kind])
    except gzip.BadGzipFile:
        raise DataError(
            f"{file.shown} is not compressed by gzip; if it is plain text, let its name end in {file.kind}"
        ) from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{file.shown} is no whole gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"{file.shown} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if file.kind in COLUMNS and layout.name_column is None and _counts(source.table.names):
        return replace(source, assumed=(*source.assumed, COUNTED))
    return source


def _refuse_other(file: File) -> None:
    """What is no text, though its name says so."""
    if file.kind in PACKED and not file.packed:
        with file.open() as data:
            start = data.read(4)
        for magic, what in OTHERS.items():
            if start.startswith(magic):
                raise DataError(f"{file.shown} {what.format(file.kind)}")


def _counts(names: Sequence[object]) -> bool:
    """Whether names are numbers that count rows, from 0 or from 1 on."""
    first = str(names[0]) if len(names) >= ENOUGH_ROWS else ""
    return first in ("0", "1") and all(str(name) == str(i) for i, name in enumerate(names, int(first)))


def weighed(source: Source, path: Path) -> Source:
    """The table with weights from another file of any of these formats: a name and a number in each row."""
    given = read(path).table
    if given.dim != 1:
        raise DataError(f"{path} has {given.dim} numbers for a name; weights are one for each name of {source.path}")
    try:
        return replace(source, table=source.table.weighing(dict(zip(given.names, given.matrix[:, 0], strict=True))))
    except TableError as error:
        raise DataError(f"{path}, for {source.path}: {error}") from None


def faults(sources: Sequence[Source], max_abs: float, rule: Rule = ()) -> Iterator[str]:
    """What keeps these tables from being averaged: lengths that differ, the range, names that `rule` makes one."""
    first, range_needed = sources[0], 0.0
    for source in sources:
        if source.table.dim != first.table.dim:
            assumed = "; ".join(f"{each.path}: {text}" for each in (first, source) for text in each.assumed)
            yield (
                f"{source.path} has embeddings of length {source.table.dim}, {first.path} of length {first.table.dim};"
                f" all clients need the same{assumed and f' ({assumed})'}"
            )
        wrong = _outside(source.table.matrix, max_abs)
        if wrong is not None:
            range_needed = range_needed or max(range_of(each.table.matrix) for each in sources)
            cure = "" if range_needed > MOST_ABS else f"give --max-abs {range_needed:.17g}, or "
            doubt = "; ".join(each for each in source.assumed if "--header" in each and not wrong[0])
            yield (
                f"{source.where(wrong[0])}: {float(source.table.matrix[wrong]):.9g} is outside of"
                f" [-{max_abs:g}, {max_abs:g}]; {cure}scale the embeddings down{doubt and f' ({doubt})'}"
            )
    yield from _in_another_order(sources)
    for source in sources:
        if rule:
            yield from _one_after(source, rule)


def _in_another_order(sources: Sequence[Source]) -> Iterator[str]:
    """Tables whose columns have the labels of another one's, in another order: numbers are averaged by place."""
    for says, first, own in _differing(sources):
        if sorted(own) == sorted(first):
            yield f"{says}; bring the columns into one order, or give --columns in the order that you want"


def unlike(sources: Sequence[Source]) -> Iterator[str]:
    """A note on tables whose columns have other labels than those of the first one; numbers that count are none."""
    for says, first, own in _differing(sources):
        if sorted(own) != sorted(first) and not counts(first) and not counts(own):
            yield f"{says}: columns are averaged by place, whatever they are called"
            return


def _differing(sources: Sequence[Source]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Where labels of columns differ from those of the first table that has any, and both labels."""
    labelled = [(source.path, [each.casefold() for each in source.labels]) for source in sources if source.labels]
    for path, own in labelled[1:]:
        where, first = labelled[0]
        if len(own) == len(first) and own != first:
            one, other = next((one, other) for one, other in zip(own, first, strict=True) if one != other)
            yield f"{path} has the column {one!r} where {where} has {other!r}", first, own


def _one_after(source: Source, rule: Rule) -> Iterator[str]:
    first: dict[str, int] = {}
    names = source.table.names
    for row, name in enumerate(names):
        if not str(name):
            continue  # that was said before
        try:
            text = text_of(name, rule)
        except TableError as error:
            yield f"{source.where(row)}: {error}"
            continue
        before = first.setdefault(text, row)
        if names[before] != name:
            yield (
                f"{source.where(row)}: the entity {name!r} is {names[before]!r} of {source.rows[before]} after"
                f" --normalize {said(rule)}; join the two rows, or rename one"
            )


def range_of(matrix: Floats) -> float:
    """The least power of two that no finite number exceeds; 0 if all are 0."""
    most = max((np.abs(np.where(np.isfinite(block), block, 0)).max(initial=0.0) for block in blocks(matrix)), default=0)
    return 2.0 ** math.ceil(math.log2(most)) if most else 0.0


def _outside(matrix: Floats, most: float) -> tuple[int, int] | None:
    """The first number beyond the range. Tables may be larger than memory."""
    start = 0
    for block in blocks(matrix):
        found = np.argwhere((np.abs(block) > most) & np.isfinite(block))
        if found.size:
            return start + int(found[0, 0]), int(found[0, 1])
        start += len(block)
    return None
