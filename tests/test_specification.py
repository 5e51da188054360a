"""The specification's formulas, as the audit has them: known values, what each is for, and that they stand alone."""

from __future__ import annotations

import ast
import inspect
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.arithmetic.field import M61, PRIMES30
from secea.arithmetic.ristretto import ORDER
from secea.audit import specification as spec
from secea.audit.claims.numbers import law_of_sum, leading
from secea.audit.registry import caught_by
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.phases import Agreement


def test_the_specification_imports_nothing_of_the_product() -> None:
    tree = ast.parse(inspect.getsource(spec))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert modules
    assert not any(name.startswith("secea") for name in modules)


NAMED = """
    noise-of-a-few-units no-wide-noise fill-with-a-floor fill-split fill-of-low-bits fill-drawn-anew noise-of-t-clients
    sigma-of-three noise-not-scaled one-noise-for-all noise-of-any-round quorum-of-need threshold-of-participants
    signatures-one-less one-neighbour-less fewer-noise-clients one-check-column field-halved top-never-drawn biased-bit
    never-zero zeros-for-nonzero repeated-words lanes-alike class-never-drawn digit-never-drawn wide-top-never-drawn
    fill-top-never-drawn short-scalars check-point-never-first
"""


@pytest.mark.parametrize("name", NAMED.split())
def test_each_number_that_protects_something_has_a_mutant_that_a_claim_names(name: str) -> None:
    assert caught_by()[name]


def test_values_that_the_documentation_states() -> None:
    assert spec.sigma_prime(40, 1, 15_000, 128, 1000) == 71
    assert spec.common_multiple(10) == 2520
    for N, w, bits in ((3, 2**11, 75.9), (12, 2**11, 75.5), (30, 2**12, 80.2)):
        assert spec.leftover_bits(6, w, _digits(N)) == pytest.approx(bits, abs=0.06)
    assert spec.confirmed(6, 1, 2)  # the published attack
    assert (spec.check_columns([M61]), spec.check_columns(PRIMES30[:3])) == (1, 2)
    assert (spec.slot_bits(40), spec.slot_bits(64)) == (163, 186)
    assert [spec.queries(most) for most in (3, 30, 100)] == [3, 60, 165]
    assert (spec.blocks(5, 1, 0), spec.need(5, 1, 0)) == (2, 5)
    assert [spec.colluders(N, D) for N, D in ((2, 0), (5, 0), (5, 1), (3, 1), (4, 1))] == [1, 4, 2, 1, 1]


def _digits(N: int) -> tuple[int, ...]:
    return Keyed().numbers(Keyed().checked(Params(N, 1, 1, max_entities=1, max_union=1))).noise.digits


@given(st.integers(2, 40), st.data())
def test_two_quorums_have_an_honest_client_in_common(N: int, data: st.DataObject) -> None:
    D = data.draw(st.integers(0, N - 2))
    T = data.draw(st.integers(1, N - 1 - D))
    Z, t = spec.signatures(N, T), spec.threshold(N, D)
    assert 2 * Z - N > T >= 2 * (Z - 1) - N
    assert (2 * t - N > T) == spec.covered(N, T, D)
    assert spec.covered(N, spec.colluders(N, D), D) or not spec.covered(N, 1, D)
    assert len(spec.noise_clients(range(N), 3, T, D)) == min(N, T + D + 1)


@given(st.integers(3, 30), st.data())
def test_two_sets_of_answers_have_a_client_in_common_where_half_of_all_are_left(N: int, data: st.DataObject) -> None:
    T = data.draw(st.integers(1, (N + 1) // 2 - 1))
    D = data.draw(st.integers(0, N - 2 * T - 1))
    assert spec.need(N, T, D) <= min(N - D, spec.quorum(N, T, D))
    assert 2 * spec.quorum(N, T, D) > N or 2 * D >= N


@given(st.integers(2, 20), st.data())
def test_the_keyed_form_has_just_these_numbers(N: int, data: st.DataObject) -> None:
    D = data.draw(st.integers(0, N - 2))
    T = data.draw(st.integers(1, N - 1 - D))
    form, params = Keyed(), Params(N, 2, T, D, max_entities=300, max_union=300)
    everyone = tuple(range(N))
    assert form.threshold(params) == spec.threshold(N, D)
    assert form.degree(params) == spec.neighbours(T, D)
    assert form.signatures(params) == spec.signatures(N, T)
    assert form.fewest(params) == spec.fewest_participants(N, T, D)
    for q in range(1, N + 1):
        at = Agreement(participants=everyone, members=everyone, round=q)
        assert set(form.noise_clients(params, at)) == spec.noise_clients(everyone, q, T, D)
    n = form.numbers(form.checked(params))
    assert n.sigma == spec.sigma_prime(40, T, 300, 2, 1000)
    assert n.noise.wide == spec.wide_number(params.resolution, n.f, min(N, T + D + 1))
    assert n.checks == spec.check_columns(n.ring.primes)


@given(st.integers(3, 20), st.data())
def test_the_papers_form_has_just_these_numbers(N: int, data: st.DataObject) -> None:
    T = data.draw(st.integers(1, (N + 1) // 2 - 1))
    D = data.draw(st.integers(0, N - 2 * T - 1))
    form, params = Paillier(), Params(N, 5, T, D, precision=16, max_entities=300, max_union=300)
    n = form.numbers(params)
    assert (params.K, params.need, params.quorum) == (spec.blocks(N, T, D), spec.need(N, T, D), spec.quorum(N, T, D))
    assert n.sigma_prime == spec.paper_sigma_prime(40, N, T, D, 5, 300, 1000)
    assert n.packing.width == spec.slot_bits(n.sigma_prime)
    assert n.count == spec.queries(300)


def test_one_of_three_options_at_a_time() -> None:
    assert spec.go_together(weighted=True, partial=False, noise=False)
    assert spec.go_together(weighted=False, partial=False, noise=False)
    assert not spec.go_together(weighted=False, partial=True, noise=True)


def test_weights_leave_six_bits_of_the_precision() -> None:
    assert spec.largest_weight(3, 10) == 16 // 3 - 1
    assert spec.largest_weight(2, 52) == 1 << 24
    assert 4 * (spec.largest_weight(4, 24) + 1) == 1 << 18


def test_a_mean_may_be_off_by_no_more_than_its_parts_together() -> None:
    s, w, wide, noisy = 2, 4, 8, 3
    fills = [Fraction(sum(some) - s * (w - 1) // 2) for some in combinations([0, w - 1] * s, s)]
    noise = noisy * Fraction(s + wide - 1, 2)
    assert max(map(abs, fills)) + noise + Fraction(1, 2) <= spec.off(s, w, wide, noisy)


def test_the_law_of_a_sum_is_that_of_the_textbook() -> None:
    x = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    assert law_of_sum(x, 1).tolist() == [0, 0.5, 1, 1, 1, 1]
    assert law_of_sum(x, 2) == pytest.approx([0, 0.125, 0.5, 0.875, 1, 1])
    assert law_of_sum(x, 3)[3] == pytest.approx(0.5)


@given(st.lists(st.integers(0, 2**252), min_size=1, max_size=5), st.integers(0, 3))
def test_the_leading_coefficient_is_zero_just_if_the_degree_is_less(coefficients: list[int], more: int) -> None:
    clients = range(len(coefficients) + more)
    shares = {v: sum(c * (v + 1) ** k for k, c in enumerate(coefficients)) for v in clients}
    expected = 0 if more else coefficients[-1]
    assert leading(shares) == expected % ORDER
