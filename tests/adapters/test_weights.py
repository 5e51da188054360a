"""Laws of weights: an adapter knows which rows were trained since their last mean, or says what it was told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors, Word2Vec
from torch import nn, optim

from kinds import DIM, KINDS, SITES, Model, numpy_model
from optional import dues
from secea import Federation, Params, Table
from secea.adapters.gensim import GensimRows
from secea.adapters.torch import TorchRows
from secea.errors import CallError, TableError


def weights(model: Model) -> list[int]:
    found = model.rows.table().weights
    assert found is not None
    return [int(weight) for weight in found]


def loaded(kind: str) -> Model:
    """A model that has means, and did not train since."""
    model = KINDS[kind](SITES[0], 1, weights="trained")
    model.rows.load(Table(model.rows.names, np.ones((4, DIM), np.float32)))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_until_means_come_every_row_counts_and_then_those_that_changed(kind: str) -> None:
    model = KINDS[kind](SITES[0], 1, weights="trained")
    assert weights(model) == [1, 1, 1, 1]
    model.rows.load(Table(model.rows.names, np.ones((4, DIM), np.float32)))
    assert weights(model) == [0, 0, 0, 0]
    model.train(2)
    assert weights(model) == weights(model) == [0, 0, 1, 0]
    model.train(0)
    assert weights(model) == [1, 0, 1, 0]
    model.rows.load(Table(model.rows.names, np.zeros((4, DIM), np.float32)))
    assert weights(model) == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_trained_counts_until_there_is_a_mean_of_it(kind: str) -> None:
    model = loaded(kind)
    model.train(1)
    model.train(3)
    means = model.rows.table().as_dict()
    means[model.rows.names[3]] = np.zeros(DIM, np.float32)  # of the others there is none: their own rows come back
    model.rows.load(means)
    assert weights(model) == [0, 1, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_means_that_are_refused_change_nothing_of_what_counts(kind: str) -> None:
    model = loaded(kind)
    model.train(1)
    wrong = np.zeros((4, DIM))
    wrong[2, 0] = np.inf
    with pytest.raises(TableError, match="not a finite number"):
        model.rows.load(Table(model.rows.names, wrong))
    assert weights(model) == [0, 1, 0, 0]


@pytest.mark.parametrize("options", [{"partial": True}, {"partial": True, "min_owners": 2}, {"max_weight": 1}])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_has_the_means_of_those_who_trained(kind: str, options: dict[str, Any]) -> None:
    models = [KINDS[kind](names, n, weights="trained") for n, names in enumerate(SITES)]
    fed: Any = Federation(Params(clients=3, dim=models[0].rows.width, **options))
    fed.setup([model.rows.names for model in models])
    rng = np.random.default_rng(1)
    for _ in range(4):
        tables = [model.rows.table() for model in models]
        due = dues(fed.params, [(table.as_dict(), by_name(table)) for table in tables])
        for model, table, means in zip(models, tables, fed.round(tables), strict=True):
            model.rows.load(means)
            for name, row in zip(model.rows.names, model.look().astype(table.dtype), strict=True):
                assert due[name].meets(row, table[name])
            for i in range(len(model.rows.names)):
                if rng.random() < 0.4:
                    model.train(i)


def by_name(table: Table) -> dict[Any, int]:
    assert table.weights is not None
    return dict(zip(table.names, table.weights.tolist(), strict=True))


def test_a_function_gets_what_was_trained_and_a_mapping_is_read_anew() -> None:
    seen: list[list[bool]] = []

    def tenfold(trained: Any) -> Any:
        seen.append(trained.tolist())
        return 10 * trained

    model = numpy_model(SITES[1], 1, weights=tenfold)
    model.rows.load(Table(SITES[1], np.zeros((3, DIM))))
    model.train(1)
    assert weights(model) == [0, 10, 0]
    assert seen == [[False, True, False]]
    counts = {"x": 3, "b": 1, "c": 2}
    model = numpy_model(SITES[1], 1, weights=counts)
    assert weights(model) == [1, 2, 3]
    counts["b"] = 7
    assert weights(model) == [7, 2, 3]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("Trained", "weights must be \"trained\", a mapping by name, or a function, got 'Trained'"),
        ([1, 2, 3], "a mapping by name, or a function, got list"),
        (np.ones(3), "a mapping by name, or a function, got ndarray"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_cannot_be_asked_for_are_refused(kind: str, given: Any, why: str) -> None:
    with pytest.raises(CallError, match=why):
        KINDS[kind](SITES[0], 1, weights=given)


def test_weights_that_do_not_fit_the_rows_are_refused_by_name() -> None:
    with pytest.raises(TableError, match="the entity 'x' has no weight"):
        numpy_model(SITES[1], 1, weights={"b": 1, "c": 1}).rows.table()
    with pytest.raises(TableError, match="a table of 3 rows needs as many weights"):
        numpy_model(SITES[1], 1, weights=lambda trained: [1]).rows.table()


# ------------------------------------------------------------------------------------------------------- real training


def stepped(make: Callable[..., optim.Optimizer], state: Any, batches: Sequence[Sequence[int]]) -> list[list[int]]:
    """The weights after means and a step on some rows, for each batch."""
    embedding = nn.Embedding(4, 3)
    optimizer = make(embedding.parameters(), lr=0.1)
    rows = TorchRows(list("abcd"), [embedding], optimizer=optimizer, state=state, weights="trained")
    found: list[list[int]] = []
    for batch in batches:
        rows.load(Table(rows.names, np.random.default_rng(len(found)).normal(size=(4, 3))))
        optimizer.zero_grad()
        embedding(torch.tensor(batch)).square().sum().backward()
        optimizer.step()
        weighed = rows.table().weights
        assert weighed is not None
        found.append([int(weight) for weight in weighed])
    return found


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.Adagrad])
def test_a_step_trains_the_rows_of_its_batch_where_the_state_is_reset(make: Callable[..., optim.Optimizer]) -> None:
    assert stepped(make, "reset", [[0, 2], [3], [1, 2]]) == [[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 0]]


def test_moments_that_are_kept_move_rows_without_data_and_they_count() -> None:
    assert stepped(optim.Adam, "keep", [[0, 2], [3]]) == [[1, 0, 1, 0], [1, 0, 1, 1]]


def test_words_that_the_texts_do_not_have_weigh_nothing_and_new_words_count() -> None:
    texts = [["aspirin", "helps", "pain"], ["codeine", "helps", "pain"]] * 4
    model = Word2Vec(texts, vector_size=4, min_count=1, workers=1, seed=1, sample=0)
    rows = GensimRows(model.wv, weights="trained")
    rows.load(Table(rows.names, np.full((4, 4), 0.1)))
    model.train([["aspirin", "helps", "pain"]] * 50, total_examples=50, epochs=1)
    table = rows.table()
    assert by_name(table) == {"aspirin": 1, "helps": 1, "pain": 1, "codeine": 0}
    vectors = KeyedVectors(2)
    vectors.add_vectors(["north"], np.eye(1, 2, dtype=np.float32))
    grown = GensimRows(vectors, weights="trained")
    grown.load({"north": [3.0, 4.0]})
    vectors.add_vectors(["west"], np.ones((1, 2), np.float32))
    assert by_name(grown.table()) == {"north": 0, "west": 1}
