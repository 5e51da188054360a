"""Claims about the paper's form: attacks of a client with its Paillier key, and of a server that deviates."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

import gmpy2  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from gmpy2 import mpz

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import M61, RING61
from secea.arithmetic.paillier import PrivateKey
from secea.audit import PAILLIER, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.attacks.relay import Middleman
from secea.audit.claims.common import DIM, SETS, made_tables
from secea.audit.claims.paillier import (
    Tables,
    decrypted,
    form_of,
    made_union,
    part_of,
    random_tables,
    share_of,
    tables_of,
)
from secea.audit.mutants import common as common_mutants
from secea.audit.mutants import paillier as mutants
from secea.errors import ProtocolError
from secea.forms.paillier import Paillier
from secea.forms.paillier.form import SHARE, Kind, answered_bytes, answered_from_bytes, answered_to_bytes
from secea.forms.paillier.server import PaillierServer
from secea.params import Params
from secea.party.phases import Agreement, Begin
from secea.testing import Parties, Watch
from secea.wire.keys import Opener, Sealer, expand
from secea.wire.messages import DIGEST_BYTES, Buffer, Header
from secea.wire.randomness import Entropy, KeyStream

FEW: Final = 64
"""Candidates that are still worth trying."""


def true_sums(tables: Tables, params: Params) -> dict[str, list[int]]:
    """(sum, count) of each entity in fixed point."""
    sums: dict[str, Any] = {}
    for table in tables:
        for name, row in table.items():
            sums[name] = sums.get(name, 0) + np.append(fixedpoint.encode(row[None], params.fraction_bits)[0], 1)
    return {name: total.tolist() for name, total in sums.items()}


# ------------------------------------------------------------------------------------------------------------- division


def divided(parties: Parties, watch: Watch, dim: int) -> tuple[dict[int, int], list[list[int]]]:
    """Client 0: Y // A_0 is r, or nearly; r gives its counts, and every A_v; these give shares of others' sums."""
    part, seen, clients = part_of(parties, 0), decrypted(parties, watch), sorted(parties.clients)
    numbers, epoch = part.numbers, part.epoch
    assert epoch is not None
    assert epoch.shape is not None
    opened = seen.opened(numbers)  # r * (sum, count); K is 1
    Y, queries = seen.masked, range(len(seen.own))
    r = [_scalar(Y[0, j], seen.own[j], int(opened[j, dim]), len(clients)) for j in queries]
    counts = {j: int(opened[j, dim]) * pow(found, -1, M61) % M61 for j, found in enumerate(r) if found}
    dealt = {
        v: share_of(parties, Kind.QUERY, [each.payload for each in watch.sealed(Kind.QUERY, sender=0, receiver=v)])[0]
        for v in clients[1:]
    }
    assert epoch.shape.members is not None
    members, sums = epoch.shape.members.tolist(), []
    for row in set(range(epoch.tags.size)) - set(epoch.rows.tolist()):
        usable = [
            (j, start)
            for j, (start, stop) in enumerate(pairwise(epoch.shape.starts.tolist()))
            if members[start:stop] == [row] and r[j] > M61 // FEW
        ]
        if len(usable) < 2:
            continue
        shares = [
            set.intersection(*(_shares(int(Y[v, j, i]), r[j], int(dealt[v][at])) for j, at in usable))
            for v in clients[1:]
            for i in range(numbers.block_length)
        ]
        if all(len(found) == 1 for found in shares):
            values = RING61.constant([found.pop() for found in shares]).reshape(1, len(clients) - 1, -1)
            sums.append(fixedpoint.centred(RING61, numbers.code.decode(clients[1:], values)[:, 0]).tolist())
    return counts, sums


def _scalar(Y: Sequence[int], A: Sequence[int], masked_count: int, N: int) -> int:
    """The one r with Y = r*A mod p in all slots, or with 0 <= Y - r*A < p and a possible count; 0 if there is none."""
    some = [(int(y), int(a)) for y, a in zip(Y, A, strict=True) if a]
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


@claim("attack", PAILLIER, mutants=(mutants.NOT_LIFTED, mutants.NO_PSI))
def division(subject: Subject) -> int:
    """Paillier: a client that divides what it decrypts by its own answer finds no count and no sum of others."""
    watch, tables = Watch(), random_tables([list("ab"), list("acde"), list("bcef")], 5)
    parties = subject.parties(tables, collusion=1, max_entities=6, max_union=6, watch=watch)
    parties.setup()
    parties.round(tables)
    (counts, sums), truth, part = (
        divided(parties, watch, 5),
        true_sums(tables, parties.session.params),
        part_of(parties, 0),
    )
    assert part.epoch is not None
    asked = {
        j: str(part.names[part.epoch.rows.tolist().index(row)])
        for j, row in enumerate(part.epoch.placement)
        if row >= 0
    }
    right = sorted(name for j, name in asked.items() if counts.get(j) == truth[name][-1])
    solved = sorted(name for name, total in truth.items() if total in sums)
    if right or solved:
        raise Objection(f"division gave the counts of {right}, and the sums of {solved}, not its own")
    return len(part.epoch.placement)


