"""Laws of one round, slot by slot: uploads, division and check are those of plain integers; what is wrong shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.steps.means import Secrets, contribution, divide, noise_columns, right
from strategies import vectors

CASES = [
    (RING61, 1), (RING56, 1), (Ring(PRIMES30[:3]), 2), (insecure_ring(7), 1), (insecure_ring(5, 7), 2), (RING61, 0),
]  # fmt: skip
LARGE = CASES[:2]
each_ring = pytest.mark.parametrize(("ring", "checks"), CASES, ids=str)
each_large_ring = pytest.mark.parametrize(("ring", "checks"), LARGE, ids=str)
law = settings(max_examples=30)


@dataclass
class World:
    """One round of a few clients in one chunk: everything that anyone draws."""

    ring: Ring
    checks: int
    count: int
    dim: int
    owned: list[NDArray[np.int64]]
    """The slots of each client's entities, in order."""
    y: list[Residues] = field(repr=False)
    secrets: Secrets
    noise: list[Residues] = field(repr=False)
    """Of each noise client."""
    pads: list[tuple[Residues, ...]] = field(repr=False)

    @property
    def counts(self) -> list[int]:
        return [sum(int(slot in slots) for slots in self.owned) for slot in range(self.count)]

    def uploads(self) -> list[Residues]:
        mine = zip(self.y, self.owned, strict=True)
        return [contribution(self.ring, y, slots, self.secrets) for y, slots in mine]

    def total(self) -> Residues:
        acc = self.ring.zeros(self.count, self.dim + self.checks + 2)
        for rows in self.uploads():
            self.ring.add_into(acc, rows)
        return acc

    def columns(self) -> Residues:
        acc = self.ring.zeros(self.count, self.checks)
        for e, pads in zip(self.noise, self.pads, strict=True):
            if self.checks:
                self.ring.add_into(acc, noise_columns(self.ring, e, self.secrets.alpha, pads))
        return acc

    def e(self) -> Residues:
        acc = self.ring.zeros(self.count, self.dim)
        for e in self.noise:
            self.ring.add_into(acc, e)
        return acc

    def divided(self) -> tuple[Residues, NDArray[np.uint8]]:
        return divide(self.ring, self.total(), self.e(), self.columns())

    def right(self, rows: Residues, empty: NDArray[np.uint8]) -> list[bool]:
        good: list[bool] = right(self.ring, rows, empty, self.secrets, len(self.owned)).tolist()
        return good


def uniform(ring: Ring, rng: np.random.Generator, *shape: int, least: int = 0) -> Residues:
    return np.stack([rng.integers(least, p, shape, np.uint64).astype(ring.dtype) for p in ring.primes])


@st.composite
def worlds(draw: st.DrawFn, ring: Ring, checks: int, *, extreme: bool = True, least: int = 0) -> World:
    """Clients that own any slots, none and all among them; with `extreme` elements may be the smallest and largest."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    clients, count, dim = draw(st.integers(2, 4)), draw(st.integers(least, 6)), draw(st.integers(1, 5))
    owners = st.sampled_from(("some", "none", "all"))
    owned = []
    for _ in range(clients):
        kind = draw(owners)
        chosen = (
            draw(st.sets(st.integers(0, count - 1))) if count and kind == "some" else range(count * (kind == "all"))
        )
        owned.append(np.array(sorted(chosen), np.int64))

    def some(*shape: int) -> Residues:
        return draw(vectors(ring, *shape)) if extreme else uniform(ring, rng, *shape)

    pads = [tuple(some(count) for _ in range(checks)) for _ in range(draw(st.integers(0, 3)))]
    H = tuple(ring.zeros(count) for _ in range(checks))
    for each in pads:
        for k in range(checks):
            ring.add_into(H[k], each[k])
    secrets = Secrets(
        rho=uniform(ring, rng, count, least=1),
        alpha=tuple(some(dim) for _ in range(checks)),
        J=tuple(some(count) for _ in range(checks)),
        H=H,
        theta=some(count),
        beta=some(count),
    )
    y, noise = [some(len(slots), dim) for slots in owned], [some(count, dim) for _ in pads]
    return World(ring, checks, count, dim, owned, y, secrets, noise, pads)


def plain(x: Residues, *at: Any) -> int:
    """An element as a Python integer: numpy's would wrap around."""
    return int(x[at])


# ------------------------------------------------------------------------------------------- against plain integers


