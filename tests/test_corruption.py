"""A server that lies about who takes part, drops, swaps or replays: an honest client notices, and gives no result.

`test_refusals.py` forges single messages. Here the server goes on lying as well as it can: it passes on whatever the
clients send and announces to each client what that client would believe. After each lie an honest continuation works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from federation import PLACES, Hop, Parties, Tables, at
from secea.arithmetic.field import RING61
from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import SERVER, FederationError, ProtocolError
from secea.params import Params
from secea.server import Phase
from secea.session import label_of
from secea.table import Name
from secea.wire.messages import HEADER_BYTES, NO_CONTEXT, Announcement, Header, Kind, Step

BOTH = ["reciprocal", "paillier"]
both = pytest.mark.parametrize("form", BOTH)
SETS: Sequence[Sequence[Name]] = (["a", "b"], ["b", "a"], ["c", "a"], ["a", "c"], ["a", "d"])
EVERYONE = range(5)


def five(form: str) -> Parties:
    """Five clients of whom three are needed."""
    parties = Parties(SETS, form=form, dropouts=2)
    assert (parties.params.need, parties.params.fewest_contributors) == (3, 3)
    return parties


def no_result(client: Client) -> bool:
    """Nothing that could be taken for means: they are not there, or not yet."""
    return client.means is None or client.phase is ClientPhase.ANSWER


def honest_again(parties: Parties, number: object = "honest") -> None:
    """The server sets up anew, and tells the truth from now on."""
    parties.present = set(parties.clients)
    for client in parties.clients.values():
        client.abandon()
    parties.another_epoch()
    parties.goes_on(number)


# ---------------------------------------------------------------------------------------------- a server's own messages


def forged(parties: Parties, n: int, kind: Kind, payload: bytes, context: bytes = b"") -> Hop:
    """What the server can send to client n so that it is due: made from the client's own state."""
    client, server = parties.clients[n], parties.server
    server.wire.sequence += 1
    label = label_of(kind, epoch=client.epoch, attempt=client.attempt, weights=client.weights, round=client.round)
    header = Header(
        kind,
        SERVER,
        n,
        **label,
        sequence=server.wire.sequence,
        chunks=1,
        context=context or client.context,
        salt=b"\5" * 16,
    )
    return Hop(SERVER, n, bytes(server.wire.channels[n].sealer(header).seal(0, payload)))


def announced(parties: Parties, n: int, step: Step, members: Iterable[int]) -> Hop:
    """An announcement of these members to client n, each with what it has really sent."""
    unsalted = step in (Step.OPENING, Step.RESHARE)
    salts = {
        v: NO_CONTEXT if unsalted else client.pending[0].salt
        for v, client in parties.clients.items()
        if unsalted or client.pending
    }
    return forged(parties, n, Kind.CONTRIBUTORS, Announcement(step, tuple((v, salts[v]) for v in members)).to_bytes())


def between_clients(parties: Parties, sent: Iterable[Hop]) -> Iterator[Hop]:
    """What clients sent to each other, as the server passes it on."""
    for hop in sent:
        receiver = hop.header.receiver
        if receiver in parties.clients:
            yield Hop(SERVER, receiver, hop.message)


def sent_by(parties: Parties) -> list[Hop]:
    return [Hop(n, SERVER, bytes(message)) for n in sorted(parties.clients) for message in parties.clients[n].outbox()]


def passed_on(parties: Parties, sent: Iterable[Hop], side: Callable[[int], bool]) -> list[ProtocolError]:
    """Deliver what clients sent to each other: within a side it is taken, across it is refused. Gives the refusals."""
    refusals = []
    for hop in between_clients(parties, sent):
        if side(hop.header.sender) == side(hop.receiver):
            parties.deliver(hop)
        else:
            error = parties.refused(hop)
            assert set(error.suspects) == {hop.header.sender, SERVER}
            refusals.append(error)
    return refusals


