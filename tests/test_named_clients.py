"""Laws of clients' names: a mapping in, a mapping out, and whatever is said of a client says its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea import CallError, FaultyPeerOrRelay, Federation, Params, ProtocolError, RoundLost, Table, aggregate
from secea.engines.members import Members
from secea.errors import TableError, TableTypeError
from secea.forms import FormName
from secea.wire.messages import Buffer

law = settings(deadline=None)
NAMES = ("north", "south", "west", "east")
SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
forms = pytest.mark.parametrize("form", ["keyed", "paillier"])


def tables(*names: str) -> dict[str, dict[str, list[float]]]:
    """Client n has an entity of its own, and `all`, which is n there."""
    return {name: {f"of {name}": [9.0], "all": [float(NAMES.index(name))]} for name in names or NAMES}


def federation(*names: str, form: FormName = "keyed", **params: Any) -> Federation:
    own = tables(*names)
    small = SMALL if form == "paillier" else {}
    fed = Federation(Params(**{"clients": len(own), "dim": 1, "collusion": 1, **small, **params}), form)
    fed.setup(own)
    return fed


def means(found: dict[str, Any]) -> dict[str, Any]:
    return {name: None if own is None else round(float(own["all"][0]), 4) for name, own in found.items()}


# ----------------------------------------------------------------------------------------------------------- in and out


@settings(deadline=None, max_examples=5)
@given(st.permutations(NAMES))
def test_results_come_under_the_names_in_the_order_of_the_tables(order: list[str]) -> None:
    given_ = tables(*order)
    found = aggregate(given_)
    assert list(found) == order
    assert means(found) == dict.fromkeys(order, 1.5)
    assert all(own.keys() == given_[name].keys() for name, own in found.items())


@forms
def test_each_round_takes_its_tables_by_name_whatever_their_order(form: FormName) -> None:
    fed = federation(form=form)
    for order in (NAMES, NAMES[::-1]):
        assert means(fed.round(tables(*order))) == dict.fromkeys(NAMES, 1.5)
    listed = fed.round([*tables().values()])
    assert isinstance(listed, list)
    assert [round(float(own["all"][0]), 4) for own in listed] == [1.5] * 4


def test_who_is_not_in_a_rounds_mapping_is_absent_as_is_who_is_none_in_it() -> None:
    fed = federation()
    without = {name: own for name, own in tables().items() if name != "south"}
    assert means(fed.round(without)) == dict.fromkeys(without, round(5 / 3, 4))
    assert means(fed.round({**without, "south": None})) == {**dict.fromkeys(without, round(5 / 3, 4)), "south": None}
    assert means(fed.round(tables())) == dict.fromkeys(NAMES, 1.5)


def test_weights_are_given_by_client_too() -> None:
    nothing = [1, 0]  # of `all`, which is the second row
    weights: dict[str, Any] = {"north": {"all": 0, "of north": 1}, "south": nothing, "west": nothing, "east": [1, 100]}
    assert all(abs(mean - 3) < 0.05 for mean in means(aggregate(tables(), weights=weights)).values())
    fed = federation(max_weight=100)
    assert all(abs(mean - 3) < 0.05 for mean in means(fed.round(tables(), weights=weights)).values())
    with pytest.raises(TableError, match="client west: the rows have no weights, and means are weighted here"):
        fed.round(tables(), weights={name: own for name, own in weights.items() if name != "west"})
    with pytest.raises(CallError, match="there is no client 'est'; the clients are north, south, west, east"):
        fed.round(tables(), weights={"est": [1, 1]})


def test_unknown_names_are_refused_with_those_that_are_known() -> None:
    fed = federation()
    known = "there is no client 'est'; the clients are north, south, west, east"
    calls: list[Any] = [
        lambda: fed.round({"est": {}}),
        lambda: fed.update("est", []),
        lambda: fed.leave("est"),
        lambda: fed.restart("est"),
        lambda: fed.update("north", ["a"], absent="est"),
        lambda: fed.round(tables(), vanish="est"),
        lambda: fed.round(tables(), vanish={"est": "upload"}),
    ]
    for call in calls:
        with pytest.raises(CallError, match=known):
            call()
    with pytest.raises(CallError, match="there is no client 4; the clients are north, south, west, east"):
        fed.leave(4)
    assert means(fed.round(tables())) == dict.fromkeys(NAMES, 1.5), "nothing has changed"


def test_clients_without_names_are_numbers_and_a_mapping_is_refused() -> None:
    fed = Federation(Params(clients=4, dim=1))
    fed.setup([*tables().values()])
    with pytest.raises(TableTypeError, match=r"expected a list of 4 tables.*if those of the set-up come in a mapping"):
        fed.round(tables())
    with pytest.raises(CallError, match=r"there is no client 'north'; the clients are 0\.\.3"):
        fed.leave("north")
    with pytest.raises(CallError, match="clients of this federation have no names, so none can be called 'new'"):
        fed.join(["a"], name="new")
    assert fed.without_mean == [()] * 4
    assert fed.timing.keys() == {0, 1, 2, 3, "server"}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (7, "the client name 7 is of type int; names of clients are texts"),
        ("", "the name of a client is empty"),
        ("server", "no client can be called 'server'"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_a_name_that_is_none_is_refused(name: Any, error: str) -> None:
    with pytest.raises(TableError, match=error):
        aggregate({"north": {}, "south": {}, name: {}})


def test_one_table_is_not_taken_for_a_mapping_of_clients() -> None:
    with pytest.raises(TableTypeError, match=r"client aspirin: expected a secea\.Table, .* got list"):
        aggregate({"aspirin": [1.0], "codeine": [2.0], "warfarin": [3.0]})  # type: ignore[type-var]
    with pytest.raises(TableError, match="2 clients were given, the federation has 3"):
        Federation(Params(clients=3, dim=1)).setup(tables("north", "south"))


# ---------------------------------------------------------------------------------------------- what is said of clients


def test_records_call_clients_by_their_names() -> None:
    fed = federation(min_owners=2)
    fed.round(tables())
    assert fed.without_mean == fed.below_minimum == {name: (f"of {name}",) for name in NAMES}
    assert fed.timing.keys() == {*NAMES, "server"}
    parties = {*NAMES, "server"}
    assert {hop.sender for hop in fed.traffic} == {hop.receiver for hop in fed.traffic} == parties
    assert fed.session.roster.names == NAMES


@forms
def test_errors_call_clients_by_their_names(form: FormName) -> None:
    fed = federation(form=form)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"of west": [9.0]}, "client west: entity 'all' is in the set-up, but not in the table"),
        ({"of west": [9.0], "all": [99.0]}, r"client west: entity 'all', coordinate 0: 99\.0 is outside"),
        (
            {"of west": [9.0], "all": [1.0, 2.0]},
            "client west: the embedding of entity 'all' has length 2, others have 1",
        ),
        ({"of west": [9.0], "all": None}, "client west: the embedding of entity 'all' has dtype object"),
    ]
    for own, error in wrong:
        with pytest.raises(TableError, match=error):
            fed.round({**tables(), "west": own})
    with pytest.raises(TableError, match="client south: the entity 'a' occurs more than once"):
        fed.update("south", ["a", "a"])
    with pytest.raises(RoundLost, match="client north, client west vanished in the middle of it"):
        fed.round(tables(), vanish=["north", 2])
    with pytest.raises(CallError, match=r"vanish names \['south'\], who do not take part"):
        fed.round({**tables(), "south": None}, vanish="south")
    with pytest.raises(CallError, match="client north cannot vanish in 'bed'; the phases are"):
        fed.round(tables(), vanish={"north": "bed"})


def test_tables_of_different_lengths_are_told_apart_by_their_clients() -> None:
    with pytest.raises(TableError, match="client north has embeddings of length 1, client east of length 2"):
        aggregate({"north": {"a": [1.0]}, "south": {}, "east": {"a": [1.0, 2.0]}})


class Forged(Federation):
    """The second client's uploads are damaged on their way."""

    def _tap(self, sender: int, receiver: int, message: Buffer) -> Any:
        (whole,) = super()._tap(sender, receiver, message)
        if (sender, self.traffic[-1].kind) == (1, "upload"):
            whole = bytearray(whole)
            whole[-1] ^= 1
        return (whole,)


