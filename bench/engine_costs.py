"""The numbers of `secea.engines.costs`: some federations run on an engine, and a model is fitted to what they used.

    python -m bench.engine_costs nvflare --json nvflare.json       measure, keep what was seen, and print the numbers
    python -m bench.engine_costs nvflare --read a.json b.json      print the numbers of what was seen before

A federation that was seen several times counts with the least that it took. What the parties themselves do is taken off
by the estimates of `secea plan`, which are made beside each federation. Beside what is seen here, the accepted run of
`python -m bench engines` with ten sites counts, in which nothing else used the machine: waiting is taken from it alone,
and CPU is scaled to it. Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from pprint import pformat
from typing import Any, Final

import numpy as np

from bench.engines import NAMES, Found, Stretch, measured
from bench.figures import Run
from bench.measure import ROOT
from bench.shapes import FB15K, Shape
from secea.commands.estimate import Machine
from secea.engines.costs import FLOWER_MESSAGE_BYTES, NO_BOUND, PYTHON_BYTES, Engine, Process, Side
from secea.forms import DEFAULT, form_of
from secea.forms.costs import Costs, round_costs, setup_costs
from secea.party.form import HELD_BYTES

SHAPES: Final = (
    Shape(clients=2, collusion=1, entities=400, own=270, dim=32),
    Shape(clients=6, collusion=1, entities=400, own=200, dim=32),
    Shape(clients=3, collusion=1, entities=40_000, own=24_000, dim=64),
    Shape(clients=8, collusion=1, entities=20_000, own=8_000, dim=64),
    Shape(clients=2, collusion=1, entities=200_000, own=120_000, dim=64),
)
ROUNDS: Final = 4
PARTS: Final = (1, 2, 3, 4, 6, 8)
"""How many parts of a client's messages may be on their way at a time."""
MESSAGE: Final = {"nvflare": NO_BOUND, "flower": FLOWER_MESSAGE_BYTES}
"""The most bytes in a message that costs as much as a stage."""
ROLES: Final = {
    "nvflare": {
        "server": {"job at the server": "job", "NVFlare's server": "NVFlare's server"},
        "client": {"cores of clients": "core", "jobs at clients": "job", "NVFlare's clients": "NVFlare's client"},
    },
    "flower": {
        "server": {"ServerApp": "ServerApp", "SuperLink": "SuperLink", "SuperExecs": "SuperExec"},
        "client": {
            "cores of clients": "core", "ClientApps": "ClientApp", "SuperNodes": "SuperNode", "SuperExecs": "SuperExec",
        },
    },
}  # fmt: skip
"""What `bench.engines` calls the processes of the server and of a client, the party's own first; and a plan."""
BOTH: Final = "SuperExecs"
"""A role that the server and each client have, and that takes next to nothing."""


@dataclass(frozen=True)
class Seen:
    """A federation on an engine, and what a plan without an engine says of it."""

    shape: Shape
    found: Found
    planned: Mapping[str, Mapping[str, float]]
    """CPU seconds by phase and party."""
    idle: bool = False
    """Whether nothing else used the machine."""

    @property
    def costs(self) -> dict[str, Costs]:
        """Its messages."""
        form = form_of(DEFAULT)
        params = form.checked(self.shape.params())
        entities = self.shape.entities
        return {"setup": setup_costs(form, params, entities), "round": round_costs(form, params, entities)}

    @property
    def memory(self) -> dict[str, int]:
        """What its parties hold."""
        form = form_of(DEFAULT)
        return form.memory(form.checked(self.shape.params()), self.shape.entities)

    def cpu(self, engine: str, phase: str, party: str) -> float:
        """Seconds of all processes of one client, or of the server."""
        stretches = self.found.stretches[:1] if phase == "setup" else self.found.rounds
        roles = [role for role in ROLES[engine][party] if role != BOTH or party == "client"]
        whole = statistics.mean(sum(each.cpu.get(role, 0.0) for role in roles) for each in stretches)
        return whole / (self.shape.clients if party == "client" else 1)


def planned(shape: Shape) -> Mapping[str, Mapping[str, float]]:
    """What a plan without an engine says."""
    form = form_of(DEFAULT)
    return Machine().seconds(form.checked(shape.params()), shape.entities, form)


def accepted(engine: str, shape: Shape = FB15K) -> Seen:
    """The accepted run of this shape."""
    run = Run.from_json(json.loads((ROOT / "bench" / "accepted.json").read_text(encoding="utf-8")))
    grids = run.sections["engines"].grids
    whole = grids["round"].rows[f"{NAMES[engine]}, {shape.clients} sites"]
    roles = grids[f"{engine}-{shape.clients}"].rows
    cpus = [
        {role: row[column].median for role, row in roles.items()}
        for column in ("CPU of start and set-up", "CPU of a round, all of them")
    ]
    to, back = (round(whole[column].median) for column in ("bytes to clients", "bytes from them"))
    setup = Stretch(whole["wall, set-up"].median, cpus[0], 0, 0, 0)
    each = Stretch(whole["wall"].median, cpus[1], to, back, 0)
    memory = {role: round(row["most memory of one"].median) for role, row in roles.items()}
    return Seen(shape, Found([setup, each], memory, math.inf), planned(shape), idle=True)


# --------------------------------------------------------------------------------------------------------- the fit


