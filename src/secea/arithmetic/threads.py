"""How many cores a computation may use: all of them, unless similar computations run in parallel."""

from __future__ import annotations

import os
import threading
from typing import Final

_place: Final = threading.local()


def stay_in_this_thread() -> None:
    """From now on the calling thread uses a single core, since other threads like it keep the rest busy."""
    _place.alone = True


def cores() -> int:
    """The cores that the calling thread may use."""
    return 1 if getattr(_place, "alone", False) else os.cpu_count() or 1
