"""Scoring functions of knowledge graphs over rows of float32: higher is likelier.

A triple is scored by comparing a query, made of two of its three parts, with rows of entities. That way one matrix of
candidates serves all queries of a batch. Complex numbers lie in a row as all real parts, then all imaginary parts.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

TINY: Final = 1e-12
"""Under a square root, whose slope has no bound at 0."""

SHRINK: Final = 0.01
"""Products grow without bound unless squares cost something."""


class TransE:
    """margin - |h + r - t|, in the first norm (as FedE has it) or the second (smooth, and much faster)."""

    def __init__(self, dim: int, margin: float, norm: int = 2) -> None:
        self.margin, self.norm = margin, norm
        self.width = self.relation_width = dim
        self.spread = (margin + 2.0) / dim
        """Embeddings start within this distance of 0."""
        self.floats = 1
        """How many numbers are in memory for each score while scores are computed."""
        self.shrink = 0.0
        """The weight of squared entities in the loss: distances need none."""

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """What the tail is compared with."""
        return h + r

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """What the head is compared with."""
        return t - r

    def pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """The score of each query with the entity in the same row."""
        apart = queries - entities
        if self.norm == 1:
            return self.margin - apart.abs().sum(-1)
        return self.margin - (apart.square().sum(-1) + TINY).sqrt()

    def scores(self, queries: Tensor, entities: Tensor) -> Tensor:
        """The score of each query with each entity: [queries, entities]."""
        if self.norm == 2:
            squares = queries.square().sum(-1, keepdim=True) + entities.square().sum(-1)
            return self.margin - (torch.addmm(squares, queries, entities.T, alpha=-2.0).clamp(min=0.0) + TINY).sqrt()
        if queries.is_cuda and queries.requires_grad:  # there the gradient of cdist is slow
            return self.margin - (queries[:, None] - entities).abs().sum(-1)
        return self.margin - torch.cdist(queries, entities, p=1.0)


class RotatE:
    """margin - |h * exp(i r) - t|, summed over the moduli of the coordinates."""

    def __init__(self, dim: int, margin: float) -> None:
        self.margin = margin
        self.width, self.relation_width = 2 * dim, dim
        self.spread = (margin + 2.0) / dim
        self.floats, self.shrink = 4 * dim, 0.0

    def _turned(self, x: Tensor, r: Tensor, sign: float) -> Tensor:
        re, im = x.chunk(2, -1)
        angle = r * (math.pi / self.spread)
        cos, sin = angle.cos(), sign * angle.sin()
        return torch.cat([re * cos - im * sin, re * sin + im * cos], -1)

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """The head, turned."""
        return self._turned(h, r, 1.0)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """The tail, turned back: a rotation keeps distances."""
        return self._turned(t, r, -1.0)

    def pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """The score of each query with the entity in the same row."""
        re, im = (queries - entities).chunk(2, -1)
        return self.margin - (re.square() + im.square() + TINY).sqrt().sum(-1)

    def scores(self, queries: Tensor, entities: Tensor) -> Tensor:
        """The score of each query with each entity: [queries, entities]."""
        return self.pairs(queries[:, None], entities[None])


class DistMult:
    """The sum of h * r * t."""

    def __init__(self, dim: int, margin: float) -> None:
        self.width = self.relation_width = dim
        self.spread, self.floats, self.shrink = (margin + 2.0) / dim, 1, SHRINK

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """What the tail is multiplied with."""
        return h * r

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """What the head is multiplied with."""
        return r * t

    def pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """The score of each query with the entity in the same row."""
        return (queries * entities).sum(-1)

    def scores(self, queries: Tensor, entities: Tensor) -> Tensor:
        """The score of each query with each entity: [queries, entities]."""
        return queries @ entities.T


class ComplEx(DistMult):
    """The real part of the sum of h * r * conj(t)."""

    def __init__(self, dim: int, margin: float) -> None:
        super().__init__(dim, margin)
        self.width = self.relation_width = 2 * dim

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """h * r: with t as real vectors, its product is the score."""
        (a, b), (x, y) = h.chunk(2, -1), r.chunk(2, -1)
        return torch.cat([a * x - b * y, a * y + b * x], -1)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """conj(r) * t, likewise for h."""
        (x, y), (c, d) = r.chunk(2, -1), t.chunk(2, -1)
        return torch.cat([x * c + y * d, x * d - y * c], -1)


class Dot(DistMult):
    """The product of two nodes: there is one kind of edge, and it has no direction."""

    def __init__(self, dim: int, margin: float) -> None:
        super().__init__(dim, margin)
        self.relation_width, self.shrink = 1, 5 * SHRINK

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """The one end."""
        return h

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """The other."""
        return t


MODELS: Final = {"transe": TransE, "rotate": RotatE, "distmult": DistMult, "complex": ComplEx}
Model = TransE | RotatE | DistMult
