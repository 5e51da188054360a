"""Files of arrays, as `np.savez` writes them: read without code, and whatever is wrong with one is one error."""

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
"""The most that a header may have: that of a plain array has 118, and a long one could nest too deeply to be read."""


def read_arrays(path: Path, advice: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file. Where it is none, a `DataError` names it, and ends with what to do about it."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        with raw, zipfile.ZipFile(raw) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of headers that Python 2 wrote
            return {member.filename.removesuffix(".npy"): _array(archive, member) for member in archive.infolist()}
    except MemoryError:  # the file may be right
        raise
    except Exception as error:  # neither zipfile nor numpy says what it raises for a damaged file: it is all sorts
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} is no .npz file of plain arrays ({why}); {advice}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array. Its header must fit its bytes, so all of them are read, and zipfile then compares their checksum."""
    if member.comment:  # numpy writes none: a damaged length makes one of the members that follow
        raise ValueError(f"{member.filename} has a comment")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version > (2, 0):  # made for the names of fields alone
            raise ValueError(f"{member.filename} has fields")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(file, max_header_size=HEADER_BYTES)
        if dtype.kind in "OV":
            raise ValueError(f"{member.filename} holds {'Python objects' if dtype.hasobject else 'fields'}")
        says, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if says != there:
            raise ValueError(f"the header of {member.filename} says {says} bytes, and {there} follow")
    with archive.open(member) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    if dtype.kind == "U":
        array.tolist()  # an error where a character is none
    return array
