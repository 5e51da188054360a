"""Small federations for tests, driven by hand: every hop can be watched, damaged, held back or replaced."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import SERVER, ProtocolError, Stale
from secea.params import Params
from secea.server import Phase, Server
from secea.session import Session
from secea.table import Name
from secea.wire.keys import Channel, Identity, Opener, Roster, Sealer
from secea.wire.messages import ALL, HEADER_BYTES, TAG_BYTES, Announcement, Header, Kind
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

Floats: TypeAlias = NDArray[np.float64]
Tables: TypeAlias = list[dict[Name, Floats]]
FORMS: Final = [(form, queries) for form in ("reciprocal", "paillier") for queries in ("buckets", "full")]
SMALL: Final[dict[str, Any]] = {"key_bits": 256, "insecure_small_keys": True}
"""Paillier keys that cost little, and protect nothing."""

SETS: Final[Sequence[Sequence[Name]]] = (["a", "b", 1, "c", "d"], ["b", "c", "1"], ["d", "a", 2, "e"])
"""Three clients with more than three entities (fewer would make all buckets alike)."""


def entropy(seed: object) -> Entropy:
    """Randomness that can be repeated: `entropy(n)` gives the next n bytes of a seeded key stream."""
    return KeyStream(hashlib.sha256(repr(seed).encode()).digest()).bytes


def random_tables(sets: Sequence[Sequence[Name]], dim: int, seed: object, most: float = 64.0) -> Tables:
    """An embedding for each name of each client; the first coordinate of every other one is plus or minus `most`."""
    rng = np.random.default_rng(list(hashlib.sha256(repr(seed).encode()).digest()))
    tables = [{name: rng.uniform(-most, most, dim) for name in names} for names in sets]
    for table in tables:
        for row in list(table.values())[::2]:
            row[0] = most * rng.choice([-1.0, 1.0])
    return tables


def true_means(tables: Iterable[Mapping[Name, Floats]]) -> dict[Name, Floats]:
    """The mean of each entity over its owners, in plain numpy."""
    owners: dict[Name, list[Floats]] = defaultdict(list)
    for table in tables:
        for name, row in table.items():
            owners[name].append(row)
    return {name: np.mean(rows, axis=0) for name, rows in owners.items()}


@dataclass(frozen=True)
class Hop:
    """One message on one leg of its way: `carrier` hands it over, `receiver` takes it."""

    carrier: int
    receiver: int
    message: bytes

    @property
    def header(self) -> Header:
        return Header.parse(self.message, self.carrier)

    @property
    def is_seed(self) -> bool:
        """A share that goes as a seed."""
        size = HEADER_BYTES + SEED_BYTES + TAG_BYTES
        return self.header.kind in (Kind.QUERY, Kind.INDICATOR, Kind.RESHARE, Kind.SHARE) and len(self.message) == size


Hook: TypeAlias = Callable[[Hop], Iterable[Hop]]
"""Sees each hop before it is delivered, and gives what is delivered in its place."""


def untouched(hop: Hop) -> Iterable[Hop]:
    return [hop]


class Parties:
    """A server and its clients, each with seeded randomness of its own."""

    def __init__(
        self,
        sets: Sequence[Sequence[Name]] = SETS,
        *,
        seed: object = 0,
        form: str = "reciprocal",
        queries: str = "buckets",
        early: bool = False,
        **params: Any,
    ) -> None:
        print(f"federation: seed {seed!r}, sets {sets!r}, {form}, {queries}, {params}")  # shown where a test fails
        self.sets, self.seed = [list(names) for names in sets], seed
        everyone = (*range(len(sets)), SERVER)
        self.entropy = {n: entropy((seed, n)) for n in everyone}
        self.identities = {n: Identity.generate(self.entropy[n]) for n in everyone}
        keys = [self.identities[n].public for n in range(len(sets))]
        given = Params(len(sets), **{"dim": 3, **SMALL, **params})
        union = {name for names in sets for name in names}
        given = given.with_bounds(max_entities=max(map(len, sets)), max_union=len(union))
        self.session = Session(given, Roster(tuple(keys), self.identities[SERVER].public), form, queries)
        self.early = early
        self.server = Server(self.session, self.identities[SERVER], self.entropy[SERVER], early=early)
        self.clients = {n: self.new_client(n) for n in range(len(sets))}
        self.present = set(self.clients)

    def new_client(self, n: int) -> Client:
        """Client n without any memory: a new incarnation."""
        return Client(self.session, n, self.identities[n], self.sets[n], self.entropy[n])

    @property
    def params(self) -> Params:
        return self.session.params

    def party(self, n: int) -> Client | Server:
        return self.server if n == SERVER else self.clients[n]

    # ---------------------------------------------------------------------------------------------------- delivering

    def deliver(self, hop: Hop) -> None:
        if hop.receiver == SERVER:
            self.server.receive(hop.carrier, hop.message)
        else:
            self.clients[hop.receiver].receive(hop.message)

    def hand(self, hop: Hop) -> None:
        """Deliver as an engine does: what came before is ignored."""
        with suppress(Stale):
            self.deliver(hop)

    def up(self, hook: Hook = untouched) -> None:
        """The present clients send what they have to send."""
        for n in sorted(self.present):
            for message in [bytes(message) for message in self.clients[n].outbox()]:
                for hop in hook(Hop(n, SERVER, message)):
                    self.hand(hop)

    def down(self, hook: Hook = untouched) -> None:
        """The server sends what it has to send; those that are absent do not get it."""
        for n, message in [(n, bytes(message)) for n, message in self.server.outbox()]:
            if n in self.present:
                for hop in hook(Hop(SERVER, n, message)):
                    self.hand(hop)

    def exchange(self, hook: Hook = untouched) -> None:
        self.up(hook)
        self.server.close()
        self.down(hook)

    def stream(self, at_once: int, hook: Hook = untouched) -> None:
        """An exchange in which each client sends a few messages at a time, and everything is passed on at once."""
        sending = {n: self.clients[n].outbox() for n in sorted(self.present)}
        while sending:
            for n, outbox in list(sending.items()):
                sent = [bytes(message) for message in islice(outbox, at_once)]
                if len(sent) < at_once:
                    del sending[n]
                for hop in (hop for message in sent for hop in hook(Hop(n, SERVER, message))):
                    self.hand(hop)
            self.flow(hook)
        self.server.close()
        self.flow(hook)

    def flow(self, hook: Hook = untouched) -> None:
        """What the server can pass on now is delivered, and not kept."""
        for n, waiting in self.server.drain().items():
            for hop in (
                hop for message in waiting if n in self.present for hop in hook(Hop(SERVER, n, bytes(message)))
            ):
                self.hand(hop)

    def until(self, *phases: Phase, hook: Hook = untouched) -> None:
        """Exchanges, until the server is in one of these phases."""
        while self.server.phase not in phases:
            self.exchange(hook)

    def setup(self, hook: Hook = untouched) -> None:
        self.until(Phase.READY, hook=hook)

    def begin(self, tables: Tables) -> None:
        """A round begins: the present clients contribute."""
        self.server.begin_round()
        for n in sorted(self.present):
            self.clients[n].contribute(tables[n], self.server.round)

    def round(self, tables: Tables, hook: Hook = untouched) -> None:
        self.begin(tables)
        self.until(Phase.READY, hook=hook)

    def another_epoch(self, hook: Hook = untouched) -> None:
        """Everything is set up anew for those that are present."""
        delivered = self.waiting()
        self.server.begin_epoch(self.present)
        self.down(lambda hop: () if hop.message in delivered else hook(hop))
        self.setup(hook)

    def other_weights(self, contributors: Iterable[int]) -> None:
        """New weights are made, for these contributors."""
        delivered = self.waiting()
        self.server.begin_weights(contributors)
        self.down(lambda hop: () if hop.message in delivered else [hop])
        self.setup()

    def waiting(self) -> set[bytes]:
        """The messages in the server's outbox."""
        return {bytes(message) for _, message in self.server.outbox()}

    # ------------------------------------------------------------------------------------------------------ checking

    def tables(self, number: object = 0) -> Tables:
        return random_tables(self.sets, self.params.dim, (self.seed, number), self.params.max_abs)

    def check(self, tables: Tables, contributors: Iterable[int] | None = None) -> None:
        """All that are present have the means of their own entities, over the owners that are present, or are named."""
        among = self.present if contributors is None else set(contributors)
        expected = true_means(table for n, table in enumerate(tables) if n in among)
        for n in sorted(self.present):
            client = self.clients[n]
            assert client.phase is ClientPhase.READY
            assert client.means is not None
            assert set(client.names) == set(self.sets[n])
            assert client.means.shape == (len(self.sets[n]), self.params.dim)
            for name, mean in zip(client.names, client.means, strict=True):
                assert np.abs(mean - expected[name]).max() <= self.params.resolution, (n, name)

    def goes_on(self, number: object = "next") -> None:
        """Another round gives the right means."""
        tables = self.tables(number)
        self.round(tables)
        self.check(tables)

    def refused(self, hop: Hop) -> ProtocolError:
        """The error with which a message is refused; the receiver's state is what it was before."""
        before = self.party(hop.receiver).save()
        with pytest.raises(ProtocolError) as caught:
            self.deliver(hop)
        assert self.party(hop.receiver).save() == before, f"a refusal changed the state: {caught.value}"
        return caught.value

    # -------------------------------------------------------------------------------------- restarting and tampering

    def restart(self, *numbers: int) -> None:
        """Save and restore parties: all of them, if none is named."""
        for n in numbers or (*self.clients, SERVER):
            saved = self.party(n).save()
            self.back_to(n, saved)
            assert self.party(n).save() == saved

    def back_to(self, n: int, saved: bytes) -> None:
        """A party as it was when it was saved."""
        if n == SERVER:
            self.server = Server.restore(self.session, self.identities[n], saved, self.entropy[n], early=self.early)
        else:
            self.clients[n] = Client.restore(self.session, self.identities[n], saved, self.entropy[n])

    def fork(self) -> Server:
        """A second server with the same keys and the same past: what a server that lies can do."""
        return Server.restore(self.session, self.identities[SERVER], self.server.save(), entropy((self.seed, "fork")))

    def _channel(self, header: Header) -> Channel:
        return self.party(header.sender).wire.channels[header.receiver]

    def opened(self, hop: Hop) -> bytes:
        """The payload of a sealed message."""
        header = hop.header
        return bytes(Opener(self._channel(header).derive("seal", header.label()), header).open(header, hop.message))

    def resealed(self, hop: Hop, payload: bytes | None = None, **label: Any) -> Hop:
        """The same message with another payload or another label, sealed by its sender: authentic, and wrong."""
        header = replace(hop.header, **label)
        sealer = Sealer(self._channel(header).derive("seal", header.label()), header)
        return replace(hop, message=bytes(sealer.seal(header.chunk, self.opened(hop) if payload is None else payload)))

    def prefix(self, hop: Hop) -> int:
        """The bytes that stand before the elements or ciphertexts of a message."""
        if hop.header.kind not in (Kind.ANSWER, Kind.MEAN):
            return 0
        return self.session.layout(hop.header.kind, self.server.M, len(self.server.contributors)).prefix

    def place(self, hop: Hop) -> str:
        """Where a hop stands in the protocol: its kind and step, and who takes it."""
        header = hop.header
        what = header.kind.name.lower()
        if header.kind is Kind.HELLO:
            what = "part" if header.receiver != ALL else "server's hello" if header.sender == SERVER else "hello"
        elif header.kind is Kind.CONTRIBUTORS:
            what = f"{Announcement.parse(self.opened(hop), self.params.N).step.name.lower()} announcement"
        elif hop.is_seed:
            what += " seed"
        return f"{what} to {'the server' if hop.receiver == SERVER else 'a client'}"


