"""Laws of key streams, noise and fill: compiled loops, portable twin and plain integers over AES give the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic import portable, streams
from secea.arithmetic._kernels import ffi, lib
from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.streams import Noise
from strategies import vectors

LAST_LIGHT = 1073740807  # the smallest prime with the lazy sums of 2^30 - c: one word in 2^20 is rejected
RINGS = [
    RING61,
    RING56,
    *(Ring(PRIMES30[:count]) for count in (2, 3, 4)),
    insecure_ring(2**32 - 5, 2**32 - 17),
    *(
        insecure_ring(*primes)
        for primes in ((5,), (7,), (5, 7), (2, LAST_LIGHT), (2**29 + 11,), (2**31 - 1, 2**31 + 11))
    ),
]
LENGTHS = (0, 1, 2, 3, 5, 63, 64, 65, 511, 512, 513, 1023, 1025)  # loops take 4, 16, 512 and 1024 elements at a time
LEVELS = range(streams.BEST + 1)  # 0 is the portable twin

each_ring = pytest.mark.parametrize("ring", RINGS, ids=lambda ring: "x".join(map(str, ring.primes))[:24])
each_level = pytest.mark.parametrize("level", LEVELS)
law = settings(deadline=None, max_examples=12)
keys = st.binary(min_size=32, max_size=32)
lanes = st.integers(0, 2**32 - 1)


# ------------------------------------------------------------------------------------------- plain integers over AES


@lru_cache(1 << 16)
def encryptor(key: bytes) -> Callable[[bytes], bytes]:
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update  # noqa: S305 - one block each


@lru_cache(1 << 16)
def block(key: bytes, lane: int, prime: int, retry: int, number: int) -> bytes:
    return encryptor(key)(lane.to_bytes(4, "big") + bytes((prime, retry, 0, 0)) + number.to_bytes(8, "big"))


def element(ring: Ring, b: int, key: bytes, lane: int, i: int, least: int = 0) -> int:
    p, width = ring.primes[b], ring.dtype.itemsize
    each = 16 // width
    for retry in range(256):
        word = block(key, lane, b, retry, i // each)[i % each * width :][:width]
        x = int.from_bytes(word, "little") >> (8 * width - p.bit_length())
        if least <= x < p:
            return x
    raise AssertionError("no word was kept")


def elements(ring: Ring, key: bytes, lane: int, count: int, least: int = 0) -> list[list[int]]:
    return [[element(ring, b, key, lane, i, least) for i in range(count)] for b in range(ring.size)]


def noise_of(seed: bytes, lane: int, noise: Noise, i: int) -> int:
    data = b"".join(block(seed, lane, 0, 0, i * noise.blocks + k) for k in range(noise.blocks))
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, 4 * noise.words, 4)]
    total, scale = 0, math.prod(noise.digits)
    for n in range(noise.s):
        place = 1
        for word, digit in zip(words[n * len(noise.digits) :], noise.digits, strict=False):
            total += place * (word * digit >> 32)
            place *= digit
    z = words[-2] | words[-1] << 32
    return total + scale * (z * noise.wide >> 64)


def filled(
    x: float, entity: int, column: int, fill_keys: list[bytes],
    f: int, s: int, w: int, used: int, step: float, cap: float,
) -> int:  # fmt: skip
    value = 0.0 if x == 0 else x
    data = ((entity + column) % 2**64).to_bytes(8, "little") + np.float64(value).tobytes()
    output = b"".join(encryptor(key)(data) for key in fill_keys[:-1])
    fields = [int.from_bytes(output[at : at + 4], "little") for at in range(0, len(output), 4)]
    own = Fraction(0) if x == 0 else Fraction(2) ** (math.frexp(x)[1] - 1 - used)
    g = float(min(max(own, Fraction(step)), Fraction(cap)))
    of_grid = (entity + column + int.from_bytes(np.float64(g).tobytes(), "little")) % 2**64  # each grid is another draw
    z = int.from_bytes(encryptor(fill_keys[-1])(of_grid.to_bytes(8, "little") + data[8:])[:8], "little")
    units = math.floor(Fraction(g) * (1 << f))
    grid = (z * units >> 64) - units // 2 if units > w else 0
    scaled = round(Fraction(x) * (1 << f))
    return scaled + sum(field * w >> 32 for field in fields[:s]) - s * (w - 1) // 2 + grid


def of_rows(rows: int, used: int, step: float) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """All rows have this grid."""
    return np.full(rows, used, np.int32), np.full(rows, step)


# ----------------------------------------------------------------------------------------------------------- streams


@each_level
@each_ring
@law
@given(st.data())
def test_a_stream_is_the_words_of_aes_with_rejected_ones_replaced_in_place(
    level: int, ring: Ring, data: st.DataObject
) -> None:
    key, lane, nonzero = data.draw(keys), data.draw(lanes), data.draw(st.booleans())
    length = data.draw(st.sampled_from(LENGTHS))
    with streams.use(level):
        x = streams.stream(ring, key, lane, length, nonzero=nonzero)
    assert x.dtype == ring.dtype
    assert x.tolist() == elements(ring, key, lane, length, int(nonzero))


@each_level
@each_ring
@law
@given(st.data())
def test_masks_are_sums_of_signed_streams(level: int, ring: Ring, data: st.DataObject) -> None:
    signs = data.draw(st.lists(st.sampled_from((1, -1)), min_size=1, max_size=12))
    some = [data.draw(keys) for _ in signs]
    lane, length = data.draw(lanes), data.draw(st.sampled_from([*LENGTHS[:8], 1030]))
    acc = data.draw(vectors(ring, length))
    parts = [elements(ring, key, lane, length) for key in some]
    expected = [
        [
            (int(acc[b, i]) + sum(sign * part[b][i] for sign, part in zip(signs, parts, strict=True))) % p
            for i in range(length)
        ]
        for b, p in enumerate(ring.primes)
    ]
    with streams.use(level):
        streams.add_streams(ring, acc, some, signs, lane)
    assert acc.tolist() == expected


@each_level
@each_ring
@law
@given(st.data())
def test_only_the_part_that_is_given_is_masked_whatever_lies_between_the_primes(
    level: int, ring: Ring, data: st.DataObject
) -> None:
    rows, length, gap = (data.draw(st.integers(low, 40)) for low in (1, 1, 0))
    whole = data.draw(vectors(ring, rows + gap, length))
    before, key, noise = whole.copy(), data.draw(keys), Noise(3, (11,), 5)
    inner = whole[:, :rows]
    with streams.use(level):
        streams.add_streams(ring, inner, [key], [-1], 5)
        streams.add_noise(ring, inner, key, 6, noise)
    assert np.array_equal(whole[:, rows:], before[:, rows:])
    expected = np.ascontiguousarray(before[:, :rows])
    portable.add_streams(ring, expected, [key], [-1], 5)
    portable.add_noise(ring, expected, key, 6, noise)
    assert np.array_equal(inner, expected)


@each_level
@each_ring
@law
@given(key=keys, lane=lanes, rows=st.integers(0, 9), length=st.sampled_from(LENGTHS[:11]), seed=st.integers(0, 2**32))
def test_every_row_is_the_stream_of_its_own_key(
    level: int, ring: Ring, key: bytes, lane: int, rows: int, length: int, seed: int
) -> None:
    some = np.random.default_rng(seed).integers(0, 256, (rows, 32), np.uint8)
    with streams.use(level):
        x = streams.row_streams(ring, some, lane, length)
        assert x.shape == (ring.size, rows, length)
        for row in range(rows):
            assert np.array_equal(x[:, row], streams.stream(ring, some[row].tobytes(), lane, length))


@pytest.mark.parametrize("ring", RINGS[:9], ids=str)
def test_long_vectors_and_many_keys_are_those_of_the_twin(ring: Ring) -> None:
    rng = np.random.default_rng(61)
    some, length = [rng.bytes(32) for _ in range(70)], portable.AT_ONCE + 1234
    signs = [1 if k % 3 else -1 for k in range(70)]
    for count, size in ((1, length), (70, 5), (67, 1)):
        acc = streams.stream(ring, some[0], 8, size)
        other = acc.copy()
        streams.add_streams(ring, acc, some[:count], signs[:count], 9)
        portable.add_streams(ring, other, some[:count], signs[:count], 9)
        assert np.array_equal(acc, other)
    acc, other = ring.zeros(length), ring.zeros(length)
    streams.add_noise(ring, acc, some[1], 3, Noise(6, (27720,), 2**20))
    portable.add_noise(ring, other, some[1], 3, Noise(6, (27720,), 2**20))
    assert np.array_equal(acc, other)


@each_level
@each_ring
@law
@given(st.data())
def test_masks_of_both_signs_cancel(level: int, ring: Ring, data: st.DataObject) -> None:
    acc = data.draw(vectors(ring, data.draw(st.integers(0, 1100))))
    some = data.draw(st.lists(keys, max_size=9))
    before = acc.copy()
    with streams.use(level):
        streams.add_streams(ring, acc, some, [1] * len(some), 0)
        streams.add_streams(ring, acc, some, [-1] * len(some), 0)
    assert np.array_equal(acc, before)


@each_level
def test_a_rejected_word_among_lazy_sums_is_replaced(level: int) -> None:
    ring, key, at, length = insecure_ring(LAST_LIGHT), (1286).to_bytes(32, "big"), 589, 1030
    word = int.from_bytes(block(key, 7, 0, 0, at // 4)[at % 4 * 4 :][:4], "little") >> 2
    assert word >= LAST_LIGHT, "this key was searched for a word that is rejected"
    other = bytes(32)
    one, two = elements(ring, key, 7, length)[0], elements(ring, other, 7, length)[0]
    with streams.use(level):
        assert streams.stream(ring, key, 7, length).tolist() == [one]
        for signs in ((1, 1, 1), (-1, -1, -1), (1, -1, 1)):
            acc = ring.constant([LAST_LIGHT - 1] * length)
            streams.add_streams(ring, acc, [other, key, other], signs, 7)
            factor = signs[0] + signs[2]
            expected = [(factor * b + signs[1] * a - 1) % LAST_LIGHT for a, b in zip(one, two, strict=True)]
            assert acc.tolist() == [expected]


@each_level
@pytest.mark.parametrize("ring", [RING61, RING56], ids=str)
@law
@given(key=keys, lane=lanes, length=st.integers(1, 600))
def test_rejected_words_of_eight_bytes_are_replaced(level: int, ring: Ring, key: bytes, lane: int, length: int) -> None:
    # One word in 2^61, or five in 2^56, are rejected otherwise: here the smaller half is.
    bits = ring.modulus.bit_length()
    least, out = 2 ** (bits - 1), np.empty(length, np.uint64)
    if level:
        lib.row_streams64(level, bits, ffi.from_buffer("uint64_t[]", out), key, 1, length, lane, least)
    else:
        out = portable._elements(ring, key, lane, 0, 0, length, least)
    assert [out.tolist()] == elements(ring, key, lane, length, least)


@each_level
@pytest.mark.parametrize("nonzero", [False, True])
@pytest.mark.parametrize("p", [2, 3, 5, 7, 11])
@settings(deadline=None, max_examples=3)
@given(key=keys)
def test_no_element_of_a_small_field_is_favoured(level: int, nonzero: bool, p: int, key: bytes) -> None:
    count, values = 20_000, p - nonzero
    with streams.use(level):
        seen = np.bincount(streams.stream(insecure_ring(p), key, 0, count, nonzero=nonzero)[0], minlength=p)[nonzero:]
    assert seen.size == values
    share = 1 / values
    assert np.abs(seen - count * share).max() <= 7 * math.sqrt(count * share * (1 - share))


# ------------------------------------------------------------------------------------------------------------- noise

noises = st.builds(
    Noise,
    st.integers(1, 9),
    st.lists(st.integers(1, 2**16 - 1) | st.just(2**16 - 1), min_size=0, max_size=6).map(tuple),
    st.integers(1, 2**62 - 1) | st.just(2**62 - 1) | st.integers(1, 2**20),
)


@each_level
@each_ring
@law
@given(st.data())
def test_noise_is_that_of_python_integers_however_large(level: int, ring: Ring, data: st.DataObject) -> None:
    noise, seed, lane = data.draw(noises), data.draw(keys), data.draw(lanes)
    length = data.draw(st.sampled_from((0, 1, 5, 127, 128, 129, 260)))
    acc = data.draw(vectors(ring, length))
    drawn = [noise_of(seed, lane, noise, i) for i in range(length)]
    assert all(0 <= e <= noise.largest for e in drawn)
    expected = [
        [(int(a) + e) % p for a, e in zip(row, drawn, strict=True)] for row, p in zip(acc, ring.primes, strict=True)
    ]
    with streams.use(level):
        streams.add_noise(ring, acc, seed, lane, noise)
    assert acc.tolist() == expected


@each_level
@settings(deadline=None, max_examples=3)
@given(seed=keys)
def test_noise_reaches_both_ends_and_has_the_mean_and_variance_of_its_parts(level: int, seed: bytes) -> None:
    count, narrow, wide = 20_000, Noise(2, (3,), 2), Noise(6, (40, 63), 2**20)
    acc = RING61.zeros(2, count)
    with streams.use(level):
        streams.add_noise(RING61, acc[:, 0], seed, 0, narrow)
        streams.add_noise(RING61, acc[:, 1], seed, 1, wide)
    assert set(acc[0, 0].tolist()) == set(range(narrow.largest + 1))
    variance = wide.s * (wide.scale**2 - 1) / 12 + wide.scale**2 * (wide.wide**2 - 1) / 12
    e = acc[0, 1].astype(np.float64) - wide.largest / 2
    assert abs(e.mean()) <= 7 * math.sqrt(variance / count)
    assert abs((e**2).mean() / variance - 1) <= 0.06


def test_the_noise_of_an_element_takes_whole_blocks() -> None:
    assert (Noise(6, (9,), 1).words, Noise(6, (9,), 1).blocks) == (8, 2)
    assert (Noise(5, (9, 9), 1).words, Noise(5, (9, 9), 1).blocks) == (12, 3)
    assert (Noise(7, (9,), 1).words, Noise(7, (9,), 1).blocks) == (9, 3)


# -------------------------------------------------------------------------------------------------------------- rows


@each_ring
@law
@given(st.data())
def test_weighted_sums_and_scaled_rows_are_those_of_python_integers(ring: Ring, data: st.DataObject) -> None:
    rows, more, gap = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3))
    length = data.draw(st.sampled_from((0, 1, 15, 16, 17, 31, 32, 33, 130, 241, 515)))
    whole = data.draw(vectors(ring, rows + more, length + gap))
    weights, factors = data.draw(vectors(ring, length)), data.draw(vectors(ring, rows))
    x, before = whole[:, :rows, :length], whole.copy()
    sums = [
        [sum(int(a) * int(w) for a, w in zip(row, weights[b], strict=True)) % p for row in x[b]]
        for b, p in enumerate(ring.primes)
    ]
    scaled = [
        [[int(a) * int(factor) % p for a in row] for row, factor in zip(x[b], factors[b], strict=True)]
        for b, p in enumerate(ring.primes)
    ]
    assert streams.weighted_sums(ring, x, weights).tolist() == sums
    streams.scale_rows(ring, x, factors)
    assert x.tolist() == scaled
    before[:, :rows, :length] = x
    assert np.array_equal(whole, before)


@each_ring
@law
@given(st.data())
def test_rows_are_scaled_and_added_to_wherever_they_belong(ring: Ring, data: st.DataObject) -> None:
    rows, more, length = (data.draw(st.integers(low, 5)) for low in (0, 0, 1))
    x, added = (data.draw(vectors(ring, rows, length)) for _ in range(2))
    factors, out = data.draw(vectors(ring, rows)), data.draw(vectors(ring, rows + more, length + 2))
    places = np.array(data.draw(st.permutations(range(rows + more)))[:rows], np.int64)
    expected = out.copy()
    for b, p in enumerate(ring.primes):
        for row, to in enumerate(places):
            for j in range(length):
                expected[b, to, j + 1] = (int(x[b, row, j]) * int(factors[b, row]) + int(added[b, row, j])) % p
    streams.scaled_rows(ring, out[:, :, 1:-1], x, factors, places=places, added=added)
    assert np.array_equal(out, expected)


@each_ring
@law
@given(st.data(), st.integers(-(2**70), 2**70))
def test_signed_integers_are_added_a_number_of_times(ring: Ring, data: st.DataObject, factor: int) -> None:
    n = data.draw(st.integers(0, 9))
    acc = data.draw(vectors(ring, n))
    x = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n))
    expected = [[(int(a) + factor * v) % p for a, v in zip(acc[b], x, strict=True)] for b, p in enumerate(ring.primes)]
    streams.add_scaled(ring, acc, np.array(x, np.int64), factor)
    assert acc.tolist() == expected


# -------------------------------------------------------------------------------------------------------------- fill


@st.composite
def fills(draw: st.DrawFn) -> tuple[int, int, int, float]:
    """f, s, w, cap."""
    f, s = draw(st.integers(0, 60)), draw(st.integers(0, 14))
    w = draw(st.sampled_from((1, 2, 3, 2**8, 2**11, 2**11 + 1, 2**32 - 1)) | st.integers(1, 2**32 - 1))
    most = math.nextafter(2.0 ** (59 - f), 0.0)
    caps = st.integers(-f - 3, 58 - f).map(lambda e: 2.0**e) | st.sampled_from((0.0, most)) | st.floats(0.0, most)
    return f, s, w, draw(caps)


def steps_near(f: int, w: int) -> st.SearchStrategy[float]:
    """Steps of a row: none, tiny ones, any, those about as wide as w."""
    some = st.sampled_from((0.0, -0.0, 5e-324, 1e-3, w / 2.0**f, (w + 1) / 2.0**f, math.nextafter((w + 1) / 2.0**f, 0)))
    return some | st.floats(0.0, 2.0 ** (60 - f)) | st.integers(-f - 3, 60 - f).map(lambda e: 2.0**e)


def key_count(s: int) -> int:
    return -(-s // 4) + 1


SPECIAL = (0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, -(2.0**-1022), 1.0, -1.0, 0.5, 1.5, 2.5)


@each_level
@settings(deadline=None)
@given(st.data())
def test_a_fill_is_that_of_python_integers(level: int, data: st.DataObject) -> None:
    f, s, w, cap = data.draw(fills())
    some = [data.draw(keys) for _ in range(key_count(s))]
    rows, dim = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 90))
    most = math.nextafter(2.0 ** (61 - f), 0.0)
    special = [x for x in (*SPECIAL, most, -most, *(k / 2.0 ** (f + 1) for k in (1, 3, 5, -1, -3))) if abs(x) <= most]
    numbers = st.sampled_from(special) | st.floats(-most, most)
    few = data.draw(st.lists(numbers, min_size=1, max_size=8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    matrix = np.where(
        rng.random((rows, dim)) < 0.5, rng.choice(few, (rows, dim)), rng.uniform(-most, most, (rows, dim))
    )
    entities = rng.integers(0, 2**64, rows, np.uint64)
    entities[:1] = 2**64 - 3
    used = np.array([data.draw(st.sampled_from((0, 7, 23, 52, 1100))) for _ in range(rows)], np.int32)
    step = np.array([data.draw(steps_near(f, w)) for _ in range(rows)], np.float64)
    expected = [
        [filled(float(x), int(entity), j, some, f, s, w, int(bits), float(g), cap) for j, x in enumerate(row)]
        for row, entity, bits, g in zip(matrix, entities, used, step, strict=True)
    ]
    with streams.use(level):
        assert streams.encode(matrix, entities, some, f, s, w, used, step, cap).tolist() == expected


@each_level
@law
@given(key=st.lists(keys, min_size=3, max_size=3), seed=st.integers(0, 2**32))
def test_a_fill_depends_on_entity_column_and_value_alone(level: int, key: list[bytes], seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, entities = rng.normal(size=(40, 33)), rng.integers(0, 2**64, 40, np.uint64)
    order, shape = rng.permutation(40), (40, 6, 2**11, *of_rows(40, 23, 2.0**-40), 1.0)
    with streams.use(level):
        once = streams.encode(matrix, entities, key, *shape)
        again = streams.encode(np.ascontiguousarray(matrix[order]), entities[order], key, *shape)
        narrow = streams.encode(np.ascontiguousarray(matrix[:, :7]), entities, key, *shape)
        zeros = streams.encode(np.zeros((40, 33)), entities, key, *shape)
        minus = streams.encode(np.full((40, 33), -0.0), entities, key, *shape)
    assert np.array_equal(again, once[order])
    assert np.array_equal(narrow, once[:, :7])
    assert np.array_equal(zeros, minus)
    assert np.unique(zeros).size > 1000


@each_level
@law
@given(key=keys, w=st.integers(1, 2**31 - 1), seed=st.integers(0, 2**32))
def test_a_wider_fill_scales_the_numbers_and_does_not_redraw_them(level: int, key: bytes, w: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    zeros, entities = np.zeros((20, 9)), rng.integers(0, 2**64, 20, np.uint64)
    none = *of_rows(20, 0, 0.0), 0.0
    with streams.use(level):
        one = streams.encode(zeros, entities, [key, key], 0, 1, w, *none) + (w - 1) // 2
        two = streams.encode(zeros, entities, [key, key], 0, 1, 2 * w, *none) + (2 * w - 1) // 2
        finer, coarser = (
            streams.encode(zeros, entities, [key], f, 0, 1, *of_rows(20, 0, 1.0), 1.0) + 2 ** (f - 1) for f in (57, 58)
        )
    assert np.array_equal(two >> 1, one)
    assert np.array_equal(coarser >> 1, finer)
    assert finer.min() >= 0
    assert finer.max() < 2**57


@each_level
@law
@given(key=keys, seed=st.integers(0, 2**32))
def test_another_grid_is_another_draw(level: int, key: bytes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    zeros, entities = np.zeros((40, 9)), rng.integers(0, 2**64, 40, np.uint64)
    with streams.use(level):
        fills = [
            streams.encode(zeros, entities, [key], 50, 0, 1, *of_rows(40, 0, g), 1.0) / (2.0**50 * g)
            for g in (2.0**-8, 2.0**-7, 0.0109, math.nextafter(0.0109, 1), 1.0)
        ]
    for i, one in enumerate(fills):
        for other in fills[i + 1 :]:
            assert abs(np.corrcoef(one.reshape(-1), other.reshape(-1))[0, 1]) < 0.4


@each_level
@settings(deadline=None, max_examples=3)
@given(key=st.lists(keys, min_size=2, max_size=2))
@pytest.mark.parametrize("width", [7, 8, 13])
def test_a_fill_is_centred_and_stays_within_its_widths(level: int, width: int, key: list[bytes]) -> None:
    s, w = 3, 4
    entities = np.arange(0, 2**20, 2**6, dtype=np.uint64)
    grid = of_rows(entities.size, 0, width + 0.9)  # what is not a whole unit is cut off
    with streams.use(level):
        fill = streams.encode(np.zeros((entities.size, 4)), entities, key, 0, s, w, *grid, 20.0)
    lowest, highest = -(s * (w - 1) // 2) - width // 2, s * (w - 1) - s * (w - 1) // 2 + width - width // 2 - 1
    assert set(fill.reshape(-1).tolist()) == set(range(lowest, highest + 1))
    variance = s * (w**2 - 1) / 12 + (width**2 - 1) / 12
    assert abs(fill.mean() - (lowest + highest) / 2) <= 7 * math.sqrt(variance / fill.size)


# ---------------------------------------------------------------------------------------------------------- refusals

FILL = (40, 6, 2**11, *of_rows(2, 23, 2.0**-40), 1.0)
ENTITIES = np.zeros(2, np.uint64)


@each_level
@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf, 2.0**21, -(2.0**21), 1e300])
@pytest.mark.parametrize("at", [0, 5, 299])
def test_numbers_that_are_too_large_are_refused_wherever_they_are(level: int, x: float, at: int) -> None:
    matrix = np.zeros((2, 150))
    matrix.reshape(-1)[at] = x
    with streams.use(level), pytest.raises(ValueError, match="not below 2\\^61 after scaling"):
        streams.encode(matrix, ENTITIES, [bytes(32)] * 3, *FILL)


@each_level
def test_what_does_not_fit_is_refused_and_no_key_is_shown(level: int) -> None:
    ring, secret = Ring(PRIMES30[:2]), b"\x99secret" * 5
    good, matrix, wrong = bytes(32), np.zeros((2, 3)), ring.zeros(6)[:, ::2]
    frozen = ring.zeros(3)
    frozen.flags.writeable = False
    array = np.zeros((4, 32), np.uint8)
    wrong_rows: list[tuple[Any, Any]] = [
        *(of_rows(*row) for row in ((3, 23, 0.0), (2, -1, 0.0), (2, 1101, 0.0), (2, 23, -1.0), (2, 23, math.nan))),
        of_rows(2, 23, math.inf), (FILL[3], FILL[4].astype(np.float32)), (FILL[3].astype(np.int64), FILL[4]),
    ]  # fmt: skip

    def encoded_by(rows: tuple[Any, Any]) -> object:
        return streams.encode(matrix, ENTITIES, [good] * 3, *FILL[:3], *rows, 1.0)

    refused: list[Callable[[], object]] = [
        lambda: streams.stream(ring, secret, 0, 3),
        lambda: streams.stream(ring, good, 2**32, 3),
        lambda: streams.stream(ring, good, -1, 3),
        lambda: streams.add_streams(ring, ring.zeros(3), [good, secret], [1, 1], 0),
        lambda: streams.add_streams(ring, ring.zeros(3), [good], [1, 1], 0),
        lambda: streams.add_streams(ring, ring.zeros(3), [good], [0], 0),
        lambda: streams.add_streams(ring, RING61.zeros(3), [good], [1], 0),
        lambda: streams.add_streams(ring, wrong, [good], [1], 0),
        lambda: streams.add_streams(ring, frozen, [good], [1], 0),
        lambda: streams.add_streams(ring, ring.zeros(3)[::-1], [good], [1], 0),
        lambda: streams.add_noise(ring, ring.zeros(3), secret, 0, Noise(1, (2,), 3)),
        lambda: streams.add_noise(ring, frozen, good, 0, Noise(1, (2,), 3)),
        lambda: streams.row_streams(ring, array[:, :31], 0, 3),
        lambda: streams.row_streams(ring, array.astype(np.int8), 0, 3),
        lambda: streams.weighted_sums(ring, ring.zeros(4, 3), ring.zeros(4)),
        lambda: streams.weighted_sums(ring, ring.zeros(4, 6)[:, :, ::2], ring.zeros(3)),
        lambda: streams.weighted_sums(ring, ring.zeros(3), ring.zeros(3)),
        lambda: streams.scale_rows(ring, ring.zeros(4, 3), ring.zeros(3)),
        lambda: streams.scaled_rows(ring, ring.zeros(4, 2), ring.zeros(4, 3), ring.zeros(4)),
        lambda: streams.scaled_rows(ring, ring.zeros(5, 3), ring.zeros(4, 3), ring.zeros(4)),
        lambda: streams.scaled_rows(ring, ring.zeros(4, 3), ring.zeros(2, 3), ring.zeros(2), places=np.array([0, 4])),
        lambda: streams.scaled_rows(ring, ring.zeros(4, 3), ring.zeros(2, 3), ring.zeros(2), places=np.array([-1, 0])),
        lambda: streams.scaled_rows(ring, ring.zeros(4, 3), ring.zeros(2, 3), ring.zeros(2), places=np.zeros(1, int)),
        lambda: streams.scaled_rows(ring, ring.zeros(2, 3), ring.zeros(2, 3), ring.zeros(2), added=ring.zeros(2, 2)),
        lambda: streams.add_scaled(ring, ring.zeros(4), np.zeros(3, np.int64), 1),
        lambda: streams.add_scaled(ring, ring.zeros(4), np.zeros(4), 1),  # type: ignore[arg-type]
        lambda: streams.encode(matrix, ENTITIES[:1], [good] * 3, *FILL),
        lambda: streams.encode(matrix, ENTITIES, [good], *FILL),
        lambda: streams.encode(matrix, ENTITIES, [good, good, secret], *FILL),
        lambda: streams.encode(matrix.astype(np.float32), ENTITIES, [good] * 3, *FILL),
        lambda: streams.encode(matrix, ENTITIES, [good] * 3, 40, 6, 0, *FILL[3:]),
        lambda: streams.encode(matrix, ENTITIES, [good] * 3, *FILL[:5], 2.0**19),
        lambda: streams.encode(matrix, ENTITIES, [good] * 3, *FILL[:5], -1.0),
        lambda: streams.encode(matrix, ENTITIES, [good] * 3, *FILL[:5], math.nan),
        *(partial(encoded_by, rows) for rows in wrong_rows),
        lambda: Noise(1, (2**16,), 3),
        lambda: Noise(1, (0,), 3),
        lambda: Noise(1, (2,), 2**62),
        lambda: Noise(0, (2,), 3),
        lambda: Noise(512, (2, 2), 3),
    ]
    with streams.use(level):
        for call in refused:
            with pytest.raises(ValueError) as caught:  # noqa: PT011 - each says something else
                call()
            assert "secret" not in str(caught.value)


def test_a_level_that_the_processor_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="the level must be from 0 to"), streams.use(streams.BEST + 1):
        pass


class Zeros:
    """A twin whose streams and noise are 0."""

    encode = staticmethod(portable.encode)

    def add_streams(self, *_: Any) -> None:
        """Add nothing."""

    def add_noise(self, *_: Any) -> None:
        """Add nothing."""

    def stream(self, ring: Ring, _key: bytes, _lane: int, *shape: int, nonzero: bool = False) -> Residues:
        return ring.zeros(*shape)

    def row_streams(self, ring: Ring, keys: NDArray[np.uint8], _lane: int, length: int) -> Residues:
        return ring.zeros(len(keys), length)


def test_another_twin_computes_within_use_and_only_there() -> None:
    def computed() -> list[Residues]:
        acc, key = RING61.zeros(4), bytes(32)
        streams.add_streams(RING61, acc, [key], [1], 0)
        streams.add_noise(RING61, acc, key, 0, Noise(1, (2,), 3))
        rows = streams.row_streams(RING61, np.zeros((2, 32), np.uint8), 0, 3)
        return [acc, streams.stream(RING61, key, 0, 5), rows]

    before = computed()
    with streams.use(0, Zeros()):
        assert not any(each.any() for each in computed())
    assert all(np.array_equal(one, two) for one, two in zip(before, computed(), strict=True))
    with streams.use(0):
        assert all(np.array_equal(one, two) for one, two in zip(before, computed(), strict=True))


def test_the_names_and_arguments_of_the_twin_are_the_same() -> None:
    for name in ("add_streams", "stream", "row_streams", "add_noise", "encode"):
        assert getattr(streams, name).__annotations__ == getattr(portable, name).__annotations__
