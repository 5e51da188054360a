"""The numbers of an engine: a federation that took what the model says gives them back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bench import engine_costs as fit
from bench import plans
from bench.engine_costs import ROLES, SHAPES, Seen, fitted
from bench.engines import Found, Stretch
from bench.shapes import FB15K, Scale, Shape
from secea.commands.estimate import Machine
from secea.engines.costs import ENGINES, NAMES, TITLES, EngineName
from secea.engines.costs import engine_costs as costs_of
from secea.forms import form_of

ENGINE = pytest.mark.parametrize("engine", NAMES)
PARTIES = {"client": 0.2, "server": 0.1}
PLANNED: Mapping[str, Mapping[str, float]] = {"setup": PARTIES, "round": PARTIES}


def made(engine: str, shape: Shape, *, busy: float = 1.0, cores: int = 2) -> Seen:
    """A federation that took what the model says, on a machine with other work, too."""
    empty = Seen(shape, Found([], {}), PLANNED)
    params = form_of("keyed").checked(shape.params())
    said, cpu = costs_of(engine, params, empty.costs, empty.memory), dict[str, float]()
    for party, count in (("client", shape.clients), ("server", 1)):
        first, *_ = ROLES[engine][party]
        cpu[first] = count * (PARTIES[party] + said.cpu_seconds["round"][party] * busy)
    start = {"cores of clients": shape.clients * ENGINES[engine].core}
    wall = said.wait_seconds["round"] + sum(cpu.values()) / cores
    memory = {
        role: said.memory[party][name] for party in ("server", "client") for role, name in ROLES[engine][party].items()
    }
    stretches = [Stretch(9.0, start, 0, 0, 0), Stretch(wall, cpu, 0, 0, 0)]
    return Seen(shape, Found(stretches, memory, said.start_seconds), PLANNED, idle=busy == 1.0)


@ENGINE
@pytest.mark.parametrize("busy", [1.0, 1.7])
def test_a_fit_gives_back_the_numbers_that_were_put_in(
    engine: str, busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where CPU took longer, since others used the machine: then a case without that sets the scale."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    cases = [made(engine, shape, busy=busy) for shape in SHAPES]
    found, due = fitted(engine, [*cases, made(engine, FB15K)]), ENGINES[engine]
    assert found.message == due.message
    assert (found.start, found.core, found.wait) == pytest.approx((due.start, due.core, due.wait), rel=0.02)
    for side, wanted in ((found.server, due.server), (found.client, due.client)):
        assert (side.stage, side.byte) == pytest.approx((wanted.stage, wanted.byte), rel=0.1)
        assert [(each.name, each.party) for each in side.processes] == [
            (each.name, each.party) for each in wanted.processes
        ]
        for process, put in zip(side.processes, wanted.processes, strict=True):
            assert process.base == pytest.approx(put.base, rel=0.05)
            assert process.copies * found.held == pytest.approx(put.copies * due.held, rel=0.05)


@ENGINE
def test_of_several_runs_of_a_federation_the_one_that_took_least_counts(engine: str) -> None:
    slow, quick = (made(engine, SHAPES[0], busy=busy) for busy in (2.0, 1.5))
    other = made(engine, SHAPES[1], busy=3.0)
    assert fit.best([slow, other, quick]) == [quick, other]


@ENGINE
def test_the_accepted_run_is_read_as_it_was_measured(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "seconds", lambda *_: PLANNED)
    found = fit.accepted(engine)
    assert (found.idle, found.shape) == (True, FB15K)
    assert found.found.rounds[0].seconds > 1
    assert found.cpu(engine, "round", "server") > 0.5
    assert found.found.memory["cores of clients"] > 1e8


@ENGINE
def test_a_plan_is_compared_with_the_least_time_and_the_most_memory(
    engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = SHAPES[0]
    runs = [made(engine, shape, busy=busy) for busy in (1.0, 3.0)]
    heavier = replace(runs[1].found, memory={role: size + 7 for role, size in runs[1].found.memory.items()})
    answers = iter([runs[0].found, heavier])
    monkeypatch.setattr(plans, "measured", lambda *_, **__: next(answers))
    monkeypatch.setattr(plans, "Machine", lambda: known(PLANNED))
    monkeypatch.setattr(fit, "Machine", lambda: known(PLANNED))
    section = plans.planned(replace(Scale(), deployed=((engine, shape),), deployed_turns=2), lambda _: None)
    rows, memory = (section.grids[name].rows for name in ("seconds", "memory"))
    (each,) = [row for title, row in rows.items() if title.endswith("a round")]
    assert each["wall: predicted / measured"].median == pytest.approx(1.0)
    assert each["CPU: predicted / measured"].median == pytest.approx(1.0)
    (start,) = [row for title, row in rows.items() if title.endswith("start")]
    assert start["wall: predicted / measured"].median == pytest.approx(1.0)
    idle = section.grids["idle"].rows
    assert [title.split(",")[0] for title in idle] == [TITLES[name] for name in NAMES]
    assert all(0.1 < row["CPU: predicted / measured"].median < 10 for row in idle.values())
    assert len(memory) == sum(map(len, ROLES[engine].values()))
    for row in memory.values():
        assert row["memory, measured"].median == row["memory, predicted"].median + 7


def known(seconds: Any) -> Machine:
    machine = Machine(cores=2)
    object.__setattr__(machine, "seconds", lambda *_: seconds)
    return machine
