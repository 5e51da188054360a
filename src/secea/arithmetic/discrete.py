"""The discrete Gaussian: integers z with a probability proportional to exp(-z^2 / (2 sigma^2)).

Drawn by the rejection of Canonne, Kamath and Steinke (arXiv 2004.00010, algorithms 1 to 3), many at a time, from a key
stream. Probabilities are compared in 53 bits, so each number is within about 2^-50 of the law. Numbers beyond
`farthest` are drawn again, which happens once in 2^100.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Draw: TypeAlias = Callable[[int], bytes]
"""The next bytes of a key stream."""

REACH: Final = 12
"""In standard deviations: beyond lie less than 2^-100 of the law."""
MOST: Final = 2.0**58
"""The largest standard deviation."""


def farthest(sigma: float) -> int:
    """The largest number that is drawn, whichever way."""
    return math.ceil(REACH * sigma)


def gaussian(draw: Draw, count: int, sigma: float) -> NDArray[np.int64]:
    """So many independent numbers."""
    if not 0 < sigma <= MOST:
        raise ValueError(f"the standard deviation must be positive and at most 2**58, got {sigma}")
    found = np.empty(count, np.int64)
    have = 0
    while have < count:
        some = _accepted(draw, int(1.6 * (count - have)) + 16, sigma)[: count - have]
        found[have : have + len(some)] = some
        have += len(some)
    return found


def _accepted(draw: Draw, count: int, sigma: float) -> NDArray[np.int64]:
    """Those of so many candidates that are accepted: discrete Laplace numbers of scale t, thinned out."""
    t = math.floor(sigma) + 1
    y = _laplace(draw, count, t)
    far = (np.abs(y).astype(np.float64) - sigma * sigma / t) / sigma
    keep = _uniform(draw, y.size) < np.exp(-0.5 * far * far)
    kept: NDArray[np.int64] = y[keep & (np.abs(y) <= farthest(sigma))]
    return kept


def _laplace(draw: Draw, count: int, t: int) -> NDArray[np.int64]:
    """Numbers y with a probability proportional to exp(-|y|/t), out of so many candidates."""
    u = _below(draw, count, t)
    u = u[_uniform(draw, u.size) < np.exp(-u / t)]
    # How often an event of probability 1/e happens in a row: 1 - uniform is in (0, 1].
    v = np.floor(-np.log(1.0 - _uniform(draw, u.size))).astype(np.int64)
    v = np.minimum(v, (1 << 62) // t)
    size = u + t * v
    minus = np.frombuffer(draw(size.size), np.uint8) & 1 == 1
    real = ~(minus & (size == 0))  # 0 would come twice
    signed: NDArray[np.int64] = np.where(minus, -size, size)[real]
    return signed


def _uniform(draw: Draw, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), of 53 bits."""
    words = np.frombuffer(draw(8 * count), "<u8")
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _below(draw: Draw, count: int, t: int) -> NDArray[np.int64]:
    """Integers in [0, t), out of so many words of 64 bits. The last words, which do not go round, are dropped."""
    words = np.frombuffer(draw(8 * count), "<u8")
    words = words[words < np.uint64((1 << 64) - (1 << 64) % t)] if (1 << 64) % t else words
    return (words % np.uint64(t)).astype(np.int64)