def stuck(parties: Parties) -> None:
    """Every client waits, says for whom, suspects the server, and has no result."""
    for client in parties.clients.values():
        assert no_result(client)
        overdue = client.overdue()
        assert overdue is not None
        assert SERVER in overdue.suspects
        assert client.number not in overdue.suspects


# ------------------------------------------------------------------------------------------------ two contributor sets
# Clients 0 and 4 are told of all five; clients 1 to 3 of the first four. So client 0 counts for both sides.

FULL, FEWER = tuple(EVERYONE), (0, 1, 2, 3)


def told(n: int) -> tuple[int, ...]:
    return FULL if n in (0, 4) else FEWER


def side(n: int) -> bool:
    return told(n) == FULL


def lie_at(parties: Parties, step: Step) -> None:
    for n in EVERYONE:
        parties.deliver(announced(parties, n, step, told(n)))


@both
def test_two_sets_of_members_of_an_epoch_do_not_come_to_a_shared_secret(form: str) -> None:
    parties = five(form)
    greetings: list[Hop] = []

    def two_greetings(hop: Hop) -> Iterable[Hop]:
        if parties.place(hop) != "greeting announcement to a client":
            return [hop]
        greeting = Announcement.parse(parties.opened(hop), 5)
        fewer = Announcement(Step.GREETING, tuple(m for m in greeting.members if m[0] in told(hop.receiver)))
        greetings.append(parties.resealed(hop, fewer.to_bytes()))
        return [greetings[-1]]

    def without_hellos_of_strangers(hop: Hop) -> Iterable[Hop]:
        if parties.place(hop) == "hello to a client" and hop.header.sender not in told(hop.receiver):
            return []
        return two_greetings(hop)

    parties.exchange(without_hellos_of_strangers)
    assert len(greetings) == 5
    sent = sent_by(parties)
    lie_at(parties, Step.SECRET)
    assert passed_on(parties, [hop for hop in sent if hop.header.sender in told(hop.header.receiver)], side)
    assert all(client.phase is ClientPhase.SECRET for client in parties.clients.values())
    stuck(parties)
    parties.server.drain()
    parties.server.introduced -= {(4, n) for n in FEWER if n}  # the server remembers what it has kept back
    honest_again(parties)


@both
def test_two_sets_of_parts_give_two_secrets_and_no_union_that_both_sides_take(form: str) -> None:
    parties = five(form)
    parties.until(Phase.SECRET)
    sent = sent_by(parties)
    lie_at(parties, Step.SECRET)
    for hop in between_clients(parties, sent):
        if hop.header.sender in told(hop.receiver):
            parties.deliver(hop)
    assert {client.phase for client in parties.clients.values()} == {ClientPhase.TABLE}
    assert len({client.secret for client in parties.clients.values()}) == 2
    for side_of in (0, 1):  # even if the server knew the true tags of one side
        tags = np.unique(np.concatenate([parties.clients[n]._own_tags() for n in EVERYONE if side(n) == side(side_of)]))
        for n in EVERYONE:
            if side(n) != side(side_of):
                error = parties.refused(forged(parties, n, Kind.TAGS, bytes(RING61.to_bytes(tags[None]))))
                assert error.suspects == (SERVER,)
                assert "lacks" in error.fault
    stuck(parties)
    honest_again(parties)


@both
def test_two_sets_of_queries_come_to_no_shares_and_to_no_weights(form: str) -> None:
    parties = five(form)
    parties.until(Phase.QUERY)
    sent = sent_by(parties)
    lie_at(parties, Step.QUERY)
    for hop in between_clients(parties, sent):
        if hop.header.sender in told(hop.receiver):
            parties.deliver(hop)
    assert {client.phase for client in parties.clients.values()} == {ClientPhase.READY}
    assert len({client.query_context for client in parties.clients.values()}) == 2
    if form == "paillier":
        for n, table in enumerate(parties.tables()):
            parties.clients[n].contribute(table)
        parties.server.round += 1
        sent = sent_by(parties)
        lie_at(parties, Step.SHARE)
    else:
        no_weights(parties, told)
        sent = sent_by(parties)
        lie_at_weights(parties)
    assert passed_on(parties, [hop for hop in sent if hop.header.sender in told(hop.header.receiver)], side)
    stuck(parties)
    honest_again(parties)


