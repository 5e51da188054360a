"""What the keyed form is meant to cost: the aims, in one table, beside what was measured in this run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bench.figures import Figure, Grid, Section, ratios
from bench.hashed import hashed_names
from bench.measure import LIMIT_BYTES, Tick, Timing, in_child, interleaved, limit_seconds, timed
from bench.peers import LEAN, SECAGG, add_secagg
from bench.shapes import Scale, Shape
from secea import Federation, plan
from secea.arithmetic.field import keep_freed_memory
from secea.arithmetic.ristretto import valid
from secea.forms import form_of
from secea.forms.keyed import Keyed
from secea.steps import oprf
from secea.wire.randomness import KeyStream

Rows = dict[str, dict[str, Figure]]
OURS = {"T = 2": (2, 0), "T = 9, everybody else": (9, 0), "T = 2, one may drop out": (2, 1)}
"""T and D of the rounds that are compared."""


def aims(scale: Scale, tick: Tick) -> Section:
    """The rows in the order of the aims."""
    keep_freed_memory()  # as in the processes that an engine starts
    rows = _rounds(scale, tick)
    rows |= _names(scale, tick)
    rows |= _many(scale, tick)
    notes = ["Rounds are those of a federation whose names got their keys by a hash: rounds do not depend on that."]
    return Section(str(scale.peers), {"aims": Grid("Aims of the keyed form, and what was measured", rows)}, notes)


def _row(aim: float, unit: str, figure: Figure) -> dict[str, Figure]:
    return {"aim": Figure.of(aim, unit), "measured": figure}


# ------------------------------------------------------------------------------------------------------------- a round


def _rounds(scale: Scale, tick: Tick) -> Rows:
    shape = scale.peers
    tables = shape.tables()
    works: dict[str, Callable[[], Timing]] = {}
    sizes: dict[str, int] = {}
    for name, (T, D) in OURS.items():
        tick(f"set-up, {name}")
        works[name] = _federation(shape.but(collusion=min(T, shape.clients - 1)), D, name, sizes)
    for name, lean in ((SECAGG, False), (LEAN, True)):
        works[name] = add_secagg(tables, shape, sizes, name, lean=lean)
    found = interleaved(works, scale.repetitions, tick)
    cpu, wall = ({name: [getattr(t, of) for t in each] for name, each in found.items()} for of in ("cpu", "wall"))
    names = list(OURS)
    limits = [_limit(shape) for _ in range(scale.repetitions)]
    return {
        "CPU of a round over SecAgg+, T = 2": _row(0.40, "x", ratios(cpu[names[0]], cpu[SECAGG])),
        "the same, T = 9": _row(0.50, "x", ratios(cpu[names[1]], cpu[SECAGG])),
        "the same, T = 2, D = 1": _row(0.55, "x", ratios(cpu[names[2]], cpu[SECAGG])),
        "wall time of a round over SecAgg+, T = 2": _row(0.35, "x", ratios(wall[names[0]], wall[SECAGG])),
        "bytes over SecAgg+": _row(1.02, "x", Figure.of(sizes[names[0]] / sizes[SECAGG], "x")),
        "bytes over SecAgg+ with float32 back": _row(1.36, "x", Figure.of(sizes[names[0]] / sizes[LEAN], "x")),
        "CPU of a round over the limit": _row(3, "x", ratios(cpu[names[0]], limits)),
    }


def _federation(shape: Shape, dropouts: int, name: str, sizes: dict[str, int]) -> Callable[[], Timing]:
    fed, tables = Federation(shape.params(dropouts=dropouts)), shape.tables()
    with hashed_names():
        fed.setup([table.names for table in tables])

    def work() -> Timing:
        hops = len(fed.traffic)
        means, timing = timed(lambda: fed.round(tables))
        sizes[name] = sum(hop.size for hop in fed.traffic[hops:])
        shape.check(means, fed.params.resolution)
        return timing

    work()  # its memory is touched for the first time
    return work


def _limit(shape: Shape) -> float:
    """One pass of AES over all key streams; a copy, a seal and an open of all bytes that move: CPU seconds."""
    params, form = shape.params(), form_of("keyed")
    assert isinstance(form, Keyed)
    n = form.numbers(params)
    width, element = params.dim + n.checks + 2, n.ring.size * n.ring.dtype.itemsize  # words of a key stream
    masks = shape.clients * form.degree(params) * shape.entities * width * element
    rows = 2 * shape.clients * shape.own * params.dim * element
    noisy = min(shape.clients, params.T + 1)
    noise = 2 * noisy * shape.entities * params.dim * n.noise.blocks * 16
    return _stream_seconds(masks + rows + noise) + limit_seconds(plan(params, entities=shape.entities).round_bytes)


def _stream_seconds(size: int, chunks: int = 200) -> float:
    cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
    zeros, out = np.zeros(LIMIT_BYTES, np.uint8), np.empty(LIMIT_BYTES + 16, np.uint8)
    started = time.process_time()
    for _ in range(chunks):
        cipher.update_into(zeros.data, out.data)
    return (time.process_time() - started) / (chunks * LIMIT_BYTES) * size


# --------------------------------------------------------------------------------------------------------------- names


def _names(scale: Scale, tick: Tick) -> Rows:
    return {
        f"PRF of a name, all parties, T = {T}": _row(aim, "s", _prf(T, scale.names, scale.repetitions, tick))
        for T, aim in ((2, 470e-6), (9, 1050e-6))
    }


def _prf(T: int, count: int, repetitions: int, tick: Tick) -> Figure:
    """CPU seconds for each point of a full list: its owner's, and those of all T+1 holders."""
    dealt = oprf.polynomial(T, KeyStream(os.urandom(32)))
    joint, holders = oprf.commit(dealt), range(T + 1)
    names, each = [b"entity %d" % i for i in range(count)], []
    for number in range(repetitions):
        tick(f"PRF with T = {T}, {number + 1} of {repetitions}")
        started = time.process_time()
        blinding = oprf.blind(names, count, os.urandom(32))
        answers = {}
        for j in holders:
            assert valid(blinding.points).all()
            answers[j] = oprf.evaluate(blinding.points, oprf.share_for(dealt, j), holders, j)
        assert len(oprf.finish(blinding, answers, joint)) == count
        each.append((time.process_time() - started) / count)
    return Figure.of(each, "s")


