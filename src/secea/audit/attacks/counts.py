"""The number of owners behind a mean: a noise-tolerant search over denominators.

The adversary is a client (client 0). It knows the grid of all inputs, N, its own input to the last bit, fill and all,
and its result as it came, before it is rounded to the table's type. If c clients own an entity, c times the mean minus
its own input lies on the grid, but for noise. It takes the c for which that is most likely, over all coordinates.

A mean's size tells something about the count by itself. To see the grid alone, inputs are made so that means have the
same law for every count: the mean is drawn first, and the last owner's input is what is missing, rounded to the grid.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.field import Residues
from secea.audit import Claim, Objection
from secea.audit.recorded import Recorded, Tables, exact_integers, read_integers
from secea.audit.tails import FALSE_ALARM, binomial_tail
from secea.client import Client
from secea.engines.local import Federation
from secea.params import Params
from secea.retrieval.reciprocal import Reciprocal, _Drowner
from secea.wire.keys import expand
from secea.wire.randomness import KeyStream

Floats = NDArray[np.float64]
CLIENTS: Final = 6
DIM: Final = 16
TRIALS: Final = 2000
ROUNDS: Final = 64
CHANCE: Final = 1 / (CLIENTS - 1)  # client 0 owns the entity, and 1 to 5 others
SEED: Final = 2206_09097
"""Of the made-up inputs; everything secret comes from the system."""


@dataclass(frozen=True)
class Grid:
    """How inputs were rounded before they came into the table."""

    name: str
    rounded: Callable[[Floats], Floats]
    steps: tuple[float, ...]
    """On which inputs lie: one, or several where the step of a number depends on its size."""
    precision: int = 24
    dtype: type[np.floating[Any]] = np.float64


def _bf16(x: Floats) -> Floats:
    lead = np.exp2(np.floor(np.log2(np.abs(x) + 1e-30)) - 7)
    rounded: Floats = np.rint(x / lead) * lead
    return rounded


def _float32(x: Floats) -> Floats:
    return x.astype(np.float32).astype(np.float64)


GRIDS: Final = (
    Grid("2^-8", lambda x: np.rint(x * 2**8) / 2**8, (2.0**-8,)),
    Grid("2^-12", lambda x: np.rint(x * 2**12) / 2**12, (2.0**-12,)),
    Grid("bf16", _bf16, tuple(2.0**-k for k in range(7, 15))),
    Grid(
        "float32",
        lambda x: x.astype(np.float32).astype(np.float64),
        tuple(2.0**-k for k in range(23, 29)),
        40,
        np.float32,
    ),
    Grid("3 decimals", lambda x: np.round(x, 3), (1e-3,)),
    Grid("4 decimals", lambda x: np.round(x, 4), (1e-4,)),
)


@dataclass(frozen=True)
class World:
    """Made-up inputs: `owners[e]` are the clients that own entity e, client 0 always; `rows[n][e]` their inputs."""

    owners: list[list[int]]
    rows: list[Floats]

    @property
    def counts(self) -> NDArray[np.int64]:
        """What the adversary wants to know."""
        return np.array([len(own) for own in self.owners])

    def owned(self, n: int) -> list[int]:
        """The entities of client n."""
        return [e for e, own in enumerate(self.owners) if n in own]


def world(kind: Grid, entities: int = TRIALS, seed: int = SEED) -> World:
    """Entities with 2 to N owners; the law of a mean does not depend on how many there are."""
    rng = np.random.default_rng(seed)
    rows = [kind.rounded(rng.normal(scale=0.5, size=(entities, DIM))) for _ in range(CLIENTS)]
    wanted = rng.normal(scale=0.5, size=(entities, DIM))
    owners = []
    for e, c in enumerate(rng.integers(2, CLIENTS + 1, size=entities)):
        others = [int(n) for n in 1 + rng.permutation(CLIENTS - 1)[: c - 1]]
        rest = c * wanted[e] - rows[0][e] - sum(rows[n][e] for n in others[:-1])
        rows[others[-1]][e] = kind.rounded(rest)
        owners.append(sorted([0, *others]))
    return World(owners, rows)


def guesses(means: Floats, own: Floats, steps: Sequence[float], noise: float, fill: float) -> NDArray[np.int64]:
    """The likeliest count of each row, for a mean with noise (its deviation) and a fill of others' inputs (in steps).

    The law of what is off the grid is a wrapped normal one; one coordinate in ten may be off for other reasons.
    """
    scores = np.zeros((CLIENTS - 1, len(means)))
    for score, c in zip(scores, range(2, CLIENTS + 1), strict=True):
        for step in steps:
            spread = max(1e-3, math.hypot(c * noise / step, math.sqrt(c - 1) * fill))
            if spread > 0.5:
                continue  # flat to within 2 %
            off = (c * means - own) / step
            off -= np.rint(off)
            density = sum(np.exp(-((off + k) ** 2) / (2 * spread**2)) for k in (-1, 0, 1))
            score += np.log(0.1 + 0.9 * density / (spread * math.sqrt(2 * math.pi))).sum(axis=1)
    likeliest: NDArray[np.int64] = 2 + np.argmax(scores, axis=0)
    return likeliest


def gcd_guesses(read: Sequence[Sequence[int]], C: int) -> NDArray[np.int64]:
    """The count from C*mean as an exact integer, if it is one: C over the greatest factor of C in all coordinates."""
    return np.array([C // math.gcd(C, *row) for row in read])


def judge(what: str, found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """The rate of right guesses; an `Objection` where it exceeds chance by more than chance allows."""
    hits = int((found == truth).sum())
    if binomial_tail(hits, truth.size, CHANCE) < FALSE_ALARM:
        raise Objection(f"{what}: {hits / truth.size:.0%} of counts guessed right, {CHANCE:.0%} are chance")
    return hits / truth.size


def deviations(params: Params, rounds: int) -> list[tuple[float, float]]:
    """What the adversary may suppose: no fill; a fill drawn anew in each round, averaged."""
    noise = params.resolution / math.sqrt(12 * rounds)
    return [(noise, 0.0), (noise, 1 / math.sqrt(12 * rounds))]


# ------------------------------------------------------------------------------------------------ through the product


def federation(kind: Grid, made: World, form: str = "reciprocal") -> tuple[Recorded, list[dict[str, Any]]]:
    """A federation that is set up for a world, and its tables."""
    sets = [{f"{e}" for e in made.owned(n)} for n in range(CLIENTS)]
    tables = [{f"{e}": made.rows[n][e].astype(kind.dtype) for e in made.owned(n)} for n in range(CLIENTS)]
    return Recorded(sets, form=form, dim=DIM, precision=kind.precision).setup(), tables


def read_by(client: Client) -> tuple[Floats, list[int]]:
    """The means of a client as it has them, and the entities that they belong to."""
    assert client.means is not None
    return client.means, [int(str(name)) for name in client.names]


def sharing(made: World, kind: Grid, form: Reciprocal, key: bytes, n: int = 0) -> Callable[[], Residues]:
    """Client n: what it shares in a round, [P, own, d]."""
    owned = made.owned(n)
    matrix, entity = made.rows[n][owned].astype(kind.dtype), grid.entities([f"{e}" for e in owned], key)
    return lambda: np.ascontiguousarray(form.rows(matrix, entity, key)[:, :, :DIM])


def search_in_one_round() -> int:
    """2,000 entities of one federation for each grid."""
    for kind in GRIDS:
        made = world(kind)
        run, tables = federation(kind, made)
        exact = exact_integers(run.session.ring, read_integers(run, tables))
        means, order = read_by(run.clients[0])
        form, truth = run.session.form, made.counts[order]
        assert isinstance(form, Reciprocal)
        own = sharing(made, kind, form, expand(run.identities[0].secret, "fill"))()[:, order]
        inputs = form.ring.join(np.ascontiguousarray(own), math.ldexp(1.0, -form.f))
        for noise, fill in deviations(run.params, 1):
            found = guesses(means, inputs, kind.steps, noise, fill)
            judge(f"inputs on the grid {kind.name}, one round", found, truth)
        judge(f"exact integers on the grid {kind.name}", gcd_guesses(exact.tolist(), run.params.C), truth)
    return len(GRIDS) * TRIALS


# ---------------------------------------------------------------------------- many rounds, with the product's functions


def averaged(kind: Grid, entities: int = TRIALS, rounds: int = ROUNDS) -> tuple[World, Params, Floats, Floats]:
    """Client 0's means and own inputs, averaged over rounds in which nobody's embeddings change.

    Encoding and noise are the product's; shares, queries and pads, which cancel, are left out.
    """
    made = world(kind, entities)
    params = Params(CLIENTS, dim=DIM, collusion=1, precision=kind.precision, max_entities=entities, max_union=entities)
    form = Reciprocal(params, entities)
    ring, owned = form.ring, [made.owned(n) for n in range(CLIENTS)]
    shared = [sharing(made, kind, form, os.urandom(32), n) for n in range(CLIENTS)]
    weights = ring.constant([[params.C // c] * DIM for c in made.counts])
    middle = np.broadcast_to(ring.constant((1 << form.noise_bits) // 2).reshape(-1, 1, 1), weights.shape)
    means, own = np.zeros((2, entities, DIM))
    for _ in range(rounds):
        sums = ring.zeros(entities, DIM)
        for n in range(CLIENTS):
            rows = shared[n]()
            if n == 0:
                own += ring.join(rows, math.ldexp(1.0, -form.f)) / rounds
            sums[:, owned[n]] = ring.add(np.ascontiguousarray(sums[:, owned[n]]), rows)
        noise = _Drowner(form, KeyStream(os.urandom(32)))._noise(0, entities, DIM)
        drowned = ring.subtract(ring.add(ring.multiply(weights, sums), noise), np.ascontiguousarray(middle))
        means += ring.join(drowned, math.ldexp(1.0, -form.f) / params.C) / rounds
    return made, params, means, own


def search_in_many_rounds() -> int:
    """The average over 64 rounds of unchanged embeddings, 2,000 entities for each grid."""
    for kind in GRIDS:
        made, params, means, own = averaged(kind)
        for noise, fill in deviations(params, ROUNDS):
            found = guesses(means, own, kind.steps, noise, fill)
            judge(f"inputs on the grid {kind.name}, {ROUNDS} rounds", found, made.counts)
    return len(GRIDS) * TRIALS


# ------------------------------------------------------------------------------------------------------ two sessions


@dataclass(frozen=True)
class Seen:
    """What client 0 has after one session: f, which is public, its means, and its own inputs with their fill."""

    f: int
    means: Floats
    own: Floats


def tables_of(kind: Grid, made: World) -> list[dict[str, Any]]:
    """Each client's own rows of a world; client 0 has all entities, in their order."""
    return [{f"{e}": made.rows[n][e].astype(kind.dtype) for e in made.owned(n)} for n in range(CLIENTS)]


