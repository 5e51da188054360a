"""What a run measured: figures with their spread, in grids, in sections, as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from secea.errors import DataError

SCHEMA: Final = 1
"""The version of the JSON."""


@dataclass(frozen=True)
class Figure:
    """A measured number: the median of its repetitions, the least and the most."""

    median: float
    low: float
    high: float
    unit: str
    """s, B (bytes), x (times), M/s (millions a second), %, or nothing."""
    count: int = 1

    @staticmethod
    def of(values: float | Iterable[float], unit: str) -> Figure:
        """From one number or from repetitions."""
        numbers = [float(values)] if isinstance(values, int | float) else [float(value) for value in values]
        return Figure(statistics.median(numbers), min(numbers), max(numbers), unit, len(numbers))

    def __str__(self) -> str:
        scale, name = _scale(self.median or self.high, self.unit)
        shown, low, high = (digits(value / scale) for value in (self.median, self.low, self.high))
        spread = f" ({low} to {high})" if low != high else ""
        return f"{shown} {name}".rstrip() + spread


def _scale(value: float, unit: str) -> tuple[float, str]:
    """The unit that fits, and its size."""
    match unit:
        case "s":
            small = ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "us"), (1.0, 1e-3, "ms"), (6e3, 1.0, "s"), (3.6e5, 3600.0, "h"))
            return next(((scale, name) for below, scale, name in small if value < below), (86_400.0, "days"))
        case "B":
            large = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
            return next(((scale, name) for scale, name in large if value >= scale), (1.0, "B"))
        case _:
            return 1.0, unit


def digits(value: float) -> str:
    """Three significant digits and at most four decimals, or all that stand before the point."""
    if not math.isfinite(value) or abs(value) < 5e-5:
        return f"{abs(value):.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))
    return f"{value:,.{min(decimals, 4)}f}"


def ratios(above: Sequence[float], below: Sequence[float]) -> Figure:
    """How many times: repetition by repetition, since a machine's speed varies."""
    return Figure.of([a / b for a, b in zip(above, below, strict=True)], "x")


@dataclass(frozen=True)
class Grid:
    """A table: for each row, figures by the name of their column."""

    title: str
    rows: dict[str, dict[str, Figure]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order in which they come."""
        return list(dict.fromkeys(column for row in self.rows.values() for column in row))


@dataclass(frozen=True)
class Section:
    """A part of a run: what was measured on what, and its grids by name."""

    about: str
    grids: dict[str, Grid]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """All sections of a run, and the machine."""

    machine: dict[str, str]
    quick: bool
    sections: dict[str, Section] = field(default_factory=dict)

    def figures(self) -> dict[tuple[str, str, str, str], Figure]:
        """Every figure by section, grid, row and column."""
        return {
            (section, grid, row, column): figure
            for section, part in self.sections.items()
            for grid, table in part.grids.items()
            for row, cells in table.rows.items()
            for column, figure in cells.items()
        }

    @staticmethod
    def merged(runs: Sequence[Run], sections: Sequence[str]) -> Run:
        """These sections of all runs, in this order; later runs count. The machine is that of the first."""
        known = {name: part for run in runs for name, part in run.sections.items()}
        ordered = {name: known[name] for name in sections if name in known}
        return Run(runs[0].machine, any(run.quick for run in runs), ordered)

    def to_json(self) -> dict[str, Any]:
        """As written to a file."""
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_json(data: object) -> Run:
        """The inverse; `DataError` for anything else."""
        try:
            assert isinstance(data, Mapping)
            if data["schema"] != SCHEMA:
                raise DataError(f"a benchmark of schema {SCHEMA} is expected, this one has {data['schema']!r}")
            sections = {name: _section(part) for name, part in data["sections"].items()}
            return Run(dict(data["machine"]), bool(data["quick"]), sections)
        except (AssertionError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"this is not what `python -m bench --json` writes: {error!r}") from None


def _section(part: Mapping[str, Any]) -> Section:
    grids = {
        name: Grid(
            grid["title"],
            {row: {column: Figure(**f) for column, f in cells.items()} for row, cells in grid["rows"].items()},
        )
        for name, grid in part["grids"].items()
    }
    return Section(part["about"], grids, list(part["notes"]))
