"""A client's names by themselves: which may come, which epoch of them is due, and what is said to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from secea.errors import SERVER, FaultyPeer, ProtocolError, TableError
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.names import NO_LIST, Names, Naming
from secea.party.phases import Agreement
from secea.steps import oprf
from secea.testing import Parties

FEW: Final = Keyed(max_new_entities=2, max_updates=3)
BOUNDS: Final[dict[str, Any]] = {"collusion": 2, "dim": 1, "max_entities": 6, "max_union": 24}
ALL: Final = (0, 1, 2, 3)


def naming(form: Keyed = FEW, **state: Any) -> Any:
    """Client 0 of four after a set-up, with "a" and "b", in another state."""
    parties = Parties.of([{"a": [1.0], "b": [1.0]}, {"a": [1.0]}, {"b": [1.0]}, {}], form, **BOUNDS)
    parties.setup()
    client: Any = parties.clients[0].part
    part = client.naming
    assert isinstance(part, Naming)
    part.names = replace(part.names, **state)
    return part


def at(phase: str, names: int = 1) -> Agreement:
    return Agreement(phase, ALL, ALL, names=names, size=2)


def due(part: Any, phase: str, epochs: range) -> list[int]:
    """Which epochs of names may be announced."""
    found = []
    for epoch in epochs:
        try:
            part.check_begin(at(phase, epoch))
        except ValueError:
            continue
        found.append(epoch)
    return found


# ------------------------------------------------------------------------------------------------------------- changes


def test_the_same_names_in_another_order_are_no_change() -> None:
    part = naming()
    part.update(("b", "a"))
    assert part.names.coming is None
    assert part.next_names == ("a", "b")
    part.update(("b", "a", "c"))
    assert part.next_names == ("b", "a", "c")
    part.update(("b", "a"))
    assert part.names.coming is None


def test_names_that_come_at_once_fit_into_one_epoch_and_others_wait() -> None:
    part = naming()
    part.update(("a", "c", "d"))
    with pytest.raises(TableError, match="client 0 has 3 new entities, but only 2 may come at once"):
        part.update(("a", "c", "d", "e"))
    assert part.next_names == ("a", "c", "d")
    part.update(("a", "c", "d", "e"), at_once=False)
    assert part.next_names == ("a", "c", "d", "e")
    with pytest.raises(TableError, match="client 0 has 7 entities, more than the public bound max_entities=6"):
        part.update(tuple("abcdefg"), at_once=False)


def test_names_that_were_ever_asked_for_are_not_new() -> None:
    part = naming(fresh=("c", "d"))
    part.update(("c", "d", "e", "f"))
    assert part.next_names == ("c", "d", "e", "f")


def test_an_epoch_takes_as_many_names_as_it_has_room_for_and_the_rest_come_next() -> None:
    part = naming()
    part.update(("e", "a", "d", "c"), at_once=False)
    part.enter(at("list", 2))
    assert part.names.fresh == ("e", "d")
    assert part.names.own == ("e", "a", "d")
    assert part.next_names == ("e", "a", "d", "c")
    assert (part.names.asked, part.names.listed, part.names.marks) == (2, 2, {})
    part.update(("a", "d"))
    part.enter(at("list", 3))
    assert (part.names.fresh, part.names.own, part.names.coming) == (("d",), ("a", "d"), None)  # "d" was not answered


def test_a_list_that_is_asked_for_again_is_the_same_to_the_last_byte_and_a_new_one_is_not() -> None:
    part = naming()
    part.update(("a", "b", "c"))
    part.enter(at("list", 2))
    first, marks = part._points.tobytes(), {0: part._mark(at("list", 2))}
    part.names = replace(part.names, marks=marks)
    part.update(("a", "b", "d"))
    part.enter(at("list", 2))
    assert part._points.tobytes() == first
    assert (part.names.fresh, part.names.marks) == (("c",), marks)
    part.enter(at("list", 3))
    assert part._points.tobytes() != first
    assert part.names.fresh == ("d",)


def test_what_is_answered_twice_is_known_once() -> None:
    part = naming()
    known = part.names.prf
    for fresh in (("a", "b"), ("a", "c"), ("c", "d")):
        part.names = replace(part.names, fresh=fresh)
        found = part._answered([bytes(known.get(name, name[:1].encode() * 64)) for name in fresh])
        assert dict(found) == dict(known) | {name: name.encode() * 64 for name in fresh if name not in known}
        assert found.names == (*known.names, *(name for name in fresh if name not in known))


def test_who_lists_a_point_twice_is_named_and_so_are_two_who_list_the_same() -> None:
    part, points = naming(), np.arange(6 * 32, dtype=np.uint8).reshape(6, 32)
    part._check_apart({})
    part._check_apart({1: points[:2], 3: points[2:4], 2: points[4:]})
    with pytest.raises(FaultyPeer, match="lists a blinded name twice") as twice:
        part._check_apart({1: points[:2], 3: points[[2, 3, 2]], 2: points[4:]})
    assert twice.value.suspects == (3,)
    with pytest.raises(ProtocolError, match="lists have a blinded name in common") as common:
        part._check_apart({1: points[:2], 3: points[2:4], 2: points[[4, 3]]})
    assert set(common.value.suspects) == {2, 3}


def test_who_is_not_asked_signs_the_hash_of_no_bytes() -> None:
    others = replace(at("list"), members=(1, 2, 3))
    assert naming()._mark(others) == NO_LIST == oprf.list_hash(np.frombuffer(b"", np.uint8))


def test_with_another_key_names_begin_anew() -> None:
    part = naming(number=0, asked=1, marks={1: b"list"}, coming=("a", "c"))
    part.enter(at("commit"))
    assert part.names == Names(("a", "c"))


def test_a_union_ends_an_epoch_and_forgets_what_served_it() -> None:
    part = naming(number=1, asked=1, lists={1: np.zeros((1, 32), np.uint8)})
    part.past = b"share"
    part.enter(at("secret", 3))
    assert (part.names.number, part.names.asked, part.names.lists, part.past) == (3, 3, {}, b"")


def test_what_a_restart_must_not_lose_is_saved() -> None:
    part, other = (naming() for _ in range(2))
    part.update(("a", "c", "d", "e"), at_once=False)
    part.enter(at("list", 2))
    part.names = replace(part.names, marks={1: b"list"})
    part.past, part.successor = b"share", b"session"
    other.restore(part.plain())
    assert dict(other.names.prf) == dict(part.names.prf)
    alike: dict[str, Any] = {
        "prf": other.names.prf,
        "blinding": None,
    }  # a list is made again when its epoch begins again
    assert other.names == replace(part.names, **alike)
    assert (other.past, other.successor) == (b"share", b"session")
    assert (other.key.joint, other.key.share) == (part.key.joint, part.key.share)
    other.enter(at("list", 2))
    assert other._points.tobytes() == part._points.tobytes()


# --------------------------------------------------------------------------------------------------- what is answered


def confirmed(**state: Any) -> tuple[Any, dict[int, Any], Any, dict[Any, bytes]]:
    """A holder, everybody's lists of epoch 2, where it stands, and what it gets when all have seen the same."""
    part, now = naming(), at("confirm", 2)
    lists = {v: part._blinded((f"{v}",), 2, bytes([v] * 32)).points for v in ALL}
    part.names = replace(part.names, marks={v: oprf.list_hash(points) for v, points in lists.items()}, **state)
    got: dict[Any, bytes] = {(Kind.CONFIRM, v): part._confirmation(now) for v in ALL[1:]}
    got[Kind.LISTS, SERVER] = b"".join(points.tobytes() for points in lists.values())
    return part, lists, now, got


