"""Paillier's cryptosystem on gmpy2, with many field elements packed into one plaintext.

It knows integers and arrays, not clients or rounds (docs/protocol.md, section 7, says who does what with it):

* `PrivateKey` and `PublicKey`: keys, ciphertexts and their bytes.
* `Packing`: field elements in the slots of a plaintext, and the noise that hides a product of two of them.

A ciphertext of m is (1 + m n) * blind mod n^2. A blind is a power of a public n-th residue h_n (Damgard, Jurik and
Nielsen 2010, "A generalization of Paillier's public-key system"): the base is fixed, so tables make it fast. Powers of
many bases run in threads without the interpreter's lock; blinds and products hold it. Nothing is constant-time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import groupby, pairwise, starmap
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import gmpy2  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from secea.arithmetic.threads import cores

if TYPE_CHECKING:
    from secea.wire.randomness import Entropy

Elements: TypeAlias = NDArray[np.uint64]
Bits: TypeAlias = NDArray[np.uint8]
Integers: TypeAlias = Sequence[mpz]

TEETH, BLOCKS = 10, 4  # of a `_Comb`: 3.3 MB for each at 3072 bits, 2.2 MB at 2048
EXCESS = 128  # bits by which the server's exponents are longer than n, and a hash longer than what it is reduced to
_SMALL_PRIMES = gmpy2.primorial(1 << 12)


def _check_size(bits: int) -> None:
    if bits < 256 or bits % 16:
        raise ValueError(f"a key has a multiple of 16 bits and at least 256 (2048 to be secure), got {bits}")


@cache
def _pool() -> ThreadPoolExecutor:
    """One for the whole process: what gmpy2 keeps for a thread is never freed once the thread has ended."""
    return ThreadPoolExecutor(os.cpu_count())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def _spread(work: Callable[[range], list[mpz]], count: int, threads: int | None) -> list[mpz]:
    """Work on 0..count, cut into equal ranges, one thread each."""
    parts = max(1, min(threads or cores(), count))
    if parts == 1:
        return work(range(count))
    ranges = starmap(range, pairwise(count * i // parts for i in range(parts + 1)))
    return [x for part in _pool().map(work, ranges) for x in part]


class _Comb:
    """Powers of one base by Lim and Lee's comb, for exponents of at least `bits` bits.

    The bits of an exponent form a matrix TEETH x BLOCKS x columns. Table j holds the product of the base's powers at
    (tooth, j, 0) over every subset of the teeth: BLOCKS * 2^TEETH numbers in all. A power takes BLOCKS + 1 products for
    each column: about as many as windows of 8 bits, whose tables are 8 to 25 times larger and slow to build.
    """

    def __init__(self, base: mpz, modulus: mpz, bits: int) -> None:
        self.modulus = modulus
        self.columns = -(-bits // (TEETH * BLOCKS))
        self.exponent_bytes = TEETH * BLOCKS * self.columns // 8
        powers = [base]
        while len(powers) < TEETH * BLOCKS:
            powers.append(gmpy2.powmod(powers[-1], 1 << self.columns, modulus))
        self.tables = [[mpz(1)] for _ in range(BLOCKS)]
        for j, table in enumerate(self.tables):
            for tooth in powers[j::BLOCKS]:
                table += [x * tooth % modulus for x in table]

    def power(self, exponent: bytes) -> mpz:
        """Raise the base to an exponent of `exponent_bytes` bytes."""
        bits = np.unpackbits(np.frombuffer(exponent, np.uint8), bitorder="little").reshape(TEETH, -1)
        digits = (1 << np.arange(TEETH, dtype=np.uint16)) @ bits.astype(np.uint16)
        result = mpz(1)
        for column in digits.reshape(BLOCKS, self.columns).T[::-1].tolist():
            result = result * result % self.modulus
            for table, digit in zip(self.tables, column, strict=True):
                result = result * table[digit] % self.modulus
        return result


@dataclass(frozen=True)
class PublicKey:
    """The modulus n. The base of the blinds is computed from it, not sent: h = -x^2 mod n, x a hash of n.

    So nobody can choose an h of small order, whose powers would hide nothing, and no h needs checking: it is a unit of
    Jacobi symbol 1 because n has two prime factors that are 3 mod 4, and h_n = h^n mod n^2 is an n-th residue.
    """

    n: mpz = field(repr=False)

    def __post_init__(self) -> None:
        _check_size(self.bits)
        small_factor = gmpy2.gcd(self.n, _SMALL_PRIMES) != 1
        if self.n % 4 != 1 or small_factor or gmpy2.is_power(self.n) or gmpy2.is_prime(self.n, 1):
            raise ValueError("the modulus is not the product of two large primes that are 3 mod 4")

    def __reduce__(self) -> tuple[Any, ...]:
        return PublicKey, (self.n,)  # without the tables

    @property
    def bits(self) -> int:
        """The length of n, exactly."""
        return int(self.n.bit_length())

    @property
    def ciphertext_bytes(self) -> int:
        """The length of one ciphertext."""
        return self.bits // 4

    @cached_property
    def n2(self) -> mpz:
        """n^2: ciphertexts are units modulo it."""
        return self.n * self.n

    @cached_property
    def h_n(self) -> mpz:
        """The n-th residue whose powers are the blinds."""
        digest = hashlib.shake_256(b"secea paillier h" + self.to_bytes()).digest((self.bits + EXCESS) // 8)
        x = mpz.from_bytes(digest, "little")
        return gmpy2.powmod(-x * x % self.n, self.n, self.n2)

    @cached_property
    def _short(self) -> _Comb:
        return _Comb(self.h_n, self.n2, self.bits // 2)

    @cached_property
    def _full(self) -> _Comb:
        return _Comb(self.h_n, self.n2, self.bits + EXCESS)

    def to_bytes(self) -> bytes:
        """Return n in bits/8 bytes."""
        return bytes(self.n.to_bytes(self.bits // 8, "little"))

    @classmethod
    def from_bytes(cls, data: bytes, bits: int) -> PublicKey:
        """Read a key of exactly `bits` bits; a `ValueError` says why it cannot be one."""
        n = mpz.from_bytes(data, "little")
        if len(data) != bits // 8 or n.bit_length() != bits:
            raise ValueError(f"a modulus of {n.bit_length()} bits in {len(data)} bytes, instead of {bits} bits")
        return cls(n)

    def short_blinds(self, count: int, entropy: Entropy = os.urandom) -> list[mpz]:
        """Client: make blinds h_n^x with x of bits/2 bits. The key's owner must see them under `full_blinds` only."""
        return [self._short.power(entropy(self._short.exponent_bytes)) for _ in range(count)]

    def full_blinds(self, count: int, entropy: Entropy = os.urandom) -> list[mpz]:
        """Server: make blinds h_n^x with x of bits + 128 bits, which hide r in c^r from the key's owner too.

        The most that the owner can find in c^r * h_n^x is r*y + x modulo the order of h_n, where h_n^y blinds c. That
        order is below n/2, so x modulo it is within 2^-129 of uniform, r*y + x with it, and 2^60 ciphertexts together
        within 2^-69. (With x of bits/2 bits, (r*y + x) / y gives r.) Blinds u^n, u uniform, are as safe and slower.
        """
        return [self._full.power(entropy(self._full.exponent_bytes)) for _ in range(count)]

    def encrypt(self, plaintexts: Integers, blinds: Integers) -> list[mpz]:
        """Encrypt integers in [0, n), each with a blind that is used here and never again."""
        for index, m in enumerate(plaintexts):
            if not 0 <= m < self.n:
                raise ValueError(f"plaintext {index} is not in [0, n)")
        return [(1 + m * self.n) * blind % self.n2 for m, blind in zip(plaintexts, blinds, strict=True)]

    def add(self, left: Integers, right: Integers) -> list[mpz]:
        """Add under encryption, one by one."""
        return [a * b % self.n2 for a, b in zip(left, right, strict=True)]

    def scale(self, ciphertexts: Integers, scalars: Sequence[int] | Elements, threads: int | None = None) -> list[mpz]:
        """Multiply under encryption: the first scalar for the first run of ciphertexts, and so on, in equal runs."""
        run, rest = divmod(len(ciphertexts), max(1, len(scalars)))
        if rest:
            raise ValueError(f"{len(ciphertexts)} ciphertexts cannot be shared out evenly to {len(scalars)} scalars")

        def work(span: range) -> list[mpz]:
            powers: list[mpz] = []
            for row, indices in groupby(span, lambda i: i // run):
                powers += gmpy2.powmod_base_list([ciphertexts[i] for i in indices], int(scalars[row]), self.n2)
            return powers

        return _spread(work, len(ciphertexts), threads)

    def ciphertexts_to_bytes(self, ciphertexts: Integers) -> bytes:
        """Write ciphertexts one after the other, `ciphertext_bytes` each."""
        return b"".join(c.to_bytes(self.ciphertext_bytes, "little") for c in ciphertexts)

    def ciphertexts_from_bytes(self, data: bytes | memoryview, count: int, *, checked: bool = False) -> list[mpz]:
        """Read `count` ciphertexts; a `ValueError` names one that no encryption gives (unless `checked`).

        Each must be in [1, n^2), a unit, and of Jacobi symbol 1, as powers of h_n are. One symbol tests both: it is 0
        where there is no unit. (With -1 a sender could show the key's owner if r is odd: no power of h_n hides that.)
        """
        size = self.ciphertext_bytes
        if len(data) != count * size:
            raise ValueError(f"{count} ciphertexts of {size} bytes take {count * size} bytes, got {len(data)}")
        ciphertexts = [mpz.from_bytes(bytes(data[i : i + size]), "little") for i in range(0, len(data), size)]
        for index, c in enumerate(() if checked else ciphertexts):
            if c >= self.n2 or gmpy2.jacobi(c % self.n, self.n) != 1:
                raise ValueError(f"ciphertext {index} is not below n^2, or no unit of Jacobi symbol 1")
        return ciphertexts


def _prime(bits: int, entropy: Entropy) -> mpz:
    """Draw a prime p = 3 mod 4, long enough for its product with another and without small factors in (p - 1) / 2."""
    while True:  # without small factors, h generates nearly all units of Jacobi symbol 1
        p = mpz.from_bytes(entropy(bits // 8), "little") | 3 << (bits - 2) | 3
        if gmpy2.gcd(p * (p >> 1), _SMALL_PRIMES) == 1 and gmpy2.is_prime(p, 40):
            return p


@dataclass(frozen=True)
class PrivateKey:
    """The factors of a public key's n."""

    p: mpz = field(repr=False)
    q: mpz = field(repr=False)

    @classmethod
    def generate(cls, bits: int = 3072, entropy: Entropy = os.urandom) -> PrivateKey:
        """Draw a key whose n has exactly `bits` bits; below 2048 it is insecure."""
        _check_size(bits)
        while True:
            p, q = _prime(bits // 2, entropy), _prime(bits // 2, entropy)
            # Primes of one length have gcd(n, (p-1)(q-1)) = 1. Close ones are refused as in FIPS 186 (Fermat's method).
            if gmpy2.gcd(p - 1, q - 1) == 2 and abs(p - q) >> (bits // 2 - 100):
                return cls(p, q)

    @cached_property
    def public(self) -> PublicKey:
        """The public key."""
        return PublicKey(self.p * self.q)

    def decrypt(self, ciphertexts: Integers, threads: int | None = None) -> list[mpz]:
        """Decrypt modulo p and q apart, and join (Paillier 1999, section 7)."""
        p, q = self.p, self.q
        p2, q2, q_inverse, p_inverse = p * p, q * q, gmpy2.invert(q, p), gmpy2.invert(p, q)

        def work(span: range) -> list[mpz]:
            part, plaintexts = list(ciphertexts[span.start : span.stop]), []
            of_p = gmpy2.powmod_base_list(part, p - 1, p2)  # 1 - m n mod p^2
            of_q = gmpy2.powmod_base_list(part, q - 1, q2)
            for a, b in zip(of_p, of_q, strict=True):
                m_p, m_q = (1 - a) // p * q_inverse % p, (1 - b) // q * p_inverse % q
                plaintexts.append(m_q + q * ((m_p - m_q) * q_inverse % p))
            return plaintexts

        return _spread(work, len(ciphertexts), threads)


def _bits_of(values: Elements, length: int) -> Bits:
    """Spread each element over its bits, lowest first, along a new last axis."""
    return np.unpackbits(values.astype("<u8")[..., None].view(np.uint8), axis=-1, count=length, bitorder="little")


def _uniform(p: int, entropy: Entropy, shape: tuple[int, ...]) -> Elements:
    """Draw from [0, p) by rejection."""
    kept = np.empty(0, np.uint64)
    while missing := prod(shape) - kept.size:
        words = np.frombuffer(entropy(8 * missing), "<u8").astype(np.uint64) & np.uint64((1 << p.bit_length()) - 1)
        kept = np.concatenate([kept, words[words < p]])
    return kept.reshape(shape)


@dataclass(frozen=True)
class Packing:
    """How elements of F_p are packed into plaintexts of a key of `bits` bits, and how r*A + psi is hidden there.

    A row of elements has plaintexts of its own, so that each row can have its scalar. Slots are not rounded up to whole
    bytes: at sigma 64 that would cost one of 11 (2048 bits) or 16 (3072). While at work, a bit takes a byte of memory.
    """

    bits: int
    p: int
    sigma: int

    def __post_init__(self) -> None:
        if not 2 <= self.p < 1 << 63 or self.sigma < 0:
            raise ValueError(f"a packing takes 2 <= p < 2**63 and sigma >= 0, got p={self.p}, sigma={self.sigma}")
        if not self.slots:
            raise ValueError(f"a slot of {self.width} bits does not fit in a plaintext of {self.bits - 1} bits")

    @cached_property
    def width(self) -> int:
        """The bits of a slot, so that r*A + psi + p*R < p * (p + p * 2^sigma) never runs over."""
        return (self.p * (self.p + (self.p << self.sigma))).bit_length()

    @cached_property
    def slots(self) -> int:
        """The slots of a plaintext, which stays below 2^(bits-1) <= n."""
        return (self.bits - 1) // self.width

    def plaintexts(self, count: int) -> int:
        """Count the plaintexts of a row of `count` elements."""
        return -(-count // self.slots)

    def _place(self, values: Elements, fill: Callable[[tuple[int, int]], Elements]) -> Elements:
        """Give every element its slot, row by row; `fill` makes all slots, the unused ones too."""
        if values.dtype != np.uint64 or not values.ndim or (values.size and int(values.max()) >= self.p):
            raise ValueError(f"a packing takes rows of uint64 below {self.p}, got {values.dtype} {values.shape}")
        rows, count = prod(values.shape[:-1]), values.shape[-1]
        slots = fill((rows, self.plaintexts(count) * self.slots))
        slots[:, :count] = values.reshape(rows, count)
        return slots

    def _join(self, bits: Bits) -> list[mpz]:
        """Turn the low bits of all slots (rows, slots, bits) into integers."""
        bits = np.pad(bits, ((0, 0), (0, 0), (0, self.width - bits.shape[2])))
        bits = bits.reshape(prod(bits.shape[:2]) // self.slots, self.slots * self.width)
        return [mpz.from_bytes(row.tobytes(), "little") for row in np.packbits(bits, axis=1, bitorder="little")]

    def pack(self, values: Elements) -> list[mpz]:
        """Pack rows (the last axis) of elements below p into `plaintexts(count)` plaintexts each, row after row."""
        slots = self._place(values, lambda shape: np.zeros(shape, np.uint64))
        return self._join(_bits_of(slots, self.p.bit_length()))

    def noise(self, psi: Elements, entropy: Entropy = os.urandom) -> list[mpz]:
        """Pack psi + p*R, R uniform in [0, p * 2^sigma), in the places in which `pack` puts psi.

        R = a * 2^sigma + b with a uniform in [0, p) and sigma random bits b: exactly uniform. No slot runs over, so one
        product multiplies all slots by p. Unused slots get a uniform psi: what a sender hid there does not come out.
        """
        uniform, length, low_bytes = partial(_uniform, self.p, entropy), self.p.bit_length(), -(-self.sigma // 8)
        slots = self._place(psi, uniform)
        a = _bits_of(uniform(slots.shape), length)
        low = np.frombuffer(entropy(slots.size * low_bytes), np.uint8).reshape(*slots.shape, low_bytes)
        b = np.unpackbits(low, axis=2, count=self.sigma, bitorder="little")
        packed_R = self._join(np.concatenate([b, a], axis=2))
        return [self.p * R + m for R, m in zip(packed_R, self._join(_bits_of(slots, length)), strict=True)]

    def unpack(self, plaintexts: Integers, count: int) -> Elements:
        """Reduce every slot modulo p, in rows of `count`; a `ValueError` names a plaintext that was not packed so."""
        each, used = self.plaintexts(count), self.slots * self.width
        rows, rest = divmod(len(plaintexts), max(1, each))
        if rest:
            raise ValueError(f"{len(plaintexts)} plaintexts do not make rows of {each}")
        for index, m in enumerate(plaintexts):
            if m.bit_length() > used:
                raise ValueError(f"plaintext {index} is longer than its {self.slots} slots")
        size, every = -(-used // 8), len(plaintexts) * self.slots
        data = np.frombuffer(b"".join(m.to_bytes(size, "little") for m in plaintexts), np.uint8).reshape(-1, size)
        bits = np.unpackbits(data, axis=1, count=used, bitorder="little").reshape(every, self.width)
        step = min(8, 64 - self.p.bit_length())  # Horner's rule, with digits that fit in a word beside a residue
        bits = np.pad(bits, ((0, 0), (0, -self.width % step)))
        digits = np.packbits(bits.reshape(every, bits.shape[1] // step, step), axis=2, bitorder="little")[..., 0]
        residues = np.zeros(every, np.uint64)
        for column in digits.T[::-1]:
            residues = (residues << np.uint64(step) | column) % np.uint64(self.p)
        return residues.reshape(rows, each * self.slots)[:, :count]
