"""A whole federation in one process: the state machines of all parties. They pass the bytes a network would carry."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any, TypeAlias

from secea.arithmetic.field import give_back_freed_memory
from secea.engines import spool
from secea.engines.driver import Driver
from secea.engines.exchange import Exchange
from secea.engines.traffic import Account, Cost, Hop, MeteredSession
from secea.errors import (
    SERVER,
    CallError,
    FederationError,
    ParamsError,
    ProtocolError,
    TableError,
    TableTypeError,
    party,
)
from secea.forms import DEFAULT, form_of
from secea.names import Spelling
from secea.params import Params
from secea.party.client import Client
from secea.party.form import ClientPart, Form
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Name, Table, TableLike, as_table, canonical_names, like
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer, kind_of
from secea.wire.randomness import Entropy

Progress = Callable[[int, int], None]
"""`progress(done, total)` is called during the long part of a set-up."""

Losses: TypeAlias = Iterable[int] | Mapping[int, str]
"""Clients that vanish in the middle of a round. As a mapping: each with the phase in which it vanishes."""


@dataclass(frozen=True)
class _Before:
    """The session that a new one follows."""

    session: Session
    parts: Mapping[int, ClientPart]
    """The parts of its members that can still help."""
    identities: Mapping[int, Identity]
    stay: tuple[int | None, ...]
    """The old number of each client; None for a newcomer."""

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The old numbers of all who stay, then of all who leave."""
        return (*self.stay, *(n for n in range(self.session.params.clients) if n not in self.stay))


