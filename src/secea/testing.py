"""One harness for tests, audit, fuzzing and vectors: all parties of a session, and a tap on every hop.

    parties = Parties.of([{"a": [1.0]}, {"a": [3.0]}], Keyed())
    parties.setup()
    means = parties.round(tables)

A `Recorder` is a tap that writes down what passes. `insecure_seeded` makes every draw of a party a function of a seed,
so that a whole transcript can be repeated: for tests alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.engines.exchange import Exchange, Tap, untouched
from secea.errors import SERVER
from secea.params import Params
from secea.party.client import Client
from secea.party.form import Form
from secea.party.server import Server
from secea.party.session import Session
from secea.table import TableLike, as_table
from secea.wire.keys import Identity, Roster
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
    """A tap that lets everything pass, and keeps it."""

    kinds: Any
    hops: list[Hop] = field(default_factory=list)

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Keep the message."""
        header = Header.parse(message, sender, self.kinds)
        self.hops.append(Hop(sender, receiver, header, bytes(message)))
        return (message,)


def insecure_seeded(seed: int) -> Callable[[int], Entropy]:
    """For each party a source of bytes that is a function of a seed and its number. For tests alone."""

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
    ) -> None:
        everyone = (*range(params.clients), SERVER)
        self.entropy = {n: entropy(n) for n in everyone}
        self.identities = {n: Identity.generate(self.entropy[n]) for n in everyone}
        keys = tuple(self.identities[n].public for n in range(params.clients))
        self.session = Session(params, Roster(keys, self.identities[SERVER].public), form)
        self.server = Server(self.session, self.identities[SERVER], self.entropy[SERVER])
        self.clients = {n: self.client(n, own) for n, own in enumerate(names)}
        self.exchange = Exchange(self.server, self.clients, tap=tap)
        self.number = 0
        """The last training round."""

    @classmethod
    def of(cls, tables: Sequence[TableLike], form: Form, *, dim: int | None = None, **more: Any) -> Parties:
        """With bounds from the tables; `more` are parameters, and what `Parties` takes."""
        own = {key: more.pop(key) for key in ("tap", "entropy") if key in more}
        names = [list(table.keys()) for table in tables]
        union = {name for each in names for name in each}
        length = dim or next((as_table(table).dim for table in tables if len(table.keys())), 1)
        params = Params(clients=len(tables), dim=length, **more)
        bounded = params.with_bounds(max_entities=max(map(len, names), default=0), max_union=len(union))
        return cls(bounded, form, names, **own)

    def client(self, n: int, names: Iterable[object]) -> Client:
        """A new life of client n."""
        return Client(self.session, n, self.identities[n], names, self.entropy[n])

    def restart(self, n: int, saved: bytes | None = None) -> None:
        """A new life of a party, from what it saved; as it is now where nothing is given."""
        if n == SERVER:
            saved = self.server.save() if saved is None else saved
            self.server = Server.restore(self.session, self.identities[n], saved, self.entropy[n])
            self.exchange.server = self.server
        else:
            saved = self.clients[n].save() if saved is None else saved
            self.clients[n] = Client.restore(self.session, self.identities[n], saved, self.entropy[n])

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
        """Everyone has trained, and says so; the server has heard it."""
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
