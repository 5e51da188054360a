"""The port on Flower's messages, over a grid of the tests' own that starts no process: who is where, and what fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from flower_files import NAMES, PARAMS, Files, N
from secea.engines import flower, run
from secea.engines.driver import Patience
from secea.engines.port import Failure, Order, Reply, Task
from secea.engines.site import Site
from secea.errors import FederationError

QUICK = Patience(stage=2, training=0)


class Grid:
    """Nodes that work when they are asked for their reply. `fails` says which of them is lost, at which order."""

    def __init__(self, sites: dict[int, Path]) -> None:
        self.sites, self.online = sites, set(sites)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as in the process of a ServerApp
        self.fails: Callable[[int, Order], bool] = lambda node, order: False
        self.sent: dict[str, Message] = {}
        self.numbers = count()

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.online)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            number = message.metadata.__dict__["_message_id"] = str(next(self.numbers))
            self.sent[number] = message
            yield number

    def pull_messages(self, numbers: Iterable[str]) -> Iterable[Message]:
        return [self.reply(self.sent.pop(number)) for number in numbers if number in self.sent]

    def reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        order = Order.parse(flower._unpacked(message.content)[0], 0)
        if node not in self.online or self.fails(node, order):
            self.online.discard(node)
            return Message(Error(5, "Node Unavailable"), reply_to=message)
        config: dict[str, bool | float | int | str] = {"secea-site": str(self.sites[node])}
        return flower.obey(message, Context(0, node, config, RecordDict(), {}))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def grid(files: Files) -> Grid:
    return Grid({100 + n: files.site(n) for n in range(N)})


def serve(grid: Grid, files: Files, rounds: int) -> None:
    site = Site.read(files.server)
    run.serve(site, flower.FlowerPort(cast(Any, grid), site.session.roster.names), rounds, QUICK, logging.getLogger())


def called(grid: Grid, clients: Iterable[int]) -> dict[int, Reply | Failure]:
    port = flower.FlowerPort(cast(Any, grid), NAMES)
    return dict(port.exchange(dict.fromkeys(clients, Task.HELLO), 0, dict, 1))


def test_five_clients_get_the_means_of_numpy(grid: Grid, files: Files) -> None:
    serve(grid, files, 3)
    for number, when in ((1, "before-2"), (2, "before-3"), (3, "last")):
        files.check(range(N), when, range(N), number)
    assert not list(files.folder.glob("*/state"))


@pytest.mark.parametrize("stage", range(12))
def test_a_node_that_is_lost_in_any_stage_costs_the_others_nothing(grid: Grid, files: Files, stage: int) -> None:
    stages = count()
    grid.fails = lambda node, order: node == 103 and next(stages) == stage
    serve(grid, files, 3)
    others = {0, 1, 2, 4}
    number = 4 if stage in (6, 8) else 3  # lost while it shares: that round is begun again, with the same tables
    files.check(others, "last", range(N) if stage == 11 else others, number)
    if stage in (7, 9):  # its shares were in: they count, though it never answers
        files.check(others, "before-2" if stage == 7 else "before-3", range(N), 1 if stage == 7 else 2)


def test_a_node_that_is_back_takes_part_in_the_next_round_but_one(grid: Grid, files: Files) -> None:
    def fails(node: int, order: Order) -> bool:
        if order.task is Task.ROUND and order.round == 3:
            grid.online.add(104)
        return node == 104 and order.task is Task.ROUND and order.round == 2

    grid.fails = fails
    serve(grid, files, 5)
    assert files.heard(event="lost", client="client 4", why="error 5: Node Unavailable")
    files.check(range(N), "last", range(N), 6)  # round 2 was begun again, as round 3


def test_a_run_that_broke_off_is_taken_up_again(grid: Grid, files: Files) -> None:
    class Crash(Exception):
        pass

    def fails(node: int, order: Order) -> bool:
        if node == 102 and order.task is Task.STEP and order.round == 2:
            raise Crash
        return False

    grid.fails = fails
    with pytest.raises(Crash):
        serve(grid, files, 3)
    again = Grid(grid.sites)
    serve(again, files, 3)
    files.check(range(N), "last", range(N), 3)


def test_a_client_is_known_by_what_its_node_says_and_not_by_its_number(files: Files) -> None:
    grid = Grid({7: files.site(3), 1: files.site(0)})
    replies = called(grid, [0, 3])
    assert all(isinstance(reply, Reply) and not reply.fault for reply in replies.values())


def test_two_nodes_with_one_name_are_an_error_that_names_both(files: Files) -> None:
    grid = Grid({7: files.site(3), 8: files.site(3)})
    with pytest.raises(FederationError, match="nodes 7 and 8 both say that they are 'site-3'"):
        called(grid, [0, 3])


def test_who_is_not_in_the_federation_file_is_reported_with_what_it_said(files: Files) -> None:
    files.describe(3, name="elsewhere")
    replies = called(Grid({7: files.site(3)}), [3])
    assert isinstance(replies[3], Failure)
    assert replies[3].reason.startswith("no node said in 1 s that it is 'site-3'; node 7: 'elsewhere' is not in")


def test_a_node_that_sends_something_else_is_a_failure_of_that_node(grid: Grid) -> None:
    reply = grid.reply
    grid.reply = lambda message: (  # type: ignore[method-assign]
        Message(RecordDict(), reply_to=message) if message.metadata.dst_node_id == 101 else reply(message)
    )
    replies = called(grid, range(N))
    assert isinstance(replies[0], Reply)
    assert isinstance(replies[1], Failure)


def test_no_exchange_lasts_longer_than_its_timeout(grid: Grid) -> None:
    grid.pull_messages = lambda numbers: []  # type: ignore[method-assign]
    assert all(isinstance(reply, Failure) for reply in called(grid, range(N)).values())


def test_too_few_clients_end_the_run_with_the_names_of_those_who_are_missing(grid: Grid, files: Files) -> None:
    assert PARAMS.need == 3
    grid.online = {100, 101}
    with pytest.raises(FederationError, match=r"site-4 \(client 4\): no node said in 2 s that it is 'site-4'"):
        serve(grid, files, 1)
