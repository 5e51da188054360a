"""A weighted mean is as exact as a plan says, whatever the weights are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secea
from secea.forms.keyed import Keyed
from secea.forms.keyed.numbers import numbers_of
from secea.forms.keyed.tables import HALF, Tables, weighing_error
from secea.params import MAX_WEIGHT, WEIGHT_BITS, Params
from secea.wire.keys import Identity


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 5),
    st.sampled_from([1, 2, 3, 10, 1000, 1 << 15]),
    st.sampled_from([24, 30, 38]),
    st.sampled_from([1e-3, 1.0, 64.0, 1e6]),
    st.integers(0, 2**32 - 1),
)
def test_a_weighted_mean_is_off_by_no_more_than_is_said(
    clients: int, max_weight: int, precision: int, max_abs: float, seed: int
) -> None:
    rng, dim = np.random.default_rng(seed), 3
    names = [str(i) for i in range(12)]
    ends = rng.random() < 0.3  # rows at both ends of the range, where errors are largest
    shape = (clients, len(names), dim)
    rows = max_abs * (rng.choice([-1.0, 1.0], shape) if ends else rng.uniform(-1, 1, shape))
    weights = rng.integers(0, max_weight + 1, (clients, len(names)))
    weights[:, rng.random(len(names)) < 0.3] = 1  # as light as can be
    owned = rng.random((clients, len(names))) < 0.7
    owned[0, :] = True
    tables = [{name: rows[n, i] for i, name in enumerate(names) if owned[n, i]} for n in range(clients)]
    given = [{name: int(weights[n, i]) for i, name in enumerate(names) if owned[n, i]} for n in range(clients)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about two clients
        options: dict[str, Any] = {"max_abs": max_abs, "precision": precision, "max_weight": max_weight}
        means = secea.aggregate(tables, weights=given, **options)
    params = Params(clients, dim=dim, **options)
    for i, name in enumerate(names):
        own = np.flatnonzero(owned[:, i])
        w, x = weights[own, i], rows[own, i]
        if not w.any():
            continue
        true = w @ x / w.sum()
        distance = float(np.abs(x[w > 0] - true).max())
        bound = weighing_error(params, w.tolist(), distance)
        for n in own:
            assert np.abs(means[n][name] - true).max() <= bound


def test_a_blurred_weight_is_off_by_half_a_unit_at_most_and_zero_stays_zero() -> None:
    params = Keyed().checked(Params(3, dim=1, max_weight=1000, max_entities=10, max_union=10))
    tables = Tables(params, numbers_of(params, 3), 0, Identity(bytes(32)))
    weights = np.arange(1001)
    for entity in range(50):
        shares = tables.shares(weights, np.full(1001, entity, np.uint64))
        off = np.abs(shares * 1001 - weights)
        assert off.max() <= HALF
        assert off[0] == shares[0] == 0
        assert off.max() > 0.4, "otherwise whole numbers would show how many there are"


@given(st.integers(2, 1024), st.integers(12, 52))
def test_the_divisor_of_a_weighted_mean_is_far_above_its_noise(clients: int, precision: int) -> None:
    """So that a third resolution covers it: the lightest share of all owners is 30 times the noise or more."""
    most = min(MAX_WEIGHT, (1 << precision - WEIGHT_BITS) // clients - 1)
    if most >= 1:
        params = Params(clients, dim=1, precision=precision, max_weight=most)
        lightest = (1 - HALF) / (clients * (most + 1))
        assert lightest >= 30 * params.resolution / params.max_abs


@pytest.mark.parametrize("weights", [[5], [5, 5, 5], [1000, 1]])
def test_the_error_that_is_printed_is_that_of_owners_of_this_mean_weight(weights: list[int]) -> None:
    params = Params(3, dim=1, max_weight=1000)
    mean = sum(weights) / len(weights)
    said = 3 * params.resolution * 1001 / (mean - 0.5) + 2.0 / (2 * mean - 1)
    assert weighing_error(params, weights, 2.0) == pytest.approx(said, rel=1e-6)
