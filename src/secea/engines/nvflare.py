"""NVFlare as an engine (NVFlare 2.9.0; `secea[nvflare]`): orders and replies are calls of its Collab API.

The submitted job contains no code and no secrets. It names two classes of this module, and the number of rounds. Keys,
state and the user's functions stay at the sites (`secea.engines.site`). Each client's core runs in a process of its own
(`secea.engines.core`).
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.collab import CollabCallError, CollabRecipe, collab
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from secea.engines.core import Core, CoreError
from secea.engines.driver import Patience
from secea.engines.policy import without_code
from secea.engines.port import Failure, Order, Reply, Task, orders
from secea.engines.run import serve
from secea.engines.site import Site
from secea.errors import ParamsError, ProtocolError
from secea.wire.messages import Buffer

SITES: Final = "SECEA_SITES"
"""If all sites are on one machine: a folder with each site's file, NAME/site.toml, and server/site.toml."""

CLASSES: Final = (
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
    "secea.engines.nvflare.Conductor",
    "secea.engines.nvflare.Member",
)
"""The classes that a job names. A site that allows just these need not accept code from the server."""

_RIGHTS: Final = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands")
"""The rights of a role to which NVFlare's policy gives everything, without the right to bring code."""

PIECE_BYTES: Final = 1 << 24
"""What one call carries, since NVFlare holds several copies of it. A piece of just this size is not the last one."""

MOST_BYTES: Final = 1 << 32
"""Of an order or a reply: as much as NVFlare takes in one call."""

_GRACE: Final = 1.0
"""Extra seconds for NVFlare to report that a call has timed out."""

_logger = logging.getLogger(__name__)


def site_file(name: str, kit: Path | str) -> Path:
    """The path of a site's file: local/secea.toml in its startup kit, which may be a link. Or see `SITES`."""
    folder = os.environ.get(SITES)
    return (Path(folder) / name / "site.toml" if folder else Path(kit) / "local" / "secea.toml").resolve()


def permit(folder: Path | str) -> None:
    """Let a site, or a simulator's folder, run these jobs: add `CLASSES` to its allowed classes.

    From then on the startup kit refuses all jobs that bring their own code. Such code could read the identity key.
    """
    local = Path(folder) / "local"
    local.mkdir(parents=True, exist_ok=True)
    resources = _policy(local / "resources.json") or {"format_version": 2}
    allowed = resources.setdefault("class_allow_list", list(DEFAULT_CLASS_ALLOW_LIST))
    allowed += [name for name in CLASSES if name not in allowed]
    _write(local / "resources.json", resources)
    if authorization := _policy(local / "authorization.json"):
        authorization["permissions"] = without_code(authorization["permissions"], _RIGHTS)
        _write(local / "authorization.json", authorization)


def _policy(path: Path) -> dict[str, Any]:
    """The site's own policy, or the one that came with its startup kit."""
    files = (path, path.with_name(f"{path.name}.default"))
    return next((json.loads(file.read_bytes()) for file in files if file.exists()), {})


def _write(path: Path, policy: dict[str, Any]) -> None:
    path.write_text(json.dumps(policy, indent=2) + "\n", encoding="utf-8")


# -------------------------------------------------------------------------------------------------------- the client


def _leave_requests_unprinted() -> None:
    """NVFlare 2.9.0 makes a text of every request for its debug log, even if that is off, and throws it away."""
    ConsumableBufferList.__repr__ = object.__repr__


def pieces(data: Buffer) -> Iterator[tuple[int, Buffer]]:
    """An order or a reply as it is carried: where each piece starts, and its bytes."""
    if len(data) < PIECE_BYTES:
        yield 0, data
    else:
        for start in range(0, len(data) + 1, PIECE_BYTES):
            yield start, bytes(memoryview(data)[start : start + PIECE_BYTES])


