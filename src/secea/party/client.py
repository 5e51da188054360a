"""A client as a state machine: messages in, messages out. It follows the table of phases of its session's form.

`receive` takes one chunk: it is right and counts, or a `ProtocolError` names who could be at fault and nothing has
changed. `outbox` gives what the client has to send now. It is a function of the state: the same bytes each time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Self

from secea.errors import (
    SERVER,
    CallError,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ProtocolError,
    SnapshotError,
    Stale,
    party,
)
from secea.party.form import ClientPart
from secea.party.phases import (
    GREETING,
    MOST_AHEAD,
    MOST_ATTEMPTS,
    MOST_BEGUN,
    REST,
    STOPPED,
    UNKNOWN,
    Agreement,
    Begin,
    Common,
    Route,
    Row,
    Standing,
    row_of,
)
from secea.party.session import Session
from secea.table import TableLike
from secea.wire import snapshot
from secea.wire.keys import KEY_BYTES, Identity
from secea.wire.link import Link, Opened, Writer
from secea.wire.messages import ALL, DIGEST_BYTES, Buffer, Header
from secea.wire.randomness import Entropy

_SNAPSHOT: Final = "secea party client 1"
HASH_BYTES: Final = 32
ROWS_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Due:
    """What is still awaited in a phase, and what came."""

    waiting: frozenset[tuple[IntEnum, int]] = frozenset()
    """(kind, sender) of what has not come whole."""
    got: dict[tuple[IntEnum, int], bytes] = field(default_factory=dict, repr=False)
    parts: dict[tuple[IntEnum, int], tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    """The chunks of what has begun to come."""
    sends: tuple[Header, ...] = ()
    """The labels of what this client sends."""


class Client:
    """Client n of a session, with the names of its own entities."""

    def __init__(
        self,
        session: Session,
        number: int,
        identity: Identity,
        names: Iterable[object],
        entropy: Entropy = os.urandom,
    ) -> None:
        if number not in range(len(session.roster.clients)):
            raise CallError(f"there is no client {number!r}; the clients are 0..{session.params.clients - 1}")
        self.session = session
        form = session.form
        self.link = Link(session.hash, session.roster, form.kinds, number, identity, entropy)
        self.part: ClientPart = form.client(
            session.params, session.hash, session.roster, number, identity, names, entropy
        )
        self.at = Agreement()
        self.due = Due()
        self.vouched = False
        """Whether the last message was authentic, be it right or wrong."""
        self._running: hashlib._Hash | None = None  # the hash of the broadcast that is coming
        self._rows = 0  # and its number of rows

    def __repr__(self) -> str:
        return f"Client({self.number}, {self.at.phase}, union {self.at.union}, round {self.at.round})"

    @property
    def number(self) -> int:
        """n."""
        return self.link.number

    @property
    def row(self) -> Row:
        """The row of the table that this client is in."""
        return row_of(self.session.rows, self.at.phase)

    def overdue(self) -> ProtocolError | None:
        """What should have come by now, and who may have failed to send it. None where nothing is due."""
        where = f"in the phase '{self.at.phase}' of union {self.at.union}, round {self.at.round}"
        if self.at.phase in (REST, STOPPED, self.session.form.end_phase):
            return None
        if not self.due.waiting:
            return FaultyPeer(SERVER, f"did not say who takes part {where}")
        kinds = sorted({kind.name.lower() for kind, _ in self.due.waiting})
        senders = sorted({n for _, n in self.due.waiting if n != SERVER})
        return ProtocolError((SERVER, *senders), f"did not send all of {', '.join(kinds)} {where}")

    # ---------------------------------------------------------------------------------------------------- receiving

    def receive(self, message: Buffer) -> None:
        """Take one chunk that the server handed over."""
        self.vouched = False
        header = self.link.parse(message, SERVER)
        if header.kind == Common.HELLO:
            self._hello(header, message)
            return
        if header.sender == self.number:
            raise FaultyPeer(SERVER, "hands us a message of our own")
        self.link.check_fresh(header)
        if header.kind == Common.BEGIN:
            self._begin(self._opened(header, message))
            return
        self._require(header)
        opened = self._opened(header, message)
        if header.kind == Common.KEY:
            self._got_key(opened)
        elif header.kind == Common.DIGEST:
            self._got_digest(opened)
        else:
            self._got(opened, message)

    def _opened(self, header: Header, message: Buffer) -> Opened:
        opened = self.link.open(header, message)
        self.vouched = True
        return opened

    def _hello(self, header: Header, message: Buffer) -> None:
        if header.receiver != ALL:
            raise FaultyPeer(SERVER, "hands us a hello that is not for everybody")
        if header.sender == self.number:
            raise Stale((SERVER,), "our own hello")
        self.link.greet(header, message)

    def _require(self, header: Header) -> None:
        """The label is the one that is due now."""
        for name, value in (self.at.numbers | {"context": self.at.context}).items():
            if getattr(header, name) != value:
                what = "other members or another union than ours" if name == "context" else f"another {name}"
                raise self.link.unauthentic(header.sender, f"{header.title} was made for {what}")
        if header.kind in (Common.KEY, Common.DIGEST):
            due = header.sender == SERVER
        else:
            due = (header.kind, header.sender) in self.due.waiting
        if not due:
            raise self.link.unauthentic(header.sender, f"{header.title} is not due in the phase '{self.at.phase}'")
        if not self._on_its_way(header):
            raise self.link.unauthentic(header.sender, f"{header.title} took another way than its kind")

    def _on_its_way(self, header: Header) -> bool:
        """Whether the message took the way of its kind: a signed one is for all, a sealed one for us."""
        routes = self.session.form.routes
        open_to_all = header.kind in routes and routes[header.kind] is not Route.EACH
        return header.receiver == (ALL if open_to_all else self.number)

    def _whole(self, opened: Opened, size: int) -> None:
        if opened.header.chunks != 1 or len(opened.payload) != size:
            raise FaultyPeer(SERVER, f"{opened.header.title} has {len(opened.payload)} bytes instead of {size}")

    def _begin(self, opened: Opened) -> None:
        """The server says what begins, and who takes part. Numbers only grow; members are those we know."""
        header, session, before = opened.header, self.session, self.at
        if header.sender != SERVER or header.receiver != self.number:
            raise self.link.unauthentic(header.sender, f"{header.title} is for the server to say")
        try:
            begin = Begin.parse(opened.payload, len(session.roster.clients))
            row = session.rows[begin.phase]
        except (ValueError, IndexError) as error:
            raise FaultyPeer(SERVER, f"{header.title} cannot be read: {error}") from None
        numbers = {name: getattr(header, name) for name in before.numbers}
        if not row.announced or header.chunks != 1:
            raise FaultyPeer(SERVER, f"announces the phase '{row.phase}', which is not announced")
        if before.phase == STOPPED and row.counts != "union":
            raise FaultyPeer(SERVER, f"announces the phase '{row.phase}' of a union in which we stopped")
        if not _next(row, before, header):
            raise FaultyPeer(SERVER, f"announces union {header.epoch}, round {header.round}; these are not next")
        if self.number not in begin.clients:
            raise FaultyPeer(SERVER, "announces a phase to us in which we have no part")
        for n, life in begin.members:
            if self.link.incarnation(n) != life:
                raise FaultyPeerOrRelay(n, "is announced in another life than the one whose hello we have")
        anchor = self.part.anchor(row.phase, before)
        if header.context != anchor:
            raise FaultyPeer(SERVER, f"{header.title} was made for another union than ours")
        at = begin.agreed(row.phase, before, numbers, anchor)
        try:
            self.part.check_begin(at)
        except ValueError as error:
            raise FaultyPeer(SERVER, str(error)) from None
        if row.phase == session.form.union_phase:
            at = replace(at, named=at.names)  # epochs of names that passed while we were away are none of ours
        self.link.take(opened)
        self._enter(at)

    def _got_key(self, opened: Opened) -> None:
        """The key of the broadcast that follows, the name of its label, and its number of rows."""
        self._whole(opened, KEY_BYTES + DIGEST_BYTES + ROWS_BYTES)
        payload = bytes(opened.payload)
        rows, most = int.from_bytes(payload[-ROWS_BYTES:], "little"), self.session.params.max_union or 0
        if self._running is not None:
            raise FaultyPeer(SERVER, "sends a second key before a broadcast ended")
        if rows > most or (self.at.size != UNKNOWN and rows != self.at.size):
            raise FaultyPeer(SERVER, f"announces a union of {rows} entities; at most {most} are allowed")
        self._running, self._rows = hashlib.sha256(), rows
        self.link.expect(payload[KEY_BYTES:-ROWS_BYTES], payload[:KEY_BYTES])
        self.link.take(opened)

    def _got_digest(self, opened: Opened) -> None:
        """The hash of the whole broadcast: only now does it count."""
        self._whole(opened, HASH_BYTES)
        complete = [kind for kind in self.row.answers if (kind, SERVER) in self.due.got]
        if self._running is None or not complete:
            raise FaultyPeer(SERVER, "sends the hash of a broadcast that did not come")
        if not hmac.compare_digest(self._running.digest(), bytes(opened.payload)):
            self.stop()
            raise FaultyPeer(SERVER, "sent others another broadcast than us")
        self.link.take(opened)
        self._running = None
        self._arrived((complete[-1], SERVER))

    def _got(self, opened: Opened, message: Buffer) -> None:
        """A chunk of something that is awaited."""
        header, form, params = opened.header, self.session.form, self.session.params
        place = (header.kind, header.sender)
        at = replace(self.at, size=self._rows) if header.sender == SERVER else self.at
        layout = form.layout(header.kind, params, at, header.sender)
        size = layout.payload_bytes(header.chunk) if header.chunks == layout.chunks else -1
        if size != len(opened.payload):
            fault = f"{header.title} has {len(opened.payload)} bytes, which is not what is due"
            raise FaultyPeer(header.sender, fault)
        if header.sender == SERVER and self._running is not None:
            self._running.update(message)
        if header.kind in form.streamed:
            try:
                self.part.stream(header.kind, header.chunk, opened.payload, self.at)
            except ProtocolError:
                self.stop()
                raise
        before = self.due.parts.get(place, ()) if header.chunk else ()  # what is begun anew counts alone
        parts = (*before, b"" if header.kind in form.streamed else bytes(opened.payload))
        self.link.take(opened)
        self.due.parts[place] = parts
        if header.chunk + 1 == header.chunks:
            self.due = replace(self.due, got=self.due.got | {place: b"".join(parts)})
            if header.sender != SERVER:  # a broadcast counts when its hash has come
                self._arrived(place)

    def _arrived(self, place: tuple[IntEnum, int]) -> None:
        self.due = replace(self.due, waiting=self.due.waiting - {place})
        if self.due.waiting:
            return
        try:
            at = self.part.finish(self.at, self.due.got)
        except ProtocolError:
            self.stop()
            raise
        self._enter(replace(at, phase=self._after(self.row)))

    def _after(self, row: Row) -> str:
        """The phase that follows by itself: none where the server says who goes on."""
        return REST if row_of(self.session.rows, row.then).decides else row.then

    # ------------------------------------------------------------------------------------------------------- phases

    def _enter(self, at: Agreement) -> None:
        """A phase begins: what it sends is labelled now, and what it waits for is known."""
        form, params, me = self.session.form, self.session.params, self.number
        row = row_of(self.session.rows, at.phase)
        self.part.enter(at)
        waiting: set[tuple[IntEnum, int]] = set()
        for kind in row.sends:
            if form.routes[kind] is not Route.SERVER and me in form.receivers(kind, params, at):
                waiting |= {(kind, v) for v in form.senders(kind, params, at) if v != me}
        waiting |= {(kind, SERVER) for kind in row.answers if me in form.receivers(kind, params, at)}
        mine = [kind for kind in row.sends if me in form.senders(kind, params, at)]
        labels = tuple(self.link.label(kind, at.numbers, at.context) for kind in mine)
        self.at, self.due, self._running = at, Due(frozenset(waiting), sends=labels), None
        if row.sends and not waiting and not mine and row.then != at.phase:
            self._enter(replace(self.part.finish(at, {}), phase=self._after(row)))

    @property
    def asked(self) -> bool:
        """Whether the server asks for training, and nothing was contributed yet."""
        return self.at.phase == self.session.form.ready_phase and not self.part.trained

    def contribute(self, table: TableLike, round: int) -> None:
        """What this client trained in a training round. It says that it is ready, and uploads when all are."""
        if not self.asked:
            raise FederationError(f"{party(self.number)} was not asked for a table: it is in '{self.at.phase}'")
        self.part.contribute(table, round, self.at)

    @property
    def standing(self) -> Standing:
        """Where this client stands, for a server that calls it."""
        at = self.at
        settled = at.union if at.phase not in (GREETING, STOPPED, self.session.form.end_phase) else 0
        return Standing(settled, at.union, at.names, at.named, at.round, at.base)

    def stop(self) -> None:
        """Give up what goes on: nothing more is sent or taken until the server begins anew."""
        self.at, self.due, self._running = replace(self.at, phase=STOPPED), Due(), None

    # ----------------------------------------------------------------------------------------------------- restarts

    def save(self) -> bytes:
        """What must survive a restart; save it before anything leaves. It holds keys: keep it secret."""
        plain = {"what": _SNAPSHOT, "session": self.session.hash, "number": self.number}
        return snapshot.dumps(plain | {"at": self.at.plain(), "part": self.part.plain()})

    @classmethod
    def restore(cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom) -> Self:
        """The client that was saved, in a new life: it says hello again, and takes part from the next union on."""
        content = snapshot.loads(data)
        with snapshot.reading():
            if content["what"] != _SNAPSHOT or content["session"] != session.hash:
                raise SnapshotError(
                    "saved state is of another session or version: roster and parameters must be the same"
                )
            number = content["number"]
            if identity.public != session.roster.key(number):
                raise SnapshotError(f"this is saved state of {party(number)}: restore it with the identity of that one")
            client = cls(session, number, identity, (), entropy)
            client.at = Agreement.resumed(content["at"])
            client.part.restore(content["part"])
        return client

    # ------------------------------------------------------------------------------------------------------ sending

    def outbox(self) -> Iterator[Buffer]:
        """What this client has to send now."""
        if self.at.phase == GREETING:
            yield self.link.hello_message()
        if self.asked:
            return
        for label in self.due.sends:
            yield from self._messages(label)

    def _messages(self, label: Header) -> Iterator[Buffer]:
        form, params, at = self.session.form, self.session.params, self.at
        kind = label.kind
        chunks = form.layout(kind, params, at, self.number).chunks
        writers: list[tuple[int, Writer]]
        match form.routes[kind]:
            case Route.SERVER:
                writers = [(SERVER, self.link.sealer(label, SERVER, chunks))]
            case Route.ALL:
                writers = [(ALL, self.link.signer(label, chunks))]
            case _:
                others = [v for v in form.receivers(kind, params, at) if v != self.number]
                writers = [(v, self.link.sealer(label, v, chunks)) for v in others]
        for receiver, writer in writers:
            for chunk, parts in enumerate(self.part.payload(kind, receiver, at)):
                yield writer.seal(chunk, *parts)


def _next(row: Row, before: Agreement, header: Header) -> bool:
    """Whether the numbers of an announcement follow ours: of the same round or another one, or of another union."""
    if row.counts != "union":
        same = replace(before, round=header.round).numbers
        next_round = header.round > before.round if row.counts == "round" else header.round == before.round
        return next_round and all(getattr(header, name) == value for name, value in same.items())
    fits = header.attempt < MOST_ATTEMPTS and header.epoch <= min(before.union + MOST_AHEAD, MOST_BEGUN - 1)
    return fits and header.epoch > before.union and header.round >= before.round  # who was absent has missed rounds
