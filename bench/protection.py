"""The share of protection in training: rounds of training and secure means take turns, as in `secea train`."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure, Grid, Section
from bench.hashed import hashed_names
from bench.measure import ROOT, Tick, Timing, cpus, timed, walls
from bench.shapes import Scale
from secea.arithmetic.field import keep_freed_memory
from secea.errors import SecEAError

if TYPE_CHECKING:
    from secea.learn.run import Run

DDB14: Final = ROOT.parent / "shared" / "data" / "kg_ddb14_fed5.npz"
"""A medical knowledge graph over 5 clients, where it is at hand."""
AIMS: Final = {"share of CPU": 4.0, "share of wall": 5.0}
"""In percent of the training."""


def learning(scale: Scale, tick: Tick) -> Section:
    """TransE as FedE trains it: DDB14, or UMLS where that is not at hand."""
    grids: dict[str, Grid] = {}
    try:
        about, found = _rounds(scale, tick)
    except (ModuleNotFoundError, SecEAError) as error:
        return Section("the share of protection in training", grids, [f"not measured: {error}"])
    turns = [*zip(found["protection"], found["training"], strict=True)]
    shares = {
        "share of CPU": [a.cpu / b.cpu for a, b in turns],
        "share of wall": [a.wall / b.wall for a, b in turns],
    }
    rows = {
        name: {"aim": Figure.of(AIMS[name], "%"), "measured": Figure.of([100 * each for each in some], "%")}
        for name, some in shares.items()
    }
    seconds = {name: {"CPU": cpus(each), "wall": walls(each)} for name, each in found.items()}
    grids = {
        "share": Grid("Protection over training, in each round", rows),
        "round": Grid("A round of all clients, in one process", seconds),
    }
    notes = ["Names got their keys by a hash: rounds do not depend on that."]
    return Section(about, grids, notes)


def _rounds(scale: Scale, tick: Tick) -> tuple[str, dict[str, list[Timing]]]:
    from bench.learning import FEDE, warm_up
    from secea.learn.config import resolved
    from secea.learn.run import Run

    full = scale.training_rounds > 1 and DDB14.exists()
    more: dict[str, Any] = {"rounds": scale.training_rounds + 1, "methods": ("secea",)}
    if not full:
        more |= {"clients": 5}
    config = resolved("kg", (str(DDB14) if full else "umls",), **(FEDE | more))
    about = (
        f"{'DDB14' if full else 'UMLS'} over 5 clients, TransE, dim {config.dim}, {config.epochs} local epochs, batch"
        f" {config.batch}, {config.negatives} negatives; form keyed, T=4"
    )
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        return about, _trained(Run(Path(folder), config), scale.training_rounds, tick)


def _trained(run: Run, rounds: int, tick: Tick) -> dict[str, list[Timing]]:
    import torch

    from secea.learn.methods import Secure

    keep_freed_memory()  # as the command line does
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # clients train side by side
    learners = [run.task.learner(n) for n in range(len(run.clients))]
    tick("set-up")
    with hashed_names():
        method = Secure(run.names, run.params)
    method.aggregate([each.table() for each in learners])  # its memory is touched for the first time
    found: dict[str, list[Timing]] = {"training": [], "protection": []}
    try:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, len(learners))) as pool:
            for number in range(1, rounds + 1):
                tick(f"round {number} of {rounds}")
                found["training"].append(timed(partial(_train, pool, learners, number))[1])
                found["protection"].append(timed(lambda: _shared(method, learners))[1])
    finally:
        torch.set_num_threads(threads)
    return found


def _train(pool: ThreadPoolExecutor, learners: list[Any], number: int) -> None:
    for _ in pool.map(lambda learner: learner.train(number), learners):
        pass


def _shared(method: Any, learners: list[Any]) -> None:
    """What a round has beside training."""
    for learner, rows in zip(learners, method.aggregate([each.table() for each in learners]), strict=True):
        learner.adopt(rows)
