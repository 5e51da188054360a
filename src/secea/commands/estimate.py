"""How long a federation would take: small ones are run for real, and their times are extended to its size.

At a fixed number of clients, bytes and multiplications grow in a straight line with the entities, and so does the time.
Two sizes give the line. For more clients than can be tried out at once, the line is that of fewer, over bytes plus
multiplications, and what does not depend on the entities grows with the number of pairs: a rough guess.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from secea.engines.federation import Federation
from secea.errors import TwoClients
from secea.params import Params
from secea.party.form import Form
from secea.plan import Plan, plan
from secea.table import Table

PHASES: Final = ("setup", "round")
PARTIES: Final = ("client", "server")
KEYS: Final = "keys"
"""The stage in which keys are made: its time is luck, and does not depend on sizes."""


@dataclass(frozen=True)
class Trial:
    """One phase of a federation that was run: what it cost."""

    work: int
    """What the form says that time grows with."""
    entities: int
    seconds: Mapping[str, float]
    """CPU time by party: a client (the mean of all), the server."""


@dataclass(frozen=True)
class Rates:
    """What the trials say about other federations: a smaller and a larger one for each phase."""

    clients: int
    form: Form
    trials: Mapping[str, tuple[Trial, Trial]]
    keys: float
    """Seconds in which a client makes its keys."""

    def seconds(self, params: Params, cost: Plan) -> dict[str, dict[str, float]]:
        """CPU seconds by phase, of one client and of the server."""
        found: dict[str, dict[str, float]] = {phase: {} for phase in PHASES}
        more = params.N / self.clients
        for phase, (small, large) in self.trials.items():
            for party in PARTIES:
                slope = max(0.0, large.seconds[party] - small.seconds[party]) / max(1, large.work - small.work)
                fixed = max(0.0, small.seconds[party] - slope * small.work)
                work = self.form.work(cost, phase)  # of all clients together
                one = party == "client"
                found[phase][party] = fixed * (more if one else more**2) + slope * work / (more if one else 1)
        found["setup"]["client"] += self.keys
        return found


def measured(params: Params, entities: int, form: Form) -> Rates:
    """Run small federations like this one. `params` has its bounds."""
    assert params.max_entities is not None
    few, smallest, names = form.trial(params)
    share = params.max_entities / entities
    most = max(2 * smallest, min(entities, names // max(1, round(few.N * share))))
    _run(few, 3, 1.0, form, rounds=1)  # what is loaded on first use is loaded now
    first, small, keys = _run(few, smallest, share, form, rounds=3)
    last, large, _ = _run(few, most, share, form, rounds=3)
    return Rates(few.N, form, {"setup": (first, last), "round": (small, large)}, keys)


def _bounded(params: Params, entities: int, share: float) -> Params:
    own = min(entities, max(1, -(-entities // params.N), round(entities * share)))
    return replace(params, max_entities=own, max_union=entities)


def _run(params: Params, entities: int, share: float, form: Form, *, rounds: int) -> tuple[Trial, Trial, float]:
    """Set-up, a round, and seconds of one key, with made-up embeddings. The first of several rounds does not count."""
    params = _bounded(params, entities, share)
    tables = list(_tables(params, entities))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoClients)
        fed = Federation(params, form)
    fed.setup([table.names for table in tables])
    before = _spent(fed, "online")
    for number in range(rounds):
        fed.round(tables)
        if number == 0 and rounds > 1:  # it pays for memory
            before = _spent(fed, "online")
    counted = max(1, rounds - 1)
    cost = plan(params, entities=entities, form=form)
    online = {party: (spent - before[party]) / counted for party, spent in _spent(fed, "online").items()}
    keys = sum(fed.timing[n]["setup"].stages[KEYS] for n in range(params.N)) / params.N
    setup = Trial(form.work(cost, "setup"), entities, _spent(fed, "setup"))
    return setup, Trial(form.work(cost, "round"), entities, online), keys


def _tables(params: Params, entities: int) -> Iterator[Table]:
    assert params.max_entities is not None
    rng = np.random.Generator(np.random.PCG64(0))  # made-up data, no secrets
    for n in range(params.N):
        names = (np.arange(params.max_entities) + n * entities // params.N) % entities
        values = rng.uniform(-params.max_abs, params.max_abs, (names.size, params.dim))
        yield Table(names.tolist(), values.astype(np.float32))


def _spent(fed: Federation, phase: str) -> dict[str, float]:
    """CPU seconds of a client and of the server, without the making of keys."""
    costs = [fed.timing[n][phase] for n in range(fed.params.N)]
    clients = [cost.seconds - cost.stages.get(KEYS, 0.0) for cost in costs]
    return {"client": sum(clients) / len(clients), "server": fed.timing["server"][phase].seconds}
