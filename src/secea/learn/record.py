"""What a call of the protocol took: time, CPU by who spent it, bytes by kind. It knows no form."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from secea.engines.federation import Federation
from secea.engines.traffic import Hop
from secea.errors import SERVER
from secea.party.phases import REST

Spent = dict[tuple[str, str], float]
"""CPU seconds by side (clients, server) and stage of the protocol."""
AT_REST: Final = "contribute"
"""What clients do between two stages: they encode their tables."""


@contextmanager
def recorded(federation: Federation) -> Iterator[dict[str, Any]]:
    """A line of protocol.jsonl, without its round, about what is done with the federation meanwhile."""
    record: dict[str, Any] = {}
    before, hops, seals = _spent(federation), len(federation.traffic), len(federation.sealed)
    started = time.perf_counter()
    yield record
    sealed = [(_side(who == SERVER), seconds) for who, seconds in federation.sealed[seals:]]
    wall, after = time.perf_counter() - started, _spent(federation)
    spent = {what: seconds - before.get(what, 0.0) for what, seconds in after.items()}
    record.update(wall=wall, **_cpu(spent, sealed), **_bytes(federation.traffic[hops:]))


def _spent(federation: Federation) -> Spent:
    """What all parties have spent so far."""
    total: Spent = defaultdict(float)
    for who, phases in federation.timing.items():
        for cost in phases.values():
            for stage, seconds in cost.stages.items():
                total[_side(who == "server"), AT_REST if stage == REST else stage] += seconds
    return total


def _side(server: bool) -> str:
    return "server" if server else "clients"


def _cpu(spent: Spent, sealed: Sequence[tuple[str, float]]) -> dict[str, dict[str, float]]:
    """CPU time of clients and server without sealing, which is separate; and by stage, with sealing."""
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
    """Bytes of all hops by kind, and what the busiest client and the server sent."""
    sizes: Counter[str] = Counter()
    sent: Counter[int | str] = Counter()
    for hop in hops:
        sizes[hop.kind] += hop.size
        sent[hop.sender] += hop.size
    server = sent.pop("server", 0)
    return {"bytes": dict(sizes), "client_bytes": max(sent.values(), default=0), "server_bytes": server}
