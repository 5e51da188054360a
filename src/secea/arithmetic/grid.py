"""Inputs with a grid of their own: the bits below it are filled, so that a mean does not show its count.

A float lies on a grid: that of its dtype, or a coarser one if it was rounded before (bf16, fp16, int8 in a float
table, a few decimals in a text). The sum of c such numbers lies on the grid too, so the exact mean gives c away. The
owner therefore fills what is below the grid with a keyed function of entity, coordinate and value: private, the same in
every round, centred, and the same number in every session, whatever its fixed point.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import chain
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
BLOCK_VALUES: Final = 1 << 17
"""Values that are looked at together: a megabyte of floats, which stays in a cache."""
NAMES_AT_ONCE: Final = 1 << 12
"""Names that are hashed together: each hash is an object for a while."""
LEAST: Final = float(np.finfo(np.float64).smallest_normal)
"""Smaller numbers count as zero and have no grid. The kernels skip them too."""
MOST_DECIMALS: Final = 15
MOST_LEVELS: Final = 1 << 15
"""Numbers may have been integers of up to 16 bits, times a scale."""
NEAR: Final = 2.0**-7
"""How far float32 may move an integer of 16 bits times a scale, and twice as much, in parts of the scale."""


def blocks(matrix: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """A matrix in stretches of rows, so that what is computed of it takes little memory."""
    step = max(1, BLOCK_VALUES // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        yield matrix[start : start + step]


def grid_of(matrix: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, float]:
    """How the values were rounded: significant bits below the leading one, and a common step (0 if there is none)."""
    finest = 23 if dtype == np.float32 else 52
    some = np.abs(matrix.flat[:: 1 + matrix.size // MOST_LOOKED_AT].astype(np.float64))
    few = np.unique(some[some >= LEAST])
    if few.size < ENOUGH_DISTINCT:
        return finest, 0.0
    used, step = _significance(matrix)
    steps = math.ldexp(1.0, step), _common_step(matrix, few), _decimal_step(matrix, few, finest)
    return max(COARSEST_BITS, min(finest, used)), max(steps)


def _exact(matrix: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    return (np.require(block, np.float64, ["C", "A"]) for block in blocks(matrix))


def _significance(matrix: NDArray[Any]) -> tuple[int, int]:
    """The most significant bits that a value has, and the place of the lowest bit of all."""
    found = []
    for block in _exact(matrix):
        used, step = ffi.new("int *"), ffi.new("int *")
        lib.significance(ffi.from_buffer("double[]", block), block.size, used, step)
        found.append((used[0], step[0]))
    return max(used for used, _ in found), min(step for _, step in found)


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


def _common_step(matrix: NDArray[Any], few: NDArray[np.float64]) -> float:
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
        return step if all(_on_levels(block / step) for block in chain([few], _exact(matrix))) else 0.0


def _on_levels(levels: NDArray[np.float64]) -> bool:
    near = np.abs(levels - np.rint(levels)).max() < NEAR
    return bool(near and np.abs(levels).max() <= MOST_LEVELS + 0.5)


def _decimal_step(matrix: NDArray[Any], few: NDArray[np.float64], bits: int) -> float:
    """10^-d for numbers of at most d decimals that were read into floats of `bits` bits; 0 if there is no such d."""
    largest = max(float(matrix.max()), -float(matrix.min()))
    for decimals in range(MOST_DECIMALS + 1):
        levels = 10.0**decimals
        tolerance = largest * levels * 2.0**-bits
        if tolerance > 0.05:  # the floats themselves are not finer
            return 0.0
        # The sample first: most tables have no decimals, and it shows that at once.
        if all(np.abs(x * levels - np.rint(x * levels)).max() <= tolerance for x in chain([few], _exact(matrix))):
            return 1 / levels
    return 0.0


def entities(names: Sequence[Name], key: bytes) -> NDArray[np.uint64]:
    """A keyed hash of each name, for the fill."""
    hashed = np.empty(len(names), np.uint64)
    for start in range(0, len(names), NAMES_AT_ONCE):
        some = names[start : start + NAMES_AT_ONCE]
        joined = b"".join(hashlib.blake2b(name_bytes(name), digest_size=8, key=key).digest() for name in some)
        hashed[start : start + len(some)] = np.frombuffer(joined, "<u8")
    return hashed
