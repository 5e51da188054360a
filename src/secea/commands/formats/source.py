"""What readers of tables have in common: what was asked, what was found, and what is wrong with it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np

from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.grid import blocks
from secea.atomic import Content
from secea.errors import DataError, TableError
from secea.table import Table

Writer: TypeAlias = Callable[[Floats], Content]
"""The content of a file like the one that was read, with other numbers."""

MOST_OF_A_KIND: Final = 3
"""Faults of one kind that are listed; the others are counted."""


@dataclass(frozen=True)
class Layout:
    """What the user says about the columns of tables; what is left open is found out."""

    header: bool | None = None
    """Whether the first line of a .csv or .tsv is a heading."""
    name_column: str | None = None
    """The column of the names: what the heading calls it, or its number from 1 on."""
    columns: tuple[str, ...] = ()
    """The columns of the embedding, likewise."""
    weights: str | None = None
    """The column, or the array, with the weights of rows."""
    format: str = "csv"
    """What standard input holds."""

    @property
    def chooses(self) -> bool:
        """Whether it says which column is which."""
        return self.name_column is not None or bool(self.columns)


@dataclass(frozen=True)
class File:
    """A file to read."""

    path: Path
    """Where its bytes are."""
    shown: Path
    """What people know it by."""
    kind: str
    """Its ending, without .gz."""

    @property
    def packed(self) -> bool:
        """Whether it is compressed as a whole."""
        return self.shown.suffix.lower() == ".gz"

    def open(self) -> BinaryIO:
        """Its bytes, unpacked."""
        return gzip.open(self.path) if self.packed else self.path.open("rb")  # type: ignore[return-value] # reads alike


@dataclass(frozen=True)
class Source:
    """A table that was read: its file, the place of each row, and how to write a file like it."""

    path: Path
    table: Table
    """Where there are faults it may have names twice, and NaN in the place of what is no number."""
    rows: Sequence[str] = field(repr=False)
    """The place of each row, such as "line 7"."""
    write: Writer = field(repr=False)
    stored: np.dtype[Any]
    """The float type of a result in a file like it."""
    heading: tuple[str, ...] | None = field(default=None, repr=False)
    """The labels of its columns, if it has any."""
    kept: tuple[str, ...] = ()
    """Columns that are no part of the embedding, and come back as they are."""
    assumed: tuple[str, ...] = ()
    """What the file itself does not say for certain."""
    faults: tuple[str, ...] = field(default=(), repr=False)
    """What is wrong with it: each a sentence with the file, and the line."""
    doubled: int = 0
    """Rows whose name another row has."""
    missing: int = 0
    """Numbers that are not there, or not finite."""
    beside: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files that belong to it, by name; a result has them too."""
    labels: tuple[str, ...] | None = field(default=None, repr=False)
    """The labels of the embedding's columns, if each has one."""

    def where(self, row: int) -> str:
        """A row, for people."""
        return f"{self.path}, {self.rows[row]}"


