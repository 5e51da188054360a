"""Vectors over F_p, and over several primes side by side.

A `Ring` is a tuple of primes. Its vectors are arrays whose first axis runs over the primes: one row for 2^61 - 1, P
rows for a residue number system of P primes just under 2^32 or 2^30. All arithmetic is exact and runs in compiled
loops that release the interpreter's lock.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic._kernels.native import ffi, lib

Residues: TypeAlias = NDArray[Any]
"""uint32 or uint64; the first axis runs over the primes."""

M61: Final = 2**61 - 1

# The primes 2^32 - c, and 2^30 - c, with the smallest c: products reduce by folding high bits into low ones. Products
# modulo the light ones leave room for carries, and are summed faster.
PRIMES30: Final = tuple(
    2**30 - c for c in (35, 41, 83, 101, 105, 107, 135, 153, 161, 173, 203, 257, 263, 297, 321, 347)
)
PRIMES32: Final = tuple(2**32 - c for c in (5, 17, 65, 99, 107, 135, 153, 185, 209, 267, 299, 315, 353, 369, 387, 419))


def keep_freed_memory() -> None:
    """For whoever runs a party: this process keeps memory that is freed for the next chunk (up to 256 MB, glibc)."""
    lib.keep_freed_memory()


def _pointer(array: Residues, *, write: bool = False) -> Any:
    assert array.flags.c_contiguous, "kernels work on contiguous rows"
    return ffi.from_buffer("uint32_t[]" if array.dtype == np.uint32 else "uint64_t[]", array, require_writable=write)


class Ring:
    """The integers modulo each of several primes, and vectors over them.

    >>> ring = Ring((7,))
    >>> ring.add(ring.constant([3, 5]), ring.constant([6, -6])).tolist()
    [[2, 6]]
    """

    def __init__(self, primes: Sequence[int]) -> None:
        self.primes: tuple[int, ...] = tuple(primes)
        wide = self.primes == (M61,)
        if not wide and not all(1 < p < 2**32 for p in self.primes):
            raise ValueError(f"a ring takes the prime 2^61 - 1 alone, or primes below 2^32, got {self.primes}")
        if len(set(self.primes)) != len(self.primes) or not self.primes:
            raise ValueError(f"a ring takes distinct primes, got {self.primes}")
        self.dtype: np.dtype[Any] = np.dtype(np.uint64 if wide else np.uint32)
        self.size = len(self.primes)
        """The number of primes."""
        self.element_bytes = self.size * self.dtype.itemsize
        """The bytes of one element, all primes together."""
        self._table = ffi.new("uint32_t[]", [] if wide else self.primes)

    def __repr__(self) -> str:
        return f"Ring({self.primes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.primes == other.primes

    def __hash__(self) -> int:
        return hash(self.primes)

    @property
    def modulus(self) -> int:
        """The product of the primes."""
        return math.prod(self.primes)

    def _kernel(self, name: str) -> Callable[..., Any]:
        """The compiled loop of that name."""
        if self.dtype == np.uint64:
            kernel: Callable[..., Any] = getattr(lib, name + "61")
            return kernel
        return partial(getattr(lib, name + "32"), self._table, self.size)

    def _apart(self, x: Residues, *, write: bool = False) -> tuple[Any, ...]:
        """A vector whose primes may lie apart, for a kernel: where it begins, and from one prime to the next."""
        if self.dtype == np.uint64:
            return (_pointer(x[:1], write=write),)
        return _pointer(x[:1], write=write), x.strides[0] // x.itemsize

    # ------------------------------------------------------------------------------------------------ construction

    def zeros(self, *shape: int) -> Residues:
        """A vector of zeros."""
        return np.zeros((self.size, *shape), self.dtype)

    def empty(self, *shape: int) -> Residues:
        """A vector to be filled."""
        return np.empty((self.size, *shape), self.dtype)

    def constant(self, values: object) -> Residues:
        """Python integers of any size and sign, reduced modulo each prime. For small arrays."""
        exact = np.array(values, dtype=object)
        return np.stack([np.asarray(exact % p, self.dtype) for p in self.primes])

    def reduce(self, values: NDArray[np.int64]) -> Residues:
        """Signed 64-bit integers modulo each prime."""
        values = np.ascontiguousarray(values, np.int64)
        out = self.empty(*values.shape)
        self._kernel("reduce")(_pointer(out), ffi.from_buffer("int64_t[]", values), values.size)
        return out

    # -------------------------------------------------------------------------------------------------- arithmetic

    def _in_place(self, name: str, acc: Residues, x: Residues) -> Residues:
        if acc.shape != x.shape or acc.dtype != self.dtype or x.dtype != self.dtype:
            raise ValueError(f"shapes {acc.shape} and {x.shape} of {acc.dtype} and {x.dtype} differ")
        self._kernel(name)(*self._apart(acc, write=True), *self._apart(x), x[0].size)
        return acc

    def add_into(self, acc: Residues, x: Residues) -> Residues:
        """acc += x; returns acc."""
        return self._in_place("add", acc, x)

    def subtract_into(self, acc: Residues, x: Residues) -> Residues:
        """acc -= x; returns acc."""
        return self._in_place("sub", acc, x)

    def add_rows(self, acc: Residues, span: slice, x: Residues) -> None:
        """acc[:, span] += x."""
        self.add_into(acc[:, span], x)

    def add(self, a: Residues, b: Residues) -> Residues:
        """The sum, elementwise."""
        return self.add_into(a.copy(), b)

    def subtract(self, a: Residues, b: Residues) -> Residues:
        """The difference, elementwise."""
        return self.subtract_into(a.copy(), b)

    def multiply(self, a: Residues, b: Residues) -> Residues:
        """The product, elementwise."""
        if a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} differ")
        out = np.empty_like(a)
        self._kernel("mul")(_pointer(out), _pointer(a), _pointer(b), a[0].size)
        return out

    def inverse(self, x: Residues) -> Residues:
        """1/x, elementwise; 0 where x is 0."""
        out = np.empty_like(x)
        self._kernel("inverse")(_pointer(out), _pointer(x), x[0].size)
        return out

    def combine(self, matrix: Residues, x: Residues | Sequence[Residues], *, apart: bool = False) -> Residues:
        """matrix @ x for each prime: out[r] = sum over c of matrix[r, c] * x[c].

        x is [P, columns, ...], or a sequence of columns [P, ...] that lie anywhere in memory. The result is
        [P, rows, ...]; with `apart` each out[:, r] is contiguous, for those that send it somewhere.
        """
        columns = [x[:, c] for c in range(x.shape[1])] if isinstance(x, np.ndarray) else x
        size, _, count = matrix.shape
        if size != self.size or count != len(columns):
            raise ValueError(
                f"a matrix of shape {matrix.shape} does not fit {len(columns)} vectors of {self.size} primes"
            )
        shape = x.shape[2:] if isinstance(x, np.ndarray) else columns[0].shape[1:]
        if any(column.shape != (self.size, *shape) or column.dtype != self.dtype for column in columns):
            raise ValueError("the vectors to be combined differ in shape or type")
        rows = [column if column[0].flags.c_contiguous else np.ascontiguousarray(column) for column in columns]
        steps = [row.strides[0] // row.itemsize for row in rows]
        return self._combine(matrix, [row[0] for row in rows], steps, shape, apart=apart)

    def combine_words(self, matrix: Residues, words: NDArray[np.uint32]) -> Residues:
        """Like `combine`, for words of 32 bits [columns, ...] that are not reduced, the same for every prime."""
        assert self.dtype == np.uint32
        return self._combine(matrix, list(words), [0] * len(words), words.shape[1:], words=True)

    def _combine(
        self,
        matrix: Residues,
        first: Sequence[Residues],
        steps: Sequence[int],
        shape: tuple[int, ...],
        *,
        apart: bool = False,
        words: bool = False,
    ) -> Residues:
        """The columns are given by where they begin, and by the step from one prime to the next."""
        rows, columns = matrix.shape[1:]
        out = np.empty((rows, self.size, *shape), self.dtype).swapaxes(0, 1) if apart else self.empty(rows, *shape)
        factors, pointers, n = np.ascontiguousarray(matrix), [_pointer(row) for row in first], math.prod(shape)
        if not rows or not n:
            return out
        if self.dtype == np.uint64:
            lib.combine61(_pointer(out[0]), _pointer(factors), ffi.new("uint64_t *[]", pointers), rows, columns, n)
        else:
            self._kernel("combine")(
                words, _pointer(out[0, 0]), out.strides[0] // 4, out.strides[1] // 4, _pointer(factors),
                ffi.new("uint32_t *[]", pointers), ffi.new("size_t[]", steps), rows, columns, n,
            )  # fmt: skip
        return out

    def gather(
        self, starts: NDArray[np.int64], members: NDArray[np.int64] | None, weights: Residues, y: Residues
    ) -> Residues:
        """out[j] = sum over k in [starts[j], starts[j+1]) of weights[k] * y[members[k]]; y is [P, rows, length].

        Without members the k-th of a row stands for y[k - starts[j]]: a dense product.
        """
        gathered = self.zeros(starts.size - 1, y.shape[2])
        self.gather_into([gathered], starts, members, [weights], y)
        return gathered

    def gather_into(
        self,
        out: Sequence[Residues],
        starts: NDArray[np.int64],
        members: NDArray[np.int64] | None,
        weights: Sequence[Residues],
        y: Residues,
    ) -> None:
        """out[i] += gather(starts, members, weights[i], y) for each i; rows of y are fetched once for all of them."""
        rows, length = starts.size - 1, y.shape[2]
        reach = min(each.shape[1] for each in weights)
        if starts[-1] > reach or (members is not None and members.size < starts[-1]):
            raise ValueError(f"{reach} weights do not reach to {starts[-1]}")
        if any(each.shape != (self.size, rows, length) for each in out) or len(out) != len(weights):
            raise ValueError(f"{len(weights)} results of shape {(self.size, rows, length)} are needed")
        at = ffi.from_buffer("int64_t[]", np.ascontiguousarray(starts, np.int64))
        rows_of = ffi.NULL if members is None else ffi.from_buffer("int64_t[]", members)
        to, factors = [_pointer(each, write=True) for each in out], [_pointer(each[0]) for each in weights]
        if self.dtype == np.uint64:
            for result, factor in zip(to, factors, strict=True):
                lib.gather61(result, at, rows_of, factor, _pointer(y), rows, length)
            return
        self._kernel("gather")(
            ffi.new("uint32_t *[]", to), at, rows_of, ffi.new("uint32_t *[]", factors),
            ffi.new("size_t[]", [each.strides[0] // 4 for each in weights]), len(out), *self._apart(y), rows, length,
        )  # fmt: skip

    def join(self, x: Residues, scale: float, less: int = 0) -> NDArray[np.float64]:
        """The integers that have these residues, less a number, centred around 0, times `scale`, as floats."""
        if self.size > 16:
            raise ValueError(f"at most 16 primes can be joined, got {self.size}")
        out = np.empty(x.shape[1:], np.float64)
        if self.dtype == np.uint64:
            lib.join61(less % M61, _pointer(x), ffi.from_buffer("double[]", out), out.size, scale)
            return out
        self._kernel("join")(
            self._inverses, _pointer(self.constant([less])), *self._apart(x), ffi.from_buffer("double[]", out),
            out.size, scale,
        )  # fmt: skip
        return out

    @cached_property
    def _inverses(self) -> Any:
        """1 / a modulo b, for primes a and b."""
        return ffi.new("uint32_t[]", [pow(a, -1, b) if a != b else 0 for a in self.primes for b in self.primes])

    # ----------------------------------------------------------------------------------------------- bytes, checks

    def valid(self, x: Residues) -> bool:
        """Whether every element is below its prime."""
        return bool(self._kernel("valid")(_pointer(x), x[0].size))

    def to_bytes(self, x: Residues) -> memoryview:
        """Fixed width, little endian; the primes one after the other. A view where the machine allows it."""
        assert x.dtype == self.dtype
        flat = np.ascontiguousarray(x).reshape(-1)
        return (flat if sys.byteorder == "little" else flat.byteswap()).view(np.uint8).data

    def from_bytes(self, data: bytes | bytearray | memoryview, *shape: int) -> Residues:
        """The inverse of `to_bytes`; a `ValueError` where length or an element is wrong. May be a view."""
        x = self.view(data, *shape)
        if not self.valid(x):
            raise ValueError("an element is not below its prime")
        return x

    def view(self, data: bytes | bytearray | memoryview, *shape: int) -> Residues:
        """Like `from_bytes`, for elements that were checked before."""
        expected = math.prod(shape) * self.element_bytes
        if len(data) != expected:
            raise ValueError(f"{len(data)} bytes instead of {expected}")
        x = np.frombuffer(data, self.dtype.newbyteorder("<")).astype(self.dtype, copy=False)
        return x.reshape(self.size, *shape)

    def accept(self, words: Residues, more: Callable[[Residues], None]) -> None:
        """Make random words [P, n] uniform elements, in place, by rejection; `more` fills further words.

        The words are read in order, for one prime after the other: each is cut to as many bits as the prime has, and
        dropped if it is not below it.
        """
        n, wide = words.shape[1], self.dtype == np.uint64
        usable = 0 if wide else self._kernel("usable")(_pointer(words, write=True), n)
        if usable == words.size:  # almost always, for primes just under a power of two
            return
        stream = words.reshape(-1)[usable:]
        stream = stream if self.size == 1 else stream.copy()
        for b in range(usable // n, self.size):
            left = words[b, max(0, usable - b * n) :]
            while left.size:
                ready = min(left.size, stream.size)
                left[:ready], stream = stream[:ready], stream[ready:]
                if ready < left.size:
                    more(left[ready:])
                pointer = _pointer(left, write=True)
                kept = lib.accept61(pointer, left.size) if wide else lib.accept32(self.primes[b], pointer, left.size)
                left = left[kept:]


RING61: Final = Ring((M61,))
"""F_p with p = 2^61 - 1: the union, and retrieval with Paillier."""


def insecure_ring(*primes: int) -> Ring:
    """A ring of small primes, for tests that enumerate all randomness. Insecure by construction."""
    return Ring(primes)
