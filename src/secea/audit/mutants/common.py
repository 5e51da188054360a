"""Either form with one protection taken away: in its links, in the order of messages, or in what is padded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secea.audit import KEYED, PAILLIER, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.paillier import Weakened
from secea.errors import SERVER, FaultyPeer, ProtocolError
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.paillier import Paillier
from secea.forms.paillier.client import PaillierClient
from secea.params import Params
from secea.party import client
from secea.party.client import ROWS_BYTES, Client
from secea.party.phases import Agreement, Begin
from secea.table import canonical_names
from secea.testing import WatchedChannel, WatchedLink, WatchedSession
from secea.wire.keys import SIGNATURE_BYTES, Channel, Hello, Identity, Mac, Opener, Roster, Sealer, spelled
from secea.wire.link import Link, Opened, Signer, Verifier
from secea.wire.messages import HEADER_BYTES, TAG_BYTES, Buffer, Header
from secea.wire.randomness import Entropy, KeyStream


def both(name: str, missing: str, **more: Any) -> Mutant:
    """A mutant of both forms, whose parts stay as they are."""
    return Mutant(name, missing, {KEYED: Subject(Overheard(), **more), PAILLIER: Subject(Paillier(), **more)})


# --------------------------------------------------------------------------------------------------------------- hellos

FORGED: Final = tuple(Identity(hashlib.sha256(b"a server's own identity %d" % n).digest()) for n in range(8))
"""Identities that a server makes for clients."""


class Unpinned(WatchedSession):
    """Clients take each other's identities from the server."""

    def link(self, number: int, identity: Identity, entropy: Entropy, introduction: bytes = b"") -> Link:
        """With another roster than the one that was agreed on."""
        made = super().link(number, identity, entropy, introduction)
        if number != SERVER:
            handed_out = tuple(each.public for each in FORGED[: len(self.roster.clients)])
            made.roster = Roster(handed_out, self.roster.server)
        return made


UNPINNED = both(
    "identities-not-pinned",
    "Clients take the identities of others from the server, not from the roster.",
    session=Unpinned,
)


# --------------------------------------------------------------------------------------------------------- fingerprints


def _without_server(self: Roster) -> bytes:
    """The clients alone."""
    return repr((self.names, self.clients)).encode()


def _short_keys(self: Roster) -> bytes:
    """The beginnings of keys."""
    return repr((self.names, [key[:4] for key in self.clients], self.server)).encode()


canonical = Params.canonical


def _without_rule(self: Params) -> str:
    """All but how names are normalised."""
    return canonical(replace(self, normalize=()))


def _without_options(self: Params) -> str:
    """All but the options of means."""
    return canonical(replace(self, min_owners=1, max_weight=None, partial=False, noise=0.0))


FEW_DIGITS = both(
    "fingerprints-of-48-bits",
    "People compare three groups of a fingerprint.",
    instead={spelled: lambda data: " ".join(data.hex()[i : i + 4] for i in range(0, 40, 16))},
)
SAME_DIGITS = both(
    "fingerprints-that-repeat",
    "The second half of a fingerprint is its first one again.",
    instead={spelled: lambda data: " ".join(2 * [data.hex()[i : i + 4] for i in range(0, 20, 4)])},
)
SERVER_NOT_PINNED = both(
    "fingerprint-without-server",
    "A session's hash does not depend on the server's key.",
    within=((Roster, "canonical", _without_server),),
)
SHORT_KEYS = both(
    "fingerprint-of-short-keys",
    "A session's hash depends on four bytes of each client's key.",
    within=((Roster, "canonical", _short_keys),),
)
RULE_NOT_BOUND = both(
    "normalisation-not-bound",
    "A session's hash does not depend on how names are normalised.",
    within=((Params, "canonical", _without_rule),),
)
OPTIONS_NOT_BOUND = Mutant(
    "options-not-bound",
    "A session's hash does not depend on minimum owners, weights, rows left out and noise.",
    {KEYED: Subject(Overheard(), within=((Params, "canonical", _without_options),))},
)


