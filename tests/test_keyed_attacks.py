"""Attacks on the keyed form: what counts show to an owner, what a coalition puts together, what a deviator can do.

Laws first, then mutants that show that an attack can see, and limits that are admitted. Rates are printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.field import Residues, Ring
from secea.audit.attacks import keyed_counts as counts
from secea.audit.attacks.keyed import Amplifier, Coalition, Emptier, Greedy, Guesser, Overheard
from secea.audit.attacks.keyed_counts import BF16, DECIMALS, FLOAT32, FLOAT64, FP16, INT8, INT8_SCALED, LARGE
from secea.audit.tails import binomial_tail
from secea.errors import FaultyPeer, TableError
from secea.forms.keyed import client as client_module
from secea.forms.keyed.client import KeyedClient
from secea.params import Params
from secea.steps import oprf
from secea.table import as_table
from secea.testing import Parties

Floats = NDArray[np.float64]
Tables = list[dict[str, Floats]]

TRIALS = 2000
NEAR_CHANCE = counts.CHANCE + 0.06  # six deviations of 2,000 guesses


@pytest.fixture
def rng() -> np.random.Generator:
    """For made-up inputs; keys and noise come from the system."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    return np.random.default_rng(seed)


def said(what: str, **rates: float) -> None:
    print(f"{what:48}", *(f"{name.replace('_', ' ')} {rate:6.1%}" for name, rate in rates.items()))


def unlike(
    kind: counts.Inputs, rng: np.random.Generator, collusion: int = 1, by: counts.Encode = counts.encoded, **more: Any
) -> tuple[Params, counts.World, NDArray[np.int64]]:
    """A world in which values differ, and what all contribute."""
    params, owners = counts.parameters(TRIALS, collusion=collusion, **more), counts.Owners(TRIALS)
    owners.session(params)
    world = counts.unlike(kind, TRIALS, rng, params.dim)
    return params, world, owners.encode(world, kind.dtype, by)


def slope_rates(
    kind: counts.Inputs,
    rng: np.random.Generator,
    rounds: Sequence[int],
    collusion: int = 1,
    by: counts.Encode = counts.encoded,
    width: float | None = None,
    **more: Any,
) -> list[float]:
    """How often counts are found where all owners have the same values, after so many rounds."""
    params, owners = counts.parameters(TRIALS, collusion=collusion), counts.Owners(TRIALS)
    owners.session(params)
    world = counts.alike(kind, TRIALS, rng)
    values = owners.encode(world, kind.dtype, by)
    own = world.rows[0].astype(kind.dtype).astype(np.float64)
    widths = counts.fill_widths(owners.parts[0], own) if width is None else np.full(own.shape, width)
    return [
        counts.rate(counts.by_slope(counts.seen(params, values, world, each, **more), own, widths), world)
        for each in rounds
    ]


# ------------------------------------------------------------------------------------------- counts: what an owner sees


@pytest.mark.parametrize("collusion", [1, 4])
@pytest.mark.parametrize("kind", counts.KINDS, ids=lambda kind: kind.name)
def test_the_grid_of_unknown_values_does_not_show_counts_however_many_rounds_are_averaged(
    kind: counts.Inputs, collusion: int, rng: np.random.Generator
) -> None:
    params, world, values = unlike(kind, rng, collusion)
    one, ten, hundred = (
        counts.best_by_grid(counts.seen(params, values, world, rounds), kind, world) for rounds in (1, 10, 100)
    )
    said(f"unknown values, {kind.name}, T={collusion}", rounds_1=one, rounds_10=ten, rounds_100=hundred)
    assert max(one, ten, hundred) < NEAR_CHANCE


@pytest.mark.parametrize("kind", [BF16, FP16, INT8, INT8_SCALED, DECIMALS], ids=lambda kind: kind.name)
def test_without_fill_the_grid_shows_almost_all_counts(kind: counts.Inputs, rng: np.random.Generator) -> None:
    params, world, values = unlike(kind, rng, by=counts.unfilled)
    rate = counts.best_by_grid(counts.seen(params, values, world), kind, world)
    said(f"no fill, {kind.name}", rounds_1=rate)
    assert rate > 0.95


