"""The form "keyed" with a digest or a cache that forgets something."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.keyed import filling, mutant
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.shared import rows_under_keys
from secea.forms.keyed.tables import Tables
from secea.table import Name
from secea.wire.keys import digest


def _without_list(*parts: bytes) -> bytes:
    return digest(parts[0], parts[1], *parts[3:]) if parts[:1] == (b"L",) else digest(*parts)


def _half_of_it(*parts: bytes) -> bytes:
    return digest(*parts[:2], parts[2][: len(parts[2]) // 2], *parts[3:]) if parts[:1] == (b"L",) else digest(*parts)


class StaleFill(Tables):
    """Keeps the hashes of names as long as there are as many."""

    def hashed(self, names: tuple[Name, ...]) -> NDArray[np.uint64]:
        """Those of the first names."""
        if len(self._hashed[0]) != len(names):
            self._hashed = (), np.zeros(0, np.uint64)
            return super().hashed(names)
        return self._hashed[1]


class ShortChunks(KeyedClient):
    """Counts chunks in one byte."""

    def _mask(self, rows: Residues, seeds: Mapping[int, bytes], own_seed: bytes, chunk: int) -> None:
        super()._mask(rows, seeds, own_seed, chunk & 0xFF)


LIST_NOT_BOUND = replaced("list-not-bound", "L does not depend on the list of tags.", {digest: _without_list})
HALF_THE_LIST = replaced("half-the-list", "L depends on the first half of the tags.", {digest: _half_of_it})
STALE_FILL = mutant("stale-fill", "The fill of new names is that of the names before.", filling(StaleFill))
SHORT_ROUNDS = replaced(
    "g-of-256-rounds",
    "The key streams of rows begin again after 256 rounds.",
    {rows_under_keys: lambda ring, keys, q, dim: rows_under_keys(ring, keys, q & 0xFF, dim)},
)
SHORT_CHUNKS = mutant("masks-of-256-chunks", "Masks begin again after 256 chunks.", Overheard(of_client=ShortChunks))
