"""`secea check`: whether tables fit together, and what to say about one's own, before anything is set up."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from secea.commands import shell
from secea.commands.aggregate import split, weight_files
from secea.forms import FormName

if TYPE_CHECKING:
    from rich.console import Console

    from secea.commands.examine import Checked, Together

SHOWN: Final = {"pairs": 15, "spellings": 8}
"""What is shown of what there may be many of; --json has more."""


@click.command(short_help="Say whether tables fit together, and what would go wrong.")
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...|SITE", type=click.Path(path_type=Path))
@shell.collusion_option
@click.option("--max-abs", metavar="X", default=64.0, show_default=True, help="Every number lies in [-X, X].")
@click.option(
    "--precision", metavar="N", default=24, show_default=True, help="Bits: the resolution of means is max_abs * 2^-N."
)
@shell.weights_option
@shell.layout_options
@shell.min_owners_option
@shell.normalize_option
@shell.form_option
@click.option("--counts", is_flag=True, help="With one TABLE: also say how many entities it has.")
@click.option(
    "--kit", metavar="DIR", type=click.Path(path_type=Path),
    help="Of a site: its startup kit of NVFlare.  [the folder `kit` beside its file]",
)  # fmt: skip
@shell.json_option
@click.pass_context
def check(
    ctx: click.Context, /, tables: tuple[Path, ...], weights: tuple[str, ...], header: bool | None,
    name_column: str | None, columns: str, format: str, normalize: str, form: FormName, counts: bool,
    kit: Path | None, as_json: bool, **params: Any,
) -> None:  # fmt: skip
    """Say whether tables in files fit together, or whether a site is ready; nothing else is done with them.

    Several tables that lie in one place: of each its heading, numbers, range, decimals, names that occur twice and
    missing numbers; of all of them the overlap of every pair, names that nearly match and the --normalize that would
    join them, how exact means will be, and what they cost. Everything that is wrong is listed, not the first thing
    alone.

    One table: what is wrong with it, and what you can tell the other organisations about it without showing it, so that
    all can agree on parameters. It says no name, and no number of entities without --counts.

    A site, by its .toml file or the folder that holds one: a line for each thing that a first run needs, with ok,
    warning or wrong, and what to do. Keys and federation file, state and disk, memory, log, the site's own function and
    its names, versions, clock; where there is a startup kit of NVFlare, also its permissions, its certificates, and
    whether its server answers. The function is called, but nothing is trained. It can be run while a run goes on. A
    server's file is checked likewise.

    The first line is the verdict. The exit code is 0 if the tables fit, or nothing is wrong with the site, and 3
    otherwise.

    \b
    Examples:
      secea check north.csv south.csv west.csv
      secea check *.parquet --normalize nfc,strip --max-abs 8 --json
      secea check mine.csv                                     what to tell the others
      secea check site.toml                                    is this site ready for a run?
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    if any(path.suffix.lower() == ".toml" or path.is_dir() for path in tables):
        _site(ctx, tables, kit, as_json=as_json)
        return
    if kit is not None:
        raise click.UsageError("--kit is for a site; these are tables")
    if tables.count(Path("-")) > 1:
        raise click.UsageError("standard input is one table; - is given twice")
    if counts and len(tables) > 1:
        raise click.UsageError("--counts is for one table; with several they are said anyway")
    column, files = weight_files(weights, len(tables))
    from secea.commands import examine, formats
    from secea.forms import form_of
    from secea.params import Params, rule_of

    Params(2, 1, max_abs=params["max_abs"], precision=params["precision"])  # refuses what no table could meet

    rule = rule_of(normalize)
    assert not callable(rule)
    layout = formats.Layout(header, name_column, split(columns), column, format)
    with shell.working("reading tables"):
        found = [examine.look(path, layout, file) for path, file in zip(tables, files, strict=True)]
    with shell.working("looking at them"):
        each = [examine.about(one, params, form_of(form)) for one in found]
        if len(found) == 1:
            open_range = ctx.get_parameter_source("max_abs") is ParameterSource.DEFAULT  # it is still to be agreed on
            result = _alone(found[0], each[0], rule, params, open_range=open_range, counts=counts)
        else:
            all_ = examine.together(found, rule, form, params, weighted=bool(weights), memory=examine.machine_memory())
            result = _all(each, all_, params)
    if as_json:
        shell.echo_json(result)
    elif len(found) == 1:
        _show_one(result, shell.console())
    else:
        _show(result, shell.console())
    if not result["fits"]:
        sys.exit(shell.UNUSABLE)


