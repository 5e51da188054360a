"""One round, slot by slot: what a client uploads, how the server divides, and how everybody checks (section K5).

Every function takes the randomness that it needs. Rows are [P, slots, columns]: d columns of data, the check columns,
the count, and the mark of emptiness; with a minimum of owners m, then m-1 columns of counts and m-1 marks of these.
What the server sends has only the first two kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import scaled_rows, weighted_sums


class Slot(IntEnum):
    """What the server says of a slot."""

    MEAN = 0
    EMPTY = 1
    """It has no owner in the sum."""
    BELOW = 2
    """It has fewer owners than the minimum."""


@dataclass(frozen=True, slots=True)
class Least:
    """What all clients know of the columns that show whether a slot has fewer than m owners: section K11.

    Each of the m-1 columns stands for a count a from 1 to m-1. It adds up to 0 if a is the number of owners.
    """

    a: Residues = field(repr=False)
    """[P, slots, m-1]: the count that each column stands for, in an order that the server does not know."""
    rho: Residues = field(repr=False)
    """[P, slots, m-1], not 0."""
    beta: Residues = field(repr=False)
    """[P, slots, m-1]."""
    theta: Residues = field(repr=False)
    """[P, slots]: one for all columns, so that a proof does not tell which of them it is."""


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
    least: Least | None = field(default=None, repr=False)
    """With a minimum of owners."""
    gamma: tuple[Residues, ...] = field(default=(), repr=False)
    """With noise on every slot: [P, slots] for each check column, not 0, by which its sum of columns is multiplied.

    A slot without owners has no J. Its sums of noise would show the server an equation of alpha.
    """

    def weighted(self, ring: Ring, k: int, rows: Residues, slots: NDArray[np.int64] | None = None) -> Residues:
        """The sum of alpha_j * rows_j in check column k, for all slots or for these."""
        sums = weighted_sums(ring, rows, self.alpha[k])
        if not self.gamma:
            return sums
        return ring.multiply(sums, self.gamma[k] if slots is None else np.ascontiguousarray(self.gamma[k][:, slots]))


def contribution(ring: Ring, y: Residues, slots: NDArray[np.int64], shared: Secrets) -> Residues:
    """Client n: its rows before masks (step 1). `y` is C*v + G for its own entities, which have these slots."""
    count, (dim, checks) = shared.rho.shape[1], (y.shape[2], len(shared.alpha))
    rows, rho = ring.zeros(count, dim + checks + 2), np.ascontiguousarray(shared.rho[:, slots])
    rows[:, :, -1] = shared.theta
    scaled_rows(ring, rows[:, :, :dim], y, rho, places=slots)
    for k in range(checks):
        sums = shared.weighted(ring, k, y, slots)
        ring.add_into(sums, np.ascontiguousarray(shared.J[k][:, slots]))
        rows[:, slots, dim + k] = ring.multiply(rho, sums)
    rows[:, slots, -2] = rho
    marks = ring.multiply(rho, np.ascontiguousarray(shared.beta[:, slots]))
    rows[:, slots, -1] = ring.add_into(marks, np.ascontiguousarray(shared.theta[:, slots]))
    return rows


def add_everywhere(ring: Ring, rows: Residues, z: Residues, shared: Secrets) -> None:
    """Client n: add noise to all slots, whoever owns them (section K11). `z` is C times the noise, for every slot."""
    dim, checks = z.shape[2], len(shared.alpha)
    scaled = ring.empty(*z.shape[1:])
    scaled_rows(ring, scaled, z, shared.rho)
    rows[:, :, :dim] = ring.add(np.ascontiguousarray(rows[:, :, :dim]), scaled)
    for k in range(checks):
        check = np.ascontiguousarray(rows[:, :, dim + k])
        rows[:, :, dim + k] = ring.add_into(check, shared.weighted(ring, k, scaled))


def least_columns(ring: Ring, slots: NDArray[np.int64], least: Least, *, designated: bool) -> Residues:
    """Client n: the columns of a minimum of owners, and their marks: [P, slots, 2(m-1)] (section K11).

    An owner adds rho to each column of its slots. The designated client subtracts a*rho everywhere.
    """
    minus = ring.subtract(ring.zeros(*least.a.shape[1:]), least.a) if designated else ring.zeros(*least.a.shape[1:])
    own = np.ascontiguousarray(minus[:, slots])
    minus[:, slots] = ring.add_into(own, np.ascontiguousarray(np.broadcast_to(ring.constant([[1]]), own.shape)))
    counts = ring.multiply(minus, least.rho)
    marks = ring.multiply(counts, least.beta)
    ring.add_into(marks, np.ascontiguousarray(np.broadcast_to(least.theta[:, :, None], marks.shape)))
    return np.concatenate([counts, marks], axis=2)


def noise_columns(
    ring: Ring, e: Residues, alpha: Sequence[Residues], pads: Sequence[Residues], gamma: Sequence[Residues] = ()
) -> Residues:
    """Noise client w: sum of alpha_j * e_j, under its pads, for each check column: [P, slots, checks]."""
    sums = [weighted_sums(ring, e, a) for a in alpha]
    scaled = [ring.multiply(each, g) for each, g in zip(sums, gamma, strict=True)] if gamma else sums
    columns = [ring.add(each, pad) for each, pad in zip(scaled, pads, strict=True)]
    return np.stack(columns, axis=-1)


def divide(
    ring: Ring, total: Residues, e: Residues, columns: Residues, least: Residues | None = None
) -> tuple[Residues, NDArray[np.uint8]]:
    """The server: the sums divided by rho*c, with noise (step 3); and what each slot is, a `Slot`.

    `e` is the noise of all noise clients, `columns` the sum of their columns, `least` the sums of the columns of a
    minimum of owners. Where there is no mean, the first element is the sum of marks that proves it, and the others are
    0.
    """
    rows, (dim, checks) = total.shape[1], (e.shape[2], columns.shape[2])
    K, marks = np.ascontiguousarray(total[:, :, -2]), total[:, :, -1]
    inverse, slots = ring.inverse(K), np.zeros(rows, np.uint8)
    empty = (K == 0).any(axis=0)
    if least is not None:
        counts, proofs = np.split(least, 2, axis=2)
        which = (counts == 0).argmax(axis=2)[:, :, None]
        below = (counts == 0).any(axis=2).all(axis=0) & ~empty
        slots[below] = Slot.BELOW
        marks = np.where(below, np.take_along_axis(proofs, which, axis=2)[:, :, 0], marks)
    slots[empty] = Slot.EMPTY
    result, none = ring.empty(rows, dim + checks), slots != Slot.MEAN
    scaled_rows(ring, result[:, :, :dim], total[:, :, :dim], inverse, added=e)
    scaled_rows(ring, result[:, :, dim:], total[:, :, dim:-2], inverse, added=columns)
    result[:, none] = 0
    result[:, none, 0] = marks[:, none]
    return result, slots


def right(ring: Ring, means: Residues, slots: NDArray[np.uint8], shared: Secrets, members: int) -> NDArray[np.bool_]:
    """Every client checks for every slot, whoever owns it, whether the server computed it correctly (step 4)."""
    checks = len(shared.alpha)
    dim = means.shape[2] - checks
    good = np.ones(means.shape[1], np.bool_)
    for k in range(checks):
        sums = shared.weighted(ring, k, means[:, :, :dim])
        ring.add_into(sums, shared.J[k])
        ring.add_into(sums, shared.H[k])
        good &= (sums == means[:, :, dim + k]).all(axis=0)
    if (slots != Slot.MEAN).any():
        theta = (
            shared.theta if shared.least is None else np.where(slots == Slot.BELOW, shared.least.theta, shared.theta)
        )
        factor = np.ascontiguousarray(np.broadcast_to(ring.constant([members]), theta.shape))
        marks = ring.multiply(factor, theta)
        fine = (means[:, :, 0] == marks).all(axis=0) & (means[:, :, 1:] == 0).all(axis=(0, 2))
        good[slots != Slot.MEAN] = fine[slots != Slot.MEAN]
    return good
