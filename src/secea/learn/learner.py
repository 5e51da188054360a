"""What every task's learner has in common: rows that are shared, parameters that stay, a training loop, and its state.

Nothing here depends on the method: all of them start from the same embeddings, and see the same batches and negatives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secea.learn.steps import Recorded, Steps
from secea.table import Name, key_of, name_bytes


def first_rows(names: Iterable[Name], width: int, spread: float, seed: int, what: str) -> NDArray[np.float64]:
    """Where embeddings start: uniform in [-spread, spread), a public function of the seed and the name.

    So those who own an entity start from the same row, and nobody has to send it. A row that nobody trains on is shared
    as it began: it has all the bits of a float64, since a coarse row would be filled, and the fill would be wide.
    """
    start = f"secea {what} {seed}\n".encode()
    words = b"".join(hashlib.shake_256(start + _seeded(name)).digest(8 * width) for name in names)
    high, low = np.frombuffer(words, "<u4").reshape(-1, 2, width).transpose(1, 0, 2)
    uniform = (high >> 8) * 2.0**-24 + (low >> 3) * 2.0**-53
    return (2.0 * uniform - 1.0) * spread


def _seeded(name: Name) -> bytes:
    """What a first row is made of: integers in base 16, whether they come as numbers or as texts."""
    key = key_of(name)
    return b"i%x" % key if isinstance(key, int) else name_bytes(key)


def touched(ids: NDArray[np.int64], ends: NDArray[Any]) -> NDArray[np.int64]:
    """How many examples touch each of these entities; `ends` has the entities of an example in a row."""
    first, *others = ends.astype(np.int64).T
    each = np.concatenate([first, *(other[other != first] for other in others)])
    return np.bincount(np.searchsorted(ids, each), minlength=len(ids))


def generator(device: torch.device, *of: object) -> torch.Generator:
    """The randomness of training: the same for every method, another one for each client and round."""
    seed = hashlib.blake2b("\n".join(map(str, of)).encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(seed, "little") >> 1)


@dataclass
class Score:
    """What evaluation counted: totals, and the number of cases. They are pooled over clients and then divided."""

    cases: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    why: str = ""
    """Where there are no cases: why not."""

    def __add__(self, other: Score) -> Score:
        names = self.totals.keys() | other.totals.keys()
        totals = {name: self.totals.get(name, 0.0) + other.totals.get(name, 0.0) for name in names}
        return Score(self.cases + other.cases, totals, self.why or other.why)


@dataclass(frozen=True)
class Training:
    """How all learners of a run train."""

    epochs: int
    batch: int
    lr: float
    negatives: int
    seed: int
    device: torch.device


class Learner:
    """One client's embeddings (or all clients' together) and what trains them."""

    def __init__(
        self, number: int, ids: NDArray[np.int64], shared: NDArray[np.float64], own: Mapping[str, Any], how: Training
    ) -> None:
        self.number, self.ids, self.how = number, ids, how
        self.shared = torch.tensor(shared, dtype=torch.float64, device=how.device)
        """One row for each of `ids`: what a client contributes and gets back. Losses and scores take it as float32."""
        self.own = {name: torch.tensor(value, dtype=torch.float32, device=how.device) for name, value in own.items()}
        """What never leaves the client."""
        steps = Recorded if how.device.type == "cuda" else Steps
        self._steps = steps(self.loss, [self.shared, *self.own.values()], how.lr, how.batch)

    @property
    def examples(self) -> int:
        """How many rows there are to train on."""
        raise NotImplementedError

    def draw(self, random: torch.Generator) -> Tensor:
        """What a step needs to draw."""
        return torch.zeros(0, dtype=torch.int64, device=self.how.device)

    def loss(self, picked: Tensor, drawn: Tensor) -> Tensor:
        """The mean loss of some of the examples."""
        raise NotImplementedError

    def train(self, round: int) -> tuple[float, int]:
        """A round's epochs, with an optimiser of their own. Returns the sum of the losses and what it is over."""
        count, how = self.examples, self.how
        if not count:
            return 0.0, 0
        random = generator(how.device, "train", how.seed, self.number, round)
        with self._steps.renewed() as step:
            for _ in range(how.epochs):
                order = torch.randperm(count, generator=random, device=how.device)
                for picked in torch.split(order, how.batch):
                    step(picked, self.draw(random))
            return self._steps.total.item(), how.epochs * count

    def table(self) -> NDArray[np.float64]:
        """The shared rows, to contribute."""
        return self.shared.cpu().numpy().copy()

    def adopt(self, rows: NDArray[np.float64]) -> None:
        """The means instead of the shared rows. They are not rounded: a coarse row is contributed with a wide fill."""
        self.shared.copy_(torch.from_numpy(rows))

    def state(self) -> dict[str, NDArray[Any]]:
        """All that another learner for the same data needs to continue from here."""
        return {name: value.cpu().numpy() for name, value in {"shared": self.shared, **self.own}.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        self.shared.copy_(torch.from_numpy(state["shared"]))
        for name, value in self.own.items():
            value.copy_(torch.from_numpy(state[name]))


class Task(Protocol):
    """What a run needs to know about a task."""

    metric: str
    """The main one."""
    better: str
    """higher, or lower."""
    width: int
    """The width of a shared row."""
    ids: list[NDArray[np.int64]]
    """Each client's entities, ascending."""

    def learner(self, client: int | None) -> Learner:
        """The learner of a client; of all clients' data together for None."""
        ...

    def evaluate(self, learner: Learner, client: int, stage: str) -> Score:
        """How well the client's test (or valid) rows are predicted."""
        ...

    def metrics(self, score: Score) -> dict[str, float | None]:
        """The metrics of a score; None where there are no cases."""
        ...

    def messages(self) -> list[str]:
        """What to tell about the clients' data."""
        ...
