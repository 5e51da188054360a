"""What an engine adds to a federation: seconds, CPU and memory of each kind of process, bytes on the wire.

    python -m bench engines                                                   FB15k-237's shape on both engines
    python -m bench.engines nvflare                                           four sites of that shape on NVFlare
    python -m bench.engines flower --clients 5 --entities 400 --own 270 --dim 32
    python -m bench.engines nvflare --rounds 5 --json > nvflare.json          for other programs

The deployments are those of the tests: servers and clients in processes of their own on the loopback interface, TLS.
Training takes no time, and names get their keys by a hash (`bench.hashed`): rounds do not depend on that. Bytes are
counted twice: what the federation gives to the engine and gets from it, and what passes over the loopback device
meanwhile: every leg of the way, with TLS and whatever else the engine says. Nothing else should use it. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

import secea
from bench.engine_site import load, save
from bench.figures import Figure, Grid, Section
from bench.measure import ROOT, Tick, in_child
from bench.shapes import FB15K, Scale, Shape
from bench.show import print_section
from bench.watch import Watch
from secea.engines.files import write_identity, write_session
from secea.forms import DEFAULT, form_of
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

sys.path.append(str(ROOT / "tests" / "engines"))

ROLES: Final = {
    "nvflare": {
        "engines.core": "cores of clients",
        "worker_process": "jobs at clients",
        "runner_process": "job at the server",
        "client_train": "NVFlare's clients",
        "server_train": "NVFlare's server",
    },
    "flower": {
        "engines.lasting": "cores of clients",
        "flwr-clientapp": "ClientApps",
        "flwr-serverapp": "ServerApp",
        "flower-supernode": "SuperNodes",
        "flower-superlink": "SuperLink",
        "flower-superexec": "SuperExecs",
    },
}
"""What a process is, by a word in its command line."""
NAMES: Final = {"nvflare": "NVFlare", "flower": "Flower"}


@dataclass(frozen=True)
class Stretch:
    """The set-up, or a round."""

    seconds: float
    cpu: dict[str, float]
    """Seconds by role."""
    to_clients: int
    """Bytes."""
    from_clients: int
    loopback: int
    """All bytes on the loopback device."""


@dataclass(frozen=True)
class Found:
    """What a deployment used."""

    stretches: list[Stretch]
    memory: dict[str, int]
    """Bytes by role: the most of one process."""
    start: float = 0.0
    """Seconds from the submission to the first stage."""

    @property
    def rounds(self) -> list[Stretch]:
        """Without the first one, in which memory is touched for the first time."""
        return self.stretches[2:] or self.stretches[1:]


# -------------------------------------------------------------------------------------------------------- deployments


def make_sites(folder: Path, shape: Shape, hashed: bool) -> list[str]:
    """All that the parties keep; the names of the clients."""
    names = [f"site-{n + 1}" for n in range(shape.clients)]
    identities = {name: Identity.generate() for name in (*names, "server")}
    roster = Roster(tuple(identities[n].public for n in names), identities["server"].public, tuple(names))
    session = Session(shape.params(), roster, form_of(DEFAULT))
    tables = dict(zip(names, shape.tables(), strict=True))
    for name, identity in identities.items():
        site = folder / name
        site.mkdir(parents=True)
        write_identity(identity, site / "identity.pem")
        write_session(session, site / "federation.json")
        text = f'name = "{name}"\nfederation = "federation.json"\nidentity = "identity.pem"\nstate = "state"\n'
        if name == "server":
            text += 'log = "audit.jsonl"\n'
        else:
            save(tables[name], site / "table.npz")
            text += f'participant = "bench.engine_site:participant"\n[arguments]\nhashed = {str(hashed).lower()}\n'
            text += f'table = "{site / "table.npz"}"\nmeans = "{site / "means.npz"}"\n'
        (site / "site.toml").write_text(text)
    return names


def measured(engine: str, shape: Shape, rounds: int, *, hashed: bool = True) -> Found:
    """Set-up and rounds on an engine; the last means are checked."""
    paths = [str(ROOT), str(Path(secea.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))  # sites find this package
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sites = folder / "sites"
        names = make_sites(sites, shape, hashed)
        audit = sites / "server" / "audit.jsonl"
        watch = Watch(ROLES[engine], folder, audit)
        (on_nvflare if engine == "nvflare" else on_flower)(folder, names, rounds, watch)
        stages = (line for line in map(json.loads, audit.read_text().splitlines()) if line["event"] == "stage")
        start = next(stages)["time"] - watch.began
        shape.check([load(sites / name / "means.npz") for name in names], shape.params().resolution)
    stretches, sent, received = [], 0, 0
    for note, (before, after) in zip(watch.notes, itertools.pairwise(watch.marks), strict=True):
        to, back = note["sent"] - sent, note["received"] - received
        cpu = {role: seconds - before.cpu.get(role, 0.0) for role, seconds in after.cpu.items()}
        stretches.append(Stretch(note["seconds"], cpu, to, back, after.loopback - before.loopback))
        sent, received = note["sent"], note["received"]
    return Found(stretches, watch.memory, start)


def on_nvflare(folder: Path, names: list[str], rounds: int, watch: Watch) -> None:
    from nvflare_deployment import Deployment
    from secea.engines.nvflare import recipe

    with Deployment(folder, names).running() as deployment:
        deployment.use(folder / "sites")
        with watch.on(), contextlib.redirect_stdout(sys.stderr):  # NVFlare prints while it waits
            status = deployment.status(recipe(rounds, clients=len(names)).execute(deployment.env), 3600)
        for part in ("localhost", *names):
            if status != "FINISHED:COMPLETED":
                print(deployment.output(part)[-2000:], file=sys.stderr)
    assert status == "FINISHED:COMPLETED", status


def on_flower(folder: Path, names: list[str], rounds: int, watch: Watch) -> None:
    from flower_loopback import Deployment

    files = [folder / "sites" / name / "site.toml" for name in ("server", *names)]
    with Deployment(folder, files[0], files[1:]) as deployment, watch.on():
        run = deployment.start(rounds=rounds)
        status = deployment.finish(run, 3600)
        assert status == "finished:completed", deployment.log(run)


# --------------------------------------------------------------------------------------------------------- reporting


def engines(scale: Scale, tick: Tick) -> Section:
    """Both engines, with few sites and with many."""
    cases = [(engine, scale.peers.but(clients=n)) for engine in ROLES for n in scale.engine_sites]
    return section(cases, scale.engine_rounds, tick)


def section(cases: list[tuple[str, Shape]], rounds: int, tick: Tick, *, hashed: bool = True) -> Section:
    """Rounds on engines beside the same in one process, and what each kind of process takes."""
    costs, grids, alone = Grid("A round, on engines and in one process"), {}, dict[Shape, dict[str, Any]]()
    for engine, shape in cases:
        if shape not in alone:
            tick(f"in one process: {shape}")
            alone[shape] = in_child(shape, rounds, hashed=hashed)
            each = alone[shape]["rounds"][1:] or alone[shape]["rounds"]
            walls, cpus = ([one[of] for one in each] for of in ("wall", "cpu"))
            costs.rows[f"one process, {shape.clients} clients"] = {
                "wall": Figure.of(walls, "s"),
                "CPU": Figure.of(cpus, "s"),
                "cores busy": Figure.of([cpu / wall for cpu, wall in zip(cpus, walls, strict=True)], ""),
            }
        tick(f"on {NAMES[engine]}: {shape}")
        found, name = measured(engine, shape, rounds, hashed=hashed), f"{NAMES[engine]}, {shape.clients} sites"
        costs.rows[name] = _costs(found)
        grids[f"{engine}-{shape.clients}"] = Grid(f"{name}, by kind of process", _roles(found))
    _, shape = cases[0]
    return Section(str(shape.but(clients=1)).partition(", ")[2], {"round": costs, **grids}, [NOTE] if hashed else [])


NOTE: Final = "Names got their keys by a hash: a set-up takes longer by the PRF of all names. No round depends on it."


def _costs(found: Found) -> dict[str, Figure]:
    each = found.rounds
    return {
        "wall": Figure.of([one.seconds for one in each], "s"),
        "CPU": Figure.of([sum(one.cpu.values()) for one in each], "s"),
        "cores busy": Figure.of([sum(one.cpu.values()) / one.seconds for one in each], ""),
        "bytes to clients": Figure.of([one.to_clients for one in each], "B"),
        "bytes from them": Figure.of([one.from_clients for one in each], "B"),
        "bytes on loopback": Figure.of([one.loopback for one in each], "B"),
        "wall, set-up": Figure.of(found.stretches[0].seconds, "s"),
    }


def _roles(found: Found) -> dict[str, dict[str, Figure]]:
    return {
        role: {
            "CPU of a round, all of them": Figure.of([one.cpu.get(role, 0.0) for one in found.rounds], "s"),
            "CPU of start and set-up": Figure.of(found.stretches[0].cpu.get(role, 0.0), "s"),
            "most memory of one": Figure.of(memory, "B"),
        }
        for role, memory in found.memory.items()
    }


def main() -> None:
    """Measure one shape, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=[*ROLES, "both"])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--collusion", type=int, default=FB15K.collusion)
    parser.add_argument("--entities", type=int, default=FB15K.entities, help="of all clients together")
    parser.add_argument("--own", type=int, default=FB15K.own, help="of each client")
    parser.add_argument("--dim", type=int, default=FB15K.dim)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--prf", action="store_true", help="a set-up with the real PRF of names, not with a hash")
    parser.add_argument("--json", action="store_true", help="print an object with a member for each engine")
    args = parser.parse_args()
    shape = Shape(args.clients, args.collusion, args.entities, args.own, args.dim)
    chosen = list(ROLES) if args.engine == "both" else [args.engine]
    if args.json:
        found = {engine: asdict(measured(engine, shape, args.rounds, hashed=not args.prf)) for engine in chosen}
        print(json.dumps(asdict(shape) | found, indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else 160)
    cases = [(engine, shape) for engine in chosen]
    result = section(cases, args.rounds, lambda step: print(step, file=sys.stderr), hashed=not args.prf)
    print_section(console, "engines", result)


if __name__ == "__main__":
    main()
