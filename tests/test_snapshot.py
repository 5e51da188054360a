"""Laws of saved state: it comes back as it was, and any damage is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from secea.errors import SecEAError, SnapshotError
from secea.wire.snapshot import checksum, dumps, loads

law = settings(deadline=None)

DTYPES: list[Any] = [np.uint8, np.uint32, np.uint64, np.int64, np.float32, np.float64, np.bool_, ">u4"]
numbers = st.none() | st.booleans() | st.integers() | st.floats()
scalars = numbers | st.text(st.characters(), max_size=5) | st.binary(max_size=9)
shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
array = st.sampled_from(DTYPES).flatmap(lambda kind: arrays(kind, shapes))
keys = st.integers() | st.text(max_size=3) | st.binary(max_size=3) | st.tuples(st.integers(), st.text(max_size=2))
values = st.recursive(
    scalars | array,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["as", "items", "dtype", "shape"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down; floats and arrays bit by bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool((a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()))
    if isinstance(a, float):
        return bool(a.hex() == b.hex())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return bool(a == b)


@law
@given(values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(loads(dumps(value)), value)


@law
@given(values)
def test_the_same_value_gives_the_same_bytes(value: Any) -> None:
    assert dumps(loads(dumps(value))) == dumps(value)


@law
@given(values, values)
def test_snapshots_have_the_same_checksum_if_and_only_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (checksum(dumps(one)) == checksum(dumps(other))) == (dumps(one) == dumps(other))


@law
@given(arrays(np.int64, (3, 4)))
def test_an_array_that_is_not_contiguous_comes_back_and_can_be_written(x: Any) -> None:
    for view in (x.T, x[::2, ::-1], np.asfortranarray(x)):
        back = loads(dumps(view))
        assert np.array_equal(back, view)
        back += 1
        assert np.array_equal(back, view + 1)


@law
@given(values, st.integers(1, 255))
def test_every_flipped_byte_is_noticed(value: Any, flip: int) -> None:
    saved = dumps(value)
    for at in range(len(saved)):
        flipped = bytearray(saved)
        flipped[at] ^= flip
        with pytest.raises(SnapshotError):
            loads(bytes(flipped))


@law
@given(values, st.binary(min_size=1, max_size=40))
def test_every_truncated_or_longer_snapshot_is_noticed(value: Any, more: bytes) -> None:
    saved = dumps(value)
    for wrong in [saved[:length] for length in range(len(saved))] + [saved + more, more + saved]:
        with pytest.raises(SnapshotError):
            loads(wrong)


@law
@given(st.binary(max_size=200))
def test_what_is_no_snapshot_is_refused(junk: bytes) -> None:
    with pytest.raises(SnapshotError) as refusal:
        loads(junk)
    assert isinstance(refusal.value, SecEAError)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, [print], np.float32(1), {"a": print}], ids=lambda x: type(x).__name__
)
def test_what_is_not_plain_is_refused_when_it_is_saved(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be part of a snapshot"):
        dumps(value)
