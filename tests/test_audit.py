"""Every privacy claim holds on the product, and is objected to where its protection is taken away."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from secea.arithmetic.field import insecure_ring
from secea.audit import Claim, Finding, Objection, examine
from secea.audit.coins import Coins, Elements, Label
from secea.audit.decryption import PAILLIER, check_decryption
from secea.audit.laws import any_differ, differ, distance, flat, law, law_of
from secea.audit.lowbits import INPUTS
from secea.audit.noise import SMALL_NOISE, SUMS, drowned, plaintexts
from secea.audit.registry import all_mutants, gathered
from secea.audit.server_views import OWNERS, check_answers, check_openings, tables
from secea.audit.tiny import Tiny
from secea.audit.views import (
    FEDERATIONS,
    check_coalitions,
    check_reciprocals,
    resharing_laws,
    share_laws,
    title,
    worlds,
)
from secea.cli import main
from secea.errors import FederationError
from secea.params import Params
from secea.retrieval.reciprocal import Reciprocal
from secea.wire.messages import Kind

CLAIMS, MUTANTS = gathered(), all_mutants()
CAUGHT = [(mutant, claim) for mutant in MUTANTS for claim in MUTANTS[mutant].caught_by]


# ------------------------------------------------------------------------------------------------ claims and mutants


@pytest.mark.parametrize("name", CLAIMS)
def test_the_claim_holds(name: str) -> None:
    (finding,) = examine([CLAIMS[name]])
    assert finding.ok, finding.objection
    assert finding.cases > 0


@pytest.mark.parametrize(("mutant", "claim"), CAUGHT)
def test_the_audit_objects_to_the_mutant(mutant: str, claim: str) -> None:
    with MUTANTS[mutant].applied(), pytest.raises(Objection):
        CLAIMS[claim].check()


def test_every_claim_is_objected_to_on_some_mutant() -> None:
    caught = {claim for _, claim in CAUGHT}
    assert caught <= set(CLAIMS)
    assert set(CLAIMS) <= caught


REQUIRED = """
    no-psi one-noise-less alpha-equals-beta no-zeta counts-per-entity low-bits-not-filled low-bits-filled-anew no-pad
    reused-pad reused-r reused-rho reused-psi reused-key-stream no-p-times-r no-drowning-noise re-sharing-without-noise
    union-weight-one two-contributor-sets union-total-shown
