"""A run as tables: in the terminal, in a page of the documentation, and against the last accepted one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.figures import Figure, Grid, Run, Section, digits
from secea.errors import DataError

BLOCK: Final = re.compile(r"(<!-- bench: ([^>]+?) -->\n).*?(<!-- /bench -->)", re.DOTALL)
"""A part of a page that is made from a run: `machine`, a section, or section/grid."""
SPREAD: Final = 1.1
"""A ratio beyond this, up or down, stands out."""


def print_section(console: Console, name: str, section: Section) -> None:
    """All grids of a section."""
    console.rule(f"[bold]{name}[/]: {section.about}", align="left")
    for grid in section.grids.values():
        console.print(f"[italic]{grid.title}[/]")  # as a title of the table it would be broken to its width
        table = Table("", box=None, pad_edge=False)
        for column in grid.columns:
            table.add_column(column, justify="right", overflow="fold")
        for row, cells in grid.rows.items():
            table.add_row(row, *(str(cells.get(column, "")) for column in grid.columns))
        console.print(table)
        console.print()
    for note in section.notes:
        console.print(note, style="yellow", markup=False)


def describe(machine: dict[str, str]) -> str:
    """The machine in a sentence."""
    known = [f"{name} {value}" for name, value in machine.items() if name not in ("processor", "cores", "memory")]
    return f"{machine['cores']} cores of {machine['processor']}, {machine['memory']}; {', '.join(known)}"


# -------------------------------------------------------------------------------------------------------------- pages


def fill(page: str, run: Run) -> str:
    """The page with every marked block made anew; what the run did not measure stays as it was."""
    return BLOCK.sub(lambda match: match[1] + (_block(match[2], run) or _inner(match)) + match[3], page)


def _inner(match: re.Match[str]) -> str:
    return match[0][len(match[1]) : -len(match[3])]


def _block(name: str, run: Run) -> str:
    if name == "machine":
        return describe(run.machine) + ".\n"
    section, _, grid = name.partition("/")
    if section not in run.sections:
        return ""
    grids = run.sections[section].grids
    if grid and grid not in grids:
        raise DataError(f"the page has a block `{name}`; the section {section} has {', '.join(grids)}")
    chosen = [grids[grid]] if grid else list(grids.values())
    return "\n".join(f"{each.title}\n\n{markdown(each)}" if not grid else markdown(each) for each in chosen)


def markdown(grid: Grid) -> str:
    """The grid as a table of Markdown."""
    lines = [["", *grid.columns], ["---", *("---:" for _ in grid.columns)]]
    lines += [[row, *(str(cells.get(column, "")) for column in grid.columns)] for row, cells in grid.rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --------------------------------------------------------------------------------------------------------- comparison


def compared(new: Run, old: Run) -> Iterable[tuple[str, Figure, Figure, float]]:
    """For every figure of both runs its name, the accepted one, the new one, and new / accepted."""
    before = old.figures()
    for name, figure in new.figures().items():
        if (accepted := before.get(name)) and accepted.median > 0 and accepted.unit == figure.unit:
            yield " / ".join(name), accepted, figure, figure.median / accepted.median


def print_comparison(console: Console, new: Run, old: Run) -> None:
    """The ratios; those that stand out from the spread of both runs are bold."""
    if new.quick != old.quick:
        console.print("[yellow]one of the runs was quick, the other was not: sizes differ[/]")
    table = Table("figure", box=None, pad_edge=False)
    for column in ("accepted", "new", "new / accepted"):
        table.add_column(column, justify="right")
    for name, accepted, figure, ratio in compared(new, old):
        apart = figure.low > accepted.high or figure.high < accepted.low
        style = "bold" if apart and not 1 / SPREAD < ratio < SPREAD else ""
        table.add_row(name, str(accepted), str(figure), digits(ratio), style=style)
    console.print(table)
