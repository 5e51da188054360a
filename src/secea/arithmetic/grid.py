"""Inputs with a grid of their own: the bits below it are filled, so that a mean does not show its count.

A float lies on a grid: that of its dtype, or a coarser one if it was rounded before (bf16, fp16, int8 in a float
table, a few decimals in a text). The sum of c such numbers lies on the grid too, so the exact mean gives c away. The
owner therefore fills what is below the grid with a keyed function of entity, coordinate and value: private, the same in
every round, centred, and the same number in every session, whatever its fixed point.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic._kernels import ffi, lib
from secea.table import Name, name_bytes

COARSEST_BITS: Final = 7
"""Significant bits below the leading one in bf16, the coarsest float type."""
ENOUGH_DISTINCT: Final = 32
"""A grid that is coarser than the dtype's is inferred from at least this many different sizes.

Fewer may just be round numbers."""
ENOUGH_IN_A_ROW: Final = 8
"""The same for the grid of one row."""
MOST_LOOKED_AT: Final = 1 << 13
"""Values that are sampled to count different sizes."""
LEAST: Final = float(np.finfo(np.float64).smallest_normal)
"""Smaller numbers count as zero and have no grid. The kernels skip them too."""
MOST_DECIMALS: Final = 15
MOST_LEVELS: Final = 1 << 15
"""Numbers may have been integers of up to 16 bits, times a scale."""
NEAR: Final = 2.0**-7
"""How far float32 may move an integer of 16 bits times a scale, and twice as much, in parts of the scale."""


def grid_of(matrix: NDArray[np.float64], dtype: np.dtype[Any]) -> tuple[int, float]:
    """How the values were rounded: significant bits below the leading one, and a common step (0 if there is none)."""
    finest = 23 if dtype == np.float32 else 52
    some = np.abs(matrix.reshape(-1)[:: 1 + matrix.size // MOST_LOOKED_AT])
    few = np.unique(some[some >= LEAST])
    if few.size < ENOUGH_DISTINCT:
        return finest, 0.0
    used, step = ffi.new("int *"), ffi.new("int *")
    lib.significance(ffi.from_buffer("double[]", matrix), matrix.size, used, step)
    steps = math.ldexp(1.0, step[0]), _common_step(matrix, few), _decimal_step(matrix, few, finest)
    return max(COARSEST_BITS, min(finest, used[0])), max(steps)


def grid_of_rows(matrix: NDArray[np.float64], used: int, step: float) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The same for each row, which may be coarser than its table, given what the table has.

    Else one fine number anywhere in a table would narrow the fill of all its rows.
    """
    rows, dim = matrix.shape
    bits, low, sizes = (np.empty(rows, np.int32) for _ in range(3))
    lib.significance_rows(
        ffi.from_buffer("double[]", matrix),
        rows,
        dim,
        ENOUGH_IN_A_ROW,
        *(ffi.from_buffer("int[]", x) for x in (bits, low, sizes)),
    )
    enough = sizes == ENOUGH_IN_A_ROW
    each = np.where(enough, np.clip(bits, COARSEST_BITS, used), used).astype(np.int32)
    return each, np.maximum(np.ldexp(np.where(enough, 1.0, 0.0), np.where(enough, low, 0)), step)


def _common_step(matrix: NDArray[np.float64], few: NDArray[np.float64]) -> float:
    """The scale of numbers that were integers of few bits times a scale (dequantised); 0 if they were not."""
    apart, largest = few - few[0], float(few[-1])
    step = float(np.diff(few, prepend=0.0).min())
    if largest > 2 * MOST_LEVELS * step:
        return 0.0
    # A difference has the floats' rounding in it. The same rounding counts for less in one that is twice as large.
    reach = np.searchsorted(apart, step * 2.0 ** np.arange(1, MOST_LEVELS.bit_length()))
    for known in (*apart[np.minimum(reach, few.size - 1)].tolist(), largest):
        step = known / max(1, round(known / step))
    with np.errstate(over="ignore", invalid="ignore"):  # beside tiny numbers there may be one that was not looked at
        levels = matrix / step
        near = np.abs(levels - np.rint(levels)).max() < NEAR
    return step if near and np.abs(levels).max() <= MOST_LEVELS + 0.5 else 0.0


def _decimal_step(matrix: NDArray[np.float64], few: NDArray[np.float64], bits: int) -> float:
    """10^-d for numbers of at most d decimals that were read into floats of `bits` bits; 0 if there is no such d."""
    largest = float(max(matrix.max(), -matrix.min()))
    for decimals in range(MOST_DECIMALS + 1):
        levels = 10.0**decimals
        tolerance = largest * levels * 2.0**-bits
        if tolerance > 0.05:  # the floats themselves are not finer
            return 0.0
        if all(np.abs(x * levels - np.rint(x * levels)).max() <= tolerance for x in (few, matrix)):
            return 1 / levels
    return 0.0


def entities(names: Sequence[Name], key: bytes) -> NDArray[np.uint64]:
    """A keyed hash of each name, for the fill."""
    hashed = b"".join(hashlib.blake2b(name_bytes(name), digest_size=8, key=key).digest() for name in names)
    return np.frombuffer(hashed, "<u8").astype(np.uint64)
