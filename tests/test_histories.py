"""Lives of federations that the audit plays: they can be repeated, and everything happens in some of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from secea.arithmetic.discrete import farthest, gaussian
from secea.audit.claims.discrete import Odd
from secea.audit.claims.histories import CASES
from secea.audit.histories import Case, History, Told, lived
from secea.audit.mutants.histories import ROWS_BY_NUMBER
from secea.audit.registry import product

SUBJECT = product()["keyed"]


def played(case: Case) -> History:
    history = History(SUBJECT, case)
    history.live()
    return history


def test_a_life_is_drawn_from_its_number_alone() -> None:
    case = replace(CASES[2], rounds=3)
    one, again = played(case), played(case)
    assert one.happened == again.happened
    assert one.happened != played(replace(case, seed=99)).happened


@pytest.mark.slow
def test_everything_happens_in_some_life() -> None:
    told = " ".join(what for case in CASES for what in played(case).happened)
    for what in (
        "the server restarts", "0 restarts", "new entities at once", "has 5 new entities", "gives up 2", "breaks off",
        "a union without [1]", "mask keys ahead", "the round is lost", "'upload'", "'agree'", "'open'",
    ):  # fmt: skip
        assert what in told


def test_an_objection_says_what_happened_before() -> None:
    with pytest.raises(Told, match=r"is not as specified, after: .*a round of"):
        lived(ROWS_BY_NUMBER.subjects["keyed"], CASES[0])


def test_odd_bytes_try_what_is_rare() -> None:
    numbers = [abs(int(z)) for seed in range(20) for z in gaussian(Odd(seed), 40, 6.5)]
    assert max(numbers) > 10 * 6.5
    assert max(numbers) <= farthest(6.5)
    assert Odd(1)(64) == Odd(1)(64)
