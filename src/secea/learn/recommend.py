"""Rating prediction by matrix factorisation with biases: item factors are shared, users and all biases stay local."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secea.learn.data import Dataset, Part, Rows
from secea.learn.learner import Learner, Score, Training, first_rows

SPREAD: Final = 0.1
SHRINK: Final = 0.1
"""The weight of squared factors in the loss."""
SHRINK_BIAS: Final = 0.3
"""The weight of squared biases."""


class RatingLearner(Learner):
    """rating = mean + user's bias + item's bias + user * item."""

    def __init__(
        self, number: int, ids: NDArray[np.int64], users: NDArray[np.int64], data: Dataset, ratings: Rows, dim: int,
        how: Training,
    ) -> None:  # fmt: skip
        items = first_rows([data.entities[i] for i in ids], dim, SPREAD, how.seed, "item")
        people = first_rows([data.others[i] for i in users], dim, SPREAD, how.seed, "user")
        own = {
            "user": people,
            "user bias": np.zeros(len(users), np.float32),
            "item bias": np.zeros(len(ids), np.float32),
        }
        super().__init__(number, ids, items, own, how)
        self.users = users
        self.mean = float(ratings[:, 2].mean()) if len(ratings) else 0.0
        places = np.searchsorted(users, ratings[:, 0]), np.searchsorted(ids, ratings[:, 1])
        self._user, self._item = (torch.tensor(each, device=how.device) for each in places)
        self._rating = torch.tensor(ratings[:, 2].astype(np.float32), device=how.device)

    @property
    def examples(self) -> int:
        """Its training ratings."""
        return len(self._rating)

    def predict(self, user: Tensor, item: Tensor) -> Tensor:
        """Predicted ratings of users and items, given by place."""
        own = self.own
        bias = self.mean + own["user bias"][user] + own["item bias"][item]
        return bias + (own["user"][user] * self.shared[item].float()).sum(-1)

    def loss(self, picked: Tensor, drawn: Tensor) -> Tensor:
        """The squared error, and what keeps factors small."""
        user, item = self._user[picked], self._item[picked]
        error = (self.predict(user, item) - self._rating[picked]).square().mean()
        size = self.own["user"][user].square().sum(-1) + self.shared[item].float().square().sum(-1)
        bias = self.own["user bias"][user].square() + self.own["item bias"][item].square()
        return error + SHRINK * size.mean() + SHRINK_BIAS * bias.mean()


class Recommendation:
    """The task: who has which ratings."""

    metric, better = "rmse", "lower"

    def __init__(self, data: Dataset, parts: Sequence[Part], clients: Sequence[str], dim: int, how: Training) -> None:
        self.data, self.parts, self.clients, self.width, self.how = data, parts, clients, dim, how
        self.users, self.ids = ([np.unique(part.all[:, c]).astype(np.int64) for part in parts] for c in (0, 1))
        scale = np.concatenate([part.train[:, 2] for part in parts])
        self.lowest, self.highest = (float(scale.min()), float(scale.max())) if len(scale) else (0.0, 0.0)

    def learner(self, client: int | None) -> Learner:
        """The learner of a client, or (None) of all ratings together."""
        some = range(len(self.parts)) if client is None else [client]
        users, ids = (np.unique(np.concatenate([all_[n] for n in some])) for all_ in (self.users, self.ids))
        train = np.concatenate([self.parts[n].train for n in some])
        number = len(self.parts) if client is None else client
        return RatingLearner(number, ids, users, self.data, train, self.width, self.how)

    @torch.no_grad()
    def evaluate(self, learner: Learner, client: int, stage: str) -> Score:
        """Squared errors; predictions are kept on the scale of the ratings."""
        assert isinstance(learner, RatingLearner)
        rows = getattr(self.parts[client], stage)
        if not len(rows):
            return Score(why=f"no {stage} ratings")
        places = np.searchsorted(learner.users, rows[:, 0]), np.searchsorted(learner.ids, rows[:, 1])
        user, item = (torch.tensor(each, device=self.how.device) for each in places)
        error = learner.predict(user, item).clamp(self.lowest, self.highest).double().cpu().numpy() - rows[:, 2]
        return Score(len(rows), {"squares": float(np.square(error).sum()), "sizes": float(np.abs(error).sum())})

    def metrics(self, score: Score) -> dict[str, float | None]:
        """Root of the mean square, and mean size, of the errors."""
        if not score.cases:
            return {"rmse": None, "mae": None}
        return {"rmse": (score.totals["squares"] / score.cases) ** 0.5, "mae": score.totals["sizes"] / score.cases}

    def messages(self) -> list[str]:
        """Clients without training or test ratings, and what only their test ratings name."""
        found = []
        for name, part in zip(self.clients, self.parts, strict=True):
            if not len(part.train):
                found.append(f"{name} has no training ratings: its item factors come only from the others")
            if not len(part.test):
                found.append(f"{name} has no test ratings: it has no metrics, and counts in no mean")
            for what, column in (("users", 0), ("items", 1)):
                new = np.setdiff1d(part.test[:, column], part.train[:, column])
                if len(part.train) and len(new):
                    found.append(f"{name}: {len(new)} {what} of its test ratings are in none of its training ratings")
        return found
