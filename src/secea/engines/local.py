"""A whole federation in one process: every party's state machine, and bytes passed between them as a network would."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, TypeAlias

from secea.client import Client
from secea.errors import SERVER, CallError, ParamsError, ProtocolError, TableError, TableTypeError
from secea.keys import Identity, Roster
from secea.messages import Buffer, Header
from secea.params import Params
from secea.randomness import Entropy
from secea.server import Phase, Server
from secea.session import Session, check_choice
from secea.table import Name, Table, TableLike, as_table, canonical_names, like

PHASES = ("setup", "offline", "online")
"""What `Federation.timing` tells apart: set-up and new weights; `prepare`; `round` (section IV of the paper)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One message on one leg of its way: from a client to the server, or from the server to a client."""

    round: int
    """0 in the set-up, and while weights are made."""
    sender: int | str
    receiver: int | str
    kind: str
    size: int


@dataclass(slots=True)
class Cost:
    """What one party spent in one phase."""

    seconds: float = 0.0
    """CPU time."""
    sent: int = 0
    """Bytes."""
    stored: int = 0
    """Bytes that it keeps for later at the end of the phase."""
    stages: dict[str, float] = field(default_factory=dict)
    """CPU seconds by stage of the protocol."""


Losses: TypeAlias = Iterable[int] | Mapping[int, str]
"""Clients that vanish once their shares are sent; or each with the stage in the middle of which it is lost."""


class Federation:
    """All parties of a federation, driven in this process: for tests, simulations, and a single machine.

    >>> fed = Federation(Params(clients=3, dim=2))
    >>> fed.setup([["a", "b"], ["a"], ["b", "c"]])
    >>> means = fed.round([{"a": [1.0, 2.0], "b": [0.0, 0.0]}, {"a": [3.0, 4.0]}, {"b": [1.0, 1.0], "c": [5.0, 5.0]}])
    >>> [sorted(m) for m in means]
    [['a', 'b'], ['a'], ['b', 'c']]
    """

    def __init__(
        self,
        params: Params,
        retrieval: str = "reciprocal",
        queries: str = "buckets",
        *,
        entropy: Entropy = os.urandom,
    ) -> None:
        if not isinstance(params, Params):
            raise ParamsError(f"a Federation takes secea.Params(clients=..., dim=...), got {type(params).__name__}")
        check_choice(retrieval, queries)
        self.params = self._params = params
        self.retrieval, self.queries, self._entropy = retrieval, queries, entropy
        self.traffic: list[Hop] = []
        """One record for each message and hop."""
        self.timing = _no_costs(params.clients)
        """Time, bytes and storage by party and phase: see `Cost` and `PHASES`."""
        self.faults: list[ProtocolError] = []
        """What parties refused."""
        self._identities = {n: Identity.generate(entropy) for n in (*range(params.clients), SERVER)}
        self._session: Session | None = None
        self._clients: dict[int, Client] = {}
        self._server: Server | None = None
        self._paillier: dict[int, bytes] = {}
        self._present: set[int] = set()  # who takes part in what is going on
        self._losses: dict[int, str] = {}  # who will be lost, and in which stage
        self._phase, self._round = "setup", 0
        self._pool = ThreadPoolExecutor(os.cpu_count())
        self._busy = Lock()

    # ------------------------------------------------------------------------------------------------- the user's

    def setup(self, names: Sequence[Iterable[object] | None], *, vanish: Losses = ()) -> None:
        """Keys, union, queries and weights: once, before the first round. One collection of entity names per client.

        A client without names (None) is absent, and can come in by `update`. Bounds that `Params` leaves open are
        taken from the names; they are public. `vanish` is as in `round`.
        """
        listed = _each(names, self.params.clients, "collections of names")
        with self._alone():
            self._set_up({n: canonical_names(own) for n, own in enumerate(listed) if own is not None}, _losses(vanish))

    def _set_up(self, names: dict[int, tuple[Name, ...]], losses: dict[int, str]) -> None:
        """A new session over the identities; where it fails, what was set up before still works."""
        union = {name for own in names.values() for name in own}
        params = self._params.with_bounds(max_entities=max(map(len, names.values()), default=0), max_union=len(union))
        keys = {n: identity.public for n, identity in self._identities.items()}
        roster = Roster(tuple(keys[n] for n in range(params.clients)), keys[SERVER])
        session = Session(params, roster, self.retrieval, self.queries)
        before = self.params, self._session, self._clients, self._server
        self.params, self._session, self._clients = params, session, {}
        try:
            with self._in("setup"):
                for n, own in names.items():
                    self._clients[n] = self._new_client(n, own)
                self._server = Server(session, self._identities[SERVER], self._entropy, early=True)
                self._present, self._losses = set(self._clients), losses
                self._run()
        except BaseException:
            self.params, self._session, self._clients, self._server = before
            raise

    def _new_client(self, n: int, names: tuple[Name, ...]) -> Client:
        """Client n of the session. Its Paillier key is made once."""
        with self._timed("keys", n):
            key = self._paillier.get(n, b"")
            client = Client(self.session, n, self._identities[n], names, self._entropy, paillier=key)
            self._paillier[n] = client.paillier
        return client

    def update(self, client: int, names: Iterable[object], *, absent: Iterable[int] = (), vanish: Losses = ()) -> None:
        """A client's entities change between rounds: a new epoch, with fresh randomness and re-keyed tags.

        Those who are `absent` have no part in it, and come back with the next round that has a table of theirs.
        """
        if client not in range(self.params.clients):
            raise CallError(f"there is no client {client!r}; the clients are 0..{self.params.clients - 1}")
        _ = self.server  # or there was no set-up
        new = canonical_names(names)
        with self._alone():
            self._present, self._losses = {*self._clients, client} - set(absent), _losses(vanish)
            before = self._clients[client].names if client in self._clients else None
            if client in self._clients:
                self._clients[client].update(new)
            else:
                self._clients[client] = self._new_client(client, new)
            try:
                self._new_epoch()
            except BaseException:  # with what it had, the federation goes on in the next epoch
                self._abandon()
                if before is None:
                    del self._clients[client]
                else:
                    self._clients[client].update(before)
                raise

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
        _ = self.server  # or there was no set-up
        return {n: client.names for n, client in self._clients.items()}

    def _regroup(self, stay: Sequence[int | None], names: dict[int, tuple[Name, ...]]) -> None:
        """A session of these clients in this order (None: a new one). Identities and Paillier keys are kept."""
        before = self._params, self._identities, self._paillier, self.timing
        self._params = replace(self._params, clients=len(stay))
        fresh = {i: Identity.generate(self._entropy) if n is None else self._identities[n] for i, n in enumerate(stay)}
        self._identities = fresh | {SERVER: self._identities[SERVER]}
        self._paillier = {i: self._paillier[n] for i, n in enumerate(stay) if n in self._paillier}
        self.timing = _no_costs(len(stay)) | {"server": self.timing["server"]}
        try:
            self._set_up(names, {})
        except BaseException:
            self._params, self._identities, self._paillier, self.timing = before
            raise

    def prepare(self) -> None:
        """Offline, before a round: encrypted noise and encryption randomness. Optional, and counted apart."""
        with self._alone(), self._in("offline"):
            for n, client in self._clients.items():
                with self._timed("prepare", n):
                    client.prepare()
            with self._timed("prepare", "server"):
                self.server.prepare()

    def round(self, tables: Sequence[TableLike | None], *, vanish: Losses = ()) -> list[Any]:
        """One round: the mean of each client's own entities over all their owners, in the form of its table.

        A client whose table is None is absent from the start. One in `vanish` sends its shares and is not seen again in
        this round; or it is lost in the stage that is named: `vanish={4: "share"}`. The result of both is None.
        """
        _ = self.server  # or there was no set-up
        sources = _each(tables, self.params.clients, "tables")
        given = {n: _client_table(n, t, self.params.dim) for n, t in enumerate(sources) if t is not None}
        losses = _losses(vanish)
        if not losses.keys() <= set(given):
            raise CallError(f"vanish names {sorted(losses.keys() - set(given))}, who do not take part in this round")
        for n, table in given.items():
            if n not in self._clients:
                raise CallError(f"client {n} was absent from the set-up; call update({n}, names) first")
            self._clients[n].checked(table)
        with self._alone():
            self._present, self._losses = set(given), losses
            for n in given:
                self._clients[n].faults = []  # those of the last round were reported
            try:
                while not self._try_round(given):  # someone was lost before its shares were in: again, without it
                    pass
            except BaseException:  # nothing of this round is kept; the next one begins afresh
                self._abandon()
                raise
            finally:
                self.faults += [fault for n in given for fault in self._clients[n].faults] + self.server.faults
                self.server.faults = []
        return [self._result(n, sources[n], given[n]) if n in self._present else None for n in range(len(sources))]

    def _abandon(self) -> None:
        """What goes on will not be finished."""
        self.server.abandon()
        for client in self._clients.values():
            client.abandon()

    def _try_round(self, given: Mapping[int, Table]) -> bool:
        """Whether the round was finished; if not, those who are left are ready for another one."""
        self._get_ready()
        with self._in("online"):
            self.server.begin_round(self._present)
            self._round = self.server.round
            for n in sorted(self._present):
                with self._timed("share", n):
                    self._clients[n].contribute(given[n], self._round)
            self._run(Phase.SHARE, Phase.ANSWER)
        if self.server.done != self._round:
            return False
        for n in sorted(self._present):
            if overdue := self._clients[n].overdue():
                self.faults.append(overdue)
                raise overdue
        return True

    def _get_ready(self) -> None:
        """Queries from everyone who is present, and weights for them."""
        done = self.server.phase in (Phase.READY, Phase.OPENING, Phase.RESHARE)  # or an epoch broke off
        changed = any(self._clients[n].stale for n in self._present)  # in an epoch that broke off
        if not done or changed or not self._present <= set(self.server.query_members):
            self._new_epoch()
        with self._in("setup"):
            self._run()
            while self.session.form.weighted and (self._present != set(self.server.contributors) or self._behind()):
                self.server.begin_weights(self._present)
                self._run()

    def _behind(self) -> bool:
        """Whether someone is present who was lost before it had the weights; who re-shares nothing is not missed."""
        return any(self._clients[n].context != self.server.context for n in self._present)

    def _new_epoch(self) -> None:
        with self._in("setup"):
            for n in sorted(self._present):
                if self.server.wire.peers.get(n) == self._clients[n].wire.hello:
                    continue  # it has said hello
                for message in self._clients[n].outbox():
                    self._record(n, "server", message)
                    self._deliver(self.server.receive, n, message)
            self.server.begin_epoch(self._present)
            self._run()

    @property
    def server(self) -> Server:
        """The server's state machine."""
        if self._server is None:
            raise CallError("call setup(names) first: there is no federation yet")
        return self._server

    @property
    def clients(self) -> dict[int, Client]:
        """The clients' state machines."""
        return self._clients

    @property
    def session(self) -> Session:
        """What all parties know."""
        if self._session is None:
            raise CallError("call setup(names) first: there is no federation yet")
        return self._session

    def restart(self, *numbers: int) -> None:
        """Save and restore parties (all of them if none is named), as if each had been stopped and started again."""
        for n in numbers or (*self._clients, SERVER):
            if n == SERVER:
                saved = self.server.save()
                self._server = Server.restore(self.session, self._identities[n], saved, self._entropy, early=True)
            else:
                saved = self._clients[n].save()
                self._clients[n] = Client.restore(self.session, self._identities[n], saved, self._entropy)

    # ------------------------------------------------------------------------------------------------- exchanges

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time."""
        if not self._busy.acquire(blocking=False):
            raise CallError("this federation is busy with another call")
        try:
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _in(self, phase: str) -> Iterator[None]:
        """What is done within belongs to one phase of the record."""
        self._phase, self._round = phase, 0
        yield
        for n, client in self._clients.items():
            self.timing[n][phase].stored = client.stored_bytes
        self.timing["server"][phase].stored = self.server.stored_bytes

    def _run(self, *phases: Phase) -> None:
        """Deliver what the server has to say, and go on while it is in these phases (or until it is ready)."""
        self._distribute(self.server.drain(), "announce")
        while self.server.phase in (phases or set(Phase) - {Phase.READY}):
            self._exchange()

    def _exchange(self) -> None:
        """Clients to server, and back: a few messages of each client at a time, so that memory stays small."""
        stage = str(self.server.phase)
        lost = {n for n in self._present if self._losses.get(n) == stage}
        self._present -= lost
        streams = {n: self._clients[n].outbox() for n in sorted(self._present | lost)}
        for n in lost:
            streams[n] = _all_but_last(streams[n])
        while streams:
            sent = dict(zip(streams, self._map(partial(self._outbox, stage), streams.items()), strict=True))
            with self._timed(stage, "server"):
                for n, messages in sent.items():
                    for message in messages:
                        self._record(n, "server", message)
                        self._deliver(self.server.receive, n, message)
                inboxes = self.server.drain()
            self._distribute(inboxes, stage)
            streams = {n: stream for n, stream in streams.items() if len(sent[n]) == self._at_once}
        try:
            with self._timed(stage, "server"):
                self.server.close()
        finally:  # where the server gives up, it tells the clients
            self._distribute(self.server.drain(), stage)

    def _map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Clients side by side; one after the other where each of them uses all cores by itself."""
        return map(work, items) if self.session.form.paillier_bytes else self._pool.map(work, items)

    @property
    def _at_once(self) -> int:
        return 2 * self.params.clients

    def _outbox(self, stage: str, stream: tuple[int, Iterator[Buffer]]) -> list[Buffer]:
        with self._timed(stage, stream[0]):
            return list(islice(stream[1], self._at_once))

    def _distribute(self, inboxes: Mapping[int, list[Buffer]], stage: str) -> None:
        there = [n for n in inboxes if n in self._present]
        for n in there:
            for message in inboxes[n]:
                self._record("server", n, message)
        list(self._map(lambda n: self._inbox(n, inboxes[n], stage), there))

    def _inbox(self, n: int, messages: list[Buffer], stage: str) -> None:
        with self._timed(stage, n):
            for message in messages:
                self._deliver(self._clients[n].receive, message)

    def _deliver(self, receive: Callable[..., None], *args: Any) -> None:
        try:
            receive(*args)
        except ProtocolError as fault:
            self.faults.append(fault)
            raise

    def _record(self, sender: int | str, receiver: int | str, message: Buffer) -> None:
        kind = Header.parse(message, SERVER).kind.name.lower()
        self.traffic.append(Hop(self._round, sender, receiver, kind, len(message)))
        self.timing[sender][self._phase].sent += len(message)

    @contextmanager
    def _timed(self, stage: str, who: int | str) -> Iterator[None]:
        """Adds the CPU time that passes to a party's record."""
        alone = self._session is not None and self._session.form.paillier_bytes > 0
        clock = time.process_time if alone else time.thread_time
        cost, started = self.timing[who][self._phase], clock()
        try:
            yield
        finally:
            passed = clock() - started
            cost.seconds += passed
            cost.stages[stage] = cost.stages.get(stage, 0.0) + passed

    def _result(self, n: int, source: TableLike | None, table: Table) -> Any:
        assert source is not None
        return like(source, table, self._clients[n].means_like(table))


