"""A whole federation in one process: every party's state machine, and bytes passed between them as a network would."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import SERVER, FederationError, ProtocolError, TableError
from secea.keys import Identity, Roster
from secea.messages import Buffer, Header
from secea.params import Params
from secea.randomness import Entropy
from secea.server import Phase, Server
from secea.session import Session
from secea.table import Table, TableLike, as_table, canonical_names, like


@dataclass(frozen=True, slots=True)
class Hop:
    """One message on one leg of its way: from a client to the server, or from the server to a client."""

    round: int
    """0 in the set-up."""
    sender: int | str
    receiver: int | str
    kind: str
    size: int


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
        self.params, self.retrieval, self.queries, self._entropy = params, retrieval, queries, entropy
        self.traffic: list[Hop] = []
        """One record for each message and hop."""
        self.timing: dict[str, dict[int | str, float]] = defaultdict(lambda: defaultdict(float))
        """CPU seconds by phase and party."""
        self.faults: list[ProtocolError] = []
        """What parties refused."""
        self._identities: dict[int, Identity] = {}
        self._session: Session | None = None
        self._clients: dict[int, Client] = {}
        self._server: Server | None = None
        self._pool = ThreadPoolExecutor(os.cpu_count())

    # ------------------------------------------------------------------------------------------------- the user's

    def setup(self, names: Sequence[Iterable[object]]) -> None:
        """Keys, union, queries and weights: once, before the first round. One collection of entity names per client.

        Bounds that `Params` leaves open are taken from the names; they are public.
        """
        if len(names) != self.params.clients:
            raise TableError(f"{len(names)} clients have names, Params has clients={self.params.clients}")
        checked = [canonical_names(own) for own in names]
        union = {name for own in checked for name in own}
        self.params = self.params.with_bounds(max_entities=max(map(len, checked)), max_union=len(union))
        self._identities = {n: Identity.generate(self._entropy) for n in (*range(len(names)), SERVER)}
        keys = {n: identity.public for n, identity in self._identities.items()}
        roster = Roster(tuple(keys[n] for n in range(len(names))), keys[SERVER])
        self._session = Session(self.params, roster, self.retrieval, self.queries)
        self._server = Server(self._session, self._identities[SERVER], self._entropy, early=True)
        for n, own in enumerate(checked):
            with self._timed("keys", n):
                self._clients[n] = Client(self._session, n, self._identities[n], own, self._entropy)
        while self.server.phase is not Phase.READY:
            self._exchange(set(self._clients))

    def update(self, client: int, names: Iterable[object]) -> None:
        """A client's entities change between rounds: a new epoch for all, with fresh randomness and re-keyed tags."""
        if client not in self._clients:
            raise TableError(f"there is no client {client!r}; the clients are 0..{self.params.clients - 1}")
        self._clients[client].update(names)
        self.server.begin_epoch(self._clients)
        self._distribute(self.server.drain(), set(self._clients), "greeting")
        while self.server.phase is not Phase.READY:
            self._exchange(set(self._clients))

    def prepare(self) -> None:
        """Offline, before a round: encrypted noise and encryption randomness. Optional, and counted apart."""
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
        if self._server is None:
            raise FederationError("call setup(names) before the first round")
        if len(tables) != self.params.clients:
            raise TableError(f"{len(tables)} tables were given, the federation has {self.params.clients} clients")
        given = {n: _client_table(n, t, self.params.dim) for n, t in enumerate(tables) if t is not None}
        for n, table in given.items():
            self._clients[n].checked(table)
        if self.session.form.weighted and set(given) != set(self.server.contributors):
            self.server.begin_weights(given)
            self._distribute(self.server.drain(), set(given), "opening")
            while self.server.phase is not Phase.READY:
                self._exchange(set(given))
        self.server.begin_round(given)
        for n, table in given.items():
            with self._timed("share", n):
                self._clients[n].contribute(table, self.server.round)
        self._exchange(set(given))
        there = set(given) - set(vanish)
        while self.server.phase is not Phase.READY:
            self._exchange(there)
        return [self._result(n, tables[n], given.get(n)) if n in there else None for n in range(self.params.clients)]

    @property
    def server(self) -> Server:
        """The server's state machine."""
        if self._server is None:
            raise FederationError("call setup(names) first")
        return self._server

    @property
    def clients(self) -> dict[int, Client]:
        """The clients' state machines."""
        return self._clients

    @property
    def session(self) -> Session:
        """What all parties know."""
        if self._session is None:
            raise FederationError("call setup(names) first")
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

    # ----------------------------------------------------------------------------------------------- one exchange

    def _exchange(self, present: set[int]) -> None:
        """Clients to server, and back: a few messages of each client at a time, so that memory stays small."""
        phase = str(self.server.phase)
        streams = {n: self._clients[n].outbox() for n in sorted(present)}
        while streams:
            sent = dict(zip(streams, self._map(partial(self._outbox, phase), streams.items()), strict=True))
            with self._timed(phase, "server"):
                for n, messages in sent.items():
                    for message in messages:
                        self._record(n, "server", message)
                        self._deliver(self.server.receive, n, message)
                inboxes = self.server.drain()
            self._distribute(inboxes, present, phase)
            streams = {n: stream for n, stream in streams.items() if len(sent[n]) == self._at_once}
        try:
            with self._timed(phase, "server"):
                self.server.close()
        finally:  # where the server gives up, it tells the clients
            self._distribute(self.server.drain(), present, phase)

    def _map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Clients side by side; one after the other where each of them uses all cores by itself."""
        return map(work, items) if self.session.form.paillier_bytes else self._pool.map(work, items)

    @property
    def _at_once(self) -> int:
        return 2 * self.params.clients

    def _outbox(self, phase: str, stream: tuple[int, Iterator[Buffer]]) -> list[Buffer]:
        with self._timed(phase, stream[0]):
            return list(islice(stream[1], self._at_once))

    def _distribute(self, inboxes: dict[int, list[Buffer]], present: set[int], phase: str) -> None:
        for n, messages in inboxes.items():
            for message in messages:
                self._record("server", n, message)
        there = [n for n in inboxes if n in present]
        list(self._map(lambda n: self._inbox(n, inboxes[n], phase), there))

    def _inbox(self, n: int, messages: list[Buffer], phase: str) -> None:
        with self._timed(phase, n):
            for message in messages:
                self._deliver(self._clients[n].receive, message)

    def _deliver(self, receive: Any, *args: Any) -> None:
        try:
            receive(*args)
        except ProtocolError as fault:
            self.faults.append(fault)
            raise

    def _record(self, sender: int | str, receiver: int | str, message: Buffer) -> None:
        header = Header.parse(message, SERVER)
        self.traffic.append(Hop(self.server.round, sender, receiver, header.kind.name.lower(), len(message)))

    def _timed(self, phase: str, who: int | str) -> _Timer:
        alone = self._session is not None and self.session.form.paillier_bytes > 0
        return _Timer(self.timing[phase], who, time.process_time if alone else time.thread_time)

    def _result(self, n: int, source: TableLike | None, table: Table | None) -> Any:
        client = self._clients[n]
        if source is None or table is None or client.means is None or client.phase is not ClientPhase.READY:
            return None
        return like(source, table, client.means_like(table))


class _Timer:
    """Adds the CPU time that passes to a record."""

    def __init__(self, record: dict[int | str, float], who: int | str, clock: Callable[[], float]) -> None:
        self._record, self._who, self._clock = record, who, clock

    def __enter__(self) -> None:
        self._start = self._clock()

    def __exit__(self, *_: object) -> None:
        self._record[self._who] += self._clock() - self._start


def _client_table(n: int, source: TableLike, dim: int | None = None) -> Table:
    try:
        return as_table(source, dim)
    except TableError as error:
        raise type(error)(f"client {n}: {error}") from None


def aggregate(
    tables: Sequence[TableLike], *, retrieval: str = "reciprocal", queries: str = "buckets", **params: Any
) -> list[Any]:
    """The mean embedding of each client's own entities over all their owners: one table per client in, one out.

    Keywords are those of `Params`; clients, dim and the bounds come from the tables.
    """
    filled = [(n, _client_table(n, table)) for n, table in enumerate(tables) if len(table)]
    dim = filled[0][1].dim if filled else 1
    for n, table in filled:
        if table.dim != dim:
            a = filled[0][0]
            raise TableError(f"client {a} has embeddings of length {dim}, client {n} of length {table.dim}")
    settings = {"clients": len(tables), "dim": dim} | params
    fed = Federation(Params(**settings), retrieval, queries)
    fed.setup([t.keys() for t in tables])
    return fed.round(tables)
