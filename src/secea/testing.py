"""A harness for tests, audit, fuzzing and vectors: all parties of a session in one process, and a tap on every hop.

    parties = Parties.of([{"a": [1.0]}, {"a": [3.0]}], Keyed())
    parties.setup()
    means = parties.round(tables)

A `Recorder` is a tap that records what passes. A `Watch` sees what parties seal before it is sealed, and which keys
their channels derive. You can pass in another type of session or client, with a protection taken away.
`insecure_seeded` makes every random draw of a party a function of a seed, so that a whole transcript can be repeated.
It is for tests only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secea.engines.exchange import Exchange, Tap, untouched
from secea.errors import SERVER
from secea.params import Params
from secea.party.client import Client
from secea.party.form import Form
from secea.party.server import Server
from secea.party.session import Session
from secea.table import TableLike, as_table, canonical_names
from secea.wire.keys import Channel, Identity, Roster, Sealer
from secea.wire.link import Link
from secea.wire.messages import Buffer, Header
from secea.wire.randomness import Entropy, KeyStream


@dataclass(frozen=True, slots=True)
class Hop:
    """One message on one leg of its way."""

    sender: int
    receiver: int
    header: Header
    message: bytes = field(repr=False)


@dataclass
class Recorder:
    """A tap that lets everything pass and records it."""

    kinds: Any
    hops: list[Hop] = field(default_factory=list)

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Keep the message."""
        header = Header.parse(message, sender, self.kinds)
        self.hops.append(Hop(sender, receiver, header, bytes(message)))
        return (message,)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A chunk of a message as its sender and its receiver know it, and the key under which it travels."""

    header: Header
    key: bytes = field(repr=False)
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Derived:
    """A key that a channel gave to one of its ends."""

    me: int
    peer: int
    purpose: str
    label: bytes
    key: bytes = field(repr=False)


@dataclass
class Watch:
    """Records what all parties seal, and which keys they derive from their channels, in order."""

    heard: list[Sealed | Derived] = field(default_factory=list, repr=False)

    def sealed(self, *kinds: Any, sender: int | None = None, receiver: int | None = None) -> list[Sealed]:
        """Chunks of messages of these kinds. If a sender or a receiver is given, only theirs."""
        return [
            each for each in self.heard
            if isinstance(each, Sealed) and each.header.kind in kinds
            and sender in (None, each.header.sender) and receiver in (None, each.header.receiver)
        ]  # fmt: skip


class WatchedSealer(Sealer):
    """A sealer that reports to a `Watch` what it seals."""

    def __init__(self, key: bytes, header: Header, watch: Watch) -> None:
        super().__init__(key, header)
        self._key, self._watch = key, watch

    def seal(self, chunk: int, *payload: Buffer) -> memoryview:
        """Report the chunk, then seal it."""
        self._watch.heard.append(Sealed(self.header.at(chunk), self._key, b"".join(payload)))
        return super().seal(chunk, *payload)


class WatchedChannel(Channel):
    """A channel that reports to its `Watch`, if it has one, what is derived and sealed."""

    watch: Watch | None = None

    def derive(self, purpose: str, label: bytes) -> bytes:
        """Derive a key, and report it."""
        key = super().derive(purpose, label)
        if self.watch is not None:
            self.watch.heard.append(Derived(self.me, self.peer, purpose, label, key))
        return key

    def sealer(self, header: Header) -> Sealer:
        """A sealer that reports to the watch."""
        if self.watch is None:
            return super().sealer(header)
        return WatchedSealer(self.derive("seal", header.label()), header, self.watch)


class WatchedLink(Link):
    """A link whose channels report to a watch."""

    channel_type: ClassVar[type[Channel]] = WatchedChannel
    watch: Watch | None = None

    def greet(self, header: Header, message: Buffer) -> None:
        """Listen on the new channel."""
        super().greet(header, message)
        channel = self.channels[header.sender]
        assert isinstance(channel, WatchedChannel)
        channel.watch = self.watch


class WatchedSession(Session):
    """A session whose parties report to a watch."""

    link_type: ClassVar[type[Link]] = WatchedLink


def insecure_seeded(seed: int) -> Callable[[int], Entropy]:
    """For each party, a source of bytes that depends only on the seed and the party's number. For tests only."""

    def of(number: int) -> Entropy:
        stream = KeyStream(hashlib.sha256(b"secea test entropy %d %d" % (seed, number)).digest())
        return stream.bytes

    return of


