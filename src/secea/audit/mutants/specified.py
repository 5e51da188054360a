"""The form "keyed" with a digest or a cache that forgets something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import portable
from secea.arithmetic._kernels import twin
from secea.arithmetic.field import Residues, Ring
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.keyed import filling, mutant
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.shared import rows_under_keys
from secea.forms.keyed.tables import Tables
from secea.steps.union import fill
from secea.table import Name
from secea.wire.keys import digest
from secea.wire.randomness import Source


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


class Repeating:
    """A source that runs dry, and begins again."""

    def __init__(self, source: Source, most: int) -> None:
        self._source, self._most = source, most

    def elements(self, ring: Ring, *shape: int) -> Residues:
        """So many, and then the same."""
        few = self._source.elements(ring, min(self._most, *shape))
        return np.stack([np.resize(each, shape) for each in few])


def _repeating(most: int) -> Callable[..., Residues]:
    return lambda tags, geometry, source: fill(tags, geometry, Repeating(source, most))


LIST_NOT_BOUND = replaced("list-not-bound", "L does not depend on the list of tags.", {digest: _without_list})
HALF_THE_LIST = replaced("half-the-list", "L depends on the first half of the tags.", {digest: _half_of_it})
STALE_FILL = mutant("stale-fill", "The fill of new names is that of the names before.", filling(StaleFill))
SHORT_ROUNDS = replaced(
    "g-of-256-rounds",
    "The key streams of rows begin again after 256 rounds.",
    {rows_under_keys: lambda ring, keys, q, dim: rows_under_keys(ring, keys, q & 0xFF, dim)},
)
SHORT_CHUNKS = mutant("masks-of-256-chunks", "Masks begin again after 256 chunks.", Overheard(of_client=ShortChunks))
SHORT_WEIGHTS = replaced(
    "weights-repeat", "The weights of a lookup table repeat after 1,024 tags.", {fill: _repeating(1 << 10)}
)
WEIGHTS_OF_ONE = replaced("one-weight", "All tags of a lookup table have the same weight.", {fill: _repeating(1)})


_encode: Any = portable.encode
_blocks_of, _weighted_sums = portable.blocks_of, cast(Any, twin.weighted_sums64)


def _half_as_wide(*args: Any) -> NDArray[np.int64]:
    """A fill of narrower numbers than it should have."""
    *first, w, used, step, cap = args
    filled: NDArray[np.int64] = _encode(*first, w // 2, used, step, cap)
    return filled


def _elsewhere(name: str, missing: str, owner: object, attribute: str, other: Any) -> Mutant:
    return Mutant(name, missing, {KEYED: Subject(Overheard(), within=((owner, attribute, other),))})


PORTABLE_FILL = _elsewhere(
    "fill-without-instructions", "Without AES instructions the fill is half as wide.", portable, "encode", _half_as_wide
)
PORTABLE_LANES = _elsewhere(
    "streams-without-instructions", "Without AES instructions all chunks have the same key streams.",
    portable, "blocks_of", lambda key, lane, prime, first, count: _blocks_of(key, 0, prime, first, count),
)  # fmt: skip
TWIN_SUMS = _elsewhere(
    "check-without-compiler", "Where loops could not be compiled, checks leave out the last column.",
    twin, "weighted_sums64", lambda *args: _weighted_sums(*args[:-1], args[-1] - 1),
)  # fmt: skip