def test_a_fault_says_the_suspects_name_and_keeps_its_number() -> None:
    for own, name in ((tables(), "client south"), ([*tables().values()], "client 1")):
        fed = Forged(Params(clients=4, dim=1))
        fed.setup(own)
        with pytest.raises(ProtocolError, match=f"^{name}: upload from {name}, chunk 1") as refusal:
            fed.round(own)
        assert refusal.value.suspects == (1,)
        assert refusal.value.fault.startswith(f"upload from {name}")
        assert str(fed.faults[-1]) == str(refusal.value)


def test_faults_of_others_are_told_without_changing_them() -> None:
    fault = FaultyPeerOrRelay(1, "share from client 1 does not open")
    (told,) = Members(2, ("north", "south")).told_of([fault])
    assert str(told) == "client south or the server: share from client south does not open"
    assert type(told) is FaultyPeerOrRelay
    assert told.suspects == fault.suspects
    assert str(fault) == "client 1 or the server: share from client 1 does not open"


@law
@given(st.text(max_size=30), st.integers(0, 3))
def test_what_is_quoted_in_an_error_is_not_translated(name: str, number: int) -> None:
    members = Members(4, ("3 rivers", "client 2", "0", "'quoted'"))
    text = f"client {number}: entity {name!r} is in the set-up"
    assert members.said(text) == f"client {members.names[number]}: entity {name!r} is in the set-up"
    assert members.said(f"entity {'client 1'!r}, client 7, clients 1") == "entity 'client 1', client 7, clients 1"
    assert Members(4).said(text) == text