# -------------------------------------------------------------------------------------------------------- many clients


def _many(scale: Scale, tick: Tick) -> Rows:
    rows: Rows = {}
    tick(str(scale.fifty))
    fifty = in_child(scale.fifty, 4, dropouts=scale.fifty_dropouts)
    cpu = [each["cpu"] for each in fifty["rounds"][1:]]
    rows["50 clients: CPU of a round"] = _row(2.5, "s", Figure.of(cpu, "s"))
    rows["50 clients: bytes of the set-up"] = _row(200e6, "B", Figure.of(fifty["setup"]["bytes"], "B"))
    tick(str(scale.hundred))
    hundred = in_child(scale.hundred, 3, dropouts=scale.hundred_dropouts)
    rounds = hundred["rounds"]
    rows["100 clients: the set-up, wall"] = {"measured": Figure.of(hundred["setup"]["wall"], "s")}
    rows["100 clients: its bytes"] = {"measured": Figure.of(hundred["setup"]["bytes"], "B")}
    rows["100 clients: a round, wall"] = {"measured": Figure.of([each["wall"] for each in rounds], "s")}
    rows["100 clients: its bytes, all hops"] = {"measured": Figure.of([each["bytes"] for each in rounds], "B")}
    rows["100 clients: memory, all parties"] = {"measured": Figure.of(hundred["peak"], "B")}
    return rows
