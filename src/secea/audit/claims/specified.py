"""A claim about the form "keyed" as a whole: it sends what the specification says, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.claims.counts import form_of
from secea.audit.mutants import derivations, keyed, views
from secea.audit.mutants import specified as mutants
from secea.audit.specified import Table, differs, lookup_table, recorded
from secea.audit.standing import standing_in
from secea.errors import SERVER
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.values import Values
from secea.table import Name


@dataclass(frozen=True)
class Case:
    """A federation, and from where on its rounds are counted when it goes on."""

    clients: int
    collusion: int
    later: int
    names: int = 11
    gone: tuple[int, ...] = ()
    """Who vanishes in a round."""
    dim: int = 3
    chunk_bytes: int = 300
    more: Mapping[str, Any] = field(default_factory=dict)


CASES: Final = (
    Case(5, 2, later=300),
    Case(6, 1, later=70_000, gone=(1, 4), more={"dropouts": 2}),
    Case(4, 2, later=(1 << 24) + 9, more={"precision": 40}),
    Case(3, 1, later=5, more={"precision": 34}),
    Case(2, 1, later=(1 << 31) + 2, names=270, dim=1, chunk_bytes=1),
)
"""Without drop-outs, with some, with primes of 30 bits, with 2^61 - 1, and with more chunks than fit into a byte."""


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


@claim(
    "record",
    KEYED,
    mutants=(
        mutants.LIST_NOT_BOUND, mutants.HALF_THE_LIST, keyed.NO_FILL, keyed.NO_WIDE, derivations.ONE_PART,
        views.SAME_G, views.SAME_ALPHA, mutants.STALE_FILL, mutants.SHORT_ROUNDS,
        mutants.SHORT_CHUNKS,
    ),
)  # fmt: skip
def as_specified(subject: Subject) -> int:
    """Keyed: every byte of a union, of uploads and of broadcasts is what the specification makes of the same draws.

    Made again in plain integers, with several chunks, drop-outs, and all kinds of fields; twice, with other names, and
    many rounds later.
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
                parties.exchange.losses = dict.fromkeys(case.gone, form.round_phase)
                with recorded() as record:
                    parties.contribute(tables)
                    parties.exchange.run(form.round_phase, parties.clients)
                for what in differs(parties, tables, record):
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
