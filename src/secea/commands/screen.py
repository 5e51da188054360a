"""A run in a terminal: the same words as on the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from secea.report.live import Level, View

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable

STYLES: Final = {Level.FINE: "green", Level.PLAIN: "", Level.WARNING: "yellow", Level.BAD: "bold red"}
MARKS: Final = {Level.FINE: " ", Level.PLAIN: " ", Level.WARNING: "!", Level.BAD: "!"}
"""What stands before a line, so that it is told from others without colour."""
LEAST_CLIENTS: Final = 3
NARROW: Final = 100


def screen(view: View, console: Console, *, most: int | None = None) -> ConsoleRenderable:
    """All of a view; of the clients as many as fit into `most` lines, the most urgent ones."""
    from rich.console import Group
    from rich.text import Text

    head = Text.assemble((view.word, STYLES[view.level] or "bold"), ": ", view.sentence)
    lines: list[ConsoleRenderable] = [Text(f"{view.subject}  {view.at}", style="dim"), head]
    if view.stage:
        lines.append(Text(view.stage))
    lines += _facts(view, console.width)
    lines += [Text(f"{MARKS[note.level]} {note.text}", style=STYLES[note.level]) for note in view.notes]
    if view.clients:
        used = sum(len(console.render_lines(line, pad=False)) for line in lines)
        room = len(view.clients) if most is None else max(LEAST_CLIENTS, most - used - 3)
        lines += [Text(), *_clients(view, room)]
    return Group(*lines)


def _facts(view: View, width: int) -> Iterator[ConsoleRenderable]:
    """Short values, beside a bar for the rounds."""
    from rich.table import Table as Grid
    from rich.text import Text

    if view.asked:
        wide = min(width, 60)
        full = min(wide, wide * view.done // view.asked)
        yield Text(f"{'#' * full}{'.' * (wide - full)}")
    columns = 1 if width < NARROW else 2
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    cells = [(Text(value), Text(about, style="dim")) for about, value in view.facts]
    for i in range(0, len(cells), columns):
        grid.add_row(*(part for cell in cells[i : i + columns] for part in cell))
    if cells:
        yield grid


def _clients(view: View, room: int) -> Iterator[ConsoleRenderable]:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("client", "does", "since", "rounds", ""):
        grid.add_column(column, justify="right" if column == "rounds" else "left", overflow="fold")
    for each in view.clients[:room]:
        style = STYLES[each.level]
        grid.add_row(Text(each.name), Text(each.does, style=style), each.since, each.rounds, Text(each.remark))
    yield grid
    if len(view.clients) > room:
        yield Text(f"and {len(view.clients) - room} more", style="dim")


def line(level: Level, text: str) -> str:
    """One line where output is no terminal."""
    return f"{MARKS[level]} {text}"


def lines(view: View) -> Iterator[str]:
    """A view where output is no terminal, a line for each thing."""
    yield f"{view.subject}  {view.at}"
    yield f"{view.word}: {view.sentence}"
    if view.stage:
        yield view.stage
    yield from (line(note.level, note.text) for note in view.notes)
