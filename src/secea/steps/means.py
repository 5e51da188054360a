"""One round, slot by slot: what a client uploads, how the server divides, and how everybody checks (section K5).

Every function takes the randomness that it needs. Rows are [P, slots, columns]: d columns of data, the check columns,
the count, and the mark of emptiness. What the server sends has only the first two kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import scaled_rows, weighted_sums


@dataclass(frozen=True, slots=True)
class Secrets:
    """What all clients know, and the server does not, for some slots of one round."""

    rho: Residues = field(repr=False)
    """[P, slots], not 0: the blinding of a slot."""
    alpha: tuple[Residues, ...] = field(repr=False)
    """[P, d] for each check column: one for the whole round."""
    J: tuple[Residues, ...] = field(repr=False)
    """[P, slots] for each check column."""
    H: tuple[Residues, ...] = field(repr=False)
    """[P, slots] for each check column: the sum of the pads of all noise clients."""
    theta: Residues = field(repr=False)
    beta: Residues = field(repr=False)


def contribution(ring: Ring, y: Residues, slots: NDArray[np.int64], shared: Secrets) -> Residues:
    """Client n: its rows before masks (step 1). `y` is C*v + G for its own entities, which have these slots."""
    count, (dim, checks) = shared.rho.shape[1], (y.shape[2], len(shared.alpha))
    rows, rho = ring.zeros(count, dim + checks + 2), np.ascontiguousarray(shared.rho[:, slots])
    rows[:, :, -1] = shared.theta
    scaled_rows(ring, rows[:, :, :dim], y, rho, places=slots)
    for k in range(checks):
        sums = weighted_sums(ring, y, shared.alpha[k])
        ring.add_into(sums, np.ascontiguousarray(shared.J[k][:, slots]))
        rows[:, slots, dim + k] = ring.multiply(rho, sums)
    rows[:, slots, -2] = rho
    marks = ring.multiply(rho, np.ascontiguousarray(shared.beta[:, slots]))
    rows[:, slots, -1] = ring.add_into(marks, np.ascontiguousarray(shared.theta[:, slots]))
    return rows


def noise_columns(ring: Ring, e: Residues, alpha: Sequence[Residues], pads: Sequence[Residues]) -> Residues:
    """Noise client w: sum of alpha_j * e_j, under its pads, for each check column: [P, slots, checks]."""
    columns = [ring.add(weighted_sums(ring, e, a), pad) for a, pad in zip(alpha, pads, strict=True)]
    return np.stack(columns, axis=-1)


def divide(ring: Ring, total: Residues, e: Residues, columns: Residues) -> tuple[Residues, NDArray[np.bool_]]:
    """The server: the sums divided by rho*c, with noise (step 3); and which slots have no owner.

    `e` is the noise of all noise clients, `columns` the sum of their columns. In an empty slot the first element is
    the sum of its marks, and the others are 0.
    """
    rows, (dim, checks) = total.shape[1], (e.shape[2], columns.shape[2])
    K = np.ascontiguousarray(total[:, :, -2])
    inverse, empty = ring.inverse(K), (K == 0).any(axis=0)
    result = ring.empty(rows, dim + checks)
    scaled_rows(ring, result[:, :, :dim], total[:, :, :dim], inverse, added=e)
    scaled_rows(ring, result[:, :, dim:], total[:, :, dim:-2], inverse, added=columns)
    result[:, empty] = 0
    result[:, empty, 0] = total[:, empty, -1]
    return result, empty


def right(ring: Ring, means: Residues, empty: NDArray[np.bool_], shared: Secrets, members: int) -> NDArray[np.bool_]:
    """Every client checks for every slot, whoever owns it, whether the server computed it correctly (step 4)."""
    checks = len(shared.alpha)
    dim = means.shape[2] - checks
    good = np.ones(means.shape[1], np.bool_)
    minus_one = ring.constant(-1)
    for k, alpha in enumerate(shared.alpha):
        weights = ring.zeros(dim + checks)
        weights[:, :dim] = alpha
        weights[:, dim + k] = minus_one
        sums = weighted_sums(ring, means, weights)
        ring.add_into(sums, shared.J[k])
        ring.add_into(sums, shared.H[k])
        good &= (sums == 0).all(axis=0)
    if empty.any():
        factor = np.ascontiguousarray(np.broadcast_to(ring.constant([members]), shared.theta.shape))
        marks = ring.multiply(factor, shared.theta)
        fine = (means[:, :, 0] == marks).all(axis=0) & (means[:, :, 1:] == 0).all(axis=(0, 2))
        good[empty] = fine[empty]
    return good
