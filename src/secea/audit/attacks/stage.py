"""A stage for a server that deviates: real clients, a server that says what it likes, and notes of what clients did.

The server on a `Stage` can follow the protocol (`setup`, `union`, `round`), change, withhold or repeat what it delivers
(`tap`), and make announcements and broadcasts of its own for a single client (`say`, `show`, `resealed`). A `Stage`
notes what clients send, what they refuse, and which means they accept; `objections` says what must not have been.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.audit import Subject
from secea.audit.attacks.book import Book
from secea.errors import SERVER, FederationError, ProtocolError, SecEAError, Stale
from secea.forms.keyed import Keyed
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.party.client import ROWS_BYTES, Client
from secea.party.phases import GREETING, REST, UNKNOWN, Agreement, Begin, Common
from secea.party.server import Server
from secea.testing import Parties, insecure_seeded
from secea.wire.keys import KEY_BYTES, SIGNATURE_BYTES, Channel, Opener
from secea.wire.link import broadcast_name
from secea.wire.messages import ALL, HEADER_BYTES, Buffer, Header

Tables = list[dict[str, NDArray[np.float64]]]
Owners = Mapping[str, Sequence[int]]
Tap = Callable[[int, Buffer], Iterable[Buffer]]
"""What is delivered to a client in place of a message."""
Event = tuple[object, ...]

DIM: Final = 2
NO_PHASE: Final = 99
"""The number of a phase that there is not."""
ALIKE: Final = frozenset({"HELLO", "COMMITMENT", "DEALING", "SHARE", "PART", "BATCH", "SECRETS", "OPENING"})
"""Kinds of the keyed form whose payload has nothing to do with entities: with the same seeds it is the same."""


def untouched(n: int, message: Buffer) -> Iterable[Buffer]:
    """Deliver everything as it is."""
    return (message,)


def tables_of(owners: Owners, clients: int, number: int = 0, dim: int = DIM) -> Tables:
    """The tables of a training round: other values in each."""
    rng, tables = np.random.default_rng([clients, number]), Tables({} for _ in range(clients))
    for name, own in owners.items():
        for n in range(clients):
            row = rng.uniform(-9, 9, dim)
            if n in own:
                tables[n][name] = row
    return tables


# ---------------------------------------------------------------------------------------------- what a server can say


def announcement(
    parties: Parties,
    phase: str,
    members: Iterable[int],
    to: int,
    *,
    lives: Mapping[int, bytes] | None = None,
    anchor: bytes | None = None,
    **numbers: int,
) -> bytes:
    """An announcement for one client, with any members and numbers, sealed as it should be."""
    known = {n: parties.server.link.incarnation(n) for n in sorted(members)} | dict(lives or {})
    return word(parties, phase, [*known.items()], to, anchor, **numbers)


def word(
    parties: Parties,
    phase: str,
    members: Sequence[tuple[int, bytes]],
    to: int,
    anchor: bytes | None = None,
    **numbers: int,
) -> bytes:
    """A word on who takes part, whatever it says."""
    link, form, client = parties.server.link, parties.session.form, parties.clients[to]
    index = next((i for i, row in enumerate(parties.session.rows) if row.phase == phase), NO_PHASE)
    bound = client.part.anchor(phase, client.at) if anchor is None else anchor
    begin = form.kinds[Common.BEGIN]
    label = link.label(begin, {**form.label(begin, client.at), **numbers}, bound)
    return bytes(link.sealer(label, to).seal(0, Begin(index, tuple(members)).to_bytes()))


def broadcast(parties: Parties, n: int, kind: Kind, *payloads: bytes, size: int | None = None) -> list[Buffer]:
    """A broadcast of the keyed form for one client alone, chunk by chunk, with its key and its tag."""
    link, at, chunks = parties.server.link, parties.clients[n].at, len(payloads)
    rows = max(0, at.size) if size is None else size
    key, key_label = link.entropy(KEY_BYTES), link.label(Kind.KEY, at.numbers, at.context)
    label = replace(link.label(kind, at.numbers, at.context), chunks=chunks)
    last = link.label(Kind.DIGEST, at.numbers, at.context)
    writer = link.broadcaster(label, chunks, key)
    messages = [bytes(writer.seal(chunk, payload)) for chunk, payload in enumerate(payloads)]
    running = link.mac(n, broadcast_name(label))
    for message in messages:
        running.update(message)
    return [
        link.sealer(key_label, n).seal(0, key, broadcast_name(label), rows.to_bytes(ROWS_BYTES, "little")),
        *messages,
        link.sealer(last, n).seal(0, running.digest()),
    ]


# ------------------------------------------------------------------------------------------------------------ the stage


class Stage:
    """All parties of a federation in one process. The server does what a program wants."""

    def __init__(self, subject: Subject, owners: Owners, clients: int, seed: int = 1, **params: Any) -> None:
        form, entities = subject.form, len(owners)
        if isinstance(form, Keyed):
            form = replace(form, batch=2, max_updates=99)  # mask keys cost the most; names change often
        self.owners, self.number = {name: tuple(own) for name, own in owners.items()}, 0
        self.tables = tables_of(self.owners, clients)
        self.parties = replace(subject, form=form).parties(
            self.tables, dim=DIM, entropy=insecure_seeded(seed), max_entities=entities, max_union=entities + 3, **params
        )
        self.params, self.form = self.parties.session.params, form
        self.everyone = tuple(range(clients))
        self.here = set(self.everyone)
        """Those who get what is delivered, and whose messages come."""
        self.tap: Tap = untouched
        self.trace: list[Event] = []
        """What clients sent and refused, in order: all that a server sees of them."""
        self.refusals: dict[int, list[ProtocolError]] = {n: [] for n in self.everyone}
        self.accepted: dict[int, int] = {}
        """The last training round of which each client has means."""
        self.wrong: list[str] = []
        """Wrong means that were accepted."""
        self.twice: list[str] = []
        """Training rounds with means over two sets of clients, and messages that were sent again and changed."""
        self.book = Book()
        self.linked: list[str] = []
        """Slots that can be followed from one union to another."""
        self.same_seeds = True
        """Whether clients draw the same in worlds with other owners; until names change."""
        self.stale = False
        """Whether a client ignored what was last handed to it, since it had it before."""
        self._tags: set[int] = set()
        self._given: dict[int, tuple[int, dict[str, NDArray[np.float64]]]] = {}  # what each last contributed
        self._used: dict[tuple[int, int, int], dict[str, NDArray[np.float64]]] = {}  # by client, union and round
        self._sets: dict[int, tuple[int, ...]] = {}
        self._said: dict[bytes, bytes] = {}
        self._stopped: set[tuple[int, int]] = set()  # who refused a broadcast of means, in which round

    @property
    def server(self) -> Server:
        """The server, as a state machine."""
        return self.parties.server

    @property
    def part(self) -> Any:
        """The server's part, of whatever form it is."""
        return self.server.part

    def client(self, n: int) -> Client:
        """Client n."""
        return self.parties.clients[n]

    def at(self, n: int) -> Agreement:
        """Where client n is."""
        return self.client(n).at

    def keyed(self, n: int) -> KeyedClient:
        """The part of client n, in the keyed form."""
        part = self.client(n).part
        assert isinstance(part, KeyedClient)
        return part

    @property
    def names_phases(self) -> tuple[str, ...]:
        """The phases that only a change of names has."""
        return ("list", "confirm", "evaluate") if isinstance(self.form, Keyed) else ()

    # -------------------------------------------------------------------------------------------- what clients do

    def hand(self, n: int, *messages: Buffer) -> bool:
        """Deliver messages to client n. Whether it took them all."""
        client, fine = self.client(n), True
        for message in messages:
            before, had, self.stale = client.at, getattr(client.part, "result", None), False
            try:
                client.receive(message)
            except Stale:
                self.stale = True
                continue
            except ProtocolError as error:
                fine = False
                self.refusals[n].append(error)
                self.trace.append(("refuses", n, type(error).__name__, error.suspects, client.at.phase))
                if client.vouched and self.header(message).kind.name == "MEANS":
                    self._stopped.add((n, before.round))
            result = getattr(client.part, "result", None)
            if result is not None and result is not had:
                self._accepts(n, before)
        return fine

    def _accepts(self, n: int, at: Agreement) -> None:
        """Client n has means of a round: compare them with numpy's, over what the members sent."""
        number, table = self._given[n]
        self.accepted[n] = number
        if self._sets.setdefault(number, at.members) != at.members:
            self.twice.append(f"there are means of training round {number} over two sets of clients")
        part, sent = self.client(n).part, [self._used.get((v, at.union, at.round), {}) for v in at.members]
        without = part.without_mean if isinstance(part, KeyedClient) else ()
        for name, row in zip(table, self.parties.means(n, table), strict=True):
            rows = [each[name] for each in sent if name in each]
            right = bool(rows) and np.abs(row - np.mean(rows, axis=0)).max() <= self.params.resolution
            if name not in without and not right:
                self.wrong.append(f"client {n} accepts a wrong mean in the phase '{at.phase}'")
        if isinstance(part, KeyedClient):
            assert part.union is not None
            there = [part.names[i] for i in part.union.order]
            if any(name in without for name in there if name in table):
                self.wrong.append(f"client {n} believes that nobody has an entity that it owns itself")
            self._check_noise(n, at)
        if (n, at.round) in self._stopped:
            self.wrong.append(f"client {n} judges a second broadcast of a round, after it refused one")

    def _check_noise(self, n: int, at: Agreement) -> None:
        """There is the noise of T+1 clients in the means (K1), seen by what was uploaded."""
        round_ = [u for u in self.book.uploads.values() if u.at.round == at.round and u.at.union == at.union]
        noisy = {u.sender for u in round_ if u.noisy} & set(at.members)
        if len(noisy) <= self.params.T:
            self.wrong.append(f"client {n} accepts means with the noise of {len(noisy)} clients")

    def header(self, message: Buffer) -> Header:
        """The header of a message."""
        return Header.parse(message, SERVER, self.form.kinds)

    def payload(self, message: Buffer) -> bytes:
        """What a message says to whoever may read it."""
        header = self.header(message)
        if header.receiver == ALL:
            return bytes(message[HEADER_BYTES:-SIGNATURE_BYTES])
        key = self._channel(header).derive("seal", header.label())
        return bytes(Opener(key, header).open(header, message))

    def _channel(self, header: Header) -> Channel:
        """The channel that a sealed message goes through."""
        if SERVER in (header.sender, header.receiver):
            channels = self.server.link.channels
            return channels[header.receiver if header.sender == SERVER else header.sender]
        return self.client(header.receiver).link.channels[header.sender]

    def sends(self, n: int) -> list[bytes]:
        """What client n has to send now."""
        client, sent = self.client(n), []
        for message in map(bytes, client.outbox()):
            header = self.header(message)
            kind = header.kind.name
            alike = self.same_seeds and kind in ALIKE and isinstance(self.form, Keyed) and kind != "HELLO"
            said = hashlib.sha256(self.payload(message)).digest() if alike else b""
            self.trace.append(("sends", n, kind, header.receiver, len(message), said))
            if kind in ("UPLOAD", "SHARE") and n in self._given:
                self._used[n, client.at.union, client.at.round] = self._given[n][1]
            if isinstance(self.form, Keyed):
                self._note(n, header, message)
            if self._said.setdefault(header.label() + bytes([header.chunk]), message) != message:
                self.twice.append(f"client {n} says two things in one {kind.lower()}")
            sent.append(message)
        return sent

    def _note(self, n: int, header: Header, message: bytes) -> None:
        """Keep what a client sends, where it could be too much."""
        part, at, book = self.keyed(n), self.at(n), self.book
        match header.kind:
            case Kind.UPLOAD:
                book.upload(part, at, self.payload(message))
            case Kind.VOTE:
                book.vote(part, at)
            case Kind.OPENING:
                book.opening(part, at, self.payload(message))
            case Kind.PART:
                book.part(n, header.context, self.payload(message))
            case Kind.LIST:
                book.lists.setdefault(n, set()).add(self.payload(message))
            case Kind.EVALUATION:
                book.answer(part, header.receiver, at)

    def objections(self, since: int) -> dict[str, list[str]]:
        """What must not have been, so far; of sums only those of later training rounds than `since`."""
        book, p = self.book, self.params
        return {
            "wrong": list(self.wrong),
            "linked": self.linked + book.again + book.kept,
            "sums": self.twice + book.objections(p.clients, p.dropouts, p.T, since),
            "names": book.names(),
        }

    # ------------------------------------------------------------------------------------------ a server that follows

    def deliver(self) -> None:
        """Deliver what the server has for each client, or what the tap makes of it."""
        for n, inbox in self.server.drain().items():
            for message in inbox if n in self.here else ():
                self.hand(n, *self.tap(n, message))

    def collect(self) -> None:
        """Take what the members send."""
        for n in self.server.at.members:
            for message in self.sends(n) if n in self.here else ():
                try:
                    self.server.receive(n, message)
                except Stale:
                    continue
                except ProtocolError as error:
                    self.trace.append(("is refused", n, type(error).__name__))

    def step(self) -> bool:
        """One phase. Whether it came to its end."""
        self.collect()
        if not self.server.enough:
            return False
        table = self.server.at.phase == "table"
        try:
            self.server.close()
        except SecEAError:
            return False
        if table and isinstance(self.form, Keyed) and self.server.at.size != UNKNOWN:
            self._link(self.part.tags)
        self.deliver()
        return True

    def _link(self, tags: NDArray[np.uint64]) -> None:
        """Slots of two unions have nothing in common."""
        fresh = {int(tag) for tag in tags}
        if fresh & self._tags:
            self.linked.append(f"{len(fresh & self._tags)} slots of two unions have the same tags")
        self._tags |= fresh

    def run(self, phase: str, members: Iterable[int], until: str = REST) -> bool:
        """Begin a phase, and go on until the server is at rest. Whether it gets there."""
        if self.server.at.phase in (REST, GREETING) or self.parties.session.asks:
            self.server.begin(phase, members)
        self.deliver()
        while self.server.at.phase != until:
            if not self.step():
                return False
        return True

    def setup(self, until: str = REST) -> bool:
        """Hellos, and everything up to the first union."""
        for n in self.everyone:
            if self.server.link.incarnation(n) != self.client(n).link.hello.incarnation:
                self.server.receive(n, self.client(n).link.hello_message())
        return self.run(self.form.setup_phase, self.everyone, until)

    def union(self, members: Iterable[int] | None = None) -> bool:
        """A new union."""
        return self.run(self.form.union_phase, self.everyone if members is None else members)

    def train(self, number: int | None = None) -> None:
        """Everyone has other values, for the next training round or for this one."""
        self.number = self.number + 1 if number is None else number
        self.tables = tables_of(self.owners, len(self.everyone), self.number)

    def contribute(self, n: int) -> bool:
        """Client n has trained. Whether it can contribute."""
        try:
            self.client(n).contribute(self.tables[n], self.number)
        except FederationError as error:
            self.trace.append(("cannot contribute", n, type(error).__name__))
            return False
        self._given[n] = self.number, self.tables[n]
        return True

    def ask(self, members: Iterable[int] | None = None) -> bool:
        """Ask for what was trained, and hear who is ready."""
        members = self.server.at.participants if members is None else tuple(members)
        if not self.server.part.prepared(self.server.at) and not self.run(self.form.prepare_phase, members):
            return False
        self.server.begin(self.form.ready_phase, members)
        self.deliver()
        for n in members:
            if n in self.here:
                self.contribute(n)
        return self.step()

    def upload(self) -> bool:
        """Train, and let all upload: the server has every upload, and has said nothing of them."""
        self.train()
        if not self.ask():
            return False
        self.server.begin(self.form.round_phase, self.server.at.participants)
        self.deliver()
        self.collect()
        return True

    def round(self) -> bool:
        """A whole round. Whether the server came to its end."""
        self.train()
        return self.ask() and self.run(self.form.round_phase, self.server.at.participants)

    def other_names(self, n: int, names: Iterable[str]) -> None:
        """Client n has other entities from the next epoch of names on."""
        wanted, self.same_seeds = list(names), False
        self.client(n).part.update(wanted)
        for name in {*self.owners, *wanted}:
            others = [v for v in self.owners.get(name, ()) if v != n]
            self.owners[name] = tuple(sorted([*others, n] if name in wanted else others))

    def recover(self) -> None:
        """The server follows again: everyone comes back with a new union, and has right means of a round."""
        self.tap, self.here, server = untouched, set(self.everyone), self.server
        server.give_up()
        server.drain()
        for n in self.everyone:
            server.lost_touch(n)
        seen = [self.at(n) for n in self.everyone]
        server.at = replace(
            server.at, phase=REST, union=max(server.at.union, *(at.union for at in seen)),
            round=max(server.at.round, *(at.round for at in seen)), size=UNKNOWN,
        )  # fmt: skip
        if isinstance(self.form, Keyed) and not server.at.named:
            fine = self.run(self.form.setup_phase, self.everyone)
        elif isinstance(self.form, Keyed) and any(self.keyed(n).naming.pending for n in self.everyone):
            epoch = max(self.keyed(n).naming.names.asked for n in self.everyone)
            server.begin(self.form.names_phase, self.everyone, names=epoch)
            self.deliver()
            fine = self.run_on()
        else:
            fine = self.union()
        if not (fine and self.round() and all(self.accepted.get(n) == self.number for n in self.everyone)):
            raise AssertionError("after a deviation the federation does not work any more")

    def run_on(self) -> bool:
        """Go on with what was begun."""
        while self.server.at.phase != REST:
            if not self.step():
                return False
        return True

    # ------------------------------------------------------------------------------------------ a server that deviates

    def say(self, phase: str, members: Iterable[int], to: int, **more: Any) -> bool:
        """Announce a phase to one client. Whether it takes part."""
        return self.hand(to, announcement(self.parties, phase, members, to, **more))

    def show(self, n: int, kind: Kind, *payloads: bytes, size: int | None = None) -> bool:
        """Broadcast something to one client alone. Whether it goes on."""
        return self.hand(n, *broadcast(self.parties, n, kind, *payloads, size=size))

    def resealed(self, n: int, message: Buffer, payload: bytes | None = None, **label: Any) -> Buffer:
        """A message of the server's to client n, with another payload or label."""
        header = self.header(message)
        text = self.payload(message) if payload is None else payload
        changed = replace(header, **label)
        return bytes(self.server.link.channels[n].sealer(changed).seal(changed.chunk, text))

    def sent(self, n: int, kind: Kind) -> bytes | None:
        """What client n has to send of a kind now, as the server reads it."""
        for message in self.sends(n):
            if self.header(message).kind is kind:
                return self.payload(message)
        return None

    # -------------------------------------------------------------------------------------- votes and openings (keyed)

    @property
    def t(self) -> int:
        """t, by its definition: N-D."""
        return self.params.clients - self.params.dropouts

    def votes(self, U: Iterable[int], of: Iterable[int] | None = None) -> dict[int, bytes]:
        """Who signs that U is in the sum, of those who are asked."""
        U = tuple(sorted(U))
        signed = {n: self.sent(n, Kind.VOTE) for n in (U if of is None else of) if self.say("agree", U, n)}
        return {n: vote for n, vote in signed.items() if vote is not None}

    def shown(self, n: int, votes: Iterable[tuple[int, bytes]]) -> bool:
        """Show votes to one client, as many as it wants to see. Whether it opens."""
        layout = self.form.layout(Kind.VOTES, self.params, self.at(n), SERVER, n)
        some = list(votes)[: layout.payload_bytes(0) // (2 + SIGNATURE_BYTES)]
        return self.show(n, Kind.VOTES, b"".join(v.to_bytes(2, "little") + vote for v, vote in some))

    def openings(self, votes: Mapping[int, bytes]) -> dict[int, bytes]:
        """Show t votes to those who voted: what they open."""
        opened = {n: self.sent(n, Kind.OPENING) for n in votes if self.shown(n, votes.items())}
        return {n: data for n, data in opened.items() if data is not None}
