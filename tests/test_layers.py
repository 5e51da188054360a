"""Imports point one way: from what is used by the parties up to what runs them. Forms are named in `forms` alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from secea.forms import FORMS, NAMES

SOURCE = Path(__file__).parent.parent / "src/secea"
LAYERS = ("arithmetic", "wire", "steps", "party", "forms", "oracles", "engines", "commands")
"""Each may import from those before it, and from the modules beside them."""
BESIDE = {"errors", "names", "params", "table", "arrays", "atomic", "extras", "frames", "notebook"}
MODULES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


def tree(text: str) -> ast.Module:
    return ast.parse(text)


def imported(module: ast.Module) -> Iterator[str]:
    """What a module imports of secea, by its name within it."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("secea"):
            name = (node.module or "").removeprefix("secea").lstrip(".")
            yield from (f"{name}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("secea.") for alias in node.names if alias.name.startswith("secea."))


def for_types_alone(module: ast.Module) -> ast.Module:
    """The module without what is imported for type checkers alone."""
    for node in ast.walk(module):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return module


@pytest.mark.parametrize("layer", LAYERS[:-1])
def test_a_layer_imports_only_from_those_below_it(layer: str) -> None:
    allowed = {*LAYERS[: LAYERS.index(layer) + 1], *BESIDE} | ({"plan"} if layer in ("forms", "engines") else set())
    found = {}
    for name, path in MODULES.items():
        if name.startswith(f"{layer}/"):
            names = imported(for_types_alone(tree(path.read_text(encoding="utf-8"))))
            found[name] = {each.split(".")[0] for each in names} - allowed
    assert found
    assert not {name: modules for name, modules in found.items() if modules}


def test_nothing_imports_the_command_line_but_itself() -> None:
    for name, path in MODULES.items():
        if not name.startswith(("commands/", "cli.py")):
            assert not {"commands", "cli"} & {each.split(".")[0] for each in imported(tree(path.read_text()))}, name


# --------------------------------------------------------------------------------------------------- names of forms

CLASSES = {each.__name__ for each in FORMS.values()}
AT_HOME = ("forms/", "oracles/", "audit/", "bench/")
"""A form's own house; its oracle; and what measures or attacks one form by name."""


def names_a_form(node: ast.AST) -> bool:
    """A form's name as text, or its class."""
    match node:
        case ast.Constant(value):
            return value in NAMES
        case ast.Name(name) | ast.Attribute(_, name):
            return name in CLASSES
        case ast.Tuple(several) | ast.List(several) | ast.Set(several):
            return any(map(names_a_form, several))
        case _:
            return False


def decisions(module: ast.Module) -> Iterator[ast.AST]:
    """Comparisons, cases and tests of type that depend on which form it is."""
    for node in ast.walk(module):
        match node:
            case ast.Compare(left, _, others) if any(map(names_a_form, (left, *others))):
                yield node
            case ast.Call(ast.Name("isinstance" | "issubclass"), [_, kinds]) if any(map(names_a_form, ast.walk(kinds))):
                yield node
            case ast.MatchValue(value) | ast.MatchClass(value) if names_a_form(value):
                yield node
            case ast.Dict(keys) if any(key is not None and names_a_form(key) for key in keys):
                yield node


def test_nothing_outside_the_forms_asks_which_form_it_is() -> None:
    found = {}
    for name, path in MODULES.items():
        if not name.startswith(AT_HOME):
            found[name] = [ast.unparse(node) for node in decisions(tree(path.read_text(encoding="utf-8")))]
    assert not {name: nodes for name, nodes in found.items() if nodes}


@pytest.mark.parametrize(
    "bad",
    [
        'if form == "keyed": pass',
        'x = 1 if "paillier" != session.form.name else 2',
        'ok = form.name in ("keyed", "plain")',
        "if isinstance(session.form, Paillier): pass",
        "ok = isinstance(form, (int, forms.Keyed))",
        'match form:\n    case "keyed":\n        pass',
        "match form:\n    case Keyed():\n        pass",
        'what = {"keyed": 1, "paillier": 2}[form]',
    ],
)
def test_the_rule_objects_to(bad: str) -> None:
    assert list(decisions(tree(bad))), bad


@pytest.mark.parametrize("good", ["if form.streamed: pass", 'aggregate(tables, form="paillier")', "form = Keyed()"])
def test_the_rule_does_not_object_to(good: str) -> None:
    assert not list(decisions(tree(good))), good


def test_the_parties_and_what_runs_them_import_no_form() -> None:
    for name, path in MODULES.items():
        if name.startswith(("arithmetic/", "wire/", "steps/", "party/", "engines/")):
            found = imported(tree(path.read_text(encoding="utf-8")))
            assert not [each for each in found if each.startswith(tuple(f"forms.{form}" for form in NAMES))], name
            if not name.startswith("engines/"):
                assert not [each for each in imported(tree(path.read_text())) if each.startswith("forms")], name


@pytest.mark.parametrize("folder", ["party", "engines", "wire", "steps"])
def test_no_text_there_names_a_form_or_one_of_its_phases(folder: str) -> None:
    """Prose may: a docstring that says for whom something is."""
    for name, path in MODULES.items():
        if name.startswith(f"{folder}/"):
            module = tree(path.read_text(encoding="utf-8"))
            prose = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
            for node in ast.walk(module):
                if isinstance(node, ast.Constant) and id(node) not in prose:
                    assert node.value not in NAMES, (name, node.lineno)
