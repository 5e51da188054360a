"""A claim about the form "keyed" as a whole: it sends what the specification says, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid, streams
from secea.arithmetic._kernels import lib, twin
from secea.arithmetic.field import PRIMES30, RING56, RING61, Ring
from secea.arithmetic.streams import Noise
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.claims.counts import form_of
from secea.audit.differing import differs
from secea.audit.mutants import derivations, keyed, options, views
from secea.audit.mutants import specified as mutants
from secea.audit.specified import Table, lookup_table, recorded
from secea.audit.standing import standing_in
from secea.errors import SERVER
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.values import Values
from secea.table import Name, as_table


@dataclass(frozen=True)
class Case:
    """A federation, and from where on its rounds are counted when it goes on."""

    clients: int
    collusion: int
    later: int
    names: int = 11
    gone: tuple[int, ...] = ()
    """Who vanishes in a round."""
    absent: tuple[int, ...] = ()
    """Who takes part in no union: fewer than W noise clients are left, and each draws from a wider range."""
    dim: int = 3
    chunk_bytes: int = 300
    more: Mapping[str, Any] = field(default_factory=dict)


CASES: Final = (
    Case(5, 2, later=300),
    Case(6, 1, later=70_000, gone=(1, 4), more={"dropouts": 2}),
    Case(4, 2, later=(1 << 24) + 9, more={"precision": 40}),
    Case(3, 1, later=5, more={"precision": 34}),
    Case(2, 1, later=(1 << 31) + 2, names=270, dim=1, chunk_bytes=1),
    Case(4, 3, later=7, names=5, absent=(1, 3)),
    Case(5, 2, later=300, more={"min_owners": 3}),
    Case(6, 1, later=70_000, gone=(3,), more={"dropouts": 2, "min_owners": 4, "noise": 0.125, "precision": 40}),
    Case(3, 1, later=9, names=7, more={"noise": 1e-5, "min_owners": 2}),
    Case(4, 2, later=8, more={"max_weight": 1000, "min_owners": 2}),
    Case(4, 1, later=6, more={"max_weight": 3, "precision": 40}),
    Case(4, 1, later=6, gone=(2,), more={"dropouts": 1, "partial": True, "min_owners": 2}),
)
"""Without drop-outs, with some, with primes of 30 bits, with 2^61 - 1, with more chunks than fit into a byte; and with
each option."""


def _tables(case: Case) -> list[Table]:
    """Random, small, coarse and large numbers."""
    rng, dim = np.random.default_rng(case.clients), case.dim
    some = [0.0, 64.0, -64.0, 0.125, 3.25]
    tables: list[Table] = []
    for n in range(case.clients):
        own = [f"name {i}" for i in range(case.names) if i % case.clients == n or rng.random() < 0.4]
        tables.append(
            {name: np.where(rng.random(dim) < 0.3, rng.choice(some, dim), rng.normal(size=dim)) for name in own}
        )
    return tables


def _weights(case: Case, tables: list[Table]) -> list[dict[Name, int]]:
    """Of each row, 0 among them; none where there are none."""
    most = case.more.get("max_weight") or int(case.more.get("partial", 0))
    rng = np.random.default_rng(case.later)
    return [{name: int(rng.integers(0, most + 1)) for name in table} for table in tables] if most else []


@claim(
    "record",
    KEYED,
    mutants=(
        mutants.LIST_NOT_BOUND, mutants.HALF_THE_LIST, keyed.NO_FILL, keyed.NO_WIDE, derivations.ONE_PART,
        views.SAME_G, views.SAME_ALPHA, mutants.STALE_FILL, mutants.SHORT_ROUNDS,
        mutants.SHORT_CHUNKS, options.FIRST_DESIGNATED, options.TOO_LITTLE, options.UNBLURRED,
        options.OPENLY_LEFT_OUT, options.NOT_WITHHELD,
    ),
)  # fmt: skip
def as_specified(subject: Subject) -> int:
    """Keyed: every byte of a union, of uploads and of broadcasts is what the specification makes of the same draws.

    Made again in plain integers, with several chunks, drop-outs, all kinds of fields, minimum owners, weights, rows
    left out and noise on every slot; twice, with other names, and many rounds later.
    """
    cases = 0
    for case in CASES:
        tables = _tables(case)
        form = replace(form_of(subject), batch=2)
        with standing_in({}, CHUNK_BYTES=case.chunk_bytes):
            parties = replace(subject, form=form).parties(
                tables, collusion=case.collusion, max_union=case.names + 9, rounds=(1 << 32) - 1, **case.more
            )
            parties.setup()
            for again in (False, True):
                if again:
                    names = list(tables[0])
                    fresh = [*names[1:], "another name"]
                    tables[0] = {name: tables[0].get(name, tables[0][names[0]]) for name in fresh}
                    parties.exchange.losses, parties.exchange.here = {}, set(parties.clients)
                    parties.clients[0].part.update(fresh)
                    parties.server.at = replace(parties.server.at, round=case.later)
                    parties.exchange.run(form.names_phase, parties.clients)
                if case.absent:
                    parties.union([n for n in parties.clients if n not in case.absent])
                parties.exchange.losses = dict.fromkeys(case.gone, form.round_phase)
                weights = _weights(case, tables)
                given = [as_table(table, case.dim) for table in tables]
                weighed = [each.weighing(some) for each, some in zip(given, weights, strict=True)] if weights else given
                with recorded() as record:
                    parties.contribute(weighed)
                    parties.exchange.run(form.round_phase, parties.server.at.members)
                for what in differs(parties, tables, record, weights):
                    raise Objection(f"{what} is not as specified: {case}")
                cases += sum(map(len, record.uploads.values())) + len(record.broadcast)
    return cases


@claim("record", KEYED, mutants=(mutants.SHORT_WEIGHTS, mutants.WEIGHTS_OF_ONE))
def tables_as_specified(subject: Subject) -> int:
    """Keyed: a lookup table of the union is what the specification makes of its names, whether they are few or many.

    A client that has learnt the keys of some thousand names sends what was made again in plain integers.
    """
    few = [{name: [1.0] for name in own} for own in ("ab", "bc", "ca")]
    parties = subject.parties(few, collusion=1, max_union=4000, max_entities=3500)
    parties.setup()
    sizes = (0, 1, 2, 300, 3000)
    for size in sizes:
        part = parties.clients[1].part
        assert isinstance(part, KeyedClient)
        assert part.union is not None
        F: dict[Name, bytes] = {f"{i}": hashlib.sha512(b"%d" % i).digest() for i in range(size)}
        part.naming.names = replace(part.naming.names, own=tuple(F), prf=Values.made(tuple(F), list(F.values())))
        at = replace(parties.clients[1].at, phase="table", context=part.union.context)
        sent = b"".join(bytes(each) for _, parts in part.payloads(Kind.TABLE, (SERVER,), at) for each in parts)
        if sent != lookup_table(part, at, F):
            raise Objection(f"the lookup table of {size} names is not as specified")
    return sum(sizes)


RINGS: Final = (RING56, RING61, Ring(PRIMES30[:3]))
ROWS: Final = 37
"""More than a tile of any loop, and odd."""


def _computed(ring: Ring) -> dict[str, bytes]:
    """What all loops make of the same inputs: streams, noise, fill, grids, sums and products."""
    rng, dim, made = np.random.default_rng(8), 5, dict[str, bytes]()
    keys = [rng.bytes(32) for _ in range(5)]
    x = streams.stream(ring, keys[0], 3, ROWS, dim)
    factors, weights = streams.stream(ring, keys[1], 1 << 31, ROWS, nonzero=True), x[:, 0].copy()
    sums = {"streams": x.copy(), "noise": x.copy(), "wide noise": x.copy(), "scaled": x.copy(), "added": x.copy()}
    streams.add_streams(ring, sums["streams"], keys, [1, -1, 1, -1, -1], 70_000)
    streams.add_noise(ring, sums["noise"], keys[2], 2, Noise(6, (60,), 1 << 33))
    streams.add_noise(ring, sums["wide noise"], keys[2], 2, Noise(10, (55440, 13), 12345))
    streams.scaled_rows(ring, sums["scaled"], x, factors, places=np.arange(ROWS)[::-1].copy(), added=x)
    whole = rng.integers(-(1 << 59), 1 << 59, (ROWS, dim))
    streams.add_scaled(ring, sums["added"], whole, 2520)
    sums |= {
        "row streams": streams.row_streams(ring, np.frombuffer(rng.bytes(32 * ROWS), np.uint8).reshape(-1, 32), 9, dim),
        "weighted": streams.weighted_sums(ring, x, weights), "inverses": ring.inverse(factors),
        "products": ring.multiply(x, sums["streams"]), "differences": ring.subtract(x, sums["noise"]),
        "nonzero": factors,
    }  # fmt: skip
    made |= {what: each.tobytes() for what, each in sums.items()}
    made["means"] = ring.join(x.copy(), 2.0**-40, 12345).tobytes()
    for what, table in _matrices(rng, dim).items():
        used, step = grid.grid_of(table, table.dtype)
        bits, steps = grid.grid_of_rows(table, used, step)
        names = rng.integers(0, 1 << 64, len(table), np.uint64)
        filled = streams.encode(table, names, keys, 40, 14, 1 << 11, bits, steps, 1.0)
        made[f"fill of {what}"] = bits.tobytes() + steps.tobytes() + filled.tobytes()
    return made


def _matrices(rng: np.random.Generator, dim: int) -> dict[str, NDArray[np.float64]]:
    """Tables of all kinds."""
    some = rng.normal(size=(ROWS, dim))
    special = rng.choice([0.0, -0.0, 64.0, -64.0, 2.0**-1070, 0.125], some.shape)
    odd = np.where(rng.random(some.shape) < 0.3, special, some)
    coarse = np.round(rng.normal(size=(ROWS, 9)), 1)
    coarse[::2] = np.ldexp(rng.integers(-99, 99, coarse[::2].shape), -5)
    return {
        "fine numbers": some,
        "odd numbers": odd,
        "float32": some.astype(np.float32).astype(float),
        "coarse": coarse,
    }


@claim("record", KEYED, mutants=(mutants.PORTABLE_FILL, mutants.PORTABLE_LANES, mutants.TWIN_SUMS))
def every_processor(subject: Subject) -> int:
    """Keyed: what is computed does not depend on the processor, or on whether loops could be compiled.

    Streams, noise, fill and arithmetic are the same, to the bit, with AES instructions of each kind and without, and in
    the loops that stand in for compiled ones. So what other claims see on one machine holds on all.
    """
    cases = 0
    for ring in RINGS:
        best = _computed(ring)
        ways = {f"level {level}": (level, lib) for level in range(streams.BEST)}
        for way, (level, loops) in {**ways, "loops that were not compiled": (0, twin)}.items():
            with standing_in({lib: loops}, but="secea.arithmetic._kernels"), streams.use(level):
                found = _computed(ring)
            for what, expected in best.items():
                cases += 1
                if found[what] != expected:
                    raise Objection(f"{what} differ with {way}, modulo {len(ring.primes)} primes")
    return cases
