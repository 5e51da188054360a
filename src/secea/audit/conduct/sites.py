"""Lives of hosts and their driver: disks, users, orders and replies may do anything, at random.

Each life is a federation as it is deployed, without a network: a driver, its port, and a host at each site, with its
state on disk and its log. Noted are every order and reply, what lies on the disks, what logs say, and what users get.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, SMALL_KEYS, Subject
from secea.audit.claims.counts import form_of
from secea.audit.conduct import Dice, Life
from secea.audit.conduct.parties import PAPER, SHAPES, Shape, names_of, tables_like
from secea.audit.standing import standing_in
from secea.engines.driver import Driver
from secea.engines.host import Host, Means, Participant
from secea.engines.log import Log
from secea.engines.memory import resident
from secea.engines.port import Failure, Order, Reply, Task, Terms, asked, orders
from secea.engines.store import Store
from secea.errors import SERVER, FederationError, ProtocolError, SecEAError, SnapshotError, TableError
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.client import Client
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Table
from secea.testing import insecure_seeded
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer
from secea.wire.randomness import Entropy

ROUNDS: Final = 5
UNSTEADY: Final = frozenset({"time", "seconds", *resident()})
"""What in a log is another thing each time."""
PEOPLE: Final = ("north", "south", "west", "east", "up", "down")


class Sites(Life):
    """The life of one deployed federation."""

    def __init__(self, subject: Subject, seed: int, folder: Path) -> None:
        super().__init__()
        form, self.folder = subject.form, folder
        shapes = SHAPES if form.name == KEYED else PAPER
        self.shape: Shape = shapes[(5 * seed + 2) % len(shapes)]
        self.dice = dice = Dice("sites", form.name, seed)
        self.draws = {n: insecure_seeded(seed)(n) for n in (*range(self.shape.clients), SERVER)}
        self.identities = {n: Identity.generate(draw) for n, draw in self.draws.items()}
        if form.name == KEYED:
            form = replace(form_of(subject), batch=1 + dice.below(3), max_new_entities=1 + dice.below(3))
        small = SMALL_KEYS if isinstance(form, Paillier) else {}
        clients = self.shape.clients
        params = Params(
            clients, dim=2, collusion=self.shape.collusion, dropouts=self.shape.dropouts, max_entities=9,
            max_union=15, **{"rounds": dice.one((3, 99)), **small, **self.shape.more},
        )  # fmt: skip
        keys = tuple(self.identities[n].public for n in range(clients))
        roster = Roster(keys, self.identities[SERVER].public, PEOPLE[:clients])
        self.session: Session = subject.session(params, roster, form)
        self.names = {n: names_of(dice, n, clients) for n in range(clients)}
        self.moods: dict[int, str] = {}
        self.fresh = 0
        self._type = _drawing(subject.client, self.draws)
        self.faults: list[str] = []
        """What goes wrong in the next exchanges, one at a time."""
        self.old: dict[int, list[Order]] = {}
        self.hosts: dict[int, Host] = {}
        self.driver = self._driver()

    # ------------------------------------------------------------------------------------------------- who is there

    def _log(self, name: str) -> Log:
        return Log(self.folder / f"{name}.jsonl", self.session.form.kinds, PEOPLE[: self.shape.clients])

    def _store(self, n: int) -> Store:
        return Store(self.folder / f"state-{n}", self.identities[n], self.session.hash, self.draws[n])

    def born(self, n: int) -> None:
        """A new life of a host, from its disk."""

        def train(means: Means | None, number: int) -> Table:
            return self._train(n, means, number)

        def done(means: Means | None) -> None:
            self.note(f"client {n} is done", *_read(means))

        participant = Participant(lambda: self.names[n], train, done)
        with standing_in({Client: self._type}, but="secea.audit"):
            self.hosts.pop(n, None)
            self.hosts[n] = Host(
                self.session, n, self.identities[n], participant, self._store(n), self._log(f"client-{n}")
            )

    def _driver(self, saved: bytes | None = None) -> Driver:
        store = self._store(SERVER)

        def save(data: bytes) -> None:
            if self.moods.get(SERVER) == "full":
                raise SnapshotError("the disk is full")
            store.save("server", data)

        kept = store.load("server") if saved is None else saved
        make = self.session, self.identities[SERVER]
        server = Server.restore(*make, kept, self.draws[SERVER]) if kept else Server(*make, self.draws[SERVER])
        return Driver(server, self, save=save, log=self._log("server"))

    def _train(self, n: int, means: Means | None, number: int) -> Table:
        """What a user's function does, in its present mood."""
        self.note(f"client {n} trains for round {number}", *_read(means))
        mood, names = self.moods.pop(n, ""), list(self.hosts[n].client.part.next_names)
        weights = int(self.shape.more.get("max_weight") or self.shape.more.get("partial") or 0)
        if mood == "raises":
            raise RuntimeError(f"{names}")
        if mood == "raises an error of ours":
            raise TableError("the table is in /home/somebody/table.csv")
        table = tables_like(self.dice, names, 2, weights)
        if mood == "other names":
            return Table((*table.names[:-1], "nobody's"), table.matrix, table.weights)
        if mood == "out of range":
            return Table(table.names, np.full_like(table.matrix, np.nan), table.weights)
        return table

    # ------------------------------------------------------------------------------------------------------ the port

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`. One thing goes wrong at a time."""
        fault = self.faults.pop() if self.faults else ""
        hit = self.dice.one(sorted(tasks)) if fault and tasks else -1
        for n, order in orders(tasks, round, inboxes(), terms.said).items():
            self.old.setdefault(n, []).append(order)
            if n == hit:
                self.note(f"for client {n}: {fault}")
                yield from self._disturbed(n, order, fault)
            else:
                for reply in asked(order, partial(self.obeys, n)):
                    yield n, reply

    def obeys(self, n: int, order: Order) -> Reply:
        """What a host makes of an order."""
        self.note(f"client {n} gets {order.task.name} with {len(order.messages)} messages", order.to_bytes())
        try:
            reply = self.hosts[n].obey(order)
        except RuntimeError as error:
            self.note(f"client {n} ends: {type(error).__name__}")
            return Reply([], "RuntimeError", standing=self.hosts[n].client.standing.to_bytes())
        self.note(f"client {n} replies with {len(reply.messages)} messages and '{reply.fault}'", reply.to_bytes())
        return reply

    def _disturbed(self, n: int, order: Order, fault: str) -> Iterator[tuple[int, Reply | Failure]]:
        dice = self.dice
        match fault:
            case "nothing comes of it":
                yield n, Failure("it is not there")
            case "it ends after it was obeyed":
                self.obeys(n, order)
                self.born(n)
                yield n, Failure("it was killed")
            case "it comes twice":
                self.obeys(n, order)
                yield n, self.obeys(n, order)
            case "an old one comes first":
                self.obeys(n, dice.one(self.old[n]))
                yield n, self.obeys(n, order)
            case "it has another task":
                yield n, self.obeys(n, replace(order, task=dice.one(tuple(Task)), round=order.round + dice.below(3)))
            case "a message of it is missing":
                yield n, self.obeys(n, replace(order, messages=order.messages[1:]))
            case "a message of it is damaged":
                yield n, self.obeys(n, replace(order, messages=[_damaged(dice, m) for m in order.messages]))
            case "the reply is damaged":
                reply = self.obeys(n, order)
                yield n, replace(reply, messages=[_damaged(dice, m) for m in reply.messages])
            case "the reply lies about where it stands":
                reply = self.obeys(n, order)
                standing = dice.one((bytes(len(reply.standing)), _damaged(dice, reply.standing), b""))
                yield n, replace(reply, standing=standing)
            case "the reply complains":
                yield n, replace(self.obeys(n, order), messages=[], fault="it refuses what came from client 0")
            case "the reply is never whole":
                yield n, replace(self.obeys(n, order), more=True)
            case _:
                assert fault == "its disk is full"
                with _full(self.hosts[n]):
                    yield n, self.obeys(n, order)

    # ------------------------------------------------------------------------------------------------------- the life

    def live(self) -> str:
        """All of it."""
        self.step("all begin")
        for n in range(self.shape.clients):
            with self.trying(f"client {n} begins"):
                self.born(n)
        self.go("the set-up", self.driver.setup)
        for _ in range(ROUNDS):
            self.dice.one(EVENTS)(self)
            if self.dice.chance(75):
                self.faults = [self.dice.one(FAULTS)] + [""] * self.dice.below(4)
            words = f", and {self.faults[0]}" if self.faults else ""
            self.go(f"a round{words}", self.driver.round)
            self.faults = []
            self.moods.pop(SERVER, None)
        self.go("the end", self.driver.finish)
        self.go("a farewell", self.driver.farewell)
        return self.over()

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Note whether it worked."""
        try:
            yield
        except (FederationError, ProtocolError, SecEAError) as error:
            self.note(f"{what}: {type(error).__name__}")
        else:
            self.note(f"{what}: done")

    def go(self, what: str, call: Callable[[], None]) -> None:
        """The driver does something; then all is looked at."""
        self.step(what)
        with self.trying(what):
            call()
        driver = self.driver
        self.note(f"{sorted(driver.present)} are there", driver.failures, driver.done, driver.server.at)
        for n, host in self.hosts.items():
            means = host.means()
            self.note(f"client {n} has {'means' if means else 'none'}", *_read(means))
        for path in sorted(each for each in self.folder.rglob("*") if each.is_file()):
            where = path.relative_to(self.folder).as_posix()
            data = _steady(path) if path.suffix == ".jsonl" else path.read_bytes()
            self.note(f"{where} has {len(data)} bytes", data, path.stat().st_mode & 0o777)

    def nothing(self) -> None:
        """Nothing happens."""

    def other_names(self) -> None:
        """Somebody's entities change."""
        n, dice = self.dice.one(list(self.hosts)), self.dice
        own = self.names[n]
        self.names[n] = dice.some(own, len(own) - dice.below(2))
        for _ in range(dice.below(3)):
            self.fresh += 1
            self.names[n] = [*self.names[n], f"new {self.fresh}"]
        self.step(f"client {n} has {len(self.names[n])} entities")

    def mood(self) -> None:
        """A user's function does something else the next time, or the disk of the server's side is full."""
        n = self.dice.one([*self.hosts, SERVER])
        if n == SERVER:
            self.moods[n] = "full"
            self.step("the disk of the server's side is full")
            return
        self.moods[n] = self.dice.one(("raises", "raises an error of ours", "other names", "out of range"))
        self.step(f"the function of client {n}: {self.moods[n]}")

    def restart(self) -> None:
        """A host begins a new life, with its state, an older one, a damaged one, or none."""
        n, dice = self.dice.one(list(self.hosts)), self.dice
        state, before = self.folder / f"state-{n}", self.folder.parent / f"{self.folder.name}-{n}"
        what = dice.one(("its state", "its state", "an older state", "a damaged state", "no state", "another's state"))
        self.step(f"client {n} begins a new life with {what}")
        if what == "an older state" and before.exists():
            shutil.rmtree(state)
            shutil.copytree(before, state)
        elif what == "no state":
            shutil.rmtree(state)
        elif what == "another's state":
            shutil.rmtree(state)
            shutil.copytree(self.folder / f"state-{(n + 1) % self.shape.clients}", state)
        for path in sorted(state.iterdir()) if what == "a damaged state" else ():
            path.write_bytes(_damaged(dice, path.read_bytes()))
        with self.trying("it begins"):
            self.born(n)
        if n not in self.hosts:
            shutil.rmtree(state)
            self.born(n)
        if not before.exists():
            shutil.copytree(state, before)

    def server_restarts(self) -> None:
        """The server's side begins anew, with its state or without."""
        lost = self.dice.chance(40)
        self.step(f"the server's side begins anew {'without' if lost else 'with'} its state")
        if lost:
            shutil.rmtree(self.folder / f"state-{SERVER}")
        self.driver = self._driver()
        self.go("the set-up", self.driver.setup)

    def fewer(self) -> None:
        """Only some are expected, until all are again."""
        everyone = list(self.hosts)
        some = self.dice.some(everyone, len(everyone) - self.dice.below(2))
        self.go(f"only {some} are expected", lambda: self.driver.expect(some))

    def renew(self) -> None:
        """An epoch of names that the operator asks for."""
        self.go("a renewal", self.driver.renew)


EVENTS: Final[Sequence[Callable[[Sites], None]]] = (
    Sites.nothing, Sites.other_names, Sites.other_names, Sites.mood, Sites.restart, Sites.restart,
    Sites.server_restarts, Sites.fewer, Sites.renew,
)  # fmt: skip
FAULTS: Final = (
    "nothing comes of it", "it ends after it was obeyed", "it comes twice", "an old one comes first",
    "it has another task", "a message of it is missing", "a message of it is damaged", "the reply is damaged",
    "the reply lies about where it stands", "the reply complains", "the reply is never whole", "its disk is full",
    "its disk is full",
)  # fmt: skip


def _drawing(of: type[Client], draws: Mapping[int, Entropy]) -> type[Client]:
    """Clients that draw from these, whatever else they are given."""

    class Drawing(of):  # type: ignore[valid-type,misc]
        def __init__(self, session: Session, number: int, identity: Identity, names: Any, *_: Any, **more: Any) -> None:
            super().__init__(session, number, identity, names, draws[number], **more)

    return Drawing


def _damaged(dice: Dice, message: Buffer) -> bytes:
    data, at = bytes(message), dice.below(max(1, len(message)))
    return data[:at] + bytes([data[at] ^ (1 << dice.below(8))]) + data[at + 1 :] if data else data


def _read(means: Means | None) -> tuple[object, ...]:
    """What a user has of a round."""
    if means is None:
        return ()
    return means.names, means.matrix.tobytes(), str(means.dtype), means.without_mean, means.below_minimum


def _steady(path: Path) -> bytes:
    """A log without times."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return json.dumps([{k: v for k, v in line.items() if k not in UNSTEADY} for line in lines]).encode()


@contextmanager
def _full(host: Host) -> Iterator[None]:
    """The disk of a host is full."""

    def save(*_: object) -> None:
        raise SnapshotError("state cannot be saved in /var/lib/secea/state: the disk is full; nothing was sent")

    store: Any = host._store
    store.save = save
    try:
        yield
    finally:
        del store.save
