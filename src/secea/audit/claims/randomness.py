"""Claims about both forms: what is drawn is uniform and independent, to less than half a per cent.

Millions of samples come from the functions that the parties use, and from what parties really send.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import M61, PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.paillier import Packing
from secea.arithmetic.portable import fill_keys
from secea.arithmetic.ristretto import ORDER
from secea.arithmetic.streams import Noise
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.claims.counts import form_of
from secea.audit.mutants import keyed as keyed_mutants
from secea.audit.mutants import randomness as mutants
from secea.audit.mutants import views
from secea.audit.tails import FALSE_ALARM, chi_square_tail
from secea.audit.uniformity import independent, nonzero, uniform
from secea.forms.keyed import Keyed
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.shared import RoundSecrets
from secea.params import Params
from secea.steps import masks, oprf
from secea.testing import Watch, insecure_seeded
from secea.wire.randomness import SEED_BYTES, KeyStream

MILLION: Final = 10**6
LARGEST_LAW: Final = 5000
"""The law of a sum is computed for numbers below this."""
SMALL: Final = insecure_ring(5)
RINGS: Final = (RING61, RING56, Ring(PRIMES30[:2]), SMALL)
"""The fields of one prime, residues, and a field in which a 0 is not rare."""


def key() -> bytes:
    """A key from the operating system."""
    return os.urandom(SEED_BYTES)


def each_prime(what: str, ring: Ring, x: Residues, test: Callable[..., int] = uniform) -> int:
    """Test elements modulo each prime."""
    return sum(test(f"{what} modulo {p}", p, row) for p, row in zip(ring.primes, x, strict=True))


# -------------------------------------------------------------------------------------------------------- key streams


@claim(
    "statistics",
    KEYED,
    PAILLIER,
    mutants=(
        mutants.TOP_MISSING, mutants.BIASED_BIT, mutants.CLASS_MISSING, mutants.REPEATED_WORDS, mutants.LANES_ALIKE,
        mutants.NEVER_ZERO, mutants.WITH_ZEROS,
    ),
)  # fmt: skip
def key_streams(subject: Subject) -> int:
    """Both forms: elements of key streams are uniform, and those of other words, lanes, keys and primes independent."""
    many = (4 if subject.thorough else 1) * MILLION
    tests = 0
    for ring in RINGS:
        source = KeyStream(key())
        x, y = (source.lane(lane).elements(ring, many) for lane in (1, 2))
        tests += each_prime("a key stream", ring, x) + _apart("lanes of a key stream", ring, x, y)
        if isinstance(subject.form, Keyed):
            tests += _compiled(ring, many)
    tests += each_prime("nonzero elements", SMALL, KeyStream(key()).nonzero(SMALL, many), nonzero)
    if isinstance(subject.form, Keyed):
        tests += each_prime("nonzero", SMALL, streams.stream(SMALL, key(), 3, many, nonzero=True), nonzero)
    return tests


def _apart(what: str, ring: Ring, x: Residues, y: Residues) -> int:
    """Two streams, and two primes of one stream: residues of one number would be the same where both are small."""
    tests = sum(independent(f"{what} modulo {p}", p, *rows) for p, *rows in zip(ring.primes, x, y, strict=True))
    if ring.size > 1:
        low = min(ring.primes)
        both = (x[0] < low) & (x[1] < low)
        tests += independent(f"{what}, two primes", low, x[0][both], x[1][both])
    return tests


def _compiled(ring: Ring, many: int) -> int:
    """The streams of the keyed form, each from its own function."""
    one, other, length = key(), key(), 50
    x, y = streams.stream(ring, one, 1, many), streams.stream(ring, one, 2, many)
    tests = each_prime("a stream", ring, x) + _apart("lanes", ring, x, y)
    keys = np.frombuffer(os.urandom(SEED_BYTES * (many // length)), np.uint8).reshape(-1, SEED_BYTES)
    rows = [streams.row_streams(ring, keys, q, length).reshape(ring.size, -1) for q in (1, 2)]
    tests += each_prime("rows under their keys", ring, rows[0]) + _apart("rounds of rows", ring, *rows)
    total = ring.zeros(many)
    streams.add_streams(ring, total, [one, other], [1, -1], 4)
    return tests + each_prime("sums of masks", ring, total)


# ------------------------------------------------------------------------------------------------------ noise and fill


def noise(law: Noise, seed: bytes, count: int) -> NDArray[np.uint64]:
    """The noise of many elements, as integers."""
    total = RING61.zeros(count)
    streams.add_noise(RING61, total, seed, 5, law)
    return np.asarray(total[0], np.uint64)


@claim(
    "statistics",
    KEYED,
    mutants=(mutants.DIGIT_MISSING, mutants.WIDE_TOP_MISSING, mutants.ONE_NUMBER, keyed_mutants.NO_NARROW),
)
def noise_numbers(subject: Subject) -> int:
    """Keyed: each narrow number of a noise is uniform below C, the wide one is uniform, and all are independent.

    A law with fewer narrow numbers draws the same words, so that the difference is one number.
    """
    tests, form = 0, form_of(subject)
    for N in (5, 10, 20) if subject.thorough else (5, 10):
        n = form.numbers(form.checked(Params(N, 16, 1, max_entities=1000, max_union=1000)))
        law, C, seed = n.noise_of(2), spec.common_multiple(N), key()
        if law.scale != C:
            raise Objection(f"N={N}: narrow numbers are below {law.scale}, and not below {C}")
        drawn: dict[int, NDArray[np.uint64]] = {1: noise(Noise(1, law.digits, 1), seed, MILLION)}
        for s in range(2, law.s + 1):
            whole, less = Noise(s, law.digits, 1), Noise(s - 1, law.digits, 1)
            if whole.blocks == less.blocks:  # the same words
                drawn[s] = noise(whole, seed, MILLION) - noise(less, seed, MILLION)
                if s - 1 in drawn:
                    tests += independent(f"N={N}: narrow numbers {s - 1} and {s}", C, drawn[s - 1], drawn[s])
        for s, number in drawn.items():
            tests += uniform(f"N={N}: narrow number {s}", C, number)
        wide = noise(Noise(1, (1,), law.wide), seed, MILLION)
        tests += uniform(f"N={N}: the wide number", law.wide, wide)
        if C <= LARGEST_LAW:
            total = noise(Noise(law.s, law.digits, 1), seed, MILLION)
            tests += _sum_of_uniform(f"N={N}: the sum of narrow numbers", C, law.s, total)
    return tests


def _sum_of_uniform(what: str, below: int, count: int, x: NDArray[np.uint64]) -> int:
    """Object if numbers do not look like sums of uniform numbers: chi-square over parts of the exact law."""
    law = np.ones(1)
    for _ in range(count):
        law = np.diff(np.cumsum(np.concatenate([[0.0], np.convolve(law, np.ones(below) / below)])))
    starts = np.unique(np.searchsorted(np.cumsum(law), np.arange(0, 1, 1 / 256), side="right"))
    chances = np.add.reduceat(law, starts)
    if int(x.max()) >= law.size:
        raise Objection(f"{what}: {int(x.max())} is above {law.size - 1}")
    seen = np.add.reduceat(np.bincount(x.astype(np.int64), minlength=law.size), starts)
    expected = x.size * chances
    statistic = float(((seen - expected) ** 2 / expected).sum())
    if chi_square_tail(statistic, starts.size - 1) < FALSE_ALARM:
        raise Objection(f"{what}: {x.size} sums do not have the law of {count} independent numbers")
    return 1


@claim("statistics", KEYED, mutants=(mutants.FILL_TOP_MISSING, mutants.FILL_OF_ROWS, mutants.FILL_OF_COLUMNS))
def fill_numbers(subject: Subject) -> int:
    """Keyed: each narrow number of a fill is uniform below w, the grid's is uniform, and all are independent.

    The same value has another fill in another column and under another name.
    """
    n, tests = form_of(subject).numbers(Params(5, 16, 1, max_entities=1000, max_union=1000)), 0
    shape = (MILLION // 16, 16)
    values = np.ascontiguousarray(np.frombuffer(os.urandom(8 * MILLION), np.int64).reshape(shape) * 2.0**-63)
    names = np.frombuffer(os.urandom(8 * shape[0]), np.uint64)
    keys = [key() for _ in range(fill_keys(n.s))]
    used, fine, coarse = np.full(shape[0], 1100, np.int32), np.zeros(shape[0]), np.full(shape[0], 2.0**-9)

    def filled(s: int, step: NDArray[np.float64], x: NDArray[np.float64] = values) -> NDArray[np.int64]:
        """The sum of s narrow numbers and the grid's, from 0 on."""
        some = [*keys[: fill_keys(s) - 1], keys[-1]]
        encoded = streams.encode(x, names, some, n.f, s, n.w, used, step, n.cap)
        return np.asarray(encoded - np.rint(np.ldexp(x, n.f)).astype(np.int64) + (s * (n.w - 1)) // 2, np.int64)

    before = filled(0, fine)
    if before.any():
        raise Objection("without numbers there is a fill")
    first = np.zeros(0, np.uint64)
    for s in range(1, n.s + 1):
        after = filled(s, fine)
        number = (after - before).astype(np.uint64)
        tests += uniform(f"number {s} of a fill", n.w, number)
        if s > 1:
            tests += independent(f"numbers 1 and {s} of a fill", n.w, first, number.reshape(-1))
        first, before = number.reshape(-1) if s == 1 else first, after
    units = int(math.ldexp(coarse[0], n.f))
    wide = (filled(0, coarse) + units // 2).astype(np.uint64)
    tests += uniform("the grid's number of a fill", units, wide)
    same = (filled(0, coarse, np.full_like(values, 0.25)) + units // 2).astype(np.uint64)
    tests += uniform("the grid's number of one value everywhere", units, same)
    scaled = (wide.reshape(-1) // np.uint64(units // n.w)).astype(np.uint64)
    return tests + independent("a narrow number and the grid's", n.w, first, scaled)


# ------------------------------------------------------------------------------------------------- scalars, and places


def scalars_uniform(what: str, drawn: list[int]) -> int:
    """Scalars from their upper bits, their lower bits, and their residues."""
    cycle = math.lcm(*range(1, 17)) ** 2
    high = np.array([(x << 61) // ORDER for x in drawn], np.uint64)
    low = np.array([x & (1 << 61) - 1 for x in drawn], np.uint64)
    rest = np.array([x % cycle for x in drawn], np.uint64)
    tests = uniform(f"{what}, upper bits", 1 << 61, high) + uniform(f"{what}, lower bits", 1 << 61, low)
    return tests + uniform(f"{what}, residues", cycle, rest)


@claim("statistics", KEYED, mutants=(mutants.SHORT_SCALARS, mutants.CHECK_POINT, mutants.SHORT_WEIGHTS))
def scalars_and_places(subject: Subject) -> int:
    """Keyed: scalars, the weights of a check point and its place in a list are uniform."""
    many, lists, size = (MILLION, 20000, 7) if subject.thorough else (MILLION // 10, 1600, 3)
    tests = scalars_uniform("mask keys", masks.scalars(KeyStream(key()), many))
    drawn = list(oprf.polynomial(many - 1, KeyStream(key())))
    if 0 in drawn:
        raise Objection("a coefficient of a dealer's polynomial is 0")
    tests += scalars_uniform("coefficients", drawn)
    weights = np.ascontiguousarray(oprf.blind([], 4000, key())._weights).view("<u8")
    tests += uniform("weights of a check point", 1 << 64, np.asarray(weights[:, :2], np.uint64))
    places = np.array([oprf.blind([b"a", b"b"], size, key())._places for _ in range(lists)])
    for what, column in (("a name", 0), ("another name", 1), ("the check point", -1)):
        seen, expected = np.bincount(places[:, column], minlength=size + 1), lists / (size + 1)
        if chi_square_tail(float(((seen - expected) ** 2 / expected).sum()), size) < FALSE_ALARM:
            raise Objection(f"{what} was at the places of {lists} lists {seen.tolist()} times")
        tests += 1
    return tests


@claim("statistics", PAILLIER, mutants=(mutants.NOISE_TOP_MISSING,))
def noise_of_answers(subject: Subject) -> int:
    """Paillier: what the server adds to an answer is uniform on its whole range."""
    many, sigma = MILLION // (1 if subject.thorough else 10), 40
    packing = Packing(256, M61, sigma)
    assert packing.slots == 1
    drawn = [int(m) // M61 for m in packing.noise(np.zeros((many, 1), np.uint64), os.urandom)]
    high, low = (np.array(x, np.uint64) for x in ([R >> sigma for R in drawn], [R % (1 << sigma) for R in drawn]))
    tests = uniform("the upper part of R", M61, high) + uniform("the lower part of R", 1 << sigma, low)
    return tests + independent("both parts of R", 1 << sigma, high >> np.uint64(61 - sigma), low)


# ---------------------------------------------------------------------------------------- what parties derive, and send


def secrets_of(drawn: RoundSecrets, chunk: int, many: int) -> dict[str, Residues]:
    """Every secret of a round for many slots, by name; alpha for as many columns."""
    of, pads = replace(drawn, dim=many).of(chunk, many, (0, 1)), drawn.pads(0, chunk, many)
    return {
        "rho": of.rho, "theta": of.theta, "beta": of.beta, "alpha": of.alpha[0], "J": of.J[0], "H": of.H[0],
        "the pad of one client": pads[0],
    }  # fmt: skip


@claim(
    "statistics",
    KEYED,
    mutants=(keyed_mutants.NO_J, keyed_mutants.NO_H, views.H_OF_CHUNKS, views.SAME_ALPHA),
)
def secrets_of_a_round(subject: Subject) -> int:
    """Keyed: secrets that clients share in a round are uniform, and independent of each other and of other rounds.

    rho, theta, beta, alpha, J and the pads H, as real clients derive them for many slots; and those of other chunks.
    """
    many = MILLION // (1 if subject.thorough else 5)
    tables = [{"a": np.ones(2)}, {"a": np.ones(2)}]
    parties = subject.parties(tables, collusion=1)
    parties.setup()
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    one, next_round = (part.secrets(replace(parties.server.at, round=q)) for q in (1, 2))
    (p,) = one.ring.primes
    first, tests = secrets_of(one, 0, many), 0
    for name, x in first.items():
        tests += (nonzero if name == "rho" else uniform)(name, p, x)
    for (name, x), (other, y) in combinations(first.items(), 2):
        tests += independent(f"{name} and {other}", p, x, y)
    for name, later in secrets_of(next_round, 0, many).items():
        tests += independent(f"{name} in two rounds", p, first[name], later)
    for name, beside in secrets_of(one, 1, many).items():
        if name != "alpha":  # one for all chunks of a round
            tests += independent(f"{name} in two chunks", p, first[name], beside)
    return tests


@claim("statistics", KEYED, mutants=(mutants.TOP_MISSING, mutants.BIASED_BIT, keyed_mutants.NO_MASKS))
def large_uploads(subject: Subject) -> int:
    """Keyed: the server sees uniform elements, independent over rounds, in large uploads, to less than half a per cent.

    Of two clients one owns a single entity: all else in its uploads is one mask, and no second one smooths it.
    """
    dim, rounds, watch = 2000, 5, Watch()
    tables = [{f"{e}": np.ones(dim) for e in own} for own in ((0,), range(120))]
    parties = subject.parties(tables, collusion=1, watch=watch)
    parties.setup()
    for _ in range(rounds):
        parties.round(tables)
    n = form_of(subject).numbers(parties.session.params)
    count = parties.server.M * (dim + n.checks + 2)
    uploads = [
        n.ring.from_bytes(each.payload[: count * n.ring.element_bytes], count)
        for each in watch.sealed(Kind.UPLOAD, sender=0)
    ]
    tests = each_prime("uploads", n.ring, np.concatenate(uploads, axis=1))
    return tests + _apart("uploads of two rounds", n.ring, uploads[0], uploads[1])


# -------------------------------------------------------------------------------------------------------------- its own


class Turning:
    """A client's source of randomness, which turns into another one."""

    def __init__(self, n: int) -> None:
        self.now = insecure_seeded(3)(n)

    def __call__(self, count: int) -> bytes:
        """So many bytes."""
        return self.now(count)


def _drawn(subject: Subject, variant: int) -> dict[str, object]:
    """What client 1 draws from another source than before, after a union; all others draw what they always do."""
    tables = [{name: np.ones(1) for name in own} for own in ("abc", "abd", "acd", "bcd")]
    parties = subject.parties(tables, collusion=1, dropouts=1, max_union=8, entropy=Turning)
    client, turning = parties.clients[1], parties.entropy[1]
    assert isinstance(client.part, KeyedClient)
    assert isinstance(turning, Turning)
    part, form = client.part, parties.session.form
    parties.setup()
    turning.now = insecure_seeded(50 + variant)(1)
    tables[1]["new"] = tables[1].pop("d")
    part.update(list(tables[1]))
    parties.contribute(tables)
    parties.server.begin(form.round_phase, range(4))
    parties.exchange.deliver()
    assert part.union is not None
    assert part.round is not None
    found: dict[str, object] = {"whether its entities changed": part.union.said, "noise": part.round.noise_seed}
    parties.server.give_up()
    parties.server.drain()
    parties.exchange.run(form.names_phase, range(4))
    assert part.union is not None
    assert part.masking.batch is not None
    found |= {"the blinding of names": part.naming.names.seed, "its part of a secret": part.union.part}
    found |= {"mask keys of a union": part.union.mask_key, "mask keys of rounds": part.masking.batch.keys}
    return found | {"seeds of rounds": part.masking.batch.seeds, "shares of both": part.masking.batch.seed}


@claim("record", KEYED, mutants=(mutants.SHARED_WORD, mutants.SHARED_NOISE))
def own_draws(subject: Subject) -> int:
    """Keyed: what a client must draw itself follows its own source alone: nobody computes it from what others have.

    Two federations differ in nothing but the source of one client, from some point on. Everything that it has to draw
    differs from there.
    """
    one, other = _drawn(subject, 1), _drawn(subject, 2)
    for what, drawn in one.items():
        if drawn == other[what]:
            raise Objection(f"{what}: client 1 has the same, whatever it draws")
    return len(one)
