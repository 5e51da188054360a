"""What numpy says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.table import Name

Floats = NDArray[np.floating[Any]]


def true_means(tables: Iterable[Mapping[Name, Floats]]) -> dict[Name, Floats]:
    """The mean of each entity over its owners."""
    owners: dict[Name, list[Floats]] = {}
    for table in tables:
        for name, row in table.items():
            owners.setdefault(name, []).append(row)
    return {name: np.mean(rows, axis=0) for name, rows in owners.items()}
