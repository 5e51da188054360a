"""How exact the means of given tables are: the resolution, and what the fill of coarse numbers adds.

The bound holds for one round in which all clients take part, the first of a session. Tables of later rounds count as
coarse as the coarsest before them (docs/protocol-keyed.md, K6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from secea.errors import TableError
from secea.forms import DEFAULT, form_of
from secea.names import keys_of
from secea.params import Params
from secea.party.form import Form
from secea.table import Name, Table, TableLike, as_table

BLOCK_VALUES: Final = 1 << 18
"""Numbers of a table that are looked at together."""
GOLDEN: Final = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Grid:
    """How coarse the numbers of one table are."""

    step: float
    """The widest fill that any of its numbers gets."""
    rows: int
    """Rows with a number whose fill is wider than two resolutions. 0: the table is fine."""
    first: int
    """The place of the coarsest row."""

    @property
    def decimals(self) -> int | None:
        """D, if the step is that of numbers with D decimals."""
        return _decimals(self.step)


@dataclass(frozen=True)
class Accuracy:
    """How far the means of given tables may be off."""

    bound: float
    """No number of any mean is off by more, but for noise that was asked for."""
    resolution: float
    """max_abs * 2**-precision: the part that does not depend on the tables."""
    noise: float
    """The standard deviation of the noise in the mean that has most of it; 0 without `Params.noise`."""
    rows: tuple[NDArray[np.float64], ...] = field(repr=False)
    """The same bound for each row of each table; 0 where there is no mean."""
    grids: tuple[Grid, ...]
    """One for each table."""

    @property
    def coarse(self) -> tuple[int, ...]:
        """The tables that are coarser than the resolution, by number."""
        return tuple(n for n, grid in enumerate(self.grids) if grid.rows)

    def told(self, names: Sequence[str]) -> tuple[str, ...]:
        """For people: the bound, which tables are coarse, and what to do. `names`: what the tables are called."""
        noise = f", and noise of standard deviation {self.noise:.2g}" if self.noise else ""
        alike: dict[str, list[str]] = {}
        for n in self.coarse:
            alike.setdefault(self._coarse(n), []).append(names[n])
        lines = (f"{_listed(some)} {'have' if len(some) > 1 else 'has'} {what}" for what, some in alike.items())
        return f"means exact to within {self.bound:.1e}{noise}", *lines

    def _coarse(self, n: int) -> str:
        """What a table has, what follows, and what to do."""
        grid, rows = self.grids[n], len(self.rows[n])
        places = grid.decimals
        some = "" if grid.rows == rows else f" in {grid.rows:,} of {rows:,} rows"
        if places is None:
            what, cure = f"numbers in steps of up to {grid.step:.2g}{some}", "give numbers that were not rounded"
        else:
            digits = "no decimals" if places == 0 else "1 decimal" if places == 1 else f"{places} decimals"
            what, cure = f"numbers with {digits}, in steps of {grid.step:.2g}{some}", "write all digits"
        return f"{what}, and what is below a step is filled: {cure} for means exact to within {self.resolution:.1e}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def accuracy(
    tables: Sequence[TableLike],
    params: Params,
    form: str | Form = DEFAULT,
    *,
    dtypes: Sequence[DTypeLike] | None = None,
) -> Accuracy:
    """How far the means of these tables may be off, in one round of them all.

    `dtypes`: the float types in which results are kept; those of the tables, if it is not given.

    >>> accuracy([{"a": [0.5]}, {"a": [1.5]}], Params(clients=2, dim=1)).bound <= 4e-6
    True
    """
    chosen = form_of(form)
    given = [as_table(table, params.dim) for table in tables]
    kept = [table.dtype for table in given] if dtypes is None else [np.dtype(each) for each in dtypes]
    if not len(given) == len(kept) == params.clients:
        raise TableError(f"{params.clients} clients need as many tables, got {len(given)}")
    places, size = _places([tuple(table.names) for table in given], params)
    owned = [_Owned(chosen, params, table, place) for table, place in zip(given, places, strict=True)]
    rows = [np.zeros(len(table)) for table in given]
    fewest = params.clients
    for start in range(0, size, max(1, BLOCK_VALUES // params.dim)):
        block = slice(start, start + max(1, BLOCK_VALUES // params.dim))
        off, largest, counted = _errors(params, [each.of(block) for each in owned], min(size, block.stop) - start)
        fewest = min(fewest, int(counted[counted > 0].min(initial=fewest)))
        for each, bounds, dtype in zip(owned, rows, kept, strict=True):
            there = each.place[block]
            mine = off[there >= 0]
            worst = mine + (largest[there >= 0] + mine) * (np.finfo(dtype).eps / 2) + np.finfo(dtype).smallest_subnormal
            bounds[there[there >= 0]] = np.where((counted > 0)[there >= 0], worst.max(1, initial=0.0), 0.0)
    bound = max((float(each.max(initial=0.0)) for each in rows), default=0.0)
    return Accuracy(
        max(bound, params.resolution), params.resolution, _noise(params) / max(1, fewest), tuple(rows),
        tuple(each.grid for each in owned),
    )  # fmt: skip


def coarseness(table: Table, params: Params, form: str | Form = DEFAULT) -> Grid:
    """How coarse the numbers of one table are."""
    owned = _Owned(form_of(form), params, table, np.arange(len(table)))
    step = max(1, BLOCK_VALUES // max(1, table.dim))
    for start in range(0, len(table), step):
        owned.of(slice(start, start + step))
    return owned.grid


def with_decimals(params: Params, decimals: int, form: str | Form = DEFAULT) -> float:
    """The bound for numbers that have this many decimals, all of them, before there are tables."""
    spread = np.modf(np.arange(1, 1 + 64 * params.dim) * GOLDEN)[0].reshape(64, params.dim)  # no two of them are alike
    rows = np.round(spread * params.max_abs, decimals)
    table = Table([str(i) for i in range(len(rows))], rows)
    return params.resolution + float(form_of(form).fill_widths(params, table)(rows).max()) / 2


def _decimals(step: float) -> int | None:
    if not step:
        return None
    places = round(-math.log10(step))
    return places if 0 <= places <= 15 and math.isclose(step * 10.0**places, 1.0, rel_tol=1e-6) else None


def _noise(params: Params) -> float:
    """The standard deviation of what all clients add to a sum."""
    if not params.noise:
        return 0.0
    from secea.forms.keyed.disclosure import total_noise

    return total_noise(params)


def _places(names: Sequence[tuple[Name, ...]], params: Params) -> tuple[list[NDArray[np.int64]], int]:
    """For each table, which row each entity of the union has in it; -1 for none. And the size of the union."""
    number: dict[Name, int] = {}
    numbered = [
        np.array([number.setdefault(key, len(number)) for key in keys_of(own, params.normalize)], np.int64)
        for own in names
    ]
    places = []
    for entities in numbered:
        place = np.full(len(number), -1, np.int64)
        place[entities] = np.arange(len(entities))
        places.append(place)
    return places, len(number)


class _Owned:
    """One client's rows, a block of the union at a time; and how coarse they were."""

    def __init__(self, form: Form, params: Params, table: Table, place: NDArray[np.int64]) -> None:
        self.place, self.grid = place, Grid(0.0, 0, 0)
        self._table, self._resolution, self._widths = table, params.resolution, form.fill_widths(params, table)

    def of(self, block: slice) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64], NDArray[Any]]:
        """Which entities it owns; their numbers, the width of their fill, and their weights."""
        there = self.place[block] >= 0
        rows = self.place[block][there]
        values = np.ascontiguousarray(self._table.matrix[rows], np.float64)
        widths, weights = self._widths(values), self._table.weights
        widest = widths.max(1, initial=0.0)
        coarse = self.grid.rows + int(np.count_nonzero(widest > 2 * self._resolution))
        if widest.size and widest.max() > self.grid.step:
            self.grid = Grid(float(widest.max()), coarse, int(rows[widest.argmax()]))
        else:
            self.grid = Grid(self.grid.step, coarse, self.grid.first)
        return there, values, widths, np.ones(len(rows), np.int64) if weights is None else weights[rows]


