"""The private entity union: everyone's tags in one list, and nothing about who has which (section 4).

Each client writes its tags into a lookup table of random linear weights. The tables are added under pairwise masks, so
the server sees only the total. The total depends only on the union, because the sum of any owners' uniform weights is
uniform. The server takes the total apart cell by cell, in linear time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61, RING61, Residues, Ring
from secea.table import Name, name_bytes
from secea.wire.randomness import Source

Words = NDArray[np.uint64]

HASHES: Final = 3
COLUMNS: Final = 3  # weight, weight * tag, weight * check(tag)
SPARE_CELLS: Final = 900  # in a small table two tags may share all their cells: room that makes it rare
PEELED_AT_ONCE: Final = 1 << 18  # cells that are looked at together, which takes memory
MOST_PASSES: Final = 200  # of peeling; unions of a million tags take 14


def tags_of(names: Sequence[Name], key: bytes) -> Words:
    """Client n: the tag of each name, a keyed hash cut to 61 bits."""
    return tags_of_keys([name_bytes(name) for name in names], key)


def tags_of_keys(keys: Iterable[bytes], key: bytes) -> Words:
    """Client n: the tag of each entity from the PRF of its name, under a key of the union."""
    hashed = b"".join(hashlib.blake2b(each, digest_size=8, key=key).digest() for each in keys)
    return (np.frombuffer(hashed, "<u8").astype(np.uint64) >> np.uint64(3)) % np.uint64(M61)


def _mixed(x: Words, key: int) -> Words:
    """A fixed bijection of 64-bit words that spreads them (the finaliser of SplitMix64); tags are already uniform."""
    z = (x ^ np.uint64(key)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Geometry:
    """The public shape of one lookup table: its size, and the hash functions that a public seed gives."""

    third: int
    keys: tuple[int, int, int, int]

    @classmethod
    def of(cls, max_union: int, attempt: int, seed: bytes) -> Geometry:
        """For a union of at most max_union tags; each further attempt has a larger table and other hashes."""
        cells = (max_union * 14 + 9) // 10 + SPARE_CELLS
        cells += cells * attempt // 4
        words = hashlib.blake2b(seed, digest_size=32, person=b"secea union").digest()
        keys = np.frombuffer(words, "<u8").tolist()
        return cls(-(-cells // HASHES), (keys[0], keys[1], keys[2], keys[3]))

    @property
    def cells(self) -> int:
        """The number of cells."""
        return HASHES * self.third

    def positions(self, tags: Words) -> NDArray[np.int64]:
        """The cells of each tag, [tags, 3]: one in each third of the table."""
        third = np.uint64(self.third)
        columns = [(_mixed(tags, key) >> np.uint64(32)) * third >> np.uint64(32) for key in self.keys[:HASHES]]
        return np.stack(columns, axis=-1).astype(np.int64) + np.arange(HASHES) * self.third

    def checks(self, tags: Words) -> Words:
        """check(tag): a field element that confirms a tag read from a cell."""
        return (_mixed(tags, self.keys[HASHES]) >> np.uint64(3)) % np.uint64(M61)


def _scatter(table: Residues, cells: NDArray[np.int64], values: Residues, ring: Ring) -> None:
    """table[cells] += values, modulo p; cells may repeat. Linear, without a loop over elements."""
    order = np.argsort(cells, kind="stable")
    cells, rows = cells[order], np.ascontiguousarray(values[:, order])
    while cells.size:  # each pass adds the first of the entries that fall into the same cell: a few passes
        first = np.r_[True, cells[1:] != cells[:-1]]
        target = cells[first]
        table[:, target] = ring.add(np.ascontiguousarray(table[:, target]), np.ascontiguousarray(rows[:, first]))
        cells, rows = cells[~first], np.ascontiguousarray(rows[:, ~first])


def _entries(tags: Words, weights: Words, geometry: Geometry, ring: Ring) -> Residues:
    """(w, w * tag, w * check(tag)) for each tag, [1, tags, 3]."""
    w = weights[None]
    columns = [w, ring.multiply(w, tags[None]), ring.multiply(w, geometry.checks(tags)[None])]
    return np.stack(columns, axis=-1)


def fill(tags: Words, geometry: Geometry, source: Source, ring: Ring = RING61) -> Residues:
    """Client n: its own lookup table, with a fresh uniform weight (zero included) for each tag: [1, cells, 3]."""
    table = ring.zeros(geometry.cells, COLUMNS)
    weights = source.elements(ring, tags.size)[0]
    entries = _entries(tags, weights, geometry, ring)
    positions = geometry.positions(tags)
    for h in range(HASHES):
        _scatter(table, positions[:, h], entries, ring)
    return table


def mask(table: Residues, me: int, streams: Iterable[tuple[int, Source]], ring: Ring = RING61) -> Residues:
    """Client n: add the pairwise masks, in place; those of a pair cancel in the total."""
    for peer, stream in streams:
        stretch = stream.elements(ring, *table.shape[1:])
        (ring.add_into if me < peer else ring.subtract_into)(table, stretch)
    return table


def peel(total: Residues, geometry: Geometry, ring: Ring = RING61) -> Words | None:
    """The server: all tags of the total, sorted; None where the peeling stalls (the table is too full)."""
    table = total.copy()
    found: list[Words] = []
    look: NDArray[np.int64] = np.arange(geometry.cells)
    for _ in range(MOST_PASSES):  # a malformed table could take for ever
        touched = []
        for start in range(0, look.size, PEELED_AT_ONCE):
            fresh, positions = _peeled(table, look[start : start + PEELED_AT_ONCE], geometry, ring)
            found.append(fresh)
            touched.append(positions.reshape(-1))
        look = np.unique(np.concatenate(touched))
        if not look.size:
            break
    if table.any():
        return None
    return np.sort(np.concatenate([np.zeros(0, np.uint64), *found]))


def _peeled(
    table: Residues, look: NDArray[np.int64], geometry: Geometry, ring: Ring
) -> tuple[Words, NDArray[np.int64]]:
    """Take the tags that stand alone in one of these cells out of the table: the tags, and all their cells."""
    cells = np.ascontiguousarray(table[:, look])
    weight, tagged, checked = (np.ascontiguousarray(cells[:, :, column]) for column in range(COLUMNS))
    tags = ring.multiply(tagged, ring.inverse(weight))[0]
    pure = (weight[0] != 0) & (ring.multiply(weight, geometry.checks(tags)[None])[0] == checked[0])
    positions = geometry.positions(tags)
    pure &= (positions == look[:, None]).any(axis=1)
    fresh, at = np.unique(tags[pure], return_index=True)
    weights, positions = weight[0][pure][at], positions[pure][at]
    entries = ring.subtract(ring.zeros(fresh.size, COLUMNS), _entries(fresh, weights, geometry, ring))
    for h in range(HASHES):
        _scatter(table, positions[:, h], entries, ring)
    return fresh, positions
