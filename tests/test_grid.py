"""The bits below an input's own grid are filled: privately, the same in every round, and no further than promised."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea import Params
from secea.arithmetic import grid
from secea.arithmetic.field import PRIMES32, Ring

RING = Ring(PRIMES32[:4])
PARAMS = Params(clients=5, dim=8)
F = 80


def bf16(x: NDArray[np.float64]) -> NDArray[np.float64]:
    words = x.astype(np.float32).view(np.uint32)
    return ((words + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def encoded(matrix: NDArray[np.floating], key: bytes = bytes(32), f: int = F) -> NDArray[np.float64]:
    """What is shared, as numbers again."""
    names = [f"entity {i}" for i in range(len(matrix))]
    residues = grid.encode(RING, matrix, grid.entities(names, key), key, f, PARAMS)
    return RING.join(residues, 2.0**-f)


def normal(*shape: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(11)).normal(size=shape)


@pytest.mark.parametrize(
    ("matrix", "bits"),
    [
        (normal(200, 8), 52),
        (normal(200, 8).astype(np.float32), 23),
        (normal(200, 8).astype(np.float32).astype(np.float64), 23),
        (normal(200, 8).astype(np.float16).astype(np.float64), 10),
        (bf16(normal(200, 8)), 7),
    ],
    ids=["float64", "float32", "float32 in float64", "float16", "bf16"],
)
def test_the_precision_of_the_input_is_found(matrix: NDArray[np.float64], bits: int) -> None:
    found, _ = grid.grid_of(np.ascontiguousarray(matrix, np.float64), matrix.dtype)
    assert found == bits


@pytest.mark.parametrize("exponent", [-5, -8, -12])
def test_a_common_step_is_found(exponent: int) -> None:
    matrix = np.rint(np.ldexp(normal(200, 8), -exponent)) * 2.0**exponent
    assert grid.grid_of(matrix, matrix.dtype)[1] == 2.0**exponent


@pytest.mark.parametrize("decimals", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_last_decimal_of_numbers_from_texts_is_found(decimals: int, dtype: type[np.floating[Any]]) -> None:
    matrix = np.round(np.random.default_rng(decimals).normal(size=(200, 8)), decimals).astype(dtype)
    _, found = grid.grid_of(matrix.astype(np.float64), matrix.dtype)
    assert found == pytest.approx(10.0**-decimals)
    matrix[17, 3] += dtype(0.3) * dtype(10.0**-decimals)  # one number off the grid: there is none
    _, found = grid.grid_of(matrix.astype(np.float64), matrix.dtype)
    assert found < 10.0**-decimals / 2


@pytest.mark.parametrize("scale", [0.0173, 0.5, 1 / 3])
def test_the_scale_of_dequantised_integers_is_found(scale: float) -> None:
    levels = np.clip(np.rint(normal(200, 8) * 40), -127, 127)
    for matrix in (levels * scale, (levels * scale).astype(np.float32)):
        found = grid.grid_of(np.ascontiguousarray(matrix, np.float64), matrix.dtype)[1]
        assert found == pytest.approx(scale, rel=1e-5)
        moved = (encoded(matrix) - matrix) / scale
        assert 0.45 < np.abs(moved).max() <= 1


def test_few_values_are_taken_as_they_are() -> None:
    matrix = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert grid.grid_of(matrix, matrix.dtype) == (52, 0.0)
    assert np.abs(encoded(matrix) - matrix).max() < PARAMS.resolution / 8


@settings(deadline=None, max_examples=50, database=None)
@given(st.lists(st.floats(-64, 64), min_size=8, max_size=8))
def test_numbers_of_full_precision_move_by_less_than_an_eighth_of_the_resolution(row: list[float]) -> None:
    matrix = np.array([row])
    assert np.abs(encoded(matrix) - matrix).max() <= PARAMS.resolution / 8


@pytest.mark.parametrize("exponent", [-4, -8, -12])
def test_numbers_on_a_grid_move_by_at_most_half_of_it_and_fill_it_evenly(exponent: int) -> None:
    matrix = np.rint(np.ldexp(normal(500, 8), -exponent)) * 2.0**exponent
    moved = (encoded(matrix) - matrix) * 2.0**-exponent
    assert np.abs(moved).max() <= 0.5
    counts, _ = np.histogram(moved, bins=10, range=(-0.5, 0.5))
    assert ((counts - 400.0) ** 2 / 400).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001; the seed is fixed
    assert abs(moved.mean()) < 0.03


def test_the_fill_is_the_same_in_every_round_and_another_for_another_key_entity_coordinate_or_value() -> None:
    matrix = bf16(np.repeat(normal(1, 8), 300, axis=0))
    first = encoded(matrix)
    assert np.array_equal(first, encoded(matrix))
    assert np.unique(first[:, 0]).size == 300  # the same value in 300 entities
    assert (first != encoded(matrix, b"k" * 32)).all()
    same = bf16(np.full((300, 8), 0.7))
    assert np.unique(encoded(same)[0]).size == 8  # the same value in 8 coordinates
    changed = matrix.copy()
    changed[0, 0] *= 2
    other = encoded(changed)
    assert other[0, 0] - changed[0, 0] != 2 * (first[0, 0] - matrix[0, 0])
    assert np.array_equal(other[1:], first[1:])


@settings(deadline=None, max_examples=50, database=None)
@given(st.binary(min_size=32, max_size=32), st.integers(40, 110), st.integers(40, 110), st.sampled_from([4, 8, 60]))
def test_the_fill_is_the_same_number_whatever_the_fixed_point(key: bytes, f: int, other: int, bits: int) -> None:
    matrix = np.rint(np.ldexp(normal(20, 8), bits)) * 2.0**-bits
    apart = np.abs(encoded(matrix, key, f) - encoded(matrix, key, other))
    assert apart.max() <= 2.0 ** (1 - min(f, other)) + 2.0**-48, "but for what is cut off below the fixed point"


def test_a_table_of_zeros_is_no_coarse_grid() -> None:
    matrix = np.zeros((300, 8))
    assert np.abs(encoded(matrix)).max() <= PARAMS.resolution / 8
    matrix[0, 0] = 1.0
    assert np.abs(encoded(matrix) - matrix).max() <= PARAMS.resolution / 8


def test_exact_zeros_are_filled_too() -> None:
    matrix = normal(200, 8)
    matrix[:, 0] = 0
    zeros = encoded(matrix)[:, 0]
    assert (zeros != 0).all()
    assert np.abs(zeros).max() <= PARAMS.resolution / 8


# ------------------------------------------------------------------------------------------------- the grids of rows


def of_row(row: list[float], used: int, step: float) -> tuple[int, float]:
    """In plain fractions: bits below the leading one, and the lowest bit of all, where 8 sizes or more differ."""
    sizes = {abs(Fraction(x)) for x in row if abs(x) >= 2.0**-1022}
    if len(sizes) < 8:
        return used, step
    low = [(x.numerator & -x.numerator).bit_length() - 1 - (x.denominator.bit_length() - 1) for x in sizes]
    bits = max(math.frexp(float(x))[1] - 1 - each for x, each in zip(sizes, low, strict=True))
    return min(used, max(7, bits)), max(step, 2.0 ** min(low))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.lists(
            st.floats(-64, 64) | st.floats(-64, 64, width=16) | st.integers(-9, 9).map(float), min_size=12, max_size=12
        ),
        max_size=4,
    ),
    st.integers(7, 52),
    st.sampled_from((0.0, 1e-3, 0.25)),
)
def test_the_grid_of_a_row_is_that_of_its_own_numbers(rows: list[list[float]], used: int, step: float) -> None:
    bits, steps = grid.grid_of_rows(np.array(rows).reshape(-1, 12), used, step)
    assert list(zip(bits.tolist(), steps.tolist(), strict=True)) == [of_row(row, used, step) for row in rows]


def test_one_fine_row_does_not_change_the_grids_of_the_others() -> None:
    coarse = bf16(normal(200, 8))
    coarse[:, 0] = 1 + 2.0**-7  # so that every row uses all of its bits
    matrix = np.concatenate([coarse, normal(1, 8)])
    used, step = grid.grid_of(matrix, matrix.dtype)
    bits, steps = grid.grid_of_rows(matrix, used, step)
    enough = np.array([np.unique(np.abs(row)).size >= 8 for row in coarse])
    assert enough.sum() > 150
    assert used == bits[-1] == 52
    assert set(bits[:-1][enough].tolist()) == {7}
    lowest = np.array([2.0 ** min(math.frexp(x)[1] - 8 for x in row) for row in coarse])
    assert (steps[:-1][enough] >= lowest[enough]).all()


def test_seven_sizes_are_not_enough_and_eight_are() -> None:
    rows = np.array([[1.0, 2, 3, 4, 5, 6, 7, -7, 0], [1, 2, 3, 4, 5, 6, 7, 8, 0], [0] * 9])
    bits, steps = grid.grid_of_rows(rows, 52, 0.0)
    assert bits.tolist() == [52, 7, 52]
    assert steps.tolist() == [0, 1, 0]
