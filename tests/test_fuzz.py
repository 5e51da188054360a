"""Bad bytes at every place: taken, or refused with the one error and nothing changed. Parsers raise what they say."""

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

from federation import PLACES
from secea.client import Client
from secea.errors import SERVER, ParamsError, ProtocolError, SnapshotError
from secea.server import Server
from secea.wire.keys import Hello, Identity, Roster
from secea.wire.messages import HEADER_BYTES, Announcement, Header
from secea.wire.snapshot import dumps, loads
from spots import ABORTS, BOTH, KINDS, NUMBERS, Spot, every_spot, header_of, may_be_taken, spots, taken

EVERYWHERE = [(form, place) for form in BOTH for place in (*PLACES[form], *ABORTS)]
some = settings(max_examples=20, deadline=None)


def spot_of(form: str, place: str) -> Spot:
    return next(spot for spot in spots(form) if spot.place == place)


# ------------------------------------------------------------------------------------------------ as anyone can do it


@st.composite
def damaged(draw: st.DrawFn, spot: Spot) -> tuple[int, bytes]:
    """The carrier and the bytes of a message that somebody without keys made out of what it saw."""
    message, carrier = bytearray(spot.hop.message), spot.hop.carrier
    carriers = st.sampled_from([0, 1, 2, 3, 1000]) if spot.hop.receiver == SERVER else st.just(carrier)
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
            value = draw(st.sampled_from(KINDS) if name == "kind" else small)
            message[:HEADER_BYTES] = header_of(spot, **{name: value}).pack()
        case "random":
            message[:] = draw(st.binary(max_size=300))
        case "splice":
            other = draw(st.sampled_from(every_spot())).hop.message
            message[HEADER_BYTES:] = other[HEADER_BYTES:]
        case "body":
            message[:] = draw(st.sampled_from(every_spot())).hop.message
        case "carrier":
            carrier = draw(carriers)
    return carrier, bytes(message)


@pytest.mark.parametrize(("form", "place"), EVERYWHERE)
@some
@given(data=st.data())
def test_what_nobody_sealed_is_refused_and_the_honest_message_still_counts(
    form: str, place: str, data: st.DataObject
) -> None:
    spot = spot_of(form, place)
    carrier, message = data.draw(damaged(spot))
    if taken(spot, message, carrier):
        assert carrier == spot.hop.carrier
        assert may_be_taken(spot, message)


# ------------------------------------------------------------------------------------------------- behind the seal


@st.composite
def payloads(draw: st.DrawFn, spot: Spot) -> bytes:
    """Payloads that are nearly right, and others."""
    true = spot.payload()
    match draw(st.sampled_from(["flip", "word", "truncate", "longer", "random", "same size", "true"])):
        case "flip":
            at = draw(st.integers(0, len(true) - 1))
            return true[:at] + bytes([true[at] ^ draw(st.integers(1, 255))]) + true[at + 1 :]
        case "word":  # elements at the edge of their field and out of it
            words = [b"\xff" * 8, b"\xff" * 7 + b"\x1f", b"\xfe" + b"\xff" * 6 + b"\x1f", b"\xfb\xff\xff\xff", bytes(8)]
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
def labels(draw: st.DrawFn, spot: Spot) -> Header:
    """The true header, or one with a field changed."""
    if draw(st.booleans()):
        return spot.hop.header
    name = draw(st.sampled_from([*NUMBERS, "kind", "context", "salt"]))
    if name == "kind":
        return header_of(spot, kind=draw(st.sampled_from(KINDS)))
    if name in ("context", "salt"):
        return header_of(spot, **{name: draw(st.sampled_from([bytes(16), b"\7" * 16]))})
    most = 2**16 - 1 if name == "attempt" else 2**32 - 1
    value = draw(st.integers(1 if name == "chunks" else 0, 9) | st.just(most))
    return header_of(spot, **{name: value})


@pytest.mark.parametrize(("form", "place"), [(r, p) for r, p in EVERYWHERE if "hello" not in p], ids=lambda x: str(x))
@some
@given(data=st.data())
def test_what_a_true_sender_sealed_is_taken_or_refused_whatever_it_says(
    form: str, place: str, data: st.DataObject
) -> None:
    spot = spot_of(form, place)
    taken(spot, spot.resealed(data.draw(labels(spot)), data.draw(payloads(spot))))


@pytest.mark.parametrize("form", BOTH)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_same_holds_where_the_server_passes_messages_on_at_once(form: str, data: st.DataObject) -> None:
    spot = data.draw(st.sampled_from(spots(form, early=True)))
    carrier, message = data.draw(damaged(spot))
    if taken(spot, message, carrier):
        assert carrier == spot.hop.carrier
        assert may_be_taken(spot, message)
    if spot.sealed:
        taken(spot, spot.resealed(data.draw(labels(spot)), data.draw(payloads(spot))))


