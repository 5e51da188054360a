"""Clients that vanish in the middle of any stage: every subset of them, every stage, and they come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, cycle
from typing import Any, Final

import numpy as np
import pytest

from federation import Hop, Parties
from secea import FederationError
from secea.client import Phase as ClientPhase
from secea.server import Phase
from world import BOTH, Ledger, World, few_each

SETUP_STAGES: Final = ("greeting", "secret", "table", "query", "opening", "reshare")
WEIGHT_STAGES: Final = ("opening", "reshare")
ROUND_STAGES: Final = ("share", "answer")
FEDERATIONS: Final = [(5, 1, 1), (5, 1, 2), (7, 2, 2)]
"""N, T, D."""
EVERY_STAGE: Final = [(5, 1, 2)]
"""Those of which every subset is lost in every stage of the set-up; the others try each subset in one of the stages."""


def setup_stages(form: str) -> tuple[str, ...]:
    return tuple(s for s in SETUP_STAGES if form == "reciprocal" or s not in WEIGHT_STAGES)


SETUPS: Final = [(form, stage) for form in BOTH for stage in setup_stages(form)]
ROUNDS: Final = [(form, stage) for form in BOTH for stage in ROUND_STAGES]


def subsets(clients: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every set of one to `most` clients."""
    for size in range(1, most + 1):
        yield from combinations(range(clients), size)


def test_every_subset_of_up_to_d_clients_is_tried() -> None:
    assert [len(list(subsets(N, D))) for N, _, D in FEDERATIONS] == [5, 15, 28]


def world(form: str, clients: int, collusion: int, dropouts: int) -> World:
    dim = 1 if form == "paillier" and clients == 7 else 2  # ciphertexts are what takes long
    return World(few_each(clients), form, collusion=collusion, dropouts=dropouts, dim=dim)


# ----------------------------------------------------------------------------------------------- set-up and new epochs


def lose(there: World, stage: str, lost: tuple[int, ...]) -> None:
    """They vanish in this stage of a set-up; the others have their means; and then they come back."""
    if stage == "greeting" or there.fed.params.clients == 5:
        there.setup(vanish=dict.fromkeys(lost, stage))
    else:  # a new epoch is a set-up without greeting, and costs less
        there.fed.update(2, there.sets[2], vanish=dict.fromkeys(lost, stage))
    if stage != "reshare":  # in that one who has nothing to re-share is not missed
        server, weighted = there.fed.server, there.fed.session.form.weighted
        assert not set(lost) & set(server.contributors if weighted else server.query_members)
    there.round(absent=lost)
    if there.fed.params.clients == 5:  # seven come back in the set-up of the next subset
        there.round()


@pytest.mark.parametrize(("clients", "collusion", "dropouts"), EVERY_STAGE)
@pytest.mark.parametrize(("form", "stage"), SETUPS)
def test_whoever_vanishes_in_the_set_up_is_left_out_and_comes_back(
    form: str, stage: str, clients: int, collusion: int, dropouts: int
) -> None:
    there = world(form, clients, collusion, dropouts).setup()
    for lost in subsets(clients, dropouts):
        lose(there, stage, lost)
    there.round()


@pytest.mark.parametrize(("clients", "collusion", "dropouts"), sorted({*FEDERATIONS, (7, 1, 2)} - {*EVERY_STAGE}))
@pytest.mark.parametrize("form", BOTH)
def test_one_after_the_other_every_subset_vanishes_in_some_stage_of_the_set_up_and_comes_back(
    form: str, clients: int, collusion: int, dropouts: int
) -> None:
    there = world(form, clients, collusion, dropouts).setup()
    stages = cycle(setup_stages(form))
    for lost, stage in zip(subsets(clients, dropouts), stages, strict=False):
        lose(there, stage, lost)
    there.round()


