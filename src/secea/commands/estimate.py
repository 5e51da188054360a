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

from secea.engines.federation import TwoClients
from secea.engines.local import Federation
from secea.forms import DEFAULT, is_new
from secea.params import Params
from secea.plan import Plan, plan
from secea.table import Table

PHASES: Final = ("setup", "round")
PARTIES: Final = ("client", "server")
MOST_CLIENTS: Final = 10
"""With more, even the smallest federation takes longer than anybody waits for a plan."""
TRIAL_BYTES: Final = 250_000_000
"""What a trial sends, about."""
SMALLEST: Final = 32
SMALLEST_PAILLIER: Final = 6
MOST_NAMES: Final = 3000
"""Names of all clients of a trial: each takes a millisecond or less."""
KEYS: Final = "keys"
"""The stage in which Paillier keys are made: its time is luck, and does not depend on sizes."""


@dataclass(frozen=True)
class Trial:
    """One phase of a federation that was run: what it cost."""

    work: int
    """See `_work`."""
    entities: int
    seconds: Mapping[str, float]
    """CPU time by party: a client (the mean of all), the server."""
    positions: int
    """The length of one client's queries."""
    stored: int
    """Bytes that a client keeps from round to round."""


@dataclass(frozen=True)
class Rates:
    """What the trials say about other federations: a smaller and a larger one for each phase."""

    clients: int
    form: str
    trials: Mapping[str, tuple[Trial, Trial]]
    keys: float
    """Seconds in which a client makes its Paillier key."""

    def seconds(self, params: Params, cost: Plan) -> dict[str, dict[str, float]]:
        """CPU seconds by phase, of one client and of the server."""
        found: dict[str, dict[str, float]] = {phase: {} for phase in PHASES}
        more = params.N / self.clients
        for phase, (small, large) in self.trials.items():
            for party in PARTIES:
                slope = max(0.0, large.seconds[party] - small.seconds[party]) / max(1, large.work - small.work)
                fixed = max(0.0, small.seconds[party] - slope * small.work)
                work = _work(cost, phase, self.form)  # of all clients together
                one = party == "client"
                found[phase][party] = fixed * (more if one else more**2) + slope * work / (more if one else 1)
        found["setup"]["client"] += self.keys
        return found

    def stored(self, clients: int, positions: int) -> int:
        """Bytes that a client keeps from round to round: they grow with queries and clients."""
        small, large = self.trials["round"]
        slope = (large.stored - small.stored) / max(1, large.positions - small.positions)
        return round((large.stored + slope * (positions - large.positions)) * clients / self.clients)


def _work(cost: Plan, phase: str, form: str) -> int:
    """What time is taken to grow with. Paillier's operations, and those of a group, leave nothing else to see."""
    if is_new(form):
        return cost.setup_multiplications if phase == "setup" else cost.round_bytes
    if phase == "setup":
        return cost.setup_bytes + cost.setup_multiplications
    if form == "paillier":
        return cost.by_kind["answer"] + cost.by_kind["mean"]
    return cost.round_bytes + cost.round_multiplications


