"""The mutation tool notices what tests notice, and its list of harmless mutants is up to date."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mutation.__main__ import SECEA
from mutation.mutants import module
from mutation.record import Harmless, Record, harmless, scores, survivors

SMALL = {
    "source/small.py": '''
        """A module to mutate."""
        from functools import cached_property

        LIMIT = 10

        def within(x: int) -> bool:
            """Docstrings stay."""
            if x < 0:
                raise ValueError(f"{x} is below 0")
            return x < LIMIT

        class Pair:
            def __init__(self, a: int, b: int) -> None:
                self.a, self.b = a, b

            @cached_property
            def total(self) -> int:
                return self.a + self.b

        def unused(x: int) -> int:
            return x * 2

        def last(xs: list[int]) -> int:
            found = 0
            while xs:
                found = xs[-1]
                break
            return found
    ''',
    "test_small.py": """
        import pytest
        from source.small import Pair, last, within

        def test_ten_is_the_limit():
            assert within(9)
            assert not within(10)

        def test_nothing_is_below_zero():
            with pytest.raises(ValueError):
                within(-1)

        def test_a_pair_has_a_total():
            assert Pair(2, 3).total == 5

        def test_last():
            assert last([4]) == 4
    """,
    "harmless.toml": """
        [[harmless]]
        file = "source/small.py"
        function = "unused"
        before = "return x * 2"
        after = ["return x + 2", "return 0"]
        reason = "Nobody calls it."
    """,
    "conftest.py": "",
}

SCRIPT = """
from pathlib import Path
import mutation.trial
from mutation.project import Project
from mutation.record import Record

mutation.trial.GRACE = 1.0
root = Path.cwd()
project = Project(root, "source", ["small.py"], ["test_small.py"], {}, "harmless.toml", "kept/cover.json")
modules, record = project.modules(), Record({})
project.judge(modules, modules["source/small.py"].mutants, record)
record.write(root / "out.json", modules["source/small.py"].mutants)
"""
Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small module, its tests, and what became of its mutants."""
    folder = tmp_path_factory.mktemp("small")
    for name, text in SMALL.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    root = SECEA.root
    environment = {"PYTHONPATH": f"{root}:{root / 'src'}:{folder}", "PATH": ""}
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  # our own script
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.fixture(scope="module")
def outcomes(tried: Path) -> Outcomes:
    """What became of each mutant, by function and text."""
    entries = json.loads((tried / "out.json").read_text())["mutants"]
    return {f"{each['function']}: {each['before']} -> {each['after']}": each["outcome"] for each in entries}


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        ("within: return x < LIMIT -> return x <= LIMIT", "test_ten_is_the_limit"),
        ("LIMIT: LIMIT = 10 -> LIMIT = 11", "test_ten_is_the_limit"),
        ("within: if x < 0: -> if False:", "test_nothing_is_below_zero"),
        ("Pair.total: return self.a + self.b -> return self.a", "test_a_pair_has_a_total"),
        ("last: found = xs[-1] -> found = xs[1]", "test_last"),
    ],
)
def test_a_mutant_is_killed_by_the_test_that_states_its_law(mutant: str, test: str, outcomes: Outcomes) -> None:
    assert outcomes[mutant]["verdict"] == "killed"
    assert outcomes[mutant]["by"] == f"test_small.py::{test}"


def test_a_mutant_that_no_test_notices_survives(outcomes: Outcomes) -> None:
    assert outcomes["within: if x < 0: -> if x <= 0:"]["verdict"] == "survived"
    assert outcomes["unused: return x * 2 -> return x + 2"]["verdict"] == "not covered"


def test_a_mutant_that_hangs_is_timed_out(outcomes: Outcomes) -> None:
    assert outcomes["last: break -> pass"]["verdict"] == "timed out"


def test_the_score_leaves_out_what_is_listed_and_counts_what_is_not(tried: Path) -> None:
    record, listed = Record.read(tried / "out.json"), harmless(tried / "harmless.toml")
    mutants = module((tried / "source/small.py").read_text(), "source/small.py").mutants
    score = scores(mutants, record, listed)["all"]
    assert score.mutants == len(mutants) == score.killed + score.timed_out + score.harmless + score.survivors
    assert (score.harmless, score.timed_out) == (2, 1)
    assert score.share == (score.killed + 1) / (len(mutants) - 2)
    alive = [each.function for each in survivors(mutants, record, listed)]
    assert len(alive) == score.survivors
    assert "within" in alive
    assert "unused: return x * 2 -> return x * 3" in {f"{m.function}: {m.before} -> {m.after}" for m in mutants}
    assert alive.count("unused") == 1


def test_what_only_readers_see_is_not_mutated(outcomes: Outcomes) -> None:
    assert not [name for name in outcomes if "Docstrings" in name or "is below" in name]


# ------------------------------------------------------------------------------------------------------ our own list

MUTANTS = {(each.file, each.function, each.before, each.after) for m in SECEA.modules().values() for each in m.mutants}
LISTED = SECEA.harmless()


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: f"{entry.file}:{entry.function}")
def test_what_is_listed_as_harmless_still_exists_and_has_a_reason(entry: Harmless) -> None:
    missing = [after for after in entry.after if (entry.file, entry.function, entry.before, after) not in MUTANTS]
    assert not missing
    assert len(entry.reason.split()) > 3


def test_no_mutant_is_listed_twice() -> None:
    listed = [(each.file, each.function, each.before, after) for each in LISTED for after in each.after]
    assert len(listed) == len(set(listed))