# ------------------------------------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize(("clients", "collusion", "dropouts"), FEDERATIONS)
@pytest.mark.parametrize(("form", "stage"), ROUNDS)
def test_whoever_vanishes_from_a_round_gets_nothing_the_others_their_means_and_the_next_round_is_right(
    form: str, stage: str, clients: int, collusion: int, dropouts: int
) -> None:
    there = world(form, clients, collusion, dropouts).setup()
    for lost in subsets(clients, dropouts):
        there.round(vanish=dict.fromkeys(lost, stage))
        if clients == 5:  # of seven, those who are not lost again are back in the round of the next subset
            there.round()
    there.round()


@pytest.mark.parametrize("stage", ROUND_STAGES)
def test_any_four_of_seven_may_vanish(stage: str) -> None:
    there = world("reciprocal", 7, 1, 4).setup()
    for lost in combinations(range(7), 4):
        there.round(vanish=dict.fromkeys(lost, stage))
    there.round()


@pytest.mark.parametrize(("clients", "collusion", "dropouts"), FEDERATIONS)
@pytest.mark.parametrize("stage", WEIGHT_STAGES)
def test_whoever_vanishes_while_weights_are_renewed_is_left_out_of_the_round_and_comes_back(
    stage: str, clients: int, collusion: int, dropouts: int
) -> None:
    there = world("reciprocal", clients, collusion, dropouts).setup()
    for lost in subsets(clients, dropouts):
        # One of them is absent from the start, and the others vanish while weights are made for those who are there;
        # a single one vanishes while weights are made for all, since someone was absent in the round before.
        absent, vanishing = lost[:1], lost[1:]
        if vanishing:
            there.round(absent=absent, vanish=dict.fromkeys(vanishing, stage))
        else:
            there.round(absent=[(lost[0] + 1) % clients])
            there.round(vanish=dict.fromkeys(lost, stage))
        there.round()


@pytest.mark.parametrize("stage", WEIGHT_STAGES)
def test_whoever_vanishes_while_weights_are_made_is_there_in_the_very_next_round(stage: str) -> None:
    there = world("reciprocal", 5, 1, 2).setup()
    for lost in subsets(5, 2):  # with `need` = 3, clients 3 and 4 re-share nothing, and are not missed
        there.fed.update(2, there.sets[2], vanish=dict.fromkeys(lost, stage))
        there.round()


def test_clients_may_vanish_one_after_the_other_in_different_stages_of_one_round() -> None:
    there = world("reciprocal", 7, 1, 4).setup()
    for at in ({0: "share", 3: "answer"}, {1: "share", 2: "opening"}, {4: "share", 5: "reshare", 6: "answer"}):
        there.round(vanish=at)
        there.round()


@pytest.mark.parametrize("form", BOTH)
def test_clients_may_vanish_one_after_the_other_in_different_stages_of_the_set_up(form: str) -> None:
    there = world(form, 7, 1, 4)
    there.setup(vanish={0: "greeting", 1: "secret", 2: "table", 3: "query"})
    there.round(absent=[0, 1, 2, 3])
    there.round()


# --------------------------------------------------------------------------------- lost before anything is announced


def leave(parties: Parties, stage: str, lost: Iterable[int]) -> None:
    """Those who are lost send nothing in this stage, nor after it."""
    parties.until(Phase(stage))
    parties.present -= set(lost)
    parties.setup()
    assert not parties.present & set(lost)


def come_back(parties: Parties, *, weights: bool) -> None:
    """Everyone is there again, in a new epoch or with new weights."""
    parties.present = set(parties.clients)
    if weights and parties.session.form.weighted:
        parties.other_weights(parties.present)
    elif not weights:
        parties.another_epoch()
    parties.goes_on("back")


