"""The weights of a model's rows: which were trained since the last means, or whatever the caller says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.errors import CallError
from secea.table import Name, Table

Weights: TypeAlias = Literal["trained"] | Mapping[Any, int] | Callable[[NDArray[np.bool_]], object]
"""What the rows of a table weigh.

"trained": 1 for each row that was trained since the last means, 0 for the others. A mapping: by name, as it is when a
table is made. A function: it gets which rows were trained, in the order of the names, and gives a weight for each.
"""


class Weighing:
    """Gives tables their weights. It knows what the last means made of each row.

    A row that is still the same was not trained. A row for which no mean ever came counts as trained, and so does one
    that was trained before a round without a mean for it.
    """

    def __init__(self, weights: Weights | None) -> None:
        known = weights == "trained" if isinstance(weights, str) else isinstance(weights, Mapping) or callable(weights)
        if weights is not None and not known:
            got = repr(weights) if isinstance(weights, str) else type(weights).__name__
            raise CallError(f'weights must be "trained", a mapping by name, or a function, got {got}')
        self._weights = weights
        self._names: tuple[Name, ...] = ()
        self._means: Floats = np.zeros((0, 0), np.float32)

    @property
    def _watches(self) -> bool:
        """Whether it matters what was trained."""
        return self._weights is not None and not isinstance(self._weights, Mapping)

    def weighed(self, table: Table) -> Table:
        """The table with its weights, if there are any."""
        if self._weights is None:
            return table
        if isinstance(self._weights, Mapping):
            return table.weighing(self._weights)
        trained: NDArray[np.bool_] = (self._last(table) != table.matrix).any(axis=1)
        return table.weighing(self._weights(trained) if callable(self._weights) else trained)

    @contextmanager
    def loading(self, table: Callable[[], Table]) -> Iterator[None]:
        """Note which rows change while means are loaded. Own rows stand in for means that are missing: they do not."""
        before = table() if self._watches else None
        yield
        if before is not None:
            after, last = table(), self._last(before)
            new = (before.matrix != after.matrix).any(axis=1)
            last[new] = after.matrix[new]
            self._names, self._means = tuple(after.names), last

    def _last(self, table: Table) -> Floats:
        """What the last means made of the rows of a table; no numbers where there were none."""
        names = tuple(table.names)
        if names == self._names:
            return self._means
        last = np.full(table.matrix.shape, np.nan, table.dtype)
        place = {name: i for i, name in enumerate(self._names)}
        known = [i for i, name in enumerate(names) if name in place]
        if known:
            last[known] = self._means[[place[names[i]] for i in known]]
        return last
