"""A numpy version of the compiled kernels, for machines on which they could not be compiled. Same results, but slow.

`secea.arithmetic._kernels` uses this module as `lib` if the compiled one is missing. Results are equal to the bit.
Names and arguments are those of kernels.h, group.h and streams.h, which document the functions. Functions that take an
AES level are not here: their portable versions are in `secea.arithmetic.portable`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic._kernels.build import ffi

Pointer = Any
"""A pointer of cffi."""
Vectors = NDArray[Any]
Words = NDArray[np.uint64]

SMALL: Final = {61: 1, 56: 5}
"""c of the primes 2^bits - c."""
SEVEN: Final = 7
TILE: Final = 512
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)
_IMPLICIT: Final = np.uint64(1 << 52)
_INT_MAX: Final = 2**31 - 1
_POINT: Final = 32
_UNIFORM: Final = 64


def _array(at: Pointer, dtype: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Vectors:
    """The memory at a pointer as an array of this shape, without a copy. `steps` are its strides, in elements."""
    if not all(shape):
        return np.empty(shape, dtype)
    width = np.dtype(dtype).itemsize
    reach = 1 + sum((count - 1) * step for count, step in zip(shape, steps, strict=True))
    return np.ndarray(shape, dtype, memoryview(ffi.buffer(at, reach * width)), strides=[step * width for step in steps])


def _words(at: Pointer, *shape: int, dtype: Any = np.uint32) -> Vectors:
    """The memory at a pointer as a contiguous array of this shape."""
    steps = [1]
    for count in reversed(shape[1:]):
        steps.append(steps[-1] * count)
    return _array(at, dtype, shape, tuple(reversed(steps)))


def _primes(primes: Pointer, count: int) -> list[int]:
    return [primes[b] for b in range(count)]


# ------------------------------------------------------------------------------------------------ primes below 2^32


def _sum(products: Words, p: int, axis: int = 0) -> Words:
    """The sum of 64-bit words, modulo p."""
    high, low = (products >> _HALF).sum(axis, np.uint64), (products & _LOW).sum(axis, np.uint64)
    total: Words = (high % p * (2**32 % p) + low % p) % p
    return total


def add32(primes: Pointer, count: int, acc: Pointer, acc_step: int, x: Pointer, x_step: int, n: int) -> None:
    for p, a, b in _pairs32(primes, count, acc, acc_step, x, x_step, n):
        room = p - b
        a[...] = np.where(a >= room, a - room, a + b)


def sub32(primes: Pointer, count: int, acc: Pointer, acc_step: int, x: Pointer, x_step: int, n: int) -> None:
    for p, a, b in _pairs32(primes, count, acc, acc_step, x, x_step, n):
        a[...] = np.where(a >= b, a - b, a + (p - b))


def _pairs32(primes: Pointer, count: int, acc: Pointer, acc_step: int, x: Pointer, x_step: int, n: int) -> Any:
    a, b = _array(acc, np.uint32, (count, n), (acc_step, 1)), _array(x, np.uint32, (count, n), (x_step, 1))
    return zip(_primes(primes, count), a, b, strict=True)


def mul32(primes: Pointer, count: int, out: Pointer, a: Pointer, b: Pointer, n: int) -> None:
    for p, to, one, two in zip(_primes(primes, count), *(_words(each, count, n) for each in (out, a, b)), strict=True):
        to[...] = one.astype(np.uint64) * two % p


def inverse32(primes: Pointer, count: int, out: Pointer, x: Pointer, n: int) -> None:
    for p, to, values in zip(_primes(primes, count), _words(out, count, n), _words(x, count, n), strict=True):
        power, result = values.astype(np.uint64), np.ones(n, np.uint64)
        for bit in range((p - 2).bit_length()):
            if (p - 2) >> bit & 1:
                result = result * power % p
            power = power * power % p
        to[...] = np.where(values, result, 0)


def combine32(
    primes: Pointer, count: int, words: int, out: Pointer, out_step: int, row_step: int, a: Pointer, x: Pointer,
    steps: Pointer, rows: int, columns: int, n: int,
) -> None:  # fmt: skip
    to = _array(out, np.uint32, (count, rows, n), (out_step, row_step, 1))
    factors = _words(a, count, rows, columns).astype(np.uint64)
    sources = [_array(x[c], np.uint32, (count, n), (steps[c], 1)) for c in range(columns)]
    for b, p in enumerate(_primes(primes, count)):
        column = np.stack([source[b] for source in sources]) if columns else np.empty((0, n), np.uint32)
        for r in range(rows):
            to[b, r] = _sum(factors[b, r, :, None] * column, p)


def _positions(starts: Pointer, members: Pointer, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Where rows start, to which row of y each position refers, and how many rows y has at least."""
    at = _words(starts, rows + 1, dtype=np.int64)
    total = int(at[-1])
    own = np.arange(total) - np.repeat(at[:-1], np.diff(at)) if members == ffi.NULL else None
    of = _words(members, total, dtype=np.int64) if own is None else own
    return at, of, int(of.max()) + 1 if total else 0


