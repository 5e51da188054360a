"""What happens to tables: nothing, plain means, secure means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphs import a_run, write_triples
from secea.errors import ParamsError
from secea.learn import methods
from secea.learn.methods import Mean, Secure

Matrix = NDArray[Any]


def some(seed: int, clients: int, entities: int, dim: int) -> tuple[list[Matrix], list[Matrix]]:
    rng = np.random.default_rng(seed)
    ids = [np.flatnonzero(rng.random(entities) < 0.6) for _ in range(clients)]
    return ids, [rng.normal(size=(len(own), dim)).astype(np.float64) for own in ids]


def mean_by_hand(ids: list[Matrix], tables: list[Matrix], entity: int) -> Matrix:
    rows = [t[list(own).index(entity)].astype(np.float64) for own, t in zip(ids, tables, strict=True) if entity in own]
    mean: Matrix = np.mean(rows, axis=0)
    return mean


@settings(max_examples=40)
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
def test_secure_means_are_the_plain_ones_to_the_resolution_in_every_round(seed: int) -> None:
    ids, tables = some(seed, 5, 12, 4)
    ids[2], tables[2] = ids[2][:0], tables[2][:0]  # someone has nothing
    secure, plain = Secure([own.tolist() for own in ids], 4, collusion=1, rounds=3), Mean(ids, common=False)
    for _ in range(3):
        protected, open_ = secure.aggregate(tables), plain.aggregate(tables)
        for a, b in zip(protected, open_, strict=True):
            assert a.dtype == np.float64
            np.testing.assert_allclose(a, b, rtol=0, atol=2**-43)
        tables = [table + np.float64(0.1) for table in open_]


def test_the_record_of_a_round_adds_up() -> None:
    ids, tables = some(1, 5, 40, 16)
    secure = Secure([own.tolist() for own in ids], 16, collusion=2, rounds=1)
    assert secure.record["bytes"].keys() >= {"hello", "table", "query"}
    secure.aggregate(tables)
    record, hops = secure.record, [hop for hop in secure._federation.traffic if hop.round == 1]
    assert sum(record["bytes"].values()) == sum(hop.size for hop in hops)
    assert record["server_bytes"] == sum(hop.size for hop in hops if hop.sender == "server")
    assert record["client_bytes"] == max(sum(h.size for h in hops if h.sender == n) for n in range(5))
    assert record["cpu"].keys() == {"sharing", "retrieval", "sealing", "other"}
    assert all(seconds >= 0 for seconds in record["cpu"].values())
    assert sum(record["cpu"].values()) == pytest.approx(sum(record["stages"].values()), rel=0.05)


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


def test_too_few_clients_for_the_protocol_are_told_what_else_there_is() -> None:
    with pytest.raises(ParamsError, match=r"clients must be 3.*leave the method secea out: --methods local,plain"):
        methods.check(("local", "secea", "plain"), 2, 1)
    with pytest.raises(ParamsError, match=r"collusion must be 1\.\.1 for 4 clients"):
        methods.check(("secea",), 4, 2)
    methods.check(("local", "plain"), 2, 1)
