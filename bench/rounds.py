"""Whole rounds, all parties in one process: time, bytes, memory, and how far from the limit.

    python bench/rounds.py fb15k        FB15k-237's shape: 10 clients, union 14,541, 8,600 entities each, d=128, T=2
    python bench/rounds.py million      a million entities: 5 clients, 200,000 each, d=64, T=1
    python bench/rounds.py paillier     5 clients, 1,000 entities, 400 each, d=32, 2048-bit keys, full queries: offline
                                        and online of each party, and against `phe` (pip install phe)
    python bench/rounds.py forms        one small federation in all three forms: the oracle's literal Paillier, our
                                        Paillier form, shared reciprocals

The limit is one memory copy, one AEAD seal and one AEAD open over the bytes of the specification's formula, one hop,
with preallocated buffers: what would be left if all arithmetic were free.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from math import lcm
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

import secea
from secea import Federation, Params, Table, oracle
from secea.messages import CHUNK_BYTES
from secea.paillier import PrivateKey
from secea.retrieval.paillier import Paillier

SEED = 2206_09097
console = Console(width=140)


def limit_seconds(data_bytes: int, repetitions: int = 7) -> float:
    """One copy, one seal, one open over so many bytes, chunk by chunk: CPU seconds, the best of several."""
    cipher = AESGCM(bytes(32))
    source, target = np.zeros(CHUNK_BYTES, np.uint8), np.empty(CHUNK_BYTES, np.uint8)
    sealed, best = bytearray(CHUNK_BYTES + 16), float("inf")
    for _ in range(repetitions):
        started = time.process_time()
        for _ in range(200):
            np.copyto(target, source)
            cipher.encrypt_into(bytes(12), source.data, None, sealed)
            cipher.decrypt_into(bytes(12), sealed, None, target.data)
        best = min(best, time.process_time() - started)
    return best / 200 * data_bytes / CHUNK_BYTES


def formula_bytes(fed: Federation) -> int:
    """Shares, answers and results of one round as section 9 counts them."""
    params, form, M = fed.params, fed.session.form, fed.server.M
    N, T, J, L = params.N, params.T, fed.session.query_count, form.block_length
    elements = N * (N - 1 - T) * M * L + N * N * J * L + N * J * params.K * L
    return elements * fed.session.ring.element_bytes


def federation(clients: int, entities: int, own: int, dim: int) -> list[Table]:
    """Random float32 tables; every entity of the union has an owner as nearly as chance allows."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    tables = []
    for n in range(clients):
        fixed = np.arange(n * entities // clients, (n + 1) * entities // clients)[:own]
        others = np.setdiff1d(np.arange(entities), fixed)
        names = np.sort(np.r_[fixed, rng.choice(others, own - fixed.size, replace=False)])
        tables.append(Table(names.tolist(), rng.normal(size=(own, dim)).astype(np.float32)))
    return tables


def truth(tables: list[Table], entities: int) -> NDArray[np.float64]:
    total = np.zeros((entities, tables[0].dim))
    count = np.zeros((entities, 1))
    for table in tables:
        rows = np.array(table.names, np.int64)
        total[rows] += table.matrix
        count[rows] += 1
    return total / np.maximum(count, 1)


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def show_timing(fed: Federation, title: str, *phases: str) -> None:
    grid = Grid("party", *(f"{phase}: CPU, sent, stored" for phase in phases), title=title, box=None)
    for who, costs in fed.timing.items():
        cells = [costs[phase] for phase in phases]
        grid.add_row(str(who), *(f"{c.seconds:.2f} s, {c.sent / 1e6:,.1f} MB, {c.stored / 1e6:,.1f} MB" for c in cells))
    console.print(grid)


def large(clients: int, collusion: int, entities: int, own: int, dim: int, rounds: int) -> None:
    tables = federation(clients, entities, own, dim)
    fed = Federation(Params(clients=clients, collusion=collusion, dim=dim, max_entities=own, max_union=entities))
    _, wall, cpu = timed(lambda: fed.setup([table.names for table in tables]))
    bytes_sent = sum(hop.size for hop in fed.traffic)
    form = fed.session.form
    console.print(
        f"{clients} clients, union {fed.server.M:,}, {own:,} each, dim {dim}, T={collusion}, K={fed.params.K};"
        f" {fed.session.ring.size} primes, sigma' {form.sigma_prime}"
    )
    console.print(
        f"set-up: {wall:.1f} s, CPU {cpu:.1f} s, {bytes_sent / 1e6:,.0f} MB on all hops, peak {peak_gigabytes():.2f} GB"
    )
    limit, cpus = limit_seconds(formula_bytes(fed)), []
    for number in range(1, rounds + 1):
        means, wall, cpu = timed(lambda: fed.round(tables))
        cpus.append(cpu)
        hops = [hop for hop in fed.traffic if hop.round == number]
        sent = sum(hop.size for hop in hops if hop.sender == 0) / 1e6
        received = sum(hop.size for hop in hops if hop.receiver == 0) / 1e6
        console.print(
            f"round {number}: {wall:.2f} s, CPU {cpu:.2f} s = {cpu / limit:.1f} x the limit of {limit:.2f} s"
            f" ({formula_bytes(fed) / 1e9:.2f} GB); client 0 sends {sent:,.0f} MB, gets {received:,.0f} MB;"
            f" all hops {sum(hop.size for hop in hops) / 1e6:,.0f} MB; peak {peak_gigabytes():.2f} GB"
        )
    show_timing(fed, "set-up, and all rounds", "setup", "online")
    expected = truth(tables, entities)
    worst = max(float(np.abs(m.matrix - expected[np.array(m.names, np.int64)]).max()) for m in means)
    console.print(f"largest error {worst:.2e}, resolution {fed.params.resolution:.2e}; CPU of all rounds {cpus}")
    assert worst < fed.params.resolution


def phe_seconds(bits: int, elements: int) -> float | None:
    """What one element costs with `phe` online: encrypt, multiply, add encrypted noise, decrypt."""
    try:
        from phe import paillier as peer  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    public, private = peer.generate_paillier_keypair(n_length=bits)
    r = 2**60 + 12345
    noise = [public.encrypt(i) for i in range(elements)]  # made offline in the paper's protocol
    started = time.process_time()
    for i in range(elements):
        private.decrypt(public.encrypt(2**60 + i) * r + noise[i])
    return (time.process_time() - started) / elements


def paillier(clients: int, entities: int, own: int, dim: int, bits: int) -> None:
    tables = federation(clients, entities, own, dim)
    fed = Federation(Params(clients=clients, dim=dim, key_bits=bits), retrieval="paillier", queries="full")
    _, wall, cpu = timed(lambda: fed.setup([table.names for table in tables]))
    console.print(f"{clients} clients, union {fed.server.M:,}, {own} each, dim {dim}, {bits}-bit keys, full queries")
    console.print(f"set-up: {wall:.1f} s, CPU {cpu:.1f} s")
    _, offline_wall, offline_cpu = timed(fed.prepare)
    means, wall, cpu = timed(lambda: fed.round(tables))
    worst = max(float(np.abs(m.matrix - truth(tables, entities)[np.array(m.names, np.int64)]).max()) for m in means)
    assert worst < fed.params.resolution
    show_timing(fed, "by party and phase", "setup", "offline", "online")
    console.print(f"offline: {offline_wall:.1f} s, CPU {offline_cpu:.1f} s")
    console.print(f"online: {wall:.1f} s, CPU {cpu:.1f} s: {cpu / wall:.2f} cores busy")
    form = fed.session.form
    assert isinstance(form, Paillier)
    masked = clients * clients * fed.session.query_count * form.block_length
    online = cpu / masked
    console.print(
        f"online CPU per element: {online * 1e6:.0f} us ({masked:,} elements, {form.packing.slots} in a ciphertext)"
    )
    peer = phe_seconds(bits, 40)
    if peer is not None:
        console.print(f"phe, one element in a ciphertext: {peer * 1e6:.0f} us; ours is {peer / online:.1f} times less")


def literal_seconds(bits: int, elements: int = 12) -> float:
    """What one element of an answer costs in the oracle: textbook encryption, the server's masking, decryption."""
    key = PrivateKey.generate(bits)
    n, order = int(key.public.n), lcm(key.p - 1, key.q - 1)
    secret = oracle.SecretKey(n, order, pow(order, -1, n))
    rng, p = oracle.SYSTEM, oracle.P61
    started = time.process_time()
    for _ in range(elements):
        answer = (oracle.encrypt(rng.randrange(p), n, rng),)
        masked = oracle.mask(answer, (rng.randrange(p),), oracle.draw_r(p, rng), n, 64, p, rng)
        oracle.decrypt(masked[0], secret)
    return (time.process_time() - started) / elements


def forms(clients: int = 5, entities: int = 40, own: int = 16, dim: int = 8, bits: int = 2048) -> None:
    """The same inputs in the three forms. The oracle's cost is that of one element times their number (section 9)."""
    tables = federation(clients, entities, own, dim)
    params = Params(clients=clients, dim=dim, key_bits=bits)
    elements = clients * clients * own * -(-(dim + 1) // params.K)
    literal = literal_seconds(bits) * elements
    size = 2 * elements * bits / 4 / 1e6
    rows = [("the paper literally (oracle, per element, extrapolated)", literal, size)]
    for retrieval in ("paillier", "reciprocal"):
        fed = Federation(params, retrieval=retrieval)
        fed.setup([table.names for table in tables])
        fed.round(tables)  # tables of powers are built
        offline = timed(fed.prepare)[2]
        cpu = timed(partial(fed.round, tables))[2]
        size = sum(hop.size for hop in fed.traffic if hop.round == 2) / 1e6
        rows.append((f"{retrieval}, online", cpu, size))
        if retrieval == "paillier":
            rows.append((f"{retrieval}, with offline", cpu + offline, size))
    grid = Grid("form", "CPU s a round", "MB a round, all hops", "times reciprocal", box=None)
    for name, cpu, size in rows:
        grid.add_row(name, f"{cpu:.3f}", f"{size:.2f}", f"{cpu / rows[-1][1]:.1f}")
    console.print(f"{clients} clients, union {entities}, {own} each, dim {dim}; Paillier keys of {bits} bits")
    console.print(grid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fb15k", "million", "paillier", "forms"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    console.print(f"secea {secea.__version__}, python {sys.version.split()[0]}")
    match args.what:
        case "fb15k":
            large(10, 2, 14_541, 8_600, 128, args.rounds)
        case "million":
            large(5, 1, 1_000_000, 200_000, 64, min(args.rounds, 1))
        case "paillier":
            paillier(5, 1_000, 400, 32, 2048)
        case "forms":
            forms()


if __name__ == "__main__":
    main()
