"""The form "keyed" with clients that take a short cut, which shows only after something else has happened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.field import Residues
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.epochs import within
from secea.audit.mutants.keyed import filling, mutant
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.numbers import Numbers, cap_of
from secea.forms.keyed.tables import Places, Tables
from secea.party.phases import Agreement
from secea.steps import oprf
from secea.table import Name, Table

_entities, _input_of = grid.entities, oprf.input_of


class RowsByNumber(Tables):
    """Looks for the rows of names once for tables of one size."""

    def where(self, table: Table, names: tuple[Name, ...]) -> Places:
        """Those of the table before, if it had as many."""
        if self._order[0] is not None and len(self._order[0]) == len(table) and self._order[1] == names:
            return self._order[2]
        return super().where(table, names)


class GridOfNow(Tables):
    """Knows how coarse a table is, and not how coarse those before were."""

    def look_at(self, table: Table) -> None:
        """Of this table alone."""
        self.grid = grid.grid_of(table.matrix, table.dtype)


class LastRow(KeyedClient):
    """Puts means of entities that it gave up into its last row."""

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """The place of a row that is not there is that of the last one."""
        assert self.round is not None
        rows = self.round.rows
        self.round = replace(self.round, rows=np.where(rows < 0, len(self.round.table) - 1, rows).astype(np.int32))
        super().stream(kind, sender, chunk, chunks, payload, at)
        self.round = replace(self.round, rows=rows)


def _less_all(self: Numbers, x: Residues, noisy: int, planned: int | None = None) -> NDArray[np.float64]:
    """Less the middle of the noise of all who began."""
    return self.ring.join(x, math.ldexp(1.0 / self.C, -self.f), self.reach(planned or noisy) // 2)


class GridAside(Tables):
    """What went out is recognised by its values, whatever fills them."""

    def fingerprint(self, table: Table, rows: Places, round: int) -> bytes:
        """Without the grid."""
        whole, self.grid = self.grid, None
        found = super().fingerprint(table, rows, round)
        self.grid = whole
        return found


def _in_blocks(names: Sequence[Name], key: bytes) -> NDArray[np.uint64]:
    """Each block of names has the hashes of the first."""
    first = _entities(names[: grid.NAMES_AT_ONCE], key)
    return np.resize(first, len(names))


def _shortened(name: bytes) -> bytes:
    """Only the beginning of a long name."""
    return _input_of(name) if len(name) <= oprf.MOST_INPUT_BYTES else name[: oprf.MOST_INPUT_BYTES]


def _cap_of_64(max_abs: float) -> float:
    """That of the usual range."""
    return 1.0


NAMES_IN_BLOCKS = replaced(
    "names-in-blocks", "Names beyond some thousand have the fills of the first ones.", {_entities: _in_blocks}
)
LONG_NAMES = replaced("long-names", "Long names that begin alike are one entity.", {_input_of: _shortened})
CAP_OF_64 = replaced("cap-of-64", "The coarsest grid is that of max_abs=64.", {cap_of: _cap_of_64})
GRID_ASIDE = mutant(
    "grid-aside", "What went out is recognised by its values, and not by what filled them.", filling(GridAside)
)
ROWS_BY_NUMBER = mutant(
    "rows-by-number", "Rows are taken to be in the order of the last table that had as many.", filling(RowsByNumber)
)
GRID_OF_NOW = mutant(
    "grid-of-now", "A fill is as wide as the grid of its table, whatever came before.", filling(GridOfNow)
)
LAST_ROW = mutant(
    "last-row", "The mean of an entity that was given up takes the place of the last row.", Overheard(of_client=LastRow)
)
MIDDLE_OF_ALL = within(
    "middle-of-all", "Means lack the middle of the noise of those who dropped out.", Numbers, "read", _less_all
)
