"""Laws of rows under privacy: what leaves is near what the others know, each release counts, and restarts lose none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinds import DIM, KINDS, SITES, Model, numpy_model
from secea import Federation, Params, Table
from secea.adapters import participant
from secea.adapters.numpy import NumpyRows
from secea.adapters.private import PrivateRows
from secea.adapters.torch import Checkpoint
from secea.errors import CallError, DataError, ParamsError, TableError
from secea.privacy import Mechanism, Private, clipped, with_noise

NAMES = ["a", "b", "c"]
CLIP = 0.5
NOISELESS = Mechanism(CLIP, 1e-9)
"""So little noise that what else happens is seen."""


def private(mechanism: Mechanism = NOISELESS, rounds: int = 5) -> Private:
    return Private(mechanism, 1e-5, rounds)


def site(**how: Any) -> tuple[NDArray[np.float64], PrivateRows]:
    matrix = np.zeros((3, DIM))
    return matrix, PrivateRows(NumpyRows(NAMES, matrix), **(how or {"private": private()}))


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_of_any_adapter_leaves_farther_than_the_clip_from_what_is_known(kind: str) -> None:
    model = KINDS[kind](SITES[0], 1)
    rows = PrivateRows(model.rows, private())
    known = model.look()
    for place in range(4):
        for _ in range(3):
            model.train(place)
    assert (rows.names, rows.width) == (model.rows.names, DIM)
    far = np.linalg.norm(rows.table().matrix - known, axis=1)
    assert (np.linalg.norm(model.look() - known, axis=1) > CLIP).all()
    assert far == pytest.approx(np.full(4, CLIP), rel=1e-6)


@pytest.mark.parametrize("how", [{"private": private()}, {"clip": CLIP}])
def test_changes_are_counted_from_the_last_means(how: Any) -> None:
    matrix, rows = site(**how)
    rows.load(Table(NAMES, np.full((3, DIM), 4.0)))
    matrix += 0.1
    left = rows.table().matrix
    assert left == pytest.approx(np.full((3, DIM), 4.1), abs=1e-6)
    matrix += 7.0  # a lost round: there are no means, and what left in it may have been seen
    assert np.linalg.norm(rows.table().matrix - 4.0, axis=1).max() <= CLIP * (1 + 1e-6)


def test_each_table_has_noise_of_its_own_and_is_a_release() -> None:
    mechanism = Mechanism(CLIP, 2.0)
    each = private(mechanism, rounds=3)
    _, rows = site(private=each)
    noise = np.concatenate([rows.table().matrix for _ in range(3)])
    assert len(np.unique(noise)) == noise.size
    assert 0.5 < noise.std() / mechanism.deviation < 2
    assert each.releases == 3
    with pytest.raises(ParamsError, match="all 3 releases are spent"):
        rows.table()


def test_an_entity_without_a_mean_keeps_its_own_row_without_noise_and_what_is_known_of_it() -> None:
    matrix, rows = site(private=private(Mechanism(CLIP, 2.0)))
    matrix += 1.0
    left = rows.table()
    means = left.as_dict() | {"b": np.full(DIM, 3.0)}  # own rows stand for a mean that there is not
    rows.load(means)
    assert matrix.tolist() == [[1.0] * DIM, [3.0] * DIM, [1.0] * DIM]
    assert rows.state_dict()["known"].tolist() == [[0.0] * DIM, [3.0] * DIM, [0.0] * DIM]


def test_with_noise_of_all_together_rows_are_clipped_alone() -> None:
    matrix, rows = site(clip=CLIP)
    matrix += 3.0
    assert np.array_equal(rows.table().matrix, clipped(np.zeros((3, DIM)), matrix, CLIP))
    models = [numpy_model(names, n) for n, names in enumerate(SITES)]
    own = [PrivateRows(model.rows, clip=CLIP) for model in models]
    params = with_noise(Params(clients=3, dim=DIM, collusion=1, rounds=4), epsilon=8, delta=1e-5, clip=CLIP)
    fed = Federation(params)
    fed.setup([each.names for each in own])
    for each, means in zip(own, fed.round([each.table() for each in own]), strict=True):
        each.load(means)


def trains_the_first(model: Model) -> Callable[[int], object]:
    return lambda _: model.train(0)


def test_in_a_federation_models_get_the_means_of_what_left() -> None:
    models = [numpy_model(names, n) for n, names in enumerate(SITES)]
    own = [PrivateRows(model.rows, private(Mechanism(CLIP, 0.1))) for model in models]
    sites = [participant(each, trains_the_first(model)) for each, model in zip(own, models, strict=True)]
    fed = Federation(Params(clients=3, dim=DIM))
    fed.setup([each.names() for each in sites])
    means: list[Any] = [None] * 3
    given: list[Any] = []
    for number in range(3):
        given = [each.train(mean, number) for each, mean in zip(sites, means, strict=True)]
        means = fed.round(given)
    for each, mean, model in zip(sites, means, models, strict=True):
        each.done(mean)
        assert np.abs(model.look() - mean.matrix).max() < 1e-5
    rows_of_d = [table.as_dict()["d"] for table in given if "d" in table.names]
    assert np.abs(means[0]["d"] - np.mean(rows_of_d, axis=0)).max() < 1e-4


def test_a_process_that_starts_anew_has_not_forgotten_a_release_nor_what_is_known(tmp_path: Path) -> None:
    def started() -> tuple[NDArray[np.float64], Private, Any]:
        each = private()
        matrix, rows = site(private=each)
        keep = Checkpoint(tmp_path / "it.pt", privacy=rows)
        return matrix, each, participant(rows, lambda _: np.add(matrix, 5.0, matrix), keep=keep)

    _, each, taking = started()
    taking.train(Table(NAMES, np.full((3, DIM), 2.0)), 0)
    assert each.releases == 1
    _, each, taking = started()  # and the round was lost
    assert each.releases == 1
    left = taking.train(None, 1).matrix
    assert each.releases == 2
    assert np.linalg.norm(left - 2.0, axis=1).max() <= CLIP * (1 + 1e-6), "not from what the model had when it started"


def test_a_state_of_other_rows_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "it.pt", privacy=site()[1])
    checkpoint.save()
    other = PrivateRows(NumpyRows(["a"], np.zeros((1, DIM))), private())
    with pytest.raises(DataError, match=r"saved for rows of shape \(3, 6\), and these are of \(1, 6\)"):
        Checkpoint(tmp_path / "it.pt", privacy=other).load()


def test_weights_leave_with_the_rows() -> None:
    rows = PrivateRows(NumpyRows(NAMES, np.zeros((3, DIM)), weights={"a": 3, "b": 0, "c": 1}), private())
    table = rows.table()
    assert table.weights is not None
    assert table.weights.tolist() == [3, 0, 1]


def test_noise_of_ones_own_or_of_all_has_to_be_chosen() -> None:
    rows = NumpyRows(NAMES, np.zeros((3, DIM)))
    for how in ({}, {"private": private(), "clip": 0.5}):
        with pytest.raises(CallError, match=r"give either a secea\.privacy\.Private"):
            PrivateRows(rows, **how)  # type: ignore[arg-type]  # which of both is missing or too much
    with pytest.raises(ParamsError, match="clip and multiplier must be positive numbers"):
        PrivateRows(rows, clip=0.0)


def test_new_entities_and_means_that_do_not_fit_are_refused() -> None:
    from gensim.models import KeyedVectors

    vectors = KeyedVectors(2)
    vectors.add_vectors(["north", "south"], np.eye(2, dtype=np.float32))
    from secea.adapters.gensim import GensimRows

    rows = PrivateRows(GensimRows(vectors), private())
    with pytest.raises(TableError, match="there is no mean for 'south'"):
        rows.load({"north": [1.0, 1.0]})
    vectors.add_vectors(["west"], np.ones((1, 2), np.float32))
    with pytest.raises(CallError, match="the model has other entities than at first"):
        rows.table()
