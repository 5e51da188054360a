"""The demo from beginning to end: what is found out, as data; and how it is shown."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

from secea.audit.attacks.keyed import Overheard
from secea.demo import views
from secea.demo.data import Tables, World, world
from secea.engines.federation import Federation
from secea.engines.traffic import Hop
from secea.errors import FederationError, ParamsError
from secea.forms.keyed import Keyed
from secea.params import Params
from secea.plan import plan

Floats = NDArray[np.float64]
SHOWN: Final = 6
"""Entities in the table of means."""
MOST_CLIENTS, MOST_NUMBERS = 12, 1024
"""All messages of the guided run are kept, and an upload is looked at in one piece."""


class Progress(Protocol):
    """Called during a long step: with what it is, and how far it is."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show it."""
        ...


def unseen(what: str, done: int, total: int) -> None:
    """Nobody looks."""


def guided(
    source: str | None,
    *,
    clients: int,
    collusion: int | None,
    dim: int,
    seed: int | None,
    form: Overheard | None = None,
    progress: Progress = unseen,
) -> dict[str, Any]:
    """Everything that the demo shows. `form` is the federation's, with a server that keeps what it opens."""
    form = Overheard() if form is None else form
    params = form.checked(Params(clients=clients, collusion=collusion, dim=dim))  # before any work is done
    if clients > MOST_CLIENTS:
        raise ParamsError(f"the guide takes at most {MOST_CLIENTS} clients; with --entities it can be more")
    if dim > MOST_NUMBERS:
        raise ParamsError(f"the guide takes at most {MOST_NUMBERS} numbers; with --entities it can be more")
    seed = secrets.randbelow(2**32) if seed is None else seed
    made = world(source, clients=clients, dim=dim, seed=seed)
    pool = views.run(made.tables, params, form, lambda done, total: progress("set-up: names", done, total))
    so = views.Truth.of(pool, made.tables)
    truth = true_means(made.tables)
    means = [views.means_of(pool, n) for n in pool.parties.clients]
    return {
        "data": {"name": made.name, "about": made.about, "seed": seed, "dim": dim, "collusion": params.T},
        "trust": list(form.trust(params)),
        "organisations": _organisations(made.tables),
        "pool": pool.who,
        "steps": [asdict(each) for each in views.steps(pool, so, made.names)],
        "hidden": views.compared(pool, secrets.token_bytes(32)),
        "attacks": [asdict(each) for each in views.attacks(pool, so, made.names)],
        "admitted": [asdict(each) for each in views.admitted(pool, so)],
        "guesses": _guesses(pool.form, pool.params),
        "means": _means(made.tables, truth, means),
        "error": {"largest": _checked(truth, means, params), "promised": params.resolution},
        "gain": _gain(made, means),
        "cost": _timed(Federation(params), made.tables, progress)[0],
    }


def _guesses(form: Keyed, params: Params) -> dict[str, int]:
    """How many names a client that deviates can have answered: it puts one in place of its check point, too (K2)."""
    first, later = (form.list_size(params, epoch) + 1 for epoch in (1, 2))
    return {"first": first, "later": later, "epochs": form.max_updates}


def made_up(
    *,
    clients: int,
    collusion: int | None,
    entities: int,
    dim: int,
    seed: int | None,
    progress: Progress = unseen,
) -> dict[str, Any]:
    """A federation with random embeddings, of any size. It shows only means and costs."""
    fed = Federation(Params(clients=clients, collusion=collusion, dim=dim))
    seed = secrets.randbelow(2**32) if seed is None else seed
    rng = np.random.Generator(np.random.PCG64(seed))  # made-up data, no secrets
    tables: Tables = []
    for _ in range(clients):
        own = np.flatnonzero(rng.random(entities) < rng.uniform(0.2, 0.7)).tolist()
        tables.append({f"entity {i}": row for i, row in zip(own, rng.normal(size=(len(own), dim)), strict=True)})
    cost, means = _timed(fed, tables, progress)
    truth = true_means(tables)
    return {
        "data": {"name": "made up", "about": "random numbers", "seed": seed, "dim": dim, "collusion": fed.params.T},
        "trust": list(Keyed().trust(fed.params)),
        "organisations": _organisations(tables),
        "means": _means(tables, truth, means),
        "error": {"largest": _checked(truth, means, fed.params), "promised": fed.params.resolution},
        "cost": cost,
    }