def join32(
    primes: Pointer, count: int, inverses: Pointer, less: Pointer, x: Pointer, x_step: int, out: Pointer, n: int,
    scale: float,
) -> None:  # fmt: skip
    listed, digits = _primes(primes, count), list[Words]()
    above = np.zeros(n, np.bool_)
    for b, (p, source) in enumerate(zip(listed, _array(x, np.uint32, (count, n), (x_step, 1)), strict=True)):
        digit = (source.astype(np.uint64) + (p - less[b])) % p
        for a, other in enumerate(digits):
            digit = (digit + (p - other % p)) % p * inverses[a * count + b] % p
        digits.append(digit)
        above = np.where(digit == (p - 1) // 2, above, digit > (p - 1) // 2)
    value = np.zeros(n)
    for p, digit in zip(reversed(listed), reversed(digits), strict=True):
        value = value * float(p) + np.where(above, p - 1 - digit, digit).astype(np.float64)
    _words(out, n, dtype=np.float64)[...] = (value + above) * np.where(above, -scale, scale)


def valid32(primes: Pointer, count: int, x: Pointer, n: int) -> int:
    return int(all((row < p).all() for p, row in zip(_primes(primes, count), _words(x, count, n), strict=True)))


def usable32(primes: Pointer, count: int, words: Pointer, n: int) -> int:
    for b, (p, row) in enumerate(zip(_primes(primes, count), _words(words, count, n), strict=True)):
        cut = row >> np.uint32(32 - p.bit_length())
        bad = np.flatnonzero(cut >= p)
        usable = int(bad[0]) // TILE * TILE if bad.size else n
        row[:usable] = cut[:usable]
        if bad.size:
            return b * n + usable
    return count * n


def accept32(p: int, words: Pointer, n: int) -> int:
    return _accept(_words(words, n), 32 - p.bit_length(), p)


def _accept(words: Vectors, spare: int, p: int) -> int:
    cut = words >> words.dtype.type(spare)
    kept = cut[cut < p]
    words[: kept.size] = kept
    return int(kept.size)


def reduce32(primes: Pointer, count: int, out: Pointer, x: Pointer, n: int) -> None:
    values = _words(x, n, dtype=np.int64)
    for p, to in zip(_primes(primes, count), _words(out, count, n), strict=True):
        to[...] = values % p


def weighted_sums32(
    primes: Pointer, count: int, out: Pointer, x: Pointer, x_step: int, row_step: int, weights: Pointer, rows: int,
    length: int,
) -> None:  # fmt: skip
    to, factors = _words(out, count, rows), _words(weights, count, length).astype(np.uint64)
    source = _array(x, np.uint32, (count, rows, length), (x_step, row_step, 1))
    for b, p in enumerate(_primes(primes, count)):
        to[b] = _sum(source[b] * factors[b], p, axis=1)


def _placed(places: Pointer, rows: int) -> NDArray[np.int64]:
    return np.arange(rows) if places == ffi.NULL else _words(places, rows, dtype=np.int64)


def scaled_rows32(
    primes: Pointer, count: int, out: Pointer, out_step: int, out_row_step: int, places: Pointer, x: Pointer,
    x_step: int, x_row_step: int, factors: Pointer, added: Pointer, rows: int, length: int,
) -> None:  # fmt: skip
    to = _placed(places, rows)
    reach = int(to.max()) + 1 if rows else 0
    target = _array(out, np.uint32, (count, reach, length), (out_step, out_row_step, 1))
    source = _array(x, np.uint32, (count, rows, length), (x_step, x_row_step, 1))
    by = _words(factors, count, rows).astype(np.uint64)
    more = 0 if added == ffi.NULL else _words(added, count, rows, length).astype(np.uint64)
    for b, p in enumerate(_primes(primes, count)):
        target[b][to] = (by[b, :, None] * source[b] + (more if isinstance(more, int) else more[b])) % p


def add_scaled32(
    primes: Pointer, count: int, acc: Pointer, acc_step: int, x: Pointer, factors: Pointer, n: int
) -> None:
    total, values = _array(acc, np.uint32, (count, n), (acc_step, 1)), _words(x, n, dtype=np.int64)
    for b, p in enumerate(_primes(primes, count)):
        total[b] = ((values % p).astype(np.uint64) * np.uint64(factors[b]) + total[b]) % p


# ----------------------------------------------------------------------------------- p = 2^61 - 1, and p = 2^56 - 5


def _prime(bits: int) -> int:
    return (1 << bits) - SMALL[bits]


def _folded(bits: int, x: Words) -> Words:
    """64-bit words, reduced modulo p = 2^bits - c."""
    p = _prime(bits)
    once = (x & np.uint64((1 << bits) - 1)) + (x >> np.uint64(bits)) * np.uint64(SMALL[bits])
    return np.where(once >= p, once - np.uint64(p), once)


def _product(bits: int, a: Vectors, b: Vectors) -> Words:
    """a * b modulo p = 2^bits - c, by halves of h bits: 2^bits = c, and 2^(2h) = c * 2^(2h - bits)."""
    h = (bits + 1) // 2
    half, rest, c = np.uint64(h), np.uint64(bits - h), np.uint64(SMALL[bits])
    low_half, low_rest = np.uint64((1 << h) - 1), np.uint64((1 << (bits - h)) - 1)
    a1, a0, b1, b0 = a >> half, a & low_half, b >> half, b & low_half
    middle = a1 * b0 + a0 * b1
    above = (a1 * b1 << np.uint64(2 * h - bits)) + (middle >> rest)
    return _folded(bits, above * c + ((middle & low_rest) << half) + _folded(bits, a0 * b0))


def _sum64(bits: int, elements: Words, axis: int = 0) -> Words:
    """The sum of elements, modulo p."""
    high, low = (elements >> _HALF).sum(axis, np.uint64), (elements & _LOW).sum(axis, np.uint64)
    return _folded(bits, _product(bits, _folded(bits, high), np.full_like(high, 2**32)) + _folded(bits, low))


def _words64(at: Pointer, *shape: int) -> Vectors:
    return _words(at, *shape, dtype=np.uint64)


def add64(bits: int, acc: Pointer, x: Pointer, n: int) -> None:
    a = _words64(acc, n)
    a[...] = _folded(bits, a + _words64(x, n))


def sub64(bits: int, acc: Pointer, x: Pointer, n: int) -> None:
    a, b = _words64(acc, n), _words64(x, n)
    a[...] = np.where(a >= b, a - b, a + (np.uint64(_prime(bits)) - b))


def mul64(bits: int, out: Pointer, a: Pointer, b: Pointer, n: int) -> None:
    _words64(out, n)[...] = _product(bits, _words64(a, n), _words64(b, n))


def inverse64(bits: int, out: Pointer, x: Pointer, n: int) -> None:
    power, result = _words64(x, n).copy(), np.ones(n, np.uint64)
    for bit in range(bits):
        if (_prime(bits) - 2) >> bit & 1:
            result = _product(bits, result, power)
        power = _product(bits, power, power)
    _words64(out, n)[...] = result


def combine64(bits: int, out: Pointer, a: Pointer, x: Pointer, rows: int, columns: int, n: int) -> None:
    to, factors = _words64(out, rows, n), _words64(a, rows, columns)
    sources = np.stack([_words64(x[c], n) for c in range(columns)]) if columns else np.empty((0, n), np.uint64)
    for r in range(rows):
        to[r] = _sum64(bits, _product(bits, factors[r, :, None], sources))


def gather61(out: Pointer, starts: Pointer, members: Pointer, w: Pointer, y: Pointer, rows: int, length: int) -> None:
    at, of, height = _positions(starts, members, rows)
    to, weights, source = _words64(out, rows, length), _words64(w, int(at[-1])), _words64(y, height, length)
    for j in range(rows):
        span = slice(at[j], at[j + 1])
        to[j] = _folded(61, to[j] + _sum64(61, _product(61, weights[span, None], source[of[span]])))


def join64(bits: int, less: int, x: Pointer, out: Pointer, n: int, scale: float) -> None:
    p = _prime(bits)
    rest = _folded(bits, _words64(x, n) + np.uint64(p - less)).astype(np.int64)
    centred = np.where(rest > p // 2, rest - p, rest)
    _words(out, n, dtype=np.float64)[...] = centred.astype(np.float64) * scale


def valid64(bits: int, x: Pointer, n: int) -> int:
    return int((_words64(x, n) < _prime(bits)).all())


def accept64(bits: int, words: Pointer, n: int) -> int:
    return _accept(_words64(words, n), 64 - bits, _prime(bits))


def reduce64(bits: int, out: Pointer, x: Pointer, n: int) -> None:
    _words64(out, n)[...] = _words(x, n, dtype=np.int64) % _prime(bits)


def pack56(out: Pointer, x: Pointer, n: int) -> None:
    wide = _words64(x, n).astype("<u8").view(np.uint8).reshape(n, 8)
    _words(out, n, SEVEN, dtype=np.uint8)[...] = wide[:, :SEVEN]


def unpack56(out: Pointer, data: Pointer, n: int) -> int:
    wide = np.zeros((n, 8), np.uint8)
    wide[:, :SEVEN] = _words(data, n, SEVEN, dtype=np.uint8)
    elements = wide.view("<u8").reshape(n)
    _words64(out, n)[...] = elements
    return int((elements < _prime(56)).all())


def weighted_sums64(
    bits: int, out: Pointer, x: Pointer, row_step: int, weights: Pointer, rows: int, length: int
) -> None:
    source = _array(x, np.uint64, (rows, length), (row_step, 1))
    _words64(out, rows)[...] = _sum64(bits, _product(bits, source, _words64(weights, length)), axis=1)


def scaled_rows64(
    bits: int, out: Pointer, out_row_step: int, places: Pointer, x: Pointer, x_row_step: int, factors: Pointer,
    added: Pointer, rows: int, length: int,
) -> None:  # fmt: skip
    to = _placed(places, rows)
    reach = int(to.max()) + 1 if rows else 0
    target = _array(out, np.uint64, (reach, length), (out_row_step, 1))
    source = _array(x, np.uint64, (rows, length), (x_row_step, 1))
    scaled = _product(bits, source, _words64(factors, rows)[:, None])
    target[to] = scaled if added == ffi.NULL else _folded(bits, scaled + _words64(added, rows, length))


def add_scaled64(bits: int, acc: Pointer, x: Pointer, factor: int, n: int) -> None:
    total, values = _words64(acc, n), _words(x, n, dtype=np.int64)
    product = _product(bits, (values % _prime(bits)).astype(np.uint64), np.array(factor, np.uint64))
    total[...] = _folded(bits, product + total)


# ----------------------------------------------------------------------------------------------- floats and their grid


def _bits(x: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The exponents of the leading bit and of the lowest set bit, for numbers that are not denormal."""
    bits = x.view(np.uint64)
    top = (bits >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64) - 1023
    digits = bits | _IMPLICIT
    lowest = (digits & (~digits + np.uint64(1))).astype(np.float64)
    return top, top - 52 + np.frexp(lowest)[1] - 1


def significance(x: Pointer, n: int, used: Pointer, step: Pointer) -> None:
    top, low = _bits(_words(x, n, dtype=np.float64))
    normal = top != -1023
    used[0] = int((top - low)[normal].max(initial=0))
    step[0] = int(low[normal].min(initial=_INT_MAX))


def significance_rows(x: Pointer, rows: int, dim: int, most: int, used: Pointer, step: Pointer, sizes: Pointer) -> None:
    for row, numbers in enumerate(_words(x, rows, dim, dtype=np.float64)):
        significance(x + row * dim, dim, used + row, step + row)
        normal = np.abs(numbers[_bits(numbers)[0] != -1023])
        sizes[row] = min(most, np.unique(normal).size)


# ------------------------------------------------------------------------------------------------------ ristretto255


def group_multiply(g: Pointer, out: Pointer, points: Pointer, scalars: Pointer, n: int) -> int:
    for i in range(0, n * _POINT, _POINT):
        if g.multiply(out + i, scalars + i, points + i):
            return i // _POINT
    return n


def group_multiply_base(g: Pointer, out: Pointer, scalars: Pointer, n: int) -> int:
    for i in range(0, n * _POINT, _POINT):
        if g.multiply_base(out + i, scalars + i):
            return i // _POINT
    return n


def group_add(g: Pointer, out: Pointer, a: Pointer, b: Pointer, n: int) -> int:
    for i in range(0, n * _POINT, _POINT):
        if g.add(out + i, a + i, b + i):
            return i // _POINT
    return n


def group_total(g: Pointer, out: Pointer, points: Pointer, n: int) -> int:
    total, following = (ffi.new("uint8_t[]", _POINT) for _ in range(2))  # the identity
    for i in range(n):
        if g.add(following, total, points + i * _POINT):
            return i
        total, following = following, total
    ffi.memmove(out, total, _POINT)
    return n


def group_from_uniform(g: Pointer, out: Pointer, uniform: Pointer, n: int) -> int:
    for i in range(n):
        if g.from_uniform(out + i * _POINT, uniform + i * _UNIFORM):
            return i
    return n


def group_valid(g: Pointer, out: Pointer, points: Pointer, n: int) -> int:
    for i in range(n):
        point = points + i * _POINT
        out[i] = g.is_valid(point) == 1 and any(ffi.buffer(point, _POINT)[:])
    return n


# ------------------------------------------------------------------------------------------------------- the machine


def aes_level() -> int:
    return 0


def keep_freed_memory() -> None:
    pass


def give_back_freed_memory() -> None:
    """Nothing: numpy's memory is not managed from here."""
