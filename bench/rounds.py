"""Whole federations: where a round's time goes, many clients, and memory where tables are large."""

from __future__ import annotations

from typing import Any

from bench.figures import Figure, Grid, Section
from bench.measure import Tick, in_child
from bench.shapes import Scale, Shape

HASHED = "Names got their keys by a hash (bench/hashed.py): the group would take most of an hour, or a day."


def round(scale: Scale, tick: Tick) -> Section:  # noqa: A001 - the section's name
    """FB15k-237's shape with a set-up in full: what is spent on what."""
    tick(f"{scale.peers}: a set-up and {scale.rounds} rounds")
    found = in_child(scale.peers, scale.rounds, keep=True, spent=True)
    grids = {
        "cost": Grid("What a set-up and a round cost, all parties in one process", _costs(found)),
        "stages": Grid("Where the CPU time and the bytes go", _stages(found)),
        "parts": Grid("What the CPU time of a round is spent on, all parties", _parts(found["parts"])),
    }
    return Section(str(scale.peers), grids)


def clients(scale: Scale, tick: Tick) -> Section:
    """Fifty clients, and a hundred, with set-ups in full."""
    grids = {}
    for name, shape, D in (
        ("fifty", scale.fifty, scale.fifty_dropouts),
        ("hundred", scale.hundred, scale.hundred_dropouts),
    ):
        tick(f"{shape}: a set-up and 3 rounds")
        found = in_child(shape, 3, dropouts=D, keep=True)
        grids[name] = Grid(f"{shape}, D={D}", _costs(found))
        for row, peak in (("set-up", "setup peak"), ("round", "peak")):
            grids[name].rows[row]["memory beyond tables"] = Figure.of(max(0, found[peak] - found["start"]), "B")
    return Section("all parties in one process", grids)


def large(scale: Scale, tick: Tick) -> Section:
    """A million slots, without and with drop-outs, and ten million: the most memory at any time, and time."""
    rows = {}
    for name, shape, D in (
        ("a million, D = 0", scale.million, 0),
        ("a million, D = 1", scale.million, 1),
        ("ten million", scale.ten_million, 0),
    ):
        tick(f"{shape}, D={D}: a set-up and a round")
        rows[name] = _memory(in_child(shape, 1, dropouts=D, hashed=True), shape)
    grid = Grid("Beyond tables, names, and what a process needs to start; all parties in one process", rows)
    shapes = f"a million: {scale.million}; ten million: {scale.ten_million}"
    return Section(shapes, {"memory": grid}, [HASHED])


def _memory(found: dict[str, Any], shape: Shape) -> dict[str, Figure]:
    start, (only,) = found["start"], found["rounds"]
    return {
        "tables": Figure.of(shape.table_bytes, "B"),
        "set-up": Figure.of(max(0, found["setup peak"] - start), "B"),
        "after it": Figure.of(max(0, found["kept"] - start), "B"),
        "round": Figure.of(max(0, found["peak"] - start), "B"),
        "round, beyond results too": Figure.of(max(0, found["peak"] - start - shape.table_bytes), "B"),
        "round: CPU": Figure.of(only["cpu"], "s"),
        "round: wall": Figure.of(only["wall"], "s"),
        "round: bytes, all hops": Figure.of(only["bytes"], "B"),
    }


def _costs(found: dict[str, Any]) -> dict[str, dict[str, Figure]]:
    """The set-up; the first round, which touches its memory for the first time; and those that follow."""
    rounds = found["rounds"]
    return {"set-up": _row([found["setup"]]), "first round": _row(rounds[:1]), "round": _row(rounds[1:])}


def _row(entries: list[dict[str, Any]]) -> dict[str, Figure]:
    return {
        "wall": Figure.of([each["wall"] for each in entries], "s"),
        "CPU": Figure.of([each["cpu"] for each in entries], "s"),
        "cores busy": Figure.of([each["cpu"] / each["wall"] for each in entries], ""),
        "bytes, all hops": Figure.of([each["bytes"] for each in entries], "B"),
    }


def _parts(spent: dict[str, float]) -> dict[str, dict[str, Figure]]:
    total = sum(spent.values())
    return {
        name: {"CPU": Figure.of(seconds, "s"), "share": Figure.of(100 * seconds / total, "%")}
        for name, seconds in spent.items()
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
