"""All parties of a session in one process: bytes are passed between them as a network would, a few chunks at a time.

A `Tap` sits on every hop. It sees each message before it is delivered, and what it gives back is delivered instead:
this is where tests, the audit and fuzzing listen, drop and forge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from itertools import islice
from typing import Any, Final, Protocol

from secea.arithmetic.field import give_back_freed_memory
from secea.arithmetic.threads import stay_in_this_thread
from secea.engines.port import Failure, Reply, Task, Terms
from secea.engines.spool import rest
from secea.errors import SERVER, FederationError, Stale, party
from secea.party.client import Client
from secea.party.form import HELD_BYTES
from secea.party.phases import GREETING, REST
from secea.party.server import Server
from secea.wire.messages import Buffer

AT_ONCE: Final = 2
"""Chunks of each client that are on their way together: they take memory."""


FEW: Final = 4
"""Clients that send something large at the same time. It does not depend on the machine: transcripts do not, either."""


class Tap(Protocol):
    """Sees each message on each hop, and says what is delivered."""

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """The messages that arrive instead: itself, nothing, others."""
        ...


def untouched(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
    """A tap that lets everything pass."""
    return (message,)


Clock = Callable[[int, str], AbstractContextManager[Any]]
"""`clock(party, phase)` times what a party does."""


class Exchange:
    """Runs phases between a server and its clients."""

    def __init__(
        self,
        server: Server,
        clients: dict[int, Client],
        *,
        tap: Tap = untouched,
        clock: Clock = lambda _party, _phase: nullcontext(),
    ) -> None:
        self.server, self.clients, self.tap, self.clock = server, clients, tap, clock
        self.losses: dict[int, str] = {}
        """Clients that vanish in the middle of a phase."""
        self.here: set[int] = set(clients)
        self.contribute: Callable[[int], None] = _untrained
        """What a client does that is asked for training."""
        self._cores = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._cores, initializer=stay_in_this_thread)

    def close(self) -> None:
        """Stop: nothing more happens here."""
        self._pool.shutdown(wait=False)

    def greet(self) -> None:
        """Every present client says hello to the server."""
        for n in sorted(self.here):
            client = self.clients[n]
            if self.server.link.incarnation(n) != client.link.hello.incarnation:
                self._hand_over(n, [client.link.hello_message()])

    def run(self, phase: str, members: Iterable[int], *, until: str = REST) -> None:
        """Begin a phase, unless it has passed, and continue until the server is at rest.

        Whoever is lost costs what the table says.
        """
        if self.server.at.phase in (REST, GREETING) or self.server.session.asks:
            self.server.begin(phase, members)
        while self.server.at.phase != until:
            self.step()

    def ask(self, members: Iterable[int], contribute: Callable[[int], None]) -> None:
        """Ask clients for what they trained, and hear that all are ready."""
        self.server.begin(self.server.session.form.ready_phase, members)
        self.deliver()
        self.each([n for n in members if n in self.here], contribute)
        self.step()

    def step(self) -> None:
        """One phase: what clients send, what the server makes of it, and what they get back."""
        server, phase = self.server, self.server.at.phase
        row, members = server.row, server.at.members
        for n, reply in self.exchange(dict.fromkeys(members, Task.STEP), 0, server.drain, Terms(0.0)):
            for message in () if isinstance(reply, Failure) else reply.messages:
                server.receive(n, message)
        vanished = set(members) - self.here
        with self.clock(SERVER, phase):
            if not vanished:
                server.close()
            elif not server.end():
                server.begin(row.on_loss, set(members) - vanished)
        self.deliver()

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`. Replies come in parts, and what the server makes of them is passed on in between."""
        phase = self.server.at.phase
        self._pass_on(inboxes())
        lost = {n for n in self.here & tasks.keys() if self.losses.get(n) == phase}
        here = [n for n in sorted(tasks) if n in self.here]
        if Task.ROUND in tasks.values():
            self.each([n for n in here if self.clients[n].asked], self.contribute)
        streams = {n: self._sends(n, tasks[n]) for n in here}
        for n in lost:
            streams[n] = _all_but_last(streams[n])
        self.here -= lost
        # Large messages that the server answers only at the end: a few clients end first, and less has to be kept.
        row, streamed = self.server.row, self.server.session.form.streamed
        later = not streamed.isdisjoint(row.sends) and streamed.isdisjoint(row.answers)
        large = later and any(self._size(kind, n) > HELD_BYTES for kind in row.sends for n in here[:1])
        for some in _grouped(streams, FEW if later else len(streams)):
            yield from self._drawn(some, phase, inboxes)
            if large:
                give_back_freed_memory()  # what these clients worked with: others need it now
        for n in tasks:
            if n in self.here:
                yield n, Reply([], standing=self.clients[n].standing.to_bytes())
            else:
                yield n, Failure("it is not there")

    def _drawn(
        self, streams: Mapping[int, Iterator[Buffer]], phase: str, inboxes: Callable[[], Mapping[int, list[Buffer]]]
    ) -> Iterator[tuple[int, Reply]]:
        """All that these clients send, in parts; after each part the clients get what came of it."""
        while streams:
            more: dict[int, Iterator[Buffer]] = {}
            for some in _grouped(streams, self._cores):  # their chunks are used up while they are in the cache
                parts = self._map(self._part, some.items())
                with self.clock(SERVER, phase):
                    for n, messages in zip(some, parts, strict=True):
                        standing = self.clients[n].standing.to_bytes()
                        for message in messages:  # one by one: a tap sees what came of those before
                            yield n, Reply(list(self.tap(n, SERVER, message)), more=True, standing=standing)
                        if len(messages) == AT_ONCE:
                            more[n] = some[n]
            with self.clock(SERVER, phase):
                on = inboxes()
            self._pass_on(on)
            streams = more

    def _size(self, kind: IntEnum, n: int) -> int:
        session, at = self.server.session, self.server.at
        return session.form.layout(kind, session.params, at, n, SERVER).wire_bytes

    def _sends(self, n: int, task: Task) -> Iterator[Buffer]:
        client = self.clients[n]
        if task is not Task.HELLO:
            return client.outbox()
        known = self.server.link.incarnation(n) == client.link.hello.incarnation
        return iter([] if known else [client.link.hello_message()])

    def _hand_over(self, n: int, messages: Iterable[Buffer]) -> None:
        with self.clock(SERVER, self.server.at.phase):
            for message in messages:
                for arrives in self.tap(n, SERVER, message):
                    self.server.receive(n, arrives)

    def deliver(self) -> None:
        """What the server has for each client."""
        self._pass_on(self.server.drain())

    def _pass_on(self, inboxes: Mapping[int, list[Buffer]]) -> None:
        self._map(self._take, [(n, messages) for n, messages in inboxes.items() if n in self.here])

    def _take(self, inbox: tuple[int, list[Buffer]]) -> None:
        n, messages = inbox
        with self.clock(n, self.clients[n].at.phase):
            for message in messages:
                for arrives in self.tap(SERVER, n, message):
                    try:
                        self.clients[n].receive(arrives)
                    except Stale:  # it came before
                        continue
                rest(message)  # others may get it later

    def _part(self, stream: tuple[int, Iterator[Buffer]]) -> list[Buffer]:
        n, messages = stream
        with self.clock(n, self.clients[n].at.phase):
            return list(islice(messages, AT_ONCE))

    def _map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Clients side by side. Where one fails, the others come to an end first."""
        begun = [self._pool.submit(work, item) for item in items]
        wait(begun)
        return [each.result() for each in begun]

    def each(self, clients: Iterable[int], work: Callable[[int], None]) -> None:
        """The same for several clients, side by side."""

        def timed(n: int) -> None:
            with self.clock(n, self.clients[n].at.phase):
                work(n)

        self._map(timed, clients)

    def check_finished(self) -> None:
        """Nobody waits for something that never came."""
        for n in sorted(self.here & set(self.server.at.members)):
            if overdue := self.clients[n].overdue():
                raise overdue


def _grouped(streams: Mapping[int, Iterator[Buffer]], size: int) -> Iterator[dict[int, Iterator[Buffer]]]:
    left = iter(streams.items())
    while some := dict(islice(left, size)):
        yield some


def _untrained(n: int) -> None:
    raise FederationError(f"{party(n)} has no table to contribute")


def _all_but_last(messages: Iterator[Buffer]) -> Iterator[Buffer]:
    """What leaves a client that is lost in the middle of a phase."""
    held: list[Buffer] = []
    for message in messages:
        yield from held
        held = [message]
