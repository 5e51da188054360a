"""The shape of the queries: which entities of the union each query runs over (section 6).

`Buckets` hashes the union into public buckets, every tag into three of them; a client puts each of its own entities
into one of that entity's buckets, one entity at most in each (cuckoo hashing), and sends one query per bucket, as
long as the bucket: three times the union in all, whatever the client owns. `Full` is the paper's: each query runs
over the union.

The layout is public. The placement is secret, and nothing public depends on it except that it exists.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.steps.union import HASHES, Geometry, Words
from secea.wire.randomness import KeyStream

Rows: TypeAlias = NDArray[np.int64]
"""Rows of the union, buckets, or positions in a set of queries."""

EMPTY: Final = -1
"""The row of a query that asks for nothing: the caller sends a dummy."""

SPARE: Final = 5
"""Buckets in each third beyond half of `max_entities`: what makes a failure rare in small tables."""

FAILURE: Final = 2.0**-20
"""No set of at most `max_entities` entities fails to be placed with a larger probability over the public seed.

A union bound over all sets of k+1 entities in k buckets, for random hash functions, stays below 3.9e-7; it is worst at
14 entities, and falls with the fifth power of the size. `python bench/cuckoo.py 100000000` computes it and counts:
1 failure in 25,000,000 trials at 4 entities, 5 in 10,000,000 at 10, 3 in 7,142,500 at 14, none in 1,000,000 at 100, in
100,000 at 1,000, in 10,000 at 10,000 and in 1,000 at 100,000.
"""

ROUNDS: Final = 2000
"""Evictions in a row after which a placement is given up. Those that succeeded took 72 at most."""


def bucket_count(max_entities: int) -> int:
    """B, the same for all clients: 1.5 times the bound and a few more; a multiple of 3.

    Up to three entities always find places in three buckets.

    >>> bucket_count(3), bucket_count(100), bucket_count(200_000)
    (3, 165, 300015)
    """
    if max_entities < 0:
        raise ValueError(f"max_entities must not be negative, got {max_entities}")
    return HASHES if max_entities <= HASHES else HASHES * (-(-max_entities // 2) + SPARE)


@dataclass(frozen=True, eq=False)
class Buckets:
    """The union's tags in public buckets. A public seed puts each tag into one bucket of each third.

    No single party may choose the seed: it could look for one that puts four tags into the same three buckets, and see
    by a failure that one client has all four.

    >>> b = Buckets(np.array([3, 5, 8], np.uint64), 6, bytes(32))
    >>> b.positions, b.starts.tolist(), b.members.tolist()
    (9, [0, 1, 3, 5, 6, 6, 9], [1, 0, 2, 0, 2, 1, 0, 1, 2])
    """

    tags: Words = field(repr=False)
    """The union, M sorted tags."""
    count: int
    """B, the number of buckets and of queries."""
    seed: bytes

    def __post_init__(self) -> None:
        if self.count < HASHES or self.count % HASHES:
            raise ValueError(f"the number of buckets must be a positive multiple of {HASHES}, got {self.count}")

    @property
    def positions(self) -> int:
        """The length of all queries together: 3M, whatever the seed."""
        return HASHES * self.tags.size

    @cached_property
    def _geometry(self) -> Geometry:
        words = hashlib.blake2b(self.seed, digest_size=32, person=b"secea buckets").digest()
        keys = np.frombuffer(words, "<u8").tolist()
        return Geometry(self.count // HASHES, (keys[0], keys[1], keys[2], keys[3]))

    def homes(self, rows: Rows) -> Rows:
        """Hash rows of the union to their three buckets, [rows, 3]."""
        return self._geometry.positions(self.tags[rows])

    @cached_property
    def _layout(self) -> tuple[Rows, Rows]:
        homes = self._geometry.positions(self.tags)
        sizes = np.bincount(homes.reshape(-1), minlength=self.count)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        # Bucket and row in one word sort three times as fast as by argsort; each third holds every row once.
        words = [np.sort(_packed(homes[:, h], np.arange(self.tags.size))) & _ROW for h in range(HASHES)]
        members = np.concatenate(words)
        starts.flags.writeable = members.flags.writeable = False
        return starts, members

    @property
    def starts(self) -> Rows:
        """Bucket b holds members[starts[b]:starts[b + 1]], [B + 1]."""
        return self._layout[0]

    @property
    def members(self) -> Rows:
        """The row at each position, ascending within a bucket, [3M]."""
        return self._layout[1]

    def position(self, rows: Rows, buckets: Rows) -> Rows:
        """Find the position of each row in its bucket, as an index into `members`."""
        if not (self.homes(rows) == buckets[:, None]).any(axis=1).all():
            raise ValueError("a row is not in the bucket that is given for it")
        words = _packed(np.repeat(np.arange(self.count), np.diff(self.starts)), self.members)
        return np.searchsorted(words, _packed(buckets, rows)).astype(np.int64, copy=False)

    def wanted(self, placement: Rows) -> Rows:
        """List the positions at which the queries of a placement are 1, ascending; they are 0 everywhere else."""
        placement = _checked(placement, self.count)
        buckets = np.flatnonzero(placement != EMPTY)
        return self.position(placement[buckets], buckets)


@dataclass(frozen=True)
class Full:
    """The paper's queries: `count` of them (max_entities), each over all `entities` of the union (M)."""

    entities: int
    count: int
    members: ClassVar[None] = None
    """Position j * M + m is row m: there is nothing to look up."""

    @property
    def positions(self) -> int:
        """The length of all queries together."""
        return self.count * self.entities

    @property
    def starts(self) -> Rows:
        """Query j begins at position starts[j], [count + 1]."""
        return np.arange(self.count + 1) * self.entities

    def wanted(self, placement: Rows) -> Rows:
        """List the positions at which the queries of a placement are 1, ascending; they are 0 everywhere else."""
        placement = _checked(placement, self.count)
        queries = np.flatnonzero(placement != EMPTY)
        return queries * self.entities + placement[queries]


