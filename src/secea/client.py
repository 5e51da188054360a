"""A client as a state machine: messages in, messages out; no input or output, no clock, randomness passed in.

`receive` takes one chunk: it is right and counts, or a `ProtocolError` names who could be at fault and nothing has
changed. `outbox` gives what the client has to send now. It is a function of the state, so it can be repeated, also
after `save` and `restore`: save before the first byte leaves, and a crash never makes a second message under the same
key. While it deals shares to the others, the client keeps its own, once.

    phase       has sent             waits for                                   then
    GREETING    hello                the members of the epoch, and their hellos  SECRET
    SECRET      part of the secret   whose parts count, and the parts            TABLE
    TABLE       table                tags                                        QUERY
    QUERY       query, indicator     whose queries count, and the queries        READY
    READY       -                    `contribute`; or contributors for weights   SHARE; OPENING
    OPENING     opening              reciprocals, and who re-shares              RESHARE
    RESHARE     reshare              whose re-sharing counts, and it             READY
    SHARE       share                the contributors, and their shares          ANSWER
    ANSWER      answer               means                                       READY

Indicators, OPENING and RESHARE belong to the form "reciprocal" alone.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint, grid
from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.paillier import PrivateKey
from secea.buckets import EMPTY, Queries, place
from secea.correction import ContradictionError
from secea.errors import (
    SERVER,
    CallError,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ProtocolError,
    SnapshotError,
    Stale,
    TableError,
    party,
)
from secea.retrieval import Answerer, Reader
from secea.retrieval.paillier import private_key, secret_bytes
from secea.retrieval.reciprocal import open_masked, reshare_factors
from secea.session import Session, label_of, members_context, step_context, union_context
from secea.sharing import SEED_LAYOUT, Deal, Dealer, blocks, ones_at, seeded_clients, share_from_seed, spread
from secea.steps import union
from secea.table import Name, Table, TableLike, as_table, canonical_names
from secea.wire import snapshot
from secea.wire.endpoint import Endpoint, Opened, Stage, unknown_sender
from secea.wire.keys import Identity, expand, shared_secret, unauthentic
from secea.wire.messages import (
    ALL,
    DIGEST_BYTES,
    NO_CONTEXT,
    NO_PLACEMENT,
    Announcement,
    Buffer,
    Header,
    Kind,
    Layout,
    Step,
)
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

_SNAPSHOT: Final = "secea client 3"
_DEALT: Final = (Kind.QUERY, Kind.INDICATOR, Kind.RESHARE, Kind.SHARE)
"""What is shared among clients, their own share included."""
ASKERS_AT_ONCE: Final = 5
RECEIVERS_AT_ONCE: Final = 4
"""Clients whose queries are answered, or to whom shares are dealt, together: a chunk for each is held in memory."""


class Phase(StrEnum):
    """What a client waits for; see the head of this module."""

    GREETING = "greeting"
    SECRET = "secret"  # noqa: S105 - a phase of the protocol, not a password
    TABLE = "table"
    QUERY = "query"
    READY = "ready"
    OPENING = "opening"
    RESHARE = "reshare"
    SHARE = "share"
    ANSWER = "answer"


def bounded_names(session: Session, number: int, names: Iterable[object]) -> tuple[Name, ...]:
    """A client's names, no more than the public bound allows."""
    checked = canonical_names(names)
    if len(checked) > session.max_entities:
        raise TableError(
            f"{party(number)} has {len(checked)} entities, more than the public bound"
            f" max_entities={session.max_entities}: raise it"
        )
    return checked


