"""Tables in text: .csv and .tsv with their columns, and word2vec's format (.vec, .txt)."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from secea.arithmetic.fixedpoint import Floats
from secea.commands.formats import heading as rule
from secea.commands.formats.source import MISSING, Faults, File, Layout, Places, Read, column, not_for, weight_column
from secea.errors import DataError

SAMPLE_LINES: Final = 3
"""Lines that are looked at to find what separates fields."""
LOOKED_AT: Final = 1000
"""Lines that are looked at to find which column is what."""


class Line(NamedTuple):
    """The fields of a line."""

    number: int
    fields: list[str]


def _lines(file: File) -> Iterator[str]:
    """Decoded line by line, so that what is no text has a line number."""
    with file.open() as data:
        for number, line in enumerate(data, 1):
            if b"\0" in line and not line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                fault = "a byte is 0, as in UTF-16 and in files that are no text"
                raise DataError(f"{file.shown}, line {number}: {fault}; save the file as text in UTF-8")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                fault = f"the byte 0x{line[error.start]:02x} is no UTF-8 text"
                raise DataError(f"{file.shown}, line {number}: {fault}; save the file as UTF-8") from None


def _separated(file: File, delimiter: str) -> Iterator[Line]:
    reader = csv.reader(_lines(file), delimiter=delimiter)
    try:
        for fields in reader:
            if any(fields):
                yield Line(reader.line_num, fields)
    except csv.Error as error:
        fault = str(error)
        if "new-line" in fault:
            fault = "lines end with \\r alone; save the file with the ends of lines of Windows or Unix"
        elif "field limit" in fault:
            fault = "a field goes on for more than 131,072 characters; is a quotation mark not closed?"
        raise DataError(f"{file.shown}, line {reader.line_num}: {fault}") from None


def _style(file: File) -> tuple[bytes, str]:
    """The byte order mark and the ends of lines."""
    with file.open() as data:
        first = data.readline()
    return codecs.BOM_UTF8 * first.startswith(codecs.BOM_UTF8), "\r\n" if first.endswith(b"\r\n") else "\n"


def _packed(file: File, text: bytes) -> bytes:
    return gzip.compress(text, mtime=0) if file.packed else text


class Roles(NamedTuple):
    """Which column is what."""

    name: int
    embedding: tuple[int, ...]
    texts: tuple[int, ...]
    """Those that are no part of it, since they hold no numbers."""
    assumed: tuple[str, ...]


class _Numbers:
    """Rows of numbers that are read one after the other, and what was none."""

    def __init__(self, faults: Faults, labels: Sequence[str] = ()) -> None:
        """`labels`: what their columns are called, if there are columns to choose from."""
        self.values, self.faults, self.labels = array("d"), faults, labels
        self.holes: set[int] = set()
        self._rows = 0

    def add(self, fields: Sequence[str], where: str) -> None:
        """A row. What is no number is a fault, and NaN."""
        try:
            values = list(map(float, fields))
        except ValueError:
            values = [self._one(c, text, where) for c, text in enumerate(fields)]
        else:
            if "_" in "".join(fields):
                values = [self._one(c, text, where) for c, text in enumerate(fields)]
        self.values.extend(values)
        self._rows += 1

    def _one(self, place: int, text: str, where: str) -> float:
        if rule.is_number(text):
            return float(text)
        self.holes.add(self._rows)
        if rule.is_missing(text):
            self.faults.add(MISSING, where, f"a number is missing{f': {text!r}' if text.strip() else ''}")
        elif rule.has_comma(text):
            self.faults.add("decimal commas", where, f"{text!r} {rule.almost(text)}")
        else:
            what = rule.almost(text) or "is not a number"
            if self.labels and text.isalpha():
                what += f"; --columns can leave the column {self.labels[place]} out"
            self.faults.add("fields that are not numbers", where, f"{text!r} {what}")
        return math.nan

    def matrix(self, rows: int, dim: int) -> Floats:
        """All of them."""
        return np.frombuffer(self.values, np.float64).reshape(rows, dim) if rows else np.zeros((0, dim))


def read_separated(file: File, layout: Layout) -> Read:
    """A .csv or .tsv: names in one column, numbers in others, and what else comes back as it is."""
    expected = "\t" if file.kind == ".tsv" else ","
    sample = [line for line in itertools.islice(_lines(file), 10 * SAMPLE_LINES) if line.strip() and line[0] != "#"]
    delimiter = rule.separator(sample[:SAMPLE_LINES], expected)
    assumed = [] if delimiter == expected else [f"fields are separated by {rule.SEPARATORS[delimiter]}"]
    stream = _separated(file, delimiter)
    lines = list(itertools.islice(stream, LOOKED_AT))
    above = [lines.pop(0).fields for _ in range(rule.comments([line.fields for line in lines]))]
    heading = None
    if lines and layout.header is not False:
        first = rule.first_line(lines[0].fields, [line.fields for line in lines[1 : 1 + rule.LOOKED_AT]])
        if layout.header is None and first.assumed:
            assumed.append(first.assumed)
        if layout.header or first.heading:
            heading = lines.pop(0).fields
    faults = Faults(file.shown)
    if heading is None and not lines:
        return Read(file, [], np.zeros((0, 1)), [], lambda _: b"", faults)
    width = len(heading or lines[0].fields)
    if heading and lines and {len(line.fields) for line in lines} == {width + 1}:
        raise DataError(
            f"{file.shown}: the heading has {width} labels, and each row {width + 1} fields, as R writes names of rows;"
            " put a label for the names in front of the heading"
        )
    roles = _roles(file, layout, heading, width, [line.fields for line in lines if len(line.fields) == width > 1])
    weights = weight_column(layout.weights, heading[1:] if heading else (), file.shown)
    weighing = None if weights is None else weights + 1
    embedding = tuple(c for c in roles.embedding if c != weighing)
    others = [c for c in range(width) if c not in set(embedding)]
    called = [rule.label(c, heading) for c in embedding] if heading and len(embedding) > 1 else []
    numbers, given, places = _Numbers(faults, called), array("d"), array("q")
    names: list[str] = []
    kept: list[list[str]] = []
    for line in itertools.chain(lines, stream):
        where = f"line {line.number}"
        if not len(line.fields) == width > 1:
            faults.add("lines of another length", where, _length(line.fields, width, rule.SEPARATORS[expected]))
            continue
        numbers.add([line.fields[c] for c in embedding], where)
        if weighing is not None:
            given.append(_weight(file, line, weighing))
        for c in roles.texts:
            if rule.is_number(line.fields[c]):
                faults.add(
                    "numbers in columns of texts", where, f"the column {rule.label(c, heading)} holds"
                    f" {line.fields[c]!r}, and no number in the first lines; --columns says what the embedding is",
                )  # fmt: skip
        places.append(line.number)
        names.append(line.fields[roles.name])
        kept.append([line.fields[c] for c in others] if len(others) > 1 else names[-1:])
    style = _style(file)

    def write(means: Floats) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, lineterminator=style[1])
        writer.writerows([*above, heading] if heading else above)
        fields = [""] * width
        for other, row in zip(kept, means.tolist(), strict=True):
            for c, field in zip(others, other, strict=True):
                fields[c] = field
            for c, value in zip(embedding, row, strict=True):
                fields[c] = repr(value)
            writer.writerow(fields)
        return _packed(file, style[0] + text.getvalue().encode())

    more = [c for c in others if c not in (roles.name, weighing)]
    return Read(
        file, names, numbers.matrix(len(names), len(embedding)), Places(places, "line"), write,
        faults, None if weighing is None else given, heading=tuple(heading) if heading else None,
        kept=tuple(heading[c] if heading else str(c + 1) for c in more), assumed=(*assumed, *roles.assumed),
        holes=frozenset(numbers.holes), labels=tuple(heading[c].strip() for c in embedding) if heading else None,
    )  # fmt: skip


def _length(fields: Sequence[str], width: int, between: str) -> str:
    """What is wrong with a line of too few fields, or too many."""
    if width == 1:
        blanks = "; where blanks are between them, let the file's name end in .txt" if " " in fields[0].strip() else ""
        return f"one field alone; a name and its numbers are expected, with {between} between{blanks}"
    quote = "; is a quotation mark not closed?" if any("\n" in text for text in fields) else ""
    return f"a name and {len(fields) - 1} numbers; {width - 1} were expected{quote}"


def _roles(
    file: File, layout: Layout, heading: Sequence[str] | None, width: int, rows: Sequence[Sequence[str]]
) -> Roles:
    """Which column has the names, and which are the embedding."""
    labels = heading or [""] * width
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    assumed = []
    if layout.name_column is not None:
        found = rule.Names(column(layout.name_column, labels, file.shown, "--name-column"))
    else:
        found = rule.name_of(columns, heading)
        if found.wrong:
            raise DataError(f"{file.shown}: {found.wrong}; --name-column 1, if these numbers are the names")
        assumed += [found.assumed] * bool(found.assumed)
    name = found.place
    if layout.columns:
        embedding = tuple(column(each, labels, file.shown, "--columns") for each in layout.columns)
        if name in embedding:
            raise DataError(f"{file.shown}: the column {rule.label(name, heading)} has the names, and no numbers")
        if len(set(embedding)) < len(embedding):
            raise DataError(f"{file.shown}: --columns names a column twice")
        return Roles(name, embedding, (), tuple(assumed))
    rest = [c for c in range(found.counted, width) if c != name]
    enough = len(rows) > 1 or heading is not None
    texts = [
        c for c in rest
        if enough and rows and not any(rule.is_number(text) or rule.almost(text) for text in columns[c])
        and labels[c] != layout.weights
    ]  # fmt: skip
    if len(texts) == len(rest):  # then it is no column of texts, but no table
        texts = []
    if texts:
        said = ", ".join(rule.label(c, heading) for c in texts)
        what = f"the columns {said} hold" if len(texts) > 1 else f"the column {said} holds"
        assumed.append(
            f"{what} no numbers: no part of the embedding, and left as {'they are' * (len(texts) > 1) or 'it is'}"
        )
    return Roles(name, tuple(c for c in rest if c not in texts), tuple(texts), tuple(assumed))


def _weight(file: File, line: Line, place: int) -> float:
    text = line.fields[place]
    if not rule.is_number(text):
        raise DataError(f"{file.shown}, line {line.number}: the weight {text!r} is not a number")
    return float(text)


def read_word2vec(file: File, layout: Layout) -> Read:
    """With a first line of count and length, or without, as GloVe writes it."""
    not_for(layout, file.shown, "word2vec's text")
    weight_column(layout.weights, (), file.shown)
    lines = [
        Line(number, fields)
        for number, line in enumerate(_lines(file), 1)
        if (fields := line.strip(" \r\n").split(" ")) != [""]
    ]
    counted = bool(lines) and len(lines[0].fields) == 2 and all(text.isdecimal() for text in lines[0].fields)
    faults, dim = Faults(file.shown), len(lines[0].fields) - 1 if lines else 0
    if counted:
        count, dim = map(int, lines.pop(0).fields)
        if count != len(lines):
            raise DataError(f"{file.shown}, line 1: it says {count} entities, and {len(lines)} follow")
    numbers, names, rows = _Numbers(faults), [], []
    for number, fields in lines:
        where = f"line {number}"
        if len(fields) != dim + 1 or not dim:
            faults.add("lines of another length", where, _length(fields, dim + 1, "one blank"))
            continue
        names.append(fields[0])
        numbers.add(fields[1:], where)
        rows.append(where)

    def write(means: Floats) -> bytes:
        first = f"{len(names)} {means.shape[1]}\n" if counted else ""
        text = (" ".join([name, *map(repr, row)]) for name, row in zip(names, means.tolist(), strict=True))
        return _packed(file, (first + "\n".join(text) + "\n").encode())

    return Read(
        file, names, numbers.matrix(len(names), dim or 1), rows, write, faults,
        heading=(str(len(names)), str(dim)) if counted else None, holes=frozenset(numbers.holes),
    )  # fmt: skip
