"""Lagrange coding: data and noise as values of one polynomial, its values elsewhere as shares (eq. 6).

A `Code` is the polynomial code of a federation. Data are the values at beta_1..beta_K, noise those at
beta_{K+1}..beta_{K+T}, and client v's share is the value at alpha_v. Everything is a small matrix over the field times
a tall block of data, computed by `Ring.combine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from secea.arithmetic.field import Residues, Ring
from secea.params import Params


@lru_cache(maxsize=1024)
def interpolation(primes: tuple[int, ...], known: tuple[int, ...], wanted: tuple[int, ...]) -> Residues:
    """The matrix that takes the values of a polynomial of degree < len(known) from some points to others.

    Its entry for a wanted x and a known k is l(x) * w(k) / (x - k), l(x) the product of x - k over all k, and w(k) the
    inverse of that of k - k' over the others; or 1 where x is k.
    """
    ring = Ring(primes)
    x, k = ring.constant(wanted), ring.constant(known)
    between = _differences(ring, k, k)
    same = np.eye(len(known), dtype=bool)
    for p, row in zip(primes, between, strict=True):
        if not row[~same].all():
            raise ValueError(f"the points {known} are not distinct modulo {p}")
    between[:, same] = 1
    apart = _differences(ring, x, k)
    scaled = ring.multiply(
        _product(ring, apart)[:, :, None].repeat(len(known), 2),
        ring.inverse(_product(ring, between))[:, None].repeat(len(wanted), 1),
    )
    rows = ring.multiply(scaled, ring.inverse(apart))
    rows[apart == 0] = 1
    rows.setflags(write=False)
    return rows


def _differences(ring: Ring, x: Residues, y: Residues) -> Residues:
    """x_i - y_j: [P, i], [P, j] -> [P, i, j]."""
    return ring.subtract(x[:, :, None].repeat(y.shape[1], 2), y[:, None].repeat(x.shape[1], 1))


def _product(ring: Ring, x: Residues) -> Residues:
    """The product of each row: [P, i, j] -> [P, i]."""
    total = np.ones_like(x[:, :, 0])
    for j in range(x.shape[2]):
        total = ring.multiply(total, np.ascontiguousarray(x[:, :, j]))
    return total


class Code:
    """The polynomial code for one set of parameters over one ring."""

    def __init__(self, params: Params, ring: Ring) -> None:
        points = params.beta + params.alpha
        for p in ring.primes:
            if len({x % p for x in points}) != len(points):
                raise ValueError(f"a field of {p} elements is too small for {len(points)} points")
        self.ring = ring
        self.K, self.T, self.N, self.need = params.K, params.T, params.N, params.need
        self.beta, self.alpha = params.beta, params.alpha
        self.data_points = self.beta[: self.K]

    def at(self, clients: Sequence[int]) -> tuple[int, ...]:
        """The points of those clients."""
        return tuple(self.alpha[v] for v in clients)

    def matrix(self, known: tuple[int, ...], wanted: tuple[int, ...]) -> Residues:
        """The interpolation from some points to others, for each prime."""
        return interpolation(self.ring.primes, known, wanted)

    def encode(
        self,
        data: Residues,
        noise: Residues | Sequence[Residues],
        receivers: Sequence[int],
        seeded: Sequence[int] = (),
        *,
        apart: bool = False,
    ) -> Residues:
        """The shares of `receivers`: data [P, K, ...], noise [P, T, ...] -> [P, receivers, ...] (eq. 6, 7).

        The noise is at the last T betas. Or it *is* the shares of the T clients `seeded`; the distribution is the same.
        Data [P, 1, ...] are the same at each beta_k, which is as fast as K = 1. With `apart` each receiver's share is
        contiguous.
        """
        noise_points = self.at(seeded) if seeded else self.beta[self.K :]
        if len(noise_points) != self.T:
            raise ValueError(f"noise must be given at {self.T} points, got {len(noise_points)}")
        matrix = self.matrix(self.data_points + noise_points, self.at(receivers))
        if data.shape[1] < self.K:
            ones = self.ring.constant([[1]] * self.K)
            at_betas = self.ring.combine(np.ascontiguousarray(matrix[:, :, : self.K]), ones)
            matrix = np.concatenate([at_betas, matrix[:, :, self.K :]], axis=2)
        return self.ring.combine(matrix, [*_columns(data), *_columns(noise)], apart=apart)

    def decode(
        self, clients: Sequence[int], values: Residues | Sequence[Residues], *, degree: int | None = None
    ) -> Residues:
        """The data from the values [P, clients, ...] of those clients -> [P, K, ...].

        A share has degree K + T - 1; the product of two has twice that, `need` - 1.
        """
        count = self.K + self.T if degree is None else degree + 1
        if len(set(clients)) != len(clients) or len(clients) < count:
            raise ValueError(f"decoding takes the values of {count} different clients, got {list(clients)}")
        return self.ring.combine(self.matrix(self.at(clients[:count]), self.data_points), _columns(values)[:count])


def _columns(values: Residues | Sequence[Residues]) -> list[Residues]:
    """[P, columns, ...], or a sequence of columns, as a list of columns."""
    return [values[:, i] for i in range(values.shape[1])] if isinstance(values, np.ndarray) else list(values)