@pytest.mark.parametrize(("form", "stage"), [case for case in SETUPS if case[1] != "greeting"])
def test_whoever_is_silent_in_a_stage_of_the_set_up_is_left_out_and_comes_back(form: str, stage: str) -> None:
    parties = Parties(few_each(5), form=form, dropouts=2, dim=2)
    parties.setup()
    for lost in subsets(5, 2):
        delivered = parties.waiting()
        parties.server.begin_epoch(parties.present)
        parties.down(lambda hop, old=delivered: () if hop.message in old else [hop])  # type: ignore[misc]
        leave(parties, stage, lost)
        server = parties.server
        if stage != "reshare":
            assert not set(lost) & set(server.contributors if stage == "opening" else server.query_members)
        if stage == "reshare" and set(lost) & set(server.contributors):
            parties.round(parties.tables())  # who re-shares nothing is missed here: the round is given up
            assert all(parties.clients[n].means is None for n in parties.present)
        parties.goes_on(lost)
        come_back(parties, weights=False)


@pytest.mark.parametrize("form", BOTH)
def test_whoever_does_not_say_hello_is_left_out_and_comes_back(form: str) -> None:
    for lost in subsets(5, 2):
        parties = Parties(few_each(5), form=form, dropouts=2, dim=2)
        leave(parties, "greeting", lost)
        parties.goes_on(lost)
        for n in lost:
            for message in parties.clients[n].outbox():
                parties.server.receive(n, message)
        come_back(parties, weights=False)


@pytest.mark.parametrize(("form", "stage"), ROUNDS)
def test_whoever_is_silent_in_a_stage_of_a_round_costs_the_others_no_mean(form: str, stage: str) -> None:
    parties = Parties(few_each(5), form=form, dropouts=2, dim=2)
    parties.setup()
    for lost in subsets(5, 2):
        tables = parties.tables(lost)
        parties.begin(tables)
        leave(parties, stage, lost)
        if stage == "share" and form == "reciprocal":  # the round is given up, and weights are made for the others
            assert all(parties.clients[n].means is None for n in parties.clients)
            parties.round(tables)
        parties.check(tables, contributors=range(5) if stage == "answer" else None)
        for n in lost:
            parties.clients[n].abandon()
            assert parties.clients[n].means is None
        come_back(parties, weights=stage == "share")


@pytest.mark.parametrize("stage", WEIGHT_STAGES)
def test_whoever_is_silent_while_weights_are_renewed_is_left_out(stage: str) -> None:
    parties = Parties(few_each(5), dropouts=2, dim=2)
    parties.setup()
    for lost in subsets(5, 2):
        delivered = parties.waiting()
        parties.server.begin_weights(parties.present)
        parties.down(lambda hop, old=delivered: () if hop.message in old else [hop])  # type: ignore[misc]
        leave(parties, stage, lost)
        assert not set(lost) & set(parties.server.contributors if stage == "opening" else parties.server.resharers)
        come_back(parties, weights=True)


# ---------------------------------------------------------------------------------------------------------- too many


def nobody_has_means(there: World) -> None:
    assert all(client.means is None for client in there.fed.clients.values())
    assert all(client.phase is ClientPhase.READY for client in there.fed.clients.values())


