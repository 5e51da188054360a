"""Small graphs for the tests of learning, and runs over them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secea.learn.config import resolved
from secea.learn.data import Dataset, Part, Rows
from secea.learn.kg import Knowledge
from secea.learn.learner import Training
from secea.learn.models import MODELS, Model
from secea.learn.run import Run


class Screen(StringIO):
    """A terminal that keeps what is drawn on it."""

    def isatty(self) -> bool:
        return True


HOW = Training(epochs=2, batch=16, lr=0.05, negatives=8, seed=3, device=torch.device("cpu"))


def rows(*triples: Sequence[int]) -> Rows:
    return np.array(triples, np.int64).reshape(len(triples), 3)


def knowledge(parts: Sequence[Part], entities: int, relations: int, model: Model | None = None) -> Knowledge:
    names = tuple(f"e{i}" for i in range(entities)), tuple(f"r{i}" for i in range(relations))
    clients = tuple(f"client {n}" for n in range(len(parts)))
    data = Dataset("made up", *names, tuple(parts), clients)
    return Knowledge(data, parts, clients, model or MODELS["transe"](4, 2.0), 1.0, HOW)


def random_parts(rng: np.random.Generator, clients: int, entities: int, relations: int, count: int) -> list[Part]:
    def some(most: int) -> Rows:
        columns = [rng.integers(size, size=rng.integers(most + 1)) for size in (entities,)]
        n = len(columns[0])
        return np.stack([columns[0], rng.integers(relations, size=n), rng.integers(entities, size=n)], 1).astype(
            np.int64
        )

    return [Part(some(count), some(2), some(3)) for _ in range(clients)]


def write_triples(path: Path, count: int, seed: int = 0, entities: int = 12) -> Path:
    """A file of triples with a pattern: relation k leads k + 1 further."""
    rng = np.random.default_rng(seed)
    heads, kinds = rng.integers(entities, size=count), rng.integers(3, size=count)
    lines = [f"n{h}\tr{k}\tn{(h + k + 1) % entities}\n" for h, k in zip(heads, kinds, strict=True)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def a_run(folder: Path, sources: Sequence[Path | str], **settings: Any) -> Run:
    small = {"rounds": 3, "epochs": 1, "dim": 8, "clients": 4, "batch": 32, "negatives": 8, "every": 1}
    return Run.begin(folder, resolved("kg", tuple(map(str, sources)), **(small | settings)))
