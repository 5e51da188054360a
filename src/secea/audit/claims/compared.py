"""A claim about what is compared in the form "keyed": hashes, tags, proofs and marks count to the last byte."""

from __future__ import annotations

import hmac
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.names import Next, following, naming
from secea.audit.attacks.stage import announcement, broadcast
from secea.audit.begins import believes
from secea.audit.claims.agreed import changed
from secea.audit.claims.common import SETS, Withheld, made_tables
from secea.audit.claims.names import parties_of
from secea.audit.mutants import compared as mutants
from secea.audit.standing import attributes_stand_in
from secea.errors import SERVER, SecEAError
from secea.forms.keyed.client import Released
from secea.forms.keyed.form import Kind
from secea.forms.keyed.handover import Handover
from secea.forms.keyed.masking import same_share, voted
from secea.party.form import Got
from secea.steps import oprf
from secea.testing import Parties
from secea.wire import snapshot
from secea.wire.keys import Hello
from secea.wire.messages import TAG_BYTES

FULL: Final = {
    "verify": 32, "_check_hash": 32, "_check_part": 32, "proven": 32, "fits": 32, "_got_confirmations": 32,
    "_checked": 32, "same": TAG_BYTES, "same_share": 32, "_got_digest": TAG_BYTES,
}  # fmt: skip
"""Where something is compared, and how many bytes these are."""

Takes = Callable[[bytes], object]
"""Takes a value; False, or an error of the package, is a refusal."""


def _each_byte(what: str, value: bytes, takes: Takes) -> int:
    """The value is taken, and with any other byte it is refused: the last one above all."""
    if not _taken(takes, value):
        raise AssertionError(f"{what} is refused as it is")
    for i in reversed(range(len(value))):
        if _taken(takes, changed(value, i)):
            raise Objection(f"{what} counts, though byte {i} of {len(value)} is another one")
    return len(value)


def _taken(takes: Takes, value: bytes) -> bool:
    try:
        return takes(value) is not False
    except (SecEAError, ValueError):
        return False


# -------------------------------------------------------------------------------------------------------- names and key


def _dealings(subject: Subject) -> int:
    """What a dealer sends: its hash, its proof, its shares."""
    parties = parties_of(subject)
    parties.exchange.greet()
    parties.exchange.run("commit", parties.clients, until="list")
    me, dealer = naming(parties.clients[0]), naming(parties.clients[1])
    dealing, cut = dealer._dealing(), 32 * (dealer.params.T + 1)
    commitments, key = dealing[:cut], me.key

    def hashed(value: bytes) -> None:
        me.key = replace(key, hashes={**key.hashes, 1: value})
        me._check_hash(1, commitments)

    cases = _each_byte("the hash of a dealer's commitments", key.hashes[1], hashed)
    me.key = key
    proof = dealing[cut:]
    cases += _each_byte("a dealer's proof", proof, lambda value: oprf.proven(value, commitments, me.session, 1))
    share = oprf.share_for(dealer._polynomial(), 0)
    return cases + _each_byte("a dealer's share", share, lambda value: oprf.fits(value, commitments, 0))


def _lists(subject: Subject) -> int:
    """Marks, confirmations, and lists against their marks; and the answers."""
    parties = parties_of(subject)
    parties.exchange.greet()
    parties.exchange.run("commit", parties.clients, until="confirm")
    client = parties.clients[0]
    me, at, others = naming(client), client.at, [n for n in parties.clients if n]
    part: Any = parties.server.part
    lists = b"".join(part._lists[v] for v in at.members)
    names, marks = me.names, me.names.marks

    def confirmed(by: int, value: bytes) -> None:
        got: Got = {**said, (Kind.CONFIRM, by): value, (Kind.LISTS, SERVER): lists}
        me._got_confirmations(at, got)

    def marked(by: int, value: bytes) -> None:
        got: Got = {(Kind.MARK, v): value if v == by else marks[v] for v in others}
        me._got_marks(at, got)

    def listed(by: int, value: bytes) -> None:
        me.names = replace(names, marks={**marks, by: value})
        ours = me._confirmation(at)
        got: Got = {**{(Kind.CONFIRM, v): ours for v in others}, (Kind.LISTS, SERVER): lists}
        me._got_confirmations(at, got)

    said: dict[tuple[IntEnum, int], bytes] = {
        (Kind.CONFIRM, v): naming(parties.clients[v])._confirmation(at) for v in others
    }
    cases = 0
    for v in others:  # some of them answer no lists
        cases += _each_byte(f"client {v}'s mark, in an attempt that is repeated,", marks[v], partial(marked, v))
        cases += _each_byte(f"client {v}'s confirmation", said[Kind.CONFIRM, v], partial(confirmed, v))
        cases += _each_byte(f"client {v}'s mark", marks[v], partial(listed, v))
        me.names = names
    assert names.blinding is not None
    blinding, holders = names.blinding, me.form.holders(me.params, at)
    answers = {
        j: oprf.evaluate(blinding.points, naming(parties.clients[j]).key.share, holders, j) for j in holders
    }  # fmt: skip

    def answered(value: bytes) -> None:
        rows = answers[1].copy()
        rows[-1] = np.frombuffer(value, np.uint8)
        oprf.finish(blinding, {**answers, 1: rows}, me.key.joint)

    return cases + _each_byte("a holder's answer", answers[1][-1].tobytes(), answered)


