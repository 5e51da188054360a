"""The notebook of examples/ runs from its first cell to its last, and shows what is stored in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from terminal import ROOT, environment, shim

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
DRUGS = ("aspirin", "ibuprofen", "codeine", "heparin", "warfarin")


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(notebook: Any) -> list[list[str]]:
    """What each cell shows: texts, tables, pages."""
    return [
        sorted({kind for each in cell.outputs for kind in each.get("data", [each.output_type])})
        for cell in code(notebook)
    ]


def shown(cell: Any) -> str:
    """All that is below a cell."""
    return "".join(
        str(each.get("text", "")) + "".join(map(str, each.get("data", {}).values())) for each in cell.outputs
    )


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_stored_in_it(tmp_path: Path) -> None:
    stored, fresh = (nbformat.read(NOTEBOOK, nbformat.NO_CONVERT) for _ in range(2))
    for cell in code(fresh):
        cell.outputs = []
    client = NotebookClient(fresh, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=environment(shim(tmp_path / "bin"), JUPYTER_RUNTIME_DIR=str(tmp_path), IPYTHONDIR=str(tmp_path)))
    assert kinds(fresh) == kinds(stored)
    by_end = {cell.source.splitlines()[-1]: cell for cell in code(fresh)}
    assert "Federation(3 clients, round 3, union 5)" in shown(by_end["fed"])
    assert not [drug for drug in DRUGS if drug in shown(by_end["fed"]) + shown(by_end["fed.traffic"])]
    page = shown(by_end["inline(folder)"])
    assert "srcdoc=" in page
    assert "Sharing" in page


def test_what_is_stored_in_the_notebook_came_from_a_whole_run() -> None:
    stored = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)
    assert [cell.execution_count for cell in code(stored)] == list(range(1, len(code(stored)) + 1))
    assert all(each.output_type != "error" for cell in code(stored) for each in cell.outputs)