# -------------------------------------------------------------------------------------------------- members come and go


def test_a_name_stays_with_its_client_when_others_leave_and_join() -> None:
    fed = federation("north", "south", "west", max_entities=3, max_union=6)
    assert fed.join(tables("east")["east"], name="east") == 3
    assert means(fed.round(tables())) == dict.fromkeys(NAMES, 1.5)
    fed.leave("north")
    assert fed.session.roster.names[:3] == ("south", "west", "east")
    assert fed.timing.keys() == {"south", "west", "east", "server"}
    left = {name: own for name, own in tables().items() if name != "north"}
    assert means(fed.round(left)) == dict.fromkeys(left, 2.0)
    assert [round(float(own["all"][0]), 4) for own in fed.round([*left.values()])] == [2.0] * 3, "numbers moved down"
    fed.leave(0)  # south
    assert fed.join(["all"], name="north") == 2
    now = {"west": tables()["west"], "east": tables()["east"], "north": {"all": [4.0]}}
    assert means(fed.round(now)) == dict.fromkeys(now, 3.0)
    fed.update("north", ["all", "more"])
    assert fed.clients[2].part.next_names == ("all", "more")
    fed.restart("west", "server")
    assert means(fed.round({**now, "north": {"all": [4.0], "more": [1.0]}})) == dict.fromkeys(now, 3.0)


@pytest.mark.parametrize("gone", [False, True])
def test_errors_while_a_client_leaves_call_everybody_by_name(gone: bool) -> None:
    fed = federation()
    fed.leave("south", gone=gone)
    left = tables("north", "west", "east")
    assert means(fed.round(left)) == dict.fromkeys(left, round(5 / 3, 4))
    with pytest.raises(CallError, match="there is no client 'south'; the clients are north, west, east"):
        fed.update("south", [])


def test_a_newcomer_needs_a_name_of_its_own_and_a_refusal_changes_nothing() -> None:
    fed = federation()
    with pytest.raises(CallError, match=r"the newcomer needs a name, as the others have \(north, south, west, east\)"):
        fed.join(["a"])
    with pytest.raises(CallError, match="there is a client 'west' already"):
        fed.join(["a"], name="west")
    with pytest.raises(TableError, match="client up: the entity 'a' occurs more than once"):
        fed.join(["a", "a"], name="up")
    with pytest.raises(TableError, match="no client can be called 'server'"):
        fed.join(["a"], name="server")
    assert means(fed.round(tables())) == dict.fromkeys(NAMES, 1.5)
    assert fed.timing.keys() == {*NAMES, "server"}


def test_a_set_up_that_fails_leaves_the_names_as_they_were() -> None:
    fed = federation()
    with pytest.raises(TableError):
        fed.setup({"a": ["x", "x"], "b": [], "c": [], "d": []})
    assert means(fed.round(tables())) == dict.fromkeys(NAMES, 1.5)


def test_names_of_clients_are_part_of_the_session() -> None:
    sessions = [federation(*order).session for order in (NAMES, NAMES[::-1])]
    assert {session.roster.names for session in sessions} == {NAMES, NAMES[::-1]}
    assert all(session.roster.canonical().count(name.encode()) == 1 for session in sessions for name in NAMES)


def test_tables_of_numpy_come_back_as_tables_under_names() -> None:
    own = {name: Table(["a"], np.full((1, 2), float(n))) for n, name in enumerate(NAMES)}
    found = aggregate(own)
    assert all(isinstance(each, Table) for each in found.values())
    assert found["east"].matrix[0].round(4).tolist() == [1.5, 1.5]
