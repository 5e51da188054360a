"""Bring your own model: rows of embeddings by entity name, out of a model and back into it.

`Rows` is the interface. `secea.adapters.torch`, `.pykeen`, `.gensim` and `.numpy` have it for their kinds of models;
each needs its library, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from secea.arithmetic.fixedpoint import Floats
from secea.engines.host import Participant
from secea.errors import TableError
from secea.table import Name, Table, TableLike, as_table

__all__ = ["Kept", "Rows", "participant"]


class Rows(Protocol):
    """The embeddings of some entities in a model."""

    @property
    def names(self) -> tuple[Name, ...]:
        """The entities, in the order of the table."""

    @property
    def width(self) -> int:
        """Numbers per entity: `Params.dim` of the federation."""

    def table(self) -> Table:
        """A copy of what the model has now: what goes into a round."""

    def load(self, means: TableLike) -> None:
        """Means back into the model, in place. On an error nothing has changed."""


def in_order(names: tuple[Name, ...], width: int, means: TableLike) -> Floats:
    """The matrix of the means in the order of a model's names; refuses means of other entities, or of another width."""
    table = as_table(means)
    if len(names) and table.dim != width:
        raise TableError(f"the means have {table.dim} numbers per entity, the model has {width}")
    if tuple(table.names) == names:
        return table.matrix
    place = {name: i for i, name in enumerate(table.names)}
    for name in place.keys() - set(names):
        raise TableError(f"there is a mean of {name!r}, which the model does not have")
    for name in set(names) - place.keys():
        raise TableError(f"there is no mean of {name!r}, which the model has")
    return table.matrix[[place[name] for name in names]]


class Kept(Protocol):
    """What of a model outlives the process that it is in: relations, the output layer, the optimizer."""

    def load(self) -> object:
        """Take what was saved last, if anything was."""

    def save(self) -> object:
        """Save all of it, or nothing."""


def _nothing() -> None:
    """For those who want nothing at the end."""


def participant(
    rows: Rows, train: Callable[[int], object], done: Callable[[], object] = _nothing, *, keep: Kept | None = None
) -> Participant:
    """What a site brings to any engine: its rows, and a function that trains the model on the site's own data.

    In each round the means of the last one are in the model when `train(round)` is called; after a round that was lost,
    what the model had before. At the end the last means are in it when `done()` is called. A crash starts a new
    process: what the model has beside its rows survives that with `keep` alone.
    """
    if keep:
        keep.load()

    def one_round(means: Table | None, number: int) -> Table:
        if means is not None:
            rows.load(means)
        train(number)
        if keep:
            keep.save()
        return rows.table()

    def end(means: Table | None) -> None:
        if means is not None:
            rows.load(means)
        if keep:
            keep.save()
        done()

    return Participant(lambda: rows.names, one_round, end)
