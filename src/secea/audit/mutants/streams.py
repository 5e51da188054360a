"""Key streams that are right for few primes, and not for many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secea.arithmetic import streams
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import Noise
from secea.audit.mutants.epochs import within

FEW = 4
_add_noise, _add_streams, _stream = streams.add_noise, streams.add_streams, streams.stream


def _first_four(ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
    """Further primes have the streams of the first ones."""
    for start in range(0, ring.size, FEW):
        some = acc[start : start + FEW].copy()
        _add_streams(Ring(ring.primes[start : start + FEW]) if ring.size > 1 else ring, some, keys, signs, lane)
        acc[start : start + FEW] = some


def _apart(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    """Further primes have noise of another lane."""
    _add_noise(ring, acc, seed, lane, noise)
    if ring.size > FEW:
        other: Residues = np.zeros_like(acc)
        _add_noise(ring, other, seed, lane + 1, noise)
        acc[FEW:] = other[FEW:]


FEW_PRIMES = within(
    "few-primes",
    "Masks modulo the fifth prime are made of the words of the first.",
    streams,
    "add_streams",
    _first_four,
)
NOISE_OF_A_PRIME = within(
    "noise-of-a-prime", "Noise modulo the fifth prime is another number.", streams, "add_noise", _apart
)
