"""A client of the keyed form by itself: what it may be announced, what it keeps, what it sends again, what it reads."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from secea.arithmetic.field import M61
from secea.audit.claims.common import Withheld
from secea.audit.views import Whole, WholeTable
from secea.errors import SERVER, FaultyPeer, FederationError, RoundLost, TableError
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.client import KeyedClient, Union
from secea.params import Params
from secea.party.phases import UNKNOWN, Agreement, Row
from secea.steps.means import Slot
from secea.table import Table, as_table
from secea.testing import Parties

TABLES: Final = [{"a": [1.0, 2.0], "b": [0.0, 1.0]}, {"a": [3.0, 4.0]}, {"b": [1.0, 1.0]}, {"a": [0.5, 0.0]}]


def brought(dropouts: int = 0, *, trained: bool = False, **more: Any) -> tuple[Parties, KeyedClient, Agreement]:
    """A federation with a union, the part of client 0, and what it agreed on; `trained`: it has a table."""
    parties = Parties.of(TABLES, Keyed(**more), collusion=1, dropouts=dropouts)
    parties.setup()
    if trained:
        parties.contribute(TABLES)
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    return parties, part, parties.clients[0].at


# ------------------------------------------------------------------------------------------------------------- tables


def test_a_table_that_was_in_order_for_other_entities_is_checked_again() -> None:
    """A client takes "b" back before the change came about: a table without it is no longer in order."""
    parties, part, _ = brought()
    lacking = {"a": [1.0, 2.0]}
    part.update(["a"])
    part.contribute(lacking, 1, parties.clients[0].at)
    part.update(["a", "b"])
    with pytest.raises(TableError, match="entity 'b' is in the set-up, but not in the table of this round"):
        part.contribute(lacking, 1, parties.clients[0].at)


def test_of_several_entities_that_are_missing_or_new_the_first_by_its_text_is_named() -> None:
    _, part, _ = brought()
    part.update(["x", 7])
    row = [1.0, 2.0]
    for table, told in (
        ({}, "entity 7 is in the set-up, but not in the table"),
        ({"x": row, 8: row}, "entity 7 is in the set-up, but not in the table"),
        ({7: row, "x": row, "y": row, 10: row, 9: row}, "entity 10 is in the table, but not in the set-up"),
    ):
        with pytest.raises(TableError, match=told):
            part.checked(table)


# ------------------------------------------------------------------------------------------------------ announcements


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("phase", ["commit", "list", "secret"])
def test_too_few_participants_are_refused_in_each_phase_by_its_own_bound(phase: str, dropouts: int) -> None:
    _, part, at = brought(dropouts)
    fewest = part.form.fewest(part.params, phase, 1)
    at = replace(at, phase=phase, names=1, members=tuple(range(fewest - 1)))
    with pytest.raises(ValueError, match=f"announces {fewest - 1} participants; we take part with {fewest} or more"):
        part.check_begin(at)


def test_all_take_part_in_the_first_epoch_of_names_and_fewer_in_later_ones() -> None:
    _, part, at = brought()
    at = replace(at, phase="list", members=(0, 1, 2))
    with pytest.raises(ValueError, match="announces 3 participants; we take part with 4 or more"):
        part.check_begin(replace(at, names=1))
    part.check_begin(replace(at, names=2))


@pytest.mark.parametrize("phase", ["list", "secret", "ready"])
@pytest.mark.parametrize("members", [(0, 1, 2, 3, 4), (0, 1, 2, 4)])
def test_clients_that_have_left_are_no_members(phase: str, members: tuple[int, ...]) -> None:
    _, part, at = brought()
    with pytest.raises(ValueError, match="members that have left"):
        part.check_begin(replace(at, phase=phase, members=members))


def test_a_round_needs_a_union_a_table_and_the_unions_members() -> None:
    _, part, at = brought(trained=True)
    at, union, table = replace(at, phase="upload", round=1), part.union, part.round
    assert union is not None
    assert table is not None
    part.check_begin(at)
    part.union = None
    with pytest.raises(ValueError, match="not ready for"):
        part.check_begin(at)
    part.union, part.round = union, None
    with pytest.raises(ValueError, match="not ready for"):
        part.check_begin(at)
    part.round = replace(table, begun=True)
    with pytest.raises(ValueError, match="not ready for"):
        part.check_begin(at)
    part.round = table
    for other in (replace(at, size=UNKNOWN), replace(at, members=(0, 1, 2))):
        with pytest.raises(ValueError, match="another union than ours"):
            part.check_begin(other)
    part.union = replace(union, spent=True)
    with pytest.raises(ValueError, match="another union than ours"):
        part.check_begin(at)


def test_a_client_trains_for_a_union_that_it_has_with_all_its_members() -> None:
    _, part, at = brought()
    at, union = replace(at, phase="ready"), part.union
    assert union is not None
    part.check_begin(at)
    with pytest.raises(ValueError, match="before there is a union"):
        part.check_begin(replace(at, size=UNKNOWN))
    with pytest.raises(ValueError, match="other members than the union has"):
        part.check_begin(replace(at, members=(0, 1, 2)))
    part.union = replace(union, spent=True)
    with pytest.raises(ValueError, match="other members than the union has"):
        part.check_begin(at)
    part.union = None
    with pytest.raises(ValueError, match="before there is a union"):
        part.check_begin(at)


def test_mask_keys_are_made_for_a_union_with_all_its_members_and_never_during_a_round() -> None:
    _, part, at = brought(1)
    at = replace(at, phase="batch")
    part.check_begin(at)
    for other in (replace(at, size=UNKNOWN), replace(at, members=(0, 1, 2))):
        with pytest.raises(ValueError, match="mask keys that are not due"):
            part.check_begin(other)
    _, part, at = brought(1, trained=True)
    with pytest.raises(ValueError, match="mask keys that are not due"):
        part.check_begin(replace(at, phase="batch"))


# ---------------------------------------------------------------------------------------------------- what one enters


@pytest.mark.parametrize("members", [(0, 1, 2, 3), (0, 1, 3)])
def test_a_union_is_spent_once_somebody_vanished_in_a_round(members: tuple[int, ...]) -> None:
    _, part, at = brought(1, trained=True)
    part.enter(replace(at, phase="upload", round=1))
    assert part.union is not None
    assert not part.union.spent
    part.enter(replace(at, phase="agree", round=1, members=members))
    assert part.union.spent == (len(members) < 4)


def test_means_belong_to_the_entities_that_had_them() -> None:
    parties, part, _ = brought()
    parties.round(TABLES)
    assert part.has_means
    parties.clients[0].part.update(["a", "c"])
    part.enter(replace(parties.clients[0].at, phase="list", names=2))
    assert part.names == ("a", "c")
    assert not part.has_means


def test_means_survive_names_that_did_not_change_and_a_restart() -> None:
    parties, part, at = brought()
    means = parties.round(TABLES)[0]
    part.enter(replace(at, phase="list", names=2))
    assert part.has_means
    parties.restart(0)
    again = parties.clients[0].part
    assert again is not part
    assert again.has_means
    np.testing.assert_array_equal(parties.means(0, TABLES[0]), means)


@pytest.mark.parametrize("dropouts", [0, 1])
def test_before_and_after_a_round_everybody_is_at_the_union(dropouts: int) -> None:
    parties, part, _ = brought(dropouts)
    for _ in range(2):
        assert part.union is not None
        assert {client.at.context for client in parties.clients.values()} == {part.union.context}
        assert parties.server.at.context == part.union.context
        parties.round(TABLES)


def test_after_more_mask_keys_everybody_is_back_at_the_union() -> None:
    parties, part, _ = brought(1, batch=1)
    parties.round(TABLES)
    parties.exchange.run("batch", range(4))
    assert part.union is not None
    assert {client.at.context for client in parties.clients.values()} == {part.union.context}
    parties.round(TABLES)


def test_means_are_given_away_once_as_they_are_or_in_another_order_and_type() -> None:
    parties, part, _ = brought()
    mine = {"b": [0.0, 1.0], "a": [1.0, 2.0]}
    for table, same in ((TABLES[0], True), (mine, False)):
        found = parties.round(TABLES)[0]
        assert part.result is not None
        matrix = part.result.matrix
        got = part.give_means(as_table(table))
        assert (got is matrix) is same
        np.testing.assert_array_equal(got, found if same else found[::-1])
        assert not part.has_means
        with pytest.raises(FederationError, match="client 0 has no means: no round was finished"):
            part.means_like(as_table(TABLES[0]))
    parties.round(TABLES)
    assert part.give_means(Table(("a", "b"), np.zeros((2, 2), np.float32))).dtype == np.float32


def test_before_the_first_round_nothing_is_known_of_any_mean() -> None:
    _, part, _ = brought()
    assert (part.without_mean, part.below_minimum, part.has_means) == ((), (), False)
    for asked in (part.means_like, part.give_means):
        with pytest.raises(FederationError, match="client 0 has no means: no round was finished"):
            asked(as_table(TABLES[0]))


def test_what_was_uploaded_counts_until_something_else_begins() -> None:
    _, part, at = brought(1, trained=True)
    part.enter(replace(at, phase="upload", round=3))
    assert part.uploaded == 3
    part.enter(replace(at, phase="ready", round=3))
    assert (part.uploaded, part.round) == (0, None)


@pytest.mark.parametrize("renamed", [False, True])
def test_in_one_round_a_client_says_the_same_however_often_it_is_asked(renamed: bool) -> None:
    _, part, at = brought()
    if renamed:
        part.update(["a", "c"])
    said = []
    for round_ in (1, 1, 2):
        part._say(replace(at, round=round_))
        assert part.union is not None
        said.append(part.union.said)
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize("min_owners", [1, 2])
def test_a_slot_is_marked_as_something_that_there_is(min_owners: int) -> None:
    """Without a minimum of owners no slot is below it; and one odd mark among others is enough."""
    parties = Parties.of(TABLES, Keyed(), collusion=1, min_owners=min_owners)
    parties.setup()
    parties.contribute(TABLES)
    parties.exchange.tap = server = Withheld(parties)
    parties.exchange.run("upload", range(4))
    (chunk,), part = server.chunks, parties.clients[0].part
    assert isinstance(part, KeyedClient)
    most, at = (Slot.EMPTY if min_owners == 1 else Slot.BELOW), parties.clients[0].at
    for mark in (most + 1, 255):
        with pytest.raises(FaultyPeer, match="marks a slot as something else than it can be"):
            part.stream(Kind.MEANS, SERVER, 0, 1, memoryview(chunk[:-1] + bytes([mark])), at)
    part.stream(Kind.MEANS, SERVER, 0, 1, memoryview(chunk), at)


# ------------------------------------------------------------------------------------------------- what goes out again


def given(part: KeyedClient, at: Agreement, table: dict[str, list[float]]) -> None:
    """The client contributes, and the round begins."""
    part.contribute(table, 1, at)
    part.enter(replace(at, phase="upload", round=at.round + 1))


def test_without_drop_outs_the_same_rows_may_go_to_the_same_members_again() -> None:
    _, part, at = brought()
    given(part, at, TABLES[0])
    given(part, at, TABLES[0])
    with pytest.raises(RoundLost, match="went out to 4 clients"):
        part.contribute(TABLES[0], 1, replace(at, members=(0, 1, 2)))
    with pytest.raises(RoundLost, match="other values"):
        part.contribute({"a": [1.0, 2.0], "b": [0.0, 2.0]}, 1, at)


def test_with_drop_outs_nothing_goes_out_again_even_to_the_same_members() -> None:
    _, part, at = brought(1)
    given(part, at, TABLES[0])
    with pytest.raises(RoundLost, match="went out to 4 clients"):
        part.contribute(TABLES[0], 1, at)
    part.contribute(TABLES[0], 2, at)


def test_rows_without_a_name_that_was_given_up_may_go_out_again() -> None:
    _, part, at = brought()
    part.update(["a"])
    given(part, at, {"a": [1.0, 2.0]})
    assert part.released.names == ("a",)
    given(part, at, {"a": [1.0, 2.0]})


# -------------------------------------------------------------------------------------------------------- what it says


@pytest.mark.parametrize("new", [3, 4, 9, 40])
def test_what_is_due_follows_from_what_the_user_does_and_not_from_what_had_room(new: int) -> None:
    parties = Parties.of(TABLES, Keyed(max_new_entities=3), collusion=1, max_entities=50, max_union=90)
    parties.setup()
    names = ["a", "b", *(f"new {i}" for i in range(new))]
    said = []

    def part() -> Any:
        return parties.clients[0].part

    def does(wanted: list[str], *, epoch: bool = False) -> None:
        part().update(wanted, at_once=False)
        said.append(part().renamed)
        if epoch:
            parties.exchange.run("list", range(4))
            parties.restart(0)
            parties.exchange.greet()
            parties.exchange.run("secret", range(4))
            said.append(part().renamed)

    does(["a", "b"])
    does(names)
    does(["a", "b"])
    does(names, epoch=True)
    does(names[::-1])
    does([*part().names], epoch=True)  # what had room, and nothing else
    does(names[1:], epoch=True)
    does(names[1:])
    assert said == [False, True, False, True, False, False, new > 3, False, True, False, False]
    assert {*part().names, *part().waiting} == {*names[1:]} == {*part().next_names}


@pytest.mark.parametrize("drawn", [0, 1, M61 - 2, M61 - 1, M61, M61 + 7, 2**256 - 1])
def test_whoever_has_other_entities_says_a_random_element_that_is_not_zero(drawn: int) -> None:
    alone: Any = SimpleNamespace(
        number=0, union=Union(b"", b""), renamed=True, _entropy=lambda size: drawn.to_bytes(size, "little")
    )
    KeyedClient._say(alone, Agreement(round=1))
    assert alone.union.said == (1, (1 + drawn % (M61 - 1)).to_bytes(8, "little"))


# -------------------------------------------------------------------------------------------------------- what it reads


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("beyond", "there"), [(0.0, True), (3.0, False), (1000.0, False)])
def test_a_mean_counts_up_to_the_largest_that_honest_owners_can_have(beyond: float, there: bool, sign: int) -> None:
    """The largest honest value is max_abs and half of the coarsest grid; noise moves it by less than the resolution."""
    dim = 1000
    tables = [{"a": np.full(dim, 64.0)}, {"b": np.zeros(dim)}]
    parties = Parties.of(tables, Keyed(), max_abs=64.0)
    parties.setup()
    parties.contribute(tables)
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    assert part.round is not None
    values = np.zeros((1, dim), np.int64)
    values[:, : 1 if beyond else dim] = sign * round((65.0 + beyond * part.params.resolution) * 2**part.numbers.f)
    part.tables = Whole(part)
    part.round = replace(part.round, table=WholeTable(["a"], values.astype(np.float64), numbers=values))
    parties.exchange.run("upload", range(2))
    assert part.without_mean == (() if there else ("a",))
    assert parties.clients[1].part.without_mean == ()


# ------------------------------------------------------------------------------------------------------------ the union


@pytest.mark.parametrize("tags", [[3, 5, 4], [3, 5, 5], [5, 3, 4], [4, 3], [1, 2, M61], [3, 9, 7, 8]])
def test_tags_that_do_not_grow_are_refused(tags: list[int]) -> None:
    _, part, at = brought()
    with pytest.raises(FaultyPeer, match="tags that are out of order"):
        part._got_tags(replace(at, size=len(tags)), {(Kind.TAGS, SERVER): np.array(tags, "<u8").tobytes()})


@pytest.mark.parametrize("tags", [[], [1], [1, 2, 3], [M61 - 1]])
def test_whoever_misses_its_tags_continues_without_slots(tags: list[int]) -> None:
    _, part, at = brought()
    found = part._got_tags(at, {(Kind.TAGS, SERVER): np.array(tags, "<u8").tobytes()})
    assert found.size == len(tags)
    assert part.union is not None
    assert part.union.slots.size == part.union.order.size == 0


# ----------------------------------------------------------------------------------------------------------- the phases


def rows_of(dropouts: int) -> dict[str, Row]:
    """The phases, as a federation of four has them."""
    return {row.phase: row for row in Keyed().table(Params(clients=4, dim=1, dropouts=dropouts))}


@pytest.mark.parametrize("dropouts", [0, 1])
def test_what_begins_again_is_announced_and_comes_before_what_was_lost(dropouts: int) -> None:
    order = ["commit", "deal", "list", "confirm", "evaluate", "secret"]
    order += ["table", "batch", "ready", "upload", "agree", "open"]
    rows = rows_of(dropouts)
    again = {phase: row.on_loss for phase, row in rows.items()}
    assert again.pop("end") == ""
    for phase, first in again.items():
        assert order.index(first) <= order.index(phase)
        assert rows[first].announced
    assert {phase for phase, first in again.items() if first == "commit"} == {"commit", "deal"}
    assert {phase for phase, first in again.items() if first == "list"} == {"list", "confirm", "evaluate"}


def test_only_rounds_go_on_without_some_and_only_they_are_lost() -> None:
    with_losses, without = rows_of(1), rows_of(0)
    assert [phase for phase, row in with_losses.items() if row.tolerates] == ["upload", "agree", "open"]
    assert [phase for phase, row in with_losses.items() if row.loses_round] == ["upload", "agree", "open"]
    assert [phase for phase, row in without.items() if row.tolerates] == []
    assert [phase for phase, row in without.items() if row.loses_round] == ["upload"]


# ---------------------------------------------------------------------------------------------------------- first names


@pytest.mark.parametrize("names", [3, 30, 50])
def test_a_server_that_withholds_the_first_answers_does_not_learn_how_many_names_wait_for_them(names: int) -> None:
    tables = [{f"e{i}": [1.0] for i in range(names)}, {"a": [1.0]}, {"b": [1.0]}, {"c": [1.0]}]
    parties = Parties.of(tables, Keyed(), collusion=1)
    parties.exchange.greet()
    parties.server.begin("commit", range(4))
    parties.exchange.deliver()
    while parties.server.at.phase != "evaluate":
        parties.exchange.step()
    parties.server.give_up()
    parties.server.drain()
    parties.server.at = replace(parties.server.at, named=1)
    parties.server.begin("list", range(4))
    for n, inbox in parties.server.drain().items():
        with pytest.raises(FaultyPeer, match="epoch 2 of names before the first one was answered"):
            parties.clients[n].receive(inbox[-1])
    parties.server.at = replace(parties.server.at, phase="rest", names=1, named=1)
    parties.server.begin("list", range(4), names=1)
    parties.exchange.deliver()
    assert {client.at.phase for client in parties.clients.values()} == {"list"}
