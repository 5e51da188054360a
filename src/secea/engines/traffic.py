"""Accounts of a `Federation`: which messages were sent, and what each party spent. Sealing is counted separately."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Final

from secea.errors import ProtocolError
from secea.party.session import Session
from secea.wire.keys import Identity
from secea.wire.link import Link, Opened, Writer
from secea.wire.messages import Buffer, Header
from secea.wire.randomness import Entropy

PHASES: Final = ("setup", "offline", "online")
"""The phases of an account: the set-up; `Federation.prepare`; rounds (section IV of the paper)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One message on one leg of its way: from a client to the server, or from the server to a client."""

    round: int
    """0 in the set-up."""
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
    stages: dict[str, float] = field(default_factory=dict)
    """CPU seconds by phase of the protocol."""


class Account:
    """Records who spent what, and which messages went where."""

    def __init__(self, clients: int) -> None:
        self.traffic: list[Hop] = []
        self.timing: dict[int | str, dict[str, Cost]] = {}
        self.faults: list[ProtocolError] = []
        self.sealed: list[tuple[int, float]] = []
        """Who sealed, signed, opened or verified a chunk, and the CPU seconds that it took."""
        self.phase, self.round = "setup", 0
        self.begin(clients)

    def begin(self, clients: int) -> None:
        """Start again with this number of clients. What the server spent is kept."""
        server = self.timing.get("server") or {phase: Cost() for phase in PHASES}
        self.timing = {n: {phase: Cost() for phase in PHASES} for n in range(clients)} | {"server": server}

    def passed(self, sender: int | str, receiver: int | str, kind: str, size: int) -> None:
        """Record a message of this kind and size."""
        self.traffic.append(Hop(self.round, sender, receiver, kind, size))
        self.timing[sender][self.phase].sent += size

    @contextmanager
    def timed(self, stage: str, who: int | str) -> Iterator[None]:
        """Adds the CPU time that passes to a party's record."""
        # Clients work in parallel, each in its own thread. The server works by itself, on all cores.
        clock = time.process_time if who == "server" else time.thread_time
        cost, started = self.timing[who][self.phase], clock()
        try:
            yield
        finally:
            passed = clock() - started
            cost.seconds += passed
            cost.stages[stage] = cost.stages.get(stage, 0.0) + passed


class _MeteredWriter:
    """A writer that records the CPU time of sealing."""

    def __init__(self, writer: Writer, meter: MeteredLink) -> None:
        self._writer, self._meter = writer, meter

    def seal(self, chunk: int, *payload: Buffer) -> Buffer:
        """The chunk as it travels."""
        with self._meter.timed():
            return self._writer.seal(chunk, *payload)


class MeteredLink(Link):
    """A link that records the CPU time of sealing and opening."""

    sealed: list[tuple[int, float]]

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Record the CPU time that passes in this thread."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.sealed.append((self.number, time.thread_time() - started))

    def sealer(self, label: Header, receiver: int, chunks: int = 1) -> Writer:
        """The same as in `Link`, and its time is recorded."""
        return _MeteredWriter(super().sealer(label, receiver, chunks), self)

    def signer(self, label: Header, chunks: int = 1) -> Writer:
        """The same as in `Link`, and its time is recorded."""
        return _MeteredWriter(super().signer(label, chunks), self)

    def broadcaster(self, label: Header, chunks: int, key: bytes) -> Writer:
        """The same as in `Link`, and its time is recorded."""
        return _MeteredWriter(super().broadcaster(label, chunks, key), self)

    def open(self, header: Header, message: Buffer) -> Opened:
        """The same as in `Link`, and its time is recorded."""
        with self.timed():
            return super().open(header, message)


@dataclass(frozen=True)
class MeteredSession(Session):
    """A session whose parties' sealing is measured."""

    link_type: ClassVar[type[Link]] = MeteredLink
    sealed: list[tuple[int, float]] = field(default_factory=list, repr=False, compare=False)

    def link(self, number: int, identity: Identity, entropy: Entropy, introduction: bytes = b"") -> Link:
        """A new life of a party, with a meter."""
        made = super().link(number, identity, entropy, introduction)
        assert isinstance(made, MeteredLink)
        made.sealed = self.sealed
        return made
