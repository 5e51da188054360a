"""The server and some clients put together everything that they see of the keyed form; and clients that deviate.

A `Coalition` listens to whole set-ups and rounds. All that it uses comes from its members: what the server opened, and
the bribed clients' secrets. It takes away every mask that it knows, and looks for sums that open (`opened`), for owners
(`guess_owners`), for names (`guess_names`) and for rows (`guess_rows`). What it is admitted to see is `honest_counts`
and, for slots that it owns, `honest_sums`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.ristretto import ORDER, multiply, read_scalar, scalar_rows
from secea.arithmetic.streams import row_streams, scale_rows
from secea.forms.keyed.client import KeyedClient, Union
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.server import KeyedServer
from secea.forms.keyed.shared import RoundSecrets
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import masks, oprf, union
from secea.steps.means import Secrets
from secea.table import Name, TableLike, name_bytes
from secea.testing import Parties
from secea.wire.keys import digest, expand
from secea.wire.messages import Buffer

Counts = NDArray[np.int64]
MOST_SEEN: Final = 64
"""No count is above this: a larger number is not a count."""


# ------------------------------------------------------------------------------------------------ what a server hears


class Listening(KeyedServer):
    """A server that follows the protocol, and keeps what comes from each client."""

    def __init__(self, form: Keyed, params: Any, session: bytes) -> None:
        super().__init__(form, params, session)
        self.lists: dict[int, Residues] = {}
        self.tables: dict[int, Residues] = {}
        self.uploads: dict[int, Residues] = {}
        self.summed: Any = None
        """The sums that it last divided, with the noise that belongs to them."""

    def enter(self, at: Agreement) -> None:
        """Another attempt: what came in the one before is taken up elsewhere."""
        super().enter(at)
        if at.phase == "table":
            self.tables = {}
        if at.phase == "upload":
            self.uploads = {}

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        """Keep a chunk of a table or of an upload."""
        n, span = self.numbers, self.form.layout(kind, self.params, at, sender).span(chunk)
        if kind is Kind.TABLE:
            ring, rows, width, kept = RING61, self.form.geometry(self.params, at).cells, union.COLUMNS, self.tables
        else:
            ring, rows, width, kept = n.ring, at.size, self.form.width(self.params), self.uploads
        body = (span.stop - span.start) * width * ring.element_bytes
        part = ring.from_bytes(bytes(payload[:body]), span.stop - span.start, width)
        kept.setdefault(sender, ring.zeros(rows, width))[:, span] = part
        super().stream(kind, sender, chunk, payload, at)

    def _means(self, chunk: int, come: Any) -> Sequence[Buffer]:
        self.summed = come
        return super()._means(chunk, come)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """Keep the lists of blinded names."""
        if at.phase == "list":
            points = {v: np.frombuffer(got[Kind.LIST, v], np.uint8).reshape(-1, 32) for v in at.members}
            self.lists.update(points)
        return super().finish(at, got)


@dataclass(frozen=True)
class Overheard(Keyed):
    """The keyed form with a server that listens, clients of this type, and perhaps one that is another program."""

    who: int = -1
    program: type[KeyedClient] = KeyedClient
    of_client: type[KeyedClient] = KeyedClient

    def client(self, *args: Any, **more: Any) -> KeyedClient:
        """The part of client n."""
        program = self.program if args[3] == self.who else self.of_client
        return program(self, *args)

    def server(self, params: Any, session: bytes) -> Any:
        """The server's part."""
        return Listening(self, params, session)


# ------------------------------------------------------------------------------------------------------ the coalition


@dataclass(frozen=True)
class Heard:
    """One round as a coalition has it."""

    at: Agreement
    uploads: Mapping[int, Residues] = field(repr=False)
    unions: Mapping[int, Union] = field(repr=False)
    """What the bribed clients have: the shared secret, and their keys of masks and of own rows."""
    shared: Secrets = field(repr=False)
    """rho and the others, which every client knows."""