@pytest.mark.parametrize("kind", [FLOAT32, BF16], ids=lambda kind: kind.name)
def test_the_lattice_of_means_shows_no_counts_and_without_narrow_noise_all(
    kind: counts.Inputs, rng: np.random.Generator
) -> None:
    params, world, values = unlike(kind, rng)
    rates = {
        narrow: counts.rate(counts.by_lattice(counts.seen(params, values, world, narrow=narrow)), world)
        for narrow in (True, False)
    }
    said(f"lattice, {kind.name}", product=rates[True], no_narrow_noise=rates[False])
    assert rates[True] < NEAR_CHANCE
    assert rates[False] > 0.99


@pytest.mark.parametrize("collusion", [1, 4])
@pytest.mark.parametrize("kind", [FLOAT64, FLOAT32], ids=lambda kind: kind.name)
def test_one_round_of_values_that_all_owners_share_shows_no_counts(
    kind: counts.Inputs, collusion: int, rng: np.random.Generator
) -> None:
    one, ten, hundred = slope_rates(kind, rng, (1, 10, 100), collusion)
    said(f"shared values, {kind.name}, T={collusion}", rounds_1=one, rounds_10=ten, rounds_100=hundred)
    assert one < NEAR_CHANCE
    assert max(ten, hundred) < NEAR_CHANCE + 0.04


@pytest.mark.parametrize("collusion", [1, 4])
def test_large_float32_values_that_all_share_show_hardly_more_in_one_round_and_some_over_many(
    collusion: int, rng: np.random.Generator
) -> None:
    """Section 8 admits it: their ulp is as wide as the resolution, and so is their fill."""
    one, ten, hundred = slope_rates(LARGE, rng, (1, 10, 100), collusion)
    said(f"shared values, {LARGE.name}, T={collusion}", rounds_1=one, rounds_10=ten, rounds_100=hundred)
    assert one < 0.38
    assert one < hundred < 0.6


@pytest.mark.parametrize("kind", [BF16, FP16, INT8, INT8_SCALED, DECIMALS], ids=lambda kind: kind.name)
def test_coarse_values_that_all_owners_share_show_counts_at_once(kind: counts.Inputs, rng: np.random.Generator) -> None:
    """Admitted: the fill is wide against the noise, so the slope of the mean in one's own fill shows 1/c."""
    one, hundred = slope_rates(kind, rng, (1, 100))
    said(f"shared values, {kind.name}", rounds_1=one, rounds_100=hundred)
    assert 0.5 < one < 0.75


def test_without_wide_noise_one_round_of_shared_values_shows_counts(rng: np.random.Generator) -> None:
    for kind in (FLOAT64, FLOAT32, LARGE):
        (rate,) = slope_rates(kind, rng, (1,), wide=False)
        said(f"no wide noise, {kind.name}", rounds_1=rate)
        assert rate > 0.45


def test_a_fill_with_a_floor_shows_counts_over_rounds_of_shared_values(rng: np.random.Generator) -> None:
    floor = 2.0 ** math.floor(math.log2(counts.parameters(TRIALS).resolution / 8))
    (product,) = slope_rates(FLOAT64, rng, (100,))
    (mutant,) = slope_rates(FLOAT64, rng, (100,), by=counts.floored, width=floor)
    said("fill of 1/8 resolution or more, 100 rounds", product=product, mutant=mutant)
    assert product < NEAR_CHANCE
    assert mutant > 0.32


