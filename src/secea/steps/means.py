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
from secea.arithmetic.streams import scale_rows, weighted_sums


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
    rows = ring.zeros(count, dim + checks + 2)
    rows[:, :, -1] = shared.theta
    rho = np.ascontiguousarray(shared.rho[:, slots])
    own = ring.empty(slots.size, dim + checks + 2)
    own[:, :, :dim] = y
    for k in range(checks):
        J = np.ascontiguousarray(shared.J[k][:, slots])
        own[:, :, dim + k] = ring.add(weighted_sums(ring, y, shared.alpha[k]), J)
    own[:, :, dim + checks] = 1
    own[:, :, dim + checks + 1] = shared.beta[:, slots]
    scale_rows(ring, own, rho)
    own[:, :, -1] = ring.add(np.ascontiguousarray(own[:, :, -1]), np.ascontiguousarray(shared.theta[:, slots]))
    rows[:, slots] = own
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
    keep = total.shape[2] - 2
    K = np.ascontiguousarray(total[:, :, keep])
    empty: NDArray[np.bool_] = (K == 0).any(axis=0)
    marks = np.ascontiguousarray(total[:, :, keep + 1])
    scaled = np.ascontiguousarray(total[:, :, :keep])
    scale_rows(ring, scaled, ring.inverse(K))
    result = ring.add_into(scaled, np.concatenate([e, columns], axis=2))
    result[:, empty] = 0
    result[:, empty, 0] = marks[:, empty]
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
