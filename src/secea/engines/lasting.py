"""A client's core process for engines that start a new process for each order, as Flower does. The core outlives them.

Mask keys and noise seeds exist only in the memory of a core, so it has to last as long as the run. A `LastingCore`
connects to the core of its site, and starts it if none runs. The core is detached from the process that started it. It
takes orders on a Unix socket that only its own user can reach: one order at a time, each on its own connection. It ends
after the run, when its state is removed, or when nobody has used it for hours. A file in the state folder says where it
listens. It works only on Linux. See `secea.engines.core` for a core that ends with the process that holds it.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import secea
from secea.atomic import replace_files
from secea.engines.core import (
    BUSY,
    Asked,
    Call,
    Client,
    CoreError,
    Mark,
    allowed,
    do,
    hear,
    how_it_ended,
    limit,
    note_stopped,
    say,
)
from secea.engines.host import told
from secea.engines.site import BUSY_SECONDS, Site
from secea.errors import SecEAError, SnapshotError
from secea.wire.keys import digest
from secea.wire.messages import Buffer

IDLE_SECONDS: Final = 7200.0
"""How long a core waits for the next order. If the last order's time limit was longer than half of it, twice that."""

_ADDRESS: Final = "core.state"  # the suffix of all state: whoever deletes that deletes this too
_LOCK: Final = "lock.state"  # not the site's own file: anybody who can open a file can lock it
_SILENT_SECONDS: Final = 60.0  # a caller that is silent for this long in the middle of an order is dropped
_QUIET_SECONDS: Final = 60.0  # after the time of an order is over, the next one has come within this time
_SILENCE: Final = (
    "no order has come for {:.0f} s: the run is over, or died, or goes on without this site; the server's side knows"
)
_LOOK_SECONDS: Final = 0.5
_GRACE: Final = 5.0
_BACKLOG: Final = 64
_PATH_BYTES: Final = 107  # the system's limit for a socket
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group


