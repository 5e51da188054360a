"""Client n of the paper's form: what it draws, sends, checks and keeps in each phase.

Its state is in two records: the epoch (`Epoch`: secret, union, queries) and the round (`Round`: embeddings, sums,
means). The Paillier key lasts as long as its saved state.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.paillier import PrivateKey
from secea.errors import SERVER, FaultyPeer, FaultyPeerOrRelay, FederationError, ProtocolError, TableError, party
from secea.forms import tables
from secea.forms.paillier.buckets import EMPTY, Queries, place
from secea.forms.paillier.correction import ContradictionError
from secea.forms.paillier.form import (
    NO_PLACEMENT,
    Kind,
    Paillier,
    answered_bytes,
    answered_from_bytes,
    settled_context,
    union_context,
)
from secea.forms.paillier.retrieval import Decrypter, Encrypter, private_key, public_key, secret_bytes
from secea.forms.paillier.sharing import Deal, Dealer, blocks, expand_rows, ones_at, share_from_seed, spread
from secea.names import Spelling
from secea.params import Params
from secea.party.form import ClientDefaults, Got, Retry
from secea.party.phases import Agreement
from secea.steps import union
from secea.table import Name, Table, TableLike, as_table
from secea.wire.keys import Channel, expand, shared_secret, unauthentic
from secea.wire.link import Link
from secea.wire.messages import DIGEST_BYTES, NO_CONTEXT, Buffer
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

ASKERS_AT_ONCE: Final = 5
RECEIVERS_AT_ONCE: Final = 4
"""Clients whose queries are answered, or to whom shares are dealt, together: a chunk for each is held in memory."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One shared secret, one union, one set of queries."""

    seed: bytes = field(repr=False)
    """The seed of its part of the secret, and of its lookup table."""
    secret: bytes = field(default=b"", repr=False)
    tags: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    """The rows of own entities in the union, in order. The names are in the same order."""
    shape: Queries | None = None
    placement: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    """The row that each query asks for."""
    queries: dict[int, Residues] = field(default_factory=dict, repr=False)
    """Shares of everyone's queries."""
    context: bytes = NO_CONTEXT
    """The context in which rounds begin."""

    @property
    def part(self) -> bytes:
        """The client's part of the shared secret."""
        return expand(self.seed, "part of the shared secret")


@dataclass(frozen=True, slots=True)
class Round:
    """What goes into a round, and what comes out of it."""

    values: Residues = field(repr=False)
    """Own embeddings in blocks, [P, K, own, L]."""
    sums: Residues = field(repr=False)
    """The sum of the shares of everyone's embeddings, [P, M, L]."""
    means: NDArray[np.float64] | None = field(default=None, repr=False)
    """The means of own entities, as they arrive."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Encryption randomness that was made before a round; a client that is restarted never uses it."""

    seed: bytes = field(default=b"", repr=False)
    encrypters: dict[int, Encrypter] = field(default_factory=dict, repr=False)


