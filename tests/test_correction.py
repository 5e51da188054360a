"""Laws of `secea.forms.paillier.correction`: what x answers more than needed notice, find, and cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.arithmetic.field import RING61, Residues, Ring, insecure_ring
from secea.arithmetic.lagrange import Code
from secea.forms.paillier.correction import ContradictionError, decode, errors_of, interpolate
from secea.params import Params
from strategies import federations, smallest_ring, vectors

RINGS = [RING61, insecure_ring(2**31 - 1)]
every_ring = pytest.mark.parametrize("ring", RINGS, ids=lambda ring: f"P={ring.size},{ring.dtype}")


def some_answers(code: Code, clients: Sequence[int], shape: tuple[int, ...], seed: int) -> list[Residues]:
    """Answers [P, ...] on a random polynomial of degree need - 1 for each element."""
    ring, rng = code.ring, np.random.default_rng(seed)
    at = code.data_points + code.alpha[: code.need - code.K]
    values = [ring.constant(rng.integers(0, 2**62, shape)) for _ in at]
    answers = ring.combine(code.matrix(at, code.at(clients)), values)
    return [np.ascontiguousarray(answers[:, i]) for i in range(len(clients))]


def spoiled(ring: Ring, answers: Sequence[Residues], wrong: Sequence[int], error: Residues) -> list[Residues]:
    """The answers in the places `wrong` moved by error [P, ...]."""
    return [ring.add(a, error) if i in wrong else a for i, a in enumerate(answers)]


def extra(code: Code, x: int) -> list[int]:
    return list(range(code.need + x))


def federation_with(x: int, collusion: int = 1, blocks: int = 1) -> Params:
    """Parameters under which all clients together give exactly x answers more than needed."""
    need = 2 * (blocks + collusion) - 1
    params = Params(need + x, 3, collusion=collusion, dropouts=x)
    assert (params.K, params.need) == (blocks, need)
    return params


# ------------------------------------------------------------------------------------------------------ right answers


@given(federations(), st.data())
def test_right_answers_have_no_syndromes_and_decode_to_the_data_of_need_of_them(
    params: Params, data: st.DataObject
) -> None:
    ring = data.draw(st.sampled_from(RINGS))
    code = Code(params, ring)
    at = code.data_points + code.alpha[: code.need - code.K]
    values = data.draw(vectors(ring, len(at), 3))
    clients = sorted(
        data.draw(st.permutations(range(params.N)))[: data.draw(st.integers(params.need, params.N))],
    )
    whole = ring.combine(code.matrix(at, code.at(clients)), values)
    answers = [np.ascontiguousarray(whole[:, i]) for i in range(len(clients))]
    assert not interpolate(code, clients, answers)[:, code.K :].any()
    blocks, wrong = decode(code, clients, answers)
    assert wrong == ()
    assert np.array_equal(blocks, values[:, : code.K])


@pytest.mark.parametrize("x", [1, 2, 3])
def test_syndromes_are_0_exactly_for_the_values_of_a_polynomial_of_degree_need_minus_1(x: int) -> None:
    params = federation_with(x)
    code = Code(params, smallest_ring(params))
    (p,), n = code.ring.primes, params.N
    rng = np.random.default_rng(x)
    words = [code.ring.constant(rng.integers(0, p, 4000)) for _ in range(n)]
    found = interpolate(code, range(n), words)[0, code.K :]
    for e in range(4000):
        word = np.array([int(w[0, e]) for w in words], np.int64)
        inverse = code.matrix(code.at(range(code.need)), code.at(range(n)))[0].astype(np.int64)
        lies = bool(((inverse @ word[: code.need] - word) % p == 0).all())
        assert lies == (not found[:, e].any())


# --------------------------------------------------------------------------------------------------- found and mended


@every_ring
@pytest.mark.parametrize(("x", "collusion", "blocks"), [(2, 1, 1), (3, 1, 2), (4, 1, 1), (5, 2, 1)])
def test_every_set_of_up_to_half_as_many_wrong_answers_as_extra_ones_is_found_and_left_out(
    ring: Ring, x: int, collusion: int, blocks: int
) -> None:
    code = Code(federation_with(x, collusion, blocks), ring)
    clients = extra(code, x)
    right = some_answers(code, clients, (2, 3), x)
    truth, _ = decode(code, clients[: code.need], right[: code.need])
    error = ring.constant(np.random.default_rng(x).integers(1, 2**31, (2, 3)))
    for count in range(x // 2 + 1):
        for wrong in combinations(clients, count):
            found, named = decode(code, clients, spoiled(ring, right, wrong, error))
            assert named == wrong
            assert np.array_equal(found, truth)


@every_ring
@pytest.mark.parametrize("amount", [1, -1])
def test_one_wrong_element_is_enough_to_find_its_client(ring: Ring, amount: int) -> None:
    code = Code(federation_with(2, 1, 2), ring)
    clients, shape = extra(code, 2), (2, 2)
    right = some_answers(code, clients, shape, 5)
    truth, _ = decode(code, clients, right)
    for place in product([0], *map(range, shape)):
        error = ring.zeros(*shape)
        error[place] = amount % ring.primes[place[0]]
        for v in clients:
            found, named = decode(code, clients, spoiled(ring, right, [v], error))
            assert named == (v,)
            assert np.array_equal(found, truth)


@every_ring
def test_wrong_clients_may_differ_from_element_to_element_as_long_as_they_are_few_in_all(ring: Ring) -> None:
    code = Code(federation_with(4), ring)
    clients = extra(code, 4)
    right = some_answers(code, clients, (4,), 7)
    truth, _ = decode(code, clients, right)
    for a, b in combinations(clients, 2):
        answers = list(right)
        for v, elements in ((a, [0, 2]), (b, [1, 2])):  # alone in one element each, both in another, none in the last
            error = ring.zeros(4)
            error[:, elements] = v + 1
            answers[v] = ring.add(answers[v], error)
        found, named = decode(code, clients, answers)
        assert named == (a, b)
        assert np.array_equal(found, truth)
    for three in combinations(clients, 3):  # one at a time, but three in all
        answers = list(right)
        for element, v in enumerate(three):
            error = ring.zeros(4)
            error[0, element] = 1
            answers[v] = ring.add(answers[v], error)
        with pytest.raises(ContradictionError):
            decode(code, clients, answers)


@given(federations(most=9), st.data())
def test_any_few_wrong_answers_of_any_kind_are_found_and_left_out(params: Params, data: st.DataObject) -> None:
    ring = data.draw(st.sampled_from(RINGS))
    code = Code(params, ring)
    clients = sorted(data.draw(st.permutations(range(params.N)))[: data.draw(st.integers(params.need, params.N))])
    x = len(clients) - params.need
    right = some_answers(code, clients, (2, 2), data.draw(st.integers(0, 2**20)))
    truth, _ = decode(code, clients[: code.need], right[: code.need])
    wrong = sorted(data.draw(st.permutations(clients))[: data.draw(st.integers(0, x // 2))])
    answers = dict(zip(clients, right, strict=True))
    for v in wrong:
        answers[v] = data.draw(vectors(ring, 2, 2))
    spoilt = tuple(v for v in wrong if not np.array_equal(answers[v], right[clients.index(v)]))
    found, named = decode(code, clients, list(answers.values()))
    assert named == spoilt
    assert np.array_equal(found, truth)


# ------------------------------------------------------------------------------------- noticed, and what cannot be told


def test_one_extra_answer_notices_every_wrong_one_and_finds_none() -> None:
    code = Code(federation_with(1, 1, 2), RING61)
    clients = extra(code, 1)
    right = some_answers(code, clients, (2,), 3)
    for v in clients:
        for place in ((0, 0), (0, 1)):
            error = code.ring.zeros(2)
            error[place] = 1
            with pytest.raises(ContradictionError):
                decode(code, clients, spoiled(code.ring, right, [v], error))


@pytest.mark.parametrize("x", [1, 2, 3, 4])
def test_up_to_x_wrong_answers_never_have_syndromes_of_0_whatever_they_agree_on(x: int) -> None:
    """In a tiny field: every set of wrong clients, and every choice of their errors."""
    params = federation_with(x)
    code = Code(params, smallest_ring(params))
    (p,), clients = code.ring.primes, extra(code, x)
    for count in range(1, x + 1):
        errors = np.array(list(product(range(1, p), repeat=count)), np.int64).T
        for wrong in combinations(clients, count):
            given = [code.ring.zeros(errors.shape[1]) for _ in clients]
            for i, v in enumerate(wrong):
                given[v] = code.ring.constant(errors[i])
            assert interpolate(code, clients, given)[0, code.K :].any(axis=0).all()


def decodings(
    code: Code, clients: Sequence[int], answers: Sequence[Residues]
) -> tuple[Residues, tuple[int, ...]] | None:
    try:
        return decode(code, clients, answers)
    except ContradictionError:
        return None


@pytest.mark.parametrize("x", [1, 2, 3, 4, 5])
def test_up_to_half_of_x_rounded_up_wrong_answers_never_give_a_wrong_result_or_a_wrong_name(x: int) -> None:
    """All choices of errors in a tiny field. With odd x there is one more than can be found: it is noticed."""
    params = federation_with(x)
    code = Code(params, smallest_ring(params))
    (p,), clients, rng = code.ring.primes, extra(code, x), np.random.default_rng(x)
    truth, right = code.ring.zeros(1, 1), [code.ring.zeros(1) for _ in clients]
    for count in range(1, (x + 1) // 2 + 1):
        choices = list(product(range(1, p), repeat=count))
        for wrong in combinations(clients, count):
            for i in rng.choice(len(choices), min(len(choices), 40), replace=False):
                answers = list(right)
                for v, error in zip(wrong, choices[i], strict=True):
                    answers[v] = code.ring.constant([error])
                found = decodings(code, clients, answers)
                assert (found is None) == (count > x // 2)
                if found is not None:
                    assert found[1] == wrong
                    assert np.array_equal(found[0], truth)


@every_ring
@pytest.mark.parametrize("x", [2, 4])
def test_limit_one_wrong_answer_more_can_name_an_honest_client_and_move_the_data(ring: Ring, x: int) -> None:
    """x/2 + 1 clients agree on errors that x/2 others would complete to a polynomial: the nearest one is another."""
    code = Code(federation_with(x), ring)
    clients = extra(code, x)
    right = some_answers(code, clients, (1,), x)
    truth, _ = decode(code, clients, right)
    liars, framed = clients[: x // 2 + 1], tuple(clients[x // 2 + 1 : x + 1])
    rest = clients[x + 1 :]  # need - 1 points where the difference of the two polynomials is 0
    assert len(rest) == code.need - 1
    known = code.at([*rest, framed[0]])
    values = [ring.zeros(1) for _ in rest] + [ring.constant([1])]
    shift = ring.combine(code.matrix(known, code.at(clients)), values)
    answers = [ring.add(a, shift[:, v]) if v in liars else a for v, a in zip(clients, right, strict=True)]
    found, named = decode(code, clients, [np.ascontiguousarray(a) for a in answers])
    assert named == framed
    assert not np.array_equal(found, truth)


def test_limit_more_than_x_wrong_answers_can_be_another_polynomial_altogether() -> None:
    code = Code(federation_with(2), RING61)
    clients = extra(code, 2)
    right, other = some_answers(code, clients, (1,), 1), some_answers(code, clients, (1,), 2)
    found, named = decode(code, clients, other)
    assert named == ()
    assert not np.array_equal(found, decode(code, clients, right)[0])


# ----------------------------------------------------------------------------------------------- the nearest polynomial


def nearest(p: int, points: Sequence[int], word: Sequence[int], need: int) -> tuple[int, ...]:
    """By trying all polynomials: the places where the only one within half of the distance differs; or nothing."""
    within = set()
    for coefficients in product(range(p), repeat=need):
        values = [sum(c * pow(x, i, p) for i, c in enumerate(coefficients)) % p for x in points]
        places = tuple(i for i, (a, b) in enumerate(zip(values, word, strict=True)) if a != b)
        if 2 * len(places) <= len(points) - need:
            within.add(places)
    assert len(within) <= 1
    return next(iter(within), ())


TINY = [(5, (1, 2, 3), 1), (5, (0, 1, 2, 3, 4), 1), (5, (1, 2, 3, 4), 2), (5, (4, 2, 0, 1), 1), (3, (0, 1, 2), 2)]


@pytest.mark.parametrize(("p", "points", "need"), TINY, ids=lambda value: str(value).replace(" ", ""))
def test_the_errors_of_every_word_over_a_tiny_field_are_those_of_a_search_through_all_polynomials(
    p: int, points: tuple[int, ...], need: int
) -> None:
    for word in product(range(p), repeat=len(points)):
        assert errors_of(p, points, word, need) == nearest(p, points, word, need)


@given(st.data())
def test_the_errors_of_a_word_are_those_of_a_search_through_all_polynomials(data: st.DataObject) -> None:
    p = data.draw(st.sampled_from([7, 11]))
    need = data.draw(st.integers(1, 3))
    points = data.draw(st.permutations(range(p)))[: data.draw(st.integers(need, p))]
    coefficients = data.draw(st.lists(st.integers(0, p - 1), min_size=need, max_size=need))
    word = [sum(c * pow(x, i, p) for i, c in enumerate(coefficients)) % p for x in points]
    for i in data.draw(st.lists(st.integers(0, len(points) - 1), max_size=len(points))):
        word[i] = data.draw(st.integers(0, p - 1))
    assert errors_of(p, points, word, need) == nearest(p, points, word, need)
