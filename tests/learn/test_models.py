"""Scores are those of the formulas, for tails and heads alike."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch

from secea.learn.models import MODELS, Dot, Model, TransE

DIM, MARGIN = 3, 2.0


def complex_row(row: list[float]) -> list[complex]:
    return [complex(a, b) for a, b in zip(row[:DIM], row[DIM:], strict=True)]


def expected(name: str, h: list[float], r: list[float], t: list[float], spread: float) -> float:
    """The score in plain Python."""
    if name == "transe":
        return MARGIN - math.sqrt(sum((a + b - c) ** 2 for a, b, c in zip(h, r, t, strict=True)))
    if name == "transe-1":
        return MARGIN - sum(abs(a + b - c) for a, b, c in zip(h, r, t, strict=True))
    if name == "distmult":
        return sum(a * b * c for a, b, c in zip(h, r, t, strict=True))
    if name == "dot":
        return sum(a * c for a, c in zip(h, t, strict=True))
    if name == "complex":
        triple = zip(complex_row(h), complex_row(r), complex_row(t), strict=True)
        return sum((a * b * c.conjugate()).real for a, b, c in triple)
    turns = [cmath.exp(1j * x * math.pi / spread) for x in r]
    return MARGIN - sum(abs(a * b - c) for a, b, c in zip(complex_row(h), turns, complex_row(t), strict=True))


def models() -> dict[str, Model]:
    every: dict[str, Model] = {name: make(DIM, MARGIN) for name, make in MODELS.items()}
    return every | {"transe-1": TransE(DIM, MARGIN, norm=1), "dot": Dot(DIM, MARGIN)}


@pytest.mark.parametrize("name", sorted(models()))
def test_a_score_is_that_of_the_formula(name: str) -> None:
    model, rng = models()[name], np.random.default_rng(5)
    h, r, t = (rng.normal(size=(4, w)).astype(np.float32) for w in (model.width, model.relation_width, model.width))
    truth = [
        [expected(name, h[i].tolist(), r[i].tolist(), t[j].tolist(), model.spread) for j in range(4)] for i in range(4)
    ]
    tails = model.scores(model.tail_query(torch.tensor(h), torch.tensor(r)), torch.tensor(t))
    np.testing.assert_allclose(tails.numpy(), truth, atol=2e-5)
    pairs = model.pairs(model.tail_query(torch.tensor(h), torch.tensor(r)), torch.tensor(t))
    np.testing.assert_allclose(pairs.numpy(), np.diag(truth), atol=2e-5)
    truth = [
        [expected(name, h[j].tolist(), r[i].tolist(), t[i].tolist(), model.spread) for j in range(4)] for i in range(4)
    ]
    heads = model.scores(model.head_query(torch.tensor(r), torch.tensor(t)), torch.tensor(h))
    np.testing.assert_allclose(heads.numpy(), truth, atol=2e-5)


@pytest.mark.parametrize("name", sorted(models()))
def test_gradients_are_finite_where_a_query_meets_its_answer(name: str) -> None:
    model = models()[name]
    rows = torch.zeros(2, model.width, requires_grad=True)
    (model.pairs(rows, rows.clone()).sum() + model.scores(rows, rows.clone()).sum()).backward()
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()