@pytest.mark.parametrize(("clients", "collusion", "dropouts"), [(5, 1, 2), (7, 2, 2)])
@pytest.mark.parametrize(("form", "stage"), ROUNDS)
def test_more_losses_than_can_be_borne_give_no_result_to_anyone_and_the_next_round_is_right(
    form: str, stage: str, clients: int, collusion: int, dropouts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    there = world(form, clients, collusion, dropouts).setup()
    fewest = there.fed.server.fewest
    for size in range(clients - fewest + 1, clients + 1):
        for lost in list(combinations(range(clients), size))[:: 5 if clients == 5 else 17]:
            number, left = there.fed.server.round, sorted(set(range(clients)) - set(lost))
            what = f"{len(left)} clients (answered in round|took part in the stage 'share')"
            with pytest.raises(FederationError, match=rf"{what}.*{fewest} are needed"):
                there.round(vanish=dict.fromkeys(lost, stage))
            nobody_has_means(there)
            assert there.fed.server.round > number, "a number that was given up is not used again"
            there.round()
    ledger.check()


@pytest.mark.parametrize(("form", "stage"), SETUPS)
def test_a_set_up_that_too_few_survive_is_a_clear_error_and_a_later_one_works(
    form: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    there = world(form, 5, 1, 2)
    for lost in ((0, 1, 2), (1, 2, 3, 4), (0, 1, 2, 3, 4)):
        left = r"\d" if stage == "reshare" else 5 - len(lost)  # who re-shares nothing is not missed at once
        with pytest.raises(FederationError, match=rf"\b{left} clients .*; 3 are needed"):
            there.setup(vanish=dict.fromkeys(lost, stage))
    there.setup()
    there.round()
    for lost in ((2, 3, 4), (0, 2, 4)):  # a set-up that fails leaves the one before it
        with pytest.raises(FederationError, match=r"2 clients .*; 3 are needed"):
            there.setup(vanish=dict.fromkeys(lost, stage))
        there.round()
    ledger.check()


@pytest.mark.parametrize(("form", "stage"), [case for case in SETUPS if case[1] != "greeting"])
def test_an_epoch_that_too_few_survive_is_a_clear_error_and_the_next_round_works(form: str, stage: str) -> None:
    there = world(form, 5, 1, 2).setup()
    for lost in ((0, 1, 2), (1, 2, 4), (2, 3, 4)):
        with pytest.raises(FederationError, match=r"2 clients .*; 3 are needed"):
            there.fed.update(0, ["another"], vanish=dict.fromkeys(lost, stage))
        there.round()


@pytest.mark.parametrize("stage", WEIGHT_STAGES)
def test_weights_that_too_few_survive_are_a_clear_error_and_the_next_round_works(stage: str) -> None:
    there = world("reciprocal", 5, 1, 2).setup()
    for lost in combinations(range(5), 3):
        with pytest.raises(FederationError, match=r"2 clients .*; 3 are needed"):
            there.round(absent=lost[:1], vanish=dict.fromkeys(lost[1:], stage))
        there.round()


@pytest.mark.parametrize("form", BOTH)
def test_answers_that_come_too_late_are_told_apart_from_wrong_ones(form: str) -> None:
    parties = Parties(few_each(5), form=form, dropouts=2, dim=2)
    parties.setup()
    tables, late = parties.tables(), list[Hop]()

    def delay(hop: Hop) -> Iterable[Hop]:
        late.extend([hop] if hop.carrier == 3 else [])
        return [] if hop.carrier == 3 else [hop]

    parties.begin(tables)
    parties.until(Phase.ANSWER)
    parties.exchange(delay)
    assert late
    for hop in late:
        assert "comes too late" in parties.refused(hop).fault
    parties.check(tables)


# ------------------------------------------------------------------------------------ entities that nobody present owns


@pytest.mark.parametrize("form", BOTH)
def test_an_entity_whose_owners_are_all_absent_is_asked_for_by_nobody_and_is_back_with_its_owners(
    form: str,
) -> None:
    sets: list[Any] = [["a"], ["a", "b"], ["b"], ["c", "a"], ["c"]]
    there = World(sets, form, dropouts=2, max_entities=3, max_union=5).setup()
    there.round()
    there.round(absent=[3, 4])
    there.round(absent=[3, 4])
    there.round(vanish={3: "share", 4: "share"})
    there.round(vanish={3: "answer", 4: "answer"})
    there.fed.update(0, ["a", "d"], absent=[3, 4])
    there.sets[0] = ["a", "d"]
    assert there.fed.server.M == 3  # a, b, d: in an epoch without its owners it is no part of the union
    there.round(absent=[3, 4])
    there.round(absent=[4])
    tables = there.tables()
    means = there.fed.round(tables)
    truth = np.mean([tables[3]["c"], tables[4]["c"]], axis=0)
    assert np.abs(means[3]["c"] - truth).max() <= there.fed.params.resolution
    there.check(tables, means, set(range(5)), set())
