"""What the first lines of a text file are: comments, a heading, or rows; which columns hold names, and which numbers.

The rule is written down in docs/cli.md, "Headings and columns".
"""

from __future__ import annotations

import csv
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
MISSING: Final = frozenset(("", "na", "n/a", "null", "none", "-", "?"))
"""How a missing number is written; `nan` is a number that is not finite."""
SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}
UNNAMED: Final = re.compile("|Unnamed: 0", re.ASCII)
"""What pandas makes of an index without a name, when it writes and when it reads."""
ENOUGH_LABELS: Final = 3
"""So many labels that count columns are no row by accident."""
A_ROW: Final = "the first line was read as a row; --header, if it is a heading"
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


def separator(lines: Sequence[str], expected: str) -> str:
    """Which character separates the fields: the expected one, unless another makes more numbers of the last line.

    Where both make as many, as in `a;0,5`, the comma is one of numbers.
    """

    def fit(between: str) -> tuple[bool, float, bool]:
        parts = list(csv.reader(lines, delimiter=between))
        numbers = [is_number(text) or has_comma(text) for text in parts[-1][1:]]
        share = sum(numbers) / len(numbers) if numbers else 0.0
        return min(map(len, parts)) > 1, share, (between == expected) != bool(share)

    return max(SEPARATORS, key=fit) if lines else expected


def comments(lines: Sequence[Sequence[str]]) -> int:
    """How many lines at the beginning are comments: they begin with #, and have other fields than the line below."""
    count = 0
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
    if not below or not _count(numbers):
        return First(heading=False, assumed=A_ROW if _years(numbers, cells) else "")
    if name in KNOWN or UNNAMED.fullmatch(first[0].strip()):
        return First(heading=True)
    if len(numbers) == 1 or numbers[0] != "0":
        return First(heading=False)
    if len(numbers) >= ENOUGH_LABELS or all(set(".eE") & set(text) for text in cells):
        return First(
            heading=True,
            assumed="the first line was read as a heading, since its numbers count the columns; --no-header, if it is a"
            " row",
        )
    return First(heading=False, assumed=A_ROW)


def _count(numbers: Sequence[str]) -> bool:
    """Whether they are consecutive whole numbers from 0 or 1 on, as tools number columns."""
    return any(list(numbers) == [str(i) for i in range(first, first + len(numbers))] for first in (0, 1))


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


def name_of(columns: Sequence[Sequence[str]], heading: Sequence[str] | None) -> Names:
    """The column of names: the first, unless it only counts rows, or holds fractions, and another has texts."""
    first = columns[0]
    if not first or not all(map(is_number, first)):
        return Names(0)
    unnamed = heading is not None and bool(UNNAMED.fullmatch(heading[0].strip()))
    counts = unnamed and list(map(str.strip, first)) == [str(i) for i in range(len(first))]
    fractions = any(not float(text).is_integer() for text in first)
    texts = [c for c in range(1, len(columns)) if not any(map(is_number, columns[c]))]
    if not texts or not (counts or fractions):
        return Names(0)
    known = [c for c in texts if heading is not None and heading[c].strip().lower() in KNOWN]
    chosen = (known or texts)[0]
    why = f"the first one {'counts rows' if counts else 'holds fractions'}"
    said = f"names were taken from the column {label(chosen, heading)}, since {why}; --name-column chooses another"
    return Names(chosen, counts, said)


def label(place: int, heading: Sequence[str] | None) -> str:
    """A column, for people."""
    return repr(heading[place]) if heading is not None and heading[place] else str(place + 1)