@each_ring
@law
@given(data=st.data())
def test_a_contribution_is_y_its_checks_a_one_and_a_mark_under_rho_and_theta_elsewhere(
    ring: Ring, checks: int, data: st.DataObject
) -> None:
    w = data.draw(worlds(ring, checks))
    s = w.secrets
    for y, slots, rows in zip(w.y, w.owned, w.uploads(), strict=True):
        assert rows.dtype == ring.dtype
        assert rows.shape == (ring.size, w.count, w.dim + checks + 2)
        row_of = {int(slot): i for i, slot in enumerate(slots)}
        for b, p in enumerate(ring.primes):
            for slot in range(w.count):
                expected = [0] * (w.dim + checks + 1) + [plain(s.theta, b, slot)]
                if slot in row_of:
                    mine = [plain(y, b, row_of[slot], j) for j in range(w.dim)]
                    sums = [
                        sum(plain(s.alpha[k], b, j) * v for j, v in enumerate(mine)) + plain(s.J[k], b, slot)
                        for k in range(checks)
                    ]
                    rho = plain(s.rho, b, slot)
                    expected = [rho * v % p for v in (*mine, *sums, 1, plain(s.beta, b, slot))]
                    expected[-1] = (expected[-1] + plain(s.theta, b, slot)) % p
                assert rows[b, slot].tolist() == expected


@pytest.mark.parametrize(("ring", "checks"), CASES[:4], ids=str)
@law
@given(data=st.data())
def test_the_noise_columns_are_its_weighted_sums_under_pads(ring: Ring, checks: int, data: st.DataObject) -> None:
    w = data.draw(worlds(ring, checks))
    for e, pads in zip(w.noise, w.pads, strict=True):
        columns = noise_columns(ring, e, w.secrets.alpha, pads)
        assert columns.shape == (ring.size, w.count, checks)
        for b, p in enumerate(ring.primes):
            for slot in range(w.count):
                for k, alpha in enumerate(w.secrets.alpha):
                    total = sum(plain(alpha, b, j) * plain(e, b, slot, j) for j in range(w.dim))
                    assert plain(columns, b, slot, k) == (total + plain(pads[k], b, slot)) % p


@each_ring
@law
@given(data=st.data())
def test_the_server_divides_by_the_count_and_never_sees_it(ring: Ring, checks: int, data: st.DataObject) -> None:
    w = data.draw(worlds(ring, checks))
    rows, empty = w.divided()
    assert empty.tolist() == [c == 0 for c in w.counts]
    e, members = w.e(), len(w.owned)
    for b, p in enumerate(ring.primes):
        for slot, c in enumerate(w.counts):
            if not c:
                assert rows[b, slot].tolist() == [members * plain(w.secrets.theta, b, slot) % p] + [0] * (
                    w.dim + checks - 1
                )
                continue
            for j in range(w.dim):
                sums = sum(
                    plain(y, b, int(np.searchsorted(slots, slot)), j)
                    for y, slots in zip(w.y, w.owned, strict=True)
                    if slot in slots
                )
                assert plain(rows, b, slot, j) == (sums * pow(c, -1, p) + plain(e, b, slot, j)) % p


@each_ring
@law
@given(data=st.data())
def test_honest_results_are_right(ring: Ring, checks: int, data: st.DataObject) -> None:
    w = data.draw(worlds(ring, checks))
    assert all(w.right(*w.divided()))


@each_ring
@law
@given(data=st.data())
def test_a_slot_is_right_where_its_equations_hold_in_plain_integers(
    ring: Ring, checks: int, data: st.DataObject
) -> None:
    w = data.draw(worlds(ring, checks))
    rows, empty = w.divided()
    for slot in range(w.count):  # any rows and marks: those of the server, zeros, others
        kind = data.draw(st.sampled_from(("kept", "zeros", "any")))
        if kind != "kept":
            rows[:, slot] = 0 if kind == "zeros" else data.draw(vectors(ring, w.dim + checks))
            empty[slot] = data.draw(st.booleans())
    s, expected = w.secrets, []
    for slot in range(w.count):
        good = True
        for b, p in enumerate(ring.primes):
            row = [plain(rows, b, slot, j) for j in range(w.dim + checks)]
            if empty[slot]:
                good &= row == [len(w.owned) * plain(s.theta, b, slot) % p] + [0] * (w.dim + checks - 1)
                continue
            for k in range(checks):
                left = sum(plain(s.alpha[k], b, j) * row[j] for j in range(w.dim))
                good &= (left + plain(s.J[k], b, slot) + plain(s.H[k], b, slot) - row[w.dim + k]) % p == 0
        expected.append(good)
    assert w.right(rows, empty) == expected


# --------------------------------------------------------------------------------------------- what is wrong shows


