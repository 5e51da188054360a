"""What a run left behind: the files of its folder, read with care, and runs of one configuration taken together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arrays import read_arrays
from secea.errors import DataError
from secea.learn.metrics import ERRORS
from secea.report.figures import DASH, number

Json = dict[str, Any]
ALIKE: Final = {"seed", "secea", "run", "out"}
"""Settings in which runs of one configuration may differ."""
PLAIN: Final = ("data", "model", "task")
OPTIONS: Final = ("min_owners", "weights", "dp")
FIRST: Final = (*PLAIN, "clients", "split", *OPTIONS)
"""Settings by which configurations are called, if they differ in them; what is plain says itself."""
PARTS: Final = ("clients", "server", "sealing", "other")
"""Where the protocol's time goes; sealing is that of all parties."""
WITHOUT: Final = "remove it for a page without it"


@dataclass(frozen=True)
class Run:
    """One folder."""

    folder: Path
    config: Json
    overlap: Json
    metrics: list[Json]
    protocol: list[Json]
    result: Json | None
    """None where the run has not come to its end."""

    @property
    def methods(self) -> list[str]:
        """As they were asked for, then whatever else is there."""
        asked = self.config.get("methods")
        names = list(asked) if isinstance(asked, list) else []
        names += [*as_object((self.result or {}).get("methods")), *(line["method"] for line in self.metrics)]
        return list(dict.fromkeys(str(name) for name in names))

    @property
    def metric(self) -> str:
        """The main one."""
        return str((self.result or {}).get("metric") or self.config.get("metric") or "mrr")

    @property
    def higher(self) -> bool:
        """Whether more of it is better."""
        return str((self.result or {}).get("better") or self.config.get("better")) != "lower"

    def more_is_better(self, metric: str) -> bool:
        """For the main one the run says so; of the others, errors are better low."""
        return self.higher if metric == self.metric else metric.lower() not in ERRORS

    def lines(self, method: str) -> list[Json]:
        """The method's evaluated rounds, in order."""
        found = {line["round"]: line for line in self.metrics if line["method"] == method}
        return [found[r] for r in sorted(found)]

    def curve(self, method: str, metric: str) -> dict[int, float]:
        """The metric by round."""
        points = {}
        for line in self.lines(method):
            value = number(line.get("loss") if metric == "loss" else as_object(line.get("metrics")).get(metric))
            if value is not None:
                points[int(line["round"])] = value
        return points

    def final(self, method: str) -> dict[str, float]:
        """All metrics at the end, or of the last round so far."""
        given = as_object(as_object((self.result or {}).get("methods")).get(method))
        if self.result is None and (lines := self.lines(method)):
            given = as_object(lines[-1].get("metrics"))
        return {str(name): value for name, each in given.items() if (value := number(each)) is not None}

    def best(self, method: str) -> Json:
        """The round that was best on validation data: its number, its validation metric, and its test metrics."""
        return as_object(as_object((self.result or {}).get("best")).get(method))

    def client_finals(self, method: str, round: int | None = None) -> dict[str, tuple[float | None, str]]:
        """The main metric of each client at the end, or in a round; or why there is none."""
        lines = [line for line in self.lines(method) if round is None or line["round"] == round]
        clients = as_object(lines[-1].get("clients")) if lines else {}
        return {
            name: (number(as_object(own).get(self.metric)), str(as_object(own).get("why") or ""))
            for name, own in clients.items()
        }

    def spent(self, method: str) -> dict[str, float]:
        """Wall-clock seconds by what they were for."""
        given = as_object(as_object((self.result or {}).get("seconds")).get(method))
        if given:
            return {str(what): value for what, each in given.items() if (value := number(each)) is not None}
        total: dict[str, float] = {}
        for line in self.lines(method):
            for what, each in as_object(line.get("seconds")).items():
                total[str(what)] = total.get(str(what), 0.0) + (number(each) or 0.0)
        return total

    @cached_property
    def setup(self) -> Json | None:
        """The protocol's record of the set-up; of the last one, where the run was resumed."""
        return next((line for line in reversed(self.protocol) if line["round"] == 0), None)

    @cached_property
    def rounds(self) -> list[Json]:
        """The protocol's records of the rounds."""
        return [line for line in self.protocol if line["round"] > 0]

    @property
    def share_of_training(self) -> float | None:
        """What the protocol took, in units of the training's time."""
        given = number(as_object((self.result or {}).get("protection")).get("share_of_training"))
        spent = self.spent("secea")
        if given is None and spent.get("training"):
            return spent.get("aggregation", 0.0) / spent["training"]
        return given

    @property
    def sharing(self) -> Json:
        """Which means were asked for: minimum of owners, weights, and who has how many entities below the minimum."""
        return as_object((self.result or {}).get("sharing"))

    @property
    def below_minimum(self) -> dict[str, int]:
        """How many entities of each client had too few owners."""
        given = as_object(self.sharing.get("below_minimum")).items()
        return {str(client): int(count) for client, each in given if (count := number(each)) is not None}

    @property
    def privacy(self) -> Json:
        """What the run says of its differential privacy."""
        return as_object((self.result or {}).get("privacy"))

    @property
    def messages(self) -> list[str]:
        """What the run had to say."""
        said = (self.result or {}).get("messages")
        return [str(each) for each in said] if isinstance(said, list) else []

    @property
    def progress(self) -> str:
        """How far an unfinished run has come."""
        last = {method: lines[-1]["round"] for method in self.methods if (lines := self.lines(method))}
        planned = self.config.get("rounds")
        said = [f"{method} {at} of {planned}" for method, at in last.items()]
        return "rounds: " + ", ".join(said) if said else "nothing was evaluated yet"

    def embeddings(self, method: str) -> dict[str, tuple[list[str], NDArray[np.float64]]]:
        """The final tables by client: names and matrix."""
        found = {}
        for path in sorted((self.folder / "embeddings" / method).glob("*.npz"), key=lambda path: _natural(path.stem)):
            arrays = read_arrays(path, WITHOUT)
            if not {"names", "matrix"} <= arrays.keys():
                raise DataError(f"{path} holds no embeddings: it has no names, or no matrix; {WITHOUT}")
            names, matrix = arrays["names"], arrays["matrix"]
            if names.ndim != 1 or matrix.ndim != 2 or len(matrix) != len(names) or matrix.dtype.kind not in "iuf":
                shapes = f"names of shape {names.shape}, a matrix of {matrix.dtype} and shape {matrix.shape}"
                raise DataError(f"{path} holds no embeddings: {shapes}; {WITHOUT}")
            found[path.stem] = ([str(name) for name in names.tolist()], matrix.astype(np.float64))
        return found


