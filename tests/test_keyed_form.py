"""Which parameters the keyed form takes, and the numbers of clients that follow from them (sections K1 and K2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.errors import ParamsError
from secea.forms.keyed import Keyed
from secea.params import Params


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