def test_two_sessions_with_different_fixed_points_show_no_more_than_one(rng: np.random.Generator) -> None:
    for kind in (FLOAT32, BF16, INT8):
        before, after = counts.parameters(TRIALS), counts.parameters(TRIALS, clients=7)
        owners, world = counts.Owners(TRIALS), counts.unlike(kind, TRIALS, rng)
        seen = []
        for params in (before, after):
            owners.session(params)
            seen.append(counts.seen(params, owners.encode(world, kind.dtype), world))
        one, other = seen
        ratio = 2.0 ** (one.numbers.f - other.numbers.f)
        assert ratio > 1  # the fixed point did move
        found = []
        for a, b in ((0.5, 0.5), (ratio, -1.0), (1.0, -ratio)):
            steps = [abs(a + b) * step for step in kind.steps]
            both = one.combined(a, other, b)
            found += [counts.rate(counts.by_grid(both, steps, fill), world) for fill in ((), (1.0,), (0.5, 0.5))]
        said(f"two sessions, {kind.name}", best=max(found))
        assert max(found) < NEAR_CHANCE


def test_a_fill_that_is_drawn_anew_in_each_session_shows_counts_in_two(rng: np.random.Generator) -> None:
    """A limit, too: this is what other identities do."""
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS), counts.unlike(INT8, TRIALS, rng)
    owners.session(params)
    one = counts.seen(params, owners.encode(world, INT8.dtype), world)
    others = counts.Owners(TRIALS)
    others.identities[0] = owners.identities[0]
    others.session(params)
    other = counts.seen(params, others.encode(world, INT8.dtype), world)
    rate = counts.rate(counts.by_grid(one.combined(0.5, other, 0.5), INT8.steps, (0.5, 0.5)), world)
    said("fill drawn anew", two_sessions=rate)
    assert rate > 0.45


def grids(rng: np.random.Generator, fine: counts.Encode) -> tuple[counts.World, float, counts.Seen, counts.Seen]:
    """Two rounds: in the first all tables have a number on half the step beside, so that their fill is half as wide."""
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS), counts.unlike(INT8, TRIALS, rng)
    (step,) = INT8.steps
    owners.session(params)
    beside = np.full((1, counts.DIM), 0.5 + step / 2)
    first = owners.encode(world, INT8.dtype, fine, None if fine is counts.halved else beside)
    second = owners.encode(world, INT8.dtype)
    return world, step, counts.seen(params, first, world), counts.seen(params, second, world)


def test_the_fills_of_two_grids_do_not_cancel_and_would_if_they_were_scaled(rng: np.random.Generator) -> None:
    rates = []
    for fill in (counts.encoded, counts.filled_by_table, counts.halved):
        world, step, fine, coarse = grids(rng, fill)
        rates.append(counts.rate(counts.by_grid(fine.combined(2, coarse, -1), [step]), world))
    product, other_grid, mutant = rates
    said("twice one round less the other", product=product, another_grid=other_grid, scaled_fills=mutant)
    assert product < NEAR_CHANCE
    assert other_grid < NEAR_CHANCE
    assert mutant > 0.98


def test_rows_on_a_coarser_grid_than_their_table_show_no_counts_and_would_with_the_grid_of_the_table(
    rng: np.random.Generator,
) -> None:
    """In one round all tables have a row on half the step beside; that round and another one are combined, too."""

    def rates(by: counts.Encode) -> tuple[float, float]:
        world, step, fine, coarse = grids(rng, by)
        alone = max(counts.rate(counts.by_grid(fine, [step], (width,)), world) for width in (0.5, 1.0))
        both = max(
            counts.rate(counts.by_grid(fine.combined(a, coarse, 1 - a), [step], (a * width, 1 - a)), world)
            for a in (0.5, 0.7, 0.8, 0.9)
            for width in (0.5, 1.0)
        )
        return alone, both

    product, mutant = rates(counts.encoded), rates(counts.filled_by_table)
    said("rows on 2^-6, one on 2^-7 beside", product=product[0], both_rounds=product[1])
    said("the same with the table's grid", mutant=mutant[0], both_rounds=mutant[1])
    assert max(product) < NEAR_CHANCE
    assert min(mutant) > 0.45