class Member:
    """A client's side of the job. It hands each order of the server to the core of its site."""

    def __init__(self) -> None:
        self._core: Core | None = None
        self._order: tuple[int, bytearray] = (0, bytearray())  # its number, and what has come of it
        self._reply: tuple[int, Iterator[tuple[int, Buffer]]] = (0, iter(()))  # what has not left yet

    @collab.init
    def start(self) -> None:
        """The job begins: find the site's file. The core starts with the first order."""
        _leave_requests_unprinted()
        self._core = Core(site_file(collab.site_name, collab.workspace.get_root_dir()))

    @collab.publish
    def obey(self, piece: Buffer, timeout: float, number: int, start: int) -> Buffer | str:
        """A piece of an order. The last one gives the first piece of the reply, or a text that says why there is none.

        The others give nothing. `number` says which order it is, `start` where in it the piece belongs.
        """
        if collab.caller != "server":
            return f"{collab.caller} gave an order, which only the server may do"
        return self.take(piece, timeout, number, start)

    @collab.publish
    def more(self, number: int) -> Buffer | str:
        """The next piece of the reply to an order."""
        if collab.caller != "server":
            return f"{collab.caller} asked for a reply, which only the server may do"
        return self.give(number)

    def take(self, piece: Buffer, timeout: float, number: int, start: int) -> Buffer | str:
        """See `obey`."""
        if start == 0:
            self._order = number, bytearray()
        before, order = self._order
        if (number, start) != (before, len(order)) or len(order) + len(piece) > MOST_BYTES:
            return "a piece of an order is missing, or the order is too large"
        if order or len(piece) == PIECE_BYTES:
            order += piece
        if len(piece) == PIECE_BYTES:
            return b""
        self._order = 0, bytearray()
        return self._obeyed(order or piece, timeout, number)

    def _obeyed(self, order: Buffer, timeout: float, number: int) -> Buffer | str:
        assert self._core is not None
        try:
            self._reply = number, pieces(self._core.obey(order, timeout))
        except CoreError as error:
            return str(error)
        return self.give(number)

    def give(self, number: int) -> Buffer | str:
        """See `more`."""
        last, reply = self._reply
        if number != last:
            return "its reply is gone"
        _, piece = next(reply)
        if len(piece) < PIECE_BYTES:
            self._reply = 0, iter(())
        return piece

    @collab.final
    def stop(self) -> None:
        """The job is over, or was aborted."""
        if self._core is not None:
            self._core.close()


# -------------------------------------------------------------------------------------------------------- the server


class CollabPort:
    """The clients of an NVFlare job as a `Port`: a call for each order, or for each piece of it, all at once."""

    def __init__(self, names: tuple[str, ...], proxies: Mapping[str, Any]) -> None:
        self._names, self._proxies = names, proxies
        self._calls: dict[int, tuple[Task, Future[Reply | Failure]]] = {}  # the last one to each client
        self._numbers = itertools.count(1)
        self.sent = self.received = 0
        """Bytes of orders and of replies."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`. A client that was called in an earlier exchange, and has not answered, is not called again."""
        calls = {self._call(n, order, timeout): n for n, order in orders(tasks, round, inboxes()).items()}
        with suppress(TimeoutError):
            for call in as_completed(calls, timeout + _GRACE):
                yield calls.pop(call), call.result()
        for n in calls.values():
            yield n, Failure(f"it did not reply within {timeout:.1f} s")

    def _call(self, n: int, order: Order, timeout: float) -> Future[Reply | Failure]:
        """Give an order in a thread of its own, so that nobody has to wait for its end."""
        task, call = self._calls.get(n, (None, None))
        if call is None or call.done():
            call = Future()
            threading.Thread(target=self._settle, args=(call, n, order, timeout), daemon=True).start()
            self._calls[n] = order.task, call
        elif not task is order.task is Task.HELLO:
            call = Future()
            call.set_result(Failure("it is still busy with an earlier call"))
        return call

    def _settle(self, call: Future[Reply | Failure], n: int, order: Order, timeout: float) -> None:
        try:
            call.set_result(self._reply(n, order, timeout))
        except (CoreError, ProtocolError) as error:
            call.set_result(Failure(str(error)))
        except CollabCallError as error:
            call.set_result(Failure(f"it cannot be reached: {error.cause}"))
        except BaseException as error:  # whatever it was, nobody must wait for a call that is over
            call.set_result(Failure(f"the call was interrupted: {error}"))
            raise

    def _reply(self, n: int, order: Order, timeout: float) -> Reply | Failure:
        name, number = self._names[n], next(self._numbers)
        if name not in self._proxies:
            return Failure(f"{name} is not connected")
        line = _Line(self._proxies[name], timeout)
        answer: Buffer = b""
        for start, piece in pieces(order.to_bytes()):
            self.sent += len(piece)
            answer = line.obey(piece, number, start)
        reply = bytearray(answer) if len(answer) == PIECE_BYTES else answer
        while len(answer) == PIECE_BYTES:
            answer = line.more(number)
            reply += answer  # type: ignore[operator]  # it is a bytearray
            if len(reply) > MOST_BYTES:
                return Failure("its reply is too large")
        self.received += len(reply)
        return Reply.parse(reply, n)


