"""Charts as inline SVG, drawn for one width. Colours are classes of the style sheet; nothing needs a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from secea.report.figures import tick_label, ticks
from secea.report.markup import Content, Markup, tag

Point = tuple[float, float]
ORDER = {3: 1, 0: 2}
"""Slots that are drawn last: a wide pale line for the same means unprotected, and on it secea's."""


@dataclass(frozen=True)
class Line:
    """A curve, with the smallest and largest of several runs where there are several."""

    slot: int
    """Its colour and dashes."""
    label: str
    points: Sequence[Point]
    end: str = ""
    """The text beside its name."""
    band: Sequence[tuple[float, float, float]] = ()

    @property
    def reach(self) -> list[float]:
        """All heights that it has."""
        return [y for _, y in self.points] + [y for _, low, high in self.band for y in (low, high)]


def for_widths(draw: Callable[[int], Markup], wide: int, narrow: int = 340) -> Markup:
    """The chart drawn twice: text stays legible on a phone, and the style sheet shows the one that fits."""
    return Markup(tag("div", draw(wide), class_="wide") + tag("div", draw(narrow), class_="narrow"))


def canvas(width: float, height: float, says: str, *content: Content) -> Markup:
    """The SVG element: `says` is for those who do not see it."""
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag("svg", *content, viewBox=box, width=width, height=height, role="img", aria_label=says, class_="chart")


def label(x: float, y: float, words: str, kind: str = "tick", anchor: str = "start") -> Markup:
    """Text at a place."""
    return tag("text", words, x=x, y=y, class_=kind, text_anchor=anchor)


