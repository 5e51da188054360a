"""Attacks on the *count* of a mean in the keyed form: how many clients own the entity. The audit runs them.

The adversary is client 0, or several clients. It knows N, how all inputs were rounded, the distributions of fill and
noise, its own input to the last bit, and the noise that it added itself. Suppose that c clients own an entity.

* `by_grid`: c times the mean, minus its own input, is the sum of the others' inputs. Apart from fill and noise, this
  lies on the grid to which inputs were rounded.
* `by_slope`: if nobody has trained since all got the same mean, it knows the others' values. Then its own fill moves
  the mean by 1/c of itself.
* `by_lattice`: without narrow noise, C times the mean is an integer and a multiple of C/c.
* `by_spectrum`: the same in the spectrum of these integers, as power at the multiples of c. `strongest_line` takes many
  entities together.

Each attack guesses the likeliest count. Encoding and noise are the product's own code. Masks and keys are left out,
since they cancel.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid, streams
from secea.arithmetic.fixedpoint import centred
from secea.arithmetic.portable import grids_of
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Keyed
from secea.forms.keyed.numbers import Numbers
from secea.params import Params
from secea.party.phases import Agreement
from secea.table import Table
from secea.wire.keys import Identity, Roster

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Widths = Sequence[tuple[float, int]]
"""Groups of independent uniform numbers: the width of each number, and how many there are."""

CLIENTS: Final = 5
COUNTS: Final = range(2, CLIENTS + 1)
CHANCE: Final = 1 / len(COUNTS)
DIM: Final = 16
POINTS: Final = 4096
"""The number of points at which a density is computed."""
OTHERWISE: Final = 0.01
"""The share of numbers that may be off for other reasons."""
AT_ONCE: Final = 500
"""Entities whose spectra are taken together."""


# ------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True)
class Inputs:
    """How inputs were rounded before they were put into the table."""

    name: str
    rounded: Callable[[Floats], Floats]
    steps: tuple[float, ...]
    """The grid steps of the inputs. There are several if a number's step depends on its size."""
    dtype: type[np.floating[Any]] = np.float64
    scale: float = 0.5
    """The standard deviation of the values."""


def _bits(used: int) -> Callable[[Floats], Floats]:
    """Rounds numbers to `used` bits below the leading bit."""

    def rounded(x: Floats) -> Floats:
        step = np.exp2(np.floor(np.log2(np.abs(x) + 1e-30)) - used)
        return np.asarray(np.rint(x / step) * step)

    return rounded


def _steps_of(step: float) -> Callable[[Floats], Floats]:
    return lambda x: np.asarray(np.rint(x / step) * step)


def _powers(first: int, last: int) -> tuple[float, ...]:
    return tuple(2.0**-k for k in range(first, last + 1))


FLOAT64: Final = Inputs("float64", lambda x: x, (2.0**-53,))
FLOAT32: Final = Inputs("float32", _bits(23), _powers(23, 27), np.float32)
LARGE: Final = Inputs("float32, values up to 60", _bits(23), _powers(18, 22), np.float32, 15.0)
BF16: Final = Inputs("bf16", _bits(7), _powers(7, 12), np.float32)
FP16: Final = Inputs("fp16", _bits(10), _powers(10, 15), np.float32)
INT8: Final = Inputs("steps of 2^-6", _steps_of(2.0**-6), (2.0**-6,), np.float32)
ODD_STEP: Final = 2.0**-6 / 1.43
"""The worst step for a fill that is as wide as the next power of two."""
INT8_SCALED: Final = Inputs("steps of 0.0109...", _steps_of(ODD_STEP), (ODD_STEP,), np.float32, 0.12)
INT16_STEP: Final = 0.37 / 2**15
INT16_SCALED: Final = Inputs(
    "16 bits times a scale",
    lambda x: np.asarray(np.rint(np.clip(x, -0.37, 0.37) / INT16_STEP) * INT16_STEP),
    (INT16_STEP,),
    np.float32,
    0.03,
)
DECIMALS: Final = Inputs("3 decimals", lambda x: np.asarray(np.round(x, 3)), (1e-3,), np.float32)
KINDS: Final = (FLOAT64, FLOAT32, LARGE, BF16, FP16, INT8, INT8_SCALED, INT16_SCALED, DECIMALS)


