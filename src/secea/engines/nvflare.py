"""NVFlare as an engine (NVFlare 2.9.0; the extra `nvflare`): orders and replies are calls of its Collab API.

The submitted job contains no code and no secrets. It names two classes of this module, and the number of rounds. Keys,
state and the user's functions stay at the sites (`secea.engines.site`). Each client's core runs in a process of its own
(`secea.engines.core`).
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from nvflare.collab import CollabCallError, CollabRecipe, collab
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from secea.engines import roll
from secea.engines.core import Core, CoreError
from secea.engines.driver import Patience
from secea.engines.host import told
from secea.engines.kits import CLASSES, SILENT_SECONDS, permit
from secea.engines.port import Alive, Cause, Failure, Order, Reply, Task, Terms, asked, orders
from secea.engines.progress import RESULT, Doing, State
from secea.engines.run import serve
from secea.engines.site import Site
from secea.errors import FederationError, ParamsError, ProtocolError, SecEAError
from secea.wire.messages import Buffer

__all__ = ["CLASSES", "SITES", "CollabPort", "Conductor", "Member", "permit", "recipe", "site_file"]

SITES: Final = "SECEA_SITES"
"""If all sites are on one machine: a folder with each site's file, NAME/site.toml, and server/site.toml."""

BEAT_SECONDS: Final = 5.0
"""Whoever works for longer says so again and again, each time after so many seconds."""

QUIET_SECONDS: Final = 25.0
"""A site that is silent for so long beyond that is dead."""

DONE: Final = -1.0
"""In place of the seconds that a client has worked: it has its reply."""

MOST_UNREAD: Final = 2
"""Parts of a client's reply that wait for the server."""

_NOTICE_SECONDS: Final = 10.0
"""NVFlare's server looks for dead clients every five seconds."""

_GRACE: Final = 1.0
"""Extra seconds for NVFlare to report that a call has timed out."""

_logger = logging.getLogger(__name__)


def site_file(name: str, kit: Path | str) -> Path:
    """The path of a site's file: local/secea.toml in its startup kit, which may be a link. Or see `SITES`."""
    folder = os.environ.get(SITES)
    return (Path(folder) / name / "site.toml" if folder else Path(kit) / "local" / "secea.toml").resolve()


# -------------------------------------------------------------------------------------------------------- the client


def _leave_requests_unprinted() -> None:
    """NVFlare 2.9.0 makes a text of every request for its debug log, even if that is off, and throws it away."""
    ConsumableBufferList.__repr__ = object.__repr__


class Member:
    """A client's side of the job. It hands each order of the server to the core of its site.

    It answers while the core works, so that the server knows who is slow and who is dead.
    """

    def __init__(self) -> None:
        self._file = Path()
        self._core: Core | None = None
        self._work: Future[Buffer | str] | None = None
        self._began = 0.0

    @collab.init
    def start(self) -> None:
        """The job begins: find the site's file. The core starts with the first order."""
        _leave_requests_unprinted()
        self._file = site_file(collab.site_name, collab.workspace.get_root_dir())
        self._core = Core(self._file, _job())

    @collab.publish
    def introduce(self) -> Buffer | str:
        """The public key of this site, for the roll call."""
        return self._called(lambda newcomer: newcomer.introduce())

    @collab.publish
    def offer(self, text: Buffer) -> str:
        """Keep a federation file for this site's operator, who compares it; or say why it cannot be the right one."""
        return str(self._called(lambda newcomer: newcomer.offer(bytes(text))))

    @collab.publish
    def answer(self) -> str:
        """What this site's operator says about it."""
        return str(self._called(lambda newcomer: newcomer.answer()))

    def _called(self, act: Callable[[roll.Newcomer], Buffer | str]) -> Buffer | str:
        if collab.caller != "server":
            return f"{collab.caller} called the roll, which only the server may do"
        try:
            return act(roll.Newcomer(Site.read(self._file)))
        except SecEAError as error:
            return told(error)

    @collab.publish
    def obey(self, order: Buffer, timeout: float) -> Buffer | str | float:
        """The reply to an order, or to a part of one; a text that says why there is none; or, not yet, the seconds."""
        if collab.caller != "server":
            return f"{collab.caller} gave an order, which only the server may do"
        self._began, self._work = time.monotonic(), Future()
        threading.Thread(target=self._do, args=(self._work, order, timeout), daemon=True).start()
        return self._worked(self._work)

    @collab.publish
    def beat(self) -> float:
        """For how many seconds the core has worked; a negative number if the reply is there. Soon, in any case."""
        if collab.caller != "server" or self._work is None:
            return DONE
        seconds = self._worked(self._work)
        return seconds if isinstance(seconds, float) else DONE

    @collab.publish
    def take(self) -> Buffer | str:
        """The reply that is there."""
        if collab.caller != "server" or self._work is None or not self._work.done():
            return "there is no reply to take"
        return self._work.result()

    def _worked(self, work: Future[Buffer | str]) -> Buffer | str | float:
        try:
            return work.result(BEAT_SECONDS)
        except TimeoutError:
            return time.monotonic() - self._began

    def _do(self, work: Future[Buffer | str], order: Buffer, timeout: float) -> None:
        assert self._core is not None
        try:
            work.set_result(self._core.obey(order, timeout))
        except CoreError as error:
            work.set_result(str(error))
        except BaseException as error:
            work.set_exception(error)  # NVFlare says to the server of what kind it is
            raise

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
    terms: Terms
    unread: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_UNREAD))
    over: bool = False
    dropped: bool = False
    """Whether nobody reads the rest of the reply."""
    alive: bool = False
    """Whether its site said that it works on it."""

    @property
    def seconds(self) -> float:
        """The time that it may take: who only says hello does not train."""
        return self.terms.brief if self.order.task is Task.HELLO else self.terms.seconds

    def late(self) -> Failure:
        """Its time is over."""
        return Failure(f"it did not reply within {self.seconds:.1f} s", Cause.SLOW if self.alive else Cause.UNREACHABLE)


