"""Laws of the key streams: what they stand for, that both ends read the same, and that no element is favoured."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import M61, PRIMES30, Residues, Ring, insecure_ring
from secea.wire.randomness import KeyStream

MIDDLE = 3 * 2**30 + 1  # three quarters of all words are below this prime
law = settings(deadline=None)
keys = st.binary(min_size=32, max_size=32)
# About every second word is rejected for primes just above a power of two.
SINGLE = [Ring((p,)) for p in (2, 3, 5, 17, 257, 65537, 2**31 - 1, 2**31 + 11, MIDDLE, PRIMES30[0], 2**32 - 5, M61)]
SEVERAL = [insecure_ring(2, 3, 17), Ring(PRIMES30[:3]), insecure_ring(2**31 + 11, 5)]
cuts = st.lists(st.integers(0, 700), min_size=1, max_size=6).map(sorted)


def by_hand(stream: KeyStream, p: int, width: int, count: int) -> list[int]:
    """Rejection sampling in plain Python: the top bits of each word, those below p."""
    kept: list[int] = []
    while len(kept) < count:
        element = int.from_bytes(stream.bytes(width), "little") >> (8 * width - p.bit_length())
        if element < p:
            kept.append(element)
    return kept


def test_the_stream_is_aes_256_in_counter_mode() -> None:
    first = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"  # of the counters 0 and 1
    assert KeyStream(bytes(32)).bytes(32).hex() == first


@law
@given(keys, st.lists(st.integers(0, 2**64 - 1), max_size=5), st.integers(0, 99))
def test_a_lane_starts_at_its_own_half_of_the_counter_whatever_was_read_before(
    key: bytes, lanes: list[int], read: int
) -> None:
    stream = KeyStream(key)
    stream.bytes(read)
    cipher = Cipher(algorithms.AES256(key), modes.ECB())  # noqa: S305 - the block cipher itself, to compare with
    for number in lanes:
        counters = b"".join(number.to_bytes(8, "big") + i.to_bytes(8, "big") for i in range(3))
        assert stream.lane(number).bytes(48) == cipher.encryptor().update(counters)
    assert stream.lane(0).bytes(48) == KeyStream(key).bytes(48)


@law
@given(keys, cuts)
def test_bytes_do_not_depend_on_how_they_are_asked_for(key: bytes, at: list[int]) -> None:
    stream = KeyStream(key)
    parts = [stream.bytes(high - low) for low, high in pairwise([0, *at])]
    assert b"".join(parts) == KeyStream(key).bytes(at[-1])


def test_long_stretches_continue_where_they_were_cut() -> None:
    stream = KeyStream(bytes(32))
    parts = [stream.bytes(count) for count in (2**18 - 1, 2, 2**18, 2**19 + 5)]
    assert b"".join(parts) == KeyStream(bytes(32)).bytes(2**20 + 6)


@law
@given(keys, st.sampled_from(SINGLE), st.integers(0, 200))
def test_elements_are_the_words_of_the_stream_below_the_prime_in_order(key: bytes, ring: Ring, count: int) -> None:
    mine, plain = KeyStream(key), KeyStream(key)
    (row,) = mine.elements(ring, count).tolist()
    assert row == by_hand(plain, ring.primes[0], ring.dtype.itemsize, count)
    assert mine.bytes(16) == plain.bytes(16)  # and not a word more is taken


@law
@given(keys, st.sampled_from(SINGLE), cuts)
def test_both_ends_read_the_same_elements_whatever_the_chunks(key: bytes, ring: Ring, at: list[int]) -> None:
    stream = KeyStream(key)
    parts = [stream.elements(ring, high - low) for low, high in pairwise([0, *at])]
    other = KeyStream(key)
    assert np.array_equal(np.concatenate(parts, axis=1), other.elements(ring, at[-1]))
    assert stream.bytes(8) == other.bytes(8)


@law
@given(keys, st.sampled_from(SEVERAL), cuts)
def test_elements_of_several_primes_are_read_prime_by_prime_in_each_call(key: bytes, ring: Ring, at: list[int]) -> None:
    stream, single = KeyStream(key), KeyStream(key)
    for low, high in pairwise([0, *at]):
        parts = [single.elements(insecure_ring(p), high - low) for p in ring.primes]
        assert np.array_equal(stream.elements(ring, high - low), np.concatenate(parts))


@law
@given(keys, st.sampled_from(SINGLE + SEVERAL), st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_the_shape_does_not_change_what_is_read(key: bytes, ring: Ring, shape: list[int]) -> None:
    shaped = KeyStream(key).elements(ring, *shape)
    assert shaped.shape == (ring.size, *shape)
    assert shaped.dtype == ring.dtype
    assert np.array_equal(shaped.reshape(ring.size, -1), KeyStream(key).elements(ring, int(np.prod(shape))))


@law
@given(keys, st.sampled_from(SINGLE + SEVERAL), st.integers(0, 60))
def test_nonzero_elements_are_not_zero_and_the_same_on_both_ends(key: bytes, ring: Ring, count: int) -> None:
    x = KeyStream(key).nonzero(ring, count)
    assert x.shape == (ring.size, count)
    assert ring.valid(x)
    assert x.all()
    assert np.array_equal(x, KeyStream(key).nonzero(ring, count))
    drawn = KeyStream(key).elements(ring, count)
    assert np.array_equal(x[drawn != 0], drawn[drawn != 0])


# ------------------------------------------------------------------------------------------------ nothing is favoured

SEED = b"the key of the chi-square tests."
DRAWS = 200_000


def even(boxes: NDArray[np.int64], count: int) -> bool:
    """Chi-square: whether the boxes 0..count-1 are filled as evenly as chance would, to five standard deviations."""
    expected = boxes.size / count
    statistic = float(((np.bincount(boxes, minlength=count) - expected) ** 2).sum() / expected)
    freedom = count - 1
    print(f"key {SEED!r}: chi-square {statistic:.1f} for {freedom} degrees of freedom")
    return abs(statistic - freedom) < 5 * sqrt(2 * freedom)


@pytest.mark.parametrize("p", [2, 3, 5, 7, 11, 13, 17, 31, 127, 257])
def test_every_element_of_a_tiny_field_is_equally_likely(p: int) -> None:
    x = KeyStream(SEED).elements(insecure_ring(p), DRAWS)[0].astype(np.int64)
    assert even(x, p)
    assert even(x[:-1] * p + x[1:], p * p)  # and pairs of neighbours too


@pytest.mark.parametrize("p", [3, 5, 7, 11, 13, 17, 31, 127, 257])
def test_every_nonzero_element_of_a_tiny_field_is_equally_likely(p: int) -> None:
    assert even(KeyStream(SEED).nonzero(insecure_ring(p), DRAWS)[0].astype(np.int64) - 1, p - 1)


def part(ring: Ring, x: Residues, count: int) -> NDArray[np.int64]:
    """In which of `count` equal parts of the field each element lies."""
    share: NDArray[np.float64] = x[0].astype(np.float64) / ring.primes[0]
    return (share * count).astype(np.int64)


@pytest.mark.parametrize("p", [M61, PRIMES30[0], 2**32 - 5, 2**31 - 1, 2**31 + 11, MIDDLE, 65537])
def test_every_part_of_a_large_field_and_every_remainder_is_equally_likely(p: int) -> None:
    ring = Ring((p,))
    x = KeyStream(SEED).elements(ring, DRAWS)
    for count in (2, 3, 256, 1000):
        assert even(part(ring, x, count), count)
    for count in (2, 16, 256):
        assert even((x[0] % ring.dtype.type(count)).astype(np.int64), count)


@pytest.mark.parametrize("p", [3, 5, 7, 11, 13, 17, 131, 257, MIDDLE])
def test_the_chi_square_objects_where_words_are_reduced_instead_of_rejected(p: int) -> None:
    words = np.frombuffer(KeyStream(SEED).bytes(4 * DRAWS), np.uint32) >> np.uint32(32 - p.bit_length())
    x = (words % np.uint32(p))[None]
    assert not even(part(insecure_ring(p), x, min(p, 256)), min(p, 256))


def test_the_chi_square_objects_where_zero_is_not_left_out() -> None:
    x = KeyStream(SEED).elements(insecure_ring(13), DRAWS)[0].astype(np.int64)
    assert not even(np.maximum(x, 1) - 1, 12)


# ------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="a key has 32 bytes"):
        KeyStream(bytes(length))


@law
@given(keys, st.integers(0, 255), st.integers(0, 31))
def test_a_key_that_differs_in_one_byte_gives_another_stream(key: bytes, byte: int, at: int) -> None:
    other = key[:at] + bytes([byte]) + key[at + 1 :]
    assert (KeyStream(key).bytes(32) == KeyStream(other).bytes(32)) == (key == other)


def test_a_stream_does_not_show_its_key() -> None:
    assert repr(KeyStream(SEED)) == "KeyStream(...)"
