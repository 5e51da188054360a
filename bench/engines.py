"""What an engine adds to a federation: seconds, bytes on the wire, memory, against the same federation in one process.

    python bench/engines.py nvflare                                        5 clients, a small union
    python bench/engines.py nvflare --clients 3 --entities 200000 --dim 64     large stages

The deployment is a real one: a server and clients in processes of their own on the loopback interface, mutual TLS.
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
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from secea import Federation, Params, Table
from secea.engines.files import write_identity, write_session
from secea.engines.host import Participant
from secea.keys import Identity, Roster
from secea.session import Session

if TYPE_CHECKING:
    from nvflare_deployment import Deployment

console = Console(width=120)
ROLES = {"server_train": "server, parent", "client_train": "client, parent", "engines.core": "client, core"}
JOBS = {"localhost": "server, job"}


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
    session = Session(params_of(args.clients, args.entities, args.dim), roster)
    for name, identity in identities.items():
        site = folder / name
        site.mkdir(parents=True)
        write_identity(identity, site / "identity.pem")
        write_session(session, site / "federation.json")
        shutil.copy(__file__, site)
        text = f'name = "{name}"\nfederation = "federation.json"\nidentity = "identity.pem"\nstate = "state"\n'
        if name == "server":
            text += 'log = "audit.jsonl"\n'
        else:
            text += f'participant = "{Path(__file__).stem}:participant"\n[arguments]\nnumber = {names.index(name)}\n'
            text += f"entities = {args.entities}\ndim = {args.dim}\n"
        (site / "site.toml").write_text(text)
    return names


@contextlib.contextmanager
def watched(deployment: Deployment) -> Iterator[dict[str, int]]:
    """The most memory that a process of each role had, in bytes."""
    import psutil

    peaks: dict[str, int] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            for kit in ("localhost", *deployment.sites):
                family = psutil.Process(deployment.pid(kit))
                for process in (family, *family.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        command = " ".join(process.cmdline())
                        role = next((r for key, r in ROLES.items() if key in command), JOBS.get(kit, "client, job"))
                        peaks[role] = max(peaks.get(role, 0), process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def nvflare(args: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The server's notes after the set-up and after each round; memory."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "engines"))
    from nvflare_deployment import Deployment
    from secea.engines.nvflare import recipe

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sites = make_sites(folder / "sites", args)
        with Deployment(folder, sites).running() as deployment, watched(deployment) as peaks:
            deployment.use(folder / "sites")
            with contextlib.redirect_stdout(sys.stderr):  # NVFlare prints while it waits
                status = deployment.status(recipe(args.rounds, clients=args.clients).execute(deployment.env), 600)
            assert status == "FINISHED:COMPLETED", status
        lines = map(json.loads, (folder / "sites" / "server" / "audit.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == "progress"], peaks


def report(args: argparse.Namespace) -> None:
    plain = in_process(args)
    notes, peaks = nvflare(args)
    console.rule(f"{args.engine}: {args.clients} clients, {args.entities} entities, dim {args.dim}", align="left")
    grid = Grid("", "in one process, s", "engine, s", "ratio", "MB to clients", "MB from clients", box=None)
    before = {"sent": 0, "received": 0}
    for i, (seconds, note) in enumerate(zip(plain, notes, strict=True)):
        sent, received = ((note[key] - before[key]) / 1e6 for key in ("sent", "received"))
        title, took = f"round {i}" if i else "set-up", note["seconds"]
        grid.add_row(title, f"{seconds:.2f}", f"{took:.2f}", f"{took / seconds:.1f}", f"{sent:.2f}", f"{received:.2f}")
        before = note
    console.print(grid)
    largest = max(notes[-1][key] - notes[-2][key] for key in ("sent", "received")) / args.clients
    grid = Grid("process", "most memory, MB", f"in stages ({largest / 1e6:.0f} MB per client and round)", box=None)
    for role, peak in sorted(peaks.items()):
        grid.add_row(role, f"{peak / 1e6:.0f}", f"{peak / largest:.1f}")
    console.print(grid)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["nvflare"])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--entities", type=int, default=400)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    report(parser.parse_args())
