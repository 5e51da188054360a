"""Ratings and links: the measures against their definitions, and training that learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import HOW
from secea.learn.data import Dataset, Part
from secea.learn.learner import Score
from secea.learn.models import Dot
from secea.learn.recommend import RatingLearner, Recommendation
from secea.learn.social import Links, auc


def ratings(parts: list[Part], users: int, items: int) -> Recommendation:
    clients = tuple(f"client {n}" for n in range(len(parts)))
    data = Dataset("made up", tuple(range(items)), tuple(f"u{i}" for i in range(users)), tuple(parts), clients)
    return Recommendation(data, parts, clients, 4, HOW)


def made_up_ratings(seed: int, clients: int) -> list[Part]:
    rng = np.random.default_rng(seed)
    out = []
    for n in range(clients):
        rows = np.stack(
            [rng.integers(n * 5, n * 5 + 5, size=60), rng.integers(9, size=60), rng.integers(1, 6, size=60)], 1
        )
        out.append(Part(rows[:50].astype(float), rows[:0].astype(float), rows[50:].astype(float)))
    return out


def test_the_pooled_rmse_is_the_root_of_the_mean_square_over_all_test_ratings() -> None:
    parts = made_up_ratings(0, 3)
    task = ratings(parts, 15, 9)
    total, errors = Score(), []
    for n, part in enumerate(parts):
        learner = task.learner(n)
        learner.train(1)
        assert isinstance(learner, RatingLearner)
        total += task.evaluate(learner, n, "test")
        mean = part.train[:, 2].mean()
        for user, item, rating in part.test.tolist():
            u, i = learner.users.tolist().index(user), learner.ids.tolist().index(item)
            guess = mean + learner.own["user bias"][u] + learner.own["item bias"][i]
            guess = float(guess + learner.own["user"][u] @ learner.shared[i].float())
            errors.append(min(max(guess, 1.0), 5.0) - rating)
    found = task.metrics(total)
    assert found["rmse"] == pytest.approx(math.sqrt(np.mean(np.square(errors))), rel=1e-5)
    assert found["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-5)


def test_training_on_ratings_learns_them() -> None:
    rng = np.random.default_rng(1)
    users, items = rng.normal(size=8), rng.normal(size=10)
    rows = np.array([[u, i, 3 + users[u] + items[i]] for u in range(8) for i in range(10)])
    task = ratings([Part(rows, rows[:0], rows)], 8, 10)
    learner = task.learner(0)
    before = task.metrics(task.evaluate(learner, 0, "test"))["rmse"]
    for number in range(1, 30):
        learner.train(number)
    after = task.metrics(task.evaluate(learner, 0, "test"))["rmse"]
    assert before is not None
    assert after is not None
    assert after < before / 2


def test_users_and_biases_are_not_shared() -> None:
    task = ratings(made_up_ratings(0, 2), 10, 9)
    learner = task.learner(0)
    assert learner.table().shape == (len(task.ids[0]), 4)
    assert set(learner.own) == {"user", "user bias", "item bias"}


def test_clients_without_ratings_are_told_and_counted_nowhere() -> None:
    none = np.zeros((0, 3))
    task = ratings([made_up_ratings(0, 1)[0], Part(none, none, none)], 5, 9)
    learner = task.learner(1)
    assert learner.train(1) == (0.0, 0)
    assert task.evaluate(learner, 1, "test") == Score(why="no test ratings")
    assert sum("client 1 has no" in message for message in task.messages()) == 2
    assert task.metrics(Score()) == {"rmse": None, "mae": None}


scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


@given(right=scores, wrong=scores)
def test_auc_is_the_share_of_pairs_in_the_right_order(right: list[float], wrong: list[float]) -> None:
    pairs = [(r > w) + (r == w) / 2 for r in right for w in wrong]
    assert auc(np.array(right), np.array(wrong)) == pytest.approx(np.mean(pairs))


def links(parts: list[Part], nodes: int) -> Links:
    clients = tuple(f"client {n}" for n in range(len(parts)))
    data = Dataset("made up", tuple(range(nodes)), (), tuple(parts), clients)
    return Links(data, parts, clients, Dot(8, 2.0), 0.0, HOW)


def test_strangers_are_pairs_of_own_nodes_that_no_client_has_as_an_edge() -> None:
    rng = np.random.default_rng(4)
    edges = rng.integers(12, size=(40, 2))
    parts = [Part(edges[:15], edges[:0], edges[15:20]), Part(edges[20:35], edges[:0], edges[35:])]
    task = links(parts, 12)
    known = {frozenset(edge) for edge in edges.tolist()}
    for n in range(2):
        strange = task.strangers(n, "test")
        assert len(strange) == 5
        for a, b in strange.tolist():
            assert a != b
            assert frozenset((a, b)) not in known
            assert {a, b} <= set(task.ids[n].tolist())


def test_training_on_two_groups_of_friends_tells_them_apart() -> None:
    edges = np.array([(group + a, group + b) for group in (0, 10) for a in range(10) for b in range(a)])
    order = np.random.default_rng(0).permutation(len(edges))
    part = Part(edges[order[20:]], edges[:0], edges[order[:20]])
    task = links([part], 20)
    learner = task.learner(0)
    for number in range(1, 15):
        learner.train(number)
    value = task.metrics(task.evaluate(learner, 0, "test"))["auc"]
    assert value is not None
    assert value > 0.95


def test_there_is_no_auc_where_all_are_neighbours_and_it_is_said() -> None:
    edges = np.array([[0, 1], [1, 2], [0, 2]])
    task = links([Part(edges[:2], edges[:0], edges[2:])], 3)
    assert task.evaluate(task.learner(0), 0, "test").why == "all of its nodes are neighbours"
    assert task.messages() == ["client 0: all of its nodes are neighbours: there is no AUC, and it counts in no mean"]
