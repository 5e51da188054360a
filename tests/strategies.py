"""What the property tests draw: federations, vectors over a ring, choices of clients."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from secea.arithmetic.field import Residues, Ring, insecure_ring
from secea.params import Params


@st.composite
def vectors(draw: st.DrawFn, ring: Ring, *shape: int) -> Residues:
    """Elements of a ring: random ones, or many of the smallest and the largest."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    extreme = draw(st.sampled_from((0.0, 0.2, 1.0)))
    x = ring.empty(*shape)
    for row, p in zip(x, ring.primes, strict=True):
        ends = rng.choice(np.array([0, 1, p - 1], np.uint64), shape)
        row[...] = np.where(rng.random(shape) < extreme, ends, rng.integers(0, p, shape, np.uint64))
    return x


@st.composite
def federations(draw: st.DrawFn, most: int = 12) -> Params:
    """Any legal N, T and drop-outs, up to `most` clients, with short embeddings."""
    clients = draw(st.integers(3, most))
    collusion = draw(st.integers(1, (clients + 1) // 2 - 1))
    dropouts = draw(st.integers(0, clients - 2 * collusion - 1))
    return Params(clients, dim=draw(st.integers(1, 9)), collusion=collusion, dropouts=dropouts)


@st.composite
def some(draw: st.DrawFn, clients: int, count: int) -> list[int]:
    """So many different clients, in any order."""
    return draw(st.permutations(range(clients)))[:count]


def smallest_ring(params: Params) -> Ring:
    """The smallest field with room for all points of a federation."""
    p = params.N + params.K + params.T
    while any(p % d == 0 for d in range(2, p)):
        p += 1
    return insecure_ring(p)


def everything(ring: Ring, count: int) -> Residues:
    """All vectors of so many elements of a tiny field, side by side: [1, count, p**count]."""
    (p,) = ring.primes
    return np.indices((p,) * count, ring.dtype).reshape(1, count, -1)
