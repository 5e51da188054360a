"""All parties in one process: a port that passes bytes as a network would, and an account of what each party spent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from secea.client import Client
from secea.engines.driver import ROUND_PHASES, Driver
from secea.engines.host import reply
from secea.engines.port import Failure, Reply, Task
from secea.errors import SERVER, ProtocolError, Stale
from secea.server import Server
from secea.table import Table
from secea.wire.messages import Buffer, kind_of

PHASES: Final = ("setup", "offline", "online")
"""What an account tells apart: set-up and new weights; `Federation.prepare`; rounds (section IV of the paper)."""

SMALL_STAGE: Final = 1 << 16
"""A stage with fewer bytes per client is not worth a thread."""


def at_once(clients: int) -> int:
    """How many messages of a client are passed on together: what is on its way takes memory."""
    return max(1, min(clients // 2, 8))


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


class Account:
    """Who spent what, and which messages went where."""

    def __init__(self, clients: int) -> None:
        self.traffic: list[Hop] = []
        self.timing: dict[int | str, dict[str, Cost]] = {}
        self.faults: list[ProtocolError] = []
        self.whole_process = False
        """Whether a party keeps all cores busy: then the process's clock is its own, or else its thread's."""
        self.phase, self.round = "setup", 0
        self.begin(clients)

    def begin(self, clients: int) -> None:
        """So many clients from now on; what the server spent stays."""
        server = self.timing.get("server") or {phase: Cost() for phase in PHASES}
        self.timing = {n: {phase: Cost() for phase in PHASES} for n in range(clients)} | {"server": server}

    def at(self, server: Server) -> str:
        """What follows belongs to the stage that the server is in; its name."""
        online = server.phase in ROUND_PHASES
        self.phase, self.round = ("online", server.round) if online else ("setup", 0)
        return str(server.phase)

    def sent(self, sender: int | str, receiver: int | str, message: Buffer) -> None:
        """A message on its way."""
        self.passed(sender, receiver, kind_of(message).name.lower(), len(message))

    def passed(self, sender: int | str, receiver: int | str, kind: str, size: int) -> None:
        """So many bytes of a kind on their way."""
        self.traffic.append(Hop(self.round, sender, receiver, kind, size))
        self.timing[sender][self.phase].sent += size

    def stored(self, phase: str, server: Server, clients: Mapping[int, Client]) -> None:
        """What everyone keeps at the end of a phase."""
        for n, client in clients.items():
            self.timing[n][phase].stored = client.stored_bytes
        self.timing["server"][phase].stored = server.stored_bytes

    @contextmanager
    def timed(self, stage: str, who: int | str) -> Iterator[None]:
        """Adds the CPU time that passes to a party's record."""
        clock = time.process_time if self.whole_process else time.thread_time
        cost, started = self.timing[who][self.phase], clock()
        try:
            yield
        finally:
            passed = clock() - started
            cost.seconds += passed
            cost.stages[stage] = cost.stages.get(stage, 0.0) + passed


