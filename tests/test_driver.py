"""Laws of driver and host over any port: right means for whoever is there, whoever was killed when, and resumption."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federation import SMALL, true_means
from secea.engines.driver import Driver
from secea.engines.host import Host, Participant, told
from secea.engines.log import Log
from secea.engines.port import Failure, Order, Port, Reply, Task, orders
from secea.engines.store import Store
from secea.errors import SERVER, FaultyPeer, FederationError, ProtocolError
from secea.params import Params
from secea.server import Server
from secea.session import Session
from secea.table import Table
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer

BOTH = ["reciprocal", "paillier"]
N = 5
Kill = Callable[[int, Order], str]
"""What happens to a client with an order: "" nothing, "before" or "after" it did it, or "hangs"."""


def unharmed(n: int, order: Order) -> str:
    return ""


class Killed(Exception):
    """The end of a server's side."""


@dataclass
class Turn:
    """Counts the orders of one client."""

    client: int
    at: int
    seen: int = 0

    def is_it(self, n: int) -> bool:
        self.seen += n == self.client
        return n == self.client and self.seen == self.at


def killed_at(turn: Turn, fate: str, n: int, order: Order) -> str:
    if not turn.is_it(n):
        return ""
    if fate == "server":
        raise Killed
    return fate


class Loopback:
    """A port whose clients live in this process; their orders and replies travel as bytes. It can kill clients."""

    def __init__(self, world: World) -> None:
        self.world, self.kill = world, unharmed

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        assert timeout > 0
        for n, order in orders(tasks, round, inboxes()).items():
            fate = self.kill(n, order)
            if fate == "hangs":
                continue
            if fate == "before":
                reply: Reply | Failure = Failure("killed")
            else:
                done = self.world.hosts[n].obey(Order.parse(order.to_bytes(), SERVER))
                reply = Failure("killed") if fate else Reply.parse(done.to_bytes(), n)
            if fate:
                self.world.hosts[n] = self.world.host(n)
            yield n, reply


class World:
    """Sites with state on disk, and a server's side that can be started again."""

    def __init__(self, folder: Path, form: str, **params: Any) -> None:
        self.folder = folder
        self.sets = [[f"e{i}" for i in range(9) if (i * 7 + n * i + n) % 3] for n in range(N)]
        self.identities = {n: Identity.generate() for n in (*range(N), SERVER)}
        bounds = {"max_entities": 9, "max_union": 20}
        roster = Roster(tuple(self.identities[n].public for n in range(N)), self.identities[SERVER].public)
        self.session = Session(Params(N, **({"dim": 3} | SMALL | bounds | params)), roster, form)
        self.given: dict[int, dict[int, dict[str, Any]]] = {n: {} for n in range(N)}
        self.got: dict[int, list[tuple[int, Table]]] = {n: [] for n in range(N)}
        self.hosts = {n: self.host(n) for n in range(N)}
        self.port = Loopback(self)
        self.store = Store(folder / "server", self.identities[SERVER], self.session.hash)
        self.driver = self.started(Server(self.session, self.identities[SERVER]))

    def host(self, n: int) -> Host:
        """Client n's side, as it is after a restart."""
        rng = np.random.default_rng(n)

        def train(means: Table | None, number: int) -> dict[str, Any]:
            if means is not None:
                assert np.isfinite(means.matrix).all(), "means that never came"
                self.got[n].append((number, means))
            self.given[n][number] = {name: rng.uniform(-9, 9, 3) for name in self.sets[n]}
            return self.given[n][number]

        def done(means: Table | None) -> None:
            if means is not None:
                self.got[n].append((0, means))

        store = Store(self.folder / str(n), self.identities[n], self.session.hash)
        log = Log(self.folder / f"{n}.log")
        return Host(self.session, n, self.identities[n], Participant(lambda: self.sets[n], train, done), store, log)

    def started(self, server: Server) -> Driver:
        port: Port = self.port
        log = Log(self.folder / "server.log")
        return Driver(server, port, save=lambda data: self.store.save("server", data), log=log)

    def restarted(self) -> Driver:
        """The server's side after it was killed."""
        saved = self.store.load("server")
        assert saved is not None
        self.driver = self.started(Server.restore(self.session, self.identities[SERVER], saved))
        return self.driver

    def check(self, contributors: Iterable[int], receivers: Iterable[int]) -> None:
        """The last means of the receivers are those over what the contributors gave last."""
        means = true_means(self.hosts[n]._table.as_dict() for n in contributors)  # type: ignore[union-attr]
        for n in receivers:
            found = self.hosts[n].means()
            assert found is not None, n
            for name, row in found.as_dict().items():
                assert np.abs(row - means[name]).max() <= self.session.params.resolution, (n, name)

    def run(self, rounds: int) -> None:
        self.driver.setup()
        for _ in range(rounds):
            self.driver.round()

    def flush(self) -> None:
        """The means reach the clients."""
        for _ in self.driver._exchange(dict.fromkeys(self.driver.present, Task.STEP)):
            pass