# -------------------------------------------------------------------------------------------------------------- members


def _twice(cls: type[Begin], data: Buffer, clients: int) -> Begin:
    """Members may repeat."""
    once = tuple(dict(_members(data)).items())
    parsed(cls, Begin(data[0], once).to_bytes(), clients)
    return cls(data[0], tuple(_members(data)))


def _members(data: Buffer) -> Iterator[tuple[int, bytes]]:
    size = Begin.size(1) - 1
    text = bytes(data)[1:]
    for i in range(0, len(text), size):
        yield int.from_bytes(text[i : i + 2], "little"), text[i + 2 : i + size]


parsed = vars(Begin)["parse"].__func__


class AnyLife(Client):
    """Takes the server's word for who is alive."""

    def _begin(self, opened: Opened) -> None:
        known = self.link.incarnation
        said = dict(_members(opened.payload))
        self.link.incarnation = lambda number: said.get(number, known(number))  # type: ignore[method-assign]
        try:
            super()._begin(opened)
        finally:
            self.link.incarnation = known  # type: ignore[method-assign]


class Uninvited(Client):
    """Takes part where it is not named."""

    def _begin(self, opened: Opened) -> None:
        said = [*_members(opened.payload)]
        if self.number not in dict(said):
            word = Begin(opened.payload[0], tuple(sorted([*said, (self.number, self.link.hello.incarnation)])))
            opened = replace(opened, payload=memoryview(word.to_bytes()))
        super()._begin(opened)


MEMBERS_TWICE = both(
    "members-twice",
    "A client may be named several times among those who take part.",
    within=((Begin, "parse", classmethod(_twice)),),
)
ANY_LIFE = both("any-life", "Clients take part with lives of others that they have not met.", client=AnyLife)
WITHOUT_US = both("uninvited", "A client takes part where the server does not name it.", client=Uninvited)


# ------------------------------------------------------------------------------------------------------------ freshness


class LooseLink(WatchedLink):
    """Opens whatever is authentic, in any order and as often as it comes."""

    def check_fresh(self, header: Header) -> None:
        """Whether it came before does not matter."""

    def open(self, header: Header, message: Buffer) -> Opened:
        """Any chunk of any message."""
        stream = self._opener(header)
        stream.next = header.chunk
        return Opened(header, stream.open(header, message), stream)


class LooseSession(WatchedSession):
    """With such links."""

    link_type: ClassVar[type[Link]] = LooseLink


class RevivingLink(WatchedLink):
    """Forgets which lives are over."""

    def greet(self, header: Header, message: Buffer) -> None:
        """Any hello that is authentic."""
        self._past.clear()
        super().greet(header, message)


class RevivingSession(WatchedSession):
    """With such links."""

    link_type: ClassVar[type[Link]] = RevivingLink


class ForgetfulLink(WatchedLink):
    """Knows that the last life is over, and of no other one."""

    def greet(self, header: Header, message: Buffer) -> None:
        """Keep one life for each peer."""
        super().greet(header, message)
        for sender, past in self._past.items():
            self._past[sender] = past & {self._last.get(sender, b"")}
        self._last[header.sender] = self.peers[header.sender].incarnation

    @cached_property
    def _last(self) -> dict[int, bytes]:
        return {}


class ForgetfulSession(WatchedSession):
    """With such links."""

    link_type: ClassVar[type[Link]] = ForgetfulLink


OLD_LIVES = both("old-lives", "Hellos of lives that are over are taken again.", session=RevivingSession)
LIVES_BEFORE_THE_LAST = both(
    "lives-before-the-last", "Only the last life of a party is known to be over.", session=ForgetfulSession
)


class LooseClient(Client):
    """Takes messages of other rounds and unions."""

    def _require_label(self, header: Header) -> None:
        return


