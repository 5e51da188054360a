"""Time, bytes and memory of a federation on an engine, over the same federation in one process.

    python bench/engines_flower.py [--entities 2000] [--dim 32] [--rounds 2]

The engine runs as real processes on loopback, as in its tests. Bytes on the engine are those of the loopback device, so
they count every leg of the way (ServerApp, SuperLink, SuperNode, ClientApp), TLS and HTTP included.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secea import Federation, Identity, Params, Roster, Session
from secea.engines.files import write_identity, write_session
from secea.engines.host import Participant

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "engines"))

N = 5


def names_of(client: int, entities: int) -> list[str]:
    """Half of all entities, another half for each client."""
    chosen = np.random.default_rng([client, entities]).choice(entities, entities // 2, replace=False)
    return [f"entity {i}" for i in chosen]


def table_of(client: int, round: int, names: list[str], dim: int) -> dict[str, NDArray[np.float64]]:
    values = np.random.default_rng([client, round]).uniform(-60, 60, (len(names), dim))
    return dict(zip(names, values, strict=True))


def participant(client: int, entities: int, dim: int) -> Participant:
    """A client of the benchmark, as its site's file names it."""
    names = names_of(client, entities)
    return Participant(lambda: names, lambda _, number: table_of(client, number, names, dim))


def params_of(entities: int, dim: int) -> Params:
    return Params(N, dim=dim, dropouts=1, max_entities=entities // 2, max_union=entities)


def in_process(entities: int, dim: int, rounds: int) -> dict[str, float]:
    """Seconds of set-up and of one round, and the bytes of both."""
    names = [names_of(n, entities) for n in range(N)]
    federation, start = Federation(params_of(entities, dim)), time.perf_counter()
    federation.setup(names)
    setup, sent = time.perf_counter() - start, sum(hop.size for hop in federation.traffic)
    start = time.perf_counter()
    for number in range(1, rounds + 1):
        federation.round([table_of(n, number, names[n], dim) for n in range(N)])
    seconds = (time.perf_counter() - start) / rounds
    total = sum(hop.size for hop in federation.traffic)
    return {"setup": setup, "round": seconds, "setup bytes": sent, "round bytes": (total - sent) / rounds}


def loopback_bytes() -> int:
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


class Memory(threading.Thread):
    """The most memory that each kind of process has had, in bytes. `family` gives the children of a process."""

    def __init__(self, processes: list[int], family: Callable[[int], list[int]]) -> None:
        super().__init__(daemon=True)
        self.processes, self.family = processes, family
        self.peak, self.over = dict[str, int](), threading.Event()

    def run(self) -> None:
        """Look three times a second."""
        while not self.over.wait(0.3):
            for pid in (each for first in self.processes for each in (first, *self.family(first))):
                with suppress(OSError):  # it has ended
                    self._look(Path(f"/proc/{pid}"))

    def _look(self, process: Path) -> None:
        words = [Path(word).name for word in (process / "cmdline").read_text().split("\0")]
        kind = next((word for word in words if word.startswith(("flower-", "flwr-"))), "")
        for line in (process / "status").read_text().splitlines():
            if line.startswith("VmHWM") and kind:
                self.peak[kind] = max(self.peak.get(kind, 0), int(line.split()[1]) * 1024)


def on_flower(entities: int, dim: int, rounds: int) -> dict[str, float]:
    """The same on Flower; and memory by kind of process, and the bytes that a client sends in its largest stage."""
    from flower_loopback import Deployment, family  # of the tests

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        sites = describe(folder, entities, dim)
        with Deployment(folder, sites[-1], sites[:-1]) as deployment:
            memory = Memory([process.pid for process in deployment.processes.values()], family)
            memory.start()
            before = loopback_bytes()
            run = deployment.start(rounds=rounds)
            status = deployment.finish(run, 3600)
            memory.over.set()
            assert status == "finished:completed", deployment.log(run)
            lines = [json.loads(line) for line in (folder / "server" / "audit.jsonl").read_text().splitlines()]
            total = loopback_bytes() - before
    ends = [line["time"] for line in lines if line["event"] == "round"]
    hellos = min(line["time"] for line in lines)
    shares = [line["time"] for line in lines if line.get("kind") == "reshare"]
    stages = [
        line for line in lines if line.get("kind") == "share" and line["round"] == 1 and line["from"] == "client 0"
    ]
    figures = {"setup": max(shares) - hellos, "round": (ends[-1] - max(shares)) / rounds, "all bytes": float(total)}
    figures["share stage bytes of a client"] = float(sum(line["bytes"] for line in stages))
    return figures | {f"peak memory of {kind}": float(peak) for kind, peak in sorted(memory.peak.items())}


def describe(folder: Path, entities: int, dim: int) -> list[Path]:
    """The files of all clients, and of the server."""
    identities = [Identity.generate() for _ in range(N + 1)]
    names = tuple(f"site-{n}" for n in range(N))
    roster = Roster(tuple(i.public for i in identities[:N]), identities[N].public, names)
    write_session(Session(params_of(entities, dim), roster), folder / "federation.json")
    common = 'federation = "../federation.json"\nidentity = "identity.pem"\nstate = "state"\nlog = "audit.jsonl"\n'
    sites = []
    for n, name in enumerate((*names, "server")):
        (folder / name).mkdir()
        write_identity(identities[n], folder / name / "identity.pem")
        text = common
        if n < N:
            (folder / name / "engines.py").symlink_to(__file__)
            text += f'name = "{name}"\nparticipant = "engines:participant"\n'
            text += f"[arguments]\nclient = {n}\nentities = {entities}\ndim = {dim}\n"
        sites.append(folder / name / "site.toml")
        sites[-1].write_text(text)
    return sites


def main() -> None:
    """Print both, and how many times more the engine takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["flower"])
    parser.add_argument("--entities", type=int, default=2000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    size = (given.entities, given.dim, given.rounds)
    alone, engine = in_process(*size), on_flower(*size)
    print(f"{N} clients, {given.entities} entities of {given.dim} numbers, {given.rounds} rounds")
    for what in ("setup", "round"):
        ratio = engine[what] / alone[what]
        print(f"{what}: {alone[what]:.2f} s in process, {engine[what]:.1f} s on {given.engine}: {ratio:.0f} times")
    sent = alone["setup bytes"] + given.rounds * alone["round bytes"]
    ratio = engine["all bytes"] / sent
    print(f"bytes: {sent / 1e6:.1f} MB in process, {engine['all bytes'] / 1e6:.1f} MB over loopback: {ratio:.1f} times")
    for what, value in engine.items():
        if "memory" in what or "stage" in what:
            print(f"{what}: {value / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
