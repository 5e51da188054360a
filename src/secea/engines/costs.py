"""What an engine adds to a federation's cost: time for each stage, CPU and memory of its processes, and no bytes.

A model with few numbers for each engine, which `python -m bench.engine_costs` measured. docs/deploy.md compares what it
predicts with real runs. The times are those of one machine; memory hardly depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from secea.errors import ParamsError

if TYPE_CHECKING:
    from secea.forms.costs import Costs
    from secea.params import Params

EngineName: TypeAlias = Literal["nvflare", "flower"]
NAMES: Final[tuple[EngineName, ...]] = get_args(EngineName)
TITLES: Final = {"nvflare": "NVFlare", "flower": "Flower"}
PYTHON_BYTES: Final = 60_000_000
"""The memory of Python, numpy and this package."""

FLOWER_MESSAGE_BYTES: Final = 1 << 26
"""Of a reply in one message. Flower holds messages as a whole, and takes a second or two for each."""
NO_BOUND: Final = 1 << 62
HELD_BYTES: Final = 1 << 24
"""The most bytes in a part of an order or of a reply: `secea.party.form.HELD_BYTES`, without its imports."""


@dataclass(frozen=True)
class Process:
    """A kind of process, of which there is one at the server, or at each site."""

    name: str
    base: int
    """Bytes of a process through which next to nothing has gone."""
    copies: float
    """How many times it holds what is on its way, at the server of each client."""
    party: bool = False
    """Whether the party itself runs in it, so that it holds what the party holds, too."""


@dataclass(frozen=True)
class Side:
    """The processes of the server, or of a site."""

    stage: float
    """CPU seconds for a stage; at the server for each client in it."""
    byte: float
    """CPU seconds for each byte that comes or goes."""
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class Engine:
    """The numbers of one engine."""

    start: float
    """Seconds from the submission of a job to its first stage."""
    core: float
    """CPU seconds in which the core of a site starts, in the set-up."""
    wait: float
    """Seconds of a stage in which nothing works: somebody looks for news at intervals."""
    message: int
    """The most bytes of a client in one message. A message costs as much as a stage; a part of one costs nothing."""
    held: int
    """The most bytes of one client that are on their way at a time."""
    server: Side
    client: Side


ENGINES: Final[Mapping[str, Engine]] = {
    "nvflare": Engine(
        start=23.2,
        core=0.275,
        wait=0.091,
        message=NO_BOUND,
        held=3 * HELD_BYTES,
        server=Side(
            stage=0.0031,
            byte=2.19e-9,
            processes=(Process("job", 387_000_000, 2.57, party=True), Process("NVFlare's server", 129_000_000, 1.04)),
        ),
        client=Side(
            stage=0.0021,
            byte=1.67e-9,
            processes=(
                Process("core", PYTHON_BYTES, 0.54, party=True),
                Process("job", 396_000_000, 5.15),
                Process("NVFlare's client", 101_000_000, 0.0),
            ),
        ),
    ),
    "flower": Engine(
        start=10.8,
        core=0.306,
        wait=1.81,
        message=FLOWER_MESSAGE_BYTES,
        held=4 * HELD_BYTES,
        server=Side(
            stage=0.114,
            byte=5.05e-9,
            processes=(
                Process("ServerApp", 165_000_000, 0.84, party=True),
                Process("SuperLink", 172_000_000, 4.28),
                Process("SuperExec", 146_000_000, 0.0),
            ),
        ),
        client=Side(
            stage=1.22,
            byte=7.5e-9,
            processes=(
                Process("core", PYTHON_BYTES, 0.7, party=True),
                Process("ClientApp", 150_000_000, 5.99),
                Process("SuperNode", 167_000_000, 7.12),
                Process("SuperExec", 146_000_000, 0.0),
            ),
        ),
    ),
}
"""Measured by `python -m bench.engine_costs nvflare`, and `flower`, on two cores of an AMD EPYC."""


@dataclass(frozen=True)
class EngineCosts:
    """What an engine adds to a plan."""

    name: str
    start_seconds: float
    """From the submission of a job, or a run, to its first stage."""
    stages: Mapping[str, int]
    """Of the set-up and of a round."""
    wait_seconds: Mapping[str, float]
    """How much of the set-up and of a round is waiting for the engine."""
    cpu_seconds: Mapping[str, Mapping[str, float]]
    """What the processes of a client, and of the server, compute beside the protocol, in the set-up and in a round."""
    memory: Mapping[str, Mapping[str, int]]
    """Bytes of each process of a client, and of the server; the protocol's own are among them."""

    @property
    def total(self) -> dict[str, int]:
        """Bytes of all processes of a client, and of the server."""
        return {party: sum(each.values()) for party, each in self.memory.items()}


def engine_costs(name: str, params: Params, phases: Mapping[str, Costs], memory: Mapping[str, int]) -> EngineCosts:
    """What this engine adds to a federation with these messages in each phase, and this memory of its parties."""
    if name not in ENGINES:
        raise ParamsError(f"engine must be one of {', '.join(NAMES)}, got {name!r}")
    engine, clients = ENGINES[name], params.clients
    cpu: dict[str, dict[str, float]] = {}
    wait, passed = dict[str, float](), 0
    for phase, costs in phases.items():
        up, whole = costs.sent_by_clients / clients, costs.bytes.total()
        turns = costs.stages + up // engine.message
        wait[phase] = turns * engine.wait
        cpu[phase] = {
            "client": engine.core * (phase == "setup")
            + turns * engine.client.stage
            + whole / clients * engine.client.byte,
            "server": turns * clients * engine.server.stage + whole * engine.server.byte,
        }
        passed = max(passed, round(max(up, whole / clients - up)))
    stages = {phase: costs.stages for phase, costs in phases.items()}
    return EngineCosts(
        name, engine.start, stages, wait, cpu, _memory(engine, clients, min(passed, engine.held), memory)
    )


def _memory(engine: Engine, clients: int, held: int, memory: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Bytes of each process, if so many of each client are on their way."""
    return {
        party: {
            each.name: round(each.base + each.party * memory[party] + each.copies * held * served)
            for each in side.processes
        }
        for party, side, served in (("client", engine.client, 1), ("server", engine.server, clients))
    }
