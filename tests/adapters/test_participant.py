"""A PyTorch model takes part through the same driver and host that every engine carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

from optional import dues
from secea.adapters import participant
from secea.adapters.torch import Checkpoint, TorchRows
from secea.adapters.weights import Weights
from secea.engines.driver import Driver
from secea.engines.host import Host
from secea.engines.port import Failure, Order, Reply, Task, Terms, orders
from secea.engines.store import Store
from secea.errors import SERVER, DataError
from secea.forms.keyed import Keyed
from secea.params import Params
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Name, Table
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer
from truth import true_means

SITES = (["a", "b", "c", "d"], ["b", "c", "x"], ["d", "a", "b", "e"])
PARAMS = Params(3, dim=4, max_entities=4, max_union=6)


class Recommender(nn.Module):
    """Entities with vector and bias, one user, clicks."""

    def __init__(self, entities: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.items, self.bias = nn.Embedding(entities, 3), nn.Parameter(torch.zeros(entities))
        self.user = nn.Parameter(torch.randn(3))
        self.clicks = torch.rand(entities).round()

    def loss(self, some: slice) -> torch.Tensor:
        scores = self.items.weight @ self.user + self.bias
        return nn.functional.binary_cross_entropy_with_logits(scores[some], self.clicks[some])


class Site:
    """A model of its own, as it is in a process that has just started; it writes down what it had and gave."""

    def __init__(self, n: int, started: list[Table], given: list[Table], *, partial: bool) -> None:
        self.partial = partial
        self.model = Recommender(len(SITES[n]), n)
        self.optimizer = optim.Adam(self.model.parameters(), lr=0.05)
        shared: list[nn.Module | torch.Tensor] = [self.model.items, self.model.bias]
        weights: Weights | None = "trained" if partial else None
        self.rows = TorchRows(SITES[n], shared, optimizer=self.optimizer, state="reset", weights=weights)
        self.started, self.given = started, given

    def train(self, number: int) -> None:
        self.started.append(self.rows.table())
        some = slice(number % 2, None, 2) if self.partial else slice(None)
        for _ in range(5):
            self.optimizer.zero_grad()
            self.model.loss(some).backward()
            self.optimizer.step()
        self.given.append(self.rows.table())

    def done(self) -> None:
        self.started.append(self.rows.table())


class World:
    """Three sites in this process, reached by bytes; `fresh`: each round finds sites that have just been started."""

    def __init__(self, folder: Path, *, fresh: bool, **options: Any) -> None:
        self.folder, self.fresh, self.params = folder, fresh, replace(PARAMS, **options)
        folder.mkdir()
        self.identities = {n: Identity.generate() for n in (*range(3), SERVER)}
        roster = Roster(tuple(self.identities[n].public for n in range(3)), self.identities[SERVER].public)
        self.session = Session(self.params, roster, Keyed())
        self.started: list[list[Table]] = [[] for _ in SITES]
        self.given: list[list[Table]] = [[] for _ in SITES]
        self.sites = [self.site(n) for n in range(3)]
        self.hosts = {n: self.host(n) for n in range(3)}

    def site(self, n: int) -> Site:
        return Site(n, self.started[n], self.given[n], partial=self.params.partial)

    def host(self, n: int) -> Host:
        site = self.sites[n] = self.site(n)
        keep = Checkpoint(self.folder / f"{n}.pt", model=site.model, optimizer=site.optimizer)
        store = Store(self.folder / str(n), self.identities[n], self.session.hash)
        return Host(
            self.session, n, self.identities[n], participant(site.rows, site.train, site.done, keep=keep), store
        )

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        for n, order in orders(tasks, round, inboxes()).items():
            yield n, Reply.parse(self.hosts[n].obey(Order.parse(order.to_bytes(), SERVER)).to_bytes(), n)

    def run(self, rounds: int) -> None:
        driver = Driver(Server(self.session, self.identities[SERVER]), self)
        for number in range(rounds):
            if self.fresh and number:
                for n, messages in driver.server.drain().items():  # the means of the round before
                    self.hosts[n].obey(Order(Task.STEP, 0, messages))
                self.hosts = {n: self.host(n) for n in range(3)}
            driver.setup()
            driver.round()
        driver.finish()
        assert not driver.failures


@pytest.mark.parametrize("fresh", [False, True])
def test_a_model_trains_on_the_means_of_the_last_round_and_ends_with_the_last_ones(tmp_path: Path, fresh: bool) -> None:
    world = World(tmp_path / "world", fresh=fresh)
    world.run(3)
    assert [len(given) for given in world.given] == [3, 3, 3]
    for number in range(3):  # what was given in a round is there as means when the next one begins, or at the end
        truth = true_means(given[number].as_dict() for given in world.given)
        for started in world.started:
            for name, row in started[number + 1].as_dict().items():
                assert np.abs(row - truth[name]).max() <= PARAMS.resolution + 1e-6


@pytest.mark.parametrize("fresh", [False, True])
def test_a_model_gives_the_rows_that_it_trained_and_keeps_those_that_have_no_mean(tmp_path: Path, fresh: bool) -> None:
    world = World(tmp_path / "world", fresh=fresh, partial=True, min_owners=2)
    world.run(3)
    last: list[dict[Name, Any]] = [{} for _ in SITES]  # the means that each model has had
    for number in range(3):
        tables = [given[number] for given in world.given]
        weights = [dict(zip(table.names, np.asarray(table.weights).tolist(), strict=True)) for table in tables]
        due = dues(world.params, [(t.as_dict(), w) for t, w in zip(tables, weights, strict=True)])
        for n, (table, started) in enumerate(zip(tables, world.started, strict=True)):
            own, had = table.as_dict(), last[n]
            assert weights[n] == {name: int(not np.array_equal(row, had.get(name, []))) for name, row in own.items()}
            if fresh:
                had.clear()  # a process that has just started knows only the means that it is given
            for name, row in started[number + 1].as_dict().items():
                assert due[name].meets(row, own[name])
                had |= {} if due[name].low is None else {name: row}
    assert [0 in np.asarray(given[1].weights) for given in world.given] == [True] * 3


def test_a_site_that_is_started_anew_for_every_round_learns_the_same(tmp_path: Path) -> None:
    """What is not shared, and the optimizer, come from the checkpoint."""
    one, other = World(tmp_path / "one", fresh=False), World(tmp_path / "other", fresh=True)
    for world in (one, other):
        world.run(4)
    for a, b in zip(one.sites, other.sites, strict=True):
        assert a is not b
        for name, tensor in a.model.named_parameters():
            assert torch.allclose(tensor, b.model.get_parameter(name), atol=1e-3), name
        assert not torch.allclose(a.model.user, Recommender(len(a.rows.names), one.sites.index(a)).user, atol=0.05)
        step = a.optimizer.state[a.model.user]["step"]
        assert step == b.optimizer.state[b.model.user]["step"] == 20


def test_a_checkpoint_that_does_not_fit_is_refused_and_a_failed_one_leaves_the_last(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    model = nn.Linear(2, 2)
    assert not Checkpoint(path, model=model).load()
    Checkpoint(path, model=model).save()
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    for wrong in ({"model": nn.Linear(3, 2)}, {"optimizer": optim.Adam(model.parameters())}):
        with pytest.raises(DataError, match=r"model\.pt does not fit this model .*; remove it to start from scratch"):
            Checkpoint(path, **wrong).load()
    with pytest.raises(DataError, match="cannot be written"):
        Checkpoint(tmp_path / "no" / "where.pt", model=model).save()
    assert path.read_bytes() == before
    path.write_bytes(before[:50])
    with pytest.raises(DataError, match="does not fit"):
        Checkpoint(path, model=model).load()
