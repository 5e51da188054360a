"""Follow a party's audit log: the lines that came since the last look, also when the log was put aside meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from secea.engines.log import KEPT


class Tail:
    """Reads a log from its end on, or from the begin of the oldest one that is kept. It keeps no file open."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._files = [*(path.with_name(f"{path.name}.{i}") for i in range(KEPT, 0, -1)), path]
        self._inode, self._offset = 0, 0
        if not whole:
            with suppress(OSError):
                found = path.stat()
                self._inode, self._offset = found.st_ino, found.st_size

    def lines(self) -> Iterator[dict[str, Any]]:
        """What has come since. A line that is not whole yet waits for the next look."""
        for path in self._since():
            with suppress(FileNotFoundError), path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    with suppress(ValueError):  # somebody else wrote into it
                        found = json.loads(line)
                        if isinstance(found, dict):
                            yield found

    def _since(self) -> list[Path]:
        """The file that was read last, wherever it is now, and those that came after it."""
        there = [path for path in self._files if path.exists()]
        for i, path in enumerate(there):
            with suppress(FileNotFoundError):
                if path.stat().st_ino == self._inode:
                    return there[i:]
        return there
