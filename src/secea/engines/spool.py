"""Where an engine puts what may not fit into memory: temporary files that vanish with whoever holds them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np

from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.grid import blocks
from secea.arrays import in_a_temporary_file
from secea.party.form import HELD_BYTES, Held


class Spool(Held):
    """For a server: a small message in memory, a large one in a temporary file."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._sizes: list[int] = []
        self._file = tempfile.TemporaryFile() if size > HELD_BYTES else None  # noqa: SIM115  # it lives as long as this

    def put(self, chunk: memoryview) -> None:
        """The next chunk."""
        if self._file is None:
            super().put(chunk)
            return
        self._file.write(chunk)
        self._sizes.append(len(chunk))

    def chunks(self) -> Iterator[memoryview]:
        """All of them, in order."""
        yield from super().chunks()
        if self._file is not None:
            self._file.seek(0)
            for size in self._sizes:
                yield memoryview(self._file.read(size))

    def close(self) -> None:
        """Forget them."""
        super().close()
        if self._file is not None:
            self._file.close()


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
