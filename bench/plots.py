"""Pictures of a run as SVG files that need nothing else: growth on logarithmic axes, and the peers as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bench.figures import Figure, Grid, Run
from bench.growth import VARIABLES
from secea.report.charts import Point, label, path
from secea.report.markup import Markup, tag

STYLE: Final = """
svg { background: #fff; font: 12px system-ui, sans-serif; }
text { fill: #3b4252; }
.title { font-weight: 600; fill: #1b2130; }
.tick { fill: #6b7385; font-size: 11px; }
.grid { stroke: #e6e9ef; fill: none; }
.base { stroke: #9aa3b5; fill: none; }
.guide { stroke: #b7bfce; stroke-dasharray: 3 4; fill: none; }
.line { fill: none; stroke-width: 2; }
.line.cpu { stroke: #2f6fdb; }
.line.bytes { stroke: #d9822b; }
.line.memory { stroke: #3a9d5d; }
.dot.cpu, text.cpu { fill: #2f6fdb; }
.dot.bytes, text.bytes { fill: #b86a1c; }
.dot.memory, text.memory { fill: #2f8550; }
.bar { fill: #2f6fdb; }
.bar.other { fill: #aeb7c8; }
"""
LINES: Final = {"round: CPU": "cpu", "round: bytes": "bytes", "memory": "memory"}
WIDE, HIGH, EDGE = 320.0, 236.0, 46.0


def pictures(run: Run) -> dict[str, str]:
    """File names and their SVG, for the sections that the run has."""
    found = {}
    if section := run.sections.get("growth"):
        grids = {name: section.grids[name] for name in VARIABLES if name in section.grids}
        found["growth.svg"] = _growth(grids, section.grids["exponents"])
    if section := run.sections.get("peers"):
        found["peers.svg"] = _bars(section.grids["round"], section.about)
    return found


def _svg(width: float, height: float, says: str, content: Sequence[Markup]) -> str:
    style = tag("style", Markup(STYLE))
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag(
        "svg", tag("title", says), style, content, xmlns="http://www.w3.org/2000/svg", viewBox=box, width=width,
        height=height, role="img",
    ) + "\n"  # fmt: skip


def _growth(grids: dict[str, Grid], fits: Grid) -> str:
    """A panel for each variable: CPU, bytes and memory over those of the smallest point; dashed is linear."""
    drawn = [label(EDGE + 150.0 * i, 16, f"{name}", css) for i, (name, css) in enumerate(LINES.items())]
    drawn.append(label(EDGE + 450, 16, "dashed: twice as large costs twice as much", "tick"))
    for i, (name, grid) in enumerate(grids.items()):
        panel = _panel(name, grid, fits)
        drawn.append(tag("g", panel, transform=f"translate({i % 3 * WIDE:.0f} {24 + i // 3 * HIGH:.0f})"))
    rows = -(-len(grids) // 3)
    return _svg(3 * WIDE, 24 + rows * HIGH, "Growth of a round's cost with each size", drawn)


def _panel(name: str, grid: Grid, fits: Grid) -> list[Markup]:
    xs = [float(row) for row in grid.rows]
    curves = {css: [cells[column].low for cells in grid.rows.values()] for column, css in LINES.items()}
    curves = {css: [y / ys[0] for y in ys] for css, ys in curves.items() if min(ys) > 0}
    span = math.log2(xs[-1] / xs[0])
    low = min(0.0, *(math.log2(min(ys)) for ys in curves.values()))
    top = max(span, *(math.log2(max(ys)) for ys in curves.values()))
    left, right, ceiling, floor = EDGE, WIDE - 20, 28.0, HIGH - 40

    def place(x: float, y: float) -> Point:
        across = math.log2(x / xs[0]) / span
        return left + across * (right - left), floor - (math.log2(y) - low) / (top - low) * (floor - ceiling)

    drawn = [label(left, 16, f"{name}: {VARIABLES[name]}", "title")]
    for power in range(math.ceil(low), math.floor(top) + 1):
        (_, y) = place(xs[0], 2.0**power)
        drawn += [path([(left, y), (right, y)], "grid"), label(left - 6, y + 4, f"{2.0**power:g}x", anchor="end")]
    drawn += [label(place(x, 1)[0], floor + 16, f"{x:,.0f}", anchor="middle") for x in xs]
    drawn += [path([(left, floor), (right, floor)], "base"), path([place(xs[0], 1), place(xs[-1], 2**span)], "guide")]
    for css, ys in curves.items():
        points = [place(x, y) for x, y in zip(xs, ys, strict=True)]
        drawn.append(path(points, f"line {css}"))
        drawn += [tag("circle", cx=x, cy=y, r=3.0, class_=f"dot {css}") for x, y in points]
    known = [(column.removeprefix("round: "), fits.rows[name].get(column)) for column in LINES]
    exponents = [f"{column} {figure.median:.2f}".replace("-0.00", "0.00") for column, figure in known if figure]
    return [*drawn, label(left, HIGH - 8, f"exponents: {', '.join(exponents)}", "tick")]


def _bars(grid: Grid, about: str) -> str:
    """CPU and bytes of each contestant, on a logarithmic scale."""
    drawn = [label(12, 16, f"One round, logarithmic scale: {about}", "title")]
    at = 34.0
    for column in ("CPU", "bytes, all hops"):
        values = {name: cells[column] for name, cells in grid.rows.items() if column in cells}
        least = min(figure.median for figure in values.values()) / 2
        most = math.log(max(figure.median for figure in values.values()) / least)
        drawn.append(label(12, at + 12, column, "title"))
        for i, (name, figure) in enumerate(values.items()):
            y = at + 22 + 24 * i
            wide = 420 * math.log(figure.median / least) / most
            kind = "bar" if name.startswith("secea") else "bar other"
            drawn += [
                label(160, y + 13, name, "tick", "end"),
                tag("rect", x=168, y=y, width=wide, height=17, rx=2, class_=kind),
                label(176 + wide, y + 13, str(Figure.of(figure.median, figure.unit)), "tick"),
            ]
        at += 34 + 24 * len(values)
    return _svg(680, at + 8, "Cost of a round, beside what people use instead; logarithmic scale", drawn)
