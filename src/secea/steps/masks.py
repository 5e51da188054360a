"""Masks that cancel: who masks with whom, and the key stream of each pair (section K4).

All members' masks add up to nothing. The graph of pairs stays connected without any T + D of its members, so of what
the others upload only their sum opens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from secea.arithmetic import streams
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.ristretto import ORDER, scalar_of
from secea.steps.oprf import holder_weight
from secea.wire.keys import expand
from secea.wire.randomness import KeyStream


def neighbours(members: Sequence[int], degree: int, me: int) -> tuple[int, ...]:
    """The members that `me` shares masks with: Harary's graph of this connectivity, over the members in order.

    Each is joined to the nearest on both sides, and, for an odd degree, to the one opposite.
    """
    size, at, near = len(members), members.index(me), degree // 2
    places = {(at + step) % size for step in range(-near, near + 1)}
    if degree % 2:
        places |= _opposite(at, size)
    return tuple(members[i] for i in sorted(places - {at}))


def _opposite(at: int, size: int) -> set[int]:
    """The edges i, i + half for i = 0..half-1: in an odd circle place 0 has two of them."""
    half = (size + 1) // 2
    edges = [(i, (i + half) % size) for i in range(half)]
    return {b if a == at else a for a, b in edges if at in (a, b)}


def pair_seed(pair_key: bytes, context: bytes, q: int) -> bytes:
    """The key of a pair's masks in attempt q; `context` is L, the digest of the union."""
    return expand(pair_key, "mask", context, b"%d" % q)


def self_seed(seed: bytes, context: bytes, q: int) -> bytes:
    """The key of a client's own mask in attempt q."""
    return expand(seed, "self mask", context, b"%d" % q)


def scalars(stream: KeyStream, count: int) -> list[int]:
    """Uniform secrets, which can be shared."""
    return [scalar_of(stream.bytes(64)) for _ in range(count)]


def shares(secret: int, threshold: int, clients: Sequence[int], stream: KeyStream) -> dict[int, int]:
    """Client n: Shamir's shares of a secret, one for each client; `threshold` of them give it, fewer give nothing."""
    rest = scalars(stream, threshold - 1)
    dealt = {}
    for v in clients:
        value = 0
        for coefficient in reversed(rest):
            value = (value + coefficient) * (v + 1)  # it grows by a few bits only: reduced once, at the end
        dealt[v] = (value + secret) % ORDER
    return dealt


def weights_at_zero(clients: Sequence[int]) -> Mapping[int, int]:
    """What each client's share counts in the secret."""
    return _weights_at_zero(tuple(clients))


@lru_cache(maxsize=16)  # mostly the same clients open all secrets of a round
def _weights_at_zero(clients: tuple[int, ...]) -> Mapping[int, int]:
    return {v: holder_weight(clients, v) for v in clients}


def recovered(given: Mapping[int, int], weights: Mapping[int, int]) -> int:
    """The server: the secret, from the shares of those who have weights."""
    return sum(weights[v] * given[v] for v in weights) % ORDER


def add_masks(ring: Ring, rows: Residues, me: int, seeds: Mapping[int, bytes], lane: int) -> None:
    """Client n: add its masks with each neighbour, plus where n is the lower number; one lane for each chunk."""
    signs = [1 if me < v else -1 for v in seeds]
    streams.add_streams(ring, rows, list(seeds.values()), signs, lane)
