"""`secea report`: one page about one run or several, that opens without a network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from secea.atomic import replace_files
from secea.errors import DataError
from secea.report.page import page
from secea.report.runs import Group, grouped, read, runs_in

__all__ = ["save", "write"]


def write(folders: Iterable[Path], out: Path | None = None) -> tuple[Path, list[Group]]:
    """Write the page about these runs, and say where it is; by default into the first folder."""
    given = list(dict.fromkeys(folders))
    runs = [read(run) for run in dict.fromkeys(run for folder in given for run in runs_in(folder))]
    groups = grouped(runs)
    path = out or given[0] / "report.html"
    save(page(groups), path)
    return path, groups


def save(page: str, path: Path) -> None:
    """Write a page, whole or not at all."""
    try:
        replace_files({path: page.encode()})
    except OSError as error:
        raise DataError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
