"""A claim about key streams of every field that there may be: each element is what is specified."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring
from secea.arithmetic.streams import Noise
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.mutants import streams as mutants
from secea.audit.specified import block, stream, words

RINGS: Final = (RING56, RING61, *(Ring(PRIMES30[:size]) for size in range(1, len(PRIMES30) + 1)))
COUNT: Final = 75
"""More than a tile of any loop, and odd."""
NOISES: Final = (Noise(6, (60,), 1 << 33), Noise(10, (55440, 13), 12345), Noise(1, (2,), 1))


def _noise(seed: bytes, lane: int, i: int, noise: Noise) -> int:
    """Element i of a noise (K6)."""
    data = b"".join(block(seed, lane, 0, 0, i * noise.blocks + at) for at in range(noise.blocks))
    *narrow, low, high = words(data)[: noise.words]
    places = [math.prod(noise.digits[:d]) for d in range(len(noise.digits))]
    digits = [(word * base >> 32) * place for word, base, place in zip(
        narrow, noise.digits * noise.s, places * noise.s, strict=True
    )]  # fmt: skip
    return sum(digits) + noise.scale * ((low + (high << 32)) * noise.wide >> 64)


def _is(what: str, ring: Ring, real: NDArray[np.integer], due: list[list[int]]) -> None:
    for b, p in enumerate(ring.primes):
        if real[b].reshape(-1).tolist() != [x % p for x in due[b]]:
            raise Objection(f"{what} modulo {p}, number {b} of {ring.size} primes, are not as specified")


@claim("record", KEYED, mutants=(mutants.FEW_PRIMES, mutants.NOISE_OF_A_PRIME))
def streams_as_specified(subject: Subject) -> int:
    """Keyed: key streams and noise modulo each of up to sixteen primes are what the specification makes of their keys.

    From three to a thousand clients: elsewhere the audit plays few clients, and few of the fields.
    """
    keys = [bytes([k]) * 32 for k in range(3)]
    signs, cases = [1, -1, 1], 0
    for ring in RINGS:
        for lane in (0, 1, 70_000, (1 << 32) - 1):
            every = [[stream(ring, b, key, lane, COUNT) for b in range(ring.size)] for key in keys]
            nonzero = [list(stream(ring, b, keys[0], lane, COUNT, 1)) for b in range(ring.size)]
            total: Residues = ring.zeros(COUNT)
            streams.add_streams(ring, total, keys, signs, lane)
            rows = streams.row_streams(ring, np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32), lane, COUNT)
            _is("streams", ring, streams.stream(ring, keys[0], lane, COUNT), [list(x) for x in every[0]])
            _is("streams without 0", ring, streams.stream(ring, keys[0], lane, COUNT, nonzero=True), nonzero)
            _is("streams of rows", ring, rows, [[x for each in every for x in each[b]] for b in range(ring.size)])
            added = []
            for b in range(ring.size):
                together = zip(*(each[b] for each in every), strict=True)
                added.append([sum(s * x for s, x in zip(signs, some, strict=True)) for some in together])
            _is("sums of streams", ring, total, added)
            cases += 6 * COUNT * ring.size
        for noise in NOISES:
            e: Residues = ring.zeros(COUNT)
            streams.add_noise(ring, e, keys[1], 5, noise)
            _is("noise", ring, e, [[_noise(keys[1], 5, i, noise) for i in range(COUNT)]] * ring.size)
            cases += COUNT * ring.size
    return cases
