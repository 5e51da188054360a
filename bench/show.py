"""A run as tables: in the terminal, in a page of the documentation, and against the last accepted one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.aims import COLUMNS, judged, verdict
from bench.figures import Figure, Grid, Run, Section, digits
from secea.errors import DataError

BLOCK: Final = re.compile(r"(<!-- bench: ([^>]+?) -->\n).*?(<!-- /bench -->)", re.DOTALL)
"""A part of a page that is made from a run: `machine`, `verdict`, `aims`, a section, or section/grid."""
IDLE: Final = 1.0
"""The load up to which a machine is taken to have nothing else to do."""
SPREAD: Final = 1.1
"""A ratio beyond this, up or down, stands out."""


def print_report(console: Console, run: Run, *, whole: bool) -> None:
    """Of a whole run the verdict; the aims, as far as they were measured; then every section."""
    if whole:
        console.print("\n".join(verdict(run)) + "\n", markup=False, highlight=False, soft_wrap=True)
    if rows := judged(run, whole=whole):
        table = Table(*COLUMNS, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row.cells, style="bold" if row.met is False else "")
        console.print(table)
        console.print("[yellow]A quick run is about small sizes, the aims are not.[/]\n" if run.quick else "")
    console.print(describe(run.machine), soft_wrap=True)
    for name, section in run.sections.items():
        print_section(console, name, section)


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
    """The machine in a sentence, and a caution if it was busy when the run began."""
    known = [
        f"{name} {value}" for name, value in machine.items() if name not in ("processor", "cores", "memory", "load")
    ]
    busy = f"; BUSY WITH OTHER WORK (load {machine['load']}): its times on the wall say nothing"
    about = f"{machine['cores']} cores of {machine['processor']}, {machine['memory']}; {', '.join(known)}"
    return about + (busy if float(machine.get("load", 0)) > IDLE else "")


# -------------------------------------------------------------------------------------------------------------- pages


def fill(page: str, run: Run) -> str:
    """The page with every marked block made anew; what the run did not measure stays as it was."""
    return BLOCK.sub(lambda match: match[1] + (_block(match[2], run) or _inner(match)) + match[3], page)


def _inner(match: re.Match[str]) -> str:
    return match[0][len(match[1]) : -len(match[3])]


def _block(name: str, run: Run) -> str:
    if name == "machine":
        return describe(run.machine) + ".\n"
    if name == "verdict":
        return "".join(f"- {line}\n" for line in verdict(run))
    if name == "aims":
        return _table(COLUMNS, [row.cells for row in judged(run, whole=True)])
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
    rows = [[row, *(str(cells.get(column, "")) for column in grid.columns)] for row, cells in grid.rows.items()]
    return _table(["", *grid.columns], rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *("---:" for _ in columns[1:])], *rows]
    return "".join(f"| {' | '.join(line).replace('*', chr(92) + '*')} |\n" for line in lines)


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
