"""The same run with several seeds: one folder, a run folder for each seed below it, and what all of them say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from secea.engines.federation import Progress
from secea.errors import DataError
from secea.learn import config as settings
from secea.learn.config import Config
from secea.learn.folder import Folder
from secea.learn.run import Run, Watch
from secea.learn.verdict import About, judged, seen_of

SEEDS: Final = "seeds.json"
"""What makes a folder one of several seeds: all settings, and the seeds."""


class Seeds:
    """The runs of a folder: new, or to be continued."""

    def __init__(self, folder: Path, config: Config, seeds: Sequence[int]) -> None:
        self.folder, self.config, self.seeds = Folder(folder), config, tuple(seeds)
        self._first = self._run(self.seeds[0])
        """Read at once: what cannot be run is refused before anything is written."""

    @classmethod
    def begin(cls, folder: Path, config: Config, seeds: Sequence[int]) -> Seeds:
        """A new folder."""
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder} is not empty; continue its runs with --resume {folder}, or choose another --out")
        begun = cls(folder, config, seeds)
        begun.folder.write_json(SEEDS, {"seeds": list(seeds), **config.to_json()})
        begun._first.record()
        return begun

    @classmethod
    def resume(cls, folder: Path) -> Seeds:
        """A folder that was left unfinished."""
        try:
            seeds = [int(seed) for seed in json.loads((folder / SEEDS).read_text(encoding="utf-8"))["seeds"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder / SEEDS} does not hold the seeds of a run: {error}") from None
        return cls(folder, settings.read(folder / SEEDS), seeds)

    def _run(self, seed: int) -> Run:
        folder = self.folder.path / f"seed-{seed}"
        if (folder / "config.json").exists():
            return Run.resume(folder)
        return Run(folder, replace(self.config, seed=seed))

    @property
    def rounds(self) -> int:
        """The rounds of a method, over all seeds."""
        return len(self.seeds) * self.config.rounds

    @property
    def tested(self) -> bool:
        """Whether any client has test data."""
        return self._first.tested

    def go(self, watch: Watch, progress: Progress | None = None) -> dict[str, Any]:
        """Run all seeds, from where they stopped. Returns what `--json` prints."""
        results, seen = [], []
        for at, seed in enumerate(self.seeds):
            run = self._run(seed) if at else self._first
            run.record()
            results.append(run.go(partial(_further, watch, at * self.config.rounds), progress))
            seen.append(seen_of(results[-1], run.folder.lines("metrics.jsonl")))
        first = results[0]
        about = About.of(first["config"], first["metric"], first["config"]["methods"], higher=self._first.higher)
        result = {"verdict": judged(about, seen).to_json(), **_together(results), "run": str(self.folder.path)}
        self.folder.write_json("result.json", result)
        return result


def _further(watch: Watch, before: int, method: str, round: int) -> None:
    """The rounds of all seeds, one after another."""
    watch(method, before + round)


def _together(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, with the lowest and the highest; everything else of the first."""
    first = results[0]
    return {
        "methods": {
            method: {name: spread(each["methods"][method][name] for each in results) for name in values}
            for method, values in first["methods"].items()
        },
        "metric": first["metric"],
        "better": first["better"],
        "seeds": [each["config"]["seed"] for each in results],
        "config": {name: value for name, value in first["config"].items() if name != "seed"},
        "seconds": {
            method: {what: fmean(each["seconds"][method].get(what, 0.0) for each in results) for what in spent}
            for method, spent in first["seconds"].items()
        },
        "protection": _means([each["protection"] for each in results]),
        "sharing": first["sharing"],
        "epsilon": first["epsilon"],
        **({"privacy": first["privacy"]} if "privacy" in first else {}),
        "messages": _messages(results),
        "runs": [each["run"] for each in results],
    }


def spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """The mean of a metric, the lowest and the highest; None where no seed has a number."""
    given = [value for value in values if value is not None]
    return {"mean": fmean(given), "low": min(given), "high": max(given)} if given else None


def _means(costs: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    there = [cost for cost in costs if cost]
    return {name: fmean(cost[name] for cost in there) for name in there[0]} if there else None


def _messages(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What every seed says; what only some say stands in their folders."""
    every = [message for message in results[0]["messages"] if all(message in each["messages"] for each in results)]
    others = sum(len(each["messages"]) for each in results) - len(results) * len(every)
    return [*every, f"{others} notes about single seeds are in their folders, in result.json"] if others else every
