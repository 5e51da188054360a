"""Lagrange coding: data and noise as values of one polynomial, its values elsewhere as shares (eq. 6).

A `Code` is the polynomial code of a federation. Data stand at beta_1..beta_K, noise at beta_{K+1}..beta_{K+T}, client
v's share at alpha_v. Everything is a small matrix over the field times a tall block of data, worked on by
`Ring.combine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from secea.field import Residues, Ring
from secea.params import Params


@lru_cache(maxsize=1024)
def interpolation(primes: tuple[int, ...], known: tuple[int, ...], wanted: tuple[int, ...]) -> Residues:
    """The matrix that takes the values of a polynomial of degree < len(known) from some points to others."""
    rows = np.stack([_interpolation(p, known, wanted) for p in primes])
    rows.setflags(write=False)
    return rows


def _interpolation(p: int, known: tuple[int, ...], wanted: tuple[int, ...]) -> Residues:
    if len({x % p for x in known}) != len(known):
        raise ValueError(f"the points {known} are not distinct modulo {p}")
    matrix = []
    for x in wanted:
        row = []
        for j, at in enumerate(known):
            others = [k for i, k in enumerate(known) if i != j]
            top = bottom = 1
            for k in others:
                top, bottom = top * (x - k) % p, bottom * (at - k) % p
            row.append(top * pow(bottom, -1, p) % p)
        matrix.append(row)
    return np.array(matrix, np.uint64 if p >= 2**32 else np.uint32).reshape(len(wanted), len(known))


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

        The noise stands at the last T betas; or it *is* the shares of the T clients `seeded`, the same distribution.
        With `apart` each receiver's share is contiguous (`Ring.combine`).
        """
        noise_points = self.at(seeded) if seeded else self.beta[self.K :]
        if len(noise_points) != self.T:
            raise ValueError(f"noise must stand at {self.T} points, got {len(noise_points)}")
        matrix = self.matrix(self.data_points + noise_points, self.at(receivers))
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
