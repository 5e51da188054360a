"""Clients that vanish in the middle of anything: the others have the mean over exactly those who are in the sum."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import secea
from optional import dues
from secea import Federation, FederationError, Params, ProtocolError, RoundLost
from secea.engines import exchange as exchange_module
from secea.errors import Stale
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import form as form_module
from secea.forms.keyed.server import KeyedServer
from secea.party.phases import REST, Agreement
from secea.testing import Parties
from secea.wire import messages
from secea.wire.messages import Buffer
from tiers import always, slow

Tables = list[dict[str, NDArray[np.float64]]]

DIM = 2
BEFORE = ("secret", "table", "batch", "ready")
"""Who vanishes here is not in the sum, and nothing was uploaded."""
AFTER = ("agree", "open")
"""Who vanishes here is in the sum."""
STAGES = (*BEFORE, "upload", *AFTER)
ALLOWED = [(N, D, T) for N in (3, 4, 5) for D in range(1, N - 1) for T in range(1, N - D)]
FEW = [case for case in ALLOWED if case[0] < 5]


def tables_of(clients: int, seed: int = 1) -> Tables:
    """One entity of all, one of each pair of neighbours, one of each."""
    rng = np.random.default_rng([seed, clients])
    names = [{"all", f"pair {n}", f"pair {(n + 1) % clients}", f"own {n}"} for n in range(clients)]
    return [{name: rng.uniform(-3, 3, DIM) for name in sorted(own)} for own in names]


def federation(tables: Tables, D: int, T: int | None, *, batch: int = 3, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fed = Federation(Params(clients=len(tables), dim=DIM, dropouts=D, collusion=T, **more), form=Keyed(batch=batch))
    fed.setup([table.keys() for table in tables])
    return fed


def moved(tables: Tables) -> Tables:
    """Other values for another round: what was in an earlier sum would be seen."""
    return [{name: -0.9 * row + 0.1 for name, row in table.items()} for table in tables]


def check(results: Sequence[Any], tables: Tables, U: Iterable[int], here: Iterable[int], params: Params) -> None:
    """Whoever is still here has the means over U, and the others have nothing."""
    due = dues(params, [(tables[v], None) for v in U])
    for n, result in enumerate(results):
        if n not in set(here):
            assert result is None
            continue
        assert list(result) == list(tables[n])
        for name, row in result.items():
            assert due[name].meets(row, tables[n][name]), (n, name)


def expected(fed: Any, vanish: Mapping[int, str], absent: Iterable[int] = ()) -> tuple[int, ...] | str:
    """U; or what is lost: the round, or the attempt before anything was uploaded."""
    N, D = fed.params.clients, fed.params.dropouts
    t, gone = N - D, Counter(vanish.values())
    participants = [n for n in range(N) if n not in set(absent) and vanish.get(n) not in BEFORE]
    U = tuple(n for n in participants if vanish.get(n) != "upload")
    if len(participants) < t:
        return "nothing"
    designated = participants[(fed.server.at.round + 1) % len(participants)]
    if fed.params.min_owners > 1 and designated not in U:
        return "round"
    return U if len(U) - gone["agree"] - gone["open"] >= t else "round"


def run(
    fed: Any, tables: Tables, vanish: Mapping[int, str], absent: Iterable[int] = (), *, union: bool = True
) -> tuple[int, ...] | str:
    """One round with losses, held against what is expected of it. `union`: another one is due first."""
    N, due = len(tables), expected(fed, vanish, absent)
    if union:
        fed.clients[0].stop()
    given: list[Any] = [None if n in set(absent) else table for n, table in enumerate(tables)]
    if isinstance(due, str):
        with pytest.raises(FederationError) as caught:
            fed.round(given, vanish=vanish)
        assert isinstance(caught.value, RoundLost) == (due == "round"), vanish
        return due
    here = [n for n in range(N) if n not in vanish and n not in set(absent)]
    check(fed.round(given, vanish=vanish), tables, due, here, fed.params)
    return due


# -------------------------------------------------------------------------------------------------- one stage at a time


def subsets(N: int, T: int, stage: str, size: int) -> list[tuple[int, ...]]:
    """Every set of so many clients; with five, where T plays no part, for T = 1 alone, and for others neighbours."""
    if T == 1 or N < 5 or stage not in BEFORE:
        return list(combinations(range(N), size))
    return [tuple(sorted((start + i) % N for i in range(size))) for start in range(N)]


@pytest.mark.parametrize(("N", "D", "T"), always([(3, 1, 1), (4, 1, 2)], ALLOWED))
def test_up_to_d_clients_may_vanish_in_any_stage(N: int, D: int, T: int) -> None:
    tables = tables_of(N)
    fed = federation(tables, D, T)
    for stage in STAGES:
        for size in range(1, D + 1):
            for lost in subsets(N, T, stage, size):
                assert not isinstance(run(fed, tables, dict.fromkeys(lost, stage), union=stage != "ready"), str)
                tables = moved(tables)
        run(fed, tables, {}, union=False)
    assert not fed.faults


@pytest.mark.parametrize("stage", ["upload", *AFTER])
def test_who_subtracts_the_minimum_is_needed_until_it_has_uploaded(stage: str) -> None:
    tables = tables_of(4)
    fed = federation(tables, 1, 2, min_owners=2)
    for lost in (1, 0, 3):
        designated = (fed.server.at.round + 1) % 4
        due = run(fed, tables, {lost: stage})
        assert (due == "round") == (stage == "upload" and lost == designated)
        tables = moved(tables)
        run(fed, tables, {}, union=False)


def test_two_that_share_masks_may_vanish_in_one_upload() -> None:
    tables = tables_of(5)
    fed = federation(tables, 2, 1)
    assert run(fed, tables, {1: "upload", 2: "upload"}) == (0, 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("N", "D", "T"), always(FEW, ALLOWED))
def test_more_than_d_cost_the_round_or_the_attempt_and_the_next_one_works_with_everybody(
    N: int, D: int, T: int
) -> None:
    tables = tables_of(N)
    fed = federation(tables, D, T)
    for stage in STAGES:
        for lost in subsets(N, T, stage, D + 1):
            due = run(fed, tables, dict.fromkeys(lost, stage))
            assert due == ("nothing" if stage in BEFORE else "round")
            tables = moved(tables)
            run(fed, tables, {}, union=False)


@pytest.mark.slow
def test_of_seven_two_may_vanish() -> None:
    tables, rng = tables_of(7), np.random.default_rng(7)
    fed = federation(tables, 2, None)
    assert fed.params.collusion == 2
    for stage in STAGES:
        for size in (1, 2, 3):
            lost = map(int, rng.choice(7, size, replace=False))
            run(fed, tables, dict.fromkeys(lost, stage))
            tables = moved(tables)
            run(fed, tables, {}, union=False)


def test_the_server_could_not_do_with_the_shares_of_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: it goes on with t-1 votes or openings, and comes nowhere."""
    monkeypatch.setattr(Keyed, "quorum", lambda self, params, at: self.threshold(params) - 1)
    for stage in AFTER:
        tables = tables_of(4)
        fed = federation(tables, 1, 1)
        with pytest.raises((RoundLost, ProtocolError)):
            fed.round(tables, vanish={0: stage, 1: stage})
        run(fed, tables, {}, union=False)


