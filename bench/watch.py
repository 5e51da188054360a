"""What the processes of a deployment use, by role, and what passes over the loopback device. Linux."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """A process as it was seen last: one that has ended keeps what it used."""

    parent: int
    role: str = ""
    ours: bool = False
    """Of this deployment."""
    cpu: float = 0.0
    memory: int = 0


@dataclass(frozen=True)
class Mark:
    """What was used until the server noted its progress."""

    cpu: dict[str, float]
    """Seconds by role."""
    loopback: int
    """Bytes on the loopback device."""


def loopback_bytes() -> int:
    """All bytes that came over the loopback device since the system started."""
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


class Watch(threading.Thread):
    """CPU and memory of this process's descendants by role, and a mark when the server notes its progress.

    `roles` says what a process is by a word in its command line. A process whose command line names `folder` counts
    even if it is nobody's child.
    """

    def __init__(self, roles: Mapping[str, str], folder: Path, audit: Path) -> None:
        super().__init__(daemon=True)
        self._roles, self._folder, self._audit = roles, str(folder), audit
        self._over, self._size = threading.Event(), 0
        self._seen: dict[tuple[int, int], Process] = {}  # by id and start
        self.marks: list[Mark] = []
        self.notes: list[dict[str, Any]] = []
        self.began = 0.0
        """The time at which it began to watch."""

    def run(self) -> None:
        """Look at the log all the time, and at the processes ten times a second."""
        for i in itertools.count():
            self._read()
            if i % 5 == 0:
                self._look()
            if self._over.wait(0.02):
                break

    def _look(self) -> None:
        now: dict[int, Process] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):  # it has ended
                pid, fields = int(path.name), (path / "stat").read_text().rpartition(") ")[2].split()
                process = now[pid] = self._seen.setdefault((pid, int(fields[19])), Process(0))
                process.parent = int(fields[1])
                process.role = self._role(path) or process.role  # a new process may not have its own command yet
                if process.role:
                    process.cpu = (int(fields[11]) + int(fields[12])) / _TICK
                    status = (path / "status").read_text()
                    process.memory = int(status.partition("VmHWM:")[2].split()[0]) * 1024
        for pid, process in now.items():
            process.ours = process.ours or (bool(process.role) and self._ours(pid, now))

    def _role(self, path: Path) -> str:
        command = (path / "cmdline").read_text()
        return next((role for word, role in self._roles.items() if word in command), "")

    def _ours(self, pid: int, now: Mapping[int, Process]) -> bool:
        with contextlib.suppress(OSError):
            if self._folder in Path(f"/proc/{pid}/cmdline").read_text():
                return True
        while pid in now and pid != os.getpid():
            pid = now[pid].parent
        return pid == os.getpid()

    def _read(self) -> None:
        if self._audit.exists() and self._size != (size := self._audit.stat().st_size):
            self._size = size
            text = self._audit.read_text().rpartition("\n")[0]
            self.notes = [note for note in map(json.loads, text.splitlines()) if note["event"] == "progress"]
            if len(self.notes) >= len(self.marks):
                self._look()
                self.marks += [self._mark()] * (len(self.notes) + 1 - len(self.marks))

    def _mark(self) -> Mark:
        cpu: dict[str, float] = {}
        for each in self._seen.values():
            if each.role and each.ours:
                cpu[each.role] = cpu.get(each.role, 0.0) + each.cpu
        return Mark(cpu, loopback_bytes())

    @property
    def memory(self) -> dict[str, int]:
        """The most memory of a process of each role, in bytes."""
        most: dict[str, int] = {}
        for each in self._seen.values():
            if each.role and each.ours:
                most[each.role] = max(most.get(each.role, 0), each.memory)
        return most

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """While this lasts."""
        self._look()
        self.marks, self.began = [self._mark()], time.time()
        self.start()
        try:
            yield
        finally:
            self._over.set()
            self.join()
            self._read()