_News: TypeAlias = Reply | Failure | Alive


class CollabPort:
    """The clients of an NVFlare job as a `Port`: a call for each part of an order or of a reply, all at once."""

    def __init__(self, names: tuple[str, ...], proxies: Mapping[str, Any]) -> None:
        self._names, self._proxies = names, proxies
        self._calls: dict[int, _Call] = {}  # the last one to each client
        self._heard: queue.SimpleQueue[tuple[_Call, _News]] = queue.SimpleQueue()
        self.sent = self.received = 0
        """Bytes of orders and of replies."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, _News]]:
        """See `Port`. A client that was called in an earlier exchange, and has not answered, is not called again."""
        given = orders(tasks, round, inboxes(), terms.said)
        calls = {self._call(n, order, terms) for n, order in given.items()}
        end = time.monotonic() + terms.seconds + _GRACE
        try:
            while calls:
                call, news = self._heard.get(timeout=max(0.0, end - time.monotonic()))
                if call not in calls:  # it belongs to an exchange that is over
                    continue
                if isinstance(news, Failure) or (isinstance(news, Reply) and not news.more):
                    calls.remove(call)
                yield call.client, news
                if isinstance(news, Reply):
                    call.unread.release()
        except queue.Empty:
            for call in calls:
                yield call.client, call.late()
        finally:
            for call in calls:
                call.dropped = call.order.task is not Task.HELLO  # a hello may still come, in another exchange
                call.unread.release()

    def close(self) -> None:
        """Nobody waits for anything any more: calls that go on end with the next sign of life."""
        for call in self._calls.values():
            call.dropped = True
            call.unread.release()

    def _call(self, n: int, order: Order, terms: Terms) -> _Call:
        """Give an order in a thread of its own, so that nobody has to wait for its end."""
        before, call = self._calls.get(n), _Call(n, order, terms)
        if before is None or before.over:
            self._calls[n] = call
            threading.Thread(target=self._settle, args=(call,), daemon=True).start()
        elif before.order.task is order.task is Task.HELLO:
            return before
        else:
            self._heard.put((call, Failure("it is still busy with an earlier call", Cause.SLOW)))
        return call

    def _settle(self, call: _Call) -> None:
        """Hand over each part of the reply, and at last a part that is the last one, or a failure."""
        last: Reply | Failure = Failure("the call was interrupted")
        try:
            last = self._parts(call)
        except _Late:
            last = call.late()
        except (CoreError, ProtocolError) as error:
            last = Failure(str(error), Cause.of(str(error)))
        except CollabCallError as error:
            last = _failure(error)
        except BaseException as error:  # whatever it was, nobody must wait for a call that is over
            last = Failure(f"the call was interrupted: {error}")
            raise
        finally:
            call.over = True
            self._heard.put((call, last))

    def _parts(self, call: _Call) -> Reply | Failure:
        name = self._names[call.client]
        if name not in self._proxies:
            return Failure(f"{name} is not connected", Cause.UNREACHABLE)
        line, reply = _Line(self._proxies[name], call, self._heard), Reply()
        for reply in asked(call.order, partial(self._reply, line, call.client)):
            if not reply.more:
                break
            line.wait()
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


class _Late(CoreError):
    """The time of a call is over."""


class _Line:
    """Calls to one member, which all together may take so many seconds. A `CoreError` if it gives no bytes.

    No call lasts long: whoever is dead does not answer the next one, and whoever ends need not wait for it.
    """

    def __init__(self, proxy: Any, call: _Call, heard: queue.SimpleQueue[tuple[_Call, _News]]) -> None:
        self._proxy, self._call, self._heard = proxy, call, heard
        self._brief = BEAT_SECONDS + (QUIET_SECONDS if call.order.task is Task.HELLO else call.terms.brief)
        self._end = time.monotonic() + call.seconds

    def obey(self, order: bytes) -> Buffer:
        """The reply, for which the member is asked again and again."""
        left = self._left()
        result = self._proxy(timeout=min(self._brief, left + _GRACE)).obey(order, left)
        while isinstance(result, float) and result >= 0:
            self._call.alive = True
            self._heard.put((self._call, Alive(result)))
            result = self._proxy(timeout=min(BEAT_SECONDS + QUIET_SECONDS, self._left() + _GRACE)).beat()
            if self._call.dropped:
                raise _Late
        if isinstance(result, float):
            result = self._proxy(timeout=min(self._brief, self._left() + _GRACE)).take()
        if isinstance(result, bytes | bytearray | memoryview):
            return result
        raise CoreError(result if isinstance(result, str) else f"it replied with a {type(result).__name__}")

    def wait(self) -> None:
        """Until the server has read what came before, so that it need not keep it."""
        if not self._call.unread.acquire(timeout=self._left()):
            self._left()

    def _left(self) -> float:
        if (left := self._end - time.monotonic()) <= 0:
            raise _Late
        return left


def _failure(error: Any) -> Failure:
    """What it means that NVFlare could not make a call."""
    if isinstance(error.cause, TimeoutError):
        return Failure("its site does not answer any more", Cause.UNREACHABLE)
    if error.cause_type != type(error.cause).__name__:  # it raised there
        return Failure(f"{error.cause_type} in NVFlare's part at its site, whose log has the rest")
    return Failure(f"its site cannot be reached: {error.cause}", Cause.UNREACHABLE)


def _job() -> str:
    """NVFlare's name of the job that this process works for."""
    return dict(zip(sys.argv, sys.argv[1:], strict=False)).get("-n", "")


