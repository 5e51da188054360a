"""What a federation costs: bytes from the plan, times from this machine, and other choices beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from secea.engines.costs import PYTHON_BYTES
from secea.errors import ParamsError

if TYPE_CHECKING:
    from secea.commands.estimate import Machine
    from secea.engines.costs import EngineCosts, EngineName
    from secea.params import Params
    from secea.party.form import Form


@dataclass(frozen=True)
class Setting:
    """Where a federation runs."""

    machine: Machine
    """Whose samples count."""
    mbit: float
    """Megabits a second of each party's network."""
    engine: EngineName | None = None
    """What carries the messages; None: nothing is known about it."""


FAR: Final = {"clients": 50, "entities": 10_000_000}
"""A size that no single machine holds."""


def costs(params: Params, form: Form, where: Setting) -> dict[str, Any]:
    """Bytes, seconds and memory of one federation. With an engine, what it adds is among seconds and memory."""
    from secea.plan import plan as planned

    assert params.max_union is not None
    M, N, cores = params.max_union, params.N, where.machine.cores
    cost = planned(params, entities=M, form=form, engine=where.engine)
    seconds = where.machine.seconds(params, M, form)
    phases: dict[str, Any] = {}
    for phase, whole in (("setup", cost.setup_bytes), ("round", cost.round_bytes)):
        up, down = cost.sent_by_clients[phase], whole - cost.sent_by_clients[phase]
        sizes = {"client": (up // N, down // N), "server": (down, up)}
        own = cost.engine.cpu_seconds[phase] if cost.engine else {}
        wait = cost.engine.wait_seconds[phase] if cost.engine else 0.0
        phases[phase] = {
            party: {
                "sent": sent, "received": received, "cpu_seconds": seconds[phase][party] + own.get(party, 0.0),
                "network_seconds": (sent + received) * 8 / where.mbit / 1e6,
            }
            for party, (sent, received) in sizes.items()
        }  # fmt: skip
        client, server = phases[phase]["client"], phases[phase]["server"]
        phases[phase]["seconds"] = wait + client["cpu_seconds"] + server["cpu_seconds"] + server["network_seconds"]
        clients = N * seconds[phase]["client"]
        phases[phase]["one_process"] = {
            "cpu_seconds": clients + seconds[phase]["server"],
            "seconds": clients / min(N, cores) + seconds[phase]["server"],
        }
        if cost.engine:
            spent = N * client["cpu_seconds"] + server["cpu_seconds"]
            phases[phase]["one_machine"] = {"cpu_seconds": spent, "seconds": wait + spent / min(N + 1, cores)}
    return asdict(cost) | {"phases": phases, "memory": _memory(params, form, cost.engine)}


def _memory(params: Params, form: Form, engine: EngineCosts | None) -> dict[str, int]:
    """Bytes. A party of a deployment holds what it keeps, and the messages of a phase; rows in the making are small.

    With an engine it is that of all processes of a party. In one process messages are passed on a few at a time: what
    counts is what clients keep, sums, rows and means.
    """
    assert params.max_union is not None
    held = form.memory(params, params.max_union)
    found = {"client_keeps": held["kept"], "client": held["client"], "server": held["server"]}
    if engine:
        found |= engine.total
        found["one_machine"] = params.N * found["client"] + found["server"]
    return found | {"one_process": held["together"] + PYTHON_BYTES}


def others(params: Params, form: Form, where: Setting) -> dict[str, Any]:
    """Other choices of T and drop-outs, and a federation of a size that no machine holds."""
    return {
        "choices": [row for each in choices(params, form) if (row := brief(each, form, where))],
        "projection": projection(params, form, where),
    }


def choices(params: Params, form: Form) -> Iterator[Params]:
    """Other values of T and of drop-outs around the chosen ones."""
    for dropouts in sorted({0, 1, params.dropouts}):
        with suppress(ParamsError):  # skip values that are too large for so few clients
            most = form.checked(replace(params, collusion=None, dropouts=dropouts)).T
            own = {params.T} if dropouts == params.dropouts else {min(params.T, most)}
            for collusion in sorted({1, most} | own):
                yield replace(params, collusion=collusion, dropouts=dropouts)


def options(params: Params, form: Form, where: Setting) -> Iterator[dict[str, Any]]:
    """What minimum owners, weights and so on cost: without any, with each alone, with all. Nothing if none is used."""
    used = {name: getattr(params, name) for name in params.options}
    defaults: dict[str, Any] = {each.name: each.default for each in fields(params) if each.name in used}
    plain = replace(params, **defaults)
    alone = [{name: value} for name, value in used.items()] if len(used) > 1 else []
    for some in [{}, *alone, used] if used else []:
        if row := brief(replace(plain, **some), form, where):
            yield {"options": some} | row


def brief(params: Params, form: Form, where: Setting) -> dict[str, Any] | None:
    """One line of a table; None where precision and security leave no room for it."""
    try:
        cost = costs(params, form, where)
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


def projection(params: Params, form: Form, where: Setting) -> dict[str, Any] | None:
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
    return brief(far, form, where)
