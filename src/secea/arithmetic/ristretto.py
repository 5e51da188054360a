"""The prime-order group ristretto255 (RFC 9496), many points at a time.

`secea.steps.oprf` uses it to turn names into keys. The arithmetic is libsodium's: the system's library if there is one,
otherwise the copy inside the package `rbcl`. The library is chosen at first use. Points and scalars are rows of 32
bytes. Batches run on all cores, in compiled loops without the interpreter's lock if these are available.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic._kernels import ffi, lib
from secea.arithmetic.threads import cores
from secea.errors import MissingExtra

Rows: TypeAlias = NDArray[np.uint8]
"""[n, 32]: points, or scalars in little-endian order."""
Tick: TypeAlias = Callable[[int], None]
"""`tick(n)` is called when n more points are done."""
Kind: TypeAlias = Literal["system", "rbcl"]

ORDER: Final = 2**252 + 27742317777372353535851937790883648493
POINT_BYTES: Final = 32
SCALAR_BYTES: Final = 32
UNIFORM_BYTES: Final = 64
IDENTITY: Final = bytes(POINT_BYTES)

OLDEST: Final = (1, 0, 18)
"""The first libsodium with ristretto255."""
_NAMES: Final = ("libsodium.so.26", "libsodium.so.23", "libsodium.26.dylib", "libsodium.23.dylib", "libsodium.dll")
_SYMBOLS: Final = {
    "multiply": "crypto_scalarmult_ristretto255",
    "multiply_base": "crypto_scalarmult_ristretto255_base",
    "add": "crypto_core_ristretto255_add",
    "from_uniform": "crypto_core_ristretto255_from_hash",
    "is_valid": "crypto_core_ristretto255_is_valid_point",
}
_PIECE: Final = 512  # points between two ticks: about 30 ms of multiplications
_INLINE: Final = 64  # this few points are done faster than threads start


class PointError(ValueError):
    """A batch has an element that the group refuses. `index` says which one; the caller knows whose fault it is."""

    def __init__(self, index: int, fault: str) -> None:
        self.index, self.fault = index, fault
        super().__init__(f"element {index}: {fault}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.index, self.fault)


# ------------------------------------------------------------------------------------------------------ the library


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """A loaded and initialised libsodium."""

    kind: Kind
    version: tuple[int, ...]
    _handle: ctypes.CDLL = field(repr=False)  # the functions live as long as it does
    _group: Any = field(repr=False)


def _made_ready(kind: Kind, handle: ctypes.CDLL) -> Library:
    """Check the version and that all functions exist. An ImportError says what is wrong with this library."""
    try:
        handle.sodium_version_string.restype = ctypes.c_char_p
        text = handle.sodium_version_string().decode()
        addresses = {name: ctypes.cast(handle[symbol], ctypes.c_void_p).value for name, symbol in _SYMBOLS.items()}
        started = handle.sodium_init()
    except AttributeError as error:
        raise ImportError(f"it was built without ristretto255 ({error})") from None
    version = tuple(int(part) for part in text.split(".")[:3])
    if version < OLDEST:
        raise ImportError(f"it is version {text}, older than {'.'.join(map(str, OLDEST))}")
    if started < 0:
        raise ImportError("it did not start (sodium_init failed)")
    group = ffi.new("group *")
    for name, address in addresses.items():
        setattr(group, name, ffi.cast(ffi.typeof(getattr(group, name)), address))
    return Library(kind, version, handle, group)


def _system() -> Library:
    faults = []
    for name in _NAMES:
        try:
            handle = ctypes.CDLL(name)
        except OSError:
            continue
        try:
            return _made_ready("system", handle)
        except ImportError as error:
            faults.append(f"{name}: {error}")
    raise ImportError("; ".join(faults) or "no system library found")


def _packaged() -> Library:
    module = importlib.import_module("rbcl._sodium")
    # rbcl leaves its library behind as a temporary file. Once loaded, it is no longer needed.
    with suppress(OSError):  # already removed, or in use on Windows
        os.remove(module.lib_path)  # noqa: PTH107  # this layer handles no paths
    return _made_ready("rbcl", module._sodium)


@cache
def load(kind: Kind | None = None) -> Library:
    """Load libsodium: of the given kind, or (None) the system's if it is usable, and otherwise that of `rbcl`."""
    loaders = {"system": _system, "rbcl": _packaged}
    faults = []
    for each in (kind,) if kind else ("system", "rbcl"):
        try:
            return loaders[each]()
        except (ImportError, OSError) as error:
            faults.append(f"{each}: {error}")
    raise MissingExtra(
        f"no usable libsodium ({'; '.join(faults)}): pip install rbcl, or install libsodium 1.0.18 or newer"
    )


# ---------------------------------------------------------------------------------------------------------- batches


def _rows(array: Rows, width: int = POINT_BYTES) -> Rows:
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"expected uint8 rows of {width} bytes, got {array.dtype} of shape {array.shape}")
    return array


def _scalars(scalars: Rows) -> Rows:
    if (_rows(scalars)[:, -1] >> 7).any():
        raise ValueError("a scalar has at most 255 bits; libsodium would ignore the highest bit: reduce it first")
    return scalars


def _at(array: Rows) -> Any:
    return ffi.from_buffer("uint8_t[]", np.ascontiguousarray(array))


