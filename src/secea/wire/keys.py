"""Identities, the roster, the signed hello, and the channels between parties (section 3).

A party proves who it is with an Ed25519 identity that the roster pins. For each session it draws an X25519 key and
sends it in a signed hello. Two hellos make a pair key; every message has a key of its own, derived from the pair key
and the message's whole label (its header), so that no key is used for two messages.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from secea.errors import SERVER, FaultyPeer, FaultyPeerOrRelay, FederationError, ParamsError, ProtocolError, party
from secea.wire.messages import DIGEST_BYTES, HEADER_BYTES, TAG_BYTES, Buffer, Header
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

KEY_BYTES = 32
SIGNATURE_BYTES = 64
HELLO_BYTES = 32 + DIGEST_BYTES + KEY_BYTES + SIGNATURE_BYTES


def digest(*parts: bytes) -> bytes:
    """A short hash of several byte strings, unambiguous in where they end."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"secea digest")
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


@dataclass(frozen=True)
class Identity:
    """A party's long-lived signing key. Its public half is in the roster."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ParamsError(f"an identity is a secret of {KEY_BYTES} bytes, got {len(self.secret)}")

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> Identity:
        """A new identity."""
        return cls(entropy(KEY_BYTES))

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """An Ed25519 signature."""
        return self._key.sign(data)


@dataclass(frozen=True)
class Roster:
    """Who takes part: the clients' public identity keys in order, and the server's. Pinned before a session."""

    clients: tuple[bytes, ...]
    server: bytes
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(f"client {n}" for n in range(len(self.clients))))
        if len(self.names) != len(self.clients) or len(set(self.names)) != len(self.names):
            raise ParamsError("a roster needs one name for each client, no two alike")
        keys = (*self.clients, self.server)
        for number, key in enumerate(keys):
            if len(key) != KEY_BYTES:
                raise ParamsError(f"the roster's key number {number} has {len(key)} bytes instead of {KEY_BYTES}")
        if len(set(keys)) != len(keys):
            raise ParamsError("two parties of the roster have the same identity key")

    def __repr__(self) -> str:
        return f"Roster({len(self.clients)} clients and the server, fingerprint {self.fingerprint})"

    def key(self, number: int) -> bytes:
        """The public identity key of a party."""
        return self.server if number == SERVER else self.clients[number]

    def canonical(self) -> bytes:
        """The roster as bytes, for hashing and comparing."""
        clients = [[name, key.hex()] for name, key in zip(self.names, self.clients, strict=True)]
        return json.dumps({"clients": clients, "server": self.server.hex()}).encode()

    @property
    def fingerprint(self) -> str:
        """The roster alone, as people compare it; a session's fingerprint has its parameters too."""
        return spelled(hashlib.sha256(b"secea roster\n" + self.canonical()).digest())


def spelled(data: bytes) -> str:
    """A hash as people compare it: 160 bits in groups of four digits."""
    text = data.hex()
    return " ".join(text[i : i + 4] for i in range(0, 40, 4))


@dataclass(frozen=True)
class Hello:
    """A party's signed introduction to a session: its incarnation, its X25519 key, and what its form adds."""

    session: bytes
    incarnation: bytes
    public: bytes
    extra: bytes = field(default=b"", repr=False)
    signature: bytes = field(default=b"", repr=False)

    def _signed(self, sender: int) -> bytes:
        parts = (self.session, sender.to_bytes(2, "little"), self.incarnation, self.public, self.extra)
        return b"secea hello 1\n" + b"".join(len(x).to_bytes(4, "little") + x for x in parts)

    @classmethod
    def make(
        cls, identity: Identity, sender: int, session: bytes, incarnation: bytes, public: bytes, extra: bytes
    ) -> Hello:
        """The sender: a hello with its signature."""
        unsigned = cls(session, incarnation, public, extra)
        return cls(session, incarnation, public, extra, identity.sign(unsigned._signed(sender)))

    def to_bytes(self) -> bytes:
        """Fixed length but for what the form adds."""
        return self.session + self.incarnation + self.public + self.signature + self.extra

    @classmethod
    def verify(
        cls, data: bytes, sender: int, roster: Roster, session: bytes, extra_bytes: int, *, relayed: bool = True
    ) -> Hello:
        """Any party: the hello of `sender`, authentic and for this session; or a `ProtocolError`.

        A hello that was relayed may be an old one of its sender's.
        """
        blame = FaultyPeerOrRelay if relayed else FaultyPeer
        expected = HELLO_BYTES + (0 if sender == SERVER else extra_bytes)
        if len(data) != expected:
            raise blame(sender, f"hello has {len(data)} bytes instead of {expected}")
        cuts = (0, 32, 32 + DIGEST_BYTES, 32 + DIGEST_BYTES + KEY_BYTES, HELLO_BYTES, expected)
        session_of, incarnation, public, signature, extra = (bytes(data[a:b]) for a, b in pairwise(cuts))
        hello = cls(session_of, incarnation, public, extra, signature)
        try:
            Ed25519PublicKey.from_public_bytes(roster.key(sender)).verify(signature, hello._signed(sender))
        except InvalidSignature:
            raise blame(sender, "hello is not signed by the identity that the roster pins") from None
        if not hmac.compare_digest(hello.session, session):
            raise blame(sender, "hello is for another session: its roster, parameters or version differ from ours")
        return hello


@dataclass(frozen=True)
class SessionKey:
    """A party's X25519 key for one incarnation."""

    secret: bytes = field(repr=False)

    @cached_property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return X25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def exchange(self, peer: int, public: bytes) -> bytes:
        """The Diffie-Hellman secret with a peer."""
        try:
            return X25519PrivateKey.from_private_bytes(self.secret).exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise FaultyPeer(peer, "its hello carries a key of small order") from None


