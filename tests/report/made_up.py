"""Folders as `secea train` leaves them behind, with made-up numbers that look like real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

METHODS: Final = ("local", "common", "secea", "plain", "central")
ENDS: Final = {"local": 0.574, "common": 0.613, "secea": 0.702, "plain": 0.702, "central": 0.769}
SETUP: Final = {
    "reshare": 4_409_888, "query": 815_872, "indicator": 216_832, "table": 209_728, "opening": 128_000,
    "reciprocal": 128_000, "hello": 27_520, "contributors": 10_512, "tags": 9_280,
}  # fmt: skip
ROUND: Final = {"share": 4_571_392, "answer": 2_709_504, "mean": 1_353_352, "contributors": 1_800}


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def make_run(
    folder: Path,
    *,
    seed: int = 0,
    names: list[str] | None = None,
    methods: tuple[str, ...] = METHODS,
    clients: int = 8,
    rounds: int = 40,
    finished: bool = True,
    shift: float = 0.0,
    **config: Any,
) -> Path:
    """A run of knowledge graph completion on umls."""
    rng = np.random.default_rng(seed)
    names = names or [f"entity {i}" for i in range(135)]
    settings = {
        "secea": "0.1.0", "task": "kg", "data": "umls", "model": "transe", "clients": clients, "split": "own",
        "rounds": rounds, "seed": seed, "methods": list(methods), "dim": 64, "epochs": 3, "batch": 512, "negatives": 64,
        "lr": 0.01, "optimizer": "reset", "metric": "mrr", "better": "higher", "dp": None, **config,
    }  # fmt: skip
    folder.mkdir(parents=True)
    write_json(folder / "config.json", settings)
    owned = [
        sorted(rng.choice(len(names), int(len(names) * rng.uniform(0.3, 0.5)), replace=False)) for _ in range(clients)
    ]
    counts = np.bincount(np.concatenate(owned), minlength=len(names))
    owners = {str(k): int((counts == k).sum()) for k in range(1, clients + 1) if (counts == k).any()}
    about = [
        {
            "name": f"client {n}",
            "entities": len(own),
            "train": 9 * len(own),
            "valid": len(own),
            "test": 0 if n == 3 else 61,
        }
        for n, own in enumerate(owned)
    ]
    write_json(folder / "overlap.json", {"clients": about, "union": int((counts > 0).sum()), "owners": owners})
    last, metrics = _metrics(rng, methods, clients, rounds if finished else rounds // 3, shift)
    write_lines(folder / "metrics.jsonl", metrics)
    if "secea" in methods:
        write_lines(folder / "protocol.jsonl", _protocol(rng, rounds if finished else rounds // 3))
    for method in methods:
        _embeddings(folder / "embeddings" / method, rng, names, owned, method)
    if finished:
        write_json(folder / "result.json", {
            "methods": last, "best": {m: {"round": 35, "valid": 0.7} | last[m] for m in methods},
            "metric": settings["metric"], "better": settings["better"], "config": settings,
            "seconds": {method: {"training": 1.31 * rounds, "aggregation": 0.105 * rounds} for method in methods},
            "protection": {
                "seconds_per_round": 0.105, "share_of_training": 0.08, "setup_seconds": 0.62,
                "round_bytes": sum(ROUND.values()), "setup_bytes": sum(SETUP.values()),
            },
            "epsilon": None, "messages": ["client 3 has no test triples: its metrics are left out"], "run": str(folder),
        })  # fmt: skip
    return folder


def _metrics(
    rng: np.random.Generator, methods: tuple[str, ...], clients: int, rounds: int, shift: float
) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    lines, last = [], {}
    wobble = rng.normal(0, 0.006, rounds + 1)
    for method in methods:
        top = ENDS.get(method, 0.5) + shift + wobble[-1]
        speed = {"local": 4, "central": 5, "common": 6}.get(method, 9)
        for r in [0, *range(5, rounds + 1, 5)] if rounds >= 5 else range(rounds + 1):
            mrr = 0.06 + (top - 0.06) * (1 - np.exp(-r / speed)) / (1 - np.exp(-rounds / speed))
            mrr += 0 if r == rounds else wobble[r]
            values = {"mrr": mrr, "hits@1": mrr * 0.78, "hits@3": mrr * 1.08, "hits@10": min(mrr * 1.27, 0.98)}
            values = {name: round(float(value), 6) for name, value in values.items()}
            own: dict[str, Any] = {
                f"client {n}": {"mrr": round(float(mrr + rng.normal(0, 0.03)), 6)} for n in range(clients)
            }
            own["client 3"] = {"mrr": None, "why": "no test triples"}
            spent = {"training": 6.55, "aggregation": 0.52, "evaluation": 0.03}
            line = {"method": method, "round": r, "metrics": values, "clients": own, "seconds": spent}
            lines.append(line | {"loss": 0.2 + 0.9 * float(np.exp(-r / 8))})
            last[method] = values
    return last, lines


def _protocol(rng: np.random.Generator, rounds: int) -> list[dict[str, Any]]:
    stages = {"keys": 0.01, "greeting": 0.036, "secret": 0.02, "table": 0.035, "query": 0.057, "reshare": 0.1}
    setup = {
        "round": 0, "wall": 0.62, "cpu": {"sharing": 0.21, "retrieval": 0.28, "sealing": 0.09, "other": 0.05},
        "stages": stages, "bytes": SETUP, "client_bytes": 401_000, "server_bytes": 2_900_000,
    }  # fmt: skip
    lines: list[dict[str, Any]] = [setup]
    for r in range(1, rounds + 1):
        slow = float(rng.uniform(0.9, 1.1))
        cpu = {"sharing": 0.031 * slow, "retrieval": 0.05 * slow, "sealing": 0.021 * slow, "other": 0.004}
        lines.append(
            {"round": r, "wall": 0.105 * slow, "cpu": cpu, "stages": {"share": 0.041, "answer": 0.062}, "bytes": ROUND,
             "client_bytes": 612_000, "server_bytes": 4_310_000}
        )  # fmt: skip
    return lines


def _embeddings(folder: Path, rng: np.random.Generator, names: list[str], owned: list[Any], method: str) -> None:
    """Clusters; those of a client alone are blurred."""
    folder.mkdir(parents=True)
    shared = np.random.default_rng(7)
    centres = shared.normal(size=(5, 64))
    of = shared.integers(0, 5, len(names))
    base = centres[of] + shared.normal(0, 0.45, (len(names), 64))
    blur = 0.9 if method == "local" else 0.15
    for n, own in enumerate(owned):
        matrix = (base[own] + rng.normal(0, blur, (len(own), 64))).astype(np.float32)
        np.savez(folder / f"client {n}.npz", names=np.array([names[i] for i in own]), matrix=matrix)
