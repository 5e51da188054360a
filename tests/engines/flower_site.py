"""The participant of the tests: tables that anyone can make again, and the means that came, kept in files."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secea.engines.host import Participant
from secea.table import Table

ENTITIES = [["a", "b", "c", "d", 1], ["b", "c", "e"], ["a", "e", "f", 1], ["c", "f", "g", "h"], ["a", "c", "h"]]
DIM = 4


def table(client: int, round: int) -> dict[str | int, NDArray[np.float64]]:
    """What a client contributes in a round."""
    rng = np.random.default_rng([client, round])
    return {name: rng.uniform(-60, 60, DIM) for name in ENTITIES[client]}


def participant(client: int, folder: str) -> Participant:
    """Client n; its results go to a folder, and it stops for good in a round for which there is a file `hang-n-round`."""
    results = Path(folder)

    def keep(means: Table | None, name: str) -> None:
        if means is not None:
            np.save(results / f"means-{client}-{name}.npy", [means.matrix[means.names.index(e)] for e in ENTITIES[client]])

    def train(means: Table | None, round: int) -> dict[str | int, NDArray[np.float64]]:
        keep(means, f"before-{round}")
        if (results / f"hang-{client}-{round}").exists():
            (results / f"hangs-{client}").touch()
            time.sleep(3600)
        (results / f"trained-{client}-{round}").touch()
        return table(client, round)

    return Participant(lambda: ENTITIES[client], train, lambda means: keep(means, "last"))
