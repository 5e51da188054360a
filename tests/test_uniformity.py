"""Laws of the audit's batteries: exact chances, no false alarm, and an objection to half a per cent that is missing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import M61, PRIMES30
from secea.audit import Objection, Subject, claim
from secea.audit.attacks.keyed import Overheard
from secea.audit.standing import attributes_stand_in
from secea.audit.uniformity import RESIDUES, _bits, _judged, _parts, _residues, independent, nonzero, uniform

Samples = NDArray[np.uint64]
MANY = 10**6
RANGES = [M61, PRIMES30[0], 5, 60, 2520, 2**28 + 3]


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    return np.random.default_rng(seed)


@pytest.mark.parametrize("below", RANGES)
def test_uniform_numbers_pass(below: int, rng: np.random.Generator) -> None:
    x, y = (rng.integers(0, below, MANY, np.uint64) for _ in range(2))
    assert uniform("numbers", below, x) > 10 or below < 16
    assert independent("numbers", below, x, y) >= 2
    assert nonzero("numbers", below + 1, x + np.uint64(1))


def without_top(x: Samples, below: int) -> Samples:
    return np.where(x >= below - below // 200, x - np.uint64(below // 200), x)


def biased(x: Samples, below: int) -> Samples:
    return np.where((x & np.uint64(1) == 1) & (x // np.uint64(2) % np.uint64(100) == 0), x - np.uint64(1), x)


def high_bit(x: Samples, below: int) -> Samples:
    half = 1 << (below.bit_length() - 1)
    return np.where((x >= half) & (x % np.uint64(100) == 0), x - np.uint64(half), x)


def repeated(x: Samples, below: int) -> Samples:
    x[200::200] = x[199:-1:200]
    return x


def a_class(x: Samples, below: int) -> Samples:
    return np.where(x % np.uint64(13) == 4, x - np.uint64(1), x)


def neighbours(x: Samples, below: int) -> Samples:
    x[1::20] = x[::20]
    return x


@pytest.mark.parametrize("change", [without_top, biased, high_bit, repeated, a_class, neighbours])
@pytest.mark.parametrize("below", [M61, PRIMES30[0]])
def test_half_a_per_cent_is_seen(
    below: int, change: Callable[[Samples, int], Samples], rng: np.random.Generator
) -> None:
    with pytest.raises(Objection):
        uniform("numbers", below, change(rng.integers(0, below, MANY, np.uint64), below))


@pytest.mark.parametrize("below", [60, 2520])
def test_in_a_small_range_a_missing_number_and_like_neighbours_are_seen(below: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, below, MANY, np.uint64)
    for wrong in (np.where(x == 7, x + np.uint64(1), x), rng.integers(0, below - 1, MANY, np.uint64)):
        with pytest.raises(Objection):
            uniform("numbers", below, wrong)
    with pytest.raises(Objection, match="neighbours"):
        uniform("numbers", below, neighbours(x, below))


def test_what_is_out_of_range_or_zero_is_seen(rng: np.random.Generator) -> None:
    x = rng.integers(0, 5, MANY, np.uint64)
    with pytest.raises(Objection, match="not below 4"):
        uniform("numbers", 4, x)
    with pytest.raises(Objection, match="are 0"):
        nonzero("numbers", 5, x)
    with pytest.raises(AssertionError, match="too few"):
        uniform("numbers", 5, x[:100])


@pytest.mark.parametrize("below", [M61, PRIMES30[0], 2520])
def test_series_that_share_one_in_fifty_or_are_a_shift_of_each_other_are_seen(
    below: int, rng: np.random.Generator
) -> None:
    x, y = (rng.integers(0, below, MANY, np.uint64) for _ in range(2))
    y[::50] = x[::50]
    with pytest.raises(Objection):
        independent("numbers", below, x, y)
    with pytest.raises(Objection):
        independent("numbers", below, x, (x + np.uint64(below // 3)) % np.uint64(below))


def test_of_long_numbers_a_single_shared_run_of_words_is_seen(rng: np.random.Generator) -> None:
    x, y = (rng.integers(0, M61, MANY, np.uint64) for _ in range(2))
    y[500_000:500_020] = x[:20]
    with pytest.raises(Objection, match="repetitions"):
        independent("numbers", M61, x, y)


@given(st.integers(2, 3000))
def test_chances_are_those_of_a_count(below: int) -> None:
    """Every number once: then the battery sees exactly what it expects."""
    x = np.arange(below, dtype=np.uint64)
    part, chances = _parts(below, x, 64)
    assert np.bincount(part) == pytest.approx(chances * below)
    assert all(tail == pytest.approx(1.0) for _, tail in _residues(below, x))
    assert all(tail == pytest.approx(1.0) for _, tail in _bits(below, x))
    assert len(list(_residues(below, x))) == sum(m <= below for m in RESIDUES)


def test_a_battery_divides_its_false_alarm_among_its_tests() -> None:
    assert _judged("numbers", 10, [("sizes", 2e-16)] * 50) == 50
    with pytest.raises(Objection, match="sizes of 10 samples"):
        _judged("numbers", 10, [("sizes", 1e-16)] * 50)


# ---------------------------------------------------------------------------------------------- what stands in for what


def test_a_check_runs_with_what_its_subject_puts_in_place_and_leaves_nothing_behind() -> None:
    real, other = streams.stream, object()

    def looks(subject: Subject) -> int:
        """Keyed: it looks."""
        assert streams.stream is other
        raise Objection("seen")

    made = claim("record", "keyed", mutants=())(looks)
    with pytest.raises(Objection, match="seen"):
        made.check(Subject(Overheard(), within=((streams, "stream", other),)))
    assert streams.stream is real


def test_what_was_replaced_twice_is_put_back() -> None:
    class Owner:
        name = "first"

    with attributes_stand_in((Owner, "name", "second"), (Owner, "name", "third")):
        assert Owner.name == "third"
    assert Owner.name == "first"
