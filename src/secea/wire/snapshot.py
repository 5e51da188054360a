"""State to bytes and back: plain values and numpy arrays, no code. What a snapshot holds is secret; keep it so.

A snapshot is a JSON text that describes the value, followed by the raw arrays, followed by a checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from secea.errors import ProtocolError, SnapshotError

_MAGIC: Final = b"secea snapshot 1\n"
_CHECKSUM_BYTES: Final = 32
_PLAIN: Final = {type(None), bool, int, float, str}
"""What JSON takes as it is. Lists of nothing else, such as names, are written without a look at each."""


def dumps(value: object) -> bytes:
    """A value made of None, bool, int, float, str, bytes, list, tuple, dict and arrays."""
    arrays: list[np.ndarray[Any, Any]] = []

    def plain(x: object) -> object:
        match x:
            case None | bool() | int() | float() | str():
                return x
            case bytes() | bytearray() | memoryview():
                return plain(np.frombuffer(bytes(x), np.uint8)) | {"as": "bytes"}  # type: ignore[operator]
            case np.ndarray() if x.dtype.kind in "biuf":
                arrays.append(np.ascontiguousarray(x))
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
    parts: list[bytes | memoryview] = [
        _MAGIC,
        len(text).to_bytes(8, "little"),
        text,
        *(a.reshape(-1).view(np.uint8).data for a in arrays),
    ]
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return b"".join([*parts, hashed.digest()])


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