# ------------------------------------------------------------------------------------------ several stages at once


@pytest.mark.parametrize("first", always(("upload", "open"), STAGES))
def test_two_may_vanish_in_two_stages(first: str) -> None:
    tables = tables_of(5)
    fed = federation(tables, 2, 2)
    for second in STAGES:
        for one, two in ((0, 3), (4, 1)):
            assert not isinstance(run(fed, tables, {one: first, two: second}), str)
            tables = moved(tables)
    run(fed, tables, {}, union=False)


LATER = product(("ready", "upload", "agree", "open"), repeat=2)


@pytest.mark.parametrize("stages", [pair if pair[0] == pair[1] else slow((pair,)) for pair in LATER])
def test_two_of_four_are_one_too_many_whenever_they_vanish(stages: tuple[str, str]) -> None:
    tables = tables_of(4)
    fed = federation(tables, 1, 2)
    assert run(fed, tables, {1: stages[0], 2: stages[1]}) == ("nothing" if stages == ("ready",) * 2 else "round")
    run(fed, moved(tables), {}, union=False)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"min_owners": 2}, {"min_owners": 3, "noise": 0.01}])
@given(data=st.data())
def test_whoever_vanishes_wherever_the_mean_is_over_u_or_the_round_is_lost(
    options: dict[str, Any], data: st.DataObject
) -> None:
    N = data.draw(st.integers(3, 6))
    D = data.draw(st.integers(1, N - 2))
    T = data.draw(st.integers(1, N - 1 - D))
    tables = tables_of(N)
    fed = federation(tables, D, T, batch=data.draw(st.integers(1, 3)), **options)
    for _ in range(3):
        absent = data.draw(st.sets(st.integers(0, N - 1), max_size=D))
        others = st.sampled_from([n for n in range(N) if n not in absent])
        vanish = data.draw(st.dictionaries(others, st.sampled_from(STAGES), max_size=D + 1))
        run(fed, tables, vanish, absent)
        tables = moved(tables)
        run(fed, tables, {}, union=False)


