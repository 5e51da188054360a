"""The server as a state machine: it relays what it cannot read, adds the tables of the union, and says who takes part.

`receive` takes one chunk from a client: it is right and counts, or a `ProtocolError` names who is at fault and nothing has
changed. `close` ends a stage: whoever has not sent all of it by then is left out. `outbox` gives what is to be delivered.

    phase       collects   then sends
    GREETING    hello      the members, and their hellos
    SECRET      secret     whose parts count, and the parts
    TABLE       table      tags; or begins again with another attempt
    READY       -          (`begin_round`)
    SHARE       share      the contributors, and their shares
    SUMMED      -
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from secea import snapshot, union
from secea.endpoint import Endpoint, Opened, Stage
from secea.errors import SERVER, FaultyPeer, FederationError, SnapshotError, party
from secea.field import RING61, Residues
from secea.keys import Identity
from secea.messages import ALL, HEADER_BYTES, NO_CONTEXT, TAG_BYTES, Announcement, Buffer, Header, Kind, Layout, Step
from secea.randomness import SEED_BYTES, Entropy
from secea.session import Session, members_context, rounds_context, union_context
from secea.sharing import seeded_clients

_SNAPSHOT: Final = "secea server 1"
MOST_ATTEMPTS: Final = 8


class Phase(StrEnum):
    """What the server collects."""

    GREETING = "greeting"
    SECRET = "secret"  # noqa: S105 - a phase of the protocol, not a password
    TABLE = "table"
    READY = "ready"
    SHARE = "share"
    SUMMED = "summed"


class Server:
    """The server of a session."""

    def __init__(self, session: Session, identity: Identity, entropy: Entropy = os.urandom) -> None:
        self.session = session
        self.wire = Endpoint(session, SERVER, identity, entropy)
        self.phase = Phase.GREETING
        self.epoch = self.attempt = self.round = 0
        self.context = NO_CONTEXT
        self.members: tuple[int, ...] = ()
        self.total: Residues | None = None
        self.tags: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.hellos: dict[int, bytes] = {}
        self.introduced: set[tuple[int, int]] = set()
        self.held: dict[int, dict[int, list[bytes]]] = {}
        self.finished: dict[int, bytes] = {}
        self.queue: dict[int, list[bytes]] = {}

    def __repr__(self) -> str:
        return f"Server({self.phase}, epoch {self.epoch}, attempt {self.attempt}, round {self.round})"

    # ---------------------------------------------------------------------------------------------------- receiving

    def receive(self, sender: int, message: Buffer) -> None:
        """Take one chunk that the client `sender` handed over."""
        header = Header.parse(message, sender)
        if header.sender != sender:
            raise FaultyPeer(sender, f"hands over a message in the name of {party(header.sender)}")
        if header.kind is Kind.HELLO and header.receiver == ALL:
            self._got_hello(header, message)
            return
        due = {Phase.SECRET: Kind.HELLO, Phase.TABLE: Kind.TABLE, Phase.SHARE: Kind.SHARE}.get(self.phase)
        if header.kind is not due:
            raise FaultyPeer(sender, f"{header.title} is not due in the phase '{self.phase}'")
        if sender not in self.members:
            raise FaultyPeer(sender, f"{header.title} is from a client that is no member of epoch {self.epoch}")
        self.wire.require(header, epoch=self.epoch, attempt=self.attempt, round=self.round, context=self.context)
        if header.kind is Kind.TABLE:
            opened = self.wire.open(header, message)
            self._got_table(opened)
            self.wire.take(opened)
        else:
            self._relay(header, message)

    def _got_hello(self, header: Header, message: Buffer) -> None:
        """Keep a client's hello for the others; a new incarnation replaces the old one."""
        self.wire.greet(header, message)
        self.hellos[header.sender] = bytes(message)
        self.introduced = {(n, v) for n, v in self.introduced if header.sender not in (n, v)}

    def _relay(self, header: Header, message: Buffer) -> None:
        """Keep a message for its receiver. It cannot be read here; its size and its order are checked."""
        sender, receiver = header.sender, header.receiver
        if receiver not in self.members or receiver == sender:
            raise FaultyPeer(sender, f"{header.title} is for {party(receiver)}, who is no receiver of it")
        layout = self._relayed_layout(sender, receiver)
        span = layout.span(header.chunk)
        size = HEADER_BYTES + (span.stop - span.start) * layout.row_bytes + TAG_BYTES
        if header.chunks != layout.chunks or len(message) != size:
            raise FaultyPeer(sender, f"{header.title} has {len(message)} bytes instead of {size}")
        held = self.held.setdefault(sender, {})
        before = held.get(receiver, [])
        if header.chunk != len(before):
            raise FaultyPeer(sender, f"{header.title} came twice or out of order; chunk {len(before) + 1} is due")
        salt = next((Header.parse(chunks[0], sender).salt for chunks in held.values()), header.salt)
        if header.salt != salt:
            raise FaultyPeer(sender, f"{header.title} belongs to another try than what it sent before")
        held.setdefault(receiver, []).append(bytes(message))
        if all(len(held.get(v, ())) == self._relayed_layout(sender, v).chunks for v in self.members if v != sender):
            self.finished[sender] = salt

    def _relayed_layout(self, sender: int, receiver: int) -> Layout:
        seed = Layout(1, SEED_BYTES)
        if self.phase is Phase.SECRET or receiver in seeded_clients(self.session.params, sender, self.round):
            return seed
        return self.session.share_layout(self.tags.size)

    def _got_table(self, opened: Opened) -> None:
        """Add one client's masked table to the total."""
        header = opened.header
        layout = self.session.table_layout(self._geometry())
        span = layout.span(header.chunk)
        if header.chunks != layout.chunks:
            raise FaultyPeer(header.sender, f"its table has {header.chunks} chunks instead of {layout.chunks}")
        try:
            part = RING61.from_bytes(opened.payload, span.stop - span.start, union.COLUMNS)
        except ValueError as error:
            raise FaultyPeer(header.sender, f"{header.title} is no table: {error}") from None
        if self.total is None:
            self.total = RING61.zeros(layout.rows, union.COLUMNS)
        RING61.add_into(self.total[:, span], part)
        if header.chunk + 1 == header.chunks:
            self.finished[header.sender] = header.salt

    def _geometry(self) -> union.Geometry:
        return self.session.geometry(self.attempt, self.context)

    # ------------------------------------------------------------------------------------------------------- stages

    @property
    def complete(self) -> tuple[int, ...]:
        """The clients that have sent all of the present stage."""
        return tuple(sorted(self.hellos if self.phase is Phase.GREETING else self.finished))

    def begin_round(self) -> None:
        """The next round: its shares may come now."""
        if self.phase not in (Phase.READY, Phase.SUMMED):
            raise FederationError(f"no round can begin in the phase '{self.phase}'")
        self.round += 1
        self._collect(Phase.SHARE)

    def close(self) -> None:
        """End the stage: those that have sent everything go on, without the others."""
        there = self.complete
        if self.phase in (Phase.READY, Phase.SUMMED):
            return
        self.queue = {}
        if len(there) < self._fewest:
            raise FederationError(
                f"only {len(there)} clients took part in the stage '{self.phase}': {list(there)}; {self._fewest} are needed"
            )
        match self.phase:
            case Phase.GREETING:
                self.begin_epoch(there)
            case Phase.SECRET:
                announcement = self._announce(Step.SECRET, there)
                self.context = union_context(self.context, announcement)
                self.members = there
                self._collect(Phase.TABLE)
            case Phase.TABLE:
                self._close_table(there)
            case Phase.SHARE:
                self._announce(Step.SHARE, there)
                self._collect(Phase.SUMMED)

    @property
    def _fewest(self) -> int:
        return max(self.session.params.fewest_contributors, self.session.params.need)

    def begin_epoch(self, members: Iterable[int], *, again: bool = False) -> None:
        """Set up anew for these members: a new epoch, or (`again`) another attempt at this one."""
        self.members = tuple(sorted(members))
        self.epoch, self.attempt = (self.epoch, self.attempt + 1) if again else (self.epoch + 1, 0)
        if self.attempt > MOST_ATTEMPTS:
            raise FederationError(f"epoch {self.epoch} was not set up in {MOST_ATTEMPTS} attempts")
        self.context = NO_CONTEXT
        for n in self.members:
            if (SERVER, n) not in self.introduced:
                self._queue(n, self.wire.hello_message())
        announcement = Announcement(Step.GREETING, tuple((n, self.wire.peers[n].incarnation) for n in self.members))
        self._tell(Kind.CONTRIBUTORS, announcement.to_bytes(), Layout(1, len(announcement.to_bytes())))
        for n in self.members:
            for v in self.members:
                if v != n and (v, n) not in self.introduced:
                    self._queue(n, self.hellos[v])
        self.introduced |= {(v, n) for v in (*self.members, SERVER) for n in self.members}
        self.context = members_context(self.epoch, self.attempt, announcement)
        self._collect(Phase.SECRET)

    def _collect(self, phase: Phase) -> None:
        """Begin to collect the next stage."""
        self.phase, self.held, self.finished, self.total = phase, {}, {}, None

    def _announce(self, step: Step, clients: tuple[int, ...]) -> Announcement:
        """Say who takes part, and pass on what they sent to each other."""
        announcement = Announcement(step, tuple((n, self.finished[n]) for n in clients))
        data = announcement.to_bytes()
        self._tell(Kind.CONTRIBUTORS, data, Layout(1, len(data)), clients)
        for receiver in clients:
            for sender in clients:
                for message in self.held[sender].get(receiver, ()):
                    self._queue(receiver, message)
        return announcement

    def _close_table(self, there: tuple[int, ...]) -> None:
        """All tables are in: take the total apart. Or begin again without those that are missing."""
        assert self.total is not None
        if there != self.members:
            self.begin_epoch(there, again=True)
            return
        tags = union.peel(self.total, self._geometry())
        if tags is None:
            self.begin_epoch(there, again=True)
            return
        if tags.size > self.session.max_union:
            raise FederationError(
                f"the clients hold {tags.size} entities together, more than max_union={self.session.max_union}: raise it"
            )
        self.tags = tags
        self._tell(Kind.TAGS, RING61.to_bytes(tags[None]), self.session.tags_layout(tags.size))
        self.context = rounds_context(self.context, tags)
        self._collect(Phase.READY)

    # ------------------------------------------------------------------------------------------------------ sending

    def outbox(self) -> Iterator[tuple[int, bytes]]:
        """What is to be delivered now: (client, message). The same until the next stage is closed."""
        for n, messages in self.queue.items():
            for message in messages:
                yield n, message

    def _queue(self, n: int, message: Buffer) -> None:
        self.queue.setdefault(n, []).append(bytes(message))

    def _tell(self, kind: Kind, data: Buffer, layout: Layout, clients: tuple[int, ...] | None = None) -> None:
        """The same message to every member, sealed for each."""
        stage = self.wire.stage(kind, epoch=self.epoch, round=self.round, attempt=self.attempt, context=self.context)
        for n in self.members if clients is None else clients:
            sealer = self.wire.sealer(stage, n, layout.chunks)
            for chunk in range(layout.chunks):
                span = layout.span(chunk)
                self._queue(n, sealer.seal(chunk, data[span.start * layout.row_bytes : span.stop * layout.row_bytes]))

    # ---------------------------------------------------------------------------------------------------- snapshots

    _SAVED: Final = (
        "epoch", "attempt", "round", "context", "members", "total", "tags", "hellos", "held", "finished", "queue",
    )  # fmt: skip

    def save(self) -> bytes:
        """All of the state. It holds the server's session key."""
        plain = {name: getattr(self, name) for name in self._SAVED}
        plain |= {"phase": str(self.phase), "introduced": sorted(self.introduced), "wire": self.wire.plain()}
        return snapshot.dumps({"what": _SNAPSHOT, "server": plain})

    @classmethod
    def restore(cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom) -> Self:
        """The server that was saved."""
        content = snapshot.loads(data)
        if content.get("what") != _SNAPSHOT:
            raise SnapshotError("this is not the saved state of a server of this version")
        plain: dict[str, Any] = content["server"]
        self = cls.__new__(cls)
        self.session = session
        self.wire = Endpoint.restore(session, identity, plain["wire"], entropy)
        for name in cls._SAVED:
            setattr(self, name, plain[name])
        self.phase, self.introduced = Phase(plain["phase"]), set(plain["introduced"])
        return self
