"""A claim about the form "keyed" as a whole: it sends what the specification says, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.claims.counts import form_of
from secea.audit.mutants import derivations, keyed, views
from secea.audit.mutants import specified as mutants
from secea.audit.specified import Table, differs, recorded
from secea.audit.standing import standing_in

CASES: Final[tuple[Mapping[str, Any], ...]] = (
    {"clients": 5, "collusion": 2, "dropouts": 0, "gone": ()},
    {"clients": 6, "collusion": 1, "dropouts": 2, "gone": (1, 4)},
    {"clients": 4, "collusion": 2, "dropouts": 0, "gone": (), "precision": 40},
)
"""Without drop-outs, with some, and with primes of 30 bits."""
DIM: Final = 3


def _tables(clients: int) -> list[Table]:
    """Random, small, coarse and large numbers."""
    rng = np.random.default_rng(clients)
    some = [0.0, 64.0, -64.0, 0.125, 3.25]
    tables: list[Table] = []
    for n in range(clients):
        own = [f"name {i}" for i in range(11) if i % clients == n or rng.random() < 0.4]
        tables.append(
            {name: np.where(rng.random(DIM) < 0.3, rng.choice(some, DIM), rng.normal(size=DIM)) for name in own}
        )
    return tables


@claim(
    "record",
    KEYED,
    mutants=(
        mutants.LIST_NOT_BOUND, mutants.HALF_THE_LIST, keyed.NO_FILL, keyed.NO_WIDE, derivations.ONE_PART,
        views.SAME_G, views.SAME_ALPHA, mutants.STALE_FILL,
    ),
)  # fmt: skip
def as_specified(subject: Subject) -> int:
    """Keyed: every byte of a union, of uploads and of broadcasts is what the specification makes of the same draws.

    Made again in plain integers, with several chunks, drop-outs, and both kinds of fields; twice, with other names.
    """
    cases = 0
    for case in CASES:
        params, gone = {key: value for key, value in case.items() if key not in ("clients", "gone")}, case["gone"]
        tables = _tables(case["clients"])
        form = replace(form_of(subject), batch=2)
        with standing_in({}, CHUNK_BYTES=300):
            parties = replace(subject, form=form).parties(tables, max_union=20, **params)
            parties.setup()
            for again in (False, True):
                if again:
                    names = list(tables[0])
                    fresh = [*names[1:], "another name"]
                    tables[0] = {name: tables[0].get(name, tables[0][names[0]]) for name in fresh}
                    parties.exchange.losses, parties.exchange.here = {}, set(parties.clients)
                    parties.clients[0].part.update(fresh)
                    parties.exchange.run(form.names_phase, parties.clients)
                parties.exchange.losses = dict.fromkeys(gone, form.round_phase)
                with recorded() as record:
                    parties.contribute(tables)
                    parties.exchange.run(form.round_phase, parties.clients)
                for what in differs(parties, tables, record):
                    raise Objection(f"{what} is not as specified, with {params}")
                cases += sum(map(len, record.uploads.values())) + len(record.broadcast)
    return cases
