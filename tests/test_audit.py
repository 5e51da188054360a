"""Every privacy claim holds on the product, and is objected to where its protection is taken away."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from secea.arithmetic.field import M61
from secea.audit import (
    FORMS,
    KEYED,
    METHODS,
    PAILLIER,
    Claim,
    Finding,
    Mutant,
    Objection,
    Subject,
    claim,
    examine,
    report,
)
from secea.audit.attacks.keyed import Overheard
from secea.audit.laws import Coset, coset, coset_of
from secea.audit.registry import all_mutants, caught_by, gathered, product
from secea.audit.tails import FALSE_ALARM, binomial_tail, chi_square_tail, kolmogorov_tail
from secea.cli import main
from secea.errors import FederationError
from tiers import always

CLAIMS, MUTANTS = gathered(), all_mutants()
PRODUCT = product()
"""One for all: several claims look at the same run."""
HOLDS = [(name, form) for name, each in CLAIMS.items() for form in each.forms]
CAUGHT = [
    (m.name, name, form) for name, c in CLAIMS.items() for m in c.mutants for form in c.forms if form in m.subjects
]


# ------------------------------------------------------------------------------------------------ claims and mutants


HEAVY = {
    name for name in CLAIMS
    if name.startswith(("lying-server", "rogue", "garbage", "keys-of", "words", "saved-states", "secret-numbers"))
    or name in (
        "masks-of-others", "shared-streams", "messages-once", "unions-apart", "stretches-once", "key-streams-once",
        "as-specified", "tables-as-specified", "views-by-enumeration", "lies-in-two-rounds", "begins", "key-streams",
        "minimum-is-proved", "minimum-is-kept", "masks-of-many", "view-below-a-minimum", "view-of-a-minimum",
        "view-with-drop-outs", "every-number", "gone-for-good", "released-once", "spelling", "lives-as-specified",
        "conduct-of-parties", "conduct-of-sites", "figures-and-files",
    )
}  # fmt: skip
"""Claims that play whole lives, or look at thousands of cases."""


@pytest.mark.parametrize(("name", "form"), always([each for each in HOLDS if each[0] not in HEAVY], HOLDS))
def test_the_claim_holds(name: str, form: str) -> None:
    (finding,) = examine([CLAIMS[name]], {form: PRODUCT[form]})
    assert finding.ok, finding.objection or finding.broke_off
    assert finding.cases > 0


ONE_OF_EACH = [next(each for each in CAUGHT if each[1:] == claimed) for claimed in HOLDS if claimed[0] not in HEAVY]
"""For each claim and form its first mutant."""


@pytest.mark.parametrize(("mutant", "name", "form"), ONE_OF_EACH)
def test_each_claim_objects_to_a_mutant(mutant: str, name: str, form: str) -> None:
    with pytest.raises(Objection):  # and nothing else: a federation that breaks off shows nothing
        CLAIMS[name].check(MUTANTS[mutant].subjects[form])


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "form"), sorted({(mutant, form) for mutant, _, form in CAUGHT}))
def test_all_claims_that_name_a_mutant_object_to_it(mutant: str, form: str) -> None:
    for name in (name for other, name, of in CAUGHT if (other, of) == (mutant, form)):
        with pytest.raises(Objection):
            CLAIMS[name].check(MUTANTS[mutant].subjects[form])


def test_every_claim_has_a_mutant_for_each_of_its_forms() -> None:
    assert {(name, form) for _, name, form in CAUGHT} == set(HOLDS)


REQUIRED = """
    no-g row-keys-from-tags g-of-any-round masks-of-an-earlier-union no-rho no-j no-h no-theta alpha-of-any-round
    two-seeds-under-one-h no-self-masks both-shares shares-as-often-as-asked t-over-participants
    threshold-of-participants no-confirmation values-sent-again uploads-again-in-any-union as-many-participants
    list-not-bound tags-in-no-key stop-on-a-missing-tag second-broadcast-judged only-own-slots-checked
    noise-of-a-few-units no-wide-noise no-narrow-noise fill-with-a-floor fill-split fill-of-low-bits fill-drawn-anew
    prf-without-check-point rogue-dealer dealings-without-proof points-of-another-list two-lists-to-two-holders
    same-secret-again union-under-the-same-secret slots-kept masks-of-words one-lane-of-key-streams masks-of-any-chunk
    tags-of-the-session secret-without-parts fill-of-the-public-key sigma-of-three quorum-of-need top-never-drawn
    fewer-masks uploads-without-masks bare-tables masks-of-any-round row-keys-of-clients names-without-key
    fewer-noise-clients one-key-for-all-messages one-key-for-all-broadcasts identities-not-pinned freshness-unchecked
    no-psi reused-psi reused-r no-p-times-r one-noise-less one-seed-for-all alpha-equals-beta reused-key-stream
    union-weight-one union-total-shown contributors-not-proven
    minimum-in-order minimum-with-one-rho minimum-unproved minimum-with-thetas minimum-with-theta-of-empty
    sum-without-designated minimum-of-public-keys noise-left-out noise-drawn-once noise-of-any-chunk
    noise-of-a-shared-key noise-of-everybody noise-of-a-few noise-drawn-again no-gamma weights-not-blurred
    weights-blurred-anew weights-blurred-openly weights-not-recognised weight-0-shows
