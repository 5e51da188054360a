"""The oracle against the paper: its worked example, its equations, and what its eq. 13 leaks when taken literally."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secea.errors import FederationError, ParamsError, TableError
from secea.oracles import paillier as oracle
from secea.oracles.paillier import P61, SecretKey, Vector
from secea.params import Params

LEGAL = [(N, T) for N in range(3, 8) for T in range(1, (N + 1) // 2)]
KEY_BITS = 256

elements = st.integers(0, P61 - 1)
rngs = st.randoms(use_true_random=True)
quick = settings(max_examples=25, deadline=None, database=None)
slow = settings(max_examples=4, deadline=None, database=None)

Tables = Sequence[Mapping[str, Sequence[float]] | None]


def small(N: int, T: int = 1, dim: int = 3, **more: int) -> Params:
    return Params(clients=N, dim=dim, collusion=T, key_bits=KEY_BITS, insecure_small_keys=True, **more)  # type: ignore[arg-type]  # the integers among its fields


def vectors(length: int) -> st.SearchStrategy[Vector]:
    return st.tuples(*[elements] * length)


@pytest.fixture(scope="module")
def key() -> SecretKey:
    return oracle.keygen(KEY_BITS, oracle.SYSTEM)


# The paper's worked example: N = 3, K = T = 1, E_1 = {e1}, E_2 = {e2}, E_3 = {e1}.

EXAMPLE = small(3, dim=2)
OWNERS = {"e1": (0, 2), "e2": (1,)}


def test_the_examples_points_are_the_papers() -> None:
    assert (EXAMPLE.K, EXAMPLE.T, EXAMPLE.beta, EXAMPLE.alpha) == (1, 1, (1, 2), (3, 4, 5))


@quick
@given(h=vectors(2), z=vectors(3))
def test_the_examples_shares_are_the_papers(h: Vector, z: Vector) -> None:
    h1 = oracle.expand(h, 2)
    assert h1 == (*h, 1)
    y1, y2, y3 = (oracle.share([oracle.phi(h1, [z], EXAMPLE, P61)], alpha_v)[0] for alpha_v in EXAMPLE.alpha)
    assert y1 == tuple((-a + 2 * s) % P61 for a, s in zip(h1, z, strict=True))
    assert y2 == tuple((-2 * a + 3 * s) % P61 for a, s in zip(h1, z, strict=True))
    assert y3 == tuple((-3 * a + 4 * s) % P61 for a, s in zip(h1, z, strict=True))


@quick
@given(z=vectors(2))
def test_the_examples_queries_are_the_papers(z: Vector) -> None:
    z1, z2 = z
    rho = oracle.rho("e1", ["e1", "e2"], [z], EXAMPLE, P61)
    q1, q2, q3 = (oracle.query(rho, alpha_v) for alpha_v in EXAMPLE.alpha)
    assert q1 == ((-1 + 2 * z1) % P61, 2 * z2 % P61)
    assert q2 == ((-2 + 3 * z1) % P61, 3 * z2 % P61)
    assert q3 == ((-3 + 4 * z1) % P61, 4 * z2 % P61)


@quick
@given(s1=elements, s2=elements)
def test_the_examples_noise_is_the_papers(s1: int, s2: int) -> None:
    psi = oracle.psi([(3 * s1 % P61,), (3 * s2 % P61,)], EXAMPLE, P61)
    assert [psi(alpha_v) for alpha_v in EXAMPLE.alpha] == [
        (3 * s1 % P61,),
        (3 * s2 % P61,),
        ((-6 * s1 + 8 * s2) % P61,),
    ]


@slow
@given(h=st.tuples(*[vectors(2)] * 3), r=st.integers(1, P61 - 1), repaired=st.booleans(), rng=rngs)
def test_the_examples_answers_decode_as_in_the_paper(
    key: SecretKey, h: tuple[Vector, Vector, Vector], r: int, repaired: bool, rng: Random
) -> None:
    def phi(n: int, e: str) -> oracle.Polynomial:
        h_tilde = oracle.expand(h[n] if n in OWNERS[e] else None, 2)
        return oracle.phi(h_tilde, [oracle.uniform(3, P61, rng)], EXAMPLE, P61)

    phis = [[phi(n, e) for e in OWNERS] for n in range(3)]
    y = [oracle.add_shares([oracle.share(phis[n], alpha_v) for n in range(3)], P61) for alpha_v in EXAMPLE.alpha]
    rho = oracle.rho("e1", list(OWNERS), [oracle.uniform(2, P61, rng)], EXAMPLE, P61)
    psi = oracle.psi([oracle.uniform(3, P61, rng) for _ in range(2)], EXAMPLE, P61)

    Y: dict[int, Vector] = {}
    for v, alpha_v in enumerate(EXAMPLE.alpha):
        A = oracle.answer(oracle.query(rho, alpha_v), y[v], P61)
        A_tilde = tuple(oracle.encrypt(a, key.n, rng) for a in A)
        Y_tilde = oracle.mask(A_tilde, psi(alpha_v), r, key.n, 40, P61, rng, repaired=repaired)
        Y[v] = tuple(oracle.decrypt(c, key) % P61 for c in Y_tilde)
        assert Y[v] == tuple((r * a + s) % P61 for a, s in zip(A, psi(alpha_v), strict=True))

    expected = (*(r * (a + b) % P61 for a, b in zip(h[0], h[2], strict=True)), 2 * r % P61)
    assert tuple((6 * a - 8 * b + 3 * c) % P61 for a, b, c in zip(*Y.values(), strict=True)) == expected
    blocks = oracle.response_blocks(oracle.response(Y, EXAMPLE, P61), EXAMPLE)
    rS, rc = oracle.join(blocks, 2)
    assert (*rS, rc) == expected
    half = pow(2, -1, P61)
    assert oracle.divide(rS, rc, P61) == tuple((a + b) * half % P61 for a, b in zip(h[0], h[2], strict=True))


@quick
@given(A3=elements, r=elements, s1=elements, s2=elements, rng=rngs)
def test_the_examples_server_can_combine_encrypted_noises(
    key: SecretKey, A3: int, r: int, s1: int, s2: int, rng: Random
) -> None:
    n = key.n
    a, s1_tilde, s2_tilde = (oracle.encrypt(m, n, rng) for m in (A3, s1, s2))
    noise = oracle.add(oracle.times(s1_tilde, -6, n), oracle.times(s2_tilde, 8, n), n)
    Y3 = oracle.decrypt(oracle.add(oracle.times(a, r, n), noise, n), key)
    assert (r * A3 - 6 * s1 + 8 * s2) % n == Y3


# Paillier.


@quick
@given(bits=st.integers(16, 96), rng=rngs, data=st.data())
def test_paillier_adds_and_multiplies_plaintexts(bits: int, rng: Random, data: st.DataObject) -> None:
    key = oracle.keygen(bits, rng)
    n = key.n
    m1, m2, k = (data.draw(st.integers(0, n - 1)) for _ in range(3))
    c1, c2 = oracle.encrypt(m1, n, rng), oracle.encrypt(m2, n, rng)
    assert oracle.decrypt(c1, key) == m1
    assert oracle.decrypt(oracle.add(c1, c2, n), key) == (m1 + m2) % n
    assert oracle.decrypt(oracle.times(c1, k, n), key) == k * m1 % n
    assert oracle.decrypt(oracle.times(c1, -1, n), key) == -m1 % n


@quick
@given(bits=st.integers(16, 128), rng=rngs)
def test_a_key_has_exactly_the_bits_asked_for_and_two_primes_that_are_3_mod_4(bits: int, rng: Random) -> None:
    key = oracle.keygen(bits, rng)
    assert key.n.bit_length() == bits
    assert key.n % 4 == 1  # 3 * 3
    assert key.lam % 4 == 2  # lcm(p-1, q-1), each twice an odd number
    assert str(key.lam) not in repr(key)


def test_two_encryptions_of_one_plaintext_differ(key: SecretKey) -> None:
    assert len({oracle.encrypt(7, key.n, oracle.SYSTEM) for _ in range(8)}) == 8


def test_primality_agrees_with_trial_division() -> None:
    for m in range(3, 3000, 4):
        assert oracle.is_prime(m, oracle.SYSTEM) == all(m % d for d in range(2, math.isqrt(m) + 1)), m


def test_a_key_too_short_to_exist_is_refused() -> None:
    with pytest.raises(ParamsError, match="at least 16 bits"):
        oracle.keygen(15, oracle.SYSTEM)


# Fixed point and rational recovery.


@pytest.mark.parametrize(
    ("x", "f", "q"), [(0.5, 0, 0), (1.5, 0, 2), (-2.5, 0, -2), (0.375, 2, 2), (0.1, 3, 1), (96.0, -6, 2)]
)
def test_fixed_point_rounds_half_to_even(x: float, f: int, q: int) -> None:
    assert oracle.fixed(x, f) == q


def test_centring_takes_the_nearest_integer_to_zero() -> None:
    assert [oracle.centred(x, 7) for x in range(-1, 8)] == [-1, 0, 1, 2, 3, -3, -2, -1, 0]


@quick
@given(x=st.floats(-64, 64), max_abs=st.sampled_from([64.0, 100.0, 127.9]))
def test_encoding_is_within_half_a_step_and_never_beyond_the_largest_value(x: float, max_abs: float) -> None:
    params = Params(clients=3, dim=1, max_abs=max_abs)
    (q,) = oracle.encode("e", [x], params, P61)
    S = oracle.centred(q, P61)
    assert abs(S) <= oracle.largest(params)
    assert abs(Fraction(S) / 2**params.fraction_bits - Fraction(x)) <= Fraction(params.resolution) / 2


@quick
@given(N=st.integers(3, 64), data=st.data())
def test_rational_recovery_finds_the_mean_with_the_smallest_count(N: int, data: st.DataObject) -> None:
    Q = (P61 - 1) // (2 * N * N)  # the largest that is allowed
    c = data.draw(st.integers(1, N))
    S = data.draw(st.lists(st.integers(-c * Q, c * Q) | st.sampled_from([-c * Q, c * Q]), min_size=1, max_size=4))
    found, count = oracle.rational([s * pow(c, -1, P61) % P61 for s in S], N, Q, P61)
    means = [Fraction(s, c) for s in S]
    assert [Fraction(s, count) for s in found] == means
    assert count == min(k for k in range(1, N + 1) if all((k * m).denominator == 1 for m in means))


def test_what_is_no_mean_is_refused() -> None:
    with pytest.raises(FederationError, match="no count up to 3"):
        oracle.rational([0, P61 // 7], 3, 1000, P61)


# The polynomials.


@pytest.mark.slow
@pytest.mark.parametrize(("N", "T"), LEGAL)
@slow
@given(dim=st.integers(1, 6), data=st.data())
def test_phi_holds_the_blocks_and_the_noise(N: int, T: int, dim: int, data: st.DataObject) -> None:
    params = small(N, T, dim)
    K, L = params.K, oracle.block_length(params)
    h_tilde = oracle.expand(data.draw(vectors(dim)), dim)
    z = data.draw(st.lists(vectors(L), min_size=T, max_size=T))
    phi = oracle.phi(h_tilde, z, params, P61)
    assert len(phi.xs) == K + T  # degree K+T-1
    at_beta = [phi(beta_k) for beta_k in params.beta]
    assert sum(at_beta[:K], ()) == h_tilde + (0,) * (K * L - dim - 1)
    assert at_beta[K:] == z


@pytest.mark.slow
@pytest.mark.parametrize(("N", "T"), LEGAL)
@slow
@given(data=st.data())
def test_rho_selects_the_wanted_entity(N: int, T: int, data: st.DataObject) -> None:
    params = small(N, T)
    E = ["a", "b", "c"]
    z = data.draw(st.lists(vectors(3), min_size=T, max_size=T))
    rho = oracle.rho("b", E, z, params, P61)
    assert [rho(beta_k) for beta_k in params.beta] == [(0, 1, 0)] * params.K + z


@pytest.mark.slow
@pytest.mark.parametrize(("N", "T"), LEGAL)
@slow
@given(data=st.data())
def test_psi_is_zero_where_the_data_is_and_has_the_degree_of_an_answer(N: int, T: int, data: st.DataObject) -> None:
    params = small(N, T)
    z = data.draw(st.lists(vectors(2), min_size=params.K + 2 * T - 1, max_size=params.K + 2 * T - 1))
    psi = oracle.psi(z, params, P61)
    assert len(psi.xs) == params.need  # degree 2(K+T-1)
    assert [psi(beta_k) for beta_k in params.beta[: params.K]] == [(0, 0)] * params.K
    assert [psi(alpha_v) for alpha_v in params.alpha[: len(z)]] == z


@pytest.mark.parametrize(("N", "T", "p"), [(3, 1, 7), (5, 1, 11), (5, 2, 11), (7, 2, 13)])
def test_any_t_shares_are_uniform_whatever_was_shared(N: int, T: int, p: int) -> None:
    params = small(N, T)
    for colluders in itertools.combinations(params.alpha, T):
        for h_tilde in [(0,) * params.K, (3, 1)[-params.K :]]:  # blocks of one element
            seen = Counter(
                tuple(phi(alpha_v) for alpha_v in colluders)
                for z in itertools.product(range(p), repeat=T)
                if (phi := oracle.phi(h_tilde, [(x,) for x in z], params, p))
            )
            assert len(seen) == p**T
            assert set(seen.values()) == {1}


@pytest.mark.parametrize(("N", "T", "p"), [(3, 1, 7), (4, 1, 7), (5, 1, 11)])
def test_psi_is_uniform_at_any_of_so_many_clients_as_it_has_noises(N: int, T: int, p: int) -> None:
    params = small(N, T)
    K_tilde = params.K + 2 * T - 1
    for clients in itertools.combinations(params.alpha, K_tilde):
        seen = set()
        for z in itertools.product(range(p), repeat=K_tilde):
            psi = oracle.psi([(x,) for x in z], params, p)
            seen.add(tuple(psi(alpha_v) for alpha_v in clients))
        assert len(seen) == p**K_tilde


@pytest.mark.parametrize(("N", "T", "dropouts"), [(4, 1, 0), (6, 1, 1), (7, 2, 2), (6, 2, 1)])
@slow
@given(rng=rngs)
def test_any_need_answers_decode_to_the_same_blinded_sum(N: int, T: int, dropouts: int, rng: Random) -> None:
    params = small(N, T, dim=3, dropouts=dropouts)
    L, E = oracle.block_length(params), ["a", "b"]
    h = [oracle.uniform(3, P61, rng) for _ in range(N)]  # all clients own a; none owns b

    def phis(n: int) -> list[oracle.Polynomial]:
        return [
            oracle.phi(oracle.expand(own, 3), [oracle.uniform(L, P61, rng) for _ in range(T)], params, P61)
            for own in (h[n], None)
        ]

    sent = [[oracle.share(phis_n, alpha_v) for alpha_v in params.alpha] for phis_n in map(phis, range(N))]
    rho = oracle.rho("a", E, [oracle.uniform(2, P61, rng) for _ in range(T)], params, P61)
    psi = oracle.psi([oracle.uniform(L, P61, rng) for _ in range(params.K + 2 * T - 1)], params, P61)
    r = oracle.draw_r(P61, rng)
    Y: dict[int, Vector] = {}
    for v, alpha_v in enumerate(params.alpha):
        A = oracle.answer(oracle.query(rho, alpha_v), oracle.add_shares([s[v] for s in sent], P61), P61)
        Y[v] = tuple((r * a + s) % P61 for a, s in zip(A, psi(alpha_v), strict=True))

    expected = tuple(r * sum(column) % P61 for column in zip(*h, strict=True)), r * N % P61
    subsets = list(itertools.combinations(range(N), params.need))
    assert len(subsets) > 1
    for used in subsets:
        response = oracle.response({v: Y[v] for v in used}, params, P61)
        assert oracle.join(oracle.response_blocks(response, params), 3) == expected
    with pytest.raises(FederationError, match=f"{params.need - 1} clients answered, and {params.need} are needed"):
        oracle.response({v: Y[v] for v in range(params.need - 1)}, params, P61)


# The whole protocol.


def exact(tables: Tables, params: Params) -> dict[str, list[float]]:
    """The mean of the encoded values in exact arithmetic: what the protocol must give, to the last bit."""
    f = params.fraction_bits
    owned: dict[str, list[list[int]]] = {}
    for table in tables:
        for e, h in (table or {}).items():
            owned.setdefault(e, []).append([oracle.fixed(x, f) for x in h])
    return {
        e: [float(Fraction(sum(column), len(hs)) / Fraction(2) ** f) for column in zip(*hs, strict=True)]
        for e, hs in owned.items()
    }


def check(
    tables: Tables,
    params: Params,
    rng: Random,
    *,
    answering: Sequence[int] | None = None,
    p: int = P61,
    repaired: bool = True,
) -> None:
    results = oracle.aggregate(tables, params, answering=answering, p=p, rng=rng, repaired=repaired)
    true, to_the_bit = oracle.mean(tables), exact(tables, params)
    for table, result in zip(tables, results, strict=True):
        if table is None:
            assert result is None
            continue
        assert result == {e: to_the_bit[e] for e in table}
        for e in table:
            assert all(abs(x - y) < params.resolution for x, y in zip(result[e], true[e], strict=True))


def tables_of(N: int, dim: int, max_abs: float) -> st.SearchStrategy[list[dict[str, list[float]]]]:
    value = st.floats(-max_abs, max_abs) | st.sampled_from([max_abs, -max_abs])
    table = st.dictionaries(st.sampled_from("abcd"), st.lists(value, min_size=dim, max_size=dim), max_size=3)
    return st.lists(table, min_size=N, max_size=N)


@pytest.mark.slow
@pytest.mark.parametrize(("N", "T"), LEGAL)
@slow
@given(dim=st.integers(1, 5), max_abs=st.sampled_from([64.0, 1.0, 100.0]), rng=rngs, data=st.data())
def test_aggregate_is_the_mean(N: int, T: int, dim: int, max_abs: float, rng: Random, data: st.DataObject) -> None:
    params = Params(clients=N, dim=dim, collusion=T, max_abs=max_abs, key_bits=KEY_BITS, insecure_small_keys=True)
    check(data.draw(tables_of(N, dim, max_abs)), params, rng)


SETS: dict[str, Tables] = {
    "disjoint": [{"a": [1.0, -2.0]}, {"b": [0.1, 64.0]}, {"c": [3.0, 1e-9]}, {"d": [-64.0, 5.0]}, {"e": [0.0, 0.0]}],
    "identical": [{"a": [n / 7, -n / 3], "b": [64.0 - n, 1.0]} for n in range(5)],
    "some empty": [{}, {"a": [1.0, 2.0]}, {}, {"a": [2.0, 4.0], "b": [1.0, 1.0]}, {}],
    "all empty": [{}, {}, {}, {}, {}],
    "all at the top": [{"a": [64.0, 64.0]}] * 5,
    "all at the bottom": [{"a": [-64.0, -64.0]}] * 5,
    "top and bottom": [{"a": [64.0, -64.0]}, {"a": [-64.0, 64.0]}, {"a": [64.0, -64.0]}, {}, {"b": [-64.0, 64.0]}],
}


@pytest.mark.parametrize("name", SETS)
@settings(slow, max_examples=1)
@given(rng=rngs)
def test_aggregate_is_the_mean_for_sets_of_every_kind(name: str, rng: Random) -> None:
    params = small(5, 1, dim=2)
    assert (params.dim + 1) % params.K != 0  # so there is padding
    check(SETS[name], params, rng)
    check(SETS[name], params, rng, repaired=False)


@slow
@given(rng=rngs, data=st.data())
def test_drop_outs_change_nothing_and_absent_clients_contribute_nothing(rng: Random, data: st.DataObject) -> None:
    params = small(7, 2, dim=2, dropouts=2)
    tables: list[dict[str, list[float]] | None] = [*data.draw(tables_of(7, 2, 64.0))]
    tables[data.draw(st.integers(0, 6))] = None
    present = [n for n in range(7) if tables[n] is not None]
    answering = data.draw(st.permutations(present))[: params.need]
    check(tables, params, rng, answering=answering)
    check(tables, params, rng)


@settings(slow, max_examples=1)
@given(rng=rngs)
def test_a_small_field_is_enough_for_small_precision(rng: Random) -> None:
    params = Params(3, dim=2, collusion=1, max_abs=1.0, precision=1, key_bits=KEY_BITS, insecure_small_keys=True)
    check([{"a": [1.0, -1.0]}, {"a": [0.5, -1.0]}, {"a": [-1.0, -1.0]}], params, rng, p=37)
    with pytest.raises(ParamsError, match="need a prime above 2\\*N\\^2\\*Q = 36, got 31"):
        oracle.aggregate([{}, {}, {}], params, p=31)


def test_a_number_and_its_decimal_string_are_two_entities() -> None:
    tables: list[dict[str | int, list[float]]] = [{1: [1.0]}, {"1": [2.0]}, {1: [3.0], "1": [4.0], 10: [5.0], 9: [6.0]}]
    assert oracle.union(tables) == [1, 9, 10, "1"]
    assert oracle.aggregate(tables, small(3, dim=1)) == [
        {1: [2.0]},
        {"1": [3.0]},
        {1: [2.0], "1": [3.0], 10: [5.0], 9: [6.0]},
    ]


def test_the_plain_mean_is_rounded_once() -> None:
    tables: Tables = [{"a": [0.1, 1e300]}, None, {"a": [0.2, -1e300]}, {"a": [0.3, 1.0], "b": [1.0, 2.0]}, {}]
    third = float((Fraction(0.1) + Fraction(0.2) + Fraction(0.3)) / 3)
    assert oracle.mean(tables) == {"a": [third, 1 / 3], "b": [1.0, 2.0]}
    assert oracle.mean([None, {}]) == {}


def test_the_masks_grow_with_what_the_colluders_see() -> None:
    params = small(5, 2, dim=3, rounds=8)  # K = 1, L = 4
    assert oracle.sigma_prime(params, 1) == 40 + math.ceil(math.log2(2 * 1 * 5 * 4 * 8))
    assert oracle.sigma_prime(params, 0) == 40


# Refusals.


@pytest.mark.parametrize(
    ("h", "why"),
    [
        ([1.0, math.nan], "entity 'a', coordinate 1: nan is not within max_abs"),
        ([-math.inf, 0.0], "entity 'a', coordinate 0: -inf is not within max_abs"),
        ([0.0, math.nextafter(64.0, 65.0)], "entity 'a', coordinate 1: 64.00000000000001 is not within max_abs = 64.0"),
        ([0.0], "entity 'a' has 1 coordinates, and dim is 2"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_refused(h: list[float], why: str) -> None:
    with pytest.raises(TableError, match=why):
        oracle.aggregate([{"a": [0.0, 0.0]}, {}, {"a": h}], small(3, dim=2))


def test_too_few_answers_are_refused() -> None:
    params = small(5, 1, dim=1)
    with pytest.raises(FederationError, match="4 clients answered, and 5 are needed"):
        oracle.aggregate([{"a": [1.0]}] * 5, params, answering=[0, 1, 3, 4, 4])
    with pytest.raises(FederationError, match="4 clients answered, and 5 are needed"):
        oracle.aggregate([{"a": [1.0]}, {}, None, {}, {}], params)


def test_an_absent_client_cannot_answer() -> None:
    with pytest.raises(FederationError, match=r"clients \[2, 5\] are absent or unknown"):
        oracle.aggregate([{}, {}, None, {}, {}], small(5, 1, dim=1), answering=[0, 1, 2, 3, 5])


def test_a_table_too_many_is_refused() -> None:
    with pytest.raises(ParamsError, match="for 3 clients, got 4 tables"):
        oracle.aggregate([{}] * 4, small(3))


def test_a_key_too_small_for_the_masks_is_refused() -> None:
    tables = [{"a": [1.0]}] * 3
    params = small(3, dim=1, rounds=1)
    fewest = (
        122 + oracle.sigma_prime(params, 1) + 2
    )  # p * (p + p*2^sigma'), just above 2^(122+sigma') here; and n's top bit
    assert oracle.aggregate(tables, params, key_bits=fewest) == tables
    with pytest.raises(ParamsError, match=f"at least {fewest} to hold a masked answer, got {fewest - 1}"):
        oracle.aggregate(tables, params, key_bits=fewest - 1)


def test_too_much_precision_for_the_field_is_refused() -> None:
    params = Params(clients=100, dim=1, collusion=1, precision=50, key_bits=KEY_BITS, insecure_small_keys=True)
    with pytest.raises(ParamsError, match="ask for less precision"):
        oracle.aggregate([{}] * 100, params)


def test_nonzero_padding_is_refused() -> None:
    assert oracle.join([(1, 2), (3, 0)], 2) == ((1, 2), 3)
    with pytest.raises(FederationError, match="padding"):
        oracle.join([(1, 2), (3, 4)], 2)


# What eq. 13 leaks when taken literally.


class Retrieval:
    """What client 0 holds after it retrieved the mean of "a" in a federation of three, and what it must not know."""

    def __init__(self, key: SecretKey, owners: int, rng: Random, *, repaired: bool) -> None:
        params = small(3, dim=4)
        tables = [{"a": [float(n), 1.0, 2.0, 3.0]} if n < owners else {"b": [0.0] * 4} for n in range(3)]
        E = oracle.union(tables)
        sent = [oracle.client_shares(table, E, params, P61, rng) for table in tables]
        y = [oracle.add_shares([s[v] for s in sent], P61) for v in range(3)]
        rho = oracle.rho("a", E, [oracle.uniform(len(E), P61, rng)], params, P61)
        A = {v: oracle.answer(oracle.query(rho, params.alpha[v]), y[v], P61) for v in range(3)}
        A_tilde = {v: tuple(oracle.encrypt(a, key.n, rng) for a in row) for v, row in A.items()}
        Y_tilde = oracle.serve(A_tilde, key.n, 40, params, P61, rng, repaired=repaired)
        Y = {v: tuple(oracle.decrypt(c, key) for c in row) for v, row in Y_tilde.items()}
        reduced = {v: tuple(x % P61 for x in row) for v, row in Y.items()}
        _, self.rc = oracle.join(oracle.response_blocks(oracle.response(reduced, params, P61), params), 4)
        self.A_own, self.Y_own = A[0], Y[0]  # it made the query and holds y_0: its own answer is no secret to it
        self.r_secret = self.rc * pow(owners, -1, P61) % P61


def attack(A: Vector, Y: Vector, rc: int, N: int) -> list[tuple[int, int]]:
    """All (r, count) that explain the plaintexts Y = r*A + psi, 0 <= psi < p, and the blinded count rc."""
    low = max(-(-(y - P61 + 1) // a) for a, y in zip(A, Y, strict=True) if a)
    high = min(y // a for a, y in zip(A, Y, strict=True) if a)
    candidates = [r for r in range(low, high + 1) if 0 < r < P61]
    return [(r, c) for r in candidates if 1 <= (c := rc * pow(r, -1, P61) % P61) <= N]


@quick
@given(owners=st.integers(1, 3), rng=rngs)
def test_without_the_repair_a_client_divides_by_its_own_answer_and_has_r_and_the_count(
    key: SecretKey, owners: int, rng: Random
) -> None:
    literal = Retrieval(key, owners, rng, repaired=False)
    assert attack(literal.A_own, literal.Y_own, literal.rc, 3) == [(literal.r_secret, owners)]


@quick
@given(owners=st.integers(1, 3), rng=rngs)
def test_with_the_repair_the_same_program_finds_nothing(key: SecretKey, owners: int, rng: Random) -> None:
    repaired = Retrieval(key, owners, rng, repaired=True)
    assert attack(repaired.A_own, repaired.Y_own, repaired.rc, 3) == []


class Recorder:
    """Another source, and what was drawn from it: (n, drawn)."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.drawn = rng, list[tuple[int, int]]()

    def randrange(self, n: int, /) -> int:
        self.drawn.append((n, self.rng.randrange(n)))
        return self.drawn[-1][1]


