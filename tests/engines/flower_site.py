"""The participant of the tests: tables that anyone can make again, and the means that came, kept in files."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secea.engines.host import Participant
from secea.table import Table

ENTITIES: list[list[str | int]] = [
    ["a", "b", "c", "d", 1],
    ["b", "c", "e"],
    ["a", "e", "f", 1],
    ["c", "f", "g", "h"],
    ["a", "c", "h"],
]
DIM = 4


def table(client: int, round: int) -> dict[str | int, NDArray[np.float64]]:
    """What a client contributes in a round."""
    rng = np.random.default_rng([client, round])
    return {name: rng.uniform(-60, 60, DIM) for name in ENTITIES[client]}


def participant(client: int, folder: str) -> Participant:
    """Client n; its results go to a folder. While there is a file `hold-n-round` it does not go on with that round."""
    results = Path(folder)

    def keep(means: Table | None, name: str) -> None:
        if means is not None:
            rows = [means.matrix[list(means.names).index(entity)] for entity in ENTITIES[client]]
            np.save(results / f"means-{client}-{name}.npy", rows)

    def train(means: Table | None, round: int) -> dict[str | int, NDArray[np.float64]]:
        keep(means, f"before-{round}")
        (results / f"train-{client}-{round}").touch()
        while (results / f"hold-{client}-{round}").exists():
            time.sleep(0.1)
        return table(client, round)

    return Participant(lambda: ENTITIES[client], train, lambda means: keep(means, "last"))
