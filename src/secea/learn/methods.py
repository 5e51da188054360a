"""How the clients' tables become the tables that they go on with: nothing, plain means, or secure ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from secea.engines.local import Federation
from secea.engines.local_port import Hop
from secea.errors import ParamsError
from secea.params import Params
from secea.retrieval import check_paper
from secea.table import Name, Table
from secea.wire.keys import Opener, Sealer
from secea.wire.messages import Buffer, Header, Kind

Matrix = NDArray[np.float64]
METHODS: Final = ("local", "common", "secea", "plain", "central")
"""In the order in which they are run and shown."""
PRECISION: Final = 50
"""Bits of a secure mean below `Params.max_abs`. They cost little more than 24 would; and such a mean hardly ever rounds
otherwise than the plain one (`learner.GRID`)."""


class Method(Protocol):
    """What happens to the clients' tables after each round of training."""

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """One table for each client, rows in the order of its ids, in and out."""
        ...


class Mean:
    """The mean over owners, of all entities or of those that all clients own: what a trusted server would compute."""

    def __init__(self, ids: Sequence[NDArray[np.int64]], *, common: bool) -> None:
        self._ids, self._union = ids, int(max((own[-1] for own in ids if len(own)), default=-1)) + 1
        self._owners = np.bincount(np.concatenate(ids), minlength=self._union)
        self._shared = self._owners == len(ids) if common else self._owners > 0

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """Rows that are not shared stay as they are."""
        total = np.zeros((self._union, tables[0].shape[1]))
        for own, table in zip(self._ids, tables, strict=True):
            total[own] += table
        means = total / np.maximum(self._owners, 1)[:, None]
        return [
            np.where(self._shared[own][:, None], means[own], table)
            for own, table in zip(self._ids, tables, strict=True)
        ]


class Secure:
    """The same means by the protocol, with all parties in this process; what each round took is in `record`."""

    def __init__(self, names: Sequence[Sequence[Name]], dim: int, *, collusion: int, rounds: int) -> None:
        self._names = names
        params = Params(clients=len(names), dim=dim, collusion=collusion, rounds=rounds, precision=PRECISION)
        self._federation = Federation(params)
        with self._recorded():
            self._federation.setup(names)

    record: dict[str, Any]
    """Time and bytes of the last call: a line of protocol.jsonl, without its round."""

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """One round of the protocol."""
        with self._recorded():
            means = self._federation.round(
                [Table.trusted(tuple(own), table) for own, table in zip(self._names, tables, strict=True)]
            )
        return [mean.matrix for mean in means]

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        before, hops, started = _stages(self._federation), len(self._federation.traffic), time.perf_counter()
        with _sealing() as sealed:
            yield
        wall = time.perf_counter() - started
        stages = _stages(self._federation)
        stages.subtract(before)
        self.record = _record(wall, {s: t for s, t in stages.items() if t > 0}, sealed, self._federation.traffic[hops:])


def _stages(federation: Federation) -> Counter[str]:
    """CPU seconds of all parties by stage, so far."""
    total: Counter[str] = Counter()
    for phases in federation.timing.values():
        for cost in phases.values():
            total.update(cost.stages)
    return total


@contextmanager
def _sealing() -> Iterator[list[tuple[Kind, float]]]:
    """CPU seconds of each sealing and opening while it lasts, by kind of message."""
    spent: list[tuple[Kind, float]] = []
    seal, open_ = Sealer.seal, Opener.open

    def timed_seal(self: Sealer, chunk: int, *payload: Buffer) -> memoryview:
        return timed(self.header.kind, seal, self, chunk, *payload)

    def timed_open(self: Opener, header: Header, message: Buffer) -> memoryview:
        return timed(header.kind, open_, self, header, message)

    def timed(kind: Kind, work: Callable[..., memoryview], *args: Any) -> memoryview:
        started = time.thread_time()
        try:
            return work(*args)
        finally:
            spent.append((kind, time.thread_time() - started))

    Sealer.seal, Opener.open = timed_seal, timed_open  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        Sealer.seal, Opener.open = seal, open_  # type: ignore[method-assign]


def _record(
    wall: float, stages: dict[str, float], sealed: Sequence[tuple[Kind, float]], hops: Sequence[Hop]
) -> dict[str, Any]:
    def sealing(*kinds: Kind) -> float:
        return sum(seconds for kind, seconds in sealed if kind in kinds)

    sharing, retrieval = stages.get("share", 0.0), stages.get("answer", 0.0)
    aside = set(Kind) - {Kind.SHARE, Kind.ANSWER, Kind.MEAN}
    cpu = {
        "sharing": max(0.0, sharing - sealing(Kind.SHARE)),
        "retrieval": max(0.0, retrieval - sealing(Kind.ANSWER, Kind.MEAN)),
        "sealing": sealing(*Kind),
        "other": max(0.0, sum(stages.values()) - sharing - retrieval - sealing(*aside)),
    }
    sizes: Counter[str] = Counter()
    sent: Counter[int | str] = Counter()
    for hop in hops:
        sizes[hop.kind] += hop.size
        sent[hop.sender] += hop.size
    server = sent.pop("server", 0)
    return {
        "wall": wall, "cpu": cpu, "stages": stages, "bytes": dict(sizes),
        "client_bytes": max(sent.values(), default=0), "server_bytes": server,
    }  # fmt: skip


def check(methods: Sequence[str], clients: int, collusion: int) -> None:
    """Refuse early what the protocol would refuse."""
    if "secea" in methods:
        try:
            check_paper(Params(clients=clients, dim=1, collusion=collusion))
        except ParamsError as error:
            others = ",".join(name for name in methods if name != "secea") or "plain"
            raise ParamsError(f"{error}; or leave the method secea out: --methods {others}") from None
