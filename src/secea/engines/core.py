"""The core of a client in a process of its own, so that its end is the failure of that site alone.

A `Core` is held by the process that an engine runs at a site. It starts the core when an order comes and none runs,
passes bytes through unchanged, and kills a core that hangs. A new core goes on from the saved state.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from secea.engines.host import Host, told
from secea.engines.port import Order
from secea.engines.site import BUSY_SECONDS, Site
from secea.errors import SERVER, SecEAError
from secea.wire.messages import Buffer

_FRAME: Final = struct.Struct("<?Q")  # whether it went well, bytes


class CoreError(SecEAError):
    """The core did not do what it was told: it ended, it hung, or the user's code failed."""


class Core:
    """The engine's end: the client of one site."""

    def __init__(self, site: Path | str) -> None:
        self._site = Path(site)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._busy = threading.Lock()

    def obey(self, order: Buffer, timeout: float) -> bytearray:
        """The reply to an order, or a `CoreError` after at most `timeout` seconds and the time to end the core."""
        if not self._busy.acquire(timeout=timeout):
            raise CoreError("it is still busy with an earlier order")
        try:
            return self._obey(order, timeout)
        finally:
            self._busy.release()

    def close(self) -> None:
        """End the core."""
        with self._busy:
            self._end()

    def _obey(self, order: Buffer, timeout: float) -> bytearray:
        process, channel = self._running()
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(timeout, expire)
        timer.start()
        try:
            _send(channel, order)
            good, reply = _receive(channel)
        except OSError:
            code = self._end()
            raise CoreError(_how_it_ended(code, timeout if expired.is_set() else 0)) from None
        finally:
            timer.cancel()
        if not good:
            self._end()
            raise CoreError(reply.decode(errors="replace"))
        return reply

    def _running(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None or self._channel is None:
            self._channel, theirs = socket.socketpair()
            with theirs:
                command: list[str | Path] = [
                    sys.executable,
                    "-m",
                    "secea.engines.core",
                    self._site,
                    str(theirs.fileno()),
                ]
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
                )
        return self._process, self._channel

    def _end(self) -> int:
        """The exit code of the core, which is no more."""
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


def _how_it_ended(code: int, hung: float) -> str:
    if hung:
        return f"its core did not reply within {hung:.1f} s, and was killed"
    return f"its core was ended by {signal.Signals(-code).name}" if code < 0 else f"its core ended with code {code}"


def _send(channel: socket.socket, data: Buffer, *, good: bool = True) -> None:
    channel.sendall(_FRAME.pack(good, len(data)))
    channel.sendall(data)


def _receive(channel: socket.socket) -> tuple[bool, bytearray]:
    good, size = _FRAME.unpack(_exactly(channel, _FRAME.size))
    return good, _exactly(channel, size)


def _exactly(channel: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if not (got := channel.recv_into(view)):
            raise ConnectionResetError
        view = view[got:]
    return data


# ------------------------------------------------------------------------------------------------ in the core itself


def _listen(channel: socket.socket, orders: SimpleQueue[bytearray]) -> None:
    """Take orders while the engine's process lives. Without it the core ends at once, whatever it is doing."""
    with suppress(OSError):
        while True:
            orders.put(_receive(channel)[1])
    os._exit(0)


def _serve(channel: socket.socket, path: Path) -> None:
    orders: SimpleQueue[bytearray] = SimpleQueue()
    threading.Thread(target=_listen, args=(channel, orders), daemon=True).start()
    host: Host | None = None
    with ExitStack() as alone:
        while True:
            order = Order.parse(orders.get(), SERVER)
            try:
                if host is None:
                    site = Site.read(path)
                    alone.enter_context(site.store.held(BUSY_SECONDS))
                    host = site.host()
                reply = host.obey(order).to_bytes()
            except Exception as error:  # the user's code may raise anything; a new core goes on from the saved state
                _send(channel, told(error).encode(), good=False)
                raise
            _send(channel, reply)


def main(site: str, descriptor: str) -> None:
    """A core that takes its orders from a socket that it inherited."""
    with socket.socket(fileno=int(descriptor)) as channel:
        _serve(channel, Path(site))


if __name__ == "__main__":
    main(*sys.argv[1:])