class Federation:
    """All parties of a federation, driven in this process: for tests, simulations, and a single machine.

    `form` is as for `aggregate`. It can also be a form with options: `Keyed(max_updates=100)`.

    >>> fed = Federation(Params(clients=3, dim=2))
    >>> fed.setup([["a", "b"], ["a"], ["b", "c"]])
    >>> means = fed.round([{"a": [1.0, 2.0], "b": [0.0, 0.0]}, {"a": [3.0, 4.0]}, {"b": [1.0, 1.0], "c": [5.0, 5.0]}])
    >>> [sorted(m) for m in means]
    [['a', 'b'], ['a'], ['b', 'c']]
    """

    def __init__(
        self,
        params: Params,
        form: str | Form = DEFAULT,
        queries: str | None = None,
        *,
        entropy: Entropy = os.urandom,
    ) -> None:
        """`queries` is an option of the form "paillier"."""
        if not isinstance(params, Params):
            raise ParamsError(f"a Federation takes secea.Params(clients=..., dim=...), got {type(params).__name__}")
        self.form = form_of(form, queries=queries)
        self.params = self.form.checked(params)
        self._asked = params  # as the user gave them: bounds and collusion may be open
        self._entropy = entropy
        self._identities = {n: Identity.generate(entropy) for n in (*range(params.clients), SERVER)}
        self._account = Account(params.clients)
        self._exchange: Exchange | None = None
        self._drives: _Driver | None = None
        self._busy = Lock()
        self._number = 0
        self.progress: Progress | None = None
        for caution in self.form.cautions(params):
            warnings.warn(caution, stacklevel=2)

    @property
    def traffic(self) -> list[Hop]:
        """One record for each message and hop."""
        return self._account.traffic

    @property
    def timing(self) -> dict[int | str, dict[str, Cost]]:
        """Time, bytes and storage by party and phase: see `Cost` and `PHASES`."""
        return self._account.timing

    @property
    def sealed(self) -> list[tuple[int, float]]:
        """Who sealed, signed, opened or verified a chunk, and the CPU seconds that it took."""
        return self._account.sealed

    @property
    def faults(self) -> list[ProtocolError]:
        """What parties refused."""
        return self._account.faults

    # ------------------------------------------------------------------------------------------------- the user's

    def setup(self, names: Sequence[Iterable[object] | None], *, vanish: Losses = ()) -> None:
        """Make the key of the names, the keys of all entities, and the first union. Call it once, before all rounds.

        Every client is needed here. One without names (None) helps to make the key, and can bring names with `update`.
        """
        listed = each_client(names, self.params.clients, "collections of names")
        with self._alone():
            own = {n: canonical_names(() if each is None else each) for n, each in enumerate(listed)}
            self._set_up(own, self._lost(vanish))

    def _set_up(
        self, names: Mapping[int, tuple[Name, ...]], losses: dict[int, str], before: _Before | None = None
    ) -> None:
        rule = self._asked.normalize
        union = {key for n, own in names.items() for key in Spelling(rule, party(n)).keys(own)}
        params = self._asked.with_bounds(max_entities=max(map(len, names.values()), default=0), max_union=len(union))
        following = before and self.form.following(params, before.session, before.parts, before.stay)
        old = before.numbers if before and following else ()
        identities = {n: self._identities[n] for n in range(params.clients)}
        identities |= {i: before.identities[n] for i, n in enumerate(old) if before and n is not None}
        keys = tuple(identities[n].public for n in range(len(identities)))
        roster = Roster(keys, self._identities[SERVER].public)
        session = MeteredSession(params, roster, following or self.form, self._account.sealed)
        self._account.begin(len(identities))
        self._account.phase, self._account.round = "setup", 0
        clients = {}
        for n, each in identities.items():
            with self._account.timed("keys", n):
                clients[n] = Client(session, n, each, names.get(n, ()), self._entropy)
            clients[n].part.copied = spool.copied
        server = Server(session, self._identities[SERVER], self._entropy)
        spool.use_files(server)
        exchange = Exchange(server, clients, tap=self._tap, clock=self._clock)
        exchange.losses = losses
        asked = sum(len(own) for n, own in names.items() if not old or old[n] is None)
        try:
            for i, former in enumerate(old):
                if before and former is not None:
                    clients[i].part.inherit(before.session, before.parts[former])
            with self._watched(exchange, asked):
                exchange.greet()
                self._run(exchange, self.form.setup_phase, clients)
        except BaseException:
            for client in clients.values():
                client.part.renounce()
            raise
        for n in range(params.clients, len(clients)):  # they have left
            exchange.here.discard(n)
            del clients[n], self._account.timing[n]
        if self._exchange is not None:
            self._exchange.close()
        self.params, self._exchange = session.params, exchange
        give_back_freed_memory()

    def _run(self, exchange: Exchange, phase: str, members: Iterable[int]) -> None:
        """Run an announced phase and those that follow it, until there is a union."""
        exchange.run(phase, members)
        exchange.check_finished()

    @contextmanager
    def _watched(self, exchange: Exchange, names: int) -> Iterator[None]:
        """Report the progress of the PRF of this number of names."""
        if self.progress is not None:
            progress, done = self.progress, 0
            session = exchange.server.session
            total = session.form.ticks(session.params, names)

            def tick(points: int) -> None:
                nonlocal done
                done = min(total, done + points)
                progress(done, total)

            for client in exchange.clients.values():
                client.part.tick = tick
        yield

    def update(self, client: int, names: Iterable[object], *, absent: Iterable[int] = (), vanish: Losses = ()) -> None:
        """Change a client's entities between rounds. It takes an epoch of new names, and nobody sees whose they are."""
        exchange = self._running_exchange
        self._check_client(client)
        with self._alone():
            part, before = self.clients[client].part, self.clients[client].part.next_names
            part.update(names)
            exchange.here, exchange.losses = set(self.clients) - set(absent), self._lost(vanish)
            driver = self._driver_of(exchange)
            try:
                driver.expect(exchange.here)
                driver.renew()
                exchange.check_finished()
            except BaseException:
                exchange.server.give_up()
                part.update(before)
                raise

    def join(self, names: Iterable[object]) -> int:
        """Add a client for good: begin a new session with the same identities and the newcomer's. Returns its number.

        The key of the names is kept if no more clients may conspire than before. Otherwise all are asked for again.
        """
        number, new = self.params.clients, canonical_names(names)
        with self._alone():
            self._regroup([*range(number), None], {**self._names(), number: new})
        return number

    def leave(self, client: int, *, gone: bool = False) -> None:
        """Remove a client for good: begin a new session without it. Higher client numbers move down by one.

        The key of the names is kept if fewer clients may conspire than before, and the leaving client helps to hand it
        over. If that client is `gone`, there is a new key, and all names are asked for again.
        """
        self._check_client(client)
        stay = [n for n in range(self.params.clients) if n != client]
        names = self._names()
        with self._alone():
            self._regroup(stay, {i: names[n] for i, n in enumerate(stay)}, gone={client} if gone else set())

    def _names(self) -> dict[int, tuple[Name, ...]]:
        return {n: client.part.next_names for n, client in self.clients.items()}

    def _regroup(
        self, stay: Sequence[int | None], names: dict[int, tuple[Name, ...]], gone: AbstractSet[int] = frozenset()
    ) -> None:
        parts = {n: client.part for n, client in self.clients.items() if n not in gone}
        ended = _Before(self.session, parts, self._identities, tuple(stay))
        before = self._asked, self.params, self._identities, self._account.timing
        fresh = {i: Identity.generate(self._entropy) if n is None else self._identities[n] for i, n in enumerate(stay)}
        self._identities = fresh | {SERVER: self._identities[SERVER]}
        try:
            self._asked = replace(self._asked, clients=len(stay))
            self.params = self.form.checked(self._asked)
            self._set_up(names, {}, ended)
        except BaseException:
            self._asked, self.params, self._identities, self._account.timing = before
            raise

    def prepare(self) -> None:
        """Compute ahead what does not depend on the tables: mask keys, encryption randomness. Optional."""
        exchange = self._running_exchange
        with self._alone():
            server, at = exchange.server, exchange.server.at
            self._account.phase, self._account.round = "offline", 0
            exchange.each(at.members, lambda n: self.clients[n].part.prepare())
            with exchange.clock(SERVER, "prepare"):
                server.part.prepare(at)
            if not server.part.prepared(at) and at.members == at.participants:  # otherwise the next union brings them
                self._run(exchange, self.form.prepare_phase, at.members)

    def round(
        self, tables: Sequence[TableLike | None], *, weights: Sequence[Any] | None = None, vanish: Losses = ()
    ) -> list[Any]:
        """One round: the mean of each client's own entities over all their owners, in the form of its table.

        `weights`: for each client a whole number for each row, in order or by name; or a `Table` brings its own. They
        need `Params(max_weight=...)`; with `partial=True` they are 1, or 0 for rows that are left out.

        A client whose table is None is absent from the start. Up to `dropouts` clients may vanish in the middle. If
        more do, the round is lost (`RoundLost`), and the next one works. Entities without a mean keep their own row;
        `without_mean` lists them, and `below_minimum` those that have too few owners.
        """
        exchange = self._running_exchange
        sources = each_client(tables, self.params.clients, "tables")
        weighing = [None] * len(sources) if weights is None else each_client(weights, len(sources), "weights")
        pairs = enumerate(zip(sources, weighing, strict=True))
        given = {n: client_table(n, t, self.params.dim, w) for n, (t, w) in pairs if t is not None}
        losses = self._lost(vanish)
        if not losses.keys() <= set(given):
            raise CallError(f"vanish names {sorted(losses.keys() - set(given))}, who do not take part in this round")
        for n, table in given.items():
            self.clients[n].part.checked(table)
        with self._alone():
            self._number += 1
            exchange.here, exchange.losses = set(given), losses
            try:
                self._finish_round(exchange, given)
            except FederationError:
                exchange.server.give_up()
                raise
            except ProtocolError as error:
                self.faults.append(error)
                exchange.server.give_up()
                raise
            finally:
                self.faults.extend(fault for n in given for fault in self.clients[n].part.faults)
        here = exchange.here
        return [
            like(sources[n], given[n], self.clients[n].part.give_means(given[n])) if n in here else None
            for n in range(len(sources))
        ]

    def _finish_round(self, exchange: Exchange, given: Mapping[int, Any]) -> None:
        """Run what a round needs, then the round. A client lost before the upload costs a new union, not the round."""
        exchange.contribute = lambda n: self.clients[n].contribute(given[n], self._number)
        driver = self._driver_of(exchange)
        driver.expect(exchange.here)
        if any(self.clients[n].part.renamed for n in exchange.here) and driver.can_rename():
            driver.renew()
        driver.round()
        exchange.check_finished()

    def _driver_of(self, exchange: Exchange) -> _Driver:
        """The driver of this server; another life of the server has another one."""
        if self._drives is None or self._drives.server is not exchange.server:
            self._drives = _Driver(exchange, self._account)
        self._drives.number = self._number
        return self._drives

    @property
    def without_mean(self) -> list[tuple[Name, ...]]:
        """For each client, the entities that got no mean in the last round. In a deployment only the client knows."""
        return [client.part.without_mean for _, client in sorted(self.clients.items())]

    @property
    def below_minimum(self) -> list[tuple[Name, ...]]:
        """For each client, those of them that have fewer owners than `min_owners`. Only the client knows."""
        return [client.part.below_minimum for _, client in sorted(self.clients.items())]

    # ------------------------------------------------------------------------------------------------------- parties

    @property
    def _running_exchange(self) -> Exchange:
        if self._exchange is None:
            raise CallError("call setup(names) first: there is no federation yet")
        return self._exchange

    @property
    def server(self) -> Any:
        """The server's state machine."""
        return self._running_exchange.server

    @property
    def clients(self) -> Any:
        """The clients' state machines."""
        return self._running_exchange.clients

    @property
    def session(self) -> Any:
        """What all parties know."""
        return self.server.session

    def restart(self, *numbers: int) -> None:
        """Save and restore parties (all of them if none is named), as if each had been stopped and started again.

        Mask secrets are kept only in memory, so the next round begins with a new union.
        """
        exchange = self._running_exchange
        for n in numbers or (*self.clients, SERVER):
            if n == SERVER:
                saved = exchange.server.save()
                exchange.server = Server.restore(self.session, self._identities[SERVER], saved, self._entropy)
                spool.use_files(exchange.server)
            else:
                self._check_client(n)
                saved = self.clients[n].save()
                self.clients[n] = Client.restore(self.session, self._identities[n], saved, self._entropy)
                self.clients[n].part.copied = spool.copied

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allow one call at a time."""
        if not self._busy.acquire(blocking=False):
            raise CallError("this federation is busy with another call")
        try:
            yield
        finally:
            self._busy.release()

    def _check_client(self, client: int) -> None:
        if client not in range(self.params.clients):
            raise CallError(f"there is no client {client!r}; the clients are 0..{self.params.clients - 1}")

    def _lost(self, vanish: Losses | int) -> dict[int, str]:
        default, phases = self.form.round_phase, [row.phase for row in self.form.table(self.params)]
        if isinstance(vanish, int):
            return {vanish: default}
        losses = dict(vanish) if isinstance(vanish, Mapping) else dict.fromkeys(vanish, default)
        for n, phase in losses.items():
            if phase not in phases:
                raise CallError(f"client {n} cannot vanish in {phase!r}; the phases are {', '.join(phases)}")
        return losses

    def _tap(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        kind = kind_of(message, self.form.kinds).name.lower()
        self._account.passed(_name(sender), _name(receiver), kind, len(message))
        return (message,)

    def _clock(self, party: int, phase: str) -> Any:
        return self._account.timed(phase, _name(party))


class _Driver(Driver):
    """A driver in the same process as its clients. Messages are delivered at once, and a wrong one raises an error."""

    def __init__(self, exchange: Exchange, account: Account) -> None:
        super().__init__(exchange.server, exchange)
        self._local, self._account, self.number = exchange, account, 0

    def _begin(self, phase: str, members: Iterable[int], *, names: int = 0) -> None:
        form = self.server.session.form
        online = phase in (form.ready_phase, form.round_phase)
        self._account.phase, self._account.round = ("online", self.number) if online else ("setup", 0)
        super()._begin(phase, members, names=names)

    def _close(self, members: set[int]) -> bool:
        with self._local.clock(SERVER, self.server.at.phase):
            well = super()._close(members)
        self._local.deliver()
        return well

    def _refused(self, n: int, error: ProtocolError) -> None:
        raise error


def _name(party: int) -> int | str:
    return "server" if party == SERVER else party


def each_client(items: object, count: int, what: str) -> list[Any]:
    """Check that there is one item per client."""
    if isinstance(items, Mapping | str | bytes) or not isinstance(items, Iterable):
        raise TableTypeError(f"expected a list of {count} {what}, one per client, got {type(items).__name__}")
    listed = list(items)
    if len(listed) != count:
        raise TableError(f"{len(listed)} {what} were given, the federation has {count} clients")
    return listed


def client_table(n: int, source: TableLike, dim: int | None = None, weights: Any = None) -> Table:
    """A client's table, with weights for its rows. An error says which client's it is."""
    try:
        table = as_table(source, dim)
        return table if weights is None else table.weighing(weights)
    except TableError as error:
        raise type(error)(f"client {n}: {error}") from None


def aggregate(
    tables: Iterable[TableLike],
    *,
    weights: Sequence[Any] | None = None,
    form: str | Form = DEFAULT,
    queries: str | None = None,
    **params: Any,
) -> list[Any]:
    """The mean embedding of each client's own entities over all their owners: one table per client in, one out.

    Keywords are those of `Params`. Clients, dim and the bounds come from the tables. It is for a single aggregation. In
    a training loop use a `Federation`: its set-up is done once, and its fill of low bits stays the same in all rounds.

    `weights`: for each client a whole number for each row, in order or by name. Means are weighted then, and
    `max_weight`, unless it is given, is the largest of them.

    `form` is "keyed" or "paillier". "keyed" protects a client even if the server and all others conspire, and works for
    two clients or more. "paillier" is the paper's form; its option `queries` is "buckets", or "full" as in the paper.
    """
    known = {each.name for each in fields(Params)}
    if unknown := sorted(params.keys() - known):
        raise ParamsError(
            f"aggregate takes no {unknown[0]!r}; it takes weights, form, queries, {', '.join(sorted(known))}"
        )
    if isinstance(tables, Mapping | str | bytes | Table) or not isinstance(tables, Iterable):
        raise TableTypeError(f"expected a list of tables, one per client, got {type(tables).__name__}")
    sources = list(tables)
    filled = [(n, table) for n, source in enumerate(sources) if len(table := client_table(n, source))]
    dim = filled[0][1].dim if filled else 1
    for n, table in filled:
        if table.dim != dim:
            raise TableError(f"client {filled[0][0]} has embeddings of length {dim}, client {n} of length {table.dim}")
    derived: dict[str, Any] = {"clients": len(sources), "dim": dim}
    if weights is not None and not params.get("partial"):
        listed = each_client(weights, len(sources), "weights")
        weighed = [client_table(n, each, None, w) for n, (each, w) in enumerate(zip(sources, listed, strict=True))]
        derived["max_weight"] = max([1, *(int(t.weights.max()) for t in weighed if t.weights is not None and len(t))])
    fed = Federation(Params(**(derived | params)), form, queries)
    fed.setup([source.keys() for source in sources])
    return fed.round(sources, weights=weights)
