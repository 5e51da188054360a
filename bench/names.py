"""The oblivious PRF: what a name's key costs, once, in the set-up."""

from __future__ import annotations

import os

from bench.figures import Figure, Grid, Section
from bench.measure import Tick, timed
from bench.shapes import Scale
from secea.arithmetic.ristretto import valid
from secea.steps import oprf
from secea.wire.randomness import KeyStream


def names(scale: Scale, tick: Tick) -> Section:
    """CPU seconds of a padded point, all parties, with few and with all others colluding."""
    rows = {}
    for T in (scale.peers.collusion, scale.peers.clients - 1):
        each, busy = [], []
        for number in range(scale.repetitions):
            tick(f"T = {T}, {number + 1} of {scale.repetitions}")
            _, timing = timed(lambda T=T: prf(T, scale.names))  # type: ignore[misc]
            each.append(timing.cpu / scale.names)
            busy.append(timing.cpu / timing.wall)
        points = scale.peers.clients * scale.peers.own
        rows[f"T = {T}"] = {
            "CPU": Figure.of(each, "s"),
            "cores busy": Figure.of(busy, ""),
            f"CPU of {points:,} points": Figure.of([points * seconds for seconds in each], "s"),
        }
    title = "The PRF of a padded point, all parties, its check included"
    return Section(f"lists of {scale.names:,} points", {"point": Grid(title, rows)})


def prf(T: int, count: int) -> None:
    """A full list: its owner's part, and those of all T+1 holders."""
    dealt = oprf.polynomial(T, KeyStream(os.urandom(32)))
    joint, holders = oprf.commit(dealt), range(T + 1)
    blinding = oprf.blind([b"entity %d" % i for i in range(count)], count, os.urandom(32))
    answers = {}
    for j in holders:
        assert valid(blinding.points).all()
        answers[j] = oprf.evaluate(blinding.points, oprf.share_for(dealt, j), holders, j)
    assert len(oprf.finish(blinding, answers, joint)) == count
