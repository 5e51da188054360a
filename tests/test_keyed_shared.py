"""What all clients draw for a round, as it is written down: every stream has its label, its size and its place."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pytest

from secea.arithmetic.field import PRIMES30, RING61, Ring, insecure_ring
from secea.forms.keyed.shared import RoundSecrets

RINGS: Final = {"one prime": (RING61, 1), "three primes": (Ring(PRIMES30[:3]), 2), "tiny": (insecure_ring(5, 7), 2)}
KNOWN: Final[dict[tuple[str, int, bool], str]] = {
    ("one prime", 1, False): "2f947569cbf965e3",
    ("one prime", 4, True): "7b53c6e8c3440cb7",
    ("three primes", 1, True): "76572fd2c041b949",
    ("three primes", 2, False): "2f39f59ee14a96dd",
    ("one prime", 12, False): "de459358944864a7",
    ("tiny", 4, True): "26bf3d103e300c1e",
    ("three primes", 6, True): "d1ed5d4d2ac79409",
}
"""By ring, minimum of owners, and whether there is noise on every slot. That the streams are those of the
specification is the claim `as-specified`."""


@pytest.mark.parametrize("case", KNOWN, ids=str)
def test_what_is_shared_in_a_round_is_what_is_written_down(case: tuple[str, int, bool]) -> None:
    (ring, checks), least, spread = RINGS[case[0]], case[1], case[2]
    secrets = RoundSecrets(ring, 3, checks, bytes(range(32)), b"L" * 16, 9, least, spread)
    shared, said = secrets.of(5, 7, (1, 3)), hashlib.sha256()
    parts = [shared.rho, *shared.alpha, *shared.J, *shared.H, shared.theta, shared.beta, *shared.gamma]
    assert (shared.least is None) == (least == 1)
    assert len(shared.gamma) == checks * spread
    if shared.least is not None:
        parts += [shared.least.a, shared.least.rho, shared.least.beta, shared.least.theta]
        assert shared.least.a.shape == (ring.size, 7, least - 1)
        assert shared.least.rho.all()
        assert (np.sort(shared.least.a, axis=2) == np.arange(1, least)).all()
    assert shared.rho.all()
    assert all(each.all() for each in shared.gamma)
    for part in (*parts, *secrets.pads(2, 5, 7)):
        said.update(f"{part.shape}{part.dtype}".encode() + np.ascontiguousarray(part).tobytes())
    assert said.hexdigest()[:16] == KNOWN[case]
