"""What a run looks like on a terminal: a bar for each method, and one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table as Grid

from secea.engines.federation import Progress
from secea.learn.run import Watch
from secea.notebook import size

NOT_A_TERMINAL = 110
"""Columns, where nobody has a window to fit."""
MEANING = {
    "local": "no sharing",
    "common": "common to all",
    "secea": "protected",
    "plain": "unprotected",
    "central": "one place",
}


@contextmanager
def bars(methods: Sequence[str], rounds: int, console: Console) -> Iterator[tuple[Watch, Progress | None]]:
    """A bar for each method, and one for the set-up of the protocol; nothing at all where nobody looks."""
    if not console.file.isatty():
        yield lambda _method, _round: None, None
        return
    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console) as shown:
        tasks = {}
        for name in methods:
            if name == "secea":
                setup = shown.add_task("set-up", total=100, visible=False)
            tasks[name] = shown.add_task(name, total=rounds, start=False)

        def watch(method: str, round: int) -> None:
            shown.start_task(tasks[method])
            shown.update(tasks[method], completed=round)

        def progress(done: int, total: int) -> None:
            shown.update(setup, completed=100 * done // total, visible=True)

        yield watch, progress


def table(result: dict[str, Any], console: Console) -> None:
    """What sharing does; then the metrics of all methods, what protection cost, and what else there is to say."""
    config, metrics = result["config"], list(next(iter(result["methods"].values())))
    _verdict(result["verdict"], console)
    for message in result["messages"]:
        console.print(f"note: {message}", highlight=False, markup=False, soft_wrap=not console.file.isatty())
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("method")
    for name in (*metrics, "seconds"):
        grid.add_column(name, justify="right", style="bold" if name == result["metric"] else "")
    grid.add_column("")
    for method, values in result["methods"].items():
        spent = sum(result["seconds"][method].values())
        style = "green" if method == "secea" else ""
        for head, cells in _rows(method, [values[name] for name in metrics]):
            about = (f"{spent:.1f}", MEANING[method]) if head == method else ()
            grid.add_row(head, *cells, *about, style=style if about else "dim")
    what = f"{config['task']} on {config['data']}: {config['clients']} clients, {config['rounds']} rounds"
    seeds = result.get("seeds")
    whose = f"seed {config['seed']}" if seeds is None else f"{len(seeds)} seeds"
    console.rule(f"{what}, {whose}", align="left")
    console.print(grid)
    for line in _lines(result):
        console.print(line, highlight=False, markup=False, soft_wrap=not console.file.isatty())


def _verdict(found: dict[str, Any], console: Console) -> None:
    """Its first line is the first line of all."""
    for words, style in (*((each, "bold red") for each in found["warnings"]), (found["headline"], "bold")):
        console.print(words, style=style, highlight=False, markup=False, soft_wrap=not console.file.isatty())
    if found["detail"]:
        console.print(found["detail"], highlight=False, markup=False, soft_wrap=not console.file.isatty())


def _rows(method: str, values: Sequence[Any]) -> Iterator[tuple[str, list[str]]]:
    """A method's metrics; of several seeds the means, and below them the lowest and the highest."""
    if any(isinstance(value, dict) for value in values):
        for head, which in ((method, "mean"), ("lowest", "low"), ("highest", "high")):
            yield head, [_cell(value and value[which]) for value in values]
    else:
        yield method, [*map(_cell, values)]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _lines(result: dict[str, Any]) -> Iterator[str]:
    cost = result["protection"]
    if cost:
        yield (
            f"protection: {cost['seconds_per_round']:.3f} s a round, {cost['share_of_training']:.1%} of the training"
            f" time (CPU: {cost['share_of_training_cpu']:.1%}); {size(cost['round_bytes'])} a round on all hops;"
            f" set-up {cost['setup_seconds']:.2f} s, {size(cost['setup_bytes'])}"
        )
    sharing = result["sharing"]
    if sharing["weights"]:
        yield f"weights: training examples that touch an entity, 0 to {sharing['max_weight']}"
    if sharing["min_owners"] > 1:
        few = ", ".join(f"{client} {count}" for client, count in sharing["below_minimum"].items())
        yield f"minimum: {sharing['min_owners']} owners; entities below it, without a mean: {few}"
    if result["epsilon"] is not None:
        about = result["privacy"]
        _, row, table = about["rounds"][0]
        yield (
            f"privacy: epsilon {result['epsilon']:.3g} at delta {about['delta']:g} for {about['unit']}, all rounds"
            f" together, {row:.3g} in one; {about['epsilon_table']:.3g} for a client's whole table of {about['rows']}"
            f" rows, {table:.3g} in one; noise {about['noise']:.3g} on each coordinate, of {about['noise_of']}"
        )
        for words in about["trusted"]:
            yield f"  {words}"
    yield f"run folder: {result['run']}"