class LooserClient(LooseClient):
    """Takes messages that are not due, too: in the paper's form a salt says which one is."""

    def _require(self, header: Header) -> None:
        return


LOOSE = Mutant(
    "freshness-unchecked",
    "Clients check neither the labels of messages nor their numbers.",
    {
        KEYED: Subject(Overheard(), session=LooseSession, client=LooseClient),
        PAILLIER: Subject(Paillier(), session=LooseSession, client=LooserClient),
    },
)


# ----------------------------------------------------------------------------------------------------------------- keys


class OneKey(WatchedChannel):
    """All messages of a pair have one key."""

    def derive(self, purpose: str, label: bytes) -> bytes:
        """Whatever the label of a message."""
        return super().derive(purpose, b"" if purpose == "seal" else label)


class OneStream(WatchedChannel):
    """All key streams of a pair are the same."""

    def stream(self, purpose: str, *label: bytes) -> KeyStream:
        """Whatever the label."""
        return super().stream(purpose)


def connected(channel: type[Channel]) -> type[WatchedSession]:
    """A session with such channels."""

    class ItsLink(WatchedLink):
        channel_type: ClassVar[type[Channel]] = channel

    class ItsSession(WatchedSession):
        link_type: ClassVar[type[Link]] = ItsLink

    return ItsSession


ONE_KEY = both(
    "one-key-for-all-messages", "The key of a message does not depend on its label.", session=connected(OneKey)
)
ONE_STREAM = Mutant(
    "reused-key-stream",
    "Key streams of a pair do not depend on the context.",
    {PAILLIER: Subject(Paillier(), session=connected(OneStream))},
)


# --------------------------------------------------------------------------------------------------------------- labels


def _signs_payload(self: Signer, chunk: int, *payload: Buffer) -> bytes:
    body = b"".join(payload)
    return self._header.at(chunk).pack() + body + self._identity.sign(self._session + body)


def _verifies_payload(self: Verifier, header: Header, message: Buffer) -> memoryview:
    view = memoryview(message)
    body, signature = view[HEADER_BYTES:-SIGNATURE_BYTES], view[-SIGNATURE_BYTES:]
    try:
        self._key.verify(bytes(signature), self._session + bytes(body))
    except InvalidSignature:
        raise ValueError("the signature is not its sender's") from None
    return body


def _seals_payload(self: Sealer, chunk: int, *payload: Buffer) -> memoryview:
    body = AESGCM(bytes(self._cipher.key)).encrypt(bytes(12), b"".join(payload), b"")
    return memoryview(self.header.at(chunk).pack() + body)


def _opens_payload(self: Opener, header: Header, message: Buffer) -> memoryview:
    try:
        return memoryview(self._aead.decrypt(bytes(12), bytes(message[HEADER_BYTES:]), b""))
    except InvalidTag:
        raise ValueError("the message is not authentic") from None


SIGNED_WITHOUT_LABEL = Mutant(
    "signed-without-label",
    "Signatures do not cover the label of a message.",
    {KEYED: Subject(Overheard(), within=((Signer, "seal", _signs_payload), (Verifier, "open", _verifies_payload)))},
)
SEALED_WITHOUT_LABEL = both(
    "sealed-without-label",
    "Neither the key nor the tag of a sealed message covers its label.",
    session=connected(OneKey),
    within=((Sealer, "seal", _seals_payload), (Opener, "open", _opens_payload)),
)


# ----------------------------------------------------------------------------------------------------------- broadcasts


class Hashless(Client):
    """Takes every broadcast for the one whose hash comes."""

    def _got_digest(self, opened: Opened) -> None:
        if self._running is not None:
            said = bytes(opened.payload)
            self._running = SimpleNamespace(digest=lambda: said)  # type: ignore[assignment]
        super()._got_digest(opened)


