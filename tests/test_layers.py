"""Imports point one way: from what is used by the parties up to what runs them. The new core names no form."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src/secea"
LAYERS = ("arithmetic", "wire", "steps", "party", "forms", "oracles", "engines")
"""Each may import from those before it, and from the modules beside them."""
BESIDE = {"errors", "params", "table"}
OLD = {"wire/endpoint.py", "arithmetic/paillier.py"}
"""What goes away with the forms that have not moved in yet."""


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("secea"):
            name = (node.module or "").removeprefix("secea").lstrip(".")
            yield from [name] if name else (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("secea.") for alias in node.names if alias.name.startswith("secea."))


@pytest.mark.parametrize("layer", LAYERS[:-1])
def test_a_layer_imports_only_from_those_below_it(layer: str) -> None:
    allowed = {*LAYERS[: LAYERS.index(layer) + 1], *BESIDE}
    found = {}
    for path in sorted((SOURCE / layer).rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in OLD:
            found[name] = {module.split(".")[0] for module in imported(path)} - allowed
    assert found
    assert not {name: modules for name, modules in found.items() if modules}


def test_no_form_is_named_by_the_parties_or_by_what_runs_them() -> None:
    for name in ("party", "engines/exchange.py", "engines/federation.py"):
        where = SOURCE / name
        for path in sorted(where.rglob("*.py")) if where.is_dir() else [where]:
            assert not [module for module in imported(path) if module.startswith(("forms.keyed", "steps"))], path
