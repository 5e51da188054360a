"""`secea aggregate`: tables in files, one per client; one file of means per client."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from secea.atomic import Content, replace_files
from secea.commands import shell
from secea.errors import DataError
from secea.forms import FormName, form_of

if TYPE_CHECKING:
    from secea.commands.formats import Source
    from secea.engines.traffic import Hop


class Step(Protocol):
    """Called when a step begins and while it runs: with a name, and the number of steps this counts for."""

    def __call__(self, name: str, steps: int = 1) -> None:
        """Show it."""
        ...


@click.command(short_help="Means of tables in files, one for each client.")
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="FOLDER", type=click.Path(path_type=Path), help="Where the means go.")
@click.option("--force", is_flag=True, help="Replace results that are there.")
@shell.collusion_option
@click.option("--max-abs", metavar="X", default=64.0, show_default=True, help="Every number lies in [-X, X].")
@click.option(
    "--precision", metavar="N", default=24, show_default=True, help="Bits: a mean is exact to within max_abs * 2^-N."
)
@click.option("--sigma", metavar="N", default=40, show_default=True, help="Statistical security, in bits.")
@shell.weights_option
@shell.layout_options
@shell.min_owners_option
@shell.partial_option
@shell.noise_option
@shell.normalize_option
@shell.form_option
@shell.json_option
def aggregate(
    tables: tuple[Path, ...], out: Path, force: bool, as_json: bool, header: bool | None, name_column: str | None,
    columns: str, format: str, **params: Any,
) -> None:  # fmt: skip
    """Mean embeddings of tables in files: one TABLE for each client, one result for each in FOLDER.

    It takes two tables or more. With two, each client can work out the other's rows of what they share, and a note says
    so.

    A result has the name and the format of its table, and the same entities: .npz with `names` and `matrix`; .npy
    with its names in a file beside it; .csv or .tsv, a name and its numbers in each line; .parquet, a column of names,
    and one of lists or several of numbers; .vec or .txt, word2vec's text. Text may be packed (.csv.gz). A TABLE - is
    standard input. Columns that are no part of the embedding come back as they are.

    What is not certain about a file, such as whether its first line is a heading, is said in a note. `secea check`
    looks at tables and does nothing else. Names are compared as texts, as they are or with --normalize; results have
    your own spelling.

    Weights are whole numbers, such as counts of samples; a row of weight 0 is left out. With --partial they are 0 or 1.
    An entity with too few owners (--min-owners) keeps its own row. What each of these shows to whom is printed by
    `secea plan --policy`.

    All parties run in this process, on tables that are all here: use it to try things out, and to combine tables that
    you may see. Between organisations each one runs its own party: docs/deploy.md.

    \b
    Examples:
      secea aggregate north.npz south.csv west.vec --out means/
      secea aggregate *.csv --out means/ --collusion 2 --max-abs 8
      secea aggregate *.parquet --out means/ --force --json
      secea aggregate *.csv --out means/ --weights samples --min-owners 3
      secea aggregate *.csv --out means/ --name-column drug --columns x,y,z
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    if len(tables) < 2:
        raise click.UsageError(f"at least 2 tables are needed, one for each client; {len(tables)} given")
    if params["partial"] and not params["weights"]:
        raise click.UsageError("--partial needs --weights: 0 for the rows that are left out, and 1 for all others")
    if tables.count(Path("-")) > 1:
        raise click.UsageError("standard input is one table; - is given twice")
    layout = {"header": header, "name_column": name_column, "columns": split(columns), "format": format}
    with _steps(len(tables) + 3) as step, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = run(tables, out, force=force, step=step, layout=layout, **params)
    assumed = [f"{client['table']}: {each}" for client in result["clients"] for each in client["assumed"]]
    result["notes"] = [*assumed, *result.pop("alike"), *(str(warning.message) for warning in warned)]
    for note in result["notes"]:
        shell.console(stderr=True).print(f"note: {note}", soft_wrap=True, markup=False)
    if as_json:
        shell.echo_json(result)
    else:
        _show(result)


