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

from secea.engines import nvflare, run, site
from secea.engines.driver import Patience
from secea.engines.nvflare import CollabPort
from secea.engines.port import Failure, Order, Reply, Task
from secea.params import Params
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

    def obey(self, piece: bytes, timeout: float, number: int, start: int) -> Any:
        self.calls += 1
        return self._answer(piece)


def good(_order: bytes) -> bytes:
    return REPLY.to_bytes()


def exchange(port: CollabPort, task: Task = Task.STEP, timeout: float = 5.0) -> dict[int, Reply | Failure]:
    return dict(port.exchange(dict.fromkeys(range(3), task), 1, lambda: {0: [b"x"], 1: [b"y"]}, timeout))


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
    def unreachable(_order: bytes) -> bytes:
        raise CollabCallError("b", "obey", TimeoutError("timed out"))

    for answer, reason in (
        (unreachable, "it cannot be reached: timed out"),
        (lambda _: "its core was ended by SIGKILL", "its core was ended by SIGKILL"),
        (lambda _: 7, "it replied with a int"),
        (lambda _: b"short", "client 1: 5 bytes are neither an order nor a reply"),
    ):
        replies = exchange(CollabPort(NAMES, {"a": Proxy(good), "b": Proxy(answer), "c": Proxy(good)}))
        assert replies[1] == Failure(reason)
        assert isinstance(replies[0], Reply)
        assert isinstance(replies[2], Reply)


def test_a_client_that_is_not_connected_is_a_failure() -> None:
    assert exchange(CollabPort(NAMES, {"a": Proxy(good), "c": Proxy(good)}))[1] == Failure("b is not connected")


def test_a_call_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare, "_GRACE", 0.1)
    end = threading.Event()
    hangs = Proxy(lambda _: end.wait())
    port = CollabPort(NAMES, {"a": Proxy(good), "b": hangs, "c": Proxy(good)})
    started = time.monotonic()
    assert exchange(port, timeout=0.2)[1] == Failure("it did not reply within 0.2 s")
    assert time.monotonic() - started < 2
    assert exchange(port, timeout=0.2)[1] == Failure("it is still busy with an earlier call")
    assert hangs.calls == 1
    end.set()


def test_a_client_that_is_called_again_while_it_wakes_up_is_called_once() -> None:
    awake = threading.Event()

    def slow(_order: bytes) -> bytes:
        awake.wait()
        return REPLY.to_bytes()

    sleeper = Proxy(slow)
    port = CollabPort(NAMES, {"a": Proxy(good), "b": sleeper, "c": Proxy(good)})
    tasks = {0: Task.ROUND, 1: Task.HELLO, 2: Task.ROUND}
    first = port.exchange(tasks, 1, dict, 5.0)
    assert {next(first)[0], next(first)[0]} == {0, 2}  # as the driver does: nobody waits for the one that was lost
    second = port.exchange(tasks, 2, dict, 5.0)
    assert next(second)[0] in (0, 2)
    awake.set()
    assert isinstance(dict(second)[1], Reply)
    assert sleeper.calls == 1


class Site:
    """A member as NVFlare shows it to the server, whose core answers an order with a long reply."""

    def __init__(self, reply: bytes) -> None:
        self.member, self.orders, self.calls = nvflare.Member(), list[bytes](), 0
        self.member._core = self  # type: ignore[assignment]  # all that is asked of a core
        self._bytes = reply
        self.lost = -1
        """The number of a call that does not arrive."""

    def __call__(self, *, timeout: float) -> Site:
        return self

    def obey(self, piece: bytes, timeout: float, number: int = 0, start: int = -1) -> Any:
        if start < 0:  # as a core
            self.orders.append(bytes(piece))
            return bytearray(self._bytes)
        self.calls += 1
        if self.calls == self.lost:
            raise CollabCallError("b", "obey", TimeoutError("timed out"))
        return self.member.take(piece, timeout, number, start)

    def more(self, number: int) -> Any:
        self.calls += 1
        return self.member.give(number)


