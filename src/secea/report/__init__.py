"""`secea report`: one page about one run or several, that opens without a network."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from secea.atomic import replace_files
from secea.errors import DataError
from secea.report.page import page
from secea.report.runs import Group, grouped, read, runs_in

__all__ = ["Inline", "inline", "save", "write"]


def write(folders: Iterable[Path], out: Path | None = None) -> tuple[Path, list[Group]]:
    """Write the page about these runs, and say where it is; by default into the first folder."""
    given = list(dict.fromkeys(folders))
    groups = _groups(given)
    path = out or given[0] / "report.html"
    save(page(groups), path)
    return path, groups


def inline(*folders: Path | str, height: int = 720) -> Inline:
    """The page about these runs, to be shown in a notebook: make it the last line of a cell."""
    return Inline(page(_groups([Path(folder) for folder in folders])), height)


@dataclass(frozen=True)
class Inline:
    """A page in a frame of a notebook. It can run no script there."""

    page: str = field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        style = f"box-sizing:border-box;width:100%;height:{self.height}px;border-radius:8px"
        style += ";border:1px solid rgba(128,128,128,.35)"
        return f'<iframe sandbox="" style="{style}" srcdoc="{html.escape(self.page)}"></iframe>'


def _groups(folders: Iterable[Path]) -> list[Group]:
    return grouped([read(run) for run in dict.fromkeys(run for folder in folders for run in runs_in(folder))])


def save(page: str, path: Path, *, mode: int = 0o666) -> None:
    """Write a page, whole or not at all. `mode` is that of the file, before the umask."""
    try:
        replace_files({path: page.encode()}, mode=mode)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
