"""Limits of the keyed form, as programs: what an owner, a coalition and a deviator see, as docs/threat-model.md says.

What they do not see is claimed and tried by the audit (test_audit.py). Rates are printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.ristretto import multiply, scalar_rows
from secea.arithmetic.streams import row_streams, scale_rows, weighted_sums
from secea.audit.attacks import keyed_counts as counts
from secea.audit.attacks.keyed import Coalition, Overheard
from secea.audit.attacks.keyed_counts import BF16, DECIMALS, FLOAT32, FLOAT64, FP16, INT8, INT8_SCALED, LARGE
from secea.audit.claims.keyed import Truth
from secea.audit.mutants.keyed import filling
from secea.audit.mutants.numbers import Floored, floor_of
from secea.audit.tails import binomial_tail
from secea.errors import FaultyPeer, TableError
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.params import Params
from secea.party.phases import Agreement
from secea.steps.means import Secrets
from secea.table import Name, as_table
from secea.testing import Parties
from secea.wire.messages import Buffer

Floats = NDArray[np.float64]
Tables = list[dict[str, Floats]]

TRIALS = 2000
PRODUCT = Overheard()
NEAR_CHANCE = counts.CHANCE + 0.06  # six deviations of 2,000 guesses


@pytest.fixture
def rng() -> np.random.Generator:
    """For made-up inputs; keys and noise come from the system."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    return np.random.default_rng(seed)


def said(what: str, **rates: float) -> None:
    print(f"{what:48}", *(f"{name.replace('_', ' ')} {rate:6.1%}" for name, rate in rates.items()))


def slope_rates(
    kind: counts.Inputs,
    rng: np.random.Generator,
    rounds: Sequence[int],
    collusion: int = 1,
    form: Overheard = PRODUCT,
    width: float | None = None,
) -> list[float]:
    """How often counts are found where all owners have the same values, after so many rounds."""
    params, owners = counts.parameters(TRIALS, collusion=collusion), counts.Owners(TRIALS, form)
    owners.session(params)
    world = counts.alike(kind, TRIALS, rng)
    values = owners.encode(world, kind.dtype)
    own = world.rows[0].astype(kind.dtype).astype(np.float64)
    widths = counts.fill_widths(owners.parts[0], own) if width is None else np.full(own.shape, width)
    return [
        counts.rate(counts.by_slope(counts.seen(form, params, values, world, each), own, widths), world)
        for each in rounds
    ]


def made_tables(rng: np.random.Generator, clients: int, names: int = 40, share: float = 0.5) -> Tables:
    return [{f"name {i}": rng.uniform(-3, 3, 3) for i in range(names) if rng.random() < share} for _ in range(clients)]


# ------------------------------------------------------------------------------------------- counts: what an owner sees


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


FLOOR = floor_of(counts.parameters(TRIALS))


def test_a_fill_with_a_floor_shows_counts_over_rounds_of_shared_values(rng: np.random.Generator) -> None:
    (product,) = slope_rates(FLOAT64, rng, (100,))
    (mutant,) = slope_rates(FLOAT64, rng, (100,), form=filling(Floored), width=FLOOR)
    said("fill of 1/8 resolution or more, 100 rounds", product=product, mutant=mutant)
    assert product < NEAR_CHANCE
    assert mutant > 0.32


@pytest.mark.parametrize("kind", [INT8_SCALED, DECIMALS], ids=lambda kind: kind.name)
def test_one_other_number_in_each_table_uncovers_rows_on_a_step_that_is_no_power_of_two(
    kind: counts.Inputs, rng: np.random.Generator
) -> None:
    """A limit: such a step is looked for in whole tables alone."""
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS, PRODUCT), counts.unlike(kind, TRIALS, rng)
    owners.session(params)
    values = owners.encode(world, kind.dtype, beside=np.full((1, counts.DIM), 1 / np.pi))
    rate = counts.best_by_grid(counts.seen(PRODUCT, params, values, world), kind, world)
    said(f"one other number beside, {kind.name}", rounds_1=rate)
    assert rate > 0.9


def test_rows_of_fewer_than_eight_sizes_show_counts_beside_a_fine_number(rng: np.random.Generator) -> None:
    """A limit: a few round numbers may be round by chance, and have the grid of their table."""
    few = counts.Inputs("seven sizes", lambda x: np.clip(np.rint(4 * x), -7, 7) / 8, (2.0**-3,), np.float32)
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS, PRODUCT), counts.unlike(few, TRIALS, rng)
    owners.session(params)
    values = owners.encode(world, few.dtype, beside=np.full((1, counts.DIM), 1 / 3))
    rate = counts.best_by_grid(counts.seen(PRODUCT, params, values, world), few, world)
    said("rows of at most seven sizes", rounds_1=rate)
    assert rate > 0.9


