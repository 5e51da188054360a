"""Drop-outs under attack: of all uploads only one sum opens, whatever the server says and whoever helps it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import Residues
from secea.arithmetic.ristretto import ORDER
from secea.errors import SERVER, FaultyPeer, ProtocolError, RoundLost
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import masking as masking_module
from secea.forms.keyed import opening as opening_module
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Masking, key_of, pair_of, public_of, seed_of
from secea.params import Params
from secea.party import client as client_module
from secea.party.phases import REST, STOPPED, Agreement, Begin, Common
from secea.steps import masks, means
from secea.testing import Parties
from secea.wire.keys import KEY_BYTES
from secea.wire.link import broadcast_name
from secea.wire.messages import Buffer, Header
from secea.wire.randomness import KeyStream

DIM = 2
Tables = list[dict[str, NDArray[np.float64]]]


def tables_of(clients: int, seed: int = 3) -> Tables:
    """One entity of all, one of each pair of neighbours, one of each."""
    rng = np.random.default_rng([seed, clients])
    names = [{"all", f"pair {n}", f"pair {(n + 1) % clients}", f"own {n}"} for n in range(clients)]
    return [{name: rng.uniform(-3, 3, DIM) for name in sorted(own)} for own in names]


def truth(tables: Tables, among: Iterable[int], name: str) -> NDArray[np.float64]:
    rows = [tables[n][name] for n in among if name in tables[n]]
    found: NDArray[np.float64] = np.mean(rows, axis=0)
    return found


@dataclass
class Ledger:
    """Every share that every client gave out, told apart by its bytes alone."""

    known: dict[tuple[int, bytes], tuple[str, int, int, int]] = field(default_factory=dict)
    """(client, share) to (a or b, whose, q, which batch)."""
    given: dict[int, set[tuple[str, int, int, int]]] = field(default_factory=dict)
    asked: int = 0

    def learn(self, n: int, masking: Masking) -> None:
        batch = masking.batch
        assert batch is not None
        for v, data in batch.shares.items():
            for i in range(len(batch.keys)):
                for half, kind in enumerate("ab"):
                    share = data[64 * i + 32 * half : 64 * i + 32 * half + 32]
                    self.known[n, share] = kind, v, batch.first + i, hash(batch.seed)

    def note(self, n: int, opening: bytes) -> None:
        self.asked += 1
        for start in range(0, len(opening), 32):
            self.given.setdefault(n, set()).add(self.known[n, opening[start : start + 32]])

    def both(self) -> list[tuple[int, int, int]]:
        """(client, v, q) of which both shares are out."""
        seen = {(n, *what[1:]) for n, given in self.given.items() for what in given if what[0] == "a"}
        return [key[:3] for n, given in self.given.items() for what in given if (key := (n, *what[1:])) in seen
                and what[0] == "b"]  # fmt: skip


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    book, got, payload = Ledger(), Masking._got_batch, Masking.payload

    def got_batch(self: Masking, at: Agreement, came: Any) -> Agreement:
        after = got(self, at, came)
        book.learn(self.number, self)
        return after

    def watched(self: Masking, kind: Any, receiver: int, at: Agreement) -> Iterator[Sequence[Buffer]]:
        for parts in payload(self, kind, receiver, at):
            if kind is Kind.OPENING:
                book.note(self.number, b"".join(map(bytes, parts)))
            yield parts

    monkeypatch.setattr(Masking, "_got_batch", got_batch)
    monkeypatch.setattr(Masking, "payload", watched)
    return book


@dataclass
class Stage:
    """Real clients around a server that says what it likes."""

    tables: Tables
    parties: Parties
    errors: list[tuple[int, ProtocolError]] = field(default_factory=list)

    @classmethod
    def of(cls, clients: int, dropouts: int, collusion: int, batch: int = 4) -> Stage:
        tables = tables_of(clients)
        parties = Parties.of(tables, Keyed(batch=batch), dropouts=dropouts, collusion=collusion)
        parties.setup()
        return cls(tables, parties)

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(len(self.tables)))

    @property
    def t(self) -> int:
        form = self.parties.session.form
        assert isinstance(form, Keyed)
        return form.threshold(self.parties.session.params)

    def at(self, n: int) -> Agreement:
        return self.parties.clients[n].at

    # ------------------------------------------------------------------------------------------- what a server can say

    def hand(self, n: int, *messages: Buffer) -> bool:
        """Whether the client took them all."""
        for message in messages:
            try:
                self.parties.clients[n].receive(message)
            except ProtocolError as error:
                self.errors.append((n, error))
                return False
        return True

    def say(self, phase: str, members: Iterable[int], to: int, **numbers: int) -> bool:
        """An announcement to one client, with any members and numbers, for the union that it is in."""
        link, session, at = self.parties.server.link, self.parties.session, self.at(to)
        index = next(i for i, row in enumerate(session.rows) if row.phase == phase)
        begin = Begin(index, tuple((n, link.incarnation(n)) for n in sorted(members)))
        anchor = self.parties.clients[to].part.anchor(phase, at)
        label = link.label(Kind(Common.BEGIN), at.numbers | numbers, anchor)
        return self.hand(to, link.sealer(label, to).seal(0, begin.to_bytes()))

    def show(self, n: int, votes: Sequence[tuple[int, bytes]]) -> bool:
        """A broadcast of votes, for one client alone. Whether it goes on."""
        link, at = self.parties.server.link, self.at(n)
        payload = b"".join(v.to_bytes(2, "little") + vote for v, vote in votes)
        key, key_label = link.entropy(KEY_BYTES), link.label(Kind.KEY, at.numbers, at.context)
        label = link.label(Kind.VOTES, at.numbers, at.context)
        last = link.label(Kind.DIGEST, at.numbers, at.context)
        message = bytes(link.broadcaster(label, 1, key).seal(0, payload))
        size = max(0, at.size).to_bytes(8, "little")
        return self.hand(
            n,
            link.sealer(key_label, n).seal(0, key, broadcast_name(label), size),
            message,
            link.sealer(last, n).seal(0, hashlib.sha256(message).digest()),
        )

    def sent(self, n: int, kind: Kind) -> bytes | None:
        """What client n has to send of a kind now, as the server reads it."""
        link, whole = self.parties.server.link, b""
        for message in self.parties.clients[n].outbox():
            header = Header.parse(message, n, Kind)
            if header.kind is kind:
                opened = link.open(header, message)
                whole += bytes(opened.payload)
        return whole or None

    # ------------------------------------------------------------------------------------------------ steps of a round

    def upload(self) -> dict[int, bytes]:
        """Everyone has trained, and uploads: the server has all of it."""
        self.parties.contribute(self.tables)
        self.parties.server.begin("upload", self.parties.server.at.members)
        self.parties.exchange.deliver()
        uploads = {n: self.sent(n, Kind.UPLOAD) for n in self.parties.server.at.members}
        return {n: upload for n, upload in uploads.items() if upload is not None}

    def votes(self, U: Iterable[int], of: Iterable[int] | None = None) -> dict[int, bytes]:
        """Who signs that U is in the sum, of those who are asked."""
        U = tuple(U)
        signed = {n: self.sent(n, Kind.VOTE) for n in (U if of is None else of) if self.say("agree", U, n)}
        return {n: vote for n, vote in signed.items() if vote is not None}

    def openings(self, votes: Mapping[int, bytes]) -> dict[int, bytes]:
        """The server shows t votes to those who voted: what they open."""
        shown = list(votes.items())[: self.t]
        opened = {n: self.sent(n, Kind.OPENING) for n in votes if self.show(n, shown)}
        return {n: data for n, data in opened.items() if data is not None}

    def check_next_round(self) -> None:
        """Whatever was said before: a new union, and all have right means."""
        self.parties.server.give_up()
        self.parties.server.drain()
        self.parties.union(self.everyone)
        found = self.parties.round(self.tables)
        close = self.parties.session.params.resolution
        for n, table in enumerate(self.tables):
            for name, row in zip(table, found[n], strict=True):
                assert np.abs(row - truth(self.tables, self.everyone, name)).max() < close


def test_before_the_first_upload_there_is_nothing_to_open(ledger: Ledger) -> None:
    """Round 0 has no keys; asked for it, clients must not count backwards in their batch."""
    stage = Stage.of(4, 1, 1)
    for U in ((0, 1, 2), (0, 1, 2, 3)):
        stage.openings(stage.votes(U))
    assert not ledger.asked
    for _ in range(4):
        stage.upload()
        stage.openings(stage.votes(stage.everyone))
        stage.parties.server.give_up()
    assert not ledger.both()

