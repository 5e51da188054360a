"""The compiled loops, against a copy of their operands in memory, numpy, FLINT and galois.

A kernel's time is over that of `np.copyto` on as many bytes, read and written together, as it reads and writes: 1 is as
fast as memory allows. A peer's time is over the kernel's, so more than 1 means that the kernel is faster. Numpy's
products modulo 2^61 - 1 do not fit into its integers: there the peer is Python's. The peer of sampling is numpy's
generator, which is not made for secrets. FLINT's matrices are built beforehand. galois compiles for primes below 2^31
only: it is given 2^31 - 1 beside ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from bench.contest import CHUNK, numbers
from bench.figures import Figure, Grid, Section, ratios
from bench.measure import Tick
from bench.shapes import FB15K, Scale
from secea.arithmetic import streams
from secea.arithmetic.field import PRIMES30, RING61, Residues, Ring
from secea.wire.randomness import KeyStream

Work = Callable[[], object]
RINGS = {"mod 2^61-1": RING61, "mod 2^30-35": Ring(PRIMES30[:1])}


@dataclass(frozen=True)
class Kernel:
    """What it does to how many elements and bytes, and the same by others."""

    work: Work
    count: int
    moved: int
    peers: dict[str, tuple[Work, float]] = field(default_factory=dict)
    """For each its work, and the part of the elements that it works on: some are too slow for all of them."""
    products: int = 0
    """Multiply-adds."""


def kernels(scale: Scale, tick: Tick) -> Section:
    """Each kernel of both kinds of primes, and what is beside them."""
    others = Others()
    grids = {}
    for name, ring in RINGS.items():
        tick(name)
        rows = {row: figures(kernel, scale.kernel_seconds) for row, kernel in of_ring(ring, scale.kernel_bytes, others)}
        grids[name.removeprefix("mod ")] = Grid(f"Kernels {name}, about {scale.kernel_bytes / 1e6:.0f} MB", rows)
    for name, ring in {"one": RING61, "three": Ring(PRIMES30[:3])}.items():
        tick(f"the keyed form, {name}")
        rows = {row: figures(kernel, scale.kernel_seconds) for row, kernel in keyed(ring, scale.kernel_bytes)}
        grids[name] = Grid(
            f"Of a round, each element: {'2^61-1' if name == 'one' else 'three primes below 2^30'}", rows
        )
    notes = [f"{name} is not installed: pip install '.[bench]'" for name in others.missing]
    return Section("One thread", grids, notes)


def figures(kernel: Kernel, seconds: float) -> dict[str, Figure]:
    """The kernel, a copy and its peers, interleaved for so long each."""
    copied = max(1, kernel.moved // 2)
    source, target = np.ones(copied, np.uint8), np.empty(copied, np.uint8)
    works: dict[str, Work] = {"": kernel.work, "copy": lambda: np.copyto(target, source)}
    works |= {name: work for name, (work, _) in kernel.peers.items()}
    found: dict[str, list[float]] = {name: [] for name in works}
    until = time.perf_counter() + seconds * len(works)
    while time.perf_counter() < until or len(found[""]) < 5:
        for name, work in works.items():
            start = time.thread_time()
            work()
            found[name].append(max(time.thread_time() - start, 1e-9))  # a clock may stand still
    best = {name: in_parts(times) for name, times in found.items()}
    mine = best[""]
    row = {"each": Figure.of([t / kernel.count for t in mine], "s"), "times a copy": ratios(mine, best["copy"])}
    if kernel.products:
        row["multiply-adds"] = Figure.of([kernel.products / t / 1e6 for t in mine], "M/s")
    for name, (_, share) in kernel.peers.items():
        row[f"{name} / ours"] = ratios([t / share for t in best[name]], mine)
    return row


def in_parts(times: list[float], parts: int = 5) -> list[float]:
    """The shortest time of each of several equal parts: other work on the machine only adds to some of them."""
    parts = min(parts, len(times))
    return [min(times[len(times) * i // parts : len(times) * (i + 1) // parts]) for i in range(parts)]


def drawn(ring: Ring, *shape: int) -> Residues:
    """Random elements, the same in every run."""
    return KeyStream(bytes(32)).elements(ring, *shape)


class Others:
    """Libraries for finite fields, where they are installed."""

    def __init__(self) -> None:
        names = {"flint": "python-flint", "galois": "galois"}
        self.missing = [package for module, package in names.items() if not find_spec(module)]

    @cached_property
    def _field(self) -> Any:
        if "galois" in self.missing:
            return None
        import galois

        return galois.GF(2**31 - 1)

    def flint(self, p: int, x: Residues) -> Any:
        """A matrix of FLINT's, or None."""
        if "python-flint" in self.missing:
            return None
        from flint import nmod_mat

        rows, columns = x.shape
        return nmod_mat(rows, columns, x.ravel().tolist(), p)

    def galois(self, x: Residues) -> Any:
        """An array of galois's over its largest compiled prime field, or None."""
        return None if self._field is None else self._field((x % (2**31 - 1)).astype(np.int64))


