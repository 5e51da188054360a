"""A round with elements of seven bytes beside one with eight, in turns: bytes, and CPU time of all parties.

    python -m bench.elements [CLIENTS]

It has FB15k-237's shape with 8 clients and T = 2, if nothing else is said. Two more bits of precision than the default
take eight bytes there; everything else is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.figures import ratios
from bench.hashed import hashed_names
from bench.measure import Timing, interleaved, timed
from bench.shapes import FB15K, Shape
from secea import Federation
from secea.arithmetic.field import keep_freed_memory
from secea.forms.keyed import Keyed

REPETITIONS = 12
PRECISIONS = (24, 26)


def contestant(shape: Shape, precision: int, sizes: list[int]) -> tuple[int, Callable[[], Timing]]:
    """The bytes of an element, and a round."""
    params, tables = shape.params(precision=precision), shape.tables()
    fed = Federation(params)
    with hashed_names():
        fed.setup([table.names for table in tables])

    def work() -> Timing:
        hops = len(fed.traffic)
        means, timing = timed(lambda: fed.round(tables))
        sizes.append(sum(hop.size for hop in fed.traffic[hops:]))
        shape.check(means, 2 * params.resolution)  # means are float32, which rounds them
        return timing

    work()  # its memory is touched for the first time
    return Keyed().numbers(params).ring.element_bytes, work


def main(clients: int) -> None:
    """Print both, and their ratio."""
    keep_freed_memory()
    shape = FB15K.but(clients=clients)
    print(shape)
    sizes: dict[int, list[int]] = {precision: [] for precision in PRECISIONS}
    made = {precision: contestant(shape, precision, sizes[precision]) for precision in PRECISIONS}
    found = interleaved({str(p): work for p, (_, work) in made.items()}, REPETITIONS, lambda _: None)
    cpu = {p: [each.cpu for each in found[str(p)]] for p in PRECISIONS}
    for p in PRECISIONS:
        print(f"{made[p][0]} bytes (precision {p}): {sizes[p][-1]:,} bytes a round")
    few, many = PRECISIONS
    print(f"bytes: {sizes[few][-1] / sizes[many][-1]:.3f} x; CPU: {ratios(cpu[few], cpu[many])}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
