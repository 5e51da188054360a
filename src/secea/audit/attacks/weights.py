"""Attacks on the count of a weighted mean: an owner reads the mean weight of its entities too.

Weights travel as a column of their own, each blurred by half a unit (docs/protocol-keyed.md, K11). The adversary is
client 0, which owns everything and knows its own weights to the last bit.

* "grid": weights are whole numbers, so c times the mean weight less its own would be one too.
* "slope": it knows the others' weights, because all owners have the same: the mean moves with its own blur by 1/c.
  With weights that change from round to round, each round brings other blurs.
* "fraction": it knows that weights are 0 or 1, the quiet way of leaving rows out, and how likely each is.

Encoding, blur and noise are the product's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.audit.attacks import keyed_counts as counts
from secea.audit.attacks.keyed_counts import Counts, Floats, Owners, Seen, World
from secea.forms.keyed import Keyed

Weights = NDArray[np.int64]
"""[clients, entities]."""
MOST: Final = 1000
"""The bound of all weights."""
FINE: Final = 256
"""Points in each unit of a density."""


def _world(entities: int, clients: int, rng: np.random.Generator) -> World:
    """Random owners; rows have one number each."""
    return counts.unlike(counts.FLOAT64, entities, rng, 1, clients)


def own_weights(world: World, rng: np.random.Generator, q: int) -> Weights:
    """Different weights, always the same in all rounds. The size of their mean tells nothing about the count."""
    clients, entities = world.owned.shape
    wanted = rng.integers(300, 700, entities)
    drawn = wanted + rng.integers(-100, 101, (clients, entities))
    last, every = clients - 1 - np.argmax(world.owned[::-1], axis=0), np.arange(entities)
    rest = np.where(world.owned, drawn, 0).sum(axis=0) - drawn[last, every]
    drawn[last, every] = np.clip(world.counts * wanted - rest + rng.integers(0, world.counts), 1, MOST)
    return np.asarray(drawn, np.int64)


def same_weights(world: World, rng: np.random.Generator, q: int) -> Weights:
    """All owners have the same, as if all had as many samples of an entity: 500 in the first round, 501 in the next."""
    return np.full(world.owned.shape, 500 + q % 400, np.int64)


def some_rows(world: World, rng: np.random.Generator, q: int) -> Weights:
    """0 or 1, as likely as not: rows that were left out quietly."""
    return np.asarray(rng.integers(0, 2, world.owned.shape), np.int64)


def _column(was: Seen, scale: float) -> Seen:
    """What is seen of weights alone, in units of a weight."""
    noise = [(width * scale, many) for width, many in was.noise]
    return replace(was, own=was.own[:, -1:] * scale, means=was.means[:, -1:] * scale, noise=noise)


class Weighing:
    """A federation with weights, as client 0 sees it."""

    def __init__(self, form: Keyed, entities: int, clients: int, rng: np.random.Generator) -> None:
        self.form, self.world, self.rng = form, _world(entities, clients, rng), rng
        self.params = counts.parameters(entities, 1, clients, max_weight=MOST)
        self.owners = Owners(entities, form, clients)
        self.owners.session(self.params)
        self.scale = (MOST + 1) / self.params.max_abs

    def constant(self, weights: Weights, rounds: Sequence[int]) -> list[Seen]:
        """The mean weights of so many rounds, averaged: nobody's weight changes. What is sent is made each time."""
        first = self.once(weights)
        found, own, means = list[Seen](), first.own.copy(), first.means.copy()
        for q in range(1, rounds[-1] + 1):
            if 1 < q <= REPEATED:
                seen = self.once(weights)
                own, means = own + seen.own, means + seen.means
            if q in rounds:
                many = min(q, REPEATED)
                noise = [(width / many, number * many) for width, number in first.noise]
                found.append(replace(first, own=own / many, means=means / many, noise=noise))
        return found

    def once(self, weights: Weights) -> Seen:
        """The mean weights of one round."""
        values = self.owners.encode(self.world, np.float64, weights=weights)
        return _column(counts.seen(self.form, self.params, values, self.world, exact=False), self.scale)

    def changing(self, rounds: Sequence[int]) -> list[tuple[Seen, Floats]]:
        """What all owners weigh alike changes in each round: a column for each, and what it was."""
        every = [(self.once(w), w[0]) for w in (same_weights(self.world, self.rng, q) for q in range(rounds[-1]))]
        found = []
        for q in rounds:
            own, means = (np.concatenate([getattr(was, what) for was, _ in every[:q]], axis=1) for what in PARTS)
            known = np.stack([weight for _, weight in every[:q]], axis=1).astype(np.float64)
            found.append((replace(every[0][0], own=own, means=means), known))
        return found


REPEATED: Final = 50
"""Rounds of constant weights that are really made. Noise is small against a blur, and more would show no more."""
PARTS: Final = ("own", "means")


def by_grid(was: Seen, possible: range) -> Counts:
    """Guess the count: weights are whole numbers, and nothing hides it."""
    return counts.by_grid(was, (1.0,), (), possible)


def by_slope(was: Seen, known: Floats, possible: range) -> Counts:
    """Guess the count if all owners have these weights: the mean less the weight is 1/c of all blurs."""
    return counts.by_slope(was, known, np.ones(known.shape), possible)


def by_fraction(was: Seen, possible: range) -> Counts:
    """Guess the likeliest count if all weights are 0 or 1: how the mean weight of so many owners is distributed."""
    one = np.zeros(2 * FINE)
    one[0], one[FINE // 2 : FINE + FINE // 2] = 0.5, 0.5 / FINE  # 0 as it is, 1 blurred by half a unit
    scores, law = [], np.ones(1)
    for c in range(1, possible.stop):
        law = np.convolve(law, one) if c > 1 else law
        if c in possible:
            x = np.rint((c * was.means[:, 0] - was.own[:, 0]) * FINE).astype(np.int64)
            inside = (x >= 0) & (x < law.size)
            scores.append(np.where(inside, c * law[np.clip(x, 0, law.size - 1)], 0.0))
    return np.asarray(possible.start + np.argmax(np.stack(scores), axis=0), np.int64)


def rates_of(
    form: Keyed, entities: int, clients: int, rounds: Sequence[int], rng: np.random.Generator
) -> Mapping[tuple[str, str], dict[int, float]]:
    """For each attack and kind of weights how often it finds the count, after so many rounds."""
    of = Weighing(form, entities, clients, rng)
    world, possible = of.world, of.world.possible
    kinds: tuple[tuple[str, str, Weights, Callable[[Seen], Counts]], ...] = (
        ("grid", "own", own_weights(world, rng, 0), lambda was: by_grid(was, possible)),
        ("slope", "same", same_weights(world, rng, 0),
         lambda was: by_slope(was, np.full((entities, 1), 500.0), possible)),
        ("fraction", "0 or 1", some_rows(world, rng, 0), lambda was: by_fraction(was, possible)),
    )  # fmt: skip
    found = {
        (attack, values): {
            q: counts.rate(guess(was), world) for q, was in zip(rounds, of.constant(weights, rounds), strict=True)
        }
        for attack, values, weights, guess in kinds
    }
    changing = zip(rounds, of.changing(rounds), strict=True)
    found["slope", "same, new"] = {q: counts.rate(by_slope(*seen, possible), world) for q, seen in changing}
    return found