@pytest.mark.parametrize("kind", [BF16, FP16, INT8], ids=lambda kind: kind.name)
def test_one_fine_number_in_each_table_uncovers_no_coarse_rows_and_would_all_with_the_grid_of_the_table(
    kind: counts.Inputs, rng: np.random.Generator
) -> None:
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS), counts.unlike(kind, TRIALS, rng)
    fine = np.full((1, counts.DIM), 1 / 3)
    rates = []
    for by in (counts.encoded, counts.filled_by_table):
        owners.session(params)
        values = owners.encode(world, kind.dtype, by, fine)
        rates.append(counts.best_by_grid(counts.seen(params, values, world), kind, world))
    said(f"one fine number beside, {kind.name}", product=rates[0], grid_of_the_table=rates[1])
    assert rates[0] < NEAR_CHANCE
    assert rates[1] > 0.95


@pytest.mark.parametrize("kind", [INT8_SCALED, DECIMALS], ids=lambda kind: kind.name)
def test_one_other_number_in_each_table_uncovers_rows_on_a_step_that_is_no_power_of_two(
    kind: counts.Inputs, rng: np.random.Generator
) -> None:
    """A limit: such a step is looked for in whole tables alone."""
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS), counts.unlike(kind, TRIALS, rng)
    owners.session(params)
    values = owners.encode(world, kind.dtype, beside=np.full((1, counts.DIM), 1 / 3))
    rate = counts.best_by_grid(counts.seen(params, values, world), kind, world)
    said(f"one other number beside, {kind.name}", rounds_1=rate)
    assert rate > 0.9


def test_rows_of_fewer_than_eight_sizes_show_counts_beside_a_fine_number(rng: np.random.Generator) -> None:
    """A limit: a few round numbers may be round by chance, and have the grid of their table."""
    few = counts.Inputs("seven sizes", lambda x: np.clip(np.rint(4 * x), -7, 7) / 8, (2.0**-3,), np.float32)
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS), counts.unlike(few, TRIALS, rng)
    owners.session(params)
    values = owners.encode(world, few.dtype, beside=np.full((1, counts.DIM), 1 / 3))
    rate = counts.best_by_grid(counts.seen(params, values, world), few, world)
    said("rows of at most seven sizes", rounds_1=rate)
    assert rate > 0.9


def test_rows_with_a_scale_of_their_own_show_counts(rng: np.random.Generator) -> None:
    """A limit: int8 with a scale for each row has no step that a table could be searched for."""
    scales = 2.0**-6 / rng.uniform(1, 2, (TRIALS, 1))
    kind = counts.Inputs("a scale per row", lambda x: np.rint(x / scales) * scales, (1.0,), np.float32, 0.12)
    params, world, values = unlike(kind, rng)
    seen = counts.seen(params, values, world)
    noise = [(width / scales.min(), many) for width, many in seen.noise]
    scaled = replace(seen, means=seen.means / scales, own=seen.own / scales, noise=noise)
    rate = counts.rate(counts.by_grid(scaled, kind.steps), world)
    said("int8, a scale for each row", rounds_1=rate)
    assert rate > 0.9


@pytest.mark.parametrize(("kind", "dim"), [(INT8_SCALED, 16), (INT8_SCALED, 64), (DECIMALS, 16), (DECIMALS, 64)])
def test_a_fill_as_wide_as_the_step_hides_counts_and_the_next_power_of_two_hides_fewer(
    kind: counts.Inputs, dim: int, rng: np.random.Generator
) -> None:
    params, world, values = unlike(kind, rng, dim=dim)
    product = counts.best_by_grid(counts.seen(params, values, world), kind, world)
    params, world, values = unlike(kind, rng, by=counts.filled_to_a_power, dim=dim)
    mutant = counts.best_by_grid(counts.seen(params, values, world), kind, world)
    said(f"{kind.name}, d={dim}", product=product, next_power_of_two=mutant)
    assert product < NEAR_CHANCE
    if kind is INT8_SCALED:  # 2^-10 and 1e-3 are almost the same
        assert mutant > NEAR_CHANCE


def test_the_step_of_integers_times_a_scale_is_found_in_either_float_type(rng: np.random.Generator) -> None:
    for dtype in (np.float32, np.float64):
        for _ in range(50):
            scale = float(np.exp(rng.uniform(-8, -3)))
            matrix = (rng.integers(-127, 128, (200, 16)) * scale).astype(dtype)
            _, step = grid.grid_of(matrix.astype(np.float64), np.dtype(dtype))
            assert step == pytest.approx(scale, rel=1e-4)


