"""The rules and bounds of both specifications, written a second time. The audit compares the forms with them.

Nothing comes from the forms. K1 to K6 are sections of docs/protocol-keyed.md; 1 to 7 are those of docs/protocol.md. The
letters are theirs: N clients, T of whom may conspire, D that may vanish in the middle of a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, log2
from typing import Final

# ----------------------------------------------------------------------------------- the keyed form: who and how many


def allowed(N: int, T: int, D: int) -> bool:
    """Which N, T and D go together (K1)."""
    return N >= 2 and 0 <= D <= N - 2 and 1 <= T <= N - 1 - D


def covered(N: int, T: int, D: int) -> bool:
    """Whether a server that deviates learns no more than one that follows the protocol (K0, K7)."""
    return 2 * D + T < N


def colluders(N: int, D: int) -> int:
    """T where it is not given: the largest that is covered, else the largest that is allowed (K1)."""
    return max((T for T in range(1, N) if covered(N, T, D)), default=N - 1 - D)


def threshold(N: int, D: int) -> int:
    """t: so many uploads, votes and shares open a sum. It counts the roster (K1)."""
    return N - D


def neighbours(T: int, D: int) -> int:
    """The degree of the graph of masks: connected without any T + D (K1, K4)."""
    return T + D + 1


def masks_with(members: Sequence[int], n: int, T: int, D: int) -> set[int]:
    """With whom a client shares masks: the nearest on both sides and, for an odd degree, the one opposite (K4)."""
    size, degree, place = len(members), neighbours(T, D), members.index(n)
    half, found = (size + 1) // 2, set[int]()
    for other in range(size):
        low, high = sorted((place, other))
        near = min(high - low, size - high + low) <= degree // 2
        opposite = high - low == half or (size % 2 == 1 and (low, high) == (0, half - 1))
        if near or (degree % 2 == 1 and opposite):
            found.add(members[other])
    return found - {n}


def noise_clients(participants: Sequence[int], q: int, T: int, D: int) -> set[int]:
    """Those who add noise in attempt q: T + D + 1 of the union's members from place q on, or all (K1)."""
    size = len(participants)
    return {participants[(q + i) % size] for i in range(min(size, T + D + 1))}


def fewest_participants(N: int, T: int, D: int) -> int:
    """No client takes part with fewer (K1)."""
    if D:
        return threshold(N, D)
    return 2 if T == N - 1 else min(N, T + 2)


def signatures(N: int, T: int) -> int:
    """Z, the least with 2Z > N + T: two sets of so many have an honest client in common (K2)."""
    return next(Z for Z in range(1, N + 1) if 2 * Z > N + T)


def holders(T: int) -> int:
    """Those who answer for the key of the names (K2)."""
    return T + 1


def confirmed(N: int, T: int, D: int) -> bool:
    """Whether clients must sign who is in a sum before it is opened (K5)."""
    return D >= 1 and D * D + D + T >= N