def no_weights(
    parties: Parties,
    contributors: Callable[[int], tuple[int, ...]],
    resharers: Callable[[int], tuple[int, ...]] = lambda n: (0, 1, 2),
) -> None:
    """The server asks each client for weights of what it was told, sends reciprocals, and has them re-shared."""
    for n in EVERYONE:
        client = parties.clients[n]
        payload = Announcement(Step.OPENING, tuple((v, NO_CONTEXT) for v in contributors(n))).to_bytes()
        client.weights += 1  # so that the label of what is forged is that of the next weights
        hop = forged(parties, n, Kind.CONTRIBUTORS, payload, client.query_context)
        client.weights -= 1
        parties.deliver(hop)
        layout = parties.session.layout(Kind.RECIPROCAL, client.M, len(contributors(n)))
        reciprocals(parties, n, layout.chunks, [layout.payload_bytes(chunk) for chunk in range(layout.chunks)])
        parties.deliver(announced(parties, n, Step.RESHARE, resharers(n)))


def reciprocals(parties: Parties, n: int, chunks: int, sizes: Sequence[int]) -> None:
    """Shares of zero, which nobody can tell from others."""
    client, wire = parties.clients[n], parties.server.wire
    wire.sequence += 1
    label = label_of(Kind.RECIPROCAL, epoch=client.epoch, attempt=client.attempt, weights=client.weights, round=0)
    header = Header(
        Kind.RECIPROCAL,
        SERVER,
        n,
        **label,
        sequence=wire.sequence,
        chunks=chunks,
        context=client.context,
        salt=bytes(16),
    )
    sealer = wire.channels[n].sealer(header)
    for chunk, size in enumerate(sizes):
        parties.deliver(Hop(SERVER, n, bytes(sealer.seal(chunk, bytes(size)))))


def lie_at_weights(parties: Parties, resharers: Callable[[int], tuple[int, ...]] = lambda n: (0, 1, 2)) -> None:
    for n in EVERYONE:
        parties.deliver(announced(parties, n, Step.WEIGHTS, resharers(n)))


def test_two_sets_of_contributors_of_the_weights_come_to_no_weights() -> None:
    parties = five("reciprocal")
    parties.setup()
    no_weights(parties, told)
    sent = sent_by(parties)
    lie_at_weights(parties)
    assert passed_on(parties, [hop for hop in sent if hop.header.sender in told(hop.header.receiver)], side)
    assert {client.phase for client in parties.clients.values()} == {ClientPhase.RESHARE}
    stuck(parties)
    honest_again(parties)


def test_two_sets_of_re_sharers_come_to_no_weights() -> None:
    parties = five("reciprocal")
    parties.setup()

    def resharers(n: int) -> tuple[int, ...]:
        return (0, 1, 4) if side(n) else (0, 1, 2)

    no_weights(parties, lambda n: FULL, resharers)
    sent = sent_by(parties)
    lie_at_weights(parties, resharers)
    due = [hop for hop in sent if hop.header.receiver in EVERYONE]
    assert passed_on(parties, [hop for hop in due if hop.header.sender in resharers(hop.header.receiver)], side)
    stuck(parties)
    honest_again(parties)


