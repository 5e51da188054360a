"""How often attacks find the number of owners behind a mean of the form "keyed", beside chance: `secea audit --counts`.

The claims of the audit state what holds. This is the whole table, with the limits that the specification admits: values
that all owners share, over many rounds or on a coarse grid (docs/protocol-keyed.md, K8).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from click import UsageError
from rich.console import Console
from rich.progress import track
from rich.table import Table as Grid

from secea.audit import KEYED, Mutant
from secea.audit.attacks import keyed_counts as counts
from secea.audit.attacks import weights
from secea.audit.attacks.keyed_counts import BF16, FLOAT32, FLOAT64, KINDS, LARGE, Inputs, Owners, Seen, World
from secea.audit.registry import product
from secea.forms.keyed import Keyed

ENTITIES: Final = 4000
ROUNDS: Final = (1, 10, 100, 1000)
WEIGHED: Final = 2000
"""Entities with weights."""
CLIENTS: Final = (5, 10)
DEVIATIONS: Final = 5.0
"""A rate that is so many standard deviations above chance is marked. Of 200 rates of pure chance, none is."""


@dataclass(frozen=True)
class Rates:
    """What one attack reaches on one kind of inputs."""

    attack: str
    values: str
    """Whether owners have values of their own, or all the same."""
    inputs: str
    clients: int
    together: int
    """How many clients pool what they see."""
    entities: int
    chance: float
    rates: dict[int, float]
    """By the number of rounds in which nobody's values change."""

    def marked(self, rounds: int) -> bool:
        """Whether this rate is above chance."""
        spread = math.sqrt(self.chance * (1 - self.chance) / self.entities)
        return self.rates[rounds] > self.chance + DEVIATIONS * spread


def _by_grid(was: Seen, kind: Inputs, owners: Owners, world: World) -> float:
    return counts.best_by_grid(was, kind, world, counts=world.possible)


def _by_spectrum(was: Seen, kind: Inputs, owners: Owners, world: World) -> float:
    return counts.rate(counts.by_spectrum(was, world.possible), world)


def _by_slope(was: Seen, kind: Inputs, owners: Owners, world: World) -> float:
    own = world.rows[0].astype(kind.dtype).astype(np.float64)
    return counts.rate(counts.by_slope(was, own, counts.fill_widths(owners.parts[0], own), world.possible), world)


Attack = Callable[[Seen, Inputs, Owners, World], float]
ATTACKS: Final[Mapping[str, Mapping[str, Attack]]] = {
    "own": {"grid": _by_grid, "spectrum": _by_spectrum},
    "same": {"slope": _by_slope},
}
"""What can be tried where owners have values of their own, and where all have the same."""
TOGETHER: Final = (FLOAT64, FLOAT32, LARGE, BF16)
"""Inputs on which all clients but one try together whether the last one owns the entity."""


def form_of(mutant: Mutant | None) -> Keyed:
    """The form "keyed" as it is installed, or as a mutant has it."""
    subject = product()[KEYED] if mutant is None else mutant.subjects.get(KEYED)
    if subject is None or not isinstance(subject.form, Keyed):
        raise UsageError(f"mutant {mutant and mutant.name} is not one of form keyed, whose counts these are")
    return subject.form


def measured(
    form: Keyed, entities: int = ENTITIES, rounds: Sequence[int] = ROUNDS, clients: Sequence[int] = CLIENTS
) -> list[Rates]:
    """All rates. Inputs are made up from a fixed seed; fill and noise come from the system."""
    cases = [(N, values, kind, 1) for N in clients for values in ATTACKS for kind in KINDS]
    cases += [(N, "same", kind, N - 1) for N in clients for kind in TOGETHER]
    console, found = Console(stderr=True, markup=False), list[Rates]()
    shown = track(cases, "counts", console=console, transient=True, disable=not console.file.isatty())
    for number, (N, values, kind, inside) in enumerate(shown):
        make, rng = counts.unlike if values == "own" else counts.alike, np.random.default_rng([N, number])
        world = make(kind, entities, rng, clients=N, inside=inside)
        rates = _rates(form, kind, world, rounds, ATTACKS[values])
        chance = 1 / len(world.possible)
        found += [Rates(name, values, kind.name, N, inside, entities, chance, each) for name, each in rates.items()]
    for N in clients:
        few = min(entities, WEIGHED)
        for (attack, values), each in weights.rates_of(form, few, N, rounds, np.random.default_rng([N, 99])).items():
            found.append(Rates(attack, values, "weights", N, 1, few, 1 / (N - 1), each))
    return sorted(found, key=lambda each: (each.clients, each.together, each.attack))


def _rates(
    form: Keyed, kind: Inputs, world: World, rounds: Sequence[int], attacks: Mapping[str, Attack]
) -> dict[str, dict[int, float]]:
    """What each attack reaches after so many rounds."""
    clients, entities = world.owned.shape
    params = counts.parameters(entities, clients=clients, collusion=world.inside)
    owners = Owners(entities, form, clients)
    owners.session(params)
    values = owners.encode(world, kind.dtype)
    seen = dict(zip(rounds, counts.seen_after(form, params, values, world, rounds), strict=True))
    return {name: {q: guess(was, kind, owners, world) for q, was in seen.items()} for name, guess in attacks.items()}


def show(found: Sequence[Rates], *, as_json: bool) -> None:
    """The table, or a list of the rates as JSON."""
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    rounds = list(found[0].rates)
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns: list[tuple[str, Any]] = [(name, "left") for name in ("attack", "values", "inputs")]
    columns += [
        (name, "right") for name in ("clients", "together", "chance", *(f"{q:,} round{'s' * (q > 1)}" for q in rounds))
    ]
    for name, justify in columns:
        grid.add_column(name, justify=justify)
    for each in found:
        rates = [f"{each.rates[q]:.1%}{'*' if each.marked(q) else ' '}" for q in rounds]
        row = (each.attack, each.values, each.inputs, str(each.clients), str(each.together), f"{each.chance:.1%}")
        grid.add_row(*row, *rates)
    console = Console(width=170, highlight=False, markup=False)
    console.print(grid)
    console.print(f"\n* more than {DEVIATIONS:g} standard deviations above chance")