class Faults:
    """What is wrong with a file, in the order in which it was found; the first few of each kind, and how many more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, where: str, text: str) -> None:
        """A fault: `kind` is what many of them are called together."""
        said = self._found.setdefault(kind, [])
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if len(said) < MOST_OF_A_KIND:
            said.append(f"{self._path}, {where}: {text}")

    def count(self, kind: str) -> int:
        """How many there are of a kind."""
        return self._counts.get(kind, 0)

    def told(self) -> tuple[str, ...]:
        """All of them."""
        lines = []
        for kind, said in self._found.items():
            lines += said
            if more := self._counts[kind] - len(said):
                lines.append(f"{self._path}: {more:,} more {kind}")
        return tuple(lines)


MISSING: Final = "missing numbers"
DOUBLED: Final = "names that occur twice"


@dataclass(frozen=True)
class Read:
    """What a reader took out of a file, before it is checked."""

    file: File
    names: Sequence[Any]
    matrix: Floats
    rows: Sequence[str]
    write: Writer
    faults: Faults
    weights: Any = None
    stored: np.dtype[Any] | None = None
    heading: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    beside: Mapping[str, bytes] = field(default_factory=dict)
    holes: frozenset[int] = frozenset()
    """Rows in which NaN stands for what is no number, and of which that was said."""
    labels: tuple[str, ...] | None = None

    def checked(self, expected: str) -> Source:
        """Names are texts, each there once and not empty; numbers are finite; weights are whole."""
        path, faults, texts = self.file.shown, self.faults, [str(name) for name in self.names]
        if not texts and not faults.told():
            raise DataError(f"{path} holds no entities; {expected}")
        first: dict[str, int] = {}
        for row, name in enumerate(texts):
            if not name:
                faults.add("empty names", self.rows[row], "the name is empty")
            elif first.setdefault(name, row) != row:
                before = self.rows[first[name]]
                faults.add(DOUBLED, self.rows[row], f"the entity {name!r} is in {before} too; keep one")
        missing = faults.count(MISSING) + self._infinite(texts)
        weights = None
        try:
            table = Table.trusted(tuple(texts), self.matrix) if faults.told() else Table(texts, self.matrix)
            if self.weights is not None:
                weights = table.weighing(self.weights).weights
        except TableError as error:
            raise DataError(f"{path}: {error}") from None
        return Source(
            path, Table.trusted(table.names, table.matrix, weights), self.rows, self.write,
            self.matrix.dtype if self.stored is None else self.stored, self.heading, self.kept, self.assumed,
            faults.told(), faults.count(DOUBLED), missing, self.beside, self.labels,
        )  # fmt: skip

    def _infinite(self, texts: Sequence[str]) -> int:
        """How many numbers are not finite. Tables may be larger than memory."""
        start = count = 0
        for block in blocks(self.matrix):
            wrong = ~np.isfinite(block)
            if wrong.any():
                for row in np.flatnonzero(wrong.any(1)).tolist():
                    found = block[row][np.isinf(block[row]) if start + row in self.holes else wrong[row]]
                    if not found.size:
                        continue
                    count += found.size
                    self.faults.add(
                        "rows with numbers that are not finite", self.rows[start + row],
                        f"the embedding of {texts[start + row]!r} holds {found[0]}; every number must be finite",
                    )  # fmt: skip
            start += len(block)
        return count


class Places(Sequence[str]):
    """The places of rows: there may be millions of them."""

    def __init__(self, numbers: Sequence[int], word: str = "row") -> None:
        self._numbers, self._word = numbers, word

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, row: Any) -> Any:
        return f"{self._word} {self._numbers[row]}"


def column(wanted: str, labels: Sequence[str], path: Path, option: str) -> int:
    """Which column a user means: by its label, or by its number from 1 on."""
    if list(labels).count(wanted) > 1:
        raise DataError(f"{path} has several columns {wanted!r}; give {option} the number of the one that is meant")
    if wanted in labels:
        return list(labels).index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(labels):
        return int(wanted) - 1
    named = [label for label in labels if label]
    there = f"there are {', '.join(named)}" if named else f"it has {len(labels)} columns without names"
    raise DataError(f"{path} has no column {wanted!r} for {option}; {there}")


def weight_column(wanted: str | None, labels: Sequence[str], path: Path) -> int | None:
    """Which column has the weights."""
    if wanted is None:
        return None
    if wanted not in labels:
        there = f"there are {', '.join(labels)}" if labels else "it has no names of columns"
        raise DataError(f"{path} has no column {wanted!r} for weights; {there}; or give them in files")
    return list(labels).index(wanted)


def not_for(layout: Layout, path: Path, kind: str) -> None:
    """Refuse to choose columns where there are none."""
    if layout.chooses:
        option = "--columns" if layout.name_column is None else "--name-column"
        raise DataError(f"{path}: {kind} has no columns to choose from; {option} is for .csv, .tsv and .parquet")
