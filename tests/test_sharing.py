"""Laws of sharing: rows become shares that add up and decode, T of them from seeds; any T of them show nothing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Residues, Ring, insecure_ring
from secea.arithmetic.lagrange import Code
from secea.forms.paillier.sharing import (
    Dealer,
    block_length,
    blocks,
    expand_rows,
    ones_at,
    seeded_clients,
    share_from_seed,
    spread,
)
from secea.params import Params
from secea.wire.messages import CHUNK_BYTES, Layout
from strategies import everything, federations, smallest_ring, some, vectors

law = settings(deadline=None)
rings = st.sampled_from([RING61, insecure_ring(65537)])
keys = st.binary(min_size=32, max_size=32)


# --------------------------------------------------------------------------------------------------- who gets a seed


turns = st.integers(0, 2**33)


@law
@given(federations(), st.data(), turns)
def test_t_others_get_a_seed(params: Params, data: st.DataObject, turn: int) -> None:
    sender = data.draw(st.integers(0, params.N - 1))
    seeded = seeded_clients(params, sender, turn)
    assert len(set(seeded)) == len(seeded) == params.T
    assert set(seeded) <= set(range(params.N)) - {sender}


@law
@given(federations(), st.data(), turns)
def test_in_turn_all_others_get_a_seed_equally_often(params: Params, data: st.DataObject, turn: int) -> None:
    sender = data.draw(st.integers(0, params.N - 1))
    served = Counter(v for i in range(params.N - 1) for v in seeded_clients(params, sender, turn + i))
    assert served == {v: params.T for v in range(params.N) if v != sender}


@law
@given(federations(), turns)
def test_in_every_turn_all_clients_get_equally_many_seeds(params: Params, turn: int) -> None:
    served = Counter(v for sender in range(params.N) for v in seeded_clients(params, sender, turn))
    assert served == dict.fromkeys(range(params.N), params.T)


# --------------------------------------------------------------------------------------------------- rows and blocks


def drawn_rows(params: Params, data: st.DataObject, most: int = 6) -> NDArray[np.int64]:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return rng.integers(-(2**30), 2**30, (data.draw(st.integers(0, most)), params.dim))


@law
@given(federations(), st.data())
def test_a_row_is_its_embedding_then_one_then_the_least_padding_with_zeros(params: Params, data: st.DataObject) -> None:
    values = drawn_rows(params, data)
    rows, L = expand_rows(values, params), block_length(params, params.dim + 1)
    assert params.K * (L - 1) < params.dim + 1 <= params.K * L
    padding = [0] * (params.K * L - params.dim - 1)
    assert rows.tolist() == [[*row, 1, *padding] for row in values.tolist()]


@law
@given(federations(), rings, st.data())
def test_the_blocks_of_a_row_one_after_the_other_are_the_row(params: Params, ring: Ring, data: st.DataObject) -> None:
    L = data.draw(st.integers(1, 4))
    rows = data.draw(vectors(ring, 3, params.K * L))
    cut = blocks(rows, params.K)
    assert cut.shape == (ring.size, params.K, 3, L)
    assert np.array_equal(np.concatenate([cut[:, k] for k in range(params.K)], axis=2), rows)


@law
@given(st.integers(0, 40), st.integers(1, 9), rings, st.data())
def test_own_rows_stand_at_their_places_in_the_union_and_all_others_are_zero(
    union: int, per_chunk: int, ring: Ring, data: st.DataObject
) -> None:
    at = np.array(sorted(data.draw(some(union, data.draw(st.integers(0, union))))), np.int64)
    own = data.draw(vectors(ring, at.size, 3))
    layout = Layout(union, CHUNK_BYTES // per_chunk)
    whole = ring.zeros(union, 3)
    whole[:, at] = own
    chunks = [spread(own, at, layout.span(chunk)) for chunk in range(layout.chunks)]
    assert np.array_equal(np.concatenate(chunks, axis=1), whole)


@law
@given(st.integers(0, 40), st.integers(1, 9), st.data())
def test_ones_stand_at_their_rows_and_all_others_are_zero(union: int, per_chunk: int, data: st.DataObject) -> None:
    at = sorted(data.draw(some(union, data.draw(st.integers(0, union)))))
    layout = Layout(union, CHUNK_BYTES // per_chunk)
    chunks = [ones_at(RING61, np.array(at, np.int64), layout.span(chunk)) for chunk in range(layout.chunks)]
    assert np.concatenate(chunks, axis=2).tolist() == [[[[int(m in at)] for m in range(union)]]]


# -------------------------------------------------------------------------------------------------------------- shares


def everybodys_shares(code: Code, seeded: tuple[int, ...], rows: Residues, layout: Layout, key: bytes) -> Residues:
    """One sender's shares as all clients get them, chunk by chunk, T of them from seeds: [P, N, rows, L]."""
    shares = code.ring.empty(code.N, rows.shape[1], L := rows.shape[2] // code.K)
    seeds = {v: bytes([v]) + key[1:] for v in seeded}
    dealer = Dealer(code, range(code.N), seeds)
    assert sorted(dealer.receivers + dealer.seeded) == list(range(code.N))
    for chunk in range(layout.chunks):
        span = layout.span(chunk)
        shares[:, list(dealer.receivers), span] = dealer.deal(chunk, blocks(rows[:, span], code.K))
    for v, seed in seeds.items():
        shares[:, v] = np.concatenate(list(share_from_seed(seed, code.ring, layout, L)), axis=1)
    return shares


@law
@given(federations(), rings, st.data(), turns, keys, st.integers(1, 5))
def test_dealt_and_seeded_shares_together_decode_from_any_k_plus_t(
    params: Params, ring: Ring, data: st.DataObject, turn: int, key: bytes, per_chunk: int
) -> None:
    code = Code(params, ring)
    rows = data.draw(vectors(ring, data.draw(st.integers(0, 12)), params.K * data.draw(st.integers(1, 3))))
    layout = Layout(rows.shape[1], CHUNK_BYTES // per_chunk)
    sender = data.draw(st.integers(0, params.N - 1))
    shares = everybodys_shares(code, seeded_clients(params, sender, turn), rows, layout, key)
    clients = data.draw(some(params.N, params.K + params.T))
    decoded = code.decode(clients, np.ascontiguousarray(shares[:, clients]))
    assert np.array_equal(decoded, blocks(rows, params.K))


@law
@given(federations(most=8), st.data(), turns, keys)
def test_the_contributors_shares_add_up_to_every_entitys_sum_and_count(
    params: Params, data: st.DataObject, turn: int, key: bytes
) -> None:
    code, union = Code(params, RING61), 7
    contributors = data.draw(st.integers(params.fewest_contributors, params.N))
    layout = Layout(union, CHUNK_BYTES // 3)
    y = RING61.zeros(params.N, union, block_length(params, params.dim + 1))
    sums, counts = np.zeros((union, params.dim), np.int64), np.zeros(union, np.int64)
    for sender in data.draw(some(params.N, contributors)):
        values = drawn_rows(params, data)
        at = np.array(sorted(data.draw(some(union, len(values)))), np.int64)
        own = RING61.reduce(expand_rows(values, params))
        rows = np.concatenate([spread(own, at, layout.span(c)) for c in range(layout.chunks)], axis=1)
        seeded = seeded_clients(params, sender, turn)
        RING61.add_into(y, everybodys_shares(code, seeded, rows, layout, bytes([0, sender]) + key[2:]))
        sums[at] += values
        counts[at] += 1
    clients = data.draw(some(params.N, params.K + params.T))
    decoded = code.decode(clients, np.ascontiguousarray(y[:, clients]))
    row = decoded[0].transpose(1, 0, 2).reshape(union, -1)
    assert np.array_equal(row[:, : params.dim], RING61.reduce(sums)[0])
    assert np.array_equal(row[:, params.dim], counts)
    assert not row[:, params.dim + 1 :].any()


# ----------------------------------------------------------------------------------- over all randomness, exactly


def dealt(params: Params, seeded: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> NDArray[np.int64]:
    """What all clients get for all data and all that seeds may stand for: [data, seeds, clients]."""
    ring = smallest_ring(params)
    data, drawn = everything(ring, params.K), everything(ring, params.T)

    class All:
        """Stands for a key stream: every value that the element of one seed can have, together with all the others."""

        def __init__(self, seed: bytes) -> None:
            self.seed = seed

        def lane(self, number: int) -> All:
            return self

        def elements(self, ring: Ring, *shape: int) -> Residues:
            return drawn[:, seeded.index(self.seed[0])].reshape(ring.size, *shape)

    monkeypatch.setattr("secea.forms.paillier.sharing.KeyStream", All)
    dealer = Dealer(Code(params, ring), range(params.N), {v: bytes([v]) for v in seeded})
    shares = np.empty((data.shape[2], drawn.shape[2], params.N), np.int64)
    shares[:, :, seeded] = drawn[0].T
    for index, values in enumerate(data[0].T):
        chunk = np.repeat(values[None, :, None], drawn.shape[2], axis=2)
        shares[index][:, list(dealer.receivers)] = dealer.deal(0, chunk)[0].T
    return shares


def shows_data(shares: NDArray[np.int64], clients: tuple[int, ...]) -> bool:
    views = np.sort(shares[:, :, list(clients)] @ (100 ** np.arange(len(clients))), axis=1)
    return bool((views != views[0]).any())


TINY = [Params(3, 1, 1), Params(5, 1, 1), Params(5, 1, 2), Params(7, 1, 2)]


@pytest.mark.parametrize("params", TINY, ids=lambda q: f"N={q.N},T={q.T},K={q.K}")
def test_any_t_clients_see_nothing_of_a_dealers_data_and_one_more_does(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sender in range(params.N):
        shares = dealt(params, seeded_clients(params, sender, sender), monkeypatch)
        assert not any(shows_data(shares, some) for some in combinations(range(params.N), params.T))
        assert all(shows_data(shares, some) for some in combinations(range(params.N), params.T + 1))