def _errors(
    params: Params, owners: Sequence[tuple[NDArray[Any], ...]], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """For entities of a block: how far each number of the mean may be off before it is rounded to the table's type,
    the largest size of an owner's number, and how many are in the mean: 0 where there is none.
    """  # noqa: D205 - three results
    shape = (size, params.dim)
    count, counted, total = (np.zeros(size, np.int64) for _ in range(3))
    widths, widest, summed, largest = (np.zeros(shape) for _ in range(4))
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for there, values, wide, weights in owners:
        some = np.flatnonzero(there)[weights > 0]
        x, fill, w = values[weights > 0], wide[weights > 0], weights[weights > 0]
        count[there] += 1
        counted[some] += 1
        total[some] += w
        widths[some] += fill
        widest[some] = np.maximum(widest[some], fill)
        largest[some] = np.maximum(largest[some], np.abs(x))
        if params.max_weight is not None:
            summed[some] += x * w[:, None]
            low[some], high[some] = np.minimum(low[some], x), np.maximum(high[some], x)
    enough = (count if params.max_weight is not None else counted) >= params.min_owners
    counted = np.where(enough, counted, 0)
    one = np.maximum(counted, 1)[:, None]
    if params.max_weight is None:
        return params.resolution + widths / (2 * one), largest, counted
    from secea.forms.keyed.tables import weighing_errors

    known = (counted > 0)[:, None]
    sums = np.maximum(total, 1)[:, None]
    mean = summed / sums
    distance = np.where(known, np.maximum(high - mean, mean - low), 0.0)
    return weighing_errors(params, count[:, None], one, sums, distance) + widest / 2, largest, counted
