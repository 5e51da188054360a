"""Folders as `secea train` leaves them behind, with made-up numbers that look like real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

METHODS: Final = ("local", "common", "secea", "plain", "central")
ENDS: Final = {"local": 0.574, "common": 0.613, "secea": 0.702, "plain": 0.702, "central": 0.769}
SETUP: Final = {
    "evaluation": 320_768, "table": 209_728, "lists": 183_296, "dealing": 28_672, "list": 22_912, "part": 16_128,
    "hello": 14_976, "share": 12_544, "commitment": 10_240, "mark": 10_240, "confirm": 10_240, "tags": 9_280,
    "key": 2_176, "begin": 1_800, "digest": 1_792,
}  # fmt: skip
ROUND: Final = {"upload": 588_416, "means": 563_320, "begin": 1_800, "key": 1_088, "digest": 896, "ready": 768}


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
            **asked_for(settings, clients), "messages": ["client 3 has no test triples: its metrics are left out"],
            "run": str(folder),
        })  # fmt: skip
    return folder


def asked_for(settings: dict[str, Any], clients: int) -> dict[str, Any]:
    """What a run says of minimum, weights and noise, if its settings have them."""
    sharing: dict[str, Any] = {"min_owners": settings.get("min_owners", 1), "weights": settings.get("weights", False)}
    if sharing["weights"]:
        sharing["max_weight"] = 812
    if sharing["min_owners"] > 1:
        sharing["below_minimum"] = {f"client {n}": 10 + n for n in range(clients)}
    if settings["dp"] is None:
        return {"sharing": sharing, "epsilon": None}
    privacy = {
        "delta": 1e-05, "clip": 0.1, "noise": 0.57, "unit": "one row of one client", "epsilon_table": 1534.2,
        "rows": 66, "noise_of": "each client, on its own rows", "clients": {"client 0": 1534.2, "client 1": 20.5},
        "rounds": [[1, 1.2, 14.5], [40, settings["dp"]["epsilon"], 1534.2]], "trusted": ["At least 3 are honest."],
    }  # fmt: skip
    return {"sharing": sharing, "epsilon": settings["dp"]["epsilon"], "privacy": privacy}


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
    stages = {"greeting": 0.036, "deal": 0.057, "evaluate": 0.49, "secret": 0.02, "table": 0.035}
    setup = {
        "round": 0, "wall": 0.62, "cpu": {"clients": 0.53, "server": 0.02, "sealing": 0.09},
        "stages": stages, "bytes": SETUP, "client_bytes": 52_056, "server_bytes": 438_344,
    }  # fmt: skip
    lines: list[dict[str, Any]] = [setup]
    for r in range(1, rounds + 1):
        slow = float(rng.uniform(0.9, 1.1))
        cpu = {"clients": 0.081 * slow, "server": 0.004, "sealing": 0.021 * slow}
        stages = {"contribute": 0.041, "upload": 0.062}
        lines.append(
            {"round": r, "wall": 0.105 * slow, "cpu": cpu, "stages": stages, "bytes": ROUND, "client_bytes": 73_648,
             "server_bytes": 567_104}
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
