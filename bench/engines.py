"""What an engine adds to a federation: seconds, bytes on the wire, memory, against the same federation in one process.

    python bench/engines.py both                                             5 clients, a small union
    python bench/engines.py nvflare --clients 3 --entities 200000 --dim 64       large stages
    python bench/engines.py flower --json > flower.json                       for other programs

The deployments are those of the tests: servers and clients in processes of their own on the loopback interface, TLS.
Bytes are counted twice: what the federation gives to the engine and gets from it, and what passes over the loopback
device meanwhile: every leg of the way, with TLS and whatever else the engine says. Nothing else should use it. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table as Grid

from secea import Federation, Params, Table
from secea.engines.files import write_identity, write_session
from secea.engines.host import Participant
from secea.forms import DEFAULT, form_of
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "engines"))

console = Console(width=120)
ROLES: Final = {
    "nvflare": {
        "client_train": "client",
        "server_train": "server",
        "engines.core": "core of a client",
        "worker_process": "job at a client",
        "runner_process": "job at the server",
    },
    "flower": {
        "flwr-serverapp": "ServerApp",
        "flwr-clientapp": "ClientApp",
        "flower-supernode": "SuperNode",
        "flower-superlink": "SuperLink",
        "engines.lasting": "core of a client",
    },
}
"""What a process is, by a word in its command line."""


def table_of(number: int, entities: int, dim: int) -> Table:
    """Client n has two entities of every three."""
    names = [e for e in range(entities) if (e + number) % 3]
    return Table(names, np.random.default_rng(number).normal(size=(len(names), dim)))


def participant(number: int, entities: int, dim: int) -> Participant:
    """A site whose training takes no time."""
    table = table_of(number, entities, dim)
    return Participant(lambda: table.names, lambda _means, _round: table)


def params_of(clients: int, entities: int, dim: int) -> Params:
    return Params(clients, dim=dim, max_entities=-(-2 * entities // 3) + 1, max_union=entities)


def in_process(args: argparse.Namespace) -> list[float]:
    """Seconds of the set-up and of each round."""
    tables = [table_of(n, args.entities, args.dim) for n in range(args.clients)]
    fed = Federation(params_of(args.clients, args.entities, args.dim))
    times = [time.perf_counter()]
    fed.setup([table.names for table in tables])
    times.append(time.perf_counter())
    for _ in range(args.rounds):
        fed.round(tables)
        times.append(time.perf_counter())
    return [end - start for start, end in itertools.pairwise(times)]


def make_sites(folder: Path, args: argparse.Namespace) -> list[str]:
    """All that the parties keep; the names of the clients."""
    names = [f"site-{n + 1}" for n in range(args.clients)]
    identities = {name: Identity.generate() for name in (*names, "server")}
    roster = Roster(tuple(identities[n].public for n in names), identities["server"].public, tuple(names))
    session = Session(params_of(args.clients, args.entities, args.dim), roster, form_of(DEFAULT))
    for name, identity in identities.items():
        site = folder / name
        site.mkdir(parents=True)
        write_identity(identity, site / "identity.pem")
        write_session(session, site / "federation.json")
        shutil.copy(__file__, site / "site_of_benchmark.py")
        text = f'name = "{name}"\nfederation = "federation.json"\nidentity = "identity.pem"\nstate = "state"\n'
        if name == "server":
            text += 'log = "audit.jsonl"\n'
        else:
            text += f'participant = "site_of_benchmark:participant"\n[arguments]\nnumber = {names.index(name)}\n'
            text += f"entities = {args.entities}\ndim = {args.dim}\n"
        (site / "site.toml").write_text(text)
    return names


# ---------------------------------------------------------------------------------------------------------- watching


@dataclass(frozen=True)
class Stretch:
    """The set-up, or a round."""

    alone: float
    """Seconds in one process."""
    seconds: float
    to_clients: int
    """Bytes."""
    from_clients: int
    loopback: int
    """All bytes on the loopback device."""


def loopback_bytes() -> int:
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


class Watch(threading.Thread):
    """The most memory of each role, in bytes; and the bytes on the loopback device when the server notes progress."""

    def __init__(self, roles: Mapping[str, str], audit: Path) -> None:
        super().__init__(daemon=True)
        self._roles, self._audit, self._over = roles, audit, threading.Event()
        self.peaks: dict[str, int] = {}
        self.notes: list[dict[str, Any]] = []
        self.bytes, self._size = [loopback_bytes()], 0

    def run(self) -> None:
        """Look at the log all the time, and at memory five times a second."""
        for i in itertools.count():
            self._read()
            if i % 10 == 0:
                self._look()
            if self._over.wait(0.02):
                break

    def _look(self) -> None:
        lasting = (each for each in psutil.process_iter() if self._is_lasting(each))  # these are nobody's children
        for process in (*psutil.Process().children(recursive=True), *lasting):
            with contextlib.suppress(psutil.Error, OSError):
                command = " ".join(process.cmdline())
                role = next((role for word, role in self._roles.items() if word in command), None)
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
                if role:
                    self.peaks[role] = max(self.peaks.get(role, 0), peak)

    def _is_lasting(self, process: psutil.Process) -> bool:
        """Whether it is the core of a client of these sites, which outlives whoever started it."""
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            return "secea.engines.lasting" in command and str(self._audit.parents[1]) in " ".join(command)
        return False

    def _read(self) -> None:
        if self._audit.exists() and self._size != (size := self._audit.stat().st_size):
            self._size, now = size, loopback_bytes()
            text = self._audit.read_text().rpartition("\n")[0]
            self.notes = [note for note in map(json.loads, text.splitlines()) if note["event"] == "progress"]
            self.bytes += [now] * (len(self.notes) + 1 - len(self.bytes))

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """While this lasts."""
        self.bytes = [loopback_bytes()]
        self.start()
        try:
            yield
        finally:
            self._over.set()
            self.join()
            self._read()


def measured(engine: str, args: argparse.Namespace, alone: list[float]) -> tuple[list[Stretch], dict[str, int]]:
    """Set-up and rounds on an engine, and the memory of its processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = make_sites(folder / "sites", args)
        watch = Watch(ROLES[engine], folder / "sites" / "server" / "audit.jsonl")
        (on_nvflare if engine == "nvflare" else on_flower)(folder, names, args.rounds, watch)
    stretches, sent, received = [], 0, 0
    for seconds, note, (before, after) in zip(alone, watch.notes, itertools.pairwise(watch.bytes), strict=True):
        to, back = note["sent"] - sent, note["received"] - received
        stretches.append(Stretch(seconds, note["seconds"], to, back, after - before))
        sent, received = note["sent"], note["received"]
    return stretches, watch.peaks


