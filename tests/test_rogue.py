"""A client that deviates: what the others keep of it is bounded, and what is seen to be wrong costs them nothing."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from enum import IntEnum

import numpy as np
import pytest

from secea.audit import KEYED, PAILLIER
from secea.audit.attacks import rogue
from secea.audit.attacks.names import corrupt
from secea.audit.attacks.rogue import NOTHING, ROGUE, Notes, Result, Sites, size_of, tried
from secea.audit.registry import product
from secea.errors import SERVER, FaultyPeer, ProtocolError, RoundLost
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import form as keyed_form
from secea.party.phases import REST
from secea.testing import Parties
from secea.wire import link, messages
from secea.wire.messages import Header

SAID = bytes(range(1, 65))
TABLES = [{"a": [1.0], "b": [2.0]}, {"a": [3.0]}, {"b": [4.0]}, {"a": [5.0]}]


def tolerant() -> Parties:
    parties = Parties.of(TABLES, Keyed(batch=2), collusion=1, dropouts=1)
    parties.setup()
    return parties


# ---------------------------------------------------------------------------------------------------------------- votes


def no_vote(kind: IntEnum, _receiver: int, said: bytes) -> bytes:
    return bytes(64) if kind is Kind.VOTE else said


@pytest.mark.parametrize("liar", range(4))
def test_a_vote_for_another_sum_costs_nothing_while_enough_others_vote(liar: int) -> None:
    parties = tolerant()
    corrupt(parties.clients[liar], no_vote)
    means = parties.round(TABLES)
    assert np.allclose(means[0], [[3.0], [3.0]], atol=1e-5)


def test_too_few_votes_cost_the_round_and_name_those_who_signed_something_else() -> None:
    parties = tolerant()
    for liar in (1, 2):
        corrupt(parties.clients[liar], no_vote)
    with pytest.raises(ProtocolError, match="signs another sum") as caught:
        parties.round(TABLES)
    assert set(caught.value.suspects) == {1, 2}


# --------------------------------------------------------------------------------------------------------------- memory


def test_a_message_that_says_that_it_is_huge_makes_nobody_allocate_anything() -> None:
    parties = tolerant()
    parties.contribute(TABLES)
    parties.server.begin("upload", range(4))
    parties.exchange.deliver()
    client = parties.clients[ROGUE]
    (message,) = client.outbox()
    header = Header.parse(message, ROGUE, Kind)
    whole = replace(header, chunks=2**32 - 1)
    huge = [
        client.link.sealer(whole, SERVER, 2**32 - 1).seal(0, bytes(1000)),
        replace(whole, chunk=2**32 - 2).pack() + bytes(1000),
        replace(header, chunks=2**32 - 1, receiver=0).pack() + bytes(1000),
    ]
    before = size_of(parties.server)
    for each in huge:
        tracemalloc.start()
        with pytest.raises(ProtocolError) as caught:
            parties.server.receive(ROGUE, each)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert caught.value.suspects == (ROGUE,)
        assert most < 1 << 16
    assert size_of(parties.server) == before
    parties.server.receive(ROGUE, message)


def test_a_party_that_begins_one_life_after_the_other_is_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MOST_LIVES", 3)
    parties = tolerant()
    for _ in range(3):
        parties.restart(ROGUE)
        parties.exchange.greet()
    parties.restart(ROGUE)
    with pytest.raises(FaultyPeer, match="begin a new session") as caught:
        parties.exchange.greet()
    assert caught.value.suspects == (ROGUE,)


def test_the_size_of_a_party_counts_what_messages_leave_there() -> None:
    parties = tolerant()
    before = size_of(parties.server)
    parties.server._hellos[0] += bytes(1000)
    assert size_of(parties.server) == before + 1000
    parties.server._queue.append((0, np.zeros(50).data))
    assert size_of(parties.server) >= before + 1000


# ---------------------------------------------------------------------------------------------------------- the program


def test_notes_keep_the_suspects_of_refusals_and_not_of_complaints() -> None:
    notes = Notes()
    notes.refused(b"", ProtocolError((1, SERVER), "wrong"))
    notes.noted("refused", why=str(ProtocolError((0, 1), "do not agree")))
    notes.noted("lost", client="client 1", why="it did not reply in time")
    notes.noted("lost", client="client 2", why="it refuses what came from client 1")
    notes.noted("lost", why=str(RoundLost("round 2 is lost")))
    assert notes.suspected == [{1, SERVER}, {0, 1}, {1}]


@pytest.mark.parametrize(
    ("suspected", "named"),
    [
        ((), "nobody"),
        (({ROGUE}, {ROGUE}), "it"),
        (({ROGUE}, {ROGUE, SERVER}), "it or the server"),
        (({ROGUE, SERVER, 0}, {ROGUE, SERVER, 2}), "it among all others"),
        (({ROGUE}, {SERVER}), "somebody else"),
    ],
)
def test_who_is_named_is_what_all_refusals_say(suspected: tuple[set[int], ...], named: str) -> None:
    found = Result(NOTHING, 0, (True,), 0, False, tuple(map(frozenset, suspected)), 0.0, 0, True)
    assert found.named == named


@pytest.mark.parametrize("form", [KEYED, PAILLIER])
def test_a_federation_in_which_nobody_deviates_costs_nothing(form: str) -> None:
    found = tried(product()[form], NOTHING, 0)
    assert (found.cost, found.named, found.left_out, found.recovered) == ("nothing", "nobody", False, True)


def test_every_kind_of_message_that_a_client_of_the_keyed_form_sends_is_lied_in() -> None:
    sites, lied = Sites(product()[KEYED], 4, collusion=1, dropouts=1), set()
    for deviation in (*rogue.OF_KEYED, *rogue.OF_TOLERANT):
        for kind in Kind:
            try:
                if deviation.lie(sites, kind, 0, SAID) != SAID:
                    lied.add(kind)
            except AssertionError:  # it copies a list that there is not yet
                lied.add(kind)
    sent = {kind for row in sites.session.rows for kind in row.sends}
    assert sent <= lied


def test_of_an_upload_whose_last_chunk_is_wrong_nothing_is_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, and counts as lost: where one client may drop out, the others have the mean of the rest."""
    for module in (messages, keyed_form):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    parties = tolerant()
    parties.contribute(TABLES)
    chunks = iter(range(2))

    def lie(kind: IntEnum, _receiver: int, said: bytes) -> bytes:
        return b"\xff" * 8 + said[8:] if kind is Kind.UPLOAD and next(chunks) == 1 else said

    corrupt(parties.clients[ROGUE], lie)
    parties.server.begin("upload", range(4))
    parties.exchange.deliver()
    first, last = parties.clients[ROGUE].outbox()
    for n in (0, 2, 3):
        for message in parties.clients[n].outbox():
            parties.server.receive(n, message)
    parties.server.receive(ROGUE, first)
    before = size_of(parties.server)
    with pytest.raises(FaultyPeer, match="not below its prime"):
        parties.server.receive(ROGUE, last)
    assert size_of(parties.server) == before
    assert parties.server.missing() == (ROGUE,)
    parties.exchange.here -= {ROGUE}
    parties.server.close()
    parties.exchange.deliver()
    while parties.server.at.phase != REST:
        parties.exchange.step()
    assert np.allclose(parties.means(0, TABLES[0]), [[3.0], [3.0]], atol=1e-5)
