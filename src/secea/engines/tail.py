"""Follow a party's audit log: the lines that came since the last look, also when the log was put aside meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO


class Tail:
    """Reads a log from its end on, or from its begin."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        if not whole and (file := self._opened()):
            file.seek(0, os.SEEK_END)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What has come since. A line that is not whole yet waits for the next look."""
        while file := self._opened():
            *whole, self._rest = (self._rest + file.read()).split(b"\n")
            for line in whole:
                with suppress(ValueError):  # somebody else wrote into it
                    found = json.loads(line)
                    if isinstance(found, dict):
                        yield found
            if self._is_current(file):
                return
            file.close()
            self._file, self._rest = None, b""

    def _opened(self) -> BinaryIO | None:
        if self._file is None:
            with suppress(OSError):
                self._file = self._path.open("rb")
        return self._file

    def _is_current(self, file: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return True  # it was put aside, and nothing new has come
