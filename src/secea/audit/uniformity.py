"""A battery of tests for numbers that should be uniform and independent, sharp enough to miss half a per cent.

With a million samples each battery sees that the top half per cent of a range is never drawn, that a bit is 1 in 50.5 %
of the cases, that a residue class modulo a small number is missing, that a word in 200 was there before, or that two
streams share one in 200. All tests of a battery together have a false alarm below `tails.FALSE_ALARM`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.audit import Objection
from secea.audit.tails import FALSE_ALARM, binomial_tail, chi_square_tail

Samples: TypeAlias = NDArray[np.uint64]

MOST_PARTS: Final = 4096
LEAST_EXPECTED: Final = 200
"""Samples that are expected in each part, so that chi-square is a good approximation."""
RESIDUES: Final = range(2, 17)
LAGS: Final = (1, 2, 4)
"""Words that may come from one block of AES."""
SIDE: Final = 32
"""Two samples together are sorted into SIDE * SIDE parts."""


def uniform(what: str, below: int, x: Samples) -> int:
    """Object if samples do not look uniform on {0..below-1} and independent. Returns the number of tests."""
    x = np.ascontiguousarray(x, np.uint64).reshape(-1)
    assert x.size >= 32 * LEAST_EXPECTED, f"{what}: {x.size} samples are too few"
    if int(x.max()) >= below:
        raise Objection(f"{what}: {int(x.max())} is not below {below}")
    alone = [*_sizes(below, x), *_residues(below, x), *_bits(below, x), *_repeats(below, x)]
    near = [(f"neighbours {lag} apart", tail) for lag in LAGS for tail in _together(below, *_halves(x, lag))]
    return _judged(what, x.size, alone, near)


def nonzero(what: str, below: int, x: Samples) -> int:
    """The same for samples on {1..below-1}."""
    x = np.ascontiguousarray(x, np.uint64).reshape(-1)
    if not x.all():
        raise Objection(f"{what}: {int((x == 0).sum())} of {x.size} are 0")
    return uniform(what, below - 1, x - np.uint64(1))


def independent(what: str, below: int, x: Samples, y: Samples) -> int:
    """Object if two series of uniform samples do not look independent, place by place or as a whole."""
    x, y = (np.ascontiguousarray(each, np.uint64).reshape(-1) for each in (x, y))
    both = [("pairs", tail) for tail in _together(below, x, y)]
    return _judged(what, x.size, both, list(_repeats(below, np.concatenate([x, y]))))


Tail: TypeAlias = tuple[str, float]


def _judged(what: str, samples: int, *tests: list[Tail]) -> int:
    """Object if one of the tests has too small a tail."""
    every = [test for some in tests for test in some]
    for how, tail in every:
        if tail < FALSE_ALARM / len(every):
            raise Objection(f"{what}: the {how} of {samples} samples are not those of uniform numbers")
    return len(every)


def _chi_square(seen: NDArray[np.int64], chances: NDArray[np.float64]) -> float:
    expected = seen.sum() * chances
    return chi_square_tail(float(((seen - expected) ** 2 / expected).sum()), seen.size - 1)


def _parts(below: int, x: Samples, most: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The part of the range in which each sample lies, and the chance of each part."""
    width = -(-below // min(below, most))
    edges = [min(below, width * k) for k in range(-(-below // width) + 1)]
    chances = np.array([(b - a) / below for a, b in pairwise(edges)])
    return (x // np.uint64(width)).astype(np.int64), chances


def _sizes(below: int, x: Samples) -> Iterator[Tail]:
    part, chances = _parts(below, x, min(MOST_PARTS, x.size // LEAST_EXPECTED))
    if chances.size > 1:
        seen = np.bincount(part, minlength=chances.size)
        yield "sizes", _chi_square(seen, chances)
        yield from _extremes(seen, chances)


def _extremes(seen: NDArray[np.int64], chances: NDArray[np.float64]) -> Iterator[Tail]:
    """The fullest and the emptiest part: chi-square over thousands of them hardly sees a single one."""
    total, full, empty = int(seen.sum()), np.argmax(seen / chances), np.argmin(seen / chances)
    more = binomial_tail(int(seen[full]), total, float(chances[full]))
    fewer = binomial_tail(total - int(seen[empty]), total, float(1 - chances[empty]))
    yield from (("fullest part", min(1.0, seen.size * more)), ("emptiest part", min(1.0, seen.size * fewer)))


def _residues(below: int, x: Samples) -> Iterator[Tail]:
    cycle = math.lcm(*RESIDUES)
    every = np.bincount((x % np.uint64(cycle)).astype(np.int64), minlength=cycle)
    for m in RESIDUES:
        if m <= below:
            chances = np.array([(below - r + m - 1) // m / below for r in range(m)])
            yield f"residues modulo {m}", _chi_square(every.reshape(-1, m).sum(axis=0), chances)


def _bits(below: int, x: Samples) -> Iterator[Tail]:
    for b in range((below - 1).bit_length()):
        ones = int((x >> np.uint64(b) & np.uint64(1)).sum())
        cycles, rest = divmod(below, 2 << b)
        chance = ((cycles << b) + max(0, rest - (1 << b))) / below
        more, fewer = (binomial_tail(ones, x.size, chance), binomial_tail(x.size - ones, x.size, 1 - chance))
        yield f"bits {b}", min(1.0, 2 * min(more, fewer))


def _repeats(below: int, x: Samples) -> Iterator[Tail]:
    """Pairs of equal samples: too many, or too few. Only where they are rare, else sizes show them."""
    expected = x.size**2 / 2 / below
    if expected < x.size / 16:
        ordered = np.sort(x)
        seen = int((ordered[1:] == ordered[:-1]).sum())
        yield "repetitions", min(1.0, 2 * _poisson_tail(seen, expected))


def _poisson_tail(seen: int, expected: float) -> float:
    """An upper bound on the probability of so many, or so few, of what is rare (Chernoff)."""
    return math.exp(seen - expected - (seen * math.log(seen / expected) if seen else 0.0))


def _halves(x: Samples, lag: int) -> tuple[Samples, Samples]:
    """Samples and those that follow them `lag` later. No sample is in two pairs."""
    blocks = x[: x.size - x.size % (2 * lag)].reshape(-1, 2, lag)
    return blocks[:, 0].reshape(-1), blocks[:, 1].reshape(-1)


def _together(below: int, x: Samples, y: Samples) -> Iterator[float]:
    """Two series side by side: by size, and by low digits."""
    side = min(SIDE, math.isqrt(x.size // LEAST_EXPECTED))
    if below < 2 or side < 2:
        return
    (a, chances), (b, _) = _parts(below, x, side), _parts(below, y, side)
    yield _crossed(a, b, chances)
    m = min(side, below)
    low = np.array([(below - r + m - 1) // m / below for r in range(m)])
    yield _crossed((x % np.uint64(m)).astype(np.int64), (y % np.uint64(m)).astype(np.int64), low)


def _crossed(a: NDArray[np.int64], b: NDArray[np.int64], chances: NDArray[np.float64]) -> float:
    size = chances.size
    return _chi_square(np.bincount(a * size + b, minlength=size * size), np.outer(chances, chances).reshape(-1))
