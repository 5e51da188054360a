"""For `secea demo`: what the server and some clients can and cannot find out if they pool all that they know.

The federation is a real one, with a server that keeps everything it opens. `Pool` holds what that server and some
clients know, and nothing else. `Truth` is computed from everybody's tables and secrets, to check the pool's findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues
from secea.arithmetic.streams import row_streams, scale_rows, stream
from secea.audit.attacks.keyed import Coalition, Counts, Overheard
from secea.demo.data import Tables
from secea.forms.keyed.client import KeyedClient, Union
from secea.params import Params
from secea.party.phases import Agreement
from secea.steps import masks
from secea.testing import Parties

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]
WIDTH: Final = 16
"""The number of hexadecimal digits that are shown."""
CLOSE: Final = 1e-3
"""A guess that is this close to the true row counts as reading it."""


@dataclass(frozen=True)
class Step:
    """One step of the protocol: what client 0 has, what of it reaches the server, and what the pool makes of that."""

    entity: str
    step: str
    has: str
    leaves: str
    pooled: str


@dataclass(frozen=True)
class Attack:
    """An attack by a pool: what it tries, how often it succeeds, and how often it would with one more secret."""

    who: str
    tries: str
    total: int
    found: int
    given: str
    found_given: int


@dataclass(frozen=True)
class Admitted:
    """Something that the pool is admitted to see, and the truth to compare it with."""

    what: str
    seen: Any
    true: Any


def run(tables: Tables, params: Params, form: Overheard, progress: Progress | None = None) -> Pool:
    """Run the set-up and one round. Returns what the server and the last T clients know afterwards."""
    parties = Parties.of(tables, form, dim=params.dim, collusion=params.collusion)
    if progress is not None:
        _watch(parties, progress)
    parties.setup()
    members = range(parties.session.params.clients)
    pool = Pool(parties, members[-parties.session.params.T :])
    pool.round(tables)
    return pool


def _watch(parties: Parties, progress: Progress) -> None:
    """Report the progress of the PRF of all names."""
    params, done = parties.session.params, 0
    total = parties.session.form.ticks(params, sum(len(each.part.next_names) for each in parties.clients.values()))

    def tick(points: int) -> None:
        nonlocal done
        done = min(total, done + points)
        progress(done, total)

    for client in parties.clients.values():
        client.part.tick = tick


class Pool(Coalition):
    """The server and some clients, with everything that they know together."""

    @property
    def who(self) -> str:
        """The members of the pool, for a sentence."""
        return "the server and " + _clients(self.inside)

    @property
    def short(self) -> str:
        """The members of the pool, for a table's column."""
        return "server, " + _clients(self.inside)

    def smaller(self, inside: Iterable[int]) -> Pool:
        """A pool with fewer of these clients, and the same server and rounds."""
        pool = Pool(self.parties, tuple(inside))
        pool.rounds = [replace(each, unions={n: each.unions[n] for n in pool.inside}) for each in self.rounds]
        return pool

    @property
    def foreign(self) -> list[int]:
        """The slots that somebody outside the pool owns, and nobody inside."""
        counts = self.honest_counts()
        return [i for i in range(counts.size) if counts[i] and i not in self.own_slots]

    def hidden(self) -> tuple[list[int], Residues]:
        """The foreign slots, and their rows without masks and blinding. Only each row's own key still hides them."""
        slots = self.foreign
        return slots, np.ascontiguousarray(self.honest_rows(self.rounds[-1])[1][:, slots])

    def readings(self, keys: NDArray[np.uint8] | None = None) -> dict[int, Floats]:
        """For each foreign slot, all rows that the pool could read there: one for each key that it has or is given."""
        heard, n = self.rounds[-1], self.numbers
        counts, y = self.honest_rows(heard)
        found = {}
        for slot in self.foreign:
            streams = list(self._streams(heard, slot))
            if keys is not None:
                streams.extend(row_streams(n.ring, keys, heard.at.round, self.params.dim).swapaxes(0, 1))
            G = np.ascontiguousarray(np.stack(streams, axis=1))
            scale_rows(n.ring, G, n.ring.constant([int(counts[slot])] * G.shape[1]))
            row = np.ascontiguousarray(np.broadcast_to(y[:, slot : slot + 1], G.shape))
            found[slot] = n.ring.join(n.ring.subtract(row, G), math.ldexp(1.0 / n.C, -n.f))
        return found

    def counts_of(self, client: int, pairs: Mapping[int, bytes] | None = None) -> Counts | None:
        """The slots that one client owns, if the masks that the pool knows open its upload. `pairs` adds more masks."""
        heard, ring = self.rounds[-1], self.numbers.ring
        rows, L = self.stripped(heard)[client], heard.unions[self.inside[0]].L
        for v, key in (pairs or {}).items():
            masks.add_masks(ring, rows, v, {client: masks.pair_seed(key, L, heard.at.round)}, 0)
        return self._counts(heard, rows)