@both
def test_two_announcements_that_differ_in_one_salt_do_not_go_together(form: str) -> None:
    """Everyone is told of the same clients, but some of another message of client 3: that one does not come."""
    parties = five(form)
    parties.setup()
    parties.begin(parties.tables())
    sent = sent_by(parties)
    for n in EVERYONE:
        hop = announced(parties, n, Step.SHARE, FULL)
        if n in (1, 2):
            members = [
                (v, b"\7" * 16 if v == 3 else salt) for v, salt in Announcement.parse(parties.opened(hop), 5).members
            ]
            hop = parties.resealed(hop, Announcement(Step.SHARE, tuple(members)).to_bytes())
        parties.deliver(hop)
    for hop in between_clients(parties, sent):
        if hop.header.sender == 3 and hop.receiver in (1, 2):
            assert set(parties.refused(hop).suspects) == {3, SERVER}
        else:
            parties.deliver(hop)
    for n in (1, 2):
        overdue = parties.clients[n].overdue()
        assert overdue is not None
        assert overdue.suspects == (SERVER, 3)
    stuck(parties)
    honest_again(parties)


# -------------------------------------------------------------------------------------------------- dropped messages

FROM_THE_SERVER = {r: [p for p in places if p.endswith("a client")] for r, places in PLACES.items()}


@both
def test_whatever_the_server_does_not_deliver_its_receiver_waits_for_it_and_suspects_the_server(form: str) -> None:
    for place in FROM_THE_SERVER[form]:
        parties = Parties(form=form)
        tables, dropped, later = run_without(parties, place)
        client = parties.clients[dropped.receiver]
        overdue = client.overdue()
        assert overdue is not None, place
        assert SERVER in overdue.suspects, place
        assert set(overdue.suspects) <= {SERVER, dropped.header.sender}, place
        assert no_result(client), place
        for hop in (dropped, *later):  # it comes after all: nothing else was lost
            parties.deliver(hop)
        assert client.overdue() is None or parties.server.phase is not Phase.READY
        parties.setup()
        if tables:
            parties.check(tables)
        parties.goes_on()


def run_without(parties: Parties, place: str) -> tuple[Tables, Hop, list[Hop]]:
    """Until the exchange is over in which a message was dropped. Gives it, and what its receiver could not take."""
    dropped, later, faults = list[Hop](), list[Hop](), list[ProtocolError]()
    tables: Tables = []

    def hook(hop: Hop) -> Iterable[Hop]:
        if not dropped and parties.place(hop) == place:
            dropped.append(hop)
            return []
        if not dropped or hop.receiver != dropped[0].receiver:
            return [hop]
        if hop.header.sender == dropped[0].header.sender:  # it comes behind, on the same way
            later.append(hop)
            return []
        try:
            parties.deliver(hop)
        except ProtocolError as error:
            faults.append(error)
            later.append(hop)
        return []

    while not dropped:
        if parties.server.phase is Phase.READY:
            tables = parties.tables()
            parties.begin(tables)
        parties.exchange(hook)
    assert all(SERVER in fault.suspects for fault in faults)
    return tables, dropped[0], later


@both
def test_a_client_that_waits_for_nothing_says_so(form: str) -> None:
    parties = Parties(form=form)
    overdue = parties.clients[0].overdue()
    assert overdue is not None
    assert overdue.suspects == (SERVER,)
    parties.setup()
    assert [client.overdue() for client in parties.clients.values()] == [None] * 3
    parties.goes_on()
    assert [client.overdue() for client in parties.clients.values()] == [None] * 3


def test_a_client_that_is_taken_out_of_a_round_for_new_weights_blames_the_server() -> None:
    parties = Parties()
    parties.setup()
    parties.begin(parties.tables())
    parties.other_weights(EVERYONE[:3])
    for client in parties.clients.values():
        assert client.phase is ClientPhase.READY
        overdue = client.overdue()
        assert overdue is not None
        assert overdue.suspects == (SERVER,)
        assert "left us out of round 1" in overdue.fault
    parties.goes_on()


