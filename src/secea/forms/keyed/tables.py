"""A client's tables: from names and floats to the integers that it uploads, and from means back to a table (K6).

Nothing but the table itself has to be whole: its grid is found block by block, and rows are encoded when they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint, grid, streams
from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.portable import fill_keys
from secea.forms import tables
from secea.forms.keyed.numbers import Numbers
from secea.params import Params
from secea.table import Name, Table, TableLike, as_table
from secea.wire.keys import Identity, Mac, expand

Places: TypeAlias = NDArray[np.int32]
"""Slots, rows, names by number: there are millions of them, and never more than 2^31."""


@dataclass(frozen=True, slots=True)
class Result:
    """The means of a round, in the order and the dtype of the table that the client contributed to it."""

    names: tuple[Name, ...] = field(repr=False)
    matrix: Floats | None = field(repr=False)
    """Means, and the client's own rows where there is none. None if they were given away."""
    there: NDArray[np.bool_] = field(repr=False)
    """Which rows are means."""


class Tables:
    """How client n orders, checks, encodes and fills its tables. The fill's keys come from its identity."""

    def __init__(self, params: Params, numbers: Numbers, number: int, identity: Identity) -> None:
        self._params, self._numbers, self._number = params, numbers, number
        narrow = fill_keys(numbers.s) - 1
        labels = (*(b"%d" % b for b in range(narrow)), b"grid", b"names")  # other s, w, f redraw nothing
        self.fill = [expand(identity.secret, "fill of the keyed form", label) for label in labels]
        self._went_out = expand(identity.secret, "values that went out")
        self.grid: tuple[int, float] | None = None
        """The coarsest grid that a whole table had in this session: significant bits, and a common step."""
        # The order of the last table, for which names, and where each of them is in it; and hashes of names.
        self._order: tuple[Sequence[Name] | None, Sequence[Name], Places] = None, (), np.zeros(0, np.int32)
        self._hashed: tuple[tuple[Name, ...], NDArray[np.uint64]] = (), np.zeros(0, np.uint64)

    def checked(self, table: TableLike, due: tuple[Name, ...]) -> Table:
        """The table, if it has the names that are due, the right length, and every value in range."""
        given = as_table(table, self._params.dim)
        known = (tuple(given.names), due) == self._order[:2]
        return tables.checked(given, due, self._params, self._number, known=known)

    def where(self, table: Table, names: tuple[Name, ...]) -> Places:
        """The row of each name in a table, -1 if it has none; the tables of one client mostly have one order."""
        given = tuple(table.names)
        if (given, names) != self._order[:2]:
            rows = np.arange(len(names), dtype=np.int32)
            if given != names:
                place = {name: i for i, name in enumerate(given)}
                rows = np.array([place.get(name, -1) for name in names], np.int32)
            self._order = given, names, rows
        return self._order[2]

    def hashed(self, names: tuple[Name, ...]) -> NDArray[np.uint64]:
        """A keyed hash of each name, for the fill."""
        if self._hashed[0] != names:
            self._hashed = names, grid.entities(names, self.fill[-1])
        return self._hashed[1]

    def look_at(self, table: Table) -> None:
        """Find the grid of a whole table. It may only grow coarser in a session."""
        used, step = grid.grid_of(table.matrix, table.dtype)
        if self.grid is not None:
            used, step = min(used, self.grid[0]), max(step, self.grid[1])
        self.grid = used, step

    def fingerprint(self, table: Table, rows: Places, round: int) -> bytes:
        """What tells the values of a training round from all others, without keeping them: GMAC, never shown."""
        said = Mac(expand(self._went_out, "round", b"%d" % round))
        said.update(repr((table.dtype.str, table.matrix.shape, self.grid)).encode())
        said.update(np.ascontiguousarray(rows).view(np.uint8).data)
        for block in grid.blocks(table.matrix):
            said.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
        return said.digest()

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """These rows in fixed point, with what is below their grid filled. `entities` are the hashes of their names."""
        assert self.grid is not None
        n, own = self._numbers, table.matrix[rows].astype(np.float64)
        return streams.encode(own, entities, self.fill[:-1], n.f, n.s, n.w, *grid.grid_of_rows(own, *self.grid), n.cap)

    def encoded(self, table: Table, names: tuple[Name, ...]) -> NDArray[np.int64]:
        """All rows at once, in the order of the names."""
        self.look_at(table)
        return self.encoded_rows(table, self.where(table, names), self.hashed(names))

    def written(self, means: NDArray[np.float64], dtype: np.dtype[np.floating]) -> Floats:
        """Means as a table holds them, within the range of an input."""
        return fixedpoint.clip(means.astype(dtype), self._params.max_abs)

    def like(self, table: Table, result: Result) -> Floats:
        """The means in the order and the dtype of a table; its own rows where there is none."""
        assert result.matrix is not None
        if tuple(table.names) == result.names:
            return result.matrix.astype(table.dtype)
        filled, rows = np.array(table.matrix), self.where(table, result.names)  # entities may have come and gone since
        there = result.there & (rows >= 0)
        filled[rows[there]] = result.matrix[there]
        return filled
