"""A PyTorch model takes part through the same driver and host that every engine carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import nn, optim

from federation import true_means
from secea.adapters import participant
from secea.adapters.torch import TorchRows
from secea.engines.driver import Driver
from secea.engines.host import Host
from secea.engines.port import Failure, Order, Reply, Task, orders
from secea.errors import SERVER
from secea.keys import Identity, Roster
from secea.messages import Buffer
from secea.params import Params
from secea.server import Server
from secea.session import Session
from secea.table import Table

SITES = (["a", "b", "c", "d"], ["b", "c", "x"], ["d", "a", "b", "e"])


class Site:
    """A small recommender of its own: entities with vector and bias, one user, clicks."""

    def __init__(self, names: list[str], seed: int) -> None:
        torch.manual_seed(seed)
        self.items, self.bias = nn.Embedding(len(names), 3), nn.Parameter(torch.zeros(len(names)))
        self.user, self.clicks = nn.Parameter(torch.randn(3)), torch.rand(len(names)).round()
        self.optimizer = optim.Adam([self.items.weight, self.bias, self.user], lr=0.05)
        self.rows = TorchRows(names, [self.items, self.bias], optimizer=self.optimizer, state="reset")
        self.rounds: list[int] = []
        self.started: list[Table] = []
        self.given: list[Table] = []

    def train(self, number: int) -> None:
        self.rounds.append(number)
        self.started.append(self.rows.table())
        for _ in range(5):
            self.optimizer.zero_grad()
            scores = self.items.weight @ self.user + self.bias
            nn.functional.binary_cross_entropy_with_logits(scores, self.clicks).backward()
            self.optimizer.step()
        self.given.append(self.rows.table())

    def done(self) -> None:
        self.started.append(self.rows.table())


class Loopback:
    """A port whose clients live in this process; orders and replies travel as bytes."""

    def __init__(self, hosts: list[Host]) -> None:
        self._hosts = hosts

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        for n, order in orders(tasks, round, inboxes()).items():
            yield n, Reply.parse(self._hosts[n].obey(Order.parse(order.to_bytes(), SERVER)).to_bytes(), n)


def test_a_torch_model_trains_on_the_means_of_the_last_round_and_ends_with_the_last_ones() -> None:
    sites = [Site(names, n) for n, names in enumerate(SITES)]
    identities = {n: Identity.generate() for n in (*range(3), SERVER)}
    roster = Roster(tuple(identities[n].public for n in range(3)), identities[SERVER].public)
    params = Params(3, dim=sites[0].rows.width, max_entities=4, max_union=6)
    session = Session(params, roster)
    hosts = [
        Host(session, n, identities[n], participant(site.rows, site.train, site.done)) for n, site in enumerate(sites)
    ]
    driver = Driver(Server(session, identities[SERVER]), Loopback(hosts))
    driver.setup()
    for _ in range(3):
        driver.round()
    driver.finish()
    assert not driver.failures
    for site in sites:
        assert site.rounds == [1, 2, 3]
    for number in range(3):  # what was given in a round is there as means when the next one begins, or at the end
        truth = true_means(site.given[number].as_dict() for site in sites)
        for site in sites:
            for name, row in site.started[number + 1].as_dict().items():
                assert np.abs(row - truth[name]).max() <= params.resolution + 1e-6