def seen_by_client_0(fed: Federation, tables: Tables) -> Seen:
    """One round, and what client 0 then has: means in float64, so its table must be in float64 too."""
    means, form = fed.round(tables)[0], fed.session.form
    assert isinstance(form, Reciprocal)
    names, key = list(tables[0]), expand(fed.clients[0].wire.identity.secret, "fill")
    shared = form.rows(np.stack([tables[0][name] for name in names]), grid.entities(names, key), key)
    own = form.ring.join(np.ascontiguousarray(shared[:, :, :DIM]), math.ldexp(1.0, -form.f))
    return Seen(form.f, np.stack([means[name] for name in names]), own)


def two_sessions(kind: Grid, entities: int = 300) -> tuple[World, Params, Seen, Seen]:
    """A round, then one more after a client joined that has so many entities that f grows; nobody's values change."""
    made = world(kind, entities)
    fed = Federation(Params(CLIENTS, dim=DIM, precision=kind.precision), "reciprocal")
    tables = tables_of(kind, made)
    newcomer = {f"new {e}": np.ones(DIM, kind.dtype) for e in range(3 * entities)}
    fed.setup([table.keys() for table in tables])
    before = seen_by_client_0(fed, tables)
    fed.join(newcomer)
    return made, fed.params, before, seen_by_client_0(fed, [*tables, newcomer])


