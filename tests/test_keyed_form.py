"""Which parameters the keyed form takes, and the numbers of clients that follow from them (sections K1 and K2)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea import Federation
from secea.errors import SERVER, ParamsError, TwoClients, Uncovered
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.numbers import honest
from secea.params import Params
from secea.party.phases import Agreement
from secea.wire.messages import CHUNK_BYTES


def checked(clients: int, collusion: int | None = None, dropouts: int = 0, **form: Any) -> Params:
    return Keyed(**form).checked(Params(clients=clients, dim=2, collusion=collusion, dropouts=dropouts))


@pytest.mark.parametrize(
    ("N", "D", "T"),
    [(2, 0, 1), (5, 0, 4), (10, 0, 9), (5, 1, 2), (6, 2, 1), (7, 2, 2), (10, 3, 3), (10, 4, 1), (5, 2, 2), (4, 2, 1)],
)
def test_by_itself_it_covers_as_many_as_a_server_that_deviates_leaves(N: int, D: int, T: int) -> None:
    """N - 1 - 2D conspire; where that is less than one, those who are left when D dropped out, but for one."""
    assert checked(N, None, D).collusion == T


@given(N=st.integers(2, 40), data=st.data())
def test_collusion_and_drop_outs_leave_one_client(N: int, data: st.DataObject) -> None:
    D = data.draw(st.integers(0, N - 2))
    T = data.draw(st.integers(1, N - 1 - D))
    assert checked(N, T, D).collusion == T


@pytest.mark.parametrize(("N", "T", "D", "range"), [(4, 3, 1, "from 1 to 2"), (4, 2, 2, "1"), (9, 6, 3, "from 1 to 5")])
def test_more_than_that_is_refused_and_the_bounds_are_said(N: int, T: int, D: int, range: str) -> None:
    with pytest.raises(ParamsError, match=f"collusion must be {range} with {N} clients and {D} drop-outs, got {T}"):
        checked(N, T, D)


def test_two_clients_must_be_left() -> None:
    with pytest.raises(ParamsError, match="dropouts must be from 0 to 2 with 4 clients, got 3"):
        checked(4, 1, 3)


@pytest.mark.parametrize(("option", "value"), [("batch", 0), ("batch", (1 << 15) + 1), ("min_participants", 1)])
def test_options_that_cannot_be_are_refused(option: str, value: int) -> None:
    with pytest.raises(ParamsError, match=option):
        checked(4, 1, **{option: value})


@pytest.mark.parametrize("option", ["max_updates", "max_new_entities"])
def test_nothing_is_negative(option: str) -> None:
    with pytest.raises(ParamsError, match="cannot be negative"):
        checked(4, 1, **{option: -1})
    checked(4, 1, **{option: 0})


@pytest.mark.parametrize(
    ("option", "value"), [("batch", 1), ("batch", 1 << 15), ("min_participants", 2), ("min_participants", 4)]
)
def test_the_last_values_of_a_range_are_in_it(option: str, value: int) -> None:
    checked(4, 1, **{option: value})


def test_numbers_that_do_not_fit_are_refused_as_soon_as_the_bounds_are_known() -> None:
    params = Params(clients=330, dim=2, collusion=1)
    assert Keyed().checked(params).collusion == 1
    with pytest.raises(ParamsError, match="no supported field"):
        Keyed().checked(params.with_bounds(max_entities=10, max_union=10))


@pytest.mark.parametrize(
    ("N", "T", "D", "phase", "names", "fewest"),
    [
        (10, 2, 0, "commit", 1, 10), (10, 2, 0, "list", 1, 10), (10, 2, 0, "list", 2, 7), (5, 4, 0, "list", 2, 5),
        (10, 2, 0, "secret", 2, 4), (10, 9, 0, "secret", 2, 2), (3, 1, 0, "secret", 2, 3), (2, 1, 0, "secret", 2, 2),
        (10, 2, 3, "secret", 2, 7), (10, 2, 3, "agree", 2, 7), (10, 2, 3, "open", 2, 7), (10, 2, 3, "upload", 2, 7),
    ],
)  # fmt: skip
def test_the_fewest_participants(N: int, T: int, D: int, phase: str, names: int, fewest: int) -> None:
    """All for a key and first names; Z, and one more than conspire, for later ones; t with drop-outs; else T + 2."""
    assert Keyed().fewest(checked(N, T, D), phase, names) == fewest


def test_more_participants_may_be_asked_for_but_not_where_a_sum_is_opened() -> None:
    form, params = Keyed(min_participants=9), checked(10, 2, 3, min_participants=9)
    assert [form.fewest(params, phase) for phase in ("secret", "ready", "upload", "agree", "open")] == [9, 9, 9, 7, 7]


# --------------------------------------------------------------------------------------------------- lists and chunks


@pytest.mark.parametrize(
    ("entities", "option", "first", "later"),
    [(500, None, 500, 50), (100, None, 100, 16), (10, None, 10, 10), (500, 3, 500, 3), (500, 0, 500, 0), (5, 9, 5, 5)],
)
def test_a_list_has_room_for_all_names_at_first_and_for_a_tenth_later(
    entities: int, option: int | None, first: int, later: int
) -> None:
    params = Params(clients=3, dim=2, max_entities=entities, max_union=entities)
    form = Keyed(max_new_entities=option)
    assert [form.list_size(params, names) for names in (0, 1, 2, 3)] == [first, first, later, later]


@pytest.mark.parametrize("dim", [1, 100, 130_000, 200_000, 300_000])
def test_a_chunk_of_an_upload_has_as_many_rows_as_fit_and_one_at_least(dim: int) -> None:
    form, params = Keyed(), bounded(clients=4, dim=dim, collusion=1)
    at = Agreement(participants=(0, 1, 2, 3), members=(0, 1, 2, 3), size=10**7, round=1)
    quiet = ({0, 1, 2, 3} - set(form.noise_clients(params, at))).pop()
    row = 7 * (dim + 1 + 2)  # one check column modulo 2^56 - 5, theta and rho
    layout = form.layout(Kind.UPLOAD, params, at, quiet)
    assert layout.payload_bytes(0) == max(1, CHUNK_BYTES // row) * row
    assert form.layout(Kind.MEANS, params, at, SERVER).chunks == layout.chunks


def test_noise_clients_are_in_order() -> None:
    """Sets of numbers are not."""
    params = bounded(clients=20, dim=2, collusion=5)
    for members in ((1, 8), (1, 8, 9, 16, 17)):
        for q in range(12):
            at = Agreement(participants=members, members=members, round=q)
            assert Keyed().noise_clients(params, at) == members  # T+1 are all of them
    assert list({1, 8}) == [8, 1]


def bounded(**params: Any) -> Params:
    return Keyed().checked(Params(max_entities=100, max_union=200, **params))


# ------------------------------------------------------------------------------------------------------- announcements


@pytest.mark.parametrize("dropouts", [0, 1])
def test_what_raises_which_number(dropouts: int) -> None:
    rows = Keyed().table(Params(clients=4, dim=1, dropouts=dropouts))
    counts = {row.phase: row.counts for row in rows}
    assert {phase for phase, each in counts.items() if each == "round"} == {"upload"}
    none = {"ready", "end"} | ({"batch", "agree", "open"} if dropouts else set())
    assert {phase for phase, each in counts.items() if each == ""} == none
    assert {*counts.values()} == {"union", "round", ""}


def test_numbers_of_an_announcement_follow_those_before() -> None:
    form, at = Keyed(), Agreement(union=7, attempt=2, names=4, named=3, round=9)
    assert form.next_numbers("upload", at, again=False) == {"epoch": 7, "attempt": 2, "weights": 4, "round": 10}
    for phase in ("ready", "end", "batch", "agree"):
        assert form.next_numbers(phase, at, again=False) == at.numbers
    assert form.next_numbers("secret", at, again=False) == {"epoch": 8, "attempt": 0, "weights": 3, "round": 9}
    assert form.next_numbers("secret", at, again=True) == {"epoch": 8, "attempt": 3, "weights": 3, "round": 9}
    for phase in ("commit", "list"):
        assert form.next_numbers(phase, at, again=False) == {"epoch": 8, "attempt": 0, "weights": 4, "round": 9}


@pytest.mark.parametrize("phase", ["commit", "deal", "list", "confirm", "evaluate", "secret", "table", "upload"])
def test_the_prf_of_names_takes_a_millisecond_for_each_point(phase: str) -> None:
    params = bounded(clients=4, dim=2, collusion=1)
    at = Agreement(phase=phase, names=1, members=(0, 1, 2))
    heavy = phase in ("list", "confirm", "evaluate", "secret")
    assert Keyed().patience(params, at) == pytest.approx(0.001 * 100 * 3 if heavy else 0.0)


# ------------------------------------------------------------------------------------------------------------ cautions


def cautions(clients: int, collusion: int | None = None, dropouts: int = 0) -> list[type[UserWarning]]:
    found = Keyed().cautions(Params(clients=clients, dim=2, collusion=collusion, dropouts=dropouts))
    return [type(each) for each in found]


def test_two_clients_are_warned_of_each_other_and_many_drop_outs_of_the_server() -> None:
    assert cautions(2) == [TwoClients]
    assert cautions(3) == cautions(5, None, 1) == cautions(7, None, 2) == []
    assert cautions(3, None, 1) == cautions(4, None, 2) == cautions(5, None, 2) == [Uncovered]
    assert cautions(5, 2, 2) == []  # it was asked for
    (two,) = Keyed().cautions(Params(clients=2, dim=2))
    assert "subtract" in str(two)
    (server,) = Keyed().cautions(Params(clients=4, dim=2, dropouts=2))
    assert "deviat" in str(server)


def test_with_noise_a_client_that_is_absent_costs_a_union_and_the_others_add_more() -> None:
    tables = [{"a": [1.0], "b": [0.0]}] * 4
    for collusion, more in ((1, math.sqrt(3 / 2)), (3, 1.0)):
        fed = Federation(Params(4, dim=1, collusion=collusion, noise=0.5))
        fed.setup([table.keys() for table in tables])
        fed.round(tables)
        assert fed.round([*tables[:3], None])[3] is None
        n = fed.clients[0].part.numbers
        assert math.isclose(n.spread_of(honest(fed.params, 3)) / n.spread_of(honest(fed.params, 4)), more)


@pytest.mark.parametrize("name", ["min_participants", "max_new_entities", "max_updates", "batch"])
def test_options_are_whole_numbers(name: str) -> None:
    params = Params(clients=4, dim=1)
    odd: Any
    for odd in (2.0, "2", True):
        with pytest.raises(ParamsError, match=f"{name} must be an integer, got {odd!r}"):
            Keyed(**{name: odd}).checked(params)
    Keyed(**{name: 2}).checked(params)


@pytest.mark.parametrize("updates", [0, 1, 16])
def test_names_have_one_epoch_and_as_many_more_as_updates(updates: int) -> None:
    assert Keyed(max_updates=updates).last_epoch == 1 + updates
