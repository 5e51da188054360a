"""Laws of a link: hellos are proven, labels are new, a message opens for whom it is, in order, once; else nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.errors import SERVER, CallError, FaultyPeer, FaultyPeerOrRelay, ProtocolError, Stale
from secea.testing import insecure_seeded
from secea.wire.keys import KEY_BYTES, SIGNATURE_BYTES, Hello, Identity, Roster, SessionKey
from secea.wire.link import Link, Opened, Writer, broadcast_name, hello_header, overhead
from secea.wire.messages import ALL, HEADER_BYTES, NO_CONTEXT, TAG_BYTES, Buffer, Header

law = settings(max_examples=40)
SESSION, OTHER_SESSION = b"s" * 32, b"t" * 32
NUMBERS = {"epoch": 3, "attempt": 1, "weights": 2, "round": 5}
CONTEXT = b"c" * 16
CLIENTS = (0, 1, 2)
EVERYONE = (*CLIENTS, SERVER)
PAYLOADS = [b"first", b"", b"third"]


class Kind(IntEnum):
    HELLO = 1
    BEGIN = 2
    KEY = 3
    DIGEST = 4
    WORD = 16


class Net:
    """All parties' links in one session, everyone greeted by everyone."""

    def __init__(self, seed: int = 0, session: bytes = SESSION, identities: dict[int, Identity] | None = None) -> None:
        self.entropy = {n: insecure_seeded(seed)(n) for n in EVERYONE}
        self.identities = identities or {n: Identity.generate(insecure_seeded(77)(n)) for n in EVERYONE}
        keys = tuple(self.identities[n].public for n in CLIENTS)
        self.roster, self.session = Roster(keys, self.identities[SERVER].public), session
        self.links = {n: self.fresh(n) for n in EVERYONE}
        for a in EVERYONE:
            for b in EVERYONE:
                if a != b:
                    self.links[a].greet(*parsed(self.links[a], self.links[b].hello_message()))

    def fresh(self, n: int) -> Link:
        """A new life of a party."""
        return Link(self.session, self.roster, Kind, n, self.identities[n], self.entropy[n])


def parsed(link: Link, message: Buffer) -> tuple[Header, Buffer]:
    return link.parse(message, SERVER), message


def opened(link: Link, message: Buffer) -> Opened:
    return link.open(*parsed(link, message))


def state(link: Link) -> Any:
    """Everything that a link counts."""
    streams = {n: (stream.label, stream.next) for n, stream in link._streams.items()}
    counted = (link.sequence, link.peers, list(link.channels.items()), link._heard, link._recent, link._broadcast)
    return copy.copy(streams), [copy.copy(each) for each in counted]


def refused(link: Link, message: Buffer, by: type[ProtocolError], *suspects: int, match: str | None = None) -> None:
    """The message is refused, these are blamed, and nothing has changed."""
    before = state(link)
    with pytest.raises(by, match=match) as caught:
        opened(link, message)
    assert caught.value.suspects == suspects
    assert state(link) == before


def not_greeted(link: Link, message: Buffer, by: type[ProtocolError], *suspects: int, match: str | None = None) -> None:
    before = state(link)
    with pytest.raises(by, match=match) as caught:
        link.greet(*parsed(link, message))
    assert caught.value.suspects == suspects
    assert state(link) == before


@dataclass(frozen=True)
class Way:
    """One of the four ways to send, between two parties."""

    name: str
    sender: int
    receiver: int
    blame: tuple[int, ...]
    """Who may have damaged it."""

    def writer(self, net: Net, label: Header, chunks: int) -> Writer:
        link = net.links[self.sender]
        if self.name == "signed":
            return link.signer(label, chunks)
        if self.name == "broadcast":
            key = bytes(range(KEY_BYTES))
            for n in CLIENTS:
                net.links[n].expect(broadcast_name(replace(label, chunks=chunks)), key)
            return link.broadcaster(label, chunks, key)
        return link.sealer(label, self.receiver, chunks)

    def messages(self, net: Net, payloads: list[bytes] = PAYLOADS) -> list[bytes]:
        label = net.links[self.sender].label(Kind.WORD, NUMBERS, CONTEXT)
        writer = self.writer(net, label, len(payloads))
        return [bytes(writer.seal(chunk, payload)) for chunk, payload in enumerate(payloads)]

    @property
    def error(self) -> type[ProtocolError]:
        return FaultyPeer if len(self.blame) == 1 else FaultyPeerOrRelay


