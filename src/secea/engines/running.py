"""What runs here: a party that `secea host` or `secea join` started, so that other commands find and end it.

The file `running.json` in a party's folder is locked as long as the process lives, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from secea.errors import ParamsError

if TYPE_CHECKING:
    import psutil

FILE: Final = "running.json"
END_SECONDS: Final = 15.0
"""NVFlare's processes get so long to end by themselves."""
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Running:
    """A process that runs a party."""

    what: str
    """host or join."""
    pid: int
    since: float
    engine: int = 0
    """NVFlare's process."""


def running(folder: Path | str) -> Running | None:
    """What runs in this folder now."""
    try:
        with (Path(folder) / FILE).open("rb") as file:
            return None if _lock(file.fileno()) else Running(**json.loads(file.read()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError):
        raise ParamsError(f"{Path(folder) / FILE} is damaged: remove it when nothing of secea runs there") from None


@contextlib.contextmanager
def alone(folder: Path, what: str) -> Iterator[Place]:
    """Be the one process that runs in this folder. A `ParamsError` if there is one."""
    path = folder / FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _lock(descriptor):
            found = running(folder)
            who = f" as process {found.pid}" if found else ""
            raise ParamsError(f"{folder} is in use{who}: end it with `secea stop {folder}`")
        left = _left(descriptor)
        if left:
            end(left)  # its holder was killed
        place = Place(descriptor, what)
        place.write()
        yield place
    finally:
        os.close(descriptor)


class Place:
    """The folder that this process runs in."""

    def __init__(self, descriptor: int, what: str) -> None:
        self._descriptor = descriptor
        self.running = Running(what, os.getpid(), time.time())

    def write(self, engine: int = 0) -> None:
        """Write down what runs, so that it can be found and ended."""
        self.running = Running(self.running.what, self.running.pid, self.running.since, engine)
        data = json.dumps(asdict(self.running)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)


def stop(folder: Path | str, *, now: bool, patience: float) -> bool:
    """Ask what runs in this folder to end: after its round, or at once. Whether it ended in so many seconds."""
    found = running(folder)
    if found is None:
        raise ParamsError(f"nothing runs in {folder}")
    os.kill(found.pid, signal.SIGTERM if now else signal.SIGUSR1)
    until = time.monotonic() + patience
    while (still := running(folder)) and still.pid == found.pid:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def end_process(process: subprocess.Popen[bytes], patience: float = END_SECONDS) -> None:
    """End NVFlare's process and all that it started: it may end by itself for a while."""
    family = _family(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    _kill(family)
    process.wait()


def end(engine: int) -> None:
    """End a process of NVFlare whose holder was killed, and all that it started. No other process is meant."""
    family = _family(engine)
    if family and any("nvflare" in word for word in _command(family[0])):
        _kill(family)


def _family(pid: int) -> list[psutil.Process]:
    """A process and all that it started: jobs have groups of their own."""
    import psutil  # NVFlare brings it along

    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    import psutil

    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _kill(family: list[psutil.Process]) -> None:
    import psutil

    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def _left(descriptor: int) -> int:
    """NVFlare's process of the one who was here before."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return int(json.loads(os.pread(descriptor, 1 << 16, 0)).get("engine", 0))
    return 0


def _lock(descriptor: int) -> bool:
    """Whether nobody holds this file. From then on the caller does, until it closes it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
