"""pytest in a process that is warm: everything is imported and collected once, and each trial is a fork of it."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

from mutation.cover import Cover, Covered, hash_of, traced
from mutation.mutants import Module, Mutant
from mutation.swap import NotApplicable, Running

MEMORY: Final = 8 << 30
"""A mutant that asks for more is killed by that."""
PATIENCE: Final = 10
GRACE = 10.0
"""A test that takes so many times as long as it did, and so many seconds more, hangs."""
SLOWEST: Final = 60
"""Seconds. Tests that take longer are not used."""
BESIDE: Final = 0.02
"""Seconds that a test takes beside its own work."""
NARROW: Final = 200
"""Lines. A test that executes many more is not about one place."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed, by which test; timed out; survived; or it could not be put in place."""

    verdict: str
    by: str = ""
    seconds: float = 0.0
    tests: int = 0
    """How many tests were to be run."""


class Tests:
    """The collected tests, and forks of this process in which some of them run."""

    def __init__(self, session: pytest.Session) -> None:
        self.items: Final[Mapping[str, pytest.Item]] = {item.nodeid: item for item in session.items}
        self.failed: list[str] = []

    def source(self, name: str) -> str:
        """The hash of a test's own function."""
        text = inspect.getsource(getattr(self.items[name], "function"))  # noqa: B009 - an item need not have one
        return hashlib.sha256(text.encode()).hexdigest()

    def run(self, name: str, limit: float) -> bool:
        """Whether a test passes. This process ends if that takes longer than the limit."""
        item = self.items[name]
        signal.setitimer(signal.ITIMER_REAL, limit)
        before = len(self.failed)
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return len(self.failed) == before


def forked(work: Callable[[], object]) -> tuple[int, int]:
    """A child that does the work and writes what it returns, as JSON, to a pipe: its number and the pipe."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os.write(writing, json.dumps(work()).encode())
    finally:
        os._exit(0)


def answers(works: Iterator[tuple[Any, Callable[[], object]]], jobs: int) -> Iterator[tuple[Any, Any, int]]:
    """Work done in forks, so many at a time: each with what it returned, or None, and the signal that ended it."""
    running: dict[int, tuple[Any, int]] = {}
    more = True
    try:
        while more or running:
            while more and len(running) < jobs:
                if (next_one := next(works, None)) is None:
                    more = False
                else:
                    pid, pipe = forked(next_one[1])
                    running[pid] = next_one[0], pipe
            if running:
                pid, status = _ended()
                what, pipe = running.pop(pid)
                with os.fdopen(pipe, "rb") as reader:
                    data = _read_available(reader.fileno())
                yield what, json.loads(data) if data else None, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            _ended()


def _read_available(pipe: int) -> bytes:
    """What the child wrote, even if somebody that it started still holds the pipe."""
    os.set_blocking(pipe, False)
    data = b""
    with suppress(BlockingIOError):
        while more := os.read(pipe, 1 << 16):
            data += more
    return data


def _ended() -> tuple[int, int]:
    """The next child that ends, and its status. What it left behind ends too, while its number is still its own."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(ended.si_pid, signal.SIGKILL)
    return os.waitpid(ended.si_pid, 0)


class Warm:
    """A plugin for pytest: collects as always, and then does our work instead of running the tests."""

    def __init__(self, work: Callable[[Tests], None]) -> None:
        self._work = work
        self.tests: Tests | None = None
        self.error: BaseException | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Before test files are imported: no example is shrunk or kept."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        quiet = list(hypothesis.HealthCheck)
        settings = hypothesis.settings(database=None, phases=phases, suppress_health_check=quiet, print_blob=False)
        hypothesis.settings.register_profile("mutation", settings)
        hypothesis.settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Our work."""
        self.tests = Tests(session)
        try:
            self._work(self.tests)
        except BaseException as error:
            self.error = error
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has run."""
        if report.failed and self.tests:
            self.tests.failed.append(report.nodeid)


def warm(root: Path, paths: Sequence[str], work: Callable[[Tests], None]) -> None:
    """Collect the tests in these paths below a root, and do something with them."""
    plugin = Warm(work)
    options = ["-q", "-q", "--capture=no", "--assert=plain", "--tb=native", "-p", "no:xdist"]
    status = pytest.main([*options, f"--rootdir={root}", *(str(root / path) for path in paths)], plugins=[plugin])
    if plugin.error:
        raise plugin.error
    if plugin.tests is None:
        raise RuntimeError(f"the tests could not be collected: pytest ended with {status}")


# ---------------------------------------------------------------------------------------------------------- measuring


def measure(tests: Tests, files: Mapping[str, Path], cover: Cover, root: Path, jobs: int) -> Iterator[str]:
    """What each test executes that is new or changed; the names of tests as they are done."""
    running = {str(path): name for name, path in files.items()}
    by_file: dict[str, list[str]] = {}
    for name in tests.items:
        by_file.setdefault(name.partition("::")[0], []).append(name)
    cover.forget(by_file, files, root)
    due = {file: names for file, names in by_file.items() if not cover.knows(file, root)}
    for file, names in due.items():
        known = cover.tests.get(file, {})
        cover.tests[file] = {n: known[n] for n in names if n in known and known[n].source == tests.source(n)}
    missing = {file: [n for n in names if n not in cover.tests[file]] for file, names in due.items()}
    works = ((n, partial(_measured, tests, n, running)) for names in missing.values() for n in names)
    left = {file: len(names) for file, names in missing.items()}
    for name, answer, _ in answers(works, jobs):
        file = name.partition("::")[0]
        if answer:
            cover.tests[file][name] = Covered(**answer, source=tests.source(name))
        left[file] -= 1
        if not left[file]:
            cover.hashes[file] = hash_of(root / file)
        yield name
    cover.hashes |= {file: hash_of(root / file) for file in due}


