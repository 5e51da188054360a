"""The federations that are measured: how many clients and entities, and made-up embeddings for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea import Params, Table
from secea.engines.costs import EngineName

SEED: Final = 2206_09097
BLOCK: Final = 1 << 17
"""Entities that are checked at a time: a check of ten million needs little memory."""


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
            mine = np.zeros(self.entities, np.bool_)
            mine[low:high][: self.own] = True
            mine[rng.choice(np.flatnonzero(~mine), self.own - int(mine.sum()), replace=False)] = True
            names = tuple(np.flatnonzero(mine).tolist())
            tables.append(Table.trusted(names, rng.standard_normal((self.own, self.dim), np.float32)))
        return tables

    @property
    def table_bytes(self) -> int:
        """Of all clients' numbers; as many come out."""
        return 4 * self.clients * self.own * self.dim

    def check(self, means: Sequence[Table], within: float, tables: Sequence[Table] = ()) -> None:
        """What came out is the mean over all owners: a benchmark of something else is worth nothing."""
        tables = tables or self.tables()
        names = [np.array(table.names, np.int64) for table in tables]
        assert all(tuple(mean.names) == tuple(table.names) for mean, table in zip(means, tables, strict=True))
        worst = 0.0
        for low in range(0, self.entities, BLOCK):
            total, count = np.zeros((BLOCK, self.dim)), np.zeros((BLOCK, 1))
            parts = [slice(*np.searchsorted(each, (low, low + BLOCK)).tolist()) for each in names]  # they are in order
            for each, table, part in zip(names, tables, parts, strict=True):
                total[each[part] - low] += table.matrix[part]
                count[each[part] - low] += 1
            total /= np.maximum(count, 1)
            for each, mean, part in zip(names, means, parts, strict=True):
                off = np.abs(mean.matrix[part] - total[each[part] - low])
                worst = max(worst, float(off.max(initial=0.0)))
        assert worst < within, f"{self}: a mean is off by {worst}, more than {within}"


def sums(tables: Sequence[Table], entities: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sum over all owners of each entity, and their number."""
    total, count = np.zeros((entities, tables[0].dim)), np.zeros((entities, 1))
    for table in tables:
        rows = np.array(table.names, np.int64)
        total[rows] += table.matrix
        count[rows] += 1
    return total, count


FB15K: Final = Shape(clients=10, collusion=2, entities=14_541, own=8_600, dim=128)
"""FB15k-237, split by relation among ten clients."""


@dataclass(frozen=True)
class Scale:
    """How large everything is, and how often it is repeated."""

    peers: Shape = FB15K
    repetitions: int = 5
    narrow: Shape = Shape(clients=8, collusion=2, entities=14_541, own=8_600, dim=128)
    """The same with so few clients that elements of seven bytes are wide enough."""
    slices: int = 16
    """CKKS is measured on one of so many equal parts of the dense vector."""
    names: int = 2_000
    """Names of one list, whose PRF is measured."""
    rounds: int = 4
    fifty: Shape = Shape(clients=50, collusion=5, entities=5_000, own=1_000, dim=64)
    fifty_dropouts: int = 5
    hundred: Shape = Shape(clients=100, collusion=10, entities=1_000, own=100, dim=32)
    hundred_dropouts: int = 10
    growth: Shape = Shape(clients=10, collusion=2, entities=10_000, own=6_000, dim=64)
    growth_steps: int = 4
    growth_rounds: int = 3
    literal: Shape = Shape(clients=3, collusion=1, entities=6, own=3, dim=7)
    packed: Shape = Shape(clients=5, collusion=1, entities=60, own=12, dim=39)
    key_bits: int = 2048
    paper_repetitions: int = 3
    kernel_bytes: int = 1 << 20
    kernel_seconds: float = 0.2
    engine_sites: tuple[int, ...] = (4, 10)
    """Sites of a deployment, each with the entities of `peers`."""
    engine_rounds: int = 5
    million: Shape = Shape(clients=10, collusion=2, entities=1_000_000, own=200_000, dim=128)
    plans: tuple[tuple[Shape, int, bool], ...] = (
        (FB15K, 0, False),
        (FB15K.but(collusion=9), 0, False),
        (FB15K, 1, False),
        (Shape(clients=50, collusion=5, entities=5_000, own=1_000, dim=64), 5, False),
        (Shape(clients=5, collusion=4, entities=100_000, own=20_000, dim=64), 0, False),
        (Shape(clients=5, collusion=4, entities=3_000, own=1_500, dim=512), 0, False),
        (Shape(clients=3, collusion=1, entities=6_000, own=3_000, dim=32), 0, True),
        (Shape(clients=20, collusion=4, entities=2_000, own=500, dim=64), 3, True),
    )
    """What is planned and then measured: sizes, drop-outs, and whether names get their keys as they do in life."""
    plan_turns: int = 3
    deployed: tuple[tuple[EngineName, Shape], ...] = (
        ("nvflare", FB15K.but(clients=4)),
        ("nvflare", Shape(clients=3, collusion=1, entities=100_000, own=50_000, dim=64)),
        ("flower", FB15K.but(clients=4)),
        ("flower", Shape(clients=3, collusion=1, entities=1_000, own=500, dim=32)),
    )
    """What is planned for an engine, and then runs on it; none is what the engine's numbers were fitted to."""
    deployed_rounds: int = 4
    deployed_turns: int = 2
    training_rounds: int = 3
    """With one, the small data set."""
    ten_million: Shape = Shape(clients=5, collusion=2, entities=10_000_000, own=2_000_000, dim=32)


QUICK: Final = Scale(
    peers=FB15K.but(entities=1_000, own=600),
    repetitions=3,
    narrow=FB15K.but(clients=8, entities=1_000, own=600),
    slices=8,
    names=64,
    rounds=3,
    fifty=Shape(clients=8, collusion=2, entities=60, own=20, dim=8),
    fifty_dropouts=2,
    hundred=Shape(clients=10, collusion=2, entities=60, own=20, dim=8),
    hundred_dropouts=2,
    growth=Shape(clients=6, collusion=1, entities=1_200, own=720, dim=16),
    growth_steps=2,
    growth_rounds=2,
    literal=Shape(clients=3, collusion=1, entities=4, own=2, dim=1),
    packed=Shape(clients=5, collusion=1, entities=12, own=3, dim=39),
    paper_repetitions=2,
    kernel_seconds=0.03,
    million=Shape(clients=10, collusion=2, entities=10_000, own=2_000, dim=128),
    ten_million=Shape(clients=5, collusion=2, entities=100_000, own=20_000, dim=32),
    plans=((Shape(clients=4, collusion=1, entities=60, own=20, dim=8), 1, True),),
    plan_turns=1,
    deployed=(("nvflare", Shape(clients=2, collusion=1, entities=60, own=40, dim=8)),),
    deployed_rounds=2,
    deployed_turns=1,
    training_rounds=1,
    engine_sites=(4,),
    engine_rounds=2,
)
"""About a minute."""
