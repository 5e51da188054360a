"""Noise on every slot whose deviation is right, and whose law is another one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import discrete
from secea.arithmetic.discrete import Draw, gaussian
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.epochs import within

_accepted, _uniform = discrete._accepted, discrete._uniform


def _near(draw: Draw, count: int, sigma: float) -> NDArray[np.int64]:
    found = _accepted(draw, count, sigma)
    return found[np.abs(found) <= 4 * sigma]


def _either_zero(draw: Draw, count: int, sigma: float) -> NDArray[np.int64]:
    found = gaussian(draw, count, sigma)
    found[1:][(found[1:] == 1) & (found[:-1] == 0)] = 0
    return found


def _of_32_bits(draw: Draw, count: int) -> NDArray[np.float64]:
    return np.floor(_uniform(draw, count) * 2.0**32) * 2.0**-32


NO_TAILS = within(
    "no-tails", "Noise that is more than four deviations wide is drawn again.", discrete, "_accepted", _near
)
TWO_ZEROS = replaced("two-zeros", "After no noise comes no noise more often.", {gaussian: _either_zero})
COARSE_CHANCES = within(
    "coarse-chances", "Chances of noise are compared in 32 bits.", discrete, "_uniform", _of_32_bits
)