WAYS = [
    Way("to the server", 1, SERVER, (1,)),
    Way("to a client", 1, 0, (1, SERVER)),
    Way("from the server", SERVER, 0, (SERVER,)),
    Way("signed", 1, 0, (1, SERVER)),
    Way("signed", 1, SERVER, (1,)),
    Way("broadcast", SERVER, 0, (SERVER,)),
]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.name}, {way.sender} to {way.receiver}")


# ------------------------------------------------------------------------------------------------------------- hellos


def test_two_parties_that_greeted_each_other_have_the_same_channel() -> None:
    net = Net()
    for a in EVERYONE:
        for b in EVERYONE:
            if a != b:
                assert net.links[a].incarnation(b) == net.links[b].hello.incarnation
                ends = net.links[a].channels[b], net.links[b].channels[a]
                assert ends[0].derive("law", b"") == ends[1].derive("law", b"")
        assert net.links[a].incarnation(a) == net.links[a].hello.incarnation


def test_who_was_not_heard_of_has_no_life() -> None:
    link = Net().fresh(0)
    assert link.incarnation(1) == b""
    assert link.incarnation(0) == link.hello.incarnation


def test_a_link_is_made_by_whom_the_roster_names() -> None:
    net = Net()
    with pytest.raises(CallError, match="the identity is not the one that the roster pins for client 0"):
        Link(SESSION, net.roster, Kind, 0, net.identities[1], net.entropy[0])


def test_a_hello_of_another_roster_is_refused() -> None:
    net = Net()
    stranger = Net(identities={n: Identity.generate(insecure_seeded(78)(n)) for n in EVERYONE})
    forged = "not signed by the identity that the roster pins"
    not_greeted(net.links[0], stranger.links[1].hello_message(), FaultyPeerOrRelay, 1, SERVER, match=forged)
    not_greeted(net.links[0], stranger.links[SERVER].hello_message(), FaultyPeer, SERVER, match=forged)
    not_greeted(net.links[SERVER], stranger.links[1].hello_message(), FaultyPeer, 1, match=forged)


def test_a_hello_for_another_session_is_refused() -> None:
    net, other = Net(), Net(session=OTHER_SESSION)
    for link, sender, by, suspects in [
        (net.links[0], 1, FaultyPeerOrRelay, (1, SERVER)),
        (net.links[0], SERVER, FaultyPeer, (SERVER,)),
        (net.links[SERVER], 1, FaultyPeer, (1,)),
    ]:
        not_greeted(link, other.links[sender].hello_message(), by, *suspects, match="for another session")


def test_a_hello_in_anothers_name_is_refused() -> None:
    net = Net()
    hello = net.links[2].hello
    message = hello_header(Kind, 1, hello.incarnation).pack() + hello.to_bytes()
    not_greeted(net.links[0], message, FaultyPeerOrRelay, 1, SERVER, match="not signed")


@law
@given(data=st.data())
def test_a_hello_with_any_changed_byte_is_refused(data: st.DataObject) -> None:
    net = Net()
    newcomer = net.fresh(0)
    message = bytearray(net.links[1].hello_message())
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    before = state(newcomer)
    with pytest.raises(ProtocolError) as caught:
        newcomer.greet(*parsed(newcomer, bytes(message)))
    assert SERVER in caught.value.suspects
    assert state(newcomer) == before
    newcomer.greet(*parsed(newcomer, net.links[1].hello_message()))


@law
@given(cut=st.integers(HEADER_BYTES, 300), more=st.binary(max_size=40))
def test_a_hello_has_one_length(cut: int, more: bytes) -> None:
    net = Net()
    whole = net.links[1].hello_message()
    message = whole[:cut] + more
    if message != whole:
        not_greeted(net.fresh(0), message, FaultyPeerOrRelay, 1, SERVER)


