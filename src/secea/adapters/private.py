"""Differential privacy for the rows of any adapter: clipped and noised before they leave the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.adapters import Rows, in_order
from secea.errors import CallError, ParamsError
from secea.privacy import Mechanism, Private, clipped
from secea.table import Name, Table, TableLike
from secea.tensors import array_of

Matrix = NDArray[np.float64]


class PrivateRows:
    """The rows of another adapter, which leave it under differential privacy. `secea.privacy` says what that covers.

    Give a `Private`, and each call of `table()` adds this client's own noise: one release, to contribute as it is. Or
    give `clip` where all clients make the noise together (`secea.privacy.with_noise`): then rows are clipped alone.

    Changes are counted from what the others know, which `load` keeps. Before the first means that is what the model has
    now: so make this before the model is trained on the client's data. An entity without a mean keeps its row in the
    model, without noise. Weights leave as they are: privacy does not cover them.

    >>> import secea
    >>> from secea.adapters.numpy import NumpyRows
    >>> matrix = np.zeros((2, 3))
    >>> private = secea.privacy.Private(secea.privacy.Mechanism(clip=0.5, multiplier=2.0), delta=1e-5, rounds=10)
    >>> rows = PrivateRows(NumpyRows(["aspirin", "codeine"], matrix), private)
    >>> matrix += 8.0  # training
    >>> rows.table(), private
    (Table(2 x 3, float64), Private(1 of 10 releases, clip 0.5, deviation 2))
    """

    def __init__(self, rows: Rows, private: Private | None = None, *, clip: float | None = None) -> None:
        if (private is None) == (clip is None):
            raise CallError(
                "give either a secea.privacy.Private, for noise of this client's own, or clip=, where all clients make"
                " the noise together"
            )
        if clip is not None:
            Mechanism(clip, 1.0)  # refuses a clip that is none
        self._rows, self._private, self._clip = rows, private, clip
        table = rows.table()
        self.names: tuple[Name, ...] = tuple(table.names)
        self._known: Matrix = table.matrix.astype(np.float64)
        self._left = np.full_like(self._known, np.nan)  # what left last; nothing yet

    @property
    def width(self) -> int:
        """Numbers per entity."""
        return self._rows.width

    def table(self) -> Table:
        """The rows as they leave, in float64. With a `Private` each call is a release, and its number is limited."""
        table = self._rows.table()
        if tuple(table.names) != self.names:
            raise CallError("the model has other entities than at first: PrivateRows takes no new ones")
        if self._private is not None:
            self._left = self._private.release(self._known, table.matrix)
        else:
            assert self._clip is not None
            self._left = clipped(self._known, table.matrix, self._clip)
        return Table.trusted(self.names, self._left.copy(), table.weights)

    def load(self, means: TableLike) -> None:
        """Write means into the model, and count changes from them. Own rows that come back stand for no mean."""
        matrix, now = in_order(self.names, self.width, means), self._rows.table().matrix
        there = ~(matrix == self._left).all(axis=1, keepdims=True)
        self._rows.load(Table.trusted(self.names, np.where(there, matrix, now)))
        self._known = np.where(there, self._rows.table().matrix, self._known)

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart: how often rows have left, and what the others know. For a `Checkpoint`."""
        releases = 0 if self._private is None else self._private.releases
        return {"releases": releases, "known": self._known, "left": self._left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        known, left = (np.array(array_of(state[what]), np.float64) for what in ("known", "left"))
        if known.shape != self._known.shape or left.shape != known.shape:
            raise ParamsError(f"it was saved for rows of shape {known.shape}, and these are of {self._known.shape}")
        if self._private is not None:
            self._private.releases = int(state["releases"])
        self._known, self._left = known, left
