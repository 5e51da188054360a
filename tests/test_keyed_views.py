"""The method of the audit's exact views: tiny fields, draws in the place of key streams, and laws of what is seen.

What is claimed with it, and the mutants that it must find, are in `secea.audit.claims.views`.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.arithmetic import streams
from secea.arithmetic.field import Residues, insecure_ring
from secea.audit import Objection, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.claims.views import world
from secea.audit.laws import Mixture, Tiny, reduced
from secea.audit.tiny import Copies, Draws
from secea.audit.views import Case, Play, Stage, World, admitted
from secea.forms.keyed.client import KeyedClient
from secea.party.phases import Agreement
from secea.testing import Parties

PRODUCT = Subject(Overheard())


# --------------------------------------------------------------------------------------------------------- tiny fields


@given(p=st.sampled_from([3, 5, 7, 11]), copies=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_copies_of_a_field_are_that_field(p: int, copies: int, seed: int) -> None:
    ring, field = Copies(p), insecure_ring(p)
    ring.resize(copies)
    a, b = np.random.default_rng(seed).integers(0, p, (2, copies, 3)).astype(np.uint32)
    for name in ("add", "subtract", "multiply"):
        each = [getattr(field, name)(a[k : k + 1], b[k : k + 1])[0] for k in range(copies)]
        assert np.array_equal(getattr(ring, name)(a, b), each)
    assert np.array_equal(ring.inverse(a), [field.inverse(a[k : k + 1])[0] for k in range(copies)])
    assert ring.constant([-1, 2]).tolist() == [[p - 1, 2]] * copies
    assert np.array_equal(ring.from_bytes(bytes(ring.to_bytes(a)), 3), a)


def test_where_the_field_is_not_the_tiny_one_draws_are_key_streams() -> None:
    tables = [{"a": [1.0], "b": [2.0]}, {"b": [4.0]}, {}]
    with streams.use(0, Draws(Copies(5))):
        parties = Parties.of(tables, Overheard(), dropouts=1, collusion=1)
        parties.setup()
        found = parties.round(tables)
    assert [[round(float(x), 3) for x in found[n][:, 0]] for n in range(3)] == [[1.0, 3.0], [3.0], []]


# --------------------------------------------------------------------------------------------------------------- stages


CASES = [
    Case(2, 1, inside=(1,), own=(0,)),
    Case(3, 1, slots=3, dim=2, per_chunk=2, p=7, inside=(0,), own=(1,), rounds=(1, 2)),
    Case(3, 2, slots=2, checks=2, inside=(0, 1)),
    Case(4, 1, 1, slots=2, per_chunk=1, inside=(1,), own=(0,), vanish=(3,), rounds=(1, 2)),
    Case(7, 1, 2, p=11, inside=(2,), absent=(0,), vanish=(6,)),
    Case(3, 1, inside=(1,), own=(0,), weighted=True),
    Case(3, 1, slots=2, inside=(1,), own=(0,), partial=True),
    Case(3, 1, 1, slots=2, everywhere=True, inside=(0,), vanish=(2,)),
    Case(4, 1, slots=3, per_chunk=2, p=7, least=4, everywhere=True, inside=(0,), own=(1,)),
]


def draws_of(play: Play, seed: int) -> Any:
    """Any values of all variables."""
    values = np.random.default_rng(seed).integers(0, play.case.p, (5, play.draws.size)).astype(np.uint8)
    values[:, play.rho] = values[:, play.rho] % (play.case.p - 1) + 1
    return values


def some_world(case: Case) -> World:
    """Each slot has another number of owners, and the last one none but those inside."""
    owners = [case.honest[slot:] if slot < case.slots - 1 else [] for slot in range(case.slots)]
    return world(case, owners, [2] * len(case.rounds))


def read_by_all(play: Play, values: Any = None) -> None:
    """Everybody in the sum takes every broadcast."""
    for sent in play.sent(values):
        for n in sent.at.members:
            play.judge(n, sent)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_is_drawn_all_clients_take_the_broadcast(case: Case) -> None:
    play = Play(Stage(PRODUCT, case), some_world(case))
    read_by_all(play)
    for seed in range(5):
        read_by_all(play, draws_of(play, seed))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_noise_and_keys_the_broadcast_is_the_mean_of_those_in_the_sum(case: Case) -> None:
    """Every variable is 0 but rho and alpha, which leave no trace."""
    given_rows = some_world(case)
    play = Play(Stage(PRODUCT, case), given_rows)
    values = draws_of(play, 1)
    values[:, [k for k in range(play.draws.size) if k not in {*play.rho, *play.alpha}]] = 0
    C = {2: 2, 3: 6, 4: 12, 7: 420}[case.clients]
    for r, sent in enumerate(play.sent(values)):
        rows, marks = (list(play.means(sent))[k::2] for k in range(2))
        places = np.concatenate([part.reshape(5, -1, case.columns + case.checks) for part in rows], axis=1)
        empty = np.concatenate(marks, axis=1)
        for place, slot in enumerate(play.stage.slots()):
            owned = [given_rows[r][n][slot] for n in case.U(r) if slot in given_rows[r][n]]
            below = 0 < len(owned) < case.least
            mean = [C * sum(column) * pow(len(owned), -1, case.p) % case.p for column in zip(*owned, strict=True)]
            if below:
                assert empty[:, place].tolist() == [2] * 5
                continue
            assert places[:, place, : case.columns].tolist() == [mean or [0] * case.columns] * 5
            assert empty[:, place].tolist() == [not owned] * 5


def unknown(case: Case, *, server: bool) -> int:
    """How many variables a coalition does not know, if all honest clients own every slot."""
    play = Play(Stage(PRODUCT, case), world(case, [case.honest] * case.slots, [0] * len(case.rounds)))
    return play.draws.size - len(play.known(server=server))


def test_a_coalition_knows_what_its_members_can_make() -> None:
    """Rows have dim + 3 elements: data, check, count, mark; G, alpha and noise have dim, all other secrets one."""
    # A triangle of masks, two noise clients. A client does not know the masks of the other two, G, and the other's e.
    assert unknown(Case(3, 1, slots=2, dim=2, inside=(2,)), server=True) == 2 * 5 + 2 * 2
    assert unknown(Case(3, 1, slots=2, dim=2, inside=(2,), own=(0,)), server=True) == 2 * 5 + 2
    assert unknown(Case(3, 1, slots=2, dim=2, inside=(2,), own=(0, 1)), server=False) == 2 * 5 + 2 * 2
    # The server alone knows the noise.
    assert unknown(Case(3, 1, slots=2, dim=2), server=True) == 2 * (3 * 5 + 2 + 4 + 2) + 2
    assert unknown(Case(2, 1), server=False) == 4 + 1 + 4 + 2 + 2 + 1  # nobody knows nothing at all


def test_the_server_knows_the_masks_that_were_opened() -> None:
    """Four clients, one vanishes: own masks of three are opened, and its three masks of pairs; not its own mask."""
    shared = 4 + 1 + 1 + 3  # rho, theta, J, beta; alpha; G; H
    assert (
        unknown(Case(4, 1, 1, vanish=(3,)), server=True) == (3 + 1) * 4 + 1 + shared
    )  # and e of who is not in the sum
    assert unknown(Case(4, 1, 1), server=True) == 6 * 4 + shared


def test_worlds_with_other_counts_sums_or_empty_slots_are_admitted_to_differ() -> None:
    case = Case(3, 1, slots=2, inside=(2,), own=(1,))
    one = world(case, [(0,), (0, 1)], [0])
    for other, whole, alone in (
        (world(case, [(1,), (0, 1)], [0]), True, True),
        (world(case, [(1,), (0, 1)], [1]), True, True),
        (world(case, [(0, 1), (0, 1)], [0]), False, True),
        (world(case, [(0,), (0, 1)], [2]), False, True),
        (world(case, [(), (0, 1)], [0]), False, False),
    ):
        assert (admitted(case, one, server=True) == admitted(case, other, server=True)) == whole
        assert (admitted(case, one, server=False) == admitted(case, other, server=False)) == alone


class Squared(KeyedClient):
    """Its rows lie under squares."""

    def _under_keys(self, own: Any, at: Agreement) -> Residues:
        G = super()._under_keys(own, at)
        return self.numbers.ring.multiply(G, G)


def test_what_is_not_affine_has_no_law() -> None:
    case = Case(2, 1)
    play = Play(Stage(Subject(Overheard(of_client=Squared)), case), world(case, [(0, 1)], [0]))
    with pytest.raises(Objection, match="not affine in what is drawn"):
        play.law(play.choices(1), server=True)


# ----------------------------------------------------------------------------------------------------------------- laws


@st.composite
def mixtures(draw: st.DrawFn, p: int = 3, size: int = 3) -> Mixture:
    """Two cosets in three dimensions."""
    element = st.integers(0, p - 1)
    rows = draw(st.lists(st.lists(element, min_size=size, max_size=size), min_size=6, max_size=6))
    return Mixture.of(p, np.array(rows[:4]).reshape(2, 2, size), np.array(rows[4:]).reshape(2, 1, size))


def listed(mixture: Mixture) -> Counter[tuple[int, ...]]:
    """The law, point by point."""
    law: Counter[tuple[int, ...]] = Counter()
    for span, point in zip(mixture.spans, mixture.points[:, 0], strict=True):
        factors = list(product(range(mixture.p), repeat=2))
        padded = np.zeros((2, point.size), np.int64)
        padded[: len(span)] = span
        law.update(tuple(((point + f @ padded) % mixture.p).tolist()) for f in np.array(factors))
    return law


@given(mixtures(), mixtures())
def test_laws_that_are_called_equal_are_and_laws_that_are_called_different_are(one: Mixture, two: Mixture) -> None:
    if one.law == two.law:
        assert listed(one) == listed(two)
    if one.differs(two):
        assert listed(one) != listed(two)
    assert not one.differs(one)


@given(mixtures(), st.integers(1, 2))
def test_elements_are_free_if_they_are_uniform_whatever_the_others_are(mixture: Mixture, last: int) -> None:
    for k in range(2):
        one = Mixture(3, mixture.spans[k : k + 1], mixture.points[k : k + 1])
        law, kept = listed(one), 3 - last
        others = Counter[tuple[int, ...]]()
        for point, times in law.items():
            others[point[:kept]] += times
        uniform = all(
            law[(*head, *tail)] * 3**last == times
            for head, times in others.items()
            for tail in product(range(3), repeat=last)
        )
        assert one.free(last) == uniform


@given(st.integers(0, 2**32))
def test_a_basis_is_reduced_to_the_same_one_whatever_spans_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    basis: Tiny = rng.integers(0, 5, (4, 3, 6))
    mixed = rng.integers(0, 5, (4, 5, 3)) @ basis
    points = rng.integers(0, 5, (4, 2, 6))
    whole, _ = reduced(np.concatenate([basis, mixed], axis=1), points, 5)
    again, moved = reduced(basis[:, ::-1], points + mixed[:, :2], 5)
    assert np.array_equal(whole, again)
    assert np.array_equal(reduced(basis, points, 5)[1], moved)
