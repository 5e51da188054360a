"""What the kernels cost, against a copy of their operands in memory and against numpy's `%`, in the same run.

    python bench/kernels.py

Each operand has about a megabyte. "x copy" is a kernel's time over that of `np.copyto` on as many bytes, read and
written together, as the kernel reads and writes: 1 is as fast as memory allows. "x numpy" is the time that numpy takes
for the same result (uint64 and `%`) over the kernel's; products modulo 2^61 - 1 do not fit into numpy's integers: there
the peer is Python's. The peer of sampling is numpy's own generator, which is not made for secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secea import fixedpoint, union
from secea.field import PRIMES32, RING61, Residues, Ring
from secea.randomness import KeyStream

MEGABYTE = 1 << 20
SECONDS = 0.25
RINGS = {"2^61-1": RING61, "2^32-5": Ring(PRIMES32[:1])}


def best(work: Callable[[], object], seconds: float = SECONDS) -> float:
    """Measure the shortest time of many runs, in seconds."""
    shortest, until = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        work()
        end = time.perf_counter()
        shortest = min(shortest, end - start)
        if end > until:
            return shortest


def copy_time(moved: int) -> float:
    """Measure a copy that reads and writes so many bytes in all."""
    source = np.ones(max(1, moved // 2), np.uint8)
    target = np.empty_like(source)
    return best(lambda: np.copyto(target, source), SECONDS / 2)


@dataclass(frozen=True)
class Row:
    """A kernel: what it does to how many elements and bytes, and the same in numpy."""

    name: str
    work: Callable[[], object]
    count: int
    moved: int
    peer: Callable[[], object] | None = None
    peer_share: float = 1.0
    """The part of the elements that the peer works on: some are too slow for all of them."""
    products: int = 0


def drawn(ring: Ring, *shape: int) -> Residues:
    """Random elements, the same in every run."""
    return KeyStream(bytes(32)).elements(ring, *shape)


def python_or_numpy(x: Residues, wide: bool) -> NDArray[np.uint64]:
    """Convert an operand for the peer: to uint64 where products fit, some of it to Python integers where not."""
    return x[..., : x.shape[-1] // 64].astype(object) if wide else x.astype(np.uint64)


def ring_rows(ring: Ring) -> Iterator[Row]:
    """List the kernels of one prime."""
    (p,) = ring.primes
    n, wide = MEGABYTE // ring.dtype.itemsize, ring is RING61
    a, b = drawn(ring, 2 * n).reshape(2, 1, n)
    x, y = a[0].astype(np.uint64), b[0].astype(np.uint64)
    modulus = np.uint64(p)
    small_a, small_b = python_or_numpy(a[0], wide), python_or_numpy(b[0], wide)
    share = small_a.size / n

    acc, out = a.copy(), np.empty_like(x)
    added = lambda: np.remainder(np.add(x, y, out=out), modulus, out=out)  # noqa: E731 - a row's work is one expression
    yield Row("add (in place)", lambda: ring.add_into(acc, b), n, 3 * a.nbytes, added)
    taken = lambda: np.remainder(np.add(np.subtract(x, y, out=out), modulus, out=out), modulus, out=out)  # noqa: E731
    yield Row("subtract (in place)", lambda: ring.subtract_into(acc, b), n, 3 * a.nbytes, taken)
    assert np.array_equal(ring.multiply(a, b)[0, : small_a.size], (small_a * small_b % p).astype(ring.dtype))
    yield Row("multiply", lambda: ring.multiply(a, b), n, 3 * a.nbytes, lambda: small_a * small_b % p, share)
    some = a[0, : n // 512].tolist()
    invert = lambda: [pow(v, -1, p) for v in some]  # noqa: E731
    yield Row("inverse", lambda: ring.inverse(a), n, 2 * a.nbytes, invert, len(some) / n)

    for rows, columns in ((8, 5), (3, 9)):
        length = n // columns
        matrix, tall = drawn(ring, rows, columns), drawn(ring, columns, length)
        tall_peer = python_or_numpy(tall[0], wide)
        matrix_peer = matrix[0].astype(object if wide else np.uint64)

        def by_numpy(m: NDArray[np.uint64] = matrix_peer, t: NDArray[np.uint64] = tall_peer) -> NDArray[np.uint64]:
            return np.stack([(row[:, None] * t % p).sum(axis=0) % p for row in m])

        assert np.array_equal(ring.combine(matrix, tall)[0, :, : tall_peer.shape[1]], by_numpy().astype(ring.dtype))
        yield Row(
            f"combine {rows} x {columns}",
            lambda m=matrix, t=tall: ring.combine(m, t),  # type: ignore[misc]
            rows * length,
            (rows + columns) * length * ring.dtype.itemsize,
            by_numpy,
            tall_peer.shape[1] / length,
            products=rows * columns * length,
        )

    data = bytes(ring.to_bytes(a))
    yield Row("valid", lambda: ring.valid(a), n, a.nbytes, lambda: bool((a < a.dtype.type(p)).all()))
    read = lambda: bool((np.frombuffer(data, ring.dtype) < a.dtype.type(p)).all())  # noqa: E731
    yield Row("from_bytes", lambda: ring.from_bytes(data, n), n, len(data), read)
    stream, generator = KeyStream(bytes(32)), np.random.default_rng(1)
    sample = lambda: generator.integers(0, p, n, ring.dtype.type)  # noqa: E731
    yield Row("sample from a key stream", lambda: stream.elements(ring, n), n, a.nbytes, sample)
    signed = drawn(RING61, MEGABYTE // 8)[0].astype(np.int64) - 2**60
    moved = signed.nbytes + signed.size * ring.dtype.itemsize
    yield Row("reduce signed", lambda: ring.reduce(signed), signed.size, moved, lambda: signed % np.int64(p))


def other_rows() -> Iterator[Row]:
    """List what is not the arithmetic of one prime."""
    floats = np.random.default_rng(1).uniform(-64, 64, (1024, 128)).astype(np.float32)
    moved = floats.size * (4 + 8)
    yield Row("fixed point (float32)", lambda: fixedpoint.encode(floats, 18), floats.size, moved)

    tags = np.unique(drawn(RING61, 20_000)[0])
    geometry = union.Geometry.of(tags.size, 0, b"bench")
    table = union.fill(tags, geometry, KeyStream(bytes(32)))
    found = union.peel(table, geometry)
    assert found is not None
    assert np.array_equal(found, tags)
    filled = lambda: union.fill(tags, geometry, KeyStream(bytes(32)))  # noqa: E731
    yield Row("union: fill, each tag", filled, tags.size, tags.nbytes + table.nbytes)
    yield Row("union: peel, each tag", lambda: union.peel(table, geometry), tags.size, tags.nbytes + table.nbytes)


def whole_union(count: int = 100_000, clients: int = 5) -> float:
    """Measure a whole union, masks and sums included, in seconds of processor time; all parties in one thread."""
    tags = np.unique(drawn(RING61, count)[0])
    geometry = union.Geometry.of(tags.size, 0, b"bench")
    start = time.process_time()
    total = RING61.zeros(geometry.cells, union.COLUMNS)
    for n in range(clients):
        own = tags[np.arange(tags.size) % (clients + 1) != n]  # most tags have several owners
        masks = [(v, KeyStream(bytes([min(n, v), max(n, v)] * 16))) for v in range(clients) if v != n]
        RING61.add_into(total, union.mask(union.fill(own, geometry, KeyStream(bytes([n] * 32))), n, masks))
    found = union.peel(total, geometry)
    seconds = time.process_time() - start
    assert found is not None
    assert np.array_equal(found, tags)
    return seconds


def show(rows: Iterator[Row]) -> None:
    """Measure and print some rows."""
    for row in rows:
        mine = best(row.work)
        line = f"  {row.name:26}{mine * 1e6:10.0f}{mine / row.count * 1e9:10.2f}{mine / copy_time(row.moved):9.1f}"
        line += f"{best(row.peer) / row.peer_share / mine:10.1f}" if row.peer else " " * 10
        line += f"{row.products / mine / 1e9:10.2f}" if row.products else ""
        print(line)


def main() -> None:
    """Print the table."""
    print(f"{'':28}{'us':>10}{'ns each':>10}{'x copy':>9}{'x numpy':>10}{'G mul-add/s':>13}")
    for name, ring in RINGS.items():
        print(f"modulo {name}")
        show(ring_rows(ring))
    print("beside them")
    show(other_rows())
    print(f"\nthe union of 100,000 tags over 5 clients takes {whole_union():.2f} s of processor time in all")


if __name__ == "__main__":
    main()
