"""Claims about the names' PRF: its dealers, its holders, its lists, and the sessions that its key outlives."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from itertools import combinations
from typing import Final

import numpy as np

from secea.arithmetic.ristretto import ORDER, add, multiply, multiply_base, scalar_rows, total
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.names import (
    Askers,
    Errors,
    Next,
    begun,
    chosen,
    corrupt,
    driven,
    following,
    ground,
    key_of,
    naming,
    prf_of,
    split,
    unknown,
)
from secea.audit.claims.counts import form_of
from secea.audit.mutants import names as mutants
from secea.errors import SERVER, FederationError, ParamsError, party
from secea.forms.keyed.form import Kind
from secea.params import Params
from secea.party.client import Client
from secea.party.server import Server
from secea.steps import oprf
from secea.testing import Parties
from secea.wire.randomness import KeyStream

N: Final = 5
T: Final = 2
"""With these T+1 holders, Z signatures and N clients are three different numbers."""
ROGUE: Final = 1
SETS: Final = ("ab", "bc", "acd", "ad", "bd")
BOUND: Final = 4
"""max_entities."""
LATER: Final = 3
"""max_new_entities."""
UPDATES: Final = 2
"""max_updates."""


def parties_of(subject: Subject, clients: int = N, collusion: int = T) -> Parties:
    """Parties with these bounds, before their set-up."""
    form = replace(form_of(subject), max_new_entities=LATER, max_updates=UPDATES)
    params = Params(clients, dim=1, collusion=collusion, max_entities=BOUND, max_union=16)
    return Parties(params, form, list(map(list, SETS[:clients])), session=subject.session, client=subject.client)


def complained(errors: Errors, rogue: int, by: int) -> bool:
    """Whether this client refused to go on; it must name the rogue."""
    if by not in errors:
        return False
    if rogue not in errors[by].suspects:
        raise Objection(f"client {by} was cheated by client {rogue}, and says: {errors[by]}")
    return True


# -------------------------------------------------------------------------------------------------------------- dealers


def _ground(subject: Subject) -> None:
    parties = parties_of(subject)
    begun(parties)
    driven(parties.server, parties.clients, "deal")
    ground(parties, ROGUE)
    errors = driven(parties.server, parties.clients, "list")
    if any(not complained(errors, ROGUE, n) for n in range(N) if n != ROGUE):
        first = oprf.public_key(naming(parties.clients[0]).key.joint)[0]
        raise Objection(f"a dealer chose among many keys: the public one begins with {first}, as it wished")


def _chosen(subject: Subject) -> None:
    parties, k = parties_of(subject, 4, 3), int.from_bytes(os.urandom(31), "little")
    begun(parties)
    driven(parties.server, parties.clients, "deal")
    chosen(parties, ROGUE, k)
    errors, wished = driven(parties.server, parties.clients, "list"), multiply_base(scalar_rows([k])).tobytes()
    for n in (0, 2, 3):
        joint = naming(parties.clients[n]).key.joint
        if not complained(errors, ROGUE, n) and hmac.compare_digest(oprf.public_key(joint), wished):
            raise Objection("a dealer chose the key of the names, and knows it")


def _unknown(subject: Subject) -> None:
    parties = parties_of(subject, 4, 3)
    unknown(parties, ROGUE)
    begun(parties)
    errors = driven(parties.server, parties.clients, "list")
    if any(not complained(errors, ROGUE, n) for n in (0, 2, 3)):
        raise Objection("a dealer committed to what nobody knows, and all took it for a part of the key")


def _wrong_share(subject: Subject) -> None:
    parties, cheated = parties_of(subject), 3
    other = oprf.polynomial(T, KeyStream(os.urandom(32)))

    def lie(kind: IntEnum, receiver: int, said: bytes) -> bytes:
        return oprf.share_for(other, receiver) if kind is Kind.SHARE and receiver == cheated else said

    corrupt(parties.clients[ROGUE], lie)
    begun(parties)
    errors = driven(parties.server, parties.clients, "list")
    key = naming(parties.clients[cheated]).key
    if not complained(errors, ROGUE, cheated) and not oprf.fits(key.share, key.joint, cheated):
        raise Objection(f"client {cheated} holds a share of the key that is none, and nobody is named")


@claim("attack", KEYED, mutants=(mutants.NO_HASH, mutants.NO_PROOF, mutants.ROGUE_DEALER, mutants.ANY_SHARE))
def dealers_of_the_key(subject: Subject) -> int:
    """Keyed: no dealer chooses the names' key or deals what it does not know; those whom it cheats name it."""
    attacks: tuple[Callable[[Subject], None], ...] = (_chosen, _ground, _unknown, _wrong_share)
    for attack in attacks:
        attack(subject)
    return len(attacks)


