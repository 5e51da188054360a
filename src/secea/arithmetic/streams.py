"""Key streams, noise and fill of the keyed form, in compiled loops that use the processor's AES instructions.

Without such instructions, `secea.arithmetic.portable` computes the same with OpenSSL, to the bit. Errors show no keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import portable
from secea.arithmetic._kernels import ffi, lib
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.portable import Noise

__all__ = [
    "BEST",
    "Noise",
    "Twin",
    "add_noise",
    "add_scaled",
    "add_streams",
    "encode",
    "row_streams",
    "scale_rows",
    "scaled_rows",
    "stream",
    "use",
    "weighted_sums",
]

BEST: Final[int] = lib.aes_level()
"""The best level of this processor: 0 none (the portable version is used), 1 AES-NI, 2 VAES on 256 bits, 3 on 512."""


class Twin(Protocol):
    """What computes without AES instructions: `portable`, or what an audit puts into its place."""

    def add_streams(self, ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        """See the function of this name."""

    def stream(self, ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
        """See the function of this name."""

    def row_streams(self, ring: Ring, keys: NDArray[np.uint8], lane: int, length: int) -> Residues:
        """See the function of this name."""

    def add_noise(self, ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
        """See the function of this name."""

    @property
    def encode(self) -> Callable[..., NDArray[np.int64]]:
        """See the function of this name."""


_level = BEST
_twin: Twin = portable


@contextmanager
def use(level: int, twin: Twin = portable) -> Iterator[None]:
    """Use loops of a lower level than this processor has; at level 0 those of `twin`.

    For tests, the audit and measurements, in one thread.
    """
    global _level, _twin
    if not 0 <= level <= BEST:
        raise ValueError(f"the level must be from 0 to {BEST}, got {level}")
    before, (_level, _twin) = (_level, _twin), (level, twin)
    try:
        yield
    finally:
        _level, _twin = before


def _at(array: NDArray[Any], *, write: bool = False) -> Any:
    """A pointer to a contiguous array."""
    assert array.flags.aligned, "kernels work on aligned elements"
    kind = {"f": "double", "i": "int64_t"}.get(array.dtype.kind) or f"uint{8 * array.itemsize}_t"
    return ffi.from_buffer(f"{kind}[]", array, require_writable=write)


def _loop(ring: Ring, name: str, *first: int) -> Callable[..., Any]:
    """The compiled loop of this name for this ring. `first` are its first arguments, such as a level."""
    if ring.dtype == np.uint64:
        return partial(getattr(lib, name + "64"), *first, ring.modulus.bit_length())
    return partial(getattr(lib, name + "32"), *first, ring.table, ring.size)


def _apart(ring: Ring, x: Residues, *, write: bool = False) -> tuple[Any, ...]:
    """A pointer to a vector and its strides: from prime to prime (if there are several), and from row to row."""
    rows = (x.strides[1] // x.itemsize,) if x.ndim > 2 else ()
    begin = x[:1, :1] if rows else x[:1]
    return _at(begin, write=write), *(() if ring.dtype == np.uint64 else (x.strides[0] // x.itemsize,)), *rows


def _flat(x: Residues) -> Residues:
    """A view with one row per prime. Each prime's part must be contiguous."""
    return np.lib.stride_tricks.as_strided(x, (x.shape[0], math.prod(x.shape[1:])), (x.strides[0], x.itemsize))


