"""The form "keyed" with clients whose numbers depend on how, or in which order, their user writes names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.audit.mutants.epochs import within
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.tables import Tables
from secea.party.phases import Agreement
from secea.table import Name

_values, _enter, _restore = KeyedClient._values, KeyedClient.enter, KeyedClient.restore


@contextmanager
def _spelt(part: KeyedClient) -> Iterator[None]:
    """As if its user's spelling were the names."""
    names = part.naming.names
    part.naming.names = replace(names, own=part.spelling.names(names.own))
    try:
        yield
    finally:
        part.naming.names = names


def _as_it_is_spelt(self: KeyedClient, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fill of the user's spelling."""
    with _spelt(self):
        return _values(self, own)


def _by_place(self: Tables, names: tuple[Name, ...]) -> NDArray[np.uint64]:
    """The fill of a name's place among all names."""
    return grid.entities([f"{i}" for i in range(len(names))], self.fill[-1])


def _kept_as_spelt(self: KeyedClient, at: Agreement) -> None:
    """What went out is known by the user's spelling."""
    _enter(self, at)
    if at.phase == self.form.round_phase:
        self.released = replace(self.released, names=self.spelling.names(self.released.names))


def _as_asked(self: KeyedClient, plain: Mapping[str, object]) -> None:
    """The user's spelling is lost with the process."""
    _restore(self, {**plain, "spelled": {}})


FILL_AS_SPELT = within(
    "fill-as-spelt",
    "The fill is keyed by a name as its user spells it, not by the text that `normalize` gives.",
    KeyedClient,
    "_values",
    _as_it_is_spelt,
)
FILL_BY_PLACE = within(
    "fill-by-place", "The fill is keyed by the place of a name among all names.", Tables, "hashed", _by_place
)
SAVED_AS_SPELT = within(
    "saved-as-spelt",
    "A client knows what it uploaded by its user's spelling.",
    KeyedClient,
    "enter",
    _kept_as_spelt,
)
SPELLING_LOST = within(
    "spelling-lost", "A client that restarts forgets its user's spelling.", KeyedClient, "restore", _as_asked
)
