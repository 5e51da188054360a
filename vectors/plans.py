"""Plans of some federations: bytes, multiplications, memory, and who is trusted with what."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product
from typing import Any, Final

from secea.forms import form_of
from secea.forms.costs import round_costs, setup_costs
from secea.params import Params
from secea.party.phases import Agreement
from secea.plan import plan

KEYED: Final = (
    (2, 1, 0), (3, 1, 0), (4, 3, 0), (10, 2, 0), (10, 9, 0), (10, 2, 3), (6, 1, 2), (5, 2, 2), (6, 3, 2), (13, 4, 1),
    (50, 5, 5), (3, 2, 0), (5, 1, 2), (4, 2, 1), (8, 4, 2), (40, 30, 9), (40, 1, 38), (40, 38, 1),
)  # fmt: skip
PAPER: Final = ((3, 1, 0), (4, 1, 0), (6, 2, 1), (10, 3, 2))
EACH: Final = ((1, 1, 1), (32, 40, 40), (8, 30, 20), (128, 14_541, 14_541))
SHAPES: Final = {"keyed": EACH, "paillier": (*EACH, (2, 3000, 1000))}
"""dim, entities of the union, and of a client at most"""


OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"min_owners": 2}, {"min_owners": 3}, {"min_owners": 4}, {"max_weight": 1}, {"max_weight": 19_999},
    {"partial": True}, {"noise": 0.25}, {"min_owners": 2, "partial": True}, {"min_owners": 3, "max_weight": 20},
    {"min_owners": 2, "max_weight": 20}, {"min_owners": 5, "noise": 8.0},
)  # fmt: skip
CHOSEN: Final = (
    (2, 1, 0), (3, 1, 0), (3, 2, 0), (4, 2, 0), (4, 3, 0), (4, 2, 1), (6, 1, 0), (6, 2, 1), (7, 2, 2), (6, 1, 4),
    (12, 4, 3),
)  # fmt: skip


def chosen() -> tuple[list[dict[str, Any]], list[str]]:
    """Federations with options: what they cost, and what people sign who agree on them, by the numbers of sentences."""
    found: list[dict[str, Any]] = []
    sentences: dict[str, int] = {}

    def numbered(words: str) -> int:
        return sentences.setdefault(words, len(sentences))

    for (N, T, D), options in product(CHOSEN, OPTIONS):
        if options.get("min_owners", 1) > N:
            continue
        form = form_of("keyed")
        asked = Params(clients=N, dim=6, collusion=T, dropouts=D, **options)
        params = form.checked(asked.with_bounds(max_entities=14_541, max_union=19_000))
        told = form.disclosure(params)
        found.append({
            "clients": N, "collusion": T, "dropouts": D, "options": options,
            "facts": form.facts(params),
            "memory": form.memory(params, 19_000),
            "products": list(form.products(params, 19_000)),
            "ticks": form.ticks(params, 7),
            "trust": [numbered(words) for words in form.trust(params)],
            "says": [
                [numbered(words) for words in (each.about, each.assumed, *each.says)]
                for each in (*told.parties, *told.options)
            ],
            "limits": [numbered(words) for words in told.limits],
            "accuracy": [numbered(words) for words in told.accuracy],
        })  # fmt: skip
    return found, list(sentences)


def planned(name: str) -> list[dict[str, Any]]:
    """For each federation and shape what `secea plan` knows of this form."""
    found = []
    for (N, T, D), (dim, entities, own) in product({"keyed": KEYED, "paillier": PAPER}[name], SHAPES[name]):
        for queries in ("buckets", "full") if name == "paillier" and entities < 5000 else (None,):
            form: Any = form_of(name, queries=queries)
            params = form.checked(
                Params(clients=N, dim=dim, collusion=T, dropouts=D, key_bits=2048 if dim == 8 else 3072).with_bounds(
                    max_entities=own, max_union=entities
                )
            )
            cost = plan(params, entities=entities, form=form)
            at = Agreement(members=tuple(range(N)), participants=tuple(range(N)), names=1, size=entities)
            phases = [row.phase for row in form.table(params)]
            costs = {"setup": setup_costs(form, params, entities), "round": round_costs(form, params, entities)}
            found.append({
                "form": name, "queries": queries or "", "clients": N, "collusion": T, "dropouts": D, "dim": dim,
                "entities": entities, "own": own,
                "plan": {name: value for name, value in asdict(cost).items() if name != "engine"},
                "hops": {phase: each.hops for phase, each in costs.items()},
                "ciphers": {
                    phase: {" ".join(what): size for what, size in sorted(each.ciphers.items())}
                    for phase, each in costs.items()
                },
                "facts": form.facts(params),
                "memory": form.memory(params, entities),
                "products": list(form.products(params, entities)),
                "ticks": form.ticks(params, 7),
                "trust": list(form.trust(params)),
                "patience": {phase: form.patience(params, replace(at, phase=phase)) for phase in phases},
            })  # fmt: skip
    return found


def plans() -> dict[str, Any]:
    """Both."""
    federations, sentences = chosen()
    return {"plans": [*planned("keyed"), *planned("paillier")], "chosen": federations, "sentences": sentences}
