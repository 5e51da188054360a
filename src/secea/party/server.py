"""The server as a state machine: it says who takes part, relays what it cannot read, and computes under masks.

`receive` takes one chunk from a client: it is right and counts, or a `ProtocolError` names who is at fault and nothing
has changed. `close` ends a phase when everything has come. `drain` gives what is to be delivered, and keeps none of it.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Self

from secea.errors import SERVER, FaultyPeer, FederationError, ProtocolError, RoundLost, SnapshotError, Stale, party
from secea.party.client import ROWS_BYTES
from secea.party.form import HELD_BYTES, Retry, ServerPart
from secea.party.phases import (
    GREETING,
    MOST_ATTEMPTS,
    REST,
    UNKNOWN,
    Agreement,
    Begin,
    Common,
    Route,
    Row,
    Standing,
)
from secea.party.session import Session
from secea.wire import snapshot
from secea.wire.keys import KEY_BYTES, Identity, Mac
from secea.wire.link import Writer, broadcast_name, overhead
from secea.wire.messages import ALL, NO_CONTEXT, SALT_BYTES, Buffer, Header
from secea.wire.randomness import Entropy

_SNAPSHOT: Final = "secea party server 1"


@dataclass(frozen=True, slots=True)
class Collected:
    """How far each client is in a phase, and what came whole."""

    progress: dict[tuple[IntEnum, int, int], int] = field(default_factory=dict)
    """Chunks by (kind, sender, receiver)."""
    whole: set[tuple[IntEnum, int, int]] = field(default_factory=set)
    """(kind, sender, receiver) of what has come to its last chunk."""
    labels: dict[tuple[IntEnum, int], bytes] = field(default_factory=dict)
    """The salt of what each client sends: one try at a message is not mixed with another."""
    parts: dict[tuple[IntEnum, int], bytearray] = field(default_factory=dict, repr=False)
    """Messages that have arrived in part."""
    got: dict[tuple[IntEnum, int], bytes] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class _Broadcast:
    """A broadcast on its way."""

    label: Header
    sealer: Writer
    chunks: int
    running: Mapping[int, Mac]
    """For each receiver."""
    sent: int = 0


@dataclass(slots=True)
class _Letter:
    """What goes to one client, sealed for it, on its way."""

    sealer: Writer
    sent: int = 0


class Server:
    """The server of a session."""

    def __init__(self, session: Session, identity: Identity, entropy: Entropy = os.urandom) -> None:
        self.session = session
        self.part: ServerPart = session.form.server(session.params, session.hash)
        self.link = self.part.link = session.link(SERVER, identity, entropy)
        self.at = Agreement()
        self.collected = Collected()
        self.lost: frozenset[int] = frozenset()
        """Rounds that some client began and that gave no means."""
        self._hellos: dict[int, bytes] = {}
        self._introduced: set[tuple[int, bytes, int, bytes]] = set()  # whose hello, in which life, went to whom
        self._queue: deque[tuple[int, Buffer]] = deque()
        self._queued = 0  # bytes of broadcasts that went into it since it was empty
        self._held: list[tuple[int, int, Buffer]] = []  # (receiver, sender, what is passed on at the end of a phase)
        self._broadcasts: dict[IntEnum, _Broadcast] = {}
        self._labels: dict[IntEnum, Header] = {}  # of what is sealed for each
        self._letters: dict[tuple[IntEnum, int], _Letter] = {}

    def __repr__(self) -> str:
        return f"Server({self.at.phase}, union {self.at.union}, round {self.at.round})"

    @property
    def row(self) -> Row:
        """The row of the table that the server is in."""
        return self.session.row(self.at.phase)

    @property
    def M(self) -> int:
        """The size of the union; 0 if there is none."""
        return max(0, self.at.size)

    # ------------------------------------------------------------------------------------------------------- phases

    def begin(self, phase: str, members: Iterable[int], *, again: bool = False, names: int = 0) -> None:
        """Announce a phase to those who take part in it, or begin it without a word where the table says so.

        `again`: what was tried before stalled. `names`: an epoch of names that is repeated.
        """
        form, clients = self.session.form, tuple(sorted(members))
        if unknown := [n for n in clients if n not in self.link.peers]:
            raise FederationError(f"no hello came from {', '.join(map(party, unknown))}")
        numbers = form.next_numbers(phase, self.at, again=again)
        if names:
            numbers["weights"] = names
        index = next(i for i, row in enumerate(self.session.rows) if row.phase == phase)
        begin = Begin(index, tuple((n, self.link.incarnation(n)) for n in clients))
        fewest = form.fewest(self.session.params, phase, numbers["weights"])
        to_come = phase == form.ready_phase and self.session.asks  # nobody trains for a round that there is not
        if numbers["round"] + to_come > self.session.params.rounds:
            raise FederationError(f"all {self.session.params.rounds} rounds of this session are used: begin a new one")
        if len(clients) < fewest:
            here = f"only {len(clients)} {'is' if len(clients) == 1 else 'are'} here"
            raise FederationError(f"{self._purpose(phase, numbers['weights'])} needs {fewest} clients, and {here}")
        if self.session.rows[index].silent:
            self._enter(replace(self.at, phase=phase, members=clients, round=numbers["round"]))
            return
        anchor = self.part.anchor(phase, self.at)
        context = form.begun(anchor, phase, numbers, begin.to_bytes())
        for n in clients:
            self._introduce(n, clients)
        self._say(begin, numbers, anchor)
        self._enter(begin.agreed(phase, self.at, numbers, context))

    def _say(self, begin: Begin, numbers: dict[str, int], context: bytes) -> None:
        """The server's word to those whom it names."""
        label = self.link.label(self.session.form.kinds[Common.BEGIN], numbers, context)
        for n in begin.clients:
            self._queue.append((n, self.link.sealer(label, n).seal(0, begin.to_bytes())))

    def _purpose(self, phase: str, names: int) -> str:
        """What an announced phase is for, as users call it; `names` is its epoch of names."""
        form = self.session.form
        if phase == form.setup_phase or (phase == form.names_phase and names <= 1):
            return "the set-up"
        return "a change of entities" if phase == form.names_phase else "a round"

    def _introduce(self, n: int, members: Sequence[int]) -> None:
        """The hellos that client n has not seen, the server's first."""
        me = self.link.incarnation(n)
        for v in (SERVER, *members):
            life = self.link.incarnation(v)
            if v != n and (v, life, n, me) not in self._introduced:
                self._introduced.add((v, life, n, me))
                self._queue.append((n, self.link.hello_message() if v == SERVER else self._hellos[v]))

    def _enter(self, at: Agreement) -> None:
        at = replace(at, word=b"")
        self.part.enter(at)
        self.at, self.collected, self._held = at, Collected(), []
        self._broadcasts, self._labels, self._letters = {}, {}, {}

    def lost_touch(self, n: int) -> None:
        """What was on its way to client n may not have arrived: it is introduced to the others again."""
        self._introduced = {each for each in self._introduced if each[2] != n}
        self._queue = deque((to, message) for to, message in self._queue if to != n)

    def disregard(self, n: int) -> None:
        """What client n sent in this phase does not count: it is missing."""
        for place in [each for each in self.collected.progress if each[1] == n]:
            del self.collected.progress[place]
            self.collected.whole.discard(place)
        self._held = [each for each in self._held if each[1] != n]

    def learn(self, standings: Mapping[int, Standing]) -> None:
        """Where clients stand, when nothing goes on: nothing that was begun is begun again.

        A server without state goes on from the highest numbers. Where no client has a key of its names, none is left.
        """
        bases = Counter(each.base for each in standings.values() if each.named)
        if not self.at.union and standings:
            union, named, round_ = (
                _believed([getattr(each, name) for each in standings.values()]) for name in ("union", "named", "round")
            )
            base = bases.most_common(1)[0][0] if bases and named else NO_CONTEXT
            self.at = replace(self.at, union=union, names=named, named=named, round=round_, base=base)
        if len(standings) == self.session.params.clients and not bases:
            shared = {each.base for each in standings.values()}
            base = self.at.base if shared == {self.at.base} else NO_CONTEXT
            self.at = replace(self.at, names=0, named=0, base=base)

    @property
    def stage_bytes(self) -> int:
        """The most that one client gets and sends in this phase, about."""
        form, params, at = self.session.form, self.session.params, self.at
        waiting: Counter[int] = Counter()
        for n, message in self._queue:
            waiting[n] += len(message)
        sends = 0
        for kind in self.row.sends:
            copies = len(at.members) if form.routes[kind] is Route.EACH else 1
            sends += copies * form.layout(kind, params, at, at.members[0], at.members[-1]).wire_bytes
        return sends + max(waiting.values(), default=0)

    def missing(self) -> tuple[int, ...]:
        """The members whose messages have not all come."""
        cannot = self.cannot()
        kinds = self.row.sends
        return tuple(n for n in self.at.members if n not in cannot and not all(self._complete(n, k) for k in kinds))

    def cannot(self) -> set[int]:
        """The clients that have said that they cannot continue."""
        return {sender for kind, sender, _ in self.collected.progress if kind == self.row.instead}

    @property
    def enough(self) -> bool:
        """Whether the phase can be closed as it is."""
        missing, form, params = self.missing(), self.session.form, self.session.params
        if not self.row.tolerates:
            return not missing
        if not set(form.needed(params, self.at)).isdisjoint(missing):
            return False
        return len(self.at.members) - len(missing) >= form.quorum(params, self.at)

    def _complete(self, sender: int, kind: IntEnum) -> bool:
        if sender not in self.session.form.senders(kind, self.session.params, self.at):
            return True
        return all((kind, sender, v) in self.collected.whole for v in self._to(kind, sender))

    def _to(self, kind: IntEnum, sender: int) -> tuple[int, ...]:
        """Whom a client addresses this kind to."""
        match self.session.form.routes[kind]:
            case Route.SERVER:
                return (SERVER,)
            case Route.ALL:
                return (ALL,)
            case _:
                receivers = self.session.form.receivers(kind, self.session.params, self.at)
                return tuple(v for v in receivers if v != sender)

    def close(self) -> None:
        """All of a phase has come, or enough: what follows from it goes out, and the next phase begins."""
        row, at, missing = self.row, self.at, self.missing()
        if not self.enough:
            raise FederationError(f"the phase '{row.phase}' is not complete: {', '.join(map(party, missing))}")
        there = tuple(n for n in at.members if n not in missing)
        if cannot := self.cannot():
            self._again(there, f"{', '.join(map(party, sorted(cannot)))} cannot go on")
            return
        if row.settles:
            at = self._settle(there)
        try:
            after = self.part.finish(at, self.collected.got)
        except Retry as retry:
            self._again(there, str(retry))
            return
        self._release()
        for kind in row.answers:
            self._answer(kind, after)
        self._release()
        if self.session.row(row.then).decides:
            self.at = after
            clients = self.session.params.clients  # guests of a set-up have no part in what follows it
            self.begin(row.then, (n for n in there if n < clients))
        else:
            self._enter(replace(after, phase=row.then))

    def _release(self) -> None:
        """What was held until the phase came to its end goes out."""
        self._queue.extend((n, message) for n, _, message in self._held)
        self._held = []

    def _again(self, members: tuple[int, ...], why: str) -> None:
        """Another attempt, since this one gives no result."""
        if self.at.attempt + 1 == MOST_ATTEMPTS:
            raise FederationError(f"{why}; {MOST_ATTEMPTS} attempts failed")
        self.begin(self.row.on_loss, members, again=True)

    def _settle(self, there: tuple[int, ...]) -> Agreement:
        """Say whose messages count: of those who have sent all of them. What they sent each other is passed on."""
        row, at, first = self.row, self.at, self.row.sends[0]
        begin = Begin(row.settles, tuple((n, self.collected.labels[first, n]) for n in there))
        self._say(begin, self.session.form.label(self.session.form.kinds[Common.BEGIN], at), at.context)
        self._held = [each for each in self._held if each[0] in there and each[1] in there]
        return replace(at, members=there, word=begin.to_bytes())

    def end(self) -> bool:
        """Close the phase if enough came; or else give it up, see `lose`. Whether it was closed."""
        if self.enough:
            self.close()
            return True
        self.lose(f"{', '.join(map(party, self.missing()))} vanished in the middle of it")
        return False

    def lose(self, why: str) -> None:
        """Give up the phase; `RoundLost` where that costs a round."""
        row, number = self.row, self.at.round
        self.give_up()
        if row.loses_round:
            raise RoundLost(f"round {number} is lost: {why}")

    def give_up(self) -> None:
        """Give up what is in progress: whoever began a round has lost it, and there has to be a new union."""
        if self.at.phase not in (REST, GREETING):
            if self.row.loses_round:
                self.lost |= {self.at.round}
            self._enter(replace(self.at, phase=REST, size=UNKNOWN))

    # ---------------------------------------------------------------------------------------------------- receiving

    def receive(self, sender: int, message: Buffer) -> None:
        """Take one chunk that the client `sender` handed over."""
        if sender not in range(len(self.session.roster.clients)):
            raise ProtocolError((sender,), f"there is no client {sender} in this federation")
        header = self.link.parse(message, sender)
        if header.sender != sender:
            raise FaultyPeer(sender, f"hands over a message in the name of {party(header.sender)}")
        if header.kind.name == Common.HELLO and header.receiver == ALL:
            self.link.greet(header, message)
            self._hellos[sender] = bytes(message)
            return
        self._require(header)
        if self.session.form.routes[header.kind] is Route.EACH:
            self._relay(header, message)
        else:
            self._take(header, message)

    def _require(self, header: Header) -> None:
        """The label is that of the present phase, and the sender has a part in it."""
        at, sender = self.at, header.sender
        due = self.session.form.label(header.kind, at)
        numbers = {name: getattr(header, name) for name in due}
        kinds = (*self.row.sends, self.row.instead)
        if tuple(numbers.values()) < tuple(due.values()) or header.kind not in kinds:
            raise Stale((sender,), f"{header.title} is not due in the phase '{at.phase}'")
        if numbers != due or header.context != at.context:
            raise FaultyPeer(sender, f"{header.title} was made for another union or other members")
        if sender not in self.session.form.senders(header.kind, self.session.params, at):
            raise FaultyPeer(sender, f"{header.title} is not for it to send")
        if header.receiver not in self._to(header.kind, sender):
            raise FaultyPeer(sender, f"{header.title} is for {party(header.receiver)}, who is no receiver of it")

    def _require_next(self, header: Header, size: int) -> None:
        """The chunk is the next one of its message, and has the right size."""
        sender, at = header.sender, self.at
        layout = self.session.form.layout(header.kind, self.session.params, at, sender, header.receiver)
        due = layout.payload_bytes(header.chunk) if header.chunks == layout.chunks else -1
        if size != due:
            raise FaultyPeer(sender, f"{header.title} has {size} bytes, which is not what is due")
        if self.collected.labels.get((header.kind, sender), header.salt) != header.salt:
            raise FaultyPeer(sender, f"{header.title} belongs to another try than what it sent before")
        seen = self.collected.progress.get((header.kind, sender, header.receiver), 0)
        if header.chunk < seen:
            raise Stale((sender,), f"{header.title} came before")
        if header.chunk > seen:
            raise FaultyPeer(sender, f"{header.title} came out of order; chunk {seen + 1} is due")

    def _count(self, header: Header) -> None:
        """The chunk was right."""
        place = (header.kind, header.sender, header.receiver)
        self.collected.progress[place] = header.chunk + 1
        self.collected.labels[header.kind, header.sender] = header.salt
        if header.chunk + 1 == header.chunks:
            self.collected.whole.add(place)

    def _relay(self, header: Header, message: Buffer) -> None:
        """Keep a message for its receiver. It cannot be read here; its size and its order are checked."""
        self._require_next(header, len(message) - overhead(signed=False))
        self._count(header)
        self._held.append((header.receiver, header.sender, message))

    def _take(self, header: Header, message: Buffer) -> None:
        """A message that the server can read: signed for all, or sealed to it."""
        opened = self.link.open(header, message)
        self._require_next(header, len(opened.payload))
        form, sender, place = self.session.form, header.sender, (header.kind, header.sender)
        if header.kind in form.streamed:
            try:
                self.part.stream(header.kind, sender, header.chunk, opened.payload, self.at)
            except ValueError as error:
                raise FaultyPeer(sender, f"{header.title} cannot be right: {error}") from None
        self.link.take(opened)
        if header.kind not in form.streamed:
            self.collected.parts.setdefault(place, bytearray()).extend(opened.payload)
            if header.chunk + 1 == header.chunks:
                self.collected.got[place] = bytes(self.collected.parts.pop(place))
        self._count(header)
        if form.routes[header.kind] is Route.ALL:
            for n in form.receivers(header.kind, self.session.params, self.at):
                if n != sender:
                    self._held.append((n, sender, message))
        for kind in self.row.answers:
            if kind in form.streamed:
                self._answer(kind, self.at)

    # ----------------------------------------------------------------------------------------------------- restarts

    def save(self) -> bytes:
        """What must survive a restart: numbers that only grow."""
        return snapshot.dumps({"what": _SNAPSHOT, "session": self.session.hash, "at": self.at.plain()})

    @classmethod
    def restore(cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom) -> Self:
        """The server that was saved, in a new life: it begins with a new union."""
        content, server = snapshot.loads(data), cls(session, identity, entropy)
        with snapshot.reading():
            if content["what"] != _SNAPSHOT or content["session"] != session.hash:
                raise SnapshotError(
                    "saved state is of another session or version: roster and parameters must be the same"
                )
            server.at = Agreement.resumed(content["at"])
        return server

    # ------------------------------------------------------------------------------------------------------ sending

    def _answer(self, kind: IntEnum, at: Agreement) -> None:
        """What can leave now of what the server makes of a phase."""
        form = self.session.form
        for receiver, parts in self.part.ready(kind, at):
            if form.routes[kind] is Route.BROADCAST:
                self._broadcast(kind, parts, at)
                continue
            receivers = form.receivers(kind, self.session.params, self.at) if receiver == ALL else (receiver,)
            for n in receivers:
                letter = self._letters.get((kind, n)) or self._open_letter(kind, n, at)
                # Nobody has a result of a phase that is lost; a broadcast counts only once its tag has come.
                self._held.append((n, SERVER, letter.sealer.seal(letter.sent, *parts)))
                letter.sent += 1

    def _open_letter(self, kind: IntEnum, n: int, at: Agreement) -> _Letter:
        """What is the same for all has one label; where each gets its own, the salts differ too."""
        form, params = self.session.form, self.session.params
        if kind not in self._labels:
            self._labels[kind] = self.link.label(kind, form.label(kind, self.at), self.at.context)
        label = self._labels[kind]
        if form.routes[kind] is Route.OWN:
            label = replace(label, salt=self.link.entropy(SALT_BYTES))
        chunks = form.layout(kind, params, at, SERVER, n).chunks
        self._letters[kind, n] = _Letter(self.link.sealer(label, n, chunks))
        return self._letters[kind, n]

    def _broadcast(self, kind: IntEnum, parts: Sequence[Buffer], at: Agreement) -> None:
        """A chunk of a broadcast: its key goes first, its tag last."""
        on_its_way = self._broadcasts.get(kind) or self._open_broadcast(kind, at)
        message: Buffer = on_its_way.sealer.seal(on_its_way.sent, *parts)
        for running in on_its_way.running.values():
            running.update(message)
        self._queued += len(message)
        if self._queued > HELD_BYTES:
            message = self.part.room.kept(message)
        self._queue.extend((n, message) for n in on_its_way.running)
        on_its_way.sent += 1
        if on_its_way.sent == on_its_way.chunks:
            label = self.link.label(self.session.form.kinds[Common.DIGEST], self.at.numbers, self.at.context)
            for n, running in on_its_way.running.items():
                self._queue.append((n, self.link.sealer(label, n).seal(0, running.digest())))

    def _open_broadcast(self, kind: IntEnum, at: Agreement) -> _Broadcast:
        form, params = self.session.form, self.session.params
        numbers, context = self.at.numbers, self.at.context
        chunks = form.layout(kind, params, at, SERVER, ALL).chunks
        receivers, key = form.receivers(kind, params, self.at), self.link.entropy(KEY_BYTES)
        key_label = self.link.label(form.kinds[Common.KEY], numbers, context)
        label = replace(self.link.label(kind, numbers, context), chunks=chunks)
        rows = max(at.size, 0).to_bytes(ROWS_BYTES, "little")
        name = broadcast_name(label)
        for n in receivers:
            self._queue.append((n, self.link.sealer(key_label, n).seal(0, key, name, rows)))
        running = {n: self.link.mac(n, name) for n in receivers}
        self._broadcasts[kind] = _Broadcast(label, self.link.broadcaster(label, chunks, key), chunks, running)
        return self._broadcasts[kind]

    def drain(self, to: Collection[int] | None = None) -> dict[int, list[Buffer]]:
        """What is to be delivered to each client, or to these, in order; it is kept no longer."""
        inboxes: dict[int, list[Buffer]] = {}
        rest: deque[tuple[int, Buffer]] = deque()
        for n, message in self._queue:
            if to is None or n in to:
                inboxes.setdefault(n, []).append(message)
            else:
                rest.append((n, message))
        self._queue, self._queued = rest, self._queued if rest else 0
        return inboxes


def _believed(numbers: list[int]) -> int:
    """The highest number that two clients say, where there are three or more: one that lies is not believed."""
    return sorted(numbers)[-2] if len(numbers) > 2 else max(numbers)