"""


@pytest.mark.parametrize("name", REQUIRED.split())
def test_each_protection_of_the_protocol_has_a_mutant(name: str) -> None:
    assert caught_by()[name]


def test_a_mutant_that_only_breaks_off_is_not_caught() -> None:
    def breaks_off(_: Subject) -> int:
        raise FederationError("two clients are left")

    broken = claim("record", KEYED, mutants=())(breaks_off)
    (finding,) = examine([broken], product())
    assert (finding.ok, finding.objection) == (False, "")
    assert finding.broke_off == "FederationError: two clients are left"


# --------------------------------------------------------------------------------------------------------------- laws


@given(
    st.lists(st.lists(st.integers(0, M61 - 1), min_size=4, max_size=4), min_size=1, max_size=5), st.integers(0, 2**32)
)
def test_draws_of_a_coset_span_it_whatever_it_is(rows: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    basis, offset = np.array(rows, object), rng.integers(0, M61, 4).astype(object)

    def draw() -> Any:
        return (offset + rng.integers(0, M61, len(rows)).astype(object) @ basis) % M61

    one, two = coset(draw), coset(draw)
    assert one.same(two)
    assert offset in one
    assert all((offset + row) % M61 in one for row in basis)
    moved = Coset((one.offset + np.eye(4, dtype=int).astype(object)[0]) % M61, one.rows)
    assert one.same(moved) == (moved.offset in one)


def test_a_span_or_an_offset_that_differs_is_another_law() -> None:
    def law(*rows: list[int]) -> Coset:
        made = Coset(np.array(rows[0], object))
        for row in rows[1:]:
            made.add(np.array(row, object))
        return made

    assert law([0, 0], [1, 2]).same(law([3, 6], [0, 0]))
    assert not law([0, 0], [1, 2]).same(law([0, 1], [1, 3]))
    assert not law([0, 0], [1, 2]).same(law([0, 0], [1, 3]))
    assert not law([0, 0], [1, 2]).same(law([0, 0], [1, 2], [0, 1]))


def test_too_few_draws_are_no_law() -> None:
    draws = [np.random.default_rng(n).integers(0, M61, 5) for n in range(6)]
    with pytest.raises(Objection, match="do not show"):
        coset_of(draws)


# --------------------------------------------------------------------------------------------------------------- tails


def test_tails_are_those_of_the_textbook() -> None:
    assert binomial_tail(50, 100, 0.5) == 1.0
    assert binomial_tail(100, 100, 0.5) == pytest.approx(2.0**-100)
    assert chi_square_tail(24.996, 15) == pytest.approx(0.05, rel=1e-3)
    assert chi_square_tail(5.229, 15) == pytest.approx(0.99, rel=1e-3)
    assert kolmogorov_tail(0.5, 100) == pytest.approx(2 * np.exp(-50.0))
    assert FALSE_ALARM < 1e-10


# -------------------------------------------------------------------------------------------------- the command line

QUICK = ["--claim", "graph-of-masks", "--claim", "tables-subtracted"]


def audit(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["audit", *options])
    return result.exit_code, result.output


def test_claims_that_hold_make_a_table_for_each_form_and_exit_code_0() -> None:
    code, output = audit(*QUICK)
    assert code == 0
    assert "All 2 claims hold; " in output
    lines = output.splitlines()
    assert lines[0] == 'Form "keyed", the default'
    assert lines[1].split() == ["claim", "what", "is", "claimed", "checked", "by", "cases", "result"]
    assert lines[2].startswith("graph-of-masks  Masks that the server and any T clients do not know")
    assert lines[2].rstrip().endswith("holds")
    assert lines[4] == 'Form "paillier", the paper\'s'
    assert lines[6].startswith("tables-subtracted  The server does not learn")


def test_the_form_can_be_chosen() -> None:
    code, output = audit(*QUICK, "--form", "paillier")
    assert (code, "keyed" in output) == (0, False)
    assert "All 1 claims hold; 3 cases were tried." in output


def test_a_mutant_makes_exit_code_1_and_says_what_is_missing_and_what_was_seen() -> None:
    code, output = audit("--mutant", "fewer-masks", *QUICK)
    assert code == 1
    assert "Mutant fewer-masks: Each client shares masks with T others in place of T+1." in output
    assert "graph-of-masks (keyed): D=0, T=1, members (0, 1, 2), sum over (0, 1, 2): clients (0,) see more" in output
    assert "The audit objects to this mutant: 1 of 1 claims do not hold." in output


def test_a_mutant_that_no_chosen_claim_speaks_of_is_said_to_be_unnoticed() -> None:
    code, output = audit("--mutant", "no-j", *QUICK)
    assert code == 0
    assert "does not object to this mutant" in output


class Crashing(Overheard):
    def degree(self, params: object) -> int:
        raise FederationError("no graph")


def test_a_mutant_whose_federation_breaks_off_is_reported_as_such_and_does_not_count_as_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    crashing = Mutant("crashing", "Nothing works.", {KEYED: Subject(Crashing())})
    asked: dict[str, Any] = {"forms": FORMS, "thorough": False}
    assert report.run([CLAIMS["graph-of-masks"]], crashing, **asked, as_json=False)[0]
    output = capsys.readouterr().out
    assert "not checked" in output
    assert "graph-of-masks (keyed): stopped early, before anything was found: FederationError: no graph" in output
    assert "does not object to this mutant" in output
    assert "1 of 1 could not be checked" in output
    assert report.run([CLAIMS["graph-of-masks"]], crashing, **asked, as_json=True)[0]
    (each,) = json.loads(capsys.readouterr().out)
    assert (each["ok"], each["objection"], each["broke_off"]) == (False, "", "FederationError: no graph")


def test_a_product_whose_federation_breaks_off_makes_no_claim_hold(capsys: pytest.CaptureFixture[str]) -> None:
    def breaks_off(_: Subject) -> int:
        raise FederationError("two clients are left")

    broken = claim("record", KEYED, mutants=())(breaks_off)
    assert not report.run([broken], None, forms=FORMS, thorough=False, as_json=False)[0]
    assert "1 of 1 could not be checked: the federation stopped early." in capsys.readouterr().out


def test_findings_as_json() -> None:
    code, output = audit("--json", *QUICK)
    assert code == 0
    found = json.loads(output)
    assert [(each["name"], each["form"]) for each in found] == [
        ("graph-of-masks", KEYED),
        ("tables-subtracted", PAILLIER),
    ]
    for each in found:
        assert set(each) == set(Finding.__dataclass_fields__)
        assert (each["ok"], each["objection"], each["broke_off"]) == (True, "", "")
        assert each["cases"] > 0
    code, output = audit("--json", "--mutant", "union-weight-one", "--claim", "union-tables")
    (each,) = json.loads(output)
    assert (code, each["ok"]) == (1, False)
    assert each["objection"]


@pytest.mark.parametrize(
    ("options", "known"),
    [(["--mutant", "no-luck"], MUTANTS), (["--claim", "no-luck"], CLAIMS)],
    ids=["mutant", "claim"],
)
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(options: list[str], known: dict[str, Any]) -> None:
    code, output = audit(*options)
    assert code == 2
    assert "'no-luck'" in output
    assert all(name in output for name in known)


def test_the_list_names_everything_and_checks_nothing() -> None:
    code, output = audit("--list")
    assert code == 0
    assert all(name in output for name in (*CLAIMS, *MUTANTS))
    code, output = audit("--list", "--json")
    listed = json.loads(output)
    assert (code, [each["name"] for each in listed["claims"]]) == (0, list(CLAIMS))
    assert {each["name"]: tuple(each["caught_by"]) for each in listed["mutants"]} == caught_by()


def test_help_teaches_with_examples() -> None:
    code, output = audit("--help")
    assert code == 0
    for part in ("Examples:", "secea audit --mutant fewer-masks", "exit code", "--claim", "--json", "--list", "--form"):
        assert part in output


def test_names_are_words_with_hyphens_and_sentences_stand_on_their_own() -> None:
    named: dict[str, Claim | Mutant] = {**CLAIMS, **MUTANTS}
    assert all(name == name.lower().replace(" ", "-") for name in named)
    for each in CLAIMS.values():
        whose, _, said = each.claim.partition(": ")
        assert {"Keyed": (KEYED,), "Paillier": (PAILLIER,), "Both forms": FORMS}[whose] == each.forms
        assert said.endswith(".")
        assert each.method in METHODS
    assert all(mutant.missing.endswith(".") for mutant in MUTANTS.values())
    assert next(iter(CLAIMS.values())).forms == (KEYED,)


def test_importing_secea_does_not_import_the_audit() -> None:
    script = "import sys, secea, secea.cli; print([name for name in sys.modules if name.startswith('secea.audit')])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    assert ran.stdout.strip() == "[]"
