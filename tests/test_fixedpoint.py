"""Laws of fixed point: how near a value comes back, which values are refused, and the mean out of r*sum and r*count."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from secea.arithmetic.field import M61, RING61, Residues, insecure_ring
from secea.arithmetic.fixedpoint import (
    Floats,
    centred,
    check_range,
    clip,
    decode,
    encode,
    largest,
    means_from_masked,
    reconstruction_is_unique,
)
from secea.errors import TableError
from secea.params import MAX_PRECISION, Params
from secea.wire.randomness import KeyStream
from strategies import federations, vectors

law = settings(deadline=None)
FLOATS: list[Any] = [np.float32, np.float64]
each_dtype = pytest.mark.parametrize("dtype", FLOATS)
precisions = st.integers(1, MAX_PRECISION)
# Not every bound is a float32.
bounds = st.sampled_from([64.0, 0.1, 65.0, 1 / 3, 2.0**-20, 1e6]) | st.floats(2.0**-20, 2.0**20)
fraction = st.floats(-1, 1, width=32) | st.sampled_from([-1.0, 0.0, 1.0])


@st.composite
def tables(draw: st.DrawFn, dtype: type[np.floating[Any]], max_abs: float) -> Floats:
    """A small matrix within the bound, with values at its very ends."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    end = dtype(max_abs)
    if end > np.float64(max_abs):
        end = np.nextafter(end, dtype(0))
    matrix: Floats = (draw(arrays(np.float32, shape, elements=fraction)) * end).astype(dtype)
    return matrix


# ---------------------------------------------------------------------------------------------------------- round trip


@each_dtype
@law
@given(st.data(), bounds, precisions)
def test_a_value_comes_back_within_the_resolution(
    dtype: type[np.floating[Any]], data: st.DataObject, max_abs: float, precision: int
) -> None:
    params = Params(3, 1, max_abs=max_abs, precision=precision)
    x = data.draw(tables(dtype, max_abs))
    check_range(x, range(len(x)), max_abs)
    q = encode(x, params.fraction_bits)
    assert np.abs(q).max() <= largest(params)
    back = decode(q, params.fraction_bits)
    assert np.abs(back - x).max() <= params.resolution / 2
    assert np.abs(back.astype(dtype).astype(np.float64) - x).max() <= params.resolution


@law
@given(st.lists(st.floats(-64, 64), min_size=1), st.integers(-5, 40))
def test_rounding_is_to_the_nearest_and_half_to_even(values: list[float], fraction_bits: int) -> None:
    halves = [(k + 0.5) * 2.0**-fraction_bits for k in range(-4, 4)]
    exact = [round(Fraction(x) * Fraction(2) ** fraction_bits) for x in values + halves]
    assert encode(np.array([values + halves]), fraction_bits).tolist() == [exact]


@law
@given(st.lists(st.integers(-(2**52), 2**52), min_size=1), st.integers(-60, 100))
def test_a_fixed_point_number_comes_back_exactly(values: list[int], fraction_bits: int) -> None:
    q = np.array([values], np.int64)
    assert np.array_equal(encode(decode(q, fraction_bits), fraction_bits), q)


@law
@given(st.sampled_from([RING61, insecure_ring(11), insecure_ring(2**31 - 1)]), st.data())
def test_a_centred_element_is_the_integer_it_stands_for(ring: Any, data: st.DataObject) -> None:
    half = ring.primes[0] // 2
    values = data.draw(st.lists(st.integers(-half, half), min_size=1))
    assert centred(ring, ring.reduce(np.array(values, np.int64))).tolist() == values


# ------------------------------------------------------------------------------------------------------------ refusals


@each_dtype
@law
@given(st.data(), bounds)
def test_nan_infinity_and_values_out_of_range_are_refused_with_entity_and_coordinate(
    dtype: type[np.floating[Any]], data: st.DataObject, max_abs: float
) -> None:
    x = data.draw(tables(dtype, max_abs))
    names = data.draw(st.permutations(["aspirin", 7, "8", "Ω"]))
    above = np.nextafter(np.nextafter(dtype(max_abs), dtype(np.inf)), dtype(np.inf))
    row, column = (data.draw(st.integers(0, size - 1)) for size in x.shape)
    x[row, column] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, above, -above, 2 * above]))
    with pytest.raises(TableError, match=f"^entity {names[row]!r}, coordinate {column}: ") as refusal:
        check_range(x, names, max_abs)
    assert isinstance(refusal.value, ValueError)


def test_the_first_of_several_offenders_is_named() -> None:
    x = np.array([[0.0, 1.0], [0.0, np.nan], [np.inf, 0.0]])
    with pytest.raises(TableError, match=r"^entity 'b', coordinate 1: nan"):
        check_range(x, ["a", "b", "c"], 64.0)


@each_dtype
@law
@given(bounds, st.sampled_from([-1, 1]), st.sampled_from([-np.inf, 0.0, np.inf]))
@example(0.1, 1, 0.0)
def test_a_value_is_accepted_exactly_where_it_lies_within_the_bound(
    dtype: type[np.floating[Any]], max_abs: float, sign: int, towards: float
) -> None:
    x = sign * (np.nextafter(dtype(max_abs), dtype(towards)) if towards else dtype(max_abs))
    if abs(Fraction(float(x))) <= Fraction(max_abs):
        check_range(np.array([[x]]), ["a"], max_abs)
    else:
        with pytest.raises(TableError, match="entity 'a', coordinate 0"):
            check_range(np.array([[x]]), ["a"], max_abs)