def _each(items: object, count: int, what: str) -> list[Any]:
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


def _all_but_last(messages: Iterator[Buffer]) -> Iterator[Buffer]:
    """What leaves a client that is lost in the middle of a stage."""
    held: list[Buffer] = []
    for message in messages:
        yield from held
        held = [message]


def _no_costs(clients: int) -> dict[int | str, dict[str, Cost]]:
    return {who: {phase: Cost() for phase in PHASES} for who in (*range(clients), "server")}


def _client_table(n: int, source: TableLike, dim: int | None = None) -> Table:
    try:
        return as_table(source, dim)
    except TableError as error:
        raise type(error)(f"client {n}: {error}") from None


def aggregate(
    tables: Iterable[TableLike], *, retrieval: str = "reciprocal", queries: str = "buckets", **params: Any
) -> list[Any]:
    """The mean embedding of each client's own entities over all their owners: one table per client in, one out.

    Keywords are those of `Params`; clients, dim and the bounds come from the tables. For one aggregation: in a training
    loop use a `Federation`, whose set-up is done once, and whose fill of low bits stays the same from round to round.
    """
    known = {each.name for each in fields(Params)}
    if unknown := sorted(params.keys() - known):
        raise ParamsError(f"aggregate takes no {unknown[0]!r}; it takes retrieval, queries, {', '.join(sorted(known))}")
    if isinstance(tables, Mapping | str | bytes | Table) or not isinstance(tables, Iterable):
        raise TableTypeError(f"expected a list of tables, one per client, got {type(tables).__name__}")
    sources = list(tables)
    filled = [(n, table) for n, source in enumerate(sources) if len(table := _client_table(n, source))]
    dim = filled[0][1].dim if filled else 1
    for n, table in filled:
        if table.dim != dim:
            raise TableError(f"client {filled[0][0]} has embeddings of length {dim}, client {n} of length {table.dim}")
    fed = Federation(Params(**({"clients": len(sources), "dim": dim} | params)), retrieval, queries)
    fed.setup([source.keys() for source in sources])
    return fed.round(sources)
