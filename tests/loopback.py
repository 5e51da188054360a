"""Sites with state on disk and a server's side over a port in this process; anybody can be killed and started again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from optional import dues
from secea.engines.driver import Driver
from secea.engines.host import Host, Participant
from secea.engines.log import Log
from secea.engines.port import Failure, Order, Reply, Task, Terms, asked, orders
from secea.engines.store import Store
from secea.errors import SERVER, RoundLost
from secea.forms.keyed import Keyed
from secea.names import text_of
from secea.params import Params
from secea.party.form import Form
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Name, Table
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer

N = 4
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
        self.seen: list[tuple[int, Order, Reply]] = []

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        assert terms.seconds > 0
        for n, order in orders(tasks, round, inboxes(), terms.said).items():
            fate = self.kill(n, order)
            if fate == "hangs":
                continue
            if fate == "before":
                self.world.restart(n)
                yield n, Failure("killed")
                continue
            for reply in asked(order, partial(self._carried, n)):
                self.seen.append((n, order, reply))
                if fate:
                    self.world.restart(n)
                yield n, Failure("killed") if fate else reply
                if fate:
                    break

    def _carried(self, n: int, part: Order) -> Reply:
        return Reply.parse(self.world.hosts[n].obey(Order.parse(part.to_bytes(), SERVER)).to_bytes(), n)


class World:
    """Sites with state on disk, and a server's side that can be started again."""

    def __init__(self, folder: Path, form: Form | None = None, *, entities: int = 9, **params: Any) -> None:
        self.folder = folder
        self.sets = [[f"e{i}" for i in range(entities) if (i * 7 + n * i + n) % 3] for n in range(N)]
        self.identities = {n: Identity.generate() for n in (*range(N), SERVER)}
        roster = Roster(tuple(self.identities[n].public for n in range(N)), self.identities[SERVER].public)
        bounds: dict[str, Any] = {"max_entities": entities, "max_union": 2 * entities}
        self.session = Session(Params(N, dim=3, **bounds, **params), roster, form or Keyed())
        self.given: dict[int, dict[int, Table]] = {n: {} for n in range(N)}
        self.got: dict[int, list[tuple[int, Table | None]]] = {n: [] for n in range(N)}
        self.over: dict[int, Table | None] = {}
        self.rng = np.random.default_rng(seed := secrets.randbits(32))
        print(f"seed {seed}")
        self.hosts = {n: self.host(n) for n in range(N)}
        self.port = Loopback(self)
        self.store = Store(folder / "server", self.identities[SERVER], self.session.hash)
        self.driver = self.started(Server(self.session, self.identities[SERVER]))

    def host(self, n: int) -> Host:
        """Client n's side, as it is after a restart."""

        def train(means: Table | None, number: int) -> Table:
            self.got[n].append((number, means))
            names, params = tuple(self.sets[n]), self.session.params
            most = params.max_weight or int(params.partial)
            weights = self.rng.integers(0, most, len(names), endpoint=True) if most else None
            self.given[n][number] = Table(names, self.rng.uniform(-9, 9, (len(names), 3)), weights)
            return self.given[n][number]

        store = Store(self.folder / str(n), self.identities[n], self.session.hash)
        log = Log(self.folder / f"{n}.log", self.session.form.kinds)
        participant = Participant(lambda: self.sets[n], train, partial(self.over.__setitem__, n))
        return Host(self.session, n, self.identities[n], participant, store, log)

    def restart(self, n: int) -> None:
        self.hosts[n] = self.host(n)

    def started(self, server: Server) -> Driver:
        log = Log(self.folder / "server.log", self.session.form.kinds)
        return Driver(server, self.port, save=partial(self.store.save, "server"), log=log)

    def restarted(self, *, forgets: bool = False) -> Driver:
        """The server's side after it was killed; with its state, or without."""
        saved = None if forgets else self.store.load("server")
        key = self.identities[SERVER]
        server = Server(self.session, key) if saved is None else Server.restore(self.session, key, saved)
        self.driver = self.started(server)
        return self.driver

    def round(self) -> list[int]:
        """One round that gives means, however many are lost before it; who was in it. The means are looked at."""
        for _ in range(8):
            try:
                self.driver.round()
                break
            except RoundLost:
                continue
        else:
            raise AssertionError("every round is lost")
        members = sorted(self.driver.server.at.members)
        self.deliver()
        self.check(members, sorted(self.driver.present & set(members)))
        return members

    def deliver(self) -> None:
        """What is on its way arrives, as it would with the next order."""
        for n, messages in self.driver.server.drain().items():
            reply = self.hosts[n].obey(Order(Task.STEP, 0, messages))
            assert not reply.fault, (n, reply.fault)

    def check(self, members: Iterable[int], receivers: Iterable[int]) -> None:
        """The means of the receivers are those over what each of the members gave last."""
        rule = self.session.params.normalize
        given = [self.hosts[n]._table for n in members]
        due = dues(self.session.params, [(spelled(t.as_dict(), rule), by_name(t, rule)) for t in given if t])
        for n in receivers:
            found, table = self.hosts[n].means(), self.hosts[n]._table
            assert found is not None, n
            assert table is not None
            own = spelled(table.as_dict(), rule)
            for name, row in spelled(found.as_dict(), rule).items():
                assert due[name].meets(row, own[name]), (n, name)
            assert {text_of(name, rule) for name in found.without_mean} == {x for x in own if due[x].low is None}
            assert {text_of(name, rule) for name in found.below_minimum} == {x for x in own if due[x].below}


def spelled(rows: Mapping[Name, Any], rule: Any) -> dict[Any, Any]:
    """By what names are compared by."""
    return {text_of(name, rule): row for name, row in rows.items()}


def by_name(table: Table, rule: Any) -> dict[Any, int] | None:
    """The weights of a table."""
    weights = table.weights
    return None if weights is None else spelled(dict(zip(table.names, weights.tolist(), strict=True)), rule)


def obeying(world: World, n: int, change: Callable[[Order, Reply], Reply]) -> None:
    """Client n's replies are changed on their way."""
    obey = world.hosts[n].obey
    world.hosts[n].obey = lambda order: change(order, obey(order))  # type: ignore[method-assign]
