"""How many cores a round could keep busy: the CPU of clients, who work side by side, and of all that is done between.

python -m bench.busy
"""

from __future__ import annotations

import os
import time
from typing import Final

from bench.hashed import hashed_names
from bench.shapes import FB15K
from secea import Federation
from secea.arithmetic.field import keep_freed_memory

ROUNDS: Final = 6


def main() -> None:
    """Rounds of FB15k-237's shape. The one that took the least CPU time is shown."""
    keep_freed_memory()  # as in the processes that an engine starts
    tables, fed = FB15K.tables(), Federation(FB15K.params())
    with hashed_names():
        fed.setup([table.names for table in tables])
    found = []
    for _ in range(ROUNDS):
        before, wall, cpu = _clients(fed), time.perf_counter(), time.process_time()
        fed.round(tables)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found.append((cpu, wall, _clients(fed) - before))
    cpu, wall, clients = min(found)
    cores = os.cpu_count() or 1
    print(f"{FB15K}: {cpu * 1e3:.0f} ms of CPU in {wall * 1e3:.0f} ms, {cpu / wall:.2f} cores busy")
    print(f"clients {clients * 1e3:.0f} ms, the server and what is between {(cpu - clients) * 1e3:.0f} ms")
    print(f"if clients kept {cores} cores busy: {cpu / (cpu - clients + clients / cores):.2f}")


def _clients(fed: Federation) -> float:
    """CPU seconds of all clients in rounds."""
    return sum(costs["online"].seconds for who, costs in fed.timing.items() if who != "server")


if __name__ == "__main__":
    main()