def guesses_from_two(params: Params, step: float, one: Seen, other: Seen) -> dict[str, NDArray[np.int64]]:
    """Guesses from one mean, from the average of both, and from the combination in which low bits would cancel.

    With delta = f' - f, the low bits of one block differ by a multiple of the grid in 2^delta * fill' - fill, but for
    half a step for each 2^delta - 1, since fills are centred.
    """
    noise, ratio = params.resolution / math.sqrt(12), 2.0 ** (other.f - one.f)
    half = (ratio - 1) * step / 2
    both = [ratio * x - y + half for x, y in ((other.means, one.means), (other.own, one.own))]
    return {
        "one mean": guesses(one.means, one.own, [step], noise, 0.0),
        "the average": guesses((one.means + other.means) / 2, (one.own + other.own) / 2, [step], noise, 0.0),
        "the scaled difference": guesses(both[0], both[1], [step], math.hypot(ratio, 1) * noise, 0.0),
    }


def search_in_two_sessions() -> int:
    """300 entities for each of two grids, before and after a client joined."""
    for kind in GRIDS[:2]:
        made, params, *seen = two_sessions(kind)
        if seen[0].f >= seen[1].f:
            raise Objection("f did not grow with the newcomer: this attack shows nothing")
        for what, found in guesses_from_two(params, kind.steps[0], *seen).items():
            judge(f"{what} of two sessions on the grid {kind.name}", found, made.counts)
    return 2 * len(made.owners)


