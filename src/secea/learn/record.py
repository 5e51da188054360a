"""What a call of the protocol took: time, CPU by who spent it, bytes by kind. It knows no form."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar
from unittest.mock import patch

from secea.engines.federation import Federation
from secea.engines.traffic import Hop
from secea.errors import SERVER
from secea.party.phases import REST
from secea.wire.keys import Opener, Sealer
from secea.wire.link import Signer, Verifier
from secea.wire.messages import Buffer, Header

R = TypeVar("R")
Spent = dict[tuple[str, str], float]
"""CPU seconds by side (clients, server) and stage of the protocol."""
AT_REST: Final = "contribute"
"""What clients do between two stages: they encode their tables."""


@contextmanager
def recorded(federation: Federation) -> Iterator[dict[str, Any]]:
    """A line of protocol.jsonl, without its round, about what is done with the federation meanwhile."""
    record: dict[str, Any] = {}
    before, hops, started = _spent(federation), len(federation.traffic), time.perf_counter()
    with _sealing() as sealed:
        yield record
    wall, after = time.perf_counter() - started, _spent(federation)
    spent = {what: seconds - before.get(what, 0.0) for what, seconds in after.items()}
    record.update(wall=wall, **_cpu(spent, sealed), **_bytes(federation.traffic[hops:]))


def _spent(federation: Federation) -> Spent:
    """By all parties, so far."""
    total: Spent = defaultdict(float)
    for who, phases in federation.timing.items():
        for cost in phases.values():
            for stage, seconds in cost.stages.items():
                total[_side(who == "server"), AT_REST if stage == REST else stage] += seconds
    return total


def _side(server: bool) -> str:
    return "server" if server else "clients"


@contextmanager
def _sealing() -> Iterator[list[tuple[str, float]]]:
    """CPU seconds of each sealing, opening, signing and verifying while it lasts, by side."""
    spent: list[tuple[str, float]] = []

    def timed(side: str, work: Callable[..., R], *args: Any) -> R:
        started = time.thread_time()
        try:
            return work(*args)
        finally:
            spent.append((side, time.thread_time() - started))

    def sealing(seal: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *rest: timed(_side(self.header.sender == SERVER), seal, self, *rest)

    def signing(seal: Callable[..., Any]) -> Callable[..., Any]:  # what is signed for all comes from clients
        return lambda self, *rest: timed("clients", seal, self, *rest)

    def opening(open_: Callable[..., Any]) -> Callable[..., Any]:
        def opened(self: Opener | Verifier, header: Header, message: Buffer) -> Any:
            return timed(_side(header.receiver == SERVER), open_, self, header, message)

        return opened

    with ExitStack() as patched:
        for cls, name, by in (
            (Sealer, "seal", sealing),
            (Signer, "seal", signing),
            (Opener, "open", opening),
            (Verifier, "open", opening),
        ):
            patched.enter_context(patch.object(cls, name, by(getattr(cls, name))))
        yield spent


def _cpu(spent: Spent, sealed: Sequence[tuple[str, float]]) -> dict[str, dict[str, float]]:
    """Of clients and server without the sealing, which stands apart; and by stage with it."""
    stages: dict[str, float] = defaultdict(float)
    cpu = {"clients": 0.0, "server": 0.0, "sealing": 0.0}
    for (side, stage), seconds in spent.items():
        cpu[side] += seconds
        stages[stage] += seconds
    for side, seconds in sealed:
        cpu[side] -= seconds
        cpu["sealing"] += seconds
    positive = {part: max(0.0, seconds) for part, seconds in cpu.items()}
    return {"cpu": positive, "stages": {stage: seconds for stage, seconds in stages.items() if seconds > 0}}


def _bytes(hops: Sequence[Hop]) -> dict[str, Any]:
    """Of all hops by kind; and what the busiest client and the server sent."""
    sizes: Counter[str] = Counter()
    sent: Counter[int | str] = Counter()
    for hop in hops:
        sizes[hop.kind] += hop.size
        sent[hop.sender] += hop.size
    server = sent.pop("server", 0)
    return {"bytes": dict(sizes), "client_bytes": max(sent.values(), default=0), "server_bytes": server}