@pytest.mark.parametrize(("N", "D", "T"), always(FEW, [*FEW, (5, 2, 1), (5, 3, 1)]))
def test_absent_clients_use_up_drop_outs(N: int, D: int, T: int) -> None:
    tables = tables_of(N)
    fed = federation(tables, D, T)
    for away in range(1, D + 1):
        for stage in ("upload", *AFTER):
            for more in range(D - away + 2):
                lost = range(N - away)[:more]
                due = run(fed, tables, dict.fromkeys(lost, stage), range(N - away, N), union=False)
                assert (due == "round") == (away + more > D)
                tables = moved(tables)
    with pytest.raises(FederationError, match=f"a round needs {N - D} clients"):
        fed.round([*tables[: N - D - 1], *[None] * (D + 1)])
    run(fed, tables, {}, union=False)


# ------------------------------------------------------------------------------------------------------- new names


@pytest.mark.parametrize(
    "stage", always(("list", "evaluate", "table"), ("list", "confirm", "evaluate", "secret", "table", "batch"))
)
@pytest.mark.parametrize(("N", "D", "T"), [(4, 1, 1), *map(slow, [(5, 1, 2), (5, 2, 1), (5, 3, 1)])])
def test_who_vanishes_while_names_are_asked_is_left_out_until_the_next_round(
    stage: str, N: int, D: int, T: int
) -> None:
    for lost in combinations(range(1, N), D if 2 * (N - D) > N + T else 1):
        tables = tables_of(N)
        fed = federation(tables, D, T, max_entities=8, max_union=4 * N)
        run(fed, tables, {}, union=False)
        tables[0]["new"] = np.array([1.0, 2.0])
        tables[N - 1] = dict(tables[N - 1])
        fed.update(0, tables[0].keys(), vanish=dict.fromkeys(lost, stage))
        run(fed, tables, {}, union=False)
        tables = moved(tables)
        run(fed, tables, {lost[0]: "upload"}, union=False)
        assert fed.without_mean[0] == ()


def test_too_few_for_new_names_is_an_error_and_they_come_with_the_next_round() -> None:
    tables = tables_of(4)
    fed = federation(tables, 1, 2, max_entities=8, max_union=16)  # all four must confirm
    run(fed, tables, {}, union=False)
    more = [dict(table) for table in tables]
    more[0]["new"] = np.array([1.0, 2.0])
    for stage in ("list", "confirm", "evaluate"):
        with pytest.raises(FederationError, match="a change of entities needs 4 clients, and only 3 are here"):
            fed.update(0, more[0].keys(), vanish={2: stage})
        run(fed, tables, {}, union=False)
        run(fed, tables, {3: "upload"}, union=False)
    fed.update(0, more[0].keys())
    run(fed, more, {1: "open"}, union=False)
    run(fed, more, {}, union=False)


