"""What numpy says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.table import Name

Floats = NDArray[np.floating[Any]]


def true_means(tables: Iterable[Mapping[Name, Floats]]) -> dict[Name, Floats]:
    """The mean of each entity over its owners, under each spelling: an integer is its decimal text."""
    owners: dict[str, list[Floats]] = {}
    spelled: dict[Name, str] = {}
    for table in tables:
        for name, row in table.items():
            spelled[name] = str(name)
            owners.setdefault(spelled[name], []).append(row)
    return {name: np.mean(owners[key], axis=0) for name, key in spelled.items()}
