"""The contestants: for each, a function that runs one round on the same tables and says what it took.

Every result is checked against the true means or sums, outside of the time that is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from bench.hashed import hashed_names
from bench.measure import Timing, timed
from bench.shapes import Shape, sums
from secea import Federation, Table, plan
from secea.forms import form_of
from secea.forms.keyed import Keyed
from secea.forms.keyed.numbers import Numbers

Work = Callable[[], Timing]
SECEA, EVERYBODY, DROPOUTS = "secea", "secea, T = N-1", "secea, D = 1"
SECAGG, LEAN, AES = "SecAgg+ (Flower)", "SecAgg+, float32 back", "SecAgg+, AES masks"
CKKS, PLAIN, LIMIT = "CKKS (TenSEAL)", "plain averaging", "the limit"
CHUNK: Final = 1 << 20
"""Bytes that are copied, sealed and opened at a time for the limit: they fit into a cache."""
ROOM: Final = 16 * 2**-22
"""SecAgg+ rounds to 22 bits of a range of 16."""


def numbers(shape: Shape) -> Numbers:
    """How the keyed form encodes numbers in that shape."""
    form = form_of("keyed")
    assert isinstance(form, Keyed)
    return form.numbers(shape.params())


def keyed(tables: Sequence[Table], shape: Shape, dropouts: int = 0) -> Work:
    """Ours, after a set-up in which names got their keys by a hash, and a first round that touches its memory."""
    fed = Federation(shape.params(dropouts=dropouts))
    with hashed_names():
        fed.setup([table.names for table in tables])

    def work() -> Timing:
        hops = len(fed.traffic)
        means, timing = timed(lambda: fed.round(tables))
        shape.check(means, fed.params.resolution, tables)
        return timing.times(1, sum(hop.size for hop in fed.traffic[hops:]))

    work()
    return work


def secagg(tables: Sequence[Table], shape: Shape, *, lean: bool = False, aes: bool = False) -> Work:
    """Flower's SecAgg+ on the dense union; `bench.secagg` says what `lean` and `aes` change."""
    from bench.secagg import SecAgg

    peer = SecAgg(dense(tables, shape.entities), lean=lean, aes=aes)
    right, owners = sums(tables, shape.entities)
    within = ROOM * shape.clients

    def work() -> Timing:
        (total, count), timing = timed(peer.round)
        assert np.abs(total - right).max() < within, "SecAgg+: a sum is wrong"
        assert np.abs(count[:, None] - owners).max() < within, "SecAgg+: a count is wrong"
        return timing.times(1, peer.bytes)

    return work


def ckks(tables: Sequence[Table], shape: Shape, some: int) -> Work:
    """TenSEAL's CKKS on `some` ciphertexts of each client, times as many as there are."""
    from bench.ckks import SLOTS, Ckks

    peer, parts = Ckks(), ciphertexts(shape)
    some = min(some, parts)
    vectors = [np.concatenate([rows.ravel(), count]) for rows, count in dense(tables, shape.entities)]
    heads = [vector[: some * SLOTS].astype(np.float64) for vector in vectors]
    total, count = sums(tables, shape.entities)
    right = np.concatenate([total.ravel(), count.ravel()])[: heads[0].size]

    def work() -> Timing:
        found, timing = timed(lambda: peer.sum(heads))
        assert np.abs(found - right).max() < 1e-4, "CKKS: a sum is wrong"
        return timing.times(parts / some, peer.bytes * parts // some)

    return work


def ciphertexts(shape: Shape) -> int:
    """Of CKKS, for one client's rows and counts."""
    from bench.ckks import SLOTS

    return -(-shape.entities * (shape.dim + 1) // SLOTS)


def plain(tables: Sequence[Table], shape: Shape) -> Work:
    """FedE's mean by a server that sees everything, in float32. Names have eight bytes on their way."""
    size = shape.clients * shape.own * (4 * shape.dim + 8) + shape.table_bytes

    def work() -> Timing:
        means, timing = timed(lambda: averaged(tables, shape.entities))
        shape.check(means, 1e-4, tables)
        return timing.times(1, size)

    return work


def averaged(tables: Sequence[Table], entities: int) -> list[Table]:
    """The mean of each entity over its owners, in float32."""
    total, count = np.zeros((entities, tables[0].dim), np.float32), np.zeros((entities, 1), np.float32)
    owned = [np.array(table.names, np.int64) for table in tables]
    for rows, table in zip(owned, tables, strict=True):
        total[rows] += table.matrix
        count[rows] += 1
    total /= np.maximum(count, 1)
    return [Table(table.names, total[rows]) for rows, table in zip(owned, tables, strict=True)]


def dense(tables: Sequence[Table], entities: int) -> list[list[NDArray[np.float32]]]:
    """For each client the rows of the whole union, zeros where it owns none, and ones where it does."""
    vectors = []
    for table in tables:
        rows, count = np.zeros((entities, table.dim), np.float32), np.zeros(entities, np.float32)
        own = np.array(table.names, np.int64)
        rows[own], count[own] = table.matrix, 1
        vectors.append([rows, count])
    return vectors


# ----------------------------------------------------------------------------------------------------------- the limit


def limit(shape: Shape) -> Work:
    """AES once over all key streams; a copy, a seal and an open of the bytes of a round.

    That is what is left if arithmetic, framing and relaying are free. It is measured on some chunks, on one core.
    """
    streams, moved = stream_bytes(shape), plan(shape.params(), entities=shape.entities).round_bytes

    def work() -> Timing:
        seconds = _byte_seconds(_stream()) * streams + _byte_seconds(_copy()) * moved
        return Timing(seconds, seconds, moved)

    return work


def stream_bytes(shape: Shape) -> int:
    """Key streams of a round: masks between clients, an entity's key over each row and its mean, noise."""
    params, form, n = shape.params(), form_of("keyed"), numbers(shape)
    assert isinstance(form, Keyed)
    width, element = params.dim + n.checks + 2, n.ring.size * n.ring.dtype.itemsize  # words of a key stream
    masks = shape.clients * form.degree(params) * shape.entities * width * element
    rows = 2 * shape.clients * shape.own * params.dim * element
    noise = 2 * min(shape.clients, params.T + 1) * shape.entities * params.dim * n.noise.blocks * 16
    return masks + rows + noise


def _stream() -> Callable[[], object]:
    """AES-256 in counter mode."""
    cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
    zeros, out = np.zeros(CHUNK, np.uint8), np.empty(CHUNK + 16, np.uint8)
    return lambda: cipher.update_into(zeros.data, out.data)


def _copy() -> Callable[[], object]:
    """A copy, a seal and an open, into buffers that exist already."""
    cipher = AESGCM(bytes(32))
    source, target, sealed = np.zeros(CHUNK, np.uint8), np.empty(CHUNK, np.uint8), bytearray(CHUNK + 16)

    def work() -> None:
        np.copyto(target, source)
        cipher.encrypt_into(bytes(12), source.data, None, sealed)
        cipher.decrypt_into(bytes(12), sealed, None, target.data)

    return work


def _byte_seconds(work: Callable[[], object], chunks: int = 100, repetitions: int = 3) -> float:
    """CPU seconds for each byte of a chunk, the best of several."""
    best = float("inf")
    for _ in range(repetitions):
        started = time.process_time()
        for _ in range(chunks):
            work()
        best = min(best, time.process_time() - started)
    return best / (chunks * CHUNK)
