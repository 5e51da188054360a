"""The server as a state machine: it relays what it cannot read, computes under masks, and says who takes part.

`receive` takes one chunk from a client: it is right and counts, or a `ProtocolError` names who is at fault and
nothing has changed. `close` ends a stage: whoever has not sent all of it by then is left out. `outbox` gives what is
to be delivered.

Messages between clients are kept until the stage is closed and it is known whose count. With `early`, the server
announces its members as soon as all of them have begun to send, and passes everything on at once (`drain`): memory
stays small, and whoever is lost on the way costs another attempt.

    phase       collects             then sends
    GREETING    hello                the members, and their hellos
    SECRET      part of the secret   whose parts count, and the parts
    TABLE       table                tags; or begins again with another attempt
    QUERY       query, indicator     whose queries count, and the queries; for whom weights are to be made
    OPENING     opening              reciprocals, and who re-shares
    RESHARE     reshare              whose re-sharing counts, and it
    READY       -                    (`begin_round`)
    SHARE       share                the contributors, and their shares
    ANSWER      answer               means
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Residues
from secea.correction import ContradictionError
from secea.errors import SERVER, FaultyPeer, FederationError, ProtocolError, SnapshotError, Stale, party
from secea.retrieval import Masker
from secea.retrieval.reciprocal import opened_masked, reciprocals
from secea.session import Session, label_of, members_context, step_context, union_context
from secea.sharing import SEED_LAYOUT, seeded_clients
from secea.steps import union
from secea.wire import snapshot
from secea.wire.endpoint import Endpoint, Opened, Stage
from secea.wire.keys import Identity, Sealer, expand
from secea.wire.messages import (
    ALL,
    DIGEST_BYTES,
    HEADER_BYTES,
    NO_CONTEXT,
    NO_PLACEMENT,
    SALT_BYTES,
    TAG_BYTES,
    Announcement,
    Buffer,
    Header,
    Kind,
    Layout,
    Step,
)
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

_SNAPSHOT: Final = "secea server 3"
MOST_ATTEMPTS: Final = 8


class Phase(StrEnum):
    """What the server collects; see the head of this module."""

    GREETING = "greeting"
    SECRET = "secret"  # noqa: S105 - a phase of the protocol, not a password
    TABLE = "table"
    QUERY = "query"
    OPENING = "opening"
    RESHARE = "reshare"
    READY = "ready"
    SHARE = "share"
    ANSWER = "answer"


COLLECTED: Final = {
    Phase.SECRET: (Kind.HELLO,),
    Phase.TABLE: (Kind.TABLE,),
    Phase.QUERY: (Kind.QUERY, Kind.INDICATOR, Kind.ABORT),
    Phase.OPENING: (Kind.OPENING,),
    Phase.RESHARE: (Kind.RESHARE,),
    Phase.SHARE: (Kind.SHARE,),
    Phase.ANSWER: (Kind.ANSWER,),
}
"""What comes in each phase."""

OVER: Final = {
    phase: frozenset(
        kind
        for earlier in (COLLECTED if phase is Phase.READY else list(Phase)[:i])
        for kind in COLLECTED.get(earlier, ())
    )
    for i, phase in enumerate(Phase)
}
"""What came in the phases before each phase."""


class Server:
    """The server of a session."""

    def __init__(
        self, session: Session, identity: Identity, entropy: Entropy = os.urandom, *, early: bool = False
    ) -> None:
        self.session, self.early = session, early
        self.wire = Endpoint(session, SERVER, identity, entropy)
        self.phase = Phase.GREETING
        self.epoch = self.attempt = self.weights = self.round = self.done = 0  # done: the last round that gave means
        self.context = self.query_context = self.base_context = NO_CONTEXT
        self.members: tuple[int, ...] = ()  # those whose messages are due in this stage
        self.query_members: tuple[int, ...] = ()
        self.contributors: tuple[int, ...] = ()
        self.resharers: tuple[int, ...] = ()
        self.hellos: dict[int, bytes] = {}
        self.introduced: set[tuple[int, int]] = set()  # (v, n): client n has the hello of v
        self.total: Residues | None = None
        self.tags: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.salts: dict[int, bytes] = {}  # of what each client sends to others in this stage
        self.progress: dict[tuple[int, int, int], int] = {}  # (kind, sender, receiver): chunks that came
        self.held: dict[int, dict[int, list[Buffer]]] = {}  # receiver: sender: chunks
        self.announced: tuple[int, ...] | None = None  # whose messages are passed on
        self.openings: dict[int, Residues] = {}
        self.answers: dict[int, dict[int, Buffer]] = {}  # chunk: client: payload
        self.masked = 0  # chunks of answers that were turned into means
        self.mean_stage: Stage | None = None
        self.mean_salts: dict[int, bytes] = {}  # of each client's means
        self.finished: dict[int, bytes] = {}  # who has sent everything, with its salt
        self.unplaced: set[int] = set()
        self.faults: list[ProtocolError] = []
        """What clients did wrong, and could be mended."""
        self.queue: dict[int, list[Buffer]] = {}  # to be delivered now
        self.made: dict[int, list[Buffer]] = {}  # means, until their stage is closed
        self.next_seed = b""
        self._prepared: tuple[bytes, dict[int, Masker]] = (b"", {})  # what was made ahead from a seed
        self._maskers: dict[int, tuple[Masker, Sealer]] = {}

    def __repr__(self) -> str:
        return f"Server({self.phase}, epoch {self.epoch}, attempt {self.attempt}, round {self.round})"

    @property
    def M(self) -> int:
        """The size of the union."""
        return self.tags.size

    # ---------------------------------------------------------------------------------------------------- receiving

    def receive(self, sender: int, message: Buffer) -> None:
        """Take one chunk that the client `sender` handed over."""
        if sender not in range(self.session.params.N):
            raise ProtocolError((sender,), f"there is no client {sender} in this federation")
        header = Header.parse(message, sender)
        if header.sender != sender:
            raise FaultyPeer(sender, f"hands over a message in the name of {party(header.sender)}")
        if header.kind is Kind.HELLO and header.receiver == ALL:
            self._got_hello(header, message)
            return
        if self._past(header):
            raise Stale((sender,), f"{header.title} comes too late: we are in the phase '{self.phase}'")
        if header.kind not in self._due_kinds():
            raise FaultyPeer(sender, f"{header.title} is not due in the phase '{self.phase}'")
        if sender not in self.members:
            raise FaultyPeer(sender, f"{header.title} is from a client that has no part in this stage")
        self.wire.require(header, **self._label(header.kind), context=self.context)
        handlers = {
            Kind.TABLE: self._got_table,
            Kind.OPENING: self._got_opening,
            Kind.ANSWER: self._got_answer,
            Kind.ABORT: self._got_abort,
        }
        handler = handlers.get(header.kind)
        if handler is None:
            self._relay(header, message)
            return
        opened = self.wire.open(header, message)
        handler(opened)
        self.wire.take(opened)

    def _due_kinds(self) -> tuple[Kind, ...]:
        """What clients send in this phase, and to each other where it is relayed."""
        return tuple(k for k in COLLECTED.get(self.phase, ()) if k is not Kind.INDICATOR or self.session.form.weighted)

    def _past(self, header: Header) -> bool:
        """Whether the message belongs to a stage that is over."""
        label = self._label(header.kind)
        there, here = tuple(getattr(header, name) for name in label), tuple(label.values())
        if there != here:
            return there < here
        return header.kind in OVER[self.phase]

    def _relayed_kinds(self) -> tuple[Kind, ...]:
        """What clients send to each other in this phase."""
        return tuple(k for k in self._due_kinds() if k is not Kind.ABORT)

    def _got_hello(self, header: Header, message: Buffer) -> None:
        """Keep a client's hello for the others; a new incarnation replaces the old one."""
        self.wire.greet(header, message)
        self.hellos[header.sender] = bytes(message)
        self.introduced = {(v, n) for v, n in self.introduced if header.sender not in (v, n)}

    def _relay(self, header: Header, message: Buffer) -> None:
        """Keep a message for its receiver. It cannot be read here; its size and its order are checked."""
        sender, receiver = header.sender, header.receiver
        if self.phase is Phase.SHARE and receiver in set(self.query_members) - set(self.members):
            return  # the sender does not know that this client is absent
        if receiver not in self._receivers() or receiver == sender:
            raise FaultyPeer(sender, f"{header.title} is for {party(receiver)}, who is no receiver of it")
        layout = self._relayed_layout(header)
        size = HEADER_BYTES + layout.payload_bytes(header.chunk) + TAG_BYTES
        if header.chunks != layout.chunks or len(message) != size:
            raise FaultyPeer(sender, f"{header.title} has {len(message)} bytes instead of {size}")
        place = (int(header.kind), sender, receiver)
        seen = self.progress.get(place, 0)
        if header.salt != self.salts.get(sender, header.salt):
            raise FaultyPeer(sender, f"{header.title} belongs to another try than what it sent before")
        if header.chunk < seen:
            raise Stale((sender,), f"{header.title} came before")
        if header.chunk > seen:
            raise FaultyPeer(sender, f"{header.title} came out of order; chunk {seen + 1} is due")
        self.salts[sender] = header.salt
        self.progress[place] = seen + 1
        if header.chunk + 1 == header.chunks and self._relayed_all(header):
            self.finished[sender] = header.salt
        if self.announced is not None:
            self._queue(receiver, message)
            return
        self.held.setdefault(receiver, {}).setdefault(sender, []).append(message)
        if self.early and len(self.salts) == len(self.members):
            self._announce(self.members)

    def _receivers(self) -> tuple[int, ...]:
        return self.contributors if self.phase is Phase.RESHARE else self.members

    def _relayed_all(self, header: Header) -> bool:
        """Whether a client has now sent everything to everyone."""
        for kind in reversed(self._relayed_kinds()):  # what comes last is looked at first
            for receiver in reversed(self._receivers()):
                if receiver != header.sender:
                    layout = self._relayed_layout(replace(header, kind=kind, receiver=receiver))
                    if self.progress.get((int(kind), header.sender, receiver), 0) != layout.chunks:
                        return False
        return True

    def _relayed_layout(self, header: Header) -> Layout:
        if header.kind is Kind.HELLO or header.receiver in seeded_clients(self.session.params, header.sender, header):
            return SEED_LAYOUT
        return self.session.layout(header.kind, self.M, len(self.contributors))

    def _in_layout(self, opened: Opened, layout: Layout, what: str) -> None:
        header, size = opened.header, len(opened.payload)
        if header.chunks != layout.chunks or size != layout.payload_bytes(header.chunk):
            fault = f"{header.title} has {size} bytes instead of {layout.payload_bytes(header.chunk)}"
            raise FaultyPeer(header.sender, f"{fault}: no {what}")

    def _got_table(self, opened: Opened) -> None:
        """Add one client's masked table to the total."""
        header = opened.header
        layout = self.session.layout(Kind.TABLE, 0, 0, attempt=self.attempt)
        self._in_layout(opened, layout, "table")
        span = layout.span(header.chunk)
        try:
            part = RING61.from_bytes(opened.payload, span.stop - span.start, union.COLUMNS)
        except ValueError as error:
            raise FaultyPeer(header.sender, f"{header.title} is no table: {error}") from None
        if self.total is None:
            self.total = RING61.zeros(layout.rows, union.COLUMNS)
        RING61.add_rows(self.total, span, part)
        self._finish_with(header)

    def _got_opening(self, opened: Opened) -> None:
        header = opened.header
        layout = self.session.layout(Kind.OPENING, self.M, len(self.contributors))
        self._in_layout(opened, layout, "opening")
        span = layout.span(header.chunk)
        try:
            part = self.session.ring.from_bytes(opened.payload, span.stop - span.start)
        except ValueError as error:
            raise FaultyPeer(header.sender, f"{header.title} is no opening: {error}") from None
        if header.chunk == 0:
            self.openings[header.sender] = self.session.ring.zeros(len(self.contributors), layout.rows)
        self.openings[header.sender][:, layout.section(header.chunk), span] = part
        self._finish_with(header)

    def _got_answer(self, opened: Opened) -> None:
        """Keep an answer until all of them are there; then it becomes part of a mean."""
        header = opened.header
        self._in_layout(opened, self.session.layout(Kind.ANSWER, self.M, len(self.contributors)), "answer")
        try:
            self.session.form.check_answer(self.wire, self._client_of(header.chunk), opened.payload[DIGEST_BYTES:])
        except ValueError as error:
            raise FaultyPeer(header.sender, f"{header.title} is no answer: {error}") from None
        self.answers.setdefault(header.chunk, {})[header.sender] = opened.payload
        self._finish_with(header)
        while len(self.answers.get(self.masked, ())) == len(self.members):
            self._mask()

    def _got_abort(self, opened: Opened) -> None:
        """A client cannot place its entities: everyone begins again, with other buckets."""
        self._in_layout(opened, Layout(1, len(NO_PLACEMENT)), "abort")
        if bytes(opened.payload) != NO_PLACEMENT:
            raise FaultyPeer(opened.header.sender, f"{opened.header.title} says nothing that is known")
        self.unplaced.add(opened.header.sender)
        self._finish_with(opened.header)

    def _finish_with(self, header: Header) -> None:
        if header.chunk + 1 == header.chunks:
            self.finished[header.sender] = header.salt

    # ------------------------------------------------------------------------------------------------------- stages

    @property
    def complete(self) -> tuple[int, ...]:
        """The clients that have sent all of the present stage."""
        return tuple(sorted(self.hellos if self.phase is Phase.GREETING else self.finished))

    @property
    def taking_part(self) -> tuple[int, ...]:
        """Who sends or gets something in the present stage."""
        return self._receivers()

    @property
    def stage_bytes(self) -> int:
        """About what one client sends in the present stage, and gets to begin it: for the engine's patience."""
        waiting = max((sum(map(len, messages)) for messages in self.queue.values()), default=0)
        clients = len(self.contributors) or self.session.params.N
        sends = {
            Phase.TABLE: (Kind.TABLE, 1),
            Phase.QUERY: (Kind.QUERY, clients),
            Phase.OPENING: (Kind.OPENING, 1),
            Phase.RESHARE: (Kind.RESHARE, clients),
            Phase.SHARE: (Kind.SHARE, clients),
            Phase.ANSWER: (Kind.ANSWER, 1),
        }
        kind, times = sends.get(self.phase, (Kind.TAGS, 0))
        return waiting + times * self.session.layout(kind, self.M, clients, attempt=self.attempt).wire_bytes

    @property
    def fewest(self) -> int:
        """Below so many clients nothing can be computed, or someone would be exposed."""
        return max(self.session.params.fewest_contributors, self.session.params.quorum)

    def begin_round(self, clients: Iterable[int] | None = None) -> None:
        """The next round: the shares of these clients may come now (of all that can contribute, unless said).

        Where queries are weighted, the clients must be those that the weights were made for: see `begin_weights`.
        """
        if self.phase is not Phase.READY:
            raise FederationError(f"no round can begin in the phase '{self.phase}'")
        able = self.contributors if self.session.form.weighted else self.query_members
        members = able if clients is None else tuple(sorted(clients))
        if not set(members) <= set(self.query_members) or (self.session.form.weighted and members != able):
            raise FederationError(f"a round of {list(members)} cannot begin: it is prepared for {list(able)}")
        if len(members) < self.fewest:
            raise FederationError(f"a round of {len(members)} clients cannot begin; {self.fewest} are needed")
        if self.round == self.session.params.rounds:
            raise FederationError(
                f"sigma={self.session.params.sigma} was promised for rounds={self.round}, and they are over:"
                " begin a new session, with a larger `rounds` in Params"
            )
        self.round += 1
        self._collect(Phase.SHARE, members)

    def abandon(self) -> None:
        """Give up a round, or weights, that will not be finished, and be ready for another round."""
        self.queue, self.made = {}, {}
        if self.phase in (Phase.SHARE, Phase.ANSWER):
            self.context = self.base_context if self.phase is Phase.ANSWER else self.context
            self._collect(Phase.READY, self.members)
        elif self.phase in (Phase.OPENING, Phase.RESHARE):
            self.context, self.contributors = self.query_context, ()
            self._collect(Phase.READY, self.query_members)

    @property
    def stored_bytes(self) -> int:
        """The bytes of what the server keeps from round to round."""
        return self.tags.nbytes + sum(masker.stored_bytes for masker in self._prepared[1].values())

    def prepare(self) -> None:
        """Offline, before a round: the encrypted noise of the means to come, as if all will answer. Optional."""
        if self.phase is not Phase.READY or not self.session.form.paillier_bytes:
            return
        self.next_seed = self.wire.entropy(SEED_BYTES)
        ahead = Stage(Kind.MEAN, 0, 0, 0, 0, 0, NO_CONTEXT, NO_CONTEXT, self.next_seed)
        layout = self.session.layout(Kind.ANSWER, self.M, 1)
        self._prepared = (
            self.next_seed,
            {n: self.session.form.masker(self.wire, ahead, n) for n in self.query_members},
        )
        for masker in self._prepared[1].values():
            for chunk in range(layout.chunks):
                span = layout.span(chunk)
                masker.prepare(chunk, span.stop - span.start, self.query_members)

    def close(self) -> None:
        """End the stage: those that have sent everything go on, without the others."""
        if self.phase is Phase.READY:
            return
        there = self.complete
        self.queue = {}
        if self.phase is Phase.SECRET:  # whoever gave its part for the others has their hellos
            self.introduced |= {(v, n) for v in (*self.members, SERVER) for n in there}
        if len(there) < self.fewest and self.phase not in (Phase.RESHARE, Phase.ANSWER):
            self._give_up(f"{len(there)} clients took part in the stage '{self.phase}': {list(there)}")
        match self.phase:
            case Phase.GREETING:
                self._begin_epoch(there)
            case Phase.SECRET | Phase.QUERY if self.unplaced or not self._agreed(there):
                self._begin_epoch(there, again=True)
            case Phase.SECRET:
                self.context = step_context(self.context, 0, self._announce(there))
                self._collect(Phase.TABLE, there)
            case Phase.TABLE:
                self._close_table(there)
            case Phase.QUERY:
                self.query_context = self.context = step_context(self.context, 0, self._announce(there))
                self.query_members = there
                self._collect(Phase.READY, there)
                if self.session.form.weighted:
                    self._begin_weights(there)
            case Phase.OPENING:
                self._close_openings(there)
            case Phase.RESHARE if there != self.resharers:
                self._begin_weights(n for n in self.contributors if n in there or n not in self.resharers)
            case Phase.RESHARE:
                self.context = step_context(self.context, self.weights, self._announce(there))
                self._collect(Phase.READY, self.contributors)
            case Phase.SHARE:
                self._close_shares(there)
            case Phase.ANSWER:
                self._close_answers()

    def _agreed(self, there: tuple[int, ...]) -> bool:
        """Whether nobody was lost who had been announced early."""
        return self.announced is None or self.announced == there

    def _give_up(self, reason: str) -> None:
        """There is no result: tell whoever waits for one, and raise."""
        self.queue = {}
        fault = f"{reason}; {self.fewest} are needed"
        if self.phase in (Phase.SHARE, Phase.ANSWER):
            data = fault.encode()
            if self.phase is Phase.ANSWER:
                self.context = self.base_context
            self._tell(Kind.ABORT, data, Layout(1, len(data)), self.members)
            self._collect(Phase.READY, self.members)
        raise FederationError(fault)

    def begin_epoch(self, members: Iterable[int]) -> None:
        """Set up anew for these members: a new epoch."""
        self.queue = {}
        self._begin_epoch(members)

    def begin_weights(self, contributors: Iterable[int]) -> None:
        """New weights, for these contributors."""
        self.queue = {}
        self._begin_weights(contributors)

    def _begin_epoch(self, members: Iterable[int], *, again: bool = False) -> None:
        """A new epoch, or another attempt at this one."""
        members = tuple(sorted(members))
        if len(members) < self.fewest or not set(members) <= self.wire.peers.keys():
            known = [n for n in members if n in self.wire.peers]
            raise FederationError(f"{len(known)} clients said hello: {known}; {self.fewest} are needed")
        self._prepared, self.next_seed = (b"", {}), b""  # made for the keys of other incarnations
        self.epoch, self.attempt = (self.epoch, self.attempt + 1) if again else (self.epoch + 1, 0)
        if self.attempt > MOST_ATTEMPTS:
            raise FederationError(
                f"epoch {self.epoch} was not set up in {self.attempt} attempts; do the clients hold more than"
                f" max_union={self.session.max_union} entities together?"
            )
        self.context, self.weights = NO_CONTEXT, 0
        for n in members:
            if (SERVER, n) not in self.introduced:
                self._queue(n, self.wire.hello_message())
        announcement = Announcement(Step.GREETING, tuple((n, self.wire.peers[n].incarnation) for n in members))
        self._tell_announcement(announcement, members)
        for n in members:
            for v in members:
                if v != n and (v, n) not in self.introduced:
                    self._queue(n, self.hellos[v])
        self.context = members_context(self.epoch, self.attempt, announcement)
        self._collect(Phase.SECRET, members)

    def _begin_weights(self, contributors: Iterable[int]) -> None:
        contributors = tuple(sorted(contributors))
        if len(contributors) < self.fewest:
            raise FederationError(f"{len(contributors)} clients are left to contribute; {self.fewest} are needed")
        if not set(contributors) <= set(self.query_members):
            raise FederationError(f"of {list(contributors)} only {list(self.query_members)} have sent queries")
        self.contributors = contributors
        self.weights += 1
        self.context = self.query_context
        announcement = Announcement(Step.OPENING, tuple((n, NO_CONTEXT) for n in self.contributors))
        self._tell_announcement(announcement, self.contributors)
        self.context = step_context(self.query_context, self.weights, announcement)
        self._collect(Phase.OPENING, self.contributors)

    def _collect(self, phase: Phase, members: tuple[int, ...]) -> None:
        """Begin to collect the next stage."""
        self.phase, self.members = phase, members
        self.salts, self.progress, self.held, self.announced, self.finished = {}, {}, {}, None, {}
        self.total, self.openings, self.unplaced = None, {}, set()
        self.answers, self.masked, self.mean_salts, self._maskers = {}, 0, {}, {}

    def _close_table(self, there: tuple[int, ...]) -> None:
        """All tables are in: take the total apart. Or begin again without those that are missing."""
        if there != self.members:
            self._begin_epoch(there, again=True)
            return
        assert self.total is not None
        tags = union.peel(self.total, self.session.geometry(self.attempt, self.context))
        if tags is None:
            self._begin_epoch(there, again=True)
            return
        if tags.size > self.session.max_union:
            raise FederationError(
                f"the clients hold {tags.size} entities, more than max_union={self.session.max_union}: raise it"
            )
        self.tags = tags
        self._tell(Kind.TAGS, RING61.to_bytes(tags[None]), self.session.layout(Kind.TAGS, tags.size, 0), there)
        self.context = union_context(self.context, tags)
        self._collect(Phase.QUERY, there)

    def _close_openings(self, there: tuple[int, ...]) -> None:
        """The masked counts are in: share C / (rho * count) among the clients, and ask some of them to re-share."""
        if there != self.contributors:
            self._begin_weights(there)
            return
        session, code, ring = self.session, self.session.code, self.session.ring
        try:
            o, wrong = opened_masked(code, {v: self.openings[v] for v in there})
        except ContradictionError as error:
            raise ProtocolError(there, f"their openings contradict each other: {error}") from None
        self.faults += [ProtocolError((v,), f"its openings for weights {self.weights} do not fit") for v in wrong]
        t = reciprocals(ring, o, session.params.C)
        if not t.all():
            i = int(np.argwhere((t == 0).any(axis=(0, 2)))[0, 0])
            raise FederationError(f"a query of {party(there[i])} asks for an entity that no contributor owns")
        layout = session.layout(Kind.RECIPROCAL, self.M, len(there))
        # As for the means: a server that was rolled back shares t as it did before.
        stage = self._stage(Kind.RECIPROCAL, expand(self.wire.key.secret, "reciprocals", self.context))
        noise = KeyStream(expand(stage.seed, "noise")).elements(ring, code.T, *t.shape[1:])
        shares = code.encode(t[:, None], noise, there)
        for i, n in enumerate(there):
            sealer = self.wire.sealer(stage, n, layout.chunks)
            for chunk in range(layout.chunks):
                part = shares[:, i, layout.section(chunk), layout.span(chunk)]
                self._queue(n, sealer.seal(chunk, ring.to_bytes(part)))
        self.resharers = there[: session.params.need]
        announcement = Announcement(Step.RESHARE, tuple((n, NO_CONTEXT) for n in self.resharers))
        self._tell_announcement(announcement, there)
        self.context = step_context(self.context, self.weights, announcement)
        self._collect(Phase.RESHARE, self.resharers)

    def _close_shares(self, there: tuple[int, ...]) -> None:
        """The shares are in: announce the contributors, once, and pass the shares on."""
        if not self._agreed(there) or (self.session.form.weighted and there != self.contributors):
            self._give_up_shares(there)
            return
        announcement = self._announce(there)
        self.base_context, self.contributors = self.context, there
        self.context = step_context(self.context, self.round, announcement)
        self._collect(Phase.ANSWER, there)
        # Noise is drawn once for a context, also by a server that was rolled back.
        seed = self.next_seed or expand(self.wire.key.secret, "means", self.context)
        self.mean_stage, self.next_seed = self._stage(Kind.MEAN, seed), b""

    def _give_up_shares(self, there: tuple[int, ...]) -> None:
        """Someone is missing: the weights must be renewed for those who are there, before a round can be."""
        data = b"some contributors are missing: the round begins again without them"
        self._tell(Kind.ABORT, data, Layout(1, len(data)), there)
        self._collect(Phase.READY, there)
        if self.session.form.weighted:
            self._begin_weights(there)

    # -------------------------------------------------------------------------------------------------------- means

    def _client_of(self, chunk: int) -> int:
        layout = self.session.layout(Kind.ANSWER, self.M, len(self.contributors))
        return self.contributors[layout.section(chunk)]

    def _mask(self) -> None:
        """The next chunk of answers becomes a chunk of a mean."""
        assert self.mean_stage is not None
        session, chunk = self.session, self.masked
        layout = session.layout(Kind.ANSWER, self.M, len(self.contributors))
        n, within = self._client_of(chunk), layout.within(chunk)
        if within == 0:
            self._relabel_means(n)
        if n not in self._maskers:
            stage = replace(self.mean_stage, salt=self.mean_salts[n])
            is_ahead = hmac.compare_digest(self._prepared[0], stage.seed)
            ahead = self._prepared[1].get(n) if is_ahead else None
            masker = ahead or session.form.masker(self.wire, stage, n)
            self._maskers[n] = masker, self.wire.sealer(stage, n, layout.section_chunks)
        masker, sealer = self._maskers[n]
        answers, span = self.answers.pop(chunk), layout.span(chunk)
        clients = sorted(answers)
        bodies = {v: answers[v][DIGEST_BYTES:] for v in clients}
        proofs = [answers[v][:DIGEST_BYTES] for v in clients]
        parts = masker.mask(within, bodies, span.stop - span.start)
        answered = session.answered_to_bytes(tuple(clients))
        self.made.setdefault(n, []).append(sealer.seal(within, b"".join([answered, *proofs]), *parts))
        self.masked += 1

    def _relabel_means(self, n: int) -> None:
        """A new salt for one client's means: they depend on who answered, and that may differ after a rollback."""
        self.mean_salts[n] = self.wire.entropy(SALT_BYTES)
        self._maskers.pop(n, None)

    def _close_answers(self) -> None:
        """No more answers come: what has enough of them becomes means."""
        chunks = self.session.layout(Kind.ANSWER, self.M, len(self.contributors)).chunks
        enough = [v for v in self.members if v in self.finished]
        if len(enough) < self.session.params.quorum:
            self._give_up(f"{len(enough)} clients answered in round {self.round}: {enough}")
        while self.masked < chunks:
            self.answers[self.masked] = {v: a for v, a in self.answers[self.masked].items() if v in enough}
            self._mask()
        self.queue, self.made, self.context, self.done = self.made, {}, self.base_context, self.round
        self._collect(Phase.READY, self.members)

    # ------------------------------------------------------------------------------------------------------ sending

    def outbox(self) -> Iterator[tuple[int, Buffer]]:
        """What is to be delivered now: (client, message). The same until the next stage is closed."""
        for n, messages in self.queue.items():
            for message in messages:
                yield n, message

    def drain(self) -> dict[int, list[Buffer]]:
        """What can be delivered before the stage is closed; it is not kept. For engines that stream."""
        queue, self.queue = self.queue, {}
        for n, messages in self.made.items():  # the last chunk stays: a client goes on when it has it
            queue.setdefault(n, []).extend(messages[:-1])
            del messages[:-1]
        return queue

    def _queue(self, n: int, message: Buffer) -> None:
        self.queue.setdefault(n, []).append(message)

    def _stage(self, kind: Kind, seed: bytes = b"") -> Stage:
        return self.wire.stages({kind: self._label(kind)}, self.context, seed=seed)[0]

    def _label(self, kind: Kind) -> dict[str, int]:
        return label_of(kind, epoch=self.epoch, attempt=self.attempt, weights=self.weights, round=self.round)

    def _tell(self, kind: Kind, data: Buffer, layout: Layout, clients: tuple[int, ...]) -> None:
        """The same message to several clients, sealed for each."""
        stage = self._stage(kind)
        for n in clients:
            sealer = self.wire.sealer(stage, n, layout.chunks)
            for chunk in range(layout.chunks):
                span = layout.span(chunk)
                self._queue(n, sealer.seal(chunk, data[span.start * layout.row_bytes : span.stop * layout.row_bytes]))

    def _tell_announcement(self, announcement: Announcement, clients: tuple[int, ...]) -> None:
        data = announcement.to_bytes()
        self._tell(Kind.CONTRIBUTORS, data, Layout(1, len(data)), clients)

    def _announce(self, clients: tuple[int, ...]) -> Announcement:
        """Say whose messages count, and pass on what they sent to each other; once for each stage."""
        steps = {
            Phase.SECRET: Step.SECRET,
            Phase.QUERY: Step.QUERY,
            Phase.RESHARE: Step.WEIGHTS,
            Phase.SHARE: Step.SHARE,
        }
        announcement = Announcement(steps[self.phase], tuple((n, self.salts[n]) for n in clients))
        if self.announced is None:
            self.announced = clients
            receivers = self.contributors if self.phase is Phase.RESHARE else clients
            self._tell_announcement(announcement, receivers)
            for receiver in receivers:
                for sender in clients:
                    for message in self.held.get(receiver, {}).get(sender, ()):
                        self._queue(receiver, message)
            self.held = {}
        return announcement

    # ---------------------------------------------------------------------------------------------------- snapshots

    _SAVED: Final = (
        "epoch", "attempt", "weights", "round", "done", "context", "query_context", "base_context", "members",
        "query_members", "contributors", "resharers", "hellos", "total", "tags", "salts", "progress", "held",
        "announced", "openings", "answers", "finished", "queue", "made", "mean_salts",
    )  # fmt: skip

    def save(self) -> bytes:
        """All of the state. It holds the server's session key."""
        plain = {name: getattr(self, name) for name in self._SAVED}
        plain |= {"phase": str(self.phase), "wire": self.wire.plain()}
        plain |= {"introduced": sorted(self.introduced), "unplaced": sorted(self.unplaced)}
        plain |= {"mean_stage": None if self.mean_stage is None else self.mean_stage.plain(), "masked": self.masked}
        return snapshot.dumps({"what": _SNAPSHOT, "server": plain})

    @classmethod
    def restore(
        cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom, *, early: bool = False
    ) -> Self:
        """The server that was saved."""
        with snapshot.reading():
            self = cls._restored(session, identity, snapshot.loads(data), entropy)
        self.early = early
        return self

    @classmethod
    def _restored(cls, session: Session, identity: Identity, content: dict[str, Any], entropy: Entropy) -> Self:
        if content.get("what") != _SNAPSHOT:
            raise SnapshotError("this is not the saved state of a server of this version")
        plain: dict[str, Any] = content["server"]
        self = cls.__new__(cls)
        self.session = session
        self.wire = Endpoint.restore(session, identity, plain["wire"], entropy)
        for name in cls._SAVED:
            setattr(self, name, plain[name])
        self.phase, self.introduced = Phase(plain["phase"]), set(plain["introduced"])
        self.unplaced, self.masked, self._maskers = set(plain["unplaced"]), plain["masked"], {}
        self._prepared, self.next_seed, self.faults = (b"", {}), b"", []
        self.mean_stage = None if plain["mean_stage"] is None else Stage.of(plain["mean_stage"])
        return self
