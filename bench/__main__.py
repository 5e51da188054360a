"""`python -m bench`: the options, and where they go. Nothing heavy is imported before a section begins."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from secea.atomic import replace_files
from secea.errors import DataError, SecEAError

SECTIONS: Final = {
    "peers": "bench.peers",
    "names": "bench.names",
    "round": "bench.rounds",
    "clients": "bench.rounds",
    "growth": "bench.growth",
    "paper": "bench.paper",
    "kernels": "bench.kernels",
    "plan": "bench.plans",
    "learning": "bench.protection",
    "large": "bench.rounds",
    "engines": "bench.engines",
    "planned": "bench.plans",
}
"""Each section, and the module whose function of that name measures it."""
SHORT: Final = tuple(name for name in SECTIONS if name not in ("large", "engines", "planned"))
ACCEPTED: Final = "bench/accepted.json"
WIDTH: Final = 160
"""Of tables that go into a file."""
FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("sections", nargs=-1, type=click.Choice(list(SECTIONS)), metavar="[SECTION]...")
@click.option("--quick", is_flag=True, help="Small sizes: about a minute.")
@click.option(
    "--out", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Write bench.json and SVG."
)
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
@click.option(
    "--read", metavar="FILE", type=FILE, multiple=True,
    help="Measure nothing: take the run from this bench.json. Of several files, sections of later ones count.",
)  # fmt: skip
@click.option(
    "--compare", metavar="[FILE]", is_flag=False, flag_value=ACCEPTED, type=FILE,
    help=f"Print new / accepted for every figure.  [{ACCEPTED}]",
)  # fmt: skip
@click.option("--markdown", "page", metavar="PAGE", type=FILE, help="Put the tables into the marked blocks of a page.")
def main(
    sections: Sequence[str], quick: bool, out: Path | None, as_json: bool, read: Sequence[Path], compare: Path | None,
    page: Path | None,
) -> None:  # fmt: skip
    """Measure the keyed form, as ratios: against what people use instead, the paper's form, and the limit.

    It begins with the verdict in five lines and the aims, each with what was measured.

    \b
    Sections:
      peers    FB15k-237's shape: Flower's SecAgg+ (as it ships, with float32, with AES), CKKS, plain, the limit
      names    the oblivious PRF of a name, all parties
      round    where the time and the bytes of a set-up and a round go
      clients  fifty clients, and a hundred
      growth   CPU and bytes of all contestants against M, d and N, with fitted exponents
      paper    the paper's literal protocol (phe), our Paillier form, the keyed form
      kernels  modular arithmetic against memory, numpy, FLINT and galois
      plan     what secea plan predicts, and what it is
      learning the share of protection in training
      large    a million slots and ten million: memory (only on request)
      engines  rounds on NVFlare and Flower, by kind of process (only on request: a quarter of an hour)
      planned  what secea plan --engine predicts, and what it is (only on request: half an hour)

    The limit is AES once over all key streams of a round, and one copy, seal and open of its bytes.
    Each figure is a median with its least and most; contestants take turns. Peers come with pip install '.[bench]';
    one that is missing is named and left out. docs/performance.md explains the results.

    \b
    Examples:
      python -m bench --quick
      python -m bench round peers                              two sections, in full
      python -m bench --out runs/bench                         everything but `large`: ten minutes
      python -m bench --read runs/bench/bench.json --compare   against the last accepted run
      python -m bench --read runs/bench/bench.json --markdown docs/performance.md
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    try:
        _run(sections, quick, out, as_json, read, compare, page)
    except SecEAError as error:
        raise click.ClickException(str(error)) from None


def _run(
    sections: Sequence[str], quick: bool, out: Path | None, as_json: bool, read: Sequence[Path], compare: Path | None,
    page: Path | None,
) -> None:  # fmt: skip
    from rich.console import Console

    from bench import show
    from bench.figures import Run

    console = Console(quiet=as_json)
    if not console.is_terminal:
        console = Console(quiet=as_json, width=WIDTH)
    accepted = Run.from_json(_load(compare)) if compare else None  # a wrong name is told before an hour of work
    if read:
        run = Run.merged([Run.from_json(_load(path)) for path in read], sections or list(SECTIONS))
    else:
        run = measured(list(dict.fromkeys(sections or SHORT)), quick, out)
    if not read or not (compare or page or out):
        show.print_report(console, run, whole=not sections)
    if out:
        _write(run, out)
        console.print(f"wrote {', '.join(sorted(str(path) for path in out.iterdir()))}", soft_wrap=True)
    if page:
        _fill(run, page)
        console.print(f"filled {page}")
    if accepted:
        show.print_comparison(console, run, accepted)
    if as_json:
        click.echo(json.dumps(run.to_json(), indent=1))


def measured(chosen: Sequence[str], quick: bool, out: Path | None) -> Any:
    """A run of these sections, each written when it is done: what a later one breaks is not lost."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from bench.figures import Run
    from bench.measure import machine
    from bench.shapes import QUICK, Scale

    run, scale = Run(machine(), quick), QUICK if quick else Scale()
    terminal = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        for name in chosen:
            task, started = progress.add_task(name), time.perf_counter()
            measure = getattr(importlib.import_module(SECTIONS[name]), name)
            run.sections[name] = measure(
                scale, lambda step, task=task, name=name: progress.update(task, description=f"{name}: {step}")
            )
            if out:
                _write(run, out)
            progress.remove_task(task)
            terminal.print(f"[dim]{name} took {time.perf_counter() - started:.0f} s[/]")
    return run


def _load(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no benchmark's JSON: {error}") from None


def _write(run: Any, folder: Path) -> None:
    from bench.plots import pictures

    files = {"bench.json": json.dumps(run.to_json(), indent=1) + "\n", **pictures(run)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files({folder / name: content.encode() for name, content in files.items()})
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error}") from None


def _fill(run: Any, page: Path) -> None:
    """The page's blocks, and pictures beside it in `images/`, each named bench-..."""
    from bench import show
    from bench.plots import pictures

    try:
        page.write_text(show.fill(page.read_text(encoding="utf-8"), run), encoding="utf-8")
        for name, content in pictures(run).items():
            (page.parent / "images").mkdir(exist_ok=True)
            (page.parent / "images" / f"bench-{name}").write_text(content, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{page} cannot be filled: {error}") from None


if __name__ == "__main__":
    main(prog_name="python -m bench")
