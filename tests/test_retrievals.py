"""The paper's form gives the means of its oracle to the bit, whoever is absent and whoever vanishes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import secea
from secea import Federation, Params, Table
from secea.forms import QueriesName
from secea.forms.paillier import Paillier
from secea.forms.paillier.form import QUERIES
from secea.oracles import paillier as oracle

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
FLOATS = st.one_of(st.floats(-64, 64, width=32), st.sampled_from([64.0, -64.0, 0.0, 2.0**-18, 63.999999]))
NAMES: list[str | int] = ["a", "b", 1, "2", "é"]

Rows = dict[str | int, list[float]]


def numbers(means: Sequence[Mapping[Any, NDArray[Any]] | None]) -> list[Rows | None]:
    return [None if mean is None else {name: row.tolist() for name, row in mean.items()} for mean in means]


@st.composite
def federations(draw: st.DrawFn) -> tuple[Params, list[Rows]]:
    """3 to 6 clients, a legal T and D; sets that are shared, disjoint, empty, or have one owner."""
    clients = draw(st.integers(3, 6))
    collusion = draw(st.integers(1, (clients + 1) // 2 - 1))
    most, dim = clients - 2 * collusion - 1, draw(st.integers(1, 4))
    dropouts = most - draw(st.integers(0, most))
    owned = st.lists(st.sampled_from(NAMES), unique=True, max_size=3)
    row = st.lists(FLOATS, min_size=dim, max_size=dim)
    tables = [{name: draw(row) for name in draw(owned)} for _ in range(clients)]
    tables[0] = tables[0] or {"a": [1.0] * dim}
    return Params(clients=clients, collusion=collusion, dropouts=dropouts, dim=dim, **SMALL), tables


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(federations(), st.sampled_from(QUERIES), st.data())
def test_means_equal_the_oracle_to_the_bit_whoever_is_absent_or_vanishes(
    federation: tuple[Params, list[Rows]], queries: QueriesName, data: st.DataObject
) -> None:
    params, tables = federation
    everyone, fewest = range(params.clients), Paillier().fewest(params)
    away = data.draw(st.permutations(everyone)) if params.dropouts else []
    absent = away[: data.draw(st.integers(0, min(len(away), params.clients - fewest)))]
    left = away[len(absent) :]
    before = left[: data.draw(st.integers(0, min(len(left), params.clients - len(absent) - fewest)))]
    left = left[len(before) :]
    after = left[: data.draw(st.integers(0, max(0, len(left) - params.quorum)))]

    fed = Federation(params, "paillier", queries)
    fed.setup([table.keys() for table in tables])
    given_tables = [None if n in absent else table for n, table in enumerate(tables)]
    means = fed.round(given_tables, vanish=dict.fromkeys(before, "share") | dict.fromkeys(after, "answer"))

    counted = [None if n in (*absent, *before) else table for n, table in enumerate(tables)]
    answering = [n for n in everyone if n not in (*absent, *before, *after)]
    expected = oracle.aggregate(counted, params, answering=answering)
    assert numbers(means) == [expected[n] if n in answering else None for n in everyone]


@pytest.mark.parametrize(("clients", "collusion"), [(4, 1), (5, 2), (7, 1), (7, 3), (8, 2), (9, 4), (12, 5)])
def test_every_shape_of_federation_equals_the_oracle(clients: int, collusion: int) -> None:
    rng = np.random.Generator(np.random.PCG64([clients, collusion]))
    tables: list[Rows] = [{} for _ in range(clients)]
    tables[0] = {"one owner": [64.0, -64.0], "some": rng.uniform(-64, 64, 2).tolist()}
    tables[-1] = {"some": rng.uniform(-64, 64, 2).tolist()}
    expected = oracle.aggregate(tables, Params(clients=clients, collusion=collusion, dim=2, **SMALL))
    assert numbers(secea.aggregate(tables, collusion=collusion, form="paillier", **SMALL)) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_keep_the_type_and_the_dtype_of_what_was_given(dtype: type) -> None:
    matrix: NDArray[Any] = np.random.Generator(np.random.PCG64(5)).normal(size=(3, 4)).astype(dtype)
    means = secea.aggregate(
        [Table(["a", "b", "c"], matrix), {"b": matrix[0], "c": matrix[1]}, {}], form="paillier", **SMALL
    )
    assert isinstance(means[0], Table)
    assert means[0].names == ("a", "b", "c")
    assert means[0].matrix.dtype == dtype
    assert isinstance(means[1], dict)
    assert {row.dtype for row in means[1].values()} == {np.dtype(dtype)}
    assert means[2] == {}
    assert np.abs(means[0].matrix[1] - (matrix[1] + matrix[0]) / 2).max() < 1e-5


@pytest.mark.slow
def test_keys_of_full_length_give_the_same_means() -> None:
    h = np.random.Generator(np.random.PCG64(7)).normal(size=(6, 64))
    tables = [
        {"aspirin": h[0], "ibuprofen": h[1]},
        {"aspirin": h[2], "codeine": h[3]},
        {"codeine": h[4], "warfarin": h[5]},
    ]
    means = secea.aggregate(tables, form="paillier", queries="full", key_bits=2048)
    assert [list(mean) for mean in means] == [list(table) for table in tables]
    assert np.abs(means[0]["aspirin"] - (h[0] + h[2]) / 2).max() < 4e-6
    assert np.abs(means[0]["ibuprofen"] - h[1]).max() < 4e-6
    assert np.abs(means[1]["codeine"] - (h[3] + h[4]) / 2).max() < 4e-6
    assert np.array_equal(means[1]["codeine"], means[2]["codeine"])


TABLES: list[Rows] = [{"a": [1.5, 2.5]}, {"a": [0.5, -2.5], "b": [3.0, 1.0]}, {"b": [1.0, 2.0]}]


def test_preparation_changes_no_result_and_no_byte_count() -> None:
    results, sizes = [], []
    for prepared in (False, True):
        fed = Federation(Params(clients=3, dim=2, **SMALL), "paillier")
        fed.setup([table.keys() for table in TABLES])
        if prepared:
            fed.prepare()
            assert fed.timing.keys() == {0, 1, 2, "server"}
            assert not any(costs["offline"].sent for costs in fed.timing.values())
        results.append(numbers(fed.round(TABLES)))
        sizes.append(sorted((hop.kind, hop.size) for hop in fed.traffic))
    assert results[0] == results[1]
    assert sizes[0] == sizes[1]


def test_what_was_prepared_is_never_saved_so_that_no_later_life_uses_it_again() -> None:
    drawn: list[bytes] = []

    def entropy(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    fed = Federation(Params(clients=3, dim=2, **SMALL), "paillier", entropy=entropy)
    fed.setup([table.keys() for table in TABLES])
    drawn.clear()
    fed.prepare()
    assert [len(seed) for seed in drawn] == [32] * 4  # each client's, and the server's
    saved = b"".join(party.save() for party in (*fed.clients.values(), fed.server))
    assert not any(seed in saved for seed in drawn)
    fed.restart()
    assert numbers(fed.round(TABLES)) == oracle.aggregate(TABLES, fed.params)
