"""Laws of the union: it is the set union, whoever has what; and the server's total shows nothing else."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import M61, RING61, Residues, Ring, insecure_ring
from secea.steps import union
from secea.steps.union import HASHES, Geometry, Words, fill, mask, peel, tags_of
from secea.table import Name
from secea.wire.randomness import KeyStream, Source

law = settings(deadline=None)
names = st.integers(0, 60) | st.integers(0, 60).map(str)
seeds = st.binary(min_size=32, max_size=32)


def stream(seed: bytes, *purpose: object) -> KeyStream:
    return KeyStream(hashlib.sha256(seed + repr(purpose).encode()).digest())


@st.composite
def entity_sets(draw: st.DrawFn) -> list[list[Name]]:
    """What each of 3 to 12 clients has: anything, often nothing; or all the same; or nothing in common."""
    clients = draw(st.integers(3, 12))
    some = st.lists(names, max_size=30, unique_by=str)
    match draw(st.sampled_from(["any", "equal", "disjoint"])):
        case "any":
            return draw(st.lists(some | st.just([]), min_size=clients, max_size=clients))
        case "equal":
            return [draw(some)] * clients
        case _:
            return [[f"{n} {name!r}" for name in draw(some)] for n in range(clients)]


def masked_tables(sets: Sequence[Words], geometry: Geometry, seed: bytes) -> list[Residues]:
    """What each client sends: its own table under masks that cancel in the total."""
    tables = []
    for n, tags in enumerate(sets):
        peers = [(v, stream(seed, min(n, v), max(n, v))) for v in range(len(sets)) if v != n]
        tables.append(mask(fill(tags, geometry, stream(seed, n)), n, peers))
    return tables


def summed(tables: Sequence[Residues]) -> Residues:
    total = RING61.zeros(*tables[0].shape[1:])
    for table in tables:
        RING61.add_into(total, table)
    return total


# ----------------------------------------------------------------------------------------------------- the set union


@law
@given(entity_sets(), seeds, st.integers(0, 100))
def test_the_union_is_the_set_union(sets: list[list[Name]], seed: bytes, room: int) -> None:
    everything = sorted({str(name) for names in sets for name in names})
    expected = np.sort(tags_of(everything, seed))
    tags = [tags_of(names, seed) for names in sets]
    for attempt in range(4):  # a stalled peel is rare (below 1 in 200), and then tried again with everything drawn anew
        fresh = seed + bytes([attempt])
        geometry = Geometry.of(max(1, len(everything) + room), attempt, fresh)
        found = peel(summed(masked_tables(tags, geometry, fresh)), geometry)
        if found is not None:
            break
    assert found is not None
    assert np.array_equal(found, expected)


@settings(deadline=None, max_examples=8)
@given(seeds, st.sampled_from([1, 10, 100, 1000, 10_000]))
def test_a_union_as_large_as_its_bound_is_found(seed: bytes, size: int) -> None:
    tags = np.unique(stream(seed).elements(RING61, size)[0])
    geometries = [Geometry.of(size, attempt, seed + bytes([attempt])) for attempt in range(4)]
    found = (peel(fill(tags, geometry, stream(seed, geometry)), geometry) for geometry in geometries)
    assert np.array_equal(next(union for union in found if union is not None), tags)


@law
@given(seeds, st.integers(1, 60), st.integers(50, 400))
def test_a_table_too_full_is_noticed_and_never_read_wrongly(seed: bytes, bound: int, percent: int) -> None:
    geometry = Geometry.of(bound, 0, seed)
    tags = np.unique(stream(seed, "tags").elements(RING61, geometry.cells * percent // 100)[0])
    found = peel(fill(tags, geometry, stream(seed, "weights")), geometry)
    if percent >= 110:  # more tags than cells
        assert found is None
    assert found is None or np.array_equal(found, tags)


@law
@given(entity_sets(), seeds, st.data())
def test_without_one_clients_table_there_is_no_union(sets: list[list[Name]], seed: bytes, data: st.DataObject) -> None:
    geometry = Geometry.of(400, 0, seed)
    tables = masked_tables([tags_of(names, seed) for names in sets], geometry, seed)
    tables.pop(data.draw(st.integers(0, len(sets) - 1)))
    assert peel(summed(tables), geometry) is None


@law
@given(entity_sets(), seeds)
def test_the_masks_cancel_and_the_total_is_left_as_it_was(sets: list[list[Name]], seed: bytes) -> None:
    geometry = Geometry.of(400, 0, seed)
    tags = [tags_of(names, seed) for names in sets]
    total = summed(masked_tables(tags, geometry, seed))
    assert np.array_equal(total, summed([fill(t, geometry, stream(seed, n)) for n, t in enumerate(tags)]))
    before = total.copy()
    peel(total, geometry)
    assert np.array_equal(total, before)


class Impatient(Geometry):
    """Counts how often the cells are looked at: no more passes than cells can be needed."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry.third, geometry.keys)
        object.__setattr__(self, "passes", iter(range(geometry.cells)))

    def positions(self, tags: Words) -> NDArray[np.int64]:
        assert next(self.passes, None) is not None, "peeling does not end"  # type: ignore[attr-defined]
        return super().positions(tags)


