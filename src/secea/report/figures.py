"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import Final

GAP: Final = "\N{NO-BREAK SPACE}"
DASH: Final = "\N{EN DASH}"
"""Where there is no number."""


def short(words: str, most: int) -> str:
    """Words that fit into a chart."""
    return words if len(words) <= most else words[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def number(value: object) -> float | None:
    """A finite number, or None for whatever else a file holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def score(value: float | None) -> str:
    """A metric: three decimals, or fewer where it is large."""
    if value is None:
        return DASH
    size = abs(value)
    return f"{value:.3f}" if size < 100 else f"{value:.1f}" if size < 10_000 else f"{value:.3g}"


def percent(share: float | None) -> str:
    """A share of one."""
    if share is None:
        return DASH
    size = abs(share) * 100
    if 0 < size < 0.1:
        return f"less than 0.1{GAP}%"
    return f"{share * 100:.1f}{GAP}%" if size < 3 else f"{share * 100:,.0f}{GAP}%"


def three_figures(value: float | None) -> str:
    """An epsilon, or noise: three figures, or all of a large one."""
    return DASH if value is None else f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """A time, in the unit that fits."""
    if value is None:
        return DASH
    if value < 1:
        return f"{value * 1000:.0f}{GAP}ms" if value >= 0.01 or value == 0 else f"{value * 1000:.1g}{GAP}ms"
    if value < 100:
        return f"{value:.1f}{GAP}s"
    if value < 6000:
        return f"{value / 60:.1f}{GAP}min"
    return f"{value / 3600:.1f}{GAP}h"


def size(count: float | None) -> str:
    """Bytes, in powers of 1000."""
    if count is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f}{GAP}{unit}" if unit == "B" or count >= 100 else f"{count:.1f}{GAP}{unit}"
        count /= 1000
    return f"{count:.1f}{GAP}TB"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (`about` that many) between low and high, 1, 2 or 5 times a power of ten apart."""
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = min((power * k for k in (1, 2, 5, 10)), key=lambda each: abs((high - low) / each - about))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_label(value: float, step: float) -> str:
    """As many decimals as the step has."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return f"{value + 0.0:,.{min(decimals, 9)}f}"