SETUP_PLACES: Final = (
    "hello to the server", "server's hello to a client", "greeting announcement to a client", "hello to a client",
    "part to the server", "secret announcement to a client", "part to a client", "table to the server",
    "tags to a client",
    "query seed to the server", "query to the server", "query announcement to a client", "query seed to a client",
    "query to a client",
)  # fmt: skip
WEIGHT_PLACES: Final = (
    "indicator seed to the server", "indicator to the server", "indicator seed to a client", "indicator to a client",
    "opening announcement to a client", "opening to the server", "reciprocal to a client",
    "reshare announcement to a client", "reshare seed to the server", "reshare to the server",
    "weights announcement to a client", "reshare seed to a client", "reshare to a client",
)  # fmt: skip
ROUND_PLACES: Final = (
    "share seed to the server", "share to the server", "share announcement to a client", "share seed to a client",
    "share to a client", "answer to the server", "mean to a client",
)  # fmt: skip
PLACES: Final = {
    "reciprocal": (*SETUP_PLACES, *WEIGHT_PLACES, *ROUND_PLACES),
    "paillier": (*SETUP_PLACES, *ROUND_PLACES),
}
"""Every kind of message at every stage, for each form."""


def at(place: str, parties: Parties, action: Callable[[Hop], Iterable[Hop] | None]) -> Hook:
    """A hook that acts on the first message at one place, and lets everything else pass."""
    done = False

    def hook(hop: Hop) -> Iterable[Hop]:
        nonlocal done
        if done or parties.place(hop) != place:
            return [hop]
        done = True
        replaced = action(hop)
        return [hop] if replaced is None else replaced

    return hook


def whole_run(
    parties: Parties, place: str, action: Callable[[Hop], Iterable[Hop] | None], *, rounds: int = 1
) -> list[Hop]:
    """Set up and run rounds with an action at one place; the means must be right. Gives all delivered hops."""
    hops: list[Hop] = []
    hook, acted = at(place, parties, lambda hop: acted_on(hop)), False

    def acted_on(hop: Hop) -> Iterable[Hop] | None:
        nonlocal acted
        acted = True
        return action(hop)

    def watched(hop: Hop) -> Iterator[Hop]:
        for delivered in hook(hop):
            hops.append(delivered)
            yield delivered

    parties.setup(watched)
    for number in range(rounds):
        tables = parties.tables(number)
        parties.round(tables, watched)
        parties.check(tables)
    assert acted, f"no message was seen at the place {place!r}"
    return hops
