"""All methods on real data: how close secea is to plain, what sharing is worth, and what protection costs.

    python bench/learning.py umls --seeds 0 1 2
    python bench/learning.py codex-s ddb14 douban lastfm --folder DATA        # files as named in SETTINGS below
    python bench/learning.py ddb14-fede --folder DATA --rounds 3 --methods secea    # the share of protection alone
    python bench/learning.py fb15k-r10 fb15k-r3 fb15k-r10-rotate --folder DATA --device cuda
    python bench/learning.py umls --seeds 0 1 2 --errors 3       # also plain means with an error as secure ones have

Each run goes to RUNS/NAME-SEED (--runs), and is continued from there if it was stopped, or taken as it is if finished.
Plain means with an error go to RUNS/NAME-SEED-error-NUMBER.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table as Grid

from secea.engines.federation import Progress
from secea.learn.config import resolved
from secea.learn.methods import METHODS, Matrix, Mean, Method
from secea.learn.run import Run
from secea.learn.show import bars

FEDE = {
    "dim": 128, "negatives": 256, "lr": 0.001, "batch": 512, "epochs": 3, "margin": 10.0, "norm": 1, "temperature": 1.0,
    "rounds": 300, "every": 10,
}  # fmt: skip
SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "umls": ("kg", "umls", {"clients": 8}),
    "codex-s": ("kg", "codex-s", {"clients": 6, "core": 0.15, "batch": 512, "rounds": 30}),
    "ddb14": (
        "kg",
        "kg_ddb14_fed5.npz",
        {"norm": 1, "margin": 10.0, "batch": 512, "lr": 0.005, "rounds": 30, "every": 10},
    ),
    "ddb14-fede": ("kg", "kg_ddb14_fed5.npz", FEDE),
    "ddb14-128": ("kg", "kg_ddb14_fed5.npz", FEDE | {"norm": 2}),
    "douban": ("recommend", "rec_douban.npz", {"clients": 10}),
    "lastfm": ("social", "social_lastfm_asia.npz", {"clients": 6}),
    "fb15k-r10": ("kg", "kg_fb15k237_r10.npz", FEDE),
    "fb15k-r3": ("kg", "kg_fb15k237_r3.npz", FEDE),
    "fb15k-r10-rotate": ("kg", "kg_fb15k237_r10.npz", FEDE | {"model": "rotate"}),
    "fb15k-r3-rotate": ("kg", "kg_fb15k237_r3.npz", FEDE | {"model": "rotate"}),
}
"""Task, data, and what differs from the defaults of `secea train`."""


class Shaken:
    """Plain means with an error of the same law as that of secure ones: one wide number of each client."""

    def __init__(self, ids: Sequence[Any], resolution: float, draw: int) -> None:
        self._mean, self._ids, self._rng = Mean(ids, common=False), ids, np.random.default_rng(draw)
        self.there = self._mean.there
        self._union, self._half = int(max(own[-1] for own in ids)) + 1, 0.85 * resolution / len(ids)

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """All owners of an entity get the same error."""
        shape = len(self._ids), self._union, tables[0].shape[1]
        error = self._rng.uniform(-self._half, self._half, shape).sum(axis=0)
        return [rows + error[own] for own, rows in zip(self._ids, self._mean.aggregate(tables), strict=True)]


class ShakenRun(Run):
    """A run whose method `plain` has such an error."""

    draw = 0

    def _aggregation(self, name: str, begun: int, progress: Progress | None) -> Method | None:
        assert name == "plain"
        print(f"{self.config.data}: precision {self.params.precision}, resolution {self.params.resolution:.3g}")
        return Shaken(self.task.ids, self.params.resolution, self.draw)


def finished(
    name: str, seed: int, runs: Path, folder: Path, more: dict[str, Any], error: int | None = None
) -> dict[str, Any]:
    task, source, settings = SETTINGS[name]
    place = runs / (f"{name}-{seed}" if error is None else f"{name}-{seed}-error-{error}")
    where = source if source == "umls" else str(folder / source)
    kind = Run if error is None else ShakenRun
    if (place / "config.json").exists():
        run = kind.resume(place)
    else:
        run = kind.begin(place, resolved(task, (where,), **(settings | more | {"seed": seed})))
    if isinstance(run, ShakenRun):
        run.draw = 1000 * seed + (error or 0)
    with bars(run.config.methods, run.config.rounds, Console(stderr=True)) as (watch, progress):
        return run.go(watch, progress)


def shaken(name: str, args: argparse.Namespace, more: dict[str, Any], metric: str) -> str:
    """The mean over all seeds, for each draw of the errors: the lowest and the highest."""
    means = [
        statistics.mean(
            finished(name, seed, args.runs, args.folder, more | {"methods": ("plain",)}, error)["methods"]["plain"][
                metric
            ]
            for seed in args.seeds
        )
        for error in range(args.errors)
    ]
    return f"{min(means):.4f} to {max(means):.4f}" if means else "-"


def spread(values: Sequence[float]) -> str:
    """The mean, and the lowest and highest of several."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} ({min(values):.3f}-{max(values):.3f})"


def warm_up() -> None:
    """What PyTorch loads at the first step is not part of a round."""
    parameter = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.Adam([parameter], fused=True)
    parameter.square().sum().backward()
    optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SETTINGS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=Path(), help="where the data lies")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--errors", type=int, default=0, help="draws of plain means with the error of secure ones")
    args = parser.parse_args()
    warm_up()
    more: dict[str, Any] = {"methods": tuple(args.methods), "device": args.device}
    more |= {} if args.rounds is None else {"rounds": args.rounds}
    quality = Grid("data", "metric", *args.methods, "secea - plain, at most", "plain with an error, means", box=None)
    cost = Grid(
        "data",
        "training s a round",
        "protection s a round",
        "share",
        "CPU s",
        "share of CPU",
        "MB a round",
        "set-up s",
        box=None,
    )
    for name in args.names:
        results = [finished(name, seed, args.runs, args.folder, more) for seed in args.seeds]
        metric = results[0]["metric"]
        values = {method: [result["methods"][method][metric] for result in results] for method in args.methods}
        apart = "-"
        if {"secea", "plain"} <= values.keys():
            pairs = zip(values["secea"], values["plain"], strict=True)
            apart = f"{max(abs(a - b) for a, b in pairs):.5f}"
        quality.add_row(
            name, metric, *(spread(values[method]) for method in args.methods), apart, shaken(name, args, more, metric)
        )
        for seed, result in zip(args.seeds, results, strict=True):
            if (paid := result["protection"]) is not None:
                training = result["seconds"]["secea"]["training"] / result["config"]["rounds"]
                cost.add_row(
                    f"{name}, seed {seed}", f"{training:.2f}", f"{paid['seconds_per_round']:.2f}",
                    f"{paid['share_of_training']:.1%}", f"{paid['cpu_seconds_per_round']:.2f}",
                    f"{paid['share_of_training_cpu']:.1%}",
                    f"{paid['round_bytes'] / 1e6:.1f}", f"{paid['setup_seconds']:.2f}",
                )  # fmt: skip
    console = Console(width=180)
    console.print(quality)
    console.print(cost)


if __name__ == "__main__":
    main()
