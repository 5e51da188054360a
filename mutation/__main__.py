"""`python -m mutation`: the options."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mutation.mutants import Module, Mutant
from mutation.project import Project
from mutation.record import ALIVE, Record, scores, survivors

ROOT: Final = Path(__file__).parent.parent
NOT_RUN: Final = ("test_mutation.py", "test_docs.py")
"""These start processes, and no mutant is in there."""
HOME: Final = {
    "steps/masks.py": "masks keyed_vectors keyed_openings",
    "steps/means.py": "means means_options",
    "steps/oprf.py": "oprf large_tables conduct",
    "steps/union.py": "union keyed_vectors",
    "wire/keys.py": "keys link conduct",
    "wire/randomness.py": "randomness",
    "forms/costs.py": "plan keyed_federation engine_costs conduct",
    "forms/__init__.py": "forms",
    "forms/tables.py": "names keyed_client",
    "forms/keyed/client.py": "keyed_client keyed_vectors keyed_federation keyed_lies keyed_losses conduct",
    "forms/keyed/disclosure.py": "plan",
    "forms/keyed/form.py": "keyed_form keyed_client keyed_vectors params plan keyed_losses keyed_openings conduct",
    "forms/keyed/handover.py": "keyed_vectors keyed_regroup conduct",
    "forms/keyed/masking.py": "keyed_vectors keyed_openings keyed_losses conduct",
    "forms/keyed/names.py": "keyed_names keyed_vectors keyed_dealers keyed_regroup keyed_lives conduct",
    "forms/keyed/numbers.py": "keyed_numbers keyed_vectors specification conduct",
    "forms/keyed/opening.py": "keyed_vectors keyed_openings keyed_losses conduct",
    "forms/keyed/planning.py": "plan",
    "forms/keyed/server.py": "keyed_server keyed_vectors keyed_federation keyed_losses keyed_ready conduct",
    "forms/keyed/shared.py": "keyed_shared keyed_streams_once keyed_vectors keyed_views conduct",
    "forms/keyed/tables.py": "accuracy keyed_tables keyed_vectors keyed_numbers keyed_federation conduct",
    "forms/keyed/values.py": "forms large_tables",
    "forms/paillier/buckets.py": "buckets vectors conduct",
    "forms/paillier/client.py": "paillier_parts vectors paillier_lies refused paillier_federation retrievals conduct",
    "forms/paillier/correction.py": "correction vectors paillier_lies conduct",
    "forms/paillier/disclosure.py": "plan",
    "forms/paillier/form.py": "vectors plan params paillier_federation refused conduct",
    "forms/paillier/numbers.py": "vectors plan conduct",
    "forms/paillier/planning.py": "plan",
    "forms/paillier/retrieval.py": "vectors retrievals paillier_lies paillier_federation conduct",
    "forms/paillier/server.py": "paillier_parts vectors paillier_lies refused paillier_federation retrievals conduct",
    "forms/paillier/sharing.py": "sharing vectors conduct",
}
"""The tests that are about a file."""
SECEA: Final = Project(
    root=ROOT,
    source="src/secea",
    targets=("steps", "wire/keys.py", "wire/randomness.py", "forms/keyed", "forms/paillier", "forms"),
    tests=[
        *(f"tests/{path.name}" for path in sorted((ROOT / "tests").glob("test_*.py")) if path.name not in NOT_RUN),
        "tests/cli/test_policy.py",
    ],
    home={f"src/secea/{file}": [f"tests/test_{name}.py" for name in tests.split()] for file, tests in HOME.items()},
    listed="mutation/harmless.toml",
    cover=".mutation/cover.json",
    left_out=("chores.py",),
    prose=("disclosure.py", "planning.py"),
)
FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--only", multiple=True, metavar="PATH[:FUNCTION]", help="Mutants in this file, folder or function.")
@click.option("--list", "listing", is_flag=True, help="Print the mutants, and try none.")
@click.option("--json", "out", metavar="FILE", type=FILE, help="Write all outcomes to this file as they come.")
@click.option("--resume", metavar="FILE", type=FILE, help="Keep the outcomes in this file, and try what is missing.")
@click.option("--again", is_flag=True, help="With --resume: try survivors that are not listed once more.")
@click.option("--sample", nargs=2, type=int, metavar="N SEED", help="N mutants, drawn with this seed.")
@click.option("--jobs", default=1, show_default=True, help="Processes at a time.")
@click.option(
    "--home", is_flag=True, help="Run only the tests that are about a mutant's file: quick, for a first look."
)
@click.option("--budget", default=60.0, show_default=True, help="Seconds of tests for one mutant.")
def main(
    only: Sequence[str], listing: bool, out: Path | None, resume: Path | None, again: bool,
    sample: tuple[int, int] | None, jobs: int, home: bool, budget: float,
) -> None:  # fmt: skip
    """Change the source in one small place after another, and say which changes no test notices.

    \b
    Examples:
      python -m mutation --only steps/masks.py
      python -m mutation --only forms/keyed/client.py:KeyedClient.enter
      python -m mutation --sample 200 1 --json .mutation/sample.json
      python -m mutation --resume .mutation/all.json --again --budget 300
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that nothing goes on without us
    found = SECEA.modules(only)
    mutants = [mutant for each in found.values() for mutant in each.mutants]
    if not mutants:
        raise click.ClickException("there is no mutant in that place")
    if sample:
        chosen = set(random.Random(sample[1]).sample(range(len(mutants)), min(sample[0], len(mutants))))  # noqa: S311
        mutants = [each for number, each in enumerate(mutants) if number in chosen]
    if listing:
        for mutant in mutants:
            click.echo(f"{mutant.operator:12}{mutant}")
        return
    record = Record.read(resume) if resume and resume.exists() else Record({})
    listed = SECEA.harmless()
    once_more = {each.key for each in survivors(mutants, record, listed)} if again else set()
    due = [each for each in mutants if each.key not in record.outcomes or each.key in once_more]
    _try(SECEA.at_home(found) if home else SECEA, found, due, record, out or resume, jobs, budget)
    _show(Console(width=None if sys.stdout.isatty() else 160), mutants, record)