@each_large_ring
@law
@given(data=st.data())
def test_any_single_changed_element_makes_its_slot_wrong_and_no_other(
    ring: Ring, checks: int, data: st.DataObject
) -> None:
    w = data.draw(worlds(ring, checks, extreme=False, least=1))
    rows, empty = w.divided()
    slot, column = data.draw(st.integers(0, w.count - 1)), data.draw(st.integers(0, w.dim + checks - 1))
    b = data.draw(st.integers(0, ring.size - 1))
    p = ring.primes[b]
    rows[b, slot, column] = (plain(rows, b, slot, column) + data.draw(st.integers(1, p - 1))) % p
    assert w.right(rows, empty) == [other != slot for other in range(w.count)]


@each_large_ring
@law
@given(data=st.data())
def test_a_row_of_zeros_is_wrong_whether_it_is_marked_as_empty_or_not(
    ring: Ring, checks: int, data: st.DataObject
) -> None:
    w = data.draw(worlds(ring, checks, extreme=False, least=1))
    rows, empty = w.divided()
    slot = data.draw(st.integers(0, w.count - 1))
    rows[:, slot], empty[slot] = 0, data.draw(st.booleans())
    assert w.right(rows, empty) == [other != slot for other in range(w.count)]


@each_large_ring
@law
@given(data=st.data())
def test_an_owned_slot_cannot_be_called_empty(ring: Ring, checks: int, data: st.DataObject) -> None:
    w = data.draw(worlds(ring, checks, extreme=False, least=1))
    total, (rows, empty) = w.total(), w.divided()
    owned = [slot for slot, c in enumerate(w.counts) if c]
    for slot in owned:
        kept = rows.copy()
        marked = empty.copy()
        marked[slot] = True
        assert not w.right(kept, marked)[slot]  # the means themselves
        kept[:, slot] = 0
        kept[:, slot, 0] = total[:, slot, -1]  # what the server would send if nobody owned it
        assert not w.right(kept, marked)[slot]


@each_large_ring
@law
@given(data=st.data())
def test_an_empty_slot_cannot_be_called_owned(ring: Ring, checks: int, data: st.DataObject) -> None:
    w = data.draw(worlds(ring, checks, extreme=False, least=1))
    rows, empty = w.divided()
    for slot in np.flatnonzero(empty):
        marked = empty.copy()
        marked[slot] = False
        assert not w.right(rows, marked)[slot]


@each_large_ring
@law
@given(data=st.data())
def test_the_mean_of_another_slot_is_wrong_here(ring: Ring, checks: int, data: st.DataObject) -> None:
    w = data.draw(worlds(ring, checks, extreme=False, least=2))
    rows, empty = w.divided()
    a, b = data.draw(st.permutations(range(w.count)))[:2]
    rows[:, [a, b]], empty[[a, b]] = rows[:, [b, a]], empty[[b, a]]
    assert w.right(rows, empty) == [slot not in (a, b) for slot in range(w.count)]


@each_large_ring
@law
@given(data=st.data())
def test_a_result_without_one_clients_upload_is_wrong_where_it_would_matter(
    ring: Ring, checks: int, data: st.DataObject
) -> None:
    w = data.draw(worlds(ring, checks, extreme=False, least=1))
    total, left_out = w.total(), w.uploads()[0]
    ring.subtract_into(total, left_out)
    rows, empty = divide(ring, total, w.e(), w.columns())
    counts = [c - int(slot in w.owned[0]) for slot, c in enumerate(w.counts)]
    # without masks the mean of fewer owners passes; with them the sum would be noise. An empty slot shows by its mark.
    assert w.right(rows, empty) == [c > 0 for c in counts]


@law
@given(data=st.data(), field=st.sampled_from(("alpha", "J", "H")))
def test_a_result_under_other_secrets_is_wrong(data: st.DataObject, field: str) -> None:
    w = data.draw(worlds(RING61, 1, extreme=False, least=1))
    rows, empty = w.divided()
    drawn = getattr(w.secrets, field)[0]
    shift = RING61.constant(np.full(drawn.shape[1:], data.draw(st.integers(1, RING61.modulus - 1))).tolist())
    other = RING61.add(drawn, shift)
    values = {name: getattr(w.secrets, name) for name in ("rho", "alpha", "J", "H", "theta", "beta")}
    w.secrets = Secrets(**values | {field: (other,)})
    assert w.right(rows, empty) == empty.tolist()


def test_no_secret_shows() -> None:
    ring = insecure_ring(7)
    x = ring.constant([5, 6])
    assert repr(Secrets(x, (x,), (x,), (x,), x, x)) == "Secrets()"
