"""`secea demo`: what it shows is true."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner

from secea.cli import main
from secea.demo.data import BORDERS, world

WORDS = ("demo", "--data", "borders", "--seed", "3")


@cache
def shown(*words: str) -> str:
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def found(*words: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(shown(*words, "--json"))
    return result


def test_all_parts_are_shown() -> None:
    output = shown(*WORDS)
    titles = re.findall(r"^(\d)  ", output, re.MULTILINE)
    assert titles == ["1", "2", "3", "4", "5"]
    for step in ("names", "union", "queries", "weights", "share", "answer", "mean"):
        assert re.search(rf"^(set-up|round)? +{step} ", output, re.MULTILINE), step
    rows = re.findall(r"^ +\d  .*?(-?[\d.]+) +(-?[\d.]+)$", output, re.MULTILINE)
    assert len(rows) == 5
    for true, secure in rows:
        assert float(true) == pytest.approx(float(secure), abs=1e-5)


@pytest.mark.parametrize("data", ["borders", "umls"])
def test_the_means_are_the_true_ones_and_point_where_all_data_would(data: str) -> None:
    result = found("demo", "--data", data, "--seed", "3")
    assert result["error"]["largest"] < result["error"]["promised"]
    assert result["gain"]["alone"] < 0.9
    assert result["gain"]["together"] == pytest.approx(1, abs=1e-6)
    assert result["cost"]["round_bytes"] == result["cost"]["planned_round_bytes"]


def test_attacks_fail_and_succeed_without_the_protection() -> None:
    for attack in found(*WORDS)["attacks"]:
        assert attack["found"] == 0
        assert attack["found_without"] > 0.95 * attack["total"]


def test_what_is_seen_is_new_in_every_run_and_the_truth_is_not() -> None:
    one, other = (json.loads(CliRunner().invoke(main, [*WORDS, "--json"]).stdout)["sees"] for _ in range(2))
    hidden = [(a["sees"], b["sees"]) for a, b in zip(one, other, strict=True) if a["party"] != "client 0"]
    assert all(a != b and re.fullmatch("[0-9a-f]{16,32}", a) for a, b in hidden)
    assert [each["truth"] for each in one] == [each["truth"] for each in other]


def test_made_up_data_of_any_size_shows_means_and_costs_alone() -> None:
    words = ("demo", "--entities", "60", "--dim", "4", "--seed", "7", "--clients", "7", "--collusion", "2")
    result = found(*words)
    assert result["organisations"]["union"] <= 60
    assert not {"sees", "attacks", "gain"} & result.keys()
    assert "secure mean" in shown(*words)


def test_without_pykeen_there_is_data_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen", None)
    assert world(None, clients=3, dim=2, seed=0).name == "borders"
    ran = CliRunner().invoke(main, ["demo", "--data", "umls"])
    assert (ran.exit_code, "pip install 'secea[learn]'" in ran.output) == (4, True)


def test_borders_are_listed_once_and_states_are_spelled_alike() -> None:
    pairs = []
    for line in BORDERS.strip().splitlines():
        state, _, others = line.partition(": ")
        pairs += [tuple(sorted((state, other))) for other in others.split(", ")]
    assert len(pairs) == len(set(pairs))
    assert len({state for pair in pairs for state in pair}) == 48


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--clients", "4", "--collusion", "2"), 3, "collusion must be 1..1 for 4 clients"),
        (("--clients", "13"), 3, "the guide takes at most 12 clients; with --entities it can be more"),
        (("--data", "borders", "--entities", "5"), 2, "leave --data out"),
    ],
)
def test_mistakes_are_explained(words: tuple[str, ...], code: int, text: str) -> None:
    ran = CliRunner().invoke(main, ["demo", *words])
    assert (ran.exit_code, text in ran.output) == (code, True), ran.output
