"""One party's end of all its channels: hellos verified, stages numbered and salted, messages opened strictly in order.

Client and server both stand on this. It does no input or output, and has no clock; randomness is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final, Self

from secea.errors import SERVER, CallError, FaultyPeer, ProtocolError, SnapshotError, Stale, party
from secea.session import Session
from secea.wire.keys import Channel, Hello, Identity, Opener, Sealer, SessionKey, unauthentic
from secea.wire.messages import ALL, HEADER_BYTES, NO_CONTEXT, SALT_BYTES, Buffer, Header, Kind
from secea.wire.randomness import SEED_BYTES, Entropy

_RECENT: Final = 4  # more than a party sends to one receiver between two stages, whatever happens


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing that a party sends: its label and the seed of all its randomness.

    A stage is drawn and saved before its first byte leaves, and every message of it is a function of the saved state.
    A party that was interrupted therefore sends the same bytes again: these few bytes are its durable outbox.
    """

    kind: Kind
    epoch: int
    weights: int
    round: int
    attempt: int
    sequence: int
    context: bytes
    salt: bytes
    seed: bytes = field(repr=False)

    def header(self, sender: int, receiver: int, chunks: int) -> Header:
        """The label of its message to one receiver."""
        return Header(
            self.kind, sender, receiver, self.epoch, self.weights, self.round, self.attempt, self.sequence, chunks,
            self.context, self.salt,
        )  # fmt: skip

    def plain(self) -> tuple[Any, ...]:
        """For a snapshot."""
        return (int(self.kind), *astuple(self)[1:])

    @classmethod
    def of(cls, plain: tuple[Any, ...]) -> Stage:
        """From a snapshot."""
        return cls(Kind(plain[0]), *plain[1:])


@dataclass(frozen=True, slots=True)
class Opened:
    """A message that was opened and not yet taken: `Endpoint.take` makes it count."""

    header: Header
    payload: memoryview = field(repr=False)
    stream: Opener = field(repr=False)


