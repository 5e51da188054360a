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
from typing import Final

from secea.errors import ParamsError

FILE: Final = "running.json"
END_SECONDS: Final = 15.0
"""NVFlare's processes get so long to end by themselves."""
KILL_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1
_LOCK_SECONDS: Final = 1.0
"""So long may somebody look at a file that nobody holds."""
_MOST_BYTES: Final = 1 << 12


@dataclass(frozen=True)
class Running:
    """A process that runs a party."""

    what: str
    """host or join."""
    pid: int
    since: float
    engine: int = 0
    """What guards NVFlare's process."""


def running(folder: Path | str) -> Running | None:
    """What runs in this folder now."""
    try:
        with (Path(folder) / FILE).open("rb") as file:
            if _lock(file.fileno(), fcntl.LOCK_SH):
                return None
            found = _read(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if found is None:
        raise ParamsError(f"{Path(folder) / FILE} is damaged: end what runs there by its process, and remove the file")
    return found


@contextlib.contextmanager
def alone(folder: Path, what: str) -> Iterator[Place]:
    """Be the one process that runs in this folder. A `ParamsError` if there is one."""
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > until:
                found = running(folder)
                who = f" by process {found.pid}" if found else ""
                raise ParamsError(f"{folder} is in use{who}: end it with `secea stop {folder}`")
            time.sleep(_LOOK_SECONDS)
        left = _read(descriptor)
        if left:
            _end_left(folder, left)  # its holder was killed
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
        os.pwrite(self._descriptor, data.ljust(_MOST_BYTES // 8), 0)  # at once, over whatever was there


def stop(folder: Path | str, *, now: bool, patience: float) -> bool:
    """Ask what runs in this folder to end: after its round, or at once. Whether it ended in so many seconds."""
    found = running(folder)
    if found is None:
        with contextlib.suppress(FileNotFoundError), (Path(folder) / FILE).open("rb") as file:
            left = _read(file.fileno())
            if left and _end_left(Path(folder), left):
                return True
        raise ParamsError(f"nothing runs in {folder}")
    os.kill(found.pid, signal.SIGTERM if now else signal.SIGUSR1)
    until = time.monotonic() + patience
    while (still := running(folder)) and still.pid == found.pid:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def end_process(process: subprocess.Popen[bytes], patience: float = END_SECONDS) -> None:
    """End a guard, and with it NVFlare's process and all that it started."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    end_family(process.pid)
    process.wait()


def end_family(pid: int) -> None:
    """End a process and all that it started, jobs with groups of their own too: by SIGTERM, and soon by SIGKILL."""
    import psutil  # NVFlare brings it along

    try:
        first = psutil.Process(pid)
        family = [*first.children(recursive=True), first]
    except psutil.NoSuchProcess:
        return
    for act in (psutil.Process.terminate, psutil.Process.kill):
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                act(each)
        _, family = psutil.wait_procs(family, timeout=KILL_SECONDS)


def _end_left(folder: Path, left: Running) -> bool:
    """End NVFlare's processes whose holder was killed. A process that just has the same number is not meant."""
    import psutil

    try:
        found = psutil.Process(left.engine) if left.engine > 1 else None
        ours = found is not None and any(str(folder.resolve()) in word for word in found.cmdline())
    except psutil.Error:
        return False
    if ours:
        end_family(left.engine)
    return ours


def _read(descriptor: int) -> Running | None:
    """What a file says; None if it says nothing that can be meant."""
    try:
        found = Running(**json.loads(os.pread(descriptor, _MOST_BYTES, 0)))
    except (ValueError, TypeError):
        return None
    numbers = type(found.pid) is int and type(found.engine) is int and isinstance(found.since, int | float)
    return found if numbers and found.pid > 1 else None


def _lock(descriptor: int, how: int) -> bool:
    """Whether this file can be locked so. From then on the caller does, until it closes it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
