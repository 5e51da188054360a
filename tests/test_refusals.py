"""Everything that must be refused: with the right blame, without any change of state, and the federation goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from federation import PLACES, Hop, Parties, Tables, at, entropy, whole_run
from secea import buckets
from secea import client as client_module
from secea.arithmetic.field import RING61
from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import (
    SERVER,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ParamsError,
    ProtocolError,
    Stale,
    TableError,
)
from secea.params import Params
from secea.retrieval.paillier import private_key
from secea.server import Phase, Server
from secea.session import Session
from secea.wire import messages
from secea.wire.messages import ALL, HEADER_BYTES, TAG_BYTES, WIRE_VERSION, Announcement, Kind, Step

BOTH = ["reciprocal", "paillier"]
Forgery = Callable[[Parties, Hop], Hop]

SEALED = {r: [p for p in places if "hello" not in p] for r, places in PLACES.items()}
"""All places but those of hellos, which are signed and not sealed."""

RELAYED = ("part", "query", "indicator", "reshare", "share")


def relayed(place: str) -> bool:
    """On its way through the server, which cannot read it."""
    return place.endswith("to the server") and place.split()[0] in RELAYED


def unauthentic(error: ProtocolError, hop: Hop) -> None:
    """Nobody's key vouches for the message: its sender, or whoever carried it. (A server knows that it did nothing.)"""
    if hop.receiver == SERVER:
        assert set(error.suspects) - {SERVER} == {hop.carrier}
    else:
        assert set(error.suspects) == {hop.header.sender, SERVER}


def only_the_sender(error: ProtocolError, hop: Hop) -> None:
    assert isinstance(error, FaultyPeer)
    assert error.suspects == (hop.header.sender,)


def each(form: str, place: str, *forgeries: Forgery, blame: Callable[[ProtocolError, Hop], None]) -> None:
    """At one place every forgery is refused with that blame; with the true message the means are right."""
    parties = Parties(form=form)

    def forge(hop: Hop) -> None:
        for forgery in forgeries:
            blame(parties.refused(forgery(parties, hop)), hop)

    whole_run(parties, place, forge)


def everywhere(form: str, places: Iterable[str], action: Callable[[Parties, Hop, str], None]) -> None:
    """One federation, with an action on the first message at each place; the means are right in the end."""
    parties, left, faults = Parties(form=form), set(places), dict[str, str]()

    def hook(hop: Hop) -> Iterable[Hop]:
        place = parties.place(hop)
        if place in left:
            left.discard(place)
            before = parties.party(hop.receiver).save()
            try:
                action(parties, hop, place)
            except (Exception, pytest.fail.Exception) as fault:  # collected, so that one place does not hide another
                faults[place] = f"{type(fault).__name__}: {fault}"
                parties.back_to(hop.receiver, before)
        return [hop]

    parties.setup(hook)
    tables = parties.tables()
    parties.round(tables, hook)
    assert not faults, "".join(f"\n{place}: {fault}" for place, fault in faults.items())
    parties.check(tables)
    assert not left


def each_everywhere(
    form: str, places: Iterable[str], *forgeries: Forgery, blame: Callable[[ProtocolError, Hop], None]
) -> None:
    """At each place every forgery is refused with that blame."""

    def forge(parties: Parties, hop: Hop, place: str) -> None:
        for forgery in forgeries:
            blame(parties.refused(forgery(parties, hop)), hop)

    everywhere(form, places, forge)


# ---------------------------------------------------------------------------------------------------- the caller's own

BAD_VALUES = [np.nan, np.inf, -np.inf, 64.5, -65.0, 1e300]


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_that_cannot_be_averaged_is_refused_with_its_entity_and_coordinate(form: str, value: float) -> None:
    parties = Parties(form=form)
    parties.setup()
    tables = parties.tables()
    parties.server.begin_round()
    client, before = parties.clients[0], parties.clients[0].save()
    bad = {name: row.copy() for name, row in tables[0].items()}
    bad["c"][2] = value
    with pytest.raises(TableError, match=r"entity 'c', coordinate 2: ") as caught:
        client.contribute(bad)
    assert isinstance(caught.value, ValueError)
    assert client.save() == before
    for n in parties.clients:
        parties.clients[n].contribute(tables[n])
    parties.until(Phase.READY)
    parties.check(tables)


def changed(table: dict[Any, Any], **more: Any) -> dict[Any, Any]:
    return {**table, **more}


WRONG_TABLES: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "an entity too many": lambda t: changed(t, new=np.zeros(3)),
    "an entity missing": lambda t: {k: v for k, v in t.items() if k != "c"},
    "another length": lambda t: changed(t, c=np.zeros(4)),
    "two dimensions": lambda t: changed(t, c=np.zeros((1, 3))),
    "text": lambda t: changed(t, c="abc"),
    "no table": lambda t: [1, 2, 3],
}


@pytest.mark.parametrize("fault", WRONG_TABLES)
def test_a_table_of_other_names_or_another_shape_is_refused(fault: str) -> None:
    parties = Parties()
    parties.setup()
    before = parties.clients[0].save()
    with pytest.raises(TableError):
        parties.clients[0].contribute(WRONG_TABLES[fault](parties.tables()[0]))
    assert parties.clients[0].save() == before
    parties.goes_on()


