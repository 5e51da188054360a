"""Fixed point, fill and noise of the keyed form: chosen from the parameters, so that a mean does not show its count.

docs/protocol-keyed.md, section K6, has the bound and its proof. C*S/c lies on a lattice of step C/c. The owners' fill
makes S smooth over s widths of w units; s uniform numbers on {0..C-1} remove every harmonic of the lattice; what is
left is below 2^-sigma'. One wide number in each noise client's noise hides the slope of the mean in one's own fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import PRIMES30, RING61, Residues, Ring
from secea.arithmetic.portable import MOST_WORDS
from secea.arithmetic.streams import Noise
from secea.errors import ParamsError
from secea.params import Params

FIELDS: Final = (6, 10, 14, 22, 30)
"""Choices for s: with the wide number, which takes two words of 32 bits, the noise fills whole AES blocks."""
MOST_WIDTH_BITS: Final = 24
WIDE: Final = 1.7
"""All wide numbers together span so many resolutions: a mean moves by at most 0.85 of one."""
ROOM: Final = 0.15
"""What is left of the resolution for fill, narrow noise and rounding."""
FILL_SHARE: Final = 64
"""The narrow fill spans at most this part of the resolution: it must be small against the wide noise."""
GRID_SHARE_BITS: Final = 6
"""The grid of an input is taken as at most max_abs / 64."""
MOST_VALUE_BITS: Final = 60
"""An encoded input fits into 64 bits, with room for its fill."""
LARGEST_DIGIT: Final = 1 << 16
CHECK_BITS: Final = 60
"""A wrong element passes the check with a probability of about 2^-60, modulo each prime."""


@dataclass(frozen=True)
class Numbers:
    """How numbers are encoded, filled, drowned and read."""

    ring: Ring
    C: int
    """lcm(1..N): a multiple of every count."""
    f: int
    """An input x becomes x * 2^f."""
    w: int
    """The width of each narrow number of the fill, in units of 2^-f."""
    noise: Noise
    """s narrow numbers on {0..C-1}, and C times a wide one: in a round of all clients."""
    sigma: int
    """sigma': the bits below which a single element may tell anything about its count."""
    max_abs: float
    resolution: float

    @property
    def s(self) -> int:
        """The narrow numbers in each fill, and in each noise."""
        return self.noise.s

    @property
    def checks(self) -> int:
        """Check columns: one modulo 2^61 - 1, two modulo primes of 30 bits."""
        return -(-CHECK_BITS // min(p.bit_length() for p in self.ring.primes))

    @property
    def cap(self) -> float:
        """The coarsest grid that an input may have."""
        return math.ldexp(1.0, math.frexp(self.max_abs)[1] - 1 - GRID_SHARE_BITS)

    def noise_of(self, noisy: int) -> Noise:
        """The noise of each of so many noise clients: the fewer they are, the wider, so that all span as much."""
        return replace(self.noise, wide=wide_of(self.resolution, self.f, noisy))

    def reach(self, noisy: int, planned: int | None = None) -> int:
        """The largest noise of so many noise clients together, of those that a round began with."""
        return noisy * self.noise_of(planned or noisy).largest

    def read(self, x: Residues, noisy: int, planned: int | None = None) -> NDArray[np.float64]:
        """C*S/c plus the noise of so many noise clients, as means; the round began with `planned` of them."""
        return self.ring.join(x, math.ldexp(1.0 / self.C, -self.f), self.reach(noisy, planned) // 2)


def wide_of(resolution: float, f: int, noisy: int) -> int:
    """The wide number of each of so many noise clients is below this."""
    return int(WIDE * math.ldexp(resolution, f)) // noisy


def _digits(n: int) -> tuple[int, ...]:
    """lcm(1..n) as a product of numbers below 2^16: uniform digits of a mixed radix."""
    primes = [p for p in range(2, n + 1) if all(p % q for q in range(2, math.isqrt(p) + 1))]
    powers = [max(p**e for e in range(1, n.bit_length()) if p**e <= n) for p in primes]
    digits: list[int] = []
    for power in sorted(powers, reverse=True):
        for i, digit in enumerate(digits):
            if digit * power < LARGEST_DIGIT:
                digits[i] = digit * power
                break
        else:
            digits.append(power)
    return tuple(digits) or (1,)


def leftover_bits(s: int, w: int, digits: Sequence[int]) -> float:
    """-log2 of what is left of the lattice in one element: zeta(s) * (1/(pi*w) + the digits' own biases)^s."""
    zeta = sum(m**-s for m in range(1, 1000))
    return -math.log2(zeta) - s * math.log2(1 / (math.pi * w) + sum(digits) / 2**32)


def _rings() -> Sequence[Ring]:
    return RING61, *(Ring(PRIMES30[:size]) for size in range(3, len(PRIMES30) + 1))


@lru_cache(maxsize=64)
def numbers_of(params: Params, noise_clients: int) -> Numbers:
    """The choice for these parameters: the fewest draws, then the shortest element, then the largest f."""
    assert params.max_entities is not None
    N, T = params.clients, params.T
    digits, C = _digits(N), math.lcm(*range(1, N + 1))
    seen = T * params.max_entities * params.dim * params.rounds
    sigma = params.sigma + math.ceil(math.log2(seen))
    exponent = math.frexp(params.max_abs)[1]  # max_abs < 2^exponent
    for s in FIELDS:
        width = next((b for b in range(1, MOST_WIDTH_BITS) if leftover_bits(s, 1 << b, digits) >= sigma), None)
        if width is None or s * len(digits) + 2 > MOST_WORDS:  # more noise than the kernels draw for an element
            continue
        for ring in _rings():
            for f in range(MOST_VALUE_BITS - exponent, params.fraction_bits, -1):
                unit = math.ldexp(params.resolution, f)  # the resolution in units
                wide = wide_of(params.resolution, f, noise_clients)
                if s << width > unit / FILL_SHARE or wide < 2:
                    break
                found = Numbers(
                    ring, C, f, 1 << width, Noise(s, digits, wide), sigma, params.max_abs, params.resolution
                )
                small = (noise_clients * s + (s << width)) / 2 + 2
                if small <= ROOM * unit and _fits(found, noise_clients):
                    return found
    raise ParamsError(
        f"no field of ours holds means of precision={params.precision} with {N} clients:"
        " lower precision, or sigma, or take fewer clients"
    )


def _fits(n: Numbers, noise_clients: int) -> bool:
    """2 * (C * the largest encoded input + all noise) stays below the product of the primes.

    The noise of any number of noise clients up to these: noisy * wide <= WIDE * unit, and s*(C-1) >= C.
    """
    top = math.ldexp(n.max_abs, n.f) * (1 + 2.0 ** -(GRID_SHARE_BITS + 1))
    noise = noise_clients * (n.s * (n.C - 1) - n.C) + n.C * wide_of(n.resolution, n.f, 1)
    return 2 * (n.C * (int(top) + n.s * n.w + 2) + noise) < n.ring.modulus
