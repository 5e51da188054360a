"""Who sent what in a federation within one process, and what each party spent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from secea.errors import ProtocolError

PHASES: Final = ("setup", "offline", "online")
"""What an account tells apart: the set-up; `Federation.prepare`; rounds (section IV of the paper)."""


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
    """Who spent what, and which messages went where."""

    def __init__(self, clients: int) -> None:
        self.traffic: list[Hop] = []
        self.timing: dict[int | str, dict[str, Cost]] = {}
        self.faults: list[ProtocolError] = []
        self.phase, self.round = "setup", 0
        self.begin(clients)

    def begin(self, clients: int) -> None:
        """So many clients from now on; what the server spent stays."""
        server = self.timing.get("server") or {phase: Cost() for phase in PHASES}
        self.timing = {n: {phase: Cost() for phase in PHASES} for n in range(clients)} | {"server": server}

    def passed(self, sender: int | str, receiver: int | str, kind: str, size: int) -> None:
        """So many bytes of a kind on their way."""
        self.traffic.append(Hop(self.round, sender, receiver, kind, size))
        self.timing[sender][self.phase].sent += size

    @contextmanager
    def timed(self, stage: str, who: int | str) -> Iterator[None]:
        """Adds the CPU time that passes to a party's record."""
        # Clients work side by side, each in its own thread; the server alone, on all cores.
        clock = time.process_time if who == "server" else time.thread_time
        cost, started = self.timing[who][self.phase], clock()
        try:
            yield
        finally:
            passed = clock() - started
            cost.seconds += passed
            cost.stages[stage] = cost.stages.get(stage, 0.0) + passed
