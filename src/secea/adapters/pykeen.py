"""An adapter for PyKEEN's knowledge graph models: the entities of a triples factory, with all their representations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secea.adapters.torch import State, TorchRows
from secea.adapters.weights import Weights
from secea.errors import CallError, TableTypeError

if TYPE_CHECKING:
    from pykeen.models import ERModel
    from pykeen.pipeline import PipelineResult
    from pykeen.triples import CoreTriplesFactory
    from torch import Tensor
    from torch.optim import Optimizer


def pykeen_rows(
    model: ERModel | PipelineResult,
    factory: CoreTriplesFactory | None = None,
    *,
    optimizer: Optimizer | None = None,
    state: State | None = None,
    weights: Weights | None = None,
) -> TorchRows:
    """The rows of all entity representations of a model, with the labels of its training triples as names.

    Give what PyKEEN's `pipeline` returns, or a model and its triples factory. For the other arguments see `TorchRows`.
    If you give `state` and no optimizer, it is that of the pipeline's training loop, which is there after
    `pipeline(..., clear_optimizer=False)`.

    Relations stay at their site. If a model constrains its weights after each step (TransE: rows of length one), it
    will do so to the means too, after the next step. All rows change then, and with `weights="trained"` all count as
    trained.
    """
    if hasattr(model, "training_loop"):
        result, model = model, model.model
        factory = result.training if factory is None else factory
        if optimizer is None and state is not None:
            optimizer = _optimizer(result)
    if factory is None:
        raise CallError(
            f"a {type(model).__name__} does not know the names of its entities: give the triples factory too, or what"
            " pykeen's pipeline returned"
        )
    return TorchRows(_labels(factory), _tables(model), optimizer=optimizer, state=state, weights=weights)


def _optimizer(result: PipelineResult) -> Optimizer:
    optimizer: Optimizer | None = result.training_loop.optimizer
    if optimizer is None:
        raise CallError(
            "the pipeline has cleared its optimizer, so it has no state: leave state out, or keep the optimizer with"
            " pipeline(..., clear_optimizer=False)"
        )
    return optimizer


def _labels(factory: CoreTriplesFactory) -> dict[str, int]:
    labels: dict[str, int] | None = getattr(factory, "entity_to_id", None)
    if labels is None:
        raise TableTypeError(
            f"a {type(factory).__name__} has no entity_to_id: entities of a federation need their names"
        )
    return labels


def _tables(model: ERModel) -> list[Tensor]:
    """One table for each representation of an entity."""
    from pykeen.nn.representation import Embedding

    for each in model.entity_representations:
        if not isinstance(each, Embedding):
            kind = type(each).__name__
            raise TableTypeError(f"{type(model).__name__} has no row for each entity: it makes them by {kind}")
    return [each._embeddings for each in model.entity_representations]