class Hosted(Site):
    """A member whose core is in this process."""

    def __init__(self, file: Path) -> None:
        super().__init__(b"")
        self._host = site.Site.read(file).host()

    def obey(self, piece: bytes, timeout: float, number: int = 0, start: int = -1) -> Any:
        if start >= 0:
            return super().obey(piece, timeout, number, start)
        return bytearray(self._host.obey(Order.parse(piece, 0)).to_bytes())


OPTIONS: list[dict[str, Any]] = [{"max_weight": 9, "min_owners": 3}, {"partial": True, "min_owners": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_of_the_federation_file_hold_at_every_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(nvflare, "PIECE_BYTES", 1000)
    sites = Sites(tmp_path / "sites", Params(4, dim=4, max_entities=20, max_union=30, **options))
    port = CollabPort(sites.names, {name: Hosted(sites.file(name)) for name in sites.names})
    patience = Patience(stage=30, training=30)
    run.serve(site.Site.read(sites.file("server")), port, 3, patience, logging.getLogger())
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2, 3]] * 3
    sites.check_means()


@pytest.mark.parametrize("size", [1, 99, 100, 101, 250])
def test_what_is_too_large_for_a_call_comes_and_goes_in_pieces(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare, "PIECE_BYTES", 100)
    reply, order = Reply([bytes(range(size))]), Order(Task.STEP, 1, [b"x" * size])
    site = Site(reply.to_bytes())
    port = CollabPort(("b",), {"b": site})
    for _ in range(2):
        ((_, got),) = port.exchange({0: Task.STEP}, 1, lambda: {0: [b"x" * size]}, 5.0)
        assert isinstance(got, Reply)
        assert list(map(bytes, got.messages)) == reply.messages
    assert site.orders == [order.to_bytes()] * 2
    assert (port.sent, port.received) == (2 * len(order.to_bytes()), 2 * len(reply.to_bytes()))


def test_a_new_order_begins_anew_where_an_earlier_one_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare, "PIECE_BYTES", 100)
    site = Site(REPLY.to_bytes())
    site.lost = 2
    port = CollabPort(("b",), {"b": site})

    def exchanged() -> Reply | Failure:
        return dict(port.exchange({0: Task.STEP}, 1, lambda: {0: [b"x" * 250]}, 5.0))[0]

    assert exchanged() == Failure("it cannot be reached: timed out")
    assert isinstance(exchanged(), Reply)
    assert site.orders == [Order(Task.STEP, 1, [b"x" * 250]).to_bytes()]


def test_pieces_that_do_not_belong_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare, "PIECE_BYTES", 100)
    site = Site(bytes(250))
    take, give = site.member.take, site.member.give
    refused = "a piece of an order is missing, or the order is too large"
    assert take(b"the end", 1.0, 7, 100) == refused
    assert take(bytes(100), 1.0, 7, 0) == b""
    assert take(b"the end", 1.0, 8, 100) == refused
    assert take(b"the end", 1.0, 7, 200) == refused
    assert not site.orders
    assert take(b"the end", 1.0, 7, 100) == bytes(100)
    assert give(8) == "its reply is gone"
    assert [give(7), give(7), give(7)] == [bytes(100), bytes(50), "its reply is gone"]
    monkeypatch.setattr(nvflare, "MOST_BYTES", 150)
    take(bytes(100), 1.0, 9, 0)
    assert take(bytes(60), 1.0, 9, 100) == refused
    assert dict(CollabPort(("b",), {"b": site}).exchange({0: Task.STEP}, 1, dict, 5.0))[0] == Failure(
        "its reply is too large"
    )


def test_a_member_keeps_nvflare_from_printing_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVFlare formats what a request holds for its debug log, three characters for each byte."""
    monkeypatch.setattr(ConsumableBufferList, "__repr__", list.__repr__)
    request = ConsumableBufferList([bytearray(1000), bytes(1000)])
    assert len(f"{request}") > 2000
    nvflare._leave_requests_unprinted()
    assert len(f"{request}") < 200
    assert request == [bytes(1000)] * 2