# ------------------------------------------------------------------------------------------- damaged on the way

SEQUENCE, SALT = range(20, 24), range(48, 64)  # where they stand in a header


def damages(hop: Hop, place: str) -> Iterator[Hop]:
    """The message with one byte of its header or of its body flipped, truncated, or longer."""
    blind = relayed(
        place
    )  # the server cannot know the number and the salt, and cannot read the body: the receiver will
    for i in range(HEADER_BYTES):
        if not (blind and (i in SEQUENCE or i in SALT)):
            yield flipped(hop, i, 1 << i % 8)
    if not blind:
        for i in (HEADER_BYTES, (HEADER_BYTES + len(hop.message)) // 2, len(hop.message) - 1):
            yield flipped(hop, i, 0x80)
    for size in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + TAG_BYTES - 1, len(hop.message) - 1):
        yield replace(hop, message=hop.message[:size])
    yield replace(hop, message=hop.message + b"\0")


def flipped(hop: Hop, at: int, bits: int) -> Hop:
    message = bytearray(hop.message)
    message[at] ^= bits
    return replace(hop, message=bytes(message))


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("what", ["hellos", "sealed messages"])
def test_a_damaged_message_is_refused_and_its_carrier_is_a_suspect(form: str, what: str) -> None:
    def damage(parties: Parties, hop: Hop, place: str) -> None:
        for damaged in damages(hop, place):
            error = parties.refused(damaged)
            assert hop.carrier in error.suspects
            assert len(error.suspects) <= 2

    sealed = SEALED[form]
    everywhere(form, set(PLACES[form]) - set(sealed) if what == "hellos" else sealed, damage)


@pytest.mark.parametrize("form", BOTH)
def test_what_the_server_relays_without_reading_is_refused_by_its_receiver(form: str) -> None:
    for place in (place for place in PLACES[form] if relayed(place)):
        parties, damaged = Parties(form=form), dict[bytes, Hop]()
        body = HEADER_BYTES + 3

        def spoil(hop: Hop, damaged: dict[bytes, Hop] = damaged, body: int = body) -> Iterable[Hop]:
            spoiled = flipped(hop, body, 4)
            damaged[spoiled.message] = hop
            return [spoiled]

        spoiling = at(place, parties, spoil)

        def mended(
            hop: Hop, parties: Parties = parties, damaged: dict[bytes, Hop] = damaged, spoiling: Any = spoiling
        ) -> Iterable[Hop]:
            if hop.message not in damaged:
                return list(spoiling(hop))
            error = parties.refused(hop)
            assert isinstance(error, FaultyPeerOrRelay)
            unauthentic(error, hop)
            return [replace(hop, message=damaged[hop.message].message)]

        parties.setup(mended)
        tables = parties.tables()
        parties.round(tables, mended)
        parties.check(tables)
        assert damaged


@pytest.mark.parametrize("form", BOTH)
def test_no_party_suspects_itself(form: str) -> None:
    def damage(parties: Parties, hop: Hop, place: str) -> None:
        for damaged in damages(hop, place):
            assert parties.refused(damaged).suspects == (hop.carrier,)
        for label in ({"epoch": 7}, {"context": bytes(16)}):
            assert parties.refused(parties.resealed(hop, **label)).suspects == (hop.carrier,)

    everywhere(form, [place for place in SEALED[form] if place.endswith("the server")], damage)


@pytest.mark.parametrize("form", BOTH)
def test_a_message_of_another_wire_version_is_refused(form: str) -> None:
    def other(parties: Parties, hop: Hop) -> Hop:
        return replace(hop, message=bytes([WIRE_VERSION + 1]) + hop.message[1:])

    def blame(error: ProtocolError, hop: Hop) -> None:
        assert error.suspects == (hop.carrier,)
        assert "version" in error.fault

    each_everywhere(form, PLACES[form], other, blame=blame)


# ----------------------------------------------------------------------------------------------- replayed, swapped


@pytest.mark.parametrize("form", BOTH)
def test_no_message_is_taken_twice(form: str) -> None:
    parties = Parties(form=form)

    def again(hop: Hop) -> Iterator[Hop]:
        yield hop
        unauthentic(parties.refused(hop), hop)

    parties.setup(again)
    tables = parties.tables()
    parties.round(tables, again)
    parties.check(tables)


@pytest.mark.parametrize("form", BOTH)
def test_no_message_of_an_earlier_stage_round_or_epoch_is_taken_later(form: str) -> None:
    parties, past = Parties(form=form), list[Hop]()

    def kept(hop: Hop) -> Iterable[Hop]:
        past.append(hop)
        return [hop]

    def replay() -> None:
        for hop in past:
            unauthentic(parties.refused(hop), hop)

    while parties.server.phase is not Phase.READY:
        parties.up(kept)
        replay()
        parties.server.close()
        parties.down(kept)
        replay()
    for number in range(2):
        tables = parties.tables(number)
        parties.begin(tables)
        parties.until(Phase.ANSWER, hook=kept)
        replay()
        parties.until(Phase.READY, hook=kept)
        replay()
        parties.check(tables)
    parties.another_epoch()
    replay()
    tables = parties.tables("second epoch")
    parties.begin(tables)
    replay()
    parties.until(Phase.ANSWER)
    replay()
    parties.until(Phase.READY)
    parties.check(tables)