def test_a_holder_keeps_the_lists_that_enough_have_confirmed() -> None:
    part, lists, now, got = confirmed()
    assert part._got_confirmations(now, got) == now
    assert {v: points.tobytes() for v, points in part.names.lists.items()} == {
        v: points.tobytes() for v, points in lists.items()
    }


def test_whoever_has_seen_other_lists_stops_the_epoch() -> None:
    part, _, now, got = confirmed()
    for v in ALL[1:]:
        with pytest.raises(ProtocolError, match="has seen other lists of blinded names than we have") as caught:
            part._got_confirmations(now, got | {(Kind.CONFIRM, v): bytes(32)})
        assert caught.value.suspects == (SERVER, v)


def test_a_holder_answers_nobody_before_enough_have_confirmed() -> None:
    part, _, now, _ = confirmed()
    need = part.form.signatures(part.params)
    for members in ALL[: need - 1], ALL[:need]:
        few = replace(now, members=members)
        said: dict[Any, bytes] = {(Kind.CONFIRM, v): part._confirmation(few) for v in members}
        said[Kind.LISTS, SERVER] = b"".join(
            part._blinded((f"{v}",), 2, bytes([v] * 32)).points.tobytes() for v in members
        )
        if len(members) == need:
            part._got_confirmations(few, said)
        else:
            with pytest.raises(FaultyPeer, match=f"confirmed by {need - 1} clients; {need} are needed"):
                part._got_confirmations(few, said)


