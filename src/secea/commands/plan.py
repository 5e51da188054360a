"""`secea plan`: what a federation would cost, and what other choices would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from secea.commands import shell
from secea.errors import ParamsError

if TYPE_CHECKING:
    from rich.console import Console

    from secea.commands.estimate import Machine
    from secea.params import Params
    from secea.party.form import Form

FAR: Final = {"clients": 50, "entities": 10_000_000}
"""A size that no single machine holds."""
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
    "--mbit", metavar="X", default=1000.0, show_default=True, type=click.FloatRange(min=0, min_open=True),
    help="Megabits a second that each party's network carries, both ways together.",
)  # fmt: skip
@shell.json_option
@click.pass_context
def plan(
    ctx: click.Context, /, policy: Path | None, html: Path | None, clip: float | None, delta: float, mbit: float,
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """What a federation would cost, and whom its clients have to trust, before anybody sets it up.

    Bytes are exact: those that `secea.plan` gives, headers and seals included. Times are estimates: samples of what
    the parties do are timed on this machine, for a second or two, and the plan counts how often each of them comes.
    docs/cli.md has the comparison with real runs.

    With --policy: what a federation file means, in plain words. Who takes part, who learns what under which assumption,
    what its options change, how exact means are, what it costs, and the fingerprint to compare and sign.

    \b
    Examples:
      secea plan --clients 10 --entities 14541 --per-client 8600 --dim 128
      secea plan --clients 5 --entities 1000000 --per-client 200000 --dim 64 --dropouts 1 --mbit 100
      secea plan --clients 5 --entities 1000 --dim 32 --min-owners 3 --json
      secea plan --policy federation.toml                         who learns what, on one page
      secea plan --policy federation.toml --html policy.html      the same to print and sign
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    if policy is not None:
        if also := [name for name in given if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]:
            raise click.UsageError(f"--policy says it all: leave out --{also[0].replace('_', '-')}")
        _policy(policy, html, mbit, as_json, None if clip is None else (clip, delta))
        return
    if html is not None or clip is not None:
        name = "--clip" if html is None else "--html"
        raise click.UsageError(f"{name} needs --policy: the page is about a federation file")
    for name in ("clients", "entities", "dim"):
        if given[name] is None:
            raise click.UsageError(f"--{name} is missing; or give a federation file with --policy")
    result = _planned(mbit, **given)
    if as_json:
        shell.echo_json(result)
    else:
        _show(result, shell.console())