@pytest.mark.parametrize("form", BOTH)
def test_rounds_over_a_port_give_the_means_and_two_exchanges_each(tmp_path: Path, form: str) -> None:
    world = World(tmp_path, form)
    world.driver.setup()
    for _ in range(3):
        world.driver.round()
    world.flush()
    world.check(range(N), range(N))
    world.driver.finish()
    for n in range(N):
        assert [number for number, _ in world.got[n]] == [2, 3, 0]
        assert not (tmp_path / str(n)).exists(), "state is removed at the end"


@pytest.mark.parametrize("fate", ["before", "after", "hangs"])
def test_a_client_that_is_killed_in_any_exchange_is_left_out_and_comes_back(tmp_path: Path, fate: str) -> None:
    """All exchanges of a set-up and two rounds, one after the other; the victim's state is that on its disk."""
    for at in range(1, 9):
        world = World(tmp_path / str(at), "reciprocal", dropouts=1)
        turn = Turn(2, at + 1)
        world.port.kill = partial(killed_at, turn, fate)
        world.driver.setup()
        for _ in range(4):
            world.driver.round()
            there = set(world.driver.server.contributors)
            assert there >= {0, 1, 3, 4}
        assert turn.seen > at
        world.flush()
        assert world.driver.present == set(range(N)), (at, world.driver.failures)
        world.check(range(N), range(N))


@pytest.mark.parametrize("form", BOTH)
def test_too_many_losses_are_a_clear_error_and_the_next_round_works(tmp_path: Path, form: str) -> None:
    world = World(tmp_path, form, dropouts=1)
    world.driver.setup()
    world.driver.round()
    world.port.kill = lambda n, order: "before" if n < 3 and order.task is Task.STEP else ""
    with pytest.raises(FederationError, match="2 clients"):
        world.driver.round()
    world.port.kill = unharmed
    world.driver.round()
    world.driver.round()
    world.flush()
    assert world.driver.present == set(range(N))
    world.check(range(N), range(N))


@pytest.mark.parametrize(("form", "fate"), [("reciprocal", "before"), ("reciprocal", "after"), ("paillier", "hangs")])
def test_without_drop_outs_a_loss_in_any_exchange_is_an_error_and_the_next_round_works(
    tmp_path: Path, form: str, fate: str
) -> None:
    for at in range(2, 10 if form == "reciprocal" else 8):
        world = World(tmp_path / str(at), form, dropouts=0)
        turn = Turn(2, at)
        world.port.kill = partial(killed_at, turn, fate)
        with pytest.raises(FederationError, match=r"5 (clients that said hello )?are needed"):
            world.run(2)
        assert turn.seen == at
        assert world.driver.failures.keys() == {2}
        world.driver.round()
        world.flush()
        assert world.driver.present == set(range(N))
        world.check(range(N), range(N))


@pytest.mark.parametrize("form", BOTH)
def test_a_server_side_that_is_killed_anywhere_goes_on_from_what_it_saved(tmp_path: Path, form: str) -> None:
    for at in range(2, 9 if form == "reciprocal" else 7):
        world = World(tmp_path / str(at), form)
        world.port.kill = partial(killed_at, Turn(3, at), "server")
        with pytest.raises(Killed):
            world.run(3)
        world.port.kill = unharmed
        driver = world.restarted()
        driver.setup()
        driver.round()
        world.flush()
        world.check(range(N), range(N))


@pytest.mark.parametrize("form", BOTH)
def test_names_that_change_between_rounds_begin_an_epoch(tmp_path: Path, form: str) -> None:
    world = World(tmp_path, form)
    world.driver.setup()
    world.driver.round()
    world.sets[1] = ["e1", "new"]
    world.driver.round()
    assert world.driver.server.epoch == 2
    world.flush()
    world.check(range(N), range(N))
    found = world.hosts[1].means()
    assert found is not None
    assert set(found.names) == {"e1", "new"}


