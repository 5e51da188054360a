"""A client on its own site: the state machine, its saved state, its log, and the user's functions.

Everything that changes its state came in a message that the server sealed for this life of the client: when to train,
and that a run is over. An order that is forged, late or repeated does nothing; an authentic message that is wrong ends
the attempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from secea.engines.log import Log
from secea.engines.port import Order, Reply, Task
from secea.engines.store import Store
from secea.errors import CallError, ParamsError, ProtocolError, RoundLost, SecEAError, SnapshotError, Stale, party
from secea.party.client import Client
from secea.party.session import Session
from secea.table import Table, TableLike, as_table, canonical_names
from secea.wire import snapshot
from secea.wire.keys import Identity
from secea.wire.messages import Buffer


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


class Host:
    """Client n of a session, as an engine sees it. A new one over the same store is a new life of the same client."""

    def __init__(
        self,
        session: Session,
        number: int,
        identity: Identity,
        participant: Participant,
        store: Store | None = None,
        log: Log | None = None,
    ) -> None:
        self._session, self._identity = session, identity
        self._participant, self._store, self._log = participant, store, log or Log()
        self._table: Table | None = None
        self._trained = 0  # the round in which the table was trained
        self._saved = b""
        self.client = self._restored() or Client(session, number, identity, participant.names())

    # ------------------------------------------------------------------------------------------------------- its state

    def _restored(self) -> Client | None:
        saved = self._store.load("client") if self._store else None
        if saved is None or self._store is None:
            return None
        if table := self._store.load("table"):
            content = snapshot.loads(table)
            self._table, self._trained = Table(content["names"], content["matrix"]), content["round"]
        return Client.restore(self._session, self._identity, saved)

    def _save(self) -> None:
        """What must survive, before anything leaves; written only where it changed."""
        if self._store is None:
            return
        data = self.client.save()
        if (hashed := hashlib.sha256(data).digest()) != self._saved:
            self._store.save("client", data)
            self._saved = hashed

    def _keep(self, table: Table | None, round: int) -> None:
        self._table, self._trained = table, round
        if self._store and table is None:
            self._store.forget("table")
        elif self._store and table is not None:
            content = {"names": tuple(table.names), "matrix": table.matrix, "round": round}
            self._store.save("table", snapshot.dumps(content))

    # ---------------------------------------------------------------------------------------------------------- orders

    def obey(self, order: Order) -> Reply:
        """Take the messages, do what they ask for, save, and only then say what is to be sent."""
        client = self.client
        try:
            if order.task is not Task.HELLO:
                self._take(order.messages)
                self._act(order)
            self._save()
        except SecEAError as error:
            if not isinstance(error, ProtocolError) or client.vouched:
                client.stop()  # whatever is refused ends the attempt: nobody can try again and see the difference
            self._log.noted("stopped", why=str(error))
            return self._reply([], told(error))
        messages: list[Buffer] = [client.link.hello_message()]
        if order.task is not Task.HELLO:
            messages = list(client.outbox())
        self._log.sent(messages)
        return self._reply(messages)

    def _reply(self, messages: list[Buffer], fault: str = "") -> Reply:
        return Reply(messages, fault, standing=self.client.standing.to_bytes())

    def _take(self, messages: list[Buffer]) -> None:
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

    def _act(self, order: Order) -> None:
        """What the server's last message asks for; or its order, in a form that has no message for it."""
        client, form = self.client, self._session.form
        ordered = order.task is Task.ROUND and order.round == client.at.round + 1
        if client.asked and (ordered or self._session.asks):
            self._contribute(client.at.round + 1)
        elif client.at.phase == form.end_phase and self._table is not None:
            self._participant.done(self.means())
            self._keep(None, 0)

    def _contribute(self, round: int) -> None:
        """Train on new means, and contribute the new table; without new means, the last one once more."""
        names, part = canonical_names(self._participant.names()), self.client.part
        if set(names) != set(part.next_names):
            part.update(names, at_once=False)
        if part.unsettled:
            return
        if self._table is None or part.has_means or set(self._table.names) != set(names):
            self._train(round)
        assert self._table is not None
        try:
            self.client.contribute(self._table, self._trained)
        except RoundLost as lost:  # others have seen what was trained then
            self._log.noted("lost", why=str(lost))
            self._train(round)
            self.client.contribute(self._table, self._trained)

    def _train(self, round: int) -> None:
        trained = self._participant.train(self.means(), round)
        self._keep(as_table(trained, self._session.params.dim), round)

    def means(self) -> Table | None:
        """The means of the last round, in the order of the last table; None before the first, or where it was lost."""
        table = self._table
        if table is None or not self.client.part.has_means:
            return None
        return Table.trusted(table.names, self.client.part.means_like(table))
