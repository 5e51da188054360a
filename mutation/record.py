"""What became of all mutants: kept as JSON, compared with the list of harmless ones, and shown as tables."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mutation.mutants import Mutant
from mutation.trial import Outcome

KILLED: Final = ("killed", "timed out")
ALIVE: Final = ("survived", "not covered")


@dataclass(frozen=True)
class Harmless:
    """An entry of the list: changes of one statement that no test can or needs to notice, and why."""

    file: str
    function: str
    before: str
    after: tuple[str, ...]
    reason: str

    def names(self, mutant: Mutant) -> bool:
        """Whether it is about this mutant."""
        return (self.file, self.function, self.before) == (mutant.file, mutant.function, mutant.before) and (
            mutant.after in self.after
        )


def harmless(path: Path) -> list[Harmless]:
    """The list."""
    if not path.exists():
        return []
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("harmless", [])
    return [Harmless(**{**each, "after": tuple(each["after"])}) for each in entries]


@dataclass
class Record:
    """The outcomes of mutants, by what names them."""

    outcomes: dict[tuple[str, str, str, str, int], Outcome]

    @classmethod
    def read(cls, path: Path) -> Record:
        """A record from before."""
        entries = json.loads(path.read_text(encoding="utf-8"))["mutants"]
        names = ("file", "function", "before", "after", "nth")
        return cls({tuple(each[name] for name in names): Outcome(**each["outcome"]) for each in entries})

    def write(self, path: Path, mutants: Iterable[Mutant]) -> None:
        """Of these mutants, those that were tried."""
        entries = [
            {
                "file": m.file, "function": m.function, "before": m.before, "after": m.after, "nth": m.nth,
                "line": m.lines[0], "operator": m.operator, "outcome": asdict(self.outcomes[m.key]),
            }
            for m in mutants if m.key in self.outcomes
        ]  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"mutants": entries}, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Score:
    """The mutants of one file, or of all."""

    mutants: int
    killed: int
    timed_out: int
    harmless: int
    survivors: int

    @property
    def share(self) -> float:
        """Of those that a test should notice, how many were noticed."""
        return (self.killed + self.timed_out) / max(1, self.mutants - self.harmless)

    @classmethod
    def of(cls, mutants: Iterable[Mutant], record: Record, listed: Sequence[Harmless]) -> Score:
        """Of those that were tried."""
        counts: Counter[str] = Counter()
        for mutant in mutants:
            verdict = record.outcomes[mutant.key].verdict
            if verdict in ALIVE:
                verdict = "harmless" if any(each.names(mutant) for each in listed) else "survivors"
            counts[verdict] += 1
        counted = counts["killed"] + counts["timed out"] + counts["harmless"] + counts["survivors"]
        return cls(counted, counts["killed"], counts["timed out"], counts["harmless"], counts["survivors"])


def scores(mutants: Sequence[Mutant], record: Record, listed: Sequence[Harmless]) -> Mapping[str, Score]:
    """For each file, and for all of them."""
    tried = [mutant for mutant in mutants if mutant.key in record.outcomes]
    files = dict.fromkeys(mutant.file for mutant in tried)
    found = {file: Score.of([m for m in tried if m.file == file], record, listed) for file in files}
    return {**found, "all": Score.of(tried, record, listed)}


def survivors(mutants: Sequence[Mutant], record: Record, listed: Sequence[Harmless]) -> list[Mutant]:
    """Those that lived and are not listed."""
    alive = [m for m in mutants if m.key in record.outcomes and record.outcomes[m.key].verdict in ALIVE]
    return [mutant for mutant in alive if not any(each.names(mutant) for each in listed)]