class Conductor:
    """The server's side of the job: set-up, then rounds. It continues an interrupted job if it has that job's state."""

    def __init__(
        self,
        rounds: int,
        stage: float = 30.0,
        bytes_per_second: float = 2e6,
        training: float = 3600.0,
        draft: dict[str, Any] | None = None,
    ) -> None:
        self.rounds, self.draft = rounds, draft
        self.stage, self.bytes_per_second, self.training = stage, bytes_per_second, training

    @collab.main
    def run(self) -> None:
        """Run the job. NVFlare calls it."""
        site = Site.read(site_file("server", collab.workspace.get_root_dir()))
        if self.draft is not None and not site.federation.exists():
            newcomers = {proxy.name: _Newcomer(proxy) for proxy in collab.clients}
            roll.call(roll.Draft.of(self.draft), site, newcomers)
        port = CollabPort(site.session.roster.names, {proxy.name: proxy for proxy in collab.clients})
        patience = Patience(self.stage, self.bytes_per_second, self.training)
        try:
            _wait_for_nvflare(serve(site, port, self.rounds, patience, _logger, run=_job()))
        finally:
            port.close()
            _deliver(site.state, Path(collab.workspace.get_result_root(_job())))


class _Newcomer:
    """A newcomer of the roll call. A `FederationError` says that it cannot be reached."""

    def __init__(self, proxy: Any) -> None:
        self._name, self._proxy = proxy.name, proxy

    def introduce(self) -> object:
        return self._asked(lambda proxy: proxy.introduce())

    def offer(self, text: bytes) -> object:
        return self._asked(lambda proxy: proxy.offer(text))

    def answer(self) -> object:
        return self._asked(lambda proxy: proxy.answer())

    def _asked(self, call: Callable[[Any], object]) -> object:
        try:
            return call(self._proxy(timeout=roll.CALL_SECONDS))
        except CollabCallError as error:
            raise FederationError(f"{self._name}: {_failure(error).reason}") from None


def _wait_for_nvflare(state: State) -> None:
    """Give NVFlare's server the time to notice who is dead. Who is found dead after a job's end makes it abnormal."""
    dead = [
        each.since for each in state.clients.values() if each.doing is Doing.LOST and each.cause == Cause.UNREACHABLE
    ]
    time.sleep(max(0.0, max(dead, default=0.0) + SILENT_SECONDS + _NOTICE_SECONDS - time.time()))


def _deliver(state: Path, result: Path) -> None:
    """Put what came of the run where NVFlare's administrator downloads it, too."""
    with suppress(OSError):
        shutil.copy(state / RESULT, result / "secea.json")


class _Recipe(CollabRecipe):
    """A job that ships no code: every site has its own copy of secea."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._job.set_app_packages(["secea"])

    @staticmethod
    def _user_source_entries(_objects: object) -> list[tuple[str, str | None]]:
        return []


def recipe(
    rounds: int, *, clients: int, name: str = "secea", patience: Patience | None = None, draft: roll.Draft | None = None
) -> CollabRecipe:
    """The job: `rounds` rounds with at least `clients` connected clients. Run it with `SimEnv` or `ProdEnv`.

    With a `draft` it begins with a roll call, if there is no federation file yet.
    """
    if rounds < 1:
        raise ParamsError(f"rounds must be at least 1, got {rounds}")
    p = patience or Patience()
    policy = None if draft is None else draft.as_arguments()
    conductor = Conductor(rounds, p.stage, p.bytes_per_second, p.training, policy)
    return _Recipe(name, server=conductor, client=Member(), min_clients=clients)
