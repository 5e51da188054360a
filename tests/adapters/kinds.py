"""Models of every kind for three sites with overlapping entities, each with its rows and a way to look at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from gensim.models import KeyedVectors
from numpy.typing import NDArray
from pykeen.models import RotatE
from pykeen.triples import TriplesFactory
from torch import nn

from secea.adapters import Rows
from secea.adapters.gensim import GensimRows
from secea.adapters.numpy import NumpyRows
from secea.adapters.pykeen import pykeen_rows
from secea.adapters.torch import TorchRows
from secea.adapters.weights import Weights

SITES: Final = (["a", "b", "c", "d"], ["b", "c", "x"], ["d", "a", "b", "e", "f"])
DIM: Final = 6


@dataclass
class Model:
    """Rows, and what the model has behind them by now, one line per entity."""

    rows: Rows
    look: Callable[[], NDArray[Any]]
    train: Callable[[int], object]
    """Change the row of an entity, given by its place."""


def numpy_model(names: list[str], seed: int, dtype: Any = np.float32, weights: Weights | None = None) -> Model:
    matrix = np.random.default_rng(seed).normal(size=(len(names), DIM)).astype(dtype)
    return Model(NumpyRows(names, matrix, weights=weights), matrix.copy, lambda i: np.add(matrix[i], 1, matrix[i]))


def torch_model(
    names: list[str], seed: int, dtype: torch.dtype = torch.float32, weights: Weights | None = None
) -> Model:
    torch.manual_seed(seed)
    embedding = nn.Embedding(len(names), DIM, dtype=dtype)
    rows = TorchRows(names, [embedding], optimizer=None, state="keep", weights=weights)
    data = embedding.weight.detach()
    return Model(rows, lambda: data.clone().float().numpy(), lambda i: data[i].add_(1))


def split_model(names: list[str], seed: int, weights: Weights | None = None) -> Model:
    """Real part, imaginary part, bias, and complex numbers; the entities are some of the rows, backwards."""
    torch.manual_seed(seed)
    real, imaginary = nn.Embedding(9, 1), nn.Embedding(9, 1)
    bias, phases = (
        nn.Parameter(torch.randn(9, dtype=torch.float64)),
        nn.Parameter(torch.randn(9, 1, dtype=torch.cfloat)),
    )
    more = torch.randn(9, 1, 1)
    places = {name: 8 - i for i, name in enumerate(names)}
    rows = TorchRows(places, [real, imaginary, bias, phases, more], optimizer=None, state="keep", weights=weights)

    def look() -> NDArray[Any]:
        columns = [real.weight, imaginary.weight, bias[:, None], phases.real, phases.imag, more[:, 0]]
        joined: NDArray[Any] = torch.cat([each.detach().double() for each in columns], dim=1).numpy()
        return joined[list(places.values())]

    return Model(rows, look, lambda i: bias.detach()[8 - i].add_(1))


def factory_of(names: list[str]) -> TriplesFactory:
    triples = np.array([[names[i - 1], "knows", name] for i, name in enumerate(names)], dtype=str)
    return TriplesFactory.from_labeled_triples(triples)


def pykeen_model(names: list[str], seed: int, weights: Weights | None = None) -> Model:
    factory = factory_of(names)
    model = RotatE(triples_factory=factory, embedding_dim=DIM // 2, random_seed=seed)
    rows = pykeen_rows(model, factory, optimizer=None, state="keep", weights=weights)
    data = next(model.entity_representations[0].parameters()).detach()

    def look() -> NDArray[Any]:
        complex_rows = model.entity_representations[0](indices=None).detach()
        found: NDArray[Any] = torch.view_as_real(complex_rows).reshape(len(names), DIM).clone().numpy()
        return found

    return Model(rows, look, lambda i: data[i].add_(1))


def gensim_model(names: list[str], seed: int, weights: Weights | None = None) -> Model:
    vectors = KeyedVectors(DIM)
    vectors.add_vectors(names, np.random.default_rng(seed).normal(size=(len(names), DIM)).astype(np.float32))
    data = vectors.vectors
    return Model(GensimRows(vectors, weights=weights), data.copy, lambda i: np.add(data[i], 1, data[i]))


KINDS: Final[dict[str, Callable[..., Model]]] = {
    "numpy": numpy_model,
    "torch": torch_model,
    "torch, several tensors": split_model,
    "pykeen": pykeen_model,
    "gensim": gensim_model,
}
