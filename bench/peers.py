"""What a user would pick instead, on the same tables: Flower's SecAgg+, CKKS, and no protection at all."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from bench import contest
from bench.contest import AES, CKKS, DROPOUTS, EVERYBODY, LEAN, LIMIT, PLAIN, SECAGG, SECEA, Work
from bench.figures import Figure, Grid, Section, ratios
from bench.measure import Tick, Timing, cpus, interleaved, walls
from bench.shapes import Scale, Shape
from secea.arithmetic.field import keep_freed_memory

OURS: Final = (SECEA, EVERYBODY, DROPOUTS)
NEEDS: Final = {SECAGG: "flwr", LEAN: "flwr", AES: "flwr", CKKS: "tenseal"}
"""The packages of the peers."""


def contestants(shape: Shape, some: int) -> dict[str, Callable[[], Work]]:
    """How each is set up; CKKS is measured on `some` ciphertexts. Those that are not installed are left out."""
    tables = shape.tables()
    everyone = shape.but(collusion=shape.clients - 1)
    found: dict[str, Callable[[], Work]] = {
        SECEA: lambda: contest.keyed(tables, shape),
        EVERYBODY: lambda: contest.keyed(tables, everyone),
        DROPOUTS: lambda: contest.keyed(tables, shape, 1),
        SECAGG: lambda: contest.secagg(tables, shape),
        LEAN: lambda: contest.secagg(tables, shape, lean=True),
        AES: lambda: contest.secagg(tables, shape, aes=True),
        CKKS: lambda: contest.ckks(tables, shape, some),
        PLAIN: lambda: contest.plain(tables, shape),
        LIMIT: lambda: contest.limit(shape),
    }
    return {name: made for name, made in found.items() if name not in NEEDS or find_spec(NEEDS[name])}


def missing() -> list[str]:
    """A note for each package that is not installed."""
    return [
        f"{package} is not installed, so a peer is missing: pip install '.[bench]'"
        for package in dict.fromkeys(NEEDS.values())
        if not find_spec(package)
    ]


def peers(scale: Scale, tick: Tick) -> Section:
    """A round of each, interleaved, and ours over theirs."""
    keep_freed_memory()  # as in the processes that an engine starts
    shape, works = scale.peers, {}
    parts = contest.ciphertexts(shape)
    some = max(1, parts // scale.slices)
    for name, made in contestants(shape, some).items():
        tick(f"set-up of {name}")
        works[name] = made()
        if name not in OURS:  # whose memory was touched in the set-up
            works[name]()
    found = interleaved(works, scale.repetitions, tick)
    ours = {name: found[name] for name in OURS}
    grids = {
        "round": Grid(
            "One round, all parties in one process; D = 0 unless it is said",
            {name: row(timings) for name, timings in found.items()},
        ),
        "ratios": Grid(
            "A round of secea over one of the others",
            {
                f"{mine} over {name}": over(timings, theirs)
                for mine, timings in ours.items()
                for name, theirs in found.items()
                if name not in OURS and (mine == SECEA or name in (SECAGG, AES))
            },
        ),
    }
    for cells in (grids["round"].rows[LIMIT], grids["ratios"].rows[f"{SECEA} over {LIMIT}"]):
        del cells["wall"]  # it is measured on one core
    if find_spec("flwr"):
        tick(str(scale.narrow))
        grids["narrow"] = Grid(f"Bytes with a narrow element: {scale.narrow}", _narrow(scale.narrow))
    notes = [
        "Names got their keys by a hash (bench/hashed.py): rounds do not depend on that.",
        f"CKKS was measured on {some} of {parts} ciphertexts of a client, and multiplied.",
    ]
    return Section(str(shape), grids, [*notes, *missing()])


def _narrow(shape: Shape) -> dict[str, dict[str, Figure]]:
    """Bytes of a round, and of an element, where the bound of the numbers allows the narrowest element."""
    tables, rows = shape.tables(), {}
    ours = contest.keyed(tables, shape)()
    element = Figure.of(contest.numbers(shape).ring.element_bytes, "B")
    rows[SECEA] = {"bytes, all hops": Figure.of(ours.bytes, "B"), "element": element}
    for name, lean in ((SECAGG, False), (LEAN, True)):
        theirs = contest.secagg(tables, shape, lean=lean)().bytes
        rows[name] = {"bytes, all hops": Figure.of(theirs, "B"), "secea over it": Figure.of(ours.bytes / theirs, "x")}
    return rows


def row(timings: list[Timing]) -> dict[str, Figure]:
    """Of a contestant."""
    size = Figure.of([each.bytes for each in timings], "B")
    return {"wall": walls(timings), "CPU": cpus(timings), "bytes, all hops": size}


def over(mine: list[Timing], theirs: list[Timing]) -> dict[str, Figure]:
    """Ratios, repetition by repetition."""
    return {
        "CPU": ratios([each.cpu for each in mine], [each.cpu for each in theirs]),
        "wall": ratios([each.wall for each in mine], [each.wall for each in theirs]),
        "bytes": ratios([each.bytes for each in mine], [each.bytes for each in theirs]),
    }