def true_means(tables: Tables) -> dict[str, Floats]:
    """Over all owners, in the open."""
    rows: dict[str, list[Any]] = {}
    for table in tables:
        for name, row in table.items():
            rows.setdefault(name, []).append(row)
    return {name: np.mean(own, axis=0, dtype=np.float64) for name, own in rows.items()}


def _organisations(tables: Tables) -> dict[str, Any]:
    sets = [set(table) for table in tables]
    everything = set().union(*sets)
    owners = [sum(name in own for own in sets) for name in everything]
    return {
        "union": len(everything),
        "entities": [len(own) for own in sets],
        "shared": [[len(one & other) for other in sets] for one in sets],
        "owners": {str(count): owners.count(count) for count in range(1, len(sets) + 1)},
    }


def _means(tables: Tables, truth: dict[str, Floats], means: Sequence[dict[str, Floats]]) -> list[dict[str, Any]]:
    """Some entities, each of another client: the first number of its own embedding, in truth, and as it came out."""
    rows: dict[str, dict[str, Any]] = {}
    for n, table in enumerate(tables[:SHOWN]):
        name = next((name for name in sorted(table) if name not in rows), None)
        if name is not None:
            values = {"own": table[name][0], "true": truth[name][0], "secure": means[n][name][0]}
            owners = sum(name in other for other in tables)
            rows[name] = {"client": n, "entity": name, "owners": owners} | {k: float(v) for k, v in values.items()}
    return list(rows.values())


def _checked(truth: dict[str, Floats], means: Sequence[dict[str, Floats]], params: Params) -> float:
    worst = max((float(np.abs(row - truth[name]).max()) for own in means for name, row in own.items()), default=0.0)
    if worst >= params.resolution:
        raise FederationError(f"the means differ by {worst:.2e} from the true ones: this is a bug, please report it")
    return worst


def _gain(made: World, means: Sequence[dict[str, Floats]]) -> dict[str, float]:
    """How near embeddings are to those of all data in one place: the mean cosine, before and after."""
    alone = [_cosine(row, made.whole[name]) for table in made.tables for name, row in table.items()]
    together = [_cosine(row, made.whole[name]) for own in means for name, row in own.items()]
    return {"alone": float(np.mean(alone)), "together": float(np.mean(together))}


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if size else 0.0


def _timed(fed: Federation, tables: Tables, progress: Progress) -> tuple[dict[str, Any], list[dict[str, Floats]]]:
    """What it takes where nobody writes everything down, and the means."""
    fed.progress = lambda done, total: progress("set-up: names", done, total)
    started = time.perf_counter()
    fed.setup([table.keys() for table in tables])
    ready = time.perf_counter()
    means = fed.round(tables)
    done = time.perf_counter()
    planned = plan(fed.params, entities=fed.server.M)
    cost = {
        "setup_seconds": ready - started, "round_seconds": done - ready,
        "setup_bytes": _sent(fed.traffic, 0), "round_bytes": _sent(fed.traffic, 1),
        "planned_round_bytes": planned.round_bytes,
    }  # fmt: skip
    return cost, means


def _sent(traffic: Sequence[Hop], round: int) -> int:
    return sum(hop.size for hop in traffic if hop.round == round)


# ------------------------------------------------------------------------------------------------------------- showing


def show(found: dict[str, Any], console: Console) -> None:
    """All sections that there are."""
    parts = [_shown_parties, _shown_steps, _shown_attacks, _shown_admitted, _shown_means, _shown_cost]
    number = 0
    for part in parts:
        title, *lines = part(found)
        if title:
            number += 1
            console.print(f"\n{number}  {title}", style="bold cyan")
        for line in lines:
            console.print(line)


def _shown_parties(found: dict[str, Any]) -> Iterator[Any]:
    data, parties = found["data"], found["organisations"]
    yield f"{len(parties['entities'])} organisations, {data['about']} (seed {data['seed']})"
    yield _overlaps(parties)
    counts = [(many, int(count)) for count, many in parties["owners"].items() if many]
    listed = ", ".join(f"{many} have {count}" for many, count in counts)
    yield f"{parties['union']} entities in all. Owners: {listed}."
    yield from found["trust"]


