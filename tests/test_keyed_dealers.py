"""Rogue dealers, rogue holders and rogue lists: each is named by whoever it cheated, and nobody goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from secea.arithmetic.ristretto import multiply_base, scalar_rows
from secea.errors import SERVER, FederationError, ProtocolError, TableError
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.names import Naming
from secea.party.phases import STOPPED
from secea.steps import oprf
from secea.testing import Parties
from secea.wire.messages import Buffer
from secea.wire.randomness import KeyStream

CLIENTS, COLLUSION, ROGUE = 4, 1, 1
"""The rogue is a dealer, one of the two holders, and one who asks."""
HONEST = (0, 2, 3)
NAMES = (("a", "b"), ("b", "c"), ("a", "d"), ("c", "d"))
Payload = Callable[[IntEnum, int, bytes], bytes]


def parties(**more: Any) -> Parties:
    tables = [{name: np.full(2, float(n)) for name in own} for n, own in enumerate(NAMES)]
    bounds = {"max_entities": 3, "max_union": 8} | more
    return Parties.of(tables, Keyed(), collusion=COLLUSION, **bounds)


def naming(p: Parties, n: int) -> Naming:
    part: Any = p.clients[n].part
    return part.naming  # type: ignore[no-any-return]


def corrupt(p: Parties, lie: Payload, n: int = ROGUE) -> None:
    """Client n says something else than it should."""
    part: Any = p.clients[n].part
    honest = part.payloads

    def payloads(kind: IntEnum, receivers: Sequence[int], at: Any) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, parts in honest(kind, receivers, at):
            yield receiver, (lie(kind, receiver, b"".join(bytes(each) for each in parts)),)

    part.payloads = payloads


def run(p: Parties, phase: str, errors: dict[int, ProtocolError]) -> None:
    """From where the server is to the beginning of a phase; what clients complain of is kept."""
    while True:
        for n, inbox in p.server.drain().items():
            for message in inbox:
                try:
                    p.clients[n].receive(message)
                except ProtocolError as error:
                    errors.setdefault(n, error)
        if errors or p.server.at.phase == phase:
            return
        for n in p.server.at.members:
            try:
                for message in p.clients[n].outbox():
                    p.server.receive(n, message)
            except ProtocolError as error:
                errors.setdefault(n, error)
        if errors:
            return
        p.server.close()


def begin(p: Parties) -> dict[int, ProtocolError]:
    """Hellos, and the word that the key is dealt."""
    p.exchange.greet()
    p.server.begin("commit", range(CLIENTS))
    return {}


def check_named(errors: dict[int, ProtocolError], by: Sequence[int], suspects: tuple[int, ...] = (ROGUE,)) -> None:
    assert {n for n in errors if n != ROGUE} == set(by)
    for n in by:
        assert errors[n].suspects == suspects


# -------------------------------------------------------------------------------------------------------------- dealers


def other_polynomial() -> tuple[int, ...]:
    return oprf.polynomial(COLLUSION, KeyStream(b"another polynomial".ljust(32)))


def wrong_share(p: Parties, cheated: Sequence[int]) -> Payload:
    def lie(kind: IntEnum, receiver: int, said: bytes) -> bytes:
        return oprf.share_for(other_polynomial(), receiver) if kind is Kind.SHARE and receiver in cheated else said

    return lie


def dealt_otherwise(p: Parties) -> Payload:
    """A dealer that chooses when it has seen what the others committed to: all fits but the hash."""
    commitments = oprf.commit(other_polynomial())

    def lie(kind: IntEnum, receiver: int, said: bytes) -> bytes:
        if kind is Kind.DEALING:
            stream = KeyStream(bytes(32))
            return commitments + oprf.prove(other_polynomial(), commitments, p.session.hash, ROGUE, stream)
        return oprf.share_for(other_polynomial(), receiver) if kind is Kind.SHARE else said

    return lie


def copied(p: Parties) -> Payload:
    """Another dealer's commitments and proof; the rogue is even told that dealer's shares."""
    rogue: Any = naming(p, ROGUE)
    rogue._own_hash = lambda: naming(p, 0)._own_hash()
    rogue._dealing = lambda: naming(p, 0)._dealing()
    rogue._polynomial = lambda: naming(p, 0)._polynomial()
    return lambda _kind, _receiver, said: said


def proven_elsewhere(p: Parties) -> Payload:
    def lie(kind: IntEnum, receiver: int, said: bytes) -> bytes:
        if kind is not Kind.DEALING:
            return said
        own = naming(p, ROGUE)._polynomial()
        commitments = oprf.commit(own)
        return commitments + oprf.prove(own, commitments, bytes(32), ROGUE, KeyStream(bytes(32)))

    return lie


def unproven(p: Parties) -> Payload:
    def lie(kind: IntEnum, receiver: int, said: bytes) -> bytes:
        return said[:-1] + bytes([said[-1] ^ 1]) if kind is Kind.DEALING else said

    return lie


DEALERS = [
    pytest.param(lambda p: wrong_share(p, HONEST), HONEST, "fits", id="shares for all"),
    pytest.param(lambda p: wrong_share(p, (2,)), (2,), "fits", id="a share for one"),
    pytest.param(dealt_otherwise, HONEST, "commitments_hash", id="other commitments than hashed"),
    pytest.param(copied, HONEST, "proven", id="copied commitments"),
    pytest.param(proven_elsewhere, HONEST, "proven", id="a proof of another session"),
    pytest.param(unproven, HONEST, "proven", id="no proof"),
]


@pytest.mark.parametrize(("lie", "cheated", "check"), DEALERS)
def test_a_rogue_dealer_is_named_by_everyone_it_cheated(
    lie: Callable[[Parties], Payload], cheated: Sequence[int], check: str
) -> None:
    p = parties()
    errors = begin(p)
    corrupt(p, lie(p))
    run(p, "confirm", errors)
    check_named(errors, cheated)
    for n in cheated:
        assert p.clients[n].at.phase == STOPPED
        assert not naming(p, n).key.joint


@pytest.mark.parametrize(("lie", "cheated", "check"), DEALERS)
def test_without_the_check_the_rogue_dealer_is_not_seen(
    lie: Callable[[Parties], Payload], cheated: Sequence[int], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = {"fits": True, "proven": True, "commitments_hash": bytes(32)}[check]
    monkeypatch.setattr(oprf, check, lambda *_: always)
    p = parties()
    errors = begin(p)
    corrupt(p, lie(p))
    run(p, "list", errors)
    assert not {n: error for n, error in errors.items() if n != ROGUE}
    assert all(naming(p, n).key.joint for n in HONEST)


# -------------------------------------------------------------------------------------------------------------- holders


def another_point(k: int) -> bytes:
    return multiply_base(scalar_rows([k + 2])).tobytes()


def answers(change: Callable[[bytes], bytes], to: Sequence[int] = HONEST) -> Payload:
    return lambda kind, receiver, said: change(said) if kind is Kind.EVALUATION and receiver in to else said


def at_point(k: int, point: bytes) -> Callable[[bytes], bytes]:
    return lambda said: said[: 32 * k] + point + said[32 * k + 32 :]


HOLDERS = [
    pytest.param(lambda said: b"".join(another_point(k) for k in range(len(said) // 32)), id="all points"),
    pytest.param(lambda said: said[32:] + said[:32], id="answers in another order"),
    *(pytest.param(at_point(k, another_point(k)), id=f"point {k}") for k in range(4)),
    *(pytest.param(at_point(k, b"\xff" * 32), id=f"no point at {k}") for k in range(4)),
]


@pytest.mark.parametrize("change", HOLDERS)
def test_a_rogue_holder_is_named_whichever_point_it_answers_wrongly(change: Callable[[bytes], bytes]) -> None:
    """Names, padding and check point lie in a secret order: every place is tried."""
    p = parties()
    errors = begin(p)
    corrupt(p, answers(change))
    run(p, "secret", errors)
    check_named(errors, HONEST)
    assert all(not naming(p, n).names.prf for n in HONEST)


def test_who_is_cheated_alone_is_alone_in_naming_the_holder() -> None:
    p = parties()
    errors = begin(p)
    corrupt(p, answers(at_point(1, another_point(1)), (3,)))
    run(p, "secret", errors)
    check_named(errors, (3,))
    assert naming(p, 2).names.prf


def test_without_the_check_point_a_wrong_answer_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oprf, "_checked", lambda *_: True)
    p = parties()
    errors = begin(p)
    corrupt(p, answers(lambda said: said[32:] + said[:32], (3,)))
    run(p, "secret", errors)
    assert not errors
    found, right = naming(p, 3).names.prf, naming(p, 2).names.prf
    assert set(found) == {"c", "d"}
    assert found["d"] != right["d"]


# ---------------------------------------------------------------------------------------------------------------- lists


def listed(p: Parties, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], n: int = ROGUE) -> None:
    """Client n changes its list, and signs what it changed."""
    names = naming(p, n).names
    assert names.blinding is not None
    blinding = replace(names.blinding, points=change(names.blinding.points.copy()))
    naming(p, n).names = replace(names, blinding=blinding)


def with_point(place: int, point: np.ndarray[Any, Any]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    def change(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        points[place] = point
        return points

    return change


def asked(p: Parties) -> dict[int, ProtocolError]:
    """Up to the point at which everyone has made its list, and sent nothing of it."""
    errors = begin(p)
    run(p, "list", errors)
    assert not errors
    return errors


def test_a_list_with_a_point_of_another_list_is_answered_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for checked in (True, False):
        p = parties()
        errors = asked(p)
        rogue = 3  # no holder: those must refuse
        listed(p, with_point(0, naming(p, 2)._points[1]), rogue)
        if not checked:
            monkeypatch.setattr(Naming, "_check_apart", lambda *_: None)
        run(p, "evaluate", errors)
        assert set(errors) == ({0, 1} if checked else set())
        assert all(rogue in error.suspects for error in errors.values())


def test_a_list_with_a_point_twice_is_answered_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for checked in (True, False):
        p = parties()
        errors = asked(p)
        listed(p, with_point(0, naming(p, 3)._points[1]), 3)
        if not checked:
            monkeypatch.setattr(Naming, "_check_apart", lambda *_: None)
        run(p, "evaluate", errors)
        assert {n: error.suspects for n, error in errors.items()} == ({0: (3,), 1: (3,)} if checked else {})


@pytest.mark.parametrize("point", [bytes(32), b"\xff" * 32, b"\x01" + bytes(31)], ids=["identity", "large", "no point"])
def test_what_is_no_point_is_answered_by_nobody(point: bytes) -> None:
    p = parties()
    errors = asked(p)
    listed(p, with_point(2, np.frombuffer(point, np.uint8)), 3)
    run(p, "secret", errors)
    assert {n: error.suspects for n, error in errors.items()} == {0: (3,), 1: (3,)}
    assert all(not naming(p, n).names.prf for n in range(CLIENTS))


def test_another_list_than_marked_is_refused_by_the_server() -> None:
    p = parties()
    asked(p)
    corrupt(p, lambda kind, _, said: said[32:] + said[:32] if kind is Kind.LIST else said)
    with pytest.raises(ProtocolError) as caught:
        run(p, "confirm", {})
    assert caught.value.suspects == (ROGUE,)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_longer_list_is_refused_by_the_server_and_by_every_holder(more: int) -> None:
    """The server may conspire with the client: a holder then refuses what the server hands it."""

    def longer(said: bytes) -> bytes:
        return said + another_point(9) if more > 0 else said[:-32]

    p = parties()
    errors = asked(p)
    corrupt(p, lambda kind, _, said: longer(said) if kind is Kind.LIST else said)
    run(p, "confirm", errors)
    assert {n: error.suspects for n, error in errors.items()} == {ROGUE: (ROGUE,)}  # the server said so

    p = parties()
    errors = asked(p)
    run(p, "confirm", errors)
    part: Any = p.server.part
    honest = part.ready

    def ready(kind: IntEnum, at: Any) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for k, (receiver, parts) in enumerate(honest(kind, at)):
            whole = b"".join(bytes(each) for each in parts)
            yield receiver, (longer(whole) if kind is Kind.LISTS and k == ROGUE else whole,)

    part.ready = ready
    run(p, "evaluate", errors)
    assert {n: error.suspects for n, error in errors.items()} == {0: (SERVER,), 1: (SERVER,)}


def test_lists_have_room_for_the_bounds_and_one_check_point() -> None:
    """What a client can have answered in an epoch: the public bound, and the place of the check point."""
    p = parties(max_entities=30, max_union=40)
    form, params = p.session.form, p.session.params
    assert isinstance(form, Keyed)
    assert [form.list_size(params, epoch) for epoch in (1, 2, 3)] == [30, 16, 16]
    errors = asked(p)
    assert not errors
    assert all(len(naming(p, n)._points) == 31 for n in range(CLIENTS))


def test_names_that_come_while_names_are_asked_keep_to_the_bound_of_new_ones() -> None:
    """Otherwise the next list has no room for them: this client alone would fail, and the server would see it."""
    p = parties(max_entities=30, max_union=40)
    asked(p)
    many = [f"new {k}" for k in range(17)]
    with pytest.raises(TableError, match="16 may come at once"):
        p.clients[2].part.update(many)
    p.clients[2].part.update(["a", "d", *many[:16]])


def second_list(p: Parties) -> dict[int, ProtocolError]:
    """Client 0 and the server conspire: one list is answered by client 1, then another is shown to clients 2 and 3."""
    p.setup()
    errors: dict[int, ProtocolError] = {}
    p.server.begin("list", range(CLIENTS))
    run(p, "evaluate", errors)
    assert not errors
    assert list(p.clients[1].outbox())  # the first list is answered: with client 0's share that is enough
    rogue = naming(p, 0)
    rogue.names = replace(rogue.names, asked=1, listed=1, coming=("x", "y"), blinding=None)
    p.server.begin("list", (0, 2, 3))
    return errors


def test_nobody_has_two_lists_answered_in_one_epoch() -> None:
    p = parties()
    errors = second_list(p)
    run(p, "evaluate", errors)
    assert set(errors) == {2, 3}
    assert all(error.suspects == (0,) for error in errors.values())


def test_clients_that_forget_what_they_confirmed_let_every_holder_be_asked_for_other_names() -> None:
    p = parties()
    errors = second_list(p)
    for n in (2, 3):
        naming(p, n).names = replace(naming(p, n).names, marks={})
    run(p, "evaluate", errors)
    assert not errors
    assert list(p.clients[2].outbox())


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
@pytest.mark.parametrize("phase", ["list", "confirm", "evaluate"])
def test_the_same_lists_are_answered_again_where_somebody_was_lost(phase: str, lost: int) -> None:
    """A holder that answered does so again, for other members; everyone sends the same list."""
    p = parties()
    p.setup()
    for n in range(CLIENTS):
        p.clients[n].part.update([*NAMES[n][1:], f"new {n}"])
    p.exchange.losses = {lost: phase}
    p.exchange.run("list", range(CLIENTS))
    others = tuple(n for n in range(CLIENTS) if n != lost)
    if phase != "evaluate" or lost < 2:  # who is no holder sends nothing then
        assert p.server.at.members == others
    assert all(f"new {n}" in naming(p, n).names.prf for n in p.server.at.members if n != lost)


@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize("phase", ["list", "confirm", "evaluate"])
def test_the_first_epoch_of_names_needs_everybody_so_that_later_ones_show_nothing(phase: str, lost: int) -> None:
    """Who missed it would need more later epochs the more names it has."""
    p = parties()
    p.exchange.losses = {lost: phase}
    if phase == "evaluate" and lost == 3:  # it is no holder, and sends nothing then
        p.setup()
        return
    with pytest.raises(FederationError, match=f"the set-up needs {CLIENTS} clients, and only {CLIENTS - 1} are here"):
        p.setup()
    p.exchange.losses, p.exchange.here = {}, set(range(CLIENTS))
    p.exchange.run("list", range(CLIENTS))
    assert all(set(naming(p, n).names.prf) == set(NAMES[n]) for n in range(CLIENTS))
