"""The port on Flower's messages, over a grid of the tests' own that starts no process: who is where, and what fails."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from secea.engines import flower, run
from secea.engines.driver import Patience
from secea.engines.port import Failure, Order, Reply, Task
from secea.engines.site import Site
from secea.engines.store import Store
from secea.errors import FederationError, SnapshotError
from secea.params import Params
from sites import Sites
from trial import saved_on_a_full_disk

N = 5
PARAMS = Params(N, dim=4, dropouts=1, max_entities=20, max_union=30)
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
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path / "sites", PARAMS)


@pytest.fixture
def grid(sites: Sites) -> Grid:
    return Grid({100 + n: sites.file(name) for n, name in enumerate(sites.names)})


def serve(grid: Grid, sites: Sites, rounds: int) -> None:
    site = Site.read(sites.file("server"))
    run.serve(site, flower.FlowerPort(cast(Any, grid), sites.names), rounds, QUICK, logging.getLogger())


def called(grid: Grid, sites: Sites, clients: Iterable[int]) -> dict[int, Reply | Failure]:
    port = flower.FlowerPort(cast(Any, grid), sites.names)
    return dict(port.exchange(dict.fromkeys(clients, Task.HELLO), 0, dict, 1))


def contributors(sites: Sites) -> list[list[int]]:
    """Whose shares were in, for each round that gave means."""
    shares = sites.log("server", event="accepted", kind="share")
    return [
        sorted({int(line["from"].split()[1]) for line in shares if line["round"] == end["number"]})
        for end in sites.rounds()
    ]


def test_five_clients_get_the_means_of_numpy(grid: Grid, sites: Sites) -> None:
    serve(grid, sites, 3)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 3
    sites.check_means()
    assert not list(sites.folder.glob("*/state*"))


@pytest.mark.parametrize("stage", range(12))
def test_a_node_that_is_lost_in_any_stage_costs_the_others_nothing(grid: Grid, sites: Sites, stage: int) -> None:
    stages = count()
    grid.fails = lambda node, order: node == 103 and next(stages) == stage
    serve(grid, sites, 3)
    sites.check_means()
    others = [0, 1, 2, 4]
    assert [line["clients"] for line in sites.rounds()][-1] == (list(range(N)) if stage == 12 else others)
    number = {7: 0, 9: 1, 11: 2}.get(stage)  # its shares were in: they count, though it never answers
    if number is not None:
        assert contributors(sites)[number] == list(range(N))


def test_a_node_that_is_back_takes_part_in_the_next_round_but_one(grid: Grid, sites: Sites) -> None:
    def fails(node: int, order: Order) -> bool:
        if order.task is Task.ROUND and order.round == 3:
            grid.online.add(104)
        return node == 104 and order.task is Task.ROUND and order.round == 2

    grid.fails = fails
    serve(grid, sites, 5)
    assert sites.lost() == [("client 4", "error 5: Node Unavailable")]
    assert sites.rounds()[-1]["clients"] == list(range(N))
    sites.check_means()


class Crash(Exception):
    """The end of a ServerApp."""


def crash(node: int, order: Order) -> bool:
    if node == 102 and order.task is Task.STEP and order.round == 2:
        raise Crash
    return False


def test_a_run_that_broke_off_is_taken_up_again(grid: Grid, sites: Sites) -> None:
    grid.fails = crash
    with pytest.raises(Crash):
        serve(grid, sites, 3)
    serve(Grid(grid.sites), sites, 3)
    assert len(sites.rounds()) == 3
    sites.check_means()


def test_a_server_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(
    grid: Grid, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Store.save

    def filling_up(self: Store, name: str, data: bytes) -> None:
        full = self.folder.parent.name == "server" and sites.rounds()
        (saved_on_a_full_disk if full else save)(self, name, data)

    monkeypatch.setattr(Store, "save", filling_up)
    with pytest.raises(SnapshotError, match=r"be saved in .*server/state: File too large; nothing was sent"):
        serve(grid, sites, 3)
    monkeypatch.undo()
    serve(Grid(grid.sites), sites, 3)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 3
    sites.check_means()


def test_a_server_that_lost_its_state_begins_anew_and_so_do_the_clients(grid: Grid, sites: Sites) -> None:
    grid.fails = crash
    with pytest.raises(Crash):
        serve(grid, sites, 3)
    shutil.rmtree(sites.folder / "server" / "state")
    sites.forget_the_past()
    serve(Grid(grid.sites), sites, 2)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 2
    sites.check_means()


def test_a_client_that_was_away_when_a_run_ended_takes_part_in_the_next_one(grid: Grid, sites: Sites) -> None:
    grid.fails = lambda node, order: node == 104 and order.task is Task.STEP and order.round == 1
    serve(grid, sites, 2)
    assert [path.parent.name for path in sites.folder.glob("*/state")] == ["site-5"]
    sites.forget_the_past()
    serve(Grid(grid.sites), sites, 4)
    assert sites.rounds()[-1]["clients"] == list(range(N))
    sites.check_means()
    assert not list(sites.folder.glob("*/state*"))


def test_two_runs_at_once_are_refused(grid: Grid, sites: Sites) -> None:
    def fails(node: int, order: Order) -> bool:
        if order.task is Task.ROUND:
            with pytest.raises(SnapshotError, match="one run at a time"):
                serve(Grid(grid.sites), sites, 1)
        return False

    grid.fails = fails
    serve(grid, sites, 1)
    sites.check_means()


def test_a_client_is_known_by_what_its_node_says_and_not_by_its_number(sites: Sites) -> None:
    grid = Grid({7: sites.file("site-4"), 1: sites.file("site-1")})
    replies = called(grid, sites, [0, 3])
    assert all(isinstance(reply, Reply) and not reply.fault for reply in replies.values())


def test_two_nodes_with_one_name_are_an_error_that_names_both(sites: Sites) -> None:
    grid = Grid({7: sites.file("site-4"), 8: sites.file("site-4")})
    with pytest.raises(FederationError, match="nodes 7 and 8 both say that they are 'site-4'"):
        called(grid, sites, [0, 3])


def test_who_is_not_in_the_federation_file_is_reported_with_what_it_said(sites: Sites) -> None:
    sites.write("site-4", name="elsewhere")
    replies = called(Grid({7: sites.file("site-4")}), sites, [3])
    assert isinstance(replies[3], Failure)
    assert replies[3].reason.startswith("no node said in 1 s that it is 'site-4'; node 7: 'elsewhere' is not in")


def test_a_node_that_sends_something_else_is_a_failure_of_that_node(grid: Grid, sites: Sites) -> None:
    reply = grid.reply
    grid.reply = lambda message: (  # type: ignore[method-assign]
        Message(RecordDict(), reply_to=message) if message.metadata.dst_node_id == 101 else reply(message)
    )
    replies = called(grid, sites, range(N))
    assert isinstance(replies[0], Reply)
    assert isinstance(replies[1], Failure)


def test_no_exchange_lasts_longer_than_its_timeout(grid: Grid, sites: Sites) -> None:
    grid.pull_messages = lambda numbers: []  # type: ignore[method-assign]
    assert all(isinstance(reply, Failure) for reply in called(grid, sites, range(N)).values())


def test_too_few_clients_end_the_run_with_the_names_of_those_who_are_missing(grid: Grid, sites: Sites) -> None:
    assert replace(PARAMS, collusion=1).need == 3
    grid.online = {100, 101}
    with pytest.raises(FederationError, match=r"site-5 \(client 4\): no node said in 2 s that it is 'site-5'"):
        serve(grid, sites, 1)