@pytest.mark.parametrize("form", BOTH)
def test_no_message_of_an_earlier_attempt_is_taken(form: str) -> None:
    parties = Parties([["a", "b"], ["b"], ["c"], ["a", "c"]], form=form, dropouts=1)
    past: list[Hop] = []

    def kept(hop: Hop) -> Iterable[Hop]:
        past.append(hop)
        return [hop]

    parties.until(Phase.TABLE, hook=kept)
    late = [Hop(3, SERVER, bytes(message)) for message in parties.clients[3].outbox()]
    parties.present.discard(3)
    parties.exchange(kept)  # without the table of client 3 there is no union: another attempt
    assert (parties.server.epoch, parties.server.attempt) == (1, 1)
    for hop in late:
        assert 3 in parties.refused(hop).suspects
    for phase in (Phase.SECRET, Phase.TABLE, Phase.QUERY):
        parties.until(phase)
        for hop in past:
            if hop.receiver != 3:
                unauthentic(parties.refused(hop), hop)
    parties.setup()
    parties.goes_on()


@pytest.mark.parametrize("form", BOTH)
def test_no_message_of_an_earlier_incarnation_is_taken(form: str) -> None:
    parties, past = Parties(form=form), list[Hop]()

    def kept(hop: Hop) -> Iterable[Hop]:
        if 1 in (hop.header.sender, hop.header.receiver):
            past.append(hop)
        return [hop]

    parties.setup(kept)
    parties.clients[1] = parties.new_client(1)
    for message in parties.clients[1].outbox():
        parties.server.receive(1, message)
    parties.another_epoch()
    for hop in past:
        if hop.header.kind is Kind.HELLO and hop.header.receiver == ALL:
            continue  # it is signed: the server takes it for a new incarnation
        unauthentic(parties.refused(hop), hop)
    parties.goes_on()


@pytest.mark.parametrize("form", BOTH)
def test_an_old_hello_that_the_server_did_not_announce_is_refused_by_clients(form: str) -> None:
    parties, old = Parties(form=form), list[Hop]()
    parties.setup(at("hello to a client", parties, lambda hop: old.append(hop)))
    parties.another_epoch()
    for hop in old:
        unauthentic(parties.refused(hop), hop)
    parties.goes_on()


@pytest.mark.parametrize("form", BOTH)
def test_a_server_that_swaps_two_clients_messages_is_refused(form: str) -> None:
    parties, seen = Parties(form=form), dict[str, list[Hop]]()

    def swap(hop: Hop) -> Iterable[Hop]:
        place = parties.place(hop)
        if place in SEALED[form] and hop.receiver != SERVER:
            for other in seen.setdefault(place, []):
                if other.receiver != hop.receiver:
                    assert SERVER in parties.refused(replace(other, receiver=hop.receiver)).suspects
            seen[place].append(hop)
        return [hop]

    parties.setup(swap)
    tables = parties.tables()
    parties.round(tables, swap)
    parties.check(tables)
    assert all(len({hop.receiver for hop in hops}) > 1 for hops in seen.values())


@pytest.mark.parametrize("form", BOTH)
def test_a_client_that_hands_over_another_clients_message_is_refused(form: str) -> None:
    parties = Parties(form=form)

    def stolen(hop: Hop) -> Iterable[Hop]:
        if hop.receiver == SERVER:
            thief = (hop.carrier + 1) % 3
            error = parties.refused(replace(hop, carrier=thief))
            assert isinstance(error, FaultyPeer)
            assert error.suspects == (thief,)
        return [hop]

    parties.setup(stolen)
    tables = parties.tables()
    parties.round(tables, stolen)
    parties.check(tables)


@pytest.mark.parametrize("form", BOTH)
def test_a_server_that_gives_an_old_share_for_a_new_one_is_refused(form: str) -> None:
    parties, old = Parties(form=form), list[Hop]()

    def keep(hop: Hop) -> Iterable[Hop]:
        if parties.place(hop) in ("share to a client", "share seed to a client"):
            old.append(hop)
        return [hop]

    def replay(hop: Hop) -> Iterable[Hop]:
        if parties.place(hop) in ("share to a client", "share seed to a client"):
            for before in old:
                if before.receiver == hop.receiver and before.header.sender == hop.header.sender:
                    error = parties.refused(before)
                    assert isinstance(error, Stale | FaultyPeerOrRelay)
                    unauthentic(error, hop)
        return [hop]

    parties.setup()
    parties.round(parties.tables(1), keep)
    tables = parties.tables(2)
    parties.round(tables, replay)
    parties.check(tables)
    assert old


# ---------------------------------------------------------------------------------------- authentic, with another label

LABEL: dict[str, Callable[[Any], Any]] = {
    "epoch": lambda x: x + 1,
    "attempt": lambda x: x + 1,
    "weights": lambda x: x + 1,
    "round": lambda x: x + 1,
    "context": lambda x: bytes([x[0] ^ 1]) + x[1:],
}


