"""The discrete Gaussian follows its law, to the extent that so many numbers can tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from secea.arithmetic.discrete import MOST, farthest, gaussian
from secea.wire.randomness import KeyStream

KEY = b"discrete Gaussian numbers, test."
CERTAIN = 1e-9
"""A test that is right fails with this probability, if the key is drawn at random."""


def drawn(count: int, sigma: float, lane: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return gaussian(KeyStream(KEY, lane).bytes, count, sigma)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.5, 3.7, 20.0])
def test_each_number_comes_as_often_as_its_law_says(sigma: float) -> None:
    count, far = 200_000, math.ceil(12 * sigma)
    support = np.arange(-far, far + 1)
    law = np.exp(-(support**2) / (2 * sigma**2))
    expected = count * law / law.sum()
    found = np.bincount(drawn(count, sigma) + far, minlength=support.size)
    common = expected >= 10
    table = np.array([[found[common], expected[common]]])[0]
    rest = [found[~common].sum()], [expected[~common].sum()]
    observed, due = (np.append(row, more) for row, more in zip(table, rest, strict=True))
    keep = due > 0
    due = due * observed[keep].sum() / due[keep].sum()
    assert stats.chisquare(observed[keep], due[keep]).pvalue > CERTAIN


@pytest.mark.parametrize("bits", [10, 30, 45, 57])
def test_wide_ones_are_gaussian_as_far_as_one_can_see(bits: int) -> None:
    numbers = drawn(100_000, 2.0**bits) / 2.0**bits
    assert stats.kstest(numbers, "norm").pvalue > CERTAIN
    assert abs(numbers.mean()) < 6.5 / math.sqrt(numbers.size)
    assert abs(numbers.var() - 1) < 6.5 * math.sqrt(2 / numbers.size)


def test_none_is_farther_than_it_says() -> None:
    for sigma in (0.1, 1.0, 2.0**20):
        assert np.abs(drawn(20_000, sigma)).max() <= farthest(sigma) == math.ceil(12 * sigma)


def test_even_and_odd_low_bits_come_alike() -> None:
    low = drawn(100_000, 2.0**40) & 0xFF
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > CERTAIN


def test_the_same_stream_gives_the_same_numbers_and_another_lane_others() -> None:
    assert (drawn(1000, 100.0) == drawn(1000, 100.0)).all()
    assert np.count_nonzero(drawn(1000, 1e6) == drawn(1000, 1e6, lane=1)) < 5


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2 * MOST])
def test_a_deviation_that_makes_no_sense_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="standard deviation"):
        drawn(1, sigma)
