"""One message at every place of a federation of either form, with its receiver as it is just before.

The law: whatever comes, the receiver takes it; or it raises a `ProtocolError` that does not blame itself, and is as it
was, so that the honest message is still taken; or it is a client, what came was authentic, and it has stopped. What was
taken may turn out to be wrong with the rest of the phase, which is then refused. Any other exception is a bug, and goes
through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import numpy as np

from secea.arithmetic.field import Ring
from secea.arithmetic.paillier import PrivateKey, PublicKey
from secea.audit.attacks.names import Next, following
from secea.engines.exchange import Exchange
from secea.errors import SERVER, ProtocolError, SecEAError, Stale
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.forms.paillier.client import PaillierClient
from secea.params import Params
from secea.party.client import Client
from secea.party.form import Retry
from secea.party.phases import GREETING, STOPPED, Agreement, Common, Route
from secea.party.server import Server
from secea.party.session import Session
from secea.testing import Hop, Parties, insecure_seeded
from secea.wire.keys import KEY_BYTES, Identity, Opener, Roster, Sealer, SessionKey
from secea.wire.link import Link, Signer
from secea.wire.messages import ALL, HEADER_BYTES, Buffer, Header, Layout
from secea.wire.randomness import KeyStream

NUMBERS: Final = ("epoch", "attempt", "weights", "round", "sequence", "chunks", "chunk")
"""The numbers in a header."""
Party = Client | Server

# ------------------------------------------------------------------------------------------------ copies of parties

CONSTANT: Final = (
    Session, Params, Roster, Identity, SessionKey, Ring, PrivateKey, PublicKey, KeyStream, Paillier, Keyed, Enum,
)  # fmt: skip
"""What no message changes: a copy shares it."""


def copied(x: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy of a party that has all of its state, keys too: nothing that a product should have."""
    memo = {} if memo is None else memo
    if id(x) in memo:
        return memo[id(x)]
    again: Callable[[Any], Any] = partial(copied, memo=memo)
    match x:
        case dict():
            made: Any = memo.setdefault(id(x), type(x)())
            made.update((again(key), again(value)) for key, value in x.items())
        case list() | deque():
            made = memo.setdefault(id(x), type(x)())
            made.extend(map(again, x))
        case set() | frozenset():
            made = type(x)(map(again, x))
        case tuple():
            made = tuple(map(again, x))
        case np.ndarray() | bytearray():
            made = x.copy()
        case _ if hasattr(x, "hexdigest"):
            made = x.copy()
        case _ if ours(x):
            made = memo.setdefault(id(x), object.__new__(type(x)))
            for name, value in attributes(x):
                object.__setattr__(made, name, again(value))
        case _:
            made = x
    return memo.setdefault(id(x), made)


def ours(x: Any) -> bool:
    """Whether it is an object of this package that messages may change."""
    classes = type(x).__mro__
    return not isinstance(x, CONSTANT) and any(each.__module__.startswith("secea.") for each in classes)


