"""Noise over the integers: the drowning noise of 7b and p*R of 7a, enumerated in small parameters."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from secea.audit import Claim, Objection
from secea.audit.laws import Chances, distance, evenly
from secea.audit.stand_ins import Narrow
from secea.params import Params
from secea.retrieval.reciprocal import Reciprocal, _Drowner
from secea.wire.randomness import KeyStream


class Script:
    """A key stream whose bytes are those of one integer, for noise of one element."""

    def __init__(self, eta: int, bits: int) -> None:
        self.word = (eta << 32 - bits).to_bytes(4, "little")

    def lane(self, number: int) -> Script:
        """The same."""
        return self

    def fill(self, out: memoryview) -> None:
        """The integer."""
        out[:] = self.word


SMALL_NOISE = Params(3, 1, collusion=1, sigma=3, rounds=1, precision=4, max_abs=1.0)
SUMS = tuple((total, count) for count in (1, 2, 3) for total in range(-3 * count, 3 * count + 1))


def drowned(form: Reciprocal, total: int, count: int) -> Chances:
    """What client n finds for an entity with this sum and count: integers and how likely each is, over all noise."""
    ring, code, clients = form.ring, form.code, range(form.params.need)
    weighted = form.params.C // count * total
    pads = [KeyStream(bytes([v]) * 32).elements(ring, 1, 1) for v in clients]
    answers = {v: ring.to_bytes(ring.add(ring.constant([[weighted]]), pads[v])) for v in clients}
    found = []
    for eta in range(1 << form.noise_bits):
        stream: Any = Script(eta, form.noise_bits)
        blocks = ring.from_bytes(_Drowner(form, stream).mask(0, answers, 1)[0], 1, 1, 1).copy()
        ring.subtract_into(blocks, code.decode(clients, np.stack(pads, axis=1), degree=code.need - 1))
        found.append(int(ring.join(blocks, 1.0).item()))
    return evenly(found)


def check_drowning() -> int:
    """Equal means give equal views; means that differ by less than a step of the grid, views within 2^-sigma'."""
    form = Reciprocal(SMALL_NOISE, 1)
    bound = Fraction(1, 1 << form.sigma_prime)
    views = {case: drowned(form, *case) for case in SUMS}
    for (one, a), (other, b) in combinations(views.items(), 2):
        shift = abs(Fraction(*one) - Fraction(*other))
        apart = distance(a, b)
        if shift == 0 and apart:
            raise Objection(f"sums and counts {one} and {other} have the same mean, and other views")
        if shift < 1 and apart >= bound:
            raise Objection(f"sums and counts {one} and {other} have near means, and views at a distance of {apart}")
        if apart > form.params.C * shift / (1 << form.noise_bits):
            raise Objection(f"sums and counts {one} and {other} have views at a distance of {apart}")
    return len(views) * (len(views) - 1) // 2


def plaintexts(p: int, sigma: int, r: int, answer: int, psi: int) -> Chances:
    """The plaintext r*A + psi + p*R over all R."""
    packing, found = Narrow(256, p, sigma), []
    for a, b in product(range(p), range(1 << sigma)):
        drawn = iter([0, a])  # what fills unused slots, and the two parts of R

        def entropy(count: int, drawn: Iterator[int] = drawn, b: int = b) -> bytes:
            word = next(drawn, None)
            return bytes([b]) * count if word is None else word.to_bytes(8, "little") * (count // 8)

        (noise,) = packing.noise(np.array([psi], np.uint64), entropy)
        found.append(int(r * packing.pack(np.array([answer], np.uint64))[0] + noise) % (1 << packing.width))
    return evenly(found)


def check_lifted() -> int:
    """What a client decrypts shows the residue modulo p and nothing of the integer, up to 2^-sigma."""
    p, sigma, cases = 5, 3, 0
    for answer in range(1, p):
        views = {(r, psi): plaintexts(p, sigma, r, answer, psi) for r in range(1, p) for psi in range(p)}
        for one, other in combinations(views, 2):
            if (one[0] * answer + one[1] - other[0] * answer - other[1]) % p == 0:
                cases += 1
                apart = distance(views[one], views[other])
                if apart > Fraction(1, 1 << sigma):
                    raise Objection(
                        f"answer {answer}: r and psi {one} and {other} give one residue, and plaintexts at a distance"
                        f" of {apart}"
                    )
    return cases


CLAIMS = (
    Claim(
        "drowning",
        "By reciprocals, worlds with equal means give a client equal views, and near means views within 2^-sigma'.",
        "exact view",
        check_drowning,
    ),
    Claim(
        "integers",
        "What a client decrypts shows r * answer + psi modulo p, and of the integer at most 2^-sigma.",
        "exact view",
        check_lifted,
    ),
)
