"""A client as a state machine: messages in, messages out. It follows the table of phases of its session's form.

`receive` takes one chunk of a message. Either the chunk is right and counts, or a `ProtocolError` names who could be at
fault and nothing changes. `outbox` gives what the client has to send now. It depends only on the state, so it gives the
same bytes each time. Engines use it through `secea.engines.host`, or directly when all parties run in one process.
"""

from __future__ import annotations

import hmac
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, Self

from secea.errors import (
    SERVER,
    CallError,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ProtocolError,
    SnapshotError,
    party,
)
from secea.party.form import HAD, ClientPart, Retry
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
)
from secea.party.session import Session
from secea.table import TableLike
from secea.wire import snapshot
from secea.wire.keys import KEY_BYTES, Identity, Mac
from secea.wire.link import Opened, Writer
from secea.wire.messages import ALL, DIGEST_BYTES, TAG_BYTES, Buffer, Header
from secea.wire.randomness import Entropy

_SNAPSHOT: Final = "secea party client 1"
ROWS_BYTES: Final = 8


@dataclass(slots=True)
class Due:
    """What is still awaited in a phase, and what has arrived."""

    waiting: set[tuple[IntEnum, int]] = field(default_factory=set)
    """(kind, sender) of messages that have not arrived completely."""
    got: dict[tuple[IntEnum, int], bytes] = field(default_factory=dict, repr=False)
    parts: dict[tuple[IntEnum, int], bytearray] = field(default_factory=dict, repr=False)
    """Messages that have arrived in part. They grow in place, since chunks may be many and small."""
    sends: tuple[Header, ...] = ()
    """The labels of what this client sends."""
    salts: Mapping[int, bytes] = field(default_factory=dict)
    """The salts of the messages that count, once the server has said whose messages count."""