@pytest.mark.parametrize("missing", [1, 2])
def test_peeling_a_table_that_no_client_fills_ends_without_a_union(missing: int) -> None:
    geometry = Impatient(Geometry.of(5, 0, bytes(32)))
    tags = np.array([12345], np.uint64)
    table = fill(tags, Geometry(geometry.third, geometry.keys), stream(bytes(32)))
    table[:, Geometry(geometry.third, geometry.keys).positions(tags)[0, :missing]] = 0
    assert peel(table, geometry) is None


# ----------------------------------------------------------------------------------------------------- tags, positions


@law
@given(st.lists(names, min_size=1, unique_by=str), seeds, seeds)
def test_a_tag_is_a_keyed_hash_of_the_name_below_the_prime(some: list[Name], key: bytes, other: bytes) -> None:
    tags = tags_of(some, key)
    assert np.unique(tags).size == len(some)
    assert RING61.valid(tags[None])
    assert np.array_equal(tags_of(some[::-1], key)[::-1], tags)
    assert (tags == tags_of(some, other)).all() == (key == other)


def test_an_integer_and_its_decimal_text_have_one_tag() -> None:
    one, other = tags_of([1, "1"], b"key")
    assert one == other


@law
@given(seeds, st.integers(1, 10**6), st.integers(0, 5), st.lists(st.integers(0, M61 - 1), min_size=1))
def test_each_tag_has_one_cell_in_each_third_and_a_check(
    seed: bytes, bound: int, attempt: int, tags: list[int]
) -> None:
    geometry = Geometry.of(bound, attempt, seed)
    words = np.array(tags, np.uint64)
    assert (geometry.positions(words) // geometry.third == np.arange(HASHES)).all()
    assert RING61.valid(geometry.checks(words)[None])
    again = Geometry.of(bound, attempt, seed)
    assert np.array_equal(again.positions(words), geometry.positions(words))
    assert np.array_equal(again.checks(words), geometry.checks(words))


@law
@given(seeds, st.integers(1, 10**6), st.integers(0, 5))
def test_a_table_has_room_for_its_bound_and_each_attempt_is_larger(seed: bytes, bound: int, attempt: int) -> None:
    first, next_ = Geometry.of(bound, attempt, seed), Geometry.of(bound, attempt + 1, seed)
    assert 1.3 * bound <= first.cells < next_.cells


@law
@given(st.integers(1, 10**6), st.integers(0, 5))
def test_a_table_has_as_many_cells_as_the_specification_says(bound: int, attempt: int) -> None:
    first = math.ceil(Fraction(14, 10) * bound) + 900
    with_more = first + math.floor(Fraction(attempt, 4) * first)  # a quarter more in each further attempt
    assert Geometry.of(bound, attempt, bytes(32)).third == math.ceil(Fraction(with_more, 3))


# ---------------------------------------------------------------------------- what the server sees: exactly, in F_3

F3 = insecure_ring(3)


@dataclass(frozen=True)
class Tiny(Geometry):
    """The same hash functions, with tags and checks of a tiny field."""

    def checks(self, tags: Words) -> Any:
        return (super().checks(tags) % np.uint64(3)).astype(F3.dtype)


class Given:
    """A source of known elements."""

    def __init__(self, *values: int) -> None:
        self.values = values

    def elements(self, ring: Ring, *shape: int) -> Residues:
        return ring.constant(self.values).reshape(ring.size, *shape)


Distribution = dict[bytes, Fraction]
GEOMETRY = Tiny(2, (11, 22, 33, 44))
SETS = [tags for size in range(4) for tags in combinations(range(3), size)]


def distribution(tables: Residues) -> Distribution:
    rows, counts = np.unique(tables, axis=0, return_counts=True)
    return {row.tobytes(): Fraction(int(count), len(tables)) for row, count in zip(rows, counts, strict=True)}


def all_tables(tags: tuple[int, ...], weights: Sequence[int]) -> Residues:
    """A client's table for all choices of its weights: [choices, elements]."""
    words: Any = np.array(tags, F3.dtype)
    choices = product(weights, repeat=len(tags))
    return np.stack([fill(words, GEOMETRY, Given(*choice), F3).ravel() for choice in choices])


def totals_by_union(weights: Sequence[int]) -> Iterator[tuple[frozenset[int], Distribution]]:
    """The distribution of the total for every federation of three clients with entities 0, 1 and 2."""
    tables = {tags: all_tables(tags, weights) for tags in SETS}
    for sets in combinations_with_replacement(SETS, 3):
        total = np.zeros((1, GEOMETRY.cells * 3), F3.dtype)
        for tags in sets:
            pairs = np.repeat(total, len(tables[tags]), axis=0), np.tile(tables[tags], (len(total), 1))
            total = F3.add(pairs[0][None], pairs[1][None])[0]
        yield frozenset().union(*sets), distribution(total)


def depends_on_owners(weights: Sequence[int]) -> bool:
    first: dict[frozenset[int], Distribution] = {}
    return any(first.setdefault(union, total) != total for union, total in totals_by_union(weights))


def test_the_total_depends_on_the_union_alone() -> None:
    assert not depends_on_owners(weights=[0, 1, 2])


@pytest.mark.parametrize("weights", [[1], [1, 2], [0, 1]], ids=["always one", "never zero", "zero or one"])
def test_the_same_check_objects_to_weights_that_are_not_uniform(weights: list[int]) -> None:
    assert depends_on_owners(weights)


def test_the_total_tells_unions_apart() -> None:
    totals = dict(totals_by_union([0, 1, 2]))
    assert len({frozenset(total.items()) for total in totals.values()}) == len(totals) == 8


def masked_views(values: tuple[int, ...], pairs: Sequence[tuple[int, int]]) -> Distribution:
    """What three clients send for tables of one element each, over all masks of those pairs."""
    views = []
    for masks in product(range(3), repeat=len(pairs)):
        sent = []
        for n, value in enumerate(values):
            streams: list[tuple[int, Source]] = [
                (sum(pair) - n, Given(m)) for pair, m in zip(pairs, masks, strict=True) if n in pair
            ]
            sent.append(mask(F3.constant([[value]]), n, streams, F3).ravel())
        views.append(np.concatenate(sent))
    return distribution(np.stack(views))


def masks_hide_all_but_the_total(pairs: Sequence[tuple[int, int]]) -> bool:
    first: dict[int, Distribution] = {}
    cases = [(sum(values) % 3, masked_views(values, pairs)) for values in product(range(3), repeat=3)]
    assert len({frozenset(view.items()) for _, view in cases}) >= 3  # the total itself shows
    return all(first.setdefault(total, view) == view for total, view in cases)


def test_the_masked_tables_together_show_their_total_alone() -> None:
    assert masks_hide_all_but_the_total([(0, 1), (0, 2), (1, 2)])


def test_the_same_check_objects_where_a_client_has_no_masks() -> None:
    assert not masks_hide_all_but_the_total([(1, 2)])


def stalls(entities: int, spare: int, monkeypatch: pytest.MonkeyPatch, tries: int = 400) -> int:
    """How often a full table of small size does not decode."""
    monkeypatch.setattr("secea.steps.union.SPARE_CELLS", spare)
    count = 0
    for i in range(tries):
        key = hashlib.sha256(f"{entities} {i}".encode()).digest()
        geometry = Geometry.of(entities, 0, key)
        count += peel(fill(tags_of(range(entities), key), geometry, KeyStream(key)), geometry) is None
    return count


@pytest.mark.slow
@pytest.mark.parametrize("entities", [10, 50, 200])
def test_without_spare_cells_small_tables_stall_often_and_with_them_hardly_ever(
    entities: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stalls(entities, 900, monkeypatch) <= 1
    assert stalls(entities, 0, monkeypatch) >= 4


@pytest.mark.parametrize("at_once", [1, 3, 1 << 18])
def test_every_cell_is_looked_at_and_the_union_is_the_same_however_many_together(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = tags_of([f"entity {i}" for i in range(20)], bytes(32))
    geometry = Geometry.of(20, 0, bytes(16))
    total = fill(tags, geometry, KeyStream(bytes(32)))
    looked: list[NDArray[np.int64]] = []
    honest = union._peeled

    def peeled(table: Residues, look: NDArray[np.int64], *more: Any) -> Any:
        looked.append(look)
        return honest(table, look, *more)

    monkeypatch.setattr(union, "_peeled", peeled)
    monkeypatch.setattr(union, "PEELED_AT_ONCE", at_once)
    found = peel(total, geometry)
    assert found is not None
    assert found.tolist() == sorted(tags.tolist())
    first = np.concatenate(looked[: -(-geometry.cells // at_once)])
    assert first.tolist() == list(range(geometry.cells))
    assert max(map(len, looked)) <= at_once