def least(values: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Numbers of which none is negative, and which give what is wanted with the least relative errors."""
    scale = 1 / np.maximum(np.array(wanted), 1e-9)
    rows, left = np.array(values) * scale[:, None], list(range(len(values[0])))
    while True:
        found = np.linalg.lstsq(rows[:, left], np.array(wanted) * scale, rcond=None)[0]
        if (found >= 0).all() or len(left) == 1:
            chosen = dict(zip(left, np.maximum(found, 0.0).tolist(), strict=True))
            return [chosen.get(i, 0.0) for i in range(len(values[0]))]
        left.pop(int(found.argmin()))


def turns(engine: str, costs: Costs, clients: int) -> float:
    """Stages, and messages beyond one for each."""
    return costs.stages + costs.sent_by_clients / clients // MESSAGE[engine]


def side(engine: str, party: str, cases: Sequence[Seen], held: int) -> Side:
    """The numbers of the server, or of a client."""
    values, wanted = [], []
    for each in cases:
        cost, clients = each.costs["round"], each.shape.clients
        served, shared = (1, clients) if party == "client" else (clients, 1)
        values.append([turns(engine, cost, clients) * served, cost.bytes.total() / shared])
        wanted.append(max(1e-3, each.cpu(engine, "round", party) - each.planned["round"][party]))
    lines = list(zip(cases, values, wanted, strict=True))
    seen = [line for line in lines if not line[0].idle] or lines
    stage, byte = least([each for _, each, _ in seen], [each for _, _, each in seen])
    slower = [(stage * turned + byte * passed) / took for case, (turned, passed), took in lines if case.idle]
    busy = statistics.median(slower or [1.0])  # CPU seconds are longer where others use the machine, too
    return Side(stage / busy, byte / busy, tuple(processes(engine, party, cases, held)))


def processes(engine: str, party: str, cases: Sequence[Seen], held: int) -> list[Process]:
    """Their memory, if no more than so much of a client is on its way."""
    found = []
    for role, name in ROLES[engine][party].items():
        own = role == next(iter(ROLES[engine][party]))
        some = [each for each in cases if role in each.found.memory]
        wanted = [each.found.memory[role] - own * each.memory[party] for each in some]
        values = [[1.0, way(each, held) * (each.shape.clients if party == "server" else 1)] for each in some]
        base, copies = least(values, wanted)
        found.append(Process(name, max(round(base), PYTHON_BYTES), copies if role != BOTH else 0.0, own))
    return found


def way(case: Seen, held: int) -> float:
    """Bytes of one client that are on their way."""
    most = 0.0
    for cost in case.costs.values():
        most = max(most, cost.sent_by_clients, cost.bytes.total() - cost.sent_by_clients)
    return min(most / case.shape.clients, held)


def off(engine: str, cases: Sequence[Seen], held: int) -> float:
    """How far off memory is with this bound."""
    errors = []
    for party in ("client", "server"):
        for role, each in zip(ROLES[engine][party], processes(engine, party, cases, held), strict=True):
            for case in (case for case in cases if role in case.found.memory):
                served = case.shape.clients if party == "server" else 1
                said = each.base + each.party * case.memory[party] + each.copies * way(case, held) * served
                errors.append((said / case.found.memory[role] - 1) ** 2)
    return sum(errors)


def fitted(engine: str, cases: Sequence[Seen]) -> Engine:
    """The numbers of an engine."""
    held = min((parts * HELD_BYTES for parts in PARTS), key=lambda held: off(engine, cases, held))
    cores, waits = os.cpu_count() or 1, []
    for each in cases:
        busy = (each.cpu(engine, "round", "client") * each.shape.clients + each.cpu(engine, "round", "server")) / cores
        wall = min(one.seconds for one in each.found.rounds)
        if each.idle:
            waits.append(max(0.0, wall - busy) / turns(engine, each.costs["round"], each.shape.clients))
    start = min(each.found.start for each in cases)
    core = min(each.found.stretches[0].cpu["cores of clients"] / each.shape.clients for each in cases)
    sides = [side(engine, party, cases, held) for party in ("server", "client")]
    return Engine(start, core, statistics.median(waits), MESSAGE[engine], held, *sides)


def best(cases: Sequence[Seen]) -> list[Seen]:
    """Of each shape the one whose rounds took the least CPU."""
    found: dict[Shape, Seen] = {}
    for each in cases:
        if each.shape not in found or _used(each) < _used(found[each.shape]):
            found[each.shape] = each
    return list(found.values())


def _used(case: Seen) -> float:
    return sum(sum(one.cpu.values()) for one in case.found.rounds)


# ------------------------------------------------------------------------------------------------------- the program


def read(path: Path) -> list[Seen]:
    """What was seen before."""
    found = []
    for each in json.loads(path.read_text(encoding="utf-8")):
        run = each["found"]
        stretches = [Stretch(**one) for one in run["stretches"]]
        found.append(Seen(Shape(**each["shape"]), Found(stretches, run["memory"], run["start"]), each["planned"]))
    return found


def main() -> None:
    """Measure, or read, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=list(ROLES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what is seen")
    parser.add_argument("--read", type=Path, nargs="+", default=[], metavar="FILE", help="what was seen before")
    args = parser.parse_args()
    cases: list[Any] = [each for path in args.read for each in read(path)]
    for shape in () if args.read else SHAPES:
        print(shape, file=sys.stderr)
        cases.append(Seen(shape, measured(args.engine, shape, ROUNDS), planned(shape)))
        if args.json:
            args.json.write_text(json.dumps([asdict(each) for each in cases], indent=1), encoding="utf-8")
    print(pformat(fitted(args.engine, [*best(cases), accepted(args.engine)]), width=120))


if __name__ == "__main__":
    main()
