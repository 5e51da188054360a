"""Key streams, noise and fill with numpy and OpenSSL. Used if AES instructions are missing, and to check those loops.

Every function has a counterpart of the same name in `streams`, which gives the same bits. The definitions are here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring

KEY_BYTES: Final = 32
MOST_WORDS: Final = 1024
"""Words that the noise of one element may take."""
MOST_KEYS: Final = 16
"""Keys of a fill."""
MOST_BITS: Final = 1100
"""Significant bits of a number, at most."""
MOST_RETRIES: Final = 256
AT_ONCE: Final = 1 << 16
"""Elements that are made together."""

TOO_LARGE: Final = "a number is not below 2^61 after scaling: clip the table, or take a smaller f"

Words = NDArray[np.uint64]


# --------------------------------------------------------------------------------------------------- what is checked


def check_keys(keys: Sequence[bytes]) -> None:
    """Whether all are AES-256 keys; the error does not show them."""
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(f"a key has {KEY_BYTES} bytes, got {sorted({len(key) for key in keys})}")


def check_lane(lane: int) -> None:
    """Whether it fits into the counter block."""
    if not 0 <= lane < 2**32:
        raise ValueError(f"a lane is below 2^32, got {lane}")


def check_vector(ring: Ring, acc: Residues) -> None:
    """Whether it is a vector of the ring that can be written to, each prime's part contiguous."""
    if acc.ndim < 1 or acc.shape[0] != ring.size or acc.dtype != ring.dtype:
        raise ValueError(f"a vector of {ring.size} primes is {ring.dtype}, got {acc.dtype} of shape {acc.shape}")
    if not acc[:1].flags.c_contiguous or not acc.flags.writeable or (ring.size > 1 and acc.strides[0] < 0):
        raise ValueError("what is added to must be writable, and contiguous for each prime")


def check_signs(keys: Sequence[bytes], signs: Sequence[int]) -> None:
    """Whether there is a sign for each key."""
    if len(keys) != len(signs) or any(sign not in (1, -1) for sign in signs):
        raise ValueError(f"{len(keys)} keys need as many signs, each 1 or -1, got {list(signs)}")


def check_rows(ring: Ring, x: Residues, other: Residues, expected: tuple[int, ...]) -> None:
    """Whether x is [P, rows, d] with contiguous rows, and what it is multiplied by has the shape that fits."""
    if x.ndim != 3 or x.shape[0] != ring.size or x.dtype != ring.dtype:
        raise ValueError(f"rows are [{ring.size}, rows, d] of {ring.dtype}, got {x.dtype} of shape {x.shape}")
    if other.shape != expected or other.dtype != ring.dtype:
        raise ValueError(f"{expected} of {ring.dtype} are needed, got {other.shape} of {other.dtype}")
    if x.size and (not x[:1, :1].flags.c_contiguous or min(x.strides[:2]) < 0):
        raise ValueError("each row must be contiguous")


def check_places(out: Residues, x: Residues, places: NDArray[np.int64] | None, added: Residues | None) -> None:
    """Whether every row has a place in `out`, and what is added fits."""
    _, rows, length = out.shape
    if length != x.shape[2] or (places is None and rows != x.shape[1]):
        raise ValueError(f"rows of shape {x.shape[1:]} do not fit into {out.shape[1:]}")
    if places is not None and (
        places.shape != x.shape[1:2] or places.dtype != np.int64 or places.min() < 0 or places.max() >= rows
    ):
        raise ValueError(f"{x.shape[1]} places below {rows} are needed")
    if added is not None and (added.shape != x.shape or added.dtype != x.dtype):
        raise ValueError(f"{x.shape} of {x.dtype} are needed, got {added.shape} of {added.dtype}")


