"""An adapter for PyKEEN's knowledge graph models: the entities of a triples factory, with all their representations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secea.adapters.torch import State, TorchRows
from secea.errors import TableTypeError

if TYPE_CHECKING:
    from pykeen.models import ERModel
    from pykeen.triples import CoreTriplesFactory
    from torch.optim import Optimizer


def pykeen_rows(model: ERModel, factory: CoreTriplesFactory, *, optimizer: Optimizer | None, state: State) -> TorchRows:
    """The rows of all entity representations of `model`, with the labels of `factory` as names.

    For the other arguments see `TorchRows`. Relations stay at their site. If a model constrains its weights after each
    step (TransE: rows of length one), it will do so to the means too, after the next step.
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
    return TorchRows(
        labels, [each._embeddings for each in model.entity_representations], optimizer=optimizer, state=state
    )
