"""What is seen of each fault, by the server and by the site, and after how many seconds: `python faults.py nvflare`.

docs/deploy.md has both tables. What the tests see must be what they show, but for the numbers (`test_faults`).

Real processes on loopback. Faults do not wait for each other: several sites are struck in one round, while they train,
which may take a minute, and in one run several sites are wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil

sys.path.append(str(Path(__file__).parents[1]))  # as pytest has it

import cores
import flower_loopback
import nvflare_deployment
from fault_table import Seen, markdown
from lasting_cores import process_of
from secea.engines.driver import Patience
from secea.engines.files import write_identity
from secea.engines.lasting import LastingCore
from secea.params import Params
from secea.wire.keys import Identity
from sites import Sites

PARAMS = Params(clients=7, dim=8, collusion=1, max_entities=30, max_union=40)
"""Any three of the clients may go on without the others."""
PATIENCE = {"nvflare": Patience(stage=20.0, training=40.0), "flower": Patience(stage=60.0, training=40.0)}
WRONG_SITES = "with sites that are wrong"
"""The run in which they are."""
FATES = ("stopped", "left out")
"""Events at a site that say why it does not take part."""
SECONDS = 300.0
"""So long what is not measured here may take on a busy machine."""


class Engine(Protocol):
    """How the processes of a deployment are struck."""

    def core(self, name: str) -> int:
        """The core of a site."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL all processes of a site."""
        ...


def waited(until: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """What `until` gives when it is something; an AssertionError if that takes too long."""
    end = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.1)
    return found


def nothing(name: str) -> None:
    """What happens to a site that is struck by nobody."""


@dataclass(frozen=True)
class Strike:
    """What happens to a client while it trains."""

    fault: str
    act: Callable[[str], object] = nothing
    trains_on: bool = False
    """Until its own log says something, and not just until the server knows of it."""
    heard: float = 60.0
    """So many seconds has its own log to say something, when the server knows of it."""


@dataclass
class Trial:
    """A run in which faults happen."""

    sites: Sites

    def struck(self, strikes: Mapping[int, Strike]) -> Iterator[Seen]:
        """Strike these clients in one round, each as soon as it trains; what was seen of it."""
        folders = {victim: self.sites.folder / self.sites.names[victim] for victim in strikes}
        for folder in folders.values():
            (folder / "hold").touch()
        at = dict[int, float]()
        while left := strikes.keys() - at.keys():
            for victim in waited(partial(self._held, left), f"clients {left} train"):
                at[victim] = time.time()
                strikes[victim].act(self.sites.names[victim])
        for victim, strike in strikes.items():
            hold = folders[victim] / "hold"
            known = hold.touch if strike.trains_on else hold.unlink
            yield self.seen(strike.fault, victim, at[victim], known, strike.heard)
            for file in ("hold", "raise"):
                (folders[victim] / file).unlink(missing_ok=True)

    def _held(self, clients: Iterable[int]) -> list[int]:
        """Which of them train for longer than it takes: they are held."""
        return [n for n in clients if self._trains(n) > self.sites.seconds + 1]

    def _trains(self, n: int) -> float:
        """For how many seconds client n has trained; 0 if it does something else."""
        lines = self.sites.log(self.sites.names[n])
        last = [line for line in lines if line["event"] in ("start", "training", "trained")][-1:]
        return sum(time.time() - float(line["time"]) for line in last if line["event"] == "training")

    def back(self, clients: Iterable[int]) -> None:
        """Wait until these clients take part again, all in one round, after the last loss of one of them."""
        wanted = set(clients)
        who = {f"client {n}" for n in wanted}

        def whole() -> bool:
            at = max(
                (line["time"] for line in self.sites.log("server", event="lost") if line["client"] in who), default=0
            )
            return any(wanted <= set(line["clients"]) for line in self.sites.rounds() if line["time"] > at)

        waited(whole, f"return of clients {wanted}")

    def wrong(self, run: Callable[[], object]) -> list[Seen]:
        """What is seen of a run in which sites are wrong, from its beginning on; then they are right again."""
        for victim, spoil in WRONG.values():
            spoil(self.sites, self.sites.names[victim])
        at = time.time()
        run()
        seen = [self.seen(fault, victim, at) for fault, (victim, _) in WRONG.items()]
        for victim, _ in WRONG.values():
            right_again(self.sites, self.sites.names[victim])
        return seen

    def seen(
        self, fault: str, victim: int, at: float, then: Callable[[], object] = bool, heard: float = Strike.heard
    ) -> Seen:
        """What is written of a fault at that time. `then` is done when the server knows of it."""
        lost = self._first(SECONDS, "server", at, ("lost",), f"client {victim}")
        assert lost, f"{fault}: the server does not know"
        then()
        own = self._first(heard, self.sites.names[victim], at, FATES)
        return Seen(fault, lost["cause"], lost["why"], lost["time"] - at, *self.own(own, at))

    def own(self, line: Mapping[str, Any], at: float) -> tuple[str, str, float]:
        """What a site wrote of its own fate: event, why, and after how long. Folders are left out."""
        why = str(line.get("why", "")).replace(str(self.sites.folder), "/srv")
        return str(line.get("event", "")), why, float(line.get("time", at)) - at

    def orphaned(self, name: str, at: float, events: Iterable[str]) -> Seen:
        """The server's side of the run was killed: what this site says of it."""
        return Seen("the server's job is killed", "", "", 0.0, *self.own(self._first(SECONDS, name, at, events), at))

    def _first(
        self, seconds: float, name: str, at: float, events: Iterable[str], client: str | None = None
    ) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.sites.log(name):
                if line["time"] >= round(at, 3) and line["event"] in events and line.get("client") == client:
                    return line
            time.sleep(0.1)
        return {}