@pytest.mark.parametrize("field", ["receiver", "epoch", "weights", "round", "attempt", "sequence", "chunks", "salt"])
def test_a_hello_has_one_header(field: str) -> None:
    net = Net()
    header = hello_header(Kind, 1, net.links[1].hello.incarnation)
    value: Any = b"x" * 16 if field == "salt" else getattr(header, field) + 1
    message = replace(header, **{field: value}).pack() + net.links[1].hello.to_bytes()
    not_greeted(net.fresh(0), message, FaultyPeerOrRelay, 1, SERVER, match="another header")


def test_a_hello_that_came_before_is_stale() -> None:
    net = Net()
    not_greeted(net.links[0], net.links[1].hello_message(), Stale, 1, SERVER, match="came before")
    not_greeted(net.links[0], net.links[SERVER].hello_message(), Stale, SERVER, match="came before")
    not_greeted(net.links[SERVER], net.links[1].hello_message(), Stale, 1, match="came before")


def test_a_hello_with_a_key_of_small_order_is_refused() -> None:
    net = Net()
    hello = Hello.make(net.identities[1], 1, SESSION, b"i" * 16, bytes(32), b"")
    message = hello_header(Kind, 1, hello.incarnation).pack() + hello.to_bytes()
    not_greeted(net.links[0], message, FaultyPeer, 1, match="small order")


@each_way
def test_a_new_life_replaces_the_old_one_and_its_counters(way: Way) -> None:
    net = Net()
    old = net.links[way.receiver]
    for message in way.messages(net):
        old.take(opened(old, message))
    net.links[way.sender] = net.fresh(way.sender)
    for n in EVERYONE:
        if n != way.sender:
            net.links[way.sender].greet(*parsed(net.links[way.sender], net.links[n].hello_message()))
            net.links[n].greet(*parsed(net.links[n], net.links[way.sender].hello_message()))
    for message in way.messages(net):  # its numbers begin anew
        old.take(opened(old, message))


def test_what_was_sealed_in_an_old_life_does_not_open_in_a_new_one() -> None:
    net = Net()
    way = WAYS[1]
    message, *_ = way.messages(net)
    net.links[1] = net.fresh(1)
    net.links[0].greet(*parsed(net.links[0], net.links[1].hello_message()))
    refused(net.links[0], message, FaultyPeerOrRelay, 1, SERVER, match="does not open")


# ------------------------------------------------------------------------------------------------------------- labels


