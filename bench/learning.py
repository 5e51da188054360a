"""All methods on real data: how close secea is to plain, what sharing is worth, and what protection costs.

    python bench/learning.py umls --seeds 0 1 2
    python bench/learning.py codex-s ddb14 douban lastfm --folder DATA        # files as named in SETTINGS below
    python bench/learning.py ddb14-fede --folder DATA --rounds 3 --methods secea    # the share of protection alone
    python bench/learning.py fb15k-r10 fb15k-r3 fb15k-r10-rotate --folder DATA --device cuda

Each run goes to RUNS/NAME-SEED (--runs), and is continued from there if it was stopped, or taken as it is if finished.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from secea.learn.config import resolved
from secea.learn.methods import METHODS
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


def finished(name: str, seed: int, runs: Path, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    task, source, settings = SETTINGS[name]
    place = runs / f"{name}-{seed}"
    where = source if source == "umls" else str(folder / source)
    if (place / "config.json").exists():
        run = Run.resume(place)
    else:
        run = Run.begin(place, resolved(task, (where,), **(settings | more | {"seed": seed})))
    with bars(run.config.methods, run.config.rounds, Console(stderr=True)) as watch:
        return run.go(watch)


def spread(values: Sequence[float]) -> str:
    """The mean, and the lowest and highest of several."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} ({min(values):.3f}-{max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SETTINGS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=Path(), help="where the data lies")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    more: dict[str, Any] = {"methods": tuple(args.methods), "device": args.device}
    more |= {} if args.rounds is None else {"rounds": args.rounds}
    quality = Grid("data", "metric", *args.methods, "secea - plain, at most", box=None)
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
        quality.add_row(name, metric, *(spread(values[method]) for method in args.methods), apart)
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