class ShortTags(Client):
    """Compares the first bytes of a broadcast's tag."""

    def _got_digest(self, opened: Opened) -> None:
        if self._running is not None:
            said, ours = bytes(opened.payload), self._running.digest()
            self._running = SimpleNamespace(digest=lambda: ours[:4] + said[4:])  # type: ignore[assignment]
        super()._got_digest(opened)


class Content(Client):
    """Takes a broadcast of fewer rows than the union has."""

    def _got_key(self, opened: Opened) -> None:
        rows, before = int.from_bytes(bytes(opened.payload)[-ROWS_BYTES:], "little"), self.at
        if rows < before.size:
            self.at = replace(before, size=rows)
        try:
            super()._got_key(opened)
        finally:
            self.at = before


SHORT_TAGS = Mutant(
    "short-tags",
    "A client compares four bytes of a broadcast's tag.",
    {KEYED: Subject(Overheard(), client=ShortTags)},
)
CUT_SHORT = Mutant(
    "means-cut-short",
    "A broadcast may have fewer rows than the union.",
    {KEYED: Subject(Overheard(), client=Content)},
)
HASH_UNREAD = Mutant(
    "hash-of-a-broadcast-unread",
    "A client does not compare a broadcast with its tag.",
    {KEYED: Subject(Overheard(), client=Hashless)},
)


# ---------------------------------------------------------------------------------------------------------------- names


class RenamedAtOnce(PaillierClient):
    """Other entities take effect at once."""

    def update(self, names: Iterable[object], *, at_once: bool = True) -> None:
        """Now."""
        self.names = canonical_names(names)


class KeyedAtOnce(KeyedClient):
    """Other entities take effect at once."""

    def update(self, names: Iterable[object], *, at_once: bool = True) -> None:
        """Now."""
        self.naming.names = replace(self.naming.names, own=canonical_names(names))


class ShortLists(KeyedClient):
    """Lists only its own names."""

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """Lists without padding."""
        for receiver, parts in super().payloads(kind, receivers, at):
            yield receiver, (b"".join(parts)[: 32 * (len(self.names) + 1)],) if kind is Kind.LIST else parts


AT_ONCE = Mutant(
    "names-changed-at-once",
    "Other entities take effect at once instead of in the next union.",
    {KEYED: Subject(Overheard(of_client=KeyedAtOnce)), PAILLIER: Subject(Weakened(of_client=RenamedAtOnce))},
)
SHORT_LISTS = Mutant(
    "lists-without-padding",
    "A client lists its own names, and nothing beside them.",
    {KEYED: Subject(Overheard(of_client=ShortLists))},
)


verified = Hello.verify


def _convicts(data: Buffer, sender: int, *more: Any, relayed: bool = False) -> Hello:
    """Whoever signed a hello answers for it, whoever hands it over."""
    try:
        return verified(data, sender, *more, relayed=relayed)  # type: ignore[arg-type]
    except ProtocolError as error:
        if "another session" in str(error):
            raise FaultyPeer(sender, "hello is for another session") from None
        raise


def _any_numbers(*_: Any) -> bool:
    return True


ANY_NUMBERS = both(
    "any-numbers",
    "A client takes part in unions and rounds that it has had before.",
    within=((client, "_next", _any_numbers),),
)
HELLO_CONVICTS = both(
    "hello-convicts",
    "A hello of another session convicts its author.",
    within=((Hello, "verify", staticmethod(_convicts)),),
)


def _of_the_end(self: Mac, message: Buffer) -> None:
    """Looks at the end of a chunk: at the tag under the key that all receivers have."""
    _update(self, memoryview(message)[-TAG_BYTES:])


_update = Mac.update
TAG_OF_THE_ENDS = Mutant(
    "tag-of-the-ends",
    "The tag of a broadcast is of the tags that its parts have under the key of all receivers.",
    {KEYED: Subject(Overheard(), within=((Mac, "update", _of_the_end),))},
)