def _spread(work: Callable[[slice], int], count: int, fault: str, tick: Tick | None) -> None:
    """Work on 0..count piece by piece, on all cores. `work` returns how many elements of a piece it finished."""
    most = cores()
    step = min(_PIECE, -(-count // most)) if count > _INLINE else _INLINE
    pieces = [slice(start, min(start + step, count)) for start in range(0, count, step)]

    def take(results: Iterable[int]) -> None:
        for piece, done in zip(pieces, results, strict=True):
            if done < piece.stop - piece.start:
                raise PointError(piece.start + done, fault)
            if tick is not None:
                tick(done)

    if len(pieces) < 2 or most == 1:
        return take(map(work, pieces))
    with ThreadPoolExecutor(min(most, len(pieces))) as pool:
        try:
            take(pool.map(work, pieces))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # do not finish a batch that has an error
            raise


def _each(
    kernel: str, library: Library | None, tick: Tick | None, fault: str, *inputs: Rows, width: int = POINT_BYTES
) -> Rows:
    """Run one of the loops of group.h over the rows of its inputs."""
    group, count = (library or load())._group, len(inputs[0])
    if any(len(each) != count for each in inputs):
        raise ValueError(f"batches of {' and '.join(str(len(each)) for each in inputs)} rows do not fit each other")
    out = np.empty((count, width), np.uint8)

    def work(piece: slice) -> int:
        rows = (_at(each[piece]) for each in inputs)
        return int(getattr(lib, kernel)(group, _at(out[piece]), *rows, piece.stop - piece.start))

    _spread(work, count, fault, tick)
    return out


def multiply(points: Rows, scalars: Rows, *, tick: Tick | None = None, library: Library | None = None) -> Rows:
    """scalars[i] * points[i]. `scalars` may be one scalar [32] for all. Refuses invalid points and identity results."""
    if scalars.ndim == 1:
        scalars = np.broadcast_to(scalars, (len(points), len(scalars)))
    fault = "not a valid point, or the product is the identity"
    return _each("group_multiply", library, tick, fault, _rows(points), _scalars(scalars))


def multiply_base(scalars: Rows, *, tick: Tick | None = None, library: Library | None = None) -> Rows:
    """scalars[i] * the generator; 0 is refused."""
    return _each("group_multiply_base", library, tick, "the scalar is 0", _scalars(scalars))


def add(a: Rows, b: Rows, *, tick: Tick | None = None, library: Library | None = None) -> Rows:
    """a[i] + b[i]. Inputs and results may be the identity. Refuses invalid points."""
    return _each("group_add", library, tick, "not a valid point", _rows(a), _rows(b))


def from_uniform(uniform: Rows, *, tick: Tick | None = None, library: Library | None = None) -> Rows:
    """Map rows of 64 uniform bytes to points (RFC 9496, section 4.3.4)."""
    return _each("group_from_uniform", library, tick, "refused by libsodium", _rows(uniform, UNIFORM_BYTES))


def valid(points: Rows, *, tick: Tick | None = None, library: Library | None = None) -> NDArray[np.bool_]:
    """Whether each row encodes a point other than the identity."""
    return _each("group_valid", library, tick, "refused by libsodium", _rows(points), width=1)[:, 0].astype(np.bool_)


def total(points: Rows, *, tick: Tick | None = None, library: Library | None = None) -> Rows:
    """The sum [32] of all points; the identity if there are none. Refuses invalid points."""
    group, points = (library or load())._group, _rows(points)
    sums: list[Rows] = []

    def work(piece: slice) -> int:
        part = np.empty((1, POINT_BYTES), np.uint8)
        done = int(lib.group_total(group, _at(part), _at(points[piece]), piece.stop - piece.start))
        sums.append(part)  # the order does not matter for a sum
        return done

    _spread(work, len(points), "not a valid point", tick)
    out = np.zeros(POINT_BYTES, np.uint8)  # the identity
    if sums:
        lib.group_total(group, _at(out), _at(np.concatenate(sums)), len(sums))
    return out


# ---------------------------------------------------------------------------------------------------------- scalars


def scalar_bytes(value: int) -> bytes:
    """The encoding of an integer modulo the order."""
    return (value % ORDER).to_bytes(SCALAR_BYTES, "little")


def scalar_rows(values: Iterable[int]) -> Rows:
    """The encodings of many integers, [n, 32]."""
    return np.frombuffer(b"".join(map(scalar_bytes, values)), np.uint8).reshape(-1, SCALAR_BYTES)


def scalar_of(uniform: bytes) -> int:
    """Reduce 64 uniform bytes to a scalar. No value is favoured by more than 2^-259."""
    if len(uniform) != UNIFORM_BYTES:
        raise ValueError(f"a scalar is reduced from {UNIFORM_BYTES} bytes, got {len(uniform)}")
    return int.from_bytes(uniform, "little") % ORDER


def read_scalar(encoded: bytes) -> int:
    """Decode a nonzero scalar from its canonical encoding. Anything else is a ValueError."""
    value = int.from_bytes(encoded, "little")
    if len(encoded) != SCALAR_BYTES or not 0 < value < ORDER:
        raise ValueError(f"not a scalar: expected {SCALAR_BYTES} bytes, little-endian, above 0 and below the order")
    return value


def inverses(values: Sequence[int]) -> list[int]:
    """1 / values[i] modulo the order, at the price of one inversion and three products each (Montgomery's trick)."""
    zeros = [i for i, value in enumerate(values) if value % ORDER == 0]
    if zeros:
        raise PointError(zeros[0], "0 has no inverse")
    before = list(accumulate(values, lambda a, b: a * b % ORDER, initial=1))
    rest = pow(before.pop(), -1, ORDER)
    out = [0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        out[i] = before[i] * rest % ORDER
        rest = rest * values[i] % ORDER
    return out
