"""Both forms give the mean: the engine against the paper's oracle, and against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import secea
from secea import Federation, Params, Table, oracle
from secea.engines.port import Task
from secea.session import QUERIES
from secea.table import as_table

SMALL: dict[str, Any] = {"key_bits": 512, "insecure_small_keys": True}
SLOW = settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.too_slow], database=None)
FLOATS = st.one_of(st.floats(-64, 64, width=32), st.sampled_from([64.0, -64.0, 0.0, 2.0**-18, 63.999999]))


@st.composite
def federations(draw: st.DrawFn, most: int = 12) -> tuple[list[dict[str | int, list[float]]], int]:
    """Tables of 3 to `most` clients, odd and even, and a legal T: shared, disjoint, empty sets, one-owner entities."""
    clients = draw(st.integers(3, most))
    collusion = draw(st.integers(1, (clients + 1) // 2 - 1))
    dim = draw(st.integers(1, 4))
    names: list[str | int] = ["a", "b", 1, "1", "é"]
    owned = st.lists(st.sampled_from(names), unique=True, max_size=2 if clients > 7 else 4)
    row = st.lists(FLOATS, min_size=dim, max_size=dim)
    tables = [{name: draw(row) for name in draw(owned)} for _ in range(clients)]
    if not any(tables):
        tables[0] = {"a": [1.0] * dim}
    return tables, collusion


def true_means(tables: Sequence[Mapping[Any, Any] | None]) -> dict[Any, list[float]]:
    return oracle.mean(tables)


def params_of(tables: Sequence[Mapping[Any, Sequence[float]]], collusion: int) -> Params:
    dim = next(len(row) for table in tables for row in table.values())
    return Params(clients=len(tables), collusion=collusion, dim=dim, **SMALL)


@SLOW
@given(federations(most=6), st.sampled_from(QUERIES))
def test_paillier_equals_the_oracle_to_the_bit(
    federation: tuple[list[dict[str | int, list[float]]], int], queries: str
) -> None:
    tables, collusion = federation
    expected = oracle.aggregate(tables, params_of(tables, collusion))
    means = secea.aggregate(tables, collusion=collusion, form="paillier", queries=queries, **SMALL)
    assert [{name: row.tolist() for name, row in mean.items()} for mean in means] == expected


EVERY_SHAPE = [*((n, t) for n in range(3, 10) for t in range(1, (n + 1) // 2)), (12, 5)]


@pytest.mark.parametrize(("clients", "collusion"), EVERY_SHAPE)
def test_every_number_of_clients_and_every_legal_collusion_equal_the_oracle(clients: int, collusion: int) -> None:
    rng = np.random.Generator(np.random.PCG64([clients, collusion]))
    shared: list[dict[str | int, list[float]]] = [{"all": rng.uniform(-64, 64, 3).tolist()} for _ in range(clients)]
    shared[0] = {"one owner": [64.0, -64.0, 0.0]}
    shared[1] = {}
    params = Params(clients=clients, collusion=collusion, dim=3, key_bits=256, insecure_small_keys=True)
    expected = oracle.aggregate(shared, params)
    exact = secea.aggregate(shared, collusion=collusion, form="paillier", queries="full", **SMALL)
    assert [{name: row.tolist() for name, row in mean.items()} for mean in exact] == expected
    close = secea.aggregate(shared, collusion=collusion, form="reciprocal")
    for mean, wanted in zip(close, expected, strict=True):
        assert wanted is not None
        assert all(np.abs(row - wanted[name]).max() < params.resolution for name, row in mean.items())


@settings(SLOW, max_examples=10)
@given(federations(), st.sampled_from(QUERIES))
def test_reciprocals_give_the_mean_within_the_resolution(
    federation: tuple[list[dict[str | int, list[float]]], int], queries: str
) -> None:
    tables, collusion = federation
    params, expected = params_of(tables, collusion), true_means(tables)
    means = secea.aggregate(tables, collusion=collusion, form="reciprocal", queries=queries)
    for table, mean in zip(tables, means, strict=True):
        assert list(mean) == list(table)
        for name, row in mean.items():
            assert np.abs(row - expected[name]).max() < params.resolution


@pytest.mark.parametrize("form", ["paillier", "reciprocal"])
@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize(("clients", "collusion"), [(3, 1), (4, 1), (5, 2), (7, 2), (8, 3), (11, 5)])
def test_every_shape_of_federation_gives_its_own_clients_the_means_of_their_own_entities(
    form: str, queries: str, clients: int, collusion: int
) -> None:
    rng = np.random.Generator(np.random.PCG64([clients, collusion]))
    dim = 5
    tables = [{int(e): rng.uniform(-64, 64, dim) for e in rng.choice(12, 4, replace=False)} for _ in range(clients)]
    tables[1] = {}
    fed = Federation(Params(clients=clients, collusion=collusion, dim=dim, **SMALL), form, queries)
    fed.setup([table.keys() for table in tables])
    for _ in range(2):
        fed.prepare()
        means = fed.round(tables)
        expected = true_means([{name: row.tolist() for name, row in table.items()} for table in tables])
        for table, mean in zip(tables, means, strict=True):
            assert mean.keys() == table.keys()
            for name, row in mean.items():
                assert np.abs(row - expected[name]).max() < fed.params.resolution
        tables = [{name: rng.uniform(-64, 64, dim) for name in table} for table in tables]


@pytest.mark.parametrize("form", ["paillier", "reciprocal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_keep_the_type_and_the_dtype_of_what_was_given(form: str, dtype: type) -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    matrix: NDArray[Any] = rng.normal(size=(3, 4)).astype(dtype)
    as_table = Table(["a", "b", "c"], matrix)
    as_mapping = {"b": matrix[0], "c": matrix[1]}
    means = secea.aggregate([as_table, as_mapping, {}], form=form, **SMALL)
    assert isinstance(means[0], Table)
    assert means[0].names == ("a", "b", "c")
    assert means[0].matrix.dtype == dtype
    assert isinstance(means[1], dict)
    assert {row.dtype for row in means[1].values()} == {np.dtype(dtype)}
    assert means[2] == {}
    assert np.abs(means[0].matrix[1] - (matrix[1] + matrix[0]) / 2).max() < 1e-5


def test_the_example_of_the_documentation() -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    h = rng.normal(size=(6, 64))
    tables = [
        {"aspirin": h[0], "ibuprofen": h[1]},
        {"aspirin": h[2], "codeine": h[3]},
        {"codeine": h[4], "warfarin": h[5]},
    ]
    for form, queries in (("paillier", "full"), ("reciprocal", "buckets")):
        means = secea.aggregate(tables, collusion=1, form=form, queries=queries, key_bits=2048)
        assert [sorted(mean) for mean in means] == [sorted(table) for table in tables]
        assert np.abs(means[0]["aspirin"] - (h[0] + h[2]) / 2).max() < 4e-6
        assert np.abs(means[0]["ibuprofen"] - h[1]).max() < 4e-6
        assert np.abs(means[1]["codeine"] - (h[3] + h[4]) / 2).max() < 4e-6
        assert np.array_equal(means[1]["codeine"], means[2]["codeine"]) == (form == "paillier")
        assert np.abs(means[2]["warfarin"] - h[5]).max() < 4e-6


def test_preparation_changes_no_result_and_no_byte_count() -> None:
    tables = [{"a": [1.5, 2.5]}, {"a": [0.5, -2.5], "b": [3.0, 1.0]}, {"b": [1.0, 2.0]}]
    results, sizes = [], []
    for prepared in (False, True):
        fed = Federation(Params(clients=3, dim=2, **SMALL), form="paillier")
        fed.setup([table.keys() for table in tables])
        if prepared:
            fed.prepare()
            assert fed.timing.keys() == {0, 1, 2, "server"}
            assert all(costs["offline"].stored > 0 and not costs["offline"].sent for costs in fed.timing.values())
            fed.restart()  # what was prepared is made again, from the saved seed
            fed.prepare()
        results.append([{name: row.tolist() for name, row in mean.items()} for mean in fed.round(tables)])
        sizes.append(sorted((hop.kind, hop.size) for hop in fed.traffic))
    assert results[0] == results[1]
    assert sizes[0] == sizes[1]


def test_a_prepared_client_sends_the_same_bytes_after_a_crash() -> None:
    tables = [{"a": [1.5]}, {"a": [0.5], "b": [3.0]}, {"b": [1.0]}]
    fed = Federation(Params(clients=3, dim=1, **SMALL), form="paillier")
    fed.setup([table.keys() for table in tables])
    fed.prepare()
    fed._driver.port.tables = {n: as_table(table) for n, table in enumerate(tables)}
    fed.server.begin_round()
    fed._driver._stage(Task.ROUND)
    saved = fed.clients[0].save()
    before = [bytes(message) for message in fed.clients[0].outbox()]
    restored = secea.Client.restore(fed.session, fed._identities[0], saved)
    assert [bytes(message) for message in restored.outbox()] == before


def test_prepared_randomness_is_used_once_also_by_a_client_that_is_restored_from_an_old_snapshot() -> None:
    tables = [{"a": [1.5]}, {"a": [0.5], "b": [3.0]}, {"b": [1.0]}]
    fed = Federation(Params(clients=3, dim=1, **SMALL), form="paillier")
    fed.setup([table.keys() for table in tables])
    fed.prepare()
    prepared, old = fed.clients[0].next_seed, fed.clients[0].save()
    assert prepared not in old
    fed.round(tables)
    assert fed.clients[0].next_seed == b""
    fed.round(tables)
    assert secea.Client.restore(fed.session, fed._identities[0], old).next_seed == b""
