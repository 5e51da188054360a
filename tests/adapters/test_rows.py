"""Laws of all adapters: what a model has goes out by name, means come back in place, and errors change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gensim.models import Doc2Vec, FastText, KeyedVectors, Word2Vec
from gensim.models.doc2vec import TaggedDocument
from hypothesis import given
from hypothesis import strategies as st
from pykeen.models import CompGCN, ComplEx
from pykeen.pipeline import pipeline
from torch import nn

from kinds import DIM, KINDS, SITES, factory_of, numpy_model, torch_model
from secea import Federation, Params, Table
from secea.adapters.gensim import GensimRows
from secea.adapters.numpy import NumpyRows
from secea.adapters.pykeen import pykeen_rows
from secea.adapters.torch import TorchRows
from secea.errors import CallError, TableError, TableTypeError
from truth import true_means


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_what_the_model_has_and_loading_it_back_changes_nothing(kind: str) -> None:
    model = KINDS[kind](SITES[0], 1)
    before, table = model.look(), model.rows.table()
    assert sorted(model.rows.names) == sorted(SITES[0])
    assert (len(table), table.dim) == (4, model.rows.width) == (4, DIM)
    assert np.array_equal(table.matrix, before)
    model.rows.load(table)
    assert np.array_equal(model.look(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_means_come_back_in_any_order_and_the_table_is_a_copy(kind: str) -> None:
    model = KINDS[kind](SITES[0], 1)
    table, names = model.rows.table(), model.rows.names
    kept = table.matrix.copy()
    wanted = np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM) / 8
    model.rows.load({names[i]: wanted[i] for i in (2, 0, 3, 1)})
    assert np.array_equal(model.look(), wanted)
    assert np.array_equal(table.matrix, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_round_every_model_has_the_means_of_numpy(kind: str) -> None:
    models = [KINDS[kind](names, n) for n, names in enumerate(SITES)]
    truth = true_means(model.rows.table().as_dict() for model in models)
    fed = Federation(Params(clients=3, dim=models[0].rows.width))
    fed.setup([model.rows.names for model in models])
    for model, means in zip(models, fed.round([model.rows.table() for model in models]), strict=True):
        model.rows.load(means)
        expected = np.array([truth[name] for name in model.rows.names])
        assert np.abs(model.look() - expected).max() <= fed.params.resolution + 1e-6


def wrong_means(rows: tuple[Any, ...]) -> Mapping[str, tuple[Any, str]]:
    ones = np.ones((4, DIM))
    infinite = ones.copy()
    infinite[2, 3] = np.inf
    return {
        "another entity": (Table((*rows[:3], "z"), ones), "mean for 'z', which the model does not have"),
        "one too few": (Table(rows[:3], ones[:3]), f"no mean for {rows[3]!r}, which the model has"),
        "too narrow": (Table(rows, ones[:, 1:]), "have 5 numbers per entity, the model has 6"),
        "no number": (Table(rows, infinite), f"the mean of {rows[2]!r} is not a finite number"),
        "no table": ("a", "expected a secea.Table"),
    }


@pytest.mark.parametrize("fault", wrong_means(("a", "b", "c", "d")))
@pytest.mark.parametrize("kind", KINDS)
def test_means_that_do_not_fit_are_refused_and_the_model_is_as_before(kind: str, fault: str) -> None:
    model = KINDS[kind](SITES[0], 1)
    before = model.look()
    means, why = wrong_means(model.rows.names)[fault]
    with pytest.raises(TableError, match=why):
        model.rows.load(means)
    assert np.array_equal(model.look(), before)


def test_a_name_that_occurs_twice_is_refused() -> None:
    with pytest.raises(TableError, match="'a' occurs more than once"):
        NumpyRows(["a", "a"], np.zeros((2, 3)))
    with pytest.raises(TableError, match="'a' occurs more than once"):
        TorchRows(["a", "a"], [nn.Embedding(2, 3)], optimizer=None, state="keep")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_keep_their_type_and_get_means_to_within_a_step_of_their_grid(dtype: torch.dtype) -> None:
    models = [torch_model(names, n, dtype) for n, names in enumerate(SITES)]
    truth = true_means(model.rows.table().as_dict() for model in models)
    fed = Federation(Params(clients=3, dim=DIM))
    fed.setup([model.rows.names for model in models])
    step = torch.finfo(dtype).eps * 4  # the grid of numbers between 2 and 4
    for model, means in zip(models, fed.round([model.rows.table() for model in models]), strict=True):
        model.rows.load(means)
        expected = np.array([truth[name] for name in model.rows.names])
        assert np.abs(model.look() - expected).max() <= step
        assert np.array_equal(model.look(), torch.from_numpy(model.look()).to(dtype).float().numpy())


def test_a_mean_beyond_the_models_type_is_refused() -> None:
    half = numpy_model(["a"], 0, np.float16)
    with pytest.raises(TableError, match="'a' is not a finite number in the model's type, float16"):
        half.rows.load({"a": np.full(DIM, 1e5)})
    with pytest.raises(TableError, match=r"'a' is not a finite number in the model's type, torch\.float16"):
        torch_model(["a"], 0, torch.float16).rows.load({"a": np.full(DIM, 1e5)})


@given(names=st.lists(st.text(min_size=1, max_size=5).filter(lambda s: s.isprintable()) | st.integers(), unique=True))
def test_any_names_come_back_as_they_are(names: list[str | int]) -> None:
    weight = torch.zeros(len(names), 2)
    rows = TorchRows(names, [weight], optimizer=None, state="keep")
    assert rows.names == tuple(names)
    rows.load(Table(names[::-1], np.arange(2.0 * len(names)).reshape(-1, 2)[::-1]))
    assert weight.flatten().tolist() == list(range(2 * len(names)))


def test_a_matrix_that_cannot_take_means_is_refused() -> None:
    fixed = np.zeros((1, 2))
    fixed.flags.writeable = False
    with pytest.raises(TableError, match="read-only"):
        NumpyRows(["a"], fixed)
    with pytest.raises(TableTypeError, match="float16, float32 or float64, got int64"):
        NumpyRows(["a"], np.zeros((1, 2), np.int64))
    with pytest.raises(TableError, match=r"2 names need a matrix with as many rows, got shape \(1, 2\)"):
        NumpyRows(["a", "b"], np.zeros((1, 2)))


def test_gensims_norms_follow_the_means_and_words_may_be_added() -> None:
    vectors = KeyedVectors(2)
    vectors.add_vectors(["north", "south"], np.eye(2, dtype=np.float32))
    vectors.fill_norms()
    rows = GensimRows(vectors)
    rows.load({"north": [3.0, 4.0], "south": [0.0, 2.0]})
    assert vectors.norms.tolist() == [5.0, 2.0]
    assert vectors.similarity("north", "south") == pytest.approx(0.8)
    vectors.add_vectors(["west"], np.ones((1, 2), np.float32))
    assert rows.names == ("north", "south", "west")


def test_a_word2vec_model_goes_on_with_the_means() -> None:
    texts = [["aspirin", "helps", "pain"], ["codeine", "helps", "pain"]] * 4
    model = Word2Vec(texts, vector_size=4, min_count=1, workers=1, seed=1)
    rows = GensimRows(model)
    assert rows.names == GensimRows(model.wv).names
    rows.load(Table(rows.names, np.ones((4, 4))))
    model.train(texts, total_examples=len(texts), epochs=1)
    assert np.abs(rows.table().matrix - 1).max() < 0.1
    model.build_vocab([["warfarin", "thins", "blood"]], update=True)
    assert "warfarin" in rows.names


def test_models_of_gensim_without_one_vector_for_each_word_are_refused() -> None:
    texts = [["aspirin", "helps", "pain"], ["codeine", "helps", "pain"]] * 4
    fast = FastText(texts, vector_size=4, min_count=1, workers=1, bucket=50)
    for each in (fast, fast.wv):
        with pytest.raises(TableTypeError, match="n-grams: means of words would be overwritten; train Word2Vec"):
            GensimRows(each)
    tagged = [TaggedDocument(words, [f"text {n}"]) for n, words in enumerate(texts)]
    both = Doc2Vec(tagged, vector_size=4, min_count=1, workers=1)
    with pytest.raises(TableTypeError, match="give its `dv`, the documents, or its `wv`"):
        GensimRows(both)
    assert GensimRows(both.dv).names == tuple(f"text {n}" for n in range(8))
    with pytest.raises(TableTypeError, match="a Word2Vec model of gensim or its KeyedVectors, got dict"):
        GensimRows({"a": [1.0]})


def test_a_pykeen_model_brings_its_labels_and_all_that_it_has_for_an_entity() -> None:
    factory = factory_of(["b", "a", "c"])
    model = ComplEx(triples_factory=factory, embedding_dim=4, random_seed=1)
    rows = pykeen_rows(model, factory, optimizer=None, state="keep")
    assert rows.names == tuple(factory.entity_to_id)
    assert rows.width == 8
    rows.load({name: np.full(8, float(n)) for n, name in enumerate("abc")})
    found = model.entity_representations[0](indices=torch.tensor([factory.entity_to_id["c"]]))
    assert torch.equal(found, torch.full((1, 4), 2 + 2j))


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set", "ignore:Training instances are always shuffled")
def test_the_result_of_a_pykeen_pipeline_brings_model_names_and_optimizer() -> None:
    def result(**options: Any) -> Any:
        return pipeline(
            training=factory, testing=factory, model="ComplEx", model_kwargs={"embedding_dim": 4}, device="cpu",
            random_seed=1, training_kwargs={"num_epochs": 1, "use_tqdm": False}, evaluation_kwargs={"use_tqdm": False},
            **options,
        )  # fmt: skip

    factory = factory_of(["b", "a", "c"])
    found, kept = result(), result(clear_optimizer=False)
    rows = pykeen_rows(found)
    assert (rows.names, rows.width) == (tuple(factory.entity_to_id), 8)
    assert np.array_equal(rows.table().matrix, pykeen_rows(found.model, factory).table().matrix)
    with pytest.raises(CallError, match=r"keep the optimizer with pipeline\(\.\.\., clear_optimizer=False\)"):
        pykeen_rows(found, state="reset")
    state, weight = kept.training_loop.optimizer.state, kept.model.entity_representations[0]._embeddings.weight
    assert weight in state
    pykeen_rows(kept).load(rows.table())
    assert weight in state, "nothing was said of the optimizer"
    pykeen_rows(kept, state="reset").load(rows.table())
    assert weight not in state
    with pytest.raises(CallError, match="a ComplEx does not know the names of its entities: give the triples factory"):
        pykeen_rows(found.model)


def test_a_pykeen_model_without_rows_of_its_own_is_refused() -> None:
    factory = factory_of(["a", "b", "c"])
    inverse = type(factory).from_labeled_triples(
        factory.label_triples(factory.mapped_triples), create_inverse_triples=True
    )
    with pytest.raises(TableTypeError, match="no row for each entity: it makes them by SingleCompGCN"):
        pykeen_rows(CompGCN(triples_factory=inverse, embedding_dim=4), inverse, optimizer=None, state="keep")
    with pytest.raises(TableTypeError, match="no entity_to_id"):
        pykeen_rows(ComplEx(triples_factory=factory), factory.to_core_triples_factory(), optimizer=None, state="keep")
