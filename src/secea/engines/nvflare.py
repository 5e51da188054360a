"""NVFlare as an engine (NVFlare 2.9.0; the extra `nvflare`): orders and replies are calls of its Collab API.

The submitted job contains no code and no secrets. It names two classes of this module, and the number of rounds. Keys,
state and the user's functions stay at the sites (`secea.engines.site`). Each client's core runs in a process of its own
(`secea.engines.core`).
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.collab import CollabCallError, CollabRecipe, collab
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from secea.engines.core import Core, CoreError
from secea.engines.driver import Patience
from secea.engines.policy import without_code
from secea.engines.port import Failure, Order, Reply, Task, asked, orders
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

MOST_UNREAD: Final = 2
"""Parts of a client's reply that wait for the server."""

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


class Member:
    """A client's side of the job. It hands each order of the server to the core of its site."""

    def __init__(self) -> None:
        self._core: Core | None = None

    @collab.init
    def start(self) -> None:
        """The job begins: find the site's file. The core starts with the first order."""
        _leave_requests_unprinted()
        self._core = Core(site_file(collab.site_name, collab.workspace.get_root_dir()))

    @collab.publish
    def obey(self, order: Buffer, timeout: float) -> Buffer | str:
        """The reply to an order, or to a part of one; or a text that says why there is none."""
        if collab.caller != "server":
            return f"{collab.caller} gave an order, which only the server may do"
        assert self._core is not None
        try:
            return self._core.obey(order, timeout)
        except CoreError as error:
            return str(error)

    @collab.final
    def stop(self) -> None:
        """The job is over, or was aborted."""
        if self._core is not None:
            self._core.close()


# -------------------------------------------------------------------------------------------------------- the server


@dataclass(eq=False)
class _Call:
    """An order to one client, from its first part to the last part of the reply."""

    client: int
    order: Order
    timeout: float
    unread: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_UNREAD))
    over: bool = False
    dropped: bool = False
    """Whether nobody reads the rest of the reply."""


class CollabPort:
    """The clients of an NVFlare job as a `Port`: a call for each part of an order or of a reply, all at once."""

    def __init__(self, names: tuple[str, ...], proxies: Mapping[str, Any]) -> None:
        self._names, self._proxies = names, proxies
        self._calls: dict[int, _Call] = {}  # the last one to each client
        self._heard: queue.SimpleQueue[tuple[_Call, Reply | Failure]] = queue.SimpleQueue()
        self.sent = self.received = 0
        """Bytes of orders and of replies."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`. A client that was called in an earlier exchange, and has not answered, is not called again."""
        given = orders(tasks, round, inboxes())
        calls = {self._call(n, order, timeout) for n, order in given.items()}
        end = time.monotonic() + timeout + _GRACE
        try:
            while calls:
                call, reply = self._heard.get(timeout=max(0.0, end - time.monotonic()))
                if call in calls:  # else it belongs to an exchange that is over
                    if isinstance(reply, Failure) or not reply.more:
                        calls.remove(call)
                    yield call.client, reply
                    call.unread.release()
        except queue.Empty:
            for call in calls:
                yield call.client, Failure(f"it did not reply within {timeout:.1f} s")
        finally:
            for call in calls:
                call.dropped = call.order.task is not Task.HELLO  # a hello may still come, in another exchange
                call.unread.release()

    def _call(self, n: int, order: Order, timeout: float) -> _Call:
        """Give an order in a thread of its own, so that nobody has to wait for its end."""
        before, call = self._calls.get(n), _Call(n, order, timeout)
        if before is None or before.over:
            self._calls[n] = call
            threading.Thread(target=self._settle, args=(call,), daemon=True).start()
        elif before.order.task is order.task is Task.HELLO:
            return before
        else:
            self._heard.put((call, Failure("it is still busy with an earlier call")))
        return call

    def _settle(self, call: _Call) -> None:
        """Hand over each part of the reply, and at last a part that is the last one, or a failure."""
        last: Reply | Failure = Failure("the call was interrupted")
        try:
            last = self._parts(call)
        except (CoreError, ProtocolError) as error:
            last = Failure(str(error))
        except CollabCallError as error:
            last = Failure(f"it cannot be reached: {error.cause}")
        except BaseException as error:  # whatever it was, nobody must wait for a call that is over
            last = Failure(f"the call was interrupted: {error}")
            raise
        finally:
            call.over = True
            self._heard.put((call, last))

    def _parts(self, call: _Call) -> Reply | Failure:
        name = self._names[call.client]
        if name not in self._proxies:
            return Failure(f"{name} is not connected")
        line, reply = _Line(self._proxies[name], call.timeout), Reply()
        for reply in asked(call.order, partial(self._reply, line, call.client)):
            if not reply.more:
                break
            line.wait(call.unread)
            if call.dropped:
                break
            self._heard.put((call, reply))
        return reply

    def _reply(self, line: _Line, n: int, part: Order) -> Reply:
        data = part.to_bytes()
        self.sent += len(data)
        answer = line.obey(data)
        self.received += len(answer)
        return Reply.parse(answer, n)


class _Line:
    """Calls to one member, which all together may take so many seconds. A `CoreError` if it gives no bytes."""

    def __init__(self, proxy: Any, timeout: float) -> None:
        self._proxy, self._timeout, self._end = proxy, timeout, time.monotonic() + timeout

    def obey(self, order: bytes) -> Buffer:
        left = self._left()
        return _bytes(self._proxy(timeout=left).obey(order, left))

    def wait(self, unread: threading.Semaphore) -> None:
        """Until the server has read what came before, so that it need not keep it."""
        if not unread.acquire(timeout=self._left()):
            self._left()

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