class Coalition:
    """The server and the clients `inside`, who follow the protocol and tell each other everything."""

    def __init__(self, parties: Parties, inside: Sequence[int]) -> None:
        self.parties, self.inside = parties, tuple(inside)
        part = parties.server.part
        assert isinstance(part, Listening)
        self.server, self.form, self.params, self.numbers = part, part.form, part.params, part.numbers
        self.rounds: list[Heard] = []

    def member(self, n: int) -> KeyedClient:
        """A bribed client, with all that it knows."""
        assert n in self.inside
        part = self.parties.clients[n].part
        assert isinstance(part, KeyedClient)
        return part

    @property
    def honest(self) -> list[int]:
        """The participants that nobody bribed."""
        return [n for n in self.parties.server.at.members if n not in self.inside]

    def round(self, tables: Sequence[TableLike | None]) -> None:
        """One more round, and what is heard of it."""
        self.parties.round(tables)
        at = self.parties.server.at
        unions = {n: self.member(n).union for n in self.inside}
        known = {n: each for n, each in unions.items() if each is not None}
        one, n = known[self.inside[0]], self.numbers
        drawn = RoundSecrets(n.ring, self.params.dim, n.checks, one.secret, one.L, at.round)
        shared = drawn.of(0, at.size, self.form.noise_clients(self.params, at))
        self.rounds.append(Heard(at, dict(self.server.uploads), known, shared))

    @property
    def own_slots(self) -> list[int]:
        """The slots of the last union that one of them owns."""
        return sorted({int(i) for each in self.rounds[-1].unions.values() for i in each.slots})

    # ------------------------------------------------------------------------------------------ what opens at all

    def stripped(self, heard: Heard) -> dict[int, Residues]:
        """The honest clients' uploads without the masks that they share with the coalition, and without theta."""
        ring, out = self.numbers.ring, {}
        for n in self.honest:
            rows = heard.uploads[n].copy()
            near = masks.neighbours(heard.at.members, self.form.degree(self.params), n)
            for v in set(near) & set(self.inside):
                seed = masks.pair_seed(heard.unions[v].pairs[n], heard.unions[v].L, heard.at.round)
                masks.add_masks(ring, rows, v, {n: seed}, 0)  # with v's sign: it cancels what n added
            rows[:, :, -1] = ring.subtract(np.ascontiguousarray(rows[:, :, -1]), heard.shared.theta)
            out[n] = rows
        return out

    def _counts(self, heard: Heard, rows: Residues) -> Counts | None:
        """The count of each slot, if these rows show any."""
        ring = self.numbers.ring
        K = np.ascontiguousarray(rows[:, :, -2])
        found = ring.multiply(K, ring.inverse(heard.shared.rho))
        if (found > MOST_SEEN).any() or (found != found[:1]).any():
            return None
        return np.asarray(found[0], np.int64)

    def opened(self) -> dict[tuple[int, ...], Counts]:
        """Which sets of honest clients have uploads whose sum shows counts, in any round: and the counts."""
        found = {}
        for heard in self.rounds:
            stripped = self.stripped(heard)
            for some in _subsets(self.honest):
                total = self.numbers.ring.zeros(*stripped[some[0]].shape[1:])
                for n in some:
                    self.numbers.ring.add_into(total, stripped[n])
                if (counts := self._counts(heard, total)) is not None:
                    found[some] = counts
        return found

    def opened_tables(self) -> dict[tuple[int, ...], set[int]]:
        """Which sets of honest clients have lookup tables whose sum can be taken apart: and the slots in it."""
        at, unions, found = self.rounds[-1].at, self.rounds[-1].unions, {}
        one = unions[self.inside[0]]
        geometry = self.form.geometry(self.params, replace(at, context=one.context))
        bound = digest(b"secret", one.secret)
        stripped = {}
        for n in self.honest:
            table = self.server.tables[n].copy()
            for v, each in unions.items():
                masks.add_masks(RING61, table, v, {n: expand(each.pairs[n], "table", each.context, bound)}, 0)
            stripped[n] = table
        for tables in (stripped, self.server.tables):  # the masks that it knows may not be there
            for some in _subsets(self.honest):
                total = RING61.zeros(geometry.cells, union.COLUMNS)
                for n in some:
                    RING61.add_into(total, tables[n])
                if (tags := union.peel(total, geometry)) is not None:
                    found[some] = {int(i) for i in np.searchsorted(self.server.tags, tags)}
        return found

    # --------------------------------------------------------------------------------------------- what is admitted

    def honest_rows(self, heard: Heard) -> tuple[Counts, Residues]:
        """c_h, and C*S_h + c_h*G, of each slot."""
        ring, stripped = self.numbers.ring, self.stripped(heard)
        total = ring.zeros(*heard.uploads[self.honest[0]].shape[1:])
        for rows in stripped.values():
            ring.add_into(total, rows)
        counts = self._counts(heard, total)
        assert counts is not None
        y = np.ascontiguousarray(total[:, :, : self.params.dim])
        scale_rows(ring, y, ring.inverse(heard.shared.rho))
        return counts, y

    def honest_counts(self) -> Counts:
        """How many honest clients own each slot."""
        return self.honest_rows(self.rounds[-1])[0]

    def honest_sums(self) -> dict[int, NDArray[np.float64]]:
        """The sum of the honest owners' rows, for each slot that one of the coalition owns."""
        heard, n = self.rounds[-1], self.numbers
        counts, y = self.honest_rows(heard)
        sums: dict[int, NDArray[np.float64]] = {}
        for each in heard.unions.values():
            G = row_streams(n.ring, each.keys, heard.at.round, self.params.dim)
            scale_rows(n.ring, G, n.ring.constant([int(c) for c in counts[each.slots]]))
            x = n.ring.subtract(np.ascontiguousarray(y[:, each.slots]), G)
            rows = n.ring.join(x, math.ldexp(1.0 / n.C, -n.f))
            sums |= dict(zip(each.slots.tolist(), rows, strict=True))
        return sums

    # ------------------------------------------------------------------------------------------------------- guesses

    def guess_owners(self) -> dict[int, list[int]]:
        """For each slot as many honest clients as own it: those whose uploads look most like an owner's.

        An upload without masks would show rho, or 0, as its count; the mark of emptiness shows the same. Closeness to
        either is added up over rounds.
        """
        ring, counts = self.numbers.ring, self.honest_counts()
        score = {n: np.zeros(counts.size) for n in self.honest}
        for heard in self.rounds:
            inverse = ring.inverse(heard.shared.rho)
            marks = ring.multiply(heard.shared.rho, heard.shared.beta)
            for n, rows in self.stripped(heard).items():
                for column, unit in ((rows[:, :, -2], inverse), (rows[:, :, -1], ring.inverse(marks))):
                    seen = ring.multiply(np.ascontiguousarray(column), unit)
                    score[n] += _far(seen, ring.primes[0]) - _far(
                        ring.subtract(seen, np.ones_like(seen)), ring.primes[0]
                    )
        return {i: sorted(self.honest, key=lambda n: -score[n][i])[:c] for i, c in enumerate(counts.tolist()) if c}

    def guess_names(self, names: Sequence[Name], shares: Mapping[int, bytes] | None = None) -> list[Name]:
        """The names that are in the union, if the coalition's shares of the names' key reveal it.

        The coalition has T shares of a polynomial of degree T; it takes them for one of degree T-1. It tries the PRF
        under every scalar that it has, and looks for the names, times each of them, in the lists of blinded ones.
        """
        held = shares or self._shares()
        one = self.rounds[-1].unions[self.inside[0]]
        tag_key = expand(one.secret, "tags", one.context)
        inputs = [oprf.input_of(name_bytes(name)) for name in names]
        points, there = oprf.hash_to_group(inputs), np.zeros(len(names), np.bool_)
        listed = {bytes(point) for n in self.honest for point in self.server.lists[n]}
        k = sum(oprf.holder_weight(held, j) * read_scalar(share) for j, share in held.items()) % ORDER
        for scalar in (1, k, *map(read_scalar, held.values())):
            tried = multiply(points, scalar_rows([scalar])[0])
            there |= np.isin(union.tags_of_keys(oprf.finalize(inputs, tried), tag_key), self.server.tags)
            there |= np.array([bytes(point) in listed for point in tried], np.bool_)
        return [name for name, hit in zip(names, there, strict=True) if hit]

    def guess_rows(self, candidates: Mapping[int, Sequence[NDArray[np.int64]]]) -> dict[int, int]:
        """For slots that the coalition does not own: which candidate for the honest owners' sum is the right one.

        Each candidate says what G would be. The coalition takes the one whose G it can make, in any round, from any
        key that it has; failing that, the one whose G looks least random: the smallest.
        """
        chosen = {}
        for i, sums in candidates.items():
            scores = []
            for each in sums:
                hits, size = 0, 0.0
                for heard in self.rounds:
                    G = self._implied(heard, i, each)
                    hits += any((known == G).all() for known in self._streams(heard, i))
                    size += float(_far(G, self.numbers.ring.primes[0]).sum())
                scores.append((-hits, size))
            chosen[i] = min(range(len(sums)), key=lambda k: scores[k])
        return chosen

    def _implied(self, heard: Heard, slot: int, total: NDArray[np.int64]) -> Residues:
        """G of a slot, if this is the sum of the honest owners' encoded rows."""
        n = self.numbers
        counts, y = self.honest_rows(heard)
        x = n.ring.reduce(total[None])
        scale_rows(n.ring, x, n.ring.constant([n.C]))
        left = n.ring.subtract(np.ascontiguousarray(y[:, slot : slot + 1]), x)
        scale_rows(n.ring, left, n.ring.inverse(n.ring.constant([int(counts[slot])])))
        return left[:, 0]

    def _streams(self, heard: Heard, slot: int) -> Iterator[Residues]:
        """Rows of key stream that the coalition can make for a slot: none; from own keys; from tag, secret and L."""
        ring, one = self.numbers.ring, heard.unions[self.inside[0]]
        yield ring.zeros(self.params.dim)
        row_key, tag = expand(one.secret, "rows", one.L), int(self.server.tags[slot]).to_bytes(8, "little")
        texts = [tag, one.secret, one.L, b"", *(share for _, share in sorted(self._shares().items()))]
        guessed = [hashlib.blake2b(text, digest_size=32, key=row_key).digest() for text in texts]
        keys = np.frombuffer(b"".join([*guessed, row_key]), np.uint8).reshape(-1, 32)
        for each in (keys, *(known.keys for known in heard.unions.values())):
            yield from row_streams(ring, each, heard.at.round, self.params.dim).swapaxes(0, 1)

    def _shares(self) -> dict[int, bytes]:
        return {n: self.member(n).naming.key.share for n in self.inside}


def _subsets(members: Sequence[int]) -> list[tuple[int, ...]]:
    return [some for size in range(1, len(members) + 1) for some in combinations(members, size)]


def _far(x: Residues, p: int) -> NDArray[np.float64]:
    """How far residues modulo p are from 0, as a part of p."""
    part = x[0].astype(np.float64) / p
    return np.asarray(np.minimum(part, 1 - part))