def _natural(name: str) -> tuple[str, int]:
    """client 2 before client 10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def as_object(value: object) -> Json:
    """What is no object is taken for an empty one."""
    return value if isinstance(value, dict) else {}


def _json(path: Path) -> Json:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} holds no JSON object")
    return value


def _lines(path: Path, *, finished: bool, needs: Sequence[str]) -> Iterator[Json]:
    """One object per line. A run that is under way, or was killed, may end in the middle of a line."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for at, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            if at == len(lines) and not finished:
                return
            raise DataError(f"{path}, line {at}: {error}") from None
        if not isinstance(value, dict) or any(each not in value for each in needs):
            raise DataError(f"{path}, line {at}: expected an object with {', '.join(needs)}")
        if not isinstance(value.get("method", ""), str):
            raise DataError(f"{path}, line {at}: the method is {value['method']!r}, and no name")
        if isinstance(value["round"], bool) or not isinstance(value["round"], int):
            raise DataError(f"{path}, line {at}: the round is {value['round']!r}, and no number")
        yield value


def runs_in(folder: Path) -> list[Path]:
    """The folder itself; or, if `secea train --seeds` wrote it, the runs below it."""
    if not (folder / "seeds.json").exists():
        return [folder]
    return sorted((path.parent for path in folder.glob("*/config.json")), key=lambda path: _natural(path.name))


def read(folder: Path) -> Run:
    """The run in a folder, finished or not."""
    if not (folder / "config.json").is_file():
        there = "it has no config.json" if folder.is_dir() else "there is no such folder"
        raise DataError(f"{folder} is not the folder of a run: {there}; `secea train` makes such folders")
    result = _json(folder / "result.json") if (folder / "result.json").exists() else None
    finished = result is not None
    return Run(
        folder,
        _json(folder / "config.json"),
        _json(folder / "overlap.json") if (folder / "overlap.json").exists() else {},
        list(_lines(folder / "metrics.jsonl", finished=finished, needs=("method", "round"))),
        list(_lines(folder / "protocol.jsonl", finished=finished, needs=("round",))),
        result,
    )


@dataclass(frozen=True)
class Spread:
    """A number over several runs."""

    mean: float
    low: float
    high: float
    runs: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """The spread of the values that are not None."""
        given = [value for value in values if value is not None]
        return Spread(fmean(given), min(given), max(given), len(given)) if given else None


