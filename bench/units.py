"""What single operations cost on this machine: the product's own functions, each timed for some milliseconds."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from bench.hashed import hashed_names
from bench.measure import timed
from secea import Federation, Params, Table
from secea.arithmetic import streams
from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.ristretto import valid
from secea.arithmetic.threads import stay_in_this_thread
from secea.forms.keyed import Kind, masking
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.shared import RoundSecrets, rows_under_keys
from secea.forms.keyed.tables import Result, Tables
from secea.steps import masks, means, oprf, union
from secea.wire.keys import Identity, Mac, Opener, Sealer, expand
from secea.wire.link import hello_header
from secea.wire.messages import CHUNK_BYTES
from secea.wire.randomness import KeyStream

Units = dict[str, float]
"""CPU seconds of one of each."""
LEAST: Final = 5e-3
"""CPU seconds for which each core repeats an operation, at least."""
CORES: Final = os.cpu_count() or 1
MESSAGES: Final = ("seal", "open", "tag", "keep", "exchange", "publish", "sign", "verify", "derive")
"""What does not depend on the setting."""


def each(work: Callable[[], object], amount: float = 1) -> float:
    """CPU seconds of the work, for each of what it does: the better of two stretches.

    All cores do it at once, as clients do: what they share costs time.
    """

    def loop(_: int) -> tuple[float, int]:
        times, started = 0, time.thread_time()
        while (passed := time.thread_time() - started) < LEAST or not times:
            work()
            times += 1
        return passed, times

    work()
    with ThreadPoolExecutor(CORES, initializer=stay_in_this_thread) as pool:
        stretches = [list(pool.map(loop, range(CORES))) for _ in range(2)]
    return min(sum(passed for passed, _ in each) / sum(times for _, times in each) for each in stretches) / amount


def of_rows(n: Numbers, dim: int, rows: int, own: int, keys: int) -> Units:
    """One chunk of so many slots, of which a client owns some: for each slot, byte or number."""
    ring, key, width = n.ring, os.urandom(32), dim + n.checks + 2
    size, many, signs = rows * ring.element_bytes, [os.urandom(32) for _ in range(keys)], [1] * keys
    secrets, rng = RoundSecrets(ring, dim, n.checks, key, b"", 1), np.random.Generator(np.random.PCG64(0))
    slots, order = np.sort(rng.permutation(rows)[:own]), rng.permutation(own)
    row_keys, values = rng.integers(0, 256, (own, 32), np.uint8), np.ones((own, dim), np.int64)
    upload = bytes(ring.to_bytes(streams.stream(ring, key, 0, rows, width)))
    broadcast = bytes(ring.to_bytes(streams.stream(ring, key, 0, rows, dim + n.checks)))
    totals, found, full = [ring.zeros(rows, width) for _ in range(8)], np.zeros((own, dim)), np.zeros(rows, np.uint8)

    def write() -> object:
        shared, y = secrets.of(0, rows, ()), rows_under_keys(ring, row_keys, 1, dim)
        streams.add_scaled(ring, y, values[order], n.C)
        return ring.to_bytes(means.contribution(ring, y, slots, shared))

    def read() -> None:
        got, shared = ring.from_bytes(broadcast, rows, dim + n.checks), secrets.of(0, rows, ())
        means.right(ring, got, full, shared, 1)
        x = np.ascontiguousarray(got[:, slots, :dim])
        ring.subtract_into(x, rows_under_keys(ring, row_keys, 1, dim))
        some = n.read(x, 1)
        np.maximum(some.max(axis=1), -some.min(axis=1))
        found[order] = some

    def mask() -> None:
        for each_total in totals:
            streams.add_streams(ring, each_total, many, signs, 0)

    def noise() -> None:
        e = ring.zeros(rows, dim)
        streams.add_noise(ring, e, key, 0, n.noise)

    def divide() -> object:
        return means.divide(ring, ring.view(upload, rows, width), ring.zeros(rows, dim), ring.zeros(rows, n.checks))

    return {
        "mask": each(mask, len(totals) * keys * size * width),
        "pad": each(lambda: streams.add_streams(ring, ring.zeros(rows), many, signs, 0), keys * size),
        "weigh": each(lambda: means.noise_columns(ring, totals[0][:, :, :dim], *_pads(secrets, rows)), rows),
        "noise": each(noise, rows * dim),
        "write": each(write, rows),
        "read": each(read, rows),
        "add": each(lambda: ring.add_into(totals[0], ring.from_bytes(upload, rows, width)), size * width),
        "divide": each(divide, rows),
    }


def _pads(secrets: RoundSecrets, rows: int) -> tuple[tuple[Residues, ...], tuple[Residues, ...]]:
    return secrets.alpha(), secrets.pads(0, 0, rows)


def of_tables(params: Params, n: Numbers, own: int) -> Units:
    """A table checked and encoded, and means put into its order: for each number."""
    names, rng = tuple(f"e{i}" for i in range(own)), np.random.Generator(np.random.PCG64(0))
    table = Table(list(names), rng.normal(size=(own, params.dim)).astype(np.float32))
    result, tables = Result(names, np.zeros((own, params.dim)), np.ones(own, np.bool_)), Tables(params, n, 0, _SOMEBODY)
    return {
        "encode": each(lambda: tables.encoded(tables.checked(table, names), names), own * params.dim),
        "decode": each(lambda: tables.like(table, result), own * params.dim),
    }


def of_messages(size: int = CHUNK_BYTES, chunks: int = 32) -> Units:
    """Sealing, opening, tagging, and keeping a copy: for each byte. Keys and signatures: for each.

    Many chunks are sealed before one is let go, as in a round: they do not fit into a cache.
    """
    header = hello_header(Kind, 0, bytes(16))
    payloads, said = [np.zeros(size, np.uint8).data for _ in range(chunks)], bytes(200)
    sealed, signature = [Sealer(bytes(32), header).seal(0, part) for part in payloads], _SOMEBODY.sign(said)
    mine, many = X25519PrivateKey.generate(), size * chunks
    theirs = mine.public_key().public_bytes_raw()

    def tag() -> None:
        mac = Mac(bytes(32))
        for part in sealed:
            mac.update(part)

    return {
        "seal": each(lambda: [Sealer(bytes(32), header).seal(0, part) for part in payloads], many),
        "open": each(lambda: [len(Opener(bytes(32), header).open(header, part)) for part in sealed], many),
        "tag": each(tag, many),
        "keep": each(lambda: _fresh(payloads[0])) / size,
        "exchange": each(lambda: masking.pair_of(mine, theirs, 1, bytes(32))),
        "publish": each(lambda: masking.key_of(7**80).public_key().public_bytes_raw()),
        "sign": each(lambda: _SOMEBODY.sign(said)),
        "verify": each(lambda: masking.voted(_SOMEBODY.public, signature, said)),
        "derive": each(lambda: expand(bytes(32), "mask", said)),
    }


def spent(clients: int, names: int) -> tuple[float, float]:
    """CPU of a set-up with hashed names, and of a round: almost all of it is what parties do beside their numbers."""
    fed = Federation(Params(clients=clients, dim=1, collusion=1, max_entities=names, max_union=names))
    tables = [Table(list(range(names)), np.ones((names, 1), np.float32))] * clients
    with hashed_names():
        _, setup = timed(lambda: fed.setup([table.names for table in tables]))
    fed.round(tables)
    return setup.cpu, min(timed(lambda: fed.round(tables))[1].cpu for _ in range(5))


def of_keys(clients: int, T: int, threshold: int, points: int = 32) -> Units:
    """The names' PRF: for each point. What is dealt, shared and recovered among so many clients: for each."""
    stream, holders, seed = KeyStream(os.urandom(32)), range(T + 1), os.urandom(32)
    dealt = oprf.polynomial(T, stream)
    commitments, key = oprf.commit(dealt), oprf.share_for(dealt, 0)
    proof = oprf.prove(dealt, commitments, seed, 0, stream)
    names = [b"%d" % i for i in range(points)]
    blinding = oprf.blind(names, points, seed)
    answers = {j: oprf.evaluate(blinding.points, oprf.share_for(dealt, j), holders, j) for j in holders}
    secret, members = 7**80, tuple(range(clients))
    shares = masks.shares(secret, threshold, members, stream)
    return {
        "commit": each(lambda: oprf.commit(dealt)),
        "prove": each(lambda: oprf.proven(proof, commitments, seed, 0)),
        "join keys": each(lambda: oprf.joint([commitments] * 8), 8),
        "blind": each(lambda: oprf.blind(names, points, seed), points),
        "evaluate": each(lambda: (valid(blinding.points), oprf.evaluate(blinding.points, key, holders, 0)), points),
        "finish": each(lambda: oprf.finish(blinding, answers, commitments), points),
        "share": each(lambda: masks.shares(secret, threshold, members, KeyStream(seed))),
        "take": each(lambda: (masking.of_small_order(seed), *(int.from_bytes(seed, "little") for _ in range(2)))),
        "recover": each(lambda: masks.recovered(shares, masks.weights_at_zero(members[:threshold]))),
    }


def of_union(entities: int, own: int, keys: int) -> Units:
    """A client's table, its masks for each byte, and the server's peeling."""
    rng = np.random.Generator(np.random.PCG64(0))
    tags = np.unique(rng.integers(0, 1 << 60, entities, np.uint64))
    geometry, many = union.Geometry.of(entities, 0, b""), [os.urandom(32) for _ in range(keys)]

    def fill(some: NDArray[np.uint64]) -> Residues:
        return union.fill(some, geometry, KeyStream(bytes(32)))

    table = fill(tags)
    return {
        "fill": each(lambda: fill(tags[:own])),
        "peel": each(lambda: union.peel(table, geometry)),
        "hide": each(lambda: streams.add_streams(RING61, fill(tags[:0]), many, [1] * keys, 0), keys * 8 * table.size),
    }


def _fresh(payload: memoryview) -> None:
    """A copy in memory that was not touched before."""
    with mmap.mmap(-1, len(payload)) as place:
        place.write(payload)


_SOMEBODY: Final = Identity.generate()
