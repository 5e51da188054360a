"""A whole federation in one process: every party's state machine, and bytes passed between them as a network would."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from threading import Lock
from typing import Any, TypeAlias

from secea.client import Client
from secea.engines.local_port import Account, Cost, Hop, LocalDriver, LocalPort
from secea.errors import SERVER, CallError, ParamsError, ProtocolError, TableError, TableTypeError
from secea.forms import DEFAULT, is_new
from secea.params import Params
from secea.party.form import Form
from secea.retrieval import check_paper
from secea.server import Phase, Server
from secea.session import Session, check_choice
from secea.table import Name, Table, TableLike, as_table, canonical_names, like
from secea.wire.keys import Identity, Roster
from secea.wire.randomness import Entropy

Losses: TypeAlias = Iterable[int] | Mapping[int, str]
"""Clients that vanish once their shares are sent; or each with the stage in the middle of which it is lost."""


class Federation:
    """All parties of a federation, driven in this process: for tests, simulations, and a single machine.

    `form` is as for `aggregate`; one with options of its own can be given too: `Keyed(max_updates=100)`.

    >>> fed = Federation(Params(clients=3, dim=2))
    >>> fed.setup([["a", "b"], ["a"], ["b", "c"]])
    >>> means = fed.round([{"a": [1.0, 2.0], "b": [0.0, 0.0]}, {"a": [3.0, 4.0]}, {"b": [1.0, 1.0], "c": [5.0, 5.0]}])
    >>> [sorted(m) for m in means]
    [['a', 'b'], ['a'], ['b', 'c']]
    """

    def __new__(cls, params: Params, form: str | Form = DEFAULT, *args: Any, **more: Any) -> Federation:
        """A form of the new core has a federation of its own; the two paper forms share this one."""
        if cls is Federation and is_new(form):
            from secea.engines.federation import FormFederation

            return object.__new__(FormFederation)
        return object.__new__(cls)

    def __init__(
        self,
        params: Params,
        form: str | Form = DEFAULT,
        queries: str = "buckets",
        *,
        entropy: Entropy = os.urandom,
    ) -> None:
        if not isinstance(params, Params):
            raise ParamsError(f"a Federation takes secea.Params(clients=..., dim=...), got {type(params).__name__}")
        name = check_choice(form, queries)
        params = check_paper(params)
        self.params = self._params = params
        self._form, self.queries, self._entropy = name, queries, entropy
        self._identities = {n: Identity.generate(entropy) for n in (*range(params.clients), SERVER)}
        self._paillier: dict[int, bytes] = {}
        self._account = Account(params.clients)
        self._running: LocalDriver | None = None
        self._busy = Lock()

    @property
    def without_mean(self) -> list[tuple[Name, ...]]:
        """For each client the entities that got no mean in the last round: none, in these forms."""
        return [() for _ in range(self.params.clients)]

    @property
    def traffic(self) -> list[Hop]:
        """One record for each message and hop."""
        return self._account.traffic

    @property
    def timing(self) -> dict[int | str, dict[str, Cost]]:
        """Time, bytes and storage by party and phase: see `Cost` and `PHASES`."""
        return self._account.timing

    @property
    def faults(self) -> list[ProtocolError]:
        """What parties refused."""
        return self._account.faults

    # ------------------------------------------------------------------------------------------------- the user's

    def setup(self, names: Sequence[Iterable[object] | None], *, vanish: Losses = ()) -> None:
        """Keys, union, queries and weights: once, before the first round. One collection of entity names per client.

        A client without names (None) is absent, and can come in by `update`. Bounds that `Params` leaves open are
        taken from the names; they are public. `vanish` is as in `round`.
        """
        listed = each_client(names, self.params.clients, "collections of names")
        with self._alone():
            self._set_up({n: canonical_names(own) for n, own in enumerate(listed) if own is not None}, _losses(vanish))

    def _set_up(self, names: dict[int, tuple[Name, ...]], losses: dict[int, str]) -> None:
        """A new session over the identities; where it fails, what was set up before still works."""
        union = {name for own in names.values() for name in own}
        params = self._params.with_bounds(max_entities=max(map(len, names.values()), default=0), max_union=len(union))
        keys = {n: identity.public for n, identity in self._identities.items()}
        roster = Roster(tuple(keys[n] for n in range(params.clients)), keys[SERVER])
        session = Session(params, roster, self._form, self.queries)
        self._account.phase, self._account.whole_process = "setup", session.form.paillier_bytes > 0
        clients = {n: self._new_client(session, n, own) for n, own in names.items()}
        server = Server(session, self._identities[SERVER], self._entropy, early=True)
        driver = LocalDriver(server, LocalPort(server, clients, self._account), self._account)
        driver.port.losses = losses
        driver.setup()
        self.params, self._running = params, driver
        self._account.stored("setup", server, clients)

    def _new_client(self, session: Session, n: int, names: tuple[Name, ...]) -> Client:
        """Client n of the session. Its Paillier key is made once."""
        with self._account.timed("keys", n):
            key = self._paillier.get(n, b"")
            client = Client(session, n, self._identities[n], names, self._entropy, paillier=key)
            self._paillier[n] = client.paillier
        return client

    def update(self, client: int, names: Iterable[object], *, absent: Iterable[int] = (), vanish: Losses = ()) -> None:
        """A client's entities change between rounds: a new epoch, with fresh randomness and re-keyed tags.

        Those who are `absent` have no part in it, and come back with the next round that has a table of theirs.
        """
        if client not in range(self.params.clients):
            raise CallError(f"there is no client {client!r}; the clients are 0..{self.params.clients - 1}")
        clients, driver = self.clients, self._driver
        new = canonical_names(names)
        with self._alone():
            self._account.phase = "setup"
            before = clients[client].next_names if client in clients else None
            if before is None:
                clients[client] = self._new_client(self.session, client, new)
            else:
                clients[client].update(new)
            try:
                driver.port.here, driver.port.losses = set(clients) - set(absent), _losses(vanish)
                driver.expect(driver.port.here)
                driver.renew()
            except BaseException:  # with what it had, the federation goes on in the next epoch
                self._abandon()
                if before is None:
                    del clients[client]
                else:
                    clients[client].update(before)
                raise
            self._account.stored("setup", self.server, clients)

    def join(self, names: Iterable[object]) -> int:
        """A client joins for good: a new session over the same identities, and its own. Returns its number."""
        number, new = self.params.clients, canonical_names(names)
        with self._alone():
            self._regroup([*range(number), None], {**self._names(), number: new})
        return number

    def leave(self, client: int) -> None:
        """A client leaves for good: a new session without it. Those with higher numbers move down by one."""
        if client not in range(self.params.clients):
            raise CallError(f"there is no client {client!r}; the clients are 0..{self.params.clients - 1}")
        stay = [n for n in range(self.params.clients) if n != client]
        names = self._names()
        with self._alone():
            self._regroup(stay, {i: names[n] for i, n in enumerate(stay) if n in names})

    def _names(self) -> dict[int, tuple[Name, ...]]:
        return {n: client.next_names for n, client in self.clients.items()}

    def _regroup(self, stay: Sequence[int | None], names: dict[int, tuple[Name, ...]]) -> None:
        """A session of these clients in this order (None: a new one). Identities and Paillier keys are kept."""
        before = self._params, self._identities, self._paillier, self._account.timing
        self._params = check_paper(replace(self._params, clients=len(stay)))
        fresh = {i: Identity.generate(self._entropy) if n is None else self._identities[n] for i, n in enumerate(stay)}
        self._identities = fresh | {SERVER: self._identities[SERVER]}
        self._paillier = {i: self._paillier[n] for i, n in enumerate(stay) if n in self._paillier}
        self._account.begin(len(stay))
        try:
            self._set_up(names, {})
        except BaseException:
            self._params, self._identities, self._paillier, self._account.timing = before
            raise

    def prepare(self) -> None:
        """Offline, before a round: encrypted noise and encryption randomness. Optional, and counted apart."""
        with self._alone():
            self._account.phase = "offline"
            for n, client in self.clients.items():
                with self._account.timed("prepare", n):
                    client.prepare()
            with self._account.timed("prepare", "server"):
                self.server.prepare()
            self._account.stored("offline", self.server, self.clients)

    def round(self, tables: Sequence[TableLike | None], *, vanish: Losses = ()) -> list[Any]:
        """One round: the mean of each client's own entities over all their owners, in the form of its table.

        A client whose table is None is absent from the start. One in `vanish` sends its shares and is not seen again in
        this round; or it is lost in the stage that is named: `vanish={4: "share"}`. The result of both is None.
        """
        clients, driver = self.clients, self._driver
        sources = each_client(tables, self.params.clients, "tables")
        given = {n: client_table(n, t, self.params.dim) for n, t in enumerate(sources) if t is not None}
        losses = _losses(vanish)
        if not losses.keys() <= set(given):
            raise CallError(f"vanish names {sorted(losses.keys() - set(given))}, who do not take part in this round")
        for n, table in given.items():
            if n not in clients:
                raise CallError(f"client {n} was absent from the set-up; call update({n}, names) first")
            clients[n].checked(table)
        with self._alone():
            for client in clients.values():
                client.faults = []  # those of earlier rounds were reported
            port = driver.port
            port.here, port.losses, port.tables = set(given), losses, given
            try:
                driver.expect(given)
                driver.round()
                self._check_finished(port.here)
            except BaseException:  # nothing of this round is kept; the next one begins afresh
                self._abandon()
                raise
            finally:
                self.faults.extend([fault for n in given for fault in clients[n].faults] + self.server.faults)
                self.server.faults = []
            self._account.stored("online", self.server, clients)
        return [self._result(n, sources[n], given[n]) if n in port.here else None for n in range(len(sources))]

    def _check_finished(self, present: Iterable[int]) -> None:
        """Nobody waits for something that never came."""
        for n in sorted(present):
            if overdue := self.clients[n].overdue():
                self.faults.append(overdue)
                raise overdue

    def _abandon(self) -> None:
        """What goes on will not be finished."""
        self._driver.give_up()
        for client in self.clients.values():
            client.abandon()

    @property
    def _driver(self) -> LocalDriver:
        if self._running is None:
            raise CallError("call setup(names) first: there is no federation yet")
        return self._running

    @property
    def server(self) -> Server:
        """The server's state machine."""
        return self._driver.server

    @property
    def clients(self) -> dict[int, Client]:
        """The clients' state machines."""
        return self._driver.port.clients

    @property
    def session(self) -> Session:
        """What all parties know."""
        return self.server.session

    def restart(self, *numbers: int) -> None:
        """Save and restore parties (all of them if none is named), as if each had been stopped and started again."""
        self._driver.restart(*numbers)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time."""
        if not self._busy.acquire(blocking=False):
            raise CallError("this federation is busy with another call")
        try:
            yield
        finally:
            self._busy.release()

    def _result(self, n: int, source: TableLike | None, table: Table) -> Any:
        assert source is not None
        return like(source, table, self.clients[n].means_like(table))


def each_client(items: object, count: int, what: str) -> list[Any]:
    """One item per client."""
    if isinstance(items, Mapping | str | bytes) or not isinstance(items, Iterable):
        raise TableTypeError(f"expected a list of {count} {what}, one per client, got {type(items).__name__}")
    listed = list(items)
    if len(listed) != count:
        raise TableError(f"{len(listed)} {what} were given, the federation has {count} clients")
    return listed


def _losses(vanish: Losses | int) -> dict[int, str]:
    """The stage in which each client is lost."""
    if isinstance(vanish, int):
        return {vanish: str(Phase.ANSWER)}
    losses = dict(vanish) if isinstance(vanish, Mapping) else dict.fromkeys(vanish, str(Phase.ANSWER))
    stages = [str(phase) for phase in Phase if phase is not Phase.READY]
    for n, stage in losses.items():
        if stage not in stages:
            raise CallError(f"client {n} cannot vanish in {stage!r}; the stages are {', '.join(stages)}")
    return losses


def client_table(n: int, source: TableLike, dim: int | None = None) -> Table:
    """A client's table; an error says whose it is."""
    try:
        return as_table(source, dim)
    except TableError as error:
        raise type(error)(f"client {n}: {error}") from None