class PaillierClient(ClientDefaults):
    """The part of client n."""

    link: Link

    def __init__(self, form: Paillier, params: Params, number: int, names: Iterable[object], entropy: Entropy) -> None:
        self.form, self.params, self.number = form, params, number
        self.numbers = form.numbers(params)
        self._entropy = entropy
        self.spelling = Spelling(params.normalize, party(number))
        self.names = self._bounded(names)
        """The keys of its entities in the union, in the order of their rows once the union is complete."""
        self.coming: tuple[Name, ...] | None = None
        """Other entities, from the next epoch on."""
        self._secret = b""  # the Paillier key, as it was saved
        self._seed = b""  # of what this client sends in this phase
        self.epoch: Epoch | None = None
        self.round: Round | None = None
        self.result: tuple[tuple[Name, ...], NDArray[np.float64]] | None = None
        self._faults: list[ProtocolError] = []
        self._tags: list[NDArray[np.uint64]] = []  # of the union, as they come
        self._ahead = Ahead()
        self._moduli: dict[int, bytes] = {}
        self._channels: dict[int, Channel] = {}
        self._reader: Decrypter | None = None

    def _bounded(self, names: Iterable[object]) -> tuple[Name, ...]:
        checked = self.spelling.keys(names)
        most = self.params.max_entities
        if most is not None and len(checked) > most:
            raise TableError(
                f"{party(self.number)} has {len(checked)} entities, more than the public bound max_entities={most}:"
                " raise it"
            )
        return checked

    @cached_property
    def key(self) -> PrivateKey:
        """Its Paillier key: the saved one, or a new one."""
        if self._secret:
            return private_key(self._secret)
        return PrivateKey.generate(self.params.key_bits, self._entropy)

    @property
    def introduction(self) -> bytes:
        """Its public key."""
        return self.key.public.to_bytes()

    @property
    def faults(self) -> list[ProtocolError]:
        """Whose answers did not fit in the last round, and were left out."""
        return self._faults

    # ------------------------------------------------------------------------------------------------ the user's calls

    @property
    def next_names(self) -> tuple[Name, ...]:
        """Its entities as it spells them, from the next epoch on."""
        return self.spelling.names(self._due)

    @property
    def _due(self) -> tuple[Name, ...]:
        return self.names if self.coming is None else self.coming

    def has(self, names: Iterable[object]) -> bool:
        """Whether these are its entities, from the next epoch on."""
        return set(self.spelling.keys(names)) == set(self._due)

    @property
    def renamed(self) -> bool:
        """Whether its entities change with the next epoch. In this form that is no secret."""
        return self.coming is not None

    @property
    def unsettled(self) -> bool:
        """Whether a new epoch has to come before its next round."""
        return self.renamed

    def update(self, names: Iterable[object], *, at_once: bool = True) -> None:
        """Other entities from the next epoch on; until it is set up, this client takes part in no round."""
        self.coming = self._bounded(names)

    def checked(self, table: TableLike) -> Table:
        """The table with keys as names, if it can be contributed: the right names and length, every value in range."""
        given = as_table(table, self.params.dim)
        return tables.checked(given, self.spelling, self._due, self.params, self.number)

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """(h, 1) of each own entity in exact fixed point, padded to K*L (eq. 3, 5); shares of it go to everyone."""
        if at.round >= self.params.rounds:
            raise FederationError(f"all {self.params.rounds} rounds of this session are used: begin a new one")
        given, params, n = self.checked(table), self.params, self.numbers
        place_of = {name: i for i, name in enumerate(given.names)}
        matrix = given.matrix[[place_of[name] for name in self.names]]
        rows = RING61.reduce(expand_rows(fixedpoint.encode(matrix, params.fraction_bits), params))
        self.round = Round(blocks(rows, params.K), RING61.zeros(at.size, n.block_length))
        self.result, self._faults = None, []

    @property
    def trained(self) -> bool:
        """Whether it has a table for the round that is to begin."""
        return self.round is not None

    @property
    def has_means(self) -> bool:
        """Whether the last round gave means; a part of them is no result."""
        return self.result is not None

    def means_like(self, table: Table) -> Floats:
        """The means of the last round in the order and the dtype of a table; its own rows where there is none."""
        if self.result is None:
            raise FederationError(f"{party(self.number)} has no means: no round was finished")
        names, means = self.result
        place_of = {name: i for i, name in enumerate(names)}
        places = np.array([place_of.get(key, -1) for key in self.spelling.table(table).names], np.int64)
        there, filled = places >= 0, np.array(table.matrix)
        filled[there] = means[places[there]].astype(table.dtype)
        return fixedpoint.clip(filled, self.params.max_abs)

    def prepare(self) -> None:
        """Encryption randomness for the answers to come, for whoever is in the union."""
        if self.epoch is None or not self.epoch.queries:
            return
        seed = self._entropy(SEED_BYTES)
        self._ahead = Ahead(seed, {n: self._encrypter(seed, n) for n in self.epoch.queries})
        layout = self.form.mean_layout(self.params, 1)
        for encrypter in self._ahead.encrypters.values():
            for chunk in range(layout.chunks):
                span = layout.span(chunk)
                encrypter.prepare(chunk, span.stop - span.start)

    # ------------------------------------------------------------------------------------------------------- restarts

    def plain(self) -> dict[str, Any]:
        """What must survive a restart: names, key and means. Whatever else it had serves one life."""
        return {
            "names": self.names, "coming": self.coming, "key": secret_bytes(self.key), "result": self.result,
            "spelled": dict(self.spelling.own),
        }  # fmt: skip

    def restore(self, plain: dict[str, Any]) -> None:
        """Load a saved state."""
        self.names, self.coming, self._secret = plain["names"], plain["coming"], plain["key"]
        self.result = plain["result"]
        self.spelling.restore(plain["spelled"])

    # -------------------------------------------------------------------------------------------------- announcements

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """What a phase builds on: an epoch on nothing, the end on the epoch."""
        return NO_CONTEXT if phase == self.form.setup_phase or self.epoch is None else self.epoch.context

    def check_begin(self, at: Agreement) -> None:
        """T colluders must face two others, in everything that the server says."""
        fewest = self.params.fewest_contributors
        if len(at.members) < fewest and at.phase != self.form.end_phase:
            raise ValueError(f"announces {len(at.members)} clients; fewer than {fewest} would expose someone")

    def enter(self, at: Agreement) -> None:
        """Draw what a phase needs."""
        match at.phase:
            case "secret":
                self._seed = self._entropy(SEED_BYTES)
                # Of the lives that were announced: whoever says hello again meanwhile has no part in this epoch.
                self._moduli = {n: self.link.introduction(n) for n in at.members}
                self._channels = {n: self.link.channels[n] for n in at.members if n != self.number}
                self.epoch, self.round, self._ahead = Epoch(self._seed), None, Ahead()
                if self.coming is not None:
                    self.names, self.coming, self.result = self.coming, None, None
            case "table":
                assert self.epoch is not None
                # The masks are bound to the context, so what they hide must be a function of it.
                self._seed, self._tags = expand(self.epoch.seed, "table", at.context), []
            case "query":
                self._seed = self._entropy(SEED_BYTES)
                self._place()
            case "share":
                self._seed = self._entropy(SEED_BYTES)
            case "answer":
                assert self.round is not None
                self._seed = self._ahead.seed or self._entropy(SEED_BYTES)
                self._reader = Decrypter(self.numbers, self.key)
                self.round = replace(self.round, means=np.full((len(self.names), self.params.dim), np.nan))
            case "end":
                self.epoch = self.round = None

    def _place(self) -> None:
        """Place our own entities in queries. If they cannot be placed, everyone begins again."""
        epoch = self.epoch
        assert epoch is not None
        assert epoch.shape is not None
        stream = KeyStream(expand(self._seed, "placement"))
        alike = np.unique(epoch.rows).size != epoch.rows.size  # two tags, hashes of 61 bits, are the same
        placement = None if alike else place(epoch.rows, epoch.shape, stream)
        if placement is None:
            raise Retry
        self.epoch = replace(epoch, placement=placement, queries={})

    # ---------------------------------------------------------------------------------------------------------- union

    def _tags_of_own(self, at: Agreement) -> NDArray[np.uint64]:
        assert self.epoch is not None
        return union.tags_of(self.names, expand(self.epoch.secret, "tags", at.context))

    def _table(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """Its tags in a lookup table, under masks that cancel."""
        table = union.fill(self._tags_of_own(at), self.form.geometry(self.params, at), KeyStream(self._seed))
        others = (v for v in at.members if v != self.number)
        union.mask(table, self.number, ((v, self._channels[v].stream("mask", at.context)) for v in others))
        layout = self.form.whole(Kind.TABLE, self.params, at)
        for chunk in range(layout.chunks):
            yield (RING61.to_bytes(table[:, layout.span(chunk)]),)

    def _got_tags(self, chunk: int, chunks: int, payload: memoryview) -> None:
        """A stretch of the union, in order; all but the last are full."""
        tags = RING61.from_bytes(payload, len(payload) // RING61.element_bytes)[0]
        if not chunk:
            self._tags = []
        self._tags.append(tags)
        count, most = sum(each.size for each in self._tags), self.params.max_union
        if most is not None and count > most:
            raise FaultyPeer(SERVER, f"sends more than max_union={most} tags")
        at = Agreement(size=count)
        last = chunk + 1 == chunks
        full = self.form.whole(Kind.TAGS, self.params, at).per_chunk
        if (tags.size != full and not last) or (last and self.form.whole(Kind.TAGS, self.params, at).chunks != chunks):
            raise FaultyPeer(SERVER, f"sends {count} tags in {chunks} chunks")

    def _got_union(self, at: Agreement) -> Agreement:
        """All tags: they are in order, and ours are among them."""
        assert self.epoch is not None
        tags, own = np.concatenate(self._tags), self._tags_of_own(at)
        if (tags[1:] <= tags[:-1]).any():
            raise FaultyPeer(SERVER, "sends tags that are not in order")
        rows = np.searchsorted(tags, own)
        lacking = np.append(tags, np.uint64(0))[rows] != own
        lacking |= rows == tags.size
        if lacking.any():
            raise FaultyPeer(SERVER, f"sends a union that lacks {int(lacking.sum())} of our {own.size} entities")
        order = np.argsort(rows)
        self.names = tuple(self.names[i] for i in order)
        context = union_context(at, tags)
        shape = self.form.shape(self.params, tags, context)
        self.epoch = replace(self.epoch, tags=tags, rows=rows[order].astype(np.int64), shape=shape)
        return replace(at, size=int(tags.size), context=context)

    # -------------------------------------------------------------------------------------------------------- sharing

    def _deal(self, kind: IntEnum, at: Agreement) -> Deal:
        """What this client shares: its queries (eq. 9), or its rows (eq. 8), chunk by chunk."""
        epoch, layout = self.epoch, self.form.whole(kind, self.params, at)
        assert epoch is not None
        assert epoch.shape is not None
        if kind is Kind.QUERY:
            ones = epoch.shape.wanted(epoch.placement)
            return Deal(layout, 1, lambda chunk: ones_at(RING61, ones, layout.span(chunk)))
        assert self.round is not None
        values, rows = self.round.values, epoch.rows
        return Deal(layout, self.numbers.block_length, lambda chunk: spread(values, rows, layout.span(chunk)))

    def _dealer(self, kind: IntEnum, at: Agreement, receivers: Sequence[int]) -> tuple[Dealer, dict[int, bytes]]:
        """The shares of one phase, and the seeds of those that go as seeds."""
        seeded = self.form.seeded(kind, self.params, at, self.number)
        seeds = {v: expand(self._seed, "share", b"%d" % v) for v in seeded}
        return Dealer(self.numbers.code, receivers, seeds), seeds

    def _shares(self, kind: IntEnum, receivers: Sequence[int], at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """Shares for all others; seeds first."""
        dealer, seeds = self._dealer(kind, at, receivers)
        for v, seed in seeds.items():
            if v in receivers:
                yield v, (seed,)
        deal = self._deal(kind, at)
        for chunk in range(deal.layout.chunks):
            data = deal.data(chunk)
            for first in range(0, len(dealer.receivers), RECEIVERS_AT_ONCE):
                some = slice(first, first + RECEIVERS_AT_ONCE)
                shares = dealer.deal(chunk, data, some)
                for i, v in enumerate(dealer.receivers[some]):
                    yield v, (RING61.to_bytes(shares[:, i]),)

    def _keep_own_share(self, kind: IntEnum, at: Agreement) -> None:
        """What this client keeps of what it shares."""
        deal = self._deal(kind, at)
        dealer, _ = self._dealer(kind, at, [self.number])
        for chunk in range(deal.layout.chunks):
            self._keep(kind, self.number, chunk, dealer.deal(chunk, deal.data(chunk))[:, 0], at)

    def _got_share(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        """Another client's share of its queries, or of its embeddings (eq. 8)."""
        layout = self.form.whole(kind, self.params, at)
        width = self.numbers.block_length if kind is Kind.SHARE else 1
        if self.number in self.form.seeded(kind, self.params, at, sender):
            for i, share in enumerate(share_from_seed(bytes(payload), RING61, layout, width)):
                self._keep(kind, sender, i, share, at)
            return
        span = layout.span(chunk)
        self._keep(kind, sender, chunk, RING61.from_bytes(payload, span.stop - span.start, width), at)

    def _keep(self, kind: IntEnum, sender: int, chunk: int, share: Residues, at: Agreement) -> None:
        """Keep a share [P, rows, width] of queries, or add one of embeddings to the others'."""
        assert self.epoch is not None
        layout = self.form.whole(kind, self.params, at)
        if kind is Kind.SHARE:
            assert self.round is not None
            RING61.add_rows(self.round.sums, layout.span(chunk), share)
            return
        if chunk == 0:
            self.epoch.queries[sender] = RING61.empty(layout.rows)
        self.epoch.queries[sender][:, layout.span(chunk)] = share[:, :, 0]

    # ---------------------------------------------------------------------------------------------- answers and means

    def _encrypter(self, seed: bytes, n: int) -> Encrypter:
        """Encryption of answers to client n, under its key. All randomness comes from this seed."""
        key = public_key(self._moduli[n], self.params.key_bits)
        return Encrypter(self.numbers, key, KeyStream(expand(seed, "blinds", b"%d" % n)))

    def _confirmation(self, sender: int, receiver: int, context: bytes) -> bytes:
        """The sender's proof towards the receiver that it worked under this context; one of the two is this client."""
        peer = receiver if sender == self.number else sender
        return NO_CONTEXT if peer == self.number else self._channels[peer].confirmation(context, sender)

    def _answers(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """<query, sums> for each query of each contributor, encrypted, behind a proof: chunk by chunk."""
        assert self.epoch is not None
        assert self.epoch.shape is not None
        assert self.round is not None
        shape, sums, members = self.epoch.shape, self.round.sums, at.members
        layout = self.form.whole(Kind.ANSWER, self.params, at)
        proofs = [self._confirmation(self.number, n, at.context) for n in members]
        ahead = self._ahead.encrypters if hmac.compare_digest(self._ahead.seed, self._seed) else {}
        encrypters = [ahead.get(n) or self._encrypter(self._seed, n) for n in members]
        weights = [self.epoch.queries[n] for n in members]
        for first in range(0, layout.chunks, layout.sections):
            span = layout.span(first)
            starts = shape.starts[span.start : span.stop + 1]
            for low in range(0, layout.sections, ASKERS_AT_ONCE):
                some = range(low, min(low + ASKERS_AT_ONCE, layout.sections))
                answers = [RING61.zeros(starts.size - 1, self.numbers.block_length) for _ in some]
                RING61.gather_into(answers, starts, shape.members, weights[some.start : some.stop], sums)
                for i, each in zip(some, answers, strict=True):
                    yield proofs[i], encrypters[i].cover(layout.within(first), each)

    def _got_means(self, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """What the server made of the answers to our queries."""
        params, size = self.params, answered_bytes(self.params)
        answering = answered_from_bytes(bytes(payload[:size]))
        if len(answering) < params.quorum or not set(answering) <= set(at.members):
            fault = f"says that {list(answering)} answered; {params.quorum} contributors are due"
            raise FaultyPeer(SERVER, fault)
        layout = self.form.mean_layout(params, len(answering))
        if chunks != layout.chunks or len(payload) != layout.payload_bytes(chunk):
            raise FaultyPeer(SERVER, f"sends means in {chunks} chunks, this one of {len(payload)} bytes")
        self._check_proofs(answering, payload[size : layout.prefix], at)
        assert self._reader is not None
        span = layout.span(chunk)
        try:
            rows, wrong = self._reader.read(chunk, answering, payload[layout.prefix :], span.stop - span.start)
        except ContradictionError as error:
            suspects = (SERVER, *self._others(answering))
            raise ProtocolError(suspects, f"the answers do not fit together: {error}") from None
        self._keep_means(rows, span, answering)
        self._blame(wrong, at)

    def _check_proofs(self, answering: Sequence[int], proofs: memoryview, at: Agreement) -> None:
        """Everyone who answered worked for the contributors that were announced to us."""
        for i, v in enumerate(answering):
            proof = self._confirmation(v, self.number, at.context)
            if not hmac.compare_digest(proofs[i * DIGEST_BYTES :][:DIGEST_BYTES], proof):
                if v == self.number:
                    raise FaultyPeer(SERVER, "passes other bytes on with our own answer than we sent")
                raise FaultyPeerOrRelay(v, "answered for other contributors than those that were announced to us")

    def _keep_means(self, rows: NDArray[np.float64], span: slice, answering: tuple[int, ...]) -> None:
        """Check what can be checked, and keep the means of our own entities."""
        params = self.params
        assert self.epoch is not None
        assert self.round is not None
        assert self.round.means is not None
        wanted = self.epoch.placement[span]
        real = wanted != EMPTY
        wrong = ~(_sizes(rows[:, : params.dim]) <= np.where(real, params.max_abs * (1 + 2**-6) + params.resolution, 0))
        wrong |= ~(_sizes(rows[:, params.dim :]) <= 0)
        if wrong.any():
            fault = f"{int(wrong.sum())} of {wrong.size} results are impossible: one of them computed wrongly"
            raise ProtocolError((SERVER, *self._others(answering)), fault)
        self.round.means[np.searchsorted(self.epoch.rows, wanted[real])] = rows[real, : params.dim]

    def _others(self, clients: Iterable[int]) -> tuple[int, ...]:
        return tuple(v for v in clients if v != self.number)

    def _blame(self, wrong: tuple[int, ...], at: Agreement) -> None:
        """Remember whose answers did not fit; the means are made without them. Only the server can spoil our own.

        A client is not convicted by this: someone may have dealt it a wrong share.
        """
        for v in wrong:
            who = SERVER if v == self.number else v
            if all(fault.suspects[0] != who for fault in self._faults):
                whose = "its answer" if who == v else "our own answer, as it has it,"
                fault = f"{whose} does not fit the others' in round {at.round}; the means are made without it"
                self._faults.append(unauthentic(who, fault))

    # --------------------------------------------------------------------------------------------------------- phases

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """What each kind of message says to each receiver."""
        if kind in (Kind.QUERY, Kind.SHARE):
            yield from self._shares(kind, receivers, at)
            return
        assert self.epoch is not None
        for receiver in receivers:
            said: Callable[[Agreement], Iterable[Sequence[Buffer]]]
            match kind:
                case Kind.TABLE:
                    said = self._table
                case Kind.ANSWER:
                    said = self._answers
                case _:
                    text = NO_PLACEMENT if kind is Kind.ABORT else self.epoch.part
                    said = lambda _, text=text: [(text,)]  # type: ignore[misc]  # noqa: E731
            for parts in said(at):
                yield receiver, parts

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Everything large is read as it comes."""
        match kind:
            case Kind.TAGS:
                self._got_tags(chunk, chunks, payload)
            case Kind.MEAN:
                self._got_means(chunk, chunks, payload, at)
            case _:
                self._got_share(kind, sender, chunk, payload, at)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """What each phase gives, once everything has come."""
        assert self.epoch is not None
        match at.phase:
            case "secret":
                parts = {n: got[Kind.HELLO, n] for n in at.members if n != self.number} | {self.number: self.epoch.part}
                self.epoch = replace(self.epoch, secret=shared_secret(list(parts.items())))
                return replace(at, context=settled_context(at), participants=at.members)
            case "table":
                return self._got_union(at)
            case "query":
                self._keep_own_share(Kind.QUERY, at)
                self.epoch = replace(self.epoch, context=settled_context(at))
                return replace(at, context=self.epoch.context, participants=at.members)
            case "share":
                self._keep_own_share(Kind.SHARE, at)
                return replace(at, context=settled_context(at))
            case _:
                assert self.round is not None
                assert self.round.means is not None
                self.result, self.round, self._ahead = (self.names, self.round.means), None, Ahead()
                return replace(at, context=self.epoch.context)


def _sizes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The size of the largest number in each row; NaN if one of them is."""
    if not rows.shape[1]:
        return np.zeros(len(rows))
    sizes: NDArray[np.float64] = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    return sizes