def _planned(
    mbit: float, *, entities: int, per_client: int | None, form: str, queries: str | None, decimals: int | None,
    **params: Any,
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
        found = report(settings, chosen, mbit)
    if decimals is not None:
        from secea.accuracy import with_decimals

        bound = with_decimals(settings, decimals, chosen)
        more = bound - settings.resolution
        digits = f"Numbers with {decimals} decimal{'s' * (decimals != 1)}"
        line = f"{digits}: off by up to {more:.1e} more; all digits avoid that." if more else f"{digits} are as exact."
        found |= {"accuracy": (*found["accuracy"], line), "decimals": decimals, "bound": bound}
    return found


def _policy(path: Path, html: Path | None, mbit: float, as_json: bool, clip: tuple[float, float] | None) -> None:
    """Say what a federation file means."""
    from secea.commands import policy
    from secea.engines.files import read_session

    session = read_session(path)
    with shell.working("measuring this machine"):
        found = report(session.params, session.form, mbit)
    told = policy.chapters(session, found, path, clip)
    if html is not None:
        policy.write(session, told, html)
    if as_json:
        shell.echo_json(policy.as_json(session, found, told) | ({"html": str(html)} if html else {}))
    elif html is not None:
        click.echo(f"wrote {html}")
    else:
        policy.show(session, told, shell.console())


def report(params: Params, form: Form, mbit: float) -> dict[str, Any]:
    """Everything: the fields of `secea.plan`, and what is made of them."""
    from secea.commands.estimate import Machine

    machine = Machine()
    found = _costs(params, form, machine, mbit)
    return {
        "params": asdict(params) | {"resolution": params.resolution},
        "form": form.name,
        "options": asdict(form),  # type: ignore[call-overload]  # every form is a dataclass
        "mbit": mbit,
        **found,
        "unprotected_round_bytes": 2 * params.N * (params.max_entities or 0) * params.dim * FLOAT_BYTES,
        "accuracy": form.disclosure(params).accuracy,
        "options_cost": list(_options(params, form, machine, mbit)),
        "choices": [row for each in _choices(params, form) if (row := _brief(each, form, machine, mbit))],
        "projection": _projection(params, form, machine, mbit),
        "cores": machine.cores,
    }


def _costs(params: Params, form: Form, machine: Machine, mbit: float) -> dict[str, Any]:
    """Bytes, seconds and memory of one federation."""
    from secea.plan import plan as planned

    assert params.max_union is not None
    M, N = params.max_union, params.N
    cost = planned(params, entities=M, form=form)
    seconds = machine.seconds(params, M, form)
    phases: dict[str, Any] = {}
    for phase, whole in (("setup", cost.setup_bytes), ("round", cost.round_bytes)):
        up, down = cost.sent_by_clients[phase], whole - cost.sent_by_clients[phase]
        parties = {"client": (up // N, down // N), "server": (down, up)}
        phases[phase] = {
            party: {
                "sent": sent, "received": received, "cpu_seconds": seconds[phase][party],
                "network_seconds": (sent + received) * 8 / mbit / 1e6,
            }
            for party, (sent, received) in parties.items()
        }  # fmt: skip
        client, server = phases[phase]["client"], phases[phase]["server"]
        phases[phase]["seconds"] = client["cpu_seconds"] + server["cpu_seconds"] + server["network_seconds"]
        clients = N * client["cpu_seconds"]
        phases[phase]["one_process"] = {
            "cpu_seconds": clients + server["cpu_seconds"],
            "seconds": clients / min(N, machine.cores) + server["cpu_seconds"],
        }
    return asdict(cost) | {"phases": phases, "memory": _memory(params, form)}


def _memory(params: Params, form: Form) -> dict[str, int]:
    """Bytes. A party of a deployment holds what it keeps, and the messages of a phase; rows in the making are small.

    In one process messages are passed on a few at a time: what counts is what clients keep, sums, rows and means.
    """
    assert params.max_union is not None
    held = form.memory(params, params.max_union)
    one = held["together"] + BASE_BYTES
    return {"client_keeps": held["kept"], "client": held["client"], "server": held["server"], "one_process": one}


BASE_BYTES: Final = 60_000_000
"""The memory of Python, numpy and this package."""


def _choices(params: Params, form: Form) -> Iterator[Params]:
    """Other values of T and of drop-outs around the chosen ones."""
    for dropouts in sorted({0, 1, params.dropouts}):
        with suppress(ParamsError):  # skip values that are too large for so few clients
            most = form.checked(replace(params, collusion=None, dropouts=dropouts)).T
            own = {params.T} if dropouts == params.dropouts else {min(params.T, most)}
            for collusion in sorted({1, most} | own):
                yield replace(params, collusion=collusion, dropouts=dropouts)


def _options(params: Params, form: Form, machine: Machine, mbit: float) -> Iterator[dict[str, Any]]:
    """What minimum owners, weights and so on cost: without any, with each alone, with all. Nothing if none is used."""
    used = {name: getattr(params, name) for name in params.options}
    defaults: dict[str, Any] = {each.name: each.default for each in fields(params) if each.name in used}
    plain = replace(params, **defaults)
    alone = [{name: value} for name, value in used.items()] if len(used) > 1 else []
    for some in [{}, *alone, used] if used else []:
        if row := _brief(replace(plain, **some), form, machine, mbit):
            yield {"options": some} | row


def _brief(params: Params, form: Form, machine: Machine, mbit: float) -> dict[str, Any] | None:
    """One line of a table; None where precision and security leave no room for it."""
    try:
        cost = _costs(params, form, machine, mbit)
    except ParamsError:
        return None
    return {
        "clients": params.N, "entities": params.max_union, "per_client": params.max_entities,
        "collusion": params.T, "dropouts": params.dropouts, "primes": cost["primes"],
        "setup_bytes": cost["setup_bytes"], "round_bytes": cost["round_bytes"],
        "client_sends_in_setup": cost["phases"]["setup"]["client"]["sent"],
        "client_sends_in_round": cost["phases"]["round"]["client"]["sent"],
        "setup_seconds": cost["phases"]["setup"]["seconds"], "round_seconds": cost["phases"]["round"]["seconds"],
        "client_memory": cost["memory"]["client"],
    }  # fmt: skip


def _projection(params: Params, form: Form, machine: Machine, mbit: float) -> dict[str, Any] | None:
    """The same share of entities, of colluders and of drop-outs, in a federation that is large."""
    assert params.max_entities is not None
    assert params.max_union is not None
    clients, entities = FAR["clients"], FAR["entities"]
    own = max(-(-entities // clients), entities * params.max_entities // params.max_union)
    collusion = clients - 1 if params.T == params.N - 1 else max(1, params.T * clients // params.N)
    try:
        far = replace(
            params, clients=clients, max_union=entities, max_entities=own,
            collusion=collusion, dropouts=params.dropouts * clients // params.N,
        )  # fmt: skip
    except ParamsError:  # such weights need more precision with so many clients
        return None
    return _brief(far, form, machine, mbit)


# ------------------------------------------------------------------------------------------------------------- showing


def size(count: float) -> str:
    """Bytes, as people read them."""
    for unit, factor in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{0 if count >= 100 * factor else 1}f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds, as people read them: two digits, since it is an estimate."""
    for unit, factor in (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * factor:
            return f"{_two_digits(seconds / factor)} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _show(found: dict[str, Any], console: Console) -> None:
    from rich.table import Table as Grid

    params = found["params"]
    console.print(
        f"{params['clients']} clients, {params['max_union']:,} entities, {params['max_entities']:,} each at most,"
        f" dim {params['dim']}; T={params['collusion']}, drop-outs"
        f" {params['dropouts']}; form {found['form']}{_named(found['options_cost'])}",
        style="bold", soft_wrap=not console.is_terminal,
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
    for line in _lines(found):
        console.print(line, soft_wrap=not console.is_terminal)
    if found["options_cost"]:
        console.print("\nWhat the options cost", style="bold")
        console.print(_options_table(found["options_cost"]))
    console.print("\nOther choices", style="bold")
    console.print(_table(found["choices"], found["params"]))
    if far := found["projection"]:
        each = f"{far['per_client']:,} each"
        grown = f"{far['clients']} clients, {far['entities']:,} entities, {each}"
        console.print(f"\nThe same shares in a large federation: {grown}", style="bold")
        console.print(_table([far], None))
    console.print(
        "\nBytes are exact. Times are estimates: what samples of each kind of work took on this machine now, times how"
        " often they come. Elapsed time is one client's CPU, the server's, and its network of"
        f" {found['mbit']:g} Mbit/s. In one process clients share the cores, and the server works alone.",
        style="dim", soft_wrap=not console.is_terminal,
    )  # fmt: skip


def _lines(found: dict[str, Any]) -> Iterator[str]:
    params, memory, phases = found["params"], found["memory"], found["phases"]
    yield (
        f"elapsed    set-up {duration(phases['setup']['seconds'])}, a round {duration(phases['round']['seconds'])};"
        f" all hops: set-up {size(found['setup_bytes'])}, a round {size(found['round_bytes'])}"
    )
    setup, each = (phases[phase]["one_process"] for phase in ("setup", "round"))
    cores = f"{found['cores']} {'core' if found['cores'] == 1 else 'cores'}"
    yield (
        f"together   all in one process, on {cores}: set-up {duration(setup['seconds'])} (CPU"
        f" {duration(setup['cpu_seconds'])}), a round {duration(each['seconds'])} (CPU {duration(each['cpu_seconds'])})"
    )
    yield (
        f"memory     each client {size(memory['client'])} ({size(memory['client_keeps'])} of it between rounds), the"
        f" server {size(memory['server'])}; all in one process {size(memory['one_process'])}"
    )
    for i, line in enumerate(found["accuracy"]):
        yield f"{'' if i else 'precision':<10} {line}"
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
        f"security   {found['sigma']} bits over all {params['rounds']:,} rounds, {found['sigma_prime']} for each number"
        " that noise hides"
    )
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
