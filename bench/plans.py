"""How well `secea plan` predicts: for each of some federations, estimates and real rounds take turns in one process.

    python -m bench plan                        without an engine
    python -m bench planned                     `secea plan --engine`, and real federations on NVFlare and Flower
    python -m bench planned --out runs/planned  the same, kept; --read runs/planned/bench.json --markdown docs/deploy.md

On an engine each federation runs several times, with all parties on this machine: the least time and most memory count.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, Final

from bench.engine_costs import ROLES, accepted
from bench.engines import NAMES, measured
from bench.figures import Figure, Grid, Section, ratios
from bench.hashed import hashed_names
from bench.measure import ROOT, Tick, timed
from bench.shapes import Scale, Shape
from secea import Federation
from secea.arithmetic.field import keep_freed_memory
from secea.commands.costs import Setting, costs
from secea.commands.estimate import Machine
from secea.engines.costs import NAMES as ENGINES
from secea.engines.costs import EngineName
from secea.errors import FederationError
from secea.forms import form_of

AIM: Final = Figure(1.0, 0.8, 1.2, "x")
"""Predicted over measured."""


def plan(scale: Scale, tick: Tick) -> Section:
    """CPU time of all parties, and wall time in one process: of a round, and of set-ups that are short enough."""
    rows: dict[str, dict[str, Figure]] = {}
    took: list[float] = []
    for shape, dropouts, named in scale.plans:
        tick(str(shape))
        found = _in_child(shape, dropouts, named, scale.plan_turns)
        took += found["estimate"]
        title = f"{shape}, D={dropouts}"
        rows[f"a round: {title}"] = _row(found["round"])
        if named:
            rows[f"a set-up: {title}"] = _row(found["setup"])
    about = f"predicted and measured; an estimate takes {Figure.of(took, 's')} of CPU"
    note = "Where only a round is shown, names got their keys by a hash: rounds do not depend on that."
    return Section(about, {"plan": Grid("What `secea plan` predicts, and what it is", rows)}, [note])


def _row(found: dict[str, dict[str, list[float]]]) -> dict[str, Figure]:
    predicted, measured = found["predicted"], found["measured"]
    count = min(len(predicted["cpu"]), len(measured["cpu"]))
    return {
        "CPU, predicted": Figure.of(predicted["cpu"], "s"),
        "CPU, measured": Figure.of(measured["cpu"], "s"),
        "predicted / measured": ratios(predicted["cpu"][:count], measured["cpu"][:count]),
        "aim": AIM,
        "wall, predicted": Figure.of(predicted["wall"], "s"),
        "wall, measured": Figure.of(measured["wall"], "s"),
    }


# ---------------------------------------------------------------------------------------------------- on an engine

ON_ENGINES: Final = Figure(1.0, 0.7, 1.5, "x")
"""Predicted over measured."""


def planned(scale: Scale, tick: Tick) -> Section:
    """Seconds of the set-up and of a round, and the memory of each process, on each engine."""
    seconds, memory = Grid("What `secea plan --engine` predicts, and what it is"), Grid("The memory of its processes")
    for engine, shape in scale.deployed:
        title = f"{NAMES[engine]}, {shape}"
        tick(title)
        runs = [measured(engine, shape, scale.deployed_rounds, hashed=False) for _ in range(scale.deployed_turns)]
        found = _told(engine, shape)
        phases = {phase: found["phases"][phase]["one_machine"] for phase in ("setup", "round")}
        rounds = [one for run in runs for one in run.rounds]
        least = min(sum(one.cpu.values()) for one in rounds)
        seconds.rows[f"{title}: start"] = _beside(
            "wall", found["engine"]["start_seconds"], min(run.start for run in runs), "s"
        )
        seconds.rows[f"{title}: set-up"] = _beside(
            "wall", phases["setup"]["seconds"], min(run.stretches[0].seconds for run in runs), "s"
        )
        seconds.rows[f"{title}: a round"] = _beside(
            "wall", phases["round"]["seconds"], min(one.seconds for one in rounds), "s"
        ) | _beside("CPU", phases["round"]["cpu_seconds"], least, "s")
        most = {role: max(run.memory[role] for run in runs) for role in runs[0].memory}
        _processes(memory, title, engine, found, most)
    about = f"predicted, and the least time and most memory of {scale.deployed_turns} runs; all parties on one machine"
    return Section(about, {**before(scale), "seconds": seconds, "memory": memory})


def before(scale: Scale) -> dict[str, Grid]:
    """The same beside the accepted run of `python -m bench engines` with few sites, which had the machine to itself."""
    rounds = Grid("What `secea plan --engine` predicts of a round, and what it was on an idle machine")
    memory = Grid("The memory of its processes there")
    for engine in ENGINES:
        case = accepted(engine, scale.peers.but(clients=min(Scale().engine_sites)))
        found, (one, *_) = _told(engine, case.shape), case.found.rounds
        each, cpu = found["phases"]["round"]["one_machine"], sum(one.cpu.values())
        title = f"{NAMES[engine]}, {case.shape}"
        wall = _beside("wall", each["seconds"], one.seconds, "s")
        rounds.rows[title] = wall | _beside("CPU", each["cpu_seconds"], cpu, "s")
        _processes(memory, title, engine, found, case.found.memory)
    return {"idle": rounds, "idle-memory": memory}


def _processes(grid: Grid, title: str, engine: EngineName, found: dict[str, Any], most: dict[str, int]) -> None:
    """A row for each process whose memory was seen."""
    for party, name in (("server", "the server's"), ("client", "a site's")):
        for role, process in ROLES[engine][party].items():
            if role in most:
                predicted = found["engine"]["memory"][party][process]
                grid.rows[f"{title}: {name} {process}"] = _beside("memory", predicted, most[role], "B")


def _told(engine: EngineName, shape: Shape) -> dict[str, Any]:
    """What a plan says."""
    form = form_of("keyed")
    return costs(form.checked(shape.params()), form, Setting(Machine(), 1000.0, engine))


def _beside(what: str, predicted: float, real: float, unit: str) -> dict[str, Figure]:
    return {
        f"{what}, predicted": Figure.of(predicted, unit),
        f"{what}, measured": Figure.of(real, unit),
        f"{what}: predicted / measured": Figure.of(predicted / real, "x"),
        "aim": ON_ENGINES,
    }


# ------------------------------------------------------------------------------------------------- in one process


def turns(shape: Shape, dropouts: int, named: bool, turns: int) -> dict[str, Any]:
    """Estimates and rounds in turns, in this process."""
    keep_freed_memory()  # as in the processes that an engine starts
    form = form_of("keyed")
    params = form.checked(shape.params(dropouts=dropouts))
    estimated: dict[str, dict[str, list[float]]] = {phase: {"cpu": [], "wall": []} for phase in ("setup", "round")}
    took: list[float] = []

    def estimate() -> None:
        machine = Machine()
        seconds, spent = timed(lambda: machine.seconds(params, shape.entities, form))
        took.append(spent.cpu)
        for phase, each in seconds.items():
            clients = shape.clients * each["client"]
            estimated[phase]["cpu"].append(clients + each["server"])
            estimated[phase]["wall"].append(clients / min(machine.cores, shape.clients) + each["server"])

    tables, fed = shape.tables(), Federation(params, form)
    estimate()
    with nullcontext() if named else hashed_names():
        _, setup = timed(lambda: fed.setup([table.names for table in tables]))
    fed.round(tables)  # the first touches its memory for the first time
    rounds = []
    for _ in range(turns):
        estimate()
        few = [timed(lambda: fed.round(tables))[1] for _ in range(2)]
        rounds.append({name: statistics.mean(getattr(each, name) for each in few) for name in ("cpu", "wall")})
    for each in estimated["round"].values():
        del each[0]  # it has no round beside it
    measured = {
        "setup": {"cpu": [setup.cpu], "wall": [setup.wall]},
        "round": {name: [each[name] for each in rounds] for name in ("cpu", "wall")},
    }
    phases = {phase: {"predicted": estimated[phase], "measured": measured[phase]} for phase in ("setup", "round")}
    return phases | {"estimate": took}


def _in_child(shape: Shape, dropouts: int, named: bool, turns: int) -> dict[str, Any]:
    task = json.dumps({"shape": asdict(shape), "dropouts": dropouts, "named": named, "turns": turns})
    command = [sys.executable, "-m", "bench.plans", task]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # our own module
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise FederationError(f"{shape}: {last}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    json.dump(turns(Shape(**given.pop("shape")), **given), sys.stdout)