def _site(ctx: click.Context, paths: Sequence[Path], kit: Path | None, *, as_json: bool) -> None:
    """One site, in place of tables."""
    from secea.commands.condition import condition

    if len(paths) > 1:
        raise click.UsageError("a site is checked by itself: give its .toml file, or its folder, and nothing else")
    for option in ctx.command.params:
        given = ctx.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
        if given and option.name not in ("tables", "kit", "as_json"):
            raise click.UsageError(f"{option.opts[0]} is for tables, and {paths[0]} is a site")
    condition(paths[0], kit, as_json=as_json)


def _all(each: Sequence[dict[str, Any]], found: Together, params: dict[str, Any]) -> dict[str, Any]:
    names = [one["table"] for one in each]
    return {
        "fits": not found.reasons,
        "reasons": list(found.reasons),
        "tables": list(each),
        "union": found.union,
        "notes": list(found.notes),
        "overlap": list(found.overlap),
        "near_count": found.near_count,
        "near": list(found.near),
        "remedy": dict(found.remedy),
        "bound": found.exact.bound if found.exact else None,
        "resolution": params["max_abs"] * 2.0 ** -params["precision"],
        "exact": list(found.exact.told(names)) if found.exact else [],
        "cost": found.cost,
    }


# ----------------------------------------------------------------------------------------------------------- one table


def _alone(
    checked: Checked,
    about: dict[str, Any],
    rule: Sequence[str],
    params: dict[str, Any],
    *,
    open_range: bool,
    counts: bool,
) -> dict[str, Any]:
    """One's own table: what is wrong with it, and what to tell the others."""
    from secea.commands import examine, formats

    reasons = list(checked.faults)
    table = {"table": about["table"], "readable": about["readable"], "assumed": about.get("assumed", [])}
    source = checked.source
    if source is None or source.faults:
        return {"fits": False, "reasons": reasons, "table": table, "near": [], "tell": None}
    near, _, _ = examine.near([source], rule)
    most = formats.range_of(source.table.matrix)
    reasons += examine.few(formats.faults([source], math.inf if open_range else params["max_abs"], rule))
    bound = (most if open_range else params["max_abs"]) * 2.0 ** -params["precision"] + (about["step"] or 0.0) / 2
    tell: dict[str, Any] = {
        "numbers": about["numbers"], "dim": about["dim"], "max_abs": most, "decimals": about["decimals"],
        "coarse": bool(about["coarse_rows"]), "bound": bound,
        "normalize_changes": [step for step, count in about["changed_by"].items() if count],
    }  # fmt: skip
    if counts:
        tell["entities"] = about["entities"]
    table |= {"heading": about["heading"], "low": about["low"], "high": about["high"], "doubled": about["doubled"]}
    table |= {"missing": about["missing"], "columns_kept": about["columns_kept"]}
    return {"fits": not reasons, "reasons": reasons, "table": table, "near": list(near), "tell": tell}


def _show_one(result: dict[str, Any], console: Console) -> None:
    table, tell = result["table"], result["tell"]
    _verdict(result, f"{table['table']} is in order", console)
    if tell is None:
        return
    if result["near"]:
        click.echo("\nNames in it that nearly match, and are several entities")
        _spellings(result["near"], len(result["near"]))
    click.echo("\nWhat you can tell the others: none of it is a name, or counts your entities")
    for name, text in _tell(tell):
        click.echo(f"  {name:<14}{text}")
    _assumed([table])


