"""What `secea audit` shows: claims with what was found, as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from secea.audit import Claim, Finding, Mutant, examine
from secea.audit.registry import all_mutants, gathered


def chosen(names: Sequence[str], mutant: str | None) -> tuple[list[Claim], Mutant | None]:
    """The claims of these names (all of them where none is named) and the mutant; a `KeyError` says what there is."""
    claims, mutants = gathered(), all_mutants()
    for name in names:
        if name not in claims:
            raise KeyError(f"there is no claim {name!r}; the claims are {', '.join(claims)}")
    if mutant is not None and mutant not in mutants:
        raise KeyError(f"there is no mutant {mutant!r}; the mutants are {', '.join(mutants)}")
    return [claims[name] for name in names or claims], None if mutant is None else mutants[mutant]


def run(claims: Sequence[Claim], mutant: Mutant | None, *, as_json: bool) -> bool:
    """Check the claims, show what was found, and say whether all of them hold."""
    findings = _findings(claims, mutant)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings, mutant)
    return all(finding.ok for finding in findings)


def _findings(claims: Sequence[Claim], mutant: Mutant | None) -> list[Finding]:
    """With a bar on a terminal, and quietly elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: list[Finding] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("audit", total=len(claims))
        for claim in claims:
            progress.update(task, description=claim.name)
            found += examine([claim], mutant)
            progress.advance(task)
    return found


def _console() -> Console:
    """As wide as the terminal; wide enough for whole sentences elsewhere."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(width=160, highlight=False)


def _grid(*columns: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(column, justify="right" if column == "cases" else "left", overflow="fold")
    return grid


def _show(findings: Sequence[Finding], mutant: Mutant | None) -> None:
    console = _console()
    if mutant is not None:
        console.print(f"Mutant {mutant.name}: {mutant.missing}", markup=False, style="bold")
    grid = _grid("name", "claim", "method", "cases", "result")
    for finding in findings:
        result = "[green]holds[/]" if finding.ok else "[red]does not hold[/]"
        grid.add_row(finding.name, finding.claim, finding.method, str(finding.cases or "-"), result)
    console.print(grid)
    failed = [finding for finding in findings if not finding.ok]
    for finding in failed:
        console.print(f"{finding.name}: {finding.objection}", markup=False, style="red")
    cases = sum(finding.cases for finding in findings)
    console.print(
        f"{len(failed)} of {len(findings)} claims do not hold." if failed
        else f"All {len(findings)} claims hold; {cases:,} cases were tried."
    )  # fmt: skip
    if mutant is not None and not failed:
        console.print("The audit did not notice the mutant: none of these claims speaks of what is missing.")


def show_list(*, as_json: bool) -> None:
    """All claims and all mutants."""
    claims, mutants = gathered(), all_mutants()
    if as_json:
        known = {
            "claims": [{"name": c.name, "claim": c.claim, "method": c.method} for c in claims.values()],
            "mutants": [{"name": m.name, "missing": m.missing, "caught_by": m.caught_by} for m in mutants.values()],
        }
        print(json.dumps(known, indent=2))
        return
    console, grid, broken = (
        _console(),
        _grid("name", "claim", "method"),
        _grid("mutant", "what is missing", "caught by"),
    )
    for claim in claims.values():
        grid.add_row(claim.name, claim.claim, claim.method)
    for mutant in mutants.values():
        broken.add_row(mutant.name, mutant.missing, ", ".join(mutant.caught_by))
    console.print(grid)
    console.print()
    console.print(broken)
