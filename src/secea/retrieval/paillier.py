"""Retrieval with Paillier's cryptosystem: the paper's form, packed and repaired (section 7a, eq. 11 to 16).

Client v encrypts its answers for client n; the server multiplies them by r and adds a noise polynomial that is 0
where the data stand, plus p*R over the integers; client n decrypts, interpolates, and finds the mean by rational
reconstruction. The exact mean shows its count to whoever holds it: docs/threat-model.md says what that means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from gmpy2 import mpz  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from secea import correction
from secea.arithmetic import fixedpoint
from secea.arithmetic.field import M61, RING61, Residues
from secea.arithmetic.lagrange import Code
from secea.arithmetic.paillier import Packing, PrivateKey, PublicKey
from secea.errors import ParamsError
from secea.params import Params
from secea.sharing import block_length, expand_rows
from secea.wire.keys import expand
from secea.wire.messages import Buffer
from secea.wire.randomness import KeyStream

if TYPE_CHECKING:
    from secea.retrieval import Floats64
    from secea.wire.endpoint import Endpoint, Stage


class Paillier:
    """The public side of the form for one set of parameters; `queries` is the number that each client sends."""

    name = "paillier"
    weighted = False
    ring = RING61
    tolerance = 0.0

    def __init__(self, params: Params, queries: int) -> None:
        if not fixedpoint.reconstruction_is_unique(params):
            raise ParamsError(
                f"precision {params.precision} is too fine for {params.clients} clients with Paillier:"
                " 2 * N^2 * max_abs * 2^f must stay below 2^61; lower precision"
            )
        self.params, self.queries = params, queries
        self.block_length = block_length(params, params.dim + 1)
        seen = params.T * queries * params.N * self.block_length * params.rounds
        self.sigma_prime = params.sigma + math.ceil(math.log2(seen))
        try:
            self.packing = Packing(params.key_bits, M61, self.sigma_prime)
        except ValueError as error:
            raise ParamsError(f"key_bits={params.key_bits} cannot hold a masked element: {error}") from None
        self.code = Code(params, RING61)
        self.paillier_bytes = params.key_bits // 8
        self.answer_row_bytes = self.packing.plaintexts(self.block_length) * (params.key_bits // 4)

    def mean_row_bytes(self, answering: int) -> int:
        """The ciphertexts of everyone who answered."""
        return answering * self.answer_row_bytes

    def rows(self, matrix: NDArray[np.floating[Any]], entity: NDArray[np.uint64], key: bytes) -> Residues:
        """Client n: (h, 1) in exact fixed point, padded to K*L (eq. 3, 5)."""
        return RING61.reduce(expand_rows(fixedpoint.encode(matrix, self.params.fraction_bits), self.params))

    def check_key(self, key: bytes) -> None:
        """A modulus of the right size without an obvious weakness; the server has none."""
        if key:
            public_key(key, self.params.key_bits)

    def check_answer(self, wire: Endpoint, n: int, payload: Buffer) -> None:
        """Every ciphertext is a unit of the right group."""
        self.key_of(wire, n).ciphertexts_from_bytes(bytes(payload), len(payload) // (self.params.key_bits // 4))

    def answerer(self, wire: Endpoint, stage: Stage, n: int) -> _Encrypter:
        """Client v: encryption under client n's key, with randomness of this stage alone."""
        return _Encrypter(self, self.key_of(wire, n), KeyStream(expand(stage.seed, "blinds", b"%d" % n)))

    def masker(self, wire: Endpoint, stage: Stage, n: int) -> _Scrambler:
        """The server: r, psi and R for client n's queries."""
        return _Scrambler(self, self.key_of(wire, n), KeyStream(expand(stage.seed, "noise", b"%d" % n)))

    def reader(self, wire: Endpoint, stage: Stage, contributors: Sequence[int], secret: bytes) -> _Decrypter:
        """Client n: its private key."""
        return _Decrypter(self, private_key(secret))

    def key_of(self, wire: Endpoint, n: int) -> PublicKey:
        """The public key in client n's hello."""
        hello = wire.hello if n == wire.number else wire.peers[n]
        return public_key(hello.paillier, self.params.key_bits)


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