@dataclass(frozen=True)
class World:
    """Who owns what: `owned[n, e]` if client n owns entity e, with inputs `rows[n, e]`.

    The first `inside` clients own everything, and want to know how many others do.
    """

    owned: NDArray[np.bool_]
    rows: Floats
    inside: int = 1

    @property
    def counts(self) -> Counts:
        """The number of owners of each entity, which the adversary wants to know."""
        return np.asarray(self.owned.sum(axis=0), np.int64)

    @property
    def possible(self) -> range:
        """The counts among which it has to choose."""
        return range(max(2, self.inside), len(self.owned) + 1)


def _owned(rng: np.random.Generator, entities: int, clients: int, inside: int) -> NDArray[np.bool_]:
    """Random owners: those inside and a random choice of others, with a random count for each entity."""
    order = rng.permuted(np.tile(np.arange(inside, clients), (entities, 1)), axis=1)
    counts = rng.integers(max(2, inside), clients + 1, entities)
    owned = np.zeros((clients, entities), np.bool_)
    owned[:inside] = True
    for k in range(clients - inside):
        owned[order[:, k], np.arange(entities)] = k + inside < counts
    return owned


def unlike(
    kind: Inputs, entities: int, rng: np.random.Generator, dim: int = DIM, clients: int = CLIENTS, inside: int = 1
) -> World:
    """A world in which owners have different values. The size of a mean tells nothing about the count."""
    owned, shape = _owned(rng, entities, clients, inside), (entities, dim)
    rows = kind.rounded(rng.normal(scale=kind.scale, size=(clients, *shape)))
    wanted, counts = rng.normal(scale=kind.scale, size=shape), owned.sum(axis=0)
    last = clients - 1 - np.argmax(owned[::-1], axis=0)  # what is missing comes from the last owner
    every = np.arange(entities)
    rest = np.where(owned[:, :, None], rows, 0).sum(axis=0) - rows[last, every]
    rows[last, every] = np.clip(kind.rounded(counts[:, None] * wanted - rest), -60, 60)
    return World(owned, rows, inside)


def alike(
    kind: Inputs, entities: int, rng: np.random.Generator, dim: int = DIM, clients: int = CLIENTS, inside: int = 1
) -> World:
    """A world in which all owners of an entity have the same values, as if nobody trained since the last mean."""
    values = np.clip(kind.rounded(rng.normal(scale=kind.scale, size=(entities, dim))), -60, 60)
    owned = _owned(rng, entities, clients, inside)
    return World(owned, np.broadcast_to(values, (clients, *values.shape)).copy(), inside)


# ------------------------------------------------------------------------------------------------- the product's rounds


def parameters(entities: int, dim: int = DIM, clients: int = CLIENTS, collusion: int = 1, **more: Any) -> Params:
    """The parameters of a session in which client 0 owns all of the given number of entities."""
    return Params(clients, dim=dim, collusion=collusion, max_entities=entities, max_union=entities, **more)


