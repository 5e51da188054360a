"""What an engine adds to a plan: bytes stay as they are, and nothing becomes less."""

from __future__ import annotations

import itertools
from dataclasses import replace
from html import escape
from typing import Any

import pytest

import secea
from planned import SHAPES, shaped
from secea.engines import costs
from secea.engines.costs import ENGINES, FLOWER_MESSAGE_BYTES, NAMES, PYTHON_BYTES, EngineCosts, EngineName
from secea.engines.port import PART_BYTES
from secea.errors import ParamsError
from secea.forms.costs import round_costs, setup_costs
from secea.params import Params

ENGINE = pytest.mark.parametrize("engine", NAMES)


def added(engine: EngineName, clients: int, entities: int = 3_000, dim: int = 16, **params: Any) -> EngineCosts:
    given = Params(clients=clients, dim=dim, max_entities=entities // 2, max_union=entities, **params)
    found = secea.plan(given, entities=entities, engine=engine).engine
    assert found is not None
    return found


def whole(found: EngineCosts, clients: int) -> tuple[float, ...]:
    """All that a federation costs more: CPU of all, waiting, memory of all, and what the server has of both."""
    cpu = [each["server"] + clients * each["client"] for each in found.cpu_seconds.values()]
    own = [each["server"] for each in found.cpu_seconds.values()]
    memory = found.total
    total = memory["server"] + clients * memory["client"]
    return (*cpu, *own, *found.wait_seconds.values(), total, memory["server"], found.start_seconds)


def test_every_engine_has_its_numbers() -> None:
    assert tuple(ENGINES) == NAMES
    assert ENGINES["flower"].message == FLOWER_MESSAGE_BYTES
    assert costs.HELD_BYTES == PART_BYTES


@ENGINE
@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES)
def test_an_engine_changes_no_byte_of_a_plan(
    engine: EngineName, name: str, clients: int, collusion: int, dropouts: int
) -> None:
    form, params = shaped(name, clients, collusion, dropouts, 30)
    without, with_it = (secea.plan(params, entities=30, form=form, engine=each) for each in (None, engine))
    assert without.engine is None
    assert with_it.engine is not None
    assert replace(with_it, engine=None) == without


@ENGINE
def test_more_clients_never_cost_less(engine: EngineName) -> None:
    found = [whole(added(engine, clients, collusion=1), clients) for clients in range(2, 60)]
    for fewer, more in itertools.pairwise(found):
        assert all(a <= b for a, b in zip(fewer, more, strict=True)), (fewer, more)


@ENGINE
@pytest.mark.parametrize("more", [{"entities": 6_000}, {"dim": 32}, {"min_owners": 3}])
def test_more_of_anything_never_costs_less(engine: EngineName, more: dict[str, Any]) -> None:
    before, after = whole(added(engine, 6, collusion=1), 6), whole(added(engine, 6, collusion=1, **more), 6)
    assert all(a <= b for a, b in zip(before, after, strict=True))
    assert before != after


@ENGINE
@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES)
def test_the_processes_of_a_party_hold_at_least_what_the_party_holds(
    engine: EngineName, name: str, clients: int, collusion: int, dropouts: int
) -> None:
    form, params = shaped(name, clients, collusion, dropouts, 3_000)
    found, held = secea.plan(params, entities=3_000, form=form, engine=engine).engine, form.memory(params, 3_000)
    assert found is not None
    for party, processes in found.memory.items():
        first, *others = processes.values()
        assert first >= held[party] + PYTHON_BYTES
        assert all(each >= PYTHON_BYTES for each in others), "every process of an engine is Python"
        assert found.total[party] == first + sum(others)


@ENGINE
def test_memory_stops_growing_where_messages_go_in_parts(engine: EngineName) -> None:
    def passing(entities: int) -> dict[str, int]:
        found = added(engine, 3, entities, 64, collusion=1).memory
        return {f"{party} {name}": size for party, each in found.items() for name, size in list(each.items())[1:]}

    assert passing(500_000) == passing(2_000_000), "all but the parties themselves"
    assert passing(500) != passing(500_000)


@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES)
def test_stages_are_a_call_and_the_phases_of_the_form(name: str, clients: int, collusion: int, dropouts: int) -> None:
    form, params = shaped(name, clients, collusion, dropouts, 30)
    known = {"keyed": (8 + bool(dropouts), 4 if dropouts else 2), "paillier": (4, 2)}[name]
    assert (setup_costs(form, params, 30).stages, round_costs(form, params, 30).stages) == known
    found = secea.plan(params, entities=30, form=form, engine="nvflare").engine
    assert found is not None
    assert dict(found.stages) == dict(zip(("setup", "round"), known, strict=True))


def test_a_reply_of_several_messages_of_flower_costs_a_stage_for_each() -> None:
    params = Params(clients=3, dim=64, max_entities=500_000, max_union=1_000_000)
    plan = secea.plan(params, entities=1_000_000, engine="flower")
    assert plan.engine is not None
    more = plan.sent_by_clients["round"] // 3 // FLOWER_MESSAGE_BYTES
    assert more >= 7
    assert plan.engine.wait_seconds["round"] == pytest.approx((2 + more) * ENGINES["flower"].wait)


def test_an_engine_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ParamsError, match="engine must be one of nvflare, flower, got 'ray'"):
        secea.plan(Params(clients=3, dim=2), entities=10, engine="ray")  # type: ignore[arg-type]


@ENGINE
def test_a_notebook_shows_what_the_engine_adds(engine: EngineName) -> None:
    params = Params(clients=3, dim=2)
    shown, plain = (secea.plan(params, entities=10, engine=each)._repr_html_() for each in (engine, None))
    assert costs.TITLES[engine] in shown
    assert all(
        escape(each.name) in shown for each in (*ENGINES[engine].server.processes, *ENGINES[engine].client.processes)
    )
    assert plain in shown
    assert "Memory" not in plain
