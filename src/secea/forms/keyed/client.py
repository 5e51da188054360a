"""Client n of the keyed form: what it draws, sends, checks and keeps in each phase.

Its state is in four frozen records, each replaced as a whole: the key of the names (`Key`) and its names (`Names`),
which `names.Naming` manages, the union (`Union`) and the round (`Round`). Mask keys, noise seeds and parts of secrets
are kept only in memory.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import compress
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from secea.arithmetic import discrete, streams
from secea.arithmetic.field import M61, RING61, Residues
from secea.arithmetic.fixedpoint import Floats
from secea.arithmetic.ristretto import Tick
from secea.errors import (
    SERVER,
    FaultyPeer,
    FederationError,
    ProtocolError,
    RoundLost,
    party,
)
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.masking import Masking
from secea.forms.keyed.names import Naming
from secea.forms.keyed.numbers import honest
from secea.forms.keyed.shared import RoundSecrets, rows_under_keys
from secea.forms.keyed.tables import Places, Result, Tables
from secea.forms.keyed.values import each
from secea.params import Params
from secea.party.form import HAD, ClientDefaults, Got
from secea.party.phases import UNKNOWN, Agreement
from secea.party.session import Session
from secea.steps import masks, means, union
from secea.steps.means import Slot
from secea.table import Name, Table, TableLike
from secea.wire.keys import Identity, Roster, digest, expand, shared_secret
from secea.wire.link import Link
from secea.wire.messages import NO_CONTEXT, Buffer, Layout
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream


@dataclass(frozen=True, slots=True)
class Union:
    """One union: its secret, its slots, and the keys of its masks."""

    part: bytes = field(repr=False)
    mask_key: bytes = field(repr=False)
    context: bytes = NO_CONTEXT
    secret: bytes = field(default=b"", repr=False)
    pairs: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    """The key that this client shares with each other member, used only for masks."""
    L: bytes = b""
    spent: bool = False
    """Whether somebody vanished in a round. Slots without an owner were seen, so the next round needs a new union."""
    slots: Places = field(default_factory=lambda: np.zeros(0, np.int32), repr=False)
    """The slots of own entities, in order."""
    order: Places = field(default_factory=lambda: np.zeros(0, np.int32), repr=False)
    """Which of its names each of these is."""
    keys: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 32), np.uint8), repr=False)
    """The keys of the rows of own entities, in the order of their slots."""
    said: tuple[int, bytes] = (-1, b"")
    """Before which round it last said whether its entities changed, and what it said. One mask covers one statement."""


@dataclass(frozen=True, slots=True)
class Round:
    """What goes into a round, and what comes out of it."""

    number: int
    """The number of the training round."""
    table: Table = field(repr=False)
    """The client's own copy of its table. Means take the place of its rows as they arrive."""
    rows: Places = field(repr=False)
    """The row of each of its names; -1 for those that it gave up lately, which have none."""
    hashed: bytes
    """What tells these values from others."""
    noise_seed: bytes = field(default=b"", repr=False)
    spread_seed: bytes = field(default=b"", repr=False)
    """The seed of what it adds to every slot."""
    begun: bool = False
    """Whether the upload has begun: a second one needs another table."""
    read: int = 0
    """Chunks of means that have come. Rows of their slots are means now, and go out no more."""
    found: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_), repr=False)
    """Which rows of the table are means."""
    below: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_), repr=False)
    """Which rows have fewer owners than the minimum."""


@dataclass(frozen=True, slots=True)
class Released:
    """The last training round of which anything was uploaded.

    Its values may be sent again only unchanged and to the same members.
    """

    round: int = 0
    members: tuple[int, ...] = ()
    names: tuple[Name, ...] = field(default=(), repr=False)
    hashed: bytes = b""
    """What tells its values from others."""

    def same(self, hashed: bytes) -> bool:
        """Whether these are the values that went out."""
        return hmac.compare_digest(self.hashed, hashed)


