"""Who gets which rows: by relation, at random, by owner, or as the data came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.errors import ParamsError
from secea.learn.data import KINDS, STAGES, Dataset, Kind, Part, Rows

SPLITS: Final = ("own", "random", "relation", "files")
HELD_OUT: Final = 10
"""If the data has no test rows, one row in this many is kept for validation, and one for the test."""


@dataclass(frozen=True)
class Split:
    """The rows of each client, and what there is to say about it."""

    clients: tuple[str, ...]
    parts: tuple[Part, ...]
    messages: tuple[str, ...]


def deal(
    task: str, data: Dataset, split: str, *, clients: int, seed: int, share: float = 0.4, core: float = 0.25
) -> Split:
    """The rows of all clients; a row goes to one client at most.

    `own`: a client knows a random `share` of the entities and a `core` that all know; a row goes to one of the clients
    that know both its ends. Of ratings, each user belongs to one client.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 0x5EC]))
    parts = [_held_out(part, rng) for part in data.parts]
    if data.clients:
        return Split(data.clients, tuple(parts), ())
    (pool,) = parts
    owner = {stage: _owners(task, data, split, getattr(pool, stage), clients, seed, share, core) for stage in STAGES}
    dealt = tuple(
        Part(*(getattr(pool, stage)[owner[stage] == client] for stage in STAGES)) for client in range(clients)
    )
    lost = sum(int((owner[stage] < 0).sum()) for stage in STAGES)
    total = sum(len(getattr(pool, stage)) for stage in STAGES)
    messages = [f"{lost} of {total} rows are left out: no client knows both ends"] if lost else []
    return Split(tuple(f"client {n}" for n in range(clients)), dealt, tuple(messages))


def _owners(
    task: str, data: Dataset, split: str, rows: Rows, clients: int, seed: int, share: float, core: float
) -> NDArray[np.int64]:
    """The client of each row, -1 for none. What a client knows is the same for train, valid and test."""
    kind = KINDS[task]
    rng = np.random.Generator(np.random.PCG64([seed, 0xDEA1]))
    if split == "own" and kind.valued:
        return rng.integers(clients, size=len(data.others))[rows[:, 0].astype(np.int64)]
    if split == "own":
        knows = rng.random((clients, len(data.entities))) < share
        knows |= rng.random(len(data.entities)) < core
        return _knowing(knows, rows, kind, rng)
    if split == "relation":
        if task != "kg":
            raise ParamsError(f"split by relation is for knowledge graphs; {task} has none: use own or random")
        if clients > len(data.others):
            raise ParamsError(f"{len(data.others)} relations cannot be dealt to {clients} clients; take fewer clients")
        return (rng.permutation(len(data.others)) % clients)[rows[:, 1]]
    if split == "random":
        return rng.integers(clients, size=len(rows))
    raise ParamsError(f"the split must be one of {', '.join(SPLITS)}, got {split!r}")


def _knowing(knows: NDArray[np.bool_], rows: Rows, kind: Kind, rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the clients that know both ends of a row, each as likely as the others."""
    first, second = (rows[:, column] for column in kind.entities)
    draw = rng.random((len(knows), len(rows)))
    draw[~(knows[:, first] & knows[:, second])] = -1.0
    best = draw.argmax(axis=0)
    return np.where(draw.max(axis=0, initial=-1.0) < 0, -1, best)


def _held_out(part: Part, rng: np.random.Generator) -> Part:
    """Rows for validation and test, where there are none: one in ten each; a single row is for training."""
    if len(part.test) or len(part.valid):
        return part
    count = len(part.train)
    order, some = rng.permutation(count), count // HELD_OUT
    test = max(some, int(count > 1))
    return Part(
        part.train[np.sort(order[some + test :])], part.train[order[:some]], part.train[order[some : some + test]]
    )