def _handovers(subject: Subject) -> int:
    """What members sign of the session before, and what they deal of its key."""
    old = parties_of(subject)
    old.setup()
    form = following(old, (*range(5), None), 2)
    assert form is not None
    session, before = Next(old, form, 2), old.session
    record, me = form.taken_over, naming(old.clients[0])
    roster = session.session.roster

    def checked(value: bytes) -> None:
        replace(record, session=value).check(roster, before, me, 0)

    cases = _each_byte("the hash of the session before", record.session, checked)
    session.exchange.greet()
    session.exchange.run("commit", session.clients, until="deal")
    dealer, newcomer = naming(session.clients[0]), naming(session.clients[5])
    commitments, part = dealer._dealing()[: 32 * 3], record.public_part(0)

    def dealt(value: bytes) -> None:
        with attributes_stand_in((Handover, "public_part", lambda _record, _dealer: value)):
            newcomer._check_part(0, commitments)

    return cases + _each_byte("the part of the key that a dealer deals", part, dealt)


# ------------------------------------------------------------------------------------------------------------ messages


def _messages(subject: Subject) -> int:
    """Hellos, contexts of announcements, tags of broadcasts, saved states, values that went out, shares and votes."""
    tables = made_tables(SETS)
    parties = subject.parties(tables, collusion=1)
    parties.setup()
    client, session = parties.clients[0], parties.session
    hello = parties.clients[1].link.hello
    extra = len(hello.extra)

    def greeted(value: bytes) -> None:
        Hello.verify(hello.to_bytes(), 1, session.roster, value, extra)

    def announced(value: bytes) -> bool:
        numbers: dict[str, Any] = {"epoch": client.at.union + 1, "attempt": 0, "weights": client.at.names}
        return believes(client, announcement(parties, "secret", range(len(SETS)), 0, anchor=value, **numbers))

    cases = _each_byte("the hash of a hello's session", session.hash, greeted)
    cases += _each_byte("the context of an announcement", client.part.anchor("secret", client.at), announced)
    saved, size = client.save(), 32
    cases += _each_byte(
        "the checksum of a saved state", saved[-size:], lambda v: snapshot.loads(saved[:-size] + v) and None
    )
    went = os.urandom(TAG_BYTES)
    cases += _each_byte("what tells values that went out", went, Released(hashed=went).same)
    one, vote = os.urandom(32), parties.identities[0].sign(b"a sum")
    cases += _each_byte("a published share", one, lambda value: same_share(one, value))
    cases += _each_byte("a vote", vote, lambda value: voted(session.roster.key(0), value, b"a sum"))
    return cases + _tags(parties, tables)


def _tags(parties: Parties, tables: Any) -> int:
    """The tag of a broadcast. The client goes on where it was, since a wrong one ends its attempt."""
    parties.contribute(tables)
    parties.exchange.tap = server = Withheld(parties)
    parties.exchange.run("upload", range(len(SETS)))
    client, link = parties.clients[0], parties.server.link
    at = client.at
    *messages, _ = broadcast(parties, 0, Kind.MEANS, *server.chunks)
    for message in messages:
        client.receive(message)
    assert client._running is not None
    waiting, tag = (client.at, client.due, client._running), client._running.digest()

    def tagged(value: bytes) -> None:
        client.at, client.due, client._running = waiting
        client.receive(link.sealer(link.label(Kind.DIGEST, at.numbers, at.context), 0).seal(0, value))

    for i in reversed(range(len(tag))):
        if _taken(tagged, changed(tag, i)):
            raise Objection(f"the tag of a broadcast counts, though byte {i} of {len(tag)} is another one")
    tagged(tag)
    return len(tag)


# ----------------------------------------------------------------------------------------------------- all comparisons


@contextmanager
def _recorded(seen: dict[str, set[tuple[int, int]]]) -> Iterator[None]:
    """Write down who compares how many bytes with how many."""
    compare = hmac.compare_digest

    def recorded(one: Any, other: Any) -> bool:
        seen.setdefault(sys._getframe(1).f_code.co_name, set()).add((len(one), len(other)))
        return compare(one, other)

    with attributes_stand_in((hmac, "compare_digest", recorded)):
        yield


def _operands(subject: Subject, seen: dict[str, set[tuple[int, int]]]) -> int:
    """Every comparison in a life with drop-outs and a round that is sent again is one of whole values."""
    with _recorded(seen):
        for dropouts in (0, 1):
            tables = made_tables(SETS)
            parties = subject.parties(tables, collusion=1, dropouts=dropouts)
            parties.setup()
            parties.exchange.losses = {3: "upload"} if dropouts else {}
            parties.contribute(tables)
            parties.exchange.run("upload", range(len(SETS)))
            if not dropouts:
                parties.server.give_up()
                parties.union(range(len(SETS)))
                parties.number = 0
                parties.contribute(tables)  # the same values once more
    for where, sizes in seen.items():
        for one, other in sizes:
            if one != other or one < FULL.get(where, TAG_BYTES):
                raise Objection(f"'{where}' compares {one} bytes with {other}: a hash, a tag or a proof is not whole")
    if missing := FULL.keys() - seen.keys():
        raise AssertionError(f"nothing was compared in {sorted(missing)}: the claim sees nothing there")
    return len(seen)


@claim(
    "record",
    KEYED,
    mutants=(
        mutants.SHORT_LISTS, mutants.CONFIRMED_BY_HOLDERS, mutants.SHORT_COMMITMENTS, mutants.SHORT_TAGS,
        mutants.SHORT_VALUES, mutants.SHORT_SESSIONS, mutants.SHORT_HANDOVERS,
    ),
)  # fmt: skip
def compared_whole(subject: Subject) -> int:
    """Keyed: hashes, tags, proofs, marks and contexts are compared to the last byte, wherever one of them decides.

    Each of them is offered with every single byte changed, and refused. In whole lives all operands are of full length.
    """
    seen: dict[str, set[tuple[int, int]]] = {}
    with _recorded(seen):
        cases = _dealings(subject) + _lists(subject) + _handovers(subject) + _messages(subject)
    return cases + _operands(subject, seen)
