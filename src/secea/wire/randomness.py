"""Where randomness comes from, and how a short secret becomes many field elements.

Seeds come from the operating system (`Entropy`, `os.urandom` unless a test passes its own). Everything longer is a key
stream: AES-256 in counter mode under a key that is used for one purpose. Functions of the protocol take a `Source`, so
that tests can enumerate all the randomness of a tiny field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Protocol, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from secea.arithmetic.field import Residues, Ring

Entropy: TypeAlias = Callable[[int], bytes]
"""`entropy(n)` returns n fresh, secret, uniform bytes."""

SEED_BYTES = 32
_ZEROS = memoryview(bytes(1 << 18))


class Source(Protocol):
    """A source of uniform field elements."""

    def elements(self, ring: Ring, *shape: int) -> Residues:
        """Uniform elements, independent for each prime."""
        ...


class KeyStream:
    """A stream of bytes or uniform field elements from a 32-byte key. Both ends get the same stream."""

    def __init__(self, key: bytes, lane: int = 0) -> None:
        if len(key) != SEED_BYTES:
            raise ValueError(f"a key has {SEED_BYTES} bytes, got {len(key)}")
        self._key, self._lane = key, lane

    @cached_property
    def _cipher(self) -> CipherContext:
        # The lane is the upper half of the counter block: a lane has 2^64 blocks of its own.
        return Cipher(algorithms.AES256(self._key), modes.CTR(self._lane.to_bytes(8, "big") + bytes(8))).encryptor()

    def __repr__(self) -> str:
        return "KeyStream(...)"

    def lane(self, number: int) -> KeyStream:
        """Another stretch of the same key's stream, from its beginning: one for each chunk of a message."""
        return KeyStream(self._key, number)

    def fill(self, out: memoryview) -> None:
        """The next bytes of the stream, written to `out`."""
        for start in range(0, len(out), len(_ZEROS)):
            self._cipher.update_into(_ZEROS[: len(out) - start], out[start:])

    def bytes(self, count: int) -> bytes:
        """The next bytes of the stream."""
        out = bytearray(count)
        self.fill(memoryview(out))
        return bytes(out)

    def elements(self, ring: Ring, *shape: int) -> Residues:
        """Uniform elements by rejection: words of the stream in order, the primes one after the other."""
        out = ring.empty(*shape)
        words = out.reshape(ring.size, prod(shape))
        self._words(words)
        ring.accept(words, self._words)
        return out

    def _words(self, out: Residues) -> None:
        self.fill(out.reshape(-1).view(np.uint8).data)

    def nonzero(self, ring: Ring, *shape: int) -> Residues:
        """Uniform elements that are not 0 modulo any prime."""
        out = self.elements(ring, *shape)
        while (zero := np.nonzero(out == 0))[0].size:
            fresh = self.elements(ring, zero[0].size)
            out[zero] = fresh[zero[0], np.arange(zero[0].size)]
        return out
