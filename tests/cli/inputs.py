"""What people bring: some hundred tables, typed as a new user would, with the answers. docs/inputs.md shows them.

python tests/cli/inputs.py        writes the page anew
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from pyarrow import parquet

import secea
from given import GROUPS, OTHERS, USUAL, Content, Given
from secea.cli import main as command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "inputs.md"
INTRODUCTION = """# Tables that people bring

What `secea aggregate`, `secea train` and the Python calls make of tables as people have them. A test runs each row,
and `python tests/cli/inputs.py` writes this page. The first column says what is in the file or the object; `⏎` is the
end of a line. Where it works, the answer is the notes that are printed, and the first row of the result. Otherwise
it is the error. An [exit code](cli.md#exit-codes) other than 0 stands in front of it.

What is typed, where nothing else is said: `secea aggregate north.csv south.csv west.csv --out means`. Two of these
files are always the same: `south.csv` has `aspirin` (1.5, 3.0) and `codeine` (0.0, 4.0), `west.csv` has `codeine`
(1.0, 2.0). In Python, `others` is a list of these two tables. Numbers of results are shown with two decimals.
"""
NUMBER = re.compile(r"-?\d+\.\d+(e[-+]\d+)?")
PREAMBLE = """import numpy as np, pandas, polars, pyarrow, secea, torch
others = [{"aspirin": [1.5, 3.0], "codeine": [0.0, 4.0]}, {"codeine": [1.0, 2.0]}]
"""


def _short(text: str) -> str:
    """Numbers with two decimals: noise changes the others from run to run. Bounds and errors stay as they are."""
    if "exact" in text or "step" in text or text.startswith(("secea:", "note:")):
        return text
    return NUMBER.sub(lambda found: f"{float(found[0]):.2f}".replace("-0.00", "0.00"), text)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _write(folder: Path, files: dict[str, Content]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            path.write_bytes(content.encode())
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)


def answered(given: Given, folder: Path) -> tuple[int, list[str]]:
    """The exit code, and what is said. `folder` is empty."""
    _write(folder, OTHERS | dict(given.files))
    with _inside(folder):
        return (
            _command(given.typed)
            if given.typed.startswith("secea ") and "\n" not in given.typed
            else _python(given.typed)
        )


def _command(typed: str) -> tuple[int, list[str]]:
    words, _, source = typed.partition(" < ")
    ran = CliRunner().invoke(command, words.split()[1:], input=Path(source).read_bytes() if source else None)
    said = [line for line in ran.stderr.splitlines() if line.strip()]
    if ran.exit_code == 0 and "aggregate" in words:
        name = words.split()[2]
        target = Path("means") / (name if name != "-" else "stdin.csv")
        said += [
            part for line in ran.stdout.splitlines() for part in line.split("; ") if "exact" in part or "step" in part
        ]
        said += [_first_row(target)]
    elif ran.stdout:
        said += [line for line in ran.stdout.splitlines() if "rmse" in line or "measured" in line]
    return ran.exit_code, [_short(" ".join(line.split())) for line in said]


def _first_row(path: Path) -> str:
    """The first row of a result, whatever its format."""
    match path.suffix:
        case ".npz":
            arrays = np.load(path)
            return f"{arrays['names'].tolist()[0]}: {arrays['matrix'][0].tolist()} ({arrays['matrix'].dtype})"
        case ".npy":
            return f"{np.load(path)[0].tolist()}"
        case ".parquet":
            return f"{parquet.read_table(path).to_pylist()[0]}"
        case ".gz":
            text = gzip.decompress(path.read_bytes()).decode()
        case _:
            text = path.read_text(encoding="utf-8")
    return next(line for line in text.splitlines() if re.search(r"\d\.\d", line))


def _python(typed: str) -> tuple[int, list[str]]:
    tree = ast.parse(f"{PREAMBLE}\n{typed}")
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about two clients
        exec(compile(tree, "page", "exec"), names)  # noqa: S102 - our own lines
        try:
            result = eval(compile(ast.Expression(last.value), "page", "eval"), names)  # noqa: S307
        except (secea.SecEAError, TypeError) as error:
            return 1, [f"{type(error).__name__}: {error}"]
    return 0, [_short(" ".join(line.split())) for line in repr(result).splitlines()]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍").replace("\ufeff", "")


def _code(text: str) -> str:
    """Code in a cell of a table, which has no lines."""
    return "<br>".join(
        f"`` {_cell(line)} ``" if "`" in line else f"`{_cell(line)}`" for line in text.splitlines() if line
    )


def row(given: Given, code: int, said: list[str]) -> str:
    """One line of the page."""
    shown = given.shown if len(given.shown) < 90 else f"{given.shown[:70]}..."
    first = _cell(given.what) + (f"<br>`{_cell(shown)}`" if shown else "")
    front = f"exit {code}: " if code and given.typed.startswith("secea ") else ""
    typed = given.typed.replace(USUAL, "... ").strip() if given.typed != USUAL else ""
    return f"| {first} | {typed and _code(typed)} | {front}{'<br>'.join(_cell(line) for line in said)} |"


def main() -> None:
    """Write the page."""
    lines = [INTRODUCTION]
    for title, every in GROUPS:
        lines += [f"\n## {title}\n", "| what | typed | answer |", "|---|---|---|"]
        for given in every:
            with tempfile.TemporaryDirectory() as folder:
                code, said = answered(given, Path(folder))
            if code != given.code or not all(each in " ".join(said) for each in given.says):
                print(f"{given.what}: {code}, {said}; expected {given.code}, {given.says}", file=sys.stderr)
            lines.append(row(given, code, said))
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
