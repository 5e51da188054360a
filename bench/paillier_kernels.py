"""What the cryptosystem's kernels cost, against textbook Paillier and against `phe`, in the same run.

    python bench/paillier_kernels.py [BITS ...]

`phe` (GPL-3) is a peer for comparison only: it is used where it is installed, and nothing else here needs it. A ratio
above 1 means that this package is faster; "per element" counts the slots of a ciphertext (`phe` has one in each).
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gmpy2  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from gmpy2 import mpz

from secea.arithmetic.paillier import Packing, PrivateKey

P, SIGMA = 2**61 - 1, 64
COUNT = 24


def cost(work: Callable[[], object], count: int = COUNT) -> float:
    """Measure one of the `count` things that `work` does, in microseconds: the best of three runs."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def phe_costs(bits: int, scalar: int) -> dict[str, float]:
    """Measure the peer, in microseconds: nothing where it is not installed."""
    try:
        phe: Any = importlib.import_module("phe")
    except ImportError:
        return {}
    public, private = phe.generate_paillier_keypair(n_length=bits)
    some = [public.encrypt(m) for m in range(1, 9)]
    return {
        "encrypt": cost(lambda: [public.encrypt(m) for m in range(4)], 4),
        "scale": cost(lambda: [c * scalar for c in some], 8),
        "add": cost(lambda: [a + b for a, b in zip(some, some, strict=True)], 8),
        "decrypt": cost(lambda: [private.decrypt(c) for c in some], 8),
    }


def rows(bits: int, scalar: int) -> Iterator[tuple[str, str, float]]:
    """Measure each kernel: its name, the peer's operation for the same job, and microseconds."""
    key = PrivateKey.generate(bits)
    public, packing = key.public, Packing(bits, P, SIGMA)
    n, n2 = public.n, public.n2
    values = np.random.default_rng(1).integers(0, P, (COUNT, packing.slots), np.uint64)
    plaintexts = packing.pack(values)
    units = [mpz.from_bytes(os.urandom(bits // 8 + 16), "little") % n for _ in range(8)]
    public.short_blinds(1)  # builds the tables
    public.full_blinds(1)

    yield (
        "encrypt, textbook (u^n)",
        "encrypt",
        cost(
            lambda: [(1 + m * n) * gmpy2.powmod(u, n, n2) % n2 for m, u in zip(plaintexts[:8], units, strict=True)], 8
        ),
    )
    yield "encrypt, short exponent", "encrypt", cost(lambda: public.encrypt(plaintexts, public.short_blinds(COUNT)))
    blinds = public.short_blinds(COUNT)
    yield "encrypt, prepared (online)", "encrypt", cost(lambda: public.encrypt(plaintexts, blinds))
    yield "server's blind, u^n", "encrypt", cost(lambda: gmpy2.powmod_base_list(units, n, n2), 8)
    yield "server's blind, long fixed base", "encrypt", cost(lambda: public.full_blinds(COUNT))

    ciphertexts = public.encrypt(plaintexts, public.short_blinds(COUNT))
    scalars = np.full(COUNT // 4, scalar, np.uint64)
    yield "x 61-bit scalar", "scale", cost(lambda: public.scale(ciphertexts, scalars, threads=1))
    yield f"x 61-bit scalar, {os.cpu_count()} threads", "scale", cost(lambda: public.scale(ciphertexts, scalars))
    yield "add", "add", cost(lambda: public.add(ciphertexts, ciphertexts))
    yield "decrypt", "decrypt", cost(lambda: key.decrypt(ciphertexts, threads=1))
    yield f"decrypt, {os.cpu_count()} threads", "decrypt", cost(lambda: key.decrypt(ciphertexts))
    data = public.ciphertexts_to_bytes(ciphertexts)
    yield "read and check", "", cost(lambda: public.ciphertexts_from_bytes(data, COUNT))

    many = np.tile(values, (40, 1))
    packed = packing.pack(many)
    assert (packing.unpack(packed, packing.slots) == many).all()
    yield "pack, each slot", "", cost(lambda: packing.pack(many), many.size)
    yield "noise, each slot", "", cost(lambda: packing.noise(many), many.size)
    yield "unpack, each slot", "", cost(lambda: packing.unpack(packed, packing.slots), many.size)


def main() -> None:
    """Print one table for each key length."""
    scalar = P - 12345
    for bits in map(int, sys.argv[1:] or ("2048", "3072")):
        slots, peer = Packing(bits, P, SIGMA).slots, phe_costs(bits, scalar)
        note = "" if peer else " (phe is not installed)"
        print(f"\n{bits} bits, {slots} slots at sigma {SIGMA}{note}")
        print(f"{'':34}{'microseconds':>14}{'x textbook':>12}{'x phe':>8}{'per element':>13}")
        textbook = 0.0
        for name, job, mine in rows(bits, scalar):
            textbook = textbook or mine
            line = f"{name:34}{mine:14.2f}"
            line += f"{textbook / mine:12.1f}" if job == "encrypt" else " " * 12
            line += f"{peer[job] / mine:8.1f}{slots * peer[job] / mine:13.1f}" if job in peer else ""
            print(line.rstrip())


if __name__ == "__main__":
    main()
