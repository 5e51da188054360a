"""Tails of distributions, for checks that must not raise a false alarm: all of them bounds or series, no tables.

FALSE_ALARM is the budget of one test. Attacks and statistics together make fewer than 1,000 tests, so the budget of all
is 1e-11. Bounds keep it exactly. The law of chi-square is an approximation: with at least 180 samples expected in a
part, a tail of 1e-14 is right to within a factor of about 100, and the audit as a whole stays below 1e-9.
"""

from __future__ import annotations

import math
from typing import Final

FALSE_ALARM: Final = 1e-14


def binomial_tail(hits: int, trials: int, chance: float) -> float:
    """An upper bound on the probability of so many hits or more (Chernoff): exp(-trials * KL(hits/trials, chance))."""
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
    """An upper bound on the probability that an empirical law is so far from its own (Dvoretzky, Kiefer, Wolfowitz)."""
    return min(1.0, 2 * math.exp(-2 * samples * distance**2))
