"""Laws of one round with a minimum of owners and with noise on every slot, against plain integers (section K11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.arithmetic.field import PRIMES30, RING61, Residues, Ring
from secea.steps.means import (
    Least,
    Secrets,
    Slot,
    add_everywhere,
    contribution,
    divide,
    least_columns,
    noise_columns,
    right,
)

RINGS: Final = [(RING61, 1), (Ring(PRIMES30[:3]), 2)]
each_ring = pytest.mark.parametrize(("ring", "checks"), RINGS, ids=str)
CLIENTS: Final = 5
DIM: Final = 3
OWNERS: Final = (3, 0, 1, 5, 2, 4, 0, 1, 2, 5)
"""How many own each slot: the first so many, counted from client 1 on."""


@dataclass
class World:
    """One round: what everybody draws, with a minimum of owners m and factors for the checks."""

    ring: Ring
    checks: int
    m: int
    gamma: bool

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.checks, self.m, self.gamma])
        columns = self.m - 1
        a = np.array([self.rng.permutation(columns) + 1 for _ in OWNERS], np.int64).reshape(len(OWNERS), columns)
        self.least = Least(
            np.stack([a.astype(self.ring.dtype)] * self.ring.size), self.some(columns, least=1), self.some(columns),
            self.some(),
        )  # fmt: skip
        self.pads = [self.some() for _ in range(self.checks)]
        self.secrets = Secrets(
            rho=self.some(least=1), alpha=tuple(self.uniform(DIM) for _ in range(self.checks)),
            J=tuple(self.some() for _ in range(self.checks)), H=tuple(self.pads), theta=self.some(), beta=self.some(),
            least=self.least if self.m > 1 else None,
            gamma=tuple(self.some(least=1) for _ in range(self.checks)) if self.gamma else (),
        )  # fmt: skip
        self.owned = [
            np.array([i for i, c in enumerate(OWNERS) if (n - 1) % CLIENTS < c], np.int64) for n in range(CLIENTS)
        ]
        self.y = [self.uniform(len(own), DIM) for own in self.owned]
        self.z = [self.some(DIM) for _ in range(CLIENTS)]
        self.e = self.some(DIM)

    def uniform(self, *shape: int, least: int = 0) -> Residues:
        draws = [self.rng.integers(least, p, shape, np.uint64).astype(self.ring.dtype) for p in self.ring.primes]
        return np.stack(draws)

    def some(self, *shape: int, least: int = 0) -> Residues:
        return self.uniform(len(OWNERS), *shape, least=least)

    def uploads(self) -> list[Residues]:
        found = []
        for n, (y, own, z) in enumerate(zip(self.y, self.owned, self.z, strict=True)):
            rows = contribution(self.ring, y, own, self.secrets)
            if self.gamma:
                add_everywhere(self.ring, rows, z, self.secrets)
            found.append(rows)
            if self.m > 1:
                extra = least_columns(self.ring, own, self.least, designated=n == 2)
                found[-1] = np.concatenate([rows, extra], axis=2)
        return found

    def divided(self) -> tuple[Residues, NDArray[np.uint8]]:
        total = self.uploads()[0] * 0
        for rows in self.uploads():
            self.ring.add_into(total, rows)
        plain = DIM + self.checks + 2
        columns = noise_columns(self.ring, self.e, self.secrets.alpha, self.pads, self.secrets.gamma)
        least = total[:, :, plain:] if self.m > 1 else None
        return divide(self.ring, np.ascontiguousarray(total[:, :, :plain]), self.e, columns, least)

    def right(self, rows: Residues, slots: NDArray[np.uint8], members: int = CLIENTS) -> list[bool]:
        found: list[bool] = right(self.ring, rows, slots, self.secrets, members).tolist()
        return found


def integer(x: Residues, *at: int) -> int:
    """An element as a Python integer: numpy's would wrap around."""
    return int(x[at])


