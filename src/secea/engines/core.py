"""Run a site's client in a process of its own, the *core*, so that a crash is a failure of only that site.

The process that an engine runs at a site holds a `Core`. It starts the core process when an order comes and none is
running, passes orders and replies through unchanged, and kills a core that hangs. A new core continues from the saved
state. Mask keys and noise seeds exist only in memory, so they are lost with the old core.

NVFlare (`secea.engines.nvflare`) uses this module. Flower starts a new process for each order, and therefore uses
`secea.engines.lasting`, where the core outlives its callers.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Final

from secea.arithmetic.field import keep_freed_memory
from secea.engines.host import Host, told
from secea.engines.log import Log
from secea.engines.memory import resident
from secea.engines.port import LATE, Order, Reply, Task
from secea.engines.site import BUSY_SECONDS, Site
from secea.errors import SERVER, ProtocolError, SecEAError
from secea.wire.messages import Buffer

BUSY: Final = "it is still busy with an earlier order"
UNTAKEN: Final = "nobody took its reply: the process at its site that had brought the order is gone"
DESERTED: Final = "the engine's process at this site has ended: its job is over, or died"
MOST_SECONDS: Final = 30 * 86400.0
"""An order may take thirty days. Timers and sockets refuse times that are much longer."""

_END_SECONDS: Final = 1.0
"""A core that is busy for longer when its holder wants it to end is killed."""
_ORDER: Final = struct.Struct("<dQ")  # the seconds that it may take, bytes
_REPLY: Final = struct.Struct("<BQ")  # the mark, bytes


class CoreError(SecEAError):
    """The core did not do what it was told: it ended, it hung, or the user's code failed."""


def allowed(timeout: float) -> float:
    """The seconds that an order is given: at most `MOST_SECONDS`. A `CoreError` if `timeout` is not positive."""
    if not timeout > 0:  # this also catches NaN
        raise CoreError(f"an order cannot be done in {timeout} s: its time must be a positive number of seconds")
    return min(timeout, MOST_SECONDS)


class Mark(IntEnum):
    """What a core reports about an order."""

    TAKEN = 1
    """The order has arrived and waits for its turn."""
    BEGUN = 2
    """The core is working on it."""
    FAILED = 3
    """It was not done, and the core ends. The reason follows."""
    DONE = 4
    """The reply follows."""


# ----------------------------------------------------------------------------------------------------- what is said


def _send(channel: socket.socket, head: bytes, data: Buffer) -> None:
    channel.sendall(head)
    channel.sendall(data)


