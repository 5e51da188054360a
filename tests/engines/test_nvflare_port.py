"""Calls of NVFlare's Collab API as a port: every client gives a reply or a reason, in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvflare.collab import CollabCallError
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from secea.engines import nvflare, run
from secea.engines import port as port_module
from secea.engines.driver import Patience
from secea.engines.nvflare import CollabPort
from secea.engines.port import LATE, Alive, Cause, Failure, Order, Reply, Task, Terms
from secea.engines.site import Site as SiteFile
from secea.params import Params
from secea.wire.messages import Buffer
from sites import Sites

NAMES = ("a", "b", "c")
REPLY = Reply([b"message"])


class Proxy:
    """A client in NVFlare's words: `proxy(timeout=...).obey(...)`."""

    def __init__(self, answer: Callable[[bytes], Any]) -> None:
        self._answer = answer
        self.calls = 0

    def __call__(self, *, timeout: float) -> Proxy:
        return self

    def obey(self, order: bytes, timeout: float) -> Any:
        self.calls += 1
        return self._answer(order)

    def beat(self) -> Any:
        return nvflare.DONE

    def take(self) -> Any:
        raise AssertionError("nothing was promised")


def good(_order: bytes) -> bytes:
    return REPLY.to_bytes()


def exchange(port: CollabPort, task: Task = Task.STEP, timeout: float = 5.0) -> dict[int, Reply | Failure]:
    given = port.exchange(dict.fromkeys(range(3), task), 1, lambda: {0: [b"x"], 1: [b"y"]}, Terms(timeout))
    return {n: reply for n, reply in given if not isinstance(reply, Alive)}


def test_each_client_gets_its_own_messages_and_its_reply_comes_back() -> None:
    seen: dict[str, Order] = {}

    def keep(name: str) -> Proxy:
        def answer(order: bytes) -> bytes:
            seen[name] = Order.parse(order, 0)
            return REPLY.to_bytes()

        return Proxy(answer)

    port = CollabPort(NAMES, {name: keep(name) for name in NAMES})
    replies = exchange(port)
    assert {n: reply.messages for n, reply in replies.items() if isinstance(reply, Reply)} == {
        n: [b"message"] for n in range(3)
    }
    assert [list(map(bytes, seen[name].messages)) for name in NAMES] == [[b"x"], [b"y"], []]


def test_whatever_goes_wrong_is_the_failure_of_one_client() -> None:
    def silent(_order: bytes) -> bytes:
        raise CollabCallError("b", "obey", TimeoutError("function obey timed out after 3.0000021 seconds"))

    def unreachable(_order: bytes) -> bytes:
        raise CollabCallError("b", "obey", "gone")

    def raises(_order: bytes) -> bytes:
        raise CollabCallError("b", "obey", "No space left in /srv/secret", "OSError")

    for answer, failure in (
        (silent, Failure("its site does not answer any more", Cause.UNREACHABLE)),
        (unreachable, Failure("its site cannot be reached: gone", Cause.UNREACHABLE)),
        (raises, Failure("OSError in NVFlare's part at its site, whose log has the rest")),
        (lambda _: "its core was ended by SIGKILL", Failure("its core was ended by SIGKILL")),
        (lambda _: f"{LATE}3 s", Failure(f"{LATE}3 s", Cause.SLOW)),
        (lambda _: 7, Failure("it replied with a int")),
        (lambda _: b"short", Failure("client 1: 5 bytes are neither an order nor a reply")),
    ):
        replies = exchange(CollabPort(NAMES, {"a": Proxy(good), "b": Proxy(answer), "c": Proxy(good)}))
        assert replies[1] == failure
        assert isinstance(replies[0], Reply)
        assert isinstance(replies[2], Reply)


def test_a_client_that_is_not_connected_is_a_failure() -> None:
    assert exchange(CollabPort(NAMES, {"a": Proxy(good), "c": Proxy(good)}))[1] == Failure(
        "b is not connected", Cause.UNREACHABLE
    )


def test_a_call_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare, "_GRACE", 0.1)
    end = threading.Event()
    hangs = Proxy(lambda _: end.wait())
    port = CollabPort(NAMES, {"a": Proxy(good), "b": hangs, "c": Proxy(good)})
    started = time.monotonic()
    assert exchange(port, timeout=0.2)[1] == Failure("it did not reply within 0.2 s", Cause.UNREACHABLE)
    assert time.monotonic() - started < 2
    assert exchange(port, timeout=0.2)[1] == Failure("it is still busy with an earlier call", Cause.SLOW)
    assert hangs.calls == 1
    end.set()


