"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

import secea
from named import resolves
from secea.audit.registry import all_mutants, gathered
from secea.cli import main

ROOT = Path(__file__).parent.parent
MODULES = [module.name for module in pkgutil.walk_packages(secea.__path__, "secea.") if "_kernels" not in module.name]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "fuzz/*.md", "vectors/*.md")
    for path in ROOT.glob(pattern)
)

RUN_ELSEWHERE = {
    "docs/adapters.md": "tests/adapters/test_page.py runs it",
    "docs/cli.md": "tests/cli/test_cli_page.py runs it",
    "docs/mistakes.md": "tests/cli/test_mistakes.py makes each of them",
}
"""Pages whose examples another test runs."""

NOT_RUN = {
    "job = nvflare.recipe(rounds=50, clients=5)": "needs a provisioned deployment; tests/engines has one",
    "nvflare.permit(": "starts NVFlare's simulator; tests/engines does",
    "secea train kg --data umls --clients 8 --rounds 40": "takes a minute; `make demo` is this command",
    "secea report runs/demo": "the report of that run",
}
"""Parts of examples that are not run, and why."""


@dataclass(frozen=True)
class Example:
    """A fenced block: its language, the file that it shows, its text."""

    language: str
    title: str
    text: str

    @property
    def left_out(self) -> bool:
        return any(part in self.text for part in NOT_RUN)


def examples(page: str) -> Iterator[Example]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w+)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Example(found[1], found[2] or "", found[3])


RUNNABLE = ("python", "pycon", "console")
WITH_EXAMPLES = [
    page for page in PAGES if page not in RUN_ELSEWHERE and any(each.language in RUNNABLE for each in examples(page))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one folder and one namespace, as a reader would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, Any] = {}
    for example in examples(page):
        if example.title:
            Path(example.title).write_text(example.text, encoding="utf-8")
        elif example.language == "python":
            code = compile(example.text, page, "exec")
            if not example.left_out:
                exec(code, names)  # noqa: S102
        elif example.language == "pycon":
            session = doctest.DocTestParser().get_doctest(example.text, names, page, page, 0)
            runner = doctest.DocTestRunner()
            runner.run(session, clear_globs=False)
            assert runner.failures == 0
            names |= session.globs
        elif example.language == "console":
            for command, shown in commands(example.text):
                if not any(part in command for part in NOT_RUN):
                    check_transcript(command, shown)


def commands(transcript: str) -> Iterator[tuple[str, str]]:
    """Each command line after a $, and what is shown below it."""
    for part in re.split(r"^\$ ", transcript.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def check_transcript(command: str, shown: str) -> None:
    """Dots stand for anything."""
    program, *arguments = shlex.split(command)
    assert program == "secea", f"$ {command}: only commands of secea are run; others need a reason in NOT_RUN"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0 or "--mutant" in arguments, result.output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(shown, result.output, flags):
        pytest.fail(f"$ {command}\n{result.output}\nis not\n{shown}")


def test_what_is_not_run_is_still_there() -> None:
    everything = "".join(example.text for page in PAGES for example in examples(page))
    assert [part for part in NOT_RUN if part not in everything] == []


def shown_commands(page: str) -> Iterator[str]:
    """Every command line of secea in a block of code: after a $ in transcripts, fenced as sh, or indented."""
    text = (ROOT / page).read_text(encoding="utf-8")
    begins = {"console": r"\$ ", "sh": ""}
    blocks = [(begins[each.language], each.text) for each in examples(page) if each.language in begins]
    blocks.append((" {4,8}", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)))
    for begin, block in blocks:
        for line in re.findall(rf"^{begin}(secea [^\n]*)$", block.replace("\\\n", " "), re.MULTILINE):
            if not re.search(r"\[--|\.\.\. |RUN\.\.\.", line):  # a synopsis
                yield re.split(r" [|>]| &&|;", line)[0]  # what other programs do with it is theirs


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_shown_exist(page: str) -> None:
    for line in shown_commands(page):
        command: click.Command = main
        context, arguments = click.Context(main, info_name="secea"), shlex.split(line, comments=True)[1:]
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            name, found, arguments = command.resolve_command(context, arguments)
            assert found is not None
            command, context = found, click.Context(found, info_name=name, parent=context)
        parser = command.make_parser(context)
        parser.parse_args(args=list(arguments))  # a click.UsageError where there is no such option


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{page} links to {target}"


NOT_CLAIMS: Final[set[str]] = set()
"""Other words with hyphens that docs/security.md writes as code."""


def test_functions_of_the_paper_map_exist() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    modules = {module.split(".")[1] for module in MODULES}
    named = [name for name in re.findall(r"`([A-Za-z_.]+)`", text) if name.split(".")[0] in modules]
    named = [name for name in named if not name.endswith(".py")]
    assert len(named) > 30
    for name in named:
        assert resolves(name), f"docs/paper-map.md names {name}"


def test_the_page_of_claims_and_mutants_is_what_the_audit_has() -> None:
    ran = subprocess.run([sys.executable, ROOT / "docs" / "claims.py", "--check"], check=False, timeout=120)  # noqa: S603
    assert ran.returncode == 0, "run python docs/claims.py"


def test_the_security_page_names_claims_and_tests_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", text))
    assert len(named & gathered().keys()) > 20
    assert named <= gathered().keys() | all_mutants().keys() | NOT_CLAIMS
    files = set(re.findall(r"`(tests/test_\w+\.py)`", text))
    assert len(files) > 10
    assert all((ROOT / name).exists() for name in files)


def test_tests_that_pages_name_exist() -> None:
    everything = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for page in ("threat-model.md", "security.md", "attacks.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for name in re.findall(r"`(?:tests/)?(test_\w+)(?:\.py)?`", text):
            found = list((ROOT / "tests").rglob(f"{name}.py")) or f"def {name}(" in everything
            assert found, f"docs/{page} names {name}"


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "index.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"]({path.name})" in listed, f"docs/decisions/index.md does not list {path.name}"


def test_constraints_name_no_index_and_pin_everything_with_hashes() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    entries = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert len(entries) > 100
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ;[^-]*)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry), entry
    assert "://" not in text
