"""Noise as large as the accountant asks for, on changes as small as the clip says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from secea.errors import ParamsError
from secea.learn.privacy import Privacy, calibrated, epsilon, gaussian, new_key
from secea.wire.randomness import KeyStream

KEY = bytes(range(32))


def exact_epsilon(multiplier: float, delta: float, rounds: int) -> float:
    """Of the Gaussian mechanism in closed form (Balle and Wang 2018, theorem 8); rounds add up as 1/multiplier^2."""
    mu = math.sqrt(rounds) / multiplier

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)) - delta

    return float(brentq(excess, 0.0, 200.0))


@pytest.mark.parametrize(("multiplier", "rounds"), [(10.0, 1), (20.0, 40), (8.0, 100)])
def test_the_epsilon_is_just_above_that_of_the_closed_form(multiplier: float, rounds: int) -> None:
    for rows in (1, 4):
        found = epsilon(Privacy(0.1, multiplier), 1e-5, rounds, rows)
        exact = exact_epsilon(multiplier / math.sqrt(rows), 1e-5, rounds)
        assert exact <= found <= 1.15 * exact


def test_the_epsilon_is_the_accountants_known_value() -> None:
    # 40 rounds with 20 times the sensitivity: Renyi divergence alpha * 40 / (2 * 400), turned into epsilon at 1e-5.
    assert epsilon(Privacy(0.1, 20.0), 1e-5, 40) == pytest.approx(1.3085, abs=1e-3)


@pytest.mark.parametrize("target", [1.0, 8.0])
def test_calibrated_noise_spends_the_epsilon_and_not_more(target: float) -> None:
    mechanism = calibrated(target, 1e-5, clip=0.5, rounds=20)
    spent = epsilon(mechanism, 1e-5, 20)
    assert 0.98 * target <= spent <= target * 1.0001
    assert mechanism.deviation == pytest.approx(2 * 0.5 * mechanism.multiplier)


def test_noise_is_added_as_large_as_said_and_to_every_coordinate() -> None:
    mechanism = Privacy(clip=0.1, multiplier=3.0)
    before = np.ones((500, 40), np.float64)
    noise = mechanism.noised(before, before, KEY, client=2, round=7) - before
    assert noise.std() == pytest.approx(0.6, rel=0.02)
    assert abs(noise.mean()) < 0.02
    assert np.abs(np.corrcoef(noise.T) - np.eye(40)).max() < 0.25
    assert len(np.unique(noise)) > 19_000


def test_the_noise_is_normal() -> None:
    assert kstest(gaussian(KeyStream(KEY), 20_001), "norm").pvalue > 0.01


def test_changes_are_clipped_to_the_norm_and_small_ones_stay() -> None:
    mechanism = Privacy(clip=0.5, multiplier=0.0)
    before = np.zeros((3, 4), np.float64)
    after = np.array([[3.0, 4.0, 0, 0], [0.3, 0, 0, 0], [0, 0, 0, 0]], np.float64)
    out = mechanism.noised(before, after, KEY, 0, 1)
    assert out.ravel().tolist() == pytest.approx([0.3, 0.4, 0, 0, 0.3, 0, 0, 0, 0, 0, 0, 0])


def test_noise_differs_between_clients_rounds_and_keys() -> None:
    mechanism, rows = Privacy(1.0, 1.0), np.zeros((2, 2), np.float64)
    cases = [(KEY, 0, 1), (KEY, 1, 1), (KEY, 0, 2), (KEY, 11, 1), (KEY, 1, 11), (new_key(), 0, 1)]
    seen = [mechanism.noised(rows, rows, *case) for case in cases]
    assert len({each.tobytes() for each in seen}) == len(seen)


@pytest.mark.parametrize("wrong", [(0.0, 1e-5, 1.0), (1.0, 0.0, 1.0), (1.0, 1e-5, 0.0)])
def test_settings_without_meaning_are_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(ParamsError, match="privacy needs epsilon > 0"):
        calibrated(*wrong, rounds=3)