# -------------------------------------------------------------------------------------------------------------- holders


def _swapped(i: int, j: int) -> Callable[[bytes], bytes]:
    def change(said: bytes) -> bytes:
        points = [said[at : at + 32] for at in range(0, len(said), 32)]
        points[i], points[j] = points[j], points[i]
        return b"".join(points)

    return change


def _moved(i: int) -> Callable[[bytes], bytes]:
    other = multiply_base(scalar_rows([7])).tobytes()
    return lambda said: said[: 32 * i] + other + said[32 * i + 32 :]


@claim("attack", KEYED, mutants=(mutants.NO_CHECK_POINT, mutants.EQUAL_WEIGHTS, mutants.ALL_NAMED))
def answers_of_holders(subject: Subject) -> int:
    """Keyed: nobody takes a wrong answer to a blinded name, whichever it is, and who gave it is named, alone."""
    places = range(BOUND + 1)
    changes = [*map(_moved, places), *(_swapped(i, j) for i, j in combinations(places, 2))]
    some = changes if subject.thorough else changes[2::3]
    for change in some:
        parties = parties_of(subject)
        parties.exchange.greet()
        parties.exchange.run("commit", range(N), until="evaluate")

        def lie(kind: IntEnum, _receiver: int, said: bytes, change: Callable[[bytes], bytes] = change) -> bytes:
            return change(said) if kind is Kind.EVALUATION else said

        corrupt(parties.clients[ROGUE], lie)
        errors = driven(parties.server, parties.clients, "secret")
        shares = {n: naming(client).key.share for n, client in parties.clients.items()}
        for n in (0, 2, 3, 4):
            found = naming(parties.clients[n]).names.prf
            if not complained(errors, ROGUE, n):
                if any(prf_of(name, shares) != F for name, F in found.items()):
                    raise Objection(f"client {n} took a wrong answer for the key of a name")
            elif not {*errors[n].suspects} <= {ROGUE, SERVER}:
                raise Objection(f"{party(ROGUE)} answers wrongly, and client {n} says: {errors[n]}")
    return len(some)


@claim("attack", KEYED, mutants=(mutants.OFFSET_OF_ONE,))
def secret_offset(subject: Subject) -> int:
    """Keyed: a holder that answers a whole list under another key is found out, wherever it guesses the check point.

    Whatever it adds to one point: the check point is moved by a secret number, so that the right one cannot be told.
    """
    weight = scalar_rows([oprf.holder_weight(range(T + 1), ROGUE)])
    less = scalar_rows([ORDER - oprf.holder_weight(range(T + 1), ROGUE)])
    for place in range(BOUND + 1):
        parties = parties_of(subject)
        parties.exchange.greet()
        parties.exchange.run("commit", range(N), until="evaluate")

        def lie(kind: IntEnum, to: int, said: bytes, place: int = place, parties: Parties = parties) -> bytes:
            if kind is not Kind.EVALUATION:
                return said
            blinding = naming(parties.clients[to]).names.blinding
            assert blinding is not None
            more = multiply(blinding.points, weight.repeat(len(blinding.points), axis=0))
            more[place] = total(np.concatenate([more[place : place + 1], multiply_base(less)]))
            return add(np.frombuffer(said, np.uint8).reshape(-1, 32), more).tobytes()

        corrupt(parties.clients[ROGUE], lie)
        errors = driven(parties.server, parties.clients, "secret")
        if silent := [n for n in range(N) if n != ROGUE and not complained(errors, ROGUE, n)]:
            raise Objection(f"clients {silent} take names under another key than that of the others")
    return (BOUND + 1) * (N - 1)