class KeyedClient(ClientDefaults):
    """The part of client n."""

    link: Link

    def __init__(
        self,
        form: Keyed,
        params: Params,
        session: bytes,
        roster: Roster,
        number: int,
        identity: Identity,
        names: Iterable[object],
        entropy: Entropy,
    ) -> None:
        self.form, self.params, self.session, self.number = form, params, session, number
        self.numbers = form.numbers(params)
        self._entropy, self._roster = entropy, roster
        self.tables = Tables(params, self.numbers, number, identity)
        self.spelling = self.tables.spelling
        self.naming = Naming(form, params, session, number, self.spelling.keys(names), entropy)
        self.masking = Masking(form, params, session, roster, number, identity, entropy)
        self.union: Union | None = None
        self.round: Round | None = None
        self.result: Result | None = None
        """The means of the last round."""
        self.released = Released()
        self.uploaded = 0
        """The number q of an upload that was not opened yet."""
        self._secrets: RoundSecrets | None = None

    # --------------------------------------------------------------------------------------------- the user's calls

    @property
    def names(self) -> tuple[Name, ...]:
        """The keys of its entities in the union."""
        return self.naming.names.own

    @property
    def renamed(self) -> bool:
        """Whether an epoch of names is due, because its entities change or their keys have not arrived.

        Names that found no room in the last one make none due: the number of epochs would show how many they are.
        """
        return self.naming.names.due or self.naming.pending

    @property
    def waiting(self) -> tuple[Name, ...]:
        """The new entities that found no room in the last epoch of names. Only this client knows them."""
        return self.spelling.names(self.naming.names.waiting)

    @property
    def next_names(self) -> tuple[Name, ...]:
        """Its entities as it spells them, from the next epoch of names on."""
        return self.spelling.names(self.naming.next_names)

    def has(self, names: Iterable[object]) -> bool:
        """Whether these are its entities, from the next epoch of names on."""
        return set(self.spelling.keys(names)) == set(self.naming.next_names)

    @property
    def tick(self) -> Tick | None:
        """Called with the points of the names' PRF that were worked on."""
        return self.naming.tick

    @tick.setter
    def tick(self, tick: Tick | None) -> None:
        self.naming.tick = tick

    def update(self, names: Iterable[object], *, at_once: bool = True) -> None:
        """Change the entities from the next epoch of names on: all new ones `at_once`, or as many as fit into it."""
        self.naming.update(self.spelling.keys(names), at_once=at_once)

    def inherit(self, before: Session, part: KeyedClient) -> None:
        """Take over the key and the names from this client's part in the previous session, to sign that in this one."""
        self.naming.inherit(self._roster, before, part.naming)

    def renounce(self) -> None:
        """The session failed to start."""
        self.naming.renounce()

    @property
    def without_mean(self) -> tuple[Name, ...]:
        """The entities without a mean in the last round, or without keys so far. Only this client knows them."""
        if self.result is None:
            return ()
        had = set(compress(self.result.names, self.result.there.tolist()))
        return self.spelling.names(name for name in self.naming.next_names if name not in had)

    @property
    def below_minimum(self) -> tuple[Name, ...]:
        """Those of them that had fewer owners than the minimum. Only this client knows their names."""
        if self.result is None:
            return ()
        return self.spelling.names(compress(self.result.names, self.result.below.tolist()))

    def checked(self, table: TableLike) -> Table:
        """The table with keys as names, if it can be contributed: the right names and length, every value in range."""
        return self.tables.checked(table, self.naming.next_names)

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """Take the table of a training round. It is uploaded when the server says so."""
        assert self.union is not None
        given, out, tables = self.checked(table), self.released, self.tables
        rows = tables.where(given, self.names)
        once = self.params.dropouts or self.params.noise  # two sums with other noise would show more than one
        other = once or (at.members, self._contributed(rows)) != (out.members, out.names)
        if round < out.round or (round == out.round and other):
            raise RoundLost(f"round {round} is lost: what was trained in it went out to {len(out.members)} clients")
        mine = Table.trusted(tuple(given.names), self.copied(given.matrix), given.weights)
        tables.look_at(mine)
        hashed = tables.fingerprint(mine, rows, round)
        if round == out.round and not out.same(hashed):
            raise RoundLost(f"round {round} is lost: other values than these were trained in it, and went out")
        self.round, self.result = Round(round, mine, rows, hashed), None
        self._say(at)

    def _contributed(self, rows: Places) -> tuple[Name, ...]:
        """The names that have rows in a table."""
        return tuple(compress(self.names, (rows >= 0).tolist())) if rows.size and rows.min() < 0 else self.names

    @property
    def trained(self) -> bool:
        """Whether it has a table for the round that is to begin."""
        return self.round is not None

    @property
    def has_means(self) -> bool:
        """Whether the last round gave means."""
        return self.result is not None and self.result.matrix is not None

    def means_like(self, table: Table) -> Floats:
        """The means of the last round, in the order and dtype of a table; own rows for entities without a mean."""
        if self.result is None or self.result.matrix is None:
            raise FederationError(f"{party(self.number)} has no means: no round was finished")
        return self.tables.like(self.spelling.table(table), self.result)

    def give_means(self, table: Table) -> Floats:
        """The same, without a copy where the table is the one that it contributed. It does not keep them."""
        result = self.result
        same = result is not None and (result.names, result.matrix is None) == (self.spelling.table(table).names, False)
        means = result.matrix if result and same else self.means_like(table)
        assert result is not None
        assert means is not None
        self.result = replace(result, matrix=None)
        return means.astype(table.dtype, copy=False)

    # ------------------------------------------------------------------------------------------------------- restarts

    def plain(self) -> dict[str, Any]:
        """What must survive a restart. Mask keys, noise and the union are not saved: they are for one life only."""
        out = self.released
        kept = self.result  # where its means were given away it still says which there were
        result = (kept.names, kept.matrix, kept.there, kept.below) if kept else None
        return {
            "naming": self.naming.plain(), "grid": self.tables.grid, "result": result,
            "released": (out.round, out.members, out.names, out.hashed), "spelled": dict(self.spelling.own),
        }  # fmt: skip

    def restore(self, plain: dict[str, Any]) -> None:
        """Load a saved state."""
        self.naming.restore(plain["naming"])
        self.spelling.restore(plain["spelled"])
        self.tables.grid = plain["grid"]
        self.result = Result(*plain["result"]) if plain["result"] else None
        self.released = Released(*plain["released"])

    # -------------------------------------------------------------------------------------------------- announcements

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """What a phase builds on: a key on nothing, names and unions on the key, rounds on the union."""
        if phase == self.form.setup_phase:
            return NO_CONTEXT
        if phase == "agree":
            return at.context
        if phase in (self.form.prepare_phase, self.form.ready_phase, self.form.end_phase):
            return self.union.context if self.union else b""
        return (self.union.L if self.union else b"") if phase == self.form.round_phase else at.base

    def check_begin(self, at: Agreement) -> None:
        """What the server may announce (sections K1 to K5)."""
        form, params = self.form, self.params
        fewest = form.fewest(params, at.phase, at.names)
        if len(at.members) < fewest:
            raise ValueError(f"announces {len(at.members)} participants; we take part with {fewest} or more")
        if at.phase != form.setup_phase and at.members[-1] >= params.clients:
            raise ValueError("announces members that have left")
        if at.round > params.rounds:
            raise ValueError(f"announces round {at.round} of a session for {params.rounds}: begin a new session")
        self.naming.check_begin(at)
        if at.phase == form.round_phase:
            if self.union is None or self.round is None or self.round.begun:
                raise ValueError("announces a round that we are not ready for")
            if at.size == UNKNOWN or set(at.members) != {self.number, *self.union.pairs} or self.union.spent:
                raise ValueError("announces a round of another union than ours, or with other members than it has")
        elif at.phase == form.prepare_phase and (at.size == UNKNOWN or at.members != at.participants or self.round):
            raise ValueError("announces mask keys that are not due")
        elif at.phase == form.ready_phase:
            if self.union is None or at.size == UNKNOWN:
                raise ValueError("asks for training before there is a union")
            if at.members != at.participants or self.union.spent:
                raise ValueError("asks for training with other members than the union has")
        self.masking.check_begin(at, self.uploaded)

    def enter(self, at: Agreement) -> None:
        """Draw the randomness that a phase needs."""
        before, self._secrets = self.names, None
        self.naming.enter(at)
        if self.names != before:
            self.result = None  # its rows belong to other entities
        self.masking.enter(at)
        # Only one sum with each upload is ever opened, and none once something else has begun.
        self.uploaded = at.round if at.phase == self.form.round_phase else 0
        if at.phase == self.form.union_phase:
            self.union, self.round = Union(self._entropy(SEED_BYTES), self._entropy(SEED_BYTES)), None
        elif at.phase == self.form.ready_phase:
            self.round = None
        elif at.phase == self.form.end_phase:
            self.union = self.round = self.masking.batch = None
        elif at.phase == self.form.round_phase:
            assert self.round is not None
            assert self.union is not None
            noisy, size = self.number in self.form.noise_clients(self.params, at), len(self.round.table)
            seed = self._entropy(SEED_BYTES) if noisy else b""
            spread = self._entropy(SEED_BYTES) if self.numbers.spread else b""
            found, below = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
            self.round = replace(self.round, noise_seed=seed, spread_seed=spread, begun=True, found=found, below=below)
            names = self._contributed(self.round.rows)
            self.released = Released(self.round.number, at.members, names, self.round.hashed)
        elif at.phase == "agree":
            assert self.union is not None
            self.union = replace(self.union, spent=at.members != at.participants)

    # ------------------------------------------------------------------------------------------------------ union

    def _got_parts(self, at: Agreement, got: Got) -> Agreement:
        """Compute the shared secret and the keys of the masks."""
        assert self.union is not None
        mine, received = self.union, {v: got[Kind.PART, v] for v in at.members if v != self.number}
        parts = [(v, part[:SEED_BYTES]) for v, part in received.items()]
        own = X25519PrivateKey.from_private_bytes(mine.mask_key)
        pairs = {}
        for v, part in received.items():
            try:
                shared = own.exchange(X25519PublicKey.from_public_bytes(part[SEED_BYTES:]))
            except ValueError:
                raise FaultyPeer(v, "sends a key for masks that is of small order") from None
            pairs[v] = expand(shared, "pair of masks", self.session, at.context)
        secret = shared_secret([*parts, (self.number, mine.part)])
        self.union = replace(mine, secret=secret, pairs=pairs, context=at.context)
        return at

    def _tags(self) -> NDArray[np.uint64]:
        """The tags of its names under the union's secret."""
        assert self.union is not None
        key = expand(self.union.secret, "tags", self.union.context)
        return union.tags_of_keys(each(self.naming.names.prf.of(self.names)), key)

    def _table(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """The masked lookup table. Its masks are bound to the union's secret: another secret gives other masks."""
        assert self.union is not None
        mine = self.union
        geometry = self.form.geometry(self.params, at)
        bound = digest(b"secret", mine.secret)
        weights = KeyStream(expand(mine.mask_key, "weights", at.context, bound))
        table = union.fill(np.unique(self._tags()), geometry, weights)
        seeds = {v: expand(pair, "table", at.context, bound) for v, pair in mine.pairs.items()}
        if seeds:
            masks.add_masks(RING61, table, self.number, seeds, 0)
        layout = self.form.layout(Kind.TABLE, self.params, at, self.number)
        for chunk in range(layout.chunks):
            yield (RING61.to_bytes(table[:, layout.span(chunk)]),)

    def _got_tags(self, at: Agreement, got: Got) -> Agreement:
        """Find the slots of our own entities. If one is missing, continue: to stop would reveal whose it is."""
        assert self.union is not None
        tags = np.frombuffer(got[Kind.TAGS, SERVER], "<u8").astype(np.uint64)
        if tags.size and (bool((tags[1:] <= tags[:-1]).any()) or int(tags[-1]) >= M61):
            raise FaultyPeer(SERVER, "sends tags that are out of order")
        own = self._tags()
        slots = np.searchsorted(tags, own)
        there = slots < tags.size
        there[there] = tags[slots[there]] == own[there]
        _, first = np.unique(own, return_index=True)  # of two names with the same tag, the first takes part
        order = first[there[first]]
        order = order[np.argsort(slots[order], kind="stable")]
        secret = self.union.secret
        L = digest(b"L", at.context, tags.astype("<u8").tobytes(), digest(b"L of a secret", secret))
        row_key = expand(secret, "rows", L)
        keys = b"".join(
            hashlib.blake2b(self._kappa(value), digest_size=32, key=row_key).digest()
            for value in each(self.naming.names.prf.of(self.names)[order])
        )
        self.union = replace(
            self.union, L=L, slots=slots[order].astype(np.int32), order=order.astype(np.int32),
            keys=np.frombuffer(keys, np.uint8).reshape(-1, 32),
        )  # fmt: skip
        return replace(at, size=int(tags.size))

    def _kappa(self, value: bytes) -> bytes:
        """The key of an entity from the PRF value of its name. Everybody who asked for the name has it."""
        return hashlib.blake2b(value, digest_size=32, key=self.session, person=b"secea entity").digest()

    # ----------------------------------------------------------------------------------------------------- rounds

    def _say(self, at: Agreement) -> None:
        """State under masks that cancel whether its entities changed: a random element if they did, otherwise 0."""
        assert self.union is not None
        if self.union.said[0] == at.round:
            return
        element = 1 + int.from_bytes(self._entropy(SEED_BYTES), "little") % (M61 - 1) if self.renamed else 0
        for v, pair in self.union.pairs.items():
            mask = int.from_bytes(expand(pair, "ready", self.union.L, b"%d" % at.round), "little")
            element += mask if self.number < v else -mask
        self.union = replace(self.union, said=(at.round, (element % M61).to_bytes(RING61.element_bytes, "little")))

    def secrets(self, at: Agreement) -> RoundSecrets:
        """The shared key streams of this attempt at a round."""
        assert self.union is not None
        n = self.numbers
        secrets = RoundSecrets(
            n.ring, self.params.columns, n.checks, self.union.secret, self.union.L, at.round, self.params.min_owners,
            bool(n.spread),
        )  # fmt: skip
        if secrets != self._secrets:  # else it has their keys
            self._secrets = secrets
        return self._secrets

    def _own(self, span: slice) -> slice:
        """Which of its own entities have slots in this stretch."""
        assert self.union is not None
        first, last = np.searchsorted(self.union.slots, [span.start, span.stop])
        return slice(int(first), int(last))

    def _kept(self, own: slice) -> NDArray[np.int64]:
        """Which of its entities in a stretch it contributes to: those in its table that it does not leave out."""
        assert self.round is not None
        assert self.union is not None
        places, weights = self.round.rows[self.union.order[own]], self.round.table.weights
        there = places >= 0
        if self.params.partial and weights is not None:
            there[there] = weights[places[there]] > 0
        kept: NDArray[np.int64] = own.start + np.flatnonzero(there)
        return kept

    def _values(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """The encoded rows of some of its own entities."""
        assert self.round is not None
        assert self.union is not None
        names = self.union.order[own]
        return self.tables.encoded_rows(self.round.table, self.round.rows[names], self.tables.hashed(self.names)[names])

    def _under_keys(self, own: slice | NDArray[np.int64], at: Agreement) -> Residues:
        """G of some of its own entities."""
        assert self.union is not None
        return rows_under_keys(self.numbers.ring, self.union.keys[own], at.round, self.params.columns)

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """Its rows under masks, chunk by chunk; a noise client adds its columns and its seed."""
        assert self.round is not None
        assert self.union is not None
        n, params, form = self.numbers, self.params, self.form
        drawn, ring = self.secrets(at), n.ring
        seeds, own_seed = self.masking.seeds(at, self.union.L, self.union.pairs)
        noisy = form.noise_clients(params, at)
        layout = form.layout(Kind.UPLOAD, params, at, self.number)
        for chunk in range(layout.chunks):
            if chunk < self.round.read:  # the server has it, or there would be no means of it
                yield HAD
                continue
            span = layout.span(chunk)
            count, own = span.stop - span.start, self._kept(self._own(span))
            shared = drawn.of(chunk, count, ())
            y = self._under_keys(own, at)
            streams.add_scaled(ring, y, self._values(own), n.C)
            slots = self.union.slots[own].astype(np.int64) - span.start
            rows = means.contribution(ring, y, slots, shared)
            if n.spread:
                means.add_everywhere(ring, rows, self._spread(chunk, count, at), shared)
            if shared.least is not None:
                designated = self.number == form.designated(params, at)
                least = means.least_columns(ring, slots, shared.least, designated=designated)
                rows = np.concatenate([rows, least], axis=2)
            self._mask(rows, seeds, own_seed, chunk)
            if self.number not in noisy:
                yield (ring.to_bytes(rows),)
                continue
            e = ring.zeros(count, params.columns)
            noise = n.noise_of(form.noise_count(params, len(at.participants)))
            streams.add_noise(ring, e, self.round.noise_seed, chunk, noise)
            columns = means.noise_columns(ring, e, shared.alpha, drawn.pads(self.number, chunk, count), shared.gamma)
            yield ring.to_bytes(rows), ring.to_bytes(columns), self.round.noise_seed

    def _spread(self, chunk: int, count: int, at: Agreement) -> Residues:
        """C times what it adds to every slot of a chunk: fresh discrete Gaussian numbers."""
        assert self.round is not None
        n, shape = self.numbers, (count, self.params.columns)
        deviation = n.spread_of(honest(self.params, len(at.participants)))
        drawn = discrete.gaussian(KeyStream(self.round.spread_seed, chunk).bytes, count * shape[1], deviation)
        z = n.ring.zeros(*shape)
        streams.add_scaled(n.ring, z, drawn.reshape(shape), n.C)
        return z

    def _mask(self, rows: Residues, seeds: Mapping[int, bytes], own_seed: bytes, chunk: int) -> None:
        """Add the masks of a chunk: those with neighbours and, with drop-outs, its own."""
        masks.add_masks(self.numbers.ring, rows, self.number, seeds, chunk)
        if own_seed:
            streams.add_streams(self.numbers.ring, rows, [own_seed], [1], chunk)

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Check every slot of a chunk of means, whoever owns it, and read our own."""
        assert kind is Kind.MEANS
        assert self.round is not None
        assert self.union is not None
        assert self.round.begun
        n, params, form = self.numbers, self.params, self.form
        layout: Layout = form.layout(kind, params, at, SERVER)
        span, ring = layout.span(chunk), n.ring
        count = span.stop - span.start
        noisy = form.noise_clients(params, at)
        body = len(payload) - count
        marks = np.frombuffer(payload[body:], np.uint8)
        try:
            rows = ring.from_bytes(payload[:body], count, params.columns + n.checks)
        except ValueError as error:
            raise FaultyPeer(SERVER, f"sends means that cannot be read: {error}") from None
        if marks.size and marks.max() > (Slot.EMPTY if params.min_owners == 1 else Slot.BELOW):
            raise FaultyPeer(SERVER, "marks a slot as something else than it can be")
        shared = self.secrets(at).of(chunk, count, noisy)
        wrong = ~means.right(ring, rows, marks, shared, len(at.members))
        if wrong.any():
            raise ProtocolError(
                (SERVER, *(v for v in at.members if v != self.number)),
                f"{int(wrong.sum())} of {count} slots are not what the uploads add up to: there is no result",
            )
        own = self._own(span)
        slots, order = self.union.slots[own] - span.start, self.union.order[own]
        x = np.ascontiguousarray(rows[:, slots, : params.columns])
        ring.subtract_into(x, self._under_keys(own, at))
        read = n.read(x, len(noisy), form.noise_count(params, len(at.participants)))
        found, inside = self.tables.read(read)
        # Only an owner notices a missing mean, and it tells nobody: its own row stays.
        self.round = replace(self.round, read=chunk + 1)
        places = self.round.rows[order]
        there = inside & (marks[slots] == Slot.MEAN) & (places >= 0)
        self.round.table.matrix[places[there]] = self.tables.written(found[there], self.round.table.dtype)
        self.round.found[places[there]] = True
        self.round.below[places[(marks[slots] == Slot.BELOW) & (places >= 0)]] = True

    def _read(self, at: Agreement) -> Agreement:
        """Accept the means, after all chunks were checked."""
        assert self.round is not None
        assert self.union is not None
        table = self.round.table
        self.result = Result(tuple(table.names), table.matrix, self.round.found, self.round.below)
        self.round = None
        return replace(at, context=self.union.context)

    # ------------------------------------------------------------------------------------------------------ phases

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The payload of each kind of message for each receiver."""
        for receiver in receivers:
            for parts in self._payload(kind, receiver, at):
                yield receiver, parts

    def _payload(self, kind: IntEnum, receiver: int, at: Agreement) -> Iterator[Sequence[Buffer]]:
        match kind:
            case Kind.PART:
                assert self.union is not None
                public = X25519PrivateKey.from_private_bytes(self.union.mask_key).public_key().public_bytes_raw()
                yield self.union.part, public
            case Kind.TABLE:
                yield from self._table(at)
            case Kind.READY:
                assert self.union is not None
                yield self.union.L, self.union.said[1]
            case Kind.UPLOAD:
                yield from self._upload(at)
            case Kind.BATCH | Kind.SECRETS | Kind.VOTE | Kind.OPENING:
                yield from self.masking.payload(kind, receiver, at)
            case _:
                yield from self.naming.payload(kind, receiver, at)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """The result of each phase, once everything has arrived."""
        match at.phase:
            case "secret":
                return self._got_parts(at, got)
            case "table":
                return self._got_tags(at, got)
            case "upload" | "open":
                return self._read(at)
            case "batch":
                assert self.union is not None
                return replace(self.masking.finish(at, got), context=self.union.context)
            case "agree":
                return self.masking.finish(at, got)
            case _:
                return self.naming.finish(at, got)
