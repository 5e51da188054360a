"""`secea train`: the options, and where they go. Nothing heavy is imported before a run begins."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from secea.errors import MissingExtra, NothingMeasured
from secea.extras import installing
from secea.learn.methods import METHODS

POSITIVE, ABOVE_ZERO = click.IntRange(min=1), click.FloatRange(min=0, min_open=True)
BETWEEN = click.FloatRange(0, 1, min_open=True, max_open=True)
MOST_SEEDS = 100
"""Of one command. Who means the seed 2025 writes --seed."""


@click.group(invoke_without_command=True, short_help="Train with and without sharing, and compare.")
@click.option("--resume", metavar="RUN", type=click.Path(path_type=Path), help="Go on with the run of this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (with --resume).")
@click.pass_context
def train(ctx: click.Context, resume: Path | None, as_json: bool) -> None:
    """Train embeddings over a federation, and say whether sharing helps.

    Five methods run from the same seeds and the same initial embeddings: `local` (no sharing), `common` (means of the
    entities that all clients own: what private set intersection allows), `secea` (secure means over all owners),
    `plain` (the same means, unprotected), and `central` (all data in one place). The first line says what sharing
    gains or costs; with --seeds 3 also whether that could be chance.

    Everything is written to a run folder: settings, metrics of each evaluated round, time and bytes of each round of
    the protocol, final embeddings. A run that was stopped can continue from there. docs/learning.md has the details.

    \b
    Examples:
      secea train kg                                            UMLS, 8 clients: about two minutes
      secea train kg --data triples.tsv --split own             your own triples
      secea train kg --seeds 3                                  is it a gain, or chance?
      secea train recommend --data ratings.csv --clients 10
      secea train social --data edges.csv --clients 6
      secea train --resume runs/kg-umls-20250101-120000         continue a run that was stopped
    """  # noqa: D301
    if ctx.invoked_subcommand is None:
        if resume is None:
            raise click.UsageError("what to train: kg, recommend or social? `secea train --help` has examples")
        _run(lambda: _resumed(resume), as_json)
    elif resume is not None:
        raise click.UsageError("--resume takes all settings from the folder: leave the rest out")
    elif as_json:
        raise click.UsageError(f"--json goes behind the task: secea train {ctx.invoked_subcommand} --json")


def _resumed(folder: Path) -> Any:
    from secea.learn.run import Run
    from secea.learn.seeds import SEEDS, Seeds

    return Seeds.resume(folder) if (folder / SEEDS).exists() else Run.resume(folder)


class _Several(click.ParamType[tuple[int, ...]]):
    """A number of seeds, or seeds with commas between them."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            given = tuple(int(each) for each in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is neither a number of seeds nor seeds with commas between them", param, ctx)
        seeds = tuple(range(min(given[0], MOST_SEEDS + 1))) if "," not in value else given
        if not 2 <= len(set(seeds)) == len(seeds) <= MOST_SEEDS:
            self.fail(f"{value!r} is not from 2 to {MOST_SEEDS} different seeds; for one there is --seed", param, ctx)
        return seeds


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all tasks have."""
    options = [
        click.option("--clients", metavar="N", type=POSITIVE, help="Number of clients.  [8, or as the data came]"),
        click.option("--dim", metavar="N", type=POSITIVE, help="Length of an embedding."),
        click.option("--rounds", metavar="N", type=POSITIVE, help="Rounds of training and sharing.  [kg 40, else 20]"),
        click.option(
            "--epochs", metavar="N", type=POSITIVE, default=3, show_default=True, help="Epochs of a client in a round."
        ),
        click.option("--batch", metavar="N", type=POSITIVE, help="Examples in one step."),
        click.option("--lr", metavar="X", type=ABOVE_ZERO, help="Adam's rate; Adam is renewed each round."),
        click.option("--seed", metavar="N", type=int, help="Seed of the split and of the training.  [0]"),
        click.option(
            "--seeds", metavar="N|A,B,...", type=_Several(),
            help="Run N seeds (0, 1, ...), or these, each in a folder of its own: what is gain, and what is chance?",
        ),
        click.option("--methods", metavar="A,B,...", help=f"Methods to run.  [all: {','.join(METHODS)}]"),
        click.option(
            "--collusion", metavar="N", type=POSITIVE,
            help="Number of clients that may conspire with the server (secea).  [all others]",
        ),
        click.option(
            "--max-abs", metavar="X", type=ABOVE_ZERO,
            help="No embedding grows beyond this (secea).  [16; more with --dp-epsilon]",
        ),
        click.option(
            "--normalize", metavar="A,B,...",
            help="Spellings that are one entity: steps out of nfc, strip, casefold.  [as they are]",
        ),
        click.option(
            "--header/--no-header", default=None,
            help="Whether the first line of a text file is a heading.  [found out]",
        ),
        click.option(
            "--columns", metavar="A,B,...",
            help="Which columns hold what the task needs, in its order, by label or by number.  [the first ones]",
        ),
        click.option(
            "--min-owners", metavar="N", type=POSITIVE, default=1, show_default=True,
            help="No means for entities that fewer clients own: each keeps its own row.",
        ),
        click.option(
            "--weights", is_flag=True,
            help="Weight a row by how many training examples of its client touch the entity.",
        ),
        click.option(
            "--every", metavar="N", type=POSITIVE, default=5, show_default=True, help="Evaluate every N rounds."
        ),
        click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, ..."),
        click.option(
            "--dp-epsilon", metavar="X", type=ABOVE_ZERO,
            help="Differential privacy: the epsilon of one row of one client over the whole run. Off if not given.",
        ),
        click.option(
            "--dp-delta", metavar="X", type=BETWEEN, default=1e-5, show_default=True, help="The delta of --dp-epsilon."
        ),
        click.option(
            "--dp-clip", metavar="X", type=ABOVE_ZERO, default=0.1, show_default=True,
            help="Each row's change in a round is clipped to this norm.",
        ),
        click.option(
            "--dp-shared", is_flag=True,
            help="All clients make the noise together. It takes less; --collusion says how many need not be honest.",
        ),
        click.option("--out", type=click.Path(path_type=Path), help="The run folder.  [runs/TASK-DATA-TIME]"),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


SHARE = click.option(
    "--share",
    metavar="X",
    type=click.FloatRange(0, 1),
    default=0.4,
    show_default=True,
    help="Split own: the part of all entities that a client knows.",
)
CORE = click.option(
    "--core",
    metavar="X",
    type=click.FloatRange(0, 1),
    default=0.25,
    show_default=True,
    help="Split own: the part of all entities that every client knows.",
)
NEGATIVES = click.option(
    "--negatives", metavar="N", type=POSITIVE, help="Wrong answers in a step, shared by its examples."
)
TEMPERATURE = click.option(
    "--temperature",
    metavar="X",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Temperature of the self-adversarial weights.",
)


@train.command()
@click.option("--data", multiple=True, default=("umls",), show_default=True, help="umls, kinships, nations; or files.")
@click.option(
    "--split", type=click.Choice(["own", "random", "relation", "files"]), help="Who gets which triples.  [own]"
)
@SHARE
@CORE
@click.option(
    "--model", type=click.Choice(["transe", "rotate", "distmult", "complex"]), default="transe", show_default=True,
    help="What scores a triple.",
)  # fmt: skip
@click.option("--norm", type=click.Choice([1, 2]), default=2, show_default=True, help="TransE's distance.")
@click.option("--margin", metavar="X", type=float, help="Margin of TransE and RotatE.")
@NEGATIVES
@TEMPERATURE
@_common
def kg(**options: Any) -> None:
    """Complete knowledge graphs: filtered MRR and Hits@k.

    Data: (head, relation, tail) in .tsv, .txt, .csv, .npz or .parquet, or a folder with train, valid and test. Several
    --data, a folder of files, or an .npz with train_0, valid_0, test_0, train_1, ...: one client each.

    Splits: `own`, a client knows a share of the entities and a core that all know, and a triple goes to one client that
    knows both ends; `random`, by triple; `relation`, each relation to one client; `files`, as the data came.

    \b
    Examples:
      secea train kg
      secea train kg --data kinships --clients 5 --model rotate
      secea train kg --data north.tsv --data south.tsv --data west.tsv
      secea train kg --data fb15k237_r10.npz --norm 1 --dim 128 --negatives 256 --lr 0.001 \\
          --batch 512 --margin 10 --rounds 200 --device cuda        FedE's settings
      secea train kg --dp-epsilon 8 --methods local,plain,secea
      secea train kg --min-owners 3 --weights
    """  # noqa: D301
    _begin("kg", options)


@train.command()
@click.option("--data", multiple=True, required=True, help="Ratings: user, item, rating.")
@click.option("--split", type=click.Choice(["own", "random", "files"]), help="Who gets which ratings.  [own]")
@_common
def recommend(**options: Any) -> None:
    """Predict ratings: RMSE of matrix factorisation with biases. Items are shared, users and biases stay local.

    Data: (user, item, rating) in .tsv, .txt, .csv, .npz or .parquet; more columns are ignored. Splits: `own`, each user
    belongs to one client; `random`, by rating; `files`, one file for each client.

    \b
    Examples:
      secea train recommend --data ratings.csv --clients 10
      secea train recommend --data a.csv --data b.csv --data c.csv --rounds 60
    """  # noqa: D301
    _begin("recommend", options)


@train.command()
@click.option("--data", multiple=True, required=True, help="Edges: two nodes in a row.")
@click.option("--split", type=click.Choice(["own", "random", "files"]), help="Who gets which edges.  [own]")
@SHARE
@CORE
@NEGATIVES
@TEMPERATURE
@_common
def social(**options: Any) -> None:
    """Predict links of a graph without directions: AUC against as many pairs that are no edges.

    Data: two nodes in a row, in .tsv, .txt, .csv, .npz or .parquet. Splits: `own`, a client knows a share of the nodes
    and a core that all know, and an edge goes to one client that knows both ends; `random`, by edge; `files`.

    \b
    Examples:
      secea train social --data edges.csv --clients 6
      secea train social --data edges.csv --clients 6 --collusion 2 --json > result.json
    """  # noqa: D301
    _begin("social", options)


def _begin(task: str, options: dict[str, Any]) -> None:
    as_json, out = options.pop("as_json"), options.pop("out")
    sources = options.pop("data")
    seeds = options.pop("seeds")
    if seeds is not None and options["seed"] is not None:
        raise click.UsageError("--seeds says which seeds there are: leave out --seed")
    dp = {name: options.pop(f"dp_{name}") for name in ("epsilon", "delta", "clip", "shared")}
    if dp["epsilon"] is None and dp["shared"]:
        raise click.UsageError("--dp-shared says how noise is made: say how much with --dp-epsilon")
    options["dp"] = None if dp["epsilon"] is None else dp
    if options["columns"] is not None:
        options["columns"] = tuple(name.strip() for name in options["columns"].split(","))
    methods = None
    if options["methods"] is not None:
        methods = tuple(name.strip() for name in options["methods"].split(","))
        if unknown := set(methods) - set(METHODS):
            raise click.UsageError(f"there is no method {min(unknown)!r}; there are {', '.join(METHODS)}")

    def begun() -> Any:
        from secea.learn.config import resolved
        from secea.learn.run import Run
        from secea.learn.seeds import Seeds

        config = resolved(task, sources, **(options | {"methods": methods}))
        name = f"{task}-{config.data.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
        folder = out or Path("runs") / name
        return Run.begin(folder, config) if seeds is None else Seeds.begin(folder, config, seeds)

    _run(begun, as_json)


def _run(make: Callable[[], Any], as_json: bool) -> None:
    """Run to the end, and show it. If stopped, say how to continue."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"secea train needs PyTorch and what goes with it: {installing('learn')}")
    from rich.console import Console

    from secea.learn import show

    run, folder = make(), None
    if not run.tested:
        click.secho(
            f"warning: no client has test data, so that nothing can be measured; {ADVICE}", fg="yellow", err=True
        )
    try:
        folder = run.folder.path
        with show.bars(run.config.methods, run.rounds, Console(stderr=True, markup=False)) as (watch, progress):
            result = run.go(watch, progress)
    except KeyboardInterrupt:
        click.echo(f"stopped; continue with: secea train --resume {folder}", err=True)
        sys.exit(130)
    except OSError:  # a full disk, say: the command line tells it
        click.echo(f"stopped; when that is fixed, continue with: secea train --resume {folder}", err=True)
        raise
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        wide = None if sys.stdout.isatty() else show.NOT_A_TERMINAL
        show.table(result, Console(markup=False, width=wide))
    if not result["verdict"]["measured"]:
        raise NothingMeasured(
            f"{folder} is finished, but nothing could be measured{'' if run.tested else f'; {ADVICE}'}"
        )


ADVICE = "give test rows, or data without validation rows, of which a tenth is then held out for the test"
"""What to do where there is no test data."""