def path(points: Sequence[Point], kind: str, *, closed: bool = False) -> Markup:
    """Straight lines from point to point."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return tag("path", d=f"M{steps}{'Z' if closed else ''}", class_=kind)


def _apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, at least a gap from each other: labels that do not overlap."""
    blocks: list[list[int]] = []  # members that touch move together

    def start(members: Sequence[int]) -> float:
        room = gap * (len(members) - 1)
        middle = sum(wanted[i] for i in members) / len(members)
        return min(max(middle - room / 2, low), max(low, high - room))

    for i in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        blocks.append([i])
        while len(blocks) > 1 and start(blocks[-1]) < start(blocks[-2]) + gap * len(blocks[-2]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = {i: start(members) + at * gap for members in blocks for at, i in enumerate(members)}
    return [placed[i] for i in range(len(wanted))]


def lines(
    curves: Sequence[Line],
    *,
    width: int,
    height: int,
    says: str,
    x_name: str,
    show: Callable[[float], str],
    bounds: Point | None = None,
) -> Markup:
    """Curves over rounds, named at their ends; on a pointer's column, all values."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for y in curve.reach]
    low, high = bounds or (min(ys), max(ys))
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    room = (high - low) * 0.06
    low, high = low - room, high + room
    left, right, top, bottom = (
        46.0,
        width - 12.0 - 6.9 * max(len(c.label) + bool(c.end) + len(c.end) for c in curves),
        12.0,
        height - 40.0,
    )
    first, last = min(xs), max(max(xs), min(xs) + 1)

    def place(x: float, y: float) -> Point:
        return left + (x - first) / (last - first) * (right - left), bottom - (y - low) / (high - low) * (bottom - top)

    marks = ticks(low, high, max(4, int((bottom - top) // 56)))
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    grid: list[Markup] = []
    for mark in marks:
        _, y = place(first, mark)
        grid += [path([(left, y), (right, y)], "grid"), label(left - 8, y + 4, tick_label(mark, step), anchor="end")]
    across = [x for x in ticks(first, last, max(2, int((right - left) // 90))) if x == int(x)]
    grid += [label(place(x, low)[0], bottom + 18, f"{x:.0f}", anchor="middle") for x in across]
    grid.append(path([(left, bottom), (right, bottom)], "base"))
    grid.append(label((left + right) / 2, height - 4.0, x_name, "axis", "middle"))

    drawn: list[Markup] = []
    for curve in curves:
        if len(curve.band) > 1:
            upper = [place(x, b) for x, _, b in curve.band]
            lower = [place(x, a) for x, a, _ in reversed(curve.band)]
            drawn.append(path(upper + lower, f"band s{curve.slot}", closed=True))
    for curve in sorted(curves, key=lambda curve: ORDER.get(curve.slot, 0)):
        drawn.append(path([place(*point) for point in curve.points], f"line s{curve.slot}"))
        if len(curve.points) == 1:
            x, y = place(*curve.points[0])
            drawn.append(tag("circle", cx=x, cy=y, r=3, class_=f"dot s{curve.slot}"))
    ends = [place(*curve.points[-1]) for curve in curves]
    for curve, (x, y), at in zip(curves, ends, _apart([y for _, y in ends], 17, top + 4, bottom), strict=True):
        if x < right - 1 or abs(at - y) > 3:
            drawn.append(path([(x + 3, y), (right + 3, at)], "leader"))
        value = tag("tspan", f" {curve.end}", class_="end") if curve.end else None
        drawn.append(tag("text", curve.label, value, x=right + 7, y=at + 4, class_=f"name s{curve.slot}"))
    hover = _columns(curves, place, sorted(set(xs)), (left, right, top, bottom), x_name, show)
    return canvas(width, height, says, tag("g", grid), drawn, hover)


def _columns(
    curves: Sequence[Line],
    place: Callable[[float, float], Point],
    xs: Sequence[float],
    frame: tuple[float, float, float, float],
    x_name: str,
    show: Callable[[float], str],
) -> Markup:
    """For each x an invisible column; the style sheet shows its values while the pointer is on it."""
    left, right, top, bottom = frame
    every = -(-len(xs) // 120)
    xs = xs[::-every][::-1]  # the last one is always there
    at = [place(x, 0.0)[0] for x in xs]
    edges = [left, *((a + b) / 2 for a, b in pairwise(at)), right]
    columns = []
    for i, x in enumerate(xs):
        found = [(c, y) for c in curves for cx, y in c.points if cx == x]
        found.sort(key=lambda pair: place(x, pair[1])[1])
        box_width = 30 + 7.4 * max(len(c.label + show(y)) for c, y in found)
        box_height = 26 + 17 * len(found)
        box_x = at[i] + 10 if at[i] + 10 + box_width < right else at[i] - 10 - box_width
        tip = [
            path([(at[i], top), (at[i], bottom)], "rule"),
            *(tag("circle", cx=at[i], cy=place(x, y)[1], r=3.5, class_=f"dot s{c.slot}") for c, y in found),
            tag("rect", x=box_x, y=top, width=box_width, height=box_height, rx=4, class_="tip-box"),
            label(box_x + 8, top + 17, f"{x_name} {x:.0f}", "tip-head"),
        ]
        for row, (c, y) in enumerate(found):
            tip.append(label(box_x + 8, top + 35 + 17 * row, c.label, f"name s{c.slot}"))
            tip.append(label(box_x + box_width - 8, top + 35 + 17 * row, show(y), "tip-value", "end"))
        area = tag(
            "rect", x=edges[i], y=top, width=max(edges[i + 1] - edges[i], 0.1), height=bottom - top, class_="hit"
        )
        columns.append(tag("g", area, tag("g", tip, class_="tip"), class_="column"))
    return tag("g", columns, aria_hidden="true")


@dataclass(frozen=True)
class Part:
    """A piece of a bar."""

    kind: str
    """The class of its colour."""
    name: str
    value: float
    shown: str
    """The value, as people read it."""
    about: str = ""


def _segments(parts: Sequence[Part], x: float, y: float, width: float, height: float, total: float) -> list[Markup]:
    drawn, at = [], x
    for part in parts:
        wide = part.value / total * width
        if wide > 0:
            drawn.append(
                tag(
                    "rect", tag("title", f"{part.name}: {part.shown}"), x=at, y=y, width=max(wide - 1.5, 0.5),
                    height=height, class_=f"part {part.kind}",
                )
            )  # fmt: skip
            words = (
                f"{part.name} {part.shown}"
                if part.name and wide > 7.2 * len(f"{part.name} {part.shown}") + 14
                else part.name
            )
            if words and wide > 7.2 * len(words) + 14:
                drawn.append(label(at + 9, y + height / 2 + 4.5, words, f"on on-{part.kind}"))
        at += wide
    return drawn


def zoomed(whole: Sequence[Part], name: str, inner: Sequence[Part], *, width: int, says: str) -> Markup:
    """A bar of `whole` and one more piece, that is drawn again below in full width with what it consists of."""
    inside = sum(part.value for part in inner)
    total = sum(part.value for part in whole) + inside
    seen = width - 2.0
    start = 1 + seen * (total - inside) / total
    piece = Part("protection", "", inside, name)  # its text is below it, where there is room
    top = _segments([*whole, piece], 1, 2, seen, 34, total)
    below = _segments(inner, 1, 72, seen, 34, inside) if inside else []
    funnel = path([(start, 40), (width - 2.5, 40), (width - 2.5, 68), (1, 68)], "funnel", closed=True)
    words = label(width - 10.0, 58.5, name, "funnel-name", "end")
    return canvas(width, 108 if inside else 38, says, (funnel, words) if inside else None, top, below)


def bars(parts: Sequence[Part], *, width: int, says: str) -> Markup:
    """One bar for each part, under its name and number."""
    most = max((part.value for part in parts), default=0) or 1.0
    drawn = []
    for row, part in enumerate(parts):
        y = 34.0 * row
        drawn += [
            tag("text", part.name, tag("tspan", f"  {part.about}", class_="number"), x=0, y=y + 13, class_="entry"),
            label(width, y + 13, part.shown, "entry number", "end"),
            tag("rect", x=0, y=y + 19, width=width, height=7, rx=3.5, class_="track"),
            tag("rect", x=0, y=y + 19, width=max(part.value / most * width, 2.0), height=7, rx=3.5, class_=part.kind),
        ]
    return canvas(width, max(34.0 * len(parts) - 6, 1), says, drawn)


def histogram(parts: Sequence[Part], *, width: int, height: int, says: str, x_name: str) -> Markup:
    """A column for each part, with its number on top where there is room."""
    top, bottom = 22.0, height - 42.0
    most = max((part.value for part in parts), default=0) or 1
    step = width / max(len(parts), 1)
    every = max(1, -(-len(parts) * 26 // width))
    wide = min(step * 0.72, 64)
    drawn = [path([(0, bottom + 0.5), (width, bottom + 0.5)], "base")]
    for i, part in enumerate(parts):
        tall = part.value / most * (bottom - top)
        middle = (i + 0.5) * step
        if part.value:
            note = tag("title", f"{x_name} {part.name}: {part.shown}")
            place = {"x": middle - wide / 2, "y": bottom - tall, "width": wide, "height": tall}
            drawn.append(tag("rect", note, rx=min(3.0, wide / 4), class_=part.kind, **place))
        if step > 7.5 * len(part.shown) + 2:
            drawn.append(label(middle, bottom - tall - 6, part.shown, "tick", "middle"))
        if i % every == 0:
            drawn.append(label(middle, bottom + 18, part.name, "tick", "middle"))
    drawn.append(label(width / 2, height - 4.0, x_name, "axis", "middle"))
    return canvas(width, height, says, drawn)


def scatter(points: Sequence[tuple[float, float, int, str]], *, width: int, says: str) -> Markup:
    """Points (x, y, shade, name) in a square; the axes have no meaning, and are left out."""
    edge = 12.0
    xs, ys = [x for x, _, _, _ in points] or [0.0], [y for _, y, _, _ in points] or [0.0]
    scale = (width - 2 * edge) / (max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0)
    x_mid, y_mid, middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2, width / 2
    radius = 4.6 if len(points) < 150 else 3.4
    drawn = [tag("rect", x=0.5, y=0.5, width=width - 1, height=width - 1, rx=6, class_="frame")]
    for x, y, shade, name in points:
        at = {"cx": middle + (x - x_mid) * scale, "cy": middle - (y - y_mid) * scale}
        drawn.append(tag("circle", tag("title", name), r=radius, class_=f"point o{shade}", **at))
    return canvas(width, width, says, drawn)