def split(columns: str) -> tuple[str, ...]:
    """The columns that were listed."""
    return tuple(each.strip() for each in columns.split(",") if each.strip())


def run(
    paths: Sequence[Path],
    out: Path,
    *,
    force: bool,
    step: Step,
    form: FormName,
    layout: Mapping[str, Any],
    weights: Sequence[str] = (),
    **params: Any,
) -> dict[str, Any]:
    """Read, aggregate, write; nothing is written before everything is there."""
    column, listed = weight_files(weights, len(paths))
    from secea.accuracy import accuracy
    from secea.commands import formats
    from secea.engines.federation import Federation
    from secea.names import said
    from secea.params import Params

    reading = formats.Layout(**layout, weights=column)
    targets = _targets([formats.shown(path, reading) for path in paths], out, force)
    sources = []
    for path, file in zip(paths, listed, strict=True):
        step(f"reading {path.name}")
        source = formats.read(path, reading)
        sources.append(source if file is None else formats.weighed(source, file))
    files = _files(sources, targets, force)
    if weights and not params.get("partial"):
        given = [int(source.table.weights.max()) for source in sources if source.table.weights is not None]
        params["max_weight"] = max(1, *given)
    asked = Params(clients=len(sources), dim=sources[0].table.dim, **params)
    settings = form_of(form).checked(asked)
    for fault in formats.faults(sources, settings.max_abs, settings.normalize):
        raise DataError(fault)
    fed = Federation(settings, form)
    started = time.perf_counter()
    step("set-up")
    fed.progress = lambda done, total: step(f"set-up: names {100 * done // total} %", 0)
    fed.setup([source.table.names for source in sources])
    ready = time.perf_counter()
    step("round")
    tables = [source.table for source in sources]
    means = fed.round(tables)
    done = time.perf_counter()
    step("writing")
    exact = accuracy(tables, fed.params, fed.form, dtypes=[source.stored for source in sources])
    results = (source.write(mean.matrix) for source, mean in zip(sources, means, strict=True))
    write_all(dict(zip(targets, results, strict=True)) | files)
    return {
        "alike": [*formats.unlike(sources), *_alone(sources, settings.normalize), *_alike(sources, settings.normalize)],
        "clients": [
            {
                "table": str(source.path), "means": str(target), "entities": len(source.table),
                "assumed": list(source.assumed), "columns_kept": list(source.kept), "step": grid.step,
                "decimals": grid.decimals, "coarse_rows": grid.rows,
            }
            for source, target, grid in zip(sources, targets, exact.grids, strict=True)
        ],
        "union": fed.server.M,
        "dim": settings.dim,
        "collusion": settings.collusion,
        "form": form,
        "normalize": said(settings.normalize),
        "resolution": settings.resolution,
        "bound": exact.bound,
        "exact": list(exact.told([str(source.path) for source in sources])),
        "options": {name: getattr(settings, name) for name in settings.options},
        "accuracy": list(fed.form.disclosure(fed.params).accuracy),
        "below_minimum": [len(names) for names in fed.below_minimum],
        "without_mean": [len(names) for names in fed.without_mean],
        "seconds": {"setup": ready - started, "round": done - ready},
        "bytes": {"setup": _sent(fed.traffic, 0), "round": _sent(fed.traffic, 1)},
    }  # fmt: skip


def _alone(sources: Sequence[Source], rule: Any) -> Iterator[str]:
    """A note on tables that get nothing from the others."""
    from secea.commands import examine

    return examine.alone(sources, [examine.keys(source.table.names, rule) for source in sources])


def _alike(sources: Sequence[Source], rule: Any) -> list[str]:
    """A note on names that nearly match, and are several entities all the same."""
    from secea.commands import examine

    found, remedy, count = examine.near(sources, rule)
    if not count:
        return []
    few = " and ".join(map(repr, found[0]["names"][:2]))
    groups = f"{few} nearly match, and are two entities"
    if count > 1:
        groups = f"{count:,} groups of names nearly match, and are several entities, such as {few}"
    joined = remedy["joins"] if count > 1 else "them"
    cure = f"; --normalize {remedy['normalize']} joins {joined}" if remedy["joins"] else ""
    return [f"{groups}{cure}; secea check lists them"]


