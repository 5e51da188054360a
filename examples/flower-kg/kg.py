"""What a site brings: the entities of its own triples, and TransE (head + relation = tail) on them, in plain numpy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secea.engines.host import Participant
from secea.table import Table

DIM = 16
STEPS = 8
RATE = 0.02


def first(name: str) -> NDArray[np.float64]:
    """Where the embedding of an entity or a relation starts: the same at all sites."""
    seed = list(hashlib.sha256(name.encode()).digest())
    return np.random.default_rng(seed).normal(size=DIM)


def participant(triples: str, results: str) -> Participant:
    """The functions of one site: `triples` is a file of its own, `results` a folder for what it learns."""
    rows = [line.split("\t") for line in Path(triples).read_text(encoding="utf-8").splitlines()]
    names = sorted({name for head, _, tail in rows for name in (head, tail)})
    relations = sorted({relation for _, relation, _ in rows})
    heads = np.array([names.index(head) for head, _, _ in rows])
    kinds = np.array([relations.index(relation) for _, relation, _ in rows])
    tails = np.array([names.index(tail) for _, _, tail in rows])
    r = np.array([first(relation) for relation in relations])

    def error(e: NDArray[np.float64]) -> NDArray[np.float64]:
        wrong: NDArray[np.float64] = e[heads] + r[kinds] - e[tails]
        return wrong

    rows_file = Path(results) / "rows.npy"  # what this site has, between rounds and after a crash
    if not rows_file.exists():
        np.save(rows_file, np.array([first(name) for name in names]))

    def train(means: Table | None, round: int) -> dict[str, NDArray[np.float64]]:
        """A few steps on this site's own triples, from the last means, or own rows where there are none."""
        known = {} if means is None else dict(zip(means.names, means.matrix, strict=True))
        own = dict(zip(names, np.load(rows_file), strict=True)) | known
        e = np.array([own[name] for name in names])
        before = np.square(error(e)).mean()
        for _ in range(STEPS):
            wrong = error(e)
            np.add.at(e, heads, -RATE * wrong)
            np.add.at(e, tails, RATE * wrong)
        after = np.square(error(e)).mean()
        with (Path(results) / "loss.tsv").open("a", encoding="utf-8") as log:
            log.write(f"{round}\t{before:.4f}\t{after:.4f}\n")
        np.save(rows_file, e)
        return dict(zip(names, e, strict=True))

    def done(means: Table | None) -> None:
        """The last means are this site's embeddings."""
        if means is not None:
            np.savez(Path(results) / "embeddings.npz", names=np.array(means.names), vectors=means.matrix)

    return Participant(lambda: names, train, done)