# ---------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_mask_keys_that_run_out_are_made_anew_in_the_middle(batch: int) -> None:
    tables = tables_of(4)
    fed = federation(tables, 1, 1, batch=batch)
    for number in range(1, 8):
        run(fed, tables, {}, union=False)
        tables = moved(tables)
        made = sum(hop.kind == "batch" and hop.receiver == "server" for hop in fed.traffic)
        assert made == 4 * -(-number // batch)
        assert fed.server.at.union == 1  # none of them costs a union


@pytest.mark.parametrize("batch", [1, 2])
def test_what_is_made_ahead_is_not_in_the_way_of_a_round(batch: int) -> None:
    tables = tables_of(4)
    fed = federation(tables, 1, 1, batch=batch)
    fed.prepare()
    for number in range(1, 6):
        before = len(fed.traffic)
        run(fed, tables, {}, union=False)
        assert all(hop.kind not in ("batch", "secrets") for hop in fed.traffic[before:])
        fed.prepare()
        assert fed.server.at.union == 1
        tables = moved(tables)
        assert fed.server.at.round == number
    fed.prepare()
    run(fed, tables, {2: "upload"}, union=False)
    fed.prepare()  # somebody vanished: the next union brings keys
    run(fed, tables, {}, union=False)
    run(fed, tables, {0: "agree"}, union=False)


@pytest.mark.parametrize("batch", [1, 2])
def test_who_vanishes_while_mask_keys_are_made_anew_is_left_out(batch: int) -> None:
    tables = tables_of(5)
    fed = federation(tables, 2, 1, batch=batch)
    for _ in range(batch):
        run(fed, tables, {}, union=False)
    assert run(fed, tables, {1: "batch", 4: "batch"}, union=False) == (0, 2, 3)
    run(fed, tables, {}, union=False)


def test_without_keys_a_client_begins_no_round() -> None:
    """What `prepared` is for: its mutant announces a round that is past the batch."""
    tables = tables_of(4)
    fed = federation(tables, 1, 1, batch=1)
    run(fed, tables, {}, union=False)
    fed.server.part.prepared = lambda at: True
    with pytest.raises(ProtocolError, match="for which there are no mask keys"):
        fed.round(tables)
    del fed.server.part.prepared
    run(fed, tables, {}, union=False)


# ----------------------------------------------------------------------------------------------------------- chunks


def small_chunks(patch: pytest.MonkeyPatch, size: int = 120) -> None:
    for module in (form_module, messages):
        patch.setattr(module, "CHUNK_BYTES", size)


def breaks_off(patch: pytest.MonkeyPatch, after: int) -> None:
    """Whoever is lost in a stage has sent so many of its chunks."""
    patch.setattr(exchange_module, "_all_but_last", lambda stream: islice(stream, after))


def upload_chunks(fed: Any) -> int:
    return int(fed.form.layout(Kind.UPLOAD, fed.params, fed.server.at, 0).chunks)


@pytest.mark.slow
@pytest.mark.parametrize(("N", "D", "T"), [(3, 1, 1), (5, 2, 1)])
def test_nothing_of_an_upload_that_breaks_off_is_in_the_sum(
    N: int, D: int, T: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch)
    tables = tables_of(N)
    fed = federation(tables, D, T)
    chunks = upload_chunks(fed)
    assert chunks > 2
    for after in range(chunks):
        breaks_off(monkeypatch, after)
        for lost in combinations(range(N), D):
            run(fed, tables, dict.fromkeys(lost, "upload"), union=False)
            tables = moved(tables)
        assert not fed.server.part._parts or fed.server.at.phase == REST
    breaks_off(monkeypatch, chunks)  # who vanishes after its last chunk is in the sum
    here = range(N - D)
    results = fed.round(tables, vanish=dict.fromkeys(range(N - D, N), "upload"))
    check(results, tables, range(N), here, fed.params)


def test_what_is_added_as_it_comes_spoils_the_sum_if_it_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of the test above."""
    small_chunks(monkeypatch)
    honest = KeyedServer.stream

    def at_once(self: KeyedServer, kind: Any, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        if kind is Kind.UPLOAD:
            self._add(sender, chunk, payload, at)
        else:
            honest(self, kind, sender, chunk, payload, at)

    monkeypatch.setattr(KeyedServer, "stream", at_once)
    tables = tables_of(4)
    fed = federation(tables, 1, 1)
    run(fed, tables, {}, union=False)
    with pytest.raises(ProtocolError, match="are not what the uploads add up to"):
        fed.round(tables, vanish={1: "upload"})


# ------------------------------------------------------------------------------------------------------------ plans


@pytest.mark.parametrize(("N", "D", "T"), always([*FEW, (7, 2, 2)], [*ALLOWED, (7, 2, 2)]))
@pytest.mark.parametrize("chunk", [1 << 21, 250])
def test_the_plan_is_what_is_sent_to_the_last_byte(
    N: int, D: int, T: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch, chunk)
    tables = tables_of(N)
    fed = federation(tables, D, T, batch=5)
    fed.round(tables)
    plan = secea.plan(fed.params, entities=fed.server.M, form=fed.form)
    assert plan.setup_bytes == sum(hop.size for hop in fed.traffic if hop.round == 0)
    assert plan.round_bytes == sum(hop.size for hop in fed.traffic if hop.round == 1)
    kinds: Counter[str] = Counter()
    for hop in fed.traffic:
        kinds[hop.kind] += hop.size
    assert plan.by_kind == dict(kinds)
    for number, phase in enumerate(("setup", "round")):
        up = sum(hop.size for hop in fed.traffic if hop.round == number and hop.receiver == "server")
        assert plan.sent_by_clients[phase] == up
    assert {"batch", "secrets", "vote", "votes", "opening"} <= set(plan.by_kind)


# ---------------------------------------------------------------------------------------------------------- latecomers


class Late:
    """Parties that are driven by hand, and one client whose messages are held back in one stage."""

    def __init__(self, late: int, stage: str) -> None:
        self.tables, self.late, self.stage = tables_of(4), late, stage
        self.parties = Parties.of(self.tables, Keyed(batch=4), dropouts=1, collusion=1)
        self.parties.setup()
        self.held: list[Buffer] = []
        self.refused = 0

    def phase(self) -> Iterator[str]:
        """All stages of a round; in one of them somebody is late."""
        parties, server = self.parties, self.parties.server
        parties.contribute(self.tables)
        server.begin("upload", server.at.members)
        while server.at.phase != REST:
            parties.exchange.deliver()
            stage, members = server.at.phase, server.at.members
            for n in members:
                out = list(parties.clients[n].outbox())
                if (n, stage) == (self.late, self.stage):
                    self.held = out
                    continue
                for message in out:
                    server.receive(n, message)
            server.close()
            yield stage
        parties.exchange.deliver()

    def deliver(self) -> None:
        """What was held back comes now: it is stale, and changes nothing."""
        server = self.parties.server
        for message in self.held:
            before = server.at, repr(server.collected), len(server.part._chunks), server.missing()  # type: ignore[attr-defined]
            with pytest.raises(Stale):
                server.receive(self.late, message)
            after = server.at, repr(server.collected), len(server.part._chunks), server.missing()  # type: ignore[attr-defined]
            assert after == before
            self.refused += 1

    def check(self, U: Iterable[int], here: Iterable[int]) -> None:
        for n in here:
            found = self.parties.means(n, self.tables[n])
            for name, row in zip(self.tables[n], found, strict=True):
                own = [self.tables[v][name] for v in U if name in self.tables[v]]
                assert np.abs(row - np.mean(own, axis=0)).max() < self.parties.session.params.resolution


@pytest.mark.parametrize("late", always((1,), range(4)))
@pytest.mark.parametrize("stage", ["upload", "agree", "open"])
def test_what_comes_after_its_stage_is_stale_and_changes_nothing(
    stage: str, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch, 200)
    world = Late(late, stage)
    for _ in world.phase():
        world.deliver()
    world.deliver()
    assert world.held
    others = [n for n in range(4) if n != late]
    world.check(others if stage == "upload" else range(4), others)
    parties = world.parties
    parties.server.drain()
    parties.union(range(4))  # everybody is back
    world.deliver()
    parties.contribute(world.tables)
    world.deliver()
    parties.exchange.run("upload", range(4))
    world.deliver()
    world.check(range(4), range(4))
    assert world.refused >= 4 * len(world.held)


def test_late_uploads_of_another_round_do_not_count_for_this_one() -> None:
    """Not even in the stage of uploads: they have the numbers of their own round."""
    world = Late(2, "upload")
    for _ in world.phase():
        pass
    parties = world.parties
    parties.server.drain()
    parties.union(range(4))
    parties.contribute(world.tables)
    parties.server.begin("upload", range(4))
    world.deliver()
    assert world.refused


def test_a_client_that_vanished_learns_nothing_of_the_round_and_is_back_with_the_next_union() -> None:
    world = Late(1, "upload")
    for _ in world.phase():
        pass
    client = world.parties.clients[1]
    assert client.at.phase == "upload"
    with pytest.raises(FederationError, match="no means"):
        world.parties.means(1, world.tables[1])
    world.parties.union(range(4))
    assert client.at.phase == REST
