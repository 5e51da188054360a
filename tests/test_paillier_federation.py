"""Whole federations of the paper's form: means against numpy, whoever is lost, absent, restarted, new or changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopback import World as Engine
from secea import Federation, FederationError, Params, RoundLost, aggregate
from secea.errors import SERVER
from secea.forms import QueriesName
from secea.forms.paillier import Paillier
from secea.forms.paillier.client import PaillierClient
from secea.forms.paillier.form import Kind
from secea.forms.paillier.server import PaillierServer
from secea.params import Params as Parameters
from secea.party.form import Got, Retry
from secea.party.phases import MOST_ATTEMPTS, Agreement
from secea.table import Name
from secea.testing import Parties, Recorder
from secea.wire.keys import Identity, Roster
from secea.wire.messages import HEADER_BYTES, Buffer
from secea.wire.randomness import Entropy
from tiers import always
from truth import Floats, true_means

SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
Tables = list[dict[Name, Floats]]


def few_each(clients: int) -> list[list[Name]]:
    """At most three entities each: own ones, shared ones, and a client that owns nothing."""
    names: list[tuple[Name, ...]] = [(n, f"next {(n + 1) % clients}", "all") for n in range(clients)]
    return [[] if n == 2 else list(own[: 1 + n % 3]) for n, own in enumerate(names)]


class World:
    """A federation, what its clients own, random tables from a printed seed, and every label that was used."""

    def __init__(
        self, sets: Sequence[Sequence[Name]], *, seed: int = 0, queries: QueriesName = "buckets", **params: Any
    ) -> None:
        print(f"seed {seed}, sets {sets!r}, {params}")
        self.rng = np.random.default_rng(seed)
        self.sets = [list(names) for names in sets]
        bounds = {"max_entities": max(3, *map(len, sets)), "max_union": 3 * len(sets)}
        self.fed = Federation(
            Params(**{"clients": len(sets), "dim": 2, **SMALL, **bounds, **params}), Paillier(queries)
        )
        self.labels: dict[bytes, bytes] = {}

    def setup(self, **losses: Any) -> World:
        self.fed.setup(self.sets, **losses)
        return self.watched()

    def watched(self) -> World:
        """From now on no label may stand on two different messages."""
        exchange: Any = self.fed._exchange
        passed = exchange.tap

        def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
            label = bytes(message[:HEADER_BYTES])
            assert self.labels.setdefault(label, bytes(message)) == bytes(message), "a label was used twice"
            arrives: Iterable[Buffer] = passed(sender, receiver, message)
            return arrives

        exchange.tap = tap
        return self

    @property
    def everyone(self) -> set[int]:
        return set(range(len(self.sets)))

    @property
    def union(self) -> int:
        number: int = self.fed.server.at.union
        return number

    def tables(self) -> Tables:
        most, dim = self.fed.params.max_abs, self.fed.params.dim
        return [{name: self.rng.uniform(-most, most, dim) for name in names} for names in self.sets]

    def round(self, absent: Collection[int] = (), vanish: Mapping[int, str] | None = None) -> None:
        """The means are numpy's over who is there; who is lost among the answers has contributed."""
        tables, lost = self.tables(), vanish or {}
        means = self.fed.round([None if n in absent else table for n, table in enumerate(tables)], vanish=lost)
        early = {n for n, phase in lost.items() if phase != "answer"}
        among = self.everyone - set(absent) - early
        expected = true_means(table for n, table in enumerate(tables) if n in among)
        for n, table in enumerate(tables):
            if n in absent or n in lost:
                assert means[n] is None, n
                continue
            assert means[n].keys() == table.keys()
            for name, mean in means[n].items():
                assert np.abs(mean - expected[name]).max() <= self.fed.params.resolution, (n, name)

    def lost_round(self, vanish: Mapping[int, str]) -> None:
        """Too many are lost: nobody has means, and the next round works."""
        with pytest.raises(RoundLost, match=r"is lost: .*vanished"):
            self.fed.round(self.tables(), vanish=vanish)
        assert not any(client.part.has_means for client in self.fed.clients.values())
        self.round()


