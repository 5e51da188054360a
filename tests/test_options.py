"""Minimum owners, weights, rows left out, noise: every result is numpy's, whoever vanishes, comes, goes or restarts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import secea
from optional import OPTIONS, dues
from secea import Federation, Params, ParamsError, RoundLost, TableError
from secea.forms.keyed import Keyed
from secea.forms.keyed import form as form_module
from secea.table import Name, Table
from secea.testing import insecure_seeded
from secea.wire import messages
from tiers import always, slow

MINIMA: Final = [name for name, given in OPTIONS.items() if "min_owners" in given]


class World:
    """A federation with options; every result is held against numpy's."""

    def __init__(
        self, seed: int, clients: int, options: Mapping[str, Any], *, dtype: Any = np.float64, **more: Any
    ) -> None:
        print(f"seed {seed}")
        self.rng, self.dtype = np.random.default_rng([seed, clients]), dtype
        least = min(clients, options.get("min_owners", 1))
        params = Params(
            clients,
            dim=3,
            max_entities=6,
            max_union=min(12, 6 * clients),
            **dict(options) | {"min_owners": least} | more,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entropy = insecure_seeded(seed)(0)
            self.fed: Any = Federation(params, Keyed(batch=2, max_updates=100), entropy=entropy)
        self.fed.setup([self.some_names() for _ in range(clients)])

    @property
    def params(self) -> Params:
        return self.fed.params  # type: ignore[no-any-return]

    def some_names(self) -> list[int]:
        return [int(i) for i in self.rng.choice(12, int(self.rng.integers(7)), replace=False)]

    def table(self, n: int) -> dict[Name, Any]:
        names = list(self.fed.clients[n].part.next_names)
        self.rng.shuffle(names)
        return {name: self.rng.uniform(-3, 3, 3).astype(self.dtype) for name in names}

    def weights(self, table: Iterable[Name]) -> dict[Name, int] | None:
        most = self.params.max_weight or int(self.params.partial)
        return {name: int(self.rng.integers(most + 1)) for name in table} if most else None

    def round(self, absent: Iterable[int] = (), vanish: Mapping[int, str] | None = None) -> tuple[int, ...]:
        """One round, and who is in the sum."""
        tables = [self.table(n) for n in range(self.params.clients)]
        weights = [self.weights(table) for table in tables]
        sources: list[Any] = [None if n in set(absent) else table for n, table in enumerate(tables)]
        results = self.fed.round(sources, weights=weights, vanish=vanish or {})
        members: tuple[int, ...] = self.fed.server.at.members
        self.check(results, tables, weights, members)
        assert [n for n, result in enumerate(results) if result is None] == sorted({*absent, *(vanish or {})})
        return members

    def check(self, results: list[Any], tables: list[Any], weights: list[Any], members: Iterable[int]) -> None:
        due = dues(self.params, [(tables[n], weights[n]) for n in members])
        for n, result in enumerate(results):
            if result is None:
                continue
            assert list(result) == list(tables[n])
            for name, row in result.items():
                assert row.dtype == tables[n][name].dtype
                assert due[name].meets(row, tables[n][name]), (n, name, row, due[name])
            without = {name for name in result if due[name].low is None}
            assert set(self.fed.without_mean[n]) == without
            assert set(self.fed.below_minimum[n]) == {name for name in without if due[name].below}


# ------------------------------------------------------------------------------------------------------ means and numpy


@pytest.mark.parametrize("option", OPTIONS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(clients=st.integers(2, 7), seed=st.integers(0, 2**32 - 1), wide=st.booleans())
def test_means_are_numpys_and_who_has_none_is_told_why(option: str, clients: int, seed: int, wide: bool) -> None:
    world = World(seed, clients, OPTIONS[option], dtype=np.float64 if wide else np.float32)
    for _ in range(2):
        assert world.round() == tuple(range(clients))


@pytest.mark.parametrize("option", always(["weights and a minimum", "noise and a minimum"], OPTIONS))
def test_means_are_numpys_modulo_several_primes(option: str) -> None:
    world = World(13, 13, OPTIONS[option], collusion=3, precision=30)
    assert world.fed.session.form.numbers(world.params).ring.size > 1
    world.round()
    world.round(absent=[4, 12])


@pytest.mark.parametrize("option", OPTIONS)
def test_means_are_numpys_chunk_by_chunk(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (form_module, messages):
        monkeypatch.setattr(module, "CHUNK_BYTES", 200)
    world = World(1, 4, OPTIONS[option], collusion=1, dropouts=1)
    world.round()
    assert world.fed.session.form.layout(form_module.Kind.UPLOAD, world.params, world.fed.server.at, 0).chunks > 2
    world.round(vanish={0: "upload"})  # it has subtracted in the round before


@pytest.mark.parametrize("option", OPTIONS)
def test_an_entity_of_one_owner_an_empty_table_and_an_empty_union_are_ordinary_cases(option: str) -> None:
    options = OPTIONS[option]
    fed: Any = Federation(Params(clients=3, dim=1, max_entities=1, max_union=3, **options))
    fed.setup([["mine"], [], []])
    weighs = "partial" in options or "max_weight" in options
    _, *others = fed.round([{"mine": [2.0]}, {}, {}], weights=[{"mine": 1}, {}, {}] if weighs else None)
    assert others == [{}, {}]
    assert fed.below_minimum == fed.without_mean == [("mine",) if "min_owners" in options else (), (), ()]
    fed.update(0, [])
    assert fed.round([{}, {}, {}], weights=[[], (), {}] if weighs else None) == [{}, {}, {}]
    assert fed.server.M == 0
    assert fed.below_minimum == [(), (), ()]


def test_an_entity_of_which_all_weights_are_0_has_no_mean_and_keeps_its_row() -> None:
    tables: list[Any] = [{"a": [1.0], "b": [2.0]}, {"a": [3.0], "b": [4.0]}, {"a": [5.0]}]
    for options in ({"max_weight": 5}, {"partial": True}):
        fed: Any = Federation(Params(clients=3, dim=1, **options))
        fed.setup([table.keys() for table in tables])
        results = fed.round(tables, weights=[{"a": 0, "b": 1}, {"a": 0, "b": 1}, {"a": 0}])
        assert [result["a"].tolist() for result in results] == [[1.0], [3.0], [5.0]]
        assert results[0]["b"] == pytest.approx(3.0, abs=0.51)
        assert fed.without_mean == [("a",)] * 3
        assert fed.below_minimum == [()] * 3


def test_who_gives_nothing_still_reads_all_its_means() -> None:
    tables: list[Any] = [{"a": [1.0], "b": [2.0]}, {"a": [3.0], "b": [4.0]}, {"a": [8.0]}]
    weights = [[0, 0], [1, 1], [1]]
    for options, within in (({"max_weight": 1}, 2.5 / 2), ({"partial": True}, 1e-5)):
        means = secea.aggregate(tables, weights=weights, **options)
        assert means[0]["b"] == pytest.approx(4.0, abs=1e-3)
        assert means[0]["a"] == pytest.approx(5.5, abs=within)


def test_a_table_may_bring_its_weights_and_aggregate_finds_their_bound() -> None:
    rows = np.array([[1.0], [2.0]], np.float32)
    tables: list[Any] = [Table(["a", "b"], rows, np.array([300, 100])), Table(["b"], rows[:1], np.array([300]))]
    given = [Table(table.names, table.matrix) for table in tables]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_table = secea.aggregate(tables, max_weight=300)
        by_name = secea.aggregate(given, weights=[{"b": 100, "a": 300}, [300]])
    for first, second in (by_table, by_name):
        assert first.dtype == second.dtype == np.dtype(np.float32)
        assert second.matrix == pytest.approx(np.array([[1.25]]), abs=0.002)
        assert first.matrix == pytest.approx(np.array([[1.0], [1.25]]), abs=0.002)


@pytest.mark.parametrize("option", ["weights and a minimum", "rows left out and a minimum", "noise"])
def test_tables_on_disk_are_tables(option: str, tmp_path: Path) -> None:
    world = World(3, 3, OPTIONS[option], dtype=np.float32)
    tables = [world.table(n) for n in range(3)]
    weights, mapped = [world.weights(table) for table in tables], []
    for n, table in enumerate(tables):
        if table:
            np.save(tmp_path / f"{n}.npy", np.array(list(table.values())))
            mapped.append(Table(list(table), np.load(tmp_path / f"{n}.npy", mmap_mode="r")))
        else:
            mapped.append(Table([], np.zeros((0, 3), np.float32)))
    results = world.fed.round(mapped, weights=weights)
    assert all(isinstance(result, Table) for result in results)
    world.check([result.as_dict() for result in results], tables, weights, range(3))


@pytest.mark.parametrize(("dropouts", "here", "honest"), [(1, 7, 4), (0, 7, 5), (0, 5, 3), (1, 6, 4)])
def test_noise_is_as_wide_as_the_honest_ones_must_make_it(dropouts: int, here: int, honest: int) -> None:
    """Each adds so much that it is enough without the two who may conspire, and without who may drop out."""
    params = Params(clients=7, dim=300, collusion=2, dropouts=dropouts, noise=0.5)
    fed: Any = Federation(params, entropy=insecure_seeded(5)(0))
    fed.setup([["all", n] for n in range(7)])
    tables = [{"all": np.zeros(300), n: np.zeros(300)} if n < here else None for n in range(7)]
    results = fed.round(tables)[:here]
    assert all(np.array_equal(result["all"], results[0]["all"]) for result in results)
    wide = 0.5 * np.sqrt(here / honest)
    for numbers in (np.concatenate([result[n] for n, result in enumerate(results)]), here * results[0]["all"]):
        assert np.std(numbers) == pytest.approx(wide, rel=5 / np.sqrt(2 * numbers.size))
        assert abs(np.mean(numbers)) < 5 * wide / np.sqrt(numbers.size)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("clients", "dropouts"), [(4, 1), (9, 0)])
def test_the_plan_is_what_is_sent_to_the_last_byte(
    option: str, clients: int, dropouts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (form_module, messages):
        monkeypatch.setattr(module, "CHUNK_BYTES", 300)
    world = World(7, clients, OPTIONS[option], dropouts=dropouts, collusion=1)
    world.round()
    plan = secea.plan(world.params, entities=world.fed.server.M, form=world.fed.form)
    assert plan.round_bytes == sum(hop.size for hop in world.fed.traffic if hop.round == 1)
    assert plan.setup_bytes == sum(hop.size for hop in world.fed.traffic if hop.round == 0)


# ------------------------------------------------------------------------------------------------ whoever comes or goes


@pytest.mark.parametrize("option", OPTIONS)
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_means_are_numpys_whoever_is_absent_joins_leaves_changes_or_restarts(option: str, seed: int) -> None:
    world = World(seed, 4, OPTIONS[option], collusion=1)
    fed, someone = world.fed, int(world.rng.integers(4))
    assert someone not in world.round(absent=[someone])
    fed.update(someone, world.some_names())
    assert world.round() == (0, 1, 2, 3)
    fed.restart()
    world.round()
    fed.join(world.some_names())
    assert world.round() == (0, 1, 2, 3, 4)
    fed.leave(someone)
    fed.restart(0, 2)
    assert world.round() == (0, 1, 2, 3)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("clients", "dropouts"), [(4, 1), slow((5, 2)), slow((6, 1))])
def test_a_round_goes_on_without_d_clients_unless_the_designated_one_is_among_them(
    option: str, clients: int, dropouts: int
) -> None:
    world = World(int(np.random.SeedSequence().generate_state(1)[0]), clients, OPTIONS[option], dropouts=dropouts)
    fed, form = world.fed, world.fed.session.form
    for stage in ("ready", "upload", "agree", "open"):
        for lost in range(clients):
            world.round()
            at = fed.server.at
            turn = at.participants[(at.round + 1) % clients] if world.params.min_owners > 1 else None
            others = {(lost + i) % clients for i in range(dropouts)}
            vanish = dict.fromkeys(others, stage)
            if stage == "upload" and turn in others:
                with pytest.raises(RoundLost):
                    world.round(vanish=vanish)
                assert form.designated(world.params, fed.server.at) == turn
                continue
            members = set(world.round(vanish=vanish))
            assert members == set(range(clients)) - (others if stage in ("ready", "upload") else set())
    world.round()


@pytest.mark.parametrize("option", MINIMA)
def test_the_turn_to_subtract_goes_round(option: str) -> None:
    world = World(1, 3, OPTIONS[option])
    seen = [world.fed.session.form.designated(world.params, world.fed.server.at) for _ in range(6) if world.round()]
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("option", MINIMA)
def test_without_drop_outs_whoever_vanishes_costs_the_round_and_the_next_works(option: str) -> None:
    world = World(2, 4, OPTIONS[option], collusion=1)
    for lost in range(4):
        with pytest.raises(RoundLost, match=f"client {lost} vanished"):
            world.round(vanish={lost: "upload"})
        world.round()


@pytest.mark.parametrize("options", [{"max_weight": 9}, {"partial": True}])
def test_other_weights_of_a_round_that_went_out_do_not_follow(options: dict[str, Any]) -> None:
    """They would show, beside the first sum, what was left out of it."""
    fed: Any = Federation(Params(clients=4, dim=1, collusion=1, **options))
    fed.setup([["a", "b"]] * 4)
    rows, weights = {"a": [1.0], "b": [2.0]}, {"a": 1, "b": 1}
    with pytest.raises(RoundLost):
        fed.round([rows] * 4, weights=[weights] * 4, vanish={3: "upload"})
    fed._exchange.here = {0, 1, 2, 3}
    fed._exchange.run("secret", range(4))
    fed.server.begin("ready", range(4))
    fed._exchange.deliver()
    client, table = fed.clients[0], Table(list(rows), np.array(list(rows.values())))
    with pytest.raises(RoundLost, match="other values than these"):
        client.contribute(table.weighing(weights | {"b": 0}), client.part.released.round)
    client.contribute(table.weighing(weights), client.part.released.round)


def test_what_is_below_the_minimum_is_known_after_a_restart() -> None:
    fed: Any = Federation(Params(clients=3, dim=1, min_owners=2))
    fed.setup([["a", "b"], ["a"], ["c"]])
    fed.round([{"a": [1.0], "b": [2.0]}, {"a": [2.0]}, {"c": [3.0]}])
    told = [("b",), (), ("c",)]
    assert fed.below_minimum == fed.without_mean == told
    fed.restart()
    assert fed.below_minimum == fed.without_mean == told


# ------------------------------------------------------------------------------------------------------------- mistakes


def weighted(**options: Any) -> Any:
    fed = Federation(Params(clients=3, dim=1, **options))
    fed.setup([["a", "b"], ["a"], []])
    return fed


GIVEN: Final[list[Any]] = [{"a": [1.0], "b": [2.0]}, {"a": [3.0]}, {}]
NINE: Final = {"max_weight": 9}
NO_WEIGHTS: Final = "client 0: the rows have no weights, and means are weighted here: give each row one"
WRONG: Final[dict[str, tuple[dict[str, Any], Any, str]]] = {
    "above the bound": (NINE, [[1, 10], [1], []], "client 0: entity 'b' has the weight 10; at most max_weight=9"),
    "negative": (NINE, [[1, -1], [1], []], "client 0: the entity 'b' has the weight -1; weights are whole numbers"),
    "a fraction": (NINE, [[1, 1], [0.5], []], "client 1: the entity 'a' has the weight 0.5"),
    "not a number": (NINE, [[1, np.nan], [1], []], "client 0: the entity 'b' has the weight nan"),
    "infinite": (NINE, [[1, np.inf], [1], []], "client 0: the entity 'b' has the weight inf"),
    "text": (NINE, [["1", "2"], [1], []], "client 0: weights have dtype <U1; they are whole numbers"),
    "one too few": (NINE, [[1], [1], []], r"client 0: a table of 2 rows needs as many weights, got shape \(1,\)"),
    "one number": (NINE, [1, [1], []], r"client 0: a table of 2 rows needs as many weights, got shape \(\)"),
    "no such row": (NINE, [{"a": 1, "b": 1, "c": 1}, [1], []], "client 0: the entity 'c' has a weight, but no row"),
    "no such weight": (NINE, [{"a": 1}, [1], []], "client 0: the entity 'b' has no weight; give each row a weight"),
    "missing": (NINE, [None, [1], []], NO_WEIGHTS),
    "all missing": (NINE, None, NO_WEIGHTS),
    "not for all": (NINE, [[1, 1], [1]], "2 weights were given, the federation has 3 clients"),
    "not a list": (NINE, {"a": 1}, "expected a list of 3 weights, one per client, got dict"),
    "not weighted": ({}, [[1, 1], [1], []], r"client 0: the rows have weights, and .* Params\(max_weight=\.\.\.\)"),
    "above 1": ({"partial": True}, [[1, 2], [1], []], "client 0: entity 'b' has the weight 2; at most 1: without max"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_weights_that_do_not_fit_are_refused_by_client_and_entity_and_nothing_is_lost(mistake: str) -> None:
    options, weights, why = WRONG[mistake]
    fed = weighted(**options)
    with pytest.raises(TableError, match=why):
        fed.round(GIVEN, weights=weights)
    right = [[1, 0], [1], []] if options else None
    assert fed.round(GIVEN, weights=right)[1]["a"] == pytest.approx(2.0, abs=0.51)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"min_owners": 0}, "min_owners must be from 1 to 3 for 3 clients, got 0"),
        ({"min_owners": 4}, "min_owners must be from 1 to 3 for 3 clients, got 4"),
        ({"min_owners": 2.5}, "min_owners must be an integer, got 2.5"),
        ({"min_owners": True}, "min_owners must be an integer, got True"),
        ({"max_weight": 0}, "max_weight must be from 1 to 87380 for 3 clients and precision=24, got 0"),
        ({"max_weight": 87381}, "max_weight must be from 1 to 87380 for 3 clients and precision=24, got 87381"),
        ({"max_weight": 1, "precision": 8}, "weights of 3 clients need precision=9 or more, got 8"),
        ({"max_weight": 1, "precision": 1}, "weights of 3 clients need precision=9 or more, got 1"),
        ({"max_weight": "many"}, "max_weight must be an integer, got 'many'"),
        ({"partial": 1}, "partial must be True or False, got 1"),
        ({"noise": -0.5}, r"noise must be from 0 to 1024 \* max_abs, got -0.5"),
        ({"noise": float("nan")}, "noise must be from 0"),
        ({"noise": 1e9}, "noise must be from 0"),
        ({"noise": "loud"}, "noise must be a number"),
        ({"partial": True, "max_weight": 2}, "partial and max_weight do not go together: with weights, give"),
        ({"partial": True, "noise": 0.5}, "noise does not go together with partial or max_weight"),
        ({"max_weight": 2, "noise": 0.5}, "noise does not go together with partial or max_weight"),
    ],
)  # fmt: skip
def test_options_that_break_a_rule_are_refused_at_once(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ParamsError, match=why):
        Params(clients=3, dim=1, **options)


@pytest.mark.parametrize("option", OPTIONS)
def test_the_papers_form_has_none_of_these_options(option: str) -> None:
    why = f'the form "paillier" has no ({"|".join(OPTIONS[option])}); form="keyed" has it'
    with pytest.raises(ParamsError, match=why):
        Federation(Params(clients=3, dim=1, **OPTIONS[option]), form="paillier")
    with pytest.raises(ParamsError, match=why):
        secea.aggregate([{"a": [1.0]}] * 3, form="paillier", **OPTIONS[option])


def test_the_papers_form_has_no_weights() -> None:
    with pytest.raises(ParamsError, match='the form "paillier" has no max_weight'):
        secea.aggregate([{"a": [1.0]}] * 3, weights=[[1]] * 3, form="paillier")