def add_streams(ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
    """acc += the sum over k of signs[k] times the stream of keys[k], in one pass."""
    portable.check_vector(ring, acc)
    portable.check_keys(keys)
    portable.check_signs(keys, signs)
    portable.check_lane(lane)
    if not _level:
        return _twin.add_streams(ring, acc, keys, signs, lane)
    if not acc.size:
        return None
    minus = [key for key, sign in zip(keys, signs, strict=True) if sign < 0]
    plus = [key for key, sign in zip(keys, signs, strict=True) if sign > 0]
    flat = _flat(acc)
    _loop(ring, "add_streams", _level)(
        *_apart(ring, flat, write=True), flat.shape[1], b"".join(minus + plus), len(minus), len(keys), lane
    )
    return None


def stream(ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
    """Uniform elements from the stream of this key and lane. With `nonzero`, none is 0 modulo any prime."""
    portable.check_keys([key])
    portable.check_lane(lane)
    if not _level:
        return _twin.stream(ring, key, lane, *shape, nonzero=nonzero)
    out = ring.empty(*shape)
    _loop(ring, "row_streams", _level)(_at(out, write=True), key, 1, math.prod(shape), lane, nonzero)
    return out


def row_streams(ring: Ring, keys: NDArray[np.uint8], lane: int, length: int) -> Residues:
    """For each row, the beginning of the stream of its own key: [P, rows, length]."""
    portable.check_row_keys(keys)
    portable.check_lane(lane)
    if not _level:
        return _twin.row_streams(ring, keys, lane, length)
    out, packed = ring.empty(len(keys), length), np.ascontiguousarray(keys)
    _loop(ring, "row_streams", _level)(_at(out, write=True), _at(packed), len(keys), length, lane, 0)
    return out


def add_noise(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    """acc += noise, drawn from the seed: for each element the same integer modulo every prime."""
    portable.check_vector(ring, acc)
    portable.check_keys([seed])
    portable.check_lane(lane)
    if not _level:
        return _twin.add_noise(ring, acc, seed, lane, noise)
    if not acc.size:
        return None
    flat = _flat(acc)
    _loop(ring, "add_noise", _level)(
        *_apart(ring, flat, write=True), flat.shape[1], seed, lane, noise.s, ffi.new("uint32_t[]", noise.digits),
        len(noise.digits), noise.wide, noise.fits,
    )  # fmt: skip
    return None


def weighted_sums(ring: Ring, x: Residues, weights: Residues) -> Residues:
    """For each row, the sum of weights[j] * x[row, j]: [P, rows]. Rows need not be contiguous."""
    portable.check_rows(ring, x, weights, (x.shape[0], x.shape[-1]))
    if not x.size:
        return ring.zeros(x.shape[1])
    out, packed = ring.empty(x.shape[1]), np.ascontiguousarray(weights)
    _loop(ring, "weighted_sums")(_at(out, write=True), *_apart(ring, x), _at(packed), *x.shape[1:])
    return out


def scale_rows(ring: Ring, x: Residues, factors: Residues) -> None:
    """x[row] *= factors[row], in place. Rows need not be contiguous."""
    scaled_rows(ring, x, x, factors)


def scaled_rows(
    ring: Ring,
    out: Residues,
    x: Residues,
    factors: Residues,
    *,
    places: NDArray[np.int64] | None = None,
    added: Residues | None = None,
) -> None:
    """out[places[row]] = factors[row] * x[row] + added[row]. Rows of out and x need not be contiguous."""
    portable.check_rows(ring, x, factors, x.shape[:2])
    portable.check_rows(ring, out, factors, x.shape[:2])
    if not x.size:
        return
    to, more = (None if each is None else np.ascontiguousarray(each) for each in (places, added))
    packed = np.ascontiguousarray(factors)
    portable.check_places(out, x, to, more)
    _loop(ring, "scaled_rows")(
        *_apart(ring, out, write=True), ffi.NULL if to is None else _at(to), *_apart(ring, x), _at(packed),
        ffi.NULL if more is None else _at(more), *x.shape[1:],
    )  # fmt: skip


def add_scaled(ring: Ring, acc: Residues, x: NDArray[np.int64], factor: int) -> None:
    """acc += factor * x for signed integers x."""
    portable.check_vector(ring, acc)
    if acc.shape[1:] != x.shape or x.dtype != np.int64:
        raise ValueError(f"int64 of shape {acc.shape[1:]} are needed, got {x.dtype} of shape {x.shape}")
    if not x.size:
        return
    flat, packed = _flat(acc), np.ascontiguousarray(x)
    by = factor % ring.primes[0] if ring.dtype == np.uint64 else _at(ring.constant([factor]))
    _loop(ring, "add_scaled")(*_apart(ring, flat, write=True), _at(packed), by, flat.shape[1])


def encode(
    matrix: NDArray[np.float64], entities: NDArray[np.uint64], keys: Sequence[bytes],
    f: int, s: int, w: int, used: NDArray[np.int32], step: NDArray[np.float64], cap: float,
) -> NDArray[np.int64]:  # fmt: skip
    """x * 2^f, rounded, plus a fill that is a keyed function of entity, column and value (see `portable.encode`)."""
    portable.check_fill(matrix, entities, keys, f, s, w, used, step, cap)
    if not _level:
        return _twin.encode(matrix, entities, keys, f, s, w, used, step, cap)
    out, names = np.empty(matrix.shape, np.int64), np.ascontiguousarray(entities)
    bits, steps = np.ascontiguousarray(used), np.ascontiguousarray(step) + 0.0  # no minus zero
    if not lib.encode_filled(
        _level, _at(matrix), _at(names), *matrix.shape, b"".join(keys), len(keys), f, s, w,
        ffi.from_buffer("int32_t[]", bits), _at(steps), cap + 0.0, _at(out, write=True),
    ):  # fmt: skip
        raise ValueError(portable.TOO_LARGE)
    return out
