"""The server and one client together read what all others ask for: a documented limit of retrieval by reciprocals.

Every client knows rho and zeta. Without both, the openings of a query are values of F, the sum of q_m * count_m and
q_virtual: products of shared polynomials. A shared polynomial is its data plus Z * noise; Z is 0 at the betas, and the
noise has degree T - 1. So F = A + Z * L + Z^2 * Q, and at the betas (F - A) / Z is L: all of L, where T <= K. At the
bribed client's own point L is a sum over the bucket of its shares, times small unknown numbers: what is asked for, and
counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues
from secea.arithmetic.lagrange import Code
from secea.audit.recorded import Recorded, exact_integers
from secea.buckets import EMPTY
from secea.retrieval.reciprocal import open_masked
from secea.wire.keys import expand
from secea.wire.messages import Kind
from secea.wire.randomness import KeyStream

MOST_UNKNOWN: Final = 6
"""Unknown counts of one bucket that are searched for together; a few hundred thousand trials."""


@dataclass(frozen=True)
class View:
    """What the server and one client put together; queries are those of all contributors, in their order."""

    code: Code
    starts: NDArray[np.int64]
    """Query j runs over members[starts[j]:starts[j + 1]]: public."""
    members: NDArray[np.int64]
    opened: Mapping[int, Residues]
    """The server's: the openings of each client without rho and zeta, [P, clients, queries]."""
    bribed: int
    """Whose shares follow."""
    counts: Residues
    """Its share of the counts, [P, M]."""
    queries: Sequence[Residues]
    """Its shares of each contributor's queries, [P, positions + queries]; the virtual entity's come last."""


@dataclass
class Loot:
    """What was found: the row of the union that each query (contributor, number) asks for, and counts of rows."""

    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    """`EMPTY` for a dummy."""
    counts: dict[int, int] = field(default_factory=dict)


def view(run: Recorded, bribed: int = 0) -> View:
    """From what a recorded federation's server got, and what the bribed client has; no other secret is used."""
    code, client = run.session.code, run.clients[bribed]
    ring, shape, rho = code.ring, client.shape, client._rho()
    assert shape.members is not None
    stripped = {}
    for v in client.contributors:
        opening = np.concatenate([run.residues(hop) for hop in run.of(Kind.OPENING, sender=v)], axis=1)
        zeta = KeyStream(expand(client.secret, "zeta", client.query_context, b"%d" % client.weights, client._whose()))
        hidden = open_masked(code, ring.zeros(*rho.shape[1:]), rho, zeta, v)
        stripped[v] = ring.multiply(ring.subtract(opening.reshape(hidden.shape), hidden), ring.inverse(rho))
    counts = ring.zeros(client.M)
    for n in client.contributors:
        ring.add_into(counts, client.indicators[n])
    queries = [client.queries[n] for n in client.contributors]
    return View(code, shape.starts, shape.members, stripped, bribed, counts, queries)


def separated(seen: View) -> tuple[Residues, Residues]:
    """A, the count behind each query, and Z * L at the bribed client's point: [P, clients, queries] each."""
    code, ring = seen.code, seen.code.ring
    clients = sorted(seen.opened)[: code.need]
    values = [seen.opened[v] for v in clients]
    to_data = code.matrix(code.at(clients), code.data_points)
    counts = np.ascontiguousarray(ring.combine(to_data, values)[:, 0])
    rest = [_scaled(code, ring.subtract(x, counts), v, inverse=True) for v, x in zip(clients, values, strict=True)]
    linear = ring.combine(code.matrix(code.data_points, code.at([seen.bribed])), ring.combine(to_data, rest))
    return counts, _scaled(code, np.ascontiguousarray(linear[:, 0]), seen.bribed, inverse=False)


def _scaled(code: Code, x: Residues, v: int, *, inverse: bool) -> Residues:
    """Multiply by Z(alpha_v), or divide by it."""
    z = code.ring.constant(int(np.prod([code.alpha[v] - beta for beta in code.data_points], dtype=object)))
    z = z.reshape(-1, *[1] * (x.ndim - 1))
    z = np.ascontiguousarray(np.broadcast_to(z, x.shape))
    return code.ring.multiply(x, code.ring.inverse(z) if inverse else z)


def read_queries(seen: View) -> Loot:
    """Search each bucket for what fits the equation; counts that are known make larger buckets easy."""
    ring, positions = seen.code.ring, seen.members.size
    opened, linear = (exact_integers(ring, x) for x in separated(seen))
    counts, queries = exact_integers(ring, seen.counts), [exact_integers(ring, x) for x in seen.queries]
    loot, left = Loot(), {(i, j) for i in range(len(queries)) for j in range(seen.starts.size - 1)}
    rows = [seen.members[start:stop].tolist() for start, stop in zip(seen.starts, seen.starts[1:], strict=False)]
    while left:
        unknown = {(i, j): sum(row not in loot.counts for row in rows[j]) for i, j in left}
        i, j = min(left, key=lambda query: (unknown[query], query))
        if unknown[i, j] > MOST_UNKNOWN:
            break
        left.discard((i, j))
        if not 0 < opened[i, j] <= seen.code.N:
            continue
        # Z * L = count share of what is asked for + sum of count * query share - twice its count, and the virtual one's
        weights = dict(zip(rows[j], queries[i][seen.starts[j] : seen.starts[j + 1]].tolist(), strict=True))
        known = loot.counts
        for row in (EMPTY, *rows[j]):
            target = linear[i, j] - queries[i][positions + j] + (1 if row == EMPTY else 2 * opened[i, j] - counts[row])
            guess = known if row == EMPTY else {row: int(opened[i, j])} | known
            if guess.get(row, 1) != opened[i, j]:
                continue
            target -= sum(guess[m] * weight for m, weight in weights.items() if m in guess)
            lacking = [m for m in rows[j] if m not in guess]
            found = small_sum(target, [weights[m] for m in lacking], seen.code.N, ring.modulus)
            if found is not None:
                loot.asked[i, j], loot.counts = row, guess | dict(zip(lacking, found, strict=True))
                break
    return loot


def small_sum(target: int, weights: Sequence[int], most: int, modulus: int) -> tuple[int, ...] | None:
    """Numbers 1..most that, times the weights, add up to the target: meet in the middle."""
    half = len(weights) // 2
    listed = {_sum(numbers, weights) % modulus: numbers for numbers in product(range(1, most + 1), repeat=half)}
    for numbers in product(range(1, most + 1), repeat=len(weights) - half):
        first = listed.get((target - _sum(numbers, weights[half:])) % modulus)
        if first is not None:
            return (*first, *numbers)
    return None


def _sum(numbers: Sequence[int], weights: Sequence[int]) -> int:
    return sum(number * weight for number, weight in zip(numbers, weights, strict=False))