def relabelled(parties: Parties, hop: Hop, name: str, change: Callable[[Any], Any]) -> Hop:
    return parties.resealed(hop, **{name: change(getattr(hop.header, name))})


@pytest.mark.parametrize("form", BOTH)
def test_a_message_of_another_epoch_attempt_round_or_history_is_refused(form: str) -> None:
    def relabel(parties: Parties, hop: Hop, place: str) -> None:
        label = dict(LABEL)
        if "announcement" in place:  # those of the set-up may come to one who missed a round; the context says which
            del label["weights"]
            if not place.startswith("share"):
                del label["round"]
        if place.startswith("greeting"):  # it begins another epoch or attempt; but never one that is past
            label = {"context": label["context"], "epoch": lambda x: x - 1}
        for name, change in label.items():
            unauthentic(parties.refused(relabelled(parties, hop, name, change)), hop)

    everywhere(form, SEALED[form], relabel)


@pytest.mark.parametrize("form", BOTH)
def test_another_message_than_the_one_that_was_announced_is_refused(form: str) -> None:
    shares = [p for p in SEALED[form] if p.endswith("a client") and p.split()[0] in RELAYED and "announ" not in p]
    each_everywhere(form, shares, lambda p, hop: p.resealed(hop, salt=b"\7" * 16), blame=unauthentic)


@pytest.mark.parametrize("form", BOTH)
def test_weights_that_were_made_already_are_not_made_again(form: str) -> None:
    if form == "reciprocal":
        each(
            form,
            "opening announcement to a client",
            lambda p, hop: p.resealed(hop, weights=0),
            blame=only_the_sender,
        )
        return
    parties = Parties(form=form)
    parties.setup()
    header = replace(parties_header(parties), context=parties.clients[0].query_context, weights=1)
    members = Announcement(Step.OPENING, tuple((n, bytes(16)) for n in range(3)))
    message = parties.server.wire.channels[0].sealer(header).seal(0, members.to_bytes())
    only_the_sender(parties.refused(Hop(SERVER, 0, bytes(message))), Hop(SERVER, 0, bytes(message)))
    parties.goes_on()


def parties_header(parties: Parties) -> messages.Header:
    """The header of an announcement that the server could send to client 0 now."""
    server = parties.server
    return messages.Header(
        Kind.CONTRIBUTORS, SERVER, 0, server.epoch, server.weights, server.round, server.attempt,
        server.wire.sequence + 1, 1, server.context, b"\7" * 16,
    )  # fmt: skip


# -------------------------------------------------------------------------------------- authentic, with a wrong payload


def with_elements(form: str) -> list[str]:
    """Places of messages that are field elements, at whoever can read them."""
    opaque = {"part"} if form == "reciprocal" else {"part", "answer", "mean"}
    readable = [p for p in SEALED[form] if not relayed(p) and "announcement" not in p and "seed" not in p]
    return [p for p in readable if p.split()[0] not in opaque]


@pytest.mark.parametrize("form", BOTH)
def test_an_element_that_is_not_below_its_prime_is_its_senders_fault(form: str) -> None:
    def too_large(parties: Parties, hop: Hop, place: str) -> None:
        payload, prefix = parties.opened(hop), parties.prefix(hop)
        ring = RING61 if hop.header.kind in (Kind.TABLE, Kind.TAGS) else parties.session.ring
        size = ring.dtype.itemsize
        first = payload[:prefix] + ring.primes[0].to_bytes(size, "little") + payload[prefix + size :]
        last = payload[:-size] + ring.primes[-1].to_bytes(size, "little")
        largest = payload[:prefix] + b"\xff" * (len(payload) - prefix)
        for wrong in (first, last, largest):
            only_the_sender(parties.refused(parties.resealed(hop, wrong)), hop)

    everywhere(form, with_elements(form), too_large)


@pytest.mark.parametrize("form", BOTH)
def test_an_authentic_message_of_another_length_is_its_senders_fault(form: str) -> None:
    def other_length(parties: Parties, hop: Hop, place: str) -> None:
        payload = parties.opened(hop)
        for wrong in (payload + b"\0", payload[:-1], payload * 2, b""):
            only_the_sender(parties.refused(parties.resealed(hop, wrong)), hop)

    everywhere(form, SEALED[form], other_length)


@pytest.mark.parametrize("form", BOTH)
def test_a_message_in_another_number_of_chunks_is_its_senders_fault(form: str) -> None:
    places = [place for place in SEALED[form] if not place.startswith("tags")]  # there may be more of them to come
    more: Forgery = lambda parties, hop: parties.resealed(hop, chunks=hop.header.chunks + 1)  # noqa: E731
    each_everywhere(form, places, more, blame=only_the_sender)


