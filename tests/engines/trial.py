"""The user's module of the engines' tests: tables that follow from site and round, and faults at chosen points."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from secea.engines.host import Host, Means, Participant
from secea.engines.port import Order, Reply, Task
from secea.engines.store import Store
from secea.table import Table
from secea.wire.keys import Identity

Fault = Sequence[object]
"""A client's number, a stage, and what happens to it there. A stage is the phase in which the client is when it has
taken its messages, and so what it is about to send; or a task that has no phase (`hello`, `train`, `end`).

before, after   its core is killed: before anything is saved; or when all is done and saved, and nothing was sent
hang            its core stops for ever
late            the process that waits for its core stops, for so long that the stage is over
garbage         its messages are noise
unreadable      its reply is noise
twice           it sends every message twice
full            its disk is full
"""


def killed(when: str) -> Sequence[Sequence[Fault]]:
    """A client is killed in each stage of a union and of a round, before or after it has done its part.

    For form "keyed" with one drop-out: a round goes on without whoever is lost in it; what comes before is made anew.
    """
    return [
        [(0, "upload", when), (1, "secret", when), (2, "table", when), (3, "batch", when)],
        [(1, "agree", when), (0, "ready", when), (3, "train", when)],  # two before it: all are called, and none is out
        [(2, "open", when)],
    ]


IN_ROUND = ("upload", "agree", "open")
"""Stages of the round whose number was given last; an order says the next one."""

WAIT_SECONDS = 8.0
COMPLAINT = "aspirin is no number"
"""What a function says that raises."""

_TASKS = {Task.HELLO: "hello", Task.ROUND: "train", Task.END: "end"}


def names_of(number: int, entities: int) -> list[str]:
    """Client n has two entities of every three, and so each entity has several owners."""
    return [f"entity {e}" for e in range(entities) if (e + number) % 3]


def table_of(number: int, round: int, entities: int, dim: int, most: int = 0) -> Table:
    """What client n contributes when it last trained in that round; with weights up to `most`, if it is not 0."""
    names, rng = names_of(number, entities), np.random.default_rng([number, round])
    matrix = rng.normal(size=(len(names), dim))
    return Table(names, matrix, rng.integers(0, most, len(names), endpoint=True) if most else None)


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
    wait: float = WAIT_SECONDS,
    most: int = 0,
) -> Participant:
    """Client n, which writes down what it is given. A file `hold` in its folder makes it train on; then `raise`, fail.

    `claims`: the public key of somebody else, which it says is its own. `wait`: so long, at most, does it train while
    those who were lost have not been called again. `most`: the largest weight of its rows.
    """
    if claims:
        Identity.public = property(lambda self: bytes.fromhex(claims))  # type: ignore[assignment,method-assign]
    script = Script(number, scenes, Path(folder).parent, late, first, wait)
    if scenes:
        script.take_over()

    def write(round: int, means: Means | None) -> None:
        given = None if means is None else dict(zip(means.names, means.matrix.tolist(), strict=True))
        below = [] if means is None else means.below_minimum
        with (Path(folder) / "record").open("a") as file:
            file.write(json.dumps({"round": round, "means": given, "below": below}) + "\n")

    def train(means: Means | None, round: int) -> Table:
        time.sleep(seconds)
        script.wait_for_victims(round)
        write(round, means)
        while (Path(folder) / "hold").exists():
            time.sleep(0.1)
            if (Path(folder) / "raise").exists():
                raise ValueError(COMPLAINT)
        return table_of(number, round, entities, dim, most)

    return Participant(lambda: names_of(number, entities), train, lambda means: write(0, means))


@dataclass
class _Now:
    """The order that is being obeyed, and what happens to the client meanwhile."""

    order: Order
    fault: str = ""
    struck: bool = False
    cleared: ExitStack = field(default_factory=ExitStack)


@dataclass
class Script:
    """Faults, in scenes: one begins in round `first`, or when all victims of the one before are back in a round."""

    number: int
    scenes: Sequence[Sequence[Fault]]
    folder: Path
    late: float
    first: int
    wait: float
    now: _Now = field(default_factory=lambda: _Now(Order(Task.STEP)))

    def take_over(self) -> None:
        """From now on the client of this process does what is in the script."""
        script, obey, save = self, Host.obey, Host._save

        def acting(self: Any, order: Order) -> Reply:
            script.now = _Now(order)
            if order.task is Task.ROUND:
                script._note("called")
            if order.task in _TASKS:
                script._strike(_TASKS[order.task])
            with script.now.cleared:
                reply = obey(self, order)
            fault = script.now.fault
            if fault == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            if order.task is Task.HELLO:
                script._note("called")
            if order.task is Task.ROUND and reply.messages and not fault:
                script._note("back")
            return changed(reply, fault)

        def saving(self: Any) -> None:
            if script.now.order.task is not Task.HELLO:  # it says where it stands, and goes on with nothing
                script._strike(self.client.at.phase)
            save(self)

        Host.obey = acting  # type: ignore[method-assign]
        Host._save = saving  # type: ignore[method-assign]

    def _strike(self, stage: str) -> None:
        """What is to happen now, if something is."""
        self.now.fault = self.now.fault or self._fault(stage)
        if self.now.fault == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.now.struck or not self.now.fault:
            return
        self.now.struck = True
        if self.now.fault == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.now.fault == "late":
            os.kill(waits := who_waits(), signal.SIGSTOP)
            threading.Timer(self.late, os.kill, (waits, signal.SIGCONT)).start()
        if self.now.fault == "full":
            self.now.cleared.callback(setattr, Store, "save", Store.save)
            Store.save = saved_on_a_full_disk  # type: ignore[method-assign]

    def _fault(self, stage: str) -> str:
        """What happens in this stage, once."""
        scene, number = self._scene(), self.now.order.round - (stage in IN_ROUND)
        if scene is None or number < self.first:
            return ""
        for client, where, what in self.scenes[scene]:
            mark = self._mark(scene, self.number, "done")
            if client == self.number and where == stage and not mark.exists():
                mark.write_text(str(number))
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
        end = time.monotonic() + self.wait
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


_save = Store.save


def saved_on_a_full_disk(self: Store, name: str, data: Any) -> None:
    """No file can grow: what the system says to `write` is as real as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        _save(self, name, data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def who_waits() -> int:
    """The process that waits for this core's reply: the other end of the socket from which the order came."""
    frame = sys._getframe()
    while "asked" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    channel: socket.socket = frame.f_locals["asked"].channel
    process: int = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return process


def changed(reply: Reply, fault: str) -> Reply:
    """A reply as it leaves."""
    if fault == "garbage":
        return replace(reply, messages=[b"\xff" * len(message) for message in reply.messages])
    if fault == "twice":
        return replace(reply, messages=[message for message in reply.messages for _ in range(2)])
    if fault == "unreadable":
        return Unreadable()
    return reply


class Unreadable(Reply):
    """A reply that is none."""

    def to_bytes(self) -> bytes:
        """As it travels."""
        return b"noise"
