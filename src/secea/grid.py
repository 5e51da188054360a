"""Inputs with a grid of their own: the bits below it are filled, so that a mean does not show its count (section 7b).

A float lies on a grid: that of its dtype, or a coarser one if it was rounded before (bf16, fp16, int8 in a float table). The sum
of c such numbers lies on the grid too, so the exact mean gives c away. The owner therefore fills what is below the grid with a
keyed function of entity, coordinate and value: private, the same in every round, and centred.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secea._kernels.native import ffi, lib
from secea.field import Residues, Ring
from secea.params import Params
from secea.table import Name, name_bytes

COARSEST_BITS: Final = 7
"""Significant bits below the leading one in bf16, the coarsest float type."""
FINEST_SHARE: Final = 8
"""Everything below 1/8 of the resolution is filled, whatever the input's grid."""
ENOUGH_VALUES: Final = 1024
ENOUGH_DISTINCT: Final = 32
"""A coarser grid than the dtype's is inferred from so many values, or so many distinct ones: few say nothing."""


def significant_bits(matrix: NDArray[np.float64], dtype: np.dtype[Any]) -> tuple[int, int | None]:
    """How the values were rounded: significant bits below the leading one, and the exponent of a common step if any."""
    finest = 23 if dtype == np.float32 else 52
    values = np.abs(matrix[matrix != 0])
    if values.size < ENOUGH_VALUES and np.unique(values).size < ENOUGH_DISTINCT:
        return finest, None
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    zeros = np.bitwise_count((whole & -whole) - 1).astype(np.int64)  # trailing zero bits
    used = int((52 - zeros).max())
    step = int((exponent - 53 + zeros).min())
    return max(COARSEST_BITS, min(finest, used)), step


def exponents(matrix: NDArray[np.float64], dtype: np.dtype[Any], params: Params) -> NDArray[np.int16]:
    """The exponent of each value's own grid; at least that of 1/8 of the resolution, at most that of max_abs/64."""
    bits, step = significant_bits(matrix, dtype)
    finest = math.floor(math.log2(params.resolution / FINEST_SHARE))
    coarsest = math.floor(math.log2(params.max_abs)) - 6
    _, exponent = np.frexp(matrix)
    own = np.where(matrix != 0, exponent - 1 - bits, finest)
    return np.clip(own if step is None else np.maximum(own, step), finest, max(finest, coarsest)).astype(np.int16)


def filler(matrix: NDArray[np.float64], names: Sequence[Name], key: bytes) -> NDArray[np.uint32]:
    """128 bits for each coordinate: AES-256, keyed, of (entity, coordinate, value). Four words each."""
    rows, dim = matrix.shape
    hashed = b"".join(hashlib.blake2b(name_bytes(name), digest_size=8, key=key).digest() for name in names)
    blocks = np.empty((rows, dim, 2), "<u8")
    entity = np.frombuffer(hashed, "<u8").reshape(rows, 1)
    with np.errstate(over="ignore"):
        blocks[:, :, 0] = entity + np.arange(dim, dtype=np.uint64)
    blocks[:, :, 1] = matrix.view(np.uint64)
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305 - one block each: a keyed function
    return np.frombuffer(cipher.update(blocks.tobytes()), "<u4").astype(np.uint32, copy=False)


def encode(
    ring: Ring, matrix: NDArray[np.floating[Any]], names: Sequence[Name], key: bytes, f: int, params: Params
) -> Residues:
    """x * 2^f with the bits below the grid filled, modulo each prime: [P, rows, dim]."""
    exact = np.ascontiguousarray(matrix, np.float64)
    low = np.ascontiguousarray(exponents(exact, matrix.dtype, params))
    out = ring.empty(*exact.shape)
    primes = np.array(ring.primes, np.uint32)
    lib.encode32(
        ffi.from_buffer("uint32_t[]", primes), ring.size, ffi.from_buffer("double[]", exact),
        ffi.from_buffer("int16_t[]", low), ffi.from_buffer("uint32_t[]", filler(exact, names, key)), f,
        ffi.from_buffer("uint32_t[]", out), exact.size,
    )  # fmt: skip
    return out