@pytest.mark.parametrize("form", BOTH)
def test_chunks_come_in_their_order_and_none_is_left_out(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "CHUNK_BYTES", 100)
    parties, skipped = Parties(form=form), set()
    waiting: list[Hop] = []

    def disordered(hop: Hop) -> Iterable[Hop]:
        """Of each message, chunk 1 is tried before chunk 0."""
        header = hop.header
        if header.chunks == 1:
            return [hop]
        if header.chunk == 0:
            waiting.append(hop)
            return []
        first = next((h for h in waiting if h.header.label() == header.label()), None)
        if first is None:
            return [hop]
        waiting.remove(first)
        unauthentic(parties.refused(hop), hop)
        skipped.add(header.kind)
        return [first, hop]

    parties.setup(disordered)
    tables = parties.tables()
    parties.round(tables, disordered)
    parties.check(tables)
    assert {Kind.TABLE, Kind.QUERY, Kind.SHARE, Kind.ANSWER, Kind.MEAN} <= skipped


def test_a_server_that_leaves_out_a_part_of_the_reciprocals_is_refused() -> None:
    parties, withheld = Parties(), list[Hop]()

    def withhold(hop: Hop) -> Iterable[Hop]:
        header = hop.header
        if hop.receiver != 0 or header.sender != SERVER:
            return [hop]
        if header.kind is Kind.RECIPROCAL and header.chunk + 1 == header.chunks:
            withheld.append(hop)
            return []
        if withheld and parties.place(hop) == "reshare announcement to a client":
            only_the_sender(parties.refused(hop), hop)
            return [withheld.pop(), hop]
        return [hop]

    parties.setup(withhold)
    parties.goes_on()


# ------------------------------------------------------------------------------------------------------ announcements


def members_of(parties: Parties, hop: Hop) -> Announcement:
    return Announcement.parse(parties.opened(hop), parties.params.N)


def announcing(change: Callable[[Announcement, int], Announcement]) -> Forgery:
    return lambda parties, hop: parties.resealed(hop, change(members_of(parties, hop), hop.receiver).to_bytes())


def without(a: Announcement, n: int) -> Announcement:
    return replace(a, members=tuple(m for m in a.members if m[0] != n))


def only(a: Announcement, n: int) -> Announcement:
    """Fewer than T + 2 members, among them the receiver if it is one now."""
    return replace(a, members=tuple(sorted(a.members, key=lambda m: m[0] != n)[:2]))


def in_order(a: Announcement) -> Announcement:
    return replace(a, members=tuple(sorted(a.members)))


ANNOUNCEMENTS = {r: [p for p in places if "announcement" in p] for r, places in SEALED.items()}


@pytest.mark.parametrize("form", BOTH)
def test_an_announcement_of_fewer_than_t_plus_2_clients_is_refused(form: str) -> None:
    assert Parties(form=form).params.fewest_contributors == 3
    each_everywhere(
        form,
        ANNOUNCEMENTS[form],
        announcing(lambda a, n: in_order(only(a, n))),
        announcing(lambda a, n: replace(a, members=())),
        blame=only_the_sender,
    )


@pytest.mark.parametrize("form", BOTH)
def test_an_announcement_that_is_not_in_order_or_names_strangers_is_refused(form: str) -> None:
    each_everywhere(
        form,
        ANNOUNCEMENTS[form],
        announcing(lambda a, n: replace(a, members=a.members[::-1])),
        announcing(lambda a, n: replace(a, members=(*a.members[:-1], (7, bytes(16))))),
        announcing(lambda a, n: replace(a, members=(*a.members, a.members[-1]))),
        lambda parties, hop: parties.resealed(hop, b"\x63" + parties.opened(hop)[1:]),
        blame=only_the_sender,
    )


@pytest.mark.parametrize("form", BOTH)
def test_an_announcement_of_another_message_of_ours_is_refused(form: str) -> None:
    def other(a: Announcement, n: int) -> Announcement:
        return replace(a, members=tuple((m, b"\7" * 16 if m == n else salt) for m, salt in a.members))

    salted = [place for place in ANNOUNCEMENTS[form] if place.split()[0] not in ("reshare", "opening")]
    each_everywhere(form, salted, announcing(other), blame=only_the_sender)


@pytest.mark.parametrize("form", BOTH)
def test_an_announcement_of_another_step_is_refused(form: str) -> None:
    def other_step(parties: Parties, hop: Hop, place: str) -> None:
        announcement = members_of(parties, hop)
        for step in set(Step) - {announcement.step}:  # not even a greeting: its context is that of no history
            wrong = parties.resealed(hop, replace(announcement, step=step).to_bytes())
            only_the_sender(parties.refused(wrong), hop)

    everywhere(form, ANNOUNCEMENTS[form], other_step)


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("step", ["secret", "query", "share"])
def test_an_announcement_without_the_receiver_or_made_twice_is_refused(form: str, step: str) -> None:
    parties = Parties([["a", "b"], ["b"], ["c"], ["a", "c"]], form=form)

    def forge(hop: Hop) -> Iterator[Hop]:
        only_the_sender(parties.refused(announcing(without)(parties, hop)), hop)
        yield hop
        again = parties.resealed(hop, sequence=hop.header.sequence + 50)
        only_the_sender(parties.refused(again), hop)

    whole_run(parties, f"{step} announcement to a client", forge)


