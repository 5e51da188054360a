"""The federations that are measured: how many clients and entities, and made-up embeddings for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea import Params, Table

SEED: Final = 2206_09097


@dataclass(frozen=True)
class Shape:
    """The size of a federation."""

    clients: int
    collusion: int
    entities: int
    """M, of all clients together."""
    own: int
    """Entities of each client."""
    dim: int
    bound: int = 0
    """max_entities; 0 means `own`."""

    def __str__(self) -> str:
        bound = f" (bound {self.bound:,})" if self.bound not in (0, self.own) else ""
        return (
            f"{self.clients} clients, union {self.entities:,}, {self.own:,} entities each{bound},"
            f" d={self.dim}, T={self.collusion}"
        )

    def but(self, **changes: int) -> Shape:
        """The same shape with some numbers changed."""
        return replace(self, **changes)

    def params(self, **more: Any) -> Params:
        """The parameters of a federation of this size."""
        return Params(
            clients=self.clients, collusion=self.collusion, dim=self.dim, max_entities=self.bound or self.own,
            max_union=self.entities, **more,
        )  # fmt: skip

    def tables(self) -> list[Table]:
        """Random float32 tables; every entity has an owner as nearly as `own` allows, the rest falls as it may."""
        rng = np.random.Generator(np.random.PCG64(SEED))
        tables = []
        for n in range(self.clients):
            low, high = (self.entities * i // self.clients for i in (n, n + 1))
            fixed = np.arange(low, high)[: self.own]
            others = np.setdiff1d(np.arange(self.entities), fixed)
            names = np.sort(np.r_[fixed, rng.choice(others, self.own - fixed.size, replace=False)])
            tables.append(Table(names.tolist(), rng.normal(size=(self.own, self.dim)).astype(np.float32)))
        return tables

    def check(self, means: Sequence[Table], within: float) -> None:
        """What came out is the mean over all owners: a benchmark of something else is worth nothing."""
        expected = expected_means(self)
        worst = max(float(np.abs(m.matrix - expected[np.array(m.names, np.int64)]).max()) for m in means)
        assert worst < within, f"{self}: a mean is off by {worst}, more than {within}"


def sums(tables: Sequence[Table], entities: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sum over all owners of each entity, and their number."""
    total, count = np.zeros((entities, tables[0].dim)), np.zeros((entities, 1))
    for table in tables:
        rows = np.array(table.names, np.int64)
        total[rows] += table.matrix
        count[rows] += 1
    return total, count


def truth(tables: Sequence[Table], entities: int) -> NDArray[np.float64]:
    """The mean of each entity over its owners."""
    total, count = sums(tables, entities)
    return total / np.maximum(count, 1)


@lru_cache(maxsize=2)
def expected_means(shape: Shape) -> NDArray[np.float64]:
    """The truth about the tables of that shape."""
    return truth(shape.tables(), shape.entities)


FB15K: Final = Shape(clients=10, collusion=2, entities=14_541, own=8_600, dim=128)
"""FB15k-237, split by relation among ten clients."""


@dataclass(frozen=True)
class Scale:
    """How large everything is, and how often it is repeated."""

    round: Shape = FB15K
    rounds: int = 7
    peers: Shape = FB15K
    repetitions: int = 5
    slices: int = 16
    """CKKS is measured on one of so many equal parts of the dense vector."""
    literal: Shape = Shape(clients=3, collusion=1, entities=6, own=3, dim=7)
    packed: Shape = Shape(clients=5, collusion=1, entities=60, own=12, dim=39)
    key_bits: int = 2048
    paper_repetitions: int = 3
    kernel_bytes: int = 1 << 20
    kernel_seconds: float = 0.3
    growth: Shape = Shape(clients=8, collusion=1, entities=4_000, own=1_000, dim=64)
    growth_steps: int = 4
    growth_rounds: int = 3
    fifty: Shape = Shape(clients=50, collusion=5, entities=5_000, own=1_000, dim=64)
    fifty_dropouts: int = 5
    hundred: Shape = Shape(clients=100, collusion=10, entities=1_000, own=100, dim=32)
    hundred_dropouts: int = 10
    names: int = 2_000
    """Names of one list, whose PRF is measured."""
    engine_sites: tuple[int, ...] = (4, 10)
    """Sites of a deployment, each with the entities of `round`."""
    engine_rounds: int = 5
    million: Shape = Shape(clients=10, collusion=2, entities=1_000_000, own=200_000, dim=128)


QUICK: Final = Scale(
    round=FB15K.but(entities=1_000, own=600),
    rounds=3,
    peers=FB15K.but(entities=1_000, own=600),
    repetitions=3,
    slices=8,
    literal=Shape(clients=3, collusion=1, entities=4, own=2, dim=1),
    packed=Shape(clients=5, collusion=1, entities=12, own=3, dim=39),
    paper_repetitions=2,
    kernel_seconds=0.05,
    growth=Shape(clients=6, collusion=1, entities=1_200, own=300, dim=16),
    growth_steps=2,
    growth_rounds=2,
    fifty=Shape(clients=8, collusion=2, entities=60, own=20, dim=8),
    fifty_dropouts=2,
    hundred=Shape(clients=10, collusion=2, entities=60, own=20, dim=8),
    hundred_dropouts=2,
    names=64,
    engine_sites=(4,),
    engine_rounds=2,
)
"""About a minute."""