@dataclass(frozen=True)
class Truth:
    """The truth, from everybody's secrets."""

    tables: Tables
    parts: Mapping[int, KeyedClient]
    slot: Mapping[str, int]
    at: Agreement

    @classmethod
    def of(cls, pool: Pool, tables: Tables) -> Truth:
        """The truth about a federation after a round."""
        slot: dict[str, int] = {}
        parts = {n: _keyed(client.part) for n, client in pool.parties.clients.items()}
        for part in parts.values():
            assert part.union is not None
            slot |= {str(part.names[i]): int(s) for i, s in zip(part.union.order, part.union.slots, strict=True)}
        return cls(tables, parts, slot, pool.rounds[-1].at)

    def union(self, n: int) -> Union:
        """Client n's secret view of the union."""
        found = self.parts[n].union
        assert found is not None
        return found

    def total(self, name: str, clients: Iterable[int]) -> Floats:
        """The sum of these clients' rows."""
        rows = [self.tables[n][name] for n in clients if name in self.tables[n]]
        return np.asarray(np.sum(rows, axis=0, dtype=np.float64))


def _keyed(part: object) -> KeyedClient:
    assert isinstance(part, KeyedClient)
    return part


def _clients(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"client {numbers[0]}"
    run = len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"clients {numbers[0]} to {numbers[-1]}" if run else f"clients {', '.join(map(str, numbers))}"


# --------------------------------------------------------------------------------------------------------- step by step


def private_and_shared(pool: Pool, truth: Truth) -> tuple[str | None, str | None]:
    """An entity of client 0 that nobody in the pool has, and one that somebody in it has. None if there is none."""
    own, theirs = set(truth.tables[0]), {name for n in pool.inside for name in truth.tables[n]}
    return min(own - theirs, default=None), min(own & theirs, default=None)


def steps(pool: Pool, truth: Truth, guessed: Sequence[str]) -> list[Step]:
    """The steps of one private and one shared entity, in the order in which they happen."""
    private, shared = private_and_shared(pool, truth)
    found: list[Step] = []
    if private is not None:
        tried = [name for name in guessed if all(name not in truth.tables[n] for n in pool.inside)]
        hits = pool.guess_names(tried)
        seen = "its name" if private in hits else f"{len(hits)} of {len(tried)} guessed names fit"
        point = _hex(pool.server.lists[0][0])  # any one of its list, which is in random order
        found += [Step(private, "list", repr(private), point, seen), _tabled(pool, truth, private)]
    for name in (private, shared):
        if name is not None:
            found += _uploaded(pool, truth, name)
    return found


def _tabled(pool: Pool, truth: Truth, name: str) -> Step:
    """A cell of the lookup table, under its masks. The pool knows all tags, as everybody does, and its own names."""
    slot = truth.slot[name]
    tag, size = pool.server.tags[slot], pool.server.tags.size
    geometry = pool.form.geometry(pool.params, replace(truth.at, context=truth.union(0).context))
    cell = geometry.positions(np.array([tag], np.uint64))[0, 0]
    known = {truth.slot[own]: repr(own) for n in pool.inside for own in truth.tables[n]}
    seen = f"slot {slot} of {size}, {known.get(slot, 'no name')}"
    return Step(name, "table", f"tag {int(tag):016x}", _hex(pool.server.tables[0][:, cell]), seen)


def _uploaded(pool: Pool, truth: Truth, name: str) -> list[Step]:
    slot, d, heard = truth.slot[name], pool.params.dim, pool.rounds[-1]
    sums = pool.honest_sums() | rows_read(pool, truth, pool.readings())
    if slot in sums:
        seen = f"{_numbers(sums[slot])}: {_whose(pool)}"
    else:
        seen = f"{_hex(pool.honest_rows(heard)[1][:, slot])}, under its key"
    got = _numbers(means_of(pool, 0)[name])
    return [
        Step(name, "upload", _numbers(truth.tables[0][name]), _hex(heard.uploads[0][:, slot, :d]), seen),
        Step(name, "mean", got, "", _mean_of(pool, truth, name)),
    ]


def _mean_of(pool: Pool, truth: Truth, name: str) -> str:
    """The mean, if a client in the pool has it."""
    for n in pool.inside:
        if name in truth.tables[n]:
            return _numbers(means_of(pool, n)[name])
    return ""


def _whose(pool: Pool) -> str:
    return "its row" if len(pool.honest) == 1 else f"the sum over {_clients(pool.honest)}"


def _hex(elements: NDArray[Any]) -> str:
    return np.ascontiguousarray(elements).tobytes().hex()[:WIDTH]


def _numbers(values: NDArray[Any]) -> str:
    return " ".join(f"{x:.4f}" for x in values[:2].tolist())


def compared(pool: Pool, seed: bytes) -> dict[str, Any] | None:
    """The hidden rows next to fresh random ones: some bytes of each, and the share of one bits."""
    ring, (slots, rows) = pool.numbers.ring, pool.hidden()
    if not slots:
        return None
    fresh = np.stack([stream(ring, seed, lane, pool.params.dim) for lane in range(len(slots))], axis=1)
    bits = [int(np.bitwise_count(each).sum()) for each in (rows, fresh)]
    total = rows.size * ring.primes[0].bit_length()
    return {
        "slots": len(slots), "hidden": _hex(rows[:, 0]), "fresh": _hex(fresh[:, 0]), "bits": total,
        "ones_hidden": bits[0] / total, "ones_fresh": bits[1] / total,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- attacks


def attacks(pool: Pool, truth: Truth, guessed: Sequence[str]) -> list[Attack]:
    """Run each attack twice: with what the pool knows, and with one more secret, which shows that the attack works."""
    found = [_names(pool, truth, guessed), _rows(pool, truth)]
    N = pool.params.clients
    if inside := pool.inside[-min(len(pool.inside), N - 2) :] if N > 2 else ():
        found.append(_owners(pool.smaller(inside), truth))
    return found


def _names(pool: Pool, truth: Truth, guessed: Sequence[str]) -> Attack:
    theirs = {name for n in pool.inside for name in truth.tables[n]}
    tried = [name for name in guessed if name not in theirs]
    there = {name for n in pool.honest for name in truth.tables[n]}
    shares = {n: truth.parts[n].naming.key.share for n in (0, *pool.inside)}
    hits = [len(there & set(map(str, names))) for names in (pool.guess_names(tried), pool.guess_names(tried, shares))]
    tries = f"find {_owned(pool)} names among {len(tried)} guesses"
    return Attack(pool.short, tries, len(there - theirs), hits[0], "client 0's share of the key", hits[1])


def _rows(pool: Pool, truth: Truth) -> Attack:
    keys = np.concatenate([truth.union(n).keys for n in pool.honest])

    found = [len(rows_read(pool, truth, readings)) for readings in (pool.readings(), pool.readings(keys))]
    return Attack(
        pool.short,
        f"read {_owned(pool)} rows of these",
        len(pool.foreign),
        found[0],
        "the keys of these rows",
        found[1],
    )


def rows_read(pool: Pool, truth: Truth, readings: Mapping[int, Floats]) -> dict[int, Floats]:
    """The slots for which one of the readings is right. The truth only counts them; it does not help to find them."""
    name, found = {slot: name for name, slot in truth.slot.items()}, {}
    for slot, rows in readings.items():
        wrong = np.abs(rows - truth.total(name[slot], pool.honest)).max(axis=1)
        if wrong.min() < CLOSE:
            found[slot] = rows[wrong.argmin()]
    return found


def _owned(pool: Pool) -> str:
    return "its" if pool.honest == [0] else "the others'"


def _owners(pool: Pool, truth: Truth) -> Attack:
    """An attack on ownership: tell which slots client 0 has, among those that only some of the honest clients have."""
    counts = pool.honest_counts()
    doubtful = (counts > 0) & (counts < len(pool.honest))
    pairs = {v: truth.union(v).pairs[0] for v in pool.honest if v}
    near = masks.neighbours(pool.rounds[-1].at.members, pool.form.degree(pool.params), 0)
    known = (pool.counts_of(0), pool.counts_of(0, {v: key for v, key in pairs.items() if v in near}))
    own = np.zeros(counts.size, np.int64)
    own[truth.union(0).slots] = 1
    right = [0 if each is None else int((each == own)[doubtful].sum()) for each in known]
    tries = f"tell its slots from those of {_clients(pool.honest[1:])}"
    return Attack(pool.short, tries, int(doubtful.sum()), right[0], "the keys of its masks", right[1])


# ------------------------------------------------------------------------------------------------- what they do see


def admitted(pool: Pool, truth: Truth) -> list[Admitted]:
    """What section K8 of the specification admits, as the pool sees it, next to the truth."""
    honest, tables = pool.honest, truth.tables
    theirs = {name for n in pool.inside for name in tables[n]}
    common = {name for n in honest for name in tables[n]} & theirs
    counts, sums = pool.honest_counts(), pool.honest_sums()
    named = {name: truth.slot[name] for name in theirs}
    wrong = [np.abs(sums[named[name]] - truth.total(name, honest)).max(initial=0) for name in common]
    everything = {name for table in tables for name in table}
    who = "client 0" if honest == [0] else _clients(honest)
    have, its = ("has", "its") if honest == [0] else ("have together", "their")
    return [
        Admitted("who takes part", list(pool.rounds[-1].at.members), list(range(len(tables)))),
        Admitted("entities in all", int(pool.server.tags.size), len(everything)),
        Admitted(f"entities that {who} {have}", int(counts.sum()), sum(len(tables[n]) for n in honest)),
        Admitted(
            f"{its} slots that none of them has, without names",
            len(pool.foreign),
            len({name for n in honest for name in tables[n]} - theirs),
        ),
        Admitted(
            f"{its} entities that one of them has too, with names",
            sum(bool(counts[slot]) for slot in named.values()),
            len(common),
        ),
        Admitted(
            f"{its} rows of these" if honest == [0] else "the sum of their rows of these, and how many have each",
            sum(bool(each < CLOSE) for each in wrong),
            len(common),
        ),
    ]


def means_of(pool: Pool, n: int) -> dict[str, Floats]:
    """The means that client n reads."""
    part = _keyed(pool.parties.clients[n].part)
    assert part.result is not None
    assert part.result.matrix is not None
    return dict(zip(map(str, part.result.names), part.result.matrix, strict=True))
