"""What the owner of a Paillier key may try against the masks of retrieval with Paillier (section 7a).

The adversary is client 0, honest but curious. It knows its own answer A_0, the queries that it dealt, and the integers
that it decrypts: r*A_v + psi(alpha_v) + p*R for each client v.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from unittest.mock import patch

import gmpy2  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from gmpy2 import mpz

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import M61, RING61
from secea.arithmetic.paillier import Elements, Packing, PrivateKey, PublicKey
from secea.audit import Claim, Mutant, Objection
from secea.audit.recorded import Recorded, Tables, random_tables
from secea.params import Params
from secea.retrieval.paillier import Paillier, _Scrambler, private_key
from secea.wire.messages import DIGEST_BYTES, Kind
from secea.wire.randomness import Entropy, KeyStream

SETS: Final = ({"a", "b"}, {"a", "c", "d", "e"}, {"b", "c", "e", "f"})
DIM: Final = 5
FEW: Final = 64
"""Candidates that are still worth trying."""


def slots(packing: Packing, plaintexts: Sequence[Any], count: int) -> list[list[int]]:
    """The integers in the slots of plaintexts, in rows of `count`: not reduced modulo p."""
    each, low = packing.plaintexts(count), (1 << packing.width) - 1
    found = [int(m) >> packing.width * i & low for m in plaintexts for i in range(packing.slots)]
    stride = each * packing.slots
    return [found[start : start + count] for start in range(0, len(found), stride)]


@dataclass(frozen=True)
class Quotients:
    """What division gave: the count behind each query that was solved, and sums of entities that client 0 lacks."""

    counts: dict[int, int]
    """By the number of the query."""
    sums: dict[int, list[int]]
    """By their rows of the union; the last number is the count."""


def divide(run: Recorded) -> Quotients:
    """Client 0: Y // A_0 is r, or nearly; r gives the counts, and every A_v; these give shares of others' sums."""
    me, form, shape = run.clients[0], run.session.form, run.clients[0].shape
    assert isinstance(form, Paillier)
    key, L, packing, clients = private_key(me.paillier), form.block_length, form.packing, sorted(run.clients)

    def decrypted(body: bytes) -> list[list[int]]:
        size = key.public.ciphertext_bytes
        ciphertexts = key.public.ciphertexts_from_bytes(body, len(body) // size)
        return slots(packing, key.decrypt(ciphertexts), L)

    own = decrypted(run.answers(0, run.server.round)[0])
    (mean,) = run.of(Kind.MEAN, receiver=0)
    body = run.opened(mean)[run.session.answered_bytes + len(clients) * DIGEST_BYTES :]
    Y = np.array(decrypted(body), object).reshape(len(clients), shape.count, L)
    masked = form.code.decode(clients, RING61.constant(Y), degree=form.code.need - 1)[0, 0]  # r*sum, r*count: K is 1

    r = [_scalar(Y[0, j], own[j], int(masked[j, DIM]), len(clients)) for j in range(shape.count)]
    counts = {j: int(masked[j, DIM]) * pow(found, -1, M61) % M61 for j, found in enumerate(r) if found}
    dealt = {v: run.residues(next(run.of(Kind.QUERY, sender=0, receiver=v)))[0, :, 0] for v in clients[1:]}
    assert shape.members is not None
    members, sums = shape.members.tolist(), {}
    for row in set(range(me.M)) - set(me.rows.tolist()):
        usable = [
            (j, start)
            for j, (start, stop) in enumerate(pairwise(shape.starts.tolist()))
            if members[start:stop] == [row] and r[j] > M61 // FEW
        ]
        if len(usable) < 2:
            continue
        shares = []
        for v in clients[1:]:
            for l in range(L):  # noqa: E741 - the paper's letter
                tried = [_shares(int(Y[v, j, l]), r[j], int(dealt[v][at])) for j, at in usable]
                shares.append(set.intersection(*tried))
        if all(len(found) == 1 for found in shares):
            values = RING61.constant([found.pop() for found in shares]).reshape(1, len(clients) - 1, L)
            sums[row] = fixedpoint.centred(RING61, form.code.decode(clients[1:], values)[:, 0]).tolist()
    return Quotients(counts, sums)


def _scalar(Y: Sequence[int], A: Sequence[int], masked_count: int, N: int) -> int:
    """The one r with Y = r*A mod p in all slots, or with 0 <= Y - r*A < p and a possible count; 0 if there is none."""
    some = [(int(y), a) for y, a in zip(Y, A, strict=True) if a]
    if len(found := {y * pow(a, -1, M61) % M61 for y, a in some}) == 1 < len(some):
        return found.pop()
    low = max((-(-(y - M61 + 1) // a) for y, a in some), default=1)
    high = min((y // a for y, a in some), default=0)
    if high - low > FEW:
        return 0
    possible = range(max(1, low), min(M61 - 1, high) + 1)
    fit = [r for r in possible if masked_count * pow(r, -1, M61) % M61 <= N]
    return fit[0] if len(fit) == 1 else 0


def _shares(Y: int, r: int, q: int) -> set[int]:
    """The shares y that a query q with a single entity allows: Y = r*q*y + psi, psi < p; or psi = 0, modulo p."""
    over = pow(q, -1, M61)
    return {(Y // r - i) * over % M61 for i in range(FEW + 1)} | {Y * pow(r, -1, M61) * over % M61}


def division() -> int:
    """Run a federation with Paillier, and let client 0 divide."""
    run = Recorded(SETS, form="paillier", dim=DIM, max_entities=6, max_union=6).setup()
    tables = random_tables(SETS, DIM, np.random.default_rng(0))
    run.round(tables)
    found, me, truth = divide(run), run.clients[0], true_sums(tables, run.params)
    asked = {j: me.names[me.rows.tolist().index(row)] for j, row in enumerate(me.placement.tolist()) if row >= 0}
    right = [name for j, name in asked.items() if found.counts.get(j) == truth[str(name)][-1]]
    solved = [name for name, total in truth.items() if total in found.sums.values()]
    if right or solved:
        raise Objection(f"division gave the counts of {sorted(map(str, right))}, and the sums of {solved}, not its own")
    return run.session.query_count


def true_sums(tables: Tables, params: Params) -> dict[str, list[int]]:
    """(sum, count) of each entity in fixed point."""
    sums: dict[str, Any] = {}
    for table in tables:
        for name, row in table.items():
            h = np.append(fixedpoint.encode(row[None], params.fraction_bits)[0], 1)
            sums[name] = sums.get(name, 0) + h
    return {name: total.tolist() for name, total in sums.items()}


# ------------------------------------------------------------------------------------------------------ smooth primes


def smooth_prime(entropy: Entropy) -> tuple[mpz, list[int]]:
    """A prime p = 3 mod 4 of 256 bits whose p - 1 has small factors only, and these: its owner can take logarithms."""
    factors = [2]
    while len(factors) < 20:
        factor = int(gmpy2.next_prime(4096 + int.from_bytes(entropy(2), "little") % 4096))
        factors += [factor] if factor not in factors else []
    rest = math.prod(factors)
    last = gmpy2.next_prime((mpz(3) << 254) // rest)
    while not gmpy2.is_prime(rest * last + 1):
        last = gmpy2.next_prime(last)
    return rest * last + 1, [*factors, int(last)]


def logarithm(prime: mpz, factors: Sequence[int], base: mpz, power: mpz) -> tuple[mpz, mpz]:
    """The exponent modulo the base's order, and that order (Pohlig and Hellman; prime - 1 is square-free)."""
    found, order = mpz(0), mpz(1)
    for factor in factors:
        g, target = (gmpy2.powmod(x, (prime - 1) // factor, prime) for x in (base, power))
        if g == 1:
            continue
        digit, step = 0, mpz(1)
        while step != target:
            digit, step = digit + 1, step * g % prime
        found += order * ((digit - found) * gmpy2.invert(order, factor) % factor)
        order *= factor
    return found, order


def logarithms() -> int:
    """Client 0 chose smooth primes: from its own answer h^y, scaled and blinded, it takes r*y + x and divides by y."""
    (p, p_factors), (q, q_factors) = smooth_prime(os.urandom), smooth_prime(os.urandom)
    public = PrivateKey(p, q).public
    form = Paillier(Params(3, DIM, 1, key_bits=512, insecure_small_keys=True, max_entities=1, max_union=1), 3)
    blinds: list[bytes] = []

    def kept(count: int) -> bytes:
        blinds.append(os.urandom(count))
        return blinds[-1]

    packed = form.packing.pack(np.frombuffer(os.urandom(8 * DIM), np.uint64).reshape(1, DIM) >> np.uint64(3))
    mine = public.ciphertexts_to_bytes(public.encrypt(packed, public.short_blinds(len(packed), kept)))
    stream = KeyStream(os.urandom(32))
    form.block_length = DIM
    masked = bytes(_Scrambler(form, public, stream).mask(0, {0: mine}, 1)[0])
    r = int(stream.lane(0).nonzero(RING61, 1)[0, 0])  # the server's secret, to see if the guess is right
    for c, blind in zip(public.ciphertexts_from_bytes(masked, len(packed)), blinds, strict=True):
        e, order = logarithm(p, p_factors, public.h_n % p, c % p)
        e_q, order_q = logarithm(q, q_factors, public.h_n % q, c % q)
        common = gmpy2.gcd(order, order_q)
        e += order * ((e_q - e) // common * gmpy2.invert(order // common, order_q // common) % (order_q // common))
        assert gmpy2.powmod(public.h_n, e, public.n) == c % public.n, "the logarithm is wrong"
        if abs(e // mpz.from_bytes(blind, "little") - r) < FEW:
            raise Objection("the owner of smooth primes divided a logarithm by its own, and has r")
    return len(packed)


_noise = Packing.noise


def _without_psi(self: Packing, psi: Elements, entropy: Entropy = os.urandom) -> list[mpz]:
    return _noise(self, np.zeros_like(psi), entropy)


CLAIMS: Final = (
    Claim(
        "paillier-division",
        "A client that divides what it decrypts by its own answer finds neither counts nor sums of others' entities.",
        "attack",
        division,
    ),
    Claim(
        "paillier-logarithms",
        "A client whose primes are smooth, so that it can take logarithms, does not get the server's r.",
        "attack",
        logarithms,
    ),
)

MUTANTS: Final = (
    Mutant(
        "no-psi",
        "The server adds a multiple of p to r*A, and no noise polynomial.",
        lambda: patch.object(Packing, "noise", _without_psi),
        ("paillier-division",),
    ),
    Mutant(
        "short-exponents-at-the-server",
        "The server re-randomises with exponents of half the modulus' length.",
        lambda: patch.object(PublicKey, "full_blinds", PublicKey.short_blinds),
        ("paillier-logarithms",),
    ),
)
