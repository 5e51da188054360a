"""Lives in which everything goes wrong are as recorded, life by life, in any process; and everything does go wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.audit import KEYED, Objection
from secea.audit.claims.conduct import conduct_of_parties
from secea.audit.conduct import Dice, Life, exactly, parties, sites
from secea.audit.conduct.record import LIVES, differing, recorded, steps
from secea.audit.registry import all_mutants, product

PRODUCT = product()
EACH = [(form, kind, seed) for kind, (_, many) in LIVES.items() for form in PRODUCT for seed in range(many[form])]


@pytest.mark.parametrize(("form", "kind", "seed"), EACH)
def test_a_life_is_as_recorded(form: str, kind: str, seed: int) -> None:
    assert differing(PRODUCT[form], kind, seed) is None


def test_every_life_is_on_record() -> None:
    lives = [(form, kind, each) for form, kinds in recorded().items() for kind, each in kinds.items()]
    assert {(form, kind, seed) for form, kind, each in lives for seed in range(len(each))} == set(EACH)
    assert all(len(steps(hashes)) > 1 for _, _, each in lives for hashes in each)


def test_lives_are_the_same_in_a_process_that_hashes_otherwise() -> None:
    code = (
        "from secea.audit.conduct.record import differing; from secea.audit.registry import product\n"
        f"print([differing(product()[{KEYED!r}], kind, 1) for kind in {list(LIVES)}])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": "4711"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str([None] * len(LIVES))


@pytest.mark.slow
def test_whatever_can_go_wrong_goes_wrong_in_some_life() -> None:
    done = {
        kind: "\n".join(
            word for form in PRODUCT for seed in range(many[form]) for word in live(PRODUCT[form], seed).done
        )
        for kind, (live, many) in LIVES.items()
    }
    fault = parties.Fault
    said = [*(f"a message {way}" for way in fault.WAYS), *(f"lies: {lie}" for lie in fault.LIES)]
    said += [*(f"writes another {label} on" for label in fault.LABELS), "vanish", "restarts with an older state"]
    said += ["has a damaged state", "hellos of another session", "old messages come again", "go on in a new session"]
    assert [each for each in said if each not in done["parties"]] == []
    said = [*sites.FAULTS, "with an older state", "with a damaged state", "with no state", "with another's state"]
    said += ["raises", "raises an error of ours", "other names", "out of range", "without its state", "are expected"]
    assert [each for each in said if each not in done["sites"]] == []


def test_what_differs_is_said_with_its_life_and_step() -> None:
    mutant = all_mutants()["server-blamed-alone"].subjects[KEYED]
    with pytest.raises(Objection, match=r"^life \d+, step \d+, .+: not as recorded\. What came: "):
        conduct_of_parties.check(mutant)


def test_what_differs_once_differs_from_there_on() -> None:
    one, two = Life(), Life()
    for life, came in ((one, 1), (two, 2)):
        for step, of in (("before", 0), ("then", came), ("after", 0)):
            life.step(step)
            life.note("it came to", of)
        life.over()
    assert [a == b for a, b in zip(one.hashes, two.hashes, strict=True)] == [True, False, False]


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=4) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6,
)  # fmt: skip


@given(NESTED, NESTED)
def test_two_things_have_one_form_in_bytes_only_if_they_are_the_same(one: object, two: object) -> None:
    alike = repr(_typed(one)) == repr(_typed(two))
    assert (exactly(one) == exactly(two)) == alike


def _typed(x: object) -> object:
    """With texts as what they are on record: their bytes."""
    if isinstance(x, tuple):
        return tuple(map(_typed, x))
    return x.encode("utf-8", "surrogatepass") if isinstance(x, str) else x


def test_dice_fall_alike_everywhere() -> None:
    dice = Dice("a", 1)
    assert [dice.below(1000) for _ in range(4)] == [213, 792, 672, 723]
    assert (dice.some("abcdef", 3), dice.value()) == (["b", "c", "f"], -1.625)
