"""The program of a server that deviates: its stage sees what happens, its book what opens, and each lie is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from secea.audit import KEYED, PAILLIER, Subject, claim, report
from secea.audit.attacks import deviating
from secea.audit.attacks.deviating import Episode, Played, Program, deviations, difference, table
from secea.audit.attacks.keyed import Overheard
from secea.audit.attacks.lies import PLAIN, SMALL, TOLERANT, WENT_ON, WORLDS, Deviation, Play, Setting, stage_of
from secea.audit.attacks.lies.means import divided, element, rewritten, summed, wrong_slot
from secea.audit.attacks.lies.relayed import wrong_words
from secea.audit.attacks.stage import Stage
from secea.audit.mutants.common import ShortLists
from secea.audit.registry import all_mutants, product
from secea.errors import SERVER, FederationError
from secea.forms.keyed.form import Kind
from secea.party.phases import STOPPED

SUBJECT = product()[KEYED]


def ready(setting: Setting = PLAIN, world: int = 0, subject: Subject = SUBJECT) -> Stage:
    stage = stage_of(subject, setting, world)
    assert stage.setup()
    return stage


# ------------------------------------------------------------------------------------------------------------ the stage


@pytest.mark.parametrize("setting", [PLAIN, SMALL, TOLERANT], ids=str)
def test_where_a_server_follows_both_worlds_look_alike_and_all_means_are_right(setting: Setting) -> None:
    stages = [ready(setting, world) for world in (0, 1)]
    for stage in stages:
        assert stage.round()
        stage.recover()
        assert stage.accepted == dict.fromkeys(stage.everyone, 2)
        assert (stage.wrong, stage.linked, stage.twice) == ([], [], [])
        assert not any(stage.refusals.values())
        assert stage.book.objections(setting.clients, setting.dropouts, setting.collusion) == []
    assert difference(stages[0].trace, stages[1].trace) == ""


def test_the_worlds_have_other_owners_and_the_same_number_of_entities() -> None:
    for one, other in WORLDS.values():
        assert one.keys() == other.keys()
        assert {name: tuple(own) for name, own in one.items()} != {name: tuple(own) for name, own in other.items()}


def test_a_wrong_mean_that_is_accepted_is_noted() -> None:
    stage = ready()
    summed(stage)
    stage._used = {key: {name: row + 1 for name, row in sent.items()} for key, sent in stage._used.items()}
    for n in stage.everyone:
        assert stage.show(n, Kind.MEANS, divided(stage))
    assert {said.split()[1] for said in stage.wrong} == {str(n) for n in stage.everyone}


def test_a_mean_that_is_refused_is_nobodys_and_the_server_is_suspected() -> None:
    stage = ready()
    summed(stage)
    wrong = rewritten(element(0, 0))(stage, divided(stage))
    assert not any(stage.show(n, Kind.MEANS, wrong) for n in stage.everyone)
    assert stage.accepted == {}
    assert all(SERVER in stage.refusals[n][0].suspects for n in stage.everyone)
    assert {stage.at(n).phase for n in stage.everyone} == {STOPPED}
    stage.recover()


def test_what_shows_how_many_entities_a_client_has_is_noted_as_a_difference() -> None:
    short = Subject(Overheard(of_client=ShortLists))
    traces = []
    for world in (0, 1):
        stage = stage_of(short, PLAIN, world)
        stage.setup()
        traces.append(stage.trace)
    assert "LIST" in difference(*traces)


def test_a_difference_is_the_first_one() -> None:
    assert difference([("a", 1)], [("a", 1)]) == ""
    assert "event 2 of 2: ('b', 2) in one world, ('c', 2)" in difference([("a", 1), ("b", 2)], [("a", 1), ("c", 2)])
    assert difference([("a", 1)], []).endswith("nothing in the other")


def test_an_announcement_with_one_thing_wrong_changes_nothing() -> None:
    stage = ready(SMALL)
    before = {n: (stage.at(n), stage.sends(n)) for n in stage.everyone}
    for n in stage.everyone:
        for phase, members, more in wrong_words(stage, n):
            assert not stage.say(phase, members, n, **more), (phase, members, more)
    assert {n: (stage.at(n), stage.sends(n)) for n in stage.everyone} == before
    assert stage.round()


# ------------------------------------------------------------------------------------------------------------- the book


def test_before_an_opening_nothing_opens_and_after_it_only_the_sum_over_u() -> None:
    stage = ready(TOLERANT)
    stage.upload()
    assert stage.book.opened((1,)) == {}
    U = stage.everyone[:-1]
    assert set(stage.openings(stage.votes(U))) == set(U)
    assert stage.book.opened((1,)) == {1: {(0, 2, 3, 4, 5)}}
    assert stage.book.opened(()) == {1: {U}}
    assert stage.book.both() == []


def test_with_as_many_friends_as_t_every_upload_opens() -> None:
    stage = ready(TOLERANT)
    stage.upload()
    friends = stage.everyone[: stage.t]
    assert stage.book.opened(friends) == {1: {(5,), (6,), (5, 6)}}
    assert stage.book.opened(friends[1:]) == {}
    assert stage.book.objections(7, 2, stage.t)


def test_without_drop_outs_the_sum_over_all_opens_by_itself() -> None:
    stage = ready(PLAIN)
    stage.upload()
    assert stage.book.opened(()) == {1: {stage.everyone}}
    assert stage.book.opened((0, 3)) == {1: {(1, 2, 4)}}


# ---------------------------------------------------------------------------------------------------------- the program


@pytest.mark.parametrize("form", [KEYED, PAILLIER])
def test_each_deviation_has_a_name_and_those_that_mutants_ask_for_exist(form: str) -> None:
    names = [each.name for each in deviations(product()[form])]
    assert len(set(names)) == len(names)
    asked = {
        name for mutant in all_mutants().values() if form in mutant.subjects for name in mutant.subjects[form].first
    }
    assert asked <= set(names)
    assert asked


def test_thorough_tries_all_that_is_tried_otherwise() -> None:
    some = {each.name for each in deviations(SUBJECT)}
    assert some < {each.name for each in deviations(replace(SUBJECT, thorough=True))}


def test_an_episode_says_what_clients_did_in_both_worlds() -> None:
    episode = Program(SUBJECT).episode(Deviation("a slot", wrong_slot(0), PLAIN))
    assert episode == Episode("a slot", {"one slot wrong, for everybody": {"refused": 10}})


def _few(subject: Subject) -> Iterator[Deviation]:
    def quiet(play: Play) -> None:
        play.stage.round()
        play.outcome("nothing at random", dict.fromkeys(play.stage.everyone, 0))

    def broken(play: Play) -> None:
        raise FederationError("no luck")

    yield Deviation("quiet", quiet, PLAIN)
    yield Deviation("broken", broken, PLAIN)


def test_deviations_are_tried_once_and_an_error_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviating, "deviations", _few)
    played = Played(SUBJECT)
    for _ in range(2):
        some = iter(played)
        assert next(some).did == {"nothing at random": {WENT_ON: 10}}
        with pytest.raises(FederationError, match="no luck"):
            next(some)
    assert len(played.done) == 2
    assert Played(replace(SUBJECT, first=("broken",))).due[0].name == "broken"


def test_after_each_deviation_the_federation_must_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(play: Play) -> None:
        monkeypatch.setattr(Stage, "round", lambda _: False)

    with pytest.raises(AssertionError, match="does not work any more"):
        Program(SUBJECT).episode(Deviation("broken", broken, PLAIN))


# ------------------------------------------------------------------------------------------------------------ the table

COLUMNS = "the server, clients, went on, ignored, refused, no result, wrong means, shows owners, gets too much"


def test_the_table_has_a_row_for_each_kind_and_names_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = [
        Episode("one", {"a lie": {"refused": 3, "went on": 1}}, wrong=("client 0 takes it",)),
        Episode("two", {"a lie": {"ignored": 2}, "lies at random": {"no result": 5}}, depends="something"),
    ]
    monkeypatch.setattr(deviating, "played", lambda _: episodes)
    rows = table(SUBJECT)
    assert ", ".join(rows[0]) == COLUMNS
    assert list(rows[0].values()) == ["a lie", 6, 1, 2, 3, 0, 1, "yes", "no"]
    assert list(rows[1].values()) == ["lies at random, seeds 1 to 2", 5, 0, 0, 0, 5, 0, "yes", "no"]


def test_a_claims_table_is_shown_under_its_form_and_is_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, str | int] = {"the server": "lies", "clients": 1234, "shows owners": "no"}

    def lying(_: Subject) -> int:
        """Keyed: nobody believes it."""
        return 1

    tried = claim("attack", KEYED, mutants=(), title="A server that deviates", table=lambda _: [row])(lying)
    asked: dict[str, Any] = {"forms": (KEYED,), "thorough": False}
    assert report.run([tried], None, **asked, as_json=False)[0]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["A", "server", "that", "deviates"] in lines
    assert ["lies", "1,234", "no"] in lines
    assert report.run([tried], None, **asked, as_json=True)[0]
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["title"], found["table"]) == ("A server that deviates", [row])