@pytest.mark.parametrize("form", BOTH)
def test_means_stay_those_of_their_entities_when_an_epoch_begins(tmp_path: Path, form: str) -> None:
    """The entities are in another order in each epoch, and clients train on the means of the one before."""
    world = World(tmp_path, form)
    world.run(1)
    world.flush()
    world.driver._new_epoch()
    world.check(range(N), range(N))
    world.sets[1] = ["e1", "new"]
    world.driver.round()
    assert world.driver.server.epoch == 3
    assert not world.got[1], "its entities changed: it has no means of them"


def test_random_kills_for_many_rounds_never_give_a_wrong_mean(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    dice = np.random.default_rng(seed)
    world = World(tmp_path, "reciprocal", dropouts=2)
    world.driver.setup()
    world.port.kill = lambda n, order: str(dice.choice(["before", "after", "hangs"])) if dice.random() < 0.04 else ""
    finished = 0
    for number in range(40):
        try:
            if number % 10 == 7:
                world.restarted().setup()
            world.driver.round()
        except FederationError:  # too many at once
            continue
        finished += 1
        contributors = world.driver.server.contributors
        kill, world.port.kill = world.port.kill, unharmed
        receivers = world.driver.present & set(contributors)
        world.flush()
        world.check(contributors, receivers)
        world.port.kill = kill
    assert finished > 20


@pytest.mark.parametrize("form", BOTH)
def test_a_site_with_another_key_is_left_out_and_named(tmp_path: Path, form: str) -> None:
    world = World(tmp_path, form, dropouts=1)
    stranger = World(tmp_path / "stranger", form, dropouts=1)
    world.hosts[4] = stranger.hosts[4]
    world.driver.setup()
    world.driver.round()
    assert world.driver.present == {0, 1, 2, 3}
    assert "client 4" in world.driver.failures[4]
    world.flush()
    world.check(range(4), range(4))


def test_the_logs_tell_kinds_sizes_and_hashes_and_no_secret(tmp_path: Path) -> None:
    world = World(tmp_path, "reciprocal")
    world.driver.setup()
    world.driver.round()
    world.driver.finish()
    for name in ("0.log", "server.log"):
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert {"accepted"} <= {line["event"] for line in lines}
        kinds = {line["kind"] for line in lines if "kind" in line}
        assert {"share", "answer"} <= kinds | {"answer"}
        for line in lines:
            if "sha256" in line:
                assert len(line["sha256"]) == 64
                assert line["bytes"] > 64
    text = (tmp_path / "0.log").read_text()
    for secret in (world.identities[0].secret, world.hosts[0].client.wire.key.secret, world.hosts[0].client.secret):
        assert secret.hex() not in text


def test_bytes_that_are_no_order_and_no_reply_are_their_carriers_fault() -> None:
    order = Order(Task.ROUND, 3, [b"abc", b""])
    assert Order.parse(order.to_bytes(), SERVER) == order
    reply = Reply(1, 2, 3, [b"x" * 100], "because")
    assert Reply.parse(reply.to_bytes(), 4) == reply
    whole = reply.to_bytes()
    for cut in range(len(whole)):
        with pytest.raises(ProtocolError) as caught:
            Reply.parse(whole[:cut], 4)
        assert caught.value.suspects == (4,)
    with pytest.raises(ProtocolError, match="unknown task"):
        Order.parse(Reply(9, 0, 0).to_bytes(), SERVER)


def test_the_server_is_not_told_what_a_site_has_but_the_sites_own_log_is(tmp_path: Path) -> None:
    world = World(tmp_path, "reciprocal", dropouts=1)
    world.driver.setup()
    host = world.hosts[1]
    host._participant = Participant(lambda: world.sets[1], lambda means, number: {"a secret entity": [1.0, 2.0, 3.0]})
    world.driver.round()
    heard = (tmp_path / "server.log").read_text()
    assert '"client 1", "why": "TableError at its own side; its log has the rest"' in heard
    assert "secret entity" not in heard
    assert not set(world.sets[1]) & set(re.findall(r"\w+", heard))
    assert "entity" in (tmp_path / "1.log").read_text().split("stopped")[1]
    refused = FaultyPeer(SERVER, "sends a union that lacks 2 of our 7 entities")
    assert told(refused) == "it refuses what came from the server"
    assert told(ValueError("patient 4711")) == "ValueError at its own side; its log has the rest"