def test_whatever_a_client_does_not_send_to_the_server_ends_the_stage_without_it_and_the_next_round_works() -> None:
    """Its own overdue message is the server's: an honest server leaves it out, and it says so."""
    parties = five("paillier")
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.exchange(lambda hop: [] if hop.carrier == 2 else [hop])
    overdue = parties.clients[2].overdue()
    assert overdue is not None
    assert overdue.suspects == (SERVER,)
    parties.present.discard(2)
    parties.until(Phase.READY)
    parties.check(tables)
    assert no_result(parties.clients[2])
    parties.present.add(2)
    parties.clients[2].abandon()
    parties.goes_on()


# ---------------------------------------------------------------------------------------------------- swapped messages


@both
def test_two_clients_messages_to_one_receiver_cannot_stand_for_each_other(form: str) -> None:
    """The server writes the other sender on a message that it passes on."""
    parties, tried = five(form), set[str]()

    def swap(hop: Hop) -> Iterable[Hop]:
        header, place = hop.header, parties.place(hop)
        if hop.receiver != SERVER and header.sender != SERVER and "hello" not in place:
            other = next(v for v in EVERYONE if v not in (header.sender, hop.receiver))
            message = replace(header, sender=other).pack() + hop.message[HEADER_BYTES:]
            assert SERVER in parties.refused(Hop(SERVER, hop.receiver, message)).suspects
            tried.add(place)
        return [hop]

    parties.setup(swap)
    tables = parties.tables()
    parties.round(tables, swap)
    parties.check(tables)
    assert tried == {
        p
        for p in FROM_THE_SERVER[form]
        if p.split()[0] in ("part", "query", "indicator", "reshare", "share") and "announ" not in p
    }


@both
def test_the_means_of_one_client_are_no_means_of_another_even_if_the_server_seals_them_for_it(form: str) -> None:
    parties = five(form)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    parties.up()
    parties.server.close()
    means = {n: Hop(SERVER, n, bytes(message)) for n, message in parties.server.outbox()}
    for n in EVERYONE:
        other = means[(n + 1) % 5]
        error = parties.refused(parties.resealed(means[n], parties.opened(other)))
        assert SERVER in error.suspects
        assert no_result(parties.clients[n])
    for hop in means.values():
        parties.deliver(hop)
    parties.check(tables)


# ------------------------------------------------------------------------------------------------------- old for new


@both
def test_the_union_of_an_earlier_epoch_is_refused_even_if_the_server_seals_it_anew(form: str) -> None:
    parties, old = five(form), dict[int, bytes]()
    parties.setup(keep_tags(parties, old))
    delivered = parties.waiting()
    parties.server.begin_epoch(parties.present)
    parties.down(lambda hop: [] if hop.message in delivered else [hop])
    parties.until(Phase.TABLE)
    for n in EVERYONE:
        error = parties.refused(forged(parties, n, Kind.TAGS, old[n]))
        assert error.suspects == (SERVER,)
        assert "lacks" in error.fault
    parties.setup()
    parties.goes_on()


def keep_tags(parties: Parties, kept: dict[int, bytes]) -> Callable[[Hop], Iterable[Hop]]:
    def keep(hop: Hop) -> Iterable[Hop]:
        if parties.place(hop) == "tags to a client":
            kept[hop.receiver] = parties.opened(hop)
        return [hop]

    return keep


