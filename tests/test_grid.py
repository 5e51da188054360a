"""The grid that inputs have of their own is found, for a table and for each of its rows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import secea
from secea import Params
from secea.arithmetic import grid


def bf16(x: NDArray[np.float64]) -> NDArray[np.float64]:
    words = x.astype(np.float32).view(np.uint32)
    return ((words + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


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


def test_few_values_are_taken_as_they_are() -> None:
    matrix = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert grid.grid_of(matrix, matrix.dtype) == (52, 0.0)


def test_a_table_of_zeros_is_no_coarse_grid() -> None:
    matrix = np.zeros((300, 8))
    assert grid.grid_of(matrix, matrix.dtype) == (52, 0.0)
    matrix[0, 0] = 1.0
    assert grid.grid_of(matrix, matrix.dtype) == (52, 0.0)


def test_denormal_numbers_are_as_good_as_zeros() -> None:
    denormal = np.ldexp(np.arange(1.0, 65.0), -1074).reshape(16, 4)
    assert grid.grid_of(denormal, denormal.dtype) == (52, 0.0)
    beside = np.concatenate([denormal, np.rint(np.ldexp(normal(16, 4), 8)) * 2.0**-8])
    assert grid.grid_of(beside, beside.dtype)[1] == 2.0**-8
    for mean in secea.aggregate([dict(enumerate(denormal))] * 3):
        assert np.abs(list(mean.values())).max() <= Params(clients=3, dim=4).resolution


def test_a_large_number_that_is_not_looked_at_is_no_warning() -> None:
    matrix = np.tile(np.arange(1.0, 101.0) * grid.LEAST, 100).reshape(100, 100)
    matrix[0, 1] = 64.0
    assert 64.0 not in matrix.reshape(-1)[:: 1 + matrix.size // grid.MOST_LOOKED_AT]
    assert grid.grid_of(matrix, matrix.dtype) == (7, 1.0)  # beside 64 all others are zeros


@given(st.lists(st.floats(-64, 64) | st.floats(-1e-300, 1e-300), min_size=40, max_size=40))
def test_every_table_has_a_grid(numbers: list[float]) -> None:
    matrix = np.array(numbers).reshape(10, 4)
    used, step = grid.grid_of(matrix, matrix.dtype)
    assert 7 <= used <= 52
    assert 0 <= step <= 64
    bits, steps = grid.grid_of_rows(matrix, used, step)
    assert ((bits >= 7) & (bits <= used)).all()
    assert ((steps >= step) & np.isfinite(steps)).all()


# ------------------------------------------------------------------------------------------------- the grids of rows


def of_row(row: list[float], used: int, step: float) -> tuple[int, float]:
    """In plain fractions: bits below the leading one, and the lowest bit of all, where 8 sizes or more differ."""
    sizes = {abs(Fraction(x)) for x in row if abs(x) >= 2.0**-1022}
    if len(sizes) < 8:
        return used, step
    low = [(x.numerator & -x.numerator).bit_length() - 1 - (x.denominator.bit_length() - 1) for x in sizes]
    bits = max(math.frexp(float(x))[1] - 1 - each for x, each in zip(sizes, low, strict=True))
    return min(used, max(7, bits)), max(step, 2.0 ** min(low))


@settings(deadline=None)
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
