"""Differential privacy of what a client contributes: clipped changes of rows, and Gaussian noise, each by the client.

The unit is one row of one client: whatever the client's data says about one entity, taken as the row's change in each
round, may be replaced by anything else, and the distribution of all that leaves the client in the whole run changes by
no more than (epsilon, delta). Rows are noised independently, so a change of a whole table of m rows costs what one row
with 1/sqrt(m) of the noise would (`epsilon(..., rows=m)`). A triple that moves several rows lies between the two.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.errors import ParamsError
from secea.wire.keys import expand
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream


@dataclass(frozen=True)
class Privacy:
    """The mechanism: changes clipped to `clip` in the Euclidean norm, noise of `multiplier` times what can differ."""

    clip: float
    multiplier: float
    """Standard deviation over sensitivity; two clipped rows are at most 2 * clip apart."""

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each coordinate."""
        return 2.0 * self.clip * self.multiplier

    def noised(
        self, before: NDArray[np.float64], after: NDArray[np.float64], key: bytes, client: int, round: int
    ) -> NDArray[np.float64]:
        """Client n: its rows as they leave it. `before` is what it had from the last round, which the owners know."""
        change = after - before
        change *= np.minimum(1.0, self.clip / np.maximum(np.linalg.norm(change, axis=1, keepdims=True), 1e-300))
        stream = KeyStream(expand(key, "privacy noise", b"%d" % client, b"%d" % round))
        noise = gaussian(stream, change.size).reshape(change.shape)
        return before + change + self.deviation * noise


def new_key(entropy: Entropy = os.urandom) -> bytes:
    """The secret that the noise of a run comes from."""
    return entropy(SEED_BYTES)


def gaussian(stream: KeyStream, count: int) -> NDArray[np.float64]:
    """Independent standard normal numbers, by Box and Muller."""
    pairs = -(-count // 2)
    words = np.frombuffer(stream.bytes(16 * pairs), "<u8").reshape(2, pairs)
    uniform = ((words >> 11) + 1) * 2.0**-53  # in (0, 1]
    radius = np.sqrt(-2.0 * np.log(uniform[0]))
    angle = 2.0 * np.pi * uniform[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def calibrated(epsilon: float, delta: float, clip: float, rounds: int) -> Privacy:
    """The least noise for (epsilon, delta) over this number of rounds, by the Renyi accountant of dp-accounting."""
    if not (epsilon > 0 and 0 < delta < 1 and clip > 0):
        raise ParamsError(f"privacy needs epsilon > 0, 0 < delta < 1 and clip > 0, got {epsilon}, {delta}, {clip}")
    from dp_accounting import ExplicitBracketInterval, calibrate_dp_mechanism
    from dp_accounting.rdp import RdpAccountant

    scale = math.sqrt(rounds)
    multiplier = calibrate_dp_mechanism(
        RdpAccountant, lambda z: _event(z, rounds), epsilon, delta,
        ExplicitBracketInterval(1e-3 * scale, 1e4 * scale), tol=1e-4 * scale / max(1.0, epsilon),
    )  # fmt: skip
    return Privacy(clip, float(multiplier))


def epsilon(privacy: Privacy, delta: float, rounds: int, rows: int = 1) -> float:
    """The epsilon that the rounds cost, for a change of one row, or of `rows` rows of one client at once."""
    from dp_accounting.rdp import RdpAccountant

    return float(RdpAccountant().compose(_event(privacy.multiplier / math.sqrt(rows), rounds)).get_epsilon(delta))


def _event(multiplier: float, rounds: int) -> Any:
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

    return SelfComposedDpEvent(GaussianDpEvent(multiplier), rounds)
