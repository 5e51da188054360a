"""A client at its own site: `Host` joins the state machine, its saved state, its log, and the user's functions.

Engines hand it orders, and send back its replies. Only messages that the server sealed for this life of the client can
change its state; they say when to train and when a run is over. An order that is forged, late or repeated does nothing.
An authentic message that is wrong ends the attempt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from secea.engines import spool
from secea.engines.log import Log
from secea.engines.memory import resident
from secea.engines.port import Order, Reply, Task, gathered, refusal
from secea.engines.store import Store
from secea.errors import CallError, ParamsError, ProtocolError, RoundLost, SecEAError, SnapshotError, Stale
from secea.party.client import Client
from secea.party.session import Session
from secea.table import Name, Table, TableLike, as_table
from secea.wire import snapshot
from secea.wire.keys import Identity
from secea.wire.messages import Buffer

WAIT: Final = (
    "more new names than max_new_entities has room for: they come with the next change of entities, yours or another"
    " client's; agree on a larger max_new_entities in the next federation file"
)


@dataclass(frozen=True, eq=False, repr=False)
class Means(Table):
    """The means of the last round. An entity without a mean has the row that this client gave. Only it knows which."""

    without_mean: tuple[Name, ...] = ()
    """The entities without a mean."""
    below_minimum: tuple[Name, ...] = ()
    """Those of them that have fewer owners than `min_owners`."""


_FOLDERS: Final = re.compile(r"(?<!\w)/(?:[^'\":;,]*/)?(?=\w)")
"""What stands before the name of a file."""


def _nothing(means: Means | None) -> None:
    """The default for `done`: ignore the last means."""


@dataclass(frozen=True)
class Participant:
    """What a client brings to a federation: its entity names and its training function. The same for every engine."""

    names: Callable[[], Iterable[object]]
    """The names of its entities now. When they change between rounds, a new epoch is set up.

    It has room for `max_new_entities` new ones. The others wait for the next change, of this client or another one.
    """
    train: Callable[[Means | None, int], TableLike]
    """(means of the last round, number of this round) -> the table to contribute.

    The means are None before the first round and after a lost round. Then continue training from where you are. Where
    means are weighted, or rows may be left out, the table is a `Table` with weights.
    """
    done: Callable[[Means | None], None] = _nothing
    """Called once at the end of the run, with the means of the last round."""
    dim: int | None = None
    """Numbers in a row of its tables, where that is known before it trains: `secea check` compares it."""


def told(error: Exception) -> str:
    """What the server's side is told about an error at a site: no entities, numbers or other user data, and no folder.

    The site's configuration is not secret, but its data is. The full text goes into the site's own log.
    """
    if isinstance(error, ProtocolError):
        return refusal(error.suspects)
    if isinstance(error, ParamsError | CallError | SnapshotError):
        return _FOLDERS.sub("", str(error))
    return f"{type(error).__name__} at its own side; its log has the rest"


class Host:
    """Client n of a session, as an engine sees it. A new `Host` on the same store is a new life of the same client."""

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
        self._waiting = 0  # how many new names wait, as its log has it
        self._saved = b""
        self._sending: Iterator[tuple[list[Buffer], bool]] = iter(())  # parts of the reply that have not left yet
        self._next = -1  # the number of the first of them; -1 if the state has changed since
        self.client = self._restored() or Client(session, number, identity, participant.names())
        self.client.part.copied = spool.copied

    # ------------------------------------------------------------------------------------------------------- its state

    def _restored(self) -> Client | None:
        saved = self._store.load("client") if self._store else None
        if saved is None or self._store is None:
            return None
        if table := self._store.load("table"):
            content = snapshot.loads(table)
            given = Table(content["names"], content["matrix"], content.get("weights"))
            self._table, self._trained = given, content["round"]
        return Client.restore(self._session, self._identity, saved)

    def _save(self) -> None:
        """Save what must survive a restart, before any message leaves. It is written only if it changed."""
        if self._store is None:
            return
        data = self.client.save()
        if (hashed := snapshot.checksum(data)) != self._saved:
            self._store.save("client", data)
            self._saved = hashed

    def _keep(self, table: Table | None, round: int) -> None:
        self._table, self._trained = table, round
        if self._store and table is None:
            self._store.forget("table")
        elif self._store and table is not None:
            content = {"names": tuple(table.names), "matrix": table.matrix, "round": round}
            content |= {} if table.weights is None else {"weights": table.weights}
            self._store.save("table", snapshot.pieces(content))

    # ---------------------------------------------------------------------------------------------------------- orders

    def obey(self, order: Order) -> Reply:
        """Take the messages, do what they ask for, save, and only then reply with what is to be sent.

        A large reply comes in parts: this gives the first one, and `Task.MORE` the others, made as they are asked for.
        """
        client, number = self.client, order.round if order.task is Task.MORE else 0
        try:
            if order.task not in (Task.HELLO, Task.MORE):
                self._sending, self._next = iter(()), -1
                self._take(order.messages)
                if order.task is Task.TAKE:
                    return Reply()  # nothing of the new state leaves, so that it need not be saved
                self._act(order)
            if self._next != number:
                self._save()
        except SecEAError as error:
            if not isinstance(error, ProtocolError) or client.vouched:
                self._sending, self._next = iter(()), -1
                client.stop()  # any refusal ends the attempt, so that nobody can vary a message and compare
            self._log.noted("stopped", why=str(error))
            return self._reply([], told(error))
        if order.task is Task.HELLO:
            hello: list[Buffer] = [client.link.hello_message()]
            self._log.sent(hello)
            return self._reply(hello)
        return self._sent(number)

    def _sent(self, number: int) -> Reply:
        """A part of the reply. One that was given before is made again, and is the same; after the last, nothing."""
        if self._next < 0 or number < self._next:
            self._sending, self._next = gathered(self.client.outbox()), 0
        skipped, self._next = number - self._next, number + 1
        for messages, more in islice(self._sending, skipped, None):
            self._log.sent(messages)
            return self._reply(messages, more=more)
        return self._reply([])

    def _reply(self, messages: list[Buffer], fault: str = "", *, more: bool = False) -> Reply:
        return Reply(messages, fault, more, self.client.standing.to_bytes())

    def _take(self, messages: list[Buffer]) -> None:
        for message in messages:
            try:
                self.client.receive(message)
            except Stale as stale:  # it came before: this is a repeated order
                self._log.refused(message, stale)
            except ProtocolError as error:
                self._log.refused(message, error)
                raise
            else:
                self._log.accepted(message)

    def _act(self, order: Order) -> None:
        """Do what the server's last message asks for. In a form without such a message, do what its order says."""
        client, form = self.client, self._session.form
        ordered = order.task is Task.ROUND and order.round == client.at.round + 1
        if client.asked and (ordered or self._session.asks):
            self._contribute(client.at.round + 1)
        elif client.at.phase == form.end_phase and self._table is not None:
            self._participant.done(self.means())
            self._keep(None, 0)

    def _contribute(self, round: int) -> None:
        """Train on new means and contribute the new table. Without new means, contribute the last table once more."""
        names, part = tuple(self._participant.names()), self.client.part
        if not part.has(names):
            part.update(names, at_once=False)
        if part.unsettled:
            return
        self._note_waiting(len(part.waiting))
        if self._table is None or part.has_means or not part.has(self._table.names):
            self._train(round)
        assert self._table is not None
        try:
            self.client.contribute(self._table, self._trained)
        except RoundLost as lost:  # others have already seen what was trained then
            self._log.noted("lost", why=str(lost))
            self._train(round)
            self.client.contribute(self._table, self._trained)

    def _note_waiting(self, names: int) -> None:
        """Tell the site, and nobody else, that new names found no room: an epoch for them would show how many."""
        if names != self._waiting:
            self._log.noted("names wait", count=names, why=WAIT if names else "all have been asked for")
        self._waiting = names

    def _train(self, number: int) -> None:
        self._log.noted("training", round=number)
        started = time.monotonic()
        trained = self._participant.train(self.means(), number)
        self._log.noted("trained", round=number, seconds=round(time.monotonic() - started, 1), **resident())
        self._keep(as_table(trained, self._session.params.dim), number)

    def means(self) -> Means | None:
        """The means of the last round, in the order of the last table. None before the first or after a lost round."""
        table, part = self._table, self.client.part
        if table is None or not part.has_means:
            return None
        means = Means.trusted(table.names, part.means_like(table))
        object.__setattr__(means, "without_mean", part.without_mean)
        object.__setattr__(means, "below_minimum", part.below_minimum)
        return means
