"""One party's end of all its connections: hellos verified, messages labelled, sealed or signed, opened in order.

Four ways to send: sealed to the server, sealed to another client, signed for all, and, for the server, sealed once for
everybody. A link does no input or output and has no clock; randomness is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from secea.errors import SERVER, CallError, FaultyPeer, ProtocolError, Stale, party
from secea.wire.keys import (
    SIGNATURE_BYTES,
    Channel,
    Hello,
    Identity,
    Mac,
    Opener,
    Roster,
    Sealer,
    SessionKey,
    digest,
    expand,
    unauthentic,
)
from secea.wire.messages import ALL, HEADER_BYTES, NO_CONTEXT, SALT_BYTES, TAG_BYTES, Buffer, Header
from secea.wire.randomness import SEED_BYTES, Entropy

_SIGNED: Final = b"secea signed message 1\n"
_RECENT: Final = 4  # more messages than a party sends to one receiver between two phases
MOST_LIVES: Final = 1 << 12
"""How often a party may restart in a session: its past lives are kept, so that none of them comes back."""


class Writer(Protocol):
    """Makes the chunks of one message: a `Sealer` or a `Signer`."""

    def seal(self, chunk: int, *payload: Buffer) -> Buffer:
        """The chunk as it travels."""
        ...


class Signer:
    """Signs the chunks of one message that everybody may read."""

    def __init__(self, identity: Identity, session: bytes, header: Header) -> None:
        self._identity, self._session, self._header = identity, session, header

    def seal(self, chunk: int, *payload: Buffer) -> bytes:
        """The chunk as it travels: header, payload, signature."""
        message = b"".join([self._header.at(chunk).pack(), *payload])
        return message + self._identity.sign(_SIGNED + self._session + message)


class Verifier:
    """Opens the chunks of one signed message, strictly in order."""

    def __init__(self, key: bytes, session: bytes, header: Header) -> None:
        self._key, self._session = Ed25519PublicKey.from_public_bytes(key), session
        self.label, self.next = header.label(), 0

    def open(self, header: Header, message: Buffer) -> memoryview:
        """The payload; or a `ValueError`."""
        view = memoryview(message)
        signed, signature = view[:-SIGNATURE_BYTES], view[-SIGNATURE_BYTES:]
        if len(signed) < HEADER_BYTES:
            raise ValueError(f"chunk {header.chunk} is too short for a signature")
        try:
            self._key.verify(bytes(signature), _SIGNED + self._session + bytes(signed))
        except InvalidSignature:
            raise ValueError("the signature is not its sender's") from None
        return signed[HEADER_BYTES:]


@dataclass(frozen=True, slots=True)
class Opened:
    """A message that was opened and not yet taken: `Link.take` makes it count."""

    header: Header
    payload: memoryview = field(repr=False)
    stream: Opener | Verifier = field(repr=False)


class Link:
    """A party's keys, channels and counters in one session."""

    channel_type: ClassVar[type[Channel]] = Channel
    """What connects it with each peer: a test may listen there."""

    def __init__(
        self,
        session: bytes,
        roster: Roster,
        kinds: type[IntEnum],
        number: int,
        identity: Identity,
        entropy: Entropy,
        *,
        introduction: bytes = b"",
        introduction_bytes: int = 0,
        check: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """`introduction` is what this party's hello carries for its form; `check` refuses that of a client."""
        if identity.public != roster.key(number):
            raise CallError(f"the identity is not the one that the roster pins for {party(number)}")
        self.session, self.roster, self.kinds = session, roster, kinds
        self.number, self.identity, self.entropy = number, identity, entropy
        self._introduction_bytes, self._check = introduction_bytes, check
        self._key = SessionKey(entropy(SEED_BYTES))
        self.hello = Hello.make(identity, number, session, entropy(SALT_BYTES), self._key.public, introduction)
        self.sequence = 0
        self.peers: dict[int, Hello] = {}
        self.channels: dict[int, Channel] = {}
        self._past: dict[int, set[bytes]] = {}  # earlier lives of each: none of them comes back
        self._heard: dict[int, int] = {}
        self._streams: dict[int, Opener | Verifier] = {}
        self._recent: dict[int, tuple[bytes, ...]] = {}  # labels of the messages before: repeats
        self._broadcast = b"", b""  # the name of its label, and its key

    def __repr__(self) -> str:
        return f"Link({party(self.number)})"

    # ----------------------------------------------------------------------------------------------------- hellos

    def hello_message(self) -> bytes:
        """The signed hello, open to all."""
        return hello_header(self.kinds, self.number, self.hello.incarnation).pack() + self.hello.to_bytes()

    def greet(self, header: Header, message: Buffer) -> None:
        """Take a peer's hello; a new incarnation of it replaces the old one."""
        sender = header.sender
        data = bytes(memoryview(message)[HEADER_BYTES:])
        relayed = SERVER not in (sender, self.number)
        hello = Hello.verify(data, sender, self.roster, self.session, self._introduction_bytes, relayed=relayed)
        if header != hello_header(self.kinds, sender, hello.incarnation):
            raise self.unauthentic(sender, "hello has another header than it should have")
        before = self.peers.get(sender)
        if hello == before or hello.incarnation in self._past.get(sender, ()):
            raise self._stale(sender, "hello came before")
        if sender != SERVER:
            try:
                self._check(hello.extra)
            except ValueError as error:
                raise FaultyPeer(sender, f"its hello is refused: {error}") from None
        if before is not None:
            past = self._past.setdefault(sender, set())
            if len(past) >= MOST_LIVES:
                raise FaultyPeer(sender, f"begins another life after {MOST_LIVES} others: begin a new session")
            past.add(before.incarnation)
        channel = self.channel_type.between(self.number, self.hello, self._key, sender, hello)
        self.peers[sender], self.channels[sender], self._heard[sender] = hello, channel, 0
        self._streams.pop(sender, None)
        self._recent.pop(sender, None)

    def introduction(self, number: int) -> bytes:
        """What the hello of a party carries for its form, this one's included."""
        return (self.hello if number == self.number else self.peers[number]).extra

    def secret(self, purpose: str, context: bytes) -> bytes:
        """A key that only this life of the party has, for one purpose in one context."""
        return expand(self._key.secret, purpose, context)

    def incarnation(self, number: int) -> bytes:
        """The present life of a party that was heard of, this one included; empty for others."""
        if number == self.number:
            return self.hello.incarnation
        return self.peers[number].incarnation if number in self.peers else b""

    def unauthentic(self, sender: int, fault: str) -> ProtocolError:
        """What no key vouches for: the relay may have done it, unless this is the relay."""
        return FaultyPeer(sender, fault) if self.number == SERVER else unauthentic(sender, fault)

    def _stale(self, sender: int, fault: str) -> Stale:
        return Stale(self.unauthentic(sender, fault).suspects, fault)

    # ---------------------------------------------------------------------------------------------------- sending

    def label(self, kind: IntEnum, numbers: dict[str, int], context: bytes) -> Header:
        """A new label: a new number, a new salt. Its messages differ only in receiver and chunks."""
        self.sequence += 1
        salt = self.entropy(SALT_BYTES)
        return Header(kind, self.number, ALL, **numbers, sequence=self.sequence, chunks=1, context=context, salt=salt)

    def sealer(self, label: Header, receiver: int, chunks: int = 1) -> Writer:
        """For the chunks of a message to one receiver."""
        return self.channels[receiver].sealer(replace(label, receiver=receiver, chunks=chunks))

    def signer(self, label: Header, chunks: int = 1) -> Writer:
        """For the chunks of a message that everybody may read."""
        return Signer(self.identity, self.session, replace(label, receiver=ALL, chunks=chunks))

    def broadcaster(self, label: Header, chunks: int, key: bytes) -> Writer:
        """For the chunks of a message that goes to many, sealed once under a key that each of them gets."""
        return Sealer(key, replace(label, receiver=ALL, chunks=chunks))

    def mac(self, peer: int, name: bytes) -> Mac:
        """What shows one receiver that a broadcast is the server's, at both ends."""
        return self.channels[peer].mac(name)

    # -------------------------------------------------------------------------------------------------- receiving

    def parse(self, message: Buffer, carrier: int) -> Header:
        """The header of a message that `carrier` handed over."""
        header = Header.parse(message, carrier, self.kinds)
        if header.sender != SERVER and header.sender >= len(self.roster.clients):
            raise ProtocolError((carrier,), f"a message from the unknown party {header.sender}")
        return header

    def expect(self, name: bytes, key: bytes) -> None:
        """The server's next broadcast has a label of this name, and is sealed under this key."""
        self._broadcast = name, key

    def check_fresh(self, header: Header) -> None:
        """Refuse as `Stale` what was taken before: whoever is slow, or was interrupted, sends it again."""
        stream, label = self._streams.get(header.sender), header.label()
        again = stream is not None and label == stream.label and header.chunk < stream.next
        if again or label in self._recent.get(header.sender, ()):
            raise self._stale(header.sender, f"{header.title} came before")

    def _opener(self, header: Header) -> Opener | Verifier:
        if header.receiver == self.number:
            return self.channels[header.sender].opener(header)
        if header.receiver != ALL:
            raise self.unauthentic(header.sender, f"{header.title} is for another party")
        if header.sender != SERVER:
            return Verifier(self.roster.key(header.sender), self.session, header)
        name, key = self._broadcast
        if name != broadcast_name(header):
            raise FaultyPeer(SERVER, f"{header.title} is a broadcast whose key did not come")
        return Opener(key, header)

    def open(self, header: Header, message: Buffer) -> Opened:
        """Open a message; nothing changes until it is taken."""
        sender = header.sender
        if sender not in self.channels:
            raise self.unauthentic(sender, f"{header.title} came before a hello of its sender")
        self.check_fresh(header)
        stream, label = self._streams.get(sender), header.label()
        if stream is None or label != stream.label:
            if header.sequence <= self._heard[sender]:
                fault = f"{header.title} is a replay, or its sender was restored from an old state"
                raise self.unauthentic(sender, fault)
            stream = self._opener(header)
        if header.chunk != stream.next:
            raise self.unauthentic(sender, f"{header.title} came out of order; chunk {stream.next + 1} is next")
        try:
            return Opened(header, stream.open(header, message), stream)
        except ValueError:
            raise self.unauthentic(sender, f"{header.title} does not open: it was damaged or forged") from None

    def take(self, opened: Opened) -> None:
        """The message was right: count it."""
        sender = opened.header.sender
        before = self._streams.get(sender, opened.stream)
        if before is not opened.stream:
            self._recent[sender] = (*self._recent.get(sender, ()), before.label)[-_RECENT:]
        self._heard[sender] = opened.header.sequence
        opened.stream.next += 1
        self._streams[sender] = opened.stream


def hello_header(kinds: type[IntEnum], sender: int, incarnation: bytes) -> Header:
    """The header of an open hello."""
    return Header(kinds["HELLO"], sender, ALL, 0, 0, 0, 0, 0, 1, NO_CONTEXT, incarnation)


def broadcast_name(header: Header) -> bytes:
    """A short name of a broadcast's label, which goes with its key."""
    return digest(b"broadcast", replace(header, receiver=ALL).label())


def overhead(*, signed: bool) -> int:
    """The bytes that a chunk has beside its payload."""
    return HEADER_BYTES + (SIGNATURE_BYTES if signed else TAG_BYTES)
