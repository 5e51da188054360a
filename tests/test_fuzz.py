"""Bad bytes at every place of both forms: taken, or refused and nothing changed. Parsers raise what they say."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.errors import SERVER, ParamsError, ProtocolError, SnapshotError
from secea.forms.paillier.form import Kind
from secea.party.client import Client
from secea.party.phases import STOPPED, Agreement, Begin
from secea.party.server import Server
from secea.wire.keys import Hello, Identity, Roster
from secea.wire.messages import HEADER_BYTES, Header
from secea.wire.snapshot import dumps, loads

FOLDER = Path(__file__).parent.parent / "fuzz"
sys.path.insert(0, str(FOLDER))

from places import FEDERATIONS, NUMBERS, Place, every_place, may_be_taken, places, taken  # noqa: E402

each_federation = pytest.mark.parametrize("form", FEDERATIONS)
some = settings(deadline=None)


# ------------------------------------------------------------------------------------------------ as anyone can do it


@st.composite
def damaged(draw: st.DrawFn, place: Place) -> tuple[int, bytes]:
    """The carrier and the bytes of a message that somebody without keys made out of what it saw."""
    message, carrier = bytearray(place.hop.message), place.hop.sender
    carriers = st.sampled_from([0, 1, 2, 3, 1000]) if place.hop.receiver == SERVER else st.just(carrier)
    match draw(st.sampled_from(["truncate", "flip", "oversize", "header", "random", "splice", "carrier", "body"])):
        case "truncate":
            del message[draw(st.integers(0, len(message) - 1)) :]
        case "flip":
            for at in draw(st.sets(st.integers(0, len(message) - 1), min_size=1, max_size=4)):
                message[at] ^= draw(st.integers(1, 255))
        case "oversize":
            message += draw(st.binary(min_size=1, max_size=40)) * draw(st.sampled_from([1, 1, 10_000]))
        case "header":
            name = draw(st.sampled_from([*NUMBERS, "sender", "receiver", "kind"]))
            small = st.integers(0, 13) | st.sampled_from([0xFFFF, 0xFFFE, 0x7FFF])
            value = draw(st.sampled_from(place.kinds) if name == "kind" else small)
            message[:HEADER_BYTES] = place.header(**{name: value}).pack()
        case "random":
            message[:] = draw(st.binary(max_size=300))
        case "splice":
            message[HEADER_BYTES:] = draw(st.sampled_from(every_place())).hop.message[HEADER_BYTES:]
        case "body":
            message[:] = draw(st.sampled_from(every_place())).hop.message
        case "carrier":
            carrier = draw(carriers)
    return carrier, bytes(message)


@each_federation
@some
@given(data=st.data())
def test_what_nobody_sealed_is_refused_and_the_honest_message_still_counts(form: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(places(form)))
    carrier, message = data.draw(damaged(place))
    if taken(place, message, carrier):
        assert carrier == place.hop.sender
        assert may_be_taken(place, message)


@each_federation
def test_every_place_takes_its_message_and_refuses_it_without_its_end_or_with_a_bit_changed(form: str) -> None:
    for place in places(form):
        message = place.hop.message
        assert taken(place, message)
        for size in (0, HEADER_BYTES - 1, HEADER_BYTES, len(message) - 1):
            assert not taken(place, message[:size])
        if not place.blind:
            assert not taken(place, message[:-1] + bytes([message[-1] ^ 1]))


# ------------------------------------------------------------------------------------------------- behind the seal


@st.composite
def payloads(draw: st.DrawFn, place: Place) -> bytes:
    """Payloads that are nearly right, and others."""
    true = place.payload()
    match draw(st.sampled_from(["flip", "word", "truncate", "longer", "random", "same size", "true"])):
        case "flip":
            at = draw(st.integers(0, len(true) - 1))
            return true[:at] + bytes([true[at] ^ draw(st.integers(1, 255))]) + true[at + 1 :]
        case "word":  # elements at the edge of their field and out of it
            words = [b"\xff" * 8, b"\xff" * 7 + b"\x1f", b"\xfe" + b"\xff" * 6 + b"\x1f", b"\xdd\xff\xff\x3f", bytes(8)]
            word = draw(st.sampled_from(words))[: len(true)]
            at = draw(st.integers(0, len(true) - len(word)))
            return true[:at] + word + true[at + len(word) :]
        case "truncate":
            return true[: draw(st.integers(0, len(true) - 1))]
        case "longer":
            return true + draw(st.binary(min_size=1, max_size=40)) * draw(st.sampled_from([1, 1, 1000]))
        case "random":
            return draw(st.binary(max_size=200))
        case "same size":
            return hashlib.shake_256(draw(st.binary(max_size=4))).digest(len(true))
        case _:
            return true


@st.composite
def labels(draw: st.DrawFn, place: Place) -> Header:
    """The true header, or one with a field changed."""
    if draw(st.booleans()):
        return place.hop.header
    name = draw(st.sampled_from([*NUMBERS, "kind", "context", "salt"]))
    if name == "kind":
        return place.header(kind=draw(st.sampled_from(place.kinds)))
    if name in ("context", "salt"):
        return place.header(**{name: draw(st.sampled_from([bytes(16), b"\7" * 16]))})
    most = 2**16 - 1 if name == "attempt" else 2**32 - 1
    value = draw(st.integers(1 if name == "chunks" else 0, 9) | st.just(most))
    return place.header(**{name: value})


@each_federation
@settings(some)
@given(data=st.data())
def test_what_a_true_sender_sealed_is_taken_or_refused_whatever_it_says(form: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([place for place in places(form) if place.sealed]))
    taken(place, place.resealed(data.draw(labels(place)), data.draw(payloads(place))))


@each_federation
@settings(some)
@given(data=st.data())
def test_a_hello_that_its_sender_signed_is_taken_or_refused_whatever_it_says(form: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([place for place in places(form) if not place.sealed]))
    true, sender = place.sender.hello, place.hop.header.sender
    field = st.binary(min_size=32, max_size=32) | st.just(bytes(32)) | st.binary(max_size=40)
    session = data.draw(st.just(true.session) | field)
    incarnation = data.draw(st.just(true.incarnation) | st.binary(min_size=16, max_size=16) | st.binary(max_size=40))
    public = data.draw(st.just(true.public) | field)
    extra = data.draw(st.just(true.extra) | st.binary(min_size=32, max_size=32) | st.binary(max_size=70))
    hello = Hello.make(place.sender.identity, sender, session, incarnation, public, extra)
    head = place.header(salt=data.draw(st.just(incarnation[:16].ljust(16)) | st.just(place.hop.header.salt)))
    if taken(place, head.pack() + hello.to_bytes()):
        assert session == true.session
        assert len(incarnation) == len(head.salt) == 16


def test_the_law_notices_a_foreign_exception_a_change_of_state_and_a_lost_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = next(place for place in places("paillier") if "table of a client" in place.name)
    wrong = place.resealed(place.hop.header, b"")

    def foreign(self: Server, *args: Any) -> None:
        raise KeyError("foreign")

    def changing(self: Server, *args: Any) -> None:
        self.lost |= {1}
        raise ProtocolError((0,), "refused")

    def blaming_itself(self: Server, *args: Any) -> None:
        raise ProtocolError((SERVER,), "refused")

    def stopping(self: Server, *args: Any) -> None:
        self.at = Agreement(STOPPED)
        raise ProtocolError((0,), "refused")

    def always(self: Server, *args: Any) -> None:
        raise ProtocolError((0,), "refused")

    assert not taken(place, wrong)
    for receive, expected in (
        (foreign, pytest.raises(KeyError)),
        (changing, pytest.raises(AssertionError, match="changed the state")),
        (blaming_itself, pytest.raises(AssertionError, match="suspects itself")),
        (stopping, pytest.raises(AssertionError)),
        (always, pytest.raises(ProtocolError)),
    ):
        monkeypatch.setattr(Server, "receive", receive)
        with expected:
            taken(place, wrong)


def test_the_law_notices_a_client_that_stops_at_what_nobody_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = next(place for place in places("keyed") if "means of the server" in place.name)

    def stopping(self: Client, message: bytes) -> None:
        self.vouched = False
        self.stop()
        raise ProtocolError((SERVER,), "refused")

    monkeypatch.setattr(Client, "receive", stopping)
    with pytest.raises(AssertionError, match="stops a client"):
        taken(place, b"")


# ---------------------------------------------------------------------------------------------------------- parsers

salts = st.binary(min_size=16, max_size=16)
public_keys = st.binary(min_size=30, max_size=33) | st.just(bytes(32))


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_a_header_parses_or_names_its_carrier(data: bytes) -> None:
    for wire in (data, b"\1" + data[1:]):
        with suppress(ProtocolError):
            assert Header.parse(wire, 7, Kind).pack() == wire[:HEADER_BYTES]
            continue
        with pytest.raises(ProtocolError, match="client 7: "):
            Header.parse(wire, 7, Kind)


@settings(deadline=None)
@given(
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(0, 12), st.binary(min_size=16, max_size=16))),
    st.binary(max_size=3),
)
def test_an_announcement_parses_or_raises_a_value_error(
    step: int, members: list[tuple[int, bytes]], more: bytes
) -> None:
    data = bytes([step]) + b"".join(n.to_bytes(2, "little") + salt for n, salt in members) + more
    for wire in (data, more):
        try:
            announcement = Begin.parse(wire, 10)
        except ValueError:
            continue
        assert announcement.to_bytes() == wire
        assert list(announcement.clients) == sorted(set(announcement.clients))


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from([0, 1, SERVER]), st.booleans())
def test_a_hello_verifies_or_blames_its_sender(data: bytes, sender: int, relayed: bool) -> None:
    session = places("keyed")[0].parties.session
    with pytest.raises(ProtocolError) as refusal:
        Hello.verify(data.ljust(144, b"\0")[:144], sender, session.roster, session.hash, 0, relayed=relayed)
    assert refusal.value.suspects[0] == sender


@settings(deadline=None)
@given(
    st.lists(st.binary(min_size=30, max_size=33) | st.just(bytes(32)), max_size=4),
    st.lists(st.text(max_size=2), max_size=4),
)
def test_a_roster_and_an_identity_are_made_or_refused_with_a_params_error(keys: list[bytes], names: list[str]) -> None:
    try:
        roster = Roster(tuple(keys), bytes(31) + b"\1", tuple(names))
    except ParamsError:
        pass
    else:
        assert json.loads(roster.canonical())["clients"] == [
            [n, k.hex()] for n, k in zip(roster.names, keys, strict=True)
        ]
    for key in keys:
        try:
            assert len(Identity(key).public) == 32
        except ParamsError:
            assert len(key) != 32


# -------------------------------------------------------------------------------------------------------- snapshots


def checksummed(body: bytes) -> bytes:
    """What an accident does not make, and anyone can: a checksum is no key."""
    return body + hashlib.sha256(body).digest()


def described(text: bytes, arrays: bytes = b"") -> bytes:
    return checksummed(b"secea snapshot 1\n" + len(text).to_bytes(8, "little") + text + arrays)


tokens = st.sampled_from(["array", "bytes", "tuple", "dict", "<u4", "O", "<f8", "V", "<M8[s]", "", "x", "what", "wire"])
leaves = st.none() | st.booleans() | st.integers(-3, 2**70) | tokens | st.floats()
nodes = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {"as": tokens}, optional={"dtype": tokens, "shape": st.lists(inner, max_size=2), "items": inner}
        )
        | st.fixed_dictionaries({"as": tokens, "items": st.lists(st.lists(inner, max_size=3), max_size=3)})
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(nodes, st.binary(max_size=40))
def test_a_snapshot_that_was_made_up_loads_or_is_refused(value: Any, arrays: bytes) -> None:
    with suppress(SnapshotError):
        loads(described(json.dumps(value).encode(), arrays))


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_snapshot_are_refused_also_with_a_checksum(data: bytes) -> None:
    for body in (data, b"secea snapshot 1\n" + data):
        with pytest.raises(SnapshotError):
            loads(data)
        with suppress(SnapshotError):
            loads(checksummed(body))


DEEP = b"[" * 100_000


def test_a_snapshot_of_endless_depth_or_size_is_refused() -> None:
    huge = b'{"as":"array","dtype":"<u8","shape":[4611686018427387904,4]}'
    for text in (DEEP, huge, b'{"as":"array","dtype":"<u8","shape":[-1]}', b"\xff", b'{"as":"dict","items":[[[],1]]}'):
        with pytest.raises(SnapshotError):
            loads(described(text, bytes(8)))


@each_federation
@settings(deadline=None)
@given(data=st.data())
def test_a_party_is_restored_from_what_was_saved_or_the_snapshot_is_refused(form: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(places(form)))
    plain, identity = loads(place.party.save()), place.parties.identities[place.hop.receiver]
    inner = plain.get("part", plain)
    match data.draw(st.sampled_from(["drop", "drop inner", "junk", "junk inner", "whole"])):
        case "drop":
            del plain[data.draw(st.sampled_from(sorted(plain)))]
        case "drop inner":
            del inner[data.draw(st.sampled_from(sorted(inner)))]
        case "junk":
            plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(leaves)
        case "junk inner":
            inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(leaves | st.lists(leaves))
        case _:
            plain = data.draw(leaves | st.lists(leaves) | st.dictionaries(tokens, leaves))
    with suppress(SnapshotError):
        type(place.party).restore(place.parties.session, identity, dumps(plain))


# ----------------------------------------------------------------------------------------------------- the harness


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [[], ["--chunk-bytes", "100"]], ids=["whole", "in chunks"])
def test_the_coverage_guided_harness_runs_without_its_fuzzer(chunk_bytes: list[str]) -> None:
    command = [sys.executable, str(FOLDER / "fuzz_messages.py"), *chunk_bytes, "--random", "150"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  # our own
    assert ran.returncode == 0, ran.stderr
    assert "150 inputs" in ran.stdout