def test_rows_with_a_scale_of_their_own_show_counts(rng: np.random.Generator) -> None:
    """A limit: int8 with a scale for each row has no step that a table could be searched for."""
    scales = 2.0**-6 / rng.uniform(1, 2, (TRIALS, 1))
    kind = counts.Inputs("a scale per row", lambda x: np.rint(x / scales) * scales, (1.0,), np.float32, 0.12)
    params, owners, world = counts.parameters(TRIALS), counts.Owners(TRIALS, PRODUCT), counts.unlike(kind, TRIALS, rng)
    owners.session(params)
    values = owners.encode(world, kind.dtype)
    seen = counts.seen(PRODUCT, params, values, world)
    noise = [(width / scales.min(), many) for width, many in seen.noise]
    scaled = replace(seen, means=seen.means / scales, own=seen.own / scales, noise=noise)
    rate = counts.rate(counts.by_grid(scaled, kind.steps), world)
    said("int8, a scale for each row", rounds_1=rate)
    assert rate > 0.9


def test_the_step_of_integers_times_a_scale_is_found_in_either_float_type(rng: np.random.Generator) -> None:
    for dtype in (np.float32, np.float64):
        for bits in range(7, 16):
            for offset in (0, 1 << bits - 1):
                scale = float(np.exp(rng.uniform(-8, -3)))
                levels = rng.integers(offset - (1 << bits) + 1, 1 << bits, (200, 16))
                matrix = (levels * scale).astype(dtype).astype(np.float64)
                _, step = grid.grid_of(matrix, np.dtype(dtype))
                assert step == pytest.approx(scale, rel=1e-6)
                matrix[17, 3] += 0.3 * scale  # one number off the step: there is none
                assert grid.grid_of(matrix, np.dtype(dtype))[1] < scale / 2


def test_ordinary_floats_have_no_step_of_integers(rng: np.random.Generator) -> None:
    for shape in ((3, 12), (200, 16), (5000, 8)):
        for dtype in (np.float32, np.float64):
            matrix = rng.normal(size=shape).astype(dtype)
            assert grid.grid_of(matrix.astype(np.float64), matrix.dtype)[1] < 2.0**-20


def test_all_clients_but_one_see_over_rounds_whether_it_shares_what_nobody_trained(rng: np.random.Generator) -> None:
    """Admitted: of T + 1 noises one is unknown to them. With float32 of ordinary size they see nothing."""
    for kind, most in ((FLOAT32, 0.6), (LARGE, 1.0)):
        params, owners = counts.parameters(TRIALS, collusion=4), counts.Owners(TRIALS, PRODUCT)
        owners.session(params)
        world = counts.alike(kind, TRIALS, rng, inside=4)
        values, own = owners.encode(world, kind.dtype), world.rows[0].astype(kind.dtype).astype(np.float64)
        widths = counts.fill_widths(owners.parts[0], own)
        one, hundred = (
            counts.rate(counts.by_slope(seen, own, widths, world.possible), world)
            for seen in counts.seen_after(PRODUCT, params, values, world, (1, 100))
        )
        said(f"four together, chance 50 %, {kind.name}", rounds_1=one, rounds_100=hundred)
        assert one <= hundred + 0.06 <= most + 0.06


def test_who_moves_while_others_stay_sees_the_count_at_once(rng: np.random.Generator) -> None:
    """Admitted: as with any mean."""
    params, owners, world = (
        counts.parameters(TRIALS),
        counts.Owners(TRIALS, PRODUCT),
        counts.unlike(FLOAT32, TRIALS, rng),
    )
    owners.session(params)
    rows = world.rows.copy()
    rows[0] += 0.25
    moved = counts.World(world.owned, FLOAT32.rounded(rows))
    one, other = (counts.seen(PRODUCT, params, owners.encode(each, np.float32), each) for each in (world, moved))
    slope = np.median((other.means - one.means) / (other.own - one.own), axis=1)
    rate = counts.rate(np.rint(1 / slope).astype(np.int64), world)
    said("own row moved by 0.25", two_rounds=rate)
    assert rate == 1.0


def test_a_whole_federation_shows_its_owners_no_more_counts_than_chance(rng: np.random.Generator) -> None:
    entities = 300
    world = counts.unlike(BF16, entities, rng)
    tables = [
        {f"{e}": world.rows[n][e] for e in range(entities) if world.owned[n, e]}  # float64: means are not rounded
        for n in range(counts.CLIENTS)
    ]
    parties = Parties.of(tables, Overheard(), collusion=1)
    parties.setup()
    parties.round(tables)
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    assert part.result is not None
    assert part.result.matrix is not None
    order = [int(str(name)) for name in part.names]
    table = part.spelling.table(as_table(tables[0]))
    own = np.ldexp(part.tables.encoded(table, part.names).astype(np.float64), -part.numbers.f)
    width = math.ldexp(part.numbers.noise.wide, -part.numbers.f)
    seen = counts.Seen(
        part.numbers, 1, own, part.result.matrix.astype(np.float64), np.zeros((0, 0), np.int32), [(width, 2)]
    )
    made = counts.World(world.owned[:, order], world.rows[:, order])
    rate = counts.best_by_grid(seen, BF16, made)
    said("whole federation, bf16", rounds_1=rate)
    assert binomial_tail(round(rate * entities), entities, counts.CHANCE) > 1e-9


