"""Laws of the code: what decodes, from which shares; and, over all the randomness of a tiny field, what they show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import PRIMES30, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.lagrange import Code, interpolation
from secea.params import Params
from strategies import everything, federations, smallest_ring, some, vectors

law = settings(deadline=None)


@st.composite
def codes(draw: st.DrawFn) -> Code:
    params = draw(federations())
    return Code(params, draw(st.sampled_from([RING61, smallest_ring(params)])))


def drawn_data_and_noise(code: Code, data: st.DataObject, rows: int = 5) -> tuple[Residues, Residues]:
    return data.draw(vectors(code.ring, code.K, rows)), data.draw(vectors(code.ring, code.T, rows))


# ----------------------------------------------------------------------------------------------------------- decoding


@law
@given(st.data())
def test_the_interpolation_takes_a_polynomials_values_to_its_values_elsewhere(data: st.DataObject) -> None:
    ring = data.draw(st.sampled_from([RING61, Ring(PRIMES30), insecure_ring(23)]))
    points = data.draw(st.lists(st.integers(0, 22), min_size=1, max_size=8, unique=True))
    wanted = data.draw(st.lists(st.integers(0, 22), max_size=8))
    polynomial = data.draw(vectors(ring, len(points))).tolist()

    def at(p: int, row: list[int], x: int) -> int:
        return sum(a * pow(x, power, p) for power, a in enumerate(row)) % p

    def values(where: Sequence[int]) -> list[list[list[int]]]:
        return [[[at(p, row, x)] for x in where] for p, row in zip(ring.primes, polynomial, strict=True)]

    known = np.array(values(points), ring.dtype)
    result = ring.combine(interpolation(ring.primes, tuple(points), tuple(wanted)), known)
    assert result.tolist() == values(wanted)


@law
@given(codes(), st.data())
def test_any_k_plus_t_shares_decode(code: Code, data: st.DataObject) -> None:
    blocks, noise = drawn_data_and_noise(code, data)
    clients = data.draw(some(code.N, code.K + code.T))
    assert np.array_equal(code.decode(clients, code.encode(blocks, noise, clients)), blocks)


@law
@given(codes(), st.data())
def test_the_sum_of_shares_decodes_to_the_sum(code: Code, data: st.DataObject) -> None:
    ring = code.ring
    blocks, shares = ring.zeros(code.K, 5), ring.zeros(code.N, 5)
    for _ in range(code.N):
        more, noise = drawn_data_and_noise(code, data)
        ring.add_into(blocks, more)
        ring.add_into(shares, code.encode(more, noise, range(code.N)))
    clients = data.draw(some(code.N, code.K + code.T))
    assert np.array_equal(code.decode(clients, np.ascontiguousarray(shares[:, clients])), blocks)


@law
@given(codes(), st.data())
def test_products_of_two_shares_decode_from_any_need_clients(code: Code, data: st.DataObject) -> None:
    clients = data.draw(some(code.N, code.need))
    pairs = [drawn_data_and_noise(code, data) for _ in range(2)]
    answers = code.ring.multiply(*(code.encode(*pair, clients) for pair in pairs))
    product = code.ring.multiply(pairs[0][0], pairs[1][0])
    assert np.array_equal(code.decode(clients, answers, degree=code.need - 1), product)


@law
@given(codes(), st.data())
def test_a_product_has_the_full_degree_so_one_point_less_does_not_decode_it(code: Code, data: st.DataObject) -> None:
    clients = data.draw(some(code.N, code.need))
    with pytest.raises(ValueError, match=f"the values of {code.need} different clients"):
        code.decode(clients[:-1], code.ring.zeros(code.need - 1, 5), degree=code.need - 1)
    last = code.ring.constant([[0]] * (code.T - 1) + [[1]])
    share = code.encode(code.ring.zeros(code.K, 1), last, clients)  # 0 at all betas but the last: of degree K + T - 1
    answers = code.ring.multiply(share, share)
    short = code.decode(clients[:-1], np.ascontiguousarray(answers[:, :-1]), degree=code.need - 2)
    whole = code.decode(clients, answers, degree=code.need - 1)
    assert not whole.any()
    assert short.any(axis=1).all()


@law
@given(codes(), st.data())
def test_noise_at_the_betas_and_the_same_shares_as_seeds_give_one_polynomial(code: Code, data: st.DataObject) -> None:
    blocks, noise = drawn_data_and_noise(code, data)
    seeded = data.draw(some(code.N, code.T))
    shares = code.encode(blocks, noise, range(code.N))
    again = code.encode(blocks, np.ascontiguousarray(shares[:, seeded]), range(code.N), seeded)
    assert np.array_equal(again, shares)


@law
@given(codes(), st.data())
def test_data_that_stand_at_every_beta_are_shared_as_if_they_were_written_there(
    code: Code, data: st.DataObject
) -> None:
    blocks, noise = drawn_data_and_noise(code, data)
    one, written = np.ascontiguousarray(blocks[:, :1]), np.repeat(blocks[:, :1], code.K, axis=1)
    everyone, seeded = range(code.N), data.draw(some(code.N, code.T))
    assert np.array_equal(code.encode(one, noise, everyone), code.encode(written, noise, everyone))
    dealt = code.encode(one, noise, everyone, seeded, apart=True)
    assert np.array_equal(dealt, code.encode(written, noise, everyone, seeded))


@law
@given(codes(), st.data())
def test_a_seeded_client_gets_the_noise_itself(code: Code, data: st.DataObject) -> None:
    blocks, noise = drawn_data_and_noise(code, data)
    seeded = data.draw(some(code.N, code.T))
    assert np.array_equal(code.encode(blocks, noise, seeded, seeded), noise)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_the_shares_of_the_papers_example_are_the_papers(h: int, z: int) -> None:
    code = Code(Params(3, 1, 1), RING61)
    shares = code.encode(RING61.constant([[h]]), RING61.constant([[z]]), range(3))
    assert np.array_equal(shares, RING61.constant([[-h + 2 * z], [-2 * h + 3 * z], [-3 * h + 4 * z]]))


@given(vectors(RING61, 3, 1))
def test_the_answers_of_the_papers_example_combine_as_in_the_paper(answers: Residues) -> None:
    y1, y2, y3 = (int(y) for y in answers.ravel())
    decoded = Code(Params(3, 1, 1), RING61).decode([0, 1, 2], answers, degree=2)
    assert np.array_equal(decoded, RING61.constant([[6 * y1 - 8 * y2 + 3 * y3]]))


# ------------------------------------------------------------------------------------- over all randomness, exactly

TINY = [Params(3, 1, 1), Params(5, 1, 1), Params(5, 1, 2), Params(7, 1, 2), Params(5, 1, 1, dropouts=2)]
each_tiny = pytest.mark.parametrize("params", TINY, ids=lambda q: f"N={q.N},T={q.T},K={q.K}")


def all_shares(code: Code, seeded: Sequence[int] = ()) -> NDArray[np.int64]:
    """Everybody's shares for all data and all noise: [data, noise, clients]."""
    data, noise = everything(code.ring, code.K), everything(code.ring, code.T)
    many, more = data.shape[2], noise.shape[2]
    shares = code.encode(np.repeat(data, more, axis=2), np.tile(noise, many), range(code.N), seeded)
    by_client: NDArray[np.int64] = shares[0].astype(np.int64).reshape(code.N, many, more)
    return by_client.transpose(1, 2, 0)