def attributes(x: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, in slots too."""
    yield from getattr(x, "__dict__", {}).items()
    for name in (name for each in type(x).__mro__ for name in getattr(each, "__slots__", ())):
        if hasattr(x, name):
            yield name, getattr(x, name)


def described(x: Any, seen: tuple[int, ...] = ()) -> Any:
    """A party's state as a plain value that can be compared."""
    if id(x) in seen:
        return "itself"
    inner: Callable[[Any], Any] = partial(described, seen=(*seen, id(x)))
    match x:
        case dict():
            return {key: inner(value) for key, value in x.items()}
        case list() | deque() | tuple():
            return [inner(value) for value in x]
        case np.ndarray():
            return x.shape, x.tobytes()
        case _ if hasattr(x, "hexdigest"):
            return x.hexdigest()
        case _ if ours(x):
            return type(x), {name: inner(value) for name, value in attributes(x) if name != "vouched"}
        case _:
            return x


# ----------------------------------------------------------------------------------------------------------- places


Moment = tuple[str, int, int, int]
"""A phase, and the numbers of union, attempt and round."""


@dataclass(frozen=True, eq=False)
class Place:
    """A message, and its receiver before it."""

    parties: Together = field(repr=False)
    name: str
    hop: Hop
    party: Party = field(repr=False)
    key: bytes = field(repr=False)
    """Of the broadcast that goes on."""
    after: Sequence[tuple[Moment, Hop]] = field(default=(), repr=False)
    """Everything that its receiver got, and when."""
    index: int = 0
    """Which of these it is."""

    @property
    def rest(self) -> Iterator[Hop]:
        """What its receiver gets after it in the same phase."""
        for moment, hop in self.after[self.index + 1 :]:
            if moment != self.after[self.index][0]:
                return
            yield hop

    @property
    def sealed(self) -> bool:
        """Whether the message can be sealed or signed anew; hellos have a form of their own."""
        return not (self.hop.header.kind.name == Common.HELLO and self.hop.header.receiver == ALL)

    @property
    def blind(self) -> bool:
        """Whether the server passes it on and cannot read it: then only the receiver can refuse what is in it."""
        each = self.parties.session.form.routes.get(self.hop.header.kind) is Route.EACH
        return self.hop.receiver == SERVER and self.sealed and each

    @property
    def sender(self) -> Link:
        """The sender's end."""
        n = self.hop.header.sender
        return self.parties.server.link if n == SERVER else self.parties.clients[n].link

    def payload(self) -> bytes:
        """What the message says."""
        header, message = self.hop.header, self.hop.message
        if header.receiver == ALL and header.sender != SERVER:
            return message[HEADER_BYTES:-64]
        return bytes(Opener(self._key(header), header).open(header, message))

    def _key(self, header: Header) -> bytes:
        return (
            self.key if header.receiver == ALL else self.sender.channels[header.receiver].derive("seal", header.label())
        )

    def resealed(self, header: Header, payload: bytes) -> bytes:
        """Another header and payload, with the keys of the true sender and receiver."""
        header = replace(header, chunk=min(header.chunk, header.chunks - 1))
        if header.receiver == ALL and header.sender != SERVER:
            return Signer(self.sender.identity, self.parties.session.hash, header).seal(header.chunk, payload)
        return bytes(Sealer(self._key(header), header).seal(header.chunk, payload))

    def header(self, **changes: Any) -> Header:
        """The message's header with some fields changed."""
        return replace(self.hop.header, **changes)

    @property
    def kinds(self) -> tuple[IntEnum, ...]:
        """All kinds of messages of the form."""
        return tuple(self.parties.session.form.kinds)


class Unlucky(Paillier):
    """The paper's form; client 0 cannot place its entities at first."""

    def client(self, params: Params, session: bytes, roster: Roster, number: int, *more: Any) -> PaillierClient:
        """Its part."""
        _, names, entropy = more
        return _UnluckyClient(self, params, number, names, entropy)


class _UnluckyClient(PaillierClient):
    def enter(self, at: Agreement) -> None:
        super().enter(at)
        if at.phase == "query" and at.attempt == 0 and self.number == 0:
            raise Retry


TABLES: Final[list[dict[Any, list[float]]]] = [
    {"a": [1.5, -2.25], "b": [0.1, 3.0], 7: [64.0, -64.0], "c": [1.0, 2.0]},
    {"b": [0.3, -0.0], "d": [1 / 3, 2.0**-30], 7: [-63.75, 6.0]},
    {"c": [5.0, 6.0]},
    {"a": [1.0, 1.0]},
]
SMALL: Final[dict[str, Any]] = {"key_bits": 256, "insecure_small_keys": True}


class Cut(Keyed):
    """The keyed form; no chunk has more than two rows."""

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int = ALL) -> Layout:
        """With small chunks."""
        return replace(super().layout(kind, params, at, sender, receiver), per_chunk=2)


class Together(Protocol):
    """All parties of a session."""

    session: Session
    server: Server
    clients: dict[int, Client]
    identities: dict[int, Identity]
    exchange: Exchange


Listen = Callable[[Together], None]
"""Begins to listen to these parties."""


def _paillier(listen: Listen, dropouts: int = 0) -> None:
    clients, form = (4, Paillier()) if dropouts else (3, Unlucky())
    parties = Parties.of(TABLES[:clients], form, entropy=insecure_seeded(1), dropouts=dropouts, **SMALL)
    listen(parties)
    parties.setup()
    if dropouts:
        parties.exchange.losses = {clients - 1: "share"}
        parties.contribute(TABLES)
        parties.exchange.run("share", parties.server.at.members)
    else:
        parties.round(TABLES[:clients])
    _end(parties)


def _keyed(listen: Listen) -> None:
    """A round, other names, and a round with these."""
    parties = Parties.of(TABLES[:3], Keyed(), collusion=1, entropy=insecure_seeded(2))
    listen(parties)
    parties.setup()
    parties.round(TABLES[:3])
    parties.clients[1].part.update(["b", "a"])
    parties.exchange.run("list", range(3))
    parties.round([TABLES[0], {"b": [1.0, 2.0], "a": [3.0, 4.0]}, TABLES[2]])
    _end(parties)


def _tolerant(listen: Listen, form: type[Keyed] = Keyed) -> None:
    """A round, new mask keys, and a round in which a client is lost."""
    parties = Parties.of(TABLES, form(batch=2), collusion=1, dropouts=1, entropy=insecure_seeded(3))
    listen(parties)
    parties.setup()
    parties.round(TABLES)
    parties.exchange.run("batch", parties.server.at.members)
    parties.contribute(TABLES)
    parties.exchange.losses = {3: "upload"}
    parties.exchange.run("upload", parties.server.at.members)


def _following(listen: Listen) -> None:
    """A session that takes over the key: one client left, one is new."""
    old = Parties.of(TABLES, Keyed(), collusion=2, entropy=insecure_seeded(4))
    old.setup()
    form = following(old, (3, None, 1, 0), 1)
    assert form is not None
    then = Next(old, form, 1, insecure_seeded(5))
    listen(then)
    then.setup()