def test_all_clients_but_one_see_over_rounds_whether_it_shares_what_nobody_trained(rng: np.random.Generator) -> None:
    """Admitted: of T + 1 noises one is unknown to them. With float32 of ordinary size they see nothing."""
    for kind, most in ((FLOAT32, 0.6), (LARGE, 1.0)):
        params, owners = counts.parameters(TRIALS, collusion=4), counts.Owners(TRIALS)
        owners.session(params)
        made = counts.alike(kind, TRIALS, rng)
        owned = np.ones_like(made.owned)
        owned[4] = rng.random(TRIALS) < 0.5
        world = counts.World(owned, made.rows)
        values, own = owners.encode(world, kind.dtype), made.rows[0].astype(kind.dtype).astype(np.float64)
        widths = counts.fill_widths(owners.parts[0], own)
        one, hundred = (
            counts.rate(
                counts.by_slope(counts.seen(params, values, world, rounds, inside=4), own, widths, range(4, 6)), world
            )
            for rounds in (1, 100)
        )
        said(f"four together, chance 50 %, {kind.name}", rounds_1=one, rounds_100=hundred)
        assert one <= hundred + 0.06 <= most + 0.06


def test_who_moves_while_others_stay_sees_the_count_at_once(rng: np.random.Generator) -> None:
    """Admitted: as with any mean."""
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS), counts.unlike(FLOAT32, TRIALS, rng)
    owners.session(params)
    rows = world.rows.copy()
    rows[0] += 0.25
    moved = counts.World(world.owned, FLOAT32.rounded(rows))
    one, other = (counts.seen(params, owners.encode(each, np.float32), each) for each in (world, moved))
    slope = np.median((other.means - one.means) / (other.own - one.own), axis=1)
    rate = counts.rate(np.rint(1 / slope).astype(np.int64), world)
    said("own row moved by 0.25", two_rounds=rate)
    assert rate == 1.0


def test_a_whole_federation_shows_its_owners_no_more_counts_than_chance(rng: np.random.Generator) -> None:
    entities = 300
    world = counts.unlike(BF16, entities, rng)
    tables = [
        {f"{e}": world.rows[n][e].astype(np.float32) for e in range(entities) if world.owned[n, e]}
        for n in range(counts.CLIENTS)
    ]
    parties = Parties.of(tables, Overheard(), collusion=1)
    parties.setup()
    parties.round(tables)
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    assert part.result is not None
    order = [int(str(name)) for name in part.names]
    table = as_table(tables[0])
    own = np.ldexp(part.tables.encoded(table, part.names).astype(np.float64), -part.numbers.f)
    width = math.ldexp(part.numbers.noise.wide, -part.numbers.f)
    seen = counts.Seen(part.numbers, 1, own, part.result.means, part.numbers.ring.zeros(0), [(width, 2)])
    made = counts.World(world.owned[:, order], world.rows[:, order])
    rate = counts.best_by_grid(seen, BF16, made)
    said("whole federation, bf16", rounds_1=rate)
    assert binomial_tail(round(rate * entities), entities, counts.CHANCE) > 1e-9


# --------------------------------------------------------------------------------- coalitions of the server and clients


def made_tables(rng: np.random.Generator, clients: int, names: int = 40, share: float = 0.5) -> Tables:
    return [{f"name {i}": rng.uniform(-3, 3, 3) for i in range(names) if rng.random() < share} for _ in range(clients)]