@both
def test_a_union_that_the_server_serves_to_one_client_alone_comes_to_no_queries(form: str) -> None:
    """Client 0 gets a tag less than the others: its context is another, and nobody takes what it sends."""
    parties = five(form)
    parties.until(Phase.TABLE)

    def shorter(hop: Hop) -> Iterable[Hop]:
        tags = RING61.from_bytes(parties.opened(hop), len(parties.opened(hop)) // 8)[0]
        strangers = np.setdiff1d(tags, parties.clients[hop.receiver]._own_tags())
        return [parties.resealed(hop, bytes(RING61.to_bytes(np.setdiff1d(tags, strangers[:1])[None])))]

    parties.exchange(at("tags to a client", parties, shorter))
    assert {client.phase for client in parties.clients.values()} == {ClientPhase.QUERY}
    sent = sent_by(parties)
    for n in EVERYONE:
        parties.deliver(announced(parties, n, Step.QUERY, FULL))
    assert passed_on(parties, sent, lambda n: n == 0)
    stuck(parties)
    honest_again(parties)


@both
def test_the_means_of_an_earlier_round_are_refused_even_if_the_server_seals_them_anew(form: str) -> None:
    parties, old = five(form), dict[int, bytes]()
    parties.setup()

    def keep(hop: Hop) -> Iterable[Hop]:
        if parties.place(hop) == "mean to a client":
            old[hop.receiver] = parties.opened(hop)
        return [hop]

    parties.round(parties.tables(1), keep)
    tables = parties.tables(2)
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    parties.up()
    parties.server.close()
    for n, message in list(parties.server.outbox()):
        hop = Hop(SERVER, n, bytes(message))
        error = parties.refused(parties.resealed(hop, old[n]))
        assert SERVER in error.suspects
        assert no_result(parties.clients[n])
        with pytest.raises(FederationError):
            parties.clients[n].means_like(parties.clients[n].checked(tables[n]))
        parties.deliver(hop)
    parties.check(tables)


def test_reciprocals_and_shares_of_an_earlier_epoch_are_refused_in_the_next_one() -> None:
    parties, old = five("reciprocal"), list[Hop]()

    def keep(hop: Hop) -> Iterable[Hop]:
        if hop.receiver != SERVER and hop.header.kind in (Kind.RECIPROCAL, Kind.RESHARE, Kind.QUERY, Kind.INDICATOR):
            old.append(hop)
        return [hop]

    parties.setup(keep)
    parties.another_epoch(lambda hop: refusing(parties, old, hop))
    parties.goes_on()


def refusing(parties: Parties, old: Iterable[Hop], hop: Hop) -> Iterable[Hop]:
    """Before a message of some kind, all old ones of that kind to the same receiver are tried."""
    for before in old:
        same = before.header.kind is hop.header.kind and before.header.sender == hop.header.sender
        if same and before.receiver == hop.receiver:
            assert SERVER in parties.refused(before).suspects
    return [hop]


# ------------------------------------------------------------------------------------------------------------- quorum


def test_a_quorum_is_enough_to_decode_and_more_than_half_unless_more_may_vanish() -> None:
    legal = [(N, T, D) for N in range(3, 12) for T in range(1, (N + 1) // 2) for D in range(N - 2 * T)]
    for clients, collusion, dropouts in legal:
        params = Params(clients, 3, collusion=collusion, dropouts=dropouts)
        assert params.need <= params.quorum <= clients - dropouts
        assert 2 * params.quorum > clients or 2 * dropouts >= clients


@both
def test_answers_of_no_more_than_half_of_the_clients_give_no_result_though_they_would_decode(form: str) -> None:
    """Two groups of three could each confirm a set of contributors of their own."""
    parties = Parties([["a", "b"], ["a"], ["b", "c"], [], ["c"], ["a", "d"], ["d"]], form=form, dropouts=3)
    assert (parties.params.need, parties.params.quorum) == (3, 4)
    parties.setup()
    parties.begin(parties.tables())
    parties.until(Phase.ANSWER)
    parties.present = {0, 1, 2}
    parties.up()
    saved = parties.server.save()
    with pytest.raises(FederationError, match=r"3 clients answered in round 1: .*; 4 are needed"):
        parties.server.close()
    parties.back_to(SERVER, saved)
    with patch.object(Params, "quorum", property(lambda params: params.need)):  # a server that does not care
        parties.server.close()
    for n, message in [(n, bytes(message)) for n, message in parties.server.outbox() if n in parties.present]:
        error = parties.refused(Hop(SERVER, n, message))
        assert error.suspects == (SERVER,)
        assert "4 contributors are due" in error.fault