def _measured(tests: Tests, name: str, files: Mapping[str, str]) -> object:
    passed: list[bool] = []
    lines, seconds = traced(files, lambda: passed.append(tests.run(name, SLOWEST)))
    return {"seconds": seconds, "lines": lines} if passed[0] else None


# ------------------------------------------------------------------------------------------------------------ mutants


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@dataclass
class Court:
    """Tries mutants. Quick tests that killed others of the same function or file are heard first.

    Then come those of the file's home, and those that execute little else.
    """

    tests: Tests
    running: Running
    cover: Cover
    root: Path
    home: Mapping[str, Sequence[str]]
    """The files of tests that are about a mutated file, the one that notices most first."""
    budget: float
    """Seconds of tests, as measured, for one mutant."""

    def __post_init__(self) -> None:
        self._kills: dict[tuple[str, str], int] = {}
        self._killed: dict[str, int] = {}

    def _share(self, where: str, name: str) -> float:
        """Of the mutants killed there, how many this test killed, as far as that can be told from few."""
        return self._kills.get((where, name), 0) / (2 + self._killed.get(where, 0))

    def learn(self, file: str, function: str, outcome: Outcome) -> None:
        """Remember which test killed a mutant there."""
        if outcome.by in self.tests.items:
            for where in (f"{file}:{function}", file):
                self._kills[where, outcome.by] = self._kills.get((where, outcome.by), 0) + 1
                self._killed[where] = self._killed.get(where, 0) + 1

    def chosen(self, mutant: Mutant) -> list[tuple[str, float]]:
        """The tests for a mutant, in order, and their times."""
        here, home = f"{mutant.file}:{mutant.function}", self.home.get(mutant.file, ())
        covering = {n: c for n, c in self.cover.covering(mutant, self.root).items() if n in self.tests.items}

        def rank(name: str) -> float:
            """Seconds for each mutant that it may kill: by what it killed, and what it is about."""
            file, each = name.partition("::")[0], covering[name]
            about = 1.0 if file in home[:1] else 0.2 if file in home else 0.02
            chance = 0.1 * about * NARROW / (NARROW + each.breadth)
            chance += 0.8 * self._share(here, name) + 0.2 * self._share(mutant.file, name)
            return (each.seconds + BESIDE) / chance

        spent = 0.0
        chosen: list[tuple[str, float]] = []
        for name in sorted(covering, key=rank):
            seconds = covering[name].seconds
            if not chosen or spent + seconds <= self.budget:
                chosen.append((name, seconds))
                spent += seconds
        return chosen

    def tried(self, module: Module, mutant: Mutant) -> Callable[[], object]:
        """The work of a fork: the mutant in place, and tests until one fails."""
        chosen = self.chosen(mutant)

        def work() -> object:
            _limit_memory()
            try:
                self.running.put(module, mutant, self.root / mutant.file)
            except (NotApplicable, SyntaxError, ValueError):
                return ["not applicable", "", len(chosen)]
            except Exception:  # whatever it raises, the module cannot be imported
                return ["killed", "import", len(chosen)]  # a constant that cannot even be computed
            for name, seconds in chosen:
                if not self.tests.run(name, GRACE + PATIENCE * seconds):
                    return ["killed", name, len(chosen)]
            return ["survived" if chosen else "not covered", "", len(chosen)]

        return work

    def unreliable(self, names: Collection[str], jobs: int) -> set[str]:
        """Those of some tests that fail though nothing is mutated: what they killed was killed by chance."""
        works = ((name, partial(self._passes, name)) for name in sorted(self.tests.items.keys() & set(names)))
        return {name for name, passed, _ in answers(works, jobs) if not passed}

    def _passes(self, name: str) -> bool:
        _limit_memory()
        return self.tests.run(name, SLOWEST)

    def judged(
        self, modules: Mapping[str, Module], mutants: Sequence[Mutant], jobs: int
    ) -> Iterator[tuple[Mutant, Outcome]]:
        """All of them, each with its outcome, as they are done."""
        begun = {}

        def works() -> Iterator[tuple[Mutant, Callable[[], object]]]:
            for mutant in mutants:
                begun[mutant.key] = time.perf_counter()
                yield mutant, self.tried(modules[mutant.file], mutant)

        for mutant, answer, number in answers(works(), jobs):
            seconds = round(time.perf_counter() - begun[mutant.key], 2)
            match answer:
                case [str(verdict), str(by), int(tests)]:
                    outcome = Outcome(verdict, by, seconds, tests)
                case _ if number == signal.SIGALRM:
                    outcome = Outcome("timed out", "", seconds)
                case _:
                    outcome = Outcome("killed", "the process died", seconds)
            self.learn(mutant.file, mutant.function, outcome)
            yield mutant, outcome