Queries: TypeAlias = Buckets | Full
"""Both have `count`, `positions`, `starts`, `members` and `wanted`."""


def place(rows: Rows, queries: Queries, stream: KeyStream) -> Rows | None:
    """Client n: the row that each query asks for, or EMPTY; each own row once. None where no placement was found.

    The key stream is the client's secret. A failure is visible, because all start again with a new public seed. It
    tells that some k+1 of the client's entities had only k buckets, an event of probability `FAILURE` at most, and
    nothing that the stream decided: the search gives up only where there is no placement (tests compare it with exact
    matching). A success tells that the event is absent.
    """
    if rows.size > queries.count:
        raise ValueError(f"{rows.size} entities do not fit into {queries.count} queries")
    placement = np.full(queries.count, EMPTY, np.int64)
    if isinstance(queries, Full):
        # Shuffled: the number of a query shows neither how many are real nor where in the union its entity is.
        order = np.argsort(np.frombuffer(stream.bytes(8 * queries.count), "<u8"), kind="stable")
        placement[order[: rows.size]] = rows
        return placement
    table, homeless = evict(queries.homes(rows), queries.count, stream)
    if homeless.size:
        return None
    taken = table != EMPTY
    placement[taken] = rows[table[taken]]
    return placement


def evict(homes: Rows, count: int, stream: KeyStream) -> tuple[Rows, Rows]:
    """Cuckoo hashing, all at once: the item in each bucket, or EMPTY, and the items that found no place.

    In each round every item without a place bids for one of its homes, a free one if it can: the last bid gets the
    bucket, and the others and the previous item bid again. An item does not bid for the bucket that it was last thrown
    out of.
    """
    table = np.full(count, EMPTY, np.int64)
    last = np.full(len(homes), EMPTY, np.int64)  # the bucket that the item was thrown out of
    items = np.arange(len(homes))
    for _ in range(ROUNDS):
        if not items.size:
            break
        doors = homes[items]
        dice = np.frombuffer(stream.bytes(2 * doors.size), "<u2").reshape(doors.shape) >> 2
        score = dice + np.uint16(1 << 14) * (doors != last[items, None]) + np.uint16(1 << 15) * (table[doors] == EMPTY)
        bids = np.take_along_axis(doors, score.argmax(axis=1)[:, None], axis=1)[:, 0]
        there = table[bids]
        table[bids] = items  # where bids are equal, numpy keeps the last
        won = table[bids] == items
        out = won & (there != EMPTY)
        last[there[out]] = bids[out]
        items = np.concatenate([items[~won], there[out]])
    return table, items


_ROW: Final = (1 << 31) - 1  # rows and buckets are below 2^31 and 2^32: Params bounds the union and a client's entities


def _packed(buckets: Rows, rows: Rows) -> Rows:
    return buckets << 31 | rows


def _checked(placement: Rows, count: int) -> Rows:
    if placement.shape != (count,):
        raise ValueError(f"a placement of shape {placement.shape} for {count} queries")
    return placement