class _Encrypter:
    """Blinds are a function of the stage's seed and the chunk: made early or late, each is used for one ciphertext."""

    def __init__(self, form: Paillier, key: PublicKey, stream: KeyStream) -> None:
        self._form, self._key, self._stream = form, key, stream
        self._ready: dict[int, list[mpz]] = {}

    @property
    def stored_bytes(self) -> int:
        """Blinds, as large as a ciphertext each."""
        return self._key.ciphertext_bytes * sum(map(len, self._ready.values()))

    def _blinds(self, chunk: int, rows: int) -> list[mpz]:
        count = rows * self._form.packing.plaintexts(self._form.block_length)
        return self._key.short_blinds(count, self._stream.lane(chunk).bytes)

    def prepare(self, chunk: int, rows: int) -> None:
        """Encryption randomness."""
        self._ready[chunk] = self._blinds(chunk, rows)

    def begin(self, chunk: int, rows: int) -> Residues:
        """Nothing."""
        return self._form.ring.zeros(rows, self._form.block_length)

    def cover(self, chunk: int, answers: Residues) -> bytes:
        """Enc(A_v), packed (eq. 11 ff.)."""
        blinds = self._ready.pop(chunk, None) or self._blinds(chunk, answers.shape[1])
        return self._key.ciphertexts_to_bytes(self._key.encrypt(self._form.packing.pack(answers[0]), blinds))


@dataclass(frozen=True)
class _Noise:
    """What the server adds to one chunk of answers: r for each query, and Enc(psi(alpha_v) + p*R) for each client."""

    r: NDArray[np.uint64] = field(repr=False)
    encrypted: dict[int, list[mpz]] = field(repr=False)


class _Scrambler:
    """All its randomness is a function of the stage's seed and the chunk, as with `_Encrypter`."""

    def __init__(self, form: Paillier, key: PublicKey, stream: KeyStream) -> None:
        self._form, self._key, self._stream = form, key, stream
        self._ready: dict[int, _Noise] = {}

    @property
    def stored_bytes(self) -> int:
        """Ciphertexts."""
        sizes = (len(some) for noise in self._ready.values() for some in noise.encrypted.values())
        return self._key.ciphertext_bytes * sum(sizes)

    def _noise(self, chunk: int, rows: int, clients: Sequence[int]) -> _Noise:
        form, code, key, stream = self._form, self._form.code, self._key, self._stream.lane(chunk)
        r = stream.nonzero(RING61, rows)[0]
        free = code.need - code.K
        psi = stream.elements(RING61, free, rows, form.block_length)
        at = code.matrix(code.data_points + code.alpha[:free], code.at(clients))[:, :, code.K :]
        values = RING61.combine(np.ascontiguousarray(at), psi)[0]
        encrypted = {}
        for i, v in enumerate(clients):
            own = self._stream.lane((v + 1) << 32 | chunk)  # the same for v whoever else answers
            noise = form.packing.noise(values[i], own.bytes)
            encrypted[v] = key.encrypt(noise, key.full_blinds(len(noise), own.bytes))
        return _Noise(r, encrypted)

    def prepare(self, chunk: int, rows: int, clients: Sequence[int]) -> None:
        """Encrypted noise (section IV of the paper)."""
        self._ready[chunk] = self._noise(chunk, rows, clients)

    def mask(self, chunk: int, answers: Mapping[int, Buffer], rows: int) -> list[Buffer]:
        """Enc(r * A_v + psi(alpha_v) + p*R) for everyone who answered (eq. 12, 13)."""
        form, key, clients = self._form, self._key, sorted(answers)
        count = rows * form.packing.plaintexts(form.block_length)
        noise = self._ready.pop(chunk, None)
        if noise is None or not set(clients) <= noise.encrypted.keys():
            noise = self._noise(chunk, rows, clients)
        masked = []
        for v in clients if rows else ():
            ciphertexts = key.ciphertexts_from_bytes(bytes(answers[v]), count, checked=True)
            masked += key.add(key.scale(ciphertexts, noise.r), noise.encrypted[v])
        return [key.ciphertexts_to_bytes(masked)]


class _Decrypter:
    def __init__(self, form: Paillier, key: PrivateKey) -> None:
        self._form, self._key = form, key

    def read(
        self, chunk: int, answering: Sequence[int], body: memoryview, rows: int
    ) -> tuple[Floats64, tuple[int, ...]]:
        """Decrypt, interpolate at beta_1..beta_K, divide, reconstruct (eq. 14 to 16)."""
        form, code, params = self._form, self._form.code, self._form.params
        L, per_row = form.block_length, form.packing.plaintexts(form.block_length)
        means = np.zeros((rows, code.K * L))
        if not rows:
            return means, ()
        clients = sorted(answering)
        ciphertexts = self._key.public.ciphertexts_from_bytes(bytes(body), len(clients) * rows * per_row)
        values = form.packing.unpack(self._key.decrypt(ciphertexts), L).reshape(1, len(clients), rows, L)
        blocks, wrong = correction.decode(code, clients, [values[:, i] for i in range(len(clients))])
        masked = blocks.transpose(0, 2, 1, 3).reshape(1, rows, code.K * L)
        wanted = np.ascontiguousarray(masked[:, :, : params.dim + 1])
        means[:, : params.dim], found = fixedpoint.means_from_masked(RING61, wanted, params)
        dummy = ~masked[0].any(axis=1)
        means[(~found & ~dummy) | masked[0, :, params.dim + 1 :].any(axis=1)] = np.nan
        return means, wrong