@each_dtype
@law
@given(bounds, st.lists(fraction.map(lambda x: 2 * x) | st.sampled_from([np.inf, -np.inf]), min_size=1))
@example(0.1, [2.0])
def test_clipped_values_are_within_the_bound_and_those_that_were_stay_as_they_are(
    dtype: type[np.floating[Any]], max_abs: float, multiples: list[float]
) -> None:
    x = (np.array([multiples]) * max_abs).astype(dtype)
    clipped = clip(x, max_abs)
    assert clipped.dtype == dtype
    assert (np.abs(clipped.astype(np.float64)) <= max_abs).all()
    assert (np.sign(clipped) == np.sign(x)).all()
    inside = np.abs(x.astype(np.float64)) <= max_abs
    assert np.array_equal(clipped[inside], x[inside])
    check_range(clipped, ["a"], max_abs)


# ------------------------------------------------------------------------------------------- rational reconstruction


def masked_rows(sums: NDArray[Any], counts: NDArray[Any], r: Residues) -> Residues:
    """(r*sum, r*count) for each row, as a client sees them (eq. 16)."""
    plain = RING61.constant(np.concatenate([sums, counts[:, None]], axis=1))
    return RING61.multiply(plain, np.repeat(r[:, :, None], plain.shape[2], axis=2))


@law
@given(federations(), st.data(), st.binary(min_size=32, max_size=32))
def test_the_mean_is_found_for_every_count(params: Params, data: st.DataObject, key: bytes) -> None:
    assert reconstruction_is_unique(params)
    Q = largest(params)
    counts = np.arange(1, params.N + 1)
    coordinate = st.integers(-Q, Q) | st.sampled_from([-Q, 0, Q])
    values = [[data.draw(coordinate) for _ in range(params.dim)] for _ in range(params.N)]
    sums = np.cumsum(np.array(values, object), axis=0)  # over one client, over two, over all
    masked = masked_rows(sums, counts, KeyStream(key).nonzero(RING61, params.N))
    means, found = means_from_masked(RING61, masked, params)
    assert found.all()
    exact = sums * np.array([[Fraction(1, int(c) << params.fraction_bits)] for c in counts])
    assert np.abs(means - exact.astype(np.float64)).max() <= params.max_abs * 2.0**-52


def is_mean(params: Params, row: list[int]) -> bool:
    """Whether there is a count, and sums that so many values can have, with the row's ratios."""
    *sums, count = row
    if count == 0:
        return False
    ratios = [s * pow(count, -1, M61) % M61 for s in sums]
    return any(
        all(min(c * x % M61, -c * x % M61) <= c * largest(params) for x in ratios) for c in range(1, params.N + 1)
    )


@law
@given(federations(most=5), st.data())
def test_a_mean_is_found_exactly_where_there_is_one(params: Params, data: st.DataObject) -> None:
    junk = data.draw(vectors(RING61, 6, params.dim + 1))
    small = RING61.reduce(np.array(data.draw(st.lists(st.integers(-(2**34), 2**34), min_size=6, max_size=6))))
    junk[:, :, 0] = small
    junk[:, ::2, -1] = 1
    _, found = means_from_masked(RING61, junk, params)
    assert found.tolist() == [is_mean(params, row) for row in junk[0].tolist()]


def test_random_elements_are_no_means() -> None:
    junk = KeyStream(bytes(32)).elements(RING61, 2000, 4)
    assert not means_from_masked(RING61, junk, Params(10, 3))[1].any()


@law
@given(federations(), st.data())
def test_a_count_of_zero_has_no_mean(params: Params, data: st.DataObject) -> None:
    row = data.draw(vectors(RING61, 1, params.dim + 1))
    row[:, :, -1] = 0
    means, found = means_from_masked(RING61, row, params)
    assert not found.any()
    assert not means.any()


def wrong_means(p: int) -> int:
    """How many of all the sums, counts and masks of a tiny federation give no mean or a wrong one."""
    params, ring = Params(3, 1, max_abs=1, precision=1), insecure_ring(p)
    assert reconstruction_is_unique(params, p) == (p > 36)
    cases = [(r, s, c) for c in range(1, 4) for s in range(-2 * c, 2 * c + 1) for r in range(1, p)]
    masked = ring.constant([[r * s, r * c] for r, s, c in cases])
    means, found = means_from_masked(ring, masked, params)
    true = np.array([s / c / 2 for _, s, c in cases])
    return int((~found | (np.abs(means[:, 0] - true) > 1e-12)).sum())


def test_every_mean_is_right_in_the_smallest_field_that_is_large_enough() -> None:
    assert wrong_means(37) == 0
    assert wrong_means(41) == 0


@pytest.mark.parametrize("p", [5, 7, 11, 13])
def test_some_means_are_wrong_in_a_field_that_is_too_small(p: int) -> None:
    assert wrong_means(p) > 0


@law
@given(st.integers(3, 200), st.integers(1, MAX_PRECISION))
def test_the_condition_for_a_unique_mean_is_the_specifications(clients: int, precision: int) -> None:
    params = Params(clients, 1, precision=precision)
    assert reconstruction_is_unique(params) == (2 * clients**2 * 2**precision < M61)