"""


@pytest.mark.parametrize("name", REQUIRED.split())
def test_each_protection_of_the_protocol_has_a_mutant(name: str) -> None:
    assert MUTANTS[name].caught_by
    assert MUTANTS[name].missing.endswith(".")


def test_a_mutant_leaves_the_product_as_it_was() -> None:
    claim = CLAIMS["answers"]
    (broken,) = examine([claim], MUTANTS["no-pad"])
    (whole,) = examine([claim])
    assert not broken.ok
    assert broken.objection
    assert whole.ok


EXACT: list[tuple[str, Callable[[Sequence[Params]], int], Sequence[Params]]] = [
    ("alpha-equals-beta", partial(check_coalitions, partial(share_laws, [Kind.SHARE])), FEDERATIONS),
    ("reciprocals-without-noise", check_reciprocals, FEDERATIONS),
    ("reused-rho", check_openings, FEDERATIONS),
    ("no-zeta", check_openings, FEDERATIONS),
    ("no-pad", check_answers, FEDERATIONS),
    ("one-pad-for-all-queries", check_answers, FEDERATIONS),
    ("no-psi", check_decryption, PAILLIER),
]


@pytest.mark.parametrize(
    ("mutant", "check", "params"),
    [(mutant, check, params) for mutant, check, federations in EXACT for params in federations],
    ids=lambda x: title(x) if isinstance(x, Params) else x if isinstance(x, str) else "",
)
def test_the_audit_objects_in_every_federation(
    mutant: str, check: Callable[[Sequence[Params]], int], params: Params
) -> None:
    with MUTANTS[mutant].applied(), pytest.raises(Objection):
        check([params])


@pytest.mark.parametrize("params", FEDERATIONS, ids=title)
def test_where_one_noise_is_missing_at_least_half_of_all_coalitions_can_tell(params: Params) -> None:
    # Who holds the noise that is known sees no data in its place.
    with MUTANTS["one-noise-less"].applied():
        laws = share_laws([Kind.SHARE], params)
    assert len(laws) >= params.N
    assert sum(any_differ(found) for found in laws.values()) >= len(laws) / 2


@pytest.mark.parametrize("params", FEDERATIONS, ids=title)
def test_where_re_sharing_has_no_noise_every_coalition_can_tell(params: Params) -> None:
    with MUTANTS["re-sharing-without-noise"].applied():
        laws = resharing_laws(params)
    assert all(any_differ(found) for found in laws.values())


def test_an_error_of_the_protocol_is_an_objection_too() -> None:
    def breaks_off() -> int:
        raise FederationError("two clients are left")

    (finding,) = examine([Claim("name", "Something holds.", "record", breaks_off)])
    assert finding == Finding(
        "Something holds.", "record", 0, False, "the protocol breaks off: two clients are left", "name"
    )


# -------------------------------------------------------------------------------------------------------- the checker


def test_the_checker_tells_laws_apart_exactly_as_enumeration_does() -> None:
    rng = np.random.default_rng(0)
    outcomes = Counter[bool]()
    for _ in range(300):
        laws = []
        for _ in range(2):
            cases = int(rng.integers(1, 3))
            laws.append(law_of(3, rng.integers(0, 2, (cases, 2)), rng.integers(0, 2, (cases, 2, 2))))
        truth = laws[0].points() != laws[1].points()
        assert differ(*laws) == truth
        outcomes[truth] += 1
    assert min(outcomes.values()) > 10


def test_the_checker_refuses_a_view_that_is_not_affine() -> None:
    def squared(coins: Coins) -> Elements:
        x = coins.stream("x").elements(insecure_ring(7), 1)
        return flat(x * x % 7)

    with pytest.raises(Objection, match="not affine"):
        law(squared, 7, ["x"])


def test_the_checker_compares_no_laws_that_are_too_large_without_saying_so() -> None:
    def mixture(first: Sequence[int]) -> Any:
        spaces = np.zeros((2, 40, 20), np.int64)
        spaces[0, range(20), range(20)] = 1
        spaces[1, first, range(20)] = 1
        return law_of(5, np.zeros((2, 40), np.int64), spaces)

    one, other = mixture(range(20, 40)), mixture([*range(20, 39), 39])
    assert not differ(one, other)
    moved = law_of(5, np.zeros((3, 40), np.int64), np.concatenate([_spaces(20)] * 3))
    assert differ(one, moved)
    with pytest.raises(Objection, match="too large"):
        one.points()


def _spaces(size: int) -> Elements:
    space = np.zeros((1, 2 * size, size), np.int64)
    space[0, range(size), range(size)] = 1
    return space


def test_a_stream_that_is_asked_twice_under_one_label_gives_the_same_and_more() -> None:
    coins, ring = Coins(frozenset({"x"}), values=[1, 2, 3, 4]), insecure_ring(7)
    few, many = coins.stream("x").elements(ring, 2), coins.stream("x").elements(ring, 2, 2)
    assert few.tolist() == [[1, 2]]
    assert many.tolist() == [[[1, 2], [3, 4]]]
    assert len(coins.columns) == 4


@pytest.mark.parametrize("params", FEDERATIONS, ids=title)
def test_the_tiny_federation_computes_the_means(params: Params) -> None:
    tiny = Tiny(params, worlds(params)[2], followed=1)
    with tiny.labelled():
        tiny.asked().weighted(tiny.everyone).shared(tiny.everyone)
        found = tiny.result(tiny.everyone, 0, tiny.mean(tiny.everyone, 0))
    for m, result in zip(tiny.placed(0), found.tolist(), strict=True):
        mean = [0] * params.dim if m < 0 else list(range(2 - m, 2 - m + params.dim))
        noise = [(x - params.C * y) % tiny.p for x, y in zip(result, mean, strict=False)]
        assert set(noise) <= {0, 1}


# ----------------------------------------------------------------------------------------------- what is exactly lost


def test_noise_of_b_bits_leaves_exactly_the_distance_that_the_specification_says() -> None:
    form = Reciprocal(SMALL_NOISE, 1)
    assert form.sigma_prime == 3
    views = {case: drowned(form, *case) for case in SUMS}
    equal = near = 0
    for (one, a), (other, b) in combinations(views.items(), 2):
        shift = abs(Fraction(*one) - Fraction(*other))
        assert distance(a, b) == min(1, form.params.C * shift / (1 << form.noise_bits))
        equal += shift == 0
        near += shift < 1
    assert equal > 10
    assert near > 50


def test_without_drowning_noise_means_of_other_counts_are_told_apart_with_certainty() -> None:
    with MUTANTS["no-drowning-noise"].applied():
        third, half = (drowned(Reciprocal(SMALL_NOISE, 1), 1, count) for count in (3, 2))
    assert distance(third, half) == 1


def test_without_p_times_r_division_by_the_own_answer_gives_r() -> None:
    with MUTANTS["no-p-times-r"].applied():
        cases = [
            (r, min(plaintexts(5, 3, r, answer, psi)) // answer)
            for answer, r in product(range(1, 5), range(1, 5))
            for psi in range(answer)
        ]
    assert len(cases) == 40
    assert all(r == found for r, found in cases)


def test_the_unions_total_would_show_a_client_that_knows_its_weights_who_else_owns_its_entities() -> None:
    def total(sets: Sequence[Sequence[int]], coins: Coins) -> Elements:
        return sum((flat(table) for table in tables(sets, coins)), start=np.zeros(1, np.int64)) % 5

    def laws(knows: Callable[[Label], bool]) -> list[Any]:
        free = ["weight", "mask"]
        return [law(lambda coins, s=s: total(s, coins), 5, free, knows=knows) for s in OWNERS]  # type: ignore[misc]

    assert not any_differ(laws(lambda label: False))  # the server
    assert any_differ(laws(lambda label: label[:2] == ("weight", 0)))  # a client


def test_inputs_of_the_low_bits_claim_lie_on_the_grid_that_is_said() -> None:
    for matrix, bits in INPUTS.values():
        assert np.array_equal(matrix * 2**bits, np.rint(matrix * 2**bits))


# -------------------------------------------------------------------------------------------------- the command line

QUICK = ["--claim", "union", "--claim", "answers"]


def audit(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["audit", *options])
    return result.exit_code, result.output


def test_claims_that_hold_make_a_table_and_exit_code_0() -> None:
    code, output = audit(*QUICK)
    assert code == 0
    assert "All 2 claims hold; 20 cases were tried." in output
    heading, *rows = output.splitlines()
    assert heading.split() == ["name", "claim", "method", "cases", "result"]
    assert [row.split()[0] for row in rows[:2]] == ["union", "answers"]
    assert all("exact view" in row and row.rstrip().endswith("holds") for row in rows[:2])


def test_a_mutant_makes_exit_code_1_and_says_what_is_missing_and_what_was_seen() -> None:
    code, output = audit("--mutant", "no-pad", *QUICK)
    assert code == 1
    assert "Mutant no-pad: Answers go to the server without a pad." in output
    assert "does not hold" in output
    assert "answers: N=3, T=1, K=1: the view is not the same" in output
    assert "1 of 2 claims do not hold." in output


def test_a_mutant_that_no_chosen_claim_speaks_of_is_said_to_be_unnoticed() -> None:
    code, output = audit("--mutant", "no-psi", *QUICK)
    assert code == 0
    assert "did not notice" in output


def test_findings_as_json() -> None:
    code, output = audit("--json", *QUICK)
    assert code == 0
    found = json.loads(output)
    assert [each["name"] for each in found] == ["union", "answers"]
    for each in found:
        assert set(each) == {"name", "claim", "method", "cases", "ok", "objection"}
        assert each["ok"] is True
        assert each["cases"] > 0
    code, output = audit("--json", "--mutant", "union-weight-one", "--claim", "union")
    assert code == 1
    (each,) = json.loads(output)
    assert each["ok"] is False
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
    assert code == 0
    listed = json.loads(output)
    assert [each["name"] for each in listed["claims"]] == list(CLAIMS)
    assert [each["name"] for each in listed["mutants"]] == list(MUTANTS)


def test_help_teaches_with_examples() -> None:
    code, output = audit("--help")
    assert code == 0
    for part in ("Examples:", "secea audit --mutant no-zeta", "exit code", "--claim", "--json", "--list"):
        assert part in output


def test_names_are_words_with_hyphens_and_sentences_are_sentences() -> None:
    sentences = {name: claim.claim for name, claim in CLAIMS.items()}
    sentences |= {name: mutant.missing for name, mutant in MUTANTS.items()}
    for name, sentence in sentences.items():
        assert name == name.lower().replace(" ", "-")
        assert sentence.endswith(".")
    assert {claim.method for claim in CLAIMS.values()} <= {"exact view", "attack", "statistics", "record"}


def test_importing_secea_does_not_import_the_audit() -> None:
    script = "import sys, secea, secea.cli; print([name for name in sys.modules if name.startswith('secea.audit')])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    assert ran.stdout.strip() == "[]"
