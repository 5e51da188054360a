"""Plans of some federations: bytes, multiplications, memory, and who is trusted with what."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product
from typing import Any, Final

from secea.forms import form_of
from secea.params import Params
from secea.party.phases import Agreement
from secea.plan import plan

KEYED: Final = (
    (2, 1, 0), (3, 1, 0), (4, 3, 0), (10, 2, 0), (10, 9, 0), (10, 2, 3), (6, 1, 2), (5, 2, 2), (6, 3, 2), (13, 4, 1),
    (50, 5, 5), (3, 2, 0), (5, 1, 2), (4, 2, 1), (8, 4, 2), (40, 30, 9), (40, 1, 38), (40, 38, 1),
)  # fmt: skip
PAPER: Final = ((3, 1, 0), (4, 1, 0), (6, 2, 1), (10, 3, 2))
SHAPES: Final = ((1, 1, 1), (32, 40, 40), (8, 30, 20), (128, 14_541, 14_541))
"""dim, entities of the union, and of a client at most"""


def plans() -> dict[str, Any]:
    """For each form, federation and shape what `secea plan` knows."""
    found = []
    for name, cases in (("keyed", KEYED), ("paillier", PAPER)):
        for (N, T, D), (dim, entities, own) in product(cases, SHAPES):
            for queries in ("buckets", "full") if name == "paillier" and entities < 50 else (None,):
                form: Any = form_of(name, queries=queries)
                params = form.checked(
                    Params(
                        clients=N, dim=dim, collusion=T, dropouts=D, key_bits=2048 if dim == 8 else 3072
                    ).with_bounds(max_entities=own, max_union=entities)
                )
                cost = plan(params, entities=entities, form=form)
                at = Agreement(members=tuple(range(N)), participants=tuple(range(N)), names=1, size=entities)
                phases = [row.phase for row in form.table(params)]
                found.append({
                    "form": name, "queries": queries or "", "clients": N, "collusion": T, "dropouts": D, "dim": dim,
                    "entities": entities, "own": own,
                    "plan": asdict(cost),
                    "facts": form.facts(params),
                    "memory": form.memory(params, entities),
                    "products": list(form.products(params, entities)),
                    "ticks": form.ticks(params, 7),
                    "trust": list(form.trust(params)),
                    "patience": {phase: form.patience(params, replace(at, phase=phase)) for phase in phases},
                })  # fmt: skip
    return {"plans": found}