# -------------------------------------------------------------------------------------------------------- smooth primes


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


@claim("attack", PAILLIER, mutants=(mutants.SHORT,))
def logarithms(subject: Subject) -> int:
    """Paillier: a client whose primes are smooth, so that it can take logarithms, does not find the server's r."""
    (p, p_factors), (q, q_factors) = smooth_prime(os.urandom), smooth_prime(os.urandom)
    public, form = PrivateKey(p, q).public, form_of(subject)
    params = form.checked(Params(3, DIM, 1, key_bits=512, insecure_small_keys=True, max_entities=1, max_union=1))
    server = form.server(params, bytes(32))
    assert isinstance(server, PaillierServer)
    introduced: Any = SimpleNamespace(introduction=lambda _: public.to_bytes())
    server.link = introduced
    server.enter(Agreement(phase=form.setup_phase, members=(0,)))
    blinds: list[bytes] = []

    def kept(count: int) -> bytes:
        blinds.append(os.urandom(count))
        return blinds[-1]

    answer = np.frombuffer(os.urandom(8 * form.numbers(params).block_length), np.uint64).reshape(1, -1) >> np.uint64(3)
    packed = form.numbers(params).packing.pack(answer)
    mine = public.ciphertexts_to_bytes(public.encrypt(packed, public.short_blinds(len(packed), kept)))
    seed = os.urandom(32)
    masked = bytes(server._scrambler(seed, 0).mask(0, {0: mine}, 1)[0])
    # The server's secret, to see if the guess is right.
    r = int(KeyStream(expand(seed, "noise", b"0")).lane(0).nonzero(RING61, 1)[0, 0])
    for c, blind in zip(public.ciphertexts_from_bytes(masked, len(packed)), blinds, strict=True):
        e, order = logarithm(p, p_factors, public.h_n % p, c % p)
        e_q, order_q = logarithm(q, q_factors, public.h_n % q, c % q)
        common = gmpy2.gcd(order, order_q)
        e += order * ((e_q - e) // common * gmpy2.invert(order // common, order_q // common) % (order_q // common))
        assert gmpy2.powmod(public.h_n, e, public.n) == c % public.n, "the logarithm is wrong"
        if abs(e // mpz.from_bytes(blind, "little") - r) < FEW:
            raise Objection("the owner of smooth primes divided a logarithm by its own, and has r")
    return len(packed)


# ------------------------------------------------------------------------------------------------ servers that deviate


@claim("attack", PAILLIER, mutants=(common_mutants.ONE_STREAM,))
def tables_subtracted(subject: Subject) -> int:
    """Paillier: the server does not learn which entities a client has by subtracting its tables of two unions."""
    parties, watch, geometry = made_union(subject, ("abc", "bcd", "ae"))
    before = tables_of(watch, geometry.cells)
    parties.union(range(3))
    after = tables_of(watch, geometry.cells)
    for n in before:
        bare = (RING61.subtract(before[n], after[n])[0] == 0).all(axis=1)
        if bare.mean() > 0.5:
            raise Objection(
                f"client {n}'s tables differ in {(~bare).sum()} of {bare.size} cells: those of its entities"
            )
    return len(before)


@claim("attack", PAILLIER, mutants=(common_mutants.UNPINNED,))
def paillier_key_swap(subject: Subject) -> int:
    """Paillier: a server that puts a Paillier key of its own into the hellos does not decrypt answers."""
    tables, watch = made_tables(SETS), Watch()
    parties = subject.parties(tables, collusion=1, watch=watch)
    relay = Middleman(parties)
    parties.exchange.tap = relay
    try:
        parties.setup()
        parties.contribute(tables)
    except ProtocolError:
        return len(SETS)
    assert relay.paillier is not None
    numbers, public, values, clients = (
        part_of(parties, 0).numbers,
        relay.paillier.public,
        [],
        sorted(parties.clients)[1:],
    )
    for v in clients:  # three answers are enough; client 0 itself uses its own key
        list(parties.clients[v].outbox())
        body = watch.sealed(Kind.ANSWER, sender=v)[0].payload[DIGEST_BYTES:]  # the first chunk: answers to client 0
        ciphertexts = public.ciphertexts_from_bytes(body, len(body) // public.ciphertext_bytes)
        values.append(numbers.packing.unpack(relay.paillier.decrypt(ciphertexts), numbers.block_length)[None])
    blocks = numbers.code.decode(clients, values, degree=numbers.code.need - 1)
    sums = fixedpoint.centred(RING61, blocks[:, 0]).tolist()
    found = sorted(name for name, total in true_sums(tables, parties.session.params).items() if total in sums)
    raise Objection(f"a server with a Paillier key of its own decrypted the sums of {found}, which client 0 asked for")


class TwoFaced:
    """A tap of a server that tells client 4 that client 0 does not contribute, and gives it the others' result."""

    def __init__(self, parties: Parties) -> None:
        self.parties = parties

    def _opened(self, n: int, header: Header, message: Buffer) -> bytes:
        key = self.parties.server.link.channels[n].derive("seal", header.label())
        return bytes(Opener(key, header).open(header, message))

    def _sealed(self, n: int, header: Header, payload: bytes) -> Buffer:
        key = self.parties.server.link.channels[n].derive("seal", header.label())
        return Sealer(key, header).seal(header.chunk, payload)

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Change what client 4 hears; client 0 and it do not answer."""
        header = Header.parse(message, sender, Kind)
        if sender in (0, 4) and header.kind is Kind.ANSWER:
            return ()
        if receiver != 4:
            return (message,)
        if header.kind is Kind.BEGIN:
            begin = Begin.parse(memoryview(self._opened(4, header, message)), len(self.parties.clients))
            if begin.phase == SHARE:
                fewer = Begin(begin.phase, tuple(each for each in begin.members if each[0] != 0))
                return (self._sealed(4, header, fewer.to_bytes()),)
        if header.kind is Kind.SHARE and header.sender == 0:
            return ()
        if header.kind is Kind.MEAN:
            body, other = self._opened(4, header, message), self.parties.clients[4].at.context
            changed = Header(**{name: getattr(header, name) for name in Header.__slots__} | {"context": other})
            return (self._sealed(4, changed, body),)
        return (message,)


@claim("attack", PAILLIER, mutants=(mutants.TWO_SETS,))
def two_contributor_sets(subject: Subject) -> int:
    """Paillier: a server that names two sets of contributors gets no client to take the other set's means."""
    tables = made_tables(["x0", "x1", "x2", "x3", "x4"])
    parties = subject.parties(tables, collusion=1, dropouts=2)
    parties.setup()
    parties.exchange.tap = TwoFaced(parties)
    try:
        parties.contribute(tables)
        parties.exchange.run(subject.form.round_phase, parties.server.at.members)
    except ProtocolError:
        return 1
    mean = parties.means(4, tables[4])[list(tables[4]).index("x")]
    if np.abs(mean - np.mean([table["x"] for table in tables], axis=0)).max() < 1e-3:
        raise Objection(
            "client 4 took a mean with client 0's embedding in it, and was told that it does not contribute"
        )
    raise AssertionError("client 4 has a mean over other clients than the server gave it")


class OfFewer:
    """A tap of a server that gives client 0 its means from the answers of fewer clients than answered."""

    def __init__(self, parties: Parties, size: int) -> None:
        self.parties, self.size, self.changed = parties, size, 0

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Leave out answers, and say so."""
        header = Header.parse(message, sender, Kind)
        if receiver != 0 or header.kind is not Kind.MEAN:
            return (message,)
        params, form = self.parties.session.params, self.parties.session.form
        assert isinstance(form, Paillier)
        assert header.chunks == 1, "all rows are in one part"
        key = self.parties.server.link.channels[0].derive("seal", header.label())
        payload = bytes(Opener(key, header).open(header, message))
        who, left = answered_from_bytes(payload[: (bits := answered_bytes(params))]), range(self.size)
        proofs, body = payload[bits : bits + len(who) * DIGEST_BYTES], payload[bits + len(who) * DIGEST_BYTES :]
        each = len(body) // len(who)
        changed = answered_to_bytes(params, [who[i] for i in left])
        changed += b"".join(proofs[i * DIGEST_BYTES :][:DIGEST_BYTES] for i in left)
        changed += b"".join(body[i * each :][:each] for i in left)
        self.changed += 1
        return (Sealer(key, header).seal(0, changed),)


@claim("attack", PAILLIER, mutants=(mutants.ANSWERS_OF_FEWER,))
def quorum_of_answers(subject: Subject) -> int:
    """Paillier: a client takes means of a quorum of answers, more than half, and not of just enough to decode them.

    Else a server could name two sets of contributors to two halves of the clients, which answer each other.
    """
    clients, dropouts, collusion = 6, 2, 1
    quorum = spec.quorum(clients, collusion, dropouts)
    if quorum == spec.need(clients, collusion, dropouts):
        raise Objection("these parameters cannot tell a quorum from what can be decoded")
    tables = made_tables(["xy"] * clients)
    for size in range(1, clients + 1):
        parties = subject.parties(tables, collusion=collusion, dropouts=dropouts)
        parties.setup()
        parties.exchange.tap = fewer = OfFewer(parties, size)
        try:
            parties.round(tables)
        except ProtocolError:
            taken = False
        else:
            taken = True
        assert fewer.changed == 1
        if taken != (size >= quorum):
            raise Objection(f"client 0 takes means of {size} answers, or not, and {quorum} are a quorum")
    return clients
