"""`secea report`: one page about one run or several, that opens without a network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from secea.errors import DataError
from secea.report.page import page
from secea.report.runs import Group, grouped, read

__all__ = ["write"]


def write(folders: Iterable[Path], out: Path | None = None) -> tuple[Path, list[Group]]:
    """Write the page about these runs, and say where it is; by default into the first folder."""
    runs = [read(folder) for folder in dict.fromkeys(folders)]
    groups = grouped(runs)
    path = out or runs[0].folder / "report.html"
    _replace(path, page(groups))
    return path, groups


def _replace(path: Path, content: str) -> None:
    """All of it or nothing."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise DataError(f"{path} cannot be written: {error}") from None
