"""Statistical tests for the audit's claims and attacks. They must practically never raise a false alarm.

Tail probabilities are computed from bounds or series, without tables. FALSE_ALARM is the allowed probability of a false
alarm in one test. Attacks and statistics together make fewer than 1,000 tests, so all of them together may reach 1e-11.
(A battery of `uniformity` counts as one.)
Tests based on bounds keep to it exactly. The chi-square distribution is an approximation: with at least 180 expected
samples per part, a tail of 1e-14 is right to within a factor of about 100. The audit as a whole stays below 1e-9.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.audit import Objection

FALSE_ALARM: Final = 1e-14


def binomial_tail(hits: int, trials: int, chance: float) -> float:
    """An upper bound on the probability of at least `hits` hits (Chernoff): exp(-trials * KL(hits/trials, chance))."""
    rate = hits / trials
    if rate <= chance:
        return 1.0
    rest = (1 - rate) * math.log((1 - rate) / (1 - chance)) if rate < 1 else 0.0
    return math.exp(-trials * (rate * math.log(rate / chance) + rest))


def chi_square_tail(statistic: float, freedom: int) -> float:
    """The probability that a chi-square variable exceeds the statistic: the upper regularised gamma function."""
    a, x = freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # the series of the lower function
        term = total = 1 / a
        for k in range(1, 1000):
            term *= x / (a + k)
            total += term
        return 1 - front * total
    b, c, d = x + 1 - a, math.inf, 1 / (x + 1 - a)  # the continued fraction of the upper one, by Lentz's method
    h = d
    for k in range(1, 1000):
        b += 2
        d = 1 / (b - k * (k - a) * d)
        c = b - k * (k - a) / c
        h *= c * d
    return front * h


def kolmogorov_tail(distance: float, samples: int) -> float:
    """An upper bound on the probability of this distance or more between a sample and its true distribution.

    The bound is that of Dvoretzky, Kiefer and Wolfowitz.
    """
    return min(1.0, 2 * math.exp(-2 * samples * distance**2))


PARTS: Final = 16
LEAST: Final = 4000
"""Samples that a test needs. Then each part is expected 250 times, and chi-square is a good approximation."""


def uniform(what: str, ring: Ring, x: Residues) -> int:
    """Object if elements [P, ...] do not look uniform modulo each prime. Returns the number of tests.

    For small messages. `uniformity` sees far smaller flaws, and needs more samples.
    """
    for p, row in zip(ring.primes, x.reshape(ring.size, -1), strict=True):
        assert row.size >= LEAST, f"{what}: {row.size} samples are too few"
        wide = row.astype(np.uint64) // np.uint64(-(-p // PARTS))
        for how, parts in (("sizes", wide), ("low digits", row % PARTS)):
            seen, expected = np.bincount(parts.astype(np.int64), minlength=PARTS), row.size / PARTS
            tail = chi_square_tail(float(((seen - expected) ** 2).sum() / expected), PARTS - 1)
            if tail < FALSE_ALARM:
                raise Objection(f"{what}: the {how} of {row.size} elements are not uniform modulo {p}")
    return 2 * ring.size


def kolmogorov(what: str, samples: NDArray[np.float64]) -> None:
    """Object if samples in [0, 1) do not look uniform (Kolmogorov and Smirnov)."""
    ordered = np.sort(samples)
    steps = np.arange(ordered.size + 1) / ordered.size
    distance = float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    if kolmogorov_tail(distance, ordered.size) < FALSE_ALARM:
        raise Objection(f"{what}: {ordered.size} samples are {distance:.2f} away from a uniform law")


def judge(what: str, hits: int, trials: int, chance: float) -> None:
    """Object if more guesses are right than chance explains."""
    if binomial_tail(hits, trials, chance) < FALSE_ALARM:
        raise Objection(f"{what}: {hits / trials:.0%} of {trials} guesses are right; chance explains {chance:.0%}")