def list_size(max_entities: int, epoch: int) -> int:
    """The names that a client may ask for in an epoch of names (K1)."""
    return max_entities if epoch == 1 else min(max_entities, max(16, max_entities // 10))


# ------------------------------------------------------------------------------------------- the keyed form: numbers

WIDE: Final[Fraction] = Fraction(17, 10)
"""All wide numbers of a round span so many resolutions (K6)."""
FILL: Final[Fraction] = Fraction(1, 64)
"""The narrow fill spans at most this part of a resolution (K6)."""
COARSEST: Final[Fraction] = Fraction(1, 64)
"""The grid of an input counts as at most this part of the power of two at or below max_abs (K6)."""
CHECK_BITS: Final = 56
"""A wrong row passes with about 2^-56 at most (K1)."""


def common_multiple(N: int) -> int:
    """C: a multiple of every count (K1)."""
    return math.lcm(*range(1, N + 1))


def sigma_prime(sigma: int, T: int, max_entities: int, d: int, rounds: int) -> int:
    """The bits that each element needs, so that a session has sigma (K6)."""
    seen = T * max_entities * d * rounds
    return sigma + (seen - 1).bit_length()


def leftover_bits(s: int, w: int, digits: Sequence[int]) -> float:
    """-log2 of what is left of the lattice in an element: zeta(s) * (1/(pi*w) + sum of digits / 2^32)^s (K6)."""
    if s < 2:
        return 0.0  # the sum over the harmonics has no bound
    zeta = sum(m**-s for m in range(1, 2000)) + 2000.0 ** (1 - s) / (s - 1)
    return -log2(zeta) - s * log2(1 / (math.pi * w) + sum(digits) / 2**32)


def wide_number(resolution: float, f: int, noisy: int) -> int:
    """The range of each noise client's wide number, in units of 2^-f (K6)."""
    return int(WIDE * Fraction(resolution) * (1 << f)) // noisy


def largest_input(max_abs: float, f: int, s: int, w: int) -> int:
    """No encoded input is above this: rounding, the narrow fill, and half of the coarsest grid (K6)."""
    grid = Fraction(math.ldexp(1.0, floor(log2(max_abs)))) * COARSEST
    return ceil(Fraction(max_abs) * (1 << f)) + s * (w - 1) + ceil(grid * (1 << f) / 2)


def largest_noise(C: int, s: int, wide: int, noisy: int) -> int:
    """No noise of a round is above this (K6)."""
    return noisy * (s * (C - 1) + C * (wide - 1))


def off(s: int, w: int, wide: int, noisy: int) -> Fraction:
    """How far a mean may be off, in units: rounding, fill, and noise around its middle (K6)."""
    return Fraction(1) + Fraction(s * (w - 1), 2) + Fraction(noisy * (s + wide - 1), 2)


def check_columns(primes: Sequence[int]) -> int:
    """So many that a wrong row passes with about 2^-56 at most, modulo each prime (K1)."""
    return ceil(CHECK_BITS / min(p.bit_length() for p in primes))


ENOUGH_IN_A_TABLE: Final = 32
ENOUGH_IN_A_ROW: Final = 8
"""The grid of fewer different sizes is not inferred (K6)."""
LEAST_BITS: Final = 7
"""Significant bits below the leading one of bf16, the coarsest type (K6)."""


def bits_of(x: float) -> tuple[int, int]:
    """The exponents of the leading and of the lowest bit of a number that is not 0."""
    whole, parts = abs(x).as_integer_ratio()
    shift = parts.bit_length() - 1
    return whole.bit_length() - 1 - shift, (whole & -whole).bit_length() - 1 - shift


def _significance(sizes: Sequence[float]) -> tuple[int, float]:
    """The most significant bits below the leading one, at least those of bf16, and 2^(the lowest bit of all)."""
    found = [bits_of(x) for x in sizes]
    return max(LEAST_BITS, *(high - low for high, low in found)), math.ldexp(1.0, min(low for _, low in found))


def grid_of_table(values: Sequence[float], dtype_bits: int, scale: float) -> tuple[int, float]:
    """`used` and `step` of a table (K6); `scale` is what its numbers are multiples of, 0 if of nothing."""
    sizes = sorted({abs(x) for x in values} - {0.0})
    if len(sizes) < ENOUGH_IN_A_TABLE:
        return dtype_bits, 0.0
    used, lowest = _significance(sizes)
    return min(used, dtype_bits), max(lowest, scale)


def grid_of_row(row: Sequence[float], used: int, step: float) -> tuple[int, float]:
    """The same of a row, in a table that has these (K6)."""
    sizes = sorted({abs(x) for x in row} - {0.0})
    if len(sizes) < ENOUGH_IN_A_ROW:
        return used, step
    own, lowest = _significance(sizes)
    return min(own, used), max(lowest, step)


def grid_of_value(x: float, used: int, step: float, max_abs: float) -> float:
    """The grid of a number in such a row: that of its bits or the step, and never above the cap (K6)."""
    own = math.ldexp(1.0, bits_of(x)[0] - used) if x else 0.0
    return min(max(own, step), math.ldexp(1.0, floor(log2(max_abs))) * float(COARSEST))


# ------------------------------------------------------------------------------------------- the keyed form: options


def designated(participants: Sequence[int], q: int) -> int:
    """With a minimum of owners: who subtracts it in attempt q (K11)."""
    return participants[q % len(participants)]


def upload_columns(d: int, checks: int, m: int, *, weighted: bool) -> int:
    """Data, a weight, checks, count and mark; for a minimum m of owners m-1 columns, and as many marks (K11)."""
    return d + (1 if weighted else 0) + checks + 2 + 2 * (m - 1)


def go_together(*, weighted: bool, partial: bool, noise: bool) -> bool:
    """Which options may be used in one session: noise covers neither weights nor who left rows out (K11)."""
    return sum((weighted, partial, noise)) <= 1


def largest_weight(N: int, precision: int) -> int:
    """N * (V + 1) is at most 2^(precision - 6), and V below 2^24 or at it (K11)."""
    return min(1 << 24, (1 << precision >> 6) // N - 1)


def honest_deviation(noise: float, N: int, T: int, D: int, present: int | None = None) -> float:
    """What each adds to every slot, so that the honest ones in a sum add what was asked for (K11).

    Without drop-outs all who are present are in it (None: N), and at least one of them is honest.
    """
    in_the_sum = N - D if D else present or N
    return noise / math.sqrt(max(1, in_the_sum - T))


def largest_noise_everywhere(noise: float, N: int, T: int, D: int, f: int) -> int:
    """All together never add more, in units of 2^-f: each is within twelve deviations (K11)."""
    return max(n * ceil(12 * honest_deviation(noise, N, T, D, n) * 2.0**f) for n in range(2, N + 1))


# ---------------------------------------------------------------------------------------------------- the paper's form

P61: Final = 2**61 - 1
SECURE_KEY_BITS: Final = 2048


def paper_allowed(N: int, T: int, D: int) -> bool:
    """Which N, T and D go together (1)."""
    return N >= 3 and 1 <= T <= (N + 1) // 2 - 1 and 0 <= D <= N - 2 * T - 1


def blocks(N: int, T: int, D: int) -> int:
    """K: the blocks of a row that one polynomial carries (1)."""
    return (N - D + 1) // 2 - T


def need(N: int, T: int, D: int) -> int:
    """The answers that decode (1)."""
    return 2 * (blocks(N, T, D) + T) - 1


def quorum(N: int, T: int, D: int) -> int:
    """The answers without which there is no result: any two such sets have a client in common (5)."""
    return max(need(N, T, D), min(N // 2 + 1, N - D))


def contributors(T: int) -> int:
    """Clients answer for no set below this (5)."""
    return T + 2


def queries(max_entities: int) -> int:
    """B: the queries of each client (6)."""
    return 3 if max_entities <= 3 else 3 * (ceil(max_entities / 2) + 5)


def paper_sigma_prime(sigma: int, N: int, T: int, D: int, d: int, max_entities: int, rounds: int) -> int:
    """The bits that each masked element needs, so that a session has sigma (1)."""
    seen = T * queries(max_entities) * N * ceil((d + 1) / blocks(N, T, D)) * rounds
    return sigma + (seen - 1).bit_length()


def slot_bits(sigma_prime: int) -> int:
    """A slot has room for p * (p + p * 2^sigma') (7)."""
    return (P61 * (P61 + (P61 << sigma_prime))).bit_length()


def mean_is_unique(N: int, max_abs: float, precision: int) -> bool:
    """Whether two fractions never share a residue: 2 * N^2 * Q < p (7)."""
    largest = round(math.ldexp(max_abs, precision - floor(log2(max_abs))))
    return 2 * N * N * largest < P61
