"""The local engine: retries, absent and vanishing clients, restarts; always the means over those who contributed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import secea
from secea import CallError, Federation, FederationError, Params, TableError
from secea.buckets import place
from secea.engines.local_port import LocalDriver
from secea.engines.port import Task
from secea.session import FORMS
from secea.steps import union as union_module

DIM = 3


def params(clients: int, **more: Any) -> Params:
    return Params(clients=clients, dim=DIM, key_bits=512, insecure_small_keys=True, **more)


class World:
    """A federation with random tables, and the truth about each round."""

    def __init__(self, form: str, clients: int = 5, entities: int = 10, own: int = 5, **more: Any) -> None:
        self.rng = np.random.Generator(np.random.PCG64([clients, entities, own]))
        self.sets = [self.rng.choice(entities, own, replace=False).tolist() for _ in range(clients)]
        self.fed = Federation(params(clients, **more), form)

    def setup(self) -> World:
        self.fed.setup(self.sets)
        return self

    def round(self, absent: tuple[int, ...] = (), vanish: tuple[int, ...] = ()) -> None:
        tables = [{name: self.rng.uniform(-64, 64, DIM) for name in names} for names in self.sets]
        given = [None if n in absent else table for n, table in enumerate(tables)]
        means = self.fed.round(given, vanish=vanish)
        for n, table in enumerate(tables):
            if n in absent or n in vanish:
                assert means[n] is None
                continue
            assert means[n].keys() == table.keys()
            for name, row in means[n].items():
                owners = [t[name] for t in given if t is not None and name in t]
                assert np.abs(row - np.mean(owners, axis=0)).max() < self.fed.params.resolution


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("clients", [5, 6])
def test_any_one_client_may_be_absent_or_vanish_and_comes_back(form: str, clients: int) -> None:
    world = World(form, clients, dropouts=1).setup()
    for n in range(clients):
        world.round(vanish=(n,))
        world.round(absent=(n,))
    world.round()


@pytest.mark.parametrize("form", FORMS)
def test_any_two_of_seven_may_vanish(form: str) -> None:
    world = World(form, 7, dropouts=2).setup()
    for pair in combinations(range(7), 2):
        world.round(vanish=pair)


@pytest.mark.parametrize("form", FORMS)
def test_too_few_answers_give_no_result_and_the_next_round_works(form: str) -> None:
    world = World(form, 5, dropouts=1).setup()
    with pytest.raises(FederationError, match=r"2 clients answered in round 1: \[3, 4\]; 3 are needed"):
        world.round(vanish=(0, 1, 2))
    assert all(client.means is None or n < 3 for n, client in world.fed.clients.items())
    world.round()


@pytest.mark.parametrize("form", FORMS)
def test_too_few_contributors_are_refused_before_anything_is_sent(form: str) -> None:
    world = World(form, 5, dropouts=1).setup()
    sent = len(world.fed.traffic)
    with pytest.raises(FederationError, match="3 are needed"):
        world.round(absent=(0, 1, 2))
    assert len(world.fed.traffic) == sent
    world.round()


@pytest.mark.parametrize("form", FORMS)
def test_everyone_can_be_restarted_between_any_two_exchanges(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(form, 5, dropouts=1)
    stage, count = LocalDriver._stage, 0

    def restarting(driver: LocalDriver, task: Task) -> None:
        nonlocal count
        count += 1
        driver.restart()
        stage(driver, task)
        driver.restart()

    monkeypatch.setattr(LocalDriver, "_stage", restarting)
    world.setup()
    world.round()
    world.round(vanish=(2,))
    world.round(absent=(3,))
    world.round()
    assert count >= 11


def test_a_stalled_union_is_tried_again_with_a_larger_table(monkeypatch: pytest.MonkeyPatch) -> None:
    peel, tables = union_module.peel, []

    def stalled_once(total: Any, *args: Any) -> Any:
        tables.append(total.shape[1])
        return None if len(tables) == 1 else peel(total, *args)

    monkeypatch.setattr(union_module, "peel", stalled_once)
    world = World("reciprocal").setup()
    assert tables[1] > tables[0]
    assert world.fed.server.attempt == 1
    world.round()


def test_a_failed_placement_begins_again_with_other_buckets_before_any_query_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[bytes] = []

    def fails_once(rows: Any, queries: Any, stream: Any) -> Any:
        seeds.append(queries.seed)
        return None if len(seeds) == 3 else place(rows, queries, stream)

    monkeypatch.setattr("secea.client.place", fails_once)
    world = World("reciprocal").setup()
    assert world.fed.server.attempt == 1
    assert len(set(seeds)) == 2
    aborted = next(i for i, hop in enumerate(world.fed.traffic) if hop.kind == "abort")
    relayed = [hop for hop in world.fed.traffic[: aborted + 1] if hop.kind == "query" and hop.sender == "server"]
    assert not relayed
    world.round()


def test_entities_that_only_an_absent_client_owns_return_with_it() -> None:
    fed = Federation(params(4))
    tables: list[Any] = [
        {"a": [1.0, 2.0, 3.0]},
        {"a": [3.0, 2.0, 1.0]},
        {"a": [0.0, 0.0, 0.0], "b": [1.0] * 3},
        {"c": [5.0] * 3},
    ]
    fed.setup([table.keys() for table in tables])
    fed.round(tables)
    means = fed.round([*tables[:3], None])
    assert means[3] is None
    assert np.abs(means[0]["a"] - np.array([4, 4, 4]) / 3).max() < fed.params.resolution
    assert np.abs(fed.round(tables)[3]["c"] - 5).max() < fed.params.resolution


def test_a_table_that_does_not_fit_is_refused_and_the_next_round_works() -> None:
    world = World("reciprocal", 3).setup()
    good = [{name: np.zeros(DIM) for name in names} for names in world.sets]
    for bad, message in (
        ([*good[:2], {"other": np.zeros(DIM)}], "client 2: entity"),
        ([*good[:2], {name: np.zeros(DIM + 1) for name in world.sets[2]}], "client 2: the embedding of entity"),
        ([*good[:2], {name: np.full(DIM, np.nan) for name in world.sets[2]}], "coordinate 0: nan"),
        ([*good[:2], {name: np.full(DIM, 65.0) for name in world.sets[2]}], "outside"),
        (good[:2], "2 tables were given"),
    ):
        with pytest.raises(TableError, match=message):
            world.fed.round(bad)
        world.round()


def test_aggregate_names_the_clients_whose_embeddings_differ_in_length() -> None:
    with pytest.raises(TableError, match="client 0 has embeddings of length 2, client 2 of length 3"):
        secea.aggregate([{"a": [1.0, 2.0]}, {}, {"a": [1.0, 2.0, 3.0]}])


def test_clients_of_different_size_and_a_union_of_nothing_are_legal() -> None:
    assert secea.aggregate([{}, {}, {}]) == [{}, {}, {}]
    means = secea.aggregate([{"a": [1.0]}, {}, {}])
    assert np.abs(means[0]["a"] - 1).max() < 4e-6
    assert means[1:] == [{}, {}]


@pytest.mark.parametrize("form", FORMS)
def test_a_client_may_change_its_entities_between_rounds(form: str) -> None:
    world = World(form, 4, entities=8, own=4, max_entities=8, max_union=12).setup()
    world.round()
    before = world.fed.server.tags
    for names in ([0, "new"], [], list(range(8))):
        world.sets[2] = names
        world.fed.update(2, names)
        world.round()
        assert not np.isin(world.fed.server.tags, before).any(), "tags are keyed anew"
        before = world.fed.server.tags
    world.round(absent=(1,)) if world.fed.params.need < 4 else world.round()


def test_a_client_whose_entities_changed_waits_for_the_new_epoch() -> None:
    world = World("reciprocal", 3, max_entities=6, max_union=12).setup()
    client = world.fed.clients[0]
    with pytest.raises(TableError, match="client 0 has 7 entities, more than the public bound max_entities=6"):
        client.update(range(7))
    client.update(["x"])
    with pytest.raises(FederationError, match="its entities changed"):
        client.contribute({"x": np.zeros(DIM)})
    with pytest.raises(CallError, match="there is no client 3"):
        world.fed.update(3, [])


def test_means_can_be_fed_back_as_they_are() -> None:
    edge = Params(clients=3, dim=2, max_abs=0.1, precision=20)
    for dtype in (np.float32, np.float64):
        fed = Federation(edge)
        fed.setup([["a"], ["a"], ["a"]])
        low = np.nextafter(np.float64(0.1), 0).astype(dtype) if dtype == np.float64 else np.float32(0.099999994)
        tables: list[Any] = [{"a": np.array([low, -low], dtype)} for _ in range(3)]
        for _ in range(8):
            tables = fed.round(tables)
        assert np.abs(tables[0]["a"] - [0.1, -0.1]).max() < 8 * edge.resolution


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stage", ["opening", "reshare", "share", "answer"])
def test_a_round_that_breaks_off_anywhere_leaves_the_federation_usable(
    form: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(form, 5, dropouts=1).setup()
    world.round()
    close = secea.Server.close

    def interrupted(server: secea.Server) -> None:
        if server.phase == stage:
            raise KeyboardInterrupt
        close(server)

    with monkeypatch.context() as patch:
        patch.setattr(secea.Server, "close", interrupted)
        if form == "reciprocal" or stage in ("share", "answer"):
            with pytest.raises(KeyboardInterrupt):
                world.round(absent=(1,))
        else:
            world.round(absent=(1,))
    world.round()
    world.round(absent=(2,))


def test_a_refused_message_is_reported_and_the_next_round_works(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("reciprocal", 4).setup()
    receive, count = secea.Client.receive, 0

    def flipped(client: secea.Client, message: Any) -> None:
        nonlocal count
        count += 1
        damaged = bytearray(message)
        damaged[-1] ^= count == 3
        receive(client, damaged)

    with monkeypatch.context() as patch:
        patch.setattr(secea.Client, "receive", flipped)
        with pytest.raises(secea.ProtocolError):
            world.round()
    assert len(world.fed.faults) == 1
    world.round()


def test_a_second_set_up_replaces_the_first_and_one_that_fails_changes_nothing() -> None:
    world = World("reciprocal", 3, own=2).setup()
    with pytest.raises(TableError, match="occurs more than once"):
        world.fed.setup([["a", "a"], ["b"], ["c"]])
    world.round()
    world.sets = [["a", "b", "c", "d"], ["b"], []]
    world.setup()
    world.round()


def test_rounds_beyond_those_that_sigma_was_promised_for_are_refused() -> None:
    world = World("reciprocal", 3, rounds=2).setup()
    world.round()
    world.round()
    with pytest.raises(FederationError, match="with a larger `rounds` in Params"):
        world.round()


def test_weights_that_are_renewed_count_as_set_up_in_the_traffic() -> None:
    world = World("reciprocal", 5, dropouts=1).setup()
    world.round()
    before = sum(hop.size for hop in world.fed.traffic if hop.round == 1)
    world.round(absent=(0,))
    assert sum(hop.size for hop in world.fed.traffic if hop.round == 1) == before
    kinds = {hop.kind for hop in world.fed.traffic if hop.round}
    assert kinds == {"share", "contributors", "answer", "mean"}
    assert not [hop for hop in world.fed.traffic if hop.round == 2 and 0 in (hop.sender, hop.receiver)]


def test_two_exchanges_make_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("reciprocal", 4).setup()
    stage, count = LocalDriver._stage, 0

    def counted(driver: LocalDriver, task: Task) -> None:
        nonlocal count
        count += 1
        stage(driver, task)

    monkeypatch.setattr(LocalDriver, "_stage", counted)
    world.round()
    assert count == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: secea.aggregate(None), "expected a list of tables"),  # type: ignore[arg-type]
        (lambda: secea.aggregate({0: {}, 1: {}, 2: {}}), "expected a list of tables"),  # type: ignore[dict-item]
        (lambda: secea.aggregate([{"a": [1.0]}, None, {}]), "client 1: expected a secea.Table or a mapping"),  # type: ignore[list-item]
        (lambda: secea.aggregate([{"a": [1.0]}, {}, {}], colusion=1), "aggregate takes no 'colusion'"),
        (lambda: secea.aggregate([{"a": [1.0]}]), "clients must be 2"),
        (lambda: secea.aggregate([{"a": [1.0]}, {}], form="reciprocal"), "clients must be 3"),
        (lambda: secea.aggregate([{"a": ["x"]}, {}, {}]), "use float32 or float64"),
        (lambda: secea.aggregate([{"a": []}, {}, {}]), "the embedding of entity 'a' is empty"),
        (lambda: secea.aggregate([{"a": [1.0]}, {}, {}], form="x"), "form must be one of"),
        (lambda: secea.aggregate([{"a": [1.0]}, {}, {}], queries="full"), "this form has no queries"),
        (lambda: secea.aggregate([{"a": [1.0]}, {}, {}], form="paillier", queries="x"), "queries must be one of"),
        (lambda: secea.aggregate([{True: [1.0]}, {}, {}]), "truth value"),
        (lambda: secea.aggregate([{"a": [1.0]}, {}, {}], max_abs=0.5), "client 0: entity 'a', coordinate 0"),
        (lambda: Federation({"clients": 3}), "takes secea.Params"),  # type: ignore[arg-type]
        (lambda: Federation(params(3)).round([]), "call setup"),
        (lambda: Federation(params(3)).setup(None), "expected a list of 3 collections"),  # type: ignore[arg-type]
        (lambda: Federation(params(3)).setup(["abc", [], []]), "single text"),
        (lambda: World("reciprocal", 3).setup().fed.round([None, None, None], vanish=[1]), "vanish names"),
        (lambda: secea.plan(params(3), entities=-1), "entities must be"),
        (lambda: secea.Table(None, np.zeros((1, 1))), "collection of entity names"),  # type: ignore[arg-type]
    ],
)
def test_a_callers_mistake_is_a_clear_error_of_this_package(call: Any, message: str) -> None:
    with pytest.raises(secea.SecEAError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError | TypeError)


def test_loose_bounds_are_taken_as_they_are() -> None:
    tables = [{"a": [1.0]}, {"a": [3.0]}, {"b": [5.0]}]
    choices: list[dict[str, Any]] = [{"max_entities": 100}, {"max_union": 1000}, {"max_entities": 50, "max_union": 120}]
    for bounds in choices:
        means = secea.aggregate(tables, **bounds)
        assert means[0]["a"][0] == pytest.approx(2, abs=1e-5)