class Truth:
    """What is so, from everybody's secrets: to see how right a coalition is."""

    def __init__(self, coalition: Coalition, tables: Tables) -> None:
        self.tables, self.honest, parties = tables, coalition.honest, coalition.parties
        self.parts: dict[int, KeyedClient] = {n: parties.clients[n].part for n in parties.server.at.members}  # type: ignore[misc]
        self.slot: dict[str, int] = {}
        for part in self.parts.values():
            assert part.union is not None
            own = [str(part.names[i]) for i in part.union.order]
            self.slot |= dict(zip(own, part.union.slots.tolist(), strict=True))
        self.name = {slot: name for name, slot in self.slot.items()}

    def owners(self, slot: int) -> list[int]:
        return [n for n in self.honest if self.name[slot] in self.tables[n]]

    def encoded_sum(self, slot: int) -> NDArray[np.int64]:
        total = np.zeros(3, np.int64)
        for n in self.owners(slot):
            part, table = self.parts[n], as_table(self.tables[n])
            total += part.tables.encoded(table, part.names)[part.names.index(self.name[slot])]
        return total


COALITIONS = [(5, 1, (2,)), (5, 2, (0, 3)), (6, 3, (1, 4)), (4, 3, (0, 2, 3)), (2, 1, (1,)), (3, 2, (0,))]


def heard(
    rng: np.random.Generator,
    clients: int,
    collusion: int,
    inside: Sequence[int],
    form: Overheard | None = None,
    share: float = 0.5,
) -> tuple[Coalition, Truth]:
    """A set-up and three rounds, the last with other values, as a coalition hears it."""
    tables = made_tables(rng, clients, share=share)
    parties = Parties.of(tables, form or Overheard(), collusion=collusion)
    parties.setup()
    coalition = Coalition(parties, inside)
    for shift in (0.0, 0.0, 0.5):
        tables = [{name: row + shift for name, row in table.items()} for table in tables]
        coalition.round(tables)
    return coalition, Truth(coalition, tables)


@pytest.mark.parametrize(("clients", "collusion", "inside"), COALITIONS)
def test_a_coalition_sees_sums_and_counts_of_all_honest_clients_together_and_of_no_fewer(
    clients: int, collusion: int, inside: tuple[int, ...], rng: np.random.Generator
) -> None:
    coalition, truth = heard(rng, clients, collusion, inside)
    everyone = tuple(coalition.honest)
    assert set(coalition.opened()) == {everyone}
    assert set(coalition.opened_tables()) == {everyone}
    # What section 8 admits is seen, exactly.
    slots = range(len(truth.name))
    counted = [len(truth.owners(i)) for i in slots]
    assert coalition.honest_counts().tolist() == counted
    assert coalition.opened_tables()[everyone] == {i for i in slots if counted[i]}
    sums = coalition.honest_sums()
    assert set(sums) == set(coalition.own_slots)
    for i, found in sums.items():
        rows = [truth.tables[n][truth.name[i]] for n in truth.owners(i)]
        assert np.abs(found - np.sum(rows, axis=0)).max(initial=0) < 1e-9


@pytest.mark.parametrize(
    ("clients", "collusion", "inside"), [case for case in COALITIONS if case[0] - len(case[2]) > 1]
)
def test_a_coalition_guesses_who_owns_a_slot_no_better_than_its_count_allows(
    clients: int, collusion: int, inside: tuple[int, ...], rng: np.random.Generator
) -> None:
    hits = trials = 0
    expected = 0.0
    for _ in range(2):
        coalition, truth = heard(rng, clients, collusion, inside)
        for slot, guessed in coalition.guess_owners().items():
            some = len(guessed) / len(coalition.honest)
            if some < 1:
                hits += len(set(guessed) & set(truth.owners(slot)))
                trials, expected = trials + len(guessed), expected + some * len(guessed)
    said(f"owners of slots, N={clients}, {len(inside)} bribed", right=hits / trials, chance=expected / trials)
    assert hits - expected < 6 * math.sqrt(trials / 4)


@pytest.mark.parametrize(("clients", "collusion", "inside"), COALITIONS)
def test_a_coalition_can_test_no_name_and_with_one_more_share_all(
    clients: int, collusion: int, inside: tuple[int, ...], rng: np.random.Generator
) -> None:
    coalition, truth = heard(rng, clients, collusion, inside)
    known = {name for n in inside for name in truth.tables[n]}
    names = sorted(truth.slot) + [f"no name {i}" for i in range(20)]
    assert coalition.guess_names(sorted(set(names) - known)) == []
    shares = {n: truth.parts[n].naming.key.share for n in range(collusion + 1)}
    assert set(coalition.guess_names(names, shares)) == set(truth.slot)


