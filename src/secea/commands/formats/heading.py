"""What the first lines of a text file are: comments, a heading, or rows; which columns hold names, and which numbers.

The rule is written down in docs/cli.md, "Headings and columns".
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

KNOWN: Final = frozenset(
    (
        "name",
        "names",
        "entity",
        "entities",
        "id",
        "ids",
        "key",
        "index",
        "label",
        "word",
        "token",
        "node",
        "item",
        "user",
    )
)
"""What the column of names is often called."""
MISSING: Final = frozenset(("", "na", "n/a", "#n/a", "<na>", "null", "none", "-", "?"))
"""How a missing number is written; `nan` is a number that is not finite."""
SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}
UNNAMED: Final = re.compile("|Unnamed: 0", re.ASCII)
"""What pandas makes of an index without a name, when it writes and when it reads."""
ENOUGH_LABELS: Final = 3
"""So many labels that count columns are no row by accident."""
THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
"""A number with a comma before each three digits."""
A_ROW: Final = "the first line was read as a row; --header, if it is a heading"
A_HEADING: Final = "the first line was read as a heading, since it {}; --no-header, if it is a row"
LOOKED_AT: Final = 20
"""Rows that are looked at to tell a heading."""


class First(NamedTuple):
    """What the first line is."""

    heading: bool
    assumed: str = ""
    """A sentence, if that is not certain."""


def is_number(text: str) -> bool:
    """Whether it is read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def is_missing(text: str) -> bool:
    """Whether it stands for a number that is not there."""
    return text.strip().lower() in MISSING


def has_comma(text: str) -> bool:
    """Whether it would be a number with a decimal point."""
    return text.count(",") == 1 and is_number(text.replace(",", "."))


def almost(text: str) -> str:
    """What is wrong with a text that is no number, and nearly one; empty if it is not even that."""
    text = text.strip()
    if THOUSANDS.fullmatch(text) and not has_comma(text):
        return f"has commas between thousands; write {text.replace(',', '')} for it"
    if has_comma(text):
        point = text.replace(",", ".")
        return f"has a decimal comma; write {point} for it (pandas reads such a file with read_csv(..., decimal=','))"
    if text.startswith(("[", "(")) and text.endswith(("]", ")")):
        return "is a list in one field; give each of its numbers a column"
    return ""


def separator(lines: Sequence[str], expected: str) -> str:
    """Which character separates the fields: the expected one, unless another makes more numbers of the last line.

    Where both make as many, as in `a;0,5`, the comma is one of numbers.
    """

    def fit(between: str) -> tuple[bool, float, bool]:
        try:
            parts = list(csv.reader(lines, delimiter=between))
        except csv.Error:  # the reader of all lines says where
            return False, 0.0, between == expected
        numbers = [is_number(text) or has_comma(text) for text in parts[-1][1:]]
        share = sum(numbers) / len(numbers) if numbers else 0.0
        return min(map(len, parts)) > 1, share, (between == expected) != bool(share)

    return max(SEPARATORS, key=fit) if lines else expected


def comments(lines: Sequence[Sequence[str]]) -> int:
    """How many lines at the beginning are comments: they begin with #, and have other fields than the line below.

    Also a first line that names the separator for Excel, `sep=;`.
    """
    count = int(len(lines) > 1 and lines[0] == ["sep=", ""])
    while len(lines) > count + 1 and lines[count][0].startswith("#"):
        if len(lines[count]) == len(lines[count + 1]) > 1:
            break
        count += 1
    return count


def first_line(first: Sequence[str], below: Sequence[Sequence[str]]) -> First:
    """Whether the first line is a heading."""
    name, labels = first[0].strip().lstrip("#").strip().lower(), first[1:]
    if all(map(is_missing, labels)) or any(map(has_comma, labels)):  # a number is missing, or has a decimal comma
        return First(heading=False)
    numbers = [text for text in labels if is_number(text)]
    if not numbers:
        return First(heading=True)
    cells = [text for line in below[:LOOKED_AT] for text in line[1:] if is_number(text)]
    if below and name in KNOWN and len(numbers) > 1 and _whole(numbers) and not counts(numbers):
        return First(heading=True, assumed=A_HEADING.format("begins with a word for names"))
    if not below or not counts(numbers):
        return First(heading=False, assumed=A_ROW if _years(numbers, cells) else "")
    if name in KNOWN or UNNAMED.fullmatch(first[0].strip()):
        return First(heading=True)
    if len(numbers) == 1:
        return First(heading=False)
    if len(numbers) >= ENOUGH_LABELS or all(set(".eE") & set(text) for text in cells):
        return First(heading=True, assumed=A_HEADING.format("counts the columns"))
    return First(heading=False, assumed=A_ROW)


def counts(numbers: Sequence[str]) -> bool:
    """Whether they are consecutive whole numbers from 0 or 1 on, as tools number columns."""
    return any(list(numbers) == [str(i) for i in range(first, first + len(numbers))] for first in (0, 1))


def _whole(numbers: Sequence[str]) -> bool:
    """Whether they are whole numbers that go up, as labels of some columns out of many do."""
    values = [int(text) if text.strip().isdecimal() else -1 for text in numbers]
    return -1 not in values and all(a < b for a, b in pairwise(values))


def _years(numbers: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether they count up by one from somewhere else, as years do, above numbers that all have fractions."""
    whole = all(text.strip().isdecimal() for text in numbers) and all("." in text for text in cells)
    return whole and len(numbers) > 1 and all(int(b) - int(a) == 1 for a, b in pairwise(numbers))


class Names(NamedTuple):
    """The column of names."""

    place: int
    counted: bool = False
    """Whether the first column only counts rows."""
    assumed: str = ""
    wrong: str = ""
    """Why there are no names, where there are none."""


def name_of(columns: Sequence[Sequence[str]], heading: Sequence[str] | None) -> Names:
    """The column of names: the first, unless it only counts rows, or holds fractions, and another has texts."""
    first = columns[0]
    if not first or not all(map(is_number, first)):
        return Names(0)
    unnamed = heading is not None and bool(UNNAMED.fullmatch(heading[0].strip()))
    counted = unnamed and list(map(str.strip, first)) == [str(i) for i in range(len(first))]
    fractions = any(math.isfinite(float(text)) and not float(text).is_integer() for text in first)
    texts = [c for c in range(1, len(columns)) if _has_texts(columns[c])]
    known = [c for c in texts if heading is not None and heading[c].strip().lower() in KNOWN]
    chosen = (known or texts or [0])[0]
    if not (counted or fractions):
        said = f"names were taken from the first column, which holds numbers; --name-column {chosen + 1} takes texts"
        return Names(0, assumed=said if texts else "")
    if not texts and len(columns) > 2:
        what = "only counts rows, which says where one is and not what it is" if counted else "holds fractions"
        return Names(0, wrong=f"there are no names: the first column {what}, and no other one holds texts")
    if not texts:
        return Names(0)
    why = "counts rows" if counted else "holds fractions"
    said = f"names were taken from the column {label(chosen, heading)}, since the first one {why}"
    return Names(chosen, counted, f"{said}; --name-column chooses another")


def _has_texts(column: Sequence[str]) -> bool:
    return not any(map(is_number, column)) and any(map(str.strip, column))


def label(place: int, heading: Sequence[str] | None) -> str:
    """A column, for people."""
    return repr(heading[place]) if heading is not None and heading[place] else str(place + 1)
