"""Follow a party's log, from the oldest line that is kept to the one that is written now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from secea.engines.log import KEPT

MOST_BYTES: Final = 1 << 20
"""A line that is longer is none of ours, and is skipped."""


class Follower:
    """Gives each line of a log once. Logs that were put aside come first, in their order.

    A log that is put aside while it is read is read to its end. Lines are missed only if `KEPT` more logs are filled
    between two calls.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[BinaryIO] = []  # the one that is read, and newer ones
        self._read: list[BinaryIO] = []  # those that were read; while they are open, no other file gets their numbers
        self._rest, self._skips = b"", False

    def lines(self) -> Iterator[bytes]:
        """All whole lines that have come since the last call."""
        while True:
            self._look()
            if not self._files:
                return
            yield from self._new(self._files[0])
            if len(self._files) == 1:
                return
            yield from self._new(self._files[0])  # what came between the end of the file and the next one's begin
            self._done()

    def close(self) -> None:
        """Let go of all files."""
        for file in (*self._files, *self._read):
            file.close()
        self._files, self._read = [], []

    def __del__(self) -> None:
        self.close()

    def _look(self) -> None:
        """Open all files that are there, from the newest to the oldest: one that is renamed meanwhile is seen twice."""
        if self._files and _is_at(self._files[-1], self._path):
            return
        known = {_id(file) for file in (*self._files, *self._read)}
        there, found = set[tuple[int, int]](), list[BinaryIO]()
        file: BinaryIO
        for path in (self._path, *(self._path.with_name(f"{self._path.name}.{i}") for i in range(1, KEPT + 1))):
            with suppress(FileNotFoundError):
                file = path.open("rb")
                there.add(_id(file))
                if _id(file) in known:
                    file.close()
                else:
                    known.add(_id(file))
                    found.append(file)
        self._files += reversed(found)
        for file in [file for file in self._read if _id(file) not in there]:
            self._read.remove(file)
            file.close()

    def _new(self, file: BinaryIO) -> Iterator[bytes]:
        """The whole lines from here to the end of a file; a part of a line waits for its end."""
        if os.fstat(file.fileno()).st_size < file.tell():  # somebody has emptied it
            file.seek(0)
            self._rest, self._skips = b"", False
        while some := file.read(MOST_BYTES):
            *lines, self._rest = (self._rest + some).split(b"\n")
            for line in lines:
                if self._skips:
                    self._skips = False
                else:
                    yield line
            if len(self._rest) > MOST_BYTES:
                self._rest, self._skips = b"", True

    def _done(self) -> None:
        """Go on with the next file."""
        self._read.append(self._files.pop(0))
        self._rest, self._skips = b"", False


def _id(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:  # it was put aside, and no new one has begun
        return True