def _try(
    project: Project, found: dict[str, Module], due: Sequence[Mutant], record: Record, out: Path | None, jobs: int,
    budget: float,
) -> None:  # fmt: skip
    """Try these mutants, with a bar that shows how far it is; outcomes are written as they come."""
    every, terminal, written = project.modules(), Console(stderr=True), time.monotonic()
    known = [mutant for each in every.values() for mutant in each.mutants]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("collecting tests", total=None)

        def step(what: str, done: int, total: int) -> None:
            nonlocal written
            progress.update(task, description=what, completed=done, total=total)
            if out and time.monotonic() > written + 5:
                record.write(out, known)
                written = time.monotonic()

        try:
            project.judge(found, due, record, jobs=jobs, budget=budget, step=step)
        finally:
            if out:
                record.write(out, known)


def _show(console: Console, mutants: Sequence[Mutant], record: Record) -> None:
    """A row for each file, and the survivors."""
    listed = SECEA.harmless()
    table = Table("file", "mutants", "killed", "timed out", "harmless", "survivors", "score")
    for name, score in scores(mutants, record, listed).items():
        figures = (score.mutants, score.killed, score.timed_out, score.harmless, score.survivors)
        table.add_row(name.removeprefix(f"{SECEA.source}/"), *map(str, figures), f"{score.share:.1%}")
    console.print(table)
    for mutant in survivors(mutants, record, listed):
        verdict = record.outcomes[mutant.key].verdict
        assert verdict in ALIVE
        console.print(f"{verdict}: {mutant}", soft_wrap=True, markup=False, highlight=False)


if __name__ == "__main__":
    main(prog_name="python -m mutation")