class Works(Proxy):
    """A client that works for so many beats."""

    def __init__(self, beats: int, dies: bool = False) -> None:
        super().__init__(good)
        self.beats, self.dies = beats, dies

    def obey(self, order: bytes, timeout: float) -> Any:
        self.calls += 1
        return 5.0

    def beat(self) -> Any:
        time.sleep(0.01)
        self.beats -= 1
        if self.beats:
            return 6.0
        if self.dies:
            raise CollabCallError("b", "beat", "target_unreachable")
        return nvflare.DONE

    def take(self) -> Any:
        return REPLY.to_bytes()


def test_who_works_is_heard_of_until_its_reply_is_there() -> None:
    port = CollabPort(NAMES, {"a": Proxy(good), "b": Works(5), "c": Proxy(good)})
    heard = [reply for n, reply in port.exchange(dict.fromkeys(range(3), Task.ROUND), 1, dict, Terms(5.0)) if n == 1]
    assert heard[:-1] == [Alive(5.0)] + [Alive(6.0)] * 4
    assert isinstance(heard[-1], Reply)


def test_who_dies_while_it_works_is_lost_at_once_however_long_it_may_train() -> None:
    dies = Works(3, dies=True)
    port = CollabPort(("b",), {"b": dies})
    *_, (_, last) = port.exchange({0: Task.ROUND}, 1, dict, Terms(3630.0, 3600.0))
    assert last == Failure("its site cannot be reached: target_unreachable", Cause.UNREACHABLE)


def test_who_is_slow_is_not_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare, "_GRACE", 0.1)
    port = CollabPort(("b",), {"b": Works(10**6)})
    *_, (_, last) = port.exchange({0: Task.ROUND}, 1, dict, Terms(0.2, 0.1))
    assert last == Failure("it did not reply within 0.2 s", Cause.SLOW)


def test_no_call_goes_on_for_long_when_a_port_is_closed() -> None:
    port = CollabPort(("b",), {"b": Works(10**6)})
    heard = port.exchange({0: Task.HELLO}, 1, dict, Terms(3600.0))
    next(heard)
    port.close()
    assert [type(last) for _, last in heard][-1] is Failure


def test_a_hello_among_those_who_train_gets_no_time_to_train() -> None:
    given = dict[str, float]()

    class Timed(Proxy):
        def obey(self, order: bytes, timeout: float) -> Any:
            given[Order.parse(order, 0).task.name] = timeout
            return super().obey(order, timeout)

    port = CollabPort(NAMES, {name: Timed(good) for name in NAMES})
    list(port.exchange({0: Task.ROUND, 1: Task.HELLO, 2: Task.ROUND}, 1, dict, Terms(3630.0, 3600.0)))
    assert given["HELLO"] <= 30 < given["ROUND"]


def test_a_client_that_is_called_again_while_it_wakes_up_is_called_once() -> None:
    awake = threading.Event()

    def slow(_order: bytes) -> bytes:
        awake.wait()
        return REPLY.to_bytes()

    sleeper = Proxy(slow)
    port = CollabPort(NAMES, {"a": Proxy(good), "b": sleeper, "c": Proxy(good)})
    tasks = {0: Task.ROUND, 1: Task.HELLO, 2: Task.ROUND}
    first = port.exchange(tasks, 1, dict, Terms(5.0))
    assert {next(first)[0], next(first)[0]} == {0, 2}  # as the driver does: nobody waits for the one that was lost
    second = port.exchange(tasks, 2, dict, Terms(5.0))
    assert next(second)[0] in (0, 2)
    awake.set()
    assert isinstance(dict(second)[1], Reply)
    assert sleeper.calls == 1


class Site:
    """A client that has much to send, some messages in each part of its reply."""

    def __init__(self, parts: int) -> None:
        self.orders: list[Order] = []
        self._parts = parts

    def __call__(self, order: bytes) -> bytes:
        self.orders.append(Order.parse(bytes(order), 0))
        task, number = self.orders[-1].task, self.orders[-1].round
        if task is Task.TAKE:
            return Reply().to_bytes()
        part = number if task is Task.MORE else 0
        return Reply([b"part %d" % part], more=part + 1 < self._parts, standing=b"here").to_bytes()

    @property
    def tasks(self) -> list[Task]:
        return [order.task for order in self.orders]


