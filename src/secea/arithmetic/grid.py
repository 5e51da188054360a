"""Inputs with a grid of their own: the bits below it are filled, so that a mean does not show its count (section 7b).

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
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secea.arithmetic._kernels.native import ffi, lib
from secea.arithmetic.field import Residues, Ring
from secea.params import Params
from secea.table import Name, name_bytes

COARSEST_BITS: Final = 7
"""Significant bits below the leading one in bf16, the coarsest float type."""
FINEST_SHARE: Final = 8
"""Everything below 1/8 of the resolution is filled, whatever the input's grid."""
ENOUGH_DISTINCT: Final = 32
"""A coarser grid than the dtype's is inferred from so many different sizes: fewer may just be round numbers."""
ENOUGH_IN_A_ROW: Final = 8
"""The same for the grid of one row."""
MOST_LOOKED_AT: Final = 1 << 13
"""Values that are sampled to count different sizes."""
MOST_DECIMALS: Final = 15
MOST_LEVELS: Final = 1 << 9
"""Numbers that take at most so many values, apart from the sign, may have been integers times a scale."""


def grid_of(matrix: NDArray[np.float64], dtype: np.dtype[Any]) -> tuple[int, float]:
    """How the values were rounded: significant bits below the leading one, and a common step (0 if there is none)."""
    finest = 23 if dtype == np.float32 else 52
    some = np.abs(matrix.reshape(-1)[:: 1 + matrix.size // MOST_LOOKED_AT])
    few = np.unique(some[some > 0])
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
    """The scale of numbers that were integers of few bits times a scale (int8, dequantised); 0 if they were not."""
    if few.size > MOST_LEVELS:
        return 0.0
    step, largest = float(np.diff(few, prepend=0.0).min()), float(few[-1])
    if largest > (MOST_LEVELS + 0.5) * step:
        return 0.0
    step = largest / round(largest / step)  # a difference has the floats' rounding in it, the largest number hardly
    levels = matrix / step
    near = np.abs(levels - np.rint(levels)).max() < 1e-3
    return step if near and np.abs(levels).max() <= MOST_LEVELS else 0.0


def _decimal_step(matrix: NDArray[np.float64], few: NDArray[np.float64], bits: int) -> float:
    """10^-d for numbers of at most d decimals that were read into floats of so many bits; 0 if there is no such d."""
    largest = float(np.abs(matrix).max())
    for decimals in range(MOST_DECIMALS + 1):
        levels = 10.0**decimals
        tolerance = largest * levels * 2.0**-bits
        if tolerance > 0.05:  # the floats themselves are not finer
            return 0.0
        if all(np.abs(x * levels - np.rint(x * levels)).max() <= tolerance for x in (few, matrix)):
            return 1 / levels
    return 0.0


def entities(names: Sequence[Name], key: bytes) -> NDArray[np.uint64]:
    """A keyed hash of each name, for `filler`."""
    hashed = b"".join(hashlib.blake2b(name_bytes(name), digest_size=8, key=key).digest() for name in names)
    return np.frombuffer(hashed, "<u8").astype(np.uint64)


def filler(matrix: NDArray[np.float64], entity: NDArray[np.uint64], key: bytes) -> NDArray[np.uint64]:
    """128 bits for each coordinate: AES-256, keyed, of (entity, coordinate, value). Two words each."""
    rows, dim = matrix.shape
    blocks = np.empty((rows, dim, 2), "<u8")
    with np.errstate(over="ignore"):
        np.add(entity[:, None], np.arange(dim, dtype=np.uint64), out=blocks[:, :, 0])
    blocks[:, :, 1] = matrix.view(np.uint64)
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305 - one block each: a keyed function
    out = np.empty(blocks.nbytes + 16, np.uint8)
    size = cipher.update_into(blocks.data.cast("B"), out.data)
    return out[:size].view("<u8").astype(np.uint64, copy=False)


ROWS_AT_ONCE: Final = 1 << 16
"""Coordinates that are encoded together: what they need stays in the cache."""


def bounds(matrix: NDArray[np.float64], dtype: np.dtype[Any], params: Params) -> tuple[int, int, int]:
    """Significant bits of the table, and between which exponents the grid of each value lies."""
    used, step = grid_of(matrix, dtype)
    finest = math.floor(math.log2(params.resolution / FINEST_SHARE))
    coarsest = max(finest, math.floor(math.log2(params.max_abs)) - 6)
    finest = min(max(finest, math.ceil(math.log2(step))), coarsest) if step else finest
    return used, finest, coarsest


def encode(
    ring: Ring, matrix: NDArray[np.floating[Any]], entity: NDArray[np.uint64], key: bytes, f: int, params: Params
) -> Residues:
    """x * 2^f with a fill as wide as the grid, modulo each prime: [P, rows, dim].

    The fill is the top of its block, so another f scales it; if it were drawn anew, two sessions would cancel it.
    """
    rows, dim = matrix.shape
    exact = np.ascontiguousarray(matrix, np.float64)
    used, finest, coarsest = bounds(exact, matrix.dtype, params)
    out = ring.empty(rows, dim)
    primes = np.array(ring.primes, np.uint32)
    some = max(1, ROWS_AT_ONCE // max(1, dim))
    for start in range(0, rows, some):
        part = exact[start : start + some]
        fill, residues = filler(part, entity[start : start + some], key), ring.empty(*part.shape)
        lib.encode32(
            ffi.from_buffer("uint32_t[]", primes), ring.size, ffi.from_buffer("double[]", part),
            ffi.from_buffer("uint64_t[]", fill), part.size, f, used, finest, coarsest,
            ffi.from_buffer("uint32_t[]", residues),
        )  # fmt: skip
        out[:, start : start + some] = residues
    return out
