"""Where an engine puts what may not fit into memory: temporary files that vanish with whoever holds them."""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np

from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.grid import blocks
from secea.arrays import in_a_temporary_file
from secea.party.form import HELD_BYTES


def held() -> IO[bytes]:
    """For a server: room for an upload that is not complete."""
    return tempfile.SpooledTemporaryFile(HELD_BYTES)  # whoever writes into it closes it


def copied(matrix: Floats) -> Floats:
    """For a client: a copy of its table. If the table lies in a file, so does the copy, and nobody else can open it."""
    if not in_a_file(matrix):
        return np.array(matrix)
    copy = in_a_temporary_file(matrix.shape, matrix.dtype)
    start = 0
    for block in blocks(matrix):
        copy[start : start + len(block)] = block
        start += len(block)
    return copy


def in_a_file(matrix: Floats) -> bool:
    """Whether an array is a view of a memory-mapped file."""
    base: object = matrix
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False