class LocalPort:
    """Carries orders to clients in this process, a few messages of each at a time, so that memory stays small.

    Whoever is not `here` does not answer; whoever has a stage in `losses` is gone in the middle of it. Where a client
    refuses a message the error is raised: nobody here is a stranger.
    """

    def __init__(self, server: Server, clients: dict[int, Client], account: Account) -> None:
        self.server, self.clients, self._account = server, clients, account
        self._stage, self._small = "", True
        self.here: set[int] = set(clients)
        self.losses: dict[int, str] = {}
        self.tables: Mapping[int, Table] = {}
        """What each client contributes to the next round."""
        self._at_once = at_once(server.session.params.clients)
        self._pool = ThreadPoolExecutor(os.cpu_count())

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`. Replies come in parts, and what the server makes of them is passed on in between."""
        account = self._account
        self._stage = stage = account.at(self.server)
        self._small = self.server.stage_bytes < SMALL_STAGE
        self.deliver(inboxes())
        lost = {n for n in self.here & tasks.keys() if self.losses.get(n) == stage}
        streams = {n: self._obey(n, task, round) for n, task in sorted(tasks.items()) if n in self.here}
        self.here -= lost
        for n in lost:
            streams[n] = _all_but_last(streams[n])
        while streams:
            parts = dict(zip(streams, self._map(self._part, streams.items()), strict=True))
            with account.timed(stage, "server"):
                for n, messages in parts.items():
                    for message in messages:
                        account.sent(n, "server", message)
                    yield n, reply(self.clients[n], messages, more=True)
                up = inboxes()
            self.deliver(up)
            streams = {n: stream for n, stream in streams.items() if len(parts[n]) == self._at_once}
        for n in tasks:
            yield n, reply(self.clients[n], []) if n in self.here else Failure("it is not there")

    def deliver(self, inboxes: Mapping[int, list[Buffer]]) -> None:
        """Messages to those who are here."""
        there = [n for n in inboxes if n in self.here]
        for n in there:
            for message in inboxes[n]:
                self._account.sent("server", n, message)
        list(self._map(lambda n: self._take(n, inboxes[n]), there))

    def _take(self, n: int, messages: list[Buffer]) -> None:
        with self._account.timed(self._stage, n):
            for message in messages:
                try:
                    self.clients[n].receive(message)
                except Stale:  # it came before
                    pass
                except ProtocolError as fault:
                    self._account.faults.append(fault)
                    raise

    def _obey(self, n: int, task: Task, round: int) -> Iterator[Buffer]:
        client = self.clients[n]
        if task is Task.HELLO:
            known = self.server.wire.peers.get(n) == client.wire.hello
            return iter([] if known else [client.wire.hello_message()])
        if task is Task.ROUND and client.settled and client.round < round:
            with self._account.timed(self._stage, n):
                client.contribute(self.tables[n], round)
        return client.outbox()

    def _part(self, stream: tuple[int, Iterator[Buffer]]) -> list[Buffer]:
        with self._account.timed(self._stage, stream[0]):
            return list(islice(stream[1], self._at_once))

    def _map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Clients side by side; one after the other where each uses all cores by itself, or has next to nothing to do.

        Where one fails, the others come to an end first: nobody works on when the error is out.
        """
        if self.server.session.form.paillier_bytes or self._small:
            return map(work, items)
        begun = [self._pool.submit(work, item) for item in items]
        wait(begun)
        return [each.result() for each in begun]


def _all_but_last(messages: Iterator[Buffer]) -> Iterator[Buffer]:
    """What leaves a client that is lost in the middle of a stage."""
    held: list[Buffer] = []
    for message in messages:
        yield from held
        held = [message]


class LocalDriver(Driver):
    """A driver beside its clients: what a stage gives is delivered at once, and a wrong message is an error."""

    def __init__(self, server: Server, port: LocalPort, account: Account) -> None:
        super().__init__(server, port)
        self.port, self._account = port, account

    def _close(self) -> None:
        try:
            with self._account.timed(str(self.server.phase), "server"):
                super()._close()
        finally:  # where the server gives up, it tells the clients
            self.port.deliver(self.server.drain())

    def _refused(self, n: int, error: ProtocolError) -> None:
        self._account.faults.append(error)
        raise error

    def restart(self, *numbers: int) -> None:
        """Save and restore parties, all of them if none is named."""
        clients = self.port.clients
        for n in numbers or (*clients, SERVER):
            if n == SERVER:
                wire, saved = self.server.wire, self.server.save()
                self.server = Server.restore(wire.session, wire.identity, saved, wire.entropy, early=True)
                self.port.server = self.server
            else:
                wire, saved = clients[n].wire, clients[n].save()
                clients[n] = Client.restore(wire.session, wire.identity, saved, wire.entropy)
