"""Vectors over F_p, and over several primes side by side.

A `Ring` is a tuple of primes. Its vectors are arrays whose first axis runs over the primes: one row for 2^61 - 1, P
rows for a residue number system of P primes just under 2^32. All arithmetic is exact and runs in compiled loops that
release the interpreter's lock.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea._kernels.native import ffi, lib

Residues: TypeAlias = NDArray[Any]
"""uint32 or uint64; the first axis runs over the primes."""

M61: Final = 2**61 - 1

# The primes 2^32 - c with the smallest c: products reduce by folding the high half into the low one.
PRIMES32: Final = tuple(2**32 - c for c in (5, 17, 65, 99, 107, 135, 153, 185, 209, 267, 299, 315, 353, 369, 387, 419))


def _pointer(array: Residues, *, write: bool = False) -> Any:
    assert isinstance(array, np.ndarray), "vectors have an axis for their elements beside that of the primes"
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

    def __repr__(self) -> str:
        return f"Ring({self.primes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.primes == other.primes

    def __hash__(self) -> int:
        return hash(self.primes)

    @property
    def size(self) -> int:
        """The number of primes."""
        return len(self.primes)

    @property
    def modulus(self) -> int:
        """The product of the primes."""
        return math.prod(self.primes)

    @property
    def element_bytes(self) -> int:
        """The bytes of one element, all primes together."""
        return self.size * self.dtype.itemsize

    def at(self, index: int) -> Ring:
        """The ring of one of the primes alone."""
        return self._parts[index]

    @cached_property
    def _parts(self) -> tuple[Ring, ...]:
        return (self,) if self.size == 1 else tuple(Ring((p,)) for p in self.primes)

    def _kernel(self, name: str, index: int) -> Callable[..., Any]:
        """The compiled loop of that name, for the prime at that index."""
        if self.dtype == np.uint64:
            kernel: Callable[..., Any] = getattr(lib, name + "61")
            return kernel
        kernel, p = getattr(lib, name + "32"), self.primes[index]
        return lambda *args: kernel(p, *args)

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
        for i in range(self.size):
            self._kernel("reduce", i)(_pointer(out[i]), ffi.from_buffer("int64_t[]", values), values.size)
        return out

    # -------------------------------------------------------------------------------------------------- arithmetic

    def _in_place(self, name: str, acc: Residues, x: Residues) -> Residues:
        if acc.shape != x.shape or acc.dtype != self.dtype or x.dtype != self.dtype:
            raise ValueError(f"shapes {acc.shape} and {x.shape} of {acc.dtype} and {x.dtype} differ")
        for i in range(self.size):
            self._kernel(name, i)(_pointer(acc[i], write=True), _pointer(x[i]), x[i].size)
        return acc

    def add_into(self, acc: Residues, x: Residues) -> Residues:
        """acc += x; returns acc."""
        return self._in_place("add", acc, x)

    def subtract_into(self, acc: Residues, x: Residues) -> Residues:
        """acc -= x; returns acc."""
        return self._in_place("sub", acc, x)

    def add_rows(self, acc: Residues, span: slice, x: Residues) -> None:
        """acc[:, span] += x."""
        for i in range(self.size):  # the rows of one prime are contiguous
            self.at(i)._in_place("add", acc[i : i + 1, span], x[i : i + 1])

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
        for i in range(self.size):
            self._kernel("mul", i)(_pointer(out[i]), _pointer(a[i]), _pointer(b[i]), a[i].size)
        return out

    def inverse(self, x: Residues) -> Residues:
        """1/x, elementwise; 0 where x is 0."""
        out = np.empty_like(x)
        for i in range(self.size):
            self._kernel("inverse", i)(_pointer(out[i]), _pointer(x[i]), x[i].size)
        return out

    def combine(self, matrix: Residues, x: Residues | Sequence[Residues]) -> Residues:
        """matrix @ x for each prime: out[r] = sum over c of matrix[r, c] * x[c].

        x is [P, columns, ...], or a sequence of columns [P, ...] that lie anywhere in memory.
        """
        columns = [x[:, c] for c in range(x.shape[1])] if isinstance(x, np.ndarray) else x
        size, rows, count = matrix.shape
        if size != self.size or count != len(columns):
            raise ValueError(
                f"a matrix of shape {matrix.shape} does not fit {len(columns)} vectors of {self.size} primes"
            )
        shape = x.shape[2:] if isinstance(x, np.ndarray) else columns[0].shape[1:]
        if any(column.shape != (self.size, *shape) or column.dtype != self.dtype for column in columns):
            raise ValueError("the vectors to be combined differ in shape or type")
        out = self.empty(rows, *shape)
        for i in range(self.size):
            self._combine(i, out[i], matrix[i], [column[i] for column in columns])
        return out

    def combine_words(self, matrix: Residues, words: NDArray[np.uint32]) -> Residues:
        """Like `combine`, for words of 32 bits [columns, ...] that are not reduced, the same for every prime."""
        assert self.dtype == np.uint32
        out = self.empty(matrix.shape[1], *words.shape[1:])
        for i in range(self.size):
            self._combine(i, out[i], matrix[i], list(words))
        return out

    def _combine(self, index: int, out: Residues, matrix: Residues, columns: list[Residues]) -> None:
        rows = [np.ascontiguousarray(column) for column in columns]  # most are already
        table = ffi.new("uint32_t *[]" if self.dtype == np.uint32 else "uint64_t *[]", [_pointer(row) for row in rows])
        factors = np.ascontiguousarray(matrix)
        self._kernel("combine", index)(_pointer(out), _pointer(factors), table, *matrix.shape, math.prod(out.shape[1:]))

    def gather(
        self, starts: NDArray[np.int64], members: NDArray[np.int64] | None, weights: Residues, y: Residues
    ) -> Residues:
        """out[j] = sum over k in [starts[j], starts[j+1]) of weights[k] * y[members[k]]; y is [P, rows, length].

        Without members the k-th of a row stands for y[k - starts[j]]: a dense product.
        """
        rows, length = starts.size - 1, y.shape[2]
        if starts[-1] > weights.shape[1] or (members is not None and members.size < starts[-1]):
            raise ValueError(f"{weights.shape[1]} weights do not reach to {starts[-1]}")
        out = self.empty(rows, length)
        at = ffi.from_buffer("int64_t[]", np.ascontiguousarray(starts, np.int64))
        rows_of = ffi.NULL if members is None else ffi.from_buffer("int64_t[]", members)
        for i in range(self.size):
            self._kernel("gather", i)(_pointer(out[i]), at, rows_of, _pointer(weights[i]), _pointer(y[i]), rows, length)
        return out

    def join(self, x: Residues, scale: float) -> NDArray[np.float64]:
        """The integers that have these residues, centred around 0, times `scale`, as floats."""
        if self.dtype != np.uint32:
            raise ValueError("joining is for primes below 2^32")
        if self.size > 16:
            raise ValueError(f"at most 16 primes can be joined, got {self.size}")
        inverses = [[pow(a, -1, b) if a != b else 0 for b in self.primes] for a in self.primes]
        table, primes = np.array(inverses, np.uint32), np.array(self.primes, np.uint32)
        out = np.empty(x.shape[1:], np.float64)
        lib.join32(
            _pointer(primes), _pointer(table), self.size, _pointer(x), ffi.from_buffer("double[]", out), out.size, scale
        )
        return out

    # ----------------------------------------------------------------------------------------------- bytes, checks

    def valid(self, x: Residues) -> bool:
        """Whether every element is below its prime."""
        return all(self._kernel("valid", i)(_pointer(x[i]), x[i].size) for i in range(self.size))

    def to_bytes(self, x: Residues) -> memoryview:
        """Fixed width, little endian; the primes one after the other. A view where the machine allows it."""
        assert x.dtype == self.dtype
        flat = np.ascontiguousarray(x).reshape(-1)
        return (flat if sys.byteorder == "little" else flat.byteswap()).view(np.uint8).data

    def from_bytes(self, data: bytes | bytearray | memoryview, *shape: int) -> Residues:
        """The inverse of `to_bytes`; a `ValueError` where length or an element is wrong. May be a view."""
        expected = math.prod(shape) * self.element_bytes
        if len(data) != expected:
            raise ValueError(f"{len(data)} bytes instead of {expected}")
        x = np.frombuffer(data, self.dtype.newbyteorder("<")).astype(self.dtype, copy=False)
        x = x.reshape(self.size, *shape)
        if not self.valid(x):
            raise ValueError("an element is not below its prime")
        return x

    def accept(self, index: int, words: Residues) -> Residues:
        """The words, in order, that are uniform elements of the prime at that index (rejection sampling; in place)."""
        return words[: self._kernel("accept", index)(_pointer(words, write=True), words.size)]


RING61: Final = Ring((M61,))
"""F_p with p = 2^61 - 1: the union, and retrieval with Paillier."""


def insecure_ring(*primes: int) -> Ring:
    """A ring of small primes, for tests that enumerate all randomness. Insecure by construction."""
    return Ring(primes)
