"""A client's tables: from names and floats to the integers that it uploads, and from means back to a table (K6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint, grid, streams
from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.portable import fill_keys
from secea.forms import tables
from secea.forms.keyed.numbers import Numbers
from secea.params import Params
from secea.table import Name, Table, TableLike, as_table
from secea.wire.keys import Identity, expand


@dataclass(frozen=True, slots=True)
class Result:
    """The means of a round, in the order of the names that the client had in it."""

    names: tuple[Name, ...] = field(repr=False)
    means: NDArray[np.float64] = field(repr=False)
    there: NDArray[np.bool_] = field(repr=False)
    """Which of them there are."""

    @property
    def without_mean(self) -> tuple[Name, ...]:
        """The entities that got none."""
        return tuple(name for name, there in zip(self.names, self.there, strict=True) if not there)


class Tables:
    """How client n orders, checks, encodes and fills its tables. The fill's keys come from its identity."""

    def __init__(self, params: Params, numbers: Numbers, number: int, identity: Identity) -> None:
        self._params, self._numbers, self._number = params, numbers, number
        narrow = fill_keys(numbers.s) - 1
        labels = (*(b"%d" % b for b in range(narrow)), b"grid", b"names")  # other s, w, f redraw nothing
        self.fill = [expand(identity.secret, "fill of the keyed form", label) for label in labels]
        self.grid: tuple[int, float] | None = None
        """The coarsest grid that a whole table had in this session: significant bits, and a common step."""
        # The order of the last table, for which names, and where each of them is in it; and hashes of names.
        self._order: tuple[Sequence[Name] | None, Sequence[Name], NDArray[np.int64]] = None, (), np.zeros(0, np.int64)
        self._hashed: tuple[tuple[Name, ...], NDArray[np.uint64]] = (), np.zeros(0, np.uint64)

    def checked(self, table: TableLike, due: tuple[Name, ...]) -> Table:
        """The table, if it has the names that are due, the right length, and every value in range."""
        given = as_table(table, self._params.dim)
        known = (tuple(given.names), due) == self._order[:2]
        return tables.checked(given, due, self._params, self._number, known=known)

    def where(self, table: Table, names: tuple[Name, ...]) -> NDArray[np.int64]:
        """The row of each name in a table; the tables of one client mostly have one order."""
        if (tuple(table.names), names) != self._order[:2]:
            place = {name: i for i, name in enumerate(table.names)}
            self._order = tuple(table.names), names, np.array([place[name] for name in names], np.int64)
        return self._order[2]

    def hashed(self, names: tuple[Name, ...]) -> NDArray[np.uint64]:
        """A keyed hash of each name, for the fill."""
        if self._hashed[0] != names:
            self._hashed = names, grid.entities(names, self.fill[-1])
        return self._hashed[1]

    def encoded(self, table: Table, names: tuple[Name, ...]) -> NDArray[np.int64]:
        """Fixed point in the order of the names, with what is below the inputs' grid filled."""
        return self.encoded_rows(table, self.where(table, names), names)

    def encoded_rows(self, table: Table, rows: NDArray[np.int64], names: tuple[Name, ...]) -> NDArray[np.int64]:
        """Those rows of a table. The grid of whole tables may only grow coarser in a session."""
        n, exact = self._numbers, np.ascontiguousarray(table.matrix, np.float64)
        used, step = grid.grid_of(exact, table.dtype)
        if self.grid is not None:
            used, step = min(used, self.grid[0]), max(step, self.grid[1])
        self.grid = used, step
        own = exact if np.array_equal(rows, np.arange(len(exact))) else exact[rows]
        bits, steps = grid.grid_of_rows(own, used, step)
        return streams.encode(own, self.hashed(names), self.fill[:-1], n.f, n.s, n.w, bits, steps, n.cap)

    def like(self, table: Table, result: Result) -> Floats:
        """The means in the order and the dtype of a table; its own rows where there is none."""
        names, there, means = result.names, result.there, result.means
        if (tuple(table.names), names) != self._order[:2]:  # entities may have come and gone since
            own = set(table.names)
            still = np.array([name in own for name in names], np.bool_)
            names = tuple(name for name in names if name in own)
            there, means = there[still], means[still]
        filled, rows = np.array(table.matrix), self.where(table, names)
        if not there.all():
            rows, means = rows[there], means[there]
        filled[rows] = fixedpoint.clip(means.astype(table.dtype), self._params.max_abs)
        return filled
