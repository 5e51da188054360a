"""What is seen of each fault, by the server and by the site, and after how many seconds: `python faults.py nvflare`.

docs/deploy.md has both tables. What the tests see must be what they show, but for the numbers (`fault_table`).

Real processes on loopback. Where it says so, a site is struck while it trains, which may take a minute.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import psutil

sys.path.append(str(Path(__file__).parents[1]))  # as pytest has it

import flower_loopback
import nvflare_deployment
from fault_table import Seen, markdown
from lasting_cores import process_of
from secea.engines.driver import Patience
from secea.engines.files import write_identity
from secea.params import Params
from secea.wire.keys import Identity
from sites import Sites
from trial import COMPLAINT

__all__ = ["COMPLAINT", "PATIENCE", "on_flower", "on_nvflare"]

PARAMS = Params(clients=5, dim=8, dropouts=1, max_entities=30, max_union=40)
PATIENCE = Patience(stage=10.0, training=50.0)
FATES = ("stopped", "left out")
"""Events at a site that say why it does not take part."""


class Engine(Protocol):
    """How the processes of a deployment are struck."""

    def core(self, name: str) -> int:
        """The core of a site."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL all processes of a site."""
        ...


def waited(until: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `until` gives when it is something; an AssertionError if that takes too long."""
    end = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.1)
    return found


@dataclass
class Trial:
    """A run in which faults happen."""

    sites: Sites
    engine: Engine
    slack: float = 1.0
    """How many times longer than on NVFlare things may take."""

    def strike(
        self, fault: str, victim: int, act: Callable[[str], object], *, returns: bool = True, trains_on: bool = True
    ) -> Seen:
        """Do something to a client while it trains. `trains_on`: until its own log says something."""
        name = self.sites.names[victim]
        folder = self.sites.folder / name
        (folder / "hold").touch()
        waited(lambda: self._held(name), 120 * self.slack, f"{name} trains")
        at = time.time()
        act(name)
        seen = self.seen(fault, victim, at, (folder / "hold").touch if trains_on else (folder / "hold").unlink)
        for file in ("hold", "raise"):
            (folder / file).unlink(missing_ok=True)
        if returns:
            self.back(victim, seen)
        return seen

    def _held(self, name: str) -> bool:
        """Whether a site trains for longer than it takes: it is held."""
        lines = [line for line in self.sites.log(name) if line["event"] in ("start", "training", "trained")]
        trains = bool(lines) and lines[-1]["event"] == "training"
        return trains and time.time() - float(lines[-1]["time"]) > self.sites.seconds + 1

    def back(self, victim: int, seen: Seen) -> None:
        """Wait until a client takes part again."""
        rounds = len(self.sites.rounds())
        waited(
            lambda: any(victim in line["clients"] for line in self.sites.rounds()[rounds:]),
            120 * self.slack,
            f"return of client {victim} after {seen}",
        )

    def seen(self, fault: str, victim: int, at: float, then: Callable[[], object] = bool) -> Seen:
        """What is written of a fault at that time. `then` is done when the server knows of it."""
        name = self.sites.names[victim]
        lost = self._first(120 * self.slack, "server", at, ("lost",), f"client {victim}")
        then()
        own = self._first(5 * self.slack, name, at, FATES)
        return Seen(fault, lost["cause"], lost["why"], lost["time"] - at, *self.own(own, at))

    def own(self, line: Mapping[str, Any], at: float) -> tuple[str, str, float]:
        """What a site wrote of its own fate: event, why, and after how long. Folders are left out."""
        why = str(line.get("why", "")).replace(str(self.sites.folder), "/srv")
        return str(line.get("event", "")), why, float(line.get("time", at)) - at

    def orphaned(self, kill: Callable[[], object], seconds: float, events: Iterable[str]) -> Seen:
        """The server's side of the run is killed."""
        at = time.time()
        kill()
        own = self._first(seconds, self.sites.names[0], at, events)
        return Seen("the server's job is killed", "", "", 0.0, *self.own(own, at))

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


def while_they_train(trial: Trial, victims: Sequence[int]) -> Iterator[Seen]:
    """The faults of a site that trains; all but the last one come back."""
    engine, (first, second, *late, last) = trial.engine, victims
    yield trial.strike("its core is killed", first, lambda name: os.kill(engine.core(name), signal.SIGKILL))
    yield trial.strike("its function raises", second, raises(trial.sites))
    for third, fourth in [late] * bool(late):  # each takes all the time that there is for training
        yield trial.strike("its core hangs", third, lambda name: os.kill(engine.core(name), signal.SIGSTOP))
        yield trial.strike("it trains too long", fourth, lambda name: None)
    yield trial.strike("the whole site is killed", last, engine.kill, returns=False)


WRONG: Mapping[str, tuple[int, Callable[[Sites, str], None]]] = {
    "it has another key": (1, lambda sites, name: _stranger(sites, name)),
    "it has other parameters": (2, lambda sites, name: _other(sites, name)),
    "its state cannot be written": (3, lambda sites, name: sites.write(name, state="identity.pem/state")),
}
"""What can be wrong at a site before a run."""


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


def on_nvflare(deployment: Any, folder: Path) -> tuple[list[Seen], Sites, dict[str, Any]]:
    """All faults on a running deployment; the sites, and how the jobs ended."""
    from secea.engines import nvflare

    sites, ends = Sites(folder / "sites", PARAMS, seconds=0.3), dict[str, Any]()
    trial = Trial(sites, OnNvflare(deployment))

    def submitted(rounds: int) -> Any:
        deployment.use(sites.folder)
        return nvflare.recipe(rounds, clients=4, patience=PATIENCE).execute(deployment.env)

    job = submitted(60)
    found = list(while_they_train(trial, range(5)))
    ends["after a loss"] = _ended(deployment, sites, job)
    deployment.start(sites.names[4])
    time.sleep(8)
    for fault, (victim, spoil) in WRONG.items():
        name, at = sites.names[victim], time.time()
        spoil(sites, name)
        job = submitted(2)
        ends[fault] = _ended(deployment, sites, job)
        found.append(trial.seen(fault, victim, at))
        right_again(sites, name)
    job, at = submitted(1000), time.time()
    waited(lambda: sites.log("server", event="progress")[-1]["time"] > at, 90, "a round")
    found.append(trial.orphaned(deployment.job_process("localhost", job).kill, 90, FATES))
    return found, sites, ends


def _ended(deployment: Any, sites: Sites, job: Any) -> dict[str, Any]:
    """How a job ended, and how long that took after its last round."""
    status = deployment.status(job, 240)
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


FLOWER_PATIENCE = {"stage_seconds": 60.0, "training_seconds": 40.0}


def on_flower(deployment: Any, sites: Sites) -> tuple[list[Seen], dict[str, Any]]:
    """All faults on a running deployment, and how the runs ended."""
    engine, ends = OnFlower(deployment, sites), dict[str, Any]()
    trial = Trial(sites, engine, slack=5.0)
    run = deployment.start(rounds=99, **FLOWER_PATIENCE)
    found = [trial.strike("its ClientApp is killed", 0, engine.kill_app, trains_on=False)]
    found += while_they_train(trial, range(5))
    end = trial.orphaned(lambda: deployment.kill_app("flwr-serverapp"), 300, ("waiting",))
    deployment.finish(run, 900)
    deployment.start_node(4)
    for fault, (victim, spoil) in WRONG.items():
        name, at = sites.names[victim], time.time()
        spoil(sites, name)
        rounds = 1 if ends else sites.log("server", event="progress")[-1]["rounds"] + 1  # the first one goes on
        ends[fault] = deployment.finish(deployment.start(rounds=rounds, **FLOWER_PATIENCE), 900), _result(sites)
        found.append(trial.seen(fault, victim, at))
        right_again(sites, name)
    return [*found, end], ends


def main(engine: str, keep: str = "") -> None:
    """Print the table; `keep` gets all files of all parties."""
    folder = Path(tempfile.mkdtemp())
    try:
        if engine == "nvflare":
            with nvflare_deployment.Deployment(folder, [f"site-{n}" for n in range(1, 6)]).running() as deployment:
                found, _, ends = on_nvflare(deployment, folder)
        else:
            sites = Sites(folder / "sites", PARAMS, seconds=0.3)
            files = [sites.file(name) for name in sites.names]
            with flower_loopback.Deployment(folder, sites.file("server"), files) as running:
                found, ends = on_flower(running, sites)
        print(markdown(engine, found))
        for name, end in ends.items():
            print(name, end)
    finally:
        if keep:
            shutil.copytree(folder, keep, dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
