"""The differential privacy of a run: what leaves its clients, and what that is worth. `secea.privacy` does the work.

All methods of a run, and a run that is taken up again, draw the same noise from the run's secret. In `secea` with noise
of all together the protocol draws it, so only the methods in the open repeat.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.params import Params
from secea.privacy import Mechanism, assumptions, clipped, epsilon_of, gaussian, honest, with_noise
from secea.wire.keys import expand
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

Matrix = NDArray[np.float64]
FARTHEST: Final = 8
"""No noise exceeds this many standard deviations."""


def new_key(entropy: Entropy = os.urandom) -> bytes:
    """The secret that the noise of a run comes from."""
    return entropy(SEED_BYTES)


class Noise:
    """The noise of a run: each client's, on rows that leave it, or that of all together, on sums."""

    def __init__(self, dp: dict[str, Any], rounds: int, params: Callable[[], Params], key: bytes) -> None:
        self.clip, self.delta, self.rounds, self._key = dp["clip"], dp["delta"], rounds, key
        target = dp["epsilon"], self.delta, self.clip
        self.mechanism = None if dp["shared"] else Mechanism.calibrated(*target, rounds)
        self.params = with_noise(params(), *target) if dp["shared"] else None
        """Of a federation whose clients make the noise together."""

    @property
    def deviation(self) -> float:
        """On each coordinate of a row that leaves a client, or of a sum that all contribute to."""
        if self.mechanism is not None:
            return self.mechanism.deviation
        assert self.params is not None
        return self.params.noise * math.sqrt(self.params.clients / honest(self.params))

    @property
    def drift(self) -> float:
        """How far all rounds' noise may carry an entity of one owner."""
        return FARTHEST * self.deviation * math.sqrt(self.rounds)

    def leaving(self, public: Matrix, own: Matrix, client: int, round: int) -> Matrix:
        """A client's rows as they leave it. `public` are those that the others know of."""
        if self.mechanism is None:
            return clipped(public, own, self.clip)
        return self.mechanism.noised(public, own, self._stream("privacy noise", client, round))

    def on_sums(self, begun: int) -> Callable[[tuple[int, int]], Matrix] | None:
        """For the methods in the open: what is added to the sums in each round after this one. None: nothing is."""
        if self.mechanism is not None:
            return None
        rounds = count(begun + 1)

        def noise(shape: tuple[int, int]) -> Matrix:
            stream = self._stream("noise of all", next(rounds))
            return self.deviation * gaussian(stream, math.prod(shape)).reshape(shape)

        return noise

    def _stream(self, what: str, *of: int) -> KeyStream:
        return KeyStream(expand(self._key, what, *(b"%d" % number for number in of)))

    def epsilon(self, rounds: int, rows: int = 1) -> float:
        """What so many rounds cost, for one row or for a client's `rows` rows."""
        if self.mechanism is not None:
            return self.mechanism.epsilon(self.delta, rounds, rows)
        assert self.params is not None
        return epsilon_of(self.params, self.delta, self.clip, rounds=rounds, rows=rows)

    def spent(self, clients: Sequence[str], sizes: Sequence[int], every: int, *, weighted: bool) -> dict[str, Any]:
        """What a run says of its privacy: for a row, for each client's table, and by round."""
        most, shown = max(sizes), sorted({1, *range(every, self.rounds + 1, every), self.rounds})
        unit = "one row of one client" + (", its weight taken as known" if weighted else "")
        whose = "all clients together, on every sum" if self.mechanism is None else "each client, on its own rows"
        return {
            "epsilon": self.epsilon(self.rounds),
            "privacy": {
                "delta": self.delta, "clip": self.clip, "noise": self.deviation, "unit": unit, "noise_of": whose,
                "epsilon_table": self.epsilon(self.rounds, most), "rows": most,
                "clients": {n: self.epsilon(self.rounds, m) for n, m in zip(clients, sizes, strict=True) if m},
                "rounds": [[r, self.epsilon(r), self.epsilon(r, most)] for r in shown],
                "trusted": [*assumptions(self.params, self.clip)] if self.params else [],
            },
        }  # fmt: skip
