"""`secea report`: one page about one run or several, that opens without a network."""

from __future__ import annotations

import tempfile
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
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".report", suffix=".html", delete=False
        ) as file:
            file.write(content)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error}") from None
