"""What the server's side says of a loss, and what those who are left out are told. They are words for logs alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loopback import Loopback, World
from secea.engines import driver as driver_module
from secea.engines.port import MOST_SAID, Alive, Cause, Failure, Order, Reply, Task, Terms, orders
from secea.errors import SERVER, FederationError, RoundLost
from secea.wire.messages import Buffer


class Fated(Loopback):
    """A port on which some clients fail in some way, and which keeps what was given to it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fails: dict[int, Failure | Reply] = {}
        self.terms: list[tuple[dict[int, Task], Terms]] = []
        self.lies = False

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Any]]:
        self.terms.append((dict(tasks), terms))
        for n in tasks:
            if self.lies:
                yield n, Alive(1e9)
        for n, reply in super().exchange(tasks, round, inboxes, terms):
            yield n, self.fails.get(n, reply)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, dropouts=1)
    made.port = made.driver._port = Fated(made)
    return made


def port(world: World) -> Fated:
    assert isinstance(world.port, Fated)
    return world.port


def events(world: World, event: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (world.folder / "server.log").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize(
    ("fate", "cause"),
    [
        (Failure("its site does not answer", Cause.UNREACHABLE), "unreachable"),
        (Failure("it did not reply within 3 s", Cause.SLOW), "slow"),
        (Failure("its core was ended by SIGKILL"), "failed"),
        (Reply(fault="its core did not reply within 3 s, and was killed"), "slow"),
        (Reply(fault="ValueError at its own side; its log has the rest"), "failed"),
        (Reply(fault="it refuses what came from the server"), "objects"),
        (Reply([b"\xff" * 90], standing=bytes(9)), "refused"),
    ],
)
def test_each_loss_has_a_cause_in_one_word(world: World, fate: Failure | Reply, cause: str) -> None:
    world.driver.setup()
    port(world).fails = {3: fate}
    world.driver.round()
    (lost,) = events(world, "lost")
    assert (lost["client"], lost["cause"], lost["level"]) == ("client 3", cause, "warning")


def test_a_client_that_stays_away_is_one_line_and_not_one_for_each_call(world: World) -> None:
    world.driver.setup()
    port(world).fails = {3: Failure("its site does not answer", Cause.UNREACHABLE)}
    for _ in range(4):
        world.driver.round()
    assert len(events(world, "lost")) == 1
    port(world).fails = {3: Failure("another reason")}
    world.driver.round()
    assert len(events(world, "lost")) == 2
    port(world).fails = {}
    world.driver.round()
    world.driver.round()
    assert [line["client"] for line in events(world, "here")][-1] == "client 3"
    assert events(world, "round")[-1]["clients"] == [f"client {n}" for n in range(4)]


def test_who_was_left_out_is_told_why_when_it_is_called_again(world: World) -> None:
    world.driver.setup()
    port(world).fails = {3: Failure("its site does not answer", Cause.UNREACHABLE)}
    world.driver.round()
    world.driver.round()
    told = [order.said for n, order, _ in port(world).seen if n == 3 and order.task is Task.HELLO]
    assert told[-1] == "its site does not answer"
    assert not any(order.said for n, order, _ in port(world).seen if n != 3)


def test_at_the_end_those_who_do_not_know_yet_are_told_once(world: World) -> None:
    world.driver.setup()
    world.driver.round()
    port(world).fails = {3: Failure("it did not reply within 3 s", Cause.SLOW)}
    world.driver.finish()
    world.driver.farewell()
    tasks, terms = port(world).terms[-1]
    assert tasks == {3: Task.HELLO}
    assert terms.seconds == driver_module.FAREWELL_SECONDS
    assert terms.said == {3: "it did not reply within 3 s"}


def test_nobody_is_told_twice(world: World) -> None:
    world.driver.setup()
    port(world).fails = {3: Failure("gone", Cause.UNREACHABLE)}
    world.driver.round()
    world.driver.round()
    exchanges = len(port(world).terms)
    world.driver.farewell()
    assert len(port(world).terms) == exchanges


def test_only_where_somebody_trains_is_there_time_for_it(world: World) -> None:
    world.driver.setup()
    world.driver.round()
    for tasks, terms in port(world).terms:
        trains = Task.ROUND in tasks.values()
        assert (terms.training > 0) == trains
        assert terms.brief < 60 < driver_module.Patience.training
        assert (terms.seconds > driver_module.Patience.training) == trains


def test_signs_of_life_count_for_nothing(world: World) -> None:
    port(world).lies = True
    world.driver.setup()
    port(world).fails = {3: Failure("gone", Cause.UNREACHABLE)}
    world.driver.round()
    assert 3 not in world.driver.present
    assert sorted(world.driver.present) == [0, 1, 2]
    world.check(range(3), [])


def test_a_lying_engine_can_drop_clients_and_no_more(world: World) -> None:
    """It says of everyone that it is dead, or that it lives: rounds are lost, and those that are not are right."""
    world.driver.setup()
    port(world).lies = True
    for dead in ((0,), (1, 2), (0, 1, 2, 3), (3,), ()):
        port(world).fails = {n: Failure("it is dead", Cause.UNREACHABLE) for n in dead}
        try:
            world.driver.round()
        except (RoundLost, FederationError):
            continue
        world.deliver()
        members = sorted(world.driver.server.at.members)
        world.check(members, sorted(world.driver.present & set(members)))


@pytest.mark.parametrize("text", ["", "its site does not answer", 'ä "\n\x1b[31m', "x" * 10_000])
def test_what_is_said_arrives_and_is_short(text: str) -> None:
    order = orders({0: Task.HELLO, 1: Task.STEP}, 3, {1: [b"m"]}, {0: text, 1: text})
    assert Order.parse(order[0].to_bytes(), SERVER).said == text[:MOST_SAID]
    assert Order.parse(order[1].to_bytes(), SERVER).said == ""
    assert len(order[0].to_bytes()) < 100 + 4 * MOST_SAID


def test_what_is_said_changes_no_client(world: World) -> None:
    world.driver.setup()
    before = world.hosts[0].client.save()
    world.hosts[0].obey(Order(Task.HELLO, said="go away"))
    assert world.hosts[0].client.save() == before