@law
@given(count=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_labels_are_numbered_and_have_salts_of_their_own(count: int, seed: int) -> None:
    link = Net(seed).links[1]
    labels = [link.label(Kind.WORD, NUMBERS, CONTEXT) for _ in range(count)]
    assert [label.sequence for label in labels] == list(range(1, count + 1))
    assert len({label.salt for label in labels}) == count
    for label in labels:
        assert (label.kind, label.sender, label.receiver, label.context) == (Kind.WORD, 1, ALL, CONTEXT)
        assert {name: getattr(label, name) for name in NUMBERS} == NUMBERS


def test_a_label_comes_back_from_the_wire_as_it_was() -> None:
    net = Net()
    for way in WAYS:
        for chunk, message in enumerate(way.messages(net)):
            header = net.links[way.receiver].parse(message, SERVER)
            assert header.chunk == chunk
            assert (header.kind, header.sender, header.chunks, header.context) == (Kind.WORD, way.sender, 3, CONTEXT)
            assert header.receiver == (ALL if way.name in ("signed", "broadcast") else way.receiver)
            assert len(message) == len(PAYLOADS[chunk]) + overhead(signed=way.name == "signed")


# ----------------------------------------------------------------------------------------------- what is right opens


@each_way
@law
@given(payloads=st.lists(st.binary(max_size=60), min_size=1, max_size=5), times=st.integers(1, 3))
def test_a_message_opens_for_whom_it_is_in_order_and_then_counts(way: Way, payloads: list[bytes], times: int) -> None:
    net = Net()
    link = net.links[way.receiver]
    for _ in range(times):
        for message, payload in zip(way.messages(net, payloads), payloads, strict=True):
            before = state(link)
            found = opened(link, message)
            assert bytes(found.payload) == payload
            assert state(link) == before  # nothing changes until it is taken
            link.take(found)
            assert state(link) != before


@each_way
def test_opening_is_repeated_until_it_is_taken(way: Way) -> None:
    net = Net()
    message, *_ = way.messages(net)
    link = net.links[way.receiver]
    assert bytes(opened(link, message).payload) == bytes(opened(link, message).payload) == PAYLOADS[0]


def test_what_is_for_all_opens_for_all_and_what_is_for_one_for_none_else() -> None:
    for way in WAYS:
        net = Net()
        message, *_ = way.messages(net)
        for n in EVERYONE:
            link = net.links[n]
            if n == way.sender:
                continue
            if n == way.receiver or (n != SERVER and way.name == "broadcast") or way.name == "signed":
                assert bytes(opened(link, message).payload) == PAYLOADS[0]
            else:
                blame = (way.sender,) if SERVER in (n, way.sender) else (way.sender, SERVER)
                refused(link, message, ProtocolError, *blame, match="is for another party")


# --------------------------------------------------------------------------------------------- what is not is refused


@each_way
@law
@given(data=st.data())
def test_any_changed_byte_is_refused_and_the_honest_message_still_counts(way: Way, data: st.DataObject) -> None:
    net = Net()
    messages, link = way.messages(net), net.links[way.receiver]
    which = data.draw(st.integers(0, 2))
    for message in messages[:which]:
        link.take(opened(link, message))
    changed = bytearray(messages[which])
    at = data.draw(st.integers(0, HEADER_BYTES - 1) | st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    before = state(link)
    with pytest.raises(ProtocolError):
        opened(link, bytes(changed))
    assert state(link) == before
    for message in messages[which:]:
        link.take(opened(link, message))


@each_way
@law
@given(data=st.data())
def test_a_changed_payload_blames_who_could_have_changed_it(way: Way, data: st.DataObject) -> None:
    net = Net()
    message, *_ = way.messages(net)
    changed = bytearray(message)
    changed[data.draw(st.integers(HEADER_BYTES, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    refused(net.links[way.receiver], bytes(changed), way.error, *way.blame, match="damaged or forged")


@each_way
def test_a_message_that_was_cut_or_made_longer_is_refused(way: Way) -> None:
    net = Net()
    link, (message, *_) = net.links[way.receiver], way.messages(net)
    before = state(link)
    for cut in range(len(message)):
        with pytest.raises(ProtocolError):
            opened(link, message[:cut])
    for more in (b"\0", bytes(16), bytes(64), message):
        with pytest.raises(ProtocolError):
            opened(link, message + more)
    assert state(link) == before
    link.take(opened(link, message))


@each_way
def test_a_chunk_that_came_before_is_stale_and_a_later_one_is_too_early(way: Way) -> None:
    net = Net()
    first, second, third = way.messages(net)
    link = net.links[way.receiver]
    refused(link, second, way.error, *way.blame, match="out of order; chunk 1 is next")
    link.take(opened(link, first))
    refused(link, first, Stale, *way.blame, match="came before")
    refused(link, third, way.error, *way.blame, match="out of order; chunk 2 is next")
    link.take(opened(link, second))
    link.take(opened(link, third))
    for message in (first, second, third):
        refused(link, message, Stale, *way.blame, match="came before")


@each_way
def test_a_message_of_before_is_stale_and_a_much_older_one_is_a_replay(way: Way) -> None:
    net = Net()
    link = net.links[way.receiver]
    (old,) = way.messages(net, [b"old"])
    link.take(opened(link, old))
    for i in range(12):
        (message,) = way.messages(net, [b"%d" % i])
        link.take(opened(link, message))
        refused(link, message, Stale, *way.blame)
        if i < 4:
            refused(link, old, Stale, *way.blame, match="came before")
    refused(link, old, way.error, *way.blame, match="a replay, or its sender was restored from an old state")


@each_way
def test_a_new_label_under_an_old_number_is_refused(way: Way) -> None:
    net = Net()
    link, sender = net.links[way.receiver], net.links[way.sender]
    for number in (7, 7, 3):
        sender.sequence = number - 1
        (message,) = way.messages(net, [b"word"])
        if number == 7 and not link._heard[way.sender]:
            link.take(opened(link, message))
        else:
            refused(link, message, way.error, *way.blame, match="a replay")


@each_way
def test_a_newer_message_ends_the_one_before(way: Way) -> None:
    net = Net()
    link = net.links[way.receiver]
    first, second, _ = way.messages(net)
    link.take(opened(link, first))
    (newer,) = way.messages(net, [b"newer"])
    link.take(opened(link, newer))
    refused(link, second, Stale, *way.blame)


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "signed"], ids=str)
def test_a_signature_of_another_session_is_refused(way: Way) -> None:
    net = Net()
    other = Net(session=OTHER_SESSION, identities=net.identities)
    message, *_ = way.messages(other)
    refused(net.links[way.receiver], message, way.error, *way.blame, match="damaged or forged")


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "signed"], ids=str)
def test_nobody_signs_in_anothers_name(way: Way) -> None:
    net = Net()
    label = replace(net.links[2].label(Kind.WORD, NUMBERS, CONTEXT), sender=1)
    message = net.links[2].signer(label).seal(0, b"word")
    refused(net.links[way.receiver], message, way.error, *way.blame, match="damaged or forged")


def test_a_hello_signature_signs_nothing_else_and_nothing_else_signs_a_hello() -> None:
    net = Net()
    hello = net.links[1].hello
    label = replace(net.links[1].label(Kind.WORD, NUMBERS, CONTEXT), receiver=ALL)
    refused(net.links[0], label.pack() + b"word" + hello.signature, FaultyPeerOrRelay, 1, SERVER)
    signed = bytes(net.links[1].signer(label).seal(0, hello.session, hello.incarnation, hello.public))
    body = hello.session + hello.incarnation + hello.public + signed[-SIGNATURE_BYTES:]
    not_greeted(net.fresh(0), hello_header(Kind, 1, hello.incarnation).pack() + body, FaultyPeerOrRelay, 1, SERVER)


def test_a_broadcast_whose_key_was_not_announced_is_refused() -> None:
    net = Net()
    label = net.links[SERVER].label(Kind.WORD, NUMBERS, CONTEXT)
    message = net.links[SERVER].broadcaster(label, 1, bytes(KEY_BYTES)).seal(0, b"word")
    refused(net.links[0], message, FaultyPeer, SERVER, match="a broadcast whose key did not come")


@pytest.mark.parametrize("change", ["sequence", "salt", "chunks", "context", "kind", "round"])
def test_a_key_is_for_one_label(change: str) -> None:
    net = Net()
    label = net.links[SERVER].label(Kind.WORD, NUMBERS, CONTEXT)
    net.links[0].expect(broadcast_name(label), bytes(KEY_BYTES))
    values: dict[str, Any] = {"salt": b"x" * 16, "context": NO_CONTEXT, "kind": Kind.BEGIN}
    other = replace(label, **{change: values.get(change) or getattr(label, change) + 1})
    message = net.links[SERVER].broadcaster(other, other.chunks, bytes(KEY_BYTES)).seal(0, b"word")
    refused(net.links[0], message, FaultyPeer, SERVER, match="a broadcast whose key did not come")
    net.links[0].take(opened(net.links[0], net.links[SERVER].broadcaster(label, 1, bytes(KEY_BYTES)).seal(0, b"word")))


def test_a_broadcast_under_another_key_than_the_announced_one_is_refused() -> None:
    net = Net()
    label = net.links[SERVER].label(Kind.WORD, NUMBERS, CONTEXT)
    net.links[0].expect(broadcast_name(label), bytes(KEY_BYTES))
    message = net.links[SERVER].broadcaster(label, 1, b"k" * KEY_BYTES).seal(0, b"word")
    refused(net.links[0], message, FaultyPeer, SERVER, match="damaged or forged")


def test_a_client_cannot_broadcast_under_the_servers_key() -> None:
    net = Net()
    label = net.links[1].label(Kind.WORD, NUMBERS, CONTEXT)
    net.links[0].expect(broadcast_name(label), bytes(KEY_BYTES))
    message = net.links[SERVER].broadcaster(label, 1, bytes(KEY_BYTES)).seal(0, b"word")
    refused(net.links[0], message, FaultyPeerOrRelay, 1, SERVER)


def test_what_comes_before_a_hello_is_refused() -> None:
    for way in WAYS:
        net = Net()
        message, *_ = way.messages(net)
        refused(net.fresh(way.receiver), message, way.error, *way.blame, match="before a hello")


def test_a_label_is_bound_to_its_receiver_and_its_sender() -> None:
    net = Net()
    message = bytes(net.links[1].sealer(net.links[1].label(Kind.WORD, NUMBERS, CONTEXT), 2).seal(0, b"word"))
    header = net.links[0].parse(message, SERVER)
    readdressed = replace(header, receiver=0).pack() + message[HEADER_BYTES:]
    refused(net.links[0], readdressed, FaultyPeerOrRelay, 1, SERVER, match="damaged or forged")
    renamed = replace(header, sender=0).pack() + message[HEADER_BYTES:]
    refused(net.links[2], renamed, FaultyPeerOrRelay, 0, SERVER, match="damaged or forged")
    mirrored = replace(header, sender=2, receiver=1).pack() + message[HEADER_BYTES:]
    refused(net.links[1], mirrored, FaultyPeerOrRelay, 2, SERVER, match="damaged or forged")


def test_the_carrier_is_blamed_for_what_has_no_header_or_an_unknown_sender() -> None:
    net = Net()
    label = net.links[1].label(Kind.WORD, NUMBERS, CONTEXT)
    garbage: list[tuple[bytes, str]] = [
        (b"", "shorter than a header"),
        (bytes(HEADER_BYTES - 1), "shorter than a header"),
        (bytes(HEADER_BYTES), "wire version 0"),
        (replace(label, kind=99).pack(), "unknown kind 99"),
        (replace(label, sender=3).pack(), "unknown party 3"),
        (replace(label, sender=ALL).pack(), "unknown party"),
        (replace(label, chunk=1).pack(), "chunk 1 of 1"),
    ]
    for message, why in garbage:
        for carrier in (SERVER, 2):
            with pytest.raises(ProtocolError, match=why) as caught:
                net.links[0].parse(message, carrier)
            assert caught.value.suspects == (carrier,)


# ------------------------------------------------------------------------------------------------------------ secrets


def shown(*things: object) -> str:
    return " ".join(f"{thing!r} {thing!s}" for thing in things)


def test_no_secret_shows_in_a_repr() -> None:
    net = Net()
    way = WAYS[1]
    message, *_ = way.messages(net, [b"the payload itself"])
    link = net.links[0]
    found = opened(link, message)
    signer = net.links[1].signer(found.header)
    text = shown(link, found, found.stream, link.channels[1], link._key, link.identity, signer)
    assert repr(link) == "Link(client 0)"
    secrets = [link._key.secret, link.identity.secret, link.channels[1]._pair_key, b"the payload itself"]
    for secret in secrets:
        for spelled in (secret.hex(), repr(secret)[2:-1], str(list(secret))):
            assert spelled not in text


def test_no_secret_shows_in_an_error() -> None:
    net = Net()
    link = net.links[0]
    label = net.links[SERVER].label(Kind.WORD, NUMBERS, CONTEXT)
    key = b"K" * KEY_BYTES
    link.expect(broadcast_name(label), key)
    with pytest.raises(ProtocolError) as caught:
        opened(link, link.broadcaster(label, 1, bytes(KEY_BYTES)).seal(0, b"the payload itself"))
    text = shown(caught.value, caught.value.__cause__)
    for secret in (key, b"the payload itself", link._key.secret, link.identity.secret):
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text


def test_sizes_are_those_that_are_stated() -> None:
    assert overhead(signed=False) == HEADER_BYTES + TAG_BYTES
    assert overhead(signed=True) == HEADER_BYTES + SIGNATURE_BYTES
    assert len(SessionKey(bytes(32)).public) == KEY_BYTES
