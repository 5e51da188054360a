"""Floats and field elements: signed fixed point, and the mean out of r*sum and r*count (sections 2 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61, Residues, Ring
from secea.errors import TableError
from secea.params import Params

Floats = NDArray[np.floating[Any]]


def check_range(matrix: Floats, names: Sequence[object], max_abs: float) -> None:
    """Refuse NaN, infinity and |x| > max_abs; the first offender is named with its coordinate."""
    most = np.float64(max_abs)  # not in the table's own precision
    if not matrix.size or (matrix.max() <= most and matrix.min() >= -most):  # neither holds beside what is no number
        return
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(matrix) <= most)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = float(matrix[row, column])
        if np.isfinite(value):
            hint = f"is outside [-{max_abs:g}, {max_abs:g}]; scale or clip the embeddings, or raise max_abs"
        else:
            hint = "is not a number that can be averaged; look at the training that produced it"
        raise TableError(f"entity {names[row]!r}, coordinate {column}: {value} {hint}")


def clip(matrix: Floats, max_abs: float) -> Floats:
    """The same matrix with every coordinate within [-max_abs, max_abs]; never done unasked."""
    most = matrix.dtype.type(max_abs)
    if most > np.float64(max_abs):
        most = np.nextafter(most, matrix.dtype.type(0))
    return np.clip(matrix, -most, most)


def encode(matrix: Floats, fraction_bits: int) -> NDArray[np.int64]:
    """round_half_even(x * 2**f), as integers. The caller has checked the range."""
    return np.rint(matrix.astype(np.float64) * 2.0**fraction_bits).astype(np.int64)


def decode(values: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
    """x / 2**f."""
    return np.ldexp(values.astype(np.float64), -fraction_bits)


def centred(ring: Ring, x: Residues) -> NDArray[np.int64]:
    """The representatives in (-p/2, p/2) of elements of a ring of one prime."""
    (p,) = ring.primes
    values: NDArray[np.int64] = x[0].astype(np.int64)
    values[values > p // 2] -= p
    return values


def largest(params: Params) -> int:
    """Q: the largest fixed-point value of an input."""
    return int(np.rint(np.ldexp(params.max_abs, params.fraction_bits)))


def means_from_masked(ring: Ring, masked: Residues, params: Params) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Client n: rows of (r*sum, r*count) to means, by rational reconstruction (section 7, step 3; eq. 16).

    The count is the smallest c <= N for which every c * (sum/count), centred, lies within c*Q. Returns the means and a
    mask of the rows for which there is one; `masked` is [1, rows, d + 1].
    """
    rows, width = masked.shape[1:]
    count = np.ascontiguousarray(np.broadcast_to(masked[:, :, -1:], (1, rows, width - 1)))
    ratio = ring.multiply(np.ascontiguousarray(masked[:, :, :-1]), ring.inverse(count))
    means = np.zeros((rows, width - 1))
    found = np.zeros(rows, np.bool_)
    usable = masked[0, :, -1] != 0
    sums = ring.zeros(rows, width - 1)
    bound = largest(params)
    for c in range(1, params.N + 1):
        ring.add_into(sums, ratio)
        values = centred(ring, sums)
        hit = usable & ~found & (np.abs(values) <= c * bound).all(axis=1)
        means[hit] = decode(values[hit], params.fraction_bits) / c
        found |= hit
    return means, found


def reconstruction_is_unique(params: Params, p: int = M61) -> bool:
    """Whether two different fractions sum/count can never share a residue: 2 * N^2 * Q < p."""
    return 2 * params.N**2 * largest(params) < p
