"""The key streams that all clients of a union share, and the server does not: one set for each round (section K5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import Residues, Ring
from secea.steps.means import Least, Secrets
from secea.wire.keys import expand


@dataclass(frozen=True)
class RoundSecrets:
    """Every secret of attempt q at a round, chunk by chunk: a lane for each chunk."""

    ring: Ring
    dim: int
    checks: int
    secret: bytes = field(repr=False)
    """The secret of the union: a hash over a part from each of its clients."""
    union: bytes
    """L."""
    q: int
    least: int = 1
    """m: the minimum of owners."""
    everywhere: bool = False
    """Whether clients add noise to every slot."""
    _keys: dict[tuple[str | int, ...], bytes] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The keys of streams that were asked for: all chunks have the same."""

    def key(self, name: str, *of: int) -> bytes:
        """The key of one stream of this round."""
        if (name, *of) not in self._keys:
            numbers = (b"%d" % number for number in (self.q, *of))
            self._keys[name, *of] = expand(self.secret, name, self.union, *numbers)
        return self._keys[name, *of]

    def alpha(self) -> tuple[Residues, ...]:
        """The weights of the columns, for each check."""
        return tuple(streams.stream(self.ring, self.key("alpha", k), 0, self.dim) for k in range(self.checks))

    def pads(self, client: int, chunk: int, rows: int) -> tuple[Residues, ...]:
        """H of one noise client, for each check."""
        return tuple(streams.stream(self.ring, self.key("H", client, k), chunk, rows) for k in range(self.checks))

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """For the slots of one chunk."""
        ring, checks = self.ring, range(self.checks)
        H = []
        for k in checks:
            total = ring.zeros(rows)
            keys = [self.key("H", w, k) for w in noise_clients]
            streams.add_streams(ring, total, keys, [1] * len(keys), chunk)
            H.append(total)
        return Secrets(
            rho=streams.stream(ring, self.key("rho"), chunk, rows, nonzero=True),
            alpha=self.alpha(),
            J=tuple(streams.stream(ring, self.key("J", k), chunk, rows) for k in checks),
            H=tuple(H),
            theta=streams.stream(ring, self.key("theta"), chunk, rows),
            beta=streams.stream(ring, self.key("beta"), chunk, rows),
            least=self._least(chunk, rows) if self.least > 1 else None,
            gamma=self._gamma(chunk, rows) if self.everywhere else (),
        )

    def _gamma(self, chunk: int, rows: int) -> tuple[Residues, ...]:
        """With noise on every slot, for each check."""
        keys = [self.key("gamma", k) for k in range(self.checks)]
        return tuple(streams.stream(self.ring, key, chunk, rows, nonzero=True) for key in keys)

    def _least(self, chunk: int, rows: int) -> Least:
        """For a minimum of owners."""
        ring, columns = self.ring, self.least - 1
        return Least(
            a=self._order(chunk, rows, columns),
            rho=streams.stream(ring, self.key("least rho"), chunk, rows, columns, nonzero=True),
            beta=streams.stream(ring, self.key("least beta"), chunk, rows, columns),
            theta=streams.stream(ring, self.key("least theta"), chunk, rows),
        )

    def _order(self, chunk: int, rows: int, columns: int) -> Residues:
        """The counts 1 to m-1 in a circle that begins anywhere: for each slot and prime by itself.

        Where it begins is a number of more than 110 bits modulo m-1, made of elements that are not 0.
        """
        ring = self.ring
        drawn = streams.stream(ring, self.key("least order"), chunk, rows, 2 * self.checks, nonzero=True)
        values = np.array([p - 1 for p in ring.primes], np.uint64)[:, None] % np.uint64(columns)
        begin = np.zeros((ring.size, rows), np.uint64)
        for k in range(2 * self.checks):
            begin = (begin * values + (drawn[:, :, k].astype(np.uint64) - np.uint64(1))) % np.uint64(columns)
        places = np.arange(columns, dtype=np.uint64)
        return (1 + (begin[:, :, None] + places) % np.uint64(columns)).astype(ring.dtype)


def rows_under_keys(ring: Ring, keys: NDArray[np.uint8], q: int, dim: int) -> Residues:
    """G: for each own entity, a row of key stream that only its owners can compute."""
    return streams.row_streams(ring, keys, q, dim)
