"""The server of the keyed form: it collects lists and tables, adds uploads, divides, and sends all the same means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import M61, RING61, Residues
from secea.arithmetic.streams import Noise
from secea.errors import SERVER, FaultyPeer, FederationError, ProtocolError
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.opening import Opening, unmasked
from secea.params import Params
from secea.party.form import HELD_BYTES, Got, Held, Retry, ServerDefaults
from secea.party.phases import Agreement
from secea.steps import means, oprf, union
from secea.wire.link import Link
from secea.wire.messages import ALL, DIGEST_BYTES, NO_CONTEXT, Buffer
from secea.wire.randomness import SEED_BYTES


@dataclass(slots=True)
class _Chunk:
    """What has arrived of one chunk of the uploads."""

    total: Residues = field(repr=False)
    columns: Residues = field(repr=False)
    noise: Noise
    senders: set[int] = field(default_factory=set)
    seeds: dict[int, bytes] = field(default_factory=dict, repr=False)


class KeyedServer(ServerDefaults):
    """The server's part."""

    link: Link

    def __init__(self, form: Keyed, params: Params, session: bytes) -> None:
        self.form, self.params, self.numbers = form, params, form.numbers(params)
        self._lists: dict[int, bytes] = {}
        self._table: Residues | None = None
        self.tags: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._before_round = NO_CONTEXT  # the context of the union: batches and rounds have their own
        self._L = NO_CONTEXT
        self._chunks: dict[int, _Chunk] = {}
        self._divided = 0
        self.opening = Opening(form, params, session)
        self._parts: dict[int, Held] = {}  # with drop-outs: uploads that are not complete
        self._over: list[tuple[bytes, int]] = []  # the masks on the sum
        self._votes = b""
        self.renamed = False
        """Whether somebody's entities changed. Only the ready messages of all clients together reveal it."""

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """What a phase builds on: a key on nothing, names and unions on the key, rounds on the union."""
        if phase == self.form.setup_phase:
            return NO_CONTEXT
        if phase == "agree":
            return at.context
        if phase in (self.form.prepare_phase, self.form.ready_phase, self.form.end_phase):
            return self._before_round
        return self._L if phase == self.form.round_phase else at.base

    def enter(self, at: Agreement) -> None:
        """Forget what an earlier attempt left behind."""
        for incomplete in self._parts.values():
            incomplete.close()
        self._parts = {}
        if at.phase not in ("agree", "open"):
            self._table, self._chunks, self._divided, self._over = None, {}, 0, []
        if at.phase not in ("confirm", "evaluate"):
            self._lists = {}  # they are large, and have been answered
        if at.phase == self.form.prepare_phase:
            self.opening.forget()  # as clients do

    # -------------------------------------------------------------------------------------------------------- streams

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        """Add a chunk of a table, or of an upload."""
        if kind is Kind.TABLE:
            layout = self.form.layout(kind, self.params, at, sender)
            span = layout.span(chunk)
            part = RING61.from_bytes(payload, span.stop - span.start, union.COLUMNS)
            if self._table is None:
                self._table = RING61.zeros(layout.rows, union.COLUMNS)
            RING61.add_rows(self._table, span, part)
            return
        if not self.params.dropouts:
            self._add(sender, chunk, payload, at)
            return
        self._rows(sender, chunk, payload, at)  # refused before anything of it is kept, or in the sum
        layout = self.form.layout(kind, self.params, at, sender)
        if sender not in self._parts:
            self._parts[sender] = self.held(layout.wire_bytes)
        parts = self._parts[sender]
        parts.put(payload)
        if chunk + 1 == layout.chunks:  # only whole uploads are in the sum
            for number, whole in enumerate(parts.chunks()):
                self._add(sender, number, whole, at)
            self._parts.pop(sender).close()

    def _rows(self, sender: int, chunk: int, payload: memoryview, at: Agreement) -> tuple[Residues, Residues | None]:
        """The rows of a chunk of an upload, and the columns of a noise client; `ValueError` if they are none."""
        n, layout = self.numbers, self.form.layout(Kind.UPLOAD, self.params, at, sender)
        span, width = layout.span(chunk), self.form.width(self.params)
        count = span.stop - span.start
        body = count * width * n.ring.element_bytes
        rows = n.ring.from_bytes(payload[:body], count, width)
        if sender not in self.form.noise_clients(self.params, at):
            return rows, None
        return rows, n.ring.from_bytes(payload[body:-SEED_BYTES], count, n.checks)

    def _add(self, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        n, params, form = self.numbers, self.params, self.form
        rows, columns = self._rows(sender, chunk, payload, at)
        if chunk not in self._chunks:
            noise = n.noise_of(form.noise_count(params, len(at.participants)))
            much = len(self._chunks) * rows.nbytes > HELD_BYTES
            total = self.room.zeros(rows.shape, rows.dtype) if much else np.zeros_like(rows)
            self._chunks[chunk] = _Chunk(total, n.ring.zeros(rows.shape[1], n.checks), noise)
        come = self._chunks[chunk]
        n.ring.add_into(come.total, rows)
        self.room.rest(come.total)
        come.senders.add(sender)
        if columns is not None:
            n.ring.add_into(come.columns, columns)
            come.seeds[sender] = bytes(payload[-SEED_BYTES:])

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The chunks of a broadcast that can leave now."""
        if kind is Kind.MEANS and self.params.dropouts:
            for chunk in sorted(self._chunks) if self._over else ():
                come = self._chunks.pop(chunk)
                unmasked(self.form, self.params, come.total, self._over, chunk)
                parts = self._means(chunk, come)
                self.room.rest(come.total)
                yield ALL, parts
            return
        if kind is Kind.VOTES:
            yield ALL, (self._votes,)
            return
        if kind is Kind.MEANS:
            while self._chunks.get(self._divided) and len(self._chunks[self._divided].senders) == len(at.members):
                yield ALL, self._means(self._divided, self._chunks.pop(self._divided))
                self._divided += 1
            return
        layout = self.form.layout(kind, self.params, at, SERVER)
        for chunk in range(layout.chunks):
            span = layout.span(chunk)
            if kind is Kind.TAGS:
                yield ALL, (np.ascontiguousarray(self.tags[span].astype("<u8")).view(np.uint8).data,)
            else:
                points = self._lists[self.form.senders(Kind.LIST, self.params, at)[layout.section(chunk)]]
                yield ALL, (points[32 * span.start : 32 * span.stop],)

    def _means(self, chunk: int, come: _Chunk) -> Sequence[Buffer]:
        """Divide the sums of one chunk, and add the noise that the noise clients chose (step 3)."""
        n, count = self.numbers, come.total.shape[1]
        e = n.ring.zeros(count, self.params.columns)
        for seed in come.seeds.values():
            streams.add_noise(n.ring, e, seed, chunk, come.noise)
        plain = self.params.columns + n.checks + 2
        least = come.total[:, :, plain:] if self.params.min_owners > 1 else None
        rows, slots = means.divide(n.ring, come.total[:, :, :plain], e, come.columns, least)
        return n.ring.to_bytes(rows), slots.data

    # --------------------------------------------------------------------------------------------------------- phases

    def prepare(self, at: Agreement) -> None:
        """Mask keys are made ahead in a phase of their own."""

    def prepared(self, at: Agreement) -> bool:
        """Whether there are mask keys for the next round."""
        return not self.params.dropouts or self.opening.covers(at.round + 1, at.participants)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """The result of each phase, once everything has arrived."""
        match at.phase:
            case "commit":
                return at.bound(*(got[Kind.COMMITMENT, v] for v in self.form.senders(Kind.COMMITMENT, self.params, at)))
            case "deal":
                after = at.bound(*(got[Kind.DEALING, v] for v in self.form.senders(Kind.DEALING, self.params, at)))
                ask = self.form.senders(Kind.LIST, self.params, at)
                return replace(after, base=after.context, named=at.named if ask else at.names)
            case "list":
                return self._got_lists(at, got)
            case "evaluate":
                return replace(at, named=max(at.named, at.names))
            case "table":
                return self._peeled(at)
            case "ready":
                return self._ready(at, got)
            case "batch":
                self.opening.got_batch(at, got)
                return replace(at, context=self._before_round)
            case "agree":
                self._votes = self.opening.votes(at, got, self.link.roster)
                return at
            case "open":
                self._over = self.opening.recover(at, self._L, got)
                return replace(at, context=self._before_round)
            case "end":
                return replace(at, context=self._before_round)
            case "upload" if not self.params.dropouts:
                return replace(at, context=self._before_round)
            case _:
                return at

    def _got_lists(self, at: Agreement, got: Got) -> Agreement:
        self._lists = {v: got[Kind.LIST, v] for v in self.form.senders(Kind.LIST, self.params, at)}
        for v, points in self._lists.items():
            if oprf.list_hash(np.frombuffer(points, np.uint8).reshape(-1, 32)) != got[Kind.MARK, v]:
                raise FaultyPeer(v, "signs another list of blinded names than it sends")
        return at.bound(*(got[Kind.MARK, v] for v in at.members))

    def _peeled(self, at: Agreement) -> Agreement:
        """The tags of the union. `Retry` if another attempt is needed, with a larger table."""
        assert self._table is not None
        tags = union.peel(self._table, self.form.geometry(self.params, at))
        if tags is None:
            raise Retry("the union does not fit into its lookup table: begin a new session with a larger max_union")
        most = self.params.max_union
        if most is not None and tags.size > most:
            raise FederationError(
                f"the union has {tags.size} entities, more than the public bound max_union={most}:"
                " begin a new session with a larger max_union"
            )
        self.tags, self._before_round = tags, at.context
        return replace(at, size=int(tags.size))

    def _ready(self, at: Agreement, got: Got) -> Agreement:
        """Check that all clients name the same L, so they have the same union and secret; then read the changes.

        The changes add up to 0 if nobody's entities changed.
        """
        first, *others = (got[Kind.READY, v][:DIGEST_BYTES] for v in at.members)
        if any(other != first for other in others):
            raise ProtocolError(at.members, "do not agree on the union; it has to be made again")
        self._L = first
        total = sum(int.from_bytes(got[Kind.READY, v][DIGEST_BYTES:], "little") for v in at.members)
        self.renamed = total % M61 != 0
        return replace(at, context=self._before_round)
