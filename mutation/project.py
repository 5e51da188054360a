"""What is mutated, which tests are run, and where the results are kept."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from mutation.cover import Cover
from mutation.mutants import Module, Mutant, module, variadic
from mutation.record import Harmless, Record, harmless
from mutation.swap import Running
from mutation.trial import Court, Tests, measure, warm

Step: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Project:
    """Files and tests, by their paths below the root."""

    root: Path
    source: str
    targets: Sequence[str]
    """Files and folders below the source, the most important first."""
    tests: Sequence[str]
    home: Mapping[str, Sequence[str]]
    """The files of tests that are about a mutated file."""
    listed: str
    """The list of harmless mutants."""
    cover: str
    """Where is kept what the tests cover."""
    left_out: Sequence[str] = ()
    """The names of files that are not mutated."""
    prose: Sequence[str] = ()
    """The names of files whose sentences are not mutated."""

    @property
    def files(self) -> dict[str, Path]:
        """The files that are mutated."""
        places = [self.root / self.source / target for target in self.targets]
        paths = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
        return {path.relative_to(self.root).as_posix(): path for path in paths if path.name not in self.left_out}

    def modules(self, only: Sequence[str] = ()) -> dict[str, Module]:
        """The mutants of each file, or of these files and functions (`PATH[:FUNCTION]`) alone."""
        sources = (self.root / self.source).rglob("*.py")
        many = variadic(path.read_text(encoding="utf-8") for path in sources)
        found = {
            name: module(path.read_text(encoding="utf-8"), name, many, prose=path.name in self.prose)
            for name, path in self.files.items()
        }
        for each in found.values():
            each.mutants = [mutant for mutant in each.mutants if not only or self._among(mutant, only)]
        return found

    def _among(self, mutant: Mutant, only: Sequence[str]) -> bool:
        for each in only:
            path, _, function = each.partition(":")
            in_file = mutant.file.startswith((path, f"{self.source}/{path}"))
            if in_file and (not function or f".{mutant.function}".endswith(f".{function}")):
                return True
        return False

    def at_home(self, modules: Mapping[str, Module]) -> Project:
        """The same with those tests alone that are about files of which something is mutated."""
        wanted = {test for file, each in modules.items() if each.mutants for test in self.home.get(file, ())}
        return replace(self, tests=[test for test in self.tests if test in wanted])

    def load(self) -> None:
        """Import the files that are mutated: tests may import some of them late."""
        package = (self.root / self.source).parent
        for path in self.files.values():
            place = path.relative_to(package).with_suffix("")
            import_module(".".join(place.parent.parts if place.name == "__init__" else place.parts))

    def harmless(self) -> list[Harmless]:
        """The list of harmless mutants."""
        return harmless(self.root / self.listed)

    def judge(
        self, modules: dict[str, Module], mutants: Sequence[Mutant], record: Record, *,
        jobs: int = 1, budget: float = 60, step: Step = lambda *_: None,
    ) -> None:  # fmt: skip
        """Measure what tests cover, where that is not known; then try the mutants, and put outcomes on record."""

        def work(tests: Tests) -> None:
            cover, files, kept = Cover.read(self.root / self.cover), self.files, time.monotonic()
            for number, _ in enumerate(measure(tests, files, cover, self.root, jobs), 1):
                step("what tests cover", number, len(tests.items))
                if time.monotonic() > kept + 20:
                    cover.write(self.root / self.cover)
                    kept = time.monotonic()
            cover.write(self.root / self.cover)
            self.load()
            court = Court(tests, Running.now(list(files.values())), cover, self.root, self.home, budget)
            gc.freeze()  # forks share what they do not look at
            for (file, function, *_), known in record.outcomes.items():
                court.learn(file, function, known)
            for number, (mutant, outcome) in enumerate(court.judged(modules, mutants, jobs), 1):
                record.outcomes[mutant.key] = outcome
                step("mutants", number, len(mutants))
            wrong = court.unreliable({record.outcomes[each.key].by for each in mutants}, jobs)
            for mutant in mutants:
                if record.outcomes[mutant.key].by in wrong:
                    del record.outcomes[mutant.key]  # it has no outcome, and is tried again next time

        if mutants:
            warm(self.root, self.tests, work)
