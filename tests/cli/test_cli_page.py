"""docs/cli.md: its commands run, and print what the page shows; numbers that differ from run to run may differ."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from secea.cli import main
from secea.commands.shell import EXIT_CODES
from site_files import make_site
from terminal import ROOT, shell, shim

TEXT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
UNITS = "B|kB|MB|GB|TB|PB|s|min|h|days|years"
NUMBER = re.compile(rf"\b([0-9a-f]{{4}} ){{9}}[0-9a-f]{{4}}|-?\d[\d.,]*(e[-+]\d+)?( ({UNITS})\b)?")


def shape(line: str) -> str:
    """A line without its numbers and the widths of columns."""
    return " ".join(NUMBER.sub("#", line).split())


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Each command, and the lines that the page shows below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(part.splitlines()[0], part.splitlines()[1:]) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=[steps(block)[0][0].split(" --")[0] for block in BLOCKS])
def test_what_the_page_shows_is_what_happens(tmp_path: Path, block: str) -> None:
    (tmp_path / "north.csv").write_text("name,x,y\naspirin,0.5,1.0\nibuprofen,2.0,-1.0\n", encoding="utf-8")
    (tmp_path / "south.csv").write_text("name,x,y\naspirin,1.5,3.0\ncodeine,0.0,4.0\n", encoding="utf-8")
    (tmp_path / "west.vec").write_text("1 2\ncodeine 1.0 2.0\n", encoding="utf-8")
    for name, given in (
        ("a", "aspirin,0.5,1.0,300\nibuprofen,2.0,-1.0,120\n"),
        ("b", "aspirin,1.5,3.0,100\ncodeine,0.0,4.0,80\n"),
        ("c", "codeine,1.0,2.0,240\n"),
    ):
        (tmp_path / f"{name}.csv").write_text(f"name,x,y,samples\n{given}", encoding="utf-8")
    (tmp_path / "east.csv").write_text("drug,x,y\nAspirin,0.5,80.0\ncodeine ,1.0,\n", encoding="utf-8")
    numbers = np.random.default_rng(1).uniform(-3, 3, (60, 8))
    for name, digits in (("rounded", 3), ("exact", 17), ("other", 17)):
        text = [f"e{i}," + ",".join(repr(round(x, digits)) for x in row) for i, row in enumerate(numbers.tolist())]
        (tmp_path / f"{name}.csv").write_text("name,0,1,2,3,4,5,6,7\n" + "\n".join(text) + "\n", encoding="utf-8")
    make_site(tmp_path)
    tools = shim(tmp_path / "bin")
    for command, lines in steps(block):
        ran = shell(command, tmp_path, tools)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        printed = [shape(line) for line in ran.stdout.splitlines()]
        for line in lines:
            assert line == "..." or shape(line) in printed, f"{command}: {line}\n{ran.stdout}"


def test_the_page_has_every_command_and_every_exit_code() -> None:
    for name in main.commands:
        assert f"`{name}`" in TEXT, name
    for line in EXIT_CODES.splitlines()[2:]:
        code, _, meaning = line.strip().partition(" ")
        assert f"| {code} | {meaning.strip()}".split(" (")[0] in TEXT
