"""State to bytes and back: plain values and numpy arrays, no code. What a snapshot holds is secret; keep it so.

A snapshot is a JSON text that describes the value, followed by the raw arrays, followed by a checksum.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import numpy as np

from secea.errors import SnapshotError

_MAGIC: Final = b"secea snapshot 1\n"
_CHECKSUM_BYTES: Final = 32


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
                return {"as": "tuple", "items": [plain(item) for item in x]}
            case list():
                return [plain(item) for item in x]
            case dict():
                return {"as": "dict", "items": [[plain(key), plain(item)] for key, item in x.items()]}
            case _:
                raise TypeError(f"a {type(x).__name__} cannot be part of a snapshot")

    text = json.dumps(plain(value), separators=(",", ":")).encode()
    body = b"".join([_MAGIC, len(text).to_bytes(8, "little"), text, *(a.tobytes() for a in arrays)])
    return body + hashlib.sha256(body).digest()


def loads(data: bytes) -> Any:
    """The value of a snapshot; a `SnapshotError` where it is damaged or not one."""
    body, checksum = memoryview(data)[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if bytes(body[: len(_MAGIC)]) != _MAGIC:
        raise SnapshotError("this is not saved state of this version of secea")
    if hashlib.sha256(body).digest() != checksum:
        raise SnapshotError("saved state is damaged: its checksum does not match")
    start = len(_MAGIC) + 8
    position = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    try:
        described = json.loads(bytes(body[start:position]))
    except ValueError:
        raise SnapshotError("saved state is damaged: its description cannot be read") from None

    def array(dtype: str, shape: list[int]) -> np.ndarray[Any, Any]:
        nonlocal position
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
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

    return value(described)
