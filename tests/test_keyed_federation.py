"""The keyed form through the public API: means against numpy, plans to the byte, absences, losses, changes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import secea
from secea import CallError, Federation, FederationError, Params, ParamsError, RoundLost, TableError, TwoClients
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import form as form_module
from secea.table import Table
from secea.wire import messages
from tiers import always, slow

Tables = list[dict[Any, np.ndarray[Any, Any]]]


def truth(tables: Tables, name: object) -> np.ndarray[Any, Any]:
    rows = [np.asarray(table[name], np.float64) for table in tables if name in table]
    return np.asarray(np.mean(rows, axis=0))


def check(results: list[Any], tables: Tables, within: float) -> None:
    """Each client has the mean of each of its own entities, and nothing else."""
    for result, table in zip(results, tables, strict=True):
        assert list(result) == list(table)
        for name, mean in result.items():
            assert np.abs(mean - truth(tables, name)).max() < within


def random_tables(seed: int, clients: int, dim: int = 3, most: int = 6, dtype: type = np.float64) -> Tables:
    rng = np.random.Generator(np.random.PCG64([seed, clients]))
    tables: Tables = []
    for _ in range(clients):
        own = rng.choice(2 * most, int(rng.integers(0, most + 1)), replace=False)
        tables.append({int(name): rng.uniform(-3, 3, dim).astype(dtype) for name in own})
    return tables


def federation(tables: Tables, dim: int = 3, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoClients)
        fed = Federation(Params(clients=len(tables), dim=dim, **more), form="keyed")
    fed.setup([table.keys() for table in tables])
    return fed


@pytest.mark.parametrize("clients", always((2, 3, 4, 7), range(2, 18)))
def test_means_are_numpys_whatever_the_number_of_clients(clients: int) -> None:
    for seed in (1, 2):
        tables = random_tables(seed, clients)
        fed = federation(tables, collusion=1 + (seed * clients) % (clients - 1))
        for _ in range(2):
            check(fed.round(tables), tables, fed.params.resolution)
            tables = [{name: row + 0.25 for name, row in table.items()} for table in tables]


@pytest.mark.parametrize("clients", always((2, 3, 4, 7), range(2, 18)))
def test_means_are_numpys_for_every_collusion_that_is_allowed(clients: int) -> None:
    for collusion in {*range(1, clients, 1 if clients < 10 else 5), clients - 1}:
        tables = random_tables(collusion, clients, dim=2, most=2)
        fed = federation(tables, 2, collusion=collusion)
        check(fed.round(tables), tables, fed.params.resolution)
        assert fed.params.collusion == collusion


names = st.one_of(st.integers(-(2**70), 2**70), st.text(min_size=1, max_size=200))


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    sets=st.lists(st.lists(names, max_size=5, unique_by=str), min_size=2, max_size=4),
    dim=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    wide=st.booleans(),
)
def test_means_are_numpys_for_any_names(sets: list[list[Any]], dim: int, seed: int, wide: bool) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    dtype = np.float64 if wide else np.float32
    tables: Tables = [{name: rng.normal(size=dim).astype(dtype) for name in own} for own in sets]
    fed = federation(tables, dim)
    check(fed.round(tables), tables, fed.params.resolution + (0 if wide else 2.0**-20))
    assert fed.without_mean == [()] * len(tables)


@pytest.mark.parametrize("length", [65_533, 65_534, 65_535, 65_536, 200_000])
def test_long_names_are_names(length: int) -> None:
    long = "x" * length
    tables: Tables = [{long: np.array([1.0]), "x": np.array([5.0])}, {long: np.array([3.0]), long + "y": np.zeros(1)}]
    fed = federation(tables, 1)
    check(fed.round(tables), tables, fed.params.resolution)
    assert fed.server.M == 3


def test_an_empty_union_is_an_ordinary_case() -> None:
    fed = federation([{}, {}, {}])
    assert fed.round([{}, {}, {}]) == [{}, {}, {}]
    assert fed.server.M == 0


def test_extreme_values_stay_within_the_resolution() -> None:
    params: dict[str, Any] = {"max_abs": 64.0}
    values = [64.0, -64.0, 0.0, -0.0, 2.0**-30, 5e-324, np.nextafter(64.0, 0.0)]
    for clients in (2, 5, 12, 13):
        tables: Tables = [{"a": np.array(values), n: -np.array(values)} for n in range(clients)]
        fed = federation(tables, len(values), **params)
        results = fed.round(tables)
        check(results, tables, fed.params.resolution)
        assert all(np.abs(row).max() <= 64.0 for result in results for row in result.values())


def test_results_have_the_form_and_the_dtype_of_their_tables() -> None:
    table = Table(["b", "a"], np.array([[1.0], [2.0]], np.float32))
    with pytest.warns(TwoClients):
        first, second = secea.aggregate([table, {"a": [4.0]}], form="keyed")
    assert isinstance(first, Table)
    assert tuple(first.names) == ("b", "a")
    assert first.dtype == np.dtype(np.float32)
    assert first.matrix == pytest.approx(np.array([[1.0], [3.0]]), abs=1e-5)
    assert list(second) == ["a"]


def test_two_clients_are_warned_of_what_two_learn_and_three_are_not() -> None:
    with pytest.warns(TwoClients, match="by subtraction"):
        secea.aggregate([{"a": [1.0]}, {"a": [3.0]}], form="keyed")
    secea.aggregate([{"a": [1.0]}, {"a": [3.0]}, {"b": [3.0]}], form="keyed")


# ------------------------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(("clients", "collusion"), [(2, 1), (3, 1), (3, 2), (5, 2), (5, 4), slow((13, 3))])
@pytest.mark.parametrize("chunk", [1 << 21, 250])
def test_the_plan_is_what_is_sent_to_the_last_byte(
    clients: int, collusion: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (form_module, messages):
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    tables = random_tables(clients, clients, 5, 9)
    fed = federation(tables, 5, collusion=collusion)
    fed.round(tables)
    plan = secea.plan(fed.params, entities=fed.server.M, form="keyed")
    assert plan.setup_bytes == sum(hop.size for hop in fed.traffic if hop.round == 0)
    assert plan.round_bytes == sum(hop.size for hop in fed.traffic if hop.round == 1)
    kinds: Counter[str] = Counter()
    for hop in fed.traffic:
        kinds[hop.kind] += hop.size
    assert plan.by_kind == dict(kinds)
    for number, phase in enumerate(("setup", "round")):
        up = sum(hop.size for hop in fed.traffic if hop.round == number and hop.receiver == "server")
        assert plan.sent_by_clients[phase] == up
    if chunk < 1 << 21:
        at = fed.server.at
        assert fed.session.form.layout(Kind.UPLOAD, fed.params, at, 0).chunks > 1
    check(fed.round(tables), tables, fed.params.resolution)


def test_bytes_do_not_depend_on_who_owns_what_nor_on_collusion_in_a_round() -> None:
    few = [{"a": [1.0]}, {"b": [1.0]}, {"c": [1.0]}]
    many = [{"a": [1.0], "b": [1.0], "c": [1.0]}, {"a": [2.0]}, {}]
    sizes = []
    for tables in (few, many):
        fed = Federation(Params(clients=3, dim=1, max_entities=3, max_union=3), form="keyed")
        fed.setup([table.keys() for table in tables])
        fed.round(tables)
        sizes.append([(hop.sender, hop.receiver, hop.kind, hop.size) for hop in fed.traffic])
    assert sorted(map(str, sizes[0])) == sorted(map(str, sizes[1]))


def test_a_plan_says_who_may_conspire_and_who_must_be_there() -> None:
    every = secea.plan(Params(clients=5, dim=2), entities=9, form="keyed")
    some = secea.plan(Params(clients=5, dim=2, collusion=2), entities=9, form="keyed")
    two = secea.plan(Params(clients=2, dim=2), entities=9, form="keyed")
    assert "The server and all 4 other clients may conspire" in every.trust[0]
    assert "2D + T < N holds" in every.trust[1]
    assert "New names need all 5 clients" in every.trust[2]
    assert "any 2 clients may conspire" in some.trust[0]
    assert "New names need 3 of 5 clients" in some.trust[2]
    assert "by subtraction" in two.trust[-1]
    assert (every.numbers["f"], every.numbers["s"], every.primes) == (43, 6, 1)


# --------------------------------------------------------------------------------------------- absences and losses

TABLES: Tables = [
    {"a": np.array([1.0, 2.0]), "b": np.array([0.0, 0.5])},
    {"a": np.array([3.0, 4.0])},
    {"b": np.array([1.0, 1.0]), "c": np.array([5.0, 5.0])},
    {"a": np.array([2.0, 2.0])},
]


def test_who_is_absent_is_left_out_of_the_means_and_comes_back() -> None:
    fed = federation(TABLES, 2, collusion=1)
    without = [*TABLES[:3], None]
    assert fed.round(TABLES)[0]["a"] == pytest.approx(truth(TABLES, "a"), abs=1e-5)
    results = fed.round(without)
    assert results[3] is None
    check(results[:3], TABLES[:3], 1e-5)
    check(fed.round(TABLES), TABLES, 1e-5)


def test_fewer_than_agreed_do_not_begin() -> None:
    fed = federation(TABLES, 2, collusion=2)  # T + 2 = 4
    with pytest.raises(FederationError, match="a round needs 4 clients, and only 3 are here"):
        fed.round([*TABLES[:3], None])
    check(fed.round(TABLES), TABLES, 1e-5)


@pytest.mark.parametrize("lost", [0, 2, 3])
def test_who_vanishes_in_an_upload_costs_the_round_and_the_next_one_works(lost: int) -> None:
    fed = federation(TABLES, 2, collusion=1)
    with pytest.raises(RoundLost, match=f"client {lost} vanished"):
        fed.round(TABLES, vanish={lost: "upload"})
    check(fed.round(TABLES), TABLES, 1e-5)


def test_a_round_after_a_loss_works_without_the_same_client() -> None:
    fed = federation(TABLES, 2, collusion=1, dropouts=1)
    others = [TABLES[n] for n in (0, 1, 3)]
    results = fed.round(TABLES, vanish={2: "upload"})
    check([results[n] for n in (0, 1, 3)], others, 1e-5)
    again = fed.round([TABLES[0], TABLES[1], None, TABLES[3]])
    check([again[n] for n in (0, 1, 3)], others, 1e-5)
    check(fed.round(TABLES), TABLES, 1e-5)


@pytest.mark.parametrize("phase", ["ready", "secret", "table"])
def test_who_is_missing_before_the_upload_costs_a_union_and_no_round(phase: str) -> None:
    fed = federation(TABLES, 2, collusion=1)
    before = fed.server.at.union
    if phase != "ready":
        fed.round([*TABLES[:3], None])  # so that a union is due in the next round
    results = fed.round(TABLES, vanish={1: phase})
    assert results[1] is None
    rest = [TABLES[n] for n in (0, 2, 3)]
    check([results[n] for n in (0, 2, 3)], rest, 1e-5)
    assert fed.server.at.union > before
    check(fed.round(TABLES), TABLES, 1e-5)


def asked(fed: Any, members: Iterable[int]) -> None:
    """The server has asked these for what they trained."""
    fed.server.begin("ready", members)
    fed._exchange.deliver()


def test_values_that_went_out_go_again_only_to_the_same_participants() -> None:
    fed = federation(TABLES, 2, collusion=1)
    with pytest.raises(RoundLost):
        fed.round(TABLES, vanish={3: "upload"})
    client = fed.clients[0]
    fed._exchange.here = {0, 1, 2}
    fed._exchange.run("secret", [0, 1, 2])
    asked(fed, [0, 1, 2])
    with pytest.raises(RoundLost, match="went out to 4 clients"):
        client.contribute(TABLES[0], client.part.released.round)
    client.contribute(TABLES[0], client.part.released.round + 1)


def test_other_values_of_a_round_that_went_out_do_not_follow() -> None:
    fed = federation(TABLES, 2, collusion=1)
    with pytest.raises(RoundLost):
        fed.round(TABLES, vanish={3: "upload"})
    fed._exchange.here = {0, 1, 2, 3}
    fed._exchange.run("secret", range(4))
    client = fed.clients[0]
    asked(fed, range(4))
    with pytest.raises(RoundLost, match="other values than these"):
        client.contribute({name: row + 1.0 for name, row in TABLES[0].items()}, client.part.released.round)
    client.contribute(TABLES[0], client.part.released.round)


def test_the_same_names_in_another_order_are_the_same_rows() -> None:
    tables: Tables = [{"a": np.array([1.0]), "b": np.array([5.0])}, {"a": np.array([3.0]), "b": np.array([7.0])}]
    fed = federation(tables, 1)
    check(fed.round(tables), tables, 1e-5)
    for n in (0, 1):
        fed.update(n, ["b", "a"])
        check(fed.round(tables), tables, 1e-5)
    swapped = [dict(reversed(table.items())) for table in tables]
    check(fed.round(swapped), swapped, 1e-5)


def test_a_table_of_other_names_is_refused_after_an_update() -> None:
    tables: Tables = [{"a": np.array([1.0]), "b": np.array([5.0])}, {"a": np.array([3.0])}]
    fed = federation(tables, 1, max_union=4)
    with pytest.raises(TableError, match="entity 'a' is in the set-up"):
        fed.round([{}, tables[1]])
    fed.round(tables)
    fed.update(0, ["a", "c"])
    with pytest.raises(TableError, match="entity 'b' is in the table, but not in the set-up"):
        fed.round(tables)


def test_a_second_upload_of_one_round_to_the_same_participants_is_fine() -> None:
    fed = federation(TABLES, 2, collusion=1)
    with pytest.raises(RoundLost):
        fed.round(TABLES, vanish={3: "upload"})
    exchange: Any = fed._exchange
    exchange.here, exchange.losses = {0, 1, 2, 3}, {}
    exchange.run("secret", range(4))
    number = fed.clients[0].part.released.round
    exchange.ask(range(4), lambda n: fed.clients[n].contribute(TABLES[n], number))
    exchange.run("upload", range(4))
    assert fed.clients[1].part.means_like(Table(["a"], np.zeros((1, 2))))[0] == pytest.approx([2.0, 8 / 3], abs=1e-5)


# ------------------------------------------------------------------------------------------------------------ changes


def test_entities_change_between_rounds() -> None:
    tables = [dict(table) for table in TABLES]
    fed = federation(tables, 2, collusion=1, max_entities=4, max_union=8)
    fed.round(tables)
    tables[3] = {"z": np.array([9.0, 9.0]), "a": np.array([2.0, 2.0])}
    fed.update(3, tables[3].keys())
    check(fed.round(tables), tables, 1e-5)
    tables[3] = {"a": np.array([2.5, 2.0])}
    fed.update(3, tables[3].keys())
    tables[1] = {"z": np.array([1.0, 1.0])}
    fed.update(1, tables[1].keys())
    check(fed.round(tables), tables, 1e-5)


def test_names_beyond_a_bound_are_refused_and_nothing_is_lost() -> None:
    fed = federation(TABLES, 2, collusion=1)
    with pytest.raises(TableError, match="more than the public bound max_entities=2"):
        fed.update(0, ["a", "b", "c"])
    with pytest.raises(FederationError, match="max_union=3: begin a new session with a larger max_union"):
        fed.update(0, ["a", "new"])
    check(fed.round(TABLES), TABLES, 1e-5)
    few = Federation(Params(clients=3, dim=1, max_entities=30, max_union=90), form=Keyed(max_new_entities=1))
    few.setup([["a"], ["a"], ["a"]])
    with pytest.raises(TableError, match="2 new entities, but only 1 may come at once"):
        few.update(0, ["a", "b", "c"])
    few.update(0, ["a", "b"])
    few.update(0, ["a", "b", "c"])


def test_new_names_need_those_who_confirm_and_answer() -> None:
    fed = federation(TABLES, 2, max_entities=4, max_union=8)
    with pytest.raises(FederationError, match="a change of entities needs 4 clients, and only 3 are here"):
        fed.update(0, ["a", "new"], absent=[2])
    few = federation(TABLES, 2, collusion=1, max_entities=4, max_union=8)  # Z = 3
    few.update(0, ["a", "new"], absent=[2])
    tables = [{"a": np.array([1.0, 2.0]), "new": np.array([1.0, 1.0])}, *TABLES[1:]]
    check(few.round(tables), tables, 1e-5)


def test_updates_are_counted() -> None:
    fed = Federation(Params(clients=3, dim=1, max_entities=9, max_union=9), form=Keyed(max_updates=1))
    fed.setup([["a"], ["a"], ["a"]])
    fed.update(0, ["b"])
    with pytest.raises(FederationError, match="max_updates"):
        fed.update(0, ["c"])


def test_clients_join_and_leave_by_a_new_session() -> None:
    tables = [dict(table) for table in TABLES]
    fed = federation(tables, 2)
    fed.leave(1)
    del tables[1]
    check(fed.round(tables), tables, 1e-5)
    assert fed.join(["a", "q"]) == 3
    tables.append({"a": np.array([7.0, 7.0]), "q": np.array([1.0, 0.0])})
    check(fed.round(tables), tables, 1e-5)
    assert fed.params.collusion == 3


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("params", "form", "says"),
    [
        ({"clients": 4, "dropouts": 3}, "keyed", "dropouts must be from 0 to 2 with 4 clients"),
        ({"clients": 5, "dropouts": 2, "collusion": 3}, "keyed", "from 1 to 2 with 5 clients and 2 drop-outs, got 3"),
        ({"clients": 4, "dropouts": 1}, Keyed(batch=0), "batch must be from 1"),
        ({"clients": 4, "dropouts": 1}, Keyed(batch=(1 << 15) + 1), "batch must be from 1 to 32768"),
        ({"clients": 4, "collusion": 4}, "keyed", "collusion"),
        ({"clients": 4}, Keyed(min_participants=5), "min_participants must be from 2 to 4"),
        ({"clients": 4}, Keyed(min_participants=1), "min_participants must be from 2 to 4"),
        ({"clients": 4}, Keyed(max_updates=-1), "cannot be negative"),
        ({"clients": 2}, "paillier", 'two clients need form="keyed"'),
        ({"clients": 3}, "kyed", "form must be one of keyed, paillier"),
    ],
)
def test_parameters_that_break_a_rule_are_refused_at_once(params: dict[str, Any], form: Any, says: str) -> None:
    with pytest.raises(ParamsError, match=says):
        Federation(Params(dim=2, **params), form=form)


def test_the_fewest_participants_are_those_of_the_specification() -> None:
    """Section 1: N-D with drop-outs; without, T+2, or 2 where everybody else may conspire anyway."""
    for N in range(2, 8):
        for D in range(N - 1):
            for T in range(1, N - D):
                params = Params(clients=N, dim=1, collusion=T, dropouts=D)
                due = N - D if D else 2 if T == N - 1 else T + 2
                assert Keyed().fewest(params) == due, (N, D, T)
                assert Keyed(min_participants=2).fewest(params) == 2
                assert Keyed().fewest(params, "commit") == Keyed().fewest(params, "list", 1) == N
                signers = next(z for z in range(N + 1) if 2 * z > N + T)
                assert Keyed().fewest(params, "list", 2) == max(T + 1, signers)
                assert Keyed().fewest(params, "agree") == Keyed().fewest(params, "open") == N - D


def test_too_much_precision_is_refused_with_what_to_do() -> None:
    with pytest.raises(ParamsError, match="lower precision"):
        secea.plan(Params(clients=100, dim=2, precision=52, sigma=128), entities=9, form="keyed")


def test_bad_tables_name_the_client_and_the_entity_and_change_nothing() -> None:
    fed = federation(TABLES, 2, collusion=1)
    for bad, says in (
        ({"a": [1.0, np.nan], "b": [0.0, 0.0]}, "client 0: entity 'a', coordinate 1"),
        ({"a": [1.0, 65.0], "b": [0.0, 0.0]}, "client 0: entity 'a', coordinate 1: 65.0"),
        ({"a": [1.0, 2.0]}, "client 0: entity 'b' is in the set-up, but not in the table"),
        ({"a": [1.0, 2.0], "b": [0.0, 0.0], "x": [0.0, 0.0]}, "client 0: entity 'x' is in the table"),
    ):
        with pytest.raises(TableError, match=says):
            fed.round([bad, *TABLES[1:]])
    check(fed.round(TABLES), TABLES, 1e-5)


def test_calls_out_of_order_are_refused() -> None:
    fed = Federation(Params(clients=3, dim=1), form="keyed")
    with pytest.raises(CallError, match="call setup"):
        fed.round([{}, {}, {}])
    fed.setup([[], [], []])
    with pytest.raises(CallError, match="there is no client 3"):
        fed.update(3, ["a"])
    with pytest.raises(CallError, match="cannot vanish in 'lunch'"):
        fed.round([{}, {}, {}], vanish={0: "lunch"})
    with pytest.raises(CallError, match="there is no client 7"):
        fed.restart(7)


def test_progress_of_the_long_part_reaches_its_end() -> None:
    seen: list[tuple[int, int]] = []
    fed: Any = Federation(Params(clients=3, dim=1), form="keyed")
    fed.progress = lambda done, total: seen.append((done, total))
    fed.setup([["a", "b"], ["a"], []])
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {seen[-1][0]}
