"""Link prediction on a graph without directions: nodes are shared; the product of two is the score of an edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from secea.learn.data import Dataset, Part, Rows
from secea.learn.kg import KgLearner
from secea.learn.learner import Learner, Score, Training
from secea.learn.models import Model


def auc(right: NDArray[np.float64], wrong: NDArray[np.float64]) -> float:
    """How likely an edge scores higher than a pair that is none; equal scores count half."""
    if np.isnan(right).any() or np.isnan(wrong).any():
        return 0.0
    order = np.sort(wrong)
    below = np.searchsorted(order, right, "left") + np.searchsorted(order, right, "right")
    return float(below.sum() / (2 * len(right) * len(wrong)))


def directed(edges: Rows) -> Rows:
    """Edges as triples of the one relation there is, in both directions."""
    kinds = np.zeros(len(edges), np.int64)
    there = np.stack([edges[:, 0], kinds, edges[:, 1]], axis=1)
    return np.concatenate([there, there[:, ::-1]])


class Links:
    """The task: who has which edges."""

    metric, better = "auc", "higher"

    def __init__(
        self,
        data: Dataset,
        parts: Sequence[Part],
        clients: Sequence[str],
        model: Model,
        temperature: float,
        how: Training,
    ) -> None:
        self.data, self.parts, self.clients, self.model, self.how = (
            replace(data, others=("edge",)),
            parts,
            clients,
            model,
            how,
        )
        self.width, self.temperature = model.width, temperature
        self.ids = [np.unique(part.all) for part in parts]
        edges = np.concatenate([part.all for part in parts])
        self._edges = np.unique(edges.min(1) * len(data.entities) + edges.max(1))
        self._wrong: dict[tuple[int, str], Rows] = {}

    def learner(self, client: int | None) -> Learner:
        """The learner of a client, or (None) of all edges together."""
        some = range(len(self.parts)) if client is None else [client]
        ids = np.unique(np.concatenate([self.ids[n] for n in some]))
        train = directed(np.concatenate([self.parts[n].train for n in some]))
        number, kinds = len(self.parts) if client is None else client, np.zeros(1, np.int64)
        return KgLearner(number, ids, kinds, self.data, train, self.model, self.temperature, self.how)

    def strangers(self, client: int, stage: str) -> Rows:
        """As many pairs of the client's own nodes as it has test edges: no edge of any client."""
        if (client, stage) not in self._wrong:
            ids, wanted = self.ids[client], len(getattr(self.parts[client], stage))
            rng = np.random.Generator(np.random.PCG64([self.how.seed, client, stage == "test"]))
            pairs = rng.integers(len(ids), size=(64 * wanted + 1024, 2)) if len(ids) else np.zeros((0, 2), np.int64)
            low, high = ids[pairs.min(1)], ids[pairs.max(1)]
            strange = (low != high) & ~np.isin(low * len(self.data.entities) + high, self._edges)
            self._wrong[client, stage] = np.stack([low[strange], high[strange]], axis=1)[:wanted]
        return self._wrong[client, stage]

    @torch.no_grad()
    def evaluate(self, learner: Learner, client: int, stage: str) -> Score:
        """The client's area under the curve, weighted by its edges."""
        right, wrong = getattr(self.parts[client], stage), self.strangers(client, stage)
        if not len(right):
            return Score(why=f"no {stage} edges")
        if not len(wrong):
            return Score(why="all of its nodes are neighbours")

        def scores(pairs: Rows) -> NDArray[np.float64]:
            ends = torch.tensor(np.searchsorted(learner.ids, pairs), device=self.how.device)
            one, other = (learner.shared[end].float() for end in ends.unbind(1))
            return self.model.pairs(one, other).double().cpu().numpy()

        return Score(len(right), {"auc": auc(scores(right), scores(wrong)) * len(right)})

    def metrics(self, score: Score) -> dict[str, float | None]:
        """The mean over the clients, by their numbers of edges."""
        return {"auc": score.totals["auc"] / score.cases if score.cases else None}

    def messages(self) -> list[str]:
        """Clients without training or test edges, and nodes that only test edges name."""
        found = []
        for n, (name, part) in enumerate(zip(self.clients, self.parts, strict=True)):
            if not len(part.train):
                found.append(f"{name} has no training edges: its embeddings come only from the others")
            if not len(part.test):
                found.append(f"{name} has no test edges: it has no metrics, and counts in no mean")
            elif not len(self.strangers(n, "test")):
                found.append(f"{name}: all of its nodes are neighbours: there is no AUC, and it counts in no mean")
            new = np.setdiff1d(part.test, part.train)
            if len(part.train) and len(new):
                found.append(f"{name}: {len(new)} nodes of its test edges are in none of its training edges")
        return found
