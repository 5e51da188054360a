"""Vectors over F_p, and over several primes side by side.

A `Ring` is a tuple of primes. Its vectors are arrays whose first axis runs over the primes: one row for 2^61 - 1 or
2^56 - 5, P rows for a residue number system of P primes just under 2^30. All arithmetic is exact and runs in compiled
loops that release the interpreter's lock, or in their slow twin in numpy where there are none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic._kernels import ffi, lib

Residues: TypeAlias = NDArray[Any]
"""uint32 or uint64; the first axis runs over the primes."""

M61: Final = 2**61 - 1
P56: Final = 2**56 - 5
"""Its elements have seven bytes, but eight in memory."""

# The primes 2^30 - c with the smallest c: products reduce by folding high bits into low ones, with room for carries.
PRIMES30: Final = tuple(
    2**30 - c for c in (35, 41, 83, 101, 105, 107, 135, 153, 161, 173, 203, 257, 263, 297, 321, 347)
)


def keep_freed_memory() -> None:
    """For a process of ours: it keeps memory that is freed for the next chunk (up to 256 MB, glibc)."""
    lib.keep_freed_memory()


def give_back_freed_memory() -> None:
    """What this process has freed goes back to the system (glibc): after a set-up, which needs more than a round."""
    lib.give_back_freed_memory()


def _pointer(array: Residues, *, write: bool = False) -> Any:
    assert array.flags.c_contiguous, "kernels work on contiguous rows"
    assert array.flags.aligned, "kernels work on aligned elements"
    return ffi.from_buffer("uint32_t[]" if array.dtype == np.uint32 else "uint64_t[]", array, require_writable=write)


class Ring:
    """The integers modulo each of several primes, and vectors over them.

    >>> ring = Ring((7,))
    >>> ring.add(ring.constant([3, 5]), ring.constant([6, -6])).tolist()
    [[2, 6]]
    """

    def __init__(self, primes: Sequence[int]) -> None:
        self.primes: tuple[int, ...] = tuple(primes)
        wide = self.primes in ((M61,), (P56,))
        if not wide and not all(1 < p < 2**32 for p in self.primes):
            raise ValueError(f"a ring takes only 2^61 - 1, only 2^56 - 5, or primes below 2^32, got {self.primes}")
        if len(set(self.primes)) != len(self.primes) or not self.primes:
            raise ValueError(f"a ring takes distinct primes, got {self.primes}")
        self.dtype: np.dtype[Any] = np.dtype(np.uint64 if wide else np.uint32)
        self.size = len(self.primes)
        """The number of primes."""
        self.packed = self.primes == (P56,)
        """Whether an element has fewer bytes in a message than in memory."""
        self.element_bytes = 7 if self.packed else self.size * self.dtype.itemsize
        """The bytes of one element in a message, all primes together."""
        self.table = ffi.new("uint32_t[]", [] if wide else self.primes)
        """The primes, for a kernel."""

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
            return partial(getattr(lib, name + "64"), self.modulus.bit_length())
        return partial(getattr(lib, name + "32"), self.table, self.size)

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
        along = [column if column[0].flags.c_contiguous else np.ascontiguousarray(column) for column in columns]
        rows, n = matrix.shape[1], math.prod(shape)
        out = np.empty((rows, self.size, *shape), self.dtype).swapaxes(0, 1) if apart else self.empty(rows, *shape)
        factors, pointers = np.ascontiguousarray(matrix), [_pointer(column[0]) for column in along]
        if not rows or not n:
            return out
        if self.dtype == np.uint64:
            columns_at = ffi.new("uint64_t *[]", pointers)
            self._kernel("combine")(_pointer(out[0]), _pointer(factors), columns_at, rows, count, n)
        else:
            steps = ffi.new("size_t[]", [column.strides[0] // 4 for column in along])
            self._kernel("combine")(
                False, _pointer(out[0, 0]), out.strides[0] // 4, out.strides[1] // 4, _pointer(factors),
                ffi.new("uint32_t *[]", pointers), steps, rows, count, n,
            )  # fmt: skip
        return out

    def gather_into(
        self,
        out: Sequence[Residues],
        starts: NDArray[np.int64],
        members: NDArray[np.int64] | None,
        weights: Sequence[Residues],
        y: Residues,
    ) -> None:
        """For each i: out[i][j] += sum over k in [starts[j], starts[j+1]) of weights[i][k] * y[members[k]].

        Without members, position k of a row refers to y[k - starts[j]]: a dense product. Only modulo 2^61 - 1.
        """
        assert self.primes == (M61,)
        rows, length = starts.size - 1, y.shape[2]
        reach = min(each.shape[1] for each in weights)
        if starts[-1] > reach or (members is not None and members.size < starts[-1]):
            raise ValueError(f"{reach} weights do not reach to {starts[-1]}")
        if any(each.shape != (self.size, rows, length) for each in out) or len(out) != len(weights):
            raise ValueError(f"{len(weights)} results of shape {(self.size, rows, length)} are needed")
        at = ffi.from_buffer("int64_t[]", np.ascontiguousarray(starts, np.int64))
        rows_of = ffi.NULL if members is None else ffi.from_buffer("int64_t[]", members)
        for each, factors in zip(out, weights, strict=True):
            lib.gather61(_pointer(each, write=True), at, rows_of, _pointer(factors[0]), _pointer(y), rows, length)

    def join(self, x: Residues, scale: float, less: int = 0) -> NDArray[np.float64]:
        """The integers that have these residues, less a number, centred around 0, times `scale`, as floats."""
        if self.size > 16:
            raise ValueError(f"at most 16 primes can be joined, got {self.size}")
        out = np.empty(x.shape[1:], np.float64)
        if self.dtype == np.uint64:
            self._kernel("join")(less % self.modulus, _pointer(x), ffi.from_buffer("double[]", out), out.size, scale)
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
        """Fixed width, little endian; the primes one after the other. A view where the elements allow it."""
        assert x.dtype == self.dtype
        flat = np.ascontiguousarray(x).reshape(-1)
        if self.packed:
            out = np.empty(flat.size * self.element_bytes, np.uint8)
            lib.pack56(ffi.from_buffer("uint8_t[]", out), _pointer(flat), flat.size)
            return out.data
        return (flat if sys.byteorder == "little" else flat.byteswap()).view(np.uint8).data

    def from_bytes(self, data: bytes | bytearray | memoryview, *shape: int) -> Residues:
        """The inverse of `to_bytes`; a `ValueError` where length or an element is wrong. May be a view."""
        x, valid = self._read(data, shape)
        if not valid:
            raise ValueError("an element is not below its prime")
        return x

    def view(self, data: bytes | bytearray | memoryview, *shape: int) -> Residues:
        """Like `from_bytes`, for elements that may be anything."""
        return self._read(data, shape)[0]

    def _read(self, data: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> tuple[Residues, bool]:
        """The elements, and whether all are below their prime."""
        expected = math.prod(shape) * self.element_bytes
        if len(data) != expected:
            raise ValueError(f"{len(data)} bytes instead of {expected}")
        if self.packed:
            x = self.empty(*shape)
            return x, bool(lib.unpack56(_pointer(x), ffi.from_buffer("uint8_t[]", data), x.size))
        x = np.frombuffer(data, self.dtype.newbyteorder("<")).astype(self.dtype, copy=False)
        x = np.require(x, requirements="A").reshape(self.size, *shape)
        return x, self.valid(x)

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
                pointer, p = _pointer(left, write=True), self.primes[b]
                kept = self._kernel("accept")(pointer, left.size) if wide else lib.accept32(p, pointer, left.size)
                left = left[kept:]


RING61: Final = Ring((M61,))
"""F_p with p = 2^61 - 1: the union, and retrieval with Paillier."""
RING56: Final = Ring((P56,))
"""F_p with p = 2^56 - 5: rounds of the keyed form where it is large enough."""


def insecure_ring(*primes: int) -> Ring:
    """A ring of small primes, for tests that enumerate all randomness. Insecure by construction."""
    return Ring(primes)