def _exactly(channel: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if not (got := channel.recv_into(view)):
            raise ConnectionResetError
        view = view[got:]
    return data


def say(channel: socket.socket, mark: Mark, data: Buffer = b"") -> None:
    """Report on an order, from inside the core."""
    _send(channel, _REPLY.pack(mark, len(data)), data)


def hear(channel: socket.socket) -> tuple[Mark, bytearray]:
    """The next report from a core."""
    mark, size = _REPLY.unpack(_exactly(channel, _REPLY.size))
    return Mark(mark), _exactly(channel, size)


class Call:
    """An order in progress, as seen by the caller who gave it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.mark: Mark | None = None
        """How far the order has come."""

    def reply(self, order: Buffer, timeout: float) -> bytearray:
        """The reply to an order. A `CoreError` if the core could not do it, an `OSError` if the core has ended."""
        _send(self._channel, _ORDER.pack(timeout, len(order)), order)
        while True:
            self.mark, data = hear(self._channel)
            if self.mark is Mark.DONE:
                return data
            if self.mark is Mark.FAILED:
                raise CoreError(data.decode(errors="replace"))


@contextmanager
def limit(seconds: float, act: Callable[[], object]) -> Iterator[threading.Event]:
    """Call `act` if the block runs longer than `seconds`. The event is set if it did."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        act()

    timer = threading.Timer(max(seconds, 0.0), expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def note_stopped(site: Path, why: str) -> None:
    """Write into a site's log that its core ended. A core that is killed cannot do so itself."""
    with suppress(SecEAError, OSError):
        Log(Site.read(site).log).noted("stopped", why=why)


def how_it_ended(code: int | None, hung: float) -> str:
    """A sentence on how a core ended: killed after `hung` seconds (0: it did not hang), or with this exit code."""
    if hung:
        return f"{LATE}{hung:.1f} s, and was killed"
    if code is None:
        return "its core ended before it could reply"
    return f"its core was ended by {signal.Signals(-code).name}" if code < 0 else f"its core ended with code {code}"


# ------------------------------------------------------------------------------------ a core that ends with its holder


class Core:
    """The engine's handle on the core of one site. The core ends when this process ends."""

    def __init__(self, site: Path | str, run: str = "") -> None:
        self._site, self._run = Path(site), run
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._busy = threading.Lock()

    def obey(self, order: Buffer, timeout: float) -> bytearray:
        """The reply to an order. A `CoreError` after at most `timeout` seconds, plus the time to end the core."""
        timeout = allowed(timeout)
        if not self._busy.acquire(timeout=timeout):
            raise CoreError(BUSY)
        try:
            return self._obey(order, timeout)
        finally:
            self._busy.release()

    def close(self) -> None:
        """End the core, whatever it is doing."""
        if (process := self._process) is not None and not self._busy.acquire(timeout=_END_SECONDS):
            process.kill()  # whoever waits for it learns that it has ended
            self._busy.acquire()
        elif process is None:
            return
        try:
            self._end()
        finally:
            self._busy.release()

    def _obey(self, order: Buffer, timeout: float) -> bytearray:
        process, channel = self._running()
        with limit(timeout, process.kill) as expired:
            try:
                return Call(channel).reply(order, timeout)
            except OSError:
                code = self._end()
                why = how_it_ended(code, timeout if expired.is_set() else 0)
                note_stopped(self._site, why)
                raise CoreError(why) from None
            except CoreError:
                self._end()
                raise

    def _running(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None or self._channel is None:
            self._channel, theirs = socket.socketpair()
            with theirs:
                descriptor = theirs.fileno()
                command = [sys.executable, "-m", "secea.engines.core", str(self._site), str(descriptor), self._run]
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    command, stdin=subprocess.DEVNULL, pass_fds=[descriptor]
                )
        return self._process, self._channel

    def _end(self) -> int:
        """End the core if it still runs, and return its exit code."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if process is None or channel is None:
            return 0
        channel.close()
        try:
            return process.wait(1)  # it sees the end of its channel
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


# ------------------------------------------------------------------------------------------------ in the core itself


@dataclass
class Asked:
    """An order that arrived, and the channel on which its sender waits for the reply."""

    order: bytearray = field(repr=False)
    channel: socket.socket
    seconds: float
    """How long it may take."""
    end: float
    """The time after which nobody waits for the reply."""
    over: bool = False
    """Whether it was the last order of a run."""

    @classmethod
    def receive(cls, channel: socket.socket) -> Asked:
        """Receive the next order. A `ValueError` if its time limit is impossible."""
        seconds, size = _ORDER.unpack(_exactly(channel, _ORDER.size))
        if not 0 < seconds <= MOST_SECONDS:
            raise ValueError(f"an order has an impossible time limit of {seconds} seconds")
        return cls(_exactly(channel, size), channel, seconds, time.monotonic() + seconds)

    def say(self, mark: Mark, data: Buffer = b"") -> bool:
        """Report to the sender. Whether it is still there."""
        try:
            say(self.channel, mark, data)
        except OSError:
            return False
        return True


class Client:
    """The client of a site, inside the core. It is created when its first order comes."""

    def __init__(self, path: Path, alone: ExitStack, run: str = "") -> None:
        self._path, self._alone, self._run = path, alone, run
        self._log, self._said = Log(), ""
        self._over = self._failed = False

    @cached_property
    def site(self) -> Site:
        """The site's file, read when first needed. From then on no other process can use the site's state."""
        site = Site.read(self._path)
        self._log = Log(site.log)
        self._alone.enter_context(site.store.held(BUSY_SECONDS))
        self._log = site.audit
        self._log.noted("start", **site.began(), run=self._run)
        return site

    @cached_property
    def _host(self) -> Host:
        return self.site.host()

    def obey(self, asked: Asked) -> bytes:
        """Carry out an order, and return the encoded reply."""
        try:
            order = Order.parse(asked.order, SERVER)
        except ProtocolError as error:  # nothing has changed
            return Reply(fault=told(error)).to_bytes()
        self._heard(order.said)
        reply = self._host.obey(order)
        asked.over = order.task is Task.END and not reply.fault and _over(self._host)
        if asked.over:
            self._log.noted("end", **resident())
            self._over = True
        return reply.to_bytes()

    def _heard(self, said: str) -> None:
        """Note why the server says that it left this site out. It is not authenticated, and nothing follows from it."""
        if said and said != self._said and self.site.log:
            self._said = said
            self._log.noted("left out", by="the server, as it says", why=said)

    def deserted(self) -> bool:
        """Nobody can give orders any more. Whether this core is about to end with an error, which it has to print."""
        if not self._over and not self._failed:
            self.noted("stopped", DESERTED)
        return self._failed

    def noted(self, event: str, why: str) -> None:
        """Write into the site's log what becomes of its core, if that can be written."""
        with suppress(OSError):
            self._log.noted(event, why=why)

    def stopped(self, error: Exception) -> bytes:
        """What others are told about an error. The full text goes only to this site, before anybody hears of it."""
        self._failed = True
        with suppress(OSError):
            trace = traceback.format_exception(error)
            self._log.noted("stopped", why=f"{type(error).__name__}: {error}", trace="".join(trace))
        return told(error).encode()


def _over(host: Host) -> bool:
    """Whether the server itself said that the run is over. An order alone could come from whoever carries messages."""
    return host.client.at.phase == host.client.session.form.end_phase


def do(client: Client, orders: Iterable[Asked]) -> None:
    """Carry out orders one by one. An exception in the user's code ends the core; a new one uses the saved state."""
    keep_freed_memory()
    for asked in orders:
        asked.say(Mark.BEGUN)
        try:
            reply = client.obey(asked)
        except Exception as error:  # the user's code may raise anything, and the sender must be told
            asked.say(Mark.FAILED, client.stopped(error))
            raise
        if not asked.say(Mark.DONE, reply):
            client.noted("left out", UNTAKEN)


def _given(channel: socket.socket, client: Client) -> Iterator[Asked]:
    """The orders of the process that holds this core. When that process ends, the core exits at once."""
    orders: queue.SimpleQueue[Asked] = queue.SimpleQueue()

    def listen() -> None:
        with suppress(OSError, ValueError):
            while True:
                orders.put(Asked.receive(channel))
        if not client.deserted():
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield orders.get()


def main(site: str, descriptor: str, run: str) -> None:
    """Run a core that takes its orders from an inherited socket."""
    with socket.socket(fileno=int(descriptor)) as channel, ExitStack() as alone:
        own = Client(Path(site), alone, run)
        do(own, _given(channel, own))


if __name__ == "__main__":
    main(*sys.argv[1:])