def both(operation: Callable[[Any, Any], object], a: Any, b: Any, share: float = 1.0) -> tuple[Work, float]:
    """A peer's work on two operands, done once: what compiles compiles now."""
    operation(a, b)
    return partial(operation, a, b), share


def of_ring(ring: Ring, size: int, others: Others) -> Iterator[tuple[str, Kernel]]:
    """The kernels of one prime."""
    (p,) = ring.primes
    n, wide = size // ring.dtype.itemsize, ring is RING61
    a, b = drawn(ring, 2 * n).reshape(2, 1, n)
    numpy_a, numpy_b = numpy_operand(a[0], wide), numpy_operand(b[0], wide)
    share = numpy_a.size / n
    acc = a.copy()

    peers = {"numpy": (lambda: (numpy_a + numpy_b) % p, share)}
    if (flint_a := others.flint(p, a)) is not None:
        peers["FLINT"] = both(lambda x, y: x + y, flint_a, others.flint(p, b))
    galois_a = None if wide else others.galois(a[0])
    if galois_a is not None:
        peers["galois"] = both(lambda x, y: x + y, galois_a, others.galois(b[0]))
    yield "add, in place", Kernel(lambda: ring.add_into(acc, b), n, 3 * a.nbytes, peers)

    assert np.array_equal(ring.multiply(a, b)[0, : numpy_a.size], (numpy_a * numpy_b % p).astype(ring.dtype))
    peers = {"numpy": (lambda: numpy_a * numpy_b % p, share)}
    if galois_a is not None:
        peers["galois"] = both(lambda x, y: x * y, galois_a, others.galois(b[0]))
    yield "multiply", Kernel(lambda: ring.multiply(a, b), n, 3 * a.nbytes, peers)

    some = a[0, : max(1, n // 512)].tolist()
    peers = {"numpy": (lambda: [pow(v, -1, p) for v in some], len(some) / n)}
    yield "inverse", Kernel(lambda: ring.inverse(a), n, 2 * a.nbytes, peers)

    yield "product 8 x 5", product(ring, 8, 5, n // 5, others)

    data = bytes(ring.to_bytes(a))
    below = a.dtype.type(p)
    read = lambda: bool((np.frombuffer(data, ring.dtype) < below).all())  # noqa: E731 - a row's work is one expression
    yield "read and check", Kernel(lambda: ring.from_bytes(data, n), n, len(data), {"numpy": (read, 1.0)})
    stream, generator = KeyStream(bytes(32)), np.random.default_rng(1)
    sample = lambda: generator.integers(0, p, n, ring.dtype.type)  # noqa: E731
    yield "sample from a key stream", Kernel(lambda: stream.elements(ring, n), n, a.nbytes, {"numpy": (sample, 1.0)})
    signed = drawn(RING61, size // 8)[0].astype(np.int64) - 2**60
    moved = signed.nbytes + signed.size * ring.dtype.itemsize
    peers = {"numpy": (lambda: signed % np.int64(p), 1.0)}
    yield "reduce signed integers", Kernel(lambda: ring.reduce(signed), signed.size, moved, peers)


def numpy_operand(x: Residues, wide: bool) -> NDArray[Any]:
    """For the peer: uint64 where products fit, some of it as Python integers where not."""
    return x[..., : max(1, x.shape[-1] // 64)].astype(object) if wide else x.astype(np.uint64)


def product(ring: Ring, rows: int, columns: int, length: int, others: Others) -> Kernel:
    """A small matrix times a tall block of data: every encoding and decoding is one."""
    (p,) = ring.primes
    wide = ring is RING61
    matrix, tall = drawn(ring, rows, columns), drawn(ring, columns, length)
    numpy_tall, numpy_matrix = numpy_operand(tall[0], wide), matrix[0].astype(object if wide else np.uint64)

    def by_numpy() -> NDArray[Any]:
        return np.stack([(row[:, None] * numpy_tall % p).sum(axis=0) % p for row in numpy_matrix])

    ours = ring.combine(matrix, tall)[0, :, : numpy_tall.shape[1]]
    assert np.array_equal(ours, by_numpy().astype(ring.dtype))
    peers: dict[str, tuple[Work, float]] = {"numpy": (by_numpy, numpy_tall.shape[1] / length)}
    if (flint_matrix := others.flint(p, matrix[0])) is not None:
        flint_tall = others.flint(p, tall[0])
        assert int((flint_matrix * flint_tall)[0, 0]) == int(ours[0, 0])
        peers["FLINT"] = both(lambda x, y: x * y, flint_matrix, flint_tall)
    if not wide and (galois_matrix := others.galois(matrix[0])) is not None:
        few = max(1, length // 16)
        peers["galois"] = both(lambda x, y: x @ y, galois_matrix, others.galois(tall[0, :, :few]), few / length)
    moved = (rows + columns) * length * ring.dtype.itemsize
    return Kernel(lambda: ring.combine(matrix, tall), rows * length, moved, peers, rows * columns * length)


def keyed(ring: Ring, size: int) -> Iterator[tuple[str, Kernel]]:
    """The loops of a round of the keyed form; beside those that draw, OpenSSL's AES over as many bytes."""
    n = numbers(FB15K)
    length = FB15K.dim
    rows = max(1, size // (length * ring.element_bytes))
    count = rows * length
    acc, keys = drawn(ring, count), [bytes([i]) * 32 for i in range(3)]
    masks = lambda: streams.add_streams(ring, acc, keys, (1, 1, -1), 0)  # noqa: E731 - a row's work is one expression
    peers = {"AES alone": (_aes(3 * acc.nbytes), 1.0)}
    yield "masks with three neighbours", Kernel(masks, count, 2 * acc.nbytes, peers)

    each = np.arange(rows * 32, dtype=np.uint8).reshape(rows, 32)
    drawing = lambda: streams.row_streams(ring, each, 0, length)  # noqa: E731
    yield "rows under their own keys", Kernel(drawing, count, acc.nbytes, {"AES alone": (_aes(acc.nbytes), 1.0)})

    peers = {"AES alone": (_aes(16 * n.noise.blocks * count), 1.0)}
    noise = lambda: streams.add_noise(ring, acc, keys[0], 0, n.noise)  # noqa: E731
    yield "noise", Kernel(noise, count, 2 * acc.nbytes, peers)

    tall, weights = acc.reshape(ring.size, rows, length), drawn(ring, length)
    yield "check columns", Kernel(lambda: streams.weighted_sums(ring, tall, weights), count, acc.nbytes)
    data = ring.to_bytes(acc)
    yield "read and check", Kernel(lambda: ring.from_bytes(data, count), count, len(data))
    yield "means as floats", Kernel(lambda: ring.join(acc, 1.0), count, acc.nbytes + 8 * count)


def _aes(size: int) -> Work:
    """AES-256 in counter mode over so many bytes, in chunks that fit into a cache, without adding them to anything."""
    cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
    chunk = min(size, CHUNK)
    zeros, out = np.zeros(chunk, np.uint8), np.empty(chunk + 16, np.uint8)

    def work() -> None:
        for at in range(0, size, chunk):
            cipher.update_into(zeros[: size - at].data, out.data)

    return work
