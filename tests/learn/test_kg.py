"""Ranks, negatives and training on knowledge graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import HOW, knowledge, random_parts, rows
from secea.learn import kg
from secea.learn.data import Part
from secea.learn.kg import KgLearner, Knowledge
from secea.learn.learner import Learner
from secea.learn.models import MODELS


def brute_force_ranks(task: Knowledge, learner: Learner, client: int, stage: str) -> list[float]:
    """One candidate after the other; every triple of every client is a known answer."""
    assert isinstance(learner, KgLearner)
    known = {tuple(row) for part in task.parts for row in part.all.tolist()}
    candidates = task.ids[client].tolist()
    entity = dict(zip(learner.ids.tolist(), learner.shared.float(), strict=True))
    relation = dict(zip(learner.relations.tolist(), learner.own["relation"], strict=True))

    def score(h: int, r: int, t: int) -> float:
        query = task.model.tail_query(entity[h], relation[r])
        return float(task.model.pairs(query[None], entity[t][None])[0])

    ranks: dict[int, list[float]] = {0: [], 2: []}
    for row in getattr(task.parts[client], stage).tolist():
        for side, found in ranks.items():
            others = [[*row[:side], e, *row[side + 1 :]] for e in candidates]
            wrong = [score(*other) for other in others if tuple(other) not in known]
            right = score(*row)
            found.append(1 + sum(s > right + 1e-5 for s in wrong) + sum(abs(s - right) <= 1e-5 for s in wrong) / 2)
    return ranks[2] + ranks[0]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 3), entities=st.integers(1, 7))
def test_filtered_ranks_are_those_of_one_candidate_after_the_other(seed: int, clients: int, entities: int) -> None:
    rng = np.random.default_rng(seed)
    task = knowledge(random_parts(rng, clients, entities, 2, 6), entities, 2)
    central = task.learner(None)
    for client in range(clients):
        for learner in (task.learner(client), central):
            learner.train(1)
            ranks = task.ranks(learner, client, "test").tolist()
            assert ranks == pytest.approx(brute_force_ranks(task, learner, client, "test"), abs=1e-6)


def test_equal_scores_share_the_mean_of_their_ranks_and_what_is_no_number_comes_last() -> None:
    task = knowledge([Part(rows((0, 0, 1), (2, 0, 3)), rows(), rows((0, 0, 2)))], 4, 1)
    learner = task.learner(0)
    learner.adopt(np.zeros((4, 4), np.float64))
    assert task.ranks(learner, 0, "test").tolist() == [2.0, 2.5]  # beside two and three others, all alike
    learner.adopt(np.full((4, 4), np.nan, np.float64))
    assert task.ranks(learner, 0, "test").tolist() == [5.0, 5.0]


def test_metrics_are_means_over_both_ends_of_all_test_triples() -> None:
    task = knowledge(random_parts(np.random.default_rng(2), 3, 8, 2, 9), 8, 2)
    learners = [task.learner(n) for n in range(3)]
    scores = [task.evaluate(learner, n, "test") for n, learner in enumerate(learners)]
    ranks = [rank for n, learner in enumerate(learners) for rank in brute_force_ranks(task, learner, n, "test")]
    total = scores[0] + scores[1] + scores[2]
    found = task.metrics(total)
    assert total.cases == len(ranks) > 0
    assert found["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert found["hits@3"] == pytest.approx(np.mean([rank <= 3 for rank in ranks]))


@pytest.mark.parametrize("table", [0, 1 << 20])
def test_known_triples_are_no_negatives(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kg.TABLE_BYTES, "cpu", table)
    triples = rows((0, 0, 1), (0, 0, 2), (3, 0, 1), (0, 1, 4))
    learner = knowledge([Part(triples, rows(), rows())], 5, 2).learner(0)
    assert isinstance(learner, KgLearner)
    picked = torch.tensor([0, 3])
    known = learner._answers.among(learner._questions[picked].T.reshape(-1), torch.tensor([4, 1, 3]))
    assert known.tolist() == [
        [False, True, False],  # (0, 0, ?): 1 and 2
        [True, False, False],  # (0, 1, ?): 4
        [False, False, True],  # (?, 0, 1): 0 and 3
        [False, False, False],  # (?, 1, 4): 0
    ]


def test_a_round_of_training_is_a_function_of_seed_client_round_and_table() -> None:
    parts = random_parts(np.random.default_rng(1), 2, 9, 2, 40)
    once, again = (knowledge(parts, 9, 2).learner(0) for _ in range(2))
    assert once.train(1) == again.train(1)
    assert np.array_equal(once.table(), again.table())
    once.train(2)
    again.train(3)
    assert not np.array_equal(once.table(), again.table())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_training_lowers_the_loss(name: str) -> None:
    triples = rows(*((h, k, (h + k + 1) % 12) for h in range(12) for k in range(2)))
    learner = knowledge([Part(triples, rows(), rows())], 12, 2, MODELS[name](8, 2.0)).learner(0)
    first = learner.train(1)
    for number in range(2, 12):
        last = learner.train(number)
    assert first[1] == last[1] == HOW.epochs * len(triples)
    assert last[0] < 0.95 * first[0]


@pytest.mark.parametrize(
    ("triples", "test"), [(rows((0, 0, 1)), rows()), (rows((0, 0, 0)), rows((0, 0, 0))), (rows(), rows((0, 0, 1)))]
)
def test_a_client_with_one_triple_or_none_trains_to_finite_numbers(triples: object, test: object) -> None:
    task = knowledge([Part(triples, rows(), test), Part(rows(), rows(), rows())], 2, 1)  # type: ignore[arg-type]
    for client in (0, 1, None):
        learner = task.learner(client)
        total, _ = learner.train(1)
        assert np.isfinite(total)
        assert np.isfinite(learner.table()).all()
    assert task.evaluate(task.learner(1), 1, "test").why == "no test triples"
    assert any("no test triples" in message for message in task.messages())


def test_what_only_the_test_names_is_told() -> None:
    parts: Sequence[Part] = [Part(rows((0, 0, 1)), rows(), rows((0, 1, 2)))]
    task = knowledge(parts, 3, 2)
    assert task.messages() == [
        "client 0: 1 entity of its test triples is in none of its training triples",
        "client 0: 1 relation is in none of its training triples",
    ]
    assert task.evaluate(task.learner(0), 0, "test").cases == 2


def test_owners_of_an_entity_start_from_the_same_row_and_others_from_other_rows() -> None:
    task = knowledge([Part(rows((0, 0, 1)), rows(), rows()), Part(rows((1, 0, 2)), rows(), rows())], 3, 1)
    one, two, central = task.learner(0).table(), task.learner(1).table(), task.learner(None).table()
    assert np.array_equal(one[1], two[0])
    assert np.array_equal(np.concatenate([one, two[1:]]), central)
    assert len(np.unique(central)) == central.size