class Parties:
    """All parties of one session in this process."""

    def __init__(
        self,
        params: Params,
        form: Form,
        names: Sequence[Iterable[object]],
        *,
        tap: Tap = untouched,
        entropy: Callable[[int], Entropy] = lambda _: os.urandom,
        watch: Watch | None = None,
        session: type[Session] = WatchedSession,
        client: type[Client] = Client,
    ) -> None:
        self._watch, self._client = watch, client
        everyone = (*range(params.clients), SERVER)
        self.entropy = {n: entropy(n) for n in everyone}
        self.identities = {n: Identity.generate(self.entropy[n]) for n in everyone}
        keys = tuple(self.identities[n].public for n in range(params.clients))
        self.session = session(params, Roster(keys, self.identities[SERVER].public), form)
        self.server = Server(self.session, self.identities[SERVER], self.entropy[SERVER])
        self._listen(self.server.link)
        self.clients = {n: self.client(n, own) for n, own in enumerate(names)}
        self.exchange = Exchange(self.server, self.clients, tap=tap)
        self.number = 0
        """The number of the last training round."""

    @classmethod
    def of(cls, tables: Sequence[TableLike], form: Form, *, dim: int | None = None, **more: Any) -> Parties:
        """Parties with bounds taken from the tables. `more` are parameters, and arguments of `Parties`."""
        own = {key: more.pop(key) for key in ("tap", "entropy", "watch", "session", "client") if key in more}
        names = [canonical_names(table) for table in tables]
        union = {name for each in names for name in each}
        length = dim or next((as_table(table).dim for table, own in zip(tables, names, strict=True) if own), 1)
        params = Params(clients=len(tables), dim=length, **more)
        bounded = params.with_bounds(max_entities=max(map(len, names), default=0), max_union=len(union))
        return cls(bounded, form, names, **own)

    def client(self, n: int, names: Iterable[object]) -> Client:
        """A new life of client n."""
        made = self._client(self.session, n, self.identities[n], names, self.entropy[n])
        self._listen(made.link)
        return made

    def _listen(self, link: Link) -> None:
        if isinstance(link, WatchedLink):
            link.watch = self._watch

    def restart(self, n: int, saved: bytes | None = None) -> None:
        """A new life of a party, from `saved`, or from its present state if nothing is given."""
        if n == SERVER:
            saved = self.server.save() if saved is None else saved
            self.server = Server.restore(self.session, self.identities[n], saved, self.entropy[n])
            self.exchange.server = self.server
            self._listen(self.server.link)
        else:
            saved = self.clients[n].save() if saved is None else saved
            self.clients[n] = self._client.restore(self.session, self.identities[n], saved, self.entropy[n])
            self._listen(self.clients[n].link)

    def setup(self, members: Iterable[int] | None = None) -> None:
        """Hellos, and everything up to the first union."""
        self.exchange.greet()
        self.exchange.run(
            self.session.form.setup_phase, range(self.session.params.clients) if members is None else members
        )

    def union(self, members: Iterable[int]) -> None:
        """A new union of these clients."""
        self.exchange.here = set(members)
        self.exchange.run(self.session.form.union_phase, members)

    def contribute(self, tables: Sequence[TableLike | None]) -> None:
        """Let every client contribute its table and say so to the server."""
        self.number += 1

        def contribute(n: int) -> None:
            table = tables[n]
            assert table is not None
            self.clients[n].contribute(table, self.number)

        self.exchange.ask(self.server.at.members, contribute)

    def round(self, tables: Sequence[TableLike | None]) -> dict[int, NDArray[np.floating[Any]]]:
        """One round: the means of each client, in the order of its table."""
        self.contribute(tables)
        self.exchange.run(self.session.form.round_phase, self.server.at.members)
        self.exchange.check_finished()
        return {n: self.means(n, table) for n, table in enumerate(tables) if table is not None}

    def means(self, n: int, table: TableLike) -> NDArray[np.floating[Any]]:
        """The means that client n has."""
        return self.clients[n].part.means_like(as_table(table, self.session.params.dim))
