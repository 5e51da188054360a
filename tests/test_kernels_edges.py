"""The inner loops at every odd size, at the ends of their ranges, between other data. `make sanitize` watches them.

Every array has exactly the size that is said, so that whatever reads or writes beside it can be seen.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.arithmetic import grid, portable, streams
from secea.arithmetic.field import M61, P56, PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.streams import Noise

RINGS = (RING61, RING56, Ring(PRIMES30[:3]), insecure_ring(2, 2**32 - 5), insecure_ring(3))
SIZES = (*range(36), 63, 64, 65, 127, 129, 511, 513, 1023, 1025)  # loops take 4, 8, 16, 512 and 1024 at a time
LEVELS = range(streams.BEST + 1)
NOISES = (Noise(1, (1,), 1), Noise(8, (2**16 - 1, 2**16 - 1), 2**62 - 1), Noise(3, (60, 7), 5))
LARGEST, SMALLEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min

each_ring = pytest.mark.parametrize("ring", RINGS, ids=lambda ring: "x".join(map(str, ring.primes))[:24])
each_level = pytest.mark.parametrize("level", LEVELS)


def largest(ring: Ring, *shape: int) -> Residues:
    """p - 1 everywhere."""
    out = ring.empty(*shape)
    for b, p in enumerate(ring.primes):
        out[b] = p - 1
    return out


def apart(ring: Ring, x: Residues) -> tuple[Residues, Residues]:
    """The same vector in the middle of another one; and that one, whose other elements must stay as they are."""
    around = ring.empty(x.shape[1] + 5)
    around[:] = 1
    inside = around[:, 2:-3]
    inside[:] = x
    return inside, around


def untouched(around: Residues) -> bool:
    return bool((around[:, :2] == 1).all() and (around[:, -3:] == 1).all())


@each_ring
def test_arithmetic_at_the_largest_elements_is_that_of_integers(ring: Ring) -> None:
    for n in SIZES:
        x = largest(ring, n)
        assert np.array_equal(ring.add(x, x), ring.constant([-2] * n))
        assert not ring.subtract(x, x).any()
        assert np.array_equal(ring.multiply(x, x), ring.constant([1] * n))
        assert np.array_equal(ring.inverse(x), x)
        assert np.array_equal(ring.combine(largest(ring, 2, 3), largest(ring, 3, n)), ring.constant([[3] * n] * 2))
        assert np.array_equal(ring.join(x, 0.5), np.full(n, -0.5))
        inside, around = apart(ring, x)
        ring.add_into(inside, x)
        assert np.array_equal(inside, ring.constant([-2] * n))
        assert untouched(around)


@each_ring
def test_elements_are_read_from_anywhere_in_a_message_and_the_last_one_is_looked_at(ring: Ring) -> None:
    for n in SIZES:
        x = largest(ring, n)
        assert np.array_equal(ring.from_bytes(memoryview(b"x" + bytes(ring.to_bytes(x)))[1:], n), x)
        for b in range(ring.size if n else 0):
            x[b, n - 1] += 1
            assert not ring.valid(x)
            x[b, n - 1] -= 1


@each_ring
def test_integers_of_64_bits_are_reduced_at_both_ends(ring: Ring) -> None:
    for n in SIZES:
        values = np.resize(np.array([LARGEST, SMALLEST, -1, 0, 1, M61, -M61, P56, -P56], np.int64), n)
        assert np.array_equal(ring.reduce(values), ring.constant(values.astype(object)))


@each_level
@each_ring
def test_streams_of_any_size_change_what_they_are_given_and_nothing_beside_it(ring: Ring, level: int) -> None:
    keys = [bytes([k]) * 32 for k in range(3)]
    for n in SIZES:
        expected, (inside, around) = largest(ring, n), apart(ring, largest(ring, n))
        portable.add_streams(ring, expected, keys, [1, -1, 1], 2**32 - 1)
        with streams.use(level):
            streams.add_streams(ring, inside, keys, [1, -1, 1], 2**32 - 1)
        assert np.array_equal(inside, expected)
        assert untouched(around)


@each_level
@each_ring
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_noise_of_any_size_and_width_is_that_of_the_twin(ring: Ring, level: int, noise: Noise) -> None:
    for n in SIZES[::3]:
        expected, (inside, around) = largest(ring, n), apart(ring, largest(ring, n))
        portable.add_noise(ring, expected, b"\xff" * 32, 0, noise)
        with streams.use(level):
            streams.add_noise(ring, inside, b"\xff" * 32, 0, noise)
        assert np.array_equal(inside, expected)
        assert untouched(around)


@each_level
@each_ring
def test_rows_of_any_number_and_length_have_streams_of_their_own(ring: Ring, level: int) -> None:
    for rows in (0, 1, 2, 5):
        for length in (*SIZES[:20], 65):
            keys = np.arange(rows * 32, dtype=np.uint8).reshape(rows, 32)
            with streams.use(level):
                found = streams.row_streams(ring, keys, 7, length)
                assert streams.stream(ring, bytes(32), 1, length, nonzero=True).all()
            assert np.array_equal(found, portable.row_streams(ring, keys, 7, length))


@each_ring
def test_rows_that_lie_apart_are_weighted_and_scaled(ring: Ring) -> None:
    for rows in (0, 1, 3):
        for length in SIZES[:20]:
            wide = largest(ring, rows, length + 3)
            x = wide[:, :, 1 : 1 + length]
            sums = streams.weighted_sums(ring, x, largest(ring, length))
            assert np.array_equal(sums, ring.constant([length] * rows))
            streams.scale_rows(ring, x, largest(ring, rows))
            assert np.array_equal(x, ring.constant([[1] * length] * rows).reshape(x.shape))
            assert np.array_equal(wide[:, :, 0], largest(ring, rows))


def _values(rows: int, dim: int) -> NDArray[np.float64]:
    """Zeros of both signs, the smallest and the largest that there are."""
    return np.resize(
        np.array([0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1.0, -(2.0**10), 2.0**10 - 2.0**-43]), (rows, dim)
    )


@each_level
@pytest.mark.parametrize(("f", "s", "w"), [(0, 1, 1), (24, 8, 256), (50, 6, 2048)])
def test_a_fill_of_any_shape_is_that_of_the_twin(level: int, f: int, s: int, w: int) -> None:
    keys = [bytes([k]) * 32 for k in range((s + 3) // 4 + 1)]
    for rows in (0, 1, 3):
        for dim in (1, 2, 3, 7, 17):
            matrix, entities = _values(rows, dim), np.full(rows, 2**64 - 1, np.uint64)
            used, step = np.full(rows, 23, np.int32), np.full(rows, 2.0**-30)
            with streams.use(level):
                found = streams.encode(matrix, entities, keys, f, s, w, used, step, 1.0)
            assert np.array_equal(found, portable.encode(matrix, entities, keys, f, s, w, used, step, 1.0))
            grid.grid_of(matrix, np.dtype(np.float64))
