"""Files of arrays, as numpy writes them: read without code, and whatever is wrong with one is one error."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from secea.errors import DataError

DAMAGED = (
    OSError, ValueError, EOFError, AttributeError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise for a file that is damaged, encrypted, of an unknown kind, or no archive at all."""


def read_arrays(path: Path, hint: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of an .npz file; a `DataError` names the file where it is none."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except DAMAGED as error:
        raise DataError(f"{path} is no .npz file of plain arrays ({error}){hint and f'; {hint}'}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(f"{path} is no .npz file of plain arrays ({name} is none){hint and f'; {hint}'}")
    return arrays
