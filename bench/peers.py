"""What a user would pick instead, on the same tables: Flower's SecAgg+, CKKS, and no protection at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from bench.figures import Figure, Grid, Section, ratios
from bench.measure import Tick, Timing, cpus, interleaved, timed, walls
from bench.shapes import Scale, Shape, sums
from secea import Federation, Table

Work = Callable[[], Timing]
SECEA, SECEA_ALL = "secea", "secea, T=N-1"
SECAGG, LEAN, CKKS, PLAIN = "SecAgg+ (Flower)", "SecAgg+, float32 back", "CKKS (TenSEAL)", "plain averaging"


class Contest:
    """The contestants on one federation: for each a round, and the bytes that it sends on all hops."""

    def __init__(self, scale: Scale, tick: Tick) -> None:
        self.shape, self._slices = scale.peers, scale.slices
        self.tables = self.shape.tables()
        self.works: dict[str, Work] = {}
        self.bytes: dict[str, int] = {}
        self.notes: list[str] = []
        self._total, self._count = sums(self.tables, self.shape.entities)
        self.setups: dict[str, tuple[Timing, int]] = {}
        everyone = self.shape.but(collusion=self.shape.clients - 1)
        for name, shape in ((SECEA, self.shape), (SECEA_ALL, everyone)):
            tick(f"set-up of {name}")
            self._add_secea(name, shape)
        if find_spec("flwr"):
            for name, lean in ((SECAGG, False), (LEAN, True)):
                self.works[name] = add_secagg(self.tables, self.shape, self.bytes, name, lean=lean)
        else:
            self.notes.append("Flower is not installed, so SecAgg+ is missing: pip install '.[bench]'")
        if find_spec("tenseal"):
            self._add_ckks()
        else:
            self.notes.append("TenSEAL is not installed, so CKKS is missing: pip install '.[bench]'")
        self._add_plain()

    def _add_secea(self, name: str, shape: Shape) -> None:
        fed = Federation(shape.params())
        _, setup = timed(lambda: fed.setup([table.names for table in self.tables]))
        self.setups[name] = setup, sum(hop.size for hop in fed.traffic)

        def work() -> Timing:
            hops = len(fed.traffic)
            means, timing = timed(lambda: fed.round(self.tables))
            self.bytes[name] = sum(hop.size for hop in fed.traffic[hops:])
            self.shape.check(means, fed.params.resolution)
            return timing

        work()  # its memory is touched for the first time
        self.works[name] = work

    def _add_ckks(self) -> None:
        from bench.ckks import SLOTS, Ckks

        peer, slices = Ckks(), self._slices
        vectors = [np.concatenate([rows.ravel(), count]) for rows, count in dense(self.tables, self.shape.entities)]
        parts = -(-vectors[0].size // SLOTS)
        some = max(1, parts // slices)
        heads = [vector[: some * SLOTS].astype(np.float64) for vector in vectors]
        expected = np.concatenate([self._total.ravel(), self._count.ravel()])[: heads[0].size]

        def work() -> Timing:
            total, timing = timed(lambda: peer.sum(heads))
            self.bytes[CKKS] = peer.bytes * parts // some
            assert np.abs(total - expected).max() < 1e-4
            return timing * (parts / some)

        self.notes.append(f"CKKS was measured on {some} of {parts} ciphertexts of a client, and multiplied")
        self.works[CKKS] = work

    def _add_plain(self) -> None:
        def work() -> Timing:
            means, timing = timed(lambda: plain(self.tables, self.shape.entities))
            self.shape.check(means, 1e-4)
            return timing

        own = self.shape.clients * self.shape.own
        self.bytes[PLAIN] = own * (4 * self.shape.dim + 8) + own * 4 * self.shape.dim
        self.works[PLAIN] = work


def add_secagg(tables: Sequence[Table], shape: Shape, sizes: dict[str, int], name: str, *, lean: bool) -> Work:
    """A round of Flower's SecAgg+, whose bytes go into `sizes`."""
    from bench.secagg import SecAgg

    peer, (right, owners) = SecAgg(dense(tables, shape.entities), lean=lean), sums(tables, shape.entities)
    within = 16 * 2**-22 * shape.clients

    def work() -> Timing:
        (total, count), timing = timed(peer.round)
        sizes[name] = peer.bytes
        assert np.abs(total - right).max() < within, f"{name}: a sum is wrong"
        assert np.abs(count[:, None] - owners).max() < within, f"{name}: a count is wrong"
        return timing

    return work


def dense(tables: Sequence[Table], entities: int) -> list[list[NDArray[np.float32]]]:
    """For each client the rows of the whole union, zeros where it owns none, and ones where it does."""
    vectors = []
    for table in tables:
        rows, count = np.zeros((entities, table.dim), np.float32), np.zeros(entities, np.float32)
        own = np.array(table.names, np.int64)
        rows[own], count[own] = table.matrix, 1
        vectors.append([rows, count])
    return vectors


def plain(tables: Sequence[Table], entities: int) -> list[Table]:
    """FedE's mean by a server that sees everything, in float32."""
    total, count = np.zeros((entities, tables[0].dim), np.float32), np.zeros((entities, 1), np.float32)
    owned = [np.array(table.names, np.int64) for table in tables]
    for rows, table in zip(owned, tables, strict=True):
        total[rows] += table.matrix
        count[rows] += 1
    total /= np.maximum(count, 1)
    return [Table(table.names, total[rows]) for rows, table in zip(owned, tables, strict=True)]


def peers(scale: Scale, tick: Tick) -> Section:
    """A round of each, interleaved, and ours over theirs."""
    contest = Contest(scale, tick)
    found = interleaved(contest.works, scale.repetitions, tick)
    rows = {name: _row(timings, contest.bytes[name]) for name, timings in found.items()}
    rows |= {f"{name}, set-up": _row([setup], size) for name, (setup, size) in contest.setups.items()}
    ours, over = {name: found.pop(name) for name in contest.setups}, {}
    for mine, timings in ours.items():
        for name, theirs in found.items():
            over[f"{mine} over {name}"] = {
                "CPU": ratios([each.cpu for each in timings], [each.cpu for each in theirs]),
                "wall": ratios([each.wall for each in timings], [each.wall for each in theirs]),
                "bytes": Figure.of(contest.bytes[mine] / contest.bytes[name], "x"),
            }
    grids = {
        "round": Grid("One round, all parties in one process", rows),
        "ratios": Grid("A round of secea over one of the others", over),
    }
    return Section(str(contest.shape), grids, contest.notes)


def _row(timings: list[Timing], size: int) -> dict[str, Figure]:
    return {"wall": walls(timings), "CPU": cpus(timings), "bytes, all hops": Figure.of(size, "B")}
