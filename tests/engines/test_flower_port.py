"""The port on Flower's messages, over a grid of the tests' own: who is where, what fails, and what is sent how often.

But for one of them these tests have the cores of all sites in their own process.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.task_identity import TaskIdentity

import secea
from lasting_cores import cores_of, ended, process_of, waited
from secea.engines import flower, run
from secea.engines import port as port_module
from secea.engines.core import CoreError
from secea.engines.driver import Patience
from secea.engines.files import key_fingerprint
from secea.engines.host import Host, told
from secea.engines.lasting import LastingCore
from secea.engines.port import Alive, Failure, Order, Reply, Task, Terms
from secea.engines.site import Site
from secea.engines.store import Store
from secea.errors import FederationError, ProtocolError, SnapshotError
from secea.forms.keyed import form as form_module
from secea.params import Params
from secea.wire.messages import Buffer
from sites import Sites, lasting
from trial import killed, saved_on_a_full_disk

pytestmark = pytest.mark.slow

N = 5
PARAMS = Params(N, dim=4, dropouts=1, max_entities=20, max_union=30)
QUICK = Patience(stage=2, training=0)
HOURS = Patience(stage=7200, training=0)


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
        order = flower._joined(flower._unpacked(message.content)[0])
        if node not in self.online or self.fails(node, order):
            self.online.discard(node)
            return Message(Error(5, "Node Unavailable"), reply_to=message)
        config: dict[str, bool | float | int | str] = {"secea-site": str(self.sites[node])}
        return flower.obey(message, Context(0, node, config, RecordDict(), {}))


class Here:
    """A core in this process, which lasts as long as a test."""

    hosts: dict[Path, Host | Host]

    def __init__(self, site: Path, run: str = "") -> None:
        self._site = site

    def obey(self, data: Buffer, timeout: float) -> bytearray:
        order = Order.parse(data, 0)
        try:
            if self._site not in self.hosts:
                self.hosts[self._site] = Site.read(self._site).host()
            reply = self.hosts[self._site].obey(order)
        except Exception as error:  # as a core does: the user's code may raise anything
            self.hosts.pop(self._site, None)
            raise CoreError(told(error)) from None
        if order.task is Task.END:
            del self.hosts[self._site]
        return bytearray(reply.to_bytes())


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path / "sites", PARAMS)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    Here.hosts = {}
    monkeypatch.setattr(flower, "LastingCore", Here)


@pytest.fixture
def real(sites: Sites, monkeypatch: pytest.MonkeyPatch, here: None) -> Iterator[None]:
    monkeypatch.setattr(flower, "LastingCore", LastingCore)
    yield
    ended(sites)


@pytest.fixture
def grid(sites: Sites) -> Grid:
    return Grid({100 + n: sites.file(name) for n, name in enumerate(sites.names)})


def serve(grid: Grid, sites: Sites, rounds: int, patience: Patience = QUICK) -> None:
    site = Site.read(sites.file("server"))
    run.serve(site, flower.FlowerPort(cast(Any, grid), sites.names), rounds, patience, logging.getLogger())


def called(grid: Grid, sites: Sites, clients: Iterable[int]) -> dict[int, Reply | Failure]:
    port = flower.FlowerPort(cast(Any, grid), sites.names)
    heard = port.exchange(dict.fromkeys(clients, Task.HELLO), 0, dict, Terms(1))
    return {n: reply for n, reply in heard if not isinstance(reply, Alive)}


def contributors(sites: Sites) -> list[list[int]]:
    """Whose uploads were in, for each round that gave means."""
    uploads = sites.log("server", event="accepted", kind="upload")
    return [
        sorted({int(line["from"].split()[1]) for line in uploads if line["round"] == end["number"]})
        for end in sites.rounds()
    ]


def test_five_clients_get_the_means_of_numpy(grid: Grid, sites: Sites) -> None:
    serve(grid, sites, 3)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 3
    sites.check_means()
    assert sites.kept() == lasting(sites)


OPTIONS: list[dict[str, Any]] = [{"max_weight": 9, "min_owners": 3}, {"partial": True, "min_owners": 2}, {"noise": 0.1}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_of_the_federation_file_hold_at_every_site_whoever_is_lost(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    sites = Sites(tmp_path / "sites", replace(PARAMS, collusion=2, **options))
    grid = Grid({100 + n: sites.file(name) for n, name in enumerate(sites.names)})

    def fails(node: int, order: Order) -> bool:
        grid.online.add(104)
        return (node, order.task, order.round) == (104, Task.ROUND, 2)

    grid.fails = fails
    serve(grid, sites, 4)
    assert [line["clients"] for line in sites.rounds()] == [
        list(range(N)),
        [0, 1, 2, 3],
        list(range(N)),
        list(range(N)),
    ]
    sites.check_means()


@pytest.mark.parametrize("carried", [1, 700, 1 << 26])
def test_replies_of_several_parts_come_in_several_messages(
    grid: Grid, sites: Sites, monkeypatch: pytest.MonkeyPatch, carried: int
) -> None:
    monkeypatch.setattr(port_module, "PART_BYTES", 300)
    monkeypatch.setattr(form_module, "CHUNK_BYTES", 200)
    monkeypatch.setattr(flower, "MESSAGE_BYTES", carried)
    asked = list[int]()

    def seen(_node: int, order: Order) -> bool:
        asked.extend([order.round] * (order.task is Task.MORE))
        return False

    grid.fails = seen
    serve(grid, sites, 2)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 2
    sites.check_means()
    assert bool(asked) == (carried < 1 << 26)


def test_a_node_that_is_lost_between_parts_of_its_reply_costs_the_others_nothing(
    grid: Grid, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_module, "PART_BYTES", 300)
    monkeypatch.setattr(form_module, "CHUNK_BYTES", 200)
    monkeypatch.setattr(flower, "MESSAGE_BYTES", 1)
    asked = count()
    grid.fails = lambda node, order: (
        node == 103 and order.task is Task.MORE and len(sites.rounds()) == 1 and next(asked) == 1
    )
    serve(grid, sites, 2)
    sites.check_means()
    assert [line["clients"] for line in sites.rounds()] == [list(range(N)), [0, 1, 2, 4]]


SET_UP = ("hello", "commit", "deal", "list", "confirm")
"""Whoever is lost in these is needed."""
ROUND = ("ready", "upload", "agree", "open")
STAGES = (*SET_UP, "evaluate", "secret", "table", "batch", *ROUND, *ROUND, "end")
"""The orders that a client gets in a run of two rounds."""


@pytest.mark.parametrize("stage", range(len(SET_UP)), ids=SET_UP)
def test_a_node_that_is_lost_while_the_key_of_names_is_made_ends_the_run_by_name_and_the_next_one_makes_it(
    grid: Grid, sites: Sites, stage: int
) -> None:
    orders = count()
    grid.fails = lambda node, order: node == 103 and next(orders) == stage
    with pytest.raises(FederationError, match=r"the set-up needs 5 clients, and only 4 are here; site-4: "):
        serve(grid, sites, 2)
    serve(Grid(grid.sites), sites, 2)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 2
    sites.check_means()


@pytest.mark.parametrize("stage", range(len(SET_UP), len(STAGES)), ids=STAGES[len(SET_UP) :])
def test_a_node_that_is_lost_in_any_stage_costs_the_others_nothing(grid: Grid, sites: Sites, stage: int) -> None:
    orders = count()
    grid.fails = lambda node, order: node == 103 and next(orders) == stage
    serve(grid, sites, 2)
    sites.check_means()
    others = [0, 1, 2, 4]
    uploads, opens = ([i for i, name in enumerate(STAGES) if name == what] for what in ("upload", "open"))
    there = [line["clients"] for line in sites.rounds()]
    assert there == [others if stage <= end else list(range(N)) for end in opens]
    assert contributors(sites) == [others if stage <= upload else list(range(N)) for upload in uploads]
    assert not sites.log("server", event="round lost")


def test_a_node_that_is_back_takes_part_in_the_next_round_but_one(grid: Grid, sites: Sites) -> None:
    def fails(node: int, order: Order) -> bool:
        if order.task is Task.ROUND and order.round == 3:
            grid.online.add(104)
        return node == 104 and order.task is Task.ROUND and order.round == 2

    grid.fails = fails
    serve(grid, sites, 5)
    assert sites.lost() == [("client 4", "its node is not online any more")]
    assert sites.rounds()[-1]["clients"] == list(range(N))
    sites.check_means()


def test_the_servers_log_says_at_its_start_who_and_what_runs_and_ends_with_the_end(grid: Grid, sites: Sites) -> None:
    site = Site.read(sites.file("server"))
    port = flower.FlowerPort(cast(Any, grid), sites.names)
    run.serve(site, port, 1, QUICK, logging.getLogger(), run="job 7")
    start, *_, end = sites.log("server")
    assert end["event"] == "end"
    assert (start["event"], start["run"], start["rounds"], start["party"]) == ("start", "job 7", 1, "server")
    assert start["secea"] == secea.__version__
    assert start["session"] == site.session.fingerprint
    assert start["key"] == key_fingerprint(sites.identities["server"].public)


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
        full = name == "server" and sites.rounds()
        (saved_on_a_full_disk if full else save)(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", filling_up)
        with pytest.raises(SnapshotError, match=r"be saved in .*server/state: File too large; nothing was sent"):
            serve(grid, sites, 3)
    serve(Grid(grid.sites), sites, 3)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 3
    sites.check_means()


def test_a_server_that_lost_its_state_goes_on_from_where_the_clients_stand(grid: Grid, sites: Sites) -> None:
    grid.fails = crash
    with pytest.raises(Crash):
        serve(grid, sites, 3)
    shutil.rmtree(sites.folder / "server" / "state")
    serve(Grid(grid.sites), sites, 2)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 2
    assert len(sites.log("server", event="accepted", kind="commitment")) == N, "a new key of the names"
    sites.check_means()


def test_a_client_that_was_away_when_a_run_ended_takes_part_in_the_next_one(grid: Grid, sites: Sites) -> None:
    grid.fails = lambda node, order: node == 104 and order.task is Task.STEP and order.round == 2
    serve(grid, sites, 2)
    assert sites.kept() == lasting(sites) | {"site-5": {"client", "table"}}
    serve(Grid(grid.sites), sites, 2)
    assert sites.rounds()[-1]["clients"] == list(range(N))
    sites.check_means()
    assert sites.kept() == lasting(sites)


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


@pytest.mark.parametrize(
    ("code", "cause", "why"),
    [
        (3, "slow", "it did not reply within 2 s"),
        (4, "slow", "it did not reply within 2 s"),
        (5, "unreachable", "its node is not online any more"),
        (8, "failed", "Flower's ClientApp at its site was killed, or stopped responding"),
        (1, "failed", "Flower's error 1 at its site: no module 'mine'"),
    ],
)
def test_what_flower_says_of_a_lost_reply_is_told_as_what_happened(
    grid: Grid, sites: Sites, code: int, cause: str, why: str
) -> None:
    port = flower.FlowerPort(cast(Any, grid), sites.names)
    list(port.exchange(dict.fromkeys(range(N), Task.HELLO), 0, dict, Terms(1)))
    answers = grid.reply

    def reply(message: Message) -> Message:
        if message.metadata.dst_node_id != 102:
            return answers(message)
        return Message(Error(code, "no module 'mine'"), reply_to=message)

    grid.reply = reply  # type: ignore[method-assign]
    heard = dict(port.exchange(dict.fromkeys(range(N), Task.STEP), 0, dict, Terms(2)))
    assert heard[2] == Failure(why, port_module.Cause(cause))
    assert all(isinstance(heard[n], Reply) for n in range(N) if n != 2)


def test_a_node_that_is_gone_while_it_trains_is_lost_with_the_next_beat_however_long_it_may_train(
    grid: Grid, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "BEAT_SECONDS", 0.5)
    port = flower.FlowerPort(cast(Any, grid), sites.names)
    list(port.exchange(dict.fromkeys(range(N), Task.HELLO), 0, dict, Terms(1)))
    pulled = grid.pull_messages
    grid.pull_messages = lambda numbers: []  # type: ignore[method-assign]  # all train
    heard = list[tuple[int, Reply | Failure | Alive]]()
    for n, news in port.exchange(dict.fromkeys(range(N), Task.STEP), 0, dict, Terms(3600, training=3590)):
        heard.append((n, news))
        if len(heard) == N:
            assert {n for n, news in heard if isinstance(news, Alive)} == set(range(N)), "slow is not dead"
            grid.online.discard(102)
        elif isinstance(news, Failure):
            grid.pull_messages = pulled  # type: ignore[method-assign]
    failed = [(n, news) for n, news in heard if isinstance(news, Failure)]
    assert failed == [(2, Failure("its node 102 is not online any more", port_module.Cause.UNREACHABLE))]
    assert {n for n, news in heard if isinstance(news, Reply)} == set(range(N)) - {2}


def test_no_exchange_lasts_longer_than_its_timeout(grid: Grid, sites: Sites) -> None:
    grid.pull_messages = lambda numbers: []  # type: ignore[method-assign]
    assert all(isinstance(reply, Failure) for reply in called(grid, sites, range(N)).values())


def test_too_few_clients_end_the_run_with_the_names_of_those_who_are_missing(grid: Grid, sites: Sites) -> None:
    grid.online = {100, 101}
    with pytest.raises(FederationError, match=r"site-5: no node said in 2 s that it is 'site-5'"):
        serve(grid, sites, 1)


# ------------------------------------------------------------------------------------------------------------ processes


@pytest.mark.usefixtures("real")
def test_each_site_has_one_process_for_all_orders_of_a_run_and_none_after_it(grid: Grid, sites: Sites) -> None:
    seen: dict[int, set[int]] = {}

    def look(node: int, order: Order) -> bool:
        if order.task is not Task.HELLO:
            seen.setdefault(node, set()).add(process_of(sites, sites.names[node - 100]).pid)
        return False

    grid.fails = look
    serve(grid, sites, 2, HOURS)
    assert [line["clients"] for line in sites.rounds()] == [list(range(N))] * 2
    sites.check_means()
    assert {node: len(found) for node, found in seen.items()} == dict.fromkeys(range(100, 100 + N), 1)
    waited(lambda: not any(cores_of(sites, name) for name in sites.names))


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_client_whose_process_is_killed_in_any_stage_costs_the_others_nothing_and_returns(
    grid: Grid, sites: Sites, when: str
) -> None:
    sites.play(killed(when))
    for name in sites.names:
        sites.argue(name, wait=0.0)  # this grid asks one node after the other
    serve(grid, sites, 8, HOURS)
    assert not sites.scenes_left()
    rounds = [line["clients"] for line in sites.rounds()]
    assert len(rounds) == 8
    assert rounds[-1] == list(range(N))
    assert all(len(clients) >= N - 1 for clients in rounds)
    assert not sites.log("server", event="round lost")
    sites.check_means()


def test_what_a_core_cannot_do_reaches_the_server_as_the_core_tells_it(sites: Sites) -> None:
    sites.argue("site-4", entities="many")
    replies = called(Grid({7: sites.file("site-4")}), sites, [3])
    assert isinstance(replies[3], Reply)
    assert replies[3].fault == "TypeError at its own side; its log has the rest"


# ----------------------------------------------------------------------------------------- what goes to several clients

EACH = 100_000


class Storing(Grid):
    """A grid that gives a SuperLink's store what it has not got, as Flower's own does; and counts it."""

    def __init__(self, nodes: int) -> None:
        super().__init__({100 + n: Path() for n in range(nodes)})
        self.store, self.pushed = InMemoryObjectStore(), 0
        self.got: dict[int, Order] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = list(super().push_messages(messages := list(messages)))
        objects, missing = dict[str, Any](), set[str]()
        for message in messages:
            objects |= get_all_nested_objects(message)
            missing |= set(self.store.preregister(1, get_object_tree(message)))
        for name in missing:
            self.store.put(name, content := objects[name].deflate())
            self.pushed += len(content)
        return numbers

    def reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        self.got[node] = flower._joined(flower._unpacked(message.content)[0])
        self.store.delete(message.object_id)  # a node that has its message confirms it at once
        return Message(flower._packed([flower._array(Reply().to_bytes())], f"site-{node - 99}"), reply_to=message)


def given(inboxes: dict[int, list[Buffer]]) -> tuple[Storing, flower.FlowerPort]:
    """Clients at known nodes, who were given these messages."""
    grid = Storing(len(inboxes))
    names = tuple(f"site-{n + 1}" for n in inboxes)
    port = flower.FlowerPort(cast(Any, grid), names)
    assert all(
        isinstance(reply, Reply) for _, reply in port.exchange(dict.fromkeys(inboxes, Task.HELLO), 0, dict, Terms(5))
    )
    grid.pushed = 0
    port.sent = 0
    replies = port.exchange(dict.fromkeys(inboxes, Task.STEP), 7, lambda: inboxes, Terms(5))
    assert all(isinstance(reply, Reply) for _, reply in replies)
    for n, messages in inboxes.items():
        order = grid.got[100 + n]
        assert (order.task, order.round) == (Task.STEP, 7)
        assert list(map(bytes, order.messages)) == messages
    return grid, port


def own(n: int, size: int = 50) -> bytes:
    return bytes([n]) * size


@pytest.mark.parametrize("clients", [2, 3, 10])
def test_a_broadcast_goes_to_the_superlink_once_however_many_clients_there_are(clients: int) -> None:
    chunks = [own(200 + i, EACH) for i in range(3)]
    inboxes: dict[int, list[Buffer]] = {n: [own(n), *chunks, own(n)] for n in range(clients)}
    grid, port = given(inboxes)
    assert 3 * EACH < grid.pushed < 3 * EACH + 5_000 * clients
    assert port.sent > clients * 3 * EACH  # what clients get is counted as ever


def test_what_some_clients_get_goes_once_for_these_and_the_others_do_not_get_it() -> None:
    even, odd = own(200, EACH), own(201, EACH)
    inboxes: dict[int, list[Buffer]] = {n: [own(n), odd if n % 2 else even] for n in range(6)}
    grid, _ = given(inboxes)
    assert 2 * EACH < grid.pushed < 2 * EACH + 30_000


def test_in_whatever_order_clients_get_things_in_common_they_get_them() -> None:
    a, b, c = (own(200 + i, 1000) for i in range(3))
    given({0: [a, b, c], 1: [c, a], 2: [own(2), b, own(3), b, a], 3: [], 4: [a, own(4), a]})


def test_what_only_one_client_gets_is_its_own() -> None:
    grid, _ = given({n: [own(n, EACH)] for n in range(4)})
    assert 4 * EACH < grid.pushed < 4 * EACH + 20_000


def test_pieces_of_different_orders_are_refused(sites: Sites) -> None:
    pieces = [Order(Task.STEP, 1, [b"a"]).to_bytes(), Order(Task.STEP, 2, [b"b"]).to_bytes()]
    with pytest.raises(ProtocolError, match="pieces of different orders"):
        flower._joined(pieces)