def measured(params: Params, entities: int, form: str = DEFAULT, queries: str = "buckets") -> Rates:
    """Run small federations like this one. `params` has its bounds."""
    assert params.max_entities is not None
    if is_new(form):
        return _measured_form(params, entities, form)
    clients = min(params.N, 3 if form == "paillier" else MOST_CLIENTS)
    collusion = max(1, min(round(params.T * clients / params.N), (clients + 1) // 2 - 1))
    few = replace(
        params, clients=clients, collusion=collusion, max_entities=None, max_union=None,
        dropouts=min(params.dropouts, clients - 2 * collusion - 1),
    )  # fmt: skip
    share, choice = params.max_entities / entities, (form, queries)
    while few.dim > 1 and sum(_sends(few, 2 * SMALLEST, share, choice)) > TRIAL_BYTES:
        few = replace(few, dim=few.dim // 2)
    if form == "paillier":
        first, large, keys = _run(few, SMALLEST_PAILLIER, share, choice, rounds=2)
        last, _, _ = _run(few, _size(few, share, choice, entities, rounds=0), share, choice, rounds=0)
        none = Trial(0, 0, dict.fromkeys(PARTIES, 0.0), 0, 0)
        return Rates(clients, form, {"setup": (first, last), "round": (none, large)}, keys)
    _run(Params(3, dim=1), 3, 1.0, choice, rounds=1)  # what is loaded on first use is loaded now
    first, small, _ = _run(few, SMALLEST, share, choice, rounds=3)
    _, large, _ = _run(few, _size(few, share, choice, entities, rounds=2), share, choice, rounds=3)
    last, _, _ = _run(few, _size(few, share, choice, entities, rounds=0), share, choice, rounds=0)
    return Rates(clients, form, {"setup": (first, last), "round": (small, large)}, 0.0)


def _measured_form(params: Params, entities: int, form: str) -> Rates:
    """The same for a form of the new core: its set-up grows with the names that are asked for."""
    assert params.max_entities is not None
    clients = min(params.N, MOST_CLIENTS)
    dropouts = min(clients - 2, round(params.dropouts * clients / params.N))
    few = replace(
        params, clients=clients, dropouts=dropouts, max_entities=None, max_union=None,
        collusion=max(1, min(clients - 1 - dropouts, round(params.T * clients / params.N))),
    )  # fmt: skip
    share, choice = params.max_entities / entities, (form, "buckets")
    most = max(2 * SMALLEST, min(entities, MOST_NAMES // max(1, round(clients * share))))
    _run(few, 3, 1.0, choice, rounds=1)  # what is loaded on first use is loaded now
    first, small, _ = _run(few, SMALLEST, share, choice, rounds=3)
    last, large, _ = _run(few, most, share, choice, rounds=3)
    return Rates(clients, form, {"setup": (first, last), "round": (small, large)}, 0.0)


def _bounded(params: Params, entities: int, share: float) -> Params:
    own = min(entities, max(1, -(-entities // params.N), round(entities * share)))
    return replace(params, max_entities=own, max_union=entities)


def _sends(params: Params, entities: int, share: float, choice: tuple[str, str]) -> tuple[int, int]:
    """Bytes of the set-up, and of a round."""
    cost = plan(_bounded(params, entities, share), entities=entities, form=choice[0], queries=choice[1])
    return cost.setup_bytes, cost.round_bytes


def _size(params: Params, share: float, choice: tuple[str, str], most: int, *, rounds: int) -> int:
    """As many entities as a trial of a set-up and so many rounds may have."""
    size = 2 * SMALLEST
    while size < most:
        setup, each = _sends(params, size * 5 // 4, share, choice)
        if max(setup, rounds * each) > TRIAL_BYTES:
            break
        size = size * 5 // 4
    return max(2 * SMALLEST, min(size, most))


def _run(
    params: Params, entities: int, share: float, choice: tuple[str, str], *, rounds: int
) -> tuple[Trial, Trial, float]:
    """Set-up, a round, and seconds of one key, with made-up embeddings. The first of several rounds does not count."""
    params = _bounded(params, entities, share)
    tables = list(_tables(params, entities))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoClients)
        fed = Federation(params, *choice)
    fed.setup([table.names for table in tables])
    before = _spent(fed, "online")
    for number in range(rounds):
        fed.round(tables)
        if number == 0 and rounds > 1:  # it pays for memory
            before = _spent(fed, "online")
    counted = max(1, rounds - 1)
    cost = plan(params, entities=entities, form=choice[0], queries=choice[1])
    online = {party: (spent - before[party]) / counted for party, spent in _spent(fed, "online").items()}
    keys, kept = 0.0, (0, 0)
    if not is_new(choice[0]):
        keys = sum(fed.timing[n]["setup"].stages[KEYS] for n in range(params.N)) / params.N
        kept = fed.session.query_positions(entities), fed.timing[0]["setup"].stored
    return (
        Trial(_work(cost, "setup", choice[0]), entities, _spent(fed, "setup"), *kept),
        Trial(_work(cost, "round", choice[0]), entities, online, *kept),
        keys,
    )


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
