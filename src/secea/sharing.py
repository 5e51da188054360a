"""Private embedding sharing: rows become polynomials, their values go to the clients (section 5, eq. 3 to 8).

T of a sender's shares are nothing but randomness, so they travel as a 32-byte seed; the polynomial is the one through the
data and those T shares. The distribution is that of the paper's, where the noise stands at the last T betas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from secea.field import Residues, Ring
from secea.lagrange import Code
from secea.messages import Layout
from secea.params import Params
from secea.randomness import KeyStream, Source


def seeded_clients(params: Params, sender: int, turn: int) -> tuple[int, ...]:
    """The T clients that get the sender's shares as seeds; they change with the turn, so that all are served alike."""
    others = params.N - 1
    return tuple(sorted((sender + 1 + (turn * params.T + i) % others) % params.N for i in range(params.T)))


def block_length(params: Params, width: int) -> int:
    """L: the length of one of the K blocks of a row."""
    return -(-width // params.K)


def expand(values: NDArray[np.int64], params: Params) -> NDArray[np.int64]:
    """Client n: (h, 1) for each of its own rows, padded with zeros to K*L (eq. 3, 5)."""
    rows, d = values.shape
    padded = np.zeros((rows, params.K * block_length(params, d + 1)), np.int64)
    padded[:, :d] = values
    padded[:, d] = 1
    return padded


def blocks(ring: Ring, rows: Residues, K: int) -> Residues:
    """The K blocks of each row: [P, rows, K*L] -> [P, K, rows, L] (eq. 5)."""
    P, count, width = rows.shape
    return np.ascontiguousarray(rows.reshape(P, count, K, width // K).transpose(0, 2, 1, 3))


def spread(ring: Ring, own: Residues, at: NDArray[np.int64], span: slice) -> Residues:
    """The union's rows in `span`: own rows where they stand, 0 elsewhere: [P, own, width] -> [P, span, width]."""
    low, high = np.searchsorted(at, [span.start, span.stop])
    rows = ring.zeros(span.stop - span.start, own.shape[2])
    rows[:, at[low:high] - span.start] = own[:, low:high]
    return rows


class Dealer:
    """One sender's shares of many rows, chunk by chunk; a function of the data and of T seeds, so it can be repeated."""

    def __init__(self, code: Code, receivers: Sequence[int], seeded: Sequence[int], sources: Sequence[Source]) -> None:
        self.code, self.seeded, self._sources = code, tuple(seeded), tuple(sources)
        self.receivers = tuple(v for v in receivers if v not in self.seeded)

    def deal(self, data: Residues) -> Residues:
        """The next chunk: data [P, K, ...] -> the shares of `receivers` [P, receivers, ...]."""
        noise = [source.elements(self.code.ring, *data.shape[2:]) for source in self._sources]
        return self.code.encode(data, np.stack(noise, axis=1), self.receivers, self.seeded)


def share_from_seed(seed: bytes, ring: Ring, layout: Layout, width: int) -> Iterator[tuple[slice, Residues]]:
    """A receiver: the share that a seed stands for, chunk by chunk."""
    stream = KeyStream(seed)
    for chunk in range(layout.chunks):
        span = layout.span(chunk)
        yield span, stream.elements(ring, span.stop - span.start, width)