class Client:
    """Client n of a session, with the names of its own entities."""

    def __init__(
        self,
        session: Session,
        number: int,
        identity: Identity,
        names: Iterable[object],
        entropy: Entropy = os.urandom,
        *,
        saved: dict[str, Any] | None = None,
    ) -> None:
        """`saved` is the state that this client's part saved in an earlier life."""
        if number not in range(len(session.roster.clients)):
            raise CallError(f"there is no client {number!r}; the clients are 0..{session.params.clients - 1}")
        self.session = session
        form = session.form
        self.part: ClientPart = form.client(
            session.params, session.hash, session.roster, number, identity, names, entropy
        )
        if saved is not None:
            self.part.restore(saved)
        self.link = self.part.link = session.link(number, identity, entropy, self.part.introduction)
        self.at = Agreement()
        self.due = Due()
        self.vouched = False
        """Whether the last message was authentic, even if it was wrong."""
        self._running: Mac | None = None  # over the broadcast that is coming
        self._rows = 0  # and its number of rows

    def __repr__(self) -> str:
        return f"Client({self.number}, {self.at.phase}, union {self.at.union}, round {self.at.round})"

    @property
    def number(self) -> int:
        """The number of this client, n."""
        return self.link.number

    @property
    def row(self) -> Row:
        """The row of this client's present phase."""
        return self.session.row(self.at.phase)

    def overdue(self) -> ProtocolError | None:
        """An error with what should have arrived by now and who may not have sent it. None if nothing is due."""
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
        """Take one chunk that the server delivered."""
        self.vouched = False
        header = self.link.parse(message, SERVER)
        kind = header.kind.name
        if header.sender == self.number:
            raise FaultyPeer(SERVER, "hands us a message of our own")
        if kind == Common.HELLO and header.receiver == ALL:
            self.link.greet(header, message)
            return
        self.link.check_fresh(header)
        if kind == Common.BEGIN:
            self._begin(self._opened(header, message))
            return
        self._require(header)
        opened = self._opened(header, message)
        if kind == Common.KEY:
            self._got_key(opened)
        elif kind == Common.DIGEST:
            self._got_digest(opened)
        else:
            self._got(opened, message)

    def _opened(self, header: Header, message: Buffer) -> Opened:
        opened = self.link.open(header, message)
        self.vouched = True
        return opened

    def _require(self, header: Header) -> None:
        """Check that a message with this label is due now."""
        self._require_label(header)
        if header.kind.name in (Common.KEY, Common.DIGEST):
            due = header.sender == SERVER
        else:
            due = (header.kind, header.sender) in self.due.waiting
        if not due:
            raise self.link.unauthentic(header.sender, f"{header.title} is not due in the phase '{self.at.phase}'")
        if self.due.salts and header.sender != SERVER and header.salt != self.due.salts[header.sender]:
            raise self.link.unauthentic(header.sender, f"{header.title} is not the one that counts")
        if not self._on_its_way(header):
            raise self.link.unauthentic(header.sender, f"{header.title} took another way than its kind")

    def _require_label(self, header: Header) -> None:
        """Check that numbers and context are those of the present phase."""
        for name, value in (self.session.form.label(header.kind, self.at) | {"context": self.at.context}).items():
            if getattr(header, name) != value:
                what = "other members or another union than ours" if name == "context" else f"another {name}"
                raise self.link.unauthentic(header.sender, f"{header.title} was made for {what}")

    def _on_its_way(self, header: Header) -> bool:
        """Whether the message took the route of its kind: signed messages are for all, sealed ones for us."""
        routes = self.session.form.routes
        open_to_all = routes.get(header.kind) in (Route.ALL, Route.BROADCAST)
        return header.receiver == (ALL if open_to_all else self.number)

    def _whole(self, opened: Opened, size: int) -> None:
        if opened.header.chunks != 1 or len(opened.payload) != size:
            raise FaultyPeer(SERVER, f"{opened.header.title} has {len(opened.payload)} bytes instead of {size}")

    def _begin(self, opened: Opened) -> None:
        """The server announces a phase and its members. Check that numbers grow, and that we know the members."""
        header, session, before = opened.header, self.session, self.at
        if header.sender != SERVER or header.receiver != self.number:
            raise self.link.unauthentic(header.sender, f"{header.title} is for the server to say")
        try:
            begin = Begin.parse(opened.payload, len(session.roster.clients))
        except ValueError as error:
            raise FaultyPeer(SERVER, f"{header.title} cannot be read: {error}") from None
        if self.row.settles and begin.phase == self.row.settles:
            self._settle(opened, begin)
            return
        before = self._said
        if begin.phase >= len(session.rows):
            raise FaultyPeer(SERVER, f"{header.title} names a phase that does not exist")
        row = session.rows[begin.phase]
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
                if n == self.number:
                    raise FaultyPeer(SERVER, "announces us in another life than ours")
                raise FaultyPeerOrRelay(n, "is announced in another life than the one whose hello we have")
        anchor = self.part.anchor(row.phase, before)
        if header.context != anchor:
            raise FaultyPeer(SERVER, f"{header.title} was made for another union than ours")
        context = session.form.begun(anchor, row.phase, numbers, begin.to_bytes())
        at = begin.agreed(row.phase, before, numbers, context)
        self._check_begin(at)
        to_come = row.phase == session.form.ready_phase
        if at.round + to_come > session.params.rounds or at.names > min(session.form.last_epoch, at.union):
            raise FaultyPeer(SERVER, f"{header.title} has numbers that this session does not have")
        if row.phase == session.form.union_phase:
            at = replace(at, named=at.names)  # epochs of names that passed while we were away do not concern us
        self.link.take(opened)
        self._enter(at)

    def _check_begin(self, at: Agreement) -> None:
        try:
            self.part.check_begin(at)
        except ValueError as error:
            raise FaultyPeer(SERVER, str(error)) from None

    def _settle(self, opened: Opened, begin: Begin) -> None:
        """The server says whose messages of this phase count, including ours. Those messages follow."""
        header, row, members = opened.header, self.row, dict(begin.members)
        self._require_label(header)
        if header.chunks != 1 or self.due.salts:
            raise FaultyPeer(SERVER, f"says twice whose messages count in the phase '{row.phase}'")
        if self.number not in members or not members.keys() <= set(self.at.members):
            raise FaultyPeer(SERVER, f"says that the messages of {list(members)} count in the phase '{row.phase}'")
        ours = self.due.sends[0]
        if ours.kind not in row.sends or members[self.number] != ours.salt:
            raise FaultyPeer(SERVER, f"counts another message of ours in the phase '{row.phase}' than the one we sent")
        at = replace(self.at, members=begin.clients, word=begin.to_bytes())
        self._check_begin(at)
        self.link.take(opened)
        self.at, self.due.salts, self.due.sends = at, members, ()
        self.due.waiting = {(kind, v) for kind in row.sends for v in begin.clients if v != self.number}
        if not self.due.waiting:
            self._finish()

    def _got_key(self, opened: Opened) -> None:
        """Take the key of the broadcast that follows, the digest of its label, and its number of rows."""
        self._whole(opened, KEY_BYTES + DIGEST_BYTES + ROWS_BYTES)
        payload = bytes(opened.payload)
        rows, most = int.from_bytes(payload[-ROWS_BYTES:], "little"), self.session.params.max_union or 0
        if self._running is not None:
            raise FaultyPeer(SERVER, "sends a second key before a broadcast ended")
        if rows > most or (self.at.size != UNKNOWN and rows != self.at.size):
            raise FaultyPeer(SERVER, f"announces a union of {rows} entities; at most {most} are allowed")
        name = payload[KEY_BYTES:-ROWS_BYTES]
        self._running, self._rows = self.link.mac(SERVER, name), rows
        self.link.expect(name, payload[:KEY_BYTES])
        self.link.take(opened)

    def _got_digest(self, opened: Opened) -> None:
        """Take the tag of the whole broadcast. Only now does the broadcast count."""
        self._whole(opened, TAG_BYTES)
        complete = [kind for kind in self.row.answers if (kind, SERVER) in self.due.got]
        if self._running is None or not complete:
            raise FaultyPeer(SERVER, "sends the tag of a broadcast that did not come")
        if not hmac.compare_digest(self._running.digest(), bytes(opened.payload)):
            self.stop()
            raise FaultyPeer(SERVER, "sent others another broadcast than us")
        self.link.take(opened)
        self._running = None
        self._arrived((complete[-1], SERVER))

    def _got(self, opened: Opened, message: Buffer) -> None:
        """Take a chunk of a message that is awaited."""
        header, form, params = opened.header, self.session.form, self.session.params
        place = (header.kind, header.sender)
        broadcast = form.routes[header.kind] is Route.BROADCAST
        at = replace(self.at, size=self._rows) if broadcast else self.at
        if header.chunk == 0 and place in self.due.parts and header.kind in form.streamed:
            self.stop()  # a streamed message cannot be sent twice, so that nobody can vary it and compare
            raise FaultyPeer(header.sender, f"{header.title} is begun a second time")
        if header.kind not in form.unsized:
            layout = form.layout(header.kind, params, at, header.sender, self.number)
            size = layout.payload_bytes(header.chunk) if header.chunks == layout.chunks else -1
            if size != len(opened.payload):
                fault = f"{header.title} has {len(opened.payload)} bytes, which is not what is due"
                raise FaultyPeer(header.sender, fault)
        if broadcast and self._running is not None:
            self._running.update(message)
        if header.kind in form.streamed:
            try:
                self.part.stream(header.kind, header.sender, header.chunk, header.chunks, opened.payload, self.at)
            except ProtocolError:
                self.stop()
                raise
            except ValueError as error:
                self.stop()
                raise FaultyPeer(header.sender, f"{header.title} cannot be right: {error}") from None
        self.link.take(opened)
        if header.chunk == 0:  # if a message is begun again, only the new one counts
            self.due.parts[place] = bytearray()
        if header.kind not in form.streamed:
            self.due.parts[place] += opened.payload
        if header.chunk + 1 == header.chunks:
            self.due.got[place] = bytes(self.due.parts.pop(place))
            if not broadcast:  # a broadcast counts when its tag has come
                self._arrived(place)

    def _arrived(self, place: tuple[IntEnum, int]) -> None:
        self.due.waiting.discard(place)
        if not self.due.waiting:
            self._finish()

    def _finish(self) -> None:
        """Everything of a phase has arrived."""
        try:
            at = self.part.finish(self.at, self.due.got)
        except ProtocolError:
            self.stop()
            raise
        self._enter(replace(at, phase=self._after(self.row)))

    def _after(self, row: Row) -> str:
        """The phase that follows by itself. `REST` if the server has to say who continues."""
        return REST if self.session.row(row.then).decides else row.then

    # ------------------------------------------------------------------------------------------------------- phases

    def _enter(self, at: Agreement) -> None:
        """Begin a phase: label what is to be sent, and note what to wait for."""
        form, params, me = self.session.form, self.session.params, self.number
        row, at = self.session.row(at.phase), replace(at, word=b"")
        mine = [kind for kind in row.sends if me in form.senders(kind, params, at)]
        try:
            self.part.enter(at)
        except Retry:
            assert row.instead is not None
            mine = [row.instead]
        waiting: set[tuple[IntEnum, int]] = set()
        for kind in () if row.settles else row.sends:  # otherwise the server first says whose messages count
            if form.routes[kind] is not Route.SERVER and me in form.receivers(kind, params, at):
                waiting |= {(kind, v) for v in form.senders(kind, params, at) if v != me}
        waiting |= {(kind, SERVER) for kind in row.answers if me in form.receivers(kind, params, at)}
        labels = tuple(self.link.label(kind, form.label(kind, at), at.context) for kind in mine)
        self.at, self.due, self._running = at, Due(waiting, sends=labels), None
        if row.sends and not waiting and not mine and row.then != at.phase:
            self._enter(replace(self.part.finish(at, {}), phase=self._after(row)))

    @property
    def asked(self) -> bool:
        """Whether this client should train and contribute now, and has not yet done so.

        In some forms the server asks for it in a message. In others a client may begin without being asked.
        """
        at, phase = self.at, self.session.form.ready_phase
        if not self.session.asks:
            return at.phase == REST and at.size != UNKNOWN and not self.part.unsettled
        return at.phase == phase and not self.part.trained

    def contribute(self, table: TableLike, round: int) -> None:
        """Contribute the table of a training round. The client then says it is ready, and uploads when all are."""
        if not self.asked:
            raise FederationError(f"{party(self.number)} was not asked for a table: it is in '{self.at.phase}'")
        self.part.contribute(table, round, self.at)
        if self.at.phase == REST:
            self._enter(replace(self.at, phase=self.session.form.ready_phase, round=self.at.round + 1))

    @property
    def _said(self) -> Agreement:
        """The state by the server's word. A round that the client began on its own does not count yet."""
        alone = self.row.silent and not self.due.salts
        return replace(self.at, round=self.at.round - 1) if alone else self.at

    @property
    def standing(self) -> Standing:
        """The client's position in the session, for a server that calls it."""
        at = self._said
        over = at.phase in (GREETING, STOPPED, self.session.form.end_phase) or self.part.unsettled
        settled = 0 if over else at.union
        return Standing(settled, at.union, at.names, at.named, at.round, at.base)

    def stop(self) -> None:
        """Give up the present phase. Nothing is sent or taken until the server begins again."""
        self.at, self.due, self._running = replace(self._said, phase=STOPPED), Due(), None

    # ----------------------------------------------------------------------------------------------------- restarts

    def save(self) -> bytes:
        """What must survive a restart. Save it before anything is sent. It contains keys, so keep it secret."""
        plain = {"what": _SNAPSHOT, "session": self.session.hash, "number": self.number}
        return snapshot.dumps(plain | {"at": self._said.plain(), "part": self.part.plain()})

    @classmethod
    def restore(cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom) -> Self:
        """Restore a saved client, in a new life. It says hello again, and takes part from the next union on."""
        content = snapshot.loads(data)
        with snapshot.reading():
            if content["what"] != _SNAPSHOT or content["session"] != session.hash:
                raise SnapshotError(
                    "saved state is of another session or version: roster and parameters must be the same"
                )
            number = content["number"]
            if identity.public != session.roster.key(number):
                raise SnapshotError(f"this is saved state of {party(number)}: restore it with that client's identity")
            client = cls(session, number, identity, (), entropy, saved=content["part"])
            client.at = Agreement.resumed(content["at"])
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
        match form.routes[kind]:
            case Route.SERVER:
                receivers = [SERVER]
            case Route.ALL:
                receivers = [ALL]
            case _:
                receivers = [v for v in form.receivers(kind, params, at) if v != self.number]
        writers: dict[int, Writer] = {}
        for v in receivers:
            chunks = form.layout(kind, params, at, self.number, v).chunks
            writers[v] = self.link.signer(label, chunks) if v == ALL else self.link.sealer(label, v, chunks)
        sent: Counter[int] = Counter()
        for receiver, parts in self.part.payloads(kind, receivers, at):
            if parts is not HAD:
                yield writers[receiver].seal(sent[receiver], *parts)
            sent[receiver] += 1


def _next(row: Row, before: Agreement, header: Header) -> bool:
    """Whether the numbers of an announcement follow ours: for the same round, a later one, or another union."""
    if row.counts != "union":
        same = replace(before, round=header.round).numbers
        next_round = header.round > before.round if row.counts == "round" else header.round == before.round
        return next_round and all(getattr(header, name) == value for name, value in same.items())
    fits = header.attempt < MOST_ATTEMPTS and header.epoch <= min(before.union + MOST_AHEAD, MOST_BEGUN - 1)
    return fits and header.epoch > before.union and header.round >= before.round  # absent clients have missed rounds