def _shown_steps(found: dict[str, Any]) -> Iterator[Any]:
    if "steps" not in found:
        yield ""
        return
    yield f"What client 0 brings, what leaves it, and what {found['pool']} make of it together"
    yield _steps(found["steps"])
    if hidden := found["hidden"]:
        yield (
            f"Rows of the {hidden['slots']} slots that none of them has, with all masks taken off:"
            f" {hidden['hidden']}...; fresh random numbers: {hidden['fresh']}..."
        )
        yield (
            f"Ones among their {hidden['bits']:,} bits: {hidden['ones_hidden']:.2%}; among as many fresh ones:"
            f" {hidden['ones_fresh']:.2%}."
        )


def _shown_means(found: dict[str, Any]) -> Iterator[Any]:
    error, gain = found["error"], found.get("gain")
    yield "What comes out: the first number of some embeddings"
    yield _compared(found["means"])
    yield f"largest difference {error['largest']:.1e}; promised: below {error['promised']:.1e}"
    if gain:
        yield (
            f"cosine to what all data in one place would give: {gain['alone']:.3f} alone, {gain['together']:.3f} with"
            " the means (these embeddings are sums over neighbours)"
        )


def _shown_attacks(found: dict[str, Any]) -> Iterator[Any]:
    if "attacks" not in found:
        yield ""
        return
    yield "What they try against client 0, and what they would find with one secret more"
    yield _attempts(found["attacks"])
    guesses = found["guesses"]
    yield (
        f"A client that deviates can ask for guessed names in place of its own: {guesses['first']} at first, then"
        f" {guesses['later']} in each of {guesses['epochs']} updates."
    )


def _shown_admitted(found: dict[str, Any]) -> Iterator[Any]:
    if "admitted" not in found:
        yield ""
        return
    yield f"What {found['pool']} do see together"
    grid = _grid(("what", "<"), ("they see", ">"), ("the truth", ">"))
    for each in found["admitted"]:
        grid.add_row(each["what"], _listed(each["seen"]), _listed(each["true"]))
    yield grid
    yield "docs/threat-model.md says what else may show."


def _shown_cost(found: dict[str, Any]) -> Iterator[Any]:
    cost = found["cost"]
    yield "What it took"
    yield (
        f"set-up {cost['setup_seconds']:.2f} s, {cost['setup_bytes'] / 1e6:.1f} MB on all hops; a round"
        f" {cost['round_seconds']:.2f} s, {cost['round_bytes'] / 1e6:.1f} MB"
        f" (planned: {cost['planned_round_bytes'] / 1e6:.1f} MB)"
    )
    yield "Next: `secea train kg` learns with it; `secea plan` says what yours would cost."


def _grid(*columns: tuple[str, str]) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in columns:
        grid.add_column(name, justify="right" if justify == ">" else "left", overflow="fold")
    return grid


def _overlaps(parties: dict[str, Any]) -> Grid:
    several = len(parties["entities"]) <= 8
    others = [(f"with {n}", ">") for n in range(len(parties["entities"]))] if several else []
    grid = _grid(("organisation", "<"), ("entities", ">"), *others)
    for n, (count, shared) in enumerate(zip(parties["entities"], parties["shared"], strict=True)):
        cells = ["-" if other == n else str(each) for other, each in enumerate(shared)] if several else []
        grid.add_row(f"client {n}", str(count), *cells)
    return grid


def _steps(steps: Sequence[dict[str, Any]]) -> Grid:
    grid = _grid(("entity", "<"), ("step", "<"), ("client 0 has", "<"), ("leaves it", "<"), ("they see", "<"))
    grid.columns[3].style, grid.columns[4].style = "magenta", "green"
    before = None
    for each in steps:
        name = each["entity"] if each["entity"] != before else ""
        grid.add_row(name, each["step"], each["has"], each["leaves"] or "-", each["pooled"] or "-")
        before = each["entity"]
    return grid


def _compared(means: Sequence[dict[str, Any]]) -> Grid:
    columns = [("client", ">"), ("entity", "<"), ("owners", ">"), ("its own value", ">"), ("true mean", ">")]
    grid = _grid(*columns, ("secure mean", ">"))
    for row in means:
        values = (f"{row[name]:.6f}" for name in ("own", "true", "secure"))
        grid.add_row(str(row["client"]), row["entity"], str(row["owners"]), *values)
    return grid


def _attempts(attacks: Sequence[dict[str, Any]]) -> Grid:
    grid = _grid(("together", "<"), ("try to", "<"), ("succeed", ">"), ("and with", "<"), ("", ">"))
    for each in attacks:
        here, there = (f"{each[name]} of {each['total']}" for name in ("found", "found_given"))
        grid.add_row(each["who"], each["tries"], here, each["given"], there)
    return grid


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