def weight_files(given: Sequence[str], tables: int) -> tuple[str | None, list[Path | None]]:
    """The column that has weights; or a file for each table."""
    if len(given) == 1 and not Path(given[0]).is_file():
        return given[0], [None] * tables
    if len(given) not in (0, tables):
        raise click.UsageError(
            f"--weights takes the name of a column, or a file for each of {tables} tables; {len(given)} given"
        )
    return None, [Path(file) for file in given] or [None] * tables


def _sent(traffic: Sequence[Hop], round: int) -> int:
    return sum(hop.size for hop in traffic if hop.round == round)


def _targets(paths: Sequence[Path], out: Path, force: bool) -> list[Path]:
    """Where each result goes: no table is overwritten, and no other file unless that is wanted."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; --out names a folder")
    targets = [out / path.name for path in paths]
    for n, target in enumerate(targets):
        if target in targets[:n]:
            raise DataError(f"two tables are named {target.name}, and so would be their results; rename one")
        if target.exists() and any(path.exists() and target.samefile(path) for path in paths):
            raise DataError(f"{target} is one of the tables, and is not overwritten; choose another --out")
        if target.exists() and not force:
            raise DataError(f"{target} exists; choose another --out, or replace it with --force")
    return targets


def _files(sources: Sequence[Source], targets: Sequence[Path], force: bool) -> dict[Path, bytes]:
    """What belongs to results, such as a file of names; it is no other result, and replaces nothing unasked."""
    files: dict[Path, bytes] = {}
    for source, target in zip(sources, targets, strict=True):
        for name, content in source.beside.items():
            beside = target.with_name(name)
            if beside in targets or beside in files:
                raise DataError(f"two results would be named {name}; rename one of the tables")
            if beside.exists() and (not force or beside.samefile(source.path.with_name(name))):
                raise DataError(f"{beside} exists; choose another --out, or replace it with --force")
            files[beside] = content
    return files


def write_all(files: Mapping[Path, Content]) -> None:
    """All files in one folder, or none, and then no folder that was not there before."""
    folder = next(iter(files)).parent
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        replace_files(files, durable=True)
    except BaseException:
        for each in made:
            with contextlib.suppress(OSError):  # it is not empty: somebody else has put something there
                each.rmdir()
        raise


@contextlib.contextmanager
def _steps(total: int) -> Iterator[Step]:
    """A bar on a terminal, and nothing elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = shell.console(stderr=True)
    columns = (TextColumn("{task.description:<24}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.file.isatty()) as progress:
        task = progress.add_task("", total=total)

        def step(name: str, steps: int = 1) -> None:
            progress.update(task, description=name)
            progress.advance(task, steps)

        yield step


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table as Grid

    from secea.commands.fits import size

    grid = Grid(box=None, pad_edge=False)
    for column in ("client", "table", "entities", "means"):
        grid.add_column(column, justify="right" if column in ("client", "entities") else "left", overflow="fold")
    for n, client in enumerate(result["clients"]):
        grid.add_row(str(n), client["table"], f"{client['entities']:,}", client["means"])
    shell.console().print(grid)
    sent, seconds = result["bytes"], result["seconds"]
    exact, *coarse = result["exact"]
    if options := result["options"]:
        exact = "; ".join((", ".join(f"{name} {value}" for name, value in options.items()), exact))
        for line in result["accuracy"]:
            click.echo(line)
    click.echo(
        f"union {result['union']:,}, dim {result['dim']}, form {result['form']}; {exact}; set-up"
        f" {seconds['setup']:.2f} s, {size(sent['setup'])}; round {seconds['round']:.2f} s, {size(sent['round'])}"
    )
    for line in coarse:
        click.echo(line)
    counts = zip(result["clients"], result["without_mean"], result["below_minimum"], strict=True)
    for client, count, below in counts:
        if count:
            few = f", {below} of them with too few owners" if below else ""
            what = "entity" if count == 1 else "entities"
            click.echo(f"{client['means']}: {count} {what} without a mean, unchanged{few}")