# --------------------------------------------------------------------------------------------------------------- means


FEW: Final = ((3, 1, 0), (4, 1, 1), (5, 2, 0), (9, 1, 6))


def shapes() -> list[tuple[int, int, int]]:
    """(N, T, D): every combination for few clients, and the largest T, D and K for more."""
    found = [(N, T, D) for N in (3, 4, 5) for T in range(1, (N + 1) // 2) for D in range(N - 2 * T)]
    return [*found, (6, 2, 1), (7, 1, 0), (7, 3, 0), (8, 1, 2), (9, 4, 0), (9, 1, 6)]


@pytest.mark.parametrize(
    ("clients", "collusion", "dropouts"), always([(3, 1, 0), (4, 1, 1), (5, 2, 0), (9, 1, 6)], shapes())
)
@pytest.mark.parametrize("queries", ["buckets", "full"])
def test_means_are_numpys(queries: QueriesName, clients: int, collusion: int, dropouts: int) -> None:
    dim = 1 + (clients + collusion + dropouts) % 3
    world = World(few_each(clients), queries=queries, dim=dim, collusion=collusion, dropouts=dropouts).setup()
    assert (clients - dropouts + 1) // 2 - collusion == world.fed.params.K
    world.round()
    world.round()
    assert world.union == 1


@settings(max_examples=12)
@given(data=st.data(), clients=st.integers(3, 5), queries=st.sampled_from(("buckets", "full")))
def test_means_are_numpys_for_any_names_and_values(data: st.DataObject, clients: int, queries: QueriesName) -> None:
    names = st.text(min_size=1, max_size=3) | st.integers(-3, 3)
    values = st.floats(-64, 64, width=32).map(lambda x: np.array([x, -x / 3]))
    owned = st.lists(st.tuples(names, values), max_size=5, unique_by=lambda row: str(row[0])).map(dict)
    tables = data.draw(st.lists(owned, min_size=clients, max_size=clients))
    if not any(tables):
        return
    expected = true_means(tables)
    for table, means in zip(tables, aggregate(tables, form="paillier", queries=queries, **SMALL), strict=True):
        assert means.keys() == table.keys()
        for name, mean in means.items():
            assert np.abs(mean - expected[name]).max() <= 64 * 2.0**-24


def test_what_is_made_before_a_round_changes_no_mean_and_serves_one_life() -> None:
    world = World(few_each(4)).setup()
    for restarted in ((), (1,), (SERVER,)):
        world.fed.prepare()
        if restarted:
            world.fed.restart(*restarted)
        world.round()


# -------------------------------------------------------------------------------------------------------------- losses

SETUP, ROUND = ("secret", "table", "query"), ("share", "answer")


def subsets(clients: int, most: int) -> list[tuple[int, ...]]:
    return [lost for size in range(1, most + 1) for lost in combinations(range(clients), size)]


def lose(world: World, lost: Sequence[int], phase: str) -> None:
    """They vanish in a phase; the others have their means; they come back, and all have theirs."""
    losses = dict.fromkeys(lost, phase)
    if phase in SETUP:
        world.fed.update(2, world.sets[2], vanish=losses)
        assert not set(lost) & set(world.fed.server.at.participants)
        world.round(absent=lost)
    else:
        world.round(vanish=losses)
    world.round()


@pytest.mark.slow
@pytest.mark.parametrize("phase", [*SETUP, *ROUND])
def test_whoever_is_lost_in_the_middle_of_a_phase_the_others_have_their_means_and_it_comes_back(phase: str) -> None:
    world = World(few_each(4), dropouts=1).setup()
    for lost in subsets(4, 1):
        lose(world, lost, phase)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [*SETUP, *ROUND])
@pytest.mark.parametrize(("clients", "collusion"), [(5, 1), (7, 2)])
def test_every_pair_may_be_lost_in_every_phase(clients: int, collusion: int, phase: str) -> None:
    world = World(few_each(clients), collusion=collusion, dropouts=2).setup()
    for lost in subsets(clients, 2):
        lose(world, lost, phase)


def test_two_may_be_lost_one_after_the_other() -> None:
    world = World(few_each(5), dropouts=2).setup()
    for first in (*SETUP, "share"):
        if first in SETUP:
            world.fed.update(2, world.sets[2], vanish={1: first})
            world.round(absent=[1], vanish={3: "answer"})
        else:
            world.round(vanish={1: first, 3: "answer"})
    world.round()


@pytest.mark.parametrize("phase", ROUND)
def test_where_more_are_lost_the_round_is_and_the_next_one_works(phase: str) -> None:
    world = World(few_each(4), dropouts=1).setup()
    for lost in ((0, 1), (2, 3), (0, 1, 2)):
        world.lost_round(dict.fromkeys(lost, phase))
    world.lost_round({0: "share", 3: "answer"})


@pytest.mark.parametrize("phase", SETUP)
def test_where_too_few_are_left_there_is_no_set_up_and_the_next_one_works(phase: str) -> None:
    world = World(few_each(4))
    with pytest.raises(FederationError, match="clients, and only 2 are here"):
        world.setup(vanish=dict.fromkeys((0, 1), phase))
    world.setup().round()
    with pytest.raises(FederationError, match="clients, and only 2 are here"):
        world.fed.update(2, ["new"], vanish=dict.fromkeys((0, 1), phase))
    world.round()  # with the names that it had


# ------------------------------------------------------------------------------------------------------ who takes part


def test_an_epoch_lasts_until_somebody_is_missing_back_restarted_or_changed() -> None:
    world = World(few_each(5), dropouts=1).setup()
    world.round()
    assert world.union == 1
    acts: list[tuple[Callable[[], None], int]] = [
        (lambda: world.round(absent=[1]), 1),
        (lambda: world.round(absent=[1]), 0),
        (world.round, 1),  # it is back
        (lambda: world.round(vanish={3: "answer"}), 0),
        (world.round, 1),
        (lambda: world.fed.restart(2), 0),
        (world.round, 1),
        (lambda: world.fed.restart(SERVER), 0),
        (world.round, 1),
        (world.round, 0),
    ]
    for act, new in acts:
        before = world.union
        act()
        assert world.union == before + new


def test_a_client_that_is_restarted_keeps_its_paillier_key_and_its_means_and_is_a_new_life() -> None:
    world = World(few_each(4)).setup()
    world.round()
    before = world.fed.clients[1]
    world.fed.restart(1)
    after = world.fed.clients[1]
    assert after.part.introduction == before.part.introduction
    assert after.link.hello.incarnation != before.link.hello.incarnation
    assert after.part.result[0] == before.part.result[0]
    assert np.array_equal(after.part.result[1], before.part.result[1])
    assert list(after.outbox()) == [after.link.hello_message()]


def test_who_joins_or_leaves_begins_a_session_of_the_same_identities() -> None:
    world = World(few_each(4)).setup()
    before = world.fed.session
    assert world.fed.join(["new", "all"]) == 4
    world.sets.append(["new", "all"])
    world.watched().round()
    assert world.fed.session.roster.clients[:4] == before.roster.clients
    world.fed.leave(1)
    del world.sets[1]
    world.watched().round()
    assert world.fed.session.roster.clients[0] == before.roster.clients[0]
    assert world.fed.session.roster.clients[1:3] == before.roster.clients[2:]
    assert world.fed.session.hash != before.hash


def test_so_many_cannot_leave_that_the_rest_would_be_exposed() -> None:
    world = World(few_each(3), max_union=6).setup()
    with pytest.raises(ValueError, match="clients must be from 3"):
        world.fed.leave(1)
    world.round()


class Life(World):
    """Things happen to it, one after the other."""

    def __init__(self, seed: int) -> None:
        super().__init__(few_each(5), seed=seed, dim=1, dropouts=1, max_union=12)
        self.setup()

    def some(self, count: int) -> list[int]:
        return [int(n) for n in self.rng.choice(len(self.sets), count, replace=False)]

    def happens(self, event: str) -> None:
        phases = self.rng.permutation([*ROUND, *ROUND]).tolist()
        match event:
            case "absent":
                self.round(absent=self.some(1))
            case "lost":
                self.round(vanish=dict(zip(self.some(1), phases, strict=False)))
            case "too many lost":
                self.lost_round(dict(zip(self.some(len(self.sets) - 2), [phases[0]] * 9, strict=False)))
            case "changed":
                (who,) = self.some(1)
                self.sets[who] = [f"e{int(i)}" for i in self.rng.choice(5, 3, replace=False)]
                self.fed.update(who, self.sets[who])
            case "changed, and lost":
                who, lost = self.some(2)
                self.sets[who] = [f"e{int(i)}" for i in self.rng.choice(5, 2, replace=False)]
                self.fed.update(who, self.sets[who], vanish={lost: str(self.rng.choice(SETUP))})
            case "joins" if len(self.sets) < 6:
                self.sets.append(["all", "e1"])
                self.fed.join(self.sets[-1])
                self.watched()
            case "leaves" if len(self.sets) > 4:
                (who,) = self.some(1)
                del self.sets[who]
                self.fed.leave(who)
                self.watched()
            case "restarted":
                self.fed.restart(*self.some(2))
            case "server restarted":
                self.fed.restart(SERVER)
            case "all restarted":
                self.fed.restart()
            case "prepared":
                self.fed.prepare()
        self.round()


EVENTS = (
    "absent", "lost", "too many lost", "changed", "changed, and lost", "joins", "leaves", "restarted",
    "server restarted", "all restarted", "prepared",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
def test_whatever_happens_every_mean_is_right_and_no_label_stands_for_two_messages(seed: int) -> None:
    life = Life(seed)
    for event in life.rng.permutation([*EVENTS, *EVENTS]).tolist():
        print(event)
        life.happens(event)
    assert len(life.labels) > 1000


# ------------------------------------------------------------------------------------------------------ other attempts


class ClumsyClient(PaillierClient):
    """Cannot place its entities, so many times."""

    clumsy = 0

    def enter(self, at: Agreement) -> None:
        if at.phase == "query" and self.clumsy:
            self.clumsy -= 1
            raise Retry
        super().enter(at)


class StallingServer(PaillierServer):
    """Cannot take the union apart, so many times."""

    stalls = 0

    def finish(self, at: Agreement, got: Got) -> Agreement:
        if at.phase == "table" and self.stalls:
            self.stalls -= 1
            raise Retry("the union stalls")
        return super().finish(at, got)


class Unlucky(Paillier):
    """The form with these parts."""

    def client(
        self, params: Parameters, session: bytes, roster: Roster, number: int, identity: Identity,
        names: Iterable[Any], entropy: Entropy,
    ) -> PaillierClient:  # fmt: skip
        return ClumsyClient(self, params, number, names, entropy)

    def server(self, params: Parameters, session: bytes) -> PaillierServer:
        return StallingServer(self, params)


TABLES: Tables = [
    {"a": np.array([1.0, 2.0]), "b": np.array([3.0, -1.0])},
    {"a": np.array([3.0, 4.0])},
    {"b": np.array([1.0, 1.0]), "c": np.array([-5.0, 0.5])},
    {"c": np.array([0.0, 0.25])},
]


def unlucky(*, clumsy: Mapping[int, int] | None = None, stalls: int = 0) -> tuple[Parties, Recorder]:
    recorder = Recorder(Kind)
    parties = Parties.of(TABLES, Unlucky(), tap=recorder, **SMALL)
    for n, times in (clumsy or {}).items():
        parties.clients[n].part.clumsy = times  # type: ignore[attr-defined]
    parties.server.part.stalls = stalls  # type: ignore[attr-defined]
    return parties, recorder


def check_round(parties: Parties) -> None:
    expected = true_means(TABLES)
    for n, means in parties.round(TABLES).items():
        assert np.allclose(means, [expected[name] for name in TABLES[n]], atol=parties.session.params.resolution)


@pytest.mark.parametrize(
    ("clumsy", "stalls", "attempts"), [({1: 1}, 0, 1), ({0: 1, 3: 3}, 0, 3), ({}, 2, 2), ({1: 2, 2: 1}, 3, 5)], ids=str
)
def test_a_placement_that_fails_and_a_union_that_stalls_cost_an_attempt(
    clumsy: dict[int, int], stalls: int, attempts: int
) -> None:
    parties, recorder = unlucky(clumsy=clumsy, stalls=stalls)
    parties.setup()
    assert (parties.server.at.attempt, parties.server.at.union) == (attempts, attempts + 1)
    check_round(parties)
    said = [hop for hop in recorder.hops if hop.header.kind is Kind.ABORT]
    assert len(said) == sum(clumsy.values())
    assert {(hop.sender, hop.receiver, len(hop.message)) for hop in said} == {(n, SERVER, 89) for n in clumsy}
    tables = [hop for hop in recorder.hops if hop.header.kind is Kind.TABLE and hop.sender == 0]
    sizes = [len(hop.message) for hop in tables]
    assert sizes == sorted(set(sizes)), "every attempt has a larger table"
    assert len({hop.header.context for hop in tables}) == attempts + 1
    assert len({hop.message[HEADER_BYTES:][:64] for hop in recorder.hops}) == len(
        {hop.message for hop in recorder.hops}
    ), "nothing of one attempt is in another"


@pytest.mark.parametrize(("clumsy", "stalls"), [({1: MOST_ATTEMPTS}, 0), ({}, MOST_ATTEMPTS)], ids=str)
def test_after_eight_attempts_it_is_given_up(clumsy: dict[int, int], stalls: int) -> None:
    parties, _ = unlucky(clumsy=clumsy, stalls=stalls)
    with pytest.raises(
        FederationError, match=f"(client 1 cannot go on|the union stalls); {MOST_ATTEMPTS} attempts failed"
    ):
        parties.setup()
    parties.server.give_up()
    parties.exchange.run("secret", range(4))
    check_round(parties)


def test_more_entities_than_the_public_bound_are_an_error_that_says_so() -> None:
    params = Params(clients=4, dim=2, max_entities=2, max_union=2, **SMALL)
    parties = Parties(params, Paillier(), [table.keys() for table in TABLES])
    with pytest.raises(FederationError, match="the clients hold 3 entities, more than the public bound max_union=2"):
        parties.setup()


# ----------------------------------------------------------------------------------------------------------- an engine


def test_entities_that_change_on_an_engine_cost_an_epoch_and_give_no_wrong_round(tmp_path: Path) -> None:
    world = Engine(tmp_path, Paillier(), entities=6, dropouts=1, **SMALL)
    world.driver.setup()
    assert world.round() == [0, 1, 2, 3]
    server = world.driver.server
    for who, names in ((1, ["new", "e1"]), (3, ["new", "e2", "e3"]), (0, [])):
        before = server.at.union
        world.sets[who] = [*names]
        assert world.round() == [0, 1, 2, 3]
        assert server.at.union == before + 1
        means = world.hosts[who].means()
        assert means is not None
        assert set(means.names) == set(names)
        assert world.round() == [0, 1, 2, 3]
        assert server.at.union == before + 1


def test_where_too_few_are_here_for_an_epoch_changed_entities_stop_the_round(tmp_path: Path) -> None:
    world = Engine(tmp_path, Paillier(), entities=6, **SMALL)
    world.driver.setup()
    world.round()
    world.port.kill = lambda n, order: "hangs" if n in (0, 2) else ""
    world.sets[1] = ["new"]
    with pytest.raises(FederationError):
        world.round()
    world.port.kill = lambda n, order: ""
    assert world.round() == [0, 1, 2, 3]
