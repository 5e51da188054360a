"""PyTorch models as the user's module of the engines' tests: their rows are what `trial` asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import trial
from secea import adapters
from secea.adapters.torch import Checkpoint, TorchRows
from secea.engines.host import Means, Participant
from secea.table import as_table


class Model(nn.Module):
    """Rows, and something that never leaves the site: how often it was trained."""

    trainings: torch.Tensor

    def __init__(self, entities: int, dim: int) -> None:
        super().__init__()
        self.items = nn.Embedding(entities, dim, dtype=torch.float64)
        self.register_buffer("trainings", torch.tensor(0))


def modelled(inner: Participant, dim: int, path: Path) -> Participant:
    """A participant whose table is in a model: it is given means from there, and what it gives goes there."""
    names = list(inner.names())
    model = Model(len(names), dim)
    rows = TorchRows(names, [model.items], optimizer=None, state="keep")

    def means() -> Means:
        table = rows.table()
        return Means(table.names, table.matrix)

    @torch.no_grad()
    def train(round: int) -> None:
        given = as_table(inner.train(means() if model.trainings else None, round))
        model.items.weight.copy_(torch.from_numpy(given.matrix))
        model.trainings += 1

    return adapters.participant(rows, train, lambda: inner.done(means()), keep=Checkpoint(path, model=model))


def participant(**arguments: Any) -> Participant:
    """What the site's file names."""
    inner = trial.participant(**arguments)
    return modelled(inner, arguments["dim"], Path(arguments["folder"]) / "model.pt")
