"""`secea check site.toml`: whether a site is ready for a run, a line for each thing that was looked at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from secea.commands import shell
from secea.commands.view import plain

if TYPE_CHECKING:
    from rich.console import Console

    from secea.engines.health import Finding

STYLES: Final = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


def condition(where: Path, kit: Path | None, *, as_json: bool) -> None:
    """Look, and say what there is. The exit code is 0 only if nothing is wrong."""
    from secea.engines.health import Level, examine

    with shell.working("looking"):
        found = list(examine(where, kit))
    bad = sum(each.level is Level.WRONG for each in found)
    if as_json:
        shell.echo_json({"ready": not bad, "findings": [asdict(each) for each in found]})
    else:
        _show(found, bad, shell.console())
    if bad:
        sys.exit(shell.UNUSABLE)


def _show(found: Sequence[Finding], bad: int, console: Console) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    warned = sum(each.level == "warning" for each in found)
    doubts = f"; {warned} {'warning' if warned == 1 else 'warnings'}" if warned else ""
    if bad:
        reasons = f"{bad} {'thing is' if bad == 1 else 'things are'} wrong"
        console.print(f"not ready: {reasons}{doubts}", style="bold red", soft_wrap=True)
    else:
        console.print(f"ready: nothing is wrong{doubts}", style="bold", soft_wrap=True)
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for each in found:
        says = Text(plain(each.says))
        if each.do:
            says.append(f"\n-> {plain(each.do)}", style="bold")
        grid.add_row(Text(each.level, style=STYLES[each.level]), each.about, says)
    console.print(grid)
