"""What is known of metrics: how people write them, and how to compare two values of one."""

from __future__ import annotations

from typing import Final

NAMES: Final = {
    "mrr": "MRR", "rmse": "RMSE", "mae": "MAE", "auc": "AUC", "ndcg": "NDCG", "map": "MAP", "f1": "F1",
}  # fmt: skip
ERRORS: Final = {"rmse", "mae", "mse", "loss", "mr"}
"""Metrics of which less is better."""
FROM_CHANCE: Final = {"auc"}
"""Metrics that begin at a half, where guessing is: a percentage of them says nothing."""


def metric_name(name: str) -> str:
    """A metric's name: MRR, Hits@1, Tail MRR."""
    words = " ".join(NAMES.get(word.lower(), word) for word in name.split(" "))
    return words[:1].upper() + words[1:]


def both(a: float, b: float) -> tuple[str, str]:
    """Two values of a metric, with as many decimals as tell them apart, from three to six."""
    digits = next((n for n in range(3, 6) if f"{a:.{n}f}" != f"{b:.{n}f}"), 3 if a == b else 6)
    return f"{a:.{digits}f}", f"{b:.{digits}f}"


def base_of(metric: str, difference: float, base: float) -> float | None:
    """What a difference is a percentage of; None where a percentage says little, as from 0.01 to 0.10."""
    return None if metric.lower() in FROM_CHANCE or not 0 < base >= abs(difference) else base


def amount(metric: str, difference: float, base: float | None) -> str:
    """The size of a difference: in percent of a base, or in the metric's own units."""
    size = abs(difference)
    if base is None:
        return f"{size:.3f} {metric_name(metric)}" if size >= 5e-4 or not size else f"{size:.1g} {metric_name(metric)}"
    percent = 100 * size / base
    return "less than 0.1 %" if 0 < percent < 0.1 else f"{percent:.1f} %" if percent < 3 else f"{percent:.0f} %"