@pytest.mark.parametrize("form", BOTH)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_hello_that_its_sender_signed_is_taken_or_refused_whatever_it_says(form: str, data: st.DataObject) -> None:
    spot = data.draw(st.sampled_from([spot for spot in spots(form) if not spot.sealed]))
    wire, sender = spot.parties.party(spot.hop.header.sender).wire, spot.hop.header.sender
    field = st.binary(min_size=32, max_size=32) | st.just(bytes(32)) | st.binary(max_size=40)
    true = wire.hello
    session = data.draw(st.just(true.session) | field)
    incarnation = data.draw(st.just(true.incarnation) | st.binary(min_size=16, max_size=16) | st.binary(max_size=40))
    public = data.draw(st.just(true.public) | field)
    paillier = data.draw(st.just(true.paillier) | st.binary(min_size=32, max_size=32) | st.binary(max_size=70))
    hello = Hello.make(wire.identity, sender, session, incarnation, public, paillier)
    head = header_of(spot, salt=data.draw(st.just(incarnation[:16].ljust(16)) | st.just(spot.hop.header.salt)))
    message = head.pack() + hello.to_bytes()
    if taken(spot, message) and spot.hop.receiver != SERVER and sender != SERVER:
        assert incarnation == true.incarnation  # clients take only the incarnation that was announced


def test_the_law_notices_a_foreign_exception_a_change_of_state_and_a_lost_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spot = spot_of("reciprocal", "table to the server")
    wrong = spot.resealed(spot.hop.header, b"")

    def foreign(self: Server, *args: Any) -> None:
        raise KeyError("foreign")

    def changing(self: Server, *args: Any) -> None:
        self.round += 1
        raise ProtocolError((0,), "refused")

    def blaming_itself(self: Server, *args: Any) -> None:
        raise ProtocolError((SERVER,), "refused")

    def always(self: Server, *args: Any) -> None:
        raise ProtocolError((0,), "refused")

    assert not taken(spot, wrong)
    for receive, expected in (
        (foreign, pytest.raises(KeyError)),
        (changing, pytest.raises(AssertionError, match="changed the state")),
        (blaming_itself, pytest.raises(AssertionError, match="suspects itself")),
        (always, pytest.raises(ProtocolError)),
    ):
        monkeypatch.setattr(Server, "receive", receive)
        with expected:
            taken(spot, wrong)


# ---------------------------------------------------------------------------------------------------------- parsers

salts = st.binary(min_size=16, max_size=16)
public_keys = st.binary(min_size=30, max_size=33) | st.just(bytes(32))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100))
def test_a_header_parses_or_names_its_carrier(data: bytes) -> None:
    for wire in (data, b"\1" + data[1:]):
        with suppress(ProtocolError):
            assert Header.parse(wire, 7).pack() == wire[:HEADER_BYTES]
            continue
        with pytest.raises(ProtocolError, match="client 7: "):
            Header.parse(wire, 7)


@settings(max_examples=200, deadline=None)
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
            announcement = Announcement.parse(wire, 10)
        except ValueError:
            continue
        assert announcement.to_bytes() == wire
        assert list(announcement.clients) == sorted(set(announcement.clients))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([0, 1, SERVER]), st.booleans())
def test_a_hello_verifies_or_blames_its_sender(data: bytes, sender: int, relayed: bool) -> None:
    session = spots("reciprocal")[0].parties.session
    with pytest.raises(ProtocolError) as refusal:
        Hello.verify(data.ljust(144, b"\0")[:144], sender, session.roster, session.hash, 0, relayed=relayed)
    assert refusal.value.suspects[0] == sender


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=300, deadline=None)
@given(nodes, st.binary(max_size=40))
def test_a_snapshot_that_was_made_up_loads_or_is_refused(value: Any, arrays: bytes) -> None:
    with suppress(SnapshotError):
        loads(described(json.dumps(value).encode(), arrays))


@settings(max_examples=200, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_party_is_restored_from_what_was_saved_or_the_snapshot_is_refused(data: st.DataObject) -> None:
    spot = data.draw(st.sampled_from(every_spot()))
    plain = loads(spot.before)
    kind = "server" if spot.hop.receiver == SERVER else "client"
    match data.draw(st.sampled_from(["drop", "drop wire", "junk", "junk wire", "whole"])):
        case "drop":
            del plain[kind][data.draw(st.sampled_from(sorted(plain[kind])))]
        case "drop wire":
            del plain[kind]["wire"][data.draw(st.sampled_from(sorted(plain[kind]["wire"])))]
        case "junk":
            plain[kind][data.draw(st.sampled_from(["phase", "wire", "pending", "mean_stage"]))] = data.draw(leaves)
        case "junk wire":
            plain[kind]["wire"][data.draw(st.sampled_from(sorted(plain[kind]["wire"])))] = data.draw(leaves)
        case _:
            plain = data.draw(leaves | st.lists(leaves) | st.dictionaries(tokens, leaves))
    identity, party = spot.parties.identities[spot.hop.receiver], Server if kind == "server" else Client
    with suppress(SnapshotError):
        party.restore(spot.parties.session, identity, dumps(plain))


# ----------------------------------------------------------------------------------------------------- the harness


@pytest.mark.parametrize("chunk_bytes", [[], ["--chunk-bytes", "100"]], ids=["whole", "in chunks"])
def test_the_coverage_guided_harness_runs_without_its_fuzzer(chunk_bytes: list[str]) -> None:
    harness = Path(__file__).parent.parent / "fuzz" / "fuzz_messages.py"
    command = [sys.executable, str(harness), *chunk_bytes, "--random", "300"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  # our own
    assert ran.returncode == 0, ran.stderr
    assert "300 inputs" in ran.stdout
