"""Retrieval with Paillier's cryptosystem: the paper's, packed and repaired (section 7, eq. 11 to 16).

Client v encrypts its answers for client n. The server multiplies them by r, and adds a noise polynomial that is 0 at
the data points, plus p*R over the integers. Client n decrypts, interpolates, and finds the mean by rational
reconstruction. The exact mean shows its count to whoever holds it. docs/threat-model.md says what that means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from gmpy2 import mpz  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.paillier import PrivateKey, PublicKey
from secea.forms.paillier import correction
from secea.forms.paillier.numbers import Numbers
from secea.wire.messages import Buffer
from secea.wire.randomness import KeyStream

Floats64: TypeAlias = NDArray[np.float64]


@lru_cache(maxsize=256)
def public_key(data: bytes, bits: int) -> PublicKey:
    """A public key, checked once; its tables of powers are made once too."""
    return PublicKey.from_bytes(data, bits)


def secret_bytes(key: PrivateKey) -> bytes:
    """A private key as bytes: its two primes."""
    size = key.public.bits // 16
    return int(key.p).to_bytes(size, "little") + int(key.q).to_bytes(size, "little")


def private_key(secret: bytes) -> PrivateKey:
    """The private key of `secret_bytes`."""
    half = len(secret) // 2
    return PrivateKey(int.from_bytes(secret[:half], "little"), int.from_bytes(secret[half:], "little"))


class Encrypter:
    """Client v hides its answers to client n's queries under client n's key.

    Blinds are a function of a seed and the chunk: made early or late, each is used for one ciphertext.
    """

    def __init__(self, numbers: Numbers, key: PublicKey, stream: KeyStream) -> None:
        self._numbers, self._key, self._stream = numbers, key, stream
        self._ready: dict[int, list[mpz]] = {}

    @property
    def stored_bytes(self) -> int:
        """Blinds, as large as a ciphertext each."""
        return self._key.ciphertext_bytes * sum(map(len, self._ready.values()))

    def _blinds(self, chunk: int, rows: int) -> list[mpz]:
        count = rows * self._numbers.plaintexts
        return self._key.short_blinds(count, self._stream.lane(chunk).bytes)

    def prepare(self, chunk: int, rows: int) -> None:
        """Encryption randomness."""
        self._ready[chunk] = self._blinds(chunk, rows)

    def cover(self, chunk: int, answers: Residues) -> bytes:
        """Enc(A_v), packed (eq. 11 ff.)."""
        blinds = self._ready.pop(chunk, None) or self._blinds(chunk, answers.shape[1])
        return self._key.ciphertexts_to_bytes(self._key.encrypt(self._numbers.packing.pack(answers[0]), blinds))


@dataclass(frozen=True)
class _Noise:
    """What the server adds to one chunk of answers: r for each query, and Enc(psi(alpha_v) + p*R) for each client."""

    r: NDArray[np.uint64] = field(repr=False)
    encrypted: dict[int, list[mpz]] = field(repr=False)


class Scrambler:
    """The server: r, psi and R for client n's queries, all of them a function of a seed and the chunk."""

    def __init__(self, numbers: Numbers, key: PublicKey, stream: KeyStream) -> None:
        self._numbers, self._key, self._stream = numbers, key, stream
        self._ready: dict[int, _Noise] = {}

    @property
    def stored_bytes(self) -> int:
        """Ciphertexts."""
        sizes = (len(some) for noise in self._ready.values() for some in noise.encrypted.values())
        return self._key.ciphertext_bytes * sum(sizes)

    def _noise(self, chunk: int, rows: int, clients: Sequence[int]) -> _Noise:
        n, code, key, stream = self._numbers, self._numbers.code, self._key, self._stream.lane(chunk)
        r = stream.nonzero(RING61, rows)[0]
        free = code.need - code.K
        psi = stream.elements(RING61, free, rows, n.block_length)
        at = code.matrix(code.data_points + code.alpha[:free], code.at(clients))[:, :, code.K :]
        values = RING61.combine(np.ascontiguousarray(at), psi)[0]
        encrypted = {}
        for i, v in enumerate(clients):
            own = self._stream.lane((v + 1) << 32 | chunk)  # the same for v whoever else answers
            noise = n.packing.noise(values[i], own.bytes)
            encrypted[v] = key.encrypt(noise, key.full_blinds(len(noise), own.bytes))
        return _Noise(r, encrypted)

    def prepare(self, chunk: int, rows: int, clients: Sequence[int]) -> None:
        """Encrypted noise (section IV of the paper)."""
        self._ready[chunk] = self._noise(chunk, rows, clients)

    def mask(self, chunk: int, answers: Mapping[int, Buffer], rows: int) -> list[Buffer]:
        """Enc(r * A_v + psi(alpha_v) + p*R) for everyone who answered (eq. 12, 13)."""
        key, clients = self._key, sorted(answers)
        count = rows * self._numbers.plaintexts
        noise = self._ready.pop(chunk, None)
        if noise is None or not set(clients) <= noise.encrypted.keys():
            noise = self._noise(chunk, rows, clients)
        masked = []
        for v in clients if rows else ():
            ciphertexts = key.ciphertexts_from_bytes(bytes(answers[v]), count, checked=True)
            masked += key.add(key.scale(ciphertexts, noise.r), noise.encrypted[v])
        return [key.ciphertexts_to_bytes(masked)]


class Decrypter:
    """Client n: reads its means out of what the server sends."""

    def __init__(self, numbers: Numbers, key: PrivateKey) -> None:
        self._numbers, self._key = numbers, key

    def read(
        self, chunk: int, answering: Sequence[int], body: memoryview, rows: int
    ) -> tuple[Floats64, tuple[int, ...]]:
        """Decrypt, interpolate at beta_1..beta_K, divide, reconstruct (eq. 14 to 16).

        One chunk as rows of K*L numbers: the mean and the padding; NaN in rows that make no sense. And whose answers
        were wrong, and were left out (`correction`).
        """
        n, code, params = self._numbers, self._numbers.code, self._numbers.params
        L = n.block_length
        means = np.zeros((rows, code.K * L))
        if not rows:
            return means, ()
        clients = sorted(answering)
        ciphertexts = self._key.public.ciphertexts_from_bytes(bytes(body), len(clients) * rows * n.plaintexts)
        values = n.packing.unpack(self._key.decrypt(ciphertexts), L).reshape(1, len(clients), rows, L)
        blocks, wrong = correction.decode(code, clients, [values[:, i] for i in range(len(clients))])
        masked = blocks.transpose(0, 2, 1, 3).reshape(1, rows, code.K * L)
        wanted = np.ascontiguousarray(masked[:, :, : params.dim + 1])
        means[:, : params.dim], found = fixedpoint.means_from_masked(RING61, wanted, params)
        dummy = ~masked[0].any(axis=1)
        means[(~found & ~dummy) | masked[0, :, params.dim + 1 :].any(axis=1)] = np.nan
        return means, wrong
