"""Read .npz files, the array archives that `np.savez` writes.

Reading never runs code from the file (no pickle). Whatever is wrong with a file, the error is a `DataError`.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from pathlib import Path
from typing import Any, Final

from numpy.lib import format as npy
from numpy.typing import NDArray

from secea.errors import DataError

HEADER_BYTES: Final = 1000
"""The longest header that is accepted. A plain array's has 118 bytes. A long one could nest too deeply to be parsed."""


def read_arrays(path: Path, advice: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file. If it cannot be read as one, a `DataError` names the file and ends with `advice`."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        with raw, zipfile.ZipFile(raw) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns about headers written by Python 2
            return {member.filename.removesuffix(".npy"): _array(archive, member) for member in archive.infolist()}
    except MemoryError:  # the file may be right
        raise
    except Exception as error:  # neither zipfile nor numpy documents what it raises for a damaged file
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} is not an .npz file of plain arrays ({why}); {advice}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array. Its header must match its size, so all bytes are read, and zipfile then verifies their checksum."""
    if member.comment:  # numpy writes none; a damaged length field can turn the members that follow into a comment
        raise ValueError(f"{member.filename} has a comment")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version > (2, 0):  # later versions exist only for field names
            raise ValueError(f"{member.filename} has fields")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(file, max_header_size=HEADER_BYTES)
        if dtype.kind in "OV":
            raise ValueError(f"{member.filename} holds {'Python objects' if dtype.hasobject else 'fields'}")
        says, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if says != there:
            raise ValueError(f"the header of {member.filename} says {says} bytes, but {there} follow")
    with archive.open(member) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    if dtype.kind == "U":
        array.tolist()  # raises an error if a code point is invalid
    return array
