"""Choose the fixed-point scale, the fill and the noise of the keyed form from the parameters.

They are chosen so that a mean does not reveal its *count* c, the number of clients that own the entity. Clients and
server get them from `numbers_of`. docs/protocol-keyed.md, section K6, has the bound and its proof. In short: let S be
the sum of the owners' inputs. Clients read C*S/c plus noise. Without noise it would lie on a lattice of step C/c and
show c.

* Fill: each owner adds low bits to its inputs that smooth S over s widths of w units.
* Narrow noise: s uniform numbers on {0..C-1} remove every harmonic of the lattice. What is left is below 2^-sigma'.
* Wide noise: one wide number from each noise client hides how the mean moves with a client's own fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import discrete
from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring
from secea.arithmetic.portable import MOST_WORDS
from secea.arithmetic.streams import Noise
from secea.errors import ParamsError
from secea.params import Params

FIELDS: Final = (6, 10, 14, 22, 30)
"""Choices for s. Together with the wide number, which takes two 32-bit words, the noise then fills whole AES blocks."""
MOST_WIDTH_BITS: Final = 24
WIDE: Final = 1.7
"""All wide numbers together span this many resolutions, so a mean moves by at most 0.85 of one."""
ROOM: Final = 0.15
"""The share of the resolution that is left for fill, narrow noise and rounding."""
FILL_SHARE: Final = 64
"""The narrow fill spans at most 1/FILL_SHARE of the resolution. It must be small compared with the wide noise."""
GRID_SHARE_BITS: Final = 6
"""The grid of an input is taken to be at most max_abs / 2^GRID_SHARE_BITS."""
MOST_VALUE_BITS: Final = 60
"""Bits of an encoded input, so that it fits into 64 bits together with its fill."""
LARGEST_DIGIT: Final = 1 << 16
CHECK_BITS: Final = 56
"""A wrong element passes the check with a probability of about 2^-56 at most, modulo each prime."""


@dataclass(frozen=True)
class Numbers:
    """How inputs are encoded and filled, how noise hides them, and how means are read."""

    ring: Ring
    C: int
    """lcm(1..N): a multiple of every count."""
    f: int
    """An input x becomes x * 2^f."""
    w: int
    """The width of each narrow number of the fill, in units of 2^-f."""
    noise: Noise
    """The noise in a round with all clients: s narrow numbers on {0..C-1}, and C times a wide one."""
    sigma: int
    """sigma': a single element reveals less than 2^-sigma' about its count."""
    max_abs: float
    resolution: float
    spread: float = 0.0
    """The standard deviation of the noise on every slot that honest participants add together, in units. 0: none."""
    farthest: int = 0
    """The most that all participants together add to a slot, whichever way."""

    @property
    def s(self) -> int:
        """The narrow numbers in each fill, and in each noise."""
        return self.noise.s

    @property
    def checks(self) -> int:
        """Check columns: one modulo 2^56 - 5 or 2^61 - 1, two modulo primes of 30 bits."""
        return -(-CHECK_BITS // min(p.bit_length() for p in self.ring.primes))

    @property
    def cap(self) -> float:
        """The coarsest grid that an input is taken to have."""
        return cap_of(self.max_abs)

    def spread_of(self, honest: int) -> float:
        """What each participant adds to every slot, where at least so many are honest: its standard deviation."""
        return self.spread / math.sqrt(honest)

    def noise_of(self, noisy: int) -> Noise:
        """The noise of each of `noisy` noise clients. The fewer there are, the wider it is: the total span is fixed."""
        return replace(self.noise, wide=wide_of(self.resolution, self.f, noisy))

    def reach(self, noisy: int, planned: int | None = None) -> int:
        """The largest noise of `noisy` noise clients together; the round began with `planned` (None: with `noisy`)."""
        return noisy * self.noise_of(planned or noisy).largest

    def read(self, x: Residues, noisy: int, planned: int | None = None) -> NDArray[np.float64]:
        """Read means from C*S/c plus the noise of `noisy` noise clients; the round began with `planned` of them."""
        return self.ring.join(x, math.ldexp(1.0 / self.C, -self.f), self.reach(noisy, planned) // 2)


def cap_of(max_abs: float) -> float:
    """The coarsest grid that a number within this range is taken to have."""
    return math.ldexp(1.0, math.frexp(max_abs)[1] - 1 - GRID_SHARE_BITS)


def wide_of(resolution: float, f: int, noisy: int) -> int:
    """The upper bound of each noise client's wide number, if there are `noisy` noise clients."""
    return int(WIDE * math.ldexp(resolution, f)) // noisy