class Owners:
    """The encoding side of all clients. Their identities outlast a session."""

    def __init__(self, entities: int, form: Keyed, clients: int = CLIENTS) -> None:
        self.form = form
        self.names = [f"{e}" for e in range(entities)]
        self.identities = [Identity.generate(os.urandom) for _ in range(clients)]
        self.parts: list[KeyedClient] = []

    def session(self, params: Params) -> None:
        """Begin another session: all clients start again, with only what derives from their identities."""
        bounded = self.form.checked(params)
        roster = Roster(tuple(identity.public for identity in self.identities), bytes(32))
        self.parts = []
        for n, identity in enumerate(self.identities):
            part = self.form.client(bounded, bytes(32), roster, n, identity, self.names, os.urandom)
            assert isinstance(part, KeyedClient)
            self.parts.append(part)

    def encode(
        self, world: World, dtype: Any, beside: Floats | None = None, weights: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """What each client contributes: [clients, entities, columns]. `beside` are further rows of all tables."""
        out = np.zeros((*world.rows.shape[:2], self.parts[0].params.columns), np.int64)
        for n, part in enumerate(self.parts):
            own = np.flatnonzero(world.owned[n])
            more = world.rows[n][:0] if beside is None else beside
            matrix = np.concatenate([world.rows[n][own], more]).astype(dtype)
            names = [self.names[e] for e in own]
            part.naming.names = replace(part.naming.names, own=tuple(names))
            given = None if weights is None else weights[n][own]
            table = Table([*names, *(f"beside {i}" for i in range(len(more)))], matrix, given)
            part.tables.look_at(table)
            out[n, own] = part.tables.encoded_rows(
                table, np.arange(own.size, dtype=np.int32), part.tables.hashed(part.names)
            )
        return out


@dataclass(frozen=True)
class Seen:
    """What clients 0 to `inside`-1 know after rounds in which no values change. Each of them owns all entities."""

    numbers: Numbers
    inside: int
    own: Floats
    """The sum of their own inputs, with fill."""
    means: Floats
    """The means, averaged over the rounds, without their own noise."""
    residues: NDArray[np.int32]
    """[entities, C]: how often C times the mean had each residue modulo C, in all rounds and coordinates."""
    noise: Widths
    """The distribution of the noise that is left in the averaged means."""

    def combined(self, a: float, other: Seen, b: float) -> Seen:
        """A linear combination: a times this, plus b times `other`."""
        noise = [(abs(x) * width, many) for x, each in ((a, self), (b, other)) for width, many in each.noise]
        own, means = a * self.own + b * other.own, a * self.means + b * other.means
        return replace(self, own=own, means=means, noise=noise)


def seen(
    form: Keyed, params: Params, values: NDArray[np.int64], world: World, rounds: int = 1, *, exact: bool = True
) -> Seen:
    """What the adversary sees after this many rounds, with the form's own noise."""
    return seen_after(form, params, values, world, (rounds,), exact=exact)[-1]


def seen_after(
    form: Keyed,
    params: Params,
    values: NDArray[np.int64],
    world: World,
    after: Sequence[int],
    *,
    exact: bool = True,
) -> list[Seen]:
    """The same after each of several numbers of rounds, in ascending order. `exact`: with residues modulo C."""
    inside = world.inside
    params = form.checked(params)
    n, everyone = form.numbers(params), tuple(range(params.clients))
    ring, law = n.ring, n.noise_of(form.noise_count(params, params.clients))
    sums = ring.reduce(np.where(world.owned[:, :, None], values, 0).sum(axis=0))
    streams.scale_rows(ring, sums, ring.constant([n.C // int(c) for c in world.counts]))
    sums_of_means, others, times, unit = np.zeros(values.shape[1:]), 0, n.C // law.scale, math.ldexp(1.0, -n.f)
    own, found = np.ldexp(values[:inside].sum(axis=0).astype(np.float64), -n.f), list[Seen]()
    residues, entity = np.zeros((values.shape[1], n.C if exact else 0), np.int32), np.arange(values.shape[1])
    for q in range(1, after[-1] + 1):
        turn = form.noise_clients(params, Agreement(participants=everyone, members=everyone, round=q))
        noisy = [w for w in turn if w >= inside]
        e = ring.zeros(*values.shape[1:])
        for _ in noisy:
            streams.add_noise(ring, e, os.urandom(32), 0, law)
        streams.scale_rows(ring, e, ring.constant([times] * e.shape[1]))  # 1, except with a mutant's noise
        ring.add_into(e, sums)
        for column in (centred(ring, e) % n.C).T if exact else ():
            residues[entity, column] += 1
        sums_of_means += ring.join(e, math.ldexp(1.0 / n.C, -n.f), len(noisy) * law.largest * times // 2)
        others += len(noisy)
        if q in after:
            noise = [(law.wide * unit / q, others), (unit / q, n.s * others)]
            found.append(Seen(n, inside, own, sums_of_means / q, residues.copy(), noise))
    return found


# ------------------------------------------------------------------------------------------------------------ guesses


def likelihood(x: Floats, period: float, widths: Widths) -> Floats:
    """The log likelihood of x: log(period * density) of a sum of centred uniform numbers, wrapped around the period.

    The density comes from its Fourier series.
    """
    k = np.arange(POINTS // 2 + 1) / period
    series = np.sinc(k * period / POINTS)  # limits the resolution to the distance between points
    for width, many in widths:
        series = series * np.sinc(k * width) ** many
    density = np.maximum(np.fft.irfft(series) * POINTS, 0)
    at = np.rint(x / period % 1 * POINTS).astype(np.int64) % POINTS
    return np.asarray(np.log(OTHERWISE + (1 - OTHERWISE) * density)[at])


def by_grid(was: Seen, steps: Sequence[float], fill: Sequence[float] = (), counts: range = COUNTS) -> Counts:
    """Guess the count: c times the mean minus one's own inputs lies on the grid, apart from noise and others' fill.

    `fill` has the supposed widths of the others' fill, in steps.
    """
    scores = []
    for c in counts:
        score = np.zeros(len(was.means))
        for step in steps:
            others = [(width * step, c - was.inside) for width in fill]
            noise = [(c * width, many) for width, many in was.noise]
            score += likelihood(c * was.means - was.own, step, [*others, *noise]).sum(axis=1)
        scores.append(score)
    return np.asarray(counts.start + np.argmax(np.stack(scores), axis=0), np.int64)


def best_by_grid(was: Seen, kind: Inputs, world: World, **more: Any) -> float:
    """The best rate over three assumptions on the others' fill: none, one step, or the next power of two."""
    rounded = 2.0 ** math.ceil(math.log2(kind.steps[0])) / kind.steps[0]
    return max(rate(by_grid(was, kind.steps, fill, **more), world) for fill in ((), (1.0,), (rounded,)))


def fill_widths(part: KeyedClient, values: Floats) -> Floats:
    """The width of each number's grid fill. 0 if it has none."""
    n = part.numbers
    assert part.tables.grid is not None
    widths = grids_of(values, *grid.grid_of_rows(np.ascontiguousarray(values), *part.tables.grid), n.cap)
    return np.where(np.floor(np.ldexp(widths, n.f)) > n.w, widths, 0.0)


def by_slope(was: Seen, values: Floats, widths: Floats, counts: range = COUNTS) -> Counts:
    """Guess the count if all owners have these values. The mean minus the value is 1/c of all fill, plus noise.

    `widths` has the width of each number's grid fill.
    """
    n, narrow = was.numbers, math.ldexp(was.numbers.w, -was.numbers.f)
    score = np.zeros((len(counts), *values.shape))
    for width in np.unique(widths):
        where = widths == width
        laws = {
            c: [(narrow / c, n.s * (c - was.inside)), (float(width) / c, c - was.inside), *was.noise] for c in counts
        }
        period = 5 * max(sum(math.sqrt(many) * each for each, many in law) for law in laws.values())
        for k, c in enumerate(counts):
            off = was.means - values - (was.own - was.inside * values) / c
            score[k][where] = likelihood(np.clip(off[where], -period / 2, period / 2), period, laws[c])
    return np.asarray(counts.start + np.argmax(score.sum(axis=2), axis=0), np.int64)


def by_lattice(was: Seen, counts: range = COUNTS) -> Counts:
    """Guess the count: if nothing blurs it, C times the mean is a multiple of C/c in all coordinates."""
    C, every, scores = was.numbers.C, was.residues.sum(axis=1), []
    for c in counts:
        on = was.residues[:, :: C // c].sum(axis=1)
        scores.append(on * math.log(OTHERWISE / C + (1 - OTHERWISE) / c) + (every - on) * math.log(OTHERWISE / C))
    return np.asarray(counts.start + np.argmax(np.stack(scores), axis=0), np.int64)


def by_spectrum(was: Seen, counts: range = COUNTS) -> Counts:
    """Guess the count at whose multiples the spectrum of an entity's integers, modulo C, has the most power."""
    C, found = was.numbers.C, []
    for some in np.array_split(was.residues, 1 + len(was.residues) // AT_ONCE):
        power = np.abs(np.fft.fft(some, axis=1)) ** 2
        lines = [power[:, c:C:c] for c in counts]  # each line that is chance has the same mean
        found.append(np.stack([(line.mean(axis=1)) for line in lines]).argmax(axis=0))
    return np.asarray(counts.start + np.concatenate(found), np.int64)


def strongest_line(was: Seen, some: NDArray[np.bool_]) -> tuple[int, float, int]:
    """The strongest line in the spectrum of some entities together: its number k of C, its amplitude, and the samples.

    Integers that are uniform modulo C have none. A lattice of step C/c shows as lines at the multiples of c.
    """
    seen = was.residues[some].sum(axis=0)
    lines = np.abs(np.fft.fft(seen)[1:]) / seen.sum()
    return 1 + int(np.argmax(lines)), float(lines.max()), int(seen.sum())


def rate(found: Counts, world: World) -> float:
    """The share of counts that were guessed right."""
    return float((found == world.counts).mean())