def _end(parties: Parties) -> None:
    parties.server.begin(parties.session.form.end_phase, parties.server.at.members)
    parties.exchange.deliver()


FEDERATIONS: Final[dict[str, Callable[[Listen], None]]] = {
    "paillier": _paillier,
    "paillier, with drop-outs": partial(_paillier, dropouts=1),
    "keyed": _keyed,
    "keyed, with drop-outs": _tolerant,
    "keyed, in chunks": partial(_tolerant, form=Cut),
    "keyed, in a session that follows": _following,
}


@lru_cache
def places(form: str) -> tuple[Place, ...]:
    """The first message of each kind and size in each phase of its receiver; of those in several chunks also the last.

    What begins a phase has a place for each phase that begins, and later epochs of names have their own.
    """
    found, key, log = dict[Any, Place](), dict[int, bytes](), dict[int, list[tuple[Moment, Hop]]]()

    def listen(parties: Together) -> None:
        parties.exchange.tap = partial(tap, parties)

    def tap(parties: Together, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        party: Party = parties.server if receiver == SERVER else parties.clients[receiver]
        hop = Hop(sender, receiver, Header.parse(message, sender, parties.session.form.kinds), bytes(message))
        header, whom = hop.header, "the server" if receiver == SERVER else "a client"
        what = f"{header.kind.name.lower()} of {'the server' if header.sender == SERVER else 'a client'}"
        name = f"{form}: {what} to {whom} in '{party.at.phase}'"
        announced = parties.server.at.phase if header.kind.name == Common.BEGIN else ""
        at = (name, len(hop.message) if header.chunks == 1 else header.chunk > 0, announced, header.weights > 1)
        come, now = log.setdefault(receiver, []), party.at
        come.append(((now.phase, now.union, now.attempt, now.round), hop))
        if at not in found and header.chunk in (0, header.chunks - 1):
            found[at] = Place(parties, name, hop, copied(party), key.get(receiver, b""), come, len(come) - 1)
        if header.kind.name == Common.KEY:
            key[receiver] = Place(parties, name, hop, party, b"").payload()[:KEY_BYTES]
        return (message,)

    FEDERATIONS[form](listen)
    return tuple(found.values())


def every_place() -> tuple[Place, ...]:
    """Those of all federations."""
    return tuple(place for form in FEDERATIONS for place in places(form))


# ---------------------------------------------------------------------------------------------------------- the law


def deliver(party: Party, carrier: int, message: bytes) -> None:
    """As a network would."""
    if isinstance(party, Server):
        party.receive(carrier, message)
    else:
        party.receive(message)


def taken(place: Place, message: bytes, carrier: int | None = None) -> bool:
    """The law of this module. Says whether the message was taken."""
    party: Party = copied(place.party)
    before, error = described(party), None
    try:
        deliver(party, place.hop.sender if carrier is None else carrier, message)
    except ProtocolError as refusal:
        error = refusal
    if error is None:
        goes_on(place, party)
        return True
    assert error.suspects, "nobody is blamed"
    assert place.hop.receiver not in error.suspects, f"a party suspects itself: {error}"
    if party.at.phase == STOPPED:
        assert isinstance(party, Client), error
        assert party.vouched, f"what nobody sealed stops a client: {error}"
        return False
    assert described(party) == before, f"a refusal changed the state: {error}"
    deliver(party, place.hop.sender, place.hop.message)  # the honest message still counts
    assert described(party) != before
    return False


def goes_on(place: Place, party: Party) -> None:
    """What was taken may be found wrong at the end of the phase: the rest of it comes, and only refusals follow."""
    with suppress(SecEAError):
        for hop in place.rest:
            with suppress(Stale):
                deliver(party, hop.sender, _fitting(place, party, hop))
        if isinstance(party, Server) and party.at.phase != GREETING:
            party.close()


def _fitting(place: Place, party: Party, hop: Hop) -> bytes:
    """Whoever changes a broadcast changes the hash that follows it, too."""
    if isinstance(party, Server) or hop.header.kind.name != Common.DIGEST or party._running is None:
        return hop.message
    return replace(place, hop=hop).resealed(hop.header, party._running.digest())


def may_be_taken(place: Place, message: bytes) -> bool:
    """Whether a message that was not sealed anew may pass: a true one; or one that only its receiver can tell."""
    honest = (other.hop for other in every_place() if other.hop.receiver == place.hop.receiver)
    if message in (hop.message for hop in honest):  # another sender's, or the next one, may come before this one
        return True
    if not place.blind or len(message) != len(place.hop.message):
        return False
    ours, true = message[:HEADER_BYTES], place.hop.message[:HEADER_BYTES]
    # The server knows nothing of sequence and salt, nor for whom a message was sealed: it passes it on to whom its
    # header names, if nothing came for that one before.
    return ours[:4] == true[:4] and ours[6:20] == true[6:20] and ours[24:48] == true[24:48]
