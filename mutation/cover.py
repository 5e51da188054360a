"""Which test executes which lines of the files that are mutated, and how long it takes."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from mutation.mutants import Mutant, places


@dataclass(frozen=True)
class Covered:
    """What one test does."""

    seconds: float
    lines: Mapping[str, Sequence[int]]
    """The lines that it executes in each file, if any."""
    source: str = ""
    """The hash of the test's own function."""

    @property
    def breadth(self) -> int:
        """How many lines in all."""
        return sum(map(len, self.lines.values()))


@dataclass
class Cover:
    """What all tests do; kept in a file, because it takes minutes to find out."""

    tests: dict[str, dict[str, Covered]] = field(default_factory=dict)
    """By the test's file and node id. A test that fails or takes too long is not in it."""
    hashes: dict[str, str] = field(default_factory=dict)
    """Of every file, mutated or with tests, as it was."""
    places: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Where the functions of the mutated files were."""

    @classmethod
    def read(cls, path: Path) -> Cover:
        """What is known from before."""
        if not path.exists():
            return cls()
        plain = json.loads(path.read_text())
        tests = {
            file: {name: Covered(**each) for name, each in tests.items()} for file, tests in plain["tests"].items()
        }
        return cls(tests, plain["hashes"], plain["places"])

    def write(self, path: Path) -> None:
        """Keep it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))

    def knows(self, file: str, root: Path) -> bool:
        """Whether a file is as it was."""
        return self.hashes.get(file) == hash_of(root / file)

    def forget(self, tests: Collection[str], files: Collection[str], root: Path) -> None:
        """Drop what is known of files of tests that are gone; if a mutated file is new, everything."""
        self.tests = {file: known for file, known in self.tests.items() if file in tests or (root / file).exists()}
        if any(file not in self.hashes for file in files):
            self.tests, self.hashes = {}, {file: hash_of(root / file) for file in files}
            self.places = {file: places((root / file).read_text(encoding="utf-8")) for file in files}

    def covering(self, mutant: Mutant, root: Path) -> dict[str, Covered]:
        """The tests that execute a mutated statement; in a file that changed since, those that enter its function.

        Of a constant or a new function: those that execute any line of the file.
        """
        if self.knows(mutant.file, root):
            ranges = [mutant.lines]
        else:  # some tests were measured with the file as it was, others as it is
            text = (root / mutant.file).read_text(encoding="utf-8")
            either = self.places[mutant.file].get(mutant.function), _places(text).get(mutant.function)
            ranges = [each for each in either if each] if either[0] else []
        wanted = {line for first, last in ranges for line in range(first, last + 1)}
        if mutant.constant:
            wanted = set()
        found = {}
        for tests in self.tests.values():
            for name, each in tests.items():
                executed = each.lines.get(mutant.file, ())
                if executed and (not wanted or not wanted.isdisjoint(executed)):
                    found[name] = each
        return found


@lru_cache(maxsize=64)
def _places(text: str) -> dict[str, tuple[int, int]]:
    return places(text)


def hash_of(path: Path) -> str:
    """A file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def traced(files: Mapping[str, str], run: Callable[[], object]) -> tuple[dict[str, list[int]], float]:
    """The lines of these files (by the name in their code) that a call executes, and its seconds."""
    lines: dict[str, set[int]] = {name: set() for name in files}

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_filename].add(frame.f_lineno)
        return local

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename in lines else None

    started = time.perf_counter()
    threading.settrace(entered)
    sys.settrace(entered)
    try:
        run()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    seconds = time.perf_counter() - started
    return {files[name]: sorted(each) for name, each in lines.items() if each}, round(seconds, 3)
