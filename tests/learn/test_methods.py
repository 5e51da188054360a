"""What happens to tables: nothing, plain means, secure means."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphs import a_run, write_triples
from secea.arithmetic.grid import grid_of, grid_of_rows
from secea.errors import SERVER, ParamsError, TableError
from secea.forms import DEFAULT, form_of
from secea.learn import methods
from secea.learn.learner import first_rows, touched
from secea.learn.methods import Mean, Secure
from secea.table import Table

Matrix = NDArray[Any]


def some(seed: int, clients: int, entities: int, dim: int) -> tuple[list[Matrix], list[Matrix]]:
    rng = np.random.default_rng(seed)
    ids = [np.flatnonzero(rng.random(entities) < 0.6) for _ in range(clients)]
    return ids, [rng.normal(size=(len(own), dim)).astype(np.float64) for own in ids]


def secure(names: list[Any], dim: int, collusion: int | None = None, rounds: int = 3, **options: Any) -> Secure:
    weights, progress = options.pop("weights", None), options.pop("progress", None)
    if weights is not None:
        options["max_weight"] = max(int(own.max(initial=1)) for own in weights)
    params = methods.params_of(names, dim, collusion=collusion, rounds=rounds, max_abs=methods.MAX_ABS, **options)
    return Secure(names, params, weights=weights, progress=progress)


def mean_by_hand(ids: list[Matrix], tables: list[Matrix], entity: int) -> Matrix:
    rows = [t[list(own).index(entity)].astype(np.float64) for own, t in zip(ids, tables, strict=True) if entity in own]
    mean: Matrix = np.mean(rows, axis=0)
    return mean


@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 6), entities=st.integers(1, 9))
def test_plain_and_common_are_numpys_means_over_owners(seed: int, clients: int, entities: int) -> None:
    ids, tables = some(seed, clients, entities, 3)
    plain, common = (Mean(ids, common=only).aggregate(tables) for only in (False, True))
    for n, own in enumerate(ids):
        for row, entity in enumerate(own):
            truth = mean_by_hand(ids, tables, entity)
            np.testing.assert_allclose(plain[n][row], truth, rtol=1e-6, atol=1e-7)
            everybody = all(entity in other for other in ids)
            np.testing.assert_allclose(common[n][row], truth if everybody else tables[n][row], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clients", [2, 5])
def test_secure_means_are_the_plain_ones_to_the_resolution_in_every_round(seed: int, clients: int) -> None:
    ids, tables = some(seed, clients, 12, 9)
    if clients > 2:
        ids[2], tables[2] = ids[2][:0], tables[2][:0]  # someone has nothing
    protected_, plain = secure([own.tolist() for own in ids], 9), Mean(ids, common=False)
    assert protected_.params.collusion == clients - 1, "all others may conspire"
    for trained in (True, False, False):
        protected, open_ = protected_.aggregate(tables), plain.aggregate(tables)
        for a, b in zip(protected, open_, strict=True):
            assert a.dtype == np.float64
            np.testing.assert_allclose(a, b, rtol=0, atol=protected_.params.resolution)
        tables = [table + np.float64(0.1) for table in open_] if trained else protected


def test_rows_that_nobody_trained_on_have_next_to_no_fill() -> None:
    names = [[*range(40)] for _ in range(5)]
    params = methods.params_of(names, 16, collusion=None, rounds=3, max_abs=methods.MAX_ABS)
    method, rows = secure(names, 16), first_rows(names[0], 16, 0.1, 0, "entity")
    for _ in range(3):
        bits, steps = grid_of_rows(rows, *grid_of(rows, rows.dtype))
        fill = np.maximum(2.0 ** (np.frexp(np.abs(rows))[1] - 1 - bits[:, None]), steps[:, None])
        assert fill.max() < params.resolution / 64
        rows = method.aggregate([rows] * 5)[0]


@pytest.mark.parametrize("clients", [2, 3, 6, 10, 12, 16, 17, 30])
def test_means_are_as_fine_as_an_element_of_8_bytes_allows_up_to_16_clients(clients: int) -> None:
    names = [[*range(n, n + 300)] for n in range(clients)]
    params = methods.params_of(names, 64, collusion=None, rounds=100, max_abs=methods.MAX_ABS)
    form = form_of(DEFAULT)
    chosen, finer = (
        form.facts(form.checked(replace(params, precision=params.precision + more)))["primes"] for more in (0, 1)
    )
    assert (chosen == 1) == (clients <= 16)
    assert methods.LEAST_PRECISION <= params.precision <= methods.MOST_PRECISION
    assert finer > chosen or params.precision == methods.MOST_PRECISION


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (17.0, r"client 2: embeddings grew to 17, beyond .* 16; begin a new run with --max-abs 128, or with a lower"),
        (np.nan, r"client 2: training diverged, .* try a lower --lr"),
        (-np.inf, r"client 2: training diverged"),
    ],
)
def test_embeddings_out_of_range_are_an_error_that_says_what_to_do(value: float, error: str) -> None:
    ids, tables = some(0, 3, 6, 2)
    method = secure([own.tolist() for own in ids], 2)
    before = [table.copy() for table in tables]
    tables[2][0, 1] = value
    with pytest.raises(TableError, match=error):
        method.aggregate(tables)
    for a, b in zip(method.aggregate(before), Mean(ids, common=False).aggregate(before), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=method.params.resolution)


def test_the_record_of_a_round_adds_up() -> None:
    ids, tables = some(1, 5, 40, 16)
    method = secure([own.tolist() for own in ids], 16, collusion=2)
    hops = method._federation.traffic
    for begun in (0, len(hops)):  # the set-up, then a round
        if begun:
            method.aggregate(tables)
        record, mine = method.record, hops[begun:]
        assert {kind for kind, size in record["bytes"].items() if size} == {hop.kind for hop in mine}
        assert sum(record["bytes"].values()) == sum(hop.size for hop in mine)
        assert record["server_bytes"] == sum(hop.size for hop in mine if hop.sender == "server")
        assert record["client_bytes"] == max(sum(h.size for h in mine if h.sender == n) for n in range(5))
        assert record["cpu"].keys() == {"clients", "server", "sealing"}
        assert all(seconds > 0 for seconds in record["cpu"].values())
        assert sum(record["cpu"].values()) == pytest.approx(sum(record["stages"].values()), rel=0.05)


def test_every_message_is_counted_as_sealed_and_as_opened() -> None:
    ids, tables = some(1, 3, 40, 16)
    method = secure([own.tolist() for own in ids], 16)
    hops, seals = len(method._federation.traffic), len(method._federation.sealed)
    method._federation.round(
        [Table.trusted(tuple(own.tolist()), table) for own, table in zip(ids, tables, strict=True)]
    )
    sealed = method._federation.sealed[seals:]
    mine = method._federation.traffic[hops:]
    spared = sum(hop.kind == "means" for hop in mine) * 2 // 3  # it is sealed once for all three
    assert spared
    assert Counter("server" if who == SERVER else "clients" for who, _ in sealed) == {
        "server": len(mine) - spared,
        "clients": len(mine),
    }


def test_the_set_up_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    secure([["a", "b"], ["b"], ["c"]], 2, progress=lambda done, total: told.append((done, total)))
    (total,) = {total for _, total in told}
    assert max(told) == (total, total)


def test_methods_share_exactly_what_they_say(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [write_triples(tmp_path / "t.tsv", 150)], rounds=2)
    run.go(lambda _method, _round: None)

    def final(method: str, client: str) -> dict[Any, Matrix]:
        with np.load(tmp_path / "run" / "embeddings" / method / f"{client}.npz") as file:
            return dict(zip(file["names"].tolist(), file["matrix"], strict=True))

    owners = {name: [c for c in run.clients if name in final("plain", c)] for name in run.data.entities}
    assert any(len(who) == 4 for who in owners.values())
    assert any(1 < len(who) < 4 for who in owners.values())
    for name, who in owners.items():
        for method in ("plain", "secea", "common", "local"):
            rows = [final(method, client)[name] for client in who]
            alike = all(np.allclose(row, rows[0], rtol=0, atol=1e-6) for row in rows)
            shared = len(who) == 1 or method in ("plain", "secea") or (method == "common" and len(who) == 4)
            assert alike == shared, (method, name)


def test_what_the_protocol_refuses_is_told_with_what_else_there_is() -> None:
    with pytest.raises(ParamsError, match=r"clients must be from 2.*leave the method secea out: --methods local,plain"):
        methods.check(("local", "secea", "plain"), 1, None)
    with pytest.raises(ParamsError, match=r"collusion must be from 1 to 3 for 4 clients"):
        methods.check(("secea",), 4, 4)
    assert methods.check(("local", "plain"), 1, None) == []
    assert methods.check(("secea",), 4, 3) == []


def test_two_clients_are_told_what_they_learn_of_each_other(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [write_triples(tmp_path / "t.tsv", 150)], clients=2, methods=("secea", "plain"))
    result = run.go(lambda _method, _round: None)
    assert any("each other's rows of these, by subtraction" in message for message in result["messages"])
    assert result["methods"]["secea"] == pytest.approx(result["methods"]["plain"], abs=2e-3)


# ------------------------------------------------------------------------------------ minimum owners, weights, noise


def weighted_by_hand(ids: list[Matrix], tables: list[Matrix], weights: list[Matrix], entity: int) -> Matrix | None:
    own = [(list(i).index(entity), n) for n, i in enumerate(ids) if entity in i]
    total = sum(weights[n][row] for row, n in own)
    return np.asarray(sum(weights[n][row] * tables[n][row] for row, n in own) / total) if total else None


@given(
    seed=st.integers(0, 2**32 - 1), clients=st.integers(2, 6), entities=st.integers(1, 9), least=st.integers(1, 4),
    common=st.booleans(),
)  # fmt: skip
def test_plain_means_are_weighted_and_need_the_minimum_of_owners(
    seed: int, clients: int, entities: int, least: int, common: bool
) -> None:
    ids, tables = some(seed, clients, entities, 3)
    rng = np.random.default_rng([seed, 1])
    weights = [rng.integers(0, 4, len(own)) for own in ids]
    method = Mean(ids, common=common, min_owners=least, weights=weights)
    means = method.aggregate(tables)
    for n, own in enumerate(ids):
        for row, entity in enumerate(own):
            owners = sum(entity in other for other in ids)
            truth = weighted_by_hand(ids, tables, weights, entity)
            there = truth is not None and owners >= (clients if common else least)
            assert method.there[n][row] == there
            np.testing.assert_allclose(means[n][row], np.asarray(truth if there else tables[n][row]), 1e-9, 1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_secure_means_are_the_plain_ones_with_a_minimum_of_owners_and_weights(seed: int, weighted: bool) -> None:
    ids, tables = some(seed, 5, 30, 6)
    rng = np.random.default_rng([seed, 2])
    weights = [rng.integers(0, 40, len(own)) for own in ids] if weighted else None
    names = [own.tolist() for own in ids]
    method = secure(names, 6, min_owners=3, weights=weights)
    plain = Mean(ids, common=False, min_owners=3, weights=weights)
    protected, open_ = method.aggregate(tables), plain.aggregate(tables)
    owners = np.bincount(np.concatenate(ids))
    assert method.below_minimum == [int((owners[own] < 3).sum()) for own in ids]
    assert sum(method.below_minimum) > 0
    for n, own in enumerate(ids):
        assert np.array_equal(method.there[n], plain.there[n])
        assert np.array_equal(protected[n][~method.there[n]], tables[n][~method.there[n]])
        for row in np.flatnonzero(method.there[n]):
            within = _blurred(ids, tables, weights, own[row], open_[n][row]) + 100 * method.params.resolution
            assert (np.abs(protected[n][row] - open_[n][row]) <= within).all()


def _blurred(
    ids: list[Matrix], tables: list[Matrix], weights: list[Matrix] | None, entity: int, mean: Matrix
) -> Matrix:
    """How far a mean may be off because each weight is taken half a unit more or less."""
    if weights is None:
        return np.zeros_like(mean)
    own = [(list(i).index(entity), n) for n, i in enumerate(ids) if entity in i]
    off = sum(0.5 * (weights[n][row] > 0) * np.abs(tables[n][row] - mean) for row, n in own)
    least = sum(max(0.0, weights[n][row] - 0.5) for row, n in own)
    return np.asarray(off / least)


def test_weights_are_how_many_examples_touch_an_entity() -> None:
    ids = np.array([2, 5, 7, 9])
    assert touched(ids, np.array([[2, 5], [5, 5], [9, 2], [5, 2]])).tolist() == [3, 3, 0, 1]
    assert touched(ids, np.array([[2.0], [9.0], [9.0]])).tolist() == [1, 0, 0, 2]
    assert touched(ids, np.zeros((0, 2))).tolist() == [0] * 4


def test_weights_beyond_the_least_precision_raise_it() -> None:
    names = [["a", "b"]] * 5
    weights = [np.array([1, 200_000])] * 5
    method = secure(names, 2, weights=weights)
    assert method.params.max_weight == 200_000
    assert methods.check(("secea",), 5, None, max_weight=200_000) == []
    tables = [np.full((2, 2), float(n)) for n in range(5)]
    np.testing.assert_allclose(method.aggregate(tables)[0][1], 2.0, atol=1e-4)


def test_noise_on_sums_is_divided_by_the_owners() -> None:
    ids, rows = [np.arange(4), np.arange(4), np.arange(2)], np.zeros((4, 3))
    method = Mean(ids, common=False, noise=lambda shape: np.full(shape, 6.0))
    means = method.aggregate([rows, rows, rows[:2]])
    assert means[0][:, 0].tolist() == [2.0, 2.0, 3.0, 3.0]


def test_first_rows_are_those_of_a_name_however_it_is_written() -> None:
    assert (first_rows([7, -3, 0], 4, 1.0, 0, "entity") == first_rows(["7", "-3", "0"], 4, 1.0, 0, "entity")).all()
    apart = first_rows(["7", "07", "+7", "-0", "a", 8], 4, 1.0, 0, "entity")
    assert len(np.unique(apart[:, 0])) == 6
    # The first word of SHAKE-256 of the seed's line and of 7 in base 16: seeds of before give the figures of before.
    words = np.frombuffer(hashlib.shake_256(b"secea entity 0\ni7").digest(8), "<u4")
    assert (
        first_rows([7], 1, 1.0, 0, "entity")[0, 0] == 2 * ((words[0] >> 8) * 2.0**-24 + (words[1] >> 3) * 2.0**-53) - 1
    )
