"""The plan predicts the bytes that a federation sends, to the last one."""

from __future__ import annotations

import json
import math
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import secea
from planned import SHAPES, shaped
from secea import Federation, Params
from secea.forms import NAMES, FormName, QueriesName
from secea.forms.costs import round_costs, setup_costs
from secea.forms.keyed import Keyed
from secea.forms.paillier.form import Kind

SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
OPTIONS = [("keyed", None), ("paillier", "buckets"), ("paillier", "full")]


def test_every_form_is_planned_here() -> None:
    assert {form for form, _ in OPTIONS} == set(NAMES)


@pytest.mark.parametrize(("form", "queries"), OPTIONS)
@pytest.mark.parametrize(("clients", "collusion", "entities", "own"), [(3, 1, 12, 5), (5, 2, 40, 9), (6, 1, 30, 10)])
def test_the_plan_is_what_the_traffic_records_show(
    form: FormName, queries: QueriesName | None, clients: int, collusion: int, entities: int, own: int
) -> None:
    rng = np.random.default_rng([clients, entities])
    sets = [rng.choice(entities, own, replace=False).tolist() for _ in range(clients)]
    fed = Federation(Params(clients=clients, collusion=collusion, dim=7, **SMALL), form, queries)
    fed.setup(sets)
    fed.round([{name: np.zeros(7) for name in names} for names in sets])
    assert fed.server.at.attempt == 0, "a retry happened: the plan is for a set-up without any"
    plan = secea.plan(fed.params, entities=len(set().union(*sets)), form=form, queries=queries)
    assert plan.setup_bytes == sum(hop.size for hop in fed.traffic if hop.round == 0)
    assert plan.round_bytes == sum(hop.size for hop in fed.traffic if hop.round == 1)
    kinds: Counter[str] = Counter()
    for hop in fed.traffic:
        kinds[hop.kind] += hop.size
    assert plan.by_kind == dict(kinds)
    for number, phase in enumerate(("setup", "round")):
        up = sum(hop.size for hop in fed.traffic if hop.round == number and hop.receiver == "server")
        assert plan.sent_by_clients[phase] == up


CHOICES: list[dict[str, Any]] = [
    {"min_owners": 2}, {"min_owners": 5}, {"max_weight": 100}, {"partial": True}, {"noise": 0.5},
    {"min_owners": 3, "max_weight": 7}, {"min_owners": 4, "noise": 2.0}, {"min_owners": 2, "partial": True},
]  # fmt: skip


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("options", CHOICES, ids=lambda options: ", ".join(options))
def test_with_options_the_plan_is_what_the_traffic_records_show(options: dict[str, Any], dropouts: int) -> None:
    rng = np.random.default_rng(7)
    sets = [rng.choice(40, 9, replace=False).tolist() for _ in range(5)]
    fed = Federation(Params(clients=5, collusion=2, dropouts=dropouts, dim=7, **options))
    fed.setup(sets)
    weighing = options.keys() & {"max_weight", "partial"}
    weights = [rng.integers(0, 2, 9) for _ in range(5)] if weighing else None
    fed.round([{name: np.zeros(7) for name in names} for names in sets], weights=weights)
    plan = secea.plan(fed.params, entities=len(set().union(*sets)))
    assert plan.setup_bytes == sum(hop.size for hop in fed.traffic if hop.round == 0)
    assert plan.round_bytes == sum(hop.size for hop in fed.traffic if hop.round == 1)
    up = sum(hop.size for hop in fed.traffic if hop.round == 1 and hop.receiver == "server")
    assert plan.sent_by_clients["round"] == up


@pytest.mark.parametrize("options", CHOICES, ids=lambda options: ", ".join(options))
def test_options_cost_no_less_than_their_columns(options: dict[str, Any]) -> None:
    """A minimum of m has 2(m-1) elements more in each slot of an upload, weights one; nothing costs less than plain."""
    plain = Keyed().checked(Params(5, dim=7, collusion=2, max_entities=400, max_union=1000))
    params = Keyed().checked(replace(plain, **options))
    before, after = (secea.plan(each, entities=1000) for each in (plain, params))
    more = 2 * (params.min_owners - 1) + (params.max_weight is not None)
    assert Keyed().width(params) == Keyed().width(plain) + more
    assert after.round_bytes >= before.round_bytes + 5 * 1000 * 7 * more
    assert after.setup_bytes == before.setup_bytes
    assert (after.round_multiplications > before.round_multiplications) == (more > 0 or params.noise > 0)
    held = [Keyed().memory(each, 1000) for each in (plain, params)]
    assert all(held[1][name] >= held[0][name] for name in held[0])


@pytest.mark.parametrize("options", CHOICES, ids=lambda options: ", ".join(options))
def test_every_sample_of_a_federation_with_options_can_be_run_and_has_a_name_of_its_own(
    options: dict[str, Any],
) -> None:
    plain = Keyed().checked(Params(5, dim=3, collusion=2, max_entities=15, max_union=30))
    params = Keyed().checked(replace(plain, **options))
    found = Keyed().chores(params, 30)
    for chore in found.values():
        work = chore.prepare()
        work()
        work()
    shared = found.keys() & Keyed().chores(plain, 30).keys()
    assert not [name for name in shared if name.startswith(("contribute", "upload", "divide", "read"))]
    form, few = Keyed().idle(replace(params, min_owners=params.min_owners), 3)
    assert form.checked(few).options == ()


