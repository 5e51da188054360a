"""What options do not hide, as programs: docs/protocol-keyed.md, K11, and the threat model say so in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from secea import Federation, Params
from secea.arithmetic.field import Residues
from secea.steps.means import Least, Slot
from secea.table import Table

OWNERS: Final = {"a": "1", "b": "12", "c": "123", "d": "1234", "e": "01", "f": "012", "g": "0123", "h": "01234"}
NAMES: Final = [[name for name, own in OWNERS.items() if str(n) in own] for n in range(5)]
MINIMUM: Final = 3


class Counted:
    """A federation with a minimum of owners, whose client 0 adds to the counts of its columns."""

    def __init__(self, more: Callable[[Least, NDArray[np.int64]], Residues], precision: int) -> None:
        self.fed: Any = Federation(Params(5, dim=4, collusion=1, min_owners=MINIMUM, precision=precision))
        self.fed.setup(NAMES)
        client = self.fed.clients[0]
        self._client, self._part, self._more = client, client.part, more
        self._honest, self._stream = client.part._mask, client.part.stream
        client.part._mask, client.part.stream = self._lie, self._look
        self.marks = np.zeros(0, np.uint8)

    def _lie(self, rows: Residues, seeds: Any, own_seed: bytes, chunk: int) -> None:
        ring, k = self._part.numbers.ring, MINIMUM - 1
        least = self._part.secrets(self._client.at).of(chunk, rows.shape[1], ()).least
        more = ring.multiply(self._more(least, self._part.union.slots), least.rho)
        for columns, added in ((slice(-2 * k, -k), more), (slice(-k, None), ring.multiply(more, least.beta))):
            rows[:, :, columns] = ring.add(np.ascontiguousarray(rows[:, :, columns]), added)
        self._honest(rows, seeds, own_seed, chunk)

    def _look(self, kind: Any, sender: int, chunk: int, chunks: int, payload: memoryview, at: Any) -> None:
        self.marks = np.frombuffer(payload[-at.size :], np.uint8).copy()
        self._stream(kind, sender, chunk, chunks, payload, at)


@pytest.mark.parametrize("precision", [24, 44])
def test_an_owner_that_counts_itself_several_times_undoes_the_minimum_alone_and_nobody_notices(precision: int) -> None:
    def twice_more(least: Least, slots: NDArray[np.int64]) -> Residues:
        more = np.zeros_like(least.a)
        more[:, slots] = 2
        return more

    lying, rng = Counted(twice_more, precision), np.random.default_rng(1)
    tables = [{name: rng.normal(size=4) for name in own} for own in NAMES]
    means = lying.fed.round(tables)
    assert lying.fed.below_minimum == [(), ("a", "b"), ("b",), (), ()], "the poor slots of others stay poor"
    assert 2 * means[0]["e"] - tables[0]["e"] == pytest.approx(tables[1]["e"], abs=1e-4), "a row of client 1"


@pytest.mark.parametrize("count", range(1, 6))
def test_a_client_that_shifts_the_columns_sees_which_slots_have_as_many_owners_as_it_likes(count: int) -> None:
    primes: list[int] = []

    def stand_for_it(least: Least, _: NDArray[np.int64]) -> Residues:
        p = np.array(primes, np.int64)[:, None, None]
        return np.asarray((least.a.astype(np.int64) - count) % p, least.a.dtype)

    lying = Counted(stand_for_it, 24)
    primes.extend(lying._part.numbers.ring.primes)
    lying.fed.round([dict.fromkeys(own, np.ones(4)) for own in NAMES])
    assert int((lying.marks == Slot.BELOW).sum()) == sum(len(own) == count for own in OWNERS.values())


def test_an_owner_whose_weight_is_far_above_the_others_reads_counts_from_the_mean_weight() -> None:
    clients, entities, most = 5, 120, 1000
    rng = np.random.default_rng(2)
    owned = rng.random((clients, entities)) < 0.5
    owned[:2] = True
    names = [[str(i) for i in np.flatnonzero(own)] for own in owned]
    found = {}
    for mine in (most, 25):
        fed: Any = Federation(Params(clients, dim=1, max_weight=most))
        fed.setup(names)
        part, read = fed.clients[0].part, list[NDArray[np.float64]]()
        plain = part.tables.read
        part.tables.read = lambda means, plain=plain, read=read: (read.append(means.copy()), plain(means))[1]
        weights = rng.integers(1, 51, (clients, entities))
        weights[0] = mine
        fed.round([
            Table(own, rng.normal(size=(len(own), 1)), weights[n, owned[n]]) for n, own in enumerate(names)
        ])  # fmt: skip
        mean = np.concatenate(read)[:, -1] / fed.params.max_abs * (most + 1)
        counts = owned.sum(axis=0)[[int(part.names[i]) for i in part.union.order]]
        possible = np.arange(2, clients + 1)
        guess = possible[np.abs(possible * mean[:, None] - mine - (possible - 1) * 25.5).argmin(axis=1)]
        found[mine] = float((guess == counts).mean())
    assert found[most] > 0.95, "each further owner makes the mean weight fall"
    assert found[25] < 0.5, "among weights that are alike in size the mean tells little"
