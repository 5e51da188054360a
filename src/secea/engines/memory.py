"""How much memory this process has, for its party's log. Linux says so; elsewhere nothing is noted."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")
_NAMES: Final = {"VmRSS:": "memory", "VmHWM:": "peak"}


def resident() -> dict[str, int]:
    """Bytes in memory now (`memory`), and the most there were (`peak`); nothing where the system does not say."""
    found = dict[str, int]()
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            words = line.split()
            if words and words[0] in _NAMES:
                found[_NAMES[words[0]]] = int(words[1]) << 10  # it says kB
    return found
