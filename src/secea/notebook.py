"""Small tables by which objects introduce themselves: as text, and as HTML for notebooks, whatever their colours."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

Cell = object
CELL: Final = "padding:.15em .8em;text-align:{};border:0;border-top:1px solid rgba(128,128,128,.35)"
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that no page shows, or that turn the text around them: names of clients may hold anything."""


def html_table(title: str, header: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    """A table with its title. The colours are the notebook's; numbers are on the right."""
    lines = [[_text(cell) for cell in row] for row in rows]
    right = [bool(lines) and all(map(_is_number, column)) for column in zip(*lines, strict=True)]
    aligned = [CELL.format("right" if each else "left") for each in right or [False] * len(header)]
    head = "".join(
        f'<th style="{style};border-top:0">{_escaped(cell)}</th>' for cell, style in zip(header, aligned, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{style}">{_escaped(c)}</td>' for c, style in zip(row, aligned, strict=True))
        + "</tr>"
        for row in lines
    )
    shown = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    return (
        f'<table style="border-collapse:collapse;background:none"><caption style="text-align:left;color:inherit;'
        f'font-weight:bold;padding:.2em .8em">{_escaped(title)}</caption>{shown}<tbody>{body}</tbody></table>'
    )


def text_table(title: str, header: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    """The same for a terminal."""
    lines = [[_shown(_text(cell)) for cell in row] for row in (header, *rows)]
    right = [all(map(_is_number, column[1:])) for column in zip(*lines, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([title, *aligned])


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


def _text(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit()


def _shown(text: str) -> str:
    return CONTROL.sub("\ufffd", text)


def _escaped(cell: Cell) -> str:
    return html.escape(_shown(_text(cell)).encode(errors="replace").decode())
