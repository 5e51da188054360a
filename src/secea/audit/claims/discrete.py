"""A claim about the noise on every slot: each number of it follows the law that privacy is computed with."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from secea.arithmetic import discrete
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.mutants import discrete as mutants
from secea.audit.specified import gaussian_of
from secea.audit.tails import FALSE_ALARM, chi_square_tail
from secea.wire.randomness import KeyStream

DEVIATIONS: Final = (0.3, 1.0, 6.5, 1000.25, 2.0**31, 2.0**45 + 0.5)
ENOUGH: Final = 180
"""A number of the law that is expected less often is counted with those beyond it."""


class Odd:
    """Bytes that are not uniform: words that are mostly tiny or huge, so that what is rare is tried all the time."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, size: int) -> bytes:
        """The next ones: words, or single bytes for signs."""
        if size % 8:
            return self._rng.bytes(size)
        words = self._rng.integers(0, 1 << 64, size // 8, np.uint64)
        shift = self._rng.integers(0, 60, words.size, np.uint64)
        kinds = self._rng.integers(0, 4, words.size)
        tiny, huge = words >> shift, ~(words >> shift)
        return np.choose(kinds, [words, tiny, huge, np.zeros_like(words)]).astype("<u8").tobytes()


def _law(sigma: float, seen: int) -> dict[int, float]:
    """How often each number is expected, as long as that is often enough; those beyond are under the next one."""
    weights = {z: math.exp(-0.5 * (z / sigma) ** 2) for z in range(-math.ceil(40 * sigma), math.ceil(40 * sigma) + 1)}
    whole = sum(weights.values())
    often = {z: seen * w / whole for z, w in weights.items()}
    edge = next(z for z in range(len(often)) if often.get(z + 1, 0.0) < ENOUGH)
    inner = {z: n for z, n in often.items() if abs(z) <= edge}
    beyond = (seen - sum(inner.values())) / 2
    return {**inner, edge: inner[edge] + beyond, -edge: inner[-edge] + beyond}


@claim("statistics", KEYED, mutants=(mutants.NO_TAILS, mutants.TWO_ZEROS, mutants.COARSE_CHANCES))
def law_of_noise(subject: Subject) -> int:
    """Keyed: the noise on every slot follows the discrete Gaussian's law to its tails, and not only its deviation.

    A number that never comes tells that a row was not another one. Numbers are made again from bytes in which what is
    rare is common; and numbers from a key stream are counted one by one.
    """
    cases = 0
    for sigma in DEVIATIONS:
        for seed in range(20):
            drawn, due = discrete.gaussian(Odd(seed), 40, sigma).tolist(), gaussian_of(Odd(seed), 40, sigma)
            cases += len(due)
            if drawn != due:
                raise Objection(f"with a deviation of {sigma:g}, {sum(map(int.__ne__, drawn, due))} numbers are others")
    for sigma in (0.8, 3.3):
        seen = discrete.gaussian(KeyStream(bytes(32)).bytes, 200_000, sigma)
        expected = _law(sigma, seen.size)
        edge = max(expected)
        counts = np.bincount(np.clip(seen, -edge, edge) + edge, minlength=len(expected))
        statistic = sum((counts[z + edge] - n) ** 2 / n for z, n in expected.items())
        if chi_square_tail(float(statistic), len(expected) - 1) < FALSE_ALARM:
            raise Objection(f"numbers with a deviation of {sigma:g} do not come as often as they should")
        cases += seen.size
    return cases
