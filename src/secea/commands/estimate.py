"""Estimate how long a federation would take, for `secea plan`: run small ones for real, and extrapolate their times.

For a fixed number of clients, bytes and multiplications are linear in the number of entities, and so is the time. Two
trials of different sizes give the line. If there are too many clients to try out, the trials use fewer. Their line,
over bytes plus multiplications, is then extended to all clients, and the part that does not depend on the entities
grows with the number of pairs. That is a rough guess.
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
"""The stage in which keys are made. Its time is random and does not depend on sizes."""


@dataclass(frozen=True)
class Trial:
    """What one phase of a trial federation cost."""

    work: int
    """The quantity that time grows with, according to the form."""
    entities: int
    seconds: Mapping[str, float]
    """CPU time by party: "client" (the mean over all clients) and "server"."""


@dataclass(frozen=True)
class Rates:
    """What the trials say about federations of other sizes: for each phase a smaller and a larger trial."""

    clients: int
    form: Form
    trials: Mapping[str, tuple[Trial, Trial]]
    keys: float
    """Seconds that a client takes to make its keys."""

    def seconds(self, params: Params, cost: Plan) -> dict[str, dict[str, float]]:
        """Estimated CPU seconds of one client and of the server, by phase."""
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
    """Run small federations like this one. The bounds in `params` must be set."""
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
    """Costs of the set-up and of a round, and the seconds for one key, with made-up embeddings.

    If there are several rounds, the first one does not count.
    """
    params = _bounded(params, entities, share)
    tables = list(_tables(params, entities))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoClients)
        fed = Federation(params, form)
    fed.setup([table.names for table in tables])
    before = _spent(fed, "online")
    for number in range(rounds):
        fed.round(tables)
        if number == 0 and rounds > 1:  # the first round also pays for allocating memory
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
    """CPU seconds of a client and of the server, without the time for making keys."""
    costs = [fed.timing[n][phase] for n in range(fed.params.N)]
    clients = [cost.seconds - cost.stages.get(KEYS, 0.0) for cost in costs]
    return {"client": sum(clients) / len(clients), "server": fed.timing["server"][phase].seconds}