# ------------------------------------------------------------------------------------------------- documented limits


def limit_of_exact_means(kind: Grid, entities: int = 20) -> float:
    """Retrieval with Paillier gives exact means of fixed-point inputs: the rate at which the search finds counts."""
    made = world(kind, entities)
    run, tables = federation(replace(kind, precision=24), made, "paillier")
    means, order = read_by(run.round(tables).clients[0])
    finest = 2.0**-run.params.fraction_bits
    own = np.rint(made.rows[0][order] / finest) * finest
    found = guesses(means, own, sorted({max(step, finest) for step in kind.steps}), 0.0, 0.0)
    return float((found == made.counts[order]).mean())


def limit_of_small_tables(kind: Grid, tables: int = 200) -> float:
    """Tables of one entity each have too few numbers to find their grid: the rate at which the search finds counts."""
    made = world(kind, tables)
    params = Params(CLIENTS, dim=DIM, collusion=1, precision=kind.precision, max_entities=1, max_union=1)
    form, keys = Reciprocal(params, 3), [os.urandom(32) for _ in range(CLIENTS)]
    means, own = np.zeros((2, tables, DIM))
    noise = params.resolution * (np.random.default_rng(SEED).random((tables, DIM)) - 0.5)  # as much as the server's
    for e, owners in enumerate(made.owners):
        for n in owners:
            row = form.rows(made.rows[n][[e]].astype(kind.dtype), grid.entities([f"{e}"], keys[n]), keys[n])
            shared = form.ring.join(np.ascontiguousarray(row[:, :, :DIM]), math.ldexp(1.0, -form.f))[0]
            means[e] += shared / len(owners)
            own[e] = own[e] if n else shared
    found = guesses(means + noise, own, kind.steps, *deviations(params, 1)[0])
    return float((found == made.counts).mean())


def limit_of_changed_grids(kind: Grid, entities: int = 300) -> float:
    """Two rounds; before the second, each table gets one number on a grid of half the step, and all else stays.

    All fills are then half as wide, and cancel: the rate at which the search finds counts.
    """
    made, (step,) = world(kind, entities), kind.steps
    fed = Federation(Params(CLIENTS, dim=DIM, precision=kind.precision), "reciprocal")
    tables = tables_of(kind, made)
    fed.setup([[*table, f"of client {n}"] for n, table in enumerate(tables)])
    seen = [
        seen_by_client_0(fed, [{**table, f"of client {n}": np.full(DIM, x)} for n, table in enumerate(tables)])
        for x in (0.5, 0.5 + step / 2)
    ]
    means, own = 2 * seen[1].means - seen[0].means, 2 * seen[1].own - seen[0].own
    noise = math.sqrt(5) * deviations(fed.params, 1)[0][0]
    found = guesses(means[:entities], own[:entities], [step], noise, 0.0)
    return float((found == made.counts).mean())


CLAIMS: Final = (
    Claim(
        "count-from-one-mean",
        "A client that knows the grid of all inputs guesses the number of an entity's owners from its mean no better"
        " than by chance (2,000 entities for each of four grids, whole federations).",
        "attack",
        search_in_one_round,
    ),
    Claim(
        "count-from-many-means",
        "Nor does it from the average of 64 rounds in which nobody's embeddings change.",
        "attack",
        search_in_many_rounds,
    ),
    Claim(
        "count-from-two-sessions",
        "Nor does it from the means of two sessions with another fixed point each, as before and after a client joins.",
        "attack",
        search_in_two_sessions,
    ),
)
