"""`secea demo`: the options. What it does is in `secea.demo`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from secea.commands import shell

if TYPE_CHECKING:
    from secea.demo.guide import Progress


@click.command(short_help="See it work on real data, step by step.")
@click.option(
    "--data", type=click.Choice(["umls", "borders"]),
    help="A network of medical concepts, or the borders of US states.  [umls if pykeen is installed]",
)  # fmt: skip
@click.option("--clients", metavar="N", default=4, show_default=True, help="Number of organisations.")
@shell.collusion_option
@click.option(
    "--entities", metavar="N", type=click.IntRange(min=1), help="Number of made-up entities, in place of real data."
)
@click.option(
    "--dim", metavar="N", default=32, show_default=True, type=click.IntRange(min=1), help="Length of an embedding."
)
@click.option(
    "--seed", metavar="N", default=None, type=click.IntRange(min=0),
    help="Seed of who knows what. The protocol's randomness is secret in any case.",
)  # fmt: skip
@shell.json_option
def demo(
    data: str | None,
    clients: int,
    collusion: int | None,
    entities: int | None,
    dim: int,
    seed: int | None,
    as_json: bool,
) -> None:
    """See it work: a whole federation on real data, in a few seconds.

    The server and T clients, all other clients by default, put together everything that they have. It shows what client
    0 brings, what leaves it, and what the others make of that; what they try and do not find, and do find when they are
    given one secret more; what they do see; the means that come out, beside the true ones; time and bytes. All of it is
    computed in the run. With --entities the data is made up, of any size, and only means and costs are shown.

    \b
    Examples:
      secea demo
      secea demo --data borders --clients 7 --collusion 2
      secea demo --clients 10 --collusion 2 --entities 2000
      secea demo --json
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    if data is not None and entities is not None:
        raise click.UsageError("--entities makes data up: leave --data out, or --entities")
    from secea.demo import guide
    from secea.errors import TwoClients

    with _bar() as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoClients)  # what it says is shown among the results
        if entities is None:
            found = guide.guided(data, clients=clients, collusion=collusion, dim=dim, seed=seed, progress=progress)
        else:
            found = guide.made_up(
                clients=clients, collusion=collusion, entities=entities, dim=dim, seed=seed, progress=progress
            )
    if as_json:
        shell.echo_json(found)
    else:
        guide.show(found, shell.console())
    if any(attack["found"] for attack in found.get("attacks", ())):
        shell.fail("an attack succeeded: this is a bug, please report it (SECURITY.md says how)", shell.FAILED)


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    """How far the set-up is, on a terminal; and nothing elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = shell.console(stderr=True)
    columns = (TextColumn("{task.description:<16}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.file.isatty()) as bar:
        task = bar.add_task("a federation", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield progress