@dataclass(frozen=True)
class Group:
    """Runs of one configuration that differ in their seeds."""

    label: str
    """What sets it apart from the other groups; empty where there is one."""
    runs: Sequence[Run]

    @property
    def first(self) -> Run:
        """The run whose settings and picture represent all."""
        return self.runs[0]

    @property
    def methods(self) -> list[str]:
        """The methods of all runs."""
        return list(dict.fromkeys(method for run in self.runs for method in run.methods))

    def curve(self, method: str, metric: str) -> dict[int, Spread]:
        """The metric by round, over the runs that were evaluated in it."""
        curves = [run.curve(method, metric) for run in self.runs]
        rounds = sorted({r for curve in curves for r in curve})
        found = {r: Spread.of(curve.get(r) for curve in curves) for r in rounds}
        return {r: each for r, each in found.items() if each is not None}

    def metrics(self) -> list[str]:
        """All metrics that there are at the end, the main one first."""
        names = [name for method in self.methods for run in self.runs for name in run.final(method)]
        return list(dict.fromkeys([self.first.metric, *names]))

    def final(self, method: str, metric: str) -> Spread | None:
        """The metric at the end."""
        return Spread.of(run.final(method).get(metric) for run in self.runs)

    def per_round(self) -> dict[str, float]:
        """Mean seconds of a round: training, and the protocol, its wall-clock time divided as its CPU time."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            training = run.spent("secea").get("training")
            if not run.rounds or training is None:
                continue
            found.setdefault("training", []).append(training / len(run.rounds))
            wall = fmean(number(line.get("wall")) or 0.0 for line in run.rounds)
            cpu = dict.fromkeys(PARTS, 0.0)
            for line in run.rounds:
                for part, each in as_object(line.get("cpu")).items():
                    cpu[part if part in cpu else "other"] += number(each) or 0.0
            total = sum(cpu.values())
            for part in PARTS:
                found.setdefault(part, []).append(wall * cpu[part] / total if total else 0.0)
            if not total:
                found["other"][-1] = wall
        return {part: fmean(values) for part, values in found.items()}

    def traffic(self, *, setup: bool) -> dict[str, float]:
        """Mean bytes by kind of message: of the set-up, or of a round; the largest first."""
        lines = [line for run in self.runs for line in ([run.setup] if setup else run.rounds) if line]
        total: dict[str, float] = {}
        for line in lines:
            for kind, count in as_object(line.get("bytes")).items():
                total[str(kind)] = total.get(str(kind), 0.0) + (number(count) or 0.0)
        return dict(sorted(((kind, each / len(lines)) for kind, each in total.items() if each), key=lambda kv: -kv[1]))

    def mean_of(self, what: str, *, setup: bool = False) -> float | None:
        """The mean of a field of the protocol's records."""
        lines = [line for run in self.runs for line in ([run.setup] if setup else run.rounds) if line]
        found = Spread.of(number(line.get(what)) for line in lines)
        return found.mean if found else None


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Group runs that differ only in their seeds. Groups are named by what sets them apart."""
    if not runs:
        raise DataError("there is no run to report on")
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        alike = {name: value for name, value in run.config.items() if name not in ALIKE}
        by_config.setdefault(json.dumps(alike, sort_keys=True), []).append(run)
    configs = [own[0].config for own in by_config.values()]
    names = sorted(differing(configs), key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    labels = [""] * len(configs)
    for name in names:  # as few of them as tell all apart
        said = _said(name, [config.get(name) for config in configs])
        labels = [", ".join(filter(None, each)) for each in zip(labels, said, strict=True)]
        if len(set(labels)) == len(labels):
            break
    return [Group(label or "no options", own) for label, own in zip(labels, by_config.values(), strict=True)]


def _said(name: str, values: Sequence[object]) -> list[str]:
    """A setting of several configurations, in words that tell them apart. Options that are off need none."""
    if name in PLAIN:
        return [*map(shown, values)]
    words = [_option(name, value) for value in values] if name in OPTIONS else []
    if len(set(words)) == len({shown(value) for value in values}):
        return words
    return [f"{name} {shown(value)}" for value in values]


def _option(name: str, value: object) -> str:
    match name, value:
        case "min_owners", int(least) if least > 1:
            return f"{least} owners or more"
        case "weights", True:
            return "weighted"
        case "dp", {"epsilon": epsilon}:
            return f"epsilon {shown(epsilon)}"
    return ""


def differing(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """The settings that are not the same in all configurations."""
    every = dict.fromkeys(name for config in configs for name in config if name not in ALIKE)
    return [name for name in every if any(config.get(name) != configs[0].get(name) for config in configs)]


def shown(value: object) -> str:
    """A setting, as people read it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return DASH if value is None else str(value)