class Hosted:
    """A member whose core is in this process."""

    def __init__(self, file: Path) -> None:
        self._host = SiteFile.read(file).host()

    def __call__(self, order: bytes) -> bytes:
        return self._host.obey(Order.parse(bytes(order), 0)).to_bytes()


OPTIONS: list[dict[str, Any]] = [{"max_weight": 9, "min_owners": 3}, {"partial": True, "min_owners": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_of_the_federation_file_hold_at_every_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(port_module, "PART_BYTES", 1000)
    sites = Sites(tmp_path / "sites", Params(4, dim=4, max_entities=20, max_union=30, **options))
    port = CollabPort(sites.names, {name: Proxy(Hosted(sites.file(name))) for name in sites.names})
    patience = Patience(stage=30, training=30)
    run.serve(SiteFile.read(sites.file("server")), port, 3, patience, logging.getLogger())
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2, 3]] * 3
    sites.check_means()


@pytest.mark.parametrize("parts", [1, 2, 9])
def test_what_is_too_large_for_a_call_comes_and_goes_in_parts(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "PART_BYTES", 100)
    messages: list[Buffer] = [bytes([i]) * 60 for i in range(parts)]
    sites = [Site(parts) for _ in range(3)]
    port = CollabPort(NAMES, {name: Proxy(site) for name, site in zip(NAMES, sites, strict=True)})
    heard: dict[int, list[Reply]] = {n: [] for n in range(3)}
    for n, reply in port.exchange(
        dict.fromkeys(range(3), Task.STEP), 7, lambda: dict.fromkeys(range(3), messages), Terms(5.0)
    ):
        assert isinstance(reply, Reply)
        heard[n].append(reply)
    for n, site in enumerate(sites):
        assert site.tasks == [Task.TAKE] * (parts - 1) + [Task.STEP] + [Task.MORE] * (parts - 1)
        assert [bytes(message) for order in site.orders for message in order.messages] == messages
        assert [bytes(message) for reply in heard[n] for message in reply.messages] == [
            b"part %d" % i for i in range(parts)
        ]
        assert [reply.more for reply in heard[n]] == [True] * (parts - 1) + [False]
    assert port.sent == sum(len(order.to_bytes()) for site in sites for order in site.orders)


def test_parts_of_a_reply_are_asked_for_when_those_before_were_read() -> None:
    site = Site(50)
    port = CollabPort(("a",), {"a": Proxy(site)})
    replies = port.exchange({0: Task.STEP}, 1, dict, Terms(5.0))
    for read in range(1, 6):
        next(replies)
        time.sleep(0.02)  # it could ask for much more in that time
        assert len(site.orders) <= read + nvflare.MOST_UNREAD + 1
    assert len(list(replies)) == 45


def test_a_reply_that_nobody_reads_any_more_does_not_keep_a_client_busy() -> None:
    site = Site(50)
    port = CollabPort(("a",), {"a": Proxy(site)})
    replies = port.exchange({0: Task.STEP}, 1, dict, Terms(60.0))
    next(replies)
    replies.close()  # type: ignore[attr-defined]  # as the driver does, if what came was wrong
    call, end = port._calls[0], time.monotonic() + 5
    while not call.over and time.monotonic() < end:
        time.sleep(0.01)
    assert call.over
    assert len(site.orders) < 10
    (*_, (n, last)) = port.exchange({0: Task.STEP}, 1, dict, Terms(5.0))
    assert n == 0
    assert isinstance(last, Reply)
    assert list(map(bytes, last.messages)) == [b"part 49"]


def test_a_client_that_refuses_a_part_of_an_order_gets_no_more_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "PART_BYTES", 100)
    refuses = Proxy(lambda _: Reply(fault="no").to_bytes())
    inbox: list[Buffer] = [b"x" * 60] * 3
    ((_, reply),) = CollabPort(("a",), {"a": refuses}).exchange({0: Task.STEP}, 1, lambda: {0: inbox}, Terms(5.0))
    assert isinstance(reply, Reply)
    assert reply.fault == "no"
    assert refuses.calls == 1


def test_a_member_keeps_nvflare_from_printing_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVFlare formats what a request holds for its debug log, three characters for each byte."""
    monkeypatch.setattr(ConsumableBufferList, "__repr__", list.__repr__)
    request = ConsumableBufferList([bytearray(1000), bytes(1000)])
    assert len(f"{request}") > 2000
    nvflare._leave_requests_unprinted()
    assert len(f"{request}") < 200
    assert request == [bytes(1000)] * 2