@quick
@given(a=elements, s=elements, r=elements, sigma=st.integers(40, 64), rng=rngs)
@example(a=P61 - 1, s=P61 - 1, r=P61 - 1, sigma=64, rng=Random(0))  # noqa: S311 (a test)
def test_the_repair_adds_a_multiple_of_p_drawn_from_sigma_more_bits_than_it_hides(
    key: SecretKey, a: int, s: int, r: int, sigma: int, rng: Random
) -> None:
    source = Recorder(rng)
    (c,) = oracle.mask((oracle.encrypt(a, key.n, rng),), (s,), r, key.n, sigma, P61, source)
    bound, R = source.drawn[0]
    assert bound == P61 << sigma
    assert oracle.decrypt(c, key) == r * a + s + P61 * R


class Zeros:
    """A source that always draws the smallest value."""

    def randrange(self, n: int, /) -> int:
        assert n > 0
        return 0


def test_the_repair_never_draws_the_r_that_destroys_the_result() -> None:
    assert oracle.draw_r(P61, Zeros(), repaired=False) == 0
    assert oracle.draw_r(P61, Zeros()) == 1
    with pytest.raises(FederationError, match="r = 0"):
        oracle.divide((0, 0), 0, P61)


@pytest.mark.parametrize(("count", "factor"), [(2, 2), (3, 3), (4, 2), (5, 5), (6, 2)])
def test_the_exact_mean_hides_its_count_as_rarely_as_the_sums_share_a_factor_with_it(count: int, factor: int) -> None:
    rng, d, Q, tries = Random(count), 2, 1 << 24, 3000  # noqa: S311
    hidden = 0
    for _ in range(tries):
        sums = [rng.randrange(-count * Q, count * Q + 1) for _ in range(d)]
        hidden += oracle.rational([s * pow(count, -1, P61) % P61 for s in sums], 6, Q, P61)[1] != count
    primes = {2: (2,), 3: (3,), 4: (2,), 5: (5,), 6: (2, 3)}[count]
    expected = 1 - math.prod(1 - q**-d for q in primes)
    assert abs(hidden / tries - expected) < 4 * math.sqrt(expected / tries)
    assert expected >= factor**-d
