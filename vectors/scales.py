"""How inputs, fill and noise of the keyed form are encoded, for many federations: a scale that moves shows here."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from secea.errors import ParamsError
from secea.forms.keyed.numbers import numbers_of
from secea.params import Params

CLIENTS: Final = (2, 3, 4, 5, 7, 8, 10, 12, 13, 16, 20, 27, 32, 41, 42, 50, 64, 81, 97, 100)
INPUTS: Final = ((24, 40, 64.0), (8, 20, 1.0), (40, 80, 3.7), (32, 1, 1000.0), (1, 60, 0.01), (16, 64, 2.0**20))
"""precision, sigma, max_abs"""
SIZES: Final = ((1, 1, 1), (128, 14_541, 1000))
"""dim, max_entities, rounds"""


def scales() -> dict[str, Any]:
    """Primes, checks, f, w, s, sigma', cap, wide, digits, C; and what the noise of few and of all reaches."""
    found = []
    for N, (precision, sigma, max_abs), (dim, entities, rounds) in product(CLIENTS, INPUTS, SIZES):
        for T in sorted({1, N // 2, N - 1} - {0}):
            params = Params(
                clients=N, collusion=T, dim=dim, precision=precision, sigma=sigma, max_abs=max_abs, rounds=rounds,
                max_entities=entities, max_union=entities,
            )  # fmt: skip
            noisy = min(N, T + 1)
            given = {"federation": [N, T, precision, sigma, max_abs, dim, entities, rounds]}
            try:
                n = numbers_of(params, noisy)
            except ParamsError:
                found.append({**given, "numbers": None})
                continue
            chosen: list[Any] = [
                len(n.ring.primes),
                n.checks,
                n.f,
                n.w,
                n.s,
                n.sigma,
                n.cap,
                n.noise.wide,
                list(n.noise.digits),
            ]
            few = max(1, noisy // 2)
            reached = [n.C, n.noise_of(few).wide, n.reach(noisy), n.reach(few, noisy)]
            found.append({**given, "numbers": [*chosen, *reached]})
    return {"scales": found}
