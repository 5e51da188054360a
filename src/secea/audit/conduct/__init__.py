"""What parties do whatever happens: lives drawn from a number, in which everything may go wrong, beside a record.

`parties` has lives of a session, in which server, clients and network lie, fail and restart at random. `sites` has
lives of hosts and their driver, with disks and users. `figures` has what follows from parameters, names and tables.
Each `Life` notes what was done and a short hash of all that came of it. `record.json` has these hashes, of the code
that was examined. `python -m secea.audit.conduct.record` writes it after a change of what parties do, and only then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import numpy as np

T = TypeVar("T")
HASH_BYTES: Final = 2
"""Of each step. What is different once differs in all steps after it."""


def exactly(x: object) -> bytes:
    """Whatever it is, as bytes that are the same in every version of Python and numpy."""
    match x:
        case Enum():
            return exactly(x.name)
        case type():
            return exactly(x.__name__)
        case bytes() | bytearray() | memoryview():
            return b"b%d:" % len(x) + bytes(x)
        case bool() | None | np.bool_():
            return repr(None if x is None else bool(x)).encode()
        case int() | np.integer():
            return b"i%d" % int(x)
        case float() | np.floating():
            return b"f" + float(x).hex().encode()
        case str():
            return exactly(x.encode("utf-8", "surrogatepass"))
        case np.ndarray():
            return exactly((x.dtype.str, x.shape, x.tobytes()))
        case Mapping():
            return exactly(sorted((exactly(key), exactly(value)) for key, value in x.items()))
        case set() | frozenset():
            return exactly(sorted(map(exactly, x)))
        case list() | tuple():
            return b"(" + b",".join(map(exactly, x)) + b")"
        case _ if is_dataclass(x):
            return exactly((type(x).__name__, *((each.name, getattr(x, each.name)) for each in fields(x))))
        case Warning():
            return exactly((type(x).__name__, str(x)))
    raise TypeError(f"no record has a {type(x).__name__}")


class Dice:
    """Draws that depend on what they are of alone, on every machine and in every version of Python."""

    def __init__(self, *of: object) -> None:
        self._of, self._drawn = repr(of), 0

    def bytes(self, size: int) -> bytes:
        """So many bytes."""
        self._drawn += 1
        return hashlib.shake_128(f"{self._of} {self._drawn}".encode()).digest(size)

    def below(self, end: int) -> int:
        """A number from 0 on."""
        return int.from_bytes(self.bytes(8), "little") % end

    def chance(self, percent: int) -> bool:
        """Whether it happens."""
        return self.below(100) < percent

    def one(self, of: Sequence[T]) -> T:
        """One of these."""
        return of[self.below(len(of))]

    def some(self, of: Sequence[T], many: int) -> list[T]:
        """So many of these, in their order."""
        left = list(range(len(of)))
        chosen = [left.pop(self.below(len(left))) for _ in range(min(many, len(of)))]
        return [of[i] for i in sorted(chosen)]

    def value(self) -> float:
        """A number with six binary places, from -8 to 8."""
        return self.below(1024) / 64 - 8


class Life:
    """What was done, step by step, and what came of it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        """For each step what was done, in words."""
        self.came: list[list[str]] = []
        """And what came of it, in words. They tell where a life differs, and are no part of the record."""
        self.hashes: list[str] = []
        self._running: Any = hashlib.sha256()

    def note(self, what: str, *exact: object) -> None:
        """Something came of this step: in words, and exactly."""
        self.came[-1].append(what)
        self._running.update(what.encode() + b"\n")
        self._running.update(exactly(exact))

    def step(self, what: str) -> None:
        """Something is done now."""
        self._end()
        self.done.append(what)
        self.came.append([])

    def _end(self) -> None:
        if self.done:
            self.hashes.append(self._running.copy().digest()[:HASH_BYTES].hex())

    def over(self) -> str:
        """The hashes of all steps."""
        self._end()
        return "".join(self.hashes)
