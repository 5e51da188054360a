"""What `secea demo` shows: the paper's example step by step, and a random federation against the plain mean."""

from __future__ import annotations

import secrets
import time

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

from secea import oracle
from secea.engines.local import Federation
from secea.engines.local_port import Hop
from secea.errors import FederationError
from secea.params import Params
from secea.plan import plan
from secea.table import Table


def paper_example(console: Console | None = None) -> None:
    """Three clients, two entities, beta = 1, 2 and alpha = 3, 4, 5, as in section III-C of the paper."""
    console = console or Console()
    p, params = oracle.P61, Params(clients=3, dim=1)
    rng = secrets.SystemRandom()
    h1, h3 = 7, 11
    z = {n: rng.randrange(p) for n in (1, 3)}
    console.rule("The paper's example: E1 = {e1}, E2 = {e2}, E3 = {e1}; h1 = 7, h3 = 11", align="left")
    grid = Grid(box=None, pad_edge=False)
    for column in ("", "client 1", "client 2", "client 3"):
        grid.add_column(column, justify="right" if column else "left")
    sums = [0, 0, 0]
    for n, h in ((1, h1), (3, h3)):
        phi = oracle.phi((h, 1), ((z[n], rng.randrange(p)),), params, p)
        shares = [phi(alpha)[0] for alpha in params.alpha]
        sums = [(a + b) % p for a, b in zip(sums, shares, strict=True)]
        grid.add_row(f"share of h{n}", *(f"{x:016x}" for x in shares))
    grid.add_row("sum of shares", *(f"{x:016x}" for x in sums))
    console.print(grid)
    decoded = oracle.Polynomial(params.alpha[:2], ((sums[0],), (sums[1],)), p)(params.beta[0])[0]
    console.print(f"any one client sees uniform numbers; two of the three would decode h1 + h3 = {decoded}")
    small = Params(clients=3, dim=1, key_bits=256, insecure_small_keys=True)
    means = oracle.aggregate([{"e1": [7.0]}, {"e2": [5.0]}, {"e1": [11.0]}], small)
    console.print(f"the paper's protocol, literally, gives: {means}\n")


def _ground_truth(tables: list[Table], entities: int, dim: int) -> NDArray[np.float64]:
    total, count = np.zeros((entities, dim)), np.zeros((entities, 1))
    for table in tables:
        rows = np.array(table.names, np.int64)
        total[rows] += table.matrix
        count[rows] += 1
    return total / np.maximum(count, 1)


def random_federation(
    *, clients: int, collusion: int, entities: int, dim: int, seed: int | None, console: Console | None = None
) -> None:
    """A federation with made-up embeddings: what comes out beside the plain mean, and what it took."""
    console = console or Console()
    seed = secrets.randbelow(2**32) if seed is None else seed
    rng = np.random.Generator(np.random.PCG64(seed))  # made-up data, no secrets
    tables = []
    for _ in range(clients):
        own = np.flatnonzero(rng.random(entities) < rng.uniform(0.2, 0.7))
        tables.append(Table(own.tolist(), rng.normal(size=(own.size, dim))))
    console.rule(f"A random federation: {clients} clients, {entities} entities, dim {dim} (seed {seed})", align="left")
    fed = Federation(Params(clients=clients, collusion=collusion, dim=dim))
    started = time.perf_counter()
    fed.setup([table.names for table in tables])
    ready = time.perf_counter()
    means = fed.round(tables)
    done = time.perf_counter()
    truth = _ground_truth(tables, entities, dim)
    _compare(console, tables, means, truth)
    worst = max(
        (float(np.abs(m.matrix - truth[np.array(m.names, np.int64)]).max()) for m in means if len(m)), default=0.0
    )
    if worst >= fed.params.resolution:
        raise FederationError(f"the means differ by {worst:.2e} from the plain ones: this is a bug, please report it")
    expected = plan(fed.params, entities=fed.server.M)
    rounds = [hop for hop in fed.traffic if hop.round]
    console.print(f"largest difference {worst:.1e}; promised: below {fed.params.resolution:.1e}")
    console.print(
        f"set-up {ready - started:.2f} s, {_megabytes(fed.traffic, 0):.1f} MB; round {done - ready:.2f} s, "
        f"{sum(hop.size for hop in rounds) / 1e6:.1f} MB (planned: {expected.round_bytes / 1e6:.1f} MB)"
    )


def _megabytes(traffic: list[Hop], round: int) -> float:
    return sum(hop.size for hop in traffic if hop.round == round) / 1e6


def _compare(console: Console, tables: list[Table], means: list[Table], truth: NDArray[np.float64]) -> None:
    grid = Grid(box=None, pad_edge=False)
    for column in ("client", "entity", "owners", "its own value", "true mean", "secure mean"):
        grid.add_column(column, justify="right")
    for n, (table, mean) in enumerate(zip(tables, means, strict=True)):
        if not len(table):
            continue
        name = int(table.names[0])
        owners = sum(name in other.names for other in tables)
        values = (table.matrix[0, 0], truth[name, 0], mean.matrix[0, 0])
        grid.add_row(str(n), str(name), str(owners), *(f"{x:.6f}" for x in values))
    console.print(grid)
