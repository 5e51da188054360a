"""What was seen of a fault, and the tables of docs/deploy.md that say so."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Seen:
    """What a fault looked like."""

    fault: str
    cause: str
    server: str
    after: float
    """Seconds until the server knew it."""
    event: str
    site: str
    site_after: float

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """As it stands in the documentation; nobody may be left to write."""
        server = (f"`{self.cause}`: {self.server}", f"{self.after:.1f} s") if self.cause else (NOBODY, "")
        site = (f"`{self.event}`: {self.site}", f"{self.site_after:.1f} s") if self.event else (NOBODY, "")
        return (self.fault, *server, *site)


NOBODY = "nobody is left to write"
HEADS = {"nvflare": "| fault, on NVFlare |", "flower": "| fault, on Flower |"}


def shape(row: Iterable[str]) -> tuple[str, ...]:
    """A row without its numbers."""
    return tuple(re.sub(r"\b\d+(\.\d+)?\b", "#", cell) for cell in row)


def documented(engine: str) -> dict[str, tuple[str, ...]]:
    """The rows of an engine's table in docs/deploy.md."""
    _, _, text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").partition(HEADS[engine])
    lines = itertools.takewhile(lambda line: line.startswith("|"), text.splitlines()[2:])
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return {row[0]: row for row in rows}


def markdown(engine: str, found: Iterable[Seen]) -> str:
    """The table."""
    head = f"{HEADS[engine]} the server's log | after | the site's own log | after |\n|---|---|---:|---|---:|\n"
    return head + "\n".join(f"| {' | '.join(each.row)} |" for each in found)
