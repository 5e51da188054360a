"""Laws of masks: the graph of pairs stays connected without any T + D members, and all masks together are nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.ristretto import ORDER
from secea.steps import masks
from secea.steps.masks import add_masks, neighbours, pair_seed
from secea.wire.randomness import KeyStream
from strategies import vectors

RINGS = [
    RING61, RING56, Ring(PRIMES30[:3]), insecure_ring(2**32 - 5, 2**32 - 17), insecure_ring(7), insecure_ring(5, 7),
]  # fmt: skip
each_ring = pytest.mark.parametrize("ring", RINGS, ids=str)
law = settings(max_examples=25)
keys = st.binary(min_size=32, max_size=32)
contexts = st.binary(min_size=16, max_size=16)
Graph = Mapping[int, frozenset[int]]


def graph_of(members: Sequence[int], degree: int) -> Graph:
    return {v: frozenset(neighbours(members, degree, v)) for v in members}


def connected(graph: Graph, without: Iterable[int] = ()) -> bool:
    """Whether everyone is reached from anyone, once some members are gone."""
    left = set(graph) - set(without)
    if not left:
        return True
    reached, border = set(), {min(left)}
    while border:
        reached |= border
        border = {u for v in border for u in graph[v]} & left - reached
    return reached == left


@st.composite
def circles(draw: st.DrawFn, most: int = 24) -> tuple[list[int], int]:
    """Some clients of a federation in order, and a degree: T + D + 1, which is 2 or more."""
    members = sorted(draw(st.sets(st.integers(0, 1023), min_size=2, max_size=most)))
    return members, draw(st.integers(2, len(members) + 2))


# ------------------------------------------------------------------------------------------------------------- graph


@law
@given(circle=circles())
def test_whoever_masks_with_me_i_mask_with(circle: tuple[list[int], int]) -> None:
    graph = graph_of(*circle)
    for v, near in graph.items():
        assert v not in near
        assert near <= set(graph)
        assert all(v in graph[u] for u in near)


@law
@given(circle=circles())
def test_neighbours_come_once_and_in_order(circle: tuple[list[int], int]) -> None:
    members, degree = circle
    for v in members:
        near = neighbours(members, degree, v)
        assert list(near) == sorted(set(near))


@law
@given(circle=circles())
def test_each_has_degree_neighbours_and_one_has_one_more_where_both_are_odd(circle: tuple[list[int], int]) -> None:
    members, degree = circle
    due = min(degree, len(members) - 1)
    odd = due == degree < len(members) - 1 and degree % 2 and len(members) % 2
    sizes = [len(near) for near in graph_of(members, degree).values()]
    assert sizes == [due + 1 if odd and place == 0 else due for place in range(len(members))]


@pytest.mark.parametrize("size", range(2, 9))
def test_without_any_members_below_the_degree_the_others_stay_connected(size: int) -> None:
    for degree in range(2, size + 1):
        graph = graph_of(range(size), degree)
        for gone in range(min(degree, size)):
            assert all(connected(graph, without) for without in combinations(range(size), gone)), (size, degree, gone)


@pytest.mark.parametrize("size", range(4, 9))
def test_no_graph_of_that_degree_stays_connected_longer(size: int) -> None:
    for degree in range(2, size - 1):
        graph = graph_of(range(size), degree)
        assert not connected(graph, graph[size - 1])


@law
@given(circle=circles(), data=st.data())
def test_larger_graphs_stay_connected_too(circle: tuple[list[int], int], data: st.DataObject) -> None:
    members, degree = circle
    gone = data.draw(st.permutations(members))[: min(degree, len(members)) - 1]
    assert connected(graph_of(members, degree), gone)


@pytest.mark.parametrize("size", range(2, 9))
def test_everyone_masks_with_everyone_from_degree_n_minus_1_on(size: int) -> None:
    for degree in (size - 1, size, size + 5):
        graph = graph_of(range(size), degree)
        assert all(near == set(range(size)) - {v} for v, near in graph.items())


@law
@given(circle=circles())
def test_only_the_order_of_the_members_counts_and_not_their_numbers(circle: tuple[list[int], int]) -> None:
    members, degree = circle
    places = graph_of(range(len(members)), degree)
    expected = {members[v]: frozenset(members[u] for u in near) for v, near in places.items()}
    assert graph_of(members, degree) == expected


def test_the_small_graphs_are_harary_s() -> None:
    assert graph_of(range(6), 2) == {v: frozenset({(v + 1) % 6, (v - 1) % 6}) for v in range(6)}
    assert graph_of(range(6), 3)[1] == {0, 2, 4}
    assert graph_of(range(7), 3) == {
        0: {1, 6, 4, 3}, 1: {0, 2, 5}, 2: {1, 3, 6}, 3: {2, 4, 0}, 4: {3, 5, 0}, 5: {4, 6, 1}, 6: {5, 0, 2},
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- masks


def seeds_of(members: Sequence[int], degree: int, secret: int) -> dict[int, dict[int, bytes]]:
    """For each member the seed of each pair that it belongs to."""
    rng = np.random.default_rng(secret)
    pairs = {pair: rng.bytes(32) for pair in combinations(members, 2)}
    return {v: {u: pairs[min(u, v), max(u, v)] for u in neighbours(members, degree, v)} for v in members}


def masked(ring: Ring, seeds: Mapping[int, Mapping[int, bytes]], shape: tuple[int, int], lane: int) -> list[Residues]:
    every = [ring.zeros(*shape) for _ in seeds]
    for rows, (me, mine) in zip(every, seeds.items(), strict=True):
        add_masks(ring, rows, me, mine, lane)
    return every


def total(ring: Ring, every: Iterable[Residues], shape: tuple[int, ...]) -> Residues:
    acc = ring.zeros(*shape)
    for rows in every:
        ring.add_into(acc, rows)
    return acc


@each_ring
@law
@given(circle=circles(8), secret=st.integers(0, 2**32), lane=st.integers(0, 2**32 - 1), data=st.data())
def test_what_all_members_upload_adds_up_as_if_there_were_no_masks(
    ring: Ring, circle: tuple[list[int], int], secret: int, lane: int, data: st.DataObject
) -> None:
    members, degree = circle
    shape = (data.draw(st.integers(0, 5)), data.draw(st.integers(1, 7)))
    plain = [data.draw(vectors(ring, *shape)) for _ in members]
    expected = total(ring, plain, shape)
    for rows, (me, mine) in zip(plain, seeds_of(members, degree, secret).items(), strict=True):
        add_masks(ring, rows, me, mine, lane)
    assert np.array_equal(total(ring, plain, shape), expected)


@law
@given(circle=circles(8), secret=st.integers(0, 2**32))
def test_the_masks_of_fewer_members_do_not_cancel(circle: tuple[list[int], int], secret: int) -> None:
    members, degree = circle
    every = masked(RING61, seeds_of(members, degree, secret), (2, 3), 0)
    for size in range(1, len(members)):
        assert np.all(total(RING61, every[:size], (2, 3)) != 0)


@pytest.mark.parametrize("ring", RINGS[:3], ids=str)
@law
@given(key=keys, lanes=st.sets(st.integers(0, 2**32 - 1), min_size=2, max_size=4), near=st.integers(0, 3))
def test_two_chunks_share_no_stretch_of_mask(ring: Ring, key: bytes, lanes: set[int], near: int) -> None:
    lanes |= {(min(lanes) + near) % 2**32}  # neighbouring lanes as well
    chunks = [masked(ring, {0: {1: key}}, (40, 3), lane)[0].reshape(ring.size, -1).T.tolist() for lane in lanes]
    windows = [{(*a, *b) for a, b in pairwise(chunk)} for chunk in chunks]
    assert sum(map(len, windows)) == len(set.union(*windows)) == len(lanes) * 119


@law
@given(key=keys, other=keys, L=contexts, context=contexts, q=st.integers(0, 2**32), later=st.integers(0, 2**32))
def test_the_seed_of_a_pair_depends_on_its_key_on_l_and_on_q(
    key: bytes, other: bytes, L: bytes, context: bytes, q: int, later: int
) -> None:
    seed = pair_seed(key, L, q)
    assert len(seed) == 32
    assert (pair_seed(other, L, q) == seed) == (other == key)
    assert (pair_seed(key, context, q) == seed) == (context == L)
    assert (pair_seed(key, L, later) == seed) == (later == q)


@each_ring
@law
@given(key=keys, low=st.integers(0, 500), high=st.integers(501, 1000), lane=st.integers(0, 2**32 - 1))
def test_the_lower_number_adds_what_the_higher_subtracts(
    ring: Ring, key: bytes, low: int, high: int, lane: int
) -> None:
    a, b = masked(ring, {low: {high: key}, high: {low: key}}, (3, 4), lane)
    assert np.array_equal(b, ring.subtract(ring.zeros(3, 4), a))


@each_ring
@law
@given(data=st.data())
def test_who_has_no_neighbours_has_no_mask(ring: Ring, data: st.DataObject) -> None:
    rows = data.draw(vectors(ring, 3, 2))
    before = rows.copy()
    add_masks(ring, rows, 4, {}, 0)
    assert np.array_equal(rows, before)


# -------------------------------------------------------------------------------------------------------------- shares


@pytest.mark.parametrize(("threshold", "clients"), [(1, 2), (2, 3), (3, 5), (6, 7)])
def test_shares_are_below_the_order_and_any_t_of_them_give_the_secret(threshold: int, clients: int) -> None:
    """Beyond the order a share would show how large the secret is."""
    everyone, stream = range(clients), KeyStream(bytes([clients] * 32))
    for secret in (0, 1, ORDER - 1, *masks.scalars(stream, 2)):
        dealt = masks.shares(secret, threshold, everyone, stream)
        assert set(dealt) == set(everyone)
        assert all(0 <= share < ORDER for share in dealt.values())
        for some in combinations(everyone, threshold):
            assert masks.recovered({v: dealt[v] for v in some}, masks.weights_at_zero(some)) == secret
