"""A client on its own site: the state machine, its saved state, its log, and the user's two functions.

What a user writes is "my entity names" and "given the means, train and give me my new table". A `Host` does the rest:
it takes orders (`secea.engines.port`) from whatever engine carries them, and saves before anything leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from secea.arithmetic.field import keep_freed_memory
from secea.client import Client
from secea.engines.log import Log
from secea.engines.port import Order, Reply, Task
from secea.engines.store import Store
from secea.errors import SERVER, CallError, ParamsError, ProtocolError, SecEAError, SnapshotError, Stale, party
from secea.session import Session
from secea.table import Table, TableLike, as_table, canonical_names
from secea.wire import snapshot
from secea.wire.keys import Identity
from secea.wire.messages import Buffer, Header, Kind

BEGINS_ANEW: Final = "it begins anew, as the server does"


def _nothing(means: Table | None) -> None:
    """For those who want nothing of the last means."""


@dataclass(frozen=True)
class Participant:
    """What a client brings to a federation, whatever engine runs it."""

    names: Callable[[], Iterable[object]]
    """The names of its entities now. When they change between rounds, a new epoch is set up."""
    train: Callable[[Table | None, int], TableLike]
    """(the means of the last round, the number of this one) -> the table to contribute.

    There are no means (None) before the first round, and after one that was lost: train on from where you are.
    """
    done: Callable[[Table | None], None] = _nothing
    """The means of the last round, when all is over."""


def told(error: Exception) -> str:
    """What the server's side is told of an error at a site: no entity, no number, nothing of the user's own.

    How a site is set up is no secret; what it has is. The whole text is in the site's own log.
    """
    if isinstance(error, ProtocolError):
        return f"it refuses what came from {' or '.join(map(party, error.suspects))}"
    if isinstance(error, ParamsError | CallError | SnapshotError):
        return str(error)
    return f"{type(error).__name__} at its own side; its log has the rest"


def reply(client: Client, messages: list[Buffer], fault: str = "", *, more: bool = False) -> Reply:
    """What a client sends, and where it stands."""
    epoch = client.epoch if client.settled else 0
    return Reply(epoch, client.attempt, client.usable_weights, messages, fault, more)


class Host:
    """Client n of a session, as an engine sees it. A new one over the same store goes on where the old one stopped."""

    def __init__(
        self,
        session: Session,
        number: int,
        identity: Identity,
        participant: Participant,
        store: Store | None = None,
        log: Log | None = None,
    ) -> None:
        keep_freed_memory()
        self._session, self._identity = session, identity
        self._participant, self._store, self._log = participant, store, log or Log()
        self._table: Table | None = None
        self.client = self._restored() or Client(session, number, identity, participant.names())

    def _restored(self) -> Client | None:
        saved = self._store.load("client") if self._store else None
        if saved is None or self._store is None:
            return None
        if table := self._store.load("table"):
            self._table = Table(**snapshot.loads(table))
        return Client.restore(self._session, self._identity, saved)

    def _save(self) -> None:
        if self._store:
            self._store.save("client", self.client.save())

    def obey(self, order: Order) -> Reply:
        """Take the messages, do the task, save, and only then say what is to be sent."""
        try:
            if self._forgets(order.messages):
                return reply(self.client, [], BEGINS_ANEW)
            self._take(order.messages)
            if order.task is Task.ROUND:
                self._begin(order.round)
            if order.task is Task.END:
                self._participant.done(self.means())
                if self._store:
                    self._store.remove()
                return reply(self.client, [])
            self._save()
        except SecEAError as error:
            self._log.noted("stopped", why=str(error))
            return reply(self.client, [], told(error))
        messages: list[Buffer] = list(self.client.outbox())
        if order.task is Task.HELLO:
            messages = [self.client.wire.hello_message()]
        self._log.sent(messages)
        return reply(self.client, messages)

    def _forgets(self, messages: list[Buffer]) -> bool:
        """Whether the server has begun anew, without its state: then so does this client, at its next hello.

        What it had would make it refuse the new server's epochs as past. Nothing that was drawn is used again: a
        new client has new keys.
        """
        known = self.client.wire.peers.get(SERVER)
        for message in messages:
            header = Header.parse(message, SERVER)
            if header.kind is not Kind.HELLO or header.sender != SERVER:
                continue
            if known is None or header.salt == known.incarnation:
                return False
            names, old = self._participant.names(), self.client
            client = Client(self._session, old.number, self._identity, names, paillier=old.paillier)
            client.receive(message)  # refused unless it is signed by the roster's server
            self.client, self._table = client, None
            if self._store:
                self._store.forget("table")
            self._save()
            self._log.noted("forgot", why=BEGINS_ANEW)
            return True
        return False

    def _take(self, messages: list[Buffer]) -> None:
        seen = len(self.client.faults)
        for message in messages:
            try:
                self.client.receive(message)
            except Stale as stale:  # it came before: an order that is repeated
                self._log.refused(message, stale)
            except ProtocolError as error:
                self._log.refused(message, error)
                raise
            else:
                self._log.accepted(message)
        for fault in self.client.faults[seen:]:
            self._log.noted("fault", why=str(fault))

    def _begin(self, round: int) -> None:
        """Train on new means, and contribute the new table; without new means, the last one once more."""
        client = self.client
        names = canonical_names(self._participant.names())
        if set(names) != set(client.next_names):
            client.update(names)
        if not client.settled or client.round >= round:
            return
        if self._table is None or client.has_means or set(self._table.names) != set(names):
            trained = self._participant.train(self.means(), round)
            self._table = as_table(trained, self._session.params.dim)
            if self._store:
                table = {"names": tuple(self._table.names), "matrix": self._table.matrix}
                self._store.save("table", snapshot.dumps(table))
        client.contribute(self._table, round)

    def means(self) -> Table | None:
        """The means of the last round, in the order of the last table; None before the first, or where it failed."""
        table = self._table
        if table is None or not self.client.has_means or set(table.names) != set(self.client.names):
            return None
        return Table.trusted(table.names, self.client.means_like(table))
