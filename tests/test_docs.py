"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import secea
from secea.audit.registry import all_mutants, gathered

ROOT = Path(__file__).parent.parent
MODULES = [module.name for module in pkgutil.walk_packages(secea.__path__, "secea.") if "_kernels" not in module.name]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_readme_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = doctest.DocTestParser().get_doctest(text, {}, "README", "README.md", 0)
    assert len(examples.examples) >= 4
    runner = doctest.DocTestRunner()
    runner.run(examples, clear_globs=False)
    assert runner.failures == 0
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), examples.globs)  # noqa: S102


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{page} links to {target}"


def test_functions_of_the_paper_map_exist() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    modules = {module.split(".")[1] for module in MODULES}
    named = [name for name in re.findall(r"`([A-Za-z_.]+)`", text) if name.split(".")[0] in modules]
    named = [name for name in named if not name.endswith(".py")]
    assert len(named) > 30
    for name in named:
        assert resolves(name), f"docs/paper-map.md names {name}"


def resolves(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["secea", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


def test_the_security_page_names_every_claim_every_mutant_and_tests_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for name, claim in gathered().items():
        assert f"| `{name}` | {claim.claim} | {claim.method} |" in text, name
    for name, mutant in all_mutants().items():
        assert f"| `{name}` | {mutant.missing} |" in text, name
    files = set(re.findall(r"`(tests/test_\w+\.py)`", text))
    assert len(files) > 10
    assert all((ROOT / name).exists() for name in files)
    everything = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    limits = re.findall(r"`(test_limit_\w+?)_?(?:\.\.\.)?`", text)
    assert limits
    assert all(f"def {name}" in everything for name in limits if name != "test_limit")
