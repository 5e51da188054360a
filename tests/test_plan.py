"""The plan predicts the bytes that a federation sends, to the last one."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import secea
from secea import Federation, Params
from secea.arithmetic.field import PRIMES30, PRIMES32
from secea.session import FORMS, QUERIES, Scheme


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize(("clients", "collusion", "entities", "own"), [(3, 1, 12, 5), (5, 2, 40, 9), (6, 1, 30, 10)])
def test_the_plan_is_what_the_traffic_records_show(
    form: str, queries: str, clients: int, collusion: int, entities: int, own: int
) -> None:
    rng = np.random.Generator(np.random.PCG64([clients, entities]))
    sets = [rng.choice(entities, own, replace=False).tolist() for _ in range(clients)]
    params = Params(clients=clients, collusion=collusion, dim=7, key_bits=512, insecure_small_keys=True)
    fed = Federation(params, form, queries)
    fed.setup(sets)
    fed.round([{name: np.zeros(7) for name in names} for names in sets])
    assert fed.server.attempt == 0, "a retry happened: the plan is for a set-up without any"
    plan = secea.plan(fed.params, entities=len(set().union(*sets)), form=form, queries=queries)
    assert plan.setup_bytes == sum(hop.size for hop in fed.traffic if hop.round == 0)
    assert plan.round_bytes == sum(hop.size for hop in fed.traffic if hop.round == 1)
    kinds: Counter[str] = Counter()
    for hop in fed.traffic:
        kinds[hop.kind] += hop.size
    assert plan.by_kind == dict(kinds)
    for number, phase in enumerate(("setup", "round")):
        up = sum(hop.size for hop in fed.traffic if hop.round == number and hop.receiver == "server")
        assert plan.sent_by_clients[phase] == up


def test_messages_of_many_chunks_are_planned_exactly_too() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    sets = [rng.choice(3000, 1500, replace=False).tolist() for _ in range(3)]
    fed = Federation(Params(clients=3, dim=180), "reciprocal")
    fed.setup(sets)
    fed.round([{name: np.zeros(180) for name in names} for names in sets])
    layout = fed.session.layout(secea.wire.messages.Kind.SHARE, fed.server.M, 3)
    assert layout.chunks > 3
    plan = secea.plan(fed.params, entities=fed.server.M, form="reciprocal")
    assert plan.setup_bytes + plan.round_bytes == sum(hop.size for hop in fed.traffic)


def test_queries_cost_three_unions_whatever_a_client_owns() -> None:
    params = Params(clients=5, dim=16, max_union=1000, max_entities=1000)
    fewer = Params(clients=5, dim=16, max_union=1000, max_entities=400)
    few = secea.plan(fewer, entities=1000, form="reciprocal")
    many = secea.plan(params, entities=1000, form="reciprocal")
    assert 0.6 < few.by_kind["query"] / many.by_kind["query"] < 1
    full = secea.plan(params, entities=1000, form="reciprocal", queries="full")
    assert full.by_kind["query"] > 100 * many.by_kind["query"]


def test_the_fewest_primes_are_taken_that_hold_the_largest_result() -> None:
    for clients in (3, 5, 10, 20, 50):
        for precision in (10, 24, 40):
            params = Params(clients=clients, dim=16, precision=precision, max_union=1000, max_entities=500)
            scheme = Scheme(params)
            form = scheme.form
            largest = 2 * (params.C * round(params.max_abs * 2.0**form.f) + 2**form.noise_bits)  # type: ignore[attr-defined]
            assert scheme.ring.modulus > largest
            light = math.prod(PRIMES30[: scheme.ring.size]) > largest * 1.02  # room for the fill below the grid
            assert scheme.ring.primes == (PRIMES30 if light else PRIMES32)[: scheme.ring.size]
            assert np.prod([float(p) for p in PRIMES32[: scheme.ring.size - 1]]) < 1.1 * largest


def test_a_plan_without_bounds_assumes_that_every_client_may_own_everything() -> None:
    plan = secea.plan(Params(clients=4, dim=8), entities=100)
    bounded = secea.plan(Params(clients=4, dim=8, max_entities=100, max_union=100), entities=100)
    assert plan == bounded


def test_sigma_counts_every_masked_element_that_the_colluders_see() -> None:
    params = Params(clients=10, collusion=2, dim=31, rounds=1 << 10, max_entities=1 << 8, max_union=1 << 9)
    blocks = params.K * -(-31 // params.K)
    reciprocal = secea.plan(params, entities=500, form="reciprocal", queries="full")
    assert reciprocal.sigma_prime == 40 + int(np.ceil(np.log2(2 * 2**8 * blocks * 2**10)))
    paillier = secea.plan(params, entities=500, form="paillier", queries="full")
    length = -(-32 // params.K)  # a client decrypts N answers to each query, not K blocks
    assert paillier.sigma_prime == 40 + int(np.ceil(np.log2(2 * 2**8 * 10 * length * 2**10)))
