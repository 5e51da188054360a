"""Laws of the vectors: whatever the prime, the length and the values, they are Python's integers modulo the prime."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic.field import M61, P56, PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from strategies import vectors

# Kernels for 2^61 - 1 and 2^56 - 5; for 2^32 - c, which fold where c < 1024 (4294966297 is the last prime that does,
# 4294966243 the next one); for 2^30 - c (1073740807 and 1073740793); and for any other prime.
RINGS = [
    RING61,
    RING56,
    *(Ring((p,)) for p in PRIMES30),
    *(insecure_ring(p) for p in (2, 3, 5, 7, 257, 65537, 1073740793, 1073740807, 2**31 - 1)),
    *(insecure_ring(p) for p in (4294966243, 4294966297, 2**32 - 5)),
    Ring(PRIMES30),
    insecure_ring(*PRIMES30[:3], 2**32 - 5, 7),
]
# Kernels work on 8, 16 and 512 elements at a time.
LENGTHS = (0, 1, 7, 8, 15, 16, 17, 511, 512, 513, 1025)

each_ring = pytest.mark.parametrize("ring", RINGS, ids=lambda ring: "x".join(map(str, ring.primes))[:24])
law = settings(deadline=None, max_examples=20)


def exactly(ring: Ring, operation: Callable[..., Any], *operands: Residues) -> list[Any]:
    """The operation on Python integers, prime by prime."""
    results = []
    for i, p in enumerate(ring.primes):
        results.append((operation(*(x[i].astype(object) for x in operands)) % p).tolist())
    return results


def inverted(p: int, x: int) -> int:
    return pow(x, -1, p) if x else 0


@each_ring
@law
@given(st.data())
def test_sums_differences_products_and_inverses_are_those_of_python_integers(ring: Ring, data: st.DataObject) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    a, b = (data.draw(vectors(ring, length)) for _ in range(2))
    before = a.copy(), b.copy()
    assert ring.add(a, b).tolist() == exactly(ring, operator.add, a, b)
    assert ring.subtract(a, b).tolist() == exactly(ring, operator.sub, a, b)
    assert ring.multiply(a, b).tolist() == exactly(ring, operator.mul, a, b)
    reciprocals = [[inverted(p, int(x)) for x in row] for p, row in zip(ring.primes, a, strict=True)]
    assert ring.inverse(a).tolist() == reciprocals
    assert np.array_equal(a, before[0])
    assert np.array_equal(b, before[1])


@each_ring
def test_the_largest_elements_do_not_overflow_at_any_length(ring: Ring) -> None:
    for length in LENGTHS:
        x = ring.subtract(ring.zeros(length), ring.constant([1] * length))  # p - 1 everywhere, that is -1
        assert x.tolist() == [[p - 1] * length for p in ring.primes]
        assert ring.add(x, x).tolist() == [[(p - 2) % p] * length for p in ring.primes]
        assert ring.multiply(x, x).tolist() == [[1] * length] * ring.size
        assert ring.inverse(x).tolist() == x.tolist()
        matrix, tall = ring.constant([[-1] * 7] * 2), np.stack([x] * 7, axis=1)
        assert ring.combine(matrix, tall).tolist() == [[[7 % p] * length] * 2 for p in ring.primes]


SHAPES = [(1, 1), (8, 5), (3, 9), (2, 31), (2, 32), (2, 33), (1, 64), (1, 65), (2, 100), (1, 1000), (0, 3), (3, 0)]


@each_ring
@law
@given(st.data())
def test_a_combination_is_a_matrix_product(ring: Ring, data: st.DataObject) -> None:
    rows, columns = data.draw(st.sampled_from(SHAPES))
    length = data.draw(st.sampled_from(LENGTHS if rows * columns <= 40 else LENGTHS[:7]))
    matrix, x = data.draw(vectors(ring, rows, columns)), data.draw(vectors(ring, columns, length))
    assert ring.combine(matrix, x).tolist() == exactly(ring, operator.matmul, matrix, x)


LONELY = [RING61, RING56, *(Ring((p,)) for p in (2**32 - 5, PRIMES30[0], PRIMES30[-1], 1073740807, 65537))]


# Sums are reduced after 15, 32 and 64 products.
@pytest.mark.parametrize("columns", [2, 3, 4, 14, 15, 16, 17, 63, 64, 65, 128, 1000, 5000])
@pytest.mark.parametrize("ring", LONELY, ids=repr)
def test_sums_of_the_largest_products_do_not_overflow(ring: Ring, columns: int) -> None:
    (p,) = ring.primes
    length = 17
    matrix, x = np.full((1, 1, columns), p - 1, ring.dtype), np.full((1, columns, length), p - 1, ring.dtype)
    assert ring.combine(matrix, x).tolist() == [[[columns % p] * length]]
    assert ring.combine(np.repeat(matrix, 3, axis=1), x).tolist() == [[[columns % p] * length] * 3]
    if ring == RING61:
        begun, starts = np.full((1, 1, length), p - 1, ring.dtype), np.array([0, columns])
        ring.gather_into([begun], starts, None, [matrix[0]], np.ascontiguousarray(x))
        assert begun.tolist() == [[[(columns - 1) % p] * length]]


@law
@given(st.data())
def test_gathered_rows_are_the_weighted_sums_of_their_members(data: st.DataObject) -> None:
    ring = RING61
    counts = data.draw(st.lists(st.sampled_from([0, 1, 5, 33, 66]), max_size=4))
    starts = np.cumsum([0, *counts])
    rows, length = (
        data.draw(st.integers(66, 70)),
        data.draw(st.sampled_from([*LENGTHS[:7], 24, 32, 43, 48, 49, 57, 100])),
    )
    weights, y = data.draw(vectors(ring, int(starts[-1]))), data.draw(vectors(ring, rows, length))
    anywhere = st.lists(st.integers(0, rows - 1), min_size=weights.shape[1], max_size=weights.shape[1])
    members = np.array(data.draw(anywhere), np.int64)
    spans = [slice(low, high) for low, high in pairwise(starts)]
    for given_members, members_of in ((members, [members[s] for s in spans]), (None, [np.arange(c) for c in counts])):
        expected = ring.zeros(len(counts), length)
        for j, (span, some) in enumerate(zip(spans, members_of, strict=True)):
            expected[:, j] = exactly(ring, operator.matmul, weights[:, span], y[:, some])
        other = np.concatenate([ring.zeros(5), weights], axis=1)[:, 5:]
        begun = [data.draw(vectors(ring, len(counts), length)) for _ in range(3)]
        results = [each.copy() for each in begun]
        ring.gather_into(results, starts, given_members, [weights, other, ring.zeros(weights.shape[1])], y)
        for before, after, gathered in zip(
            begun, results, (expected, expected, ring.zeros(*expected.shape[1:])), strict=True
        ):
            assert np.array_equal(after, ring.add(before, gathered))


def test_results_of_another_shape_are_refused() -> None:
    starts, weights, y = np.array([0, 2]), [RING61.zeros(2)], RING61.zeros(2, 4)
    for results in ([], [RING61.zeros(2, 4)], [RING61.zeros(1, 4)] * 2):
        with pytest.raises(ValueError, match=r"1 results of shape \(1, 1, 4\)"):
            RING61.gather_into(results, starts, None, weights, y)


ODD = [
    RING61,
    RING56,
    Ring(PRIMES30),
    Ring(PRIMES30[:3]),
    insecure_ring(3, 5, 7),
    insecure_ring(65537),
    insecure_ring(7, 2**31 - 1, 3),
]


@pytest.mark.parametrize("ring", ODD, ids=lambda ring: "x".join(map(str, ring.primes))[:24])
@law
@given(st.data(), st.sampled_from([1.0, 2.0**-70, 0.3]))
def test_residues_join_to_the_integer_nearest_to_zero_that_has_them(
    ring: Ring, data: st.DataObject, scale: float
) -> None:
    half = ring.modulus // 2
    values = data.draw(st.lists(st.integers(-half, half) | st.sampled_from([-half, half, 0, -1, 1]), max_size=9))
    joined = ring.join(ring.constant(values), scale)
    assert np.allclose(joined, np.array(values, np.float64) * scale, rtol=2.0**-48, atol=0)


@law
@given(vectors(RING61, 2, 3), vectors(RING61, 3, 4, 5))
def test_a_combination_keeps_the_shape_of_what_it_combines(matrix: Residues, x: Residues) -> None:
    flat = RING61.combine(matrix, x.reshape(1, 3, 20))
    assert RING61.combine(matrix, x).tolist() == flat.reshape(1, 2, 4, 5).tolist()


@each_ring
@law
@given(st.data())
def test_sums_in_place_change_their_target_and_nothing_beside_it(ring: Ring, data: st.DataObject) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    gap = data.draw(st.integers(0, 9))
    both = data.draw(vectors(ring, gap + 2 * length + 9))
    before = both.copy()
    target, x = slice(gap, gap + length), slice(gap + length, gap + 2 * length)
    ring.add_into(both[:, target], both[:, x])
    assert both[:, target].tolist() == ring.add(before[:, target], before[:, x]).tolist()
    ring.subtract_into(both[:, target], both[:, x])
    assert np.array_equal(both, before)
    ring.subtract_into(both[:, target], both[:, target])
    assert not both[:, target].any()
    assert np.array_equal(np.delete(both, np.r_[target], 1), np.delete(before, np.r_[target], 1))


@each_ring
@law
@given(st.data())
def test_rows_are_added_where_they_belong(ring: Ring, data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
    acc, x = data.draw(vectors(ring, 9, 3)), data.draw(vectors(ring, high - low, 3))
    expected = acc.copy()
    sums = exactly(ring, operator.add, acc[:, low:high], x)
    expected[:, low:high] = np.array(sums, ring.dtype).reshape(x.shape)
    ring.add_rows(acc, slice(low, high), x)
    assert np.array_equal(acc, expected)


@pytest.mark.parametrize("change", [RING61.add_into, RING61.subtract_into])
def test_what_cannot_be_written_is_not_written(change: Callable[[Residues, Residues], Residues]) -> None:
    message = bytes(range(16))
    with pytest.raises(ValueError, match="read-only"):
        change(RING61.from_bytes(message, 2), RING61.constant([1, 1]))
    assert message == bytes(range(16))


signed = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, M61, -M61, P56, -P56, 2**56, 0, -1])


@each_ring
@law
@given(st.lists(signed, max_size=40))
def test_signed_integers_reduce_modulo_each_prime(ring: Ring, values: list[int]) -> None:
    expected = [[value % p for value in values] for p in ring.primes]
    assert ring.reduce(np.array(values, np.int64)).tolist() == expected
    assert ring.constant(values).tolist() == expected


@law
@given(st.lists(st.integers(-(2**200), 2**200), max_size=20))
def test_integers_of_any_size_reduce_modulo_each_prime(values: list[int]) -> None:
    for ring in (RING61, RING56, Ring(PRIMES30[:3])):
        assert ring.constant(values).tolist() == [[value % p for value in values] for p in ring.primes]


@each_ring
@law
@given(st.data())
def test_bytes_are_little_endian_of_fixed_width_and_read_back_from_any_offset(ring: Ring, data: st.DataObject) -> None:
    length, offset = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 9))
    x = data.draw(vectors(ring, length))
    written = bytes(ring.to_bytes(x))
    assert written == b"".join(int(e).to_bytes(ring.element_bytes // ring.size, "little") for e in x.ravel())
    assert len(written) == length * ring.element_bytes
    read = ring.from_bytes(memoryview(bytes(offset) + written)[offset:], length)
    assert np.array_equal(read, x)
    assert read.flags.aligned  # else a processor may refuse to load it
    assert np.array_equal(ring.add(read, read), ring.add(x, x))


@each_ring
@law
@given(st.data())
def test_one_element_that_is_not_below_its_prime_is_refused_wherever_it_stands(ring: Ring, data: st.DataObject) -> None:
    length = data.draw(st.sampled_from(LENGTHS[1:]))
    x = data.draw(vectors(ring, length))
    assert ring.valid(x)
    row, at = data.draw(st.integers(0, ring.size - 1)), data.draw(st.integers(0, length - 1))
    largest = 256 ** (ring.element_bytes // ring.size) - 1
    x[row, at] = data.draw(st.sampled_from([ring.primes[row], largest]) | st.integers(ring.primes[row], largest))
    assert not ring.valid(x)
    with pytest.raises(ValueError, match="an element is not below its prime"):
        ring.from_bytes(ring.to_bytes(x), length)


@law
@given(st.integers(0, 100), st.integers(0, 10))
def test_bytes_of_another_length_are_refused(count: int, length: int) -> None:
    for ring in (RING61, RING56, Ring(PRIMES30[:3])):
        if count == length * ring.element_bytes:
            assert ring.from_bytes(bytes(count), length).shape == (ring.size, length)
        else:
            with pytest.raises(ValueError, match=f"{count} bytes instead of {length * ring.element_bytes}"):
                ring.from_bytes(bytes(count), length)


def test_operands_of_different_shapes_are_refused() -> None:
    x, longer = RING61.zeros(3), RING61.zeros(4)
    for operation in (RING61.add, RING61.subtract, RING61.multiply, RING61.add_into, RING61.subtract_into):
        with pytest.raises(ValueError, match="differ"):
            operation(x, longer)
    with pytest.raises(ValueError, match="does not fit"):
        RING61.combine(RING61.zeros(2, 3), RING61.zeros(4, 5))


def test_the_primes_are_the_sixteen_largest_below_2_to_the_30() -> None:
    def is_prime(n: int) -> bool:
        return all(n % d for d in range(2, 2**15))

    assert [n for n in range(2**30 - 1, PRIMES30[-1] - 1, -1) if is_prime(n)] == list(PRIMES30)
    assert len(PRIMES30) == 16


def test_the_prime_of_seven_bytes_is_the_largest_one() -> None:
    def is_prime(n: int) -> bool:
        """Miller and Rabin: these bases are enough below 2^64."""
        odd = (n - 1) >> (twos := ((n - 1) & (1 - n)).bit_length() - 1)
        return all(
            pow(a, odd, n) == 1 or any(pow(a, odd << i, n) == n - 1 for i in range(twos))
            for a in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
        )

    assert next(n for n in range(2**56 - 1, 0, -2) if is_prime(n)) == P56
    assert is_prime(M61)
    assert RING56.element_bytes == 7


@pytest.mark.parametrize("primes", [(), (7, 7), (M61, 7), (M61, P56), (P56, 7), (2**32 + 15,), (1,), (0,), (-7,)])
def test_a_ring_takes_distinct_primes_that_its_kernels_can_do(primes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a ring takes"):
        Ring(primes)


def test_one_element_for_each_prime_is_a_vector_too() -> None:
    ring = insecure_ring(7, 11)
    assert ring.inverse(ring.constant(3)).tolist() == [5, 4]
    assert ring.multiply(ring.constant(3), ring.constant(5)).tolist() == [1, 4]
    assert ring.add(ring.constant(3), ring.constant(9)).tolist() == [5, 1]