class Channel:
    """What two parties share: keys for each message between them, and key streams that both can expand."""

    def __init__(self, me: int, peer: int, pair_key: bytes) -> None:
        self.me, self.peer, self._pair_key = me, peer, pair_key

    @classmethod
    def between(cls, me: int, mine: Hello, key: SessionKey, peer: int, theirs: Hello) -> Channel:
        """The channel of two verified hellos: the pair key is bound to both of them, whole."""
        hellos = {me: mine, peer: theirs}
        transcript = b"".join(hashlib.sha256(hellos[n].to_bytes()).digest() for n in sorted(hellos))
        secret = key.exchange(peer, theirs.public)
        return cls(me, peer, HKDF(SHA256(), KEY_BYTES, mine.session, b"secea pair" + transcript).derive(secret))

    def __repr__(self) -> str:
        return f"Channel({party(self.me)}, {party(self.peer)})"

    def derive(self, purpose: str, label: bytes) -> bytes:
        """The one place where a pair key becomes another key."""
        return HKDFExpand(SHA256(), KEY_BYTES, f"secea {purpose}\n".encode() + label).derive(self._pair_key)

    def sealer(self, header: Header) -> Sealer:
        """For sending: all chunks of one message."""
        assert header.sender == self.me
        return Sealer(self.derive("seal", header.label()), header)

    def opener(self, header: Header) -> Opener:
        """For receiving: all chunks of one message."""
        assert header.sender == self.peer
        return Opener(self.derive("seal", header.label()), header)

    def mac(self, name: bytes) -> Mac:
        """For both ends of a broadcast with a label of this name."""
        return Mac(self.derive("broadcast", name))

    def confirmation(self, context: bytes, sender: int) -> bytes:
        """What the sender shows the other end to prove that it worked under this context."""
        return self.derive("confirm", context + sender.to_bytes(2, "little"))[:DIGEST_BYTES]

    def stream(self, purpose: str, *label: bytes) -> KeyStream:
        """A key stream that both ends know, for a label that must not be used twice."""
        return KeyStream(self.derive(purpose, digest(*label)))


class Sealer:
    """Seals the chunks of one message under that message's own key; the chunk's number is the nonce."""

    def __init__(self, key: bytes, header: Header) -> None:
        self._cipher, self.header, self._head = algorithms.AES256(key), header, bytearray(header.label())

    def seal(self, chunk: int, *payload: Buffer) -> memoryview:
        """The chunk as it travels: header, ciphertext, tag. The payload may come in parts: they are not copied."""
        head = Header.relabelled(self._head, chunk)
        message = buffer(HEADER_BYTES + sum(map(len, payload)) + TAG_BYTES)
        message[:HEADER_BYTES] = head
        aead = Cipher(self._cipher, modes.GCM(_nonce(chunk))).encryptor()
        aead.authenticate_additional_data(head)
        at = HEADER_BYTES
        for part in payload:
            at += aead.update_into(part, message[at:])
        aead.finalize()
        message[at:] = aead.tag
        return message


class Opener:
    """Opens the chunks of one message, strictly in order."""

    def __init__(self, key: bytes, header: Header) -> None:
        self._aead, self.label, self.next = AESGCM(key), header.label(), 0

    def open(self, header: Header, message: Buffer) -> memoryview:
        """The payload of the next chunk; or a `ValueError`, and the counter stays."""
        view = memoryview(message)
        payload = buffer(max(0, len(view) - HEADER_BYTES - TAG_BYTES))
        try:
            self._aead.decrypt_into(_nonce(header.chunk), view[HEADER_BYTES:], view[:HEADER_BYTES], payload)
        except InvalidTag:
            raise ValueError("the message is not authentic") from None
        return payload


class Mac:
    """Authenticates a whole broadcast to one receiver: the key that it is sealed under, all receivers have."""

    def __init__(self, key: bytes) -> None:
        self._aead, self.tags = AESGCM(key), b""

    def update(self, message: Buffer) -> None:
        """The next chunk, as it travels: its tag by GMAC, whose nonce is the chunk's number."""
        self.tags += self._aead.encrypt(_nonce(len(self.tags) // TAG_BYTES), b"", message)

    def digest(self) -> bytes:
        """The tag of the tags of all chunks, under a nonce that is no chunk's. Only one is ever shown."""
        return self._aead.encrypt(_LAST_NONCE, b"", self.tags)


def unauthentic(sender: int, fault: str) -> ProtocolError:
    """The error for what no key vouches for: the relay may have done it, unless the message is the server's own."""
    return FaultyPeer(SERVER, fault) if sender == SERVER else FaultyPeerOrRelay(sender, fault)


def buffer(size: int) -> memoryview:
    """Writable bytes, not set to anything."""
    return np.empty(size, np.uint8).data


_LAST_NONCE = b"\xff" * 12


def _nonce(chunk: int) -> bytes:
    return chunk.to_bytes(12, "little")


def shared_secret(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """The clients' common secret: a hash over 32 random bytes from each of them, in order."""
    if any(len(part) != SEED_BYTES for _, part in parts) or not parts:
        raise FederationError("the shared secret needs 32 bytes from every client")
    state = hashlib.sha256(b"secea shared secret")
    for client, part in sorted(parts):
        state.update(client.to_bytes(2, "little") + part)
    return state.digest()


def expand(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """A key for one purpose out of a secret: the clients' common one, a stage's seed, a party's own key."""
    return HKDFExpand(SHA256(), KEY_BYTES, f"secea {purpose}\n".encode() + digest(*label)).derive(secret)
