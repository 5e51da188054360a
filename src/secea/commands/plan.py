"""`secea plan`: what a federation would cost, and what other choices would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from secea.commands import fits, shell
from secea.commands.costs import Setting, costs, options, others
from secea.commands.fits import duration, size
from secea.engines.costs import NAMES, TITLES

if TYPE_CHECKING:
    from rich.console import Console

    from secea.engines.costs import EngineName
    from secea.params import Params
    from secea.party.form import Form

ABOVE_ZERO: Final = click.FloatRange(min=0, min_open=True)
FLOAT_BYTES: Final = 4
"""The bytes of a float32."""


@click.command(short_help="Say what a federation would cost.")
@click.option(
    "--policy", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="A federation file, in place of all that it says: print its policy as one page, for people who sign it.",
)  # fmt: skip
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="With --policy: write that page as HTML, to be read or printed.",
)  # fmt: skip
@click.option(
    "--clip", metavar="X", type=float,
    help="With --policy and noise: the epsilon on that page, if every client clips how far a row moves to X.",
)  # fmt: skip
@click.option(
    "--delta", metavar="X", type=float, default=1e-5, show_default=True, help="With --clip: the delta of that epsilon.",
)  # fmt: skip
@click.option("--clients", metavar="N", type=int, help="Number of clients: 2 or more; form paillier: 3.")
@click.option("--entities", metavar="N", type=click.IntRange(min=1), help="Entities of all clients together.")
@click.option(
    "--per-client", metavar="N", type=click.IntRange(min=1), help="The most that one client owns.  [all of them]"
)
@click.option("--dim", metavar="N", type=int, help="Length of an embedding.")
@shell.collusion_option
@click.option(
    "--dropouts", metavar="N", default=0, show_default=True, help="Number of clients that may vanish in a round."
)
@click.option("--max-abs", metavar="X", default=64.0, show_default=True, help="Every number lies in [-X, X].")
@click.option(
    "--precision", metavar="N", default=24, show_default=True, help="Bits: a mean is exact to within max_abs * 2^-N."
)
@click.option(
    "--decimals", metavar="D", type=click.IntRange(0, 15),
    help="Numbers have D decimals: say how exact their means are.  [all digits]",
)  # fmt: skip
@click.option(
    "--sigma", metavar="N", default=40, show_default=True, help="Statistical security over all rounds, in bits."
)
@click.option("--rounds", metavar="N", default=1000, show_default=True, help="Rounds for which that is promised.")
@shell.min_owners_option
@click.option(
    "--max-weight", metavar="W", type=int, help="Means are weighted, by whole numbers up to W.  [not weighted]"
)
@shell.partial_option
@shell.noise_option
@shell.form_option
@click.option(
    "--queries", type=click.Choice(["buckets", "full"]),
    help="Form paillier: a query runs over a bucket of entities, or over all, as in the paper.  [buckets]",
)  # fmt: skip
@click.option("--key-bits", metavar="N", default=3072, show_default=True, help="Form paillier: bits of the modulus.")
@click.option(
    "--mbit", metavar="X", default=1000.0, show_default=True, type=ABOVE_ZERO,
    help="Megabits a second that each party's network carries, both ways together.",
)  # fmt: skip
@click.option(
    "--engine", type=click.Choice(NAMES),
    help="What carries the messages: its time, its CPU and its memory are in the plan, too.  [not in the plan]",
)  # fmt: skip
@click.option(
    "--round-minutes", metavar="X", default=fits.ROUND_MINUTES, show_default=True, type=ABOVE_ZERO,
    help="It fits if a round takes no longer.",
)  # fmt: skip
@click.option(
    "--setup-hours", metavar="X", default=fits.SETUP_HOURS, show_default=True, type=ABOVE_ZERO,
    help="It fits if the set-up takes no longer.",
)  # fmt: skip
@click.option(
    "--memory", metavar="GB", type=ABOVE_ZERO, help="It fits if no party needs more memory.  [what this machine has]"
)
@click.option(
    "--more", is_flag=True, help="Also other choices of T and drop-outs, a large federation, and how numbers are coded."
)
@shell.json_option
@click.pass_context
def plan(
    ctx: click.Context, /, policy: Path | None, html: Path | None, clip: float | None, delta: float, mbit: float,
    engine: EngineName | None, round_minutes: float, setup_hours: float, memory: float | None, more: bool,
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Whether a federation fits, what it costs, and whom its clients have to trust, before anybody sets it up.

    It fits if a round, the set-up and the memory of every party stay within limits: 10 minutes, a day, and what this
    machine has, unless you say otherwise. If it does not, the first line says why, and the second what would change it.

    Bytes are exact: those that `secea.plan` gives, headers and seals included. Times are estimates: samples of what
    the parties do are timed on this machine, for a second or two, and the plan counts how often each of them comes.
    docs/cli.md has the comparison with real runs. With --engine they have what NVFlare or Flower adds: a time for each
    stage, CPU for each byte, and the memory of all processes at the server and at a site.

    With --policy: what a federation file means, in plain words. Who takes part, who learns what under which assumption,
    what its options change, how exact means are, what it costs, and the fingerprint to compare and sign.

    \b
    Examples:
      secea plan --clients 10 --entities 14541 --per-client 8600 --dim 128
      secea plan --clients 5 --entities 1000000 --per-client 200000 --dim 64 --dropouts 1 --mbit 100
      secea plan --clients 5 --entities 1000 --dim 32 --min-owners 3 --json
      secea plan --clients 4 --entities 14541 --per-client 8600 --dim 128 --engine nvflare
      secea plan --clients 50 --entities 2000000 --dim 64 --round-minutes 60 --memory 8
      secea plan --policy federation.toml                         who learns what, on one page
      secea plan --policy federation.toml --html policy.html      the same to print and sign
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    limits = fits.Limits(
        round_minutes * 60, setup_hours * 3600, fits.machine_memory() if memory is None else memory * 1e9
    )
    if policy is not None:
        if more:
            raise click.UsageError("--more is not for a policy: leave it out")
        if also := [name for name in given if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]:
            raise click.UsageError(f"--policy says it all: leave out --{also[0].replace('_', '-')}")
        _policy(policy, html, mbit, engine, limits, as_json, None if clip is None else (clip, delta))
        return
    if html is not None or clip is not None:
        name = "--clip" if html is None else "--html"
        raise click.UsageError(f"{name} needs --policy: the page is about a federation file")
    for name in ("clients", "entities", "dim"):
        if given[name] is None:
            raise click.UsageError(f"--{name} is missing; or give a federation file with --policy")
    result = _planned(mbit, engine, limits, more=more or as_json, **given)
    if as_json:
        shell.echo_json(result)
    else:
        _show(result, shell.console(), more=more)


def _planned(
    mbit: float, engine: EngineName | None, limits: fits.Limits, *, more: bool, entities: int, per_client: int | None,
    form: str, queries: str | None, decimals: int | None, **params: Any,
) -> dict[str, Any]:  # fmt: skip
    own = entities if per_client is None else per_client
    if not own <= entities <= params["clients"] * own:
        raise click.UsageError(
            f"--entities must be between --per-client and clients times that: {own:,} to {params['clients'] * own:,}"
        )
    from secea.forms import form_of
    from secea.params import Params

    chosen = form_of(form, queries=queries)
    settings = chosen.checked(Params(max_entities=own, max_union=entities, **params))
    with shell.working("measuring this machine"):
        found = report(settings, chosen, mbit, limits, more=more, engine=engine)
    if decimals is not None:
        from secea.accuracy import with_decimals

        bound = with_decimals(settings, decimals, chosen)
        off = bound - settings.resolution
        digits = f"Numbers with {decimals} decimal{'s' * (decimals != 1)}"
        line = f"{digits}: off by up to {off:.1e} more; all digits avoid that." if off else f"{digits} are as exact."
        found |= {"accuracy": (*found["accuracy"], line), "decimals": decimals, "bound": bound}
    return found


def _policy(
    path: Path, html: Path | None, mbit: float, engine: EngineName | None, limits: fits.Limits, as_json: bool,
    clip: tuple[float, float] | None,
) -> None:  # fmt: skip
    """Say what a federation file means."""
    from secea.commands import policy
    from secea.engines.files import read_session

    session = read_session(path)
    with shell.working("measuring this machine"):
        found = report(session.params, session.form, mbit, limits, more=as_json, engine=engine)
    told = policy.chapters(session, found, path, clip)
    if html is not None:
        policy.write(session, told, html)
    if as_json:
        shell.echo_json(policy.as_json(session, found, told) | ({"html": str(html)} if html else {}))
    elif html is not None:
        click.echo(f"wrote {html}")
    else:
        policy.show(session, told, shell.console())


def report(
    params: Params, form: Form, mbit: float, limits: fits.Limits | None = None, *, more: bool = False,
    engine: EngineName | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Whether it fits; the fields of `secea.plan`, and what is made of them; with `more`, other federations too."""
    from secea.commands.estimate import Machine

    where = Setting(Machine(), mbit, engine)
    found = {
        "params": asdict(params) | {"resolution": params.resolution},
        "form": form.name,
        "options": asdict(form),  # type: ignore[call-overload]  # every form is a dataclass
        "mbit": mbit,
        **costs(params, form, where),
        "unprotected_round_bytes": 2 * params.N * (params.max_entities or 0) * params.dim * FLOAT_BYTES,
        "accuracy": form.disclosure(params).accuracy,
        "options_cost": list(options(params, form, where)),
        **(others(params, form, where) if more else {}),
        "cores": where.machine.cores,
    }
    verdict = fits.judged(found, limits or fits.Limits(), lambda: fits.changes(params, form, where))
    return {"verdict": verdict, **found}


