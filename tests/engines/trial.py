"""The user's module of the engines' tests: tables that follow from site and round, and faults at chosen points."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from secea.engines.host import Host, Participant
from secea.engines.port import Order, Reply, Task
from secea.engines.store import Store
from secea.table import Table
from secea.wire.keys import Identity
from secea.wire.messages import Header, Kind

Fault = Sequence[object]
"""A client's number, a stage, and what happens to it there:

before, after   its core is killed: as the order comes; or when all is done and saved, and nothing was sent
hang            its core stops for ever
late            the process that holds its core stops, for so long that the stage is over
garbage         its messages are noise
unreadable      its reply is noise
twice           it sends every message twice
full            its disk is full
"""

KILLED: Sequence[Sequence[Fault]] = [
    [(1, "share", "before"), (3, "opening", "before")],  # in the second round: it begins again with new weights
    [(1, "share", "after"), (3, "opening", "after")],
    [(2, "answer", "before"), (0, "reshare", "before")],
    [(2, "answer", "after"), (0, "reshare", "after")],
]
"""Each stage of a round, for a federation in which two may be lost."""

WAIT_SECONDS = 8.0

_STAGES = {
    Kind.ABORT: "opening",
    Kind.QUERY: "opening",
    Kind.RECIPROCAL: "reshare",
    Kind.SHARE: "answer",
    Kind.TAGS: "query",
    Kind.MEAN: "means",
}
"""What a client makes of what it is given; the first one counts."""


def names_of(number: int, entities: int) -> list[str]:
    """Client n has two entities of every three, and so each entity has several owners."""
    return [f"entity {e}" for e in range(entities) if (e + number) % 3]


def table_of(number: int, round: int, entities: int, dim: int) -> Table:
    """What client n contributes when it last trained in that round."""
    names = names_of(number, entities)
    return Table(names, np.random.default_rng([number, round]).normal(size=(len(names), dim)))


def participant(
    number: int,
    entities: int,
    dim: int,
    folder: str,
    scenes: Sequence[Sequence[Fault]],
    seconds: float,
    late: float,
    first: int = 2,
    claims: str = "",
) -> Participant:
    """Client n, which writes down what it is given; while there is a file `hold` in its folder it does not train.

    `claims`: the public key of somebody else, which it says is its own.
    """
    if claims:
        Identity.public = property(lambda self: bytes.fromhex(claims))  # type: ignore[assignment,method-assign]
    script = Script(number, scenes, Path(folder).parent, late, first)
    if scenes:
        script.take_over()

    def write(round: int, means: Table | None) -> None:
        given = None if means is None else dict(zip(means.names, means.matrix.tolist(), strict=True))
        with (Path(folder) / "record").open("a") as file:
            file.write(json.dumps({"round": round, "means": given}) + "\n")

    def train(means: Table | None, round: int) -> Table:
        time.sleep(seconds)
        script.wait_for_victims(round)
        write(round, means)
        while (Path(folder) / "hold").exists():
            time.sleep(0.1)
        return table_of(number, round, entities, dim)

    return Participant(lambda: names_of(number, entities), train, lambda means: write(0, means))


@dataclass
class Script:
    """Faults, in scenes: one begins in round `first`, or when all victims of the one before are back in a round."""

    number: int
    scenes: Sequence[Sequence[Fault]]
    folder: Path
    late: float
    first: int

    def take_over(self) -> None:
        """From now on the client of this process does what is in the script."""
        script, obey = self, Host.obey

        def acting(self: Host, order: Order) -> Reply:
            if order.task is Task.ROUND:
                script._note("called")
            fault = script._fault(self, order)
            with script._act(fault):
                reply = obey(self, order)
            if fault == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            if order.task is Task.HELLO:
                script._note("called")
            if order.task is Task.ROUND and reply.messages and not fault:
                script._note("back")
            return changed(reply, fault)

        Host.obey = acting  # type: ignore[method-assign]

    def _fault(self, host: Host, order: Order) -> str:
        """What is to happen now, once."""
        scene = self._scene()
        if scene is None or order.round < self.first:
            return ""
        stage = stage_of(host, order)
        for client, where, what in self.scenes[scene]:
            mark = self._mark(scene, self.number, "done")
            if client == self.number and where == stage and not mark.exists():
                mark.write_text(str(order.round))
                return str(what)
        return ""

    def _scene(self) -> int | None:
        for i, scene in enumerate(self.scenes):
            if not all(self._mark(i, client, "back").exists() for client, _, _ in scene):
                return i
        return None

    def _mark(self, scene: int, client: object, what: str) -> Path:
        return self.folder / f"scene-{scene}-client-{client}-{what}"

    def _note(self, what: str) -> None:
        """This client, to whom something happened before, was called; or is back."""
        for i in range(len(self.scenes)):
            if self._mark(i, self.number, "done").exists():
                self._mark(i, self.number, what).touch()

    def wait_for_victims(self, round: int) -> None:
        """Give those who were lost before this round the time to say that they are there again, while others train."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end and self._awaited(round):
            time.sleep(0.1)

    def _awaited(self, round: int) -> bool:
        for i, scene in enumerate(self.scenes):
            for client, _, _ in scene:
                done, called = self._mark(i, client, "done"), self._mark(i, client, "called")
                if done.exists() and int(done.read_text() or round) < round and not called.exists():
                    return True
                if called.exists() and time.time() - called.stat().st_mtime < 0.5:  # its reply is on its way
                    return True
        return False

    @contextmanager
    def _act(self, fault: str) -> Iterator[None]:
        if fault == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "late":
            os.kill(holder := os.getppid(), signal.SIGSTOP)
            threading.Timer(self.late, os.kill, (holder, signal.SIGCONT)).start()
        if fault != "full":
            yield
            return
        save = Store.save
        Store.save = saved_on_a_full_disk  # type: ignore[method-assign]
        try:
            yield
        finally:
            Store.save = save  # type: ignore[method-assign]


_save = Store.save


def saved_on_a_full_disk(self: Store, name: str, data: bytes) -> None:
    """No file can grow: what the system says to `write` is as real as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        _save(self, name, data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def stage_of(host: Host, order: Order) -> str:
    """What a client is going to send for an order."""
    if order.task is not Task.STEP:
        return {Task.ROUND: "share", Task.HELLO: "hello", Task.END: "end"}[order.task]
    headers = [Header.parse(message, 0) for message in order.messages]
    kinds = {header.kind for header in headers}
    for kind, stage in _STAGES.items():
        if kind in kinds:
            return stage
    if any(header.kind is Kind.HELLO and header.receiver == host.client.number for header in headers):
        return "table"
    return "opening" if host.client.settled else "secret"


def changed(reply: Reply, fault: str) -> Reply:
    """A reply as it leaves."""
    if fault == "garbage":
        return replace(reply, messages=[b"\xff" * len(message) for message in reply.messages])
    if fault == "twice":
        return replace(reply, messages=[message for message in reply.messages for _ in range(2)])
    if fault == "unreadable":
        return Unreadable(0, 0, 0)
    return reply


class Unreadable(Reply):
    """A reply that is none."""

    def to_bytes(self) -> bytes:
        """As it travels."""
        return b"noise"
