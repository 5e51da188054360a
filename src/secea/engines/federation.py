"""A whole federation in one process: the state machines of all parties. They pass the bytes a network would carry."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeAlias, overload

from secea.arithmetic.field import give_back_freed_memory
from secea.arithmetic.fixedpoint import Floats
from secea.engines import spool
from secea.engines.driver import Driver
from secea.engines.exchange import Exchange
from secea.engines.members import SERVER_NAME, Members, Who
from secea.engines.traffic import Account, MeteredSession, Timing, Traffic
from secea.errors import SERVER, CallError, FederationError, ParamsError, ProtocolError, TableError, party
from secea.forms import DEFAULT, FormName, QueriesName, form_of
from secea.frames import Frame, check_order
from secea.names import Spelling
from secea.params import Params
from secea.party.client import Client
from secea.party.form import ClientPart, Form
from secea.party.phases import UNKNOWN
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Name, Table, TableLike, as_table, canonical_names, like
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer, kind_of
from secea.wire.randomness import Entropy

Progress = Callable[[int, int], None]
"""`progress(done, total)` is called during the long part of a set-up."""

Losses: TypeAlias = Who | Iterable[Who] | Mapping[Any, str]
"""Clients that vanish in the middle of a round. As a mapping: each with the phase in which it vanishes."""


Weights: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | None
"""The name of a column of all DataFrames; or for each client the weights of its rows, in a list or by its name."""


@dataclass(frozen=True)
class _Before:
    """The session that a new one follows."""

    session: Session
    members: Members
    parts: Mapping[int, ClientPart]
    """The parts of its members that can still help."""
    identities: Mapping[int, Identity]
    stay: tuple[int | None, ...]
    """The old number of each client; None for a newcomer."""

    @property
    def leaving(self) -> tuple[int, ...]:
        """The old numbers of those who leave."""
        return tuple(n for n in range(self.session.params.clients) if n not in self.stay)

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The old numbers of all who stay, then of all who leave."""
        return (*self.stay, *self.leaving)


