"""Private embedding sharing: rows become polynomials, their values go to the clients (section 5, eq. 3 to 8).

T of a sender's shares are nothing but randomness, so each travels as a 32-byte seed. The polynomial is the one through
the data and those T shares. Its distribution is the same as in the paper, where the noise is at the last T betas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.lagrange import Code
from secea.params import Params
from secea.wire.messages import Layout
from secea.wire.randomness import SEED_BYTES, KeyStream


def seeded_clients(params: Params, sender: int, turn: int) -> tuple[int, ...]:
    """The T clients that get the sender's shares as seeds; they change with each turn, so all are served alike."""
    return _seeded(params.N, params.T, sender, turn % (params.N - 1))


@lru_cache(maxsize=4096)
def _seeded(N: int, T: int, sender: int, number: int) -> tuple[int, ...]:
    return tuple(sorted((sender + 1 + (number * T + i) % (N - 1)) % N for i in range(T)))


def block_length(params: Params, width: int) -> int:
    """L: the length of one of the K blocks of a row."""
    return -(-width // params.K)


def expand_rows(values: NDArray[np.int64], params: Params) -> NDArray[np.int64]:
    """Client n: (h, 1) for each of its own rows, padded with zeros to K*L (eq. 3, 5)."""
    rows, d = values.shape
    padded = np.zeros((rows, params.K * block_length(params, d + 1)), np.int64)
    padded[:, :d] = values
    padded[:, d] = 1
    return padded


def blocks(rows: Residues, K: int) -> Residues:
    """The K blocks of each row, the last ones filled up with zeros: [P, rows, width] -> [P, K, rows, L] (eq. 5)."""
    P, count, width = rows.shape
    cut = np.empty((P, K, count, -(-width // K)), rows.dtype)
    for k, block in enumerate(np.moveaxis(cut, 1, 0)):
        part = rows[:, :, k * block.shape[2] : (k + 1) * block.shape[2]]
        block[:, :, : part.shape[2]], block[:, :, part.shape[2] :] = part, 0
    return cut


def spread(own: Residues, at: NDArray[np.int64], span: slice) -> Residues:
    """The union's rows in `span`: own rows at their places, 0 elsewhere: [..., own, width] -> [..., span, width]."""
    low, high = np.searchsorted(at, [span.start, span.stop])
    rows = np.zeros((*own.shape[:-2], span.stop - span.start, own.shape[-1]), own.dtype)
    rows[..., at[low:high] - span.start, :] = own[..., low:high, :]
    return rows


def ones_at(ring: Ring, ones: NDArray[np.int64], span: slice) -> Residues:
    """Data that are 1 at some rows and 0 at the others, the same at every beta_k (eq. 9): [P, 1, span, 1]."""
    data = ring.zeros(1, span.stop - span.start, 1)
    low, high = np.searchsorted(ones, [span.start, span.stop])
    data[:, :, ones[low:high] - span.start] = 1
    return data


@dataclass(frozen=True)
class Deal:
    """What a client shares in one phase: `data(chunk)` gives the values at beta_1..beta_K, [P, K, rows, width].

    Or [P, 1, rows, width], for values that are the same at each beta_k.
    """

    layout: Layout
    width: int
    data: Callable[[int], Residues]


EVERYONE: Final = slice(None)


class Dealer:
    """One sender's shares, chunk by chunk; a function of the data and of T seeds, so it can be repeated."""

    def __init__(self, code: Code, receivers: Sequence[int], seeds: Mapping[int, bytes]) -> None:
        self.code, self.seeded = code, tuple(seeds)
        self._streams = [KeyStream(seed) for seed in seeds.values()]
        self._noise: tuple[int, list[Residues]] = (-1, [])  # of the last chunk
        self.receivers = tuple(v for v in receivers if v not in self.seeded)

    def deal(self, chunk: int, data: Residues, to: slice = EVERYONE) -> Residues:
        """One chunk: data [P, K, ...], or [P, 1, ...] -> the shares of `receivers`, or some, [P, receivers, ...]."""
        if self._noise[0] != chunk:
            drawn = [stream.lane(chunk).elements(self.code.ring, *data.shape[2:]) for stream in self._streams]
            self._noise = chunk, drawn
        return self.code.encode(data, self._noise[1], self.receivers[to], self.seeded, apart=True)


SEED_LAYOUT: Final = Layout(1, SEED_BYTES)
"""A share that goes as a seed."""


def share_from_seed(seed: bytes, ring: Ring, layout: Layout, width: int) -> Iterator[Residues]:
    """The receiver's side: the share that comes from a seed, chunk by chunk."""
    stream = KeyStream(seed)
    for chunk in range(layout.chunks):
        span = layout.span(chunk)
        yield stream.lane(chunk).elements(ring, span.stop - span.start, width)
