"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """A run can begin; somebody should look at it."""
    WRONG = "wrong"
    """A run cannot begin, or would not be what was agreed on."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    level: Level
    says: str
    do: str = ""
    """What to do about it."""


def ok(about: str, says: str) -> Finding:
    """As it should be."""
    return Finding(about, Level.OK, says)


def warning(about: str, says: str, do: str = "") -> Finding:
    """A run can begin; somebody should look at it."""
    return Finding(about, Level.WARNING, says, do)


def wrong(about: str, says: str, do: str = "") -> Finding:
    """A run cannot begin, or would not be what was agreed on."""
    return Finding(about, Level.WRONG, says, do)


def size(count: float) -> str:
    """Bytes for people."""
    unit, factor = next((each for each in (("GB", 1e9), ("MB", 1e6)) if count >= each[1]), ("kB", 1e3))
    return f"{count / factor:,.0f} {unit}" if count >= 10 * factor else f"{count / factor:,.1f} {unit}"
