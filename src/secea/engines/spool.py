"""Where an engine puts what may not fit into memory: temporary files that vanish with whoever holds them."""

from __future__ import annotations

import math
import mmap
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.grid import blocks
from secea.arrays import in_a_temporary_file
from secea.party.form import HELD_BYTES, Held, Room
from secea.party.server import Server
from secea.wire.messages import Buffer

_FILE_BYTES: Final = 1 << 27
_ALIGNED: Final = 64


def use_files(server: Server) -> None:
    """What is too large for the memory of a server goes to temporary files."""
    server.part.held, server.part.room = Spool, Files()


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


class Files(Room):
    """For a server: room in temporary files that are mapped into memory. A file goes when nobody uses what is in it."""

    def __init__(self) -> None:
        self._file = mmap.mmap(-1, 1)
        self._used = 1

    def _bytes(self, size: int) -> memoryview:
        if self._used + size > len(self._file):
            with tempfile.TemporaryFile() as file:  # the map keeps what the file has
                file.truncate(max(size, _FILE_BYTES))
                self._file, self._used = mmap.mmap(file.fileno(), 0), 0
        start = self._used
        self._used = -(-(start + size) // _ALIGNED) * _ALIGNED
        return memoryview(self._file)[start : start + size]

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A new array in a file."""
        return np.frombuffer(self._bytes(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)

    def kept(self, message: Buffer) -> Buffer:
        """The same bytes in a file."""
        copy = self._bytes(len(message))
        copy[:] = message
        self.rest(copy)
        return copy

    def rest(self, what: Buffer | NDArray[Any]) -> None:
        """Its memory is free until somebody looks at it again; it is in the file."""
        rest(what)


def rest(what: Buffer | NDArray[Any]) -> None:
    """What lies in one of these files is not needed in memory for now."""
    while isinstance(what, np.ndarray) and what.base is not None:
        what = what.base
    if isinstance(what, memoryview) and isinstance(what.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        what.obj.madvise(mmap.MADV_DONTNEED)


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