def choices(
    coalition: Coalition, truth: Truth, rng: np.random.Generator
) -> tuple[dict[int, list[NDArray[np.int64]]], dict[int, int]]:
    """For each slot that the coalition does not own the true sum and another, and which is which."""
    mine, sums, right = set(coalition.own_slots), {}, {}
    for i in sorted(truth.name):
        if i not in mine and truth.owners(i):
            true, right[i] = truth.encoded_sum(i), int(rng.integers(2))
            decoy = true + rng.integers(-(2**50), 2**50, true.size)
            sums[i] = [decoy, true] if right[i] else [true, decoy]
    return sums, right


def test_a_row_that_no_member_of_a_coalition_owns_cannot_be_told_from_another(rng: np.random.Generator) -> None:
    hits = trials = 0
    for clients, collusion, inside in COALITIONS:
        coalition, truth = heard(rng, clients, collusion, inside, share=0.3)
        sums, right = choices(coalition, truth, rng)
        chosen = coalition.guess_rows(sums)
        hits, trials = hits + sum(chosen[i] == right[i] for i in right), trials + len(right)
    said(f"{trials} rows under foreign keys", right=hits / trials, chance=0.5)
    assert trials > 40
    assert binomial_tail(hits, trials, 0.5) > 1e-9


def test_rows_without_their_key_are_told_from_others(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(ring: Ring, keys: NDArray[np.uint8], _: int, dim: int) -> Residues:
        return ring.zeros(len(keys), dim)

    monkeypatch.setattr(client_module, "rows_under_keys", bare)
    coalition, truth = heard(rng, 5, 1, (2,))
    sums, right = choices(coalition, truth, rng)
    assert len(right) > 3
    assert coalition.guess_rows(sums) == right


def test_with_fewer_masks_parts_of_the_honest_clients_open(rng: np.random.Generator) -> None:
    class Sparse(Overheard):
        def degree(self, params: Params) -> int:
            return params.T

    coalition, _ = heard(rng, 5, 1, (2,), Sparse())
    assert set(coalition.opened()) > {tuple(coalition.honest)}
    assert set(coalition.opened_tables()) == {tuple(coalition.honest)}  # tables are masked with everybody


def test_names_whose_prf_has_no_key_can_all_be_tested(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keyless(blinding: oprf.Blinding, *_: Any, **__: Any) -> list[bytes]:
        return oprf.finalize(blinding._inputs, oprf.hash_to_group(blinding._inputs))

    monkeypatch.setattr(oprf, "finish", keyless)
    coalition, truth = heard(rng, 5, 1, (2,))
    assert set(coalition.guess_names([*truth.slot, "no name"])) == set(truth.slot)


def test_unions_with_and_without_a_client_show_a_coalition_how_many_entities_it_has(rng: np.random.Generator) -> None:
    """A limit that follows from what section 8 admits: counts of all slots add up to the sizes of all sets."""
    tables = made_tables(rng, 5)
    parties = Parties.of(tables, Overheard(), collusion=1)
    parties.setup()
    coalition = Coalition(parties, (2,))
    coalition.round(tables)
    before = int(coalition.honest_counts().sum())
    parties.union([0, 1, 2, 3])
    coalition.round([*tables[:4], None])
    assert before - int(coalition.honest_counts().sum()) == len(tables[4])


# ------------------------------------------------------------------------------------------------- clients that deviate


def test_who_takes_owners_away_from_a_slot_sees_their_number_over_rounds_and_no_row(rng: np.random.Generator) -> None:
    """Admitted: a slot looks empty if and only if as many were taken away as own it. Everybody's check passes."""
    tables = [{}, *made_tables(rng, 3)]
    parties = Parties.of(tables, Overheard(who=0, program=Emptier), collusion=1, dim=3)
    parties.setup()
    deviator = parties.clients[0].part
    assert isinstance(deviator, Emptier)
    seen = np.zeros(parties.server.M, np.int64)
    for amount in (1, 2, 3):
        deviator.amount = amount
        parties.round(tables)  # nobody notices
        seen[deviator.empty] = amount
    truth = Truth(Coalition(parties, (0,)), tables)
    assert seen.tolist() == [len(truth.owners(i)) for i in range(parties.server.M)]
    # Owners of a slot that looks empty miss its mean, and know it.
    for n in (1, 2, 3):
        three = {name for name in tables[n] if seen[truth.slot[name]] == 3}
        assert three <= set(map(str, parties.clients[n].part.without_mean))
    # The same slots in a fair round: without the key of a row its mean is one of all numbers of the field.
    deviator.amount = 0
    parties.round(tables)
    numbers = deviator.numbers
    read = numbers.read(np.ascontiguousarray(deviator.heard[:, :, :3]), 2)
    means = [np.mean([tables[n][truth.name[i]] for n in truth.owners(i)], axis=0) for i in range(parties.server.M)]
    assert np.abs(read - np.array(means)).max(axis=1).min() > 2.0**-10


def test_an_owner_that_guesses_a_count_has_the_sum_divided_by_fewer_and_nobody_notices(
    rng: np.random.Generator,
) -> None:
    """Admitted: with all but one owner taken away it reads the sum itself. All other owners read it, too."""
    tables = made_tables(rng, 4, share=0.8)
    tables = [{name: row / 4 for name, row in table.items()} for table in tables]
    parties = Parties.of(tables, Overheard(who=0, program=Amplifier), collusion=1)
    parties.setup()
    deviator = parties.clients[0].part
    assert isinstance(deviator, Amplifier)
    deviator.amount = 3
    means = parties.round(tables)[0]
    four = [name for name in tables[0] if all(name in table for table in tables)]
    assert four
    for name, mean in zip(tables[0], means, strict=True):
        if name in four:
            assert np.abs(mean - sum(table[name] for table in tables)).max() < 4 * parties.session.params.resolution


def test_a_deviator_that_asks_for_guessed_names_learns_which_others_have_and_no_more_than_its_list_has_room_for(
    rng: np.random.Generator,
) -> None:
    """Admitted: `max_entities` guesses."""
    tables = made_tables(rng, 3, names=20)
    room = max(len(table) for table in tables)
    guessed = [*sorted(tables[1])[: room // 2], *(f"no name {i}" for i in range(room - room // 2))]
    names = [guessed, *tables[1:]]
    bounds = Params(3, dim=3, collusion=1, max_entities=room, max_union=3 * room)
    parties = Parties(bounds, Overheard(who=0, program=Guesser), names)
    parties.setup()
    deviator = parties.clients[0].part
    assert isinstance(deviator, Guesser)
    assert deviator.found == {name for name in guessed if name in tables[1] or name in tables[2]}
    with pytest.raises(TableError, match="max_entities"):
        Parties(bounds, Overheard(who=0, program=Guesser), [[*guessed, "one more"], *tables[1:]])


def test_a_list_with_one_more_point_is_refused(rng: np.random.Generator) -> None:
    tables = made_tables(rng, 3, names=8)
    parties = Parties.of(tables, Overheard(who=0, program=Greedy), collusion=1)
    with pytest.raises(FaultyPeer, match="client 0"):
        parties.setup()


def test_a_second_list_in_one_epoch_of_names_is_refused(rng: np.random.Generator) -> None:
    tables = made_tables(rng, 3, names=8)
    parties = Parties.of(tables, Overheard(), collusion=1)
    parties.exchange.greet()
    parties.exchange.run("commit", range(3), until="evaluate")
    deviator = parties.clients[0].part
    assert isinstance(deviator, KeyedClient)
    names = deviator.naming.names
    deviator.naming.names = type(names)(("guess", "another guess"), marks=names.marks)  # it forgets that it asked
    parties.server.give_up()
    with pytest.raises(FaultyPeer, match="another list of blinded names"):
        parties.exchange.run("list", range(3))
