"""What `secea audit` shows: claims with what was found, as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid
from rich.text import Text

from secea.audit import FORMS, KEYED, PAILLIER, Claim, Finding, Mutant, Subject, examine
from secea.audit.registry import all_mutants, caught_by, gathered, product

TITLES: Mapping[str, str] = {KEYED: 'Form "keyed", the default', PAILLIER: 'Form "paillier", the paper\'s'}


def chosen(names: Sequence[str], mutant: str | None) -> tuple[list[Claim], Mutant | None]:
    """The claims of these names (all of them where none is named) and the mutant; a `KeyError` says what there is."""
    claims, mutants = gathered(), all_mutants()
    for name in names:
        if name not in claims:
            raise KeyError(f"there is no claim {name!r}; the claims are {', '.join(claims)}")
    if mutant is not None and mutant not in mutants:
        raise KeyError(f"there is no mutant {mutant!r}; the mutants are {', '.join(mutants)}")
    return [claims[name] for name in names or claims], None if mutant is None else mutants[mutant]


def run(
    claims: Sequence[Claim], mutant: Mutant | None, *, forms: Sequence[str], thorough: bool, as_json: bool
) -> tuple[bool, list[Finding]]:
    """Check the claims, show what was found, and say whether nothing speaks against them.

    On a mutant only an objection does. On the product, a federation that stops early does too.
    """
    known = product() if mutant is None else mutant.subjects
    subjects = {form: replace(known[form], thorough=thorough) for form in FORMS if form in forms and form in known}
    findings = _findings(claims, subjects)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings, mutant)
    fine = not any(finding.objection or (finding.broke_off and mutant is None) for finding in findings)
    return fine, findings


def unasked(findings: Sequence[Finding]) -> int:
    """How many claims, each with its form, these findings say nothing about."""
    asked = {(finding.name, finding.form) for finding in findings}
    return sum((claim.name, form) not in asked for claim in gathered().values() for form in claim.forms)


def _findings(claims: Sequence[Claim], subjects: Mapping[str, Subject]) -> list[Finding]:
    """With a bar on a terminal, and quietly elsewhere; all that concerns one form comes together."""
    console = Console(stderr=True, markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    work = [(claim, form) for form in subjects for claim in claims if form in claim.forms]
    found: list[Finding] = []
    with Progress(*columns, console=console, transient=True, disable=not console.file.isatty()) as progress:
        task = progress.add_task("audit", total=len(work))
        for claim, form in work:
            progress.update(task, description=claim.name)
            found += examine([claim], {form: subjects[form]})
            progress.advance(task)
    return found


def _console() -> Console:
    """As wide as the terminal; wide enough for whole sentences elsewhere."""
    return Console(width=None if sys.stdout.isatty() else 170, highlight=False, markup=False)


def _grid(*columns: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(column, justify="right" if column == "cases" else "left", overflow="fold")
    return grid


def _sentence(claim: str) -> str:
    """The claim under the title of a form: without naming it again."""
    said = claim.partition(": ")[2]
    return said[:1].upper() + said[1:]


def _result(finding: Finding, mutant: Mutant | None) -> Text:
    if finding.ok:
        return Text("holds", "green")
    if finding.broke_off:
        return Text("not checked", "yellow")
    return Text("objection" if mutant else "does not hold", "red")


def _show(findings: Sequence[Finding], mutant: Mutant | None) -> None:
    console = _console()
    if mutant is not None:
        console.print(f"Mutant {mutant.name}: {mutant.missing}\n", style="bold")
    for form in dict.fromkeys(finding.form for finding in findings):
        console.print(TITLES[form], style="bold")
        grid = _grid("claim", "what is claimed", "checked by", "cases", "result")
        for each in findings:
            if each.form == form:
                cases = f"{each.cases:,}" if each.ok else "-"
                grid.add_row(each.name, _sentence(each.claim), each.method, cases, _result(each, mutant))
        console.print(grid)
        console.print()
        for each in findings:
            if each.form == form and each.table:
                _show_table(console, each.title, each.table)
    for each in findings:
        if not each.ok:
            said = each.objection or f"stopped early, before anything was found: {each.broke_off}"
            console.print(f"{each.name} ({each.form}): {said}", style="yellow" if each.broke_off else "red")
    console.print(_summary(findings, mutant))


def _show_table(console: Console, title: str, rows: Sequence[Mapping[str, str | int]]) -> None:
    """What was tried, and what came of it."""
    console.print(title, style="bold")
    grid = _grid(*rows[0])
    for column, value in zip(grid.columns, rows[0].values(), strict=True):
        column.justify = "right" if isinstance(value, int) else "left"
    for row in rows:
        cells = [f"{value:,}" if isinstance(value, int) else value for value in row.values()]
        grid.add_row(*(Text(cell, "yellow" if cell == "yes" else "") for cell in cells))
    console.print(grid)
    console.print()


def _summary(findings: Sequence[Finding], mutant: Mutant | None) -> str:
    objections = sum(bool(each.objection) for each in findings)
    broken = sum(bool(each.broke_off) for each in findings)
    unchecked = f" {broken} of {len(findings)} could not be checked: the federation stopped early." if broken else ""
    if mutant is None:
        if objections:
            return f"{objections} of {len(findings)} claims do not hold.{unchecked}"
        cases = sum(each.cases for each in findings)
        return unchecked.strip() or f"All {len(findings)} claims hold; {cases:,} cases were tried."
    if objections:
        return f"The audit objects to this mutant: {objections} of {len(findings)} claims do not hold.{unchecked}"
    return f"The audit does not object to this mutant: no claim that was checked speaks of what is missing.{unchecked}"


def show_list(*, forms: Sequence[str], as_json: bool) -> None:
    """All claims and all mutants of these forms."""
    claims = [claim for claim in gathered().values() if set(claim.forms) & set(forms)]
    mutants = [mutant for mutant in all_mutants().values() if set(mutant.subjects) & set(forms)]
    caught = caught_by()
    if as_json:
        known = {
            "claims": [{"name": c.name, "forms": c.forms, "claim": c.claim, "method": c.method} for c in claims],
            "mutants": [
                {"name": m.name, "forms": tuple(m.subjects), "missing": m.missing, "caught_by": caught[m.name]}
                for m in mutants
            ],
        }
        print(json.dumps(known, indent=2))
        return
    grid, broken = _grid("claim", "what is claimed", "checked by"), _grid("mutant", "what is missing", "objected to by")
    _fill(grid, ((claim.name, claim.claim, claim.method) for claim in claims))
    _fill(broken, ((mutant.name, mutant.missing, ", ".join(caught[mutant.name])) for mutant in mutants))
    console = _console()
    console.print(grid)
    console.print()
    console.print(broken)


def _fill(grid: Grid, rows: Iterable[tuple[str, ...]]) -> None:
    for row in rows:
        grid.add_row(*row)
