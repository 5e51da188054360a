"""Laws of identities, hellos and channels: who is who, which key is whose, and no key twice."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic.field import RING61
from secea.arithmetic.paillier import PrivateKey
from secea.errors import (
    SERVER,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ParamsError,
    ProtocolError,
)
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.forms.paillier.client import Epoch, PaillierClient, Round
from secea.forms.paillier.form import Kind
from secea.params import Params
from secea.party import session
from secea.party.client import Due
from secea.party.form import Form
from secea.party.session import Session
from secea.testing import Parties, insecure_seeded
from secea.wire import messages
from secea.wire.keys import (
    HELLO_BYTES,
    Channel,
    Hello,
    Identity,
    Roster,
    SessionKey,
    digest,
    expand,
    shared_secret,
    spelled,
)
from secea.wire.link import Opened
from secea.wire.messages import HEADER_BYTES, NO_CONTEXT, Header
from secea.wire.randomness import KeyStream

law = settings(deadline=None)
SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
keys = st.binary(min_size=32, max_size=32)
digests = st.binary(min_size=16, max_size=16)
words = st.integers(0, 2**32 - 1)


# ------------------------------------------------------------------------------------------------ identities, rosters


@law
@given(keys, st.binary(max_size=100))
def test_an_identity_is_an_ed25519_key(secret: bytes, data: bytes) -> None:
    key = Ed25519PrivateKey.from_private_bytes(secret)
    assert Identity(secret).public == key.public_key().public_bytes_raw()
    key.public_key().verify(Identity(secret).sign(data), data)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_an_identity_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ParamsError, match="32 bytes"):
        Identity(bytes(size))


names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


@st.composite
def rosters(draw: st.DrawFn) -> Roster:
    """Two to four parties with different keys, out of few, and any names."""
    pool = [bytes([i]) * 32 for i in range(6)]
    *clients, server = draw(st.permutations(pool))[: draw(st.integers(2, 5))]
    given = draw(st.lists(names, min_size=len(clients), max_size=len(clients), unique=True))
    return Roster(tuple(clients), server, tuple(given))


@law
@given(rosters(), rosters())
def test_two_rosters_are_the_same_bytes_only_if_they_are_equal(one: Roster, other: Roster) -> None:
    assert (one.canonical() == other.canonical()) == (one == other)


@law
@given(rosters(), st.data())
def test_the_bytes_of_a_roster_change_with_any_change(roster: Roster, data: st.DataObject) -> None:
    new_key, clients, given = b"\xff" * 32, list(roster.clients), list(roster.names)
    n = data.draw(st.integers(0, len(clients) - 1))
    changed = [
        replace(roster, server=new_key),
        replace(roster, clients=(*clients[:n], new_key, *clients[n + 1 :])),
        replace(roster, clients=(*clients, new_key), names=(*given, "one more" * 2)),
        replace(roster, names=(*given[:n], "another" * 2, *given[n + 1 :])),
        replace(roster, clients=(*clients[:n], roster.server, *clients[n + 1 :]), server=clients[n]),
    ]
    if len(clients) > 1:
        changed.append(replace(roster, clients=tuple(clients[::-1])))
        changed.append(replace(roster, names=tuple(given[::-1])))
        changed.append(replace(roster, clients=tuple(clients[1:]), names=tuple(given[1:])))
    texts = [roster.canonical(), *(other.canonical() for other in changed)]
    assert len(set(texts)) == len(texts)


@law
@given(rosters())
def test_the_fingerprint_of_a_roster_is_a_hash_of_its_bytes_for_this_purpose_alone(roster: Roster) -> None:
    assert roster.fingerprint == spelled(hashlib.sha256(b"secea roster\n" + roster.canonical()).digest())


@given(keys)
def test_people_compare_160_bits_in_groups_of_four_digits(hashed: bytes) -> None:
    groups = spelled(hashed).split(" ")
    assert "".join(groups) == hashed[:20].hex()
    assert [len(group) for group in groups] == [4] * 10


def test_names_that_hold_a_line_of_a_roster_do_not_make_two_rosters_look_alike() -> None:
    a, b, s = (bytes([i]) * 32 for i in range(3))
    honest = Roster((a, b), s, ("ann", "bob"))
    try:
        odd = Roster((b,), s, (f"ann\t{a.hex()}\nbob",))
    except ParamsError:
        return
    assert odd.canonical() != honest.canonical()


@pytest.mark.parametrize(
    ("clients", "server", "given"),
    [
        ([1, 1], 3, ()),
        ([1, 2], 2, ()),
        ([1, 2], 3, ("ann",)),
        ([1, 2], 3, ("ann", "ann")),
        ([1, 2], 3, ("ann", "bob", "eve")),
    ],
    ids=["same key", "the server's key", "a name missing", "same name", "a name too many"],
)
def test_a_roster_with_duplicates_or_without_a_name_for_each_is_refused(
    clients: list[int], server: int, given: tuple[str, ...]
) -> None:
    with pytest.raises(ParamsError):
        Roster(tuple(bytes([n]) * 32 for n in clients), bytes([server]) * 32, given)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_roster_with_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ParamsError):
        Roster((bytes(32), b"\1" * size), b"\2" * 32)
    with pytest.raises(ParamsError):
        Roster((bytes(32), b"\1" * 32), b"\2" * size)


# ------------------------------------------------------------------------------------------------------------- hellos


def parties_of(form: Form | None = None) -> Parties:
    tables = [{"a": [1.0], "b": [2.0]}, {"b": [3.0]}, {"c": [4.0]}]
    return Parties.of(tables, form or Paillier(), entropy=insecure_seeded(1), **SMALL)


def test_a_hello_is_what_its_sender_signed_and_says_what_its_form_adds() -> None:
    parties = parties_of()
    size = parties.session.form.introduction_bytes(parties.session.params)
    links = {SERVER: parties.server.link} | {n: client.link for n, client in parties.clients.items()}
    for n, link in links.items():
        hello = link.hello
        assert len(hello.to_bytes()) == HELLO_BYTES + (0 if n == SERVER else size)
        assert Hello.verify(hello.to_bytes(), n, parties.session.roster, parties.session.hash, size) == hello


def modulus(seed: bytes) -> int:
    return int(PrivateKey.generate(256, KeyStream(seed).bytes).public.n)


WEAK_MODULI = {
    "too short": (modulus(b"\7" * 32) >> 16) | 1,
    "even": (1 << 256) - 2,
    "with a small factor": 3 * ((2**256 - 1) // 3 - 2),
    "zero": 0,
}


def handed_over(parties: Parties, receiver: int, hello: Hello) -> ProtocolError:
    """The error that a hello of client 1 meets; the honest one is still taken."""
    honest = parties.clients[1].link.hello_message()
    message = honest[:HEADER_BYTES] + hello.to_bytes()
    take = parties.clients[receiver].receive if receiver != SERVER else partial(parties.server.receive, 1)
    with pytest.raises(ProtocolError) as caught:
        take(message)
    take(honest)
    return caught.value


@pytest.mark.parametrize("receiver", [0, SERVER])
@pytest.mark.parametrize("fault", WEAK_MODULI)
def test_a_signed_paillier_key_that_is_short_or_weak_is_its_senders_fault(receiver: int, fault: str) -> None:
    parties = parties_of()
    own, weak = parties.clients[1].link.hello, WEAK_MODULI[fault].to_bytes(32, "little")
    hello = Hello.make(parties.identities[1], 1, own.session, own.incarnation, own.public, weak)
    error = handed_over(parties, receiver, hello)
    assert isinstance(error, FaultyPeer)
    assert error.suspects == (1,)


def test_a_swapped_paillier_key_is_the_senders_or_the_relays_fault() -> None:
    parties = parties_of()
    swapped = replace(parties.clients[1].link.hello, extra=modulus(b"\7" * 32).to_bytes(32, "little"))
    assert isinstance(handed_over(parties, 0, swapped), FaultyPeerOrRelay)
    assert isinstance(handed_over(parties, SERVER, swapped), FaultyPeer)


OTHER_SESSIONS: dict[str, Callable[[pytest.MonkeyPatch, Session], Session]] = {
    "params": lambda patch, s: replace(s, params=replace(s.params, precision=23)),
    "bounds": lambda patch, s: replace(s, params=replace(s.params, max_union=6)),
    "form": lambda patch, s: replace(s, form=Keyed()),
    "queries": lambda patch, s: replace(s, form=Paillier(queries="full")),
    "roster": lambda patch, s: replace(s, roster=replace(s.roster, names=("a", "b", "c"))),
    "version": lambda patch, s: patch.setattr(session, "WIRE_VERSION", messages.WIRE_VERSION + 1) or replace(s),
}


@pytest.mark.parametrize("difference", OTHER_SESSIONS)
def test_sessions_with_any_difference_have_different_hashes(difference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = parties_of().session
    assert OTHER_SESSIONS[difference](monkeypatch, ours).hash != ours.hash
    monkeypatch.undo()
    assert replace(ours).hash == ours.hash


# ----------------------------------------------------------------------------------------------------------- channels


def channels(
    session_hash: bytes = b"\3" * 32, one: bytes = b"\1" * 32, other: bytes = b"\2" * 32
) -> tuple[Channel, Channel]:
    """Both ends of the channel of clients 4 and 9."""
    ends = {4: SessionKey(one), 9: SessionKey(other)}
    signers = {n: Identity(bytes([n]) * 32) for n in ends}
    hellos = {n: Hello.make(signers[n], n, session_hash, bytes([n]) * 16, key.public, b"") for n, key in ends.items()}
    return (
        Channel.between(4, hellos[4], ends[4], 9, hellos[9]),
        Channel.between(9, hellos[9], ends[9], 4, hellos[4]),
    )


@st.composite
def headers(draw: st.DrawFn, sender: int = 4, receiver: int = 9) -> Header:
    epoch, weights, number, sequence = (draw(words) for _ in range(4))
    kind, attempt, chunks = draw(st.sampled_from(Kind)), draw(st.integers(0, 2**16 - 1)), draw(st.integers(1, 5))
    return Header(
        kind, sender, receiver, epoch, weights, number, attempt, sequence, chunks, draw(digests), draw(digests)
    )


@law
@given(keys, keys, keys, headers(), st.binary(max_size=200))
def test_what_one_end_seals_the_other_opens(
    hashed: bytes, one: bytes, other: bytes, header: Header, data: bytes
) -> None:
    if one == other:
        return
    mine, theirs = channels(hashed, one, other)
    sealer, opener = mine.sealer(header), theirs.opener(header)
    for chunk in range(header.chunks):
        opener.next = chunk
        sealed, key = sealer.seal(chunk, data), mine.derive("seal", header.label())
        assert opener.open(header.at(chunk), sealed) == data
        assert sealer.seal(chunk, data[:3], b"", memoryview(data)[3:]) == sealed  # in parts
        head, nonce = bytes(sealed[:HEADER_BYTES]), chunk.to_bytes(12, "little")
        assert sealed[HEADER_BYTES:] == AESGCM(key).encrypt(nonce, data, head)


@law
@given(keys, st.text(max_size=9), st.lists(st.binary(max_size=9), max_size=3))
def test_key_streams_agree_on_both_sides(hashed: bytes, purpose: str, label: list[bytes]) -> None:
    mine, theirs = channels(hashed)
    a, b = mine.stream(purpose, *label), theirs.stream(purpose, *label)
    assert np.array_equal(a.elements(RING61, 20), b.elements(RING61, 20))
    assert a.lane(3).bytes(40) == b.lane(3).bytes(40)


LABEL_FIELDS = [
    "kind", "sender", "receiver", "epoch", "weights", "round", "attempt", "sequence", "chunks", "context", "salt",
]  # fmt: skip


@law
@given(headers(), headers(), st.sampled_from(LABEL_FIELDS))
def test_message_keys_differ_for_every_field_of_the_label(header: Header, other: Header, field: str) -> None:
    changed = replace(header, **{field: getattr(other, field)})
    if field in ("sender", "receiver"):
        changed = replace(header, **{field: getattr(header, field) + 1})
    mine, _ = channels()
    same = mine.derive("seal", header.label()) == mine.derive("seal", changed.label())
    assert same == (changed == header)


def test_the_two_directions_of_a_channel_have_different_keys() -> None:
    mine, theirs = channels()
    there = Header(Kind.SHARE, 4, 9, 1, 1, 1, 0, 5, 1, NO_CONTEXT, NO_CONTEXT)
    back = replace(there, sender=9, receiver=4)
    sealed = mine.sealer(there).seal(0, bytes(32)), theirs.sealer(back).seal(0, bytes(32))
    assert sealed[0][HEADER_BYTES:-16] != sealed[1][HEADER_BYTES:-16]
    forged = back.pack() + bytes(sealed[0][HEADER_BYTES:])
    with pytest.raises(ValueError, match="not authentic"):
        mine.opener(back).open(back, forged)


@law
@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_labels_of_several_parts_are_unambiguous(one: list[bytes], other: list[bytes]) -> None:
    mine, _ = channels()
    assert (digest(*one) == digest(*other)) == (one == other)
    assert (mine.stream("pad", *one).bytes(16) == mine.stream("pad", *other).bytes(16)) == (one == other)
    assert (expand(b"\1" * 32, "x", *one) == expand(b"\1" * 32, "x", *other)) == (one == other)


def test_streams_for_different_purposes_or_pairs_or_sessions_differ() -> None:
    mine, _ = channels()
    drawn = [mine.stream(purpose, b"label").bytes(32) for purpose in ("pad", "mask", "seal")]
    drawn += [mine.derive("seal", b"label"), mine.stream("pad", b"label").lane(1).bytes(32)]
    drawn += [
        channels(b"\4" * 32)[0].stream("pad", b"label").bytes(32),
        channels(one=b"\5" * 32)[0].stream("pad", b"label").bytes(32),
    ]
    assert len(set(drawn)) == len(drawn)


def test_a_pair_key_is_bound_to_both_hellos_whole() -> None:
    ends = {4: SessionKey(b"\1" * 32), 9: SessionKey(b"\2" * 32)}
    hellos = {n: Hello(b"\3" * 32, bytes(16), key.public, b"paillier", bytes(64)) for n, key in ends.items()}
    derived = set()
    for changed in ({}, {"incarnation": b"\1" * 16}, {"extra": b"another1"}, {"signature": b"\1" * 64}):
        for n in ends:
            both = hellos | {n: replace(hellos[n], **changed)}
            derived.add(Channel.between(4, both[4], ends[4], 9, both[9]).derive("x", b""))
    assert len(derived) == 7


# ------------------------------------------------------------------------------------------------- the shared secret


@law
@given(st.dictionaries(st.integers(0, 99), keys, min_size=2, max_size=6), st.data())
def test_the_shared_secret_depends_on_every_part_and_every_name_and_on_no_order(
    parts: dict[int, bytes], data: st.DataObject
) -> None:
    one = list(parts.items())
    secret = shared_secret(one)
    assert secret == shared_secret(data.draw(st.permutations(one)))
    n = data.draw(st.sampled_from(sorted(parts)))
    without = [(m, part) for m, part in one if m != n]
    flipped = bytes([parts[n][0] ^ 1]) + parts[n][1:]
    others = [without, [*without, (n, flipped)], [*without, (100, parts[n])]]
    assert len({secret, *map(shared_secret, others)}) == 4


@pytest.mark.parametrize("parts", [[], [(0, bytes(32)), (1, bytes(31))], [(0, b"")]])
def test_a_shared_secret_without_all_its_parts_is_refused(parts: list[tuple[int, bytes]]) -> None:
    with pytest.raises(FederationError):
        shared_secret(parts)


# ---------------------------------------------------------------------------------------------- known-answer vectors
# Clients 4 and 9, X25519 secrets 01.. and 02.., identities 04.. and 09.., incarnations likewise, session hash 03...
# Every value below was computed by `by_hand`, which uses HMAC, SHA-256, BLAKE2b and `cryptography`'s primitives alone.

HEADER = Header(Kind.SHARE, 4, 9, 1, 2, 3, 0, 5, 2, bytes(range(16)), bytes(range(16, 32)))
PAIR_KEY = "d5e7d019c680965357362e480c22810c46320d1dcb877527d3491c5091042a10"
MESSAGE_KEY = "3b4898d02d5a0f0cd492fa6ad47fc9916ece34edca6bcfc15d7720fa34050767"
PAD_KEY = "4d9da7f46705165d1bfd84c26b6fb8991802229d60cb382940dfa9d93f94c4c6"
PAD_BYTES = "9d7ed1ecf657b8913e7939e53dc7204340ce495404c75d9095a7713e2c9f7d76"
PAD_LANE_1 = "65016f418abccf514d0f5d219b31838632682a8bed7ffc67473e4e8291f879c2"
PAD_ELEMENTS = [1312529906157629395, 604635633556074279, 1300336191962954184, 1067269435117417714]
SEALED_CHUNK_1 = (
    "0109040009000000010000000200000003000000050000000100000002000000"
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
    "afe8d7fc9b0a3131358410ed04565e47a42912ad5cf2285e8027c67b0bca91e0"
)
HASHED_PARTS = "72d61dea3e6081c2d0a92cbbc20782ab2eaa7025c5bc480012fd8571ac036f0a"


def hkdf_expand(key: bytes, info: bytes) -> bytes:
    """RFC 5869, section 2.3, for one block."""
    return hmac.digest(key, info + b"\1", "sha256")


def by_hand() -> dict[str, Any]:
    hellos = []
    for n, secret in ((4, b"\1" * 32), (9, b"\2" * 32)):
        public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        incarnation, session_hash = bytes([n]) * 16, b"\3" * 32
        signed = b"secea hello 1\n"
        for part in (session_hash, struct.pack("<H", n), incarnation, public, b""):
            signed += struct.pack("<I", len(part)) + part
        signature = Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32).sign(signed)
        hellos.append(session_hash + incarnation + public + signature)
    theirs = X25519PublicKey.from_public_bytes(hellos[1][48:80])
    secret = X25519PrivateKey.from_private_bytes(b"\1" * 32).exchange(theirs)
    transcript = b"".join(hashlib.sha256(hello).digest() for hello in hellos)
    pair_key = hkdf_expand(hmac.digest(b"\3" * 32, secret, "sha256"), b"secea pair" + transcript)

    fields = (1, 9, 4, 9, 0, 1, 2, 3, 5)  # version, kind, sender, receiver, attempt, epoch, weights, round, sequence
    label = struct.pack("<BBHHHIIII", *fields) + struct.pack("<II", 0, 2) + bytes(range(32))
    message_key = hkdf_expand(pair_key, b"secea seal\n" + label)
    head = struct.pack("<BBHHHIIII", *fields) + struct.pack("<II", 1, 2) + bytes(range(32))
    sealed = head + AESGCM(message_key).encrypt(b"\1" + bytes(11), b"the second chunk", head)

    hashed = hashlib.blake2b(digest_size=16, person=b"secea digest")
    hashed.update(struct.pack("<Q", 16) + bytes(range(16)))
    pad_key = hkdf_expand(pair_key, b"secea pad\n" + hashed.digest())
    stream = Cipher(algorithms.AES256(pad_key), modes.CTR(bytes(16))).encryptor().update(bytes(64))
    lane = Cipher(algorithms.AES256(pad_key), modes.CTR(bytes(7) + b"\1" + bytes(8))).encryptor().update(bytes(32))
    accepted = (word >> 3 for (word,) in struct.iter_unpack("<Q", stream))
    elements = [word for word in accepted if word != 2**61 - 1][:4]
    shared = hashlib.sha256(b"secea shared secret" + b"\0\0" + b"\1" * 32 + b"\2\0" + b"\2" * 32).digest()
    return {
        "pair": pair_key.hex(), "message": message_key.hex(), "pad": pad_key.hex(), "stream": stream[:32].hex(),
        "lane": lane.hex(), "elements": elements, "sealed": sealed.hex(), "shared": shared.hex(),
    }  # fmt: skip


def test_the_known_answers_are_what_plain_primitives_give() -> None:
    assert by_hand() == {
        "pair": PAIR_KEY, "message": MESSAGE_KEY, "pad": PAD_KEY, "stream": PAD_BYTES, "lane": PAD_LANE_1,
        "elements": PAD_ELEMENTS, "sealed": SEALED_CHUNK_1, "shared": HASHED_PARTS,
    }  # fmt: skip


def test_keys_streams_and_a_sealed_message_have_their_known_values() -> None:
    mine, theirs = channels()
    assert mine._pair_key.hex() == theirs._pair_key.hex() == PAIR_KEY
    assert mine.derive("seal", HEADER.label()).hex() == MESSAGE_KEY
    assert mine.derive("pad", digest(bytes(range(16)))).hex() == PAD_KEY
    pad = mine.stream("pad", bytes(range(16)))
    assert pad.bytes(32).hex() == PAD_BYTES
    assert pad.lane(1).bytes(32).hex() == PAD_LANE_1
    assert pad.lane(0).elements(RING61, 4)[0].tolist() == PAD_ELEMENTS
    assert mine.sealer(HEADER).seal(1, b"the second chunk").hex() == SEALED_CHUNK_1
    assert bytes(theirs.opener(HEADER).open(HEADER.at(1), bytes.fromhex(SEALED_CHUNK_1))) == b"the second chunk"
    assert shared_secret([(2, b"\2" * 32), (0, b"\1" * 32)]).hex() == HASHED_PARTS


# ------------------------------------------------------------------------------------------------------------ secrets


def shown(secret: object) -> list[str]:
    """The ways in which a secret could stand in a text."""
    if isinstance(secret, bytes):
        return [secret.hex(), repr(secret)[2:-1], repr(bytearray(secret))[12:-2], str(int.from_bytes(secret, "little"))]
    return [str(secret), hex(int(str(secret)))[2:]]


def test_no_secret_stands_in_a_repr() -> None:
    parties = parties_of()
    parties.setup()
    client, server = parties.clients[0], parties.server
    client.contribute({"a": [1.0], "b": [2.0]}, 1)
    part, link = client.part, client.link
    assert isinstance(part, PaillierClient)
    assert part.epoch is not None
    channel, key, stream = link.channels[1], SessionKey(b"\6" * 32), KeyStream(b"\7" * 32)
    header = Header(Kind.SHARE, 1, 0, 1, 0, 0, 0, 99, 1, NO_CONTEXT, NO_CONTEXT)
    payload = b"a secret payload that must not show"
    opened = link.open(header, parties.clients[1].link.channels[0].sealer(header).seal(0, payload))
    secrets: list[object] = [
        link.identity.secret, key.secret, channel._pair_key, part.epoch.seed, part.epoch.secret, part.epoch.part,
        part.key.p, part.key.q, payload, b"\7" * 32, server.link.identity.secret, *part.names,
    ]  # fmt: skip
    objects: list[object] = [
        link.identity, key, link.hello, link, channel, channel.sealer(replace(header, sender=0, receiver=1)), client,
        opened, opened.stream, stream, stream.lane(1), part, part.epoch, part.round, client.at, client.due, server,
        server.link, server.part, part.key, part.key.public, parties.session, parties.session.form,
    ]  # fmt: skip
    assert isinstance(channel, Channel)
    assert {Identity, SessionKey, KeyStream, Epoch, Round, Due, Opened, PrivateKey} <= set(map(type, objects))
    for x in objects:
        for text in (repr(x), str(x), f"{x}"):
            for secret in secrets:
                if isinstance(secret, str):
                    assert repr(secret) not in text
                else:
                    assert not any(form in text for form in shown(secret)), (type(x), text)


def test_the_same_check_sees_a_secret_that_is_shown() -> None:
    assert any(form in repr({"key": b"\7" * 32}) for form in shown(b"\7" * 32))


@law
@given(st.sampled_from([FaultyPeer, FaultyPeerOrRelay]), st.sampled_from([0, 5, SERVER]), st.text(max_size=9))
def test_an_error_names_its_suspects_and_survives_a_copy(kind: type[ProtocolError], sender: int, fault: str) -> None:
    import pickle

    error = kind(sender, fault)  # type: ignore[arg-type]
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), copy.suspects, str(copy)) == (kind, error.suspects, str(error))
    assert error.suspects == ((sender,) if kind is FaultyPeer or sender == SERVER else (sender, SERVER))
    assert all(("the server" if n == SERVER else f"client {n}") in str(error) for n in error.suspects)


def test_short_keys_are_refused_unless_named_insecure() -> None:
    with pytest.raises(ParamsError, match="insecure"):
        Params(3, dim=1, key_bits=SMALL["key_bits"])
    with pytest.raises(ParamsError, match="insecure"):
        Params(3, dim=1, key_bits=1984)
    assert Params(3, dim=1, key_bits=2048).key_bits == 2048
