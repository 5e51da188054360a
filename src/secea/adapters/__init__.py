"""Bring your own model: move embeddings, by entity name, out of a model and back into it.

`Rows` is the interface. `secea.adapters.torch`, `.pykeen`, `.gensim` and `.numpy` implement it for their kinds of
models, and `.private` puts differential privacy around any of them. Only the adapter that you import needs its library.
`participant` connects rows and your training function to any engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from secea.arithmetic.fixedpoint import Floats
from secea.engines.host import Participant
from secea.errors import TableError
from secea.table import Name, Table, TableLike, as_table, keys

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
        """A copy of the model's present embeddings, for the next round; with weights, where means are weighted."""

    def load(self, means: TableLike) -> None:
        """Write means back into the model, in place. On an error nothing changes.

        An entity without a mean comes with its own row, so that it stays as it was.
        """


def in_order(names: tuple[Name, ...], width: int, means: TableLike) -> Floats:
    """The means as a matrix, in the order of a model's names. Refuses means of other entities or of another width."""
    table = as_table(means)
    if len(names) and table.dim != width:
        raise TableError(f"the means have {table.dim} numbers per entity, the model has {width}")
    if tuple(table.names) == names:
        return table.matrix
    place = {entity: i for i, entity in enumerate(keys(tuple(table.names)))}
    own = keys(names)
    for entity in place.keys() - set(own):
        raise TableError(f"there is a mean for {table.names[place[entity]]!r}, which the model does not have")
    for name, entity in zip(names, own, strict=True):
        if entity not in place:
            raise TableError(f"there is no mean for {name!r}, which the model has")
    return table.matrix[[place[entity] for entity in own]]


class Kept(Protocol):
    """What a model needs besides its rows after a crash: for example relations, the output layer, the optimizer."""

    def load(self) -> object:
        """Load what was saved last, if anything was."""

    def save(self) -> object:
        """Save everything, or nothing at all."""


def _nothing() -> None:
    """The default for `done`: do nothing at the end."""


def participant(
    rows: Rows, train: Callable[[int], object], done: Callable[[], object] = _nothing, *, keep: Kept | None = None
) -> Participant:
    """A participant for any engine, made of a model's rows and a function that trains the model on the site's own data.

    When `train(round)` is called, the model has the means of the last round. After a lost round it has what it had
    before. When `done()` is called at the end, the model has the last means. A crash starts a new process. What the
    model has besides its rows survives that only with `keep`.
    """
    if keep:
        keep.load()

    def one_round(means: Table | None, number: int) -> Table:
        if means is not None:
            rows.load(means)
        train(number)
        table = rows.table()
        if keep:
            keep.save()  # after the table: with privacy, that counts a release
        return table

    def end(means: Table | None) -> None:
        if means is not None:
            rows.load(means)
        if keep:
            keep.save()
        done()

    return Participant(lambda: rows.names, one_round, end, rows.width)