class Federation:
    """All parties of a federation, driven in this process: for tests, simulations, and a single machine.

    Clients are numbered 0, 1, ... If the set-up gets a mapping, they have names too, as results and errors then say.
    `form` is as for `aggregate`. It can also be a form with options: `Keyed(max_updates=100)`.

    >>> fed = Federation(Params(clients=3, dim=2))
    >>> fed.setup([["a", "b"], ["a"], ["b", "c"]])
    >>> means = fed.round([{"a": [1.0, 2.0], "b": [0.0, 0.0]}, {"a": [3.0, 4.0]}, {"b": [1.0, 1.0], "c": [5.0, 5.0]}])
    >>> [sorted(m) for m in means]
    [['a', 'b'], ['a'], ['b', 'c']]
    >>> fed
    Federation(3 clients, round 1, union 3)
    """

    def __init__(
        self,
        params: Params,
        form: FormName | Form = DEFAULT,
        queries: QueriesName | None = None,
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
        self._members = Members(params.clients)
        self._account = Account(range(params.clients))
        self._exchange: Exchange | None = None
        self._drives: _Driver | None = None
        self._busy = Lock()
        self._number = 0
        self.progress: Progress | None = None
        for caution in self.form.cautions(params):
            warnings.warn(caution, stacklevel=2)

    @property
    def traffic(self) -> Traffic:
        """One record for each message and hop: a list of `Hop`, shown as a table by kind and round."""
        return self._account.traffic

    @property
    def timing(self) -> Timing:
        """Time and bytes by party and phase: a dict of `Cost`, shown as a table. See `PHASES`."""
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

    def setup(self, names: Mapping[str, object] | Sequence[Iterable[object] | None], *, vanish: Losses = ()) -> None:
        """Make the key of the names, the keys of all entities, and the first union. Call it once, before all rounds.

        `names`: the entities of each client, in a list, or in a mapping from the names of the clients. Tables have them
        too. Every client is needed here. One without entities (None) helps to make the key, and can bring some with
        `update`.
        """
        members = Members.of(names, self.params.clients)
        listed = members.each(names, "collections of names")
        with self._alone():
            self._set_up({n: () if own is None else own for n, own in enumerate(listed)}, vanish, members)

    def _set_up(
        self, names: Mapping[int, object], vanish: Losses, members: Members, before: _Before | None = None
    ) -> None:
        """Begin a session of these clients; until it has begun, those who leave are among them."""
        ended, leaving = self._members, before.members.only(before.leaving) if before else Members(0)
        self._members = Members(members.count + leaving.count, members.names + leaving.names)
        try:
            with self._members.speaking():
                own = {n: _entities(n, each) for n, each in names.items()}
                self._begin_session(own, self._lost(vanish), before)
        except BaseException:
            self._members = ended
            raise
        self._members = members

    def _begin_session(
        self, names: Mapping[int, tuple[Name, ...]], losses: dict[int, str], before: _Before | None
    ) -> None:
        rule = self._asked.normalize
        union = {key for n, own in names.items() for key in Spelling(rule, party(n)).keys(own)}
        params = self._asked.with_bounds(max_entities=max(map(len, names.values()), default=0), max_union=len(union))
        following = before and self.form.following(params, before.session, before.parts, before.stay)
        old = before.numbers if before and following else ()
        identities = {n: self._identities[n] for n in range(params.clients)}
        identities |= {i: before.identities[n] for i, n in enumerate(old) if before and n is not None}
        keys = tuple(identities[n].public for n in range(len(identities)))
        everyone = self._members if following else self._members.only(range(params.clients))
        roster = Roster(keys, self._identities[SERVER].public, everyone.names)
        session = MeteredSession(params, roster, following or self.form, self._account.sealed)
        self._account.begin(map(everyone.called, identities))
        self._account.phase, self._account.round = "setup", 0
        clients = {}
        for n, each in identities.items():
            with self._clock(n, "keys"):
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
            del clients[n], self._account.timing[everyone.called(n)]
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

    def update(
        self, client: Who, names: Iterable[object] | Frame, *, absent: Who | Iterable[Who] = (), vanish: Losses = ()
    ) -> None:
        """Change a client's entities between rounds. It takes an epoch of new names, and nobody sees whose they are."""
        exchange = self._running_exchange
        with self._alone(), self._members.speaking():
            part = self.clients[self._members.number(client)].part
            here, losses = set(self.clients) - set(self._members.numbers(absent)), self._lost(vanish)
            before = part.next_names
            part.update(names)
            exchange.here, exchange.losses = here, losses
            driver = self._driver_of(exchange)
            try:
                driver.expect(exchange.here)
                driver.renew()
                exchange.check_finished()
            except BaseException:
                exchange.server.give_up()
                part.update(before)
                raise

    def join(self, names: Iterable[object] | Frame, *, name: str | None = None) -> int:
        """Add a client for good: begin a new session with the same identities and the newcomer's. Returns its number.

        It needs a `name` where the others have names. The key of the entities' names is kept if no more clients may
        conspire than before. Otherwise all are asked for again.
        """
        number, members = self.params.clients, self._members.joined_by(name)
        with self._alone():
            self._regroup([*range(number), None], {**self._names(), number: names}, members)
        return number

    def leave(self, client: Who, *, gone: bool = False) -> None:
        """Remove a client for good: begin a new session without it. Higher client numbers move down by one.

        The key of the names is kept if fewer clients may conspire than before, and the leaving client helps to hand it
        over. If that client is `gone`, there is a new key, and all names are asked for again.
        """
        leaves = self._members.number(client)
        stay = [n for n in range(self.params.clients) if n != leaves]
        names = self._names()
        with self._alone():
            own = {i: names[n] for i, n in enumerate(stay)}
            self._regroup(stay, own, self._members.only(stay), gone={leaves} if gone else set())

    def _names(self) -> dict[int, tuple[Name, ...]]:
        return {n: client.part.next_names for n, client in self.clients.items()}

    def _regroup(
        self,
        stay: Sequence[int | None],
        names: Mapping[int, object],
        members: Members,
        gone: AbstractSet[int] = frozenset(),
    ) -> None:
        parts = {n: client.part for n, client in self.clients.items() if n not in gone}
        ended = _Before(self.session, self._members, parts, self._identities, tuple(stay))
        before = self._asked, self.params, self._identities, self._account.timing
        fresh = {i: Identity.generate(self._entropy) if n is None else self._identities[n] for i, n in enumerate(stay)}
        self._identities = fresh | {SERVER: self._identities[SERVER]}
        try:
            self._asked = replace(self._asked, clients=len(stay))
            self.params = self.form.checked(self._asked)
            self._set_up(names, (), members, ended)
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

    @overload
    def round(
        self, tables: Mapping[str, TableLike | None], *, weights: Weights = None, vanish: Losses = ()
    ) -> dict[str, Any]: ...

    @overload
    def round(
        self, tables: Iterable[TableLike | None], *, weights: Weights = None, vanish: Losses = ()
    ) -> list[Any]: ...

    def round(
        self,
        tables: Mapping[str, TableLike | None] | Iterable[TableLike | None],
        *,
        weights: Weights = None,
        vanish: Losses = (),
    ) -> dict[str, Any] | list[Any]:
        """One round: the mean of each client's own entities over all their owners, in the form of its table.

        `tables`: for each client one, in a list, or in a mapping from the clients' names; then the means come in one.
        `weights`: for each client a whole number for each row, in order or by name, in a list or a mapping of clients;
        or the name of a column that all their DataFrames have; or a `Table` brings its own. They need
        `Params(max_weight=...)`; with `partial=True` they are 1, or 0 for rows that are left out.

        A client whose table is None, or is not in the mapping, is absent from the start. Up to `dropouts` clients may
        vanish in the middle. If more do, the round is lost (`RoundLost`), and the next one works. Entities without a
        mean keep their own row; `without_mean` lists them, and `below_minimum` those that have too few owners.
        """
        exchange = self._running_exchange
        sources = self._members.each(tables, "tables")
        weighing = each_weights(self._members, weights)
        with self._members.speaking():
            pairs = enumerate(zip(sources, weighing, strict=True))
            given = {n: client_table(n, t, self.params.dim, w) for n, (t, w) in pairs if t is not None}
            check_columns(sources, weights)
            losses = self._lost(vanish)
            if not losses.keys() <= set(given):
                away = [self._members.called(n) for n in sorted(losses.keys() - set(given))]
                raise CallError(f"vanish names {away}, who do not take part in this round")
            for n, table in given.items():
                self.clients[n].part.checked(table)
        with self._alone(), self._members.speaking():
            self._number += 1
            exchange.here, exchange.losses = set(given), losses
            well = False
            try:
                self._finish_round(exchange, given)
                well = True
            except FederationError:
                exchange.server.give_up()
                raise
            except ProtocolError as error:
                self.faults.append(error)
                exchange.server.give_up()
                raise
            finally:
                for n in given:
                    self.faults.extend(self._members.told_of(self.clients[n].part.faults))
                self._account.held(self._number, [self._members.called(n) for n in sorted(exchange.here)], well=well)
            here = exchange.here
            means = [
                client_means(n, source, given[n], self.clients[n].part.give_means(given[n]), weighing[n])
                if n in here
                else None
                for n, source in enumerate(sources)
            ]
        if isinstance(tables, Mapping):
            return {name: mean for name, mean in zip(self._members.names, means, strict=True) if name in tables}
        return means

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
    def without_mean(self) -> Any:
        """For each client, the entities that got no mean in the last round. In a deployment only the client knows.

        A list of tuples; a dict, if clients have names.
        """
        return self._members.by_client([client.part.without_mean for _, client in sorted(self.clients.items())])

    @property
    def below_minimum(self) -> Any:
        """For each client, those of them that have fewer owners than `min_owners`, likewise. Only the client knows."""
        return self._members.by_client([client.part.below_minimum for _, client in sorted(self.clients.items())])

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

    def restart(self, *parties: Who) -> None:
        """Save and restore parties (all of them if none is given), as if each had been stopped and started again.

        Mask secrets are kept only in memory, so the next round begins with a new union.
        """
        exchange = self._running_exchange
        for each in parties or (*self.clients, SERVER):
            if each in (SERVER, SERVER_NAME):
                saved = exchange.server.save()
                exchange.server = Server.restore(self.session, self._identities[SERVER], saved, self._entropy)
                spool.use_files(exchange.server)
            else:
                n = self._members.number(each)
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

    def _lost(self, vanish: Losses) -> dict[int, str]:
        default, phases = self.form.round_phase, [row.phase for row in self.form.table(self.params)]
        if isinstance(vanish, Mapping):
            losses = {self._members.number(each): phase for each, phase in vanish.items()}
        else:
            losses = dict.fromkeys(self._members.numbers(vanish), default)
        for n, phase in losses.items():
            if phase not in phases:
                raise CallError(f"{party(n)} cannot vanish in {phase!r}; the phases are {', '.join(phases)}")
        return losses

    def _tap(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        kind = kind_of(message, self.form.kinds).name.lower()
        self._account.passed(self._members.called(sender), self._members.called(receiver), kind, len(message))
        return (message,)

    def _clock(self, party: int, phase: str) -> Any:
        return self._account.timed(phase, self._members.called(party))

    # ------------------------------------------------------------------------------------------------ how it is shown

    def __repr__(self) -> str:
        if self._exchange is None:
            return f"Federation({self.params.clients} clients, not set up yet)"
        union = self.server.at.size
        known = "no union" if union == UNKNOWN else f"union {union}"
        return f"Federation({self.params.clients} clients, round {self._number}, {known})"

    def _repr_html_(self) -> str:
        return self._account.introduce(repr(self), self.form, self.params, self._members.names)


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


def _entities(n: int, names: object) -> tuple[Name, ...]:
    """The entities of a client, which may come as its table. An error says whose they are."""
    try:
        return canonical_names(names)
    except TableError as error:
        raise type(error)(f"{party(n)}: {error}") from None


def each_weights(members: Members, weights: Weights) -> list[Any]:
    """What `weights=` means for each client."""
    if weights is None or isinstance(weights, str):
        return [weights] * members.count
    return members.each(weights, "weights")


def client_table(n: int, source: TableLike, dim: int | None = None, weights: Any = None) -> Table:
    """A client's table, with weights for its rows, or their column. An error says which client's it is."""
    try:
        if isinstance(weights, str):
            return as_table(source, dim, weights)
        table = as_table(source, dim)
        return table if weights is None else table.weighing(weights)
    except TableError as error:
        raise type(error)(f"{party(n)}: {error}") from None


def check_columns(sources: Iterable[TableLike | None], weights: Any = None) -> None:
    """Refuse frames that have the same columns in another order."""
    frames = ((party(n), source) for n, source in enumerate(sources) if source is not None)
    check_order(frames, weights if isinstance(weights, str) else None)


def client_means(n: int, source: TableLike, table: Table, means: Floats, weights: Any = None) -> Any:
    """Means in the form in which the client's table came, likewise."""
    try:
        return like(source, table, means, weights if isinstance(weights, str) else None)
    except TableError as error:
        raise type(error)(f"{party(n)}: {error}") from None
