"""Folders of a server and of a site in which a run goes on, as their logs and states have it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from secea.engines.log import Log
from secea.engines.port import Cause
from secea.engines.progress import Progress
from secea.forms.keyed.form import Kind

PLACES = 'federation = "federation.toml"\nidentity = "identity.pem"\nstate = "state"\nlog = "audit.jsonl"\n'
NAMES = ("north", "south", "west")


def folder(path: Path, *, site: bool = False) -> Path:
    """A party's folder, in which nothing has happened."""
    (path / "state").mkdir(parents=True)
    mine = 'name = "north"\nparticipant = "mine:participant"\n' if site else ""
    (path / "site.toml").write_text(PLACES + mine)
    return path


def begun(path: Path, *, names: tuple[str, ...] = NAMES, rounds: int = 50, done: int = 0) -> Progress:
    """A server's run, of which so many rounds are done."""
    run = Progress(path / "audit.jsonl", Kind, names, path / "state")
    run.noted("start", run="8c1f0f5e", session="3f2a 91c0 aaaa", rounds=rounds, party="the server")
    everyone = [f"client {n}" for n in range(len(names))]
    for client in everyone:
        run.noted("here", client=client)
    for number in range(1, done + 1):
        run.noted("round", number=number, clients=everyone)
        run.noted(
            "progress", rounds=number, seconds=20.0, sent=52_600_000 * number, received=53_600_000 * number, lost={}
        )
    return run


def trains(run: Progress, *clients: int, since: float = 0.0, heard: float = 0.0) -> None:
    """These clients train since so many seconds; their sites were heard so many seconds ago."""
    listed, now = [f"client {n}" for n in clients], time.time()
    run.noted("stage", name="ready", round=run.state.done + 1, training=True, seconds=3645.0, clients=listed, called=[])
    run.state.since = now - since
    for n in clients:
        each = run.state.clients[run._names[n]]
        each.since, each.heard = now - since, now - heard
    run._show()


def loses(run: Progress, client: int, why: str = "its site does not answer any more") -> None:
    run.noted("lost", client=f"client {client}", cause=Cause.UNREACHABLE, why=why)


def site_log(path: Path, *events: tuple[str, dict[str, object]]) -> Log:
    """What a site's own log says."""
    log = Log(path / "audit.jsonl")
    log.noted("start", party="north", run="8c1f0f5e", session="3f2a 91c0 aaaa")
    for what, details in events:
        with (path / "audit.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "event": what} | details) + "\n")
    return log
