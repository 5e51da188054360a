"""A client as a state machine: messages in, messages out; no input or output, no clock, randomness passed in.

`receive` takes one chunk: it is right and counts, or a `ProtocolError` names who could be at fault and nothing has changed.
`outbox` gives what the client has to send now. It is a function of the state, so it can be repeated, also after
`save` and `restore`: save before the first byte leaves, and a crash never makes a second message under the same key.

    phase       has sent   waits for                                   then
    GREETING    hello      the members of the epoch, and their hellos  SECRET
    SECRET      secret     whose parts count, and the parts            TABLE
    TABLE       table      tags                                        READY
    READY       -          `contribute` by the user                    SHARE
    SHARE       share      the contributors, and their shares          SUMMED
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from secea import fixedpoint, snapshot, union
from secea.endpoint import Endpoint, Opened, Stage, unknown_sender
from secea.errors import SERVER, FaultyPeer, FederationError, SnapshotError, TableError, party
from secea.field import RING61, Residues
from secea.keys import Identity, expand, shared_secret, unauthentic
from secea.messages import ALL, NO_CONTEXT, Announcement, Buffer, Header, Kind, Step
from secea.randomness import SEED_BYTES, Entropy, KeyStream
from secea.session import Session, members_context, rounds_context, union_context
from secea.sharing import Dealer, blocks, seeded_clients, share_from_seed, spread
from secea.sharing import expand as expand_rows
from secea.table import Name, TableLike, as_table, canonical_names

_SNAPSHOT: Final = "secea client 1"


class Phase(StrEnum):
    """What a client waits for."""

    GREETING = "greeting"
    SECRET = "secret"  # noqa: S105 - a phase of the protocol, not a password
    TABLE = "table"
    READY = "ready"
    SHARE = "share"
    SUMMED = "summed"


class Client:
    """Client n of a session, with the names of its own entities."""

    def __init__(
        self, session: Session, number: int, identity: Identity, names: Iterable[object], entropy: Entropy = os.urandom
    ) -> None:
        self.names: tuple[Name, ...] = canonical_names(names)
        if len(self.names) > session.max_entities:
            raise TableError(f"{len(self.names)} entities exceed the public bound max_entities={session.max_entities}")
        self.session = session
        self.wire = Endpoint(session, number, identity, entropy)
        self.phase = Phase.GREETING
        self.epoch = self.attempt = self.round = 0
        self.context = NO_CONTEXT
        self.greeted: tuple[int, ...] = ()
        self.union_members: tuple[int, ...] = ()
        self.members: dict[int, bytes] | None = None
        self.missing: set[int] = set()
        self.parts: dict[int, bytes] = {}
        self.secret = b""
        self.tags: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self.values: NDArray[np.int64] = np.zeros((0, session.params.dim), np.int64)
        self.sums: Residues | None = None
        self.pending: Stage | None = None

    def __repr__(self) -> str:
        return f"Client({self.number}, {self.phase}, epoch {self.epoch}, round {self.round})"

    @property
    def number(self) -> int:
        """n."""
        return self.wire.number

    @property
    def M(self) -> int:
        """The size of the union."""
        return self.tags.size

    # --------------------------------------------------------------------------------------------- the user's calls

    def contribute(self, table: TableLike) -> None:
        """Begin the next round with these embeddings; the names must be those of the set-up."""
        if self.phase not in (Phase.READY, Phase.SUMMED):
            raise FederationError(f"{party(self.number)} cannot begin a round: it is in the phase '{self.phase}'")
        params = self.session.params
        given = as_table(table, params.dim)
        if set(given.names) != set(self.names):
            unlike = sorted(set(given.names) ^ set(self.names), key=repr)[0]
            raise TableError(f"{party(self.number)}: entity {unlike!r} is in the round or in the set-up, but not in both")
        fixedpoint.check_range(given.matrix, given.names, params.max_abs)
        place = {name: i for i, name in enumerate(given.names)}
        order = np.array([place[name] for name in self.names], np.int64)
        self.values = fixedpoint.encode(given.matrix[order], params.fraction_bits)
        self.round += 1
        self.sums, self.members = None, None
        self.phase = Phase.SHARE
        self.pending = self.wire.stage(Kind.SHARE, epoch=self.epoch, round=self.round, context=self.context)

    # ---------------------------------------------------------------------------------------------------- receiving

    def receive(self, message: Buffer) -> None:
        """Take one chunk of one message; see the head of this module."""
        header = Header.parse(message, SERVER)
        if error := unknown_sender(header, self.session.params.N):
            raise error
        if header.sender == self.number:
            raise FaultyPeer(SERVER, f"{header.title} is our own message")
        if header.kind is Kind.HELLO and header.receiver == ALL:
            self._greeted(header, message)
            return
        handlers = {
            (Kind.CONTRIBUTORS, True): self._announced,
            (Kind.HELLO, False): self._got_part,
            (Kind.TAGS, True): self._got_tags,
            (Kind.SHARE, False): self._got_share,
        }
        handler = handlers.get((header.kind, header.sender == SERVER))
        if handler is None:
            raise unauthentic(header.sender, f"{header.title} is not for a client")
        opened = self.wire.open(header, message)
        handler(opened)
        self.wire.take(opened)

    def _due(self, opened: Opened, phase: Phase, **more: object) -> None:
        """The message belongs to what this client waits for."""
        header = opened.header
        if self.phase is not phase:
            raise unauthentic(header.sender, f"{header.title} is not due: we are in the phase '{self.phase}'")
        self.wire.require(header, epoch=self.epoch, attempt=self.attempt, **more)

    def _due_from_member(self, opened: Opened, phase: Phase, **more: object) -> bytes:
        """The message comes from an announced member and is the one that was announced; returns its salt."""
        header = opened.header
        if self.members is None or header.sender not in self.members:
            raise unauthentic(header.sender, f"{header.title} is from a client that was not announced as a member")
        self._due(opened, phase, **more)
        self.wire.require(header, salt=self.members[header.sender])
        return self.members[header.sender]

    def _greeted(self, header: Header, message: Buffer) -> None:
        """A hello: the server's, or that of an announced member that is still missing."""
        if header.sender != SERVER:
            if self.phase is not Phase.GREETING or self.members is None or header.sender not in self.missing:
                raise unauthentic(header.sender, f"{header.title} is not due")
            self.wire.require(header, salt=self.members[header.sender])
        self.wire.greet(header, message)
        self.missing.discard(header.sender)
        if self.phase is Phase.GREETING and self.members is not None and not self.missing:
            self._begin_secret()

    def _announced(self, opened: Opened) -> None:
        """The server says who takes part in a step."""
        header = opened.header
        params = self.session.params
        try:
            announcement = Announcement.parse(opened.payload, params.N)
        except ValueError as error:
            raise FaultyPeer(SERVER, str(error)) from None
        members = dict(announcement.members)
        if len(members) < params.fewest_contributors:
            raise FaultyPeer(
                SERVER, f"announces {len(members)} members; fewer than {params.fewest_contributors} would expose someone"
            )
        if self.number not in members:
            raise FaultyPeer(SERVER, f"announces members without {party(self.number)}")
        match announcement.step:
            case Step.GREETING:
                self._new_epoch(header, members)
            case Step.SECRET:
                self._due(opened, Phase.SECRET, context=self.context)
                self._announce(announcement, self.greeted)
            case Step.SHARE:
                self._due(opened, Phase.SHARE, round=self.round, context=self.context)
                self._announce(announcement, self.union_members)
                self.sums = self._own_share()
            case _:
                raise FaultyPeer(SERVER, f"announces the step {announcement.step.name.lower()}, which is not due")

    def _announce(self, announcement: Announcement, among: tuple[int, ...]) -> None:
        """Fix the members of a step, once; what follows is bound to them."""
        step = announcement.step.name.lower()
        if self.members is not None:
            raise FaultyPeer(SERVER, f"announces the step {step} twice")
        assert self.pending is not None
        members = dict(announcement.members)
        if members[self.number] != self.pending.salt:
            raise FaultyPeer(SERVER, f"announces another message of ours for the step {step} than the one that we sent")
        if not members.keys() <= set(among):
            raise FaultyPeer(SERVER, f"announces for the step {step} a client that is no member of this epoch")
        self.members = members
        self.missing = set(members) - {self.number}

    def _new_epoch(self, header: Header, members: dict[int, bytes]) -> None:
        """All of the set-up begins anew: fresh secret, fresh tags, fresh weights."""
        if (header.epoch, header.attempt) <= (self.epoch, self.attempt):
            raise FaultyPeer(SERVER, f"announces epoch {header.epoch}, attempt {header.attempt}, which is past")
        self.wire.require(header, context=NO_CONTEXT)
        if members[self.number] != self.wire.hello.incarnation:
            raise FaultyPeer(SERVER, "announces another incarnation of ours")
        self.epoch, self.attempt = header.epoch, header.attempt
        self.members = members
        known = {n for n, hello in self.wire.peers.items() if members.get(n) == hello.incarnation}
        self.missing = set(members) - known - {self.number}
        self.phase, self.pending = Phase.GREETING, None
        self.context = members_context(self.epoch, self.attempt, Announcement(Step.GREETING, tuple(members.items())))
        if not self.missing:
            self._begin_secret()

    def _begin_secret(self) -> None:
        assert self.members is not None
        self.phase = Phase.SECRET
        self.pending = self.wire.stage(Kind.HELLO, epoch=self.epoch, attempt=self.attempt, context=self.context)
        self.parts = {self.number: expand(self.pending.seed, "part of the shared secret")}
        self.greeted, self.members = tuple(self.members), None

    def _got_part(self, opened: Opened) -> None:
        self._due_from_member(opened, Phase.SECRET, context=self.context)
        if len(opened.payload) != SEED_BYTES:
            raise FaultyPeer(opened.header.sender, f"its part of the secret has {len(opened.payload)} bytes")
        self.parts[opened.header.sender] = bytes(opened.payload)
        self.missing.discard(opened.header.sender)
        if not self.missing:
            self._begin_table()

    def _begin_table(self) -> None:
        assert self.members is not None
        self.context = union_context(self.context, Announcement(Step.SECRET, tuple(self.members.items())))
        self.secret = shared_secret([(n, self.parts[n]) for n in self.members])
        self.parts, self.union_members = {}, tuple(self.members)
        self.phase = Phase.TABLE
        self.tags = np.zeros(0, np.uint64)
        self.pending = self.wire.stage(Kind.TABLE, epoch=self.epoch, attempt=self.attempt, context=self.context)

    def _own_tags(self) -> NDArray[np.uint64]:
        return union.tags_of(self.names, expand(self.secret, "tags", self.context))

    def _got_tags(self, opened: Opened) -> None:
        header, payload = opened.header, opened.payload
        self._due(opened, Phase.TABLE, context=self.context)
        try:
            count = len(payload) // RING61.element_bytes
            tags = np.concatenate([self.tags, RING61.from_bytes(payload, count)[0]])
        except ValueError as error:
            raise FaultyPeer(SERVER, f"{header.title} is no list of tags: {error}") from None
        if tags.size > self.session.max_union:
            raise FaultyPeer(SERVER, f"the union has more than max_union={self.session.max_union} entities")
        if (tags[1:] <= tags[:-1]).any():
            raise FaultyPeer(SERVER, "the union's tags are not in order")
        if header.chunk + 1 < header.chunks:
            self.tags = tags
            return
        if header.chunks != self.session.tags_layout(tags.size).chunks:
            raise FaultyPeer(SERVER, f"the union of {tags.size} tags came in {header.chunks} chunks")
        own = self._own_tags()
        rows = np.searchsorted(tags, own)
        lacking = (rows == tags.size) | (np.r_[tags, np.uint64(0)][np.minimum(rows, tags.size)] != own)
        if lacking.any():
            raise FaultyPeer(SERVER, f"the union lacks {int(lacking.sum())} of our {own.size} entities")
        if np.unique(rows).size != rows.size:
            raise FederationError("two of our entities have the same tag (a 61-bit hash): begin a new epoch")
        self.tags = tags
        order = np.argsort(rows)
        self.names, self.rows = tuple(self.names[i] for i in order), rows[order].astype(np.int64)
        self.context = rounds_context(self.context, self.tags)
        self.phase, self.pending = Phase.READY, None

    # ------------------------------------------------------------------------------------------------------ sharing

    def _dealer(self, stage: Stage, receivers: Iterable[int]) -> tuple[Dealer, dict[int, bytes]]:
        """The shares of one stage, and the seeds of those that go as seeds."""
        seeded = seeded_clients(self.session.params, self.number, stage.round)
        seeds = {v: expand(stage.seed, "share", b"%d" % v) for v in seeded}
        sources = [KeyStream(seed) for seed in seeds.values()]
        return Dealer(self.session.code, tuple(receivers), seeded, sources), seeds

    def _dealt(self, dealer: Dealer) -> Iterator[tuple[int, Residues]]:
        """Chunk by chunk, the shares [P, receivers, rows, L] of all rows of the union."""
        session = self.session
        own = session.ring.reduce(expand_rows(self.values, session.params))
        layout = session.share_layout(self.M)
        for chunk in range(layout.chunks):
            rows = spread(session.ring, own, self.rows, layout.span(chunk))
            yield chunk, dealer.deal(blocks(session.ring, rows, session.params.K))

    def _own_share(self) -> Residues:
        """phi_n(alpha_n): what this client adds for itself."""
        assert self.pending is not None
        dealer, _ = self._dealer(self.pending, [self.number])
        layout = self.session.share_layout(self.M)
        sums = self.session.ring.empty(self.M, self.session.block_length)
        for chunk, shares in self._dealt(dealer):
            sums[:, layout.span(chunk)] = shares[:, 0]
        return sums

    def _got_share(self, opened: Opened) -> None:
        """Add one contributor's share to the sums (eq. 8)."""
        header, payload, session = opened.header, opened.payload, self.session
        self._due_from_member(opened, Phase.SHARE, round=self.round, context=self.context)
        assert self.sums is not None
        layout, length = session.share_layout(self.M), session.block_length
        if self.number in seeded_clients(session.params, header.sender, self.round):
            if len(payload) != SEED_BYTES or header.chunks != 1:
                raise FaultyPeer(header.sender, f"its share has {len(payload)} bytes; a seed of {SEED_BYTES} is due")
            for span, share in share_from_seed(bytes(payload), session.ring, layout, length):
                self._add(span, share)
        else:
            if header.chunks != layout.chunks:
                raise FaultyPeer(header.sender, f"its share has {header.chunks} chunks; {layout.chunks} are due")
            span = layout.span(header.chunk)
            try:
                share = session.ring.from_bytes(payload, span.stop - span.start, length)
            except ValueError as error:
                raise FaultyPeer(header.sender, f"{header.title} is no share: {error}") from None
            self._add(span, share)
        if header.chunk + 1 == header.chunks:
            self.missing.discard(header.sender)
            if not self.missing:
                assert self.members is not None
                self.phase, self.pending = Phase.SUMMED, None

    def _add(self, span: slice, share: Residues) -> None:
        assert self.sums is not None
        for i in range(self.session.ring.size):  # rows of one prime are contiguous
            self.session.ring.at(i).add_into(self.sums[i : i + 1, span], share[i : i + 1])

    # ------------------------------------------------------------------------------------------------------ sending

    def outbox(self) -> Iterator[Buffer]:
        """What this client has to send now; the same bytes each time, until something is received."""
        stage = self.pending
        if self.phase is Phase.GREETING and self.members is None:
            yield self.wire.hello_message()
        elif stage is None:
            return
        elif stage.kind is Kind.HELLO:
            for v in self.greeted:
                if v != self.number:
                    yield self.wire.sealer(stage, v).seal(0, self.parts[self.number])
        elif stage.kind is Kind.TABLE:
            yield from self._table_messages(stage)
        elif stage.kind is Kind.SHARE:
            yield from self._share_messages(stage)

    def _table_messages(self, stage: Stage) -> Iterator[Buffer]:
        geometry = self.session.geometry(self.attempt, self.context)
        table = union.fill(self._own_tags(), geometry, KeyStream(stage.seed))
        others = (v for v in self.union_members if v != self.number)
        masks = ((v, self.wire.channels[v].stream("mask", self.context)) for v in others)
        union.mask(table, self.number, masks)
        layout = self.session.table_layout(geometry)
        sealer = self.wire.sealer(stage, SERVER, layout.chunks)
        for chunk in range(layout.chunks):
            yield sealer.seal(chunk, RING61.to_bytes(table[:, layout.span(chunk)]))

    def _share_messages(self, stage: Stage) -> Iterator[Buffer]:
        dealer, seeds = self._dealer(stage, [v for v in self.union_members if v != self.number])
        for v, seed in seeds.items():
            if v in self.union_members:
                yield self.wire.sealer(stage, v).seal(0, seed)
        chunks = self.session.share_layout(self.M).chunks
        sealers = [self.wire.sealer(stage, v, chunks) for v in dealer.receivers]
        for chunk, shares in self._dealt(dealer):
            for i, sealer in enumerate(sealers):
                yield sealer.seal(chunk, self.session.ring.to_bytes(shares[:, i]))

    # ---------------------------------------------------------------------------------------------------- snapshots

    _SAVED: Final = (
        "names", "epoch", "attempt", "round", "context", "greeted", "union_members", "members", "parts", "secret",
        "tags", "rows", "values", "sums",
    )  # fmt: skip

    def save(self) -> bytes:
        """All of the state. It holds keys: whoever reads it can act as this client."""
        plain = {name: getattr(self, name) for name in self._SAVED}
        plain |= {"phase": str(self.phase), "missing": sorted(self.missing), "wire": self.wire.plain()}
        plain["pending"] = None if self.pending is None else self.pending.plain()
        return snapshot.dumps({"what": _SNAPSHOT, "client": plain})

    @classmethod
    def restore(cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom) -> Self:
        """The client that was saved."""
        content = snapshot.loads(data)
        if content.get("what") != _SNAPSHOT:
            raise SnapshotError("this is not the saved state of a client of this version")
        plain: dict[str, Any] = content["client"]
        self = cls.__new__(cls)
        self.session = session
        self.wire = Endpoint.restore(session, identity, plain["wire"], entropy)
        for name in cls._SAVED:
            setattr(self, name, plain[name])
        self.phase, self.missing = Phase(plain["phase"]), set(plain["missing"])
        self.pending = None if plain["pending"] is None else Stage.of(plain["pending"])
        return self