# ---------------------------------------------------------------------------------------------------------------- lists

COPIES: Final = ((4, 3), (3, 4), (4, 4))
"""Who asks, and whose point it copies. They are no holders: T+1 honest ones must refuse."""


def _answered(subject: Subject, thief: int, copy: int) -> list[int]:
    """Who answers a list in which one point is also that of client `copy`, or stands twice."""
    parties = parties_of(subject)
    parties.exchange.greet()
    parties.exchange.run("commit", range(N), until="list")
    mine = naming(parties.clients[thief])
    assert mine.names.blinding is not None
    points = mine.names.blinding.points.copy()
    points[0] = naming(parties.clients[copy])._points[1]
    mine.names = replace(mine.names, blinding=replace(mine.names.blinding, points=points))
    errors = driven(parties.server, parties.clients, "evaluate")
    return [n for n in range(T + 1) if not complained(errors, thief, n)]


@claim("attack", KEYED, mutants=(mutants.SHARED_POINTS, mutants.REPEATED_POINTS, mutants.LATER_CONVICTED))
def points_of_others(subject: Subject) -> int:
    """Keyed: nobody has a point of another client's list answered, or one of its own twice; whoever tries is named."""
    for thief, copy in COPIES:
        if who := _answered(subject, thief, copy):
            what = "blinded name twice" if thief == copy else "blinded name of another client"
            raise Objection(f"clients {who} answer a list with a {what}")
    return len(COPIES)


@claim("attack", KEYED, mutants=(mutants.UNCONFIRMED,))
def one_list_for_all_holders(subject: Subject) -> int:
    """Keyed: the server and T clients cannot have each holder answer another list in one attempt."""
    parties, inside = parties_of(subject), range(N - T, N)
    parties.exchange.greet()
    parties.server.begin("commit", range(N))
    driven(parties.server, parties.clients, "list")
    for n in range(N):
        for message in parties.clients[n].outbox():
            parties.server.receive(n, message)
    parties.server.close()
    if who := split(parties, N - 1, inside, range(T + 1)):
        raise Objection(f"clients {who} answered different lists of one client in the same epoch of names")
    return T + 1


def _asked(subject: Subject) -> Askers:
    """A federation after its set-up; the rogue asked for more names than there is room for."""
    parties = parties_of(subject)
    askers = Askers(parties, range(T))
    guesses = askers.guesses()
    askers.rogue.names = type(askers.rogue.names)(guesses)
    parties.setup()
    askers.known[1] = {name for name in guesses if name in askers.rogue.names.prf}
    return askers


@claim(
    "attack",
    KEYED,
    mutants=(
        mutants.FEW_SIGNATURES,
        mutants.FORGETS_LISTS,
        mutants.UNSAVED_LISTS,
        mutants.LONG_LISTS,
        mutants.LATER_LISTS,
        mutants.MANY_EPOCHS,
    ),
)
def guesses_of_a_coalition(subject: Subject) -> int:
    """Keyed: the server and T clients test no more guessed names than one client's bounds, whoever they ask and how.

    Every set of honest clients is asked, before and after restarts; and in every epoch until nobody answers.
    """
    askers, tried, honest = _asked(subject), 1, range(T, N)
    groups = [some for size in range(1, N - T + 1) for some in combinations(honest, size)]
    for restarted in (False, True):
        for group in groups:
            for n in group if restarted else ():
                askers.parties.restart(n)
                askers.parties.exchange.greet()
            tried += 1
            askers.ask(group, 2)
    epoch = 2
    while askers.ask(honest, epoch + 1) and epoch < UPDATES + 3:
        epoch, tried = epoch + 1, tried + 1
    # Section K2, written a second time: max_entities once, then max_new_entities in max_updates epochs.
    bounds = {1: BOUND} | dict.fromkeys(range(2, UPDATES + 2), LATER)
    for number, known in sorted(askers.known.items()):
        if len(known) > bounds.get(number, 0):
            raise Objection(
                f"{len(known)} guesses were answered in epoch {number}, where {bounds.get(number, 0)} may be"
            )
    if {number: len(known) for number, known in askers.known.items()} != bounds:
        raise AssertionError(f"the attack sees less than it may: {askers.known}")
    return tried