@each_ring
@pytest.mark.parametrize("m", [2, 3, 5])
@pytest.mark.parametrize("designated", [False, True])
def test_a_column_of_the_minimum_counts_owners_and_its_mark_is_its_multiple(
    ring: Ring, checks: int, m: int, designated: bool
) -> None:
    w = World(ring, checks, m, gamma=False)
    own = w.owned[1]
    found = least_columns(ring, own, w.least, designated=designated)
    assert found.shape == (ring.size, len(OWNERS), 2 * (m - 1))
    for b, p in enumerate(ring.primes):
        for i in range(len(OWNERS)):
            for j in range(m - 1):
                rho, beta = integer(w.least.rho, b, i, j), integer(w.least.beta, b, i, j)
                count = (int(i in own) - integer(w.least.a, b, i, j) * designated) * rho % p
                assert integer(found, b, i, j) == count
                assert integer(found, b, i, m - 1 + j) == (count * beta + integer(w.least.theta, b, i)) % p


@each_ring
@pytest.mark.parametrize("m", [1, 2, 3, 5])
@pytest.mark.parametrize("gamma", [False, True])
def test_a_slot_has_a_mean_from_the_minimum_on_and_everybody_sees_that_it_is_right(
    ring: Ring, checks: int, m: int, gamma: bool
) -> None:
    w = World(ring, checks, m, gamma)
    rows, slots = w.divided()
    assert slots.tolist() == [Slot.EMPTY if not c else Slot.BELOW if c < m else Slot.MEAN for c in OWNERS]
    assert all(w.right(rows, slots))
    for b, p in enumerate(ring.primes):
        for i, c in enumerate(OWNERS):
            if c >= m and c:
                inverse = pow(c, -1, p)
                for j in range(DIM):
                    owners = [n for n in range(CLIENTS) if i in w.owned[n]]
                    total = sum(integer(w.y[n], b, w.owned[n].tolist().index(i), j) for n in owners)
                    total += sum(integer(z, b, i, j) for z in w.z) if gamma else 0
                    assert integer(rows, b, i, j) == (total * inverse + integer(w.e, b, i, j)) % p
            else:
                theta = w.least.theta if c else w.secrets.theta
                assert integer(rows, b, i, 0) == CLIENTS * integer(theta, b, i) % p
                assert not rows[b, i, 1:].any()


@each_ring
@pytest.mark.parametrize("gamma", [False, True])
def test_whatever_is_changed_in_one_element_of_one_prime_is_noticed_in_its_slot(
    ring: Ring, checks: int, gamma: bool
) -> None:
    w = World(ring, checks, 3, gamma)
    rows, slots = w.divided()
    for b, p in enumerate(ring.primes):
        for i in range(len(OWNERS)):
            for j in range(DIM + checks):
                wrong = rows.copy()
                wrong[b, i, j] = (integer(rows, b, i, j) + 1) % p
                assert w.right(wrong, slots) == [place != i for place in range(len(OWNERS))]


@each_ring
def test_no_slot_passes_for_another_kind_than_it_is(ring: Ring, checks: int) -> None:
    w = World(ring, checks, 3, gamma=False)
    rows, slots = w.divided()
    for i, kind in enumerate(slots):
        for other in set(Slot) - {int(kind)}:
            lie = slots.copy()
            lie[i] = other
            assert w.right(rows, lie) == [place != i for place in range(len(OWNERS))]
    here = w.right(rows, slots, CLIENTS - 1)
    assert here == [kind == Slot.MEAN for kind in slots], "marks are of all members"


@each_ring
def test_where_one_prime_alone_has_no_count_a_slot_is_not_below_the_minimum(ring: Ring, checks: int) -> None:
    """Honest counts are 0 modulo all primes or none; what a single prime says is not believed."""
    w = World(ring, checks, 3, gamma=False)
    total: Any = sum(rows.astype(object) for rows in w.uploads())
    total = np.stack([(total[b] % p).astype(ring.dtype) for b, p in enumerate(ring.primes)])
    plain = DIM + checks + 2
    least = total[:, :, plain:].copy()
    least[0, 3, 1] = 0  # five owners: no count is 0 there
    least[:, 1, 0] = 0  # nobody owns it: a client deviates
    columns = noise_columns(ring, w.e, w.secrets.alpha, w.pads)
    rows, slots = divide(ring, np.ascontiguousarray(total[:, :, :plain]), w.e, columns, least)
    assert slots[1] == Slot.EMPTY
    assert w.right(rows, slots)[1]
    assert slots[3] == (Slot.BELOW if ring.size == 1 else Slot.MEAN)