def views(shares: NDArray[np.int64], clients: Sequence[int]) -> NDArray[np.int64]:
    """For each data the multiset of what those clients see over all noise: one number a view, sorted."""
    together: NDArray[np.int64] = shares[:, :, list(clients)] @ (100 ** np.arange(len(clients)))
    return np.sort(together, axis=1)


def depends_on_data(multisets: NDArray[np.int64]) -> bool:
    return bool((multisets != multisets[0]).any())


@each_tiny
def test_any_t_shares_show_nothing(params: Params) -> None:
    shares = all_shares(Code(params, smallest_ring(params)))
    for clients in combinations(range(params.N), params.T):
        assert not depends_on_data(views(shares, clients))


@each_tiny
def test_the_same_check_objects_to_one_share_more(params: Params) -> None:
    shares = all_shares(Code(params, smallest_ring(params)))
    for clients in combinations(range(params.N), params.T + 1):
        assert depends_on_data(views(shares, clients))


@each_tiny
def test_k_plus_t_shares_show_all(params: Params) -> None:
    shares = all_shares(Code(params, smallest_ring(params)))
    for clients in combinations(range(params.N), params.K + params.T):
        multisets = views(shares, clients)
        assert np.unique(multisets).size == multisets.size


@each_tiny
def test_seeded_shares_are_distributed_exactly_as_those_with_noise_at_the_betas(params: Params) -> None:
    code, everyone = Code(params, smallest_ring(params)), range(params.N)
    papers = views(all_shares(code), everyone)
    assert depends_on_data(papers)
    for seeded in combinations(everyone, params.T):
        assert np.array_equal(views(all_shares(code, seeded), everyone), papers)


# ----------------------------------------------------------------------------------------------------------- refusals


@law
@given(federations())
def test_a_field_without_room_for_all_points_is_refused(params: Params) -> None:
    points = params.N + params.K + params.T
    for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29):
        if p >= points:
            assert Code(params, insecure_ring(p)).N == params.N
        else:
            with pytest.raises(ValueError, match=f"a field of {p} elements is too small"):
                Code(params, insecure_ring(p))


@law
@given(codes(), st.data())
def test_too_few_or_repeated_clients_are_refused(code: Code, data: st.DataObject) -> None:
    enough = code.K + code.T
    clients = data.draw(some(code.N, enough))
    for wrong in (clients[:-1], [*clients[:-1], clients[0]]):
        with pytest.raises(ValueError, match=f"the values of {enough} different clients"):
            code.decode(wrong, code.ring.zeros(len(wrong), 5))


@law
@given(codes(), st.data())
def test_seeds_for_more_or_fewer_than_t_clients_are_refused(code: Code, data: st.DataObject) -> None:
    blocks, noise = drawn_data_and_noise(code, data)
    for count in {code.T - 1, code.T + 1} - {0}:
        with pytest.raises(ValueError, match=f"noise must be given at {code.T} points"):
            code.encode(blocks, noise, range(code.N), data.draw(some(code.N, count)))