class Endpoint:
    """A party's keys, channels and counters."""

    def __init__(
        self, session: Session, number: int, identity: Identity, entropy: Entropy, *, paillier: bytes = b""
    ) -> None:
        if identity.public != session.roster.key(number):
            raise CallError(f"the identity is not the one that the roster pins for {party(number)}")
        self.session, self.number, self.identity, self.entropy = session, number, identity, entropy
        self.key = SessionKey(entropy(SEED_BYTES))
        incarnation = entropy(SALT_BYTES)
        self.hello = Hello.make(identity, number, session.hash, incarnation, self.key.public, paillier)
        self.sequence = 0
        self.peers: dict[int, Hello] = {}
        self.channels: dict[int, Channel] = {}
        self.heard: dict[int, int] = {}
        self._streams: dict[int, Opener] = {}
        self._recent: dict[int, tuple[bytes, ...]] = {}  # labels of the streams before: repeats

    # ----------------------------------------------------------------------------------------------------- hellos

    def hello_message(self) -> bytes:
        """The signed hello, open to all."""
        return hello_header(self.number, self.hello.incarnation).pack() + self.hello.to_bytes()

    def greet(self, header: Header, message: Buffer) -> None:
        """Take a peer's hello; a new incarnation of it replaces the old one."""
        sender, session = header.sender, self.session
        data = bytes(memoryview(message)[HEADER_BYTES:])
        relayed = SERVER not in (sender, self.number)
        hello = Hello.verify(data, sender, session.roster, session.hash, session.form.paillier_bytes, relayed=relayed)
        if header != hello_header(sender, hello.incarnation):
            raise self._unauthentic(sender, "hello has another header than it should have")
        if hello == self.peers.get(sender):
            raise self._stale(sender, "hello came before")
        try:
            session.form.check_key(hello.paillier)
        except ValueError as error:
            raise FaultyPeer(sender, f"its Paillier key is refused: {error}") from None
        channel = Channel.between(self.number, self.hello, self.key, sender, hello)
        self.peers[sender], self.channels[sender], self.heard[sender] = hello, channel, 0
        self._streams.pop(sender, None)
        self._recent.pop(sender, None)

    def _unauthentic(self, sender: int, fault: str) -> ProtocolError:
        """What no key vouches for: the relay may have done it, unless this is the relay."""
        return FaultyPeer(sender, fault) if self.number == SERVER else unauthentic(sender, fault)

    def _stale(self, sender: int, fault: str) -> Stale:
        return Stale(self._unauthentic(sender, fault).suspects, fault)

    # ---------------------------------------------------------------------------------------------------- sending

    def stages(
        self, labels: Mapping[Kind, Mapping[str, int]], context: bytes, *, seed: bytes = b""
    ) -> tuple[Stage, ...]:
        """New stages that are sent together: each with a new number and new randomness, all with one new salt.

        `seed` is for one stage whose randomness is given: drawn ahead, or a function of the context.
        """
        salt, stages = self.entropy(SALT_BYTES), []
        for kind, label in labels.items():
            self.sequence += 1
            drawn = seed or self.entropy(SEED_BYTES)
            stages.append(Stage(kind, **label, sequence=self.sequence, context=context, salt=salt, seed=drawn))
        return tuple(stages)

    def sealer(self, stage: Stage, receiver: int, chunks: int = 1) -> Sealer:
        """For the chunks of a stage's message to one receiver."""
        return self.channels[receiver].sealer(stage.header(self.number, receiver, chunks))

    # -------------------------------------------------------------------------------------------------- receiving

    def open(self, header: Header, message: Buffer) -> Opened:
        """Open a sealed message; nothing changes until it is taken."""
        sender = header.sender
        if header.receiver != self.number:
            raise self._unauthentic(sender, f"{header.title} is for another party")
        if sender not in self.channels:
            raise self._unauthentic(sender, f"{header.title} came before a hello of its sender")
        stream, label = self._streams.get(sender), header.label()
        if stream is None or label != stream.label:
            if label in self._recent.get(sender, ()):
                raise self._stale(sender, f"{header.title} came before")
            if header.sequence <= self.heard[sender]:
                fault = f"{header.title} is a replay, or its sender was restored from an old snapshot"
                raise self._unauthentic(sender, fault)
            stream = self.channels[sender].opener(header)
        if header.chunk < stream.next:
            raise self._stale(sender, f"{header.title} came before")
        if header.chunk > stream.next:
            raise self._unauthentic(sender, f"{header.title} came out of order; chunk {stream.next + 1} is next")
        try:
            return Opened(header, stream.open(header, message), stream)
        except ValueError:
            raise self._unauthentic(sender, f"{header.title} does not open: it was damaged or forged") from None

    def take(self, opened: Opened) -> None:
        """The message was right: count it."""
        sender = opened.header.sender
        before = self._streams.get(sender, opened.stream)
        if before is not opened.stream:
            self._recent[sender] = (*self._recent.get(sender, ()), before.label)[-_RECENT:]
        self.heard[sender] = opened.header.sequence
        opened.stream.next += 1
        self._streams[sender] = opened.stream

    def require(self, header: Header, **expected: object) -> None:
        """The label of a message is the one that is due now; or a `ProtocolError` that says what differs."""
        for name, value in expected.items():
            if getattr(header, name) != value:
                if name in ("context", "salt"):
                    fault = f"{header.title} was made for other members or another union than ours"
                else:
                    fault = f"{header.title} is of {name} {getattr(header, name)}; {value} is due"
                raise self._unauthentic(header.sender, fault)

    def confirmation(self, sender: int, receiver: int, context: bytes) -> bytes:
        """The sender's proof towards the receiver that it worked under this context; one of the two is this party."""
        peer = receiver if sender == self.number else sender
        return NO_CONTEXT if peer == self.number else self.channels[peer].confirmation(context, sender)

    # -------------------------------------------------------------------------------------------------- snapshots

    def plain(self) -> dict[str, Any]:
        """Everything for a snapshot."""
        return {
            "session": self.session.hash,
            "number": self.number,
            "key": self.key.secret,
            "hello": self.hello.to_bytes(),
            "sequence": self.sequence,
            "peers": {n: hello.to_bytes() for n, hello in self.peers.items()},
            "heard": dict(self.heard),
            "streams": {n: (stream.label, stream.next) for n, stream in self._streams.items()},
            "recent": dict(self._recent),
        }

    @classmethod
    def restore(cls, session: Session, identity: Identity, plain: dict[str, Any], entropy: Entropy) -> Self:
        """From a snapshot of the same party in the same session."""
        if plain["session"] != session.hash:
            raise SnapshotError("saved state belongs to another session: roster, parameters or version differ")
        number: int = plain["number"]
        if identity.public != session.roster.key(number):
            raise SnapshotError(f"saved state belongs to {party(number)}, and this is another identity")
        self = cls.__new__(cls)
        self.session, self.number, self.identity, self.entropy = session, number, identity, entropy
        self.key, self.sequence, self.heard = SessionKey(plain["key"]), plain["sequence"], plain["heard"]
        verify: Callable[[bytes, int], Hello] = lambda data, n: Hello.verify(  # noqa: E731
            data, n, session.roster, session.hash, session.form.paillier_bytes
        )
        self.hello = verify(plain["hello"], number)
        self.peers = {n: verify(data, n) for n, data in plain["peers"].items()}
        self.channels = {n: Channel.between(number, self.hello, self.key, n, peer) for n, peer in self.peers.items()}
        self._streams, self._recent = {}, plain["recent"]
        for n, (label, next_chunk) in plain["streams"].items():
            stream = self.channels[n].opener(Header.parse(label, n))
            stream.next = next_chunk
            self._streams[n] = stream
        return self


def hello_header(sender: int, incarnation: bytes) -> Header:
    """The header of an open hello."""
    return Header(Kind.HELLO, sender, ALL, 0, 0, 0, 0, 0, 1, NO_CONTEXT, incarnation)


def unknown_sender(header: Header, clients: int) -> ProtocolError | None:
    """An error if the header names a sender that does not exist."""
    if header.sender < clients or header.sender == SERVER:
        return None
    return FaultyPeer(SERVER, f"a message from the unknown party {header.sender}")
