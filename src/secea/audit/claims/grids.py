"""A claim about the grids of tables and rows in the form "keyed", which the fill covers: K6, in all its branches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.attacks import keyed_counts as counts
from secea.audit.attacks.keyed_counts import Inputs, Owners
from secea.audit.claims.counts import by_grid, form_of, right, rng
from secea.audit.mutants import grids as mutants
from secea.forms.keyed.tables import fill_widths
from secea.table import Table

SIZES: Final = (1, 6, 7, 8, 9, 16, 31, 32, 33, 50)
"""Different sizes of a table's numbers, on both sides of what is enough in a row, and in a table."""
DIMS: Final = (1, 7, 8, 9, 16)
PRECISIONS: Final = (24, 42)
TRIALS: Final = 400
BITS: Final = {np.dtype(np.float32): 23, np.dtype(np.float64): 52}


@dataclass(frozen=True)
class Made:
    """Numbers of a kind: all multiples of `scale`, if there is one."""

    name: str
    of: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    scale: float = 0.0


def _rounded(bits: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    return lambda x: np.ldexp(np.rint(np.ldexp(x, 1 + bits)), -1 - bits)


KINDS: Final = (
    Made("all bits", lambda x: x),
    Made("bf16", _rounded(7)),
    Made("fp16", _rounded(10)),
    Made("three decimals", lambda x: np.round(x, 3), 1e-3),
)


def _table(kind: Made, dtype: Any, sizes: int, dim: int, seed: int) -> NDArray[Any]:
    """A table with so many different sizes, of both signs, and zeros among its numbers."""
    draw = rng(seed, sizes, dim)
    made = np.unique(kind.of(0.5 + draw.random(4 * sizes) / 2).astype(dtype))[:sizes]
    assert made.size == sizes
    cells = max(2 * sizes, 64)
    rows = -(-cells // dim)
    flat = draw.choice(made, rows * dim) * draw.choice([-1, 1], rows * dim).astype(dtype)
    flat[: made.size] = made
    flat[made.size : made.size + 2] = 0
    return np.asarray(flat.reshape(rows, dim), dtype)


def _tables() -> Iterator[tuple[str, Made, NDArray[Any]]]:
    for (i, kind), dtype, sizes, dim in product(enumerate(KINDS), BITS, SIZES, DIMS):
        what = f"{sizes} different sizes, {kind.name}, {dtype}, d={dim}"
        yield what, kind, _table(kind, dtype, sizes, dim, i)


def _looked_at(subject: Subject) -> int:
    """Every grid that a client finds, against the specification."""
    cases = 0
    for what, kind, matrix in _tables():
        table = Table([f"{i}" for i in range(len(matrix))], matrix)
        params = counts.parameters(len(matrix), matrix.shape[1])
        used, step = spec.grid_of_table(matrix.reshape(-1).tolist(), BITS[matrix.dtype], kind.scale)
        found = grid.grid_of(matrix, matrix.dtype)
        if found[0] != used or not math.isclose(found[1], step, rel_tol=1e-5):
            raise Objection(f"{what}: the table's grid is {found}, and the specification's {used, step}")
        widths = fill_widths(params, table)(matrix.astype(np.float64))
        for row, wide in zip(matrix.tolist(), widths.tolist(), strict=True):
            bits, common = spec.grid_of_row(row, used, step)
            due = [spec.grid_of_value(x, bits, common, params.max_abs) for x in row]
            if not np.allclose(wide, due, rtol=1e-5, atol=0):
                raise Objection(f"{what}: the grids of a row are {wide}, and the specification's {due}")
            cases += 1
    return cases


def _filled(subject: Subject) -> int:
    """What a client uploads is filled as wide as these grids, and no wider: at every precision."""
    form, cases = form_of(subject), 0
    for precision, (what, kind, matrix) in product(PRECISIONS, _tables()):
        owners = Owners(len(matrix), form, 2)
        owners.session(counts.parameters(len(matrix), matrix.shape[1], 2, precision=precision))
        part = owners.parts[0]
        n, names = part.numbers, tuple(owners.names)
        values = part.tables.encoded(Table(names, matrix), names)
        used, step = spec.grid_of_table(matrix.reshape(-1).tolist(), BITS[matrix.dtype], kind.scale)
        rows = [(row, *spec.grid_of_row(row, used, step)) for row in matrix.tolist()]
        due = [[spec.grid_of_value(x, bits, low, part.params.max_abs) for x in row] for row, bits, low in rows]
        half = np.ldexp(np.array(due), n.f) / 2
        off = np.abs(values - np.ldexp(matrix.astype(np.float64), n.f))
        narrow = n.s * (n.w - 1) / 2 + 2
        if (off > half + narrow).any():
            raise Objection(f"{what}, precision {precision}: a number is filled wider than its grid")
        wide = half > 64 * narrow
        if wide.sum() > 50 and (off[wide] / half[wide]).max() < 0.5:  # with fewer than 2^-50, of uniform numbers
            raise Objection(f"{what}, precision {precision}: numbers are not filled as wide as their grid")
        cases += 1
    return cases


def _of_few(sizes: int) -> Inputs:
    """Numbers of few sizes, which an adversary does not know: only that they are float32, and at least 1/16."""
    made = (2.0**-4 * (1 + rng(sizes).random(sizes))).astype(np.float32).astype(np.float64)

    def rounded(x: NDArray[np.float64]) -> NDArray[np.float64]:
        places = np.floor(np.abs(x) * 1e6).astype(np.int64) % sizes
        return np.asarray(np.where(x < 0, -1.0, 1.0) * made[places])

    return Inputs(f"{sizes} sizes of float32", rounded, (2.0**-27,), np.float32)


def _counted(subject: Subject) -> int:
    """The attack: an owner counts on the grid of float32, in one round at a high precision."""
    form, cases = form_of(subject), 0
    for sizes in (6, 31):
        params = counts.parameters(TRIALS, 16, precision=42)
        owners, kind = Owners(TRIALS, form), _of_few(sizes)
        owners.session(params)
        world = counts.unlike(kind, TRIALS, rng(sizes), 16)
        seen = counts.seen(form, params, owners.encode(world, kind.dtype), world, exact=False)
        cases += right(f"{kind.name}, precision 42", by_grid(seen, kind, possible=world.possible), world)
    return cases


@claim(
    "record",
    KEYED,
    mutants=(mutants.FEW_ARE_FINE, mutants.ALWAYS_FLOAT64, mutants.MANY_ENOUGH, mutants.MANY_IN_A_ROW),
)
def grids(subject: Subject) -> int:
    """Keyed: the fill is as wide as the grid of the specification, however few different sizes a table or a row has.

    Both types, sizes on both sides of what is enough, short and long rows, low and high precision. An owner that counts
    on the grid of a float32 table of few sizes finds nothing.
    """
    return _looked_at(subject) + _filled(subject) + _counted(subject)