def _digits(n: int) -> tuple[int, ...]:
    """lcm(1..n) as a product of numbers below 2^16. They are the bases of a mixed radix with uniform digits."""
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
    return tuple(digits)


def leftover_bits(s: int, w: int, digits: Sequence[int]) -> float:
    """-log2 of what remains of the lattice in one element: zeta(s) * (1/(pi*w) + the bias of the digits)^s."""
    zeta = sum(m**-s for m in range(1, 1000))
    return -math.log2(zeta) - s * math.log2(1 / (math.pi * w) + sum(digits) / 2**32)


def _rings() -> Sequence[Ring]:
    return RING56, RING61, *(Ring(PRIMES30[:size]) for size in range(3, len(PRIMES30) + 1))


@lru_cache(maxsize=64)
def numbers_of(params: Params, noise_clients: int) -> Numbers:
    """The numbers for these parameters: with the fewest draws, then the shortest element, then the largest f."""
    assert params.max_entities is not None
    N, T = params.clients, params.T
    digits, C = _digits(N), math.lcm(*range(1, N + 1))
    seen = T * params.max_entities * params.columns * params.rounds
    sigma = params.sigma + math.ceil(math.log2(seen))
    exponent = math.frexp(params.max_abs)[1]  # max_abs < 2^exponent
    for s in FIELDS:
        width = next((b for b in range(1, MOST_WIDTH_BITS) if leftover_bits(s, 1 << b, digits) >= sigma), None)
        if width is None or s * len(digits) + 2 > MOST_WORDS:  # more noise than the kernels can draw per element
            continue
        for ring in _rings():
            for f in range(MOST_VALUE_BITS - exponent, max(params.fraction_bits, -1), -1):  # units are 1 or less
                unit = math.ldexp(params.resolution, f)  # the resolution in units
                wide = wide_of(params.resolution, f, noise_clients)
                if s << width > unit / FILL_SHARE:
                    break
                spread, noise = math.ldexp(params.noise, f), Noise(s, digits, wide)
                found = Numbers(
                    ring, C, f, 1 << width, noise, sigma, params.max_abs, params.resolution, spread,
                    _farthest(params, spread),
                )  # fmt: skip
                small = (noise_clients * s + (s << width)) / 2 + 2
                if small <= ROOM * unit and _fits(found, noise_clients, params):
                    return found
    raise ParamsError(
        f"no supported field can hold means of precision={params.precision} with {N} clients:"
        " lower precision or sigma, or take fewer clients"
    )


def honest(params: Params, participants: int) -> int:
    """At least so many of those in a sum are honest. Without drop-outs all participants are in it, otherwise t."""
    return max(1, (params.clients - params.dropouts if params.dropouts else participants) - params.T)


def _farthest(params: Params, spread: float) -> int:
    """The most that participants add to every slot, however many there are."""
    if not spread:
        return 0
    sizes = range(2, params.clients + 1)
    return max(size * discrete.farthest(spread / math.sqrt(honest(params, size))) for size in sizes)


def _fits(n: Numbers, noise_clients: int, params: Params) -> bool:
    """Whether 2 * (C * the largest encoded input + all noise) is below the product of the primes.

    It counts the most noise of any number of noise clients up to this: noisy * wide <= WIDE * unit, and s*(C-1) >= C.
    What all participants add to every slot counts in full: an entity may have one owner.
    """
    top = math.ldexp(n.max_abs, n.f) * (1 + 2.0 ** -(GRID_SHARE_BITS + 1)) + n.farthest
    noise = noise_clients * (n.s * (n.C - 1) - n.C) + n.C * wide_of(n.resolution, n.f, 1)
    widest = discrete.farthest(n.spread_of(honest(params, 2)))  # of one client, where as few as may be take part
    return widest < 1 << MOST_VALUE_BITS and 2 * (n.C * (int(top) + n.s * n.w + 2) + noise) < n.ring.modulus