@dataclass(frozen=True)
class _Address:
    """Where a core listens, and a hash of what it was started with."""

    socket: str
    process: int
    settings: str

    @classmethod
    def read(cls, state: Path) -> _Address | None:
        """The address that is saved in a state folder. Its core may have ended."""
        try:
            return cls(**json.loads((state / _ADDRESS).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, state: Path) -> None:
        """Save the address, as a whole or not at all."""
        replace_files({state / _ADDRESS: json.dumps(asdict(self)).encode()}, mode=0o600)

    def clear(self) -> None:
        """Remove the socket and its folder. If the folder holds anything else, it stays."""
        path = Path(self.socket)
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def _settings(site: Site) -> str:
    """A hash of what a core is started with: the site's file, the federation, the site's identity, and the release."""
    text = f"{secea.__version__} {site!r}"
    return digest(b"settings", text.encode(), site.session.hash, site.key.public).hex()


def _peer(channel: socket.socket) -> tuple[int, int]:
    """The process at the other end of a socket, and its user."""
    found = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(found)
    return process, user


def _kill(process: int) -> None:
    """Kill a core by its process id. Only safe while connected to it: then no other process can have that id."""
    if process > 0:  # 0: the process is in another container
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class LastingCore:
    """The core of one site, for callers that come and go. It is started if none is running.

    A core that was started with a different site file, federation, identity or release is replaced.
    """

    def __init__(self, site: Path | str, idle: float = IDLE_SECONDS, run: str = "") -> None:
        if not hasattr(socket, "SO_PEERCRED"):  # needed to know who is at the other end of a socket
            raise CoreError("a lasting core needs Linux")
        self._file, self._idle, self._run = Path(site).absolute(), idle, run

    def obey(self, order: Buffer, timeout: float) -> bytearray:
        """The reply to an order. A `CoreError` after at most `timeout` seconds, plus the time to end the core."""
        timeout = allowed(timeout)
        end = time.monotonic() + timeout
        reply = None
        while reply is None:  # try again if the core was about to end when the order came
            with self._reached(end, timeout) as channel:
                reply = self._asked(channel, order, end, timeout)
        return reply

    def close(self) -> None:
        """End the core of this site, if one runs, whatever it is doing."""
        with self._alone(time.monotonic() + BUSY_SECONDS) as site:
            if address := _Address.read(site.state):
                self._end(address)

    def _asked(self, channel: socket.socket, order: Buffer, end: float, timeout: float) -> bytearray | None:
        """The reply, or None if the core ended before it began to work on the order."""
        call, (process, _) = Call(channel), _peer(channel)

        def expire() -> None:
            if call.mark is not Mark.TAKEN:  # otherwise it is busy with another caller's order
                _kill(process)
            with suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)

        with limit(end - time.monotonic(), expire) as expired:
            try:
                return call.reply(order, timeout)
            except OSError:
                if expired.is_set() and call.mark is Mark.TAKEN:
                    raise CoreError(BUSY) from None
                if expired.is_set() or call.mark is Mark.BEGUN:
                    why = how_it_ended(None, timeout if expired.is_set() else 0)
                    note_stopped(self._file, why)
                    raise CoreError(why) from None
        return None

    @contextmanager
    def _reached(self, end: float, timeout: float) -> Iterator[socket.socket]:
        """A connection to the one core of this site."""
        with self._alone(end) as site:
            while (channel := self._connected(site)) is None:
                self._start(end, timeout)
        with channel:
            yield channel

    @contextmanager
    def _alone(self, end: float) -> Iterator[Site]:
        """The site's current file. Inside this block nobody else starts or ends the site's core."""
        try:
            site = Site.read(self._file)
        except SecEAError as error:
            raise CoreError(told(error)) from None
        while (lock := self._locked(site)) is None:
            if time.monotonic() > end:
                raise CoreError(BUSY)
            time.sleep(_LOOK_SECONDS / 10)
        try:
            yield site
        finally:
            os.close(lock)

    def _locked(self, site: Site) -> int | None:
        try:
            return _lock(site.state)
        except SecEAError as error:
            raise self._noted(error) from None

    def _noted(self, error: SecEAError) -> CoreError:
        """No core can be reached: what others are told. The site's log has all of it."""
        note_stopped(self._file, str(error))
        return CoreError(told(error))

    def _connected(self, site: Site) -> socket.socket | None:
        """A connection to the running core, or None if there is none. A core with other settings is ended."""
        try:
            address, settings = _Address.read(site.state), _settings(site)
        except SecEAError as error:
            raise self._noted(error) from None
        if address and address.settings == settings:
            return _connection(address)
        if address:
            self._end(address)
        return None

    @staticmethod
    def _end(address: _Address) -> None:
        """End the core that listens there, if one does."""
        if channel := _connection(address):
            with channel, suppress(OSError):
                _kill(_peer(channel)[0])
                channel.settimeout(BUSY_SECONDS)
                channel.recv(1)  # returns nothing once it has ended
        address.clear()

    def _start(self, end: float, timeout: float) -> None:
        """Start a core, and wait until it listens. It is detached, so that it does not end with its starter."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                shell = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh"]
                what = [self._file, theirs.fileno(), self._idle, self._run]
                own = [sys.executable, "-m", "secea.engines.lasting", *what]
                started = subprocess.run(  # noqa: S603 - our own module
                    [*shell, *map(str, own)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    pass_fds=[theirs.fileno()], start_new_session=True, check=True,
                )  # fmt: skip
            with limit(end - time.monotonic(), lambda: _kill(int(started.stdout))) as expired:
                try:
                    mark, said = hear(ours)
                except OSError:
                    why = how_it_ended(None, timeout if expired.is_set() else 0)
                    note_stopped(self._file, why)
                    raise CoreError(why) from None
            if mark is Mark.FAILED:
                raise CoreError(said.decode(errors="replace"))


def _lock(state: Path) -> int | None:
    """Lock the state: a descriptor that keeps others out until it is closed. None if another process has the lock."""
    import fcntl  # not on Windows

    path = state / _LOCK
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:  # the folder was removed in the meantime
        return None
    except OSError as error:
        raise SnapshotError(f"the state directory {state} cannot be used: {error.strerror}") from None
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):  # otherwise it was replaced
            return descriptor
    os.close(descriptor)
    return None


def _connection(address: _Address) -> socket.socket | None:
    """Connect to a core. None if nobody listens there: the core was killed, or the machine was restarted."""
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.settimeout(BUSY_SECONDS)
        channel.connect(address.socket)
        channel.settimeout(None)
        if _peer(channel)[1] == os.getuid():
            return channel
    except OSError:
        pass
    channel.close()
    return None


# ------------------------------------------------------------------------------------------------ in the core itself


class _Door:
    """Where a lasting core takes its orders: a socket in a folder that only its own user can enter."""

    def __init__(self, state: Path, settings: str) -> None:
        self._state = state
        if stale := _Address.read(state):  # we hold the state, so nobody listens there
            stale.clear()
        self._listener = socket.socket(socket.AF_UNIX)
        self._address = _Address(f"{_short_folder()}/core", os.getpid(), settings)
        self._listener.bind(self._address.socket)
        self._listener.listen(_BACKLOG)
        self._address.write(state)
        self._orders: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._open: set[socket.socket] = {self._listener}
        os.register_at_fork(after_in_child=self._leave)
        threading.Thread(target=self._welcome, daemon=True).start()

    def _leave(self) -> None:
        """Close all sockets in a forked child. It is not the core, and callers that reach it would wait for ever."""
        for each in self._open:
            os.close(each.detach())

    def _welcome(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                channel, _ = self._listener.accept()
            except OSError:  # for example, too many open files
                time.sleep(_LOOK_SECONDS)
            else:
                threading.Thread(target=self._take, args=(channel,), daemon=True).start()

    def _take(self, channel: socket.socket) -> None:
        """Take one order from a connection. Anything that is not an order is dropped."""
        self._open.add(channel)
        try:
            channel.settimeout(_SILENT_SECONDS)
            if _peer(channel)[1] != os.getuid():
                raise PermissionError
            asked = Asked.receive(channel)
            channel.settimeout(max(asked.seconds, 1.0))
            asked.say(Mark.TAKEN)
            self._orders.put(asked)
        except (OSError, ValueError, OverflowError, MemoryError):
            self._let_go(channel)

    def _let_go(self, channel: socket.socket) -> None:
        self._open.discard(channel)
        channel.close()

    def orders(self, idle: float, noted: Callable[[str, str], None]) -> Iterator[Asked]:
        """The orders, until the run is over, the state is gone, or no order has come for too long. `noted` is told."""
        patience, quiet, last = idle, math.inf, time.monotonic()
        while (stands := self._stands()) and time.monotonic() - last < patience:
            try:
                asked = self._orders.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if time.monotonic() - last > quiet:
                    noted("waiting", _SILENCE.format(quiet))
                    quiet = math.inf
                continue
            if asked.end > time.monotonic():
                with limit(asked.seconds + _GRACE, partial(_give_up, asked.seconds, noted)):  # if the caller has gone
                    yield asked
            self._let_go(asked.channel)
            if asked.over:
                return
            patience, quiet, last = max(idle, 2 * asked.seconds), asked.seconds + _QUIET_SECONDS, time.monotonic()
        noted("stopped", f"no order has come for {patience:.0f} s" if stands else "its state directory was removed")

    def _stands(self) -> bool:
        """Whether the state is still there and still ours. A temporary failure to read it does not count."""
        try:
            (self._state / _ADDRESS).stat()
        except OSError as error:
            return not isinstance(error, FileNotFoundError | NotADirectoryError)
        return _Address.read(self._state) in (None, self._address)

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # otherwise a waiting thread would keep it open
        self._listener.close()
        if self._stands():
            (self._state / _ADDRESS).unlink(missing_ok=True)
        self._address.clear()


def _give_up(seconds: float, noted: Callable[[str, str], None]) -> None:
    """End this core, which works for longer than it may."""
    noted("stopped", how_it_ended(None, seconds))
    os._exit(1)


def _short_folder() -> str:
    """A new folder for a socket. The system limits the length of a socket's path."""
    folder = tempfile.mkdtemp(prefix="secea-")
    if len(os.fsencode(f"{folder}/core")) > _PATH_BYTES:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="secea-", dir="/tmp")
    return folder


def _redirect(log: Path | None) -> None:
    """Send further output to a file beside the site's log, since the pipes of the core's starter may close."""
    path = os.devnull if log is None else log.with_suffix(".out")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for each in (1, 2):
        os.dup2(descriptor, each)
    os.close(descriptor)


def _last(client: Client, alone: ExitStack, starter: socket.socket, idle: float) -> None:
    """Run a lasting core. Its starter is told that it listens, or why it does not."""
    try:
        door = alone.enter_context(closing(_Door(client.site.state, _settings(client.site))))
        _redirect(client.site.log)
    except Exception as error:  # whatever it is, the starter must not wait in vain
        say(starter, Mark.FAILED, client.stopped(error))
        raise
    with suppress(OSError), starter:
        say(starter, Mark.DONE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    do(client, door.orders(idle, client.noted))


def main(site: str, descriptor: str, idle: str, run: str) -> None:
    """Run a lasting core. It reports to the process at the other end of the inherited socket."""
    with socket.socket(fileno=int(descriptor)) as starter, ExitStack() as alone:
        _last(Client(Path(site), alone, run), alone, starter, float(idle))


if __name__ == "__main__":
    main(*sys.argv[1:])
