"""How time, bytes and memory grow with each size: points in processes of their own, and fitted exponents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from bench.figures import Figure, Grid, Section
from bench.measure import Tick, in_child
from bench.shapes import Scale, Shape

MEASURES: Final = ("round: CPU", "round: bytes", "set-up: CPU", "set-up: bytes", "memory")
VARIABLES: Final = {
    "M": "entities of all clients",
    "max_entities": "bound for each client",
    "both": "M and max_entities together",
    "entities": "really owned, at a fixed bound",
    "d": "length of an embedding",
    "N": "clients",
    "T": "colluding clients",
}


def series(base: Shape, steps: int) -> Iterator[tuple[str, list[tuple[int, Shape]]]]:
    """For each variable the values and shapes; the union is never more than the bound allows."""
    doubled = [2**i for i in range(steps)]
    top, N = doubled[-1], base.clients
    M, most = base.entities, base.entities * top // N
    yield "M", [(M * k, base.but(entities=M * k, own=M * k // N, bound=min(most, M))) for k in doubled if most <= M]
    yield "max_entities", [(M // top * k, base.but(own=M // top * k)) for k in doubled if M // top * k * N >= M]
    yield "both", [(M * k, base.but(entities=M * k, own=base.own * k)) for k in doubled]
    yield "entities", [(M // top * k, base.but(own=M // top * k, bound=M)) for k in doubled if M // top * k * N >= M]
    yield "d", [(base.dim // 2 * k, base.but(dim=base.dim // 2 * k)) for k in doubled]
    half = max(3, N // 2)
    yield "N", [(n, base.but(clients=n, own=-(-M // half))) for n in range(half, half * (steps + 1), half)]
    wide = base.but(clients=2 * steps + 3, entities=M // 2, own=base.own // 2)
    yield "T", [(t, wide.but(collusion=t)) for t in range(1, steps + 2)]


def growth(scale: Scale, tick: Tick) -> Section:
    """One grid for each variable, and one of the exponents."""
    grids, fits = {}, {}
    for name, points in series(scale.growth, scale.growth_steps):
        grid = Grid(f"{name}: {VARIABLES[name]} (otherwise {points[0][1]})")
        for value, shape in points:
            tick(f"{name} = {value:,}")
            grid.rows[f"{value}"] = _row(in_child(shape, scale.growth_rounds))
        grids[name] = grid
        fits[name] = _fits(grid)
    titles = "Fitted exponents (1: twice as large costs twice as much; 0: flat)"
    return Section(f"around {scale.growth}", {"exponents": Grid(titles, fits), **grids})


def _row(found: dict[str, Any]) -> dict[str, Figure]:
    rounds = found["rounds"]
    values = ([r["cpu"] for r in rounds], rounds[-1]["bytes"], found["setup"]["cpu"], found["setup"]["bytes"])
    row = {
        name: Figure.of(value, unit) for name, value, unit in zip(MEASURES, values, ("s", "B", "s", "B"), strict=False)
    }
    return row | {"memory": Figure.of(max(0, found["peak"] - found["start"]), "B")}


def _fits(grid: Grid) -> dict[str, Figure]:
    xs = [float(row) for row in grid.rows]
    known = {name: ys for name in MEASURES if min(ys := _least(grid, name)) > 0}
    fits = {name: Figure.of(exponent(xs, ys), "") for name, ys in known.items()}
    return fits | {"round: CPU off a line": Figure.of(off_a_line(xs, _least(grid, "round: CPU")), "")}


def _least(grid: Grid, name: str) -> list[float]:
    """The least of each point's repetitions: what else the machine does only adds to it."""
    return [cells[name].low for cells in grid.rows.values()]


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms (least squares)."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def off_a_line(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How far the points are from y = a + b*x at most, over the largest y."""
    fitted = np.polyval(np.polyfit(xs, ys, 1), xs)
    return float(np.abs(fitted - np.array(ys)).max() / max(ys))
