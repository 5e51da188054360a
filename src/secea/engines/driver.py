"""The server's side of a federation, over any engine: it drives the stages, and copes with whoever is lost.

A `Driver` knows nothing of networks and clocks: a `Port` carries its orders and says who did not reply. Whoever fails
in a stage is left out for the rest of the round, called again in the next one, and taken back when it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from secea.arithmetic.field import keep_freed_memory
from secea.engines.log import Log
from secea.engines.port import Failure, Port, Reply, Task
from secea.errors import FederationError, ProtocolError, Stale, party
from secea.server import Phase, Server
from secea.wire.messages import Buffer

ROUND_PHASES = (Phase.SHARE, Phase.ANSWER)


@dataclass(frozen=True)
class Patience:
    """How long a stage may take: a fixed part, a part for its bytes, and, where clients train, their training."""

    stage: float = 30.0
    """Seconds for each stage, whatever its size."""
    bytes_per_second: float = 2e6
    """The slowest link that is waited for."""
    training: float = 3600.0
    """Seconds that a client may train."""

    def seconds(self, size: int, *, training: bool) -> float:
        """For a stage in which a client sends and gets so many bytes."""
        return self.stage + size / self.bytes_per_second + (self.training if training else 0.0)


class Driver:
    """Runs set-up and rounds of a `Server` over a `Port`. `save` gets the server's state before anything leaves."""

    def __init__(
        self,
        server: Server,
        port: Port,
        *,
        patience: Patience | None = None,
        save: Callable[[bytes], None] | None = None,
        log: Log | None = None,
    ) -> None:
        keep_freed_memory()
        self.server, self._port = server, port
        self._patience, self._save, self._log = patience or Patience(), save, log or Log()
        self.present: set[int] = set()
        """Who takes part now."""
        self.failures: dict[int, str] = {}
        """Why each of the others does not: what was heard of it last."""
        self._outside: set[int] = set()  # who answers, and has no part in this epoch
        self._behind: set[int] = set()  # who answers, and has not the weights of the others
        self._missed: set[int] = set()  # who was lost in the last stage: what came of it is not for them
        self._everyone = set(range(server.session.params.N))  # who is called

    @property
    def done(self) -> int:
        """The number of the last round that gave means."""
        return self.server.done

    # ------------------------------------------------------------------------------------------------------- the run

    def setup(self) -> None:
        """Hellos, union, queries and weights, with everyone who replies."""
        with self._given_up_on_error():
            if self.server.phase is Phase.GREETING:
                self._call(self._everyone)
                self._new_epoch()
            else:  # a server that was restored: the clients are where they were
                self.present = set(self.server.members)
                self._get_ready()

    def expect(self, clients: Iterable[int]) -> None:
        """These take part from now on, if they answer; the others are absent, and are not called."""
        self._everyone = set(clients)
        for n in self.present - self._everyone:
            self._lose(n, "it is absent")
        self._call(self._everyone)

    def renew(self) -> None:
        """A new epoch, with everyone who is present: someone's entities changed."""
        with self._given_up_on_error():
            self._new_epoch()

    def round(self) -> None:
        """One round: clients train on the means of the last one, and contribute. Whoever is lost is left out."""
        with self._given_up_on_error():
            self._get_ready()
            self.server.begin_round(self.present)
            while not self._finish_round():
                self._get_ready()
                self.server.begin_round(self.present)

    def finish(self) -> None:
        """The last means go out, and the clients forget the rest."""
        for n, reply in self._exchange(dict.fromkeys(self.present, Task.END)):
            self._heard(n, reply)

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        """What cannot be finished is given up: the next round begins afresh, and with a new epoch if it must."""
        try:
            yield
        except FederationError:
            self.give_up()
            raise

    def give_up(self) -> None:
        """What goes on will not be finished."""
        self.server.abandon()
        if not self._in(Phase.READY):
            self._outside |= self.present
        self._keep()

    def _finish_round(self) -> bool:
        """Whether the round gave means. If not, it is to be begun again with those who are left."""
        while self._in(*ROUND_PHASES):
            self._stage(Task.ROUND if self._in(Phase.SHARE) else Task.STEP)
        if self.server.done == self.server.round:
            finished = self.present & set(self.server.members)  # not those who just came back
            self._log.noted("round", number=self.server.round, clients=sorted(finished))
            return True
        return False

    def _get_ready(self) -> None:
        """Queries and weights of everyone who is present."""
        if self._in(*ROUND_PHASES):  # it was begun by a driver that is no more
            self._finish_round()
        if len(self.present) < self.server.fewest:
            self._call(self._everyone - self.present)
        changed = self._outside or self._behind or self.present != set(self.server.contributors)
        if changed and self.server.queue and self.server.round and self.server.done == self.server.round:
            self._call(self.present, Task.STEP)  # the means go out before anything new begins
        if self._outside or not self.present <= set(self.server.query_members):
            self._new_epoch()
        self._until_ready()
        while self.server.session.form.weighted and (self._behind or self.present != set(self.server.contributors)):
            self._behind, self._missed = set(), set()
            self.server.begin_weights(self.present)
            self._keep()
            self._until_ready()

    def _new_epoch(self) -> None:
        """Everything is set up anew, for all who reply."""
        self._outside, self._behind, self._missed = set(), set(), set()
        self.server.begin_epoch(self.present)
        self._keep()
        self._until_ready()

    def _until_ready(self) -> None:
        while not self._in(Phase.READY):
            self._stage(Task.STEP)

    def _in(self, *phases: Phase) -> bool:
        return self.server.phase in phases

    # ----------------------------------------------------------------------------------------------------- exchanges

    def _call(self, clients: Iterable[int], task: Task = Task.HELLO) -> None:
        """Who is there? A client that answers takes part from now on."""
        for n, reply in self._exchange(dict.fromkeys(clients, task)):
            self._heard(n, reply, settled=True)

    def _stage(self, task: Task) -> None:
        """One stage with all whose turn it is; those who were lost are called at the same time, and not waited for."""
        due = self.present & set(self.server.taking_part)
        waiting = set(due)
        called = self._everyone - self.present if task is Task.ROUND else set[int]()
        for n, reply in self._exchange(dict.fromkeys(called, Task.HELLO) | dict.fromkeys(waiting, task)):
            self._heard(n, reply, settled=n in called or task is Task.ROUND)
            if isinstance(reply, Failure) or not reply.more:
                waiting.discard(n)
            if not waiting:
                break
        for n in waiting:
            self._lose(n, "it did not reply in time")
        if task is Task.ROUND and self._outside & set(self.server.members):  # someone's entities changed
            self.server.abandon()
            return
        self._missed = due - self.present
        try:
            self._close()
        finally:
            self._keep()

    def _close(self) -> None:
        self.server.close()

    def _exchange(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Reply | Failure]]:
        server = self.server
        timeout = self._patience.seconds(server.stage_bytes, training=Task.ROUND in tasks.values())
        return self._port.exchange(tasks, server.round, self._inboxes, timeout)

    def _inboxes(self) -> dict[int, list[Buffer]]:
        """What the server has for each client: all of the stage, or, where it streams, what came up since."""
        if self.server.early:
            return self.server.drain()
        inboxes: dict[int, list[Buffer]] = {}
        for n, message in self.server.outbox():
            if n not in self._missed:
                inboxes.setdefault(n, []).append(message)
        return inboxes

    def _heard(self, n: int, reply: Reply | Failure, *, settled: bool = False) -> None:
        """Take a client's reply. `settled`: it should have been set up for this epoch; if not, another is needed."""
        if isinstance(reply, Failure) or reply.fault:
            self._lose(n, reply.reason if isinstance(reply, Failure) else reply.fault)
            return
        for message in reply.messages:
            try:
                self.server.receive(n, message)
            except Stale as stale:
                self._log.refused(message, stale)
            except ProtocolError as error:
                self._log.refused(message, error)
                self._refused(n, error)
                return
            else:
                self._log.accepted(message)
        self.present.add(n)
        self.failures.pop(n, None)
        if settled and (reply.epoch, reply.attempt) != (self.server.epoch, self.server.attempt):
            self._outside.add(n)
        elif settled and reply.weights != self.server.weights:
            self._behind.add(n)

    def _refused(self, n: int, error: ProtocolError) -> None:
        self._lose(n, str(error))

    def _lose(self, n: int, reason: str) -> None:
        self.present.discard(n)
        self._outside.discard(n)
        self._behind.discard(n)
        self.failures[n] = reason
        self._log.noted("lost", client=party(n), why=reason)

    def _keep(self) -> None:
        if self._save:
            self._save(self.server.save())
