"""Claims about epochs of names: lists bind over all attempts, and the key's bounds over all sessions that keep it."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from itertools import product
from typing import Any

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.names import Askers, Next, corrupt, driven, following, naming
from secea.audit.attacks.stage import announcement, word
from secea.audit.begins import believes
from secea.audit.claims.names import BOUND, LATER, ROGUE, UPDATES, N, T, _moved, parties_of
from secea.audit.mutants import epochs as mutants
from secea.engines.federation import Federation
from secea.errors import SERVER, FederationError, ProtocolError
from secea.forms.keyed.form import Kind
from secea.forms.keyed.handover import Following, Handover
from secea.params import Params
from secea.party.client import Client
from secea.party.session import Session
from secea.steps import oprf
from secea.testing import Parties
from secea.wire.keys import Identity, Roster


@claim("attack", KEYED, mutants=(mutants.UNCHECKED_PADDING,))
def answers_to_padding(subject: Subject) -> int:
    """Keyed: a holder that answers one point of a list wrongly does not learn whether it is a name: all complain.

    Lists are sent again byte for byte, so that silence at some points would tell which of them are names.
    """
    for place in range(BOUND + 1):
        parties = parties_of(subject)
        parties.exchange.greet()
        parties.exchange.run("commit", range(N), until="evaluate")

        def lie(kind: IntEnum, _receiver: int, said: bytes, place: int = place) -> bytes:
            return _moved(place)(said) if kind is Kind.EVALUATION else said

        corrupt(parties.clients[ROGUE], lie)
        errors = driven(parties.server, parties.clients, "secret")
        if silent := [n for n in range(N) if n != ROGUE and n not in errors]:
            raise Objection(f"clients {silent} do not complain of a wrong answer to point {place} of their lists")
    return BOUND + 1


@claim("attack", KEYED, mutants=(mutants.MARKS_OF_THE_LAST_ATTEMPT,))
def one_list_in_an_epoch(subject: Subject) -> int:
    """Keyed: the server and a client have one list of it answered in an epoch, whoever is absent in between."""
    parties = parties_of(subject)
    honest, askers = range(N - 1), Askers(parties, (N - 1,))
    parties.setup()
    if not askers.ask(honest, 2):
        raise AssertionError("not even the first list is answered")
    for absent in (N - 1, 0):
        members = set(range(N)) - {absent}
        parties.server.give_up()
        parties.server.begin("list", members, names=2)
        driven(parties.server, parties.clients, "secret")
        askers.ask([n for n in honest if n != absent] if absent == 0 else honest, 2)
        if (known := len(askers.known[2])) > LATER:
            raise Objection(f"{known} guesses were answered in one epoch, since client {absent} was absent once")
    return 2


def _old(subject: Subject) -> Parties:
    """A session that has seen one epoch with new names."""
    parties = parties_of(subject)
    parties.setup()
    parties.exchange.run("list", range(N))
    return parties


def _next(old: Parties | Next, *stay: int | None, collusion: int = T) -> Next:
    form = following(old, stay, collusion)  # type: ignore[arg-type]  # it has what is looked at
    if form is None:
        raise AssertionError("the key is not kept where it may be")
    return Next(old, form, collusion)  # type: ignore[arg-type]


@claim(
    "attack",
    KEYED,
    mutants=(mutants.BUDGET_OF_ONE_SESSION, mutants.MOST_OF_A_SESSION, mutants.SHARES_FOR_LEAVERS, mutants.WAY_BACK),
)
def key_over_many_sessions(subject: Subject) -> int:
    """Keyed: a key that outlives several sessions keeps all their bounds, and those who leave get no share of it.

    Members that confirmed a newcomer's list do not go back to the session before.
    """
    first = _old(subject)
    second = _next(first, *range(N), None)
    second.setup()
    for epochs in (1, 2):  # one in the first session, and one in the second
        form = following(second, (*range(N + 1), None), T)  # type: ignore[arg-type]
        seen = form.taken_over.updates if form else 1 + UPDATES
        if seen < epochs:
            raise Objection(
                f"a third session with the same key knows of {seen} epochs of names, and there were {epochs}"
            )
        if epochs == 1:
            second.exchange.run("list", range(N + 1))

    left = _next(_old(subject), *range(N - 1), collusion=1)
    left.setup()
    for n, client in left.clients.items():
        if n >= N - 1 and naming(client).key.share:
            raise Objection("a client that leaves gets a share of the key that the others keep")

    old = _old(subject)
    joined = _next(old, *range(N), None)
    joined.exchange.greet()
    joined.exchange.run("commit", joined.clients, until="evaluate")
    for n in range(N):
        naming(joined.clients[n]).renounce()
        if not naming(old.clients[n]).successor:
            raise Objection("a client goes back to the session before, though it confirmed a newcomer's list")
    return 3


def _believed(session: Next, members: range) -> list[str]:
    """The phases that some client would begin with these members, of any numbers that could be next."""
    found = []
    for n, row in product(range(session.session.params.clients), session.session.rows):
        at = session.clients[n].at
        for union, names, round_ in product((0, 1), range(at.names + 2), (0, 1)) if row.announced else ():
            numbers: dict[str, Any] = {"epoch": at.union + union, "weights": names, "round": at.round + round_}
            said = announcement(session, row.phase, members, n, **numbers)  # type: ignore[arg-type]
            if believes(session.clients[n], said):
                found.append(row.phase)
    return found


@claim("attack", KEYED, mutants=(mutants.LEAVERS_STAY,))
def who_left(subject: Subject) -> int:
    """Keyed: clients that left take part in nothing once the key is handed over: no names, no union, no round.

    After the set-up, when clients were asked to train, when they have trained, and after a round.
    """
    session, cases = _next(_old(subject), *range(N - 1), collusion=1), 0
    session.setup()
    stay, clients = range(N - 1), session.clients

    def look(where: str, phases: set[str]) -> None:
        nonlocal cases
        if with_them := _believed(session, range(N)):
            raise Objection(f"{where}, the phase '{with_them[0]}' may begin with a client that left")
        assert phases <= set(_believed(session, stay)), "nothing may begin: the attack sees nothing"
        cases += 1

    look("after the set-up", {"list", "secret", "ready"})
    session.server.begin("ready", stay)
    session.exchange.deliver()
    look("asked to train", {"list", "secret"})
    for n in stay:
        clients[n].contribute({name: [1.0] for name in clients[n].part.next_names}, 1)
    look("trained", {"secret", "upload"})
    session.exchange.step()
    session.exchange.run("upload", stay)
    look("after a round", {"list", "secret", "ready"})
    return cases


@claim("attack", KEYED, mutants=(mutants.GONE_HELPS,))
def gone_for_good(subject: Subject) -> int:
    """Keyed: a client that is gone for good has nothing of the names' keys that the others use from then on.

    Else it could read sums of its old entities, with the server and a client that stayed. Without its old key nobody
    takes over anything: neither the share of a key, nor the PRF value of a name.
    """
    cases = 0
    for gone, leaver in product((False, True), range(N)):
        federation = Federation(Params(clients=N, dim=1), subject.form)
        federation.setup([["a", "b"]] * N)
        before = naming(federation.clients[leaver])
        federation.leave(leaver, gone=gone)
        for n, client in federation.clients.items():
            now = naming(client)
            same = any(now.names.prf[name] == value for name, value in before.names.prf.items())
            same |= oprf.public_key(now.key.joint) == oprf.public_key(before.key.joint)
            assert same or gone, "nothing is kept: the attack sees nothing"
            if same and gone:
                raise Objection(f"client {leaver} is gone for good, and has the keys of names of client {n}")
            cases += gone
    return cases


def _signs(old: Parties, session: Session, me: int) -> bool:
    """Whether a member would sign that this session takes over its key."""
    client = Client(session, me, old.identities[me], old.clients[me].part.next_names)
    try:
        client.part.inherit(old.session, old.clients[me].part)
    except FederationError:
        return False
    return True


def _asks_again(old: Parties, me: int) -> bool:
    """Whether a member would begin an epoch of names in its session."""
    at = old.clients[me].at
    return any(
        believes(old.clients[me], announcement(old, "list", range(N), me, epoch=union, weights=names))
        for union, names in product(range(at.union, at.union + 2), range(at.names + 2))
    )


def _withheld(subject: Subject) -> Parties:
    """The same, and another epoch, whose answers came to nobody."""
    old = _old(subject)
    old.exchange.run("list", range(N), until="evaluate")
    old.server.give_up()
    return old


def _left_out(old: Parties, record: Handover, following: Following) -> int:
    """Nobody signs a record in which the last member is neither a member nor one who left."""
    keys = [old.identities[n].public for n in range(N - 1)]
    for more in (0, 1):
        numbers = (*range(N - 1), *[None] * more)
        roster = Roster((*keys, *(Identity.generate().public for _ in range(more))), old.identities[SERVER].public)
        form = replace(following, before=replace(record, numbers=numbers))
        session = Session(replace(old.session.params, clients=len(numbers), collusion=1), roster, form)
        for me in range(N - 1):
            if _signs(old, session, me):
                raise Objection(f"client {me} hands over the key of its names, though client {N - 1} was not asked")
    return 2 * (N - 1)


@claim(
    "attack",
    KEYED,
    mutants=(
        mutants.DEALERS_ALONE,
        mutants.ANY_SESSION,
        mutants.TWO_SUCCESSORS,
        mutants.FEWER_MEMBERS,
        mutants.ANSWERED_EPOCHS,
        mutants.NAMES_AFTERWARDS,
    ),
)
def handovers(subject: Subject) -> int:
    """Keyed: no member signs that a session takes over its key, if anything in its record or roster is not true.

    A key of somebody else in the place of a member, members that changed places or are left out, another session or
    key, fewer epochs. An epoch counts as soon as it has begun: a server can keep its answers from honest clients.
    """
    old, cases = _withheld(subject), 0
    form = following(old, (*range(N), None), T)
    assert form is not None
    keys = [*(old.identities[n].public for n in range(N)), Identity.generate().public]
    server, params = old.identities[SERVER].public, replace(old.session.params, clients=N + 1, collusion=T)
    record, stranger = form.taken_over, Identity.generate().public
    moved = [
        (f"client {i} is somebody else", [stranger if n == i else key for n, key in enumerate(keys)], record)
        for i in range(N)
    ]
    moved += [
        (f"clients {i} and {i + 1} changed places", [*keys[:i], keys[i + 1], keys[i], *keys[i + 2 :]], record)
        for i in range(N - 1)
    ]
    other = naming(_old(subject).clients[0]).key.joint
    counts = [{"updates": n} for n in range(record.updates)]
    for what, more in [("session", {"session": bytes(32)}), ("key", {"joint": other}), *(("count", n) for n in counts)]:
        moved.append((f"it says another {what}", keys, replace(record, **more)))  # type: ignore[arg-type]
    for me in range(N):
        for what, roster, said in moved:
            if roster[me] != keys[me]:
                continue  # it has no place in that session
            cases += 1
            if _signs(old, Session(params, Roster(tuple(roster), server), replace(form, before=said)), me):
                raise Objection(f"client {me} hands over the key of its names, though {what}")
    if record.updates != 2:
        raise Objection(f"an epoch was answered, and answers of another were kept back: {record.updates} are counted")
    cases += _left_out(old, record, form)
    right = Session(params, Roster(tuple(keys), server), form)
    assert all(_asks_again(old, me) for me in range(N)), "nobody asks for names: the attack sees nothing"
    assert all(_signs(old, right, me) for me in range(N)), "nobody hands over anything: the attack sees nothing"
    second = Session(replace(params, rounds=params.rounds - 1), right.roster, form)
    for me in range(N):
        cases += 1
        if _signs(old, second, me):
            raise Objection(f"client {me} hands over the key of its names to a second session: guesses count twice")
        if _asks_again(old, me):
            raise Objection(f"client {me} handed over the key of its names, and asks for names in the session before")
    return cases


@claim("attack", KEYED, mutants=(mutants.ANOTHER_KEY,))
def one_key(subject: Subject) -> int:
    """Keyed: once names have their keys, nobody deals another key in a session: each would allow as many guesses again.

    After a set-up, after an epoch of names, and after a restart.
    """
    for happens in ("nothing", "an epoch of names", "a restart"):
        parties = parties_of(subject)
        parties.setup()
        if happens == "an epoch of names":
            parties.exchange.run("list", range(N))
        if happens == "a restart":
            for n in range(N):
                parties.restart(n)
            parties.exchange.greet()
            parties.exchange.run("secret", range(N))
        lives = [(n, parties.server.link.incarnation(n)) for n in range(N)]
        for n, client in parties.clients.items():
            for names in (1, 2):
                said = word(parties, "commit", lives, n, epoch=client.at.union + 1, attempt=0, weights=names)
                try:
                    client.receive(said)
                except ProtocolError:
                    continue
                raise Objection(f"client {n} deals another key after {happens}")
    return 6 * N
