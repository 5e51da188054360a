"""State to bytes and back: plain values and numpy arrays, no code. What a snapshot holds is secret; keep it so.

A snapshot is a JSON text that describes the value, followed by the raw arrays, followed by a checksum.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from secea.errors import ProtocolError, SnapshotError

_MAGIC: Final = b"secea snapshot 1\n"
_CHECKSUM_BYTES: Final = 32
_PIECE_BYTES: Final = 1 << 20
_PLAIN: Final = {type(None), bool, int, float, str}
"""What JSON takes as it is. Lists of nothing else, such as names, are written without a look at each."""


def dumps(value: object) -> bytes:
    """A value made of None, bool, int, float, str, bytes, list, tuple, dict and arrays."""
    return b"".join(pieces(value))


def pieces(value: object) -> Iterator[bytes | memoryview]:
    """The same a piece at a time. Arrays are not copied as a whole, and must not change meanwhile."""
    arrays: list[np.ndarray[Any, Any]] = []

    def plain(x: object) -> object:
        match x:
            case None | bool() | int() | float() | str():
                return x
            case bytes() | bytearray() | memoryview():
                return plain(np.frombuffer(bytes(x), np.uint8)) | {"as": "bytes"}  # type: ignore[operator]
            case np.ndarray() if x.dtype.kind in "biuf":
                arrays.append(x)
                return {"as": "array", "dtype": x.dtype.str, "shape": list(x.shape)}
            case tuple():
                return {"as": "tuple", "items": plain(list(x))}
            case list():
                return x if set(map(type, x)) <= _PLAIN else [plain(item) for item in x]
            case dict():
                return {"as": "dict", "items": [[plain(key), plain(item)] for key, item in x.items()]}
            case _:
                raise TypeError(f"a {type(x).__name__} cannot be part of a snapshot")

    text = json.dumps(plain(value), separators=(",", ":")).encode()
    hashed = hashlib.sha256()
    head = _MAGIC, len(text).to_bytes(8, "little"), text
    for part in itertools.chain[bytes | memoryview](head, *map(_blocks, arrays)):
        hashed.update(part)
        yield part
    yield hashed.digest()


def _blocks(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    """The bytes of an array in rows-first order: as it lies in memory, or else some of its first axis at a time."""
    whole = array.flags.c_contiguous
    step = 1 if whole else max(1, _PIECE_BYTES * len(array) // max(1, array.nbytes))
    for block in [array] if whole else (array[i : i + step] for i in range(0, len(array), step)):
        yield np.ascontiguousarray(block).reshape(-1).view(np.uint8).data


def checksum(data: bytes) -> bytes:
    """The hash that a snapshot ends with: snapshots of equal values have equal ones."""
    return data[-_CHECKSUM_BYTES:]


def loads(data: bytes) -> Any:
    """The value of a snapshot; a `SnapshotError` where it is damaged or not one."""
    body = memoryview(data)[:-_CHECKSUM_BYTES]
    if bytes(body[: len(_MAGIC)]) != _MAGIC:
        raise SnapshotError("this is not saved state of this version of secea")
    if hashlib.sha256(body).digest() != checksum(data):
        raise SnapshotError("saved state is damaged: its checksum does not match")
    start = len(_MAGIC) + 8
    position = start + int.from_bytes(body[len(_MAGIC) : start], "little")

    def array(dtype: str, shape: list[int]) -> np.ndarray[Any, Any]:
        nonlocal position
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        if kind.kind not in "biuf" or min(shape, default=0) < 0 or position + size > len(body):
            raise ValueError(f"an array of {dtype!r} and shape {shape}")
        result = np.frombuffer(body[position : position + size], kind).reshape(shape).copy()
        position += size
        return result

    def value(x: Any) -> Any:
        match x:
            case {"as": "array", "dtype": dtype, "shape": shape}:
                return array(dtype, shape)
            case {"as": "bytes", "dtype": dtype, "shape": shape}:
                return array(dtype, shape).tobytes()
            case {"as": "tuple", "items": items}:
                return tuple(value(item) for item in items)
            case {"as": "dict", "items": items}:
                return {value(key): value(item) for key, item in items}
            case list():
                return [value(item) for item in x]
            case _:
                return x

    with reading():
        return value(json.loads(bytes(body[start:position])))


@contextmanager
def reading() -> Iterator[None]:
    """What does not fit in a snapshot that was not damaged, but made up or cut: whatever it causes, it is one error.

    A checksum keeps accidents out, not people. Only what wrong content can raise is caught; its text is not repeated,
    since it may show what was saved.
    """
    try:
        yield
    except SnapshotError:
        raise
    except (
        ArithmeticError, AttributeError, LookupError, ProtocolError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise SnapshotError(f"saved state cannot be read: {type(error).__name__}") from None