# --------------------------------------------------------------------------------- coalitions of the server and clients


@pytest.mark.parametrize(("clients", "collusion", "inside"), [(5, 2, (0, 3)), (4, 3, (0, 2, 3)), (2, 1, (1,))])
def test_a_coalition_sees_how_many_others_own_each_slot_and_the_sums_of_its_own_slots(
    clients: int, collusion: int, inside: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Admitted, and seen exactly."""
    tables = made_tables(rng, clients)
    parties = Parties.of(tables, PRODUCT, collusion=collusion)
    parties.setup()
    coalition = Coalition(parties, inside)
    coalition.round(tables)
    truth = Truth(coalition, tables)
    counted = [len(truth.owners(i)) for i in range(len(truth.name))]
    assert coalition.honest_counts().tolist() == counted
    assert coalition.opened_tables()[tuple(coalition.honest)] == {i for i, count in enumerate(counted) if count}
    sums = coalition.honest_sums()
    assert set(sums) == set(coalition.own_slots)
    for i, found in sums.items():
        rows = [tables[n][truth.name[i]] for n in truth.owners(i)]
        assert np.abs(found - np.sum(rows, axis=0)).max(initial=0) < 1e-9


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


class Emptier(KeyedClient):
    """Takes `amount` owners away from every slot, check and mark included: a slot looks empty if it had as many."""

    amount = 0
    empty: NDArray[np.bool_] = np.zeros(0, np.bool_)
    """What it saw last: which slots are empty,"""
    heard: Residues = RING61.zeros(0, 0)
    """and the means of all slots under their keys."""

    def _less(self, at: Agreement, shared: Secrets) -> Residues:
        """What is taken away, times rho: [P, slots, d + checks + 2]."""
        less = self.numbers.ring.zeros(at.size, self.params.dim + self.numbers.checks + 2)
        for column, x in enumerate((*shared.J, np.ones_like(shared.rho), shared.beta), self.params.dim):
            less[:, :, column] = x
        return less

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        ring = self.numbers.ring
        for chunk, (body, *rest) in enumerate(super()._upload(at)):
            assert chunk == 0
            shared = self.secrets(at).of(0, at.size, ())
            less = self._less(at, shared)
            scale_rows(ring, less, ring.multiply(shared.rho, ring.constant([self.amount] * at.size)))
            yield ring.to_bytes(ring.subtract(ring.from_bytes(bytes(body), *less.shape[1:]), less)), *rest

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Look which slots are empty now."""
        super().stream(kind, sender, chunk, chunks, payload, at)
        body, n = len(payload) - at.size, self.numbers
        self.empty = np.frombuffer(bytes(payload[body:]), np.uint8).astype(np.bool_)
        self.heard = n.ring.from_bytes(bytes(payload[:body]), at.size, self.params.dim + n.checks)


class Amplifier(Emptier):
    """The same for its own slots, with the key of each row: the sum is then divided by fewer than there are."""

    def _less(self, at: Agreement, shared: Secrets) -> Residues:
        assert self.union is not None
        ring, slots, d = self.numbers.ring, self.union.slots, self.params.dim
        G, less = row_streams(ring, self.union.keys, at.round, d), ring.zeros(*super()._less(at, shared).shape[1:])
        own = np.ascontiguousarray(super()._less(at, shared)[:, slots])
        own[:, :, :d] = G
        for k, alpha in enumerate(shared.alpha):
            column = np.ascontiguousarray(own[:, :, d + k])
            own[:, :, d + k] = ring.add(column, weighted_sums(ring, G, alpha))
        less[:, slots] = own
        return less


class Guesser(KeyedClient):
    """Asks for names that it guesses, and leaves them out of its own lookup table: whose tag is there, another has."""

    def _table(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        asked = self.naming.names
        self.naming.names = replace(asked, own=())
        yield from list(super()._table(at))
        self.naming.names = asked

    @property
    def found(self) -> set[Name]:
        """The names that others have."""
        assert self.union is not None
        return {self.names[i] for i in self.union.order}


class Greedy(KeyedClient):
    """Sends a list with one more point than there is room for."""

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The list, and its first point times 2."""
        for receiver, parts in super().payloads(kind, receivers, at):
            points = np.frombuffer(b"".join(parts), np.uint8)[:32].reshape(1, 32) if kind is Kind.LIST else None
            more = () if points is None else (multiply(points, scalar_rows([2])[0]).tobytes(),)
            yield receiver, (*parts, *more)


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
