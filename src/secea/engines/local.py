"""A whole federation in one process: every party's state machine, and bytes passed between them as a network would."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any

from secea.client import Client
from secea.errors import SERVER, CallError, ParamsError, ProtocolError, TableError, TableTypeError
from secea.keys import Identity, Roster
from secea.messages import Buffer, Header
from secea.params import Params
from secea.randomness import Entropy
from secea.server import Phase, Server
from secea.session import Session, check_choice
from secea.table import Table, TableLike, as_table, canonical_names, like

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
        self.timing: dict[int | str, dict[str, Cost]] = {
            who: {phase: Cost() for phase in PHASES} for who in (*range(params.clients), "server")
        }
        """Time, bytes and storage by party and phase: see `Cost` and `PHASES`."""
        self.faults: list[ProtocolError] = []
        """What parties refused."""
        self._identities = {n: Identity.generate(entropy) for n in (*range(params.clients), SERVER)}
        self._session: Session | None = None
        self._clients: dict[int, Client] = {}
        self._server: Server | None = None
        self._phase, self._round = "setup", 0
        self._pool = ThreadPoolExecutor(os.cpu_count())
        self._busy = Lock()

    # ------------------------------------------------------------------------------------------------- the user's

    def setup(self, names: Sequence[Iterable[object]]) -> None:
        """Keys, union, queries and weights: once, before the first round. One collection of entity names per client.

        Bounds that `Params` leaves open are taken from the names; they are public.
        """
        checked = [canonical_names(own) for own in _each(names, self.params.clients, "collections of names")]
        union = {name for own in checked for name in own}
        params = self._params.with_bounds(max_entities=max(map(len, checked)), max_union=len(union))
        keys = {n: identity.public for n, identity in self._identities.items()}
        roster = Roster(tuple(keys[n] for n in range(params.clients)), keys[SERVER])
        session = Session(params, roster, self.retrieval, self.queries)
        before = self.params, self._session, self._clients, self._server
        with self._alone("setup"):
            self.params, self._session, self._clients = params, session, {}
            try:
                for n, own in enumerate(checked):
                    with self._timed("keys", n):
                        self._clients[n] = Client(session, n, self._identities[n], own, self._entropy)
                self._server = Server(session, self._identities[SERVER], self._entropy, early=True)
                self._run(set(self._clients))
            except BaseException:  # what was set up before still works
                self.params, self._session, self._clients, self._server = before
                raise

    def update(self, client: int, names: Iterable[object]) -> None:
        """A client's entities change between rounds: a new epoch for all, with fresh randomness and re-keyed tags."""
        if client not in self._clients:
            raise CallError(f"there is no client {client!r}; the clients are 0..{self.params.clients - 1}")
        with self._alone("setup"):
            self._clients[client].update(names)
            self.server.begin_epoch(self._clients)
            self._run(set(self._clients))

    def prepare(self) -> None:
        """Offline, before a round: encrypted noise and encryption randomness. Optional, and counted apart."""
        with self._alone("offline"):
            for n, client in self._clients.items():
                with self._timed("prepare", n):
                    client.prepare()
            with self._timed("prepare", "server"):
                self.server.prepare()

    def round(self, tables: Sequence[TableLike | None], *, vanish: Iterable[int] = ()) -> list[Any]:
        """One round: the mean of each client's own entities over all their owners, in the form of its table.

        A client whose table is None is absent from the start; one in `vanish` sends its shares and is not seen again in
        this round. The result of both is None.
        """
        _ = self.server  # or there was no set-up
        sources = _each(tables, self.params.clients, "tables")
        given = {n: _client_table(n, t, self.params.dim) for n, t in enumerate(sources) if t is not None}
        vanishing = {vanish} if isinstance(vanish, int) else set(vanish)
        if not vanishing <= set(given):
            raise CallError(f"vanish names {sorted(vanishing - set(given))}, who do not take part in this round")
        for n, table in given.items():
            self._clients[n].checked(table)
        try:
            if self.session.form.weighted and set(given) != set(self.server.contributors):
                with self._alone("setup"):
                    self.server.begin_weights(given)
                    self._run(set(given))
            with self._alone("online"):
                self.server.begin_round(given)
                self._round = self.server.round
                for n, table in given.items():
                    with self._timed("share", n):
                        self._clients[n].contribute(table, self._round)
                self._exchange(set(given))
                there = set(given) - vanishing
                self._run(there)
        except BaseException:  # nothing of this round is kept; the next one begins afresh
            self.server.abandon()
            for client in self._clients.values():
                client.abandon()
            raise
        return [self._result(n, sources[n], given[n]) if n in there else None for n in range(self.params.clients)]

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
    def _alone(self, phase: str) -> Iterator[None]:
        """One call at a time; and what it costs belongs to one phase."""
        if not self._busy.acquire(blocking=False):
            raise CallError("this federation is busy with another call")
        self._phase, self._round = phase, 0
        try:
            yield
            for n, client in self._clients.items():
                self.timing[n][phase].stored = client.stored_bytes
            self.timing["server"][phase].stored = self.server.stored_bytes
        finally:
            self._busy.release()

    def _run(self, present: set[int]) -> None:
        """Deliver what the server has to say, and go on until it is ready for a round."""
        self._distribute(self.server.drain(), present, "announce")
        while self.server.phase is not Phase.READY:
            self._exchange(present)

    def _exchange(self, present: set[int]) -> None:
        """Clients to server, and back: a few messages of each client at a time, so that memory stays small."""
        stage = str(self.server.phase)
        streams = {n: self._clients[n].outbox() for n in sorted(present)}
        while streams:
            sent = dict(zip(streams, self._map(partial(self._outbox, stage), streams.items()), strict=True))
            with self._timed(stage, "server"):
                for n, messages in sent.items():
                    for message in messages:
                        self._record(n, "server", message)
                        self._deliver(self.server.receive, n, message)
                inboxes = self.server.drain()
            self._distribute(inboxes, present, stage)
            streams = {n: stream for n, stream in streams.items() if len(sent[n]) == self._at_once}
        try:
            with self._timed(stage, "server"):
                self.server.close()
        finally:  # where the server gives up, it tells the clients
            self._distribute(self.server.drain(), present, stage)

    def _map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Clients side by side; one after the other where each of them uses all cores by itself."""
        return map(work, items) if self.session.form.paillier_bytes else self._pool.map(work, items)

    @property
    def _at_once(self) -> int:
        return 2 * self.params.clients

    def _outbox(self, stage: str, stream: tuple[int, Iterator[Buffer]]) -> list[Buffer]:
        with self._timed(stage, stream[0]):
            return list(islice(stream[1], self._at_once))

    def _distribute(self, inboxes: Mapping[int, list[Buffer]], present: set[int], stage: str) -> None:
        there = [n for n in inboxes if n in present]
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