def test_messages_of_many_chunks_are_planned_exactly_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secea.wire.messages, "CHUNK_BYTES", 1 << 10)
    rng = np.random.default_rng(3)
    sets = [rng.choice(300, 20, replace=False).tolist() for _ in range(4)]
    fed = Federation(Params(clients=4, dim=8, **SMALL), "paillier")
    fed.setup(sets)
    fed.round([{name: np.zeros(8) for name in names} for names in sets])
    at, form = fed.server.at, fed.session.form
    for kind in (Kind.TABLE, Kind.QUERY, Kind.SHARE, Kind.ANSWER):
        assert form.whole(kind, fed.params, at).chunks > 1
    plan = secea.plan(fed.params, entities=fed.server.M, form="paillier")
    assert plan.setup_bytes + plan.round_bytes == sum(hop.size for hop in fed.traffic)


def test_queries_cost_three_unions_whatever_a_client_owns() -> None:
    params = Params(clients=5, dim=16, max_union=1000, max_entities=1000)
    fewer = Params(clients=5, dim=16, max_union=1000, max_entities=400)
    few = secea.plan(fewer, entities=1000, form="paillier")
    many = secea.plan(params, entities=1000, form="paillier")
    assert few.by_kind["query"] == many.by_kind["query"]
    full = secea.plan(params, entities=1000, form="paillier", queries="full")
    assert full.by_kind["query"] > 100 * many.by_kind["query"]


def test_a_plan_without_bounds_assumes_that_every_client_may_own_everything() -> None:
    for form in get_args(FormName):
        plan = secea.plan(Params(clients=4, dim=8), entities=100, form=form)
        bounded = secea.plan(Params(clients=4, dim=8, max_entities=100, max_union=100), entities=100, form=form)
        assert plan == bounded


def test_sigma_counts_every_masked_element_that_the_colluders_see() -> None:
    params = Params(clients=10, collusion=2, dim=31, rounds=1 << 10, max_entities=1 << 8, max_union=1 << 9)
    plan = secea.plan(params, entities=500, form="paillier", queries="full")
    length = -(-32 // params.K)  # a client decrypts N answers to each query, not K blocks
    assert plan.sigma_prime == 40 + math.ceil(math.log2(2 * 2**8 * 10 * length * 2**10))


# ------------------------------------------------------------------------------------------- what times are made of


@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES)
def test_every_sample_of_a_form_can_be_run_again_and_again(
    name: str, clients: int, collusion: int, dropouts: int
) -> None:
    form, params = shaped(name, clients, collusion, dropouts, 30)
    for chore in form.chores(params, 30).values():
        work = chore.prepare()
        work()
        work()
        assert all(times >= 0 for times in chore.times.values())
        assert {at for at, _ in chore.times} <= {"setup", "round"}
        assert {party for _, party in chore.times} <= {"client", "server"}


@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES)
def test_twice_the_entities_are_twice_the_samples_in_each_round(
    name: str, clients: int, collusion: int, dropouts: int
) -> None:
    """Samples are of one size where the union is large. What only grows with the clients stays."""
    counted: list[dict[tuple[str, str], float]] = []
    for entities in (200_000, 400_000, 800_000):
        form, params = shaped(name, clients, collusion, dropouts, entities)
        total: Counter[tuple[str, str]] = Counter()
        for chore in form.chores(params, entities).values():
            total.update({at: times for at, times in chore.times.items() if at[0] == "round"})
        counted.append(dict(total))
    one, two, four = counted
    for at in one:
        assert four[at] - two[at] == pytest.approx(2 * (two[at] - one[at]), rel=1e-3)


@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES[:2])
def test_messages_and_what_ciphers_work_on_are_counted_exactly(
    name: str, clients: int, collusion: int, dropouts: int
) -> None:
    form, params = shaped(name, clients, collusion, dropouts, 30)
    fed = Federation(params, form)
    fed.setup([[(n + i) % 30 for i in range(15)] for n in range(clients)])
    fed.round([{(n + i) % 30: [0.0] * 3 for i in range(15)} for n in range(clients)])
    entities = fed.server.at.size
    for number, cost in enumerate((setup_costs(form, params, entities), round_costs(form, params, entities))):
        hops = [hop for hop in fed.traffic if hop.round == number]
        assert cost.hops == len(hops)
        if number:
            up, down = (sum(hop.size for hop in hops if hop.kind == kind) for kind in ("upload", "means"))
            assert cost.ciphers["server", "open"] >= up
            assert cost.ciphers["client", "tag"] >= down
            assert cost.ciphers["server", "tag"] == cost.ciphers["client", "tag"]


# ---------------------------------------------------------------------------------------------------- known figures


VECTORS = Path(__file__).parent.parent / "vectors"
WRITTEN = json.loads((VECTORS / "plans.json").read_text(encoding="utf-8"))


def made(what: str, *of: str) -> Any:
    """Figures of `vectors/plans.py`, as this code makes them."""
    return runpy.run_path(str(VECTORS / "plain.py"))["plain"](runpy.run_path(str(VECTORS / "plans.py"))[what](*of))


@pytest.mark.parametrize("form", NAMES)
def test_plans_of_some_federations_are_those_that_are_written_down(form: str) -> None:
    plans, known = made("planned", form), [plan for plan in WRITTEN["plans"] if plan["form"] == form]
    assert len(plans) == len(known) > 20
    for one, other in zip(plans, known, strict=True):
        assert one == other


def test_what_options_cost_and_what_is_signed_with_them_is_what_is_written_down() -> None:
    federations, sentences = made("chosen")
    assert sentences == WRITTEN["sentences"]
    assert len(federations) == len(WRITTEN["chosen"]) > 40
    for one, other in zip(federations, WRITTEN["chosen"], strict=True):
        assert one == other