# ------------------------------------------------------------------------------------------------------------- showing

_ABOUT_ONE_PROCESS: Final = "In one process clients share the cores, and the server works alone."
_ABOUT_ENGINES: Final = (
    "What the engine adds was measured on two cores of an AMD EPYC (docs/deploy.md), and is no sample of this machine."
)


def _show(found: dict[str, Any], console: Console, *, more: bool) -> None:
    from rich.table import Table as Grid

    params, verdict = found["params"], found["verdict"]
    console.print(
        verdict["sentence"], style="bold" if verdict["fits"] else "bold red", soft_wrap=not console.is_terminal
    )
    for line in verdict["instead"]:
        console.print(line, soft_wrap=not console.is_terminal)
    console.print(
        f"{params['clients']} clients, {params['max_union']:,} entities, {params['max_entities']:,} each at most,"
        f" dim {params['dim']}; T={params['collusion']}, drop-outs"
        f" {params['dropouts']}; form {found['form']}{_named(found['options_cost'])}",
        soft_wrap=not console.is_terminal,
    )  # fmt: skip
    for i, line in enumerate(found["trust"]):
        console.print(f"{'' if i else 'trust':<10} {line}", soft_wrap=not console.is_terminal)
    grid = Grid(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("", "", "sends", "gets", "CPU", "network"):
        grid.add_column(column, justify="right" if column else "left")
    for phase, title in (("setup", "set-up"), ("round", "a round")):
        for party in ("client", "server"):
            cost = found["phases"][phase][party]
            spent = (duration(cost["cpu_seconds"]), duration(cost["network_seconds"]))
            name = "each client" if party == "client" else "the server"
            grid.add_row(title, name, size(cost["sent"]), size(cost["received"]), *spent)
            title = ""
    console.print(grid)
    for line in (*_lines(found), *(_coded(found) if more else ())):
        console.print(line, soft_wrap=not console.is_terminal)
    if found["options_cost"]:
        console.print("\nWhat the options cost", style="bold")
        console.print(_options_table(found["options_cost"]))
    if more:
        console.print("\nOther choices", style="bold")
        console.print(_table(found["choices"], found["params"]))
    if more and (far := found["projection"]):
        each = f"{far['per_client']:,} each"
        grown = f"{far['clients']} clients, {far['entities']:,} entities, {each}"
        console.print(f"\nThe same shares in a large federation: {grown}", style="bold")
        console.print(_table([far], None))
    console.print(
        "\nBytes are exact. Times are estimates: what samples of each kind of work took on this machine now, times how"
        " often they come. Elapsed time is one client's CPU, the server's, and its network of"
        f" {found['mbit']:g} Mbit/s. {_ABOUT_ENGINES if found['engine'] else _ABOUT_ONE_PROCESS}",
        style="dim", soft_wrap=not console.is_terminal,
    )  # fmt: skip


def _lines(found: dict[str, Any]) -> Iterator[str]:
    params, phases = found["params"], found["phases"]
    yield (
        f"elapsed    set-up {duration(phases['setup']['seconds'])}, a round {duration(phases['round']['seconds'])};"
        f" all hops: set-up {size(found['setup_bytes'])}, a round {size(found['round_bytes'])}"
    )
    yield from _on_an_engine(found) if found["engine"] else _in_one_process(found)
    for i, line in enumerate(found["accuracy"]):
        yield f"{'' if i else 'precision':<10} {line}"
    yield (
        f"security   {found['sigma']} bits over all {params['rounds']:,} rounds, {found['sigma_prime']} for each number"
        " that noise hides"
    )


def _together(found: dict[str, Any], where: str) -> str:
    setup, each = (found["phases"][phase][where] for phase in ("setup", "round"))
    return (
        f"{found['cores']} {'core' if found['cores'] == 1 else 'cores'}: set-up {duration(setup['seconds'])} (CPU"
        f" {duration(setup['cpu_seconds'])}), a round {duration(each['seconds'])} (CPU {duration(each['cpu_seconds'])})"
    )


def _in_one_process(found: dict[str, Any]) -> Iterator[str]:
    memory = found["memory"]
    yield f"together   all in one process, on {_together(found, 'one_process')}"
    yield (
        f"memory     each client {size(memory['client'])} ({size(memory['client_keeps'])} of it between rounds), the"
        f" server {size(memory['server'])}; all in one process {size(memory['one_process'])}"
    )


def _on_an_engine(found: dict[str, Any]) -> Iterator[str]:
    """The processes of each party, and what they would take on one machine, as in a rehearsal."""
    memory, engine = found["memory"], found["engine"]
    waits, stages = engine["wait_seconds"], engine["stages"]
    yield (
        f"engine     {TITLES[engine['name']]}: {duration(engine['start_seconds'])} from the submission to the first of"
        f" {stages['setup']} stages of a set-up; a round has {stages['round']}. Of the elapsed time"
        f" {duration(waits['setup'])} and {duration(waits['round'])} are waiting for the engine"
    )
    for i, (party, name) in enumerate((("client", "each client"), ("server", "the server"))):
        parts = ", ".join(f"{process} {size(count)}" for process, count in engine["memory"][party].items())
        yield f"{'' if i else 'memory':<10} {name} {size(memory[party])}: {parts}"
    yield (
        f"together   all on one machine, on {_together(found, 'one_machine')}, and {size(memory['one_machine'])} of"
        " memory"
    )


def _coded(found: dict[str, Any]) -> Iterator[str]:
    """How numbers travel, and what they would cost without protection."""
    primes = f"{found['primes']} {'prime' if found['primes'] == 1 else 'primes'}"
    if numbers := found["numbers"]:
        yield (
            f"numbers    in steps of 2^-{numbers['f']}, modulo {primes}. Random low digits"
            f" ({numbers['s']} x {numbers['w']:,} steps) and noise (up to {numbers['wide']:,} steps) keep a mean from"
            f" showing how many owners it has; {numbers['checks']} check"
            f" {'column shows' if numbers['checks'] == 1 else 'columns show'} a mean that the server changed"
        )
    else:
        yield f"numbers    modulo {primes}"
    yield (
        f"compare    the same rows without protection, as float32, up and down:"
        f" {size(found['unprotected_round_bytes'])} a round"
    )


def _named(rows: list[dict[str, Any]]) -> str:
    """The options that were chosen."""
    used = rows[-1]["options"] if rows else {}
    return "".join(f", {name} {value}" for name, value in used.items())


def _options_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("", "client sends: a round", "elapsed: a round", "memory", ""):
        grid.add_column(column, justify="right" if column else "left")
    for row in rows:
        this = row is rows[-1]
        grid.add_row(
            ", ".join(f"{name}={value}" for name, value in row["options"].items()) or "none of them",
            size(row["client_sends_in_round"]), duration(row["round_seconds"]), size(row["client_memory"]),
            "chosen" if this else "", style="bold" if this else "",
        )  # fmt: skip
    return grid


def _table(rows: list[dict[str, Any]], chosen: dict[str, Any] | None) -> Any:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    named = {"collusion": "T", "dropouts": "drop-outs"}
    costs = ("client sends: set-up", "a round", "elapsed: set-up", "a round", "memory", "")
    for column in (*named.values(), *costs):
        grid.add_column(column, justify="right")
    for row in rows:
        this = chosen is not None and (row["collusion"], row["dropouts"]) == (chosen["collusion"], chosen["dropouts"])
        grid.add_row(
            *(str(row[name]) for name in named),
            size(row["client_sends_in_setup"]), size(row["client_sends_in_round"]),
            duration(row["setup_seconds"]), duration(row["round_seconds"]), size(row["client_memory"]),
            "chosen" if this else "", style="bold" if this else "",
        )  # fmt: skip
    return grid
