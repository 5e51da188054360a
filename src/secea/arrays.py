"""Read and write .npz files, the array archives that `np.savez` writes, also those that are larger than memory.

Reading never runs code from the file (no pickle). Whatever is wrong with a file, the error is a `DataError`.
"""

from __future__ import annotations

import math
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from secea.errors import DataError

HEADER_BYTES: Final = 1000
"""The longest header that is accepted. A plain array's has 118 bytes. A long one could nest too deeply to be parsed."""
MAPPED_BYTES: Final = 32 << 20
"""Arrays of numbers from this size on stay in their file. Only what is looked at of them comes into memory."""
_PIECE: Final = 1 << 20


def read_arrays(path: Path, advice: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file. If it cannot be read as one, a `DataError` names the file and ends with `advice`."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        with raw, zipfile.ZipFile(raw) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns about headers written by Python 2
            return {member.filename.removesuffix(".npy"): _array(archive, member, raw) for member in archive.infolist()}
    except MemoryError:  # the file may be right
        raise
    except Exception as error:  # neither zipfile nor numpy documents what it raises for a damaged file
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} is not an .npz file of plain arrays ({why}); {advice}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, raw: BinaryIO) -> NDArray[Any]:
    """One array. Its header must match its size, so all bytes are read, and zipfile then verifies their checksum."""
    if member.comment:  # numpy writes none; a damaged length field can turn the members that follow into a comment
        raise ValueError(f"{member.filename} has a comment")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version > (2, 0):  # later versions exist only for field names
            raise ValueError(f"{member.filename} has fields")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, columns_first, dtype = read_header(file, max_header_size=HEADER_BYTES)
        if dtype.kind in "OV":
            raise ValueError(f"{member.filename} holds {'Python objects' if dtype.hasobject else 'fields'}")
        begins = file.tell()
        says, there = math.prod(shape) * dtype.itemsize, member.file_size - begins
        if says != there:
            raise ValueError(f"the header of {member.filename} says {says} bytes, but {there} follow")
    if says >= MAPPED_BYTES and dtype.kind in "fiu":
        return _mapped(
            archive, member, raw, begins,
            lambda file, at: np.memmap(file, dtype, "c", at, shape, "F" if columns_first else "C"),
        )  # fmt: skip
    with archive.open(member) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    if dtype.kind == "U":
        array.tolist()  # raises an error if a code point is invalid
    return array


def _mapped(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, raw: BinaryIO, begins: int,
    opened: Callable[[Any, int], NDArray[Any]],
) -> NDArray[Any]:  # fmt: skip
    """An array that stays in its file; or, if it is compressed there, in a temporary one. The checksum is verified."""
    packed = member.compress_type != zipfile.ZIP_STORED
    with tempfile.TemporaryFile() as aside, archive.open(member) as file:
        while piece := file.read(_PIECE):
            if packed:
                aside.write(piece)
        if packed:
            aside.flush()
            return opened(aside, begins)
    raw.seek(member.header_offset + 26)
    lengths = raw.read(4)
    data = member.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return opened(raw, data + begins)


def write_arrays(file: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    """What `np.savez` writes, a piece at a time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                npy.write_array_header_1_0(member, npy.header_data_from_array_1_0(array) | {"fortran_order": False})
                step = max(1, _PIECE // max(1, array[:1].nbytes))
                for start in range(0, len(array), step):
                    member.write(np.ascontiguousarray(array[start : start + step]).tobytes())


def stored_like(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """Room for `count` rows like these: in memory, or, if that is much, in a temporary file."""
    shape = (count, *rows.shape[1:])
    if math.prod(shape) * rows.dtype.itemsize < MAPPED_BYTES:
        return np.empty(shape, rows.dtype)
    return in_a_temporary_file(shape, rows.dtype)


def in_a_temporary_file(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of zeros in a file that vanishes with it."""
    with tempfile.TemporaryFile() as file:  # the map keeps what the file has
        return np.memmap(file, dtype, "w+", shape=shape)
