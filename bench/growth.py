"""How the CPU time and the bytes of a round grow with each size, for all contestants, and fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

import numpy as np

from bench import contest
from bench.contest import AES, CKKS, PLAIN, SECAGG, SECEA, Work
from bench.figures import Figure, Grid, Section
from bench.measure import Tick, Timing
from bench.peers import missing
from bench.shapes import Scale, Shape
from secea.arithmetic.field import keep_freed_memory

VARIABLES: Final = {
    "M": "entities of all clients",
    "d": "length of an embedding",
    "N": "clients",
    "entities": "really owned, at a fixed bound",
}
ELEMENTS, CIPHERTEXTS = "the paper: elements", "the paper: bytes"
"""Rows: the paper's protocol is too slow to be run, but its elements can be counted."""
EACH, ELEMENT, RELATIVE = "secea: bytes of a client", "secea: element", "secea: bytes of a client / element"
ENOUGH: Final = 2.0
"""CPU seconds of a contestant at one point, after which it has no more rounds."""
ONE_OF: Final = 4
"""Ciphertexts of CKKS that are measured; the others cost as much."""


def series(base: Shape, steps: int) -> Iterator[tuple[str, list[tuple[int, Shape]]]]:
    """For each variable the values and shapes; the union is never more than the bound allows."""
    doubled = [2**i for i in range(steps)]
    M, N = base.entities, base.clients // 2
    yield "M", [(M * k, base.but(entities=M * k, own=base.own * k)) for k in doubled]
    yield "d", [(base.dim * k, base.but(dim=base.dim * k)) for k in doubled]
    yield "N", [(N * k, base.but(clients=N * k)) for k in doubled]
    few = M // doubled[-1]
    yield "entities", [(few * k, base.but(own=few * k, bound=M)) for k in doubled if few * k * base.clients >= M]


OWN: Final = "Bytes are flat in the entities really owned. CPU is not: own rows are encoded, filled and put under keys."


def growth(scale: Scale, tick: Tick) -> Section:
    """One grid for each variable, with a column for each value, and one of the exponents."""
    keep_freed_memory()  # as in the processes that an engine starts
    grids, fits = {}, Grid("Fitted exponents (1: twice as large costs twice as much; 0: flat)")
    for name, points in series(scale.growth, scale.growth_steps):
        grid = Grid(f"{name}: {VARIABLES[name]} (otherwise {scale.growth})")
        for value, shape in points:
            tick(f"{name} = {value:,}")
            for row, figure in _point(shape, scale, alone=name == "entities").items():
                grid.rows.setdefault(row, {})[f"{value}"] = figure
        grids[name] = grid
        for row, figure in _fits(grid).items():
            fits.rows.setdefault(row, {})[name] = figure
    notes = [f"CKKS was measured on {ONE_OF} ciphertexts of each client, and multiplied.", OWN, *missing()]
    return Section(f"around {scale.growth}", {"exponents": fits, **grids}, notes)


def _point(shape: Shape, scale: Scale, *, alone: bool) -> dict[str, Figure]:
    """All contestants at one point, one after the other. Who takes long is measured less often."""
    tables, row = shape.tables(), dict[str, Figure]()
    works: dict[str, Work] = {SECEA: contest.keyed(tables, shape)}
    if not alone:
        if find_spec("flwr"):
            works |= {SECAGG: contest.secagg(tables, shape), AES: contest.secagg(tables, shape, aes=True)}
        if find_spec("tenseal"):
            works[CKKS] = contest.ckks(tables, shape, ONE_OF)
        works[PLAIN] = contest.plain(tables, shape)
    for name, work in works.items():
        found = [work()]
        while len(found) < scale.growth_rounds and sum(each.cpu for each in found) < ENOUGH:
            found.append(work())
        row |= _columns(name, found)
    element = contest.numbers(shape).ring.element_bytes
    each = row[f"{SECEA}: bytes"].median / shape.clients
    row |= {EACH: Figure.of(each, "B"), ELEMENT: Figure.of(element, "B"), RELATIVE: Figure.of(each / element, "")}
    return row if alone else row | _paper(shape, scale.key_bits)


def _columns(name: str, timings: Sequence[Timing]) -> dict[str, Figure]:
    sizes = [each.bytes for each in timings]
    return {f"{name}: CPU": Figure.of([each.cpu for each in timings], "s"), f"{name}: bytes": Figure.of(sizes, "B")}


def paper_elements(shape: Shape) -> int:
    """Masked elements of a round of the paper's protocol: N * sum |E_n| * L (docs/protocol.md, section 9)."""
    params = shape.params()
    return shape.clients**2 * shape.own * math.ceil((shape.dim + 1) / params.K)


def _paper(shape: Shape, key_bits: int) -> dict[str, Figure]:
    elements = paper_elements(shape)
    return {ELEMENTS: Figure.of(elements, ""), CIPHERTEXTS: Figure.of(2 * elements * key_bits // 4, "B")}


def _fits(grid: Grid) -> dict[str, Figure]:
    xs = [float(column) for column in grid.columns]
    found = {row: least(cells) for row, cells in grid.rows.items()}
    fits = {row: Figure.of(exponent(xs, ys), "") for row, ys in found.items()}
    ours = (f"{SECEA}: CPU", f"{SECEA}: bytes")
    return fits | {off_line(row): Figure.of(100 * off_a_line(xs, found[row]), "%") for row in ours}


def off_line(row: str) -> str:
    """The row that says how far that one is from a straight line."""
    return f"{row}, off a line"


def least(cells: Mapping[str, Figure]) -> list[float]:
    """The least of each point's repetitions: what else the machine does only adds to it."""
    return [figure.low for figure in cells.values()]


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms (least squares)."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def off_a_line(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How far the points are from y = a + b*x at most, over the largest y."""
    fitted = np.polyval(np.polyfit(xs, ys, 1), xs)
    return float(np.abs(fitted - np.array(ys)).max() / max(ys))