def _tell(tell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    changes = tell["normalize_changes"]
    yield "numbers", "written as text" if tell["numbers"] == "text" else tell["numbers"]
    yield "dim", f"{tell['dim']}: all need the same"
    if tell["max_abs"]:
        yield "max_abs", f"at least {tell['max_abs']:g}: all numbers lie in [-{tell['max_abs']:g}, {tell['max_abs']:g}]"
    exact = f"means of rows like yours are exact to within {tell['bound']:.1e}"
    if tell["decimals"] is not None:
        yield "decimals", f"{tell['decimals']}: {exact}; write all digits if you can"
    else:
        yield "decimals", f"{'some numbers were rounded' if tell['coarse'] else 'enough'}: {exact}"
    for step in ("nfc", "strip", "casefold"):
        yield f"{step}", "changes some of your names" if step in changes else "changes none of your names"
    counted = tell.get("entities")
    bound = "a bound above everybody's number of entities, to agree on"
    yield "max_entities", f"{bound}; you have {counted:,}" if counted is not None else f"{bound} (--counts shows yours)"


# -------------------------------------------------------------------------------------------------------- many tables


def _show(result: dict[str, Any], console: Console) -> None:
    from secea.commands.fits import duration, size

    dims = sorted({each["dim"] for each in result["tables"] if each["readable"]})
    exact, *coarse = result["exact"] or [""]
    said = f"{len(result['tables'])} tables, {result['union']:,} entities together, dim {', '.join(map(str, dims))}"
    _verdict(result, f"{said}; {exact}", console)
    for line in coarse:
        click.echo(line)
    click.echo()
    console.print(_tables(result["tables"]))
    if result["overlap"]:
        click.echo("\nEntities in common")
        shown = result["overlap"][: SHOWN["pairs"]]
        wide = max(len("  ".join(pair["tables"])) for pair in shown)
        for pair in shown:
            share = f"{100 * pair['of_the_smaller']:.0f} % of the smaller"
            click.echo(f"  {'  '.join(pair['tables']):<{wide}}  {pair['common']:,} ({share})")
        if more := len(result["overlap"]) - len(shown):
            click.echo(f"  and {more} more pairs (--json has them all)")
    if result["near"]:
        click.echo("\nNames that nearly match, and are several entities")
        _spellings(result["near"], result["near_count"])
        remedy = result["remedy"]
        if remedy["joins"]:
            click.echo(f"  --normalize {remedy['normalize']} joins {remedy['joins']:,} of {result['near_count']:,}")
    if cost := result["cost"]:
        click.echo(
            f"\nIn one process: set-up about {duration(cost['setup_seconds'])}, {size(cost['setup_bytes'])}; a round"
            f" {duration(cost['round_seconds'])}, {size(cost['round_bytes'])}; memory {size(cost['memory'])}"
        )
    _assumed(result["tables"])
    for text in result["notes"]:
        shell.console(stderr=True).print(f"note: {text}", soft_wrap=True, markup=False)


def _verdict(result: dict[str, Any], fine: str, console: Console) -> None:
    reasons = result["reasons"]
    if result["fits"]:
        console.print(f"fits: {fine}", style="bold", soft_wrap=True)
        return
    console.print(f"does not fit: {len(reasons)} reason{'s' * (len(reasons) > 1)}", style="bold red")
    for reason in reasons:
        click.echo(f"  {reason}")


def _tables(tables: Sequence[dict[str, Any]]) -> Any:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False)
    for column in ("table", "entities", "dim", "numbers", "range", "decimals", "heading", "twice", "missing"):
        grid.add_column(
            column, justify="left" if column in ("table", "numbers", "heading") else "right", overflow="fold"
        )
    for each in tables:
        if not each["readable"]:
            grid.add_row(each["table"], *["?"] * 8)
            continue
        ends = "" if each["low"] is None else f"{each['low']:.3g} to {each['high']:.3g}"
        grid.add_row(
            each["table"], f"{each['entities']:,}", str(each["dim"]), each["numbers"], ends, _decimals(each),
            "yes" if each["heading"] else "no", str(each["doubled"] or "-"), str(each["missing"] or "-"),
        )  # fmt: skip
    return grid


def _decimals(each: dict[str, Any]) -> str:
    if each["coarse_rows"] is None:
        return "?"
    if not each["coarse_rows"]:
        return "enough"
    return str(each["decimals"]) if each["decimals"] is not None else f"steps {each['step']:.2g}"


def _spellings(near: Sequence[dict[str, Any]], count: int) -> None:
    shown = near[: SHOWN["spellings"]]
    for group in shown:
        names = ", ".join(
            f"{name!r} ({', '.join(Path(table).name for table in tables)})"
            for name, tables in zip(group["names"], group["tables"], strict=True)
        )
        joined = "stay apart" if group["normalize"] is None else f"one with --normalize {group['normalize']}"
        click.echo(f"  {names}: {joined}")
    if more := count - len(shown):
        click.echo(f"  and {more:,} more (--json has up to 100)")


def _assumed(tables: Sequence[dict[str, Any]]) -> None:
    for each in tables:
        for text in each.get("assumed", ()):
            shell.console(stderr=True).print(f"note: {each['table']}: {text}", soft_wrap=True, markup=False)
