"""Embeddings in the plane: the two directions in which they vary most, for a method beside another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.report.runs import Run

MOST: Final = 400
"""Points of one picture."""


@dataclass(frozen=True)
class Picture:
    """One client's embeddings under one method."""

    method: str
    client: str
    names: list[str]
    points: NDArray[np.float64]
    owners: list[int]
    """Clients that have each entity; 0 where the run does not say."""
    entities: int
    """The number of entities. If there are many, the points are a sample of them."""
    kept: float
    """The share of the variance that lies in the plane."""


def plane(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Principal components by SVD, with signs fixed; and the share of the variance that they keep."""
    centred = matrix - matrix.mean(axis=0)
    if not centred.size or not np.isfinite(centred).all():
        return np.zeros((len(matrix), 2)), 0.0
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][np.arange(len(axes[:2])), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    flat = centred @ axes.T
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    total = float(np.square(sizes).sum())
    return flat, float(np.square(sizes[:2]).sum()) / total if total else 0.0


def turned(points: NDArray[np.float64], like: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rotation or reflection under which points come nearest to others: distances stay as they are."""
    left, _, right = np.linalg.svd(points.T @ like)
    result: NDArray[np.float64] = points @ (left @ right)
    return result


def _sample(names: list[str]) -> list[int]:
    """The same entities for every method and every run: those with the smallest hashes."""
    order = sorted(range(len(names)), key=lambda i: hashlib.sha256(names[i].encode(errors="replace")).digest())
    return sorted(order[:MOST])


def pictures(run: Run) -> list[Picture]:
    """Pictures of secea and local for the same client, if there are files. The second is turned to match the first."""
    made: list[Picture] = []
    counted: dict[str, int] = {}
    for method in ("secea", "local"):
        tables = run.embeddings(method)
        if not tables:
            continue
        if not counted and len(tables) > 1:
            for own, _ in tables.values():
                for name in own:
                    counted[name] = counted.get(name, 0) + 1
        client = made[0].client if made and made[0].client in tables else next(iter(tables))
        names, matrix = tables[client]
        points, kept = plane(matrix)
        chosen = _sample(names)
        shown = [names[i] for i in chosen]
        points = points[chosen]
        if made and made[0].names == shown:
            points = turned(points, made[0].points)
        owners = [counted.get(name, 0) for name in shown]
        made.append(Picture(method, client, shown, points, owners, len(names), kept))
    return made
