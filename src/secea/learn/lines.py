"""Rows of names out of text and Parquet: what the first line is, and which column is what (docs/learning.md)."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from secea.errors import DataError, MissingExtra
from secea.extras import installing

if TYPE_CHECKING:
    from secea.learn.data import Kind

HEADER: Final = re.compile(
    r"head|rel(ation)?|tail|subject|predicate|object|source|target|from|to|[hrtspouv]|src|dst"
    r"|(user|item|movie|node|entity|id)_?(id|[12])?|rating|score|ts|time(_?stamp)?",
    re.IGNORECASE,
)
"""Words of which a first line that is no data consists."""
ENOUGH: Final = 10
"""So many lines that are connected to each other show that a first line which is not is a heading."""

Names: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Columns:
    """What the user says about columns; what is left open is found out."""

    header: bool | None = None
    """Whether the first line of a text file is a heading."""
    columns: tuple[str, ...] = ()
    """Which are the task's columns, in its order: by label, or by number from 1 on."""


def wanted(kind: Kind) -> str:
    """What a task's data has."""
    return f"{len(kind.columns)} columns: {', '.join(kind.columns)}"


def text(path: Path, kind: Kind, said: Columns) -> tuple[list[Names], tuple[str, ...]]:
    """Lines of names: commas in .csv, tabs in others (or blanks where there is no tab). And what was assumed."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            split: Iterable[list[str]] = csv.reader(file) if path.suffix == ".csv" else map(_fields, file)
            lines = [(n, [word.strip() for word in line]) for n, line in enumerate(split, 1) if any(line)]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise DataError(f"{path} is no CSV file: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    heading: list[str] = []
    assumed: tuple[str, ...] = ()
    if lines and said.header is not False:
        is_heading, doubt = _first([line for _, line in lines], kind, said)
        if said.header or is_heading:
            heading = lines.pop(0)[1]
        if said.header is None and doubt:
            assumed = (f"{path}: {doubt}",)
    places = _places(path, heading or (lines[0][1] if lines else []), kind, said.columns, labelled=bool(heading))
    rows = []
    for number, line in lines:
        where = f"{path}, line {number}"
        if places and len(line) <= max(places):
            raise DataError(f"{where}: {len(line)} columns; column {max(places) + 1} was chosen")
        rows.append(row([line[place] for place in places] if places else line, where, kind))
    return rows, assumed


def _fields(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t") if "\t" in line else line.split()


def _first(lines: Sequence[Sequence[str]], kind: Kind, said: Columns) -> tuple[bool, str]:
    """Whether the first line is a heading; and a sentence, if that is not certain."""
    first, below = lines[0], [line for line in lines[1:] if len(line) == len(lines[0])]
    if all(HEADER.fullmatch(word) for word in first):
        return True, ""
    if said.columns and not all(each.isdecimal() for each in said.columns):
        return True, ""  # they are labels
    certain = "the first line was read as a heading{}; --no-header, if it is a row"
    over = [c for c in range(len(first)) if below and all(_is_number(line[c]) for line in below)]
    if over and not any(_is_number(first[c]) for c in over) and (kind.valued or len(over) == len(first)):
        return True, certain.format(", since it has words where the others have numbers")
    if kind.valued or any(map(_is_number, first)):
        return False, ""
    words = Counter(word for line in below for word in set(line))
    if not below or any(word in words for word in first):
        return False, ""
    if any(HEADER.fullmatch(word) for word in first if len(word) > 1):
        return True, certain.format("")
    if len(below) >= ENOUGH and all(any(words[word] > 1 for word in line) for line in below):
        return True, certain.format(", since none of its words is anywhere else")
    return False, "the first line was read as a row; --header, if it is a heading"


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _places(path: Path, labels: Sequence[str], kind: Kind, columns: Sequence[str], *, labelled: bool) -> list[int]:
    """Where the task's columns are; none, if they are the first ones."""
    if not columns:
        lower = [label.lower() for label in labels]
        return [lower.index(column) for column in kind.columns] if labelled and set(kind.columns) <= set(lower) else []
    if len(columns) != len(kind.columns):
        raise DataError(f"--columns needs {wanted(kind)}; it has {len(columns)}")
    places = []
    for each in columns:
        if labelled and each in labels:
            places.append(labels.index(each))
        elif each.isdecimal() and 1 <= int(each) <= len(labels):
            places.append(int(each) - 1)
        else:
            there = f"there are {', '.join(labels)}" if labelled else f"it has {len(labels)} columns without names"
            raise DataError(f"{path} has no column {each!r}; {there}")
    return places


def row(line: Sequence[Any], where: str, kind: Kind) -> Names:
    """The columns of a row, with names that are not empty and a rating that is a number."""
    count = len(kind.columns)
    if len(line) < count or (len(line) > count and not kind.valued):  # ratings may have a time stamp
        raise DataError(f"{where}: {len(line)} columns; expected {wanted(kind)}")
    found = list(line[:count])
    for column, name in enumerate(found[: count - kind.valued]):
        if name in ("", None):
            raise DataError(f"{where}: the {kind.columns[column]} is empty")
    if kind.valued:
        try:
            found[-1] = float(found[-1])
        except (TypeError, ValueError):
            raise DataError(f"{where}: the rating {found[-1]!r} is not a number") from None
        if not np.isfinite(found[-1]):
            raise DataError(f"{where}: the rating {found[-1]} is not finite")
    return tuple(found)


def parquet(path: Path, kind: Kind, said: Columns) -> tuple[list[Names], tuple[str, ...]]:
    """Rows of a Parquet file. Its columns have names, so nothing is assumed."""
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import read_table
    except ImportError:
        raise MissingExtra(f"{path}: reading parquet needs pyarrow: {installing('pyarrow')}") from None
    try:
        table = read_table(path)
    except (ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is no parquet file: {str(error).splitlines()[0]}") from None
    if places := _places(path, table.column_names, kind, said.columns, labelled=True):
        table = table.select(places)
    columns = [column.to_pylist() for column in table.columns]
    return [row(line, f"{path}, row {n}", kind) for n, line in enumerate(zip(*columns, strict=True), 1)], ()
