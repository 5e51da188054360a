"""The discrete Gaussian has its law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from secea.arithmetic.discrete import MOST, farthest, gaussian
from secea.wire.randomness import KeyStream

NEVER = 1e-12
"""The probability with which a law fails by chance. Seeds are fixed as well."""


def drawn(sigma: float, count: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(gaussian(KeyStream(bytes([seed] * 32)).bytes, count, sigma)).reshape(count)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.5, 3.7, 20.0])
def test_every_integer_is_as_likely_as_the_law_says(sigma: float) -> None:
    count, reach = 200_000, farthest(sigma)
    found = np.bincount(drawn(sigma, count) + reach, minlength=2 * reach + 1)
    law = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    expected = count * law / law.sum()
    often = expected >= 10
    rare = expected[~often].sum()
    statistic = ((found - expected)[often] ** 2 / expected[often]).sum()
    assert statistic < chi2.isf(NEVER, int(often.sum()))
    assert found[~often].sum() < rare + 10 * math.sqrt(rare + 10)


@pytest.mark.parametrize("sigma", [1e4 + 0.5, 2.0**33, MOST])
def test_a_wide_one_is_normal(sigma: float) -> None:
    numbers = drawn(sigma, 50_000, 1) / sigma
    assert kstest(numbers, "norm").pvalue > NEVER
    assert chi2.ppf(NEVER, 50_000) < (numbers**2).sum() < chi2.isf(NEVER, 50_000)
    assert np.abs(numbers).max() <= farthest(sigma) / sigma


def test_numbers_of_one_stream_are_independent_of_each_other() -> None:
    numbers = drawn(100.0, 100_000, 2) / 100
    for apart in (1, 2, 50_000):
        assert abs((numbers[apart:] * numbers[:-apart]).sum()) < 7.1 * math.sqrt(100_000 - apart)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, 2 * MOST])
def test_deviations_out_of_range_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="must be positive and at most"):
        drawn(sigma, 1)
    assert drawn(1.0, 0).size == 0
