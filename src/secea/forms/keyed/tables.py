"""A client's tables: from names and floats to the integers that it uploads, and from means back to a table (K6).

Nothing but the table itself has to be whole: its grid is found block by block, and rows are encoded when they are sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint, grid, streams
from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.portable import fill_keys, grids_of
from secea.errors import TableError, party
from secea.forms import tables
from secea.forms.keyed.numbers import GRID_SHARE_BITS, Numbers, cap_of
from secea.names import Spelling
from secea.params import Params
from secea.table import Name, Table, TableLike, as_table
from secea.wire.keys import Identity, Mac, expand

WEIGHT_BITS: Final = 32
"""Bits below the point of a blurred weight."""
HALF: Final = 0.5 + 2.0**-26
"""How far a blurred weight is off, at most."""
EXACT: Final = 52
"""The bits below the leading one that a product of float64 numbers has."""

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
    below: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_), repr=False)
    """Which rows have fewer owners than the minimum."""


class Tables:
    """How client n orders, checks, encodes and fills its tables. The fill's keys come from its identity."""

    def __init__(self, params: Params, numbers: Numbers, number: int, identity: Identity) -> None:
        self._params, self._numbers, self._number = params, numbers, number
        self.spelling = Spelling(params.normalize, party(number))
        narrow = fill_keys(numbers.s) - 1
        labels = (*(b"%d" % b for b in range(narrow)), b"grid", b"names")  # other s, w, f redraw nothing
        self.fill = [expand(identity.secret, "fill of the keyed form", label) for label in labels]
        self._blur = [expand(identity.secret, "fill of weights", label) for label in labels[:-1]]
        self._went_out = expand(identity.secret, "values that went out")
        self.grid: tuple[int, float] | None = None
        """The coarsest grid that a whole table had in this session: significant bits, and a common step."""
        self._known: tuple[Sequence[Name], tuple[Name, ...]] = (), ()  # names that are in order, for which are due
        # The order of the last table, for which names, and where each of them is in it; and hashes of names.
        self._order: tuple[Sequence[Name] | None, Sequence[Name], Places] = None, (), np.zeros(0, np.int32)
        self._hashed: tuple[tuple[Name, ...], NDArray[np.uint64]] = (), np.zeros(0, np.uint64)

    def checked(self, table: TableLike, due: tuple[Name, ...]) -> Table:
        """The table under the keys of its names, if these are due, its length is right, and every value in range."""
        given = as_table(table, self._params.dim)
        names = self.spelling.table(given).names
        self._check_weights(given)
        passed = tables.checked(
            given, self.spelling, due, self._params, self._number, known=(names, due) == self._known
        )
        self._known = names, due
        return passed

    def _check_weights(self, table: Table) -> None:
        """Weights are there if they are needed, and none is above the bound."""
        params, weights = self._params, table.weights
        most = params.max_weight or (1 if params.partial else 0)
        if weights is None:
            if params.max_weight is not None and len(table):
                raise TableError(
                    f"{party(self._number)}: the rows have no weights, and means are weighted here: give each row one,"
                    " with weights= or in secea.Table(names, matrix, weights)"
                )
        elif not most:
            raise TableError(
                f"{party(self._number)}: the rows have weights, and means are not weighted here: that needs"
                " Params(max_weight=...), or partial=True to leave out rows of weight 0"
            )
        elif weights.size and weights.max() > most:
            place = int(weights.argmax())
            bound = f"max_weight={most}" if params.max_weight else "1: without max_weight a row is given or left out"
            raise TableError(
                f"{party(self._number)}: entity {table.names[place]!r} has the weight {weights[place]}; at most {bound}"
            )

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
        if table.weights is not None:
            said.update(np.ascontiguousarray(table.weights).view(np.uint8).data)
        for block in grid.blocks(table.matrix):
            said.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
        return said.digest()

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """These rows in fixed point, with what is below their grid filled. `entities` are the hashes of their names."""
        assert self.grid is not None
        n, own = self._numbers, table.matrix[rows].astype(np.float64)
        grids = grid.grid_of_rows(own, *self.grid)
        values = streams.encode(own, entities, self.fill[:-1], n.f, n.s, n.w, *grids, n.cap)
        if self._params.max_weight is None:
            return values
        assert table.weights is not None
        return self._weighed(values, self.shares(table.weights[rows], entities), entities)

    def shares(self, weights: NDArray[np.int64], entities: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Weights as shares of the bound, each blurred by half a unit, as a keyed function of name and weight (K11).

        Means of whole numbers would show how many there are. A row that is left out stays out.
        """
        assert self._params.max_weight is not None
        n, ones = self._numbers, np.ones(len(weights))
        column = weights.astype(np.float64)[:, None]
        used = np.full(len(weights), EXACT, np.int32)
        blurred = streams.encode(column, entities, self._blur, WEIGHT_BITS, n.s, 1, used, ones, 1.0)[:, 0]
        return np.where(weights > 0, np.ldexp(blurred, -WEIGHT_BITS) / (self._params.max_weight + 1), 0.0)

    def _weighed(
        self, values: NDArray[np.int64], shares: NDArray[np.float64], entities: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Filled rows times their shares, and a column of the shares. Products are fine enough to hide counts."""
        n, rows = self._numbers, len(values)
        x = np.empty((rows, self._params.columns))
        x[:, :-1] = np.ldexp(values.astype(np.float64), -n.f) * shares[:, None]
        x[:, -1] = self._params.max_abs * shares
        used, step = np.full(rows, EXACT, np.int32), np.zeros(rows)
        return streams.encode(x, entities, self.fill[:-1], n.f, n.s, n.w, used, step, n.cap)

    def read(self, means: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Embeddings from the means of all columns, and which of them can be means."""
        params, n = self._params, self._numbers
        most = params.max_abs * (1 + 2.0**-GRID_SHARE_BITS) + params.resolution
        most += math.ldexp(n.farthest, -n.f)
        inside: NDArray[np.bool_] = np.all(np.abs(means) <= most, axis=1)
        if params.max_weight is None:
            return means, inside
        share = means[:, -1] / params.max_abs
        heavy = share > 0.25 / (params.clients * (params.max_weight + 1))  # somebody's weight is not 0
        return means[:, :-1] / np.where(heavy, share, 1.0)[:, None], inside & heavy

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


def weighing_error(params: Params, weights: Sequence[int], distance: float) -> float:
    """How far a weighted mean may be off, for owners of these weights (docs/protocol-keyed.md, K11).

    `distance` is the largest one between a row that counts and the mean, in any column. Let u be the blurred weights,
    and c the number of owners. The means of u*x and of u are off by less than a resolution each, so their quotient is
    off by twice that times (max_weight + 1) * c / sum(u); a third one covers the rows' own fill and the noise in the
    divisor. The blur moves the mean by sum((u - w) * (x - mean)) / sum(u).
    """
    counted = sum(weight > 0 for weight in weights)
    return float(weighing_errors(params, len(weights), counted, sum(weights), distance))


def weighing_errors(params: Params, owners: Any, counted: Any, total: Any, distance: Any) -> Any:
    """The same for many entities: arrays of owners, of those whose weight is not 0, and of the sums of weights."""
    assert params.max_weight is not None
    least = total - HALF * counted
    return (3 * params.resolution * (params.max_weight + 1) * owners + HALF * counted * distance) / least


def fill_widths(params: Params, table: Table) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """How wide the fill is below each number of some rows of a table: as wide as its grid (K6)."""
    found, cap = grid.grid_of(table.matrix, table.dtype), cap_of(params.max_abs)
    return lambda rows: grids_of(rows, *grid.grid_of_rows(rows, *found), cap)