class _Line:
    """Calls to one member, which all together may take so many seconds. A `CoreError` if it gives no bytes."""

    def __init__(self, proxy: Any, timeout: float) -> None:
        self._proxy, self._timeout, self._end = proxy, timeout, time.monotonic() + timeout

    def obey(self, piece: Buffer, number: int, start: int) -> Buffer:
        left = self._left()
        return _bytes(self._proxy(timeout=left).obey(piece, left, number, start))

    def more(self, number: int) -> Buffer:
        return _bytes(self._proxy(timeout=self._left()).more(number))

    def _left(self) -> float:
        if (left := self._end - time.monotonic()) <= 0:
            raise CoreError(f"it did not reply within {self._timeout:.1f} s")
        return left


def _bytes(result: object) -> Buffer:
    if isinstance(result, bytes | bytearray | memoryview):
        return result
    raise CoreError(result if isinstance(result, str) else f"it replied with a {type(result).__name__}")


class Conductor:
    """The server's side of the job: set-up, then rounds. It continues an interrupted job if it has that job's state."""

    def __init__(
        self, rounds: int, stage: float = 30.0, bytes_per_second: float = 2e6, training: float = 3600.0
    ) -> None:
        self.rounds = rounds
        self.stage, self.bytes_per_second, self.training = stage, bytes_per_second, training

    @collab.main
    def run(self) -> None:
        """Run the job. NVFlare calls it."""
        site = Site.read(site_file("server", collab.workspace.get_root_dir()))
        port = CollabPort(site.session.roster.names, {proxy.name: proxy for proxy in collab.clients})
        serve(site, port, self.rounds, Patience(self.stage, self.bytes_per_second, self.training), _logger)


class _Recipe(CollabRecipe):
    """A job that ships no code: every site has its own copy of secea."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._job.set_app_packages(["secea"])

    @staticmethod
    def _user_source_entries(_objects: object) -> list[tuple[str, str | None]]:
        return []


def recipe(rounds: int, *, clients: int, name: str = "secea", patience: Patience | None = None) -> CollabRecipe:
    """The job: `rounds` rounds with at least `clients` connected clients. Run it with `SimEnv` or `ProdEnv`."""
    if rounds < 1:
        raise ParamsError(f"rounds must be at least 1, got {rounds}")
    p = patience or Patience()
    conductor = Conductor(rounds, p.stage, p.bytes_per_second, p.training)
    return _Recipe(name, server=conductor, client=Member(), min_clients=clients)


if __name__ == "__main__":
    for _kit in sys.argv[1:]:
        permit(_kit)