def raises(sites: Sites) -> Callable[[str], object]:
    """The site's function raises."""
    return lambda name: (sites.folder / name / "raise").touch()


def at_once(sites: Sites, engine: Engine) -> Mapping[int, Strike]:
    """What is known at once, and nobody has to wait for."""
    return {
        0: Strike("its core is killed", lambda name: os.kill(engine.core(name), signal.SIGKILL)),
        1: Strike("its function raises", raises(sites)),
    }


def in_a_while(engine: Engine) -> Mapping[int, Strike]:
    """What takes up to a minute to be known, or all the time that there is for training; others than `at_once`."""
    return {
        3: Strike("the whole site is killed", engine.kill, heard=10.0),
        4: Strike("its core hangs", lambda name: os.kill(engine.core(name), signal.SIGSTOP), trains_on=True),
        5: Strike("it trains too long", trains_on=True),
    }


WRONG: Mapping[str, tuple[int, Callable[[Sites, str], None]]] = {
    "it has another key": (1, lambda sites, name: _stranger(sites, name)),
    "it has other parameters": (2, lambda sites, name: _other(sites, name)),
    "its state cannot be written": (3, lambda sites, name: sites.write(name, state="identity.pem/state")),
}
"""What can be wrong at a site before a run. The first two have another state directory then."""


def _stranger(sites: Sites, name: str) -> None:
    write_identity(Identity.generate(), sites.folder / "stranger.pem")
    sites.write(name, identity="../stranger.pem", state="other-state")


def _other(sites: Sites, name: str) -> None:
    sites.agree("precise.json", replace(sites.params, precision=20))
    sites.write(name, federation="../precise.json", state="other-state")


def right_again(sites: Sites, name: str) -> None:
    """A site as it was at first."""
    sites.write(name, federation="../federation.json", identity="identity.pem", state="state")


# ---------------------------------------------------------------------------------------------------------- on NVFlare


@dataclass
class OnNvflare:
    """A deployment of NVFlare (`nvflare_deployment.Deployment`)."""

    deployment: Any

    def family(self, name: str) -> list[int]:
        """See `Engine`."""
        parent = psutil.Process(self.deployment.pid(name))
        return [parent.pid, *(each.pid for each in parent.children(recursive=True))]

    def core(self, name: str) -> int:
        """See `Engine`."""
        (pid,) = [pid for pid in self.family(name) if "secea.engines.core" in psutil.Process(pid).cmdline()]
        return int(pid)

    def kill(self, name: str) -> None:
        """See `Engine`."""
        self.deployment.kill(name)


def on_nvflare(deployment: Any, sites: Sites) -> tuple[list[Seen], dict[str, Any]]:
    """All faults on a running deployment, and how the jobs ended."""
    from secea.engines import nvflare

    trial, engine, ends = Trial(sites), OnNvflare(deployment), dict[str, Any]()

    def submitted(rounds: int, clients: int) -> Any:
        deployment.use(sites.folder)
        return nvflare.recipe(rounds, clients=clients, patience=PATIENCE["nvflare"]).execute(deployment.env)

    job = submitted(20, clients=6)
    found = [*trial.struck(at_once(sites, engine)), *trial.struck(in_a_while(engine))]
    trial.back({*range(7)} - {3})
    ends["after a loss"] = _ended(deployment, sites, job)
    deployment.start(sites.names[3])  # a running job would not take it back
    deployment.joined(sites.names[3], times=2)

    def wrong() -> None:
        ends[WRONG_SITES] = _ended(deployment, sites, submitted(2, clients=7))

    found += trial.wrong(wrong)
    job, at = submitted(1000, clients=7), time.time()
    waited(lambda: sites.log("server", event="progress")[-1]["time"] > at, "a round")
    at = time.time()
    deployment.job_process("localhost", job).kill()
    return [*found, trial.orphaned(sites.names[0], at, FATES)], ends


