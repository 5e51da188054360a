"""`secea plan` says first whether a federation fits, against which limits, and what would change it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from secea.cli import main
from secea.commands import fits
from secea.commands.estimate import Machine
from secea.commands.fits import Limits, machine_memory

WORDS = ["plan", "--clients", "6", "--collusion", "2", "--entities", "300", "--per-client", "120", "--dim", "16"]


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine takes is made up: T + 1 seconds for the set-up of an entity, and one for each of its numbers."""

    def seconds(_: Machine, params: Any, entities: int, form: Any) -> Any:
        slow = 1000 if form.name == "paillier" else 1
        return {
            "setup": {"client": entities * (params.T + 1.0), "server": 0.0},
            "round": {"client": float(entities * params.dim * slow), "server": 0.0},
        }

    monkeypatch.setattr(Machine, "seconds", seconds)


def run(*more: str) -> Result:
    ran = CliRunner().invoke(main, [*WORDS, *more])
    assert ran.exit_code == 0, ran.output
    return ran


def verdict(*more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*more, "--json").stdout)["verdict"]
    return found


def test_the_first_line_says_that_it_fits_with_each_number_and_its_limit() -> None:
    first = run("--round-minutes", "90", "--memory", "2").stdout.splitlines()[0]
    assert first.startswith("Fits: a round takes 80 min (limit 90 min), the set-up takes 15 min (limit 24 h), and ")
    assert first.endswith(" of memory (limit 2.0 GB).")
    found = verdict("--round-minutes", "90", "--memory", "2")
    assert (found["fits"], found["reasons"], found["instead"]) == (True, [], [])
    assert found["limits"] == {"round_seconds": 5400.0, "setup_seconds": 86400.0, "memory_bytes": 2e9}


def test_what_does_not_fit_says_why_and_what_would_change_it() -> None:
    lines = run("--memory", "2").stdout.splitlines()
    assert lines[0] == "Not practical, because a round takes 80 min (limit 10 min)."
    assert lines[1] == (
        "A round would take 40 min with half of the entities, 40 min with dim 8. None of these is enough by itself."
    )


def test_every_limit_that_is_exceeded_is_a_reason_with_changes_of_its_own() -> None:
    found = verdict("--round-minutes", "50", "--setup-hours", "0.2", "--memory", "0.0001")
    assert not found["fits"]
    first, second, third = found["reasons"]
    assert [first["limit"], second["limit"], third["limit"]] == [3000.0, 720.0, 1e5]
    assert {change["change"] for change in first["instead"]} == {"half of the entities", "dim 8"}
    assert {change["change"] for change in second["instead"]} == {"half of the entities", "T=1"}
    assert {"half of the entities", "dim 8"} <= {change["change"] for change in third["instead"]}
    assert "a network of 10000 Mbit/s" not in json.dumps(found), "it would change nothing here"
    assert found["sentence"].count("(limit ") == 3
    assert "None of these" not in found["instead"][0], "half of the entities is enough"
    for reason in found["reasons"]:
        values = [change["value"] for change in reason["instead"]]
        assert values == sorted(values)
        assert all(value < reason["value"] for value in values)


def test_the_papers_form_is_told_that_the_other_one_fits() -> None:
    found = verdict("--form", "paillier", "--round-minutes", "90", "--memory", "64")
    assert found["sentence"] == "Not practical, because a round takes 56 days (limit 90 min)."
    assert found["instead"][0].startswith("A round would take 80 min with form keyed, ")


def test_a_slow_network_is_a_reason_that_a_faster_one_changes() -> None:
    found = verdict("--mbit", "0.0001", "--round-minutes", "90", "--memory", "64")
    assert found["reasons"][0]["instead"][0]["change"] == "a network of 0.001 Mbit/s"


def test_memory_is_that_of_this_machine_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict()["limits"]["memory_bytes"] == machine_memory()
    monkeypatch.setattr(fits, "machine_memory", lambda: None)
    first = run("--round-minutes", "90").stdout.splitlines()[0]
    assert first.endswith(" of memory."), "where it is not known, it is no limit"


def test_a_plan_shows_nothing_that_was_not_asked_for() -> None:
    bare, more = run().stdout, run("--more").stdout
    for words in ("Other choices", "large federation", "numbers    ", "compare    "):
        assert (words in bare, words in more) == (False, True), words
    for words in ("trust ", "elapsed ", "memory ", "precision ", "security "):
        assert f"\n{words}" in bare, words
    found = json.loads(run("--json").stdout)
    assert {"choices", "projection", "unprotected_round_bytes", "numbers"} <= found.keys(), "programs get all of it"


@pytest.mark.parametrize("words", [("--round-minutes", "0"), ("--setup-hours", "-1"), ("--memory", "0")])
def test_a_limit_is_above_zero(words: tuple[str, str]) -> None:
    ran = CliRunner().invoke(main, [*WORDS, *words])
    assert (ran.exit_code, f"Invalid value for '{words[0]}'" in ran.output) == (2, True)


def test_defaults_are_ten_minutes_and_a_day() -> None:
    assert (Limits().round_seconds, Limits().setup_seconds) == (600.0, 86400.0)


README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (\d+) \| ([\d,]+); ([\d,]+) \| (\d+) \| ([^|]+), ([^|]+) \|[^|]+\| (.*) \|$", README, re.MULTILINE
)


@pytest.mark.parametrize("row", ROWS, ids=["-".join(row[:4]) for row in ROWS])
def test_bytes_in_the_readmes_table_are_those_of_the_command_above_it(row: tuple[str, ...]) -> None:
    clients, entities, own, dim, once, each_round, verdict = (part.replace(",", "") for part in row)
    words = ["--clients", clients, "--entities", entities, "--per-client", own, "--dim", dim]
    ran = CliRunner().invoke(main, ["plan", *words, *(["--form", "paillier"] if "paillier" in verdict else [])])
    first = [" ".join(line.split()) for line in ran.stdout.splitlines() if "each client" in line]
    assert first[0].startswith(f"set-up each client {once} ")
    assert first[1].startswith(f"a round each client {each_round} ")


def test_the_readmes_table_has_federations_that_fit_and_others() -> None:
    assert len(ROWS) >= 5
    assert {row[-1].partition(" (")[0] for row in ROWS} == {"fits", "not practical"}