def own_part(stage: Stage) -> bytes:
    """What a client gives to the shared secret."""
    return expand(stage.seed, "part of the shared secret")


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
        paillier: bytes = b"",
    ) -> None:
        """`paillier` is the Paillier key of an earlier session (`Client.paillier`); without it a new one is made."""
        if number not in range(session.params.N):
            raise CallError(f"there is no client {number!r}; the clients are 0..{session.params.N - 1}")
        self.session = session
        self.names: tuple[Name, ...] = bounded_names(session, number, names)
        self.paillier, public = b"", b""
        if session.form.paillier_bytes:
            key = private_key(paillier) if paillier else PrivateKey.generate(session.params.key_bits, entropy)
            self.paillier, public = secret_bytes(key), key.public.to_bytes()
        self.wire = Endpoint(session, number, identity, entropy, paillier=public)
        self.phase = Phase.GREETING
        self.epoch = self.attempt = self.weights = self.round = 0
        # The context of the union, of the queries, and of what goes on now; each follows from the one before.
        self.context = self.union_context = self.query_context = self.base_context = NO_CONTEXT
        self.pending: tuple[Stage, ...] = ()
        self.members: dict[int, bytes] | None = None  # of the step that is going on, once announced
        self.missing: set[tuple[int, int]] = set()  # (kind, sender) of what is still to come
        self.dealt: dict[int, int] = {}  # kind of what is pending: chunks of our own share of it that are kept
        self.greeted: tuple[int, ...] = ()
        self.parts: dict[int, bytes] = {}
        self.secret = b""
        self.union_members: tuple[int, ...] = ()
        self.tags: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self.placement: NDArray[np.int64] = np.zeros(0, np.int64)
        self.query_members: tuple[int, ...] = ()
        self.queries: dict[int, Residues] = {}
        self.indicators: dict[int, Residues] = {}
        self.contributors: tuple[int, ...] = ()
        self.resharers: tuple[int, ...] = ()
        self.reciprocals: Residues | None = None
        self.weighted: Residues | None = None
        self.values: Residues | None = None
        self.sums: Residues | None = None
        self.means: NDArray[np.float64] | None = None
        self.failure = ""
        self.faults: list[ProtocolError] = []
        """What others did wrong in this round, and could be mended."""
        self.coming: tuple[Name, ...] | None = None  # other names, from the next epoch on
        self.next_seed = b""
        self._prepared: tuple[bytes, dict[int, Answerer]] = (b"", {})  # what was made ahead from a seed
        self._reader: Reader | None = None
        self._shape: Queries | None = None
        self._entities: NDArray[np.uint64] | None = None
        self._given: Sequence[Name] | None = None  # the names of the last table, and where its rows go
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)

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

    @property
    def shape(self) -> Queries:
        """Which entities each query runs over: public, the same for all clients."""
        if self._shape is None:
            self._shape = self.session.query_shape(self.tags, self.union_context)
        return self._shape

    # --------------------------------------------------------------------------------------------- the user's calls

    @property
    def has_means(self) -> bool:
        """Whether the last round gave means; a part of them is no result."""
        return self.means is not None and self.phase is not Phase.ANSWER

    def means_like(self, table: Table) -> Floats:
        """The means of the last round in the order and the dtype of a table, and within the range of an input."""
        if not self.has_means or self.means is None:
            raise FederationError(f"{party(self.number)} has no means: {self.failure or 'no round was finished'}")
        if table.names == self._given:
            back = np.empty_like(self._order)
            back[self._order] = np.arange(back.size)
        else:
            place_of = {name: i for i, name in enumerate(self.names)}
            back = np.array([place_of[name] for name in table.names], np.int64)
        return fixedpoint.clip(self.means[back].astype(table.dtype), self.session.params.max_abs)

    def overdue(self) -> ProtocolError | None:
        """What this client waits for, where it should have come by now, and who may have failed to send it.

        Also a round that it began and that gave no means. None in a client that waits for nothing but its own user.
        """
        where = f"epoch {self.epoch}"
        if self.phase in (Phase.OPENING, Phase.RESHARE):
            where = f"weights {self.weights}"
        if self.phase in (Phase.SHARE, Phase.ANSWER):
            where = f"round {self.round}"
        if self.phase is Phase.READY:
            if self.round and self.means is None:
                return FaultyPeer(SERVER, self.failure or f"left us out of round {self.round}")
            unweighted = self.session.form.weighted and self.weighted is None
            return FaultyPeer(SERVER, f"did not have the weights of {where} made") if unweighted else None
        if self.phase in (Phase.TABLE, Phase.ANSWER):
            what = "tags" if self.phase is Phase.TABLE else "means"
            return FaultyPeer(SERVER, f"did not send all {what} of {where}")
        if self.missing and self.phase in (Phase.GREETING, Phase.OPENING):  # it has them: it announced, or makes them
            what = "hellos" if self.phase is Phase.GREETING else "reciprocals"
            return FaultyPeer(SERVER, f"did not send all {what} of {where}")
        if self.missing:
            senders = sorted({n for _, n in self.missing})
            return ProtocolError((SERVER, *senders), f"what is due in the phase '{self.phase}' of {where} did not come")
        return FaultyPeer(SERVER, f"did not say who takes part after the phase '{self.phase}' of {where}")

    def abandon(self) -> None:
        """Give up a round, or weights, that will not be finished. Nothing that was drawn for them is used again."""
        self._leave_round()
        if self.phase in (Phase.OPENING, Phase.RESHARE):
            self.context, self.contributors, self.weighted = self.query_context, (), None
            self._rest()

    @property
    def next_names(self) -> tuple[Name, ...]:
        """The names of its entities from the next epoch on."""
        return self.names if self.coming is None else self.coming

    @property
    def settled(self) -> bool:
        """Whether this client has finished the set-up of its epoch, with the entities that it has now."""
        return self.phase not in (Phase.GREETING, Phase.SECRET, Phase.TABLE, Phase.QUERY) and self.coming is None

    @property
    def usable_weights(self) -> int:
        """The number of the weights that this client can answer with; 0 while it has none."""
        making = self.phase in (Phase.OPENING, Phase.RESHARE)
        return 0 if making or self.weighted is None else self.weights

    @property
    def stored_bytes(self) -> int:
        """The bytes of what this client keeps from round to round."""
        kept = [self.tags, self.rows, self.placement, *self.queries.values(), *self.indicators.values(), self.weighted]
        arrays = sum(array.nbytes for array in kept if array is not None)
        return arrays + sum(answerer.stored_bytes for answerer in self._prepared[1].values())

    def update(self, names: Iterable[object]) -> None:
        """Other entities from the next epoch on; until it is set up, this client takes part in no round."""
        # What goes on keeps the names that it began with: a table that is sent again is the same table.
        self.coming = bounded_names(self.session, self.number, names)
        self._leave_round()

    def checked(self, table: TableLike) -> Table:
        """The table, if this client can contribute it: the right names, the right length, every value in range."""
        params = self.session.params
        given, due = as_table(table, params.dim), self.next_names
        known = self.coming is None and given.names == self._given
        if not known and set(given.names) != set(due):
            unlike = min(set(given.names) ^ set(due), key=repr)
            where = "the set-up, but not in the table" if unlike in due else "the table, but not in the set-up"
            raise TableError(f"{party(self.number)}: entity {unlike!r} is in {where} of this round")
        try:
            fixedpoint.check_range(given.matrix, given.names, params.max_abs)
        except TableError as error:
            raise TableError(f"{party(self.number)}: {error}") from None
        return given

    def contribute(self, table: TableLike, round: int | None = None) -> None:
        """Begin a round (the next one, unless said) with these embeddings; the names must be those of the set-up.

        A round that was not finished is given up.
        """
        if self.phase not in (Phase.READY, Phase.SHARE, Phase.ANSWER) or self.coming is not None:
            reason = "its entities changed" if self.coming is not None else f"it is in the phase '{self.phase}'"
            raise FederationError(f"{party(self.number)} cannot begin a round: {reason}")
        number = self.round + 1 if round is None else round
        if number <= self.round:
            raise FederationError(f"{party(self.number)} took part in round {self.round} already; {number} is past")
        given = self.checked(table)
        if given.names != self._given:
            place_of = {name: i for i, name in enumerate(given.names)}
            self._given, self._order = given.names, np.array([place_of[name] for name in self.names], np.int64)
        key = expand(self.wire.identity.secret, "fill")
        if self._entities is None:
            self._entities = grid.entities(self.names, key)
        rows = self.session.form.rows(given.matrix[self._order], self._entities, key)
        self._leave_round()
        self.values, self.means = blocks(rows, self.session.params.K), None
        self.round, self.failure, self.faults = number, "", []
        self._send(Phase.SHARE, Kind.SHARE)

    def prepare(self) -> None:
        """Offline, before a round: encryption randomness for the answers to come. Optional.

        None of it is part of the saved state: a client that is restored, from whatever snapshot, never uses it again.
        """
        if self.phase is not Phase.READY or not self.session.form.paillier_bytes:
            return
        self.next_seed = self.wire.entropy(SEED_BYTES)
        ahead = Stage(Kind.ANSWER, 0, 0, 0, 0, 0, NO_CONTEXT, NO_CONTEXT, self.next_seed)
        layout = self.session.layout(Kind.ANSWER, self.M, 1)
        self._prepared = (
            self.next_seed,
            {n: self.session.form.answerer(self.wire, ahead, n) for n in self.query_members},
        )
        for answerer in self._prepared[1].values():
            for chunk in range(layout.chunks):
                span = layout.span(chunk)
                answerer.prepare(chunk, span.stop - span.start)

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
        from_server = {
            Kind.CONTRIBUTORS: self._announced,
            Kind.TAGS: self._got_tags,
            Kind.RECIPROCAL: self._got_reciprocals,
            Kind.MEAN: self._got_means,
            Kind.ABORT: self._aborted,
        }
        from_client = {
            Kind.HELLO: self._got_part,
            Kind.QUERY: self._got_share,
            Kind.INDICATOR: self._got_share,
            Kind.RESHARE: self._got_share,
            Kind.SHARE: self._got_share,
        }
        handler = (from_server if header.sender == SERVER else from_client).get(header.kind)
        if handler is None:
            raise unauthentic(header.sender, f"{header.title} is not for a client")
        opened = self.wire.open(header, message)
        handler(opened)
        self.wire.take(opened)

    def _due(self, header: Header, *phases: Phase) -> None:
        """The message belongs to what this client waits for."""
        if self.phase not in phases:
            raise unauthentic(header.sender, f"{header.title} is not due: we are in the phase '{self.phase}'")
        if header.kind is Kind.CONTRIBUTORS:  # other announcements than that of a round may come to one who missed some
            self.wire.require(header, epoch=self.epoch, attempt=self.attempt, context=self.context)
        else:
            self.wire.require(header, **self._label(header.kind), context=self.context)

    def _whole(self, header: Header) -> None:
        if header.chunks != 1:
            raise FaultyPeer(header.sender, f"{header.title} should come in one chunk")

    def _label(self, kind: Kind) -> dict[str, int]:
        return label_of(kind, epoch=self.epoch, attempt=self.attempt, weights=self.weights, round=self.round)

    def _due_from_member(self, header: Header, phase: Phase) -> None:
        """The message comes from an announced member, and is the one that was announced."""
        if self.members is None or header.sender not in self.members:
            raise unauthentic(header.sender, f"{header.title} is from a client that was not announced")
        self._due(header, phase)
        if (header.kind, header.sender) not in self.missing:
            raise unauthentic(header.sender, f"{header.title} is not due, or came before")
        self.wire.require(header, salt=self.members[header.sender])

    # ------------------------------------------------------------------------------------------------ announcements

    def _announced(self, opened: Opened) -> None:
        """The server says who takes part in a step."""
        header = opened.header
        params = self.session.params
        self._whole(header)
        try:
            announcement = Announcement.parse(opened.payload, params.N)
        except ValueError as error:
            raise FaultyPeer(SERVER, f"sends a wrong announcement: {error}") from None
        clients = announcement.clients
        if len(clients) < params.fewest_contributors:
            fault = f"announces {len(clients)} clients; fewer than {params.fewest_contributors} would expose someone"
            raise FaultyPeer(SERVER, fault)
        if self.number not in clients and announcement.step not in (Step.RESHARE, Step.WEIGHTS):
            raise FaultyPeer(SERVER, f"announces clients without {party(self.number)}")
        match announcement.step:
            case Step.GREETING:
                self._new_epoch(header, announcement)
            case Step.SECRET:
                self._due(header, Phase.SECRET)
                self._announce(announcement, self.greeted, Kind.HELLO)
            case Step.QUERY:
                self._due(header, Phase.QUERY)
                if self.pending[0].kind is Kind.ABORT:
                    raise FaultyPeer(SERVER, "announces queries of ours, and we could send none")
                kinds = (Kind.QUERY, Kind.INDICATOR) if self.session.form.weighted else (Kind.QUERY,)
                self._announce(announcement, self.union_members, *kinds)
                self.query_members = clients
            case Step.OPENING:
                self._begin_opening(header, announcement)
            case Step.RESHARE:
                self._begin_reshare(header, announcement)
            case Step.WEIGHTS:
                self._due(header, Phase.RESHARE)
                if clients != self.resharers:
                    raise FaultyPeer(
                        SERVER, f"announces the re-sharing of {clients}, and asked {self.resharers} for it"
                    )
                self._announce(announcement, self.resharers, Kind.RESHARE)
            case Step.SHARE:
                self._due(header, Phase.SHARE)
                self.wire.require(header, round=self.round)
                if self.session.form.weighted and clients != self.contributors:
                    fault = f"announces the contributors {clients}; the weights are for {self.contributors}"
                    raise FaultyPeer(SERVER, fault)
                self._announce(announcement, self.query_members, Kind.SHARE)
                self.contributors = clients
        self._advance()

    def _announce(self, announcement: Announcement, among: tuple[int, ...], *kinds: Kind) -> None:
        """Fix the members of a step, once; what follows is bound to them."""
        step = announcement.step.name.lower()
        if self.members is not None:
            raise FaultyPeer(SERVER, f"announces the step {step} twice")
        members = dict(announcement.members)
        if self.number in members and members[self.number] != self.pending[0].salt:
            raise FaultyPeer(SERVER, f"announces another message of ours for the step {step} than the one that we sent")
        if not members.keys() <= set(among):
            raise FaultyPeer(SERVER, f"announces for the step {step} a client that has no part in it: {list(members)}")
        self.members = members
        self.missing = {(kind, n) for kind in kinds for n in members if n != self.number}

    def _advance(self) -> None:
        """Where nothing is missing any more: go on to the next phase."""
        if self.members is None or self.missing:
            return
        for stage in self.pending:
            if stage.kind in _DEALT:
                self._keep_own_share(stage)
        clients = tuple(self.members)
        members = tuple(self.members.items())
        match self.phase:
            case Phase.GREETING:
                self._send(Phase.SECRET, Kind.HELLO)
                self.parts = {self.number: own_part(self.pending[0])}
                self.greeted = clients
            case Phase.SECRET:
                self.context = step_context(self.context, 0, Announcement(Step.SECRET, members))
                # The masks are bound to the context, so what they hide must be a function of it.
                seed = expand(self.pending[0].seed, "table", self.context)
                self.secret = shared_secret([(n, self.parts[n]) for n in clients])
                self.parts, self.union_members = {}, clients
                self.tags = np.zeros(0, np.uint64)
                self._send(Phase.TABLE, Kind.TABLE, seed=seed)
            case Phase.QUERY:
                self.query_context = self.context = step_context(self.context, 0, Announcement(Step.QUERY, members))
                self._rest()
            case Phase.RESHARE:
                self.context = step_context(self.context, self.weights, Announcement(Step.WEIGHTS, members))
                self._rest()
            case Phase.SHARE:
                self.base_context = self.context
                self.context = step_context(self.context, self.round, Announcement(Step.SHARE, members))
                self._send(Phase.ANSWER, Kind.ANSWER, seed=self.next_seed)
                self.next_seed = b""
                self.means = np.full((len(self.names), self.session.params.dim), np.nan)
                self._reader = None

    def _send(self, phase: Phase, *kinds: Kind, seed: bytes = b"") -> None:
        """Go to a phase by sending something."""
        self.pending = self.wire.stages({kind: self._label(kind) for kind in kinds}, self.context, seed=seed)
        self.phase, self.members, self.missing, self.dealt = phase, None, set(), {}

    def _leave_round(self, *, finished: bool = False) -> None:
        """Back to where the next round can begin; nothing of this one is kept but its means, if it gave all of them."""
        if self.phase is Phase.ANSWER:
            self.context = self.base_context
            if not finished:
                self.means = None
        self.sums = self.values = self._reader = None
        if self.phase in (Phase.SHARE, Phase.ANSWER):
            self._rest()

    def _rest(self) -> None:
        self.phase, self.pending, self.members, self.missing = Phase.READY, (), None, set()

    # --------------------------------------------------------------------------------------------- hellos and union

    def _greeted(self, header: Header, message: Buffer) -> None:
        """A hello: the server's, or that of an announced member that is still missing."""
        if header.sender != SERVER:
            known = self.wire.peers.get(header.sender)
            if known is not None and header.salt == known.incarnation:
                raise Stale((header.sender, SERVER), f"{header.title} came before")
            if self.phase is not Phase.GREETING or (Kind.HELLO, header.sender) not in self.missing:
                raise unauthentic(header.sender, f"{header.title} is not due")
            assert self.members is not None
            self.wire.require(header, salt=self.members[header.sender])
        self.wire.greet(header, message)
        self.missing.discard((Kind.HELLO, header.sender))
        if self.phase is Phase.GREETING:
            self._advance()

    def _new_epoch(self, header: Header, announcement: Announcement) -> None:
        """All of the set-up begins anew: fresh secret, fresh tags, fresh queries."""
        if (header.epoch, header.attempt) <= (self.epoch, self.attempt):
            raise FaultyPeer(SERVER, f"announces epoch {header.epoch}, attempt {header.attempt}, which is past")
        self.wire.require(header, context=NO_CONTEXT)
        members = dict(announcement.members)
        if members[self.number] != self.wire.hello.incarnation:
            raise FaultyPeer(SERVER, "announces another incarnation of ours")
        self._leave_round()
        self._prepared, self.next_seed = (b"", {}), b""  # made for the keys of other incarnations
        self.epoch, self.attempt, self.weights = header.epoch, header.attempt, 0
        self.contributors, self.reciprocals, self.weighted = (), None, None
        if self.coming is not None:
            self.names, self.coming, self.means = self.coming, None, None
        self.context = members_context(self.epoch, self.attempt, announcement)
        self.phase, self.pending, self.members = Phase.GREETING, (), members
        known = {n for n, hello in self.wire.peers.items() if members.get(n) == hello.incarnation}
        self.missing = {(int(Kind.HELLO), n) for n in set(members) - known - {self.number}}

    def _got_part(self, opened: Opened) -> None:
        header = opened.header
        self._due_from_member(header, Phase.SECRET)
        if len(opened.payload) != SEED_BYTES or header.chunks != 1:
            raise FaultyPeer(header.sender, f"its part of the secret has {len(opened.payload)} bytes")
        self.parts[header.sender] = bytes(opened.payload)
        self.missing.discard((Kind.HELLO, header.sender))
        self._advance()

    def _own_tags(self) -> NDArray[np.uint64]:
        return union.tags_of(self.names, expand(self.secret, "tags", self.context))

    def _got_tags(self, opened: Opened) -> None:
        header, payload = opened.header, opened.payload
        self._due(header, Phase.TABLE)
        try:
            count = len(payload) // RING61.element_bytes
            tags = np.concatenate([self.tags, RING61.from_bytes(payload, count)[0]])
        except ValueError as error:
            raise FaultyPeer(SERVER, f"{header.title} is no list of tags: {error}") from None
        if tags.size > self.session.max_union:
            raise FaultyPeer(SERVER, f"sends more than max_union={self.session.max_union} tags")
        if (tags[1:] <= tags[:-1]).any():
            raise FaultyPeer(SERVER, "sends tags that are not in order")
        if header.chunk + 1 < header.chunks:
            self.tags = tags
            return
        if header.chunks != self.session.layout(Kind.TAGS, tags.size, 0).chunks:
            raise FaultyPeer(SERVER, f"sends {tags.size} tags in {header.chunks} chunks")
        own = self._own_tags()
        rows = np.searchsorted(tags, own)
        lacking = np.append(tags, np.uint64(0))[rows] != own
        lacking |= rows == tags.size
        if lacking.any():
            raise FaultyPeer(SERVER, f"sends a union that lacks {int(lacking.sum())} of our {own.size} entities")
        if np.unique(rows).size != rows.size:
            raise FederationError("two of our entities have the same tag (a 61-bit hash): begin a new epoch")
        order = np.argsort(rows)
        self.tags, self.rows = tags, rows[order].astype(np.int64)
        self.names = tuple(self.names[i] for i in order)
        if self.means is not None:
            self.means = self.means[order]
        self.context = self.union_context = union_context(self.context, tags)
        self._shape = self._entities = self._given = None
        self._begin_query()

    def _begin_query(self) -> None:
        """Place the own entities, and ask for them; where they cannot be placed, everyone begins again."""
        self._send(Phase.QUERY, Kind.QUERY, *((Kind.INDICATOR,) if self.session.form.weighted else ()))
        placement = place(self.rows, self.shape, KeyStream(expand(self.pending[0].seed, "placement")))
        if placement is None:
            self._send(Phase.QUERY, Kind.ABORT)
            return
        self.placement = placement
        self.queries, self.indicators = {}, {}

    # ------------------------------------------------------------------------------------------------------ sharing

    def _deal(self, stage: Stage) -> Deal:
        """What this client shares in a stage: its rows, chunk by chunk."""
        session = self.session
        layout = session.layout(stage.kind, self.M, len(self.contributors))
        match stage.kind:
            case Kind.QUERY:
                dummies = self.shape.positions + np.flatnonzero(self.placement == EMPTY)
                ones = np.concatenate([self.shape.wanted(self.placement), dummies])
                return Deal(layout, 1, lambda chunk: ones_at(session.ring, ones, layout.span(chunk)))
            case Kind.INDICATOR:
                return Deal(layout, 1, lambda chunk: ones_at(session.ring, self.rows, layout.span(chunk)))
            case Kind.RESHARE:
                along = reshare_factors(session.code, self.resharers, self.number)
                return Deal(layout, 1, lambda chunk: self._products(layout.span(chunk)), along)
            case _:
                values = self.values
                assert values is not None
                width = session.form.block_length
                return Deal(layout, width, lambda chunk: spread(values, self.rows, layout.span(chunk)))

    def _dealer(self, stage: Stage, receivers: Iterable[int]) -> tuple[Dealer, dict[int, bytes]]:
        """The shares of one stage, and the seeds of those that go as seeds."""
        seeded = seeded_clients(self.session.params, self.number, stage)
        seeds = {v: expand(stage.seed, "share", b"%d" % v) for v in seeded}
        return Dealer(self.session.code, tuple(receivers), seeds), seeds

    def _keep_own_share(self, stage: Stage) -> None:
        """What this client keeps of what it shares, as far as it was not kept while it was dealt to the others."""
        deal = self._deal(stage)
        dealer, _ = self._dealer(stage, [self.number])
        for chunk in range(self.dealt.get(stage.kind, 0), deal.layout.chunks):
            self._keep_own(stage, deal.layout, chunk, dealer.deal(chunk, deal.data(chunk), deal.along)[:, 0])

    def _keep_own(self, stage: Stage, layout: Layout, chunk: int, share: Residues) -> None:
        """Keep one chunk of our own share, once, however often it is dealt."""
        if stage in self.pending and self.dealt.get(stage.kind, 0) == chunk:
            self._sink(stage.kind, self.number, layout, chunk, share)
            self.dealt[int(stage.kind)] = chunk + 1

    def _got_share(self, opened: Opened) -> None:
        """Another client's share: of a query, an indicator, a re-sharing, or its embeddings (eq. 8)."""
        header, payload, session = opened.header, opened.payload, self.session
        phase = {Kind.RESHARE: Phase.RESHARE, Kind.SHARE: Phase.SHARE}.get(header.kind, Phase.QUERY)
        self._due_from_member(header, phase)
        layout = session.layout(header.kind, self.M, len(self.contributors))
        width = session.form.block_length if header.kind is Kind.SHARE else 1
        seeded = self.number in seeded_clients(session.params, header.sender, header)
        due = SEED_LAYOUT if seeded else layout
        if header.chunks != due.chunks or len(payload) != due.payload_bytes(header.chunk):
            fault = f"{header.title} has {len(payload)} bytes instead of {due.payload_bytes(header.chunk)}"
            raise FaultyPeer(header.sender, fault)
        if seeded:
            for chunk, share in enumerate(share_from_seed(bytes(payload), session.ring, layout, width)):
                self._sink(header.kind, header.sender, layout, chunk, share)
        else:
            span = layout.span(header.chunk)
            try:
                share = session.ring.from_bytes(payload, span.stop - span.start, width)
            except ValueError as error:
                raise FaultyPeer(header.sender, f"{header.title} is no share: {error}") from None
            self._sink(header.kind, header.sender, layout, header.chunk, share)
        if header.chunk + 1 == header.chunks:
            self.missing.discard((header.kind, header.sender))
            self._advance()

    def _sink(self, kind: Kind, sender: int, layout: Layout, chunk: int, share: Residues) -> None:
        """Keep a share [P, rows, width], or add it to the others'."""
        ring, span = self.session.ring, layout.span(chunk)
        if kind in (Kind.QUERY, Kind.INDICATOR):
            kept = self.queries if kind is Kind.QUERY else self.indicators
            if chunk == 0:
                kept[sender] = ring.empty(layout.rows)
            kept[sender][:, span] = share[:, :, 0]
        elif kind is Kind.RESHARE:
            assert self.weighted is not None
            ring.add_rows(self.weighted.reshape(ring.size, -1), span, share[:, :, 0])
        else:
            if self.sums is None:
                self.sums = ring.zeros(layout.rows, share.shape[2])
            ring.add_rows(self.sums, span, share)

    # ------------------------------------------------------------------------------------------------------ weights

    def _begin_opening(self, header: Header, announcement: Announcement) -> None:
        """New contributors: open their masked counts, to make the weights."""
        if not self.session.form.weighted:
            raise FaultyPeer(SERVER, "asks for weights, which this form does not use")
        if not self.settled:
            raise FaultyPeer(SERVER, f"asks for weights in the phase '{self.phase}'")
        self.wire.require(header, epoch=self.epoch, attempt=self.attempt, context=self.query_context)
        if header.weights <= self.weights:
            raise FaultyPeer(
                SERVER, f"asks for weights number {header.weights}; number {self.weights} was made already"
            )
        if not set(announcement.clients) <= set(self.query_members):
            raise FaultyPeer(SERVER, "asks for weights of a client that sent no queries")
        self._leave_round()
        self.weights, self.contributors = header.weights, announcement.clients
        self.context = step_context(self.query_context, self.weights, announcement)
        self.reciprocals = self.weighted = None
        self._send(Phase.OPENING, Kind.OPENING)
        self.missing = {(int(Kind.RECIPROCAL), SERVER)}

    def _rho(self) -> Residues:
        """A nonzero mask for each query, known to all clients (section 7b, step 1): [P, contributors, queries]."""
        stream = KeyStream(expand(self.secret, "rho", self.query_context, b"%d" % self.weights, self._whose()))
        return stream.nonzero(self.session.ring, len(self.contributors), self.shape.count)

    def _whose(self) -> bytes:
        return b" ".join(b"%d" % n for n in self.contributors)

    def _openings(self) -> Residues:
        """rho * count + zeta at this client's point, for each query of each contributor: [P, contributors, queries]."""
        ring, shape = self.session.ring, self.shape
        counts = ring.zeros(self.M)
        for n in self.contributors:
            ring.add_into(counts, self.indicators[n])
        found = ring.empty(len(self.contributors), shape.count)
        for i, n in enumerate(self.contributors):
            query = self.queries[n]
            sums = ring.gather(shape.starts, shape.members, query, counts[:, :, None])[:, :, 0]
            found[:, i] = ring.add(sums, np.ascontiguousarray(query[:, shape.positions :]))
        zeta = KeyStream(expand(self.secret, "zeta", self.query_context, b"%d" % self.weights, self._whose()))
        return open_masked(self.session.code, found, self._rho(), zeta, self.number)

    def _got_reciprocals(self, opened: Opened) -> None:
        header, ring = opened.header, self.session.ring
        self._due(header, Phase.OPENING)
        layout = self.session.layout(Kind.RECIPROCAL, self.M, len(self.contributors))
        if header.chunks != layout.chunks or len(opened.payload) != layout.payload_bytes(header.chunk):
            raise FaultyPeer(SERVER, f"{header.title} has {len(opened.payload)} bytes")
        span = layout.span(header.chunk)
        try:
            share = ring.from_bytes(opened.payload, span.stop - span.start)
        except ValueError as error:
            raise FaultyPeer(SERVER, f"{header.title} is no share: {error}") from None
        if self.reciprocals is None:
            self.reciprocals = ring.zeros(len(self.contributors), layout.rows)
        self.reciprocals[:, layout.section(header.chunk), span] = share
        if header.chunk + 1 == header.chunks:
            self.missing.discard((Kind.RECIPROCAL, SERVER))

    def _begin_reshare(self, header: Header, announcement: Announcement) -> None:
        """The reciprocals are here: [C/c] = rho * [t]; those that are asked to bring the degree down."""
        self._due(header, Phase.OPENING)
        if self.reciprocals is None or self.missing:
            raise FaultyPeer(SERVER, "asks for re-sharing before it sent all reciprocals")
        clients = announcement.clients
        if len(clients) != self.session.params.need or not set(clients) <= set(self.contributors):
            raise FaultyPeer(SERVER, f"asks {clients} to re-share; {self.session.params.need} contributors are due")
        self.resharers = clients
        self.reciprocals = self.session.ring.multiply(self._rho(), self.reciprocals)
        self.weighted = self.session.ring.zeros(len(self.contributors), self.shape.positions)
        self.context = step_context(self.context, self.weights, announcement)
        self._send(Phase.RESHARE, *((Kind.RESHARE,) if self.number in clients else ()))

    def _products(self, span: slice) -> Residues:
        """[q] * [C/c] for a stretch of all queries, to be shared lambda times (step 3): [P, 1, span, 1]."""
        ring, positions = self.session.ring, self.shape.positions
        assert self.reciprocals is not None
        products = ring.empty(1, span.stop - span.start, 1)
        for section in range(span.start // max(1, positions), -(-span.stop // max(1, positions))):
            before = section * positions
            part = slice(max(span.start - before, 0), min(span.stop - before, positions))
            query = np.ascontiguousarray(self.queries[self.contributors[section]][:, part])
            weight = np.ascontiguousarray(self.reciprocals[:, section][:, self.shape.query_of(part)])
            start = before + part.start - span.start
            products[:, 0, start : start + query.shape[1], 0] = ring.multiply(query, weight)
        return products

    # ------------------------------------------------------------------------------------------- answers and means

    def _answers(self, stage: Stage) -> Iterator[tuple[int, bytes, Buffer]]:
        """<query, sums> for each query of each contributor, covered, behind a proof: chunk by chunk."""
        session, shape = self.session, self.shape
        sums = self.sums
        assert sums is not None
        layout = session.layout(Kind.ANSWER, self.M, len(self.contributors))
        proofs = [self.wire.confirmation(self.number, n, stage.context) for n in self.contributors]
        ahead = self._prepared[1] if hmac.compare_digest(self._prepared[0], stage.seed) else {}
        answerers = [ahead.get(n) or session.form.answerer(self.wire, stage, n) for n in self.contributors]
        weights = [self._weights(section) for section in range(layout.sections)]
        for first in range(0, layout.chunks, layout.sections):
            span = layout.span(first)
            starts = shape.starts[span.start : span.stop + 1]
            for low in range(0, layout.sections, ASKERS_AT_ONCE):
                some = range(low, min(low + ASKERS_AT_ONCE, layout.sections))
                answers = [answerers[i].begin(layout.within(first), starts.size - 1) for i in some]
                session.ring.gather_into(answers, starts, shape.members, weights[some.start : some.stop], sums)
                for i, each in zip(some, answers, strict=True):
                    yield first + i, proofs[i], answerers[i].cover(layout.within(first), each)

    def _weights(self, section: int) -> Residues:
        """The queries of one contributor, as they are answered."""
        return self.queries[self.contributors[section]] if self.weighted is None else self.weighted[:, section]

    def _got_means(self, opened: Opened) -> None:
        """What the server made of the answers to our queries."""
        header, session = opened.header, self.session
        self._due(header, Phase.ANSWER)
        answered = session.answered_bytes
        answering = session.answered_from_bytes(bytes(opened.payload[:answered]))
        if len(answering) < session.params.quorum or not set(answering) <= set(self.contributors):
            fault = f"says that {list(answering)} answered; {session.params.quorum} contributors are due"
            raise FaultyPeer(SERVER, fault)
        layout = session.layout(Kind.MEAN, self.M, len(answering))
        if header.chunks != layout.chunks or len(opened.payload) != layout.payload_bytes(header.chunk):
            raise FaultyPeer(SERVER, f"{header.title} has {len(opened.payload)} bytes")
        for i, v in enumerate(answering):
            at = answered + i * DIGEST_BYTES
            proof = self.wire.confirmation(v, self.number, self.context)
            if not hmac.compare_digest(opened.payload[at : at + DIGEST_BYTES], proof):
                if v == self.number:
                    raise FaultyPeer(SERVER, "passes other bytes on with our own answer than we sent")
                raise FaultyPeerOrRelay(v, "answered for other contributors than those that were announced to us")
        span = layout.span(header.chunk)
        if self._reader is None:
            self._reader = session.form.reader(self.wire, self.pending[0], self.contributors, self.paillier)
        try:
            body = opened.payload[layout.prefix :]
            rows, wrong = self._reader.read(header.chunk, answering, body, span.stop - span.start)
        except ContradictionError as error:
            raise ProtocolError(
                (SERVER, *self._others(answering)), f"the answers do not fit together: {error}"
            ) from None
        except ValueError as error:
            raise FaultyPeer(SERVER, f"{header.title} cannot be read: {error}") from None
        self._keep(rows, span, answering)
        self._blame(wrong)
        if header.chunk + 1 == header.chunks:
            self._leave_round(finished=True)

    def _keep(self, rows: NDArray[np.float64], span: slice, answering: tuple[int, ...]) -> None:
        """Check what can be checked, and keep the means of our own entities."""
        params = self.session.params
        wanted = self.placement[span]
        real = wanted != EMPTY
        limit = np.where(real, params.max_abs * (1 + 2**-6) + params.resolution, self.session.form.tolerance)
        wrong = ~(_sizes(rows[:, : params.dim]) <= limit)
        wrong |= ~(_sizes(rows[:, params.dim :]) <= self.session.form.tolerance)
        if wrong.any():
            fault = f"{int(wrong.sum())} of {wrong.size} results are impossible: one of them computed wrongly"
            raise ProtocolError((SERVER, *self._others(answering)), fault)
        assert self.means is not None
        self.means[np.searchsorted(self.rows, wanted[real])] = rows[real, : params.dim]

    def _others(self, clients: Iterable[int]) -> tuple[int, ...]:
        return tuple(v for v in clients if v != self.number)

    def _blame(self, wrong: tuple[int, ...]) -> None:
        """Keep in mind whose answers did not fit; the means are made without them. Ours can only the server spoil.

        A client is not convicted by this: someone may have dealt it a wrong share.
        """
        for v in wrong:
            who = SERVER if v == self.number else v
            if all(fault.suspects[0] != who for fault in self.faults):
                whose = "its answer" if who == v else "our own answer, as it has it,"
                fault = f"{whose} does not fit the others' in round {self.round}; the means are made without it"
                self.faults.append(unauthentic(who, fault))

    def _aborted(self, opened: Opened) -> None:
        """The server gives a round up: there is no result, and the next one begins afresh."""
        self._whole(opened.header)
        self.wire.require(opened.header, **self._label(Kind.ABORT))
        if self.phase not in (Phase.SHARE, Phase.ANSWER):
            raise FaultyPeer(SERVER, f"gives up a round in the phase '{self.phase}'")
        self.failure = bytes(opened.payload).decode(errors="replace")
        self._leave_round()

    # ------------------------------------------------------------------------------------------------------ sending

    def outbox(self) -> Iterator[Buffer]:
        """What this client has to send now; the same bytes each time, until something is received."""
        if self.phase is Phase.GREETING and self.epoch == 0:
            yield self.wire.hello_message()
        for stage in self.pending:
            match stage.kind:
                case Kind.HELLO:
                    for v in self.greeted:
                        if v != self.number:
                            yield self.wire.sealer(stage, v).seal(0, own_part(stage))
                case Kind.TABLE:
                    yield from self._table_messages(stage)
                case Kind.OPENING:
                    yield from self._opening_messages(stage)
                case Kind.ANSWER:
                    layout = self.session.layout(Kind.ANSWER, self.M, len(self.contributors))
                    sealer = self.wire.sealer(stage, SERVER, layout.chunks)
                    for chunk, proof, covered in self._answers(stage):
                        yield sealer.seal(chunk, proof, covered)
                case Kind.ABORT:
                    yield self.wire.sealer(stage, SERVER).seal(0, NO_PLACEMENT)
                case _:
                    yield from self._share_messages(stage)

    def _table_messages(self, stage: Stage) -> Iterator[Buffer]:
        geometry = self.session.geometry(self.attempt, self.context)
        table = union.fill(self._own_tags(), geometry, KeyStream(stage.seed))
        others = (v for v in self.union_members if v != self.number)
        union.mask(table, self.number, ((v, self.wire.channels[v].stream("mask", self.context)) for v in others))
        layout = self.session.layout(Kind.TABLE, 0, 0, attempt=self.attempt)
        sealer = self.wire.sealer(stage, SERVER, layout.chunks)
        for chunk in range(layout.chunks):
            yield sealer.seal(chunk, RING61.to_bytes(table[:, layout.span(chunk)]))

    def _opening_messages(self, stage: Stage) -> Iterator[Buffer]:
        openings = self._openings()
        layout = self.session.layout(Kind.OPENING, self.M, len(self.contributors))
        sealer = self.wire.sealer(stage, SERVER, layout.chunks)
        for chunk in range(layout.chunks):
            part = openings[:, layout.section(chunk), layout.span(chunk)]
            yield sealer.seal(chunk, self.session.ring.to_bytes(part))

    def _share_messages(self, stage: Stage) -> Iterator[Buffer]:
        """Shares for all members of the epoch, whoever of them will be announced."""
        others = [v for v in self._receivers(stage) if v != self.number]
        dealer, seeds = self._dealer(stage, [self.number, *others])
        for v, seed in seeds.items():
            if v in others:
                yield self.wire.sealer(stage, v).seal(0, seed)
        deal = self._deal(stage)
        sealers = {v: self.wire.sealer(stage, v, deal.layout.chunks) for v in dealer.receivers[1:]}
        for chunk in range(deal.layout.chunks):
            data = deal.data(chunk)
            for first in range(0, len(dealer.receivers), RECEIVERS_AT_ONCE):
                some = slice(first, first + RECEIVERS_AT_ONCE)
                shares = dealer.deal(chunk, data, deal.along, some)
                for i, v in enumerate(dealer.receivers[some]):
                    if v == self.number:
                        self._keep_own(stage, deal.layout, chunk, shares[:, i])
                    else:
                        yield sealers[v].seal(chunk, self.session.ring.to_bytes(shares[:, i]))

    def _receivers(self, stage: Stage) -> tuple[int, ...]:
        if stage.kind in (Kind.QUERY, Kind.INDICATOR):
            return self.union_members
        return self.contributors if self.session.form.weighted else self.query_members

    # ---------------------------------------------------------------------------------------------------- snapshots

    _SAVED: Final = (
        "names", "paillier", "epoch", "attempt", "weights", "round",
        "context", "union_context", "query_context", "base_context",
        "members", "dealt", "greeted", "parts", "secret", "union_members", "tags", "rows", "placement", "query_members",
        "queries", "indicators", "contributors", "resharers", "reciprocals", "weighted", "values", "sums", "means",
        "failure", "coming",
    )  # fmt: skip

    def save(self) -> bytes:
        """All of the state. It holds keys: whoever reads it can act as this client."""
        plain = {name: getattr(self, name) for name in self._SAVED}
        plain |= {"phase": str(self.phase), "wire": self.wire.plain()}
        plain |= {"missing": [(int(kind), n) for kind, n in sorted(self.missing)]}
        plain |= {"pending": [stage.plain() for stage in self.pending]}
        return snapshot.dumps({"what": _SNAPSHOT, "client": plain})

    @classmethod
    def restore(cls, session: Session, identity: Identity, data: bytes, entropy: Entropy = os.urandom) -> Self:
        """The client that was saved."""
        with snapshot.reading():
            return cls._restored(session, identity, snapshot.loads(data), entropy)

    @classmethod
    def _restored(cls, session: Session, identity: Identity, content: dict[str, Any], entropy: Entropy) -> Self:
        if content.get("what") != _SNAPSHOT:
            raise SnapshotError("this is not the saved state of a client of this version")
        plain: dict[str, Any] = content["client"]
        self = cls.__new__(cls)
        self.session = session
        self.wire = Endpoint.restore(session, identity, plain["wire"], entropy)
        for name in cls._SAVED:
            setattr(self, name, plain[name])
        self.phase, self.missing = Phase(plain["phase"]), set(plain["missing"])
        self.pending = tuple(Stage.of(stage) for stage in plain["pending"])
        self._reader = self._shape = self._entities = self._given = None
        self._order = np.zeros(0, np.int64)
        self._prepared, self.next_seed, self.faults = (b"", {}), b"", []
        return self


def _sizes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The size of the largest number in each row; NaN if one of them is."""
    if not rows.shape[1]:
        return np.zeros(len(rows))
    sizes: NDArray[np.float64] = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    return sizes