def check_row_keys(keys: NDArray[np.uint8]) -> None:
    """Whether it is an array of one key a row."""
    if keys.ndim != 2 or keys.shape[1] != KEY_BYTES or keys.dtype != np.uint8:
        raise ValueError(f"keys are uint8 [rows, {KEY_BYTES}], got {keys.dtype} of shape {keys.shape}")


@dataclass(frozen=True)
class Noise:
    """The sum of s uniform numbers below C, the product of `digits`, and of C times a uniform number below `wide`."""

    s: int
    digits: tuple[int, ...]
    wide: int

    def __post_init__(self) -> None:
        if self.s < 1 or not all(0 < digit < 2**16 for digit in self.digits) or not 0 < self.wide < 2**62:
            raise ValueError(f"there is a number or more, digits are 1..2^16-1 and wide is 1..2^62-1, got {self}")
        if self.words > MOST_WORDS:
            raise ValueError(f"the noise of an element takes at most {MOST_WORDS} words, got {self.words}")

    @property
    def words(self) -> int:
        """Words of 4 bytes that one element takes."""
        return self.s * len(self.digits) + 2

    @property
    def blocks(self) -> int:
        """Blocks that one element takes."""
        return -(-self.words // 4)

    @cached_property
    def scale(self) -> int:
        """C."""
        return math.prod(self.digits)

    @property
    def largest(self) -> int:
        """No noise is above this."""
        return self.s * (self.scale - 1) + self.scale * (self.wide - 1)

    @property
    def fits(self) -> bool:
        """Whether the compiled loop has room for it in 64 bits."""
        return self.largest < 2**63


def fill_keys(s: int) -> int:
    """The keys of a fill of s narrow numbers: one for four of them, and one for the grid's."""
    return -(-s // 4) + 1


def check_fill(
    matrix: NDArray[np.float64], entities: NDArray[np.uint64], keys: Sequence[bytes],
    f: int, s: int, w: int, used: NDArray[np.int32], step: NDArray[np.float64], cap: float,
) -> None:  # fmt: skip
    """Whether these are arguments of `encode`."""
    if matrix.ndim != 2 or matrix.dtype != np.float64 or not matrix.flags.c_contiguous:
        raise ValueError(f"a matrix is contiguous float64 [rows, dim], got {matrix.dtype} of shape {matrix.shape}")
    if entities.shape != matrix.shape[:1] or entities.dtype != np.uint64:
        raise ValueError(f"{matrix.shape[0]} entities of uint64 are needed, got {entities.shape} of {entities.dtype}")
    check_keys(keys)
    if s < 0 or len(keys) != fill_keys(s) or len(keys) > MOST_KEYS:
        raise ValueError(f"a fill of {s} numbers needs {fill_keys(s)} keys, at most {MOST_KEYS}, got {len(keys)}")
    if not 0 < w < 2**32 or not 0 <= f <= 1000:
        raise ValueError(f"w is 1..2^32-1 and f is 0..1000, got {w} and {f}")
    if used.shape != matrix.shape[:1] or used.dtype != np.int32 or not np.all((used >= 0) & (used <= MOST_BITS)):
        raise ValueError(f"{matrix.shape[0]} numbers of bits, int32 from 0 to {MOST_BITS}, are needed")
    if step.shape != matrix.shape[:1] or step.dtype != np.float64 or not np.all((step >= 0) & (step < np.inf)):
        raise ValueError(f"{matrix.shape[0]} steps, float64 and not negative, are needed")
    if not 0 <= cap < math.ldexp(1.0, 59 - f):
        raise ValueError(f"the coarsest grid is below 2^{59 - f}, got {cap}")


# ----------------------------------------------------------------------------------------------------------- streams


def blocks_of(key: bytes, lane: int, prime: int, first: int, count: int) -> bytes:
    """Blocks of a key stream: the counter block is lane, the prime's index, retry 0, two zeros, number of the block."""
    start = lane.to_bytes(4, "big") + bytes((prime, 0, 0, 0)) + first.to_bytes(8, "big")
    return Cipher(algorithms.AES256(key), modes.CTR(start)).encryptor().update(bytes(16 * count))


def _again(key: bytes, lane: int, prime: int, retry: int, numbers: NDArray[np.int64]) -> bytes:
    """The blocks of those numbers for a further retry."""
    counters = np.zeros((numbers.size, 16), np.uint8)
    counters[:, :8] = np.frombuffer(lane.to_bytes(4, "big") + bytes((prime, retry, 0, 0)), np.uint8)
    counters[:, 8:] = numbers.astype(">u8")[:, None].view(np.uint8)
    return _encrypted(key, counters.tobytes())


def _encrypted(key: bytes, blocks: bytes) -> bytes:
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305 - a keyed function of each block
    return cipher.update(blocks)


def _elements(ring: Ring, key: bytes, lane: int, b: int, first: int, count: int, least: int) -> Residues:
    """Elements of one prime from `first` on, which begins a block: top bits of words; rejected ones are replaced."""
    p, width = ring.primes[b], ring.dtype.itemsize
    spare, each = ring.dtype.type(8 * width - p.bit_length()), 16 // width
    data = blocks_of(key, lane, b, first // each, -(-count // each))
    out: Residues = np.frombuffer(data, f"<u{width}")[:count].astype(ring.dtype) >> spare
    rejected = np.flatnonzero((out >= p) | (out < least))
    retry = 0
    while rejected.size:
        retry += 1
        assert retry < MOST_RETRIES
        at = first + rejected
        words = np.frombuffer(_again(key, lane, b, retry, at // each), f"<u{width}").reshape(-1, each)
        drawn = words[np.arange(at.size), at % each].astype(ring.dtype) >> spare
        out[rejected] = drawn
        rejected = rejected[(drawn >= p) | (drawn < least)]
    return out


def add_streams(ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
    """acc += the sum over k of signs[k] times the stream of keys[k]."""
    check_vector(ring, acc)
    check_keys(keys)
    check_signs(keys, signs)
    check_lane(lane)
    for b, p in enumerate(ring.primes):
        part, one = acc[b : b + 1].reshape(1, -1), Ring((p,))
        for first in range(0, part.size, AT_ONCE):
            some = part[:, first : first + AT_ONCE]
            for key, sign in zip(keys, signs, strict=True):
                x = _elements(ring, key, lane, b, first, some.size, 0)[None]
                (one.add_into if sign > 0 else one.subtract_into)(some, x)


def stream(ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
    """Uniform elements of the stream of this key and lane; with `nonzero` none is 0 modulo any prime."""
    check_keys([key])
    check_lane(lane)
    count = math.prod(shape)
    return np.stack([_elements(ring, key, lane, b, 0, count, int(nonzero)).reshape(shape) for b in range(ring.size)])


def row_streams(ring: Ring, keys: NDArray[np.uint8], lane: int, length: int) -> Residues:
    """For each row the beginning of the stream of its own key: [P, rows, length]."""
    check_row_keys(keys)
    check_lane(lane)
    out = ring.empty(len(keys), length)
    for row, key in enumerate(keys):
        out[:, row] = stream(ring, key.tobytes(), lane, length)
    return out


# ------------------------------------------------------------------------------------------------------------- noise


def _high(z: Words, factor: Words) -> Words:
    """(z * factor) >> 64, for factors below 2^62."""
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    f_high, f_low = factor >> half, factor & low
    z_high, z_low = z >> half, z & low
    middle = z_high * f_low + (z_low * f_low >> half)
    other = z_low * f_high + (middle & low)
    high: Words = z_high * f_high + (middle >> half) + (other >> half)
    return high


def add_noise(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    """acc += the noise of each element, drawn from the seed: the same integer modulo every prime."""
    check_vector(ring, acc)
    check_keys([seed])
    check_lane(lane)
    count, parts = math.prod(acc.shape[1:]), len(noise.digits)
    flat = [acc[b : b + 1].reshape(1, -1) for b in range(ring.size)]
    for first in range(0, count, AT_ONCE):
        some = min(AT_ONCE, count - first)
        data = blocks_of(seed, lane, 0, first * noise.blocks, some * noise.blocks)
        words = np.frombuffer(data, "<u4").reshape(some, 4 * noise.blocks).astype(np.uint64)
        z = words[:, noise.words - 2] | words[:, noise.words - 1] << np.uint64(32)
        total = ring.reduce(_high(z, np.full_like(z, noise.wide)).astype(np.int64))
        for part in reversed(range(parts)):
            digits = words[:, part : noise.s * parts : parts] * np.uint64(noise.digits[part]) >> np.uint64(32)
            scale = np.ascontiguousarray(np.broadcast_to(ring.constant([noise.digits[part]]), total.shape))
            total = ring.add(ring.multiply(total, scale), ring.reduce(digits.sum(1).astype(np.int64)))
        for p, part_of, x in zip(ring.primes, flat, total, strict=True):
            Ring((p,)).add_into(part_of[:, first : first + some], x[None])


# -------------------------------------------------------------------------------------------------------------- fill


def _fields(key: bytes, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Four fields of 32 bits for each block."""
    encrypted = np.frombuffer(_encrypted(key, blocks.tobytes()), "<u4")
    return encrypted.reshape(*blocks.shape[:-1], 4).astype(np.uint64)


def grids_of(
    matrix: NDArray[np.float64], used: NDArray[np.int32], step: NDArray[np.float64], cap: float
) -> NDArray[np.float64]:
    """The grid of each number: from its row's significant bits, or the row's step if that is wider; 0 for none."""
    own = np.ldexp(1.0, np.frexp(matrix)[1] - 1 - used[:, None])
    grids: NDArray[np.float64] = np.minimum(np.maximum(np.where(matrix == 0, 0.0, own), step[:, None]), cap)
    return grids


def encode(
    matrix: NDArray[np.float64], entities: NDArray[np.uint64], keys: Sequence[bytes],
    f: int, s: int, w: int, used: NDArray[np.int32], step: NDArray[np.float64], cap: float,
) -> NDArray[np.int64]:  # fmt: skip
    """x * 2^f, rounded, and a fill that is a keyed function of entity, column and value.

    It is the sum of s numbers below w, centred, and of one as wide as the grid of x where that is above w. The latter
    is another draw for another grid: scaled, the fills of two grids would cancel.
    """
    check_fill(matrix, entities, keys, f, s, w, used, step, cap)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(matrix, f)
    if not np.all(np.abs(scaled) < 2.0**61):
        raise ValueError(TOO_LARGE)
    blocks = np.empty((*matrix.shape, 2), "<u8")
    blocks[:, :, 0] = entities[:, None] + np.arange(matrix.shape[1], dtype=np.uint64)
    blocks[:, :, 1] = (matrix + 0.0).view(np.uint64)  # no minus zero
    outputs = [_fields(key, blocks) for key in keys[:-1]]
    fields = np.concatenate([np.zeros((*matrix.shape, 0), np.uint64), *outputs], 2)[:, :, :s]
    narrow = (fields * np.uint64(w) >> np.uint64(32)).sum(2).astype(np.int64)
    grids = grids_of(matrix, used, step, cap)
    blocks[:, :, 0] += grids.view(np.uint64)
    drawn_from = _fields(keys[-1], blocks)
    z = drawn_from[:, :, 0] | drawn_from[:, :, 1] << np.uint64(32)
    units = np.ldexp(grids, f).astype(np.uint64)
    units[units <= w] = 0
    wide = _high(z, units).astype(np.int64) - (units // np.uint64(2)).astype(np.int64)
    fill: NDArray[np.int64] = narrow - (s * (w - 1)) // 2 + wide
    return np.rint(scaled).astype(np.int64) + fill