def test_contributors_other_than_those_of_the_weights_are_refused() -> None:
    parties = Parties([["a", "b"], ["b"], ["c"], ["a", "c"]])

    def fewer(hop: Hop) -> None:
        gone = next(n for n in range(4) if n != hop.receiver)
        error = parties.refused(announcing(lambda a, n: without(a, gone))(parties, hop))
        only_the_sender(error, hop)

    whole_run(parties, "share announcement to a client", fewer)


@pytest.mark.parametrize("place", ["reshare announcement to a client", "weights announcement to a client"])
def test_re_sharing_by_others_than_need_contributors_is_refused(place: str) -> None:
    parties = Parties([["a", "b"], ["b"], ["c"], ["a", "c"], ["d"]], dropouts=2)

    def fewer_or_more(hop: Hop) -> None:
        assert len(members_of(parties, hop).clients) == parties.params.need == 3
        wrong = announcing(lambda a, n: replace(a, members=(*a.members, (3, bytes(16)))))
        only_the_sender(parties.refused(wrong(parties, hop)), hop)

    whole_run(parties, place, fewer_or_more)


def two_sets(form: str) -> tuple[Parties, Server, Tables]:
    """The server tells clients 0 and 4 that all five contribute, and clients 1 to 3 that client 4 does not.

    Gives the second face of the server beside the federation with the first.
    """
    parties = Parties([["a", "b"], ["b", "a"], ["c", "a"], ["a", "c"], ["a", "d"]], form=form, dropouts=2)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    last: list[Hop] = []

    def hold_back(hop: Hop) -> Iterable[Hop]:
        if hop.carrier == 4:
            last.append(hop)
            return []
        return [hop]

    parties.up(hold_back)
    liar = parties.fork()
    for hop in last:
        parties.deliver(hop)
    parties.server.close()
    liar.close()
    told = {n: parties.server if n in (0, 4) else liar for n in range(5)}
    for server in (parties.server, liar):
        for n, message in list(server.outbox()):
            if told[n] is server:
                parties.clients[n].receive(message)
    return parties, liar, tables


def test_answers_for_another_set_of_contributors_are_refused_by_the_server() -> None:
    parties, _, _ = two_sets("paillier")
    assert all(client.phase is ClientPhase.ANSWER for client in parties.clients.values())
    for n in (1, 2, 3):
        message = bytes(next(iter(parties.clients[n].outbox())))
        assert n in parties.refused(Hop(n, SERVER, message)).suspects


def test_a_mean_over_another_set_of_contributors_than_the_announced_one_gives_no_result() -> None:
    parties, liar, _ = two_sets("paillier")
    client, liars_stage = parties.clients[0], liar.mean_stage
    assert liars_stage is not None
    assert client.contributors == (0, 1, 2, 3, 4)
    assert parties.clients[1].contributors == (0, 1, 2, 3)
    # Three of the four answers that the liar can get are enough; it writes the set that client 0 knows on the result.
    liar.mean_stage = replace(liars_stage, context=client.context)
    for n in (1, 2, 3):
        for message in parties.clients[n].outbox():
            liar.receive(n, message)
    liar.close()
    for n, message in list(liar.outbox()):
        if n == 0:
            error = parties.refused(Hop(SERVER, 0, bytes(message)))
            assert SERVER in error.suspects
    assert client.means is None or np.isnan(client.means).all()


# ------------------------------------------------------------------------------------------------- answers and means


@pytest.mark.parametrize("form", BOTH)
def test_fewer_than_need_answers_give_no_result_and_the_next_round_is_right(form: str) -> None:
    parties = Parties(form=form)
    parties.setup()
    parties.begin(parties.tables(1))
    parties.until(Phase.ANSWER)
    parties.up(lambda hop: [] if hop.carrier == 1 else [hop])
    with pytest.raises(FederationError, match=r"2 clients answered .* 3 are needed"):
        parties.server.close()
    parties.down()
    for client in parties.clients.values():
        assert client.phase is ClientPhase.READY
        assert client.means is None
        assert "3 are needed" in client.failure
    parties.goes_on(2)


@pytest.mark.parametrize("form", BOTH)
def test_a_mean_from_fewer_than_need_or_from_strangers_is_refused(form: str) -> None:
    def answered(bits: int) -> Forgery:
        return lambda parties, hop: parties.resealed(hop, bytes([bits]) + parties.opened(hop)[1:])

    each(
        form,
        "mean to a client",
        answered(0b011),
        answered(0),
        answered(0b1011),
        answered(0xFF),
        blame=only_the_sender,
    )


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("columns", ["all", "padding"])
def test_a_wrong_answer_is_noticed_and_the_right_one_still_counts(form: str, columns: str) -> None:
    # K = 2: two blocks of 2 (dim 3 and, with Paillier, dim 2 and the count); the last column of the second is padding.
    dim = 3 if form == "reciprocal" else 2
    parties = Parties([["a", "b"], ["b"], ["c"], ["a", "c"], ["b"]], form=form, dim=dim)
    assert parties.params.K * parties.session.form.block_length == dim + 1 + (form == "paillier")
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    liar, honest = parties.clients[3], parties.clients[3].save()
    before = parties.server.save()
    assert liar.sums is not None
    ring = parties.session.ring
    error = ring.constant(np.random.default_rng(5).integers(1, 2**31, liar.sums.shape[1:]))
    error[:, :, : 0 if columns == "all" else -1] = 0
    ring.add_into(liar.sums, error)
    parties.up()
    parties.server.close()
    wrong = [Hop(SERVER, n, bytes(message)) for n, message in parties.server.outbox()]
    noticed = {}
    for hop in wrong:
        others = [n for n in range(5) if n != hop.receiver]
        noticed[hop.receiver] = parties.refused(hop)
        assert set(noticed[hop.receiver].suspects) == {SERVER, *others}
    assert set(noticed) == set(range(5))
    # The liar thinks better of it, and the server has kept its state of before.
    parties.clients[3] = Client.restore(parties.session, parties.identities[3], honest, parties.entropy[3])
    parties.server = Server.restore(parties.session, parties.identities[SERVER], before, parties.entropy[SERVER])
    parties.until(Phase.READY)
    parties.check(tables)


