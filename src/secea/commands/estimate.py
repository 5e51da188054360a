"""Estimate CPU times for `secea plan`: time samples of the work on this machine, and count how often each one comes.

A form says what its parties do, and how often (`Form.chores`). Its table of phases gives the bytes that go through
ciphers, and the number of messages. Every sample calls what the parties call: clients' work on all cores at once, as in
a `Federation`, and the server's by itself. What it works on is not in the cache, as in a round, where every buffer has
been left alone since others had their turn.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.threads import stay_in_this_thread
from secea.engines.federation import Federation
from secea.forms.costs import Costs, round_costs, setup_costs
from secea.params import Params
from secea.party.form import Form
from secea.wire.keys import Mac, Opener, Sealer
from secea.wire.messages import ALL, CHUNK_BYTES, NO_CONTEXT, SALT_BYTES, Header

PHASES: Final = ("setup", "round")
PARTIES: Final = ("client", "server")
TIMES: Final = (3, 12)
"""The fewest and the most times that a sample is timed; the median counts."""
ENOUGH: Final = 0.01
"""Seconds of CPU that are enough for one sample."""
CACHE_BYTES: Final = 1 << 25
"""What is written before each sample, so that nothing of it stays in the cache of its core."""
SIZES: Final = (3, 6)
"""Clients of the federations whose messages are timed."""
ROUNDS: Final = 3
"""Their rounds."""

Work = Callable[[], object]
Seconds = dict[str, dict[str, float]]
"""By phase and party: the CPU time of one client, and of the server."""


@dataclass(frozen=True)
class Line:
    """Seconds for a number of chunks of messages."""

    first: float
    each: float

    @staticmethod
    def through(one: tuple[int, float], other: tuple[int, float]) -> Line:
        """The line through two measurements. Neither part is negative."""
        each = max(0.0, (other[1] - one[1]) / max(1, other[0] - one[0]))
        return Line(max(0.0, one[1] - each * one[0]), each)

    def at(self, chunks: int) -> float:
        """The seconds of so many."""
        return self.first + self.each * chunks


@dataclass(frozen=True)
class Machine:
    """What samples took on this machine. Each is timed when it is first asked for, and then known."""

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    known: dict[str, float] = field(default_factory=dict)
    """CPU seconds of a sample, by the name of its chore."""
    lines: dict[str, dict[tuple[str, str], Line]] = field(default_factory=dict)
    """What messages take beside what is in them, by phase and party: all clients together, and the server."""

    def seconds(self, params: Params, entities: int, form: Form) -> Seconds:
        """The CPU time of one client and of the server, by phase. The bounds in `params` must be set."""
        found = self._worked(params, entities, form, know=True)
        costs = {"setup": setup_costs(form, params, entities), "round": round_costs(form, params, entities)}
        for phase, cost in costs.items():
            for party, seconds in self._sent(params, form, phase, cost).items():
                found[phase][party] += seconds / (params.N if party == "client" else 1)
        return found

    def _worked(self, params: Params, entities: int, form: Form, *, know: bool) -> Seconds:
        """Time for all chores of the form; or only for those that are known."""
        found: Seconds = {phase: dict.fromkeys(PARTIES, 0.0) for phase in PHASES}
        for name, chore in form.chores(params, entities).items():
            alone = all(party == "server" for _, party in chore.times)
            if know or name in self.known:
                each = self._once(name, chore.prepare, alone=alone)
                for (phase, party), times in chore.times.items():
                    found[phase][party] += each * times
        return found

    def _once(self, name: str, prepare: Callable[[], Work], *, alone: bool) -> float:
        if name not in self.known:
            self.known[name] = timed([prepare() for _ in range(1 if alone else self.cores)])
        return self.known[name]

    # --------------------------------------------------------------------------------------------------------- messages

    def _sent(self, params: Params, form: Form, phase: str, cost: Costs) -> Mapping[str, float]:
        """What ciphers take, and the messages themselves: all clients together, and the server."""
        lines = self._lines(params, form)
        found = {party: lines[phase, party].at(cost.hops) for party in PARTIES}
        for (party, what), size in cost.ciphers.items():
            each = self._once(f"{what}, {party}", CIPHERS[what], alone=party == "server")
            found[party] += each * size / CHUNK_BYTES
        return found

    def _lines(self, params: Params, form: Form) -> Mapping[tuple[str, str], Line]:
        """From two small federations that have the same phases as this one, and almost nothing to do in them."""
        name = f"{form.name}, {'some' if params.dropouts else 'no'} drop-outs"
        if name not in self.lines:
            points: dict[tuple[str, str], list[tuple[int, float]]] = {}
            for clients in SIZES:
                for at, point in self._idle(*form.idle(params, clients)):
                    points.setdefault(at, []).append(point)
            self.lines[name] = {at: Line.through(*two) for at, two in points.items()}
        return self.lines[name]

    def _idle(self, form: Form, params: Params) -> Iterable[tuple[tuple[str, str], tuple[int, float]]]:
        """For each phase and party of such a federation: its messages, and the CPU seconds beyond known chores."""
        names = [[n] for n in range(params.clients)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about few clients
            fed = Federation(params, form)
        known = self._worked(fed.params, params.clients, form, know=False)
        works: dict[str, Work] = {
            "setup": lambda: fed.setup(names),
            "round": lambda: fed.round([{n: [0.0] * params.dim} for n in range(params.clients)]),
        }
        for phase, work in works.items():
            times = 1
            if phase == "round":
                work()  # the first one is slower
                times = ROUNDS
            hops, clients, whole = len(fed.traffic), _clients(fed), time.process_time()
            for _ in range(times):
                work()
            hops, clients, whole = len(fed.traffic) - hops, _clients(fed) - clients, time.process_time() - whole
            spent = {"client": clients, "server": whole - clients}
            for party, seconds in spent.items():
                chores = known[phase][party] * (params.clients if party == "client" else 1)
                yield (phase, party), (hops // times, max(0.0, seconds / times - chores))


def _clients(fed: Federation) -> float:
    """CPU seconds of all clients so far."""
    return sum(cost.seconds for n in range(fed.params.N) for cost in fed.timing[n].values())


def timed(works: list[Work]) -> float:
    """CPU seconds of one of these works, when each runs in a thread of its own at the same time."""
    several = len(works) > 1
    clock = time.thread_time if several else time.process_time
    others = [np.zeros(CACHE_BYTES // 8) for _ in works]

    def spent(work: Work, other: NDArray[np.float64]) -> float:
        np.add(other, 1.0, out=other)
        started = clock()
        work()
        return clock() - started

    with ThreadPoolExecutor(len(works), initializer=stay_in_this_thread if several else None) as pool:
        once = max(pool.map(spent, works, others), default=0.0)  # what is loaded on first use is loaded now
        times = min(TIMES[1], max(TIMES[0], round(ENOUGH / max(once, 1e-6))))
        return statistics.median(each for _ in range(times) for each in pool.map(spent, works, others))


# ------------------------------------------------------------------------------------------------------------- ciphers


class _Kind(IntEnum):
    """Of no form: ciphers take as long for any message."""

    ANY = 1


def _header() -> Header:
    return Header(_Kind.ANY, 0, ALL, 1, 1, 1, 0, 1, 1, NO_CONTEXT, bytes(SALT_BYTES))


def _seal() -> Work:
    payload, sealer = bytes(CHUNK_BYTES), Sealer(bytes(32), _header())
    return lambda: sealer.seal(0, payload)


def _open() -> Work:
    header = _header()
    message, opener = Sealer(bytes(32), header).seal(0, bytes(CHUNK_BYTES)), Opener(bytes(32), header)
    return lambda: opener.open(header, message)


def _tag() -> Work:
    message = bytes(CHUNK_BYTES)
    return lambda: Mac(bytes(32)).update(message)


CIPHERS: Final = {"seal": _seal, "open": _open, "tag": _tag}
