"""Exact views of T clients with Paillier's retrieval (7a): the shares that they get, and what one of them decrypts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from secea.arithmetic.field import Residues
from secea.audit import Claim
from secea.audit.coins import Coins, Elements
from secea.audit.laws import Law, affine, flat, law
from secea.audit.stand_ins import tiny_ring
from secea.audit.tiny import Tiny, World, known_to
from secea.audit.views import same, title, worlds
from secea.params import Params
from secea.wire.messages import Kind

PAILLIER = (Params(3, 1, collusion=1), Params(5, 1, collusion=1), Params(5, 1, collusion=2), Params(7, 1, collusion=2))


def _paillier_worlds(params: Params) -> tuple[tuple[int, ...], list[World], list[tuple[int, ...]]]:
    """A coalition, worlds in which it has the same inputs and outputs, and what r * count may be."""
    coalition, own = tuple(range(params.T)), 2 if params.N == 3 else 1
    some = list(product(range(1, tiny_ring(params).primes[0]), repeat=own))
    return coalition, worlds(params, coalition, own), some[:: len(some) // 2]


def _asking(params: Params, world: World, coalition: Sequence[int]) -> Tiny:
    tiny = Tiny(params, world, form="paillier", queries=len(world.owned[coalition[0]]))
    with tiny.labelled():
        tiny.asked()
    return tiny


def _decrypted(tiny: Tiny, asking: int) -> Residues:
    """What client n decrypts, modulo p."""
    body = tiny.mean(tiny.everyone, asking)
    form: Any = tiny.scheme.form
    cipher = form.key_of(None, asking)
    plaintexts = cipher.ciphertexts_from_bytes(body, len(body) // cipher.ciphertext_bytes)
    residues: Residues = form.packing.unpack(plaintexts, form.block_length)
    return residues


def _decryption_law(params: Params, world: World, coalition: Sequence[int], opened: Sequence[int]) -> Law:
    """Over psi and the others' noise, given r * count for each query: each of r and r * count determines the other.

    A coalition gets in a round in which its first client asks: the others' shares, and what that client decrypts.
    """
    tiny = _asking(params, world, coalition)
    counts = np.array(world.counts(tiny.everyone))[tiny.placed(coalition[0])].tolist()
    r = [o * pow(c, -1, tiny.p) % tiny.p for o, c in zip(opened, counts, strict=True)]
    others = [n for n in tiny.everyone if n not in coalition]

    def view(coins: Coins) -> Elements:
        tiny.coins = coins
        tiny.shared(tiny.everyone)
        dealt = [
            tiny.shares_in(m for m in tiny.dealt if m.header.sender == n)[Kind.SHARE][list(coalition)] for n in others
        ]
        return flat(*dealt, _decrypted(tiny, coalition[0]))

    free = frozenset({"share", "mean noise"})
    with tiny.labelled():
        given = {"mean noise*": lambda label: tiny.ring.constant(r)}
        return affine(view, tiny.p, free=free, given=given, knows=known_to(coalition)).law()


def check_decryption(federations: Sequence[Params] = PAILLIER) -> int:
    """7a: the others' shares, and what is decrypted."""
    cases = 0
    for params in federations:
        coalition, given, choices = _paillier_worlds(params)
        for opened in choices:
            laws = [_decryption_law(params, world, coalition, opened) for world in given]
            cases += same(laws, f"{title(params)}, clients {coalition}, r * count = {opened}")
    return cases


def check_decryption_over_r() -> int:
    """7a, N = 3: what is decrypted for two queries, over every r of both."""
    coalition, given, _ = _paillier_worlds(PAILLIER[0])
    laws = []
    for world in given:
        tiny = _asking(PAILLIER[0], world, coalition)
        with tiny.labelled():
            tiny.shared(tiny.everyone)

            def view(coins: Coins, tiny: Tiny = tiny) -> Elements:
                tiny.coins = coins
                return flat(_decrypted(tiny, 0))

            laws.append(law(view, tiny.p, ["mean noise"], {"mean noise*": 2}))
    return same(laws, title(PAILLIER[0]))


CLAIMS = (
    Claim(
        "decryption",
        "What T clients decrypt with Paillier, and the shares that they get, depend on their means alone.",
        "exact view",
        check_decryption,
    ),
    Claim(
        "decryption-of-two-queries",
        "What a client decrypts for two queries together depends on its means alone, over every r.",
        "exact view",
        check_decryption_over_r,
    ),
)
