"""A site of the benchmark on engines: its table lies in a file, and its training takes no time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from bench.hashed import hashed_names
from secea import Table
from secea.engines.host import Participant

_lasting: Final = ExitStack()
"""What holds for as long as this process lasts."""


def participant(table: str, means: str, hashed: bool) -> Participant:
    """Contributes one table in every round, and leaves the last means in a file; `hashed`: see `bench.hashed`."""
    if hashed:
        _lasting.enter_context(hashed_names())
    mine = load(table)
    return Participant(lambda: mine.names, lambda _means, _round: mine, lambda last: save(last, means))


def save(table: Table | None, path: Path | str) -> None:
    """A table whose names are numbers."""
    if table is not None:
        np.savez(path, names=np.array(table.names, np.int64), matrix=table.matrix)


def load(path: Path | str) -> Table:
    """The table of a file."""
    with np.load(path) as file:
        return Table(file["names"].tolist(), file["matrix"])