def wrong_ciphertexts(parties: Parties, n: int) -> dict[str, int]:
    key = private_key(parties.clients[n].paillier)
    n2 = int(key.public.n2)
    odd = next(
        x
        for x in range(2, 100)
        if pow(x, int(key.p - 1) // 2, int(key.p)) * pow(x, int(key.q - 1) // 2, int(key.q))
        in (int(key.p) - 1, int(key.q) - 1)
    )
    return {
        "zero": 0,
        "no unit": int(key.p),
        "a multiple of n": int(key.public.n),
        "n^2": n2,
        "above n^2": n2 + 1,
        "symbol -1": odd,
    }


@pytest.mark.parametrize("place", ["answer to the server", "mean to a client"])
def test_a_ciphertext_outside_the_group_is_its_senders_fault(place: str) -> None:
    parties = Parties(form="paillier")

    def forge(hop: Hop) -> None:
        payload, size = parties.opened(hop), parties.params.key_bits // 4
        prefix = parties.prefix(hop)
        owner = 0 if hop.receiver == SERVER else hop.receiver  # the first section of an answer is for client 0
        for c in wrong_ciphertexts(parties, owner).values():
            for start in (prefix, len(payload) - size):
                wrong = payload[:start] + c.to_bytes(size, "little") + payload[start + size :]
                only_the_sender(parties.refused(parties.resealed(hop, wrong)), hop)

    whole_run(parties, place, forge)


def test_a_server_that_gives_up_a_round_out_of_turn_is_refused() -> None:
    parties = Parties()
    parties.setup()
    header = replace(parties_header(parties), kind=Kind.ABORT)
    message = bytes(parties.server.wire.channels[0].sealer(header).seal(0, b"enough"))
    only_the_sender(parties.refused(Hop(SERVER, 0, message)), Hop(SERVER, 0, message))
    parties.begin(parties.tables())
    old = bytes(parties.server.wire.channels[0].sealer(header).seal(0, b"enough"))  # of the round before
    only_the_sender(parties.refused(Hop(SERVER, 0, old)), Hop(SERVER, 0, old))
    parties.until(Phase.READY)
    parties.check(parties.tables())


# --------------------------------------------------------------------------------------------------------- the union


def tags_forgery(
    change: Callable[[Parties, np.ndarray[Any, Any], np.ndarray[Any, Any]], np.ndarray[Any, Any]],
) -> Forgery:
    """Other tags in the place of the true ones; `change` gets the receiver's own, too."""

    def forge(parties: Parties, hop: Hop) -> Hop:
        tags = np.frombuffer(parties.opened(hop), "<u8")
        own = np.sort(parties.clients[hop.receiver]._own_tags())
        return parties.resealed(hop, change(parties, tags, own).astype("<u8").tobytes())

    return forge


@pytest.mark.parametrize("form", BOTH)
def test_a_union_without_our_own_entities_is_refused(form: str) -> None:
    each(
        form,
        "tags to a client",
        tags_forgery(lambda p, tags, own: tags[tags != own[0]]),
        tags_forgery(lambda p, tags, own: tags[tags != own[-1]]),
        tags_forgery(lambda p, tags, own: np.setdiff1d(tags, own)),
        tags_forgery(lambda p, tags, own: tags[:0]),
        blame=only_the_sender,
    )


@pytest.mark.parametrize("form", BOTH)
def test_a_union_that_is_not_in_order_is_refused(form: str) -> None:
    each(
        form,
        "tags to a client",
        tags_forgery(lambda p, tags, own: tags[::-1]),
        tags_forgery(lambda p, tags, own: np.concatenate([tags[:1], tags[:-1]])),
        tags_forgery(lambda p, tags, own: np.concatenate([tags[1:], tags[:1]])),
        blame=only_the_sender,
    )


@pytest.mark.parametrize("form", BOTH)
def test_a_union_larger_than_its_bound_is_refused(form: str) -> None:
    def more(parties: Parties, tags: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert tags.size == parties.session.max_union
        return np.union1d(tags, np.array([1], np.uint64))

    each(form, "tags to a client", tags_forgery(more), blame=only_the_sender)


def test_the_queries_of_a_client_that_could_not_place_its_entities_cannot_be_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parties, failures = Parties(), [None]
    place = buckets.place
    monkeypatch.setattr(client_module, "place", lambda *args: failures.pop() if failures else place(*args))
    parties.until(Phase.QUERY)
    (unplaced,) = (n for n, client in parties.clients.items() if client.pending[0].kind is Kind.ABORT)
    client = parties.clients[unplaced]
    header = replace(parties_header(parties), receiver=unplaced)
    salts = tuple((n, parties.clients[n].pending[0].salt) for n in range(3))
    wrong = Announcement(Step.QUERY, salts).to_bytes()
    message = bytes(parties.server.wire.channels[unplaced].sealer(header).seal(0, wrong))
    only_the_sender(parties.refused(Hop(SERVER, unplaced, message)), Hop(SERVER, unplaced, message))
    assert client.phase is ClientPhase.QUERY
    parties.setup()
    parties.goes_on()


# ------------------------------------------------------------------------------------------- strangers, other sessions


@pytest.mark.parametrize("form", BOTH)
def test_a_message_from_an_unknown_party_is_refused(form: str) -> None:
    def forge(parties: Parties, hop: Hop, place: str) -> None:
        for stranger in (3, 1000, ALL):
            message = replace(hop.header, sender=stranger).pack() + hop.message[HEADER_BYTES:]
            carrier = stranger if hop.receiver == SERVER else SERVER
            error = parties.refused(Hop(carrier, hop.receiver, message))
            assert error.suspects == (carrier,)

    everywhere(form, PLACES[form], forge)


def test_nobody_takes_a_message_from_itself() -> None:
    parties = Parties()
    parties.exchange()
    own = bytes(parties.server.wire.hello_message())
    assert parties.refused(Hop(SERVER, SERVER, own)).suspects == (SERVER,)
    for n, client in parties.clients.items():
        assert parties.refused(Hop(SERVER, n, bytes(client.wire.hello_message()))).suspects == (SERVER,)
    parties.setup()
    parties.goes_on()


def test_a_message_of_a_kind_that_its_receiver_never_takes_is_refused() -> None:
    parties = Parties()
    parties.until(Phase.TABLE)

    def mislabelled(hop: Hop) -> Iterable[Hop]:
        for kind in (Kind.TAGS, Kind.MEAN, Kind.RECIPROCAL, Kind.CONTRIBUTORS, Kind.SHARE, Kind.ABORT, Kind.ANSWER):
            assert parties.refused(parties.resealed(hop, kind=kind)).suspects == (hop.carrier,)
        return [hop]

    parties.exchange(mislabelled_up_only(mislabelled))
    parties.setup()
    parties.goes_on()


def mislabelled_up_only(action: Callable[[Hop], Iterable[Hop]]) -> Callable[[Hop], Iterable[Hop]]:
    return lambda hop: action(hop) if hop.receiver == SERVER else [hop]


OTHER_PARAMS = [{"precision": 20}, {"sigma": 41}, {"max_abs": 32.0}, {"rounds": 2000}, {"max_union": 9}, {"dim": 4}]


@pytest.mark.parametrize("other", OTHER_PARAMS, ids=lambda other: next(iter(other)))
def test_a_party_with_other_params_is_refused(other: dict[str, Any]) -> None:
    parties = Parties()
    strange = Session(replace(parties.params, **other), parties.session.roster)
    client = Client(strange, 1, parties.identities[1], parties.sets[1], entropy("other"))
    hello = Hop(1, SERVER, bytes(next(iter(client.outbox()))))
    error = parties.refused(hello)
    assert 1 in error.suspects
    assert "parameters" in error.fault
    parties.setup()
    parties.goes_on()


@pytest.mark.parametrize("other", OTHER_PARAMS, ids=lambda other: next(iter(other)))
def test_a_server_with_other_params_is_refused(other: dict[str, Any]) -> None:
    parties = Parties()
    strange = Session(replace(parties.params, **other), parties.session.roster)
    server = Server(strange, parties.identities[SERVER], entropy("other"))
    error = parties.refused(Hop(SERVER, 0, bytes(server.wire.hello_message())))
    assert error.suspects == (SERVER,)
    parties.setup()
    parties.goes_on()


def test_short_paillier_keys_are_refused_when_params_are_made() -> None:
    for bits in (256, 512, 1024, 1984):
        with pytest.raises(ParamsError, match="insecure"):
            Params(3, dim=3, key_bits=bits)


@pytest.mark.parametrize("form", BOTH)
def test_a_message_before_its_senders_hello_is_refused(form: str) -> None:
    parties = Parties(form=form)
    later = Parties(form=form)  # the same federation, one exchange ahead
    later.exchange()
    for n, client in later.clients.items():
        for message in client.outbox():
            assert n in parties.refused(Hop(n, SERVER, bytes(message))).suspects
    later.up()
    later.server.close()
    for n, message in list(later.server.outbox()):
        hop = Hop(SERVER, n, bytes(message))
        unauthentic(parties.refused(hop), hop)
    parties.setup()
    parties.goes_on()
