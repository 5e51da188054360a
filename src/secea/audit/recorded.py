"""A small federation whose every hop is kept, and can be changed on its way: what attacks and statistics look at.

Its parties are the product's own, with the system's randomness. Whoever attacks may use what that party sees: `opened`
takes the keys of a message's receiver, and an attack says who that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Residues, Ring
from secea.client import Client
from secea.errors import SERVER
from secea.params import Params
from secea.server import Phase, Server
from secea.session import Session
from secea.sharing import SEED_LAYOUT, seeded_clients, share_from_seed
from secea.steps.union import COLUMNS
from secea.wire.keys import Channel, Identity, Opener, Roster, Sealer
from secea.wire.messages import Buffer, Header, Kind

Table: TypeAlias = Mapping[str, NDArray[np.floating[Any]]]
Tables: TypeAlias = Sequence[Table]

SMALL: Final[dict[str, Any]] = {"key_bits": 256, "insecure_small_keys": True}
"""Paillier keys that cost little: no attack here is about their size."""


@dataclass(frozen=True)
class Hop:
    """One message on one leg of its way: `carrier` hands it over, `receiver` takes it."""

    carrier: int
    receiver: int
    message: bytes

    @cached_property
    def header(self) -> Header:
        """The label of the message, open to all."""
        return Header.parse(self.message, self.carrier)


Hook: TypeAlias = Callable[[Hop], Iterable[Hop]]
"""Sees each hop before it is delivered, and gives what is delivered in its place."""


class Recorded:
    """A server and its clients; `hops` holds what was delivered, in order."""

    def __init__(
        self, sets: Sequence[Collection[str]], *, form: str = "reciprocal", queries: str = "buckets", **params: Any
    ) -> None:
        self.identities = {n: Identity.generate() for n in (*range(len(sets)), SERVER)}
        keys = [self.identities[n].public for n in range(len(sets))]
        given = Params(len(sets), **(SMALL | params))
        given = given.with_bounds(max_entities=max(map(len, sets)), max_union=len(set().union(*sets)))
        self.session = Session(given, Roster(tuple(keys), self.identities[SERVER].public), form, queries)
        self.server = Server(self.session, self.identities[SERVER])
        self.clients = {n: Client(self.session, n, self.identities[n], own) for n, own in enumerate(sets)}
        self.hops: list[Hop] = []

    @property
    def params(self) -> Params:
        """The public parameters."""
        return self.session.params

    def party(self, n: int) -> Client | Server:
        """A client, or the server."""
        return self.server if n == SERVER else self.clients[n]

    # ---------------------------------------------------------------------------------------------------- delivering

    def deliver(self, hop: Hop) -> None:
        """Hand a message over, and keep it."""
        if hop.receiver == SERVER:
            self.server.receive(hop.carrier, hop.message)
        else:
            self.clients[hop.receiver].receive(hop.message)
        self.hops.append(hop)

    def _pass(self, hops: Iterable[Hop], hook: Hook | None) -> None:
        for hop in hops:
            for given in [hop] if hook is None else hook(hop):
                self.deliver(given)

    def sending(self, n: int) -> list[Hop]:
        """What a client has to send now."""
        return [Hop(n, SERVER, bytes(message)) for message in self.clients[n].outbox()]

    def up(self, hook: Hook | None = None, clients: Iterable[int] | None = None) -> None:
        """Clients (all of them, unless said) send what they have to send."""
        for n in self.clients if clients is None else clients:
            self._pass(self.sending(n), hook)

    def down(
        self, hook: Hook | None = None, clients: Iterable[int] | None = None, server: Server | None = None
    ) -> None:
        """The server sends what it has to send; to those clients alone, where they are named."""
        waiting = (server or self.server).drain()
        for n in waiting if clients is None else clients:
            self._pass([Hop(SERVER, n, bytes(message)) for message in waiting.get(n, [])], hook)

    def exchange(self, hook: Hook | None = None) -> None:
        """Clients to server, and back."""
        self.up(hook)
        self.finish(hook)

    def finish(self, hook: Hook | None = None) -> None:
        """The server ends the stage, and sends what follows from it."""
        self.server.close()
        self.down(hook)

    def until(self, *phases: Phase, hook: Hook | None = None) -> Recorded:
        """Exchanges, until the server is in one of these phases."""
        self.down(hook)
        while self.server.phase not in phases:
            self.exchange(hook)
        return self

    def setup(self, hook: Hook | None = None) -> Recorded:
        """All that comes before the first round."""
        return self.until(Phase.READY, hook=hook)

    def begin(self, tables: Tables) -> None:
        """A round begins: everyone contributes."""
        self.server.begin_round()
        for n, client in self.clients.items():
            client.contribute(tables[n], self.server.round)

    def round(self, tables: Tables, hook: Hook | None = None) -> Recorded:
        """One whole round."""
        self.begin(tables)
        return self.until(Phase.READY, hook=hook)

    # ------------------------------------------------------------------------------------------------------- restarts

    def saved(self) -> dict[int, bytes]:
        """Everybody's state."""
        return {n: self.party(n).save() for n in (*self.clients, SERVER)}

    def back_to(self, saved: Mapping[int, bytes]) -> None:
        """These parties are again what they were."""
        for n, data in saved.items():
            if n == SERVER:
                self.server = self.fork(data)
            else:
                self.clients[n] = Client.restore(self.session, self.identities[n], data)

    def fork(self, saved: bytes) -> Server:
        """A second server with the same keys and the past that was saved: what a server that lies can do."""
        return Server.restore(self.session, self.identities[SERVER], saved)

    # -------------------------------------------------------------------------------------------------------- reading

    def of(self, kind: Kind, *, sender: int | None = None, receiver: int | None = None) -> Iterator[Hop]:
        """The recorded messages of a kind, each once: as they reach the party that they are for."""
        for hop in self.hops:
            header = hop.header
            wanted = sender in (None, header.sender) and receiver in (None, header.receiver)
            if wanted and header.kind is kind and hop.receiver == header.receiver:
                yield hop

    def _channel(self, header: Header) -> Channel:
        return self.party(header.receiver).wire.channels[header.sender]

    def opened(self, hop: Hop) -> bytes:
        """What the receiver reads in a sealed message (and its sender knows)."""
        header = hop.header
        return bytes(Opener(self._channel(header).derive("seal", header.label()), header).open(header, hop.message))

    def resealed(self, hop: Hop, payload: Buffer | None = None, **label: Any) -> Hop:
        """The same message with another payload, or under another label, by someone who has the key."""
        header = replace(hop.header, **label)
        sealer = Sealer(self._channel(header).derive("seal", header.label()), header)
        body = self.opened(hop) if payload is None else payload
        return replace(hop, message=bytes(sealer.seal(header.chunk, body)))

    def residues(self, hop: Hop) -> Residues:
        """The field elements of a message as its receiver reads them, [P, rows, width]; a seed is expanded."""
        header, payload = hop.header, self.opened(hop)
        if header.kind is Kind.TABLE:
            return RING61.from_bytes(payload, len(payload) // RING61.element_bytes // COLUMNS, COLUMNS)
        ring, layout = self.session.ring, self.session.layout(header.kind, self.server.M, len(self.server.contributors))
        width = self.session.form.block_length if header.kind in (Kind.SHARE, Kind.ANSWER) else 1
        if self.is_seed(hop):
            return np.concatenate(list(share_from_seed(payload, ring, layout, width)), axis=1)
        body = payload[layout.prefix :]
        return ring.from_bytes(body, len(body) // ring.element_bytes // width, width)

    def is_seed(self, hop: Hop) -> bool:
        """Whether a share goes as a seed."""
        header = hop.header
        dealt = header.kind in (Kind.QUERY, Kind.INDICATOR, Kind.RESHARE, Kind.SHARE)
        seeded = dealt and header.receiver in seeded_clients(self.params, header.sender, header)
        return seeded and header.chunks == SEED_LAYOUT.chunks

    def answers(self, n: int, round: int) -> dict[int, bytes]:
        """The server: each client's answers to client n's queries in a round, the proofs in front left out."""
        layout = self.session.layout(Kind.ANSWER, self.server.M, len(self.server.contributors))
        found: dict[int, list[bytes]] = defaultdict(list)
        for hop in self.of(Kind.ANSWER):
            if hop.header.round == round and self.server.contributors[layout.section(hop.header.chunk)] == n:
                found[hop.header.sender].append(self.opened(hop)[layout.prefix :])
        return {v: b"".join(parts) for v, parts in found.items()}


def read_integers(run: Recorded, tables: Tables) -> Residues:
    """A round with shared reciprocals; C*mean + noise as client 0 reads it before it divides, [P, own, d].

    Rows are in the order of client 0's names: a curious client may look at its own numbers.
    """
    client, seen = run.clients[0], []
    join = Ring.join

    def kept(ring: Ring, x: Residues, scale: float, less: int) -> NDArray[np.float64]:
        middle = np.broadcast_to(ring.constant(less).reshape(-1, 1, 1, 1), x.shape)
        centred = ring.subtract(np.ascontiguousarray(x), np.ascontiguousarray(middle))
        seen.append(centred.transpose(0, 2, 1, 3).reshape(ring.size, x.shape[2], -1))
        return join(ring, x, scale, less)

    def watch(hop: Hop) -> Iterable[Hop]:
        if hop.receiver == 0 and hop.header.kind is Kind.MEAN:
            with patch.object(Ring, "join", kept):
                run.deliver(hop)
            return []
        return [hop]

    run.round(tables, watch)
    asked = np.flatnonzero(client.placement >= 0)
    order = np.argsort(client.placement[asked])  # names stand in the order of their rows
    return np.concatenate(seen, axis=1)[:, asked[order], : client.session.params.dim]


def exact_integers(ring: Ring, x: Residues) -> NDArray[np.object_]:
    """The centred integers that have these residues, by the Chinese remainder theorem: [P, ...] -> [...]."""
    whole = ring.modulus
    parts = [whole // p * pow(whole // p, -1, p) for p in ring.primes]
    total = sum(row.astype(object) * part for row, part in zip(x, parts, strict=True)) % whole
    centred: NDArray[np.object_] = (total + whole // 2) % whole - whole // 2
    return centred


def random_tables(sets: Sequence[Collection[str]], dim: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Made-up embeddings."""
    return [{name: rng.normal(size=dim) for name in sorted(own)} for own in sets]