def aggregate(
    tables: Iterable[TableLike], *, form: str | Form = DEFAULT, queries: str = "buckets", **params: Any
) -> list[Any]:
    """The mean embedding of each client's own entities over all their owners: one table per client in, one out.

    Keywords are those of `Params`; clients, dim and the bounds come from the tables. For one aggregation: in a training
    loop use a `Federation`, whose set-up is done once, and whose fill of low bits stays the same from round to round.
    `form` is "keyed", which protects a client even if the server and all others conspire, and works for two clients or
    more; "paillier", the paper's; or "reciprocal", which goes in the next version.
    """
    known = {each.name for each in fields(Params)}
    if unknown := sorted(params.keys() - known):
        raise ParamsError(f"aggregate takes no {unknown[0]!r}; it takes form, queries, {', '.join(sorted(known))}")
    if isinstance(tables, Mapping | str | bytes | Table) or not isinstance(tables, Iterable):
        raise TableTypeError(f"expected a list of tables, one per client, got {type(tables).__name__}")
    sources = list(tables)
    filled = [(n, table) for n, source in enumerate(sources) if len(table := client_table(n, source))]
    dim = filled[0][1].dim if filled else 1
    for n, table in filled:
        if table.dim != dim:
            raise TableError(f"client {filled[0][0]} has embeddings of length {dim}, client {n} of length {table.dim}")
    fed = Federation(Params(**({"clients": len(sources), "dim": dim} | params)), form, queries)
    fed.setup([source.keys() for source in sources])
    return fed.round(sources)