def _ended(deployment: Any, sites: Sites, job: Any) -> dict[str, Any]:
    """How a job ended, and how long that took after its last round."""
    status = deployment.status(job, SECONDS)
    (*_, end) = [line for line in sites.log("server") if line["event"] in ("end", "failed")]
    return {"status": status, "after": round(time.time() - end["time"], 1), "result": _result(sites)}


def _result(sites: Sites) -> str:
    """How a run ended, as the server's operator reads it."""
    return str(json.loads((sites.folder / "server" / "state" / "result.json").read_text())["text"])


# ------------------------------------------------------------------------------------------------------------ on Flower


@dataclass
class OnFlower:
    """A deployment of Flower (`flower_loopback.Deployment`)."""

    deployment: Any
    sites: Sites

    def core(self, name: str) -> int:
        """See `Engine`."""
        return int(process_of(self.sites, name).pid)

    def kill(self, name: str) -> None:
        """See `Engine`. A core outlives its SuperNode."""
        core = self.core(name)
        self.deployment.kill(self._node(name))
        os.kill(core, signal.SIGKILL)

    def kill_app(self, name: str) -> None:
        """SIGKILL the ClientApp of a site, which waits for its core."""
        self.deployment.kill_app("flwr-clientapp", self._node(name))

    def _node(self, name: str) -> str:
        return f"node{self.sites.names.index(name)}"


def on_flower(deployment: Any, sites: Sites) -> tuple[list[Seen], dict[str, Any]]:
    """All faults on a running deployment, and how the runs ended."""
    trial, engine, ends = Trial(sites), OnFlower(deployment, sites), dict[str, Any]()
    patience = PATIENCE["flower"]

    def started(rounds: int) -> str:
        return str(deployment.start(rounds=rounds, stage_seconds=patience.stage, training_seconds=patience.training))

    started(99)
    killed = {2: Strike("its ClientApp is killed", engine.kill_app)}
    found = list[Seen]()
    for seen in trial.struck({**at_once(sites, engine), **killed, **in_a_while(engine)}):  # a round takes half a minute
        found.append(seen)
        if seen.fault == "the whole site is killed":
            deployment.start_node(3)  # while the server waits for the others
    trial.back(range(7))
    at = time.time()
    upload = {"event": "accepted", "kind": "upload", "from": "client 1"}
    waited(lambda: any(line["time"] > at for line in sites.log("server", **upload)), "an upload")
    at = time.time()
    deployment.kill_app("flwr-serverapp")

    def wrong() -> None:
        rounds = sites.log("server", event="progress")[-1]["rounds"] + 1  # the run that was killed goes on
        status = deployment.finish(started(rounds), 3 * SECONDS)
        ends[WRONG_SITES] = {"status": status, "result": _result(sites)}
        LastingCore(sites.file(sites.names[2])).close()  # of the other parameters

    found += trial.wrong(wrong)  # meanwhile the core of site-2 waits: its file names another state directory now
    return [*found, trial.orphaned(sites.names[1], at, ("waiting",))], ends


# ------------------------------------------------------------------------------------------------------------- on both


def tried(engine: str, folder: Path) -> tuple[list[Seen], Sites, dict[str, Any]]:
    """All faults on a deployment of this engine in a folder; the sites, and how the runs ended."""
    sites = Sites(folder / "sites", PARAMS, seconds=0.3)
    if engine == "nvflare":
        with nvflare_deployment.Deployment(folder, sites.names).running() as deployment:
            found, ends = on_nvflare(deployment, sites)
    else:
        cores.run(sites, 1)  # a set-up, for which Flower takes a minute
        files = [sites.file(name) for name in sites.names]
        with flower_loopback.Deployment(folder, sites.file("server"), files) as running:
            found, ends = on_flower(running, sites)
    return found, sites, ends


def main(engine: str, keep: str = "") -> None:
    """Print the table; `keep` gets all files of all parties."""
    folder = Path(tempfile.mkdtemp())
    try:
        found, _, ends = tried(engine, folder)
        print(markdown(engine, found))
        for name, end in ends.items():
            print(name, end)
    finally:
        if keep:
            shutil.copytree(folder, keep, dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