def test_a_holder_takes_only_the_lists_that_were_signed_and_only_points() -> None:
    part, lists, now, got = confirmed()
    other = b"".join(points.tobytes() for points in reversed(lists.values()))
    with pytest.raises(FaultyPeer, match="hands us another list than the one that client 0 signed") as caught:
        part._got_confirmations(now, got | {(Kind.LISTS, SERVER): other})
    assert caught.value.suspects == (SERVER,)
    lists[2] = lists[2].copy()
    lists[2][1] = 255
    part.names = replace(part.names, marks={v: oprf.list_hash(points) for v, points in lists.items()})
    said = {key: part._confirmation(now) for key in got} | {
        (Kind.LISTS, SERVER): b"".join(points.tobytes() for points in lists.values())
    }
    with pytest.raises(FaultyPeer, match="lists something that is not a blinded name") as caught:
        part._got_confirmations(now, said)
    assert caught.value.suspects == (2,)


# --------------------------------------------------------------------------------------------------------- what is due


def test_an_epoch_of_names_is_due_until_a_later_one_has_begun() -> None:
    assert due(naming(number=0, asked=0), "list", range(-1, 6)) == [1]
    assert due(naming(number=0, asked=1), "list", range(-1, 6)) == [1]
    assert due(naming(number=1, asked=1), "list", range(-1, 6)) == [1, 2, 3, 4]
    assert due(naming(number=1, asked=2), "list", range(-1, 6)) == [2, 3, 4]
    assert due(naming(number=4, asked=4), "list", range(-1, 6)) == [4]


def test_a_union_is_due_when_all_names_that_were_asked_for_have_their_keys() -> None:
    assert due(naming(number=0, asked=0), "secret", range(-1, 6)) == []
    assert due(naming(number=1, asked=1), "secret", range(-1, 6)) == [1, 2, 3, 4]
    assert due(naming(number=2, asked=2), "secret", range(-1, 6)) == [2, 3, 4]
    assert due(naming(number=1, asked=2), "secret", range(-1, 6)) == []


def test_a_key_may_be_dealt_anew_until_names_have_theirs() -> None:
    states: tuple[dict[str, Any], ...] = (
        {"number": 0, "asked": 0, "marks": {}},
        {"number": 0, "asked": 1, "marks": {1: b"list"}},
    )
    for begun in states:
        assert due(naming(**begun), "commit", range(4)) == [1]
    assert due(naming(number=1, asked=1), "commit", range(4)) == []
