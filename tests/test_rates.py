"""The table of `secea audit --counts`: every attack beside its chance, and marks where one succeeds."""

from __future__ import annotations

import json
from functools import cache

import pytest
from click.testing import CliRunner

from secea.audit import rates
from secea.audit.attacks.keyed_counts import KINDS
from secea.audit.mutants import keyed as mutants
from secea.audit.rates import Rates
from secea.cli import main
from secea.forms.keyed import Keyed


@cache
def few() -> list[Rates]:
    return rates.measured(Keyed(), 300, (1, 3), (5, 4))


def test_every_attack_is_tried_on_every_kind_of_inputs_with_the_chance_of_guessing() -> None:
    found = {
        (each.attack, each.inputs, each.clients, each.together): each for each in few() if each.inputs != "weights"
    }
    weighed = {(each.attack, each.values, each.clients): each for each in few() if each.inputs == "weights"}
    for N in (4, 5):
        for kind in KINDS:
            for attack in ("grid", "spectrum", "slope"):
                assert found[attack, kind.name, N, 1].chance == 1 / (N - 1)
        for kind in rates.TOGETHER:
            assert found["slope", kind.name, N, N - 1].chance == 0.5
        for attack, values in (("grid", "own"), ("slope", "same"), ("slope", "same, new"), ("fraction", "0 or 1")):
            assert weighed[attack, values, N].chance == 1 / (N - 1)
    assert len(found) == 2 * (3 * len(KINDS) + len(rates.TOGETHER))
    assert len(found) + len(weighed) == len(few())
    assert all(list(each.rates) == [1, 3] for each in few())


def test_attacks_on_values_of_their_own_are_chance_and_those_on_coarse_shared_values_are_marked() -> None:
    for each in few():
        coarse = "float" not in each.inputs
        if each.values == "own" or each.inputs in ("float64", "float32"):
            assert not each.marked(1)
        elif coarse and each.inputs != "weights":
            assert each.marked(1)


def test_a_mutant_has_its_own_rates() -> None:
    found = rates.measured(rates.form_of(mutants.NO_NARROW), 200, (1,), (5,))
    assert all(each.rates[1] > 0.95 for each in found if each.attack == "spectrum")


def test_the_table_marks_what_is_above_chance_and_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    chance = Rates("grid", "own", "bf16", 5, 1, 2000, 0.25, {1: 0.26, 1000: 0.9})
    rates.show([chance], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "attack",
        "values",
        "inputs",
        "clients",
        "together",
        "chance",
        "1",
        "round",
        "1,000",
        "rounds",
    ]
    assert lines[1].split() == ["grid", "own", "bf16", "5", "1", "25.0%", "26.0%", "90.0%*"]
    rates.show([chance], as_json=True)
    (each,) = json.loads(capsys.readouterr().out)
    assert each["rates"] == {"1": 0.26, "1000": 0.9}
    assert set(each) == set(Rates.__dataclass_fields__)


def test_counts_of_a_mutant_of_the_papers_form_are_refused() -> None:
    ran = CliRunner().invoke(main, ["audit", "--counts", "--mutant", "reused-psi"])
    assert ran.exit_code == 2
    assert "not one of form keyed" in ran.output
