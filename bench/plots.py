"""Pictures of a run as SVG files that need nothing else: growth on logarithmic axes, and the peers as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bench.contest import AES, CKKS, LIMIT, PLAIN, SECAGG, SECEA
from bench.figures import Figure, Grid, Run
from bench.growth import CIPHERTEXTS, ELEMENTS, least
from bench.paper import LITERAL_ALL
from secea.report.charts import Point, label, path
from secea.report.markup import Markup, tag

STYLE: Final = """
svg { background: #fff; font: 12px system-ui, sans-serif; }
text { fill: #3b4252; }
.title { font-weight: 600; fill: #1b2130; }
.tick { fill: #6b7385; font-size: 11px; }
.grid { stroke: #e6e9ef; fill: none; }
.base { stroke: #9aa3b5; fill: none; }
.line { fill: none; stroke-width: 1.6; }
.line.ours { stroke: #2f6fdb; stroke-width: 2.8; }
.line.secagg { stroke: #d9822b; }
.line.aes { stroke: #d9822b; stroke-dasharray: 5 4; }
.line.ckks { stroke: #3a9d5d; }
.line.plain { stroke: #6b7385; }
.line.paper { stroke: #a33ea1; stroke-dasharray: 2 4; }
.dot.ours { fill: #2f6fdb; }
.dot.secagg, .dot.aes { fill: #d9822b; }
.dot.ckks { fill: #3a9d5d; }
.dot.plain { fill: #6b7385; }
.dot.paper { fill: #a33ea1; }
.bar { fill: #2f6fdb; }
.bar.other { fill: #aeb7c8; }
"""
PAPER: Final = "the paper's protocol, extrapolated"
LINES: Final = {PAPER: "paper", CKKS: "ckks", SECAGG: "secagg", AES: "aes", SECEA: "ours", PLAIN: "plain"}
WIDE, HIGH, EDGE, TOP = 320.0, 236.0, 78.0, 48.0


def pictures(run: Run) -> dict[str, str]:
    """File names and their SVG, for the sections that the run has."""
    found = {}
    if section := run.sections.get("growth"):
        element = run.figures().get(("paper", "element", LITERAL_ALL, "CPU"))
        found["growth.svg"] = _growth({name: section.grids[name] for name in ("M", "d", "N")}, element, section.about)
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


def _growth(grids: dict[str, Grid], element: Figure | None, about: str) -> str:
    """CPU above, bytes below, a panel for each variable, a line for each contestant."""
    panels = {name: _curves(grid, element) for name, grid in grids.items()}
    drawn = [label(12, 16, f"One round, logarithmic scales: {about}", "title")]
    at = 12.0
    for name, css in LINES.items():
        if any(name in curves for both in panels.values() for curves in both.values()):
            drawn += [path([(at, 33), (at + 22, 33)], f"line {css}"), label(at + 27, 37, name)]
            at += 44 + 6.2 * len(name)
    for down, kind in enumerate(("CPU", "bytes")):
        heights = [y for both in panels.values() for ys in both[kind].values() for y in ys]
        reach = math.floor(math.log10(min(heights))), math.ceil(math.log10(max(heights)))
        for across, (name, both) in enumerate(panels.items()):
            xs = [float(column) for column in grids[name].columns]
            panel = _panel(f"{kind} against {name}", xs, both[kind], reach, "s" if down == 0 else "B")
            drawn.append(tag("g", panel, transform=f"translate({across * WIDE:.0f} {TOP + down * HIGH:.0f})"))
    return _svg(3 * WIDE, TOP + 2 * HIGH, "CPU and bytes of a round against each size, beside others", drawn)


def _curves(grid: Grid, element: Figure | None) -> dict[str, dict[str, list[float]]]:
    """For CPU and bytes the least at each point of each contestant; the paper's is elements times the cost of one."""
    cpu = {name: least(cells) for name in LINES if (cells := grid.rows.get(f"{name}: CPU"))}
    sizes = {name: least(cells) for name in LINES if (cells := grid.rows.get(f"{name}: bytes"))}
    if element:
        cpu[PAPER] = [count * element.low for count in least(grid.rows[ELEMENTS])]
    return {"CPU": cpu, "bytes": sizes | {PAPER: least(grid.rows[CIPHERTEXTS])}}


def _panel(
    title: str, xs: Sequence[float], curves: dict[str, list[float]], reach: tuple[int, int], unit: str
) -> list[Markup]:
    left, right, ceiling, floor = EDGE, WIDE - 22, 28.0, HIGH - 34
    span, (low, high) = math.log(xs[-1] / xs[0]), reach

    def place(x: float, y: float) -> Point:
        up = (math.log10(y) - low) / (high - low)
        return left + math.log(x / xs[0]) / span * (right - left), floor - up * (floor - ceiling)

    drawn = [label(left, 16, title, "title")]
    for power in range(low, high + 1):
        (_, y) = place(xs[0], 10.0**power)
        drawn.append(path([(left, y), (right, y)], "grid"))
        if (power - low) % (1 if high - low < 6 else 2) == 0:
            drawn.append(label(left - 6, y + 4, _power(power, unit), anchor="end"))
    drawn += [label(place(x, 10.0**low)[0], floor + 16, f"{x:,.0f}", anchor="middle") for x in xs]
    drawn.append(path([(left, floor), (right, floor)], "base"))
    for name, css in LINES.items():
        points = [place(x, y) for x, y in zip(xs, curves.get(name, ()), strict=False)]
        if points:
            drawn.append(path(points, f"line {css}"))
            drawn += [tag("circle", cx=x, cy=y, r=2.6, class_=f"dot {css}") for x, y in points]
    return drawn


def _power(power: int, unit: str) -> str:
    """10^power of that unit: 1 ms, 10 s, 100 kB."""
    if unit == "s" and power > 0:
        return f"{10**power:,} s"
    return str(Figure.of(10.0**power, unit)).replace(".00", "").replace(".0 ", " ")


def _bars(grid: Grid, about: str) -> str:
    """CPU and bytes of each contestant, on a logarithmic scale."""
    drawn = [label(12, 16, f"One round, logarithmic scale: {about}", "title")]
    at = 34.0
    for column in ("CPU", "bytes, all hops"):
        values = {name: cells[column] for name, cells in grid.rows.items() if name != LIMIT or column == "CPU"}
        smallest = min(figure.median for figure in values.values()) / 2
        most = math.log(max(figure.median for figure in values.values()) / smallest)
        drawn.append(label(12, at + 12, column, "title"))
        for i, (name, figure) in enumerate(values.items()):
            y = at + 22 + 24 * i
            wide = 420 * math.log(figure.median / smallest) / most
            kind = "bar" if name.startswith("secea") else "bar other"
            drawn += [
                label(160, y + 13, name, "tick", "end"),
                tag("rect", x=168, y=y, width=wide, height=17, rx=2, class_=kind),
                label(176 + wide, y + 13, str(Figure.of(figure.median, figure.unit)), "tick"),
            ]
        at += 34 + 24 * len(values)
    return _svg(680, at + 8, "Cost of a round, beside what people use instead; logarithmic scale", drawn)
