"""An adapter for PyKEEN's knowledge graph models: the entities of a triples factory, with all their representations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secea.adapters.torch import State, TorchRows
from secea.adapters.weights import Weights
from secea.errors import TableTypeError

if TYPE_CHECKING:
    from pykeen.models import ERModel
    from pykeen.triples import CoreTriplesFactory
    from torch.optim import Optimizer


def pykeen_rows(
    model: ERModel,
    factory: CoreTriplesFactory,
    *,
    optimizer: Optimizer | None,
    state: State,
    weights: Weights | None = None,
) -> TorchRows:
    """The rows of all entity representations of `model`, with the labels of `factory` as names.

    For the other arguments see `TorchRows`. Relations stay at their site. If a model constrains its weights after each
    step (TransE: rows of length one), it will do so to the means too, after the next step. All rows change then, and
    with `weights="trained"` all count as trained.
    """
    from pykeen.nn.representation import Embedding

    labels = getattr(factory, "entity_to_id", None)
    if labels is None:
        raise TableTypeError(
            f"a {type(factory).__name__} has no entity_to_id: entities of a federation need their names"
        )
    for each in model.entity_representations:
        if not isinstance(each, Embedding):
            kind = type(each).__name__
            raise TableTypeError(f"{type(model).__name__} has no row for each entity: it makes them by {kind}")
    tensors = [each._embeddings for each in model.entity_representations]
    return TorchRows(labels, tensors, optimizer=optimizer, state=state, weights=weights)
