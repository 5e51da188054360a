"""A client's tables by themselves: their order, their grid, what tells them apart, and what is read as a mean."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Final

import numpy as np
import pytest

from secea.errors import TableError
from secea.forms.keyed import Keyed
from secea.forms.keyed.numbers import GRID_SHARE_BITS
from secea.forms.keyed.tables import Result, Tables, weighing_error
from secea.params import Params
from secea.table import Table
from secea.wire.keys import Identity

NAMES: Final = ("b", "a", 7, "c")
WEIGHTS: Final = np.array([0, 1, 9, 4])


def rows(count: int = 4, dtype: Any = np.float64) -> Any:
    return ((np.arange(count * 3) * 37 % 101 - 50) / 7).reshape(count, 3).astype(dtype)


def tables(number: int = 0, identity: bytes = bytes(32), **options: Any) -> Tables:
    form = Keyed()
    params = form.checked(Params(3, dim=3, max_entities=8, max_union=20, **options))
    return Tables(params, form.numbers(params), number, Identity(identity))


def table(weights: Any = None, dtype: Any = np.float64) -> Table:
    return Table(NAMES, rows(dtype=dtype), weights)


# --------------------------------------------------------------------------------------------------------------- order


def test_each_name_has_its_row_and_a_name_without_one_has_none() -> None:
    own = tables()
    for names in (NAMES, ("c", "x", 7, "b"), (), ("a",), NAMES[::-1]):
        expected = [NAMES.index(name) if name in NAMES else -1 for name in names]
        for _ in range(2):
            found = own.where(table(), names)
            assert (found.tolist(), found.dtype) == (expected, np.dtype(np.int32))
        other = Table(names[::-1], rows(len(names)))
        assert own.where(other, names).tolist() == list(range(len(names)))[::-1]


def test_the_order_of_the_last_table_is_kept() -> None:
    own = tables()
    first = own.where(table(), ("a", "b"))
    assert own.where(table(), ("a", "b")) is first
    assert own.where(table(), ("b", "a")) is not first


def test_hashes_of_names_are_those_of_a_client_and_kept() -> None:
    own = tables()
    hashed = own.hashed(NAMES)
    assert own.hashed(NAMES) is hashed
    assert own.hashed(NAMES[::-1]).tolist() == hashed[::-1].tolist()
    none = tables().hashed(())
    assert (none.shape, none.dtype) == ((0,), np.dtype(np.uint64))
    assert len({*hashed.tolist(), *tables(identity=bytes([1] * 32)).hashed(NAMES).tolist()}) == 8


# ---------------------------------------------------------------------------------------------------------------- grid


def test_the_grid_of_a_session_only_grows_coarser() -> None:
    own, rng = tables(), np.random.default_rng(3)
    noise = rng.normal(size=(60, 3))
    hundredths, thousandths = (np.round(noise, digits) for digits in (2, 3))
    many = tuple(range(60))
    seen = []
    for matrix in (noise, thousandths, hundredths, noise, np.float32(noise)):
        own.look_at(Table(many, np.array(matrix, np.float64)))
        seen.append(own.grid)
    assert all(later[0] <= before[0] and later[1] >= before[1] for before, later in itertools.pairwise(seen))  # type: ignore[index]
    assert seen[0] != seen[1] != seen[2] == seen[3]
    assert seen[2][1] == pytest.approx(0.01)  # type: ignore[index]
    assert seen[4][0] == 23  # type: ignore[index]


# --------------------------------------------------------------------------------------------- what tells tables apart


def test_a_fingerprint_tells_apart_whatever_may_differ_and_is_the_same_for_the_same() -> None:
    def print_of(
        given: Table, order: Any = (0, 1, 2, 3), round: int = 1, grid: Any = (52, 0.0), identity: bytes = bytes(32)
    ) -> bytes:
        own = tables(identity=identity, max_weight=9)
        own.grid = grid
        return own.fingerprint(given, np.array(order, np.int32), round)

    plain = table(WEIGHTS)
    others = {
        "a value": Table(NAMES, np.where(rows() == rows()[2, 1], 1.5, rows()), WEIGHTS),
        "the last value": Table(NAMES, np.append(rows().flat[:-1], 1.5).reshape(4, 3), WEIGHTS),
        "a weight": table(np.array([0, 1, 9, 5])),
        "no weights": table(),
        "a type": table(WEIGHTS, np.float32),
    }
    found = [print_of(each) for each in (plain, *others.values())]
    found += [print_of(plain, (1, 0, 2, 3)), print_of(plain, round=2), print_of(plain, grid=(23, 0.0))]
    found += [print_of(plain, identity=bytes([1] * 32)), print_of(plain, grid=(52, 0.5))]
    found += [print_of(Table(NAMES[:3], rows(3), WEIGHTS[:3]), (0, 1, 2))]
    assert len(set(found)) == len(found) == 12
    assert print_of(table(WEIGHTS)) == found[0]
    assert found[0].hex() == "22d677e9673f427a0709fcf4e68e5536"  # it is saved, and compared after a restart
    wide, long = Table(tuple("uvwxyz"), rows().reshape(6, 2)), Table(("u", "v", "w"), rows().reshape(3, 4))
    assert print_of(wide) != print_of(long)  # the same numbers in another shape


# ------------------------------------------------------------------------------------------------------- known answers

KNOWN: Final[list[tuple[dict[str, Any], Any, str]]] = [
    ({}, np.float64, "59bec84d5e6f6d03"),
    ({}, np.float32, "3ce8edc6f37066e4"),
    ({"max_weight": 9}, np.float64, "a792b692531ee8b2"),
    ({"max_weight": 9, "precision": 40}, np.float32, "2690e62f469b0b11"),
]
"""Made by this code; that they are what the specification says is the claim `as-specified`."""


@pytest.mark.parametrize(("options", "dtype", "known"), KNOWN)
def test_encoded_rows_are_what_is_written_down(options: dict[str, Any], dtype: Any, known: str) -> None:
    own = tables(identity=bytes(range(32)), **options)
    values = own.encoded(table(WEIGHTS if "max_weight" in options else None, dtype), NAMES[::-1])
    assert values.dtype == np.int64
    assert hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()[:16] == known


# ------------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_a_mean_counts_up_to_the_largest_that_honest_owners_can_have(noise: float) -> None:
    own = tables(noise=noise)
    params, n = own._params, own._numbers
    assert bool(noise) == (n.farthest > 0)
    top = params.max_abs * (1 + 2.0**-GRID_SHARE_BITS) + params.resolution + n.farthest * 2.0**-n.f
    means = np.zeros((4, 3))
    means[0, 2], means[1, 0], means[3, 1] = top, np.nextafter(top, np.inf), -np.nextafter(top, np.inf)
    found, there = own.read(means)
    assert found is means
    assert there.tolist() == [True, False, True, False]


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_weighted_mean_is_the_quotient_of_what_was_averaged(sign: int) -> None:
    own = tables(max_weight=9)
    params = own._params
    share = np.array([1.0, 0.5, 0.1, 0.003, 0.0])
    means = np.column_stack([np.full((5, 3), sign * 2.0) * share[:, None], params.max_abs * share])
    found, there = own.read(means)
    # 0.25 of the lightest share that one of three owners can give: 1 / (4 * 3 * 10) = 1 / 120
    assert there.tolist() == [True, True, True, False, False]
    assert found[:3] == pytest.approx(np.full((3, 3), sign * 2.0))
    least = params.max_abs * 0.25 / (3 * 10)
    for weight, heavy in ((least * 1.001, True), (least, False)):
        assert own.read(np.array([[0.0, 0.0, 0.0, weight]]))[1].tolist() == [heavy]
    assert own.read(np.array([[params.max_abs * 1.1 * sign, 0.0, 0.0, params.max_abs]]))[1].tolist() == [False]


def test_means_are_written_within_the_range_of_an_input_and_in_the_tables_type() -> None:
    own = tables()
    for dtype in (np.float32, np.float64):
        written = own.written(np.array([[64.5, -70.0, 1.25]]), np.dtype(dtype))
        assert (written.tolist(), written.dtype) == ([[64.0, -64.0, 1.25]], np.dtype(dtype))


def test_means_come_in_the_order_of_a_table_and_its_own_rows_stay_where_there_is_none() -> None:
    own, found = tables(), rows() + 1
    result = Result(NAMES, found, np.array([True, False, True, True]))
    same = own.like(table(dtype=np.float32), result)
    assert same.dtype == np.float32
    assert np.array_equal(same, found.astype(np.float32))
    given = Table(("c", "x", "a", "b"), rows() * 2)
    kept = own.like(given, result)
    assert np.array_equal(kept, [found[3], given.matrix[1], given.matrix[2], found[0]])
    assert np.array_equal(given.matrix, rows() * 2)


# ------------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize(
    ("options", "weights", "told"),
    [
        ({"max_weight": 9}, [0, 9, 1, 2], ""),
        ({"max_weight": 9}, [0, 10, 12, 2], "entity 7 has the weight 12; at most max_weight=9"),
        ({"max_weight": 9}, None, "the rows have no weights, and means are weighted here"),
        ({"partial": True}, [0, 1, 1, 0], ""),
        ({"partial": True}, None, ""),
        ({"partial": True}, [0, 1, 2, 0], "entity 7 has the weight 2; at most 1: without max_weight a row is given"),
        ({}, [1, 1, 1, 1], "the rows have weights, and means are not weighted here"),
        ({}, None, ""),
    ],
)
def test_weights_are_there_where_they_count_and_within_their_bound(options: Any, weights: Any, told: str) -> None:
    own = tables(1, **options)
    given = table(None if weights is None else np.array(weights))
    if told:
        with pytest.raises(TableError, match=f"client 1: {told}"):
            own.checked(given, NAMES)
    else:
        assert own.checked(given, NAMES).names == NAMES
    assert own.checked({}, ()).names == ()
    if weights is not None and not told:
        assert own.checked(Table((), np.zeros((0, 3)), np.zeros(0, np.int64)), ()).names == ()


def test_names_are_checked_with_every_table_that_may_have_others() -> None:
    own = tables()
    for _ in range(2):
        assert own.checked(table(), NAMES[::-1]).names == NAMES
        for due in (NAMES[:3], (*NAMES, "d"), ("x", *NAMES[1:])):
            with pytest.raises(TableError, match=r"in the set-up, but not in the table|in the table, but not in the"):
                own.checked(table(), due)


def test_a_share_is_a_function_of_name_weight_and_client_alone() -> None:
    own = tables(max_weight=9)
    hashed = own.hashed(NAMES)
    shares = own.shares(WEIGHTS, hashed)
    assert own.shares(WEIGHTS[::-1], hashed[::-1]).tolist() == shares[::-1].tolist()
    assert own.shares(WEIGHTS[2:], hashed[2:]).tolist() == shares[2:].tolist()
    assert shares[0] == 0
    assert not np.isin(tables(identity=bytes([1] * 32), max_weight=9).shares(WEIGHTS, hashed)[1:], shares).any()
    assert np.abs(shares * 10 - WEIGHTS).max() <= 0.5 + 2**-26


@pytest.mark.parametrize("weights", [[1], [3, 0, 5], [9, 9, 9]])
def test_the_error_of_a_weighted_mean_counts_owners_that_give_something(weights: list[int]) -> None:
    params, half = tables(max_weight=9)._params, 0.5 + 2.0**-26
    count = sum(weight > 0 for weight in weights)
    least = sum(weights) - half * count
    said = 3 * params.resolution * 10 * len(weights) / least + half * count * 1.5 / least
    assert weighing_error(params, weights, 1.5) == pytest.approx(said, rel=1e-12)
