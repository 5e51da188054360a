"""Commands that install something: what the package prints and the pages show works where it is copied to.

Each kind that is allowed here was tried in an empty environment: docs/index.md#installation.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from secea import extras
from secea.errors import MissingExtra
from secea.extras import EXTRAS, again, installing

ROOT: Final = Path(__file__).parent.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL: Final = PROJECT["optional-dependencies"]
SOURCES: Final = sorted(path for folder in ("src", "bench", "fuzz") for path in (ROOT / folder).rglob("*.py"))
PAGES: Final = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "fuzz/*.md") for path in ROOT.glob(pattern)
)

LOCAL: Final = re.compile(r"(\.|\.\./\.\.|secea-[\d.]+-cp311-abi3-linux_x86_64\.whl)(?:\[(\w+)\])?")
"""This checkout, or a wheel of it; and an extra."""
ELSEWHERE: Final = {
    "atheris": "the fuzzer's, for who runs it",
    "flwr[simulation]==1.41.0": "Flower's own extra",
    "torch==2.13.0": "the version that is pinned",
}
"""Requirements that are no dependencies of the package, and why a page names them."""
TAKES_A_FILE: Final = ("-c", "-r", "--requirement")


def shown() -> Iterator[tuple[str, list[str]]]:
    """Where, and the words behind each `pip install`; what is computed is left out."""
    for path in (*PAGES, *SOURCES):
        for line in path.read_text(encoding="utf-8").splitlines():
            for found in re.findall(r"pip install((?: (?:'[^']*'|[-\w./=<>\[\]]+))+)", line):
                yield f"{path.relative_to(ROOT)}: {line.strip()}", shlex.split(found)


def known(word: str) -> bool:
    """Whether it can be installed: it lies here, or it is a library that the package names."""
    libraries = {*PROJECT["dependencies"], *(each for some in EXTRAS.values() for each in some)}
    if local := LOCAL.fullmatch(word):
        return local[2] is None or local[2] in OPTIONAL
    return word in libraries | {re.split("[=<>]", each)[0] for each in libraries} | ELSEWHERE.keys()


def test_every_command_that_is_shown_is_of_a_kind_that_was_tried() -> None:
    wrong, seen = {}, 0
    for where, words in shown():
        seen += 1
        wanted = [word for before, word in pairwise(["", *words]) if not {word[:1], before} & {"-", *TAKES_A_FILE}]
        if unknown := [word for word in wanted if not known(word)]:
            wrong[where] = unknown
    assert seen > 15
    assert not wrong


def test_extras_are_those_of_the_project() -> None:
    assert {name: OPTIONAL[name] for name in EXTRAS} == {name: list(libraries) for name, libraries in EXTRAS.items()}
    assert OPTIONAL.keys() - EXTRAS.keys() == {"docs", "bench", "dev"}, "these are for developers, in a checkout"


def test_a_hint_names_libraries_that_an_index_has_and_no_extra_of_this_package() -> None:
    assert installing("learn") == "pip install " + " ".join(shlex.quote(each) for each in OPTIONAL["learn"])
    assert installing("dp-accounting", "pyarrow") == "pip install 'dp-accounting>=0.4.4' 'pyarrow>=15'"
    with pytest.raises(KeyError):
        installing("secea")


def test_an_adapter_whose_library_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "secea.adapters.torch", raising=False)
    with pytest.raises(MissingExtra, match=r"secea\.adapters\.torch needs PyTorch: pip install 'torch>=2\.4'"):
        importlib.import_module("secea.adapters.torch")


@pytest.mark.parametrize(
    ("record", "source"),
    [
        (None, "secea"),  # from an index
        ("{folder}", "{folder}"),
        ("{folder}/secea.tar.gz", "{folder}/secea.tar.gz"),
        ("{folder}/secea.whl", "."),  # in a wheel there is nothing to compile
        ("{folder}/gone", "."),
    ],
)
def test_without_compiled_loops_the_hint_names_the_source_where_it_is(
    record: str | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert again() == f"pip install --no-deps --editable {shlex.quote(str(ROOT))}"
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("secea.tar.gz", "secea.whl"):
        (folder / name).touch()
    url = None if record is None else json.dumps({"url": Path(record.format(folder=folder)).as_uri()})
    monkeypatch.setattr(extras, "SOURCE", tmp_path)
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: url))
    given = shlex.split(again())
    assert given[:2] == ["pip", "install"]
    assert given[-1] == source.format(folder=folder)


def test_no_console_reads_markup_in_what_it_prints() -> None:
    """It would take '[learn]' out of a hint, and whatever names and paths have in brackets."""
    consoles = 0
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console":
                consoles += 1
                plain = [each for each in node.keywords if each.arg == "markup" and ast.unparse(each.value) == "False"]
                assert plain, f"{path.relative_to(ROOT)}, line {node.lineno}: Console(markup=False, ...)"
    assert consoles > 5
