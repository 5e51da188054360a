"""Whole rounds: how far from the limit, where the time goes, and what a set-up costs beside them."""

from __future__ import annotations

from typing import Any

from bench.figures import Figure, Grid, Section, ratios
from bench.measure import Tick, in_child
from bench.shapes import Scale, Shape


def round(scale: Scale, tick: Tick) -> Section:  # noqa: A001 - the section's name
    """FB15k-237's shape, over the limit."""
    return whole(scale.round, scale.rounds, tick)


def fifty(scale: Scale, tick: Tick) -> Section:
    """Fifty clients."""
    return whole(scale.fifty, 2, tick, dropouts=scale.fifty_dropouts)


def large(scale: Scale, tick: Tick) -> Section:
    """A million entities, whose names get their keys by a hash: the group would take most of an hour."""
    return whole(scale.million, 2, tick, hashed=True)


def whole(shape: Shape, rounds: int, tick: Tick, *, dropouts: int = 0, hashed: bool = False) -> Section:
    """Set-up and rounds of one federation in a process of its own."""
    tick(f"{shape}: a set-up and {rounds} rounds")
    found = in_child(shape, rounds, limit=True, dropouts=dropouts, hashed=hashed)
    later = found["rounds"][1:] or found["rounds"]  # the first touches its memory for the first time
    cost = {"set-up": _row([found["setup"]]), "first round": _row(found["rounds"][:1])}
    if rounds > 1:
        cost["round"] = _row(later)
    cpu, limit, busy = ([each[key] for each in later] for key in ("cpu", "limit", "limit, all cores"))
    limits = {
        "the limit": {"CPU": Figure.of(limit, "s"), "bytes": Figure.of(found["formula"], "B")},
        "the limit, on all cores at once": {"CPU": Figure.of(busy, "s"), "bytes": Figure.of(found["formula"], "B")},
        "a round": {
            "CPU": Figure.of(cpu, "s"),
            "bytes": _values(later, "bytes", "B"),
            "times the limit": ratios(cpu, limit),
            "times that of all cores": ratios(cpu, busy),
        },
        "set-up over a round": {
            "CPU": Figure.of([found["setup"]["cpu"] / each for each in cpu], "x"),
            "bytes": Figure.of(found["setup"]["bytes"] / later[-1]["bytes"], "x"),
        },
    }
    results = 4 * shape.clients * shape.own * shape.dim
    grids = {
        "cost": Grid("What a set-up and a round cost, all parties in one process", cost),
        "limit": Grid("Against one copy, one seal and one open of all bytes", limits),
        "stages": Grid("Where the CPU time and the bytes go", _stages(found)),
        "memory": Grid(
            "The most memory, all parties",
            {
                "all parties": {
                    "at most": Figure.of(found["peak"], "B"),
                    "before the set-up": Figure.of(found["start"], "B"),
                    "beyond tables and results": Figure.of(found["peak"] - found["start"] - results, "B"),
                }
            },
        ),
    }
    if found["parts"]:
        grids["parts"] = Grid("What the CPU time of a round is spent on, all parties", _parts(found["parts"]))
    return Section(f"{shape}; {found['primes']} {'prime' if found['primes'] == 1 else 'primes'}", grids)


def _parts(spent: dict[str, float]) -> dict[str, dict[str, Figure]]:
    total = sum(spent.values())
    return {
        name: {"CPU": Figure.of(seconds, "s"), "share": Figure.of(100 * seconds / total, "%")}
        for name, seconds in spent.items()
    }


def _values(entries: list[dict[str, Any]], key: str, unit: str) -> Figure:
    return Figure.of([each[key] for each in entries], unit)


def _row(entries: list[dict[str, Any]]) -> dict[str, Figure]:
    return {
        "wall": _values(entries, "wall", "s"),
        "CPU": _values(entries, "cpu", "s"),
        "cores busy": Figure.of([each["cpu"] / each["wall"] for each in entries], ""),
        "bytes, all hops": _values(entries, "bytes", "B"),
    }


def _stages(found: dict[str, Any]) -> dict[str, dict[str, Figure]]:
    """CPU seconds by stage; bytes of the messages that a stage is named after, and of what else it sends."""
    rows: dict[str, dict[str, Figure]] = {}
    for phase, seconds, kinds in (
        ("set-up", found["setup stages"], found["setup"]["by kind"]),
        ("round", found["stages"], found["rounds"][-1]["by kind"]),
    ):
        for stage, each in seconds.items():
            rows[f"{phase}: {stage}"] = {"CPU": Figure.of(each, "s")}
        for kind, size in kinds.items():
            rows.setdefault(f"{phase}: {kind}", {})["bytes, all hops"] = Figure.of(size, "B")
    return rows