def on_nvflare(folder: Path, names: list[str], rounds: int, watch: Watch) -> None:
    from nvflare_deployment import Deployment
    from secea.engines.nvflare import recipe

    with Deployment(folder, names).running() as deployment:
        deployment.use(folder / "sites")
        with watch.on(), contextlib.redirect_stdout(sys.stderr):  # NVFlare prints while it waits
            status = deployment.status(recipe(rounds, clients=len(names)).execute(deployment.env), 3600)
    assert status == "FINISHED:COMPLETED", status


def on_flower(folder: Path, names: list[str], rounds: int, watch: Watch) -> None:
    from flower_loopback import Deployment

    files = [folder / "sites" / name / "site.toml" for name in ("server", *names)]
    with Deployment(folder, files[0], files[1:]) as deployment, watch.on():
        run = deployment.start(rounds=rounds)
        status = deployment.finish(run, 3600)
        assert status == "finished:completed", deployment.log(run)


# --------------------------------------------------------------------------------------------------------- reporting


def show(engine: str, stretches: list[Stretch], peaks: dict[str, int], clients: int) -> None:
    console.rule(engine, align="left")
    grid = Grid(
        "", "one process, s", f"{engine}, s", "added, s", "MB to clients", "MB from them", "MB, loopback", box=None
    )
    for i, each in enumerate(stretches):
        figures: tuple[float, ...] = (each.alone, each.seconds, each.seconds - each.alone)
        figures += tuple(size / 1e6 for size in (each.to_clients, each.from_clients, each.loopback))
        grid.add_row(f"round {i}" if i else "set-up", *(f"{figure:.2f}" for figure in figures))
    console.print(grid)
    largest = max(stretches[-1].to_clients, stretches[-1].from_clients) / clients
    grid = Grid("process", "most memory, MB", f"/ {largest / 1e6:.1f} MB of a round, per client", box=None)
    for role, peak in sorted(peaks.items()):
        grid.add_row(role, f"{peak / 1e6:.0f}", f"{peak / largest:.1f}" if largest > 1e7 else "")  # else it is Python
    console.print(grid)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=[*ROLES, "both"])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--entities", type=int, default=400)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print an object with a member for each engine")
    args = parser.parse_args()
    alone, found = in_process(args), {}
    if not args.json:
        console.print(f"{args.clients} clients, {args.entities} entities of {args.dim} numbers, {args.rounds} rounds")
    for engine in ROLES if args.engine == "both" else [args.engine]:
        stretches, peaks = measured(engine, args, alone)
        found[engine] = {"setup and rounds": [asdict(each) for each in stretches], "memory": peaks}
        if not args.json:
            show(engine, stretches, peaks, args.clients)
    if args.json:
        print(json.dumps(vars(args) | found, indent=2))


if __name__ == "__main__":
    main()