@claim("record", KEYED, mutants=(mutants.NAMED_BLINDS, mutants.ONE_SEED))
def blinded_once(subject: Subject) -> int:
    """Keyed: no two lists of blinded names have a point in common, whoever asks again for the same names."""
    seen: dict[bytes, tuple[int, int]] = {}
    for session in range(2):
        parties = parties_of(subject)
        for n in (3, 4):  # both have the same names
            naming(parties.clients[n]).names = replace(naming(parties.clients[n]).names, own=("a", "b"))
        parties.exchange.greet()
        parties.exchange.run("commit", range(N), until="confirm")
        for n, points in parties.server.part._lists.items():  # type: ignore[attr-defined]  # what the server was sent
            for at in range(0, len(points), 32):
                first = seen.setdefault(points[at : at + 32], (session, n))
                if first != (session, n):
                    raise Objection(f"the same name shows in two lists: of clients {first[1]} and {n}")
    return len(seen)


# ------------------------------------------------------------------------------------------------------------- sessions


def _epochs(server: Server, clients: Mapping[int, Client], members: int) -> int:
    """Epochs of names that everybody takes part in, until somebody refuses."""
    done = 0
    while done < UPDATES + 3:
        server.give_up()
        try:
            server.begin("list", range(members))
        except FederationError:
            return done
        if driven(server, clients, "secret"):
            return done
        done += 1
    return done


def _old(subject: Subject, updates: int = 1) -> Parties:
    parties = parties_of(subject)
    parties.setup()
    for _ in range(updates):
        parties.exchange.run("list", range(N))
    return parties


def _counted(subject: Subject) -> None:
    """A newcomer joins. The server says that the key has seen no epoch of names."""
    old = _old(subject)
    form = following(old, (*range(N), None), T)
    assert form is not None
    for said in (0, 1):
        try:
            then = Next(old, replace(form, before=replace(form.taken_over, updates=said)), T)
        except FederationError:
            if said:
                raise
            continue
        then.setup()
        if (more := _epochs(then.server, then.clients, N + 1)) > UPDATES - 1:
            raise Objection(f"one key has seen {1 + more} epochs with new names; {UPDATES} may be")
        break


def _too_many_left(subject: Subject, collusion: int) -> bool:
    """One client leaves, and with it its share. Whether the key was kept; T of the others conspire with it."""
    old = _old(subject, 0)
    form = following(old, tuple(range(N - 1)), collusion)
    if form is None:
        return False
    try:
        then = Next(old, form, collusion)
    except ParamsError:
        return False
    then.setup()
    public = oprf.public_key(naming(then.clients[0]).key.joint)
    shares = {n: naming(old.clients[n]).key.share for n in (*range(collusion), N - 1)}
    fresh = {n: naming(then.clients[n]).key.share for n in range(collusion)}
    for k in (key_of(shares), key_of(fresh)):
        if multiply_base(scalar_rows([k % ORDER])).tobytes() == public:
            raise Objection(f"a client that left and {collusion} of the others have the key of the names")
    return True


@claim("attack", KEYED, mutants=(mutants.UNCOUNTED, mutants.KEPT))
def key_from_session_to_session(subject: Subject) -> int:
    """Keyed: a key that outlives its session stays with those who stay, and so do the bounds of guesses."""
    _counted(subject)
    kept = [_too_many_left(subject, collusion) for collusion in (1, 2)]
    if not kept[0]:
        raise AssertionError("the key is not even kept where it may be: the attack sees nothing")
    return 3
