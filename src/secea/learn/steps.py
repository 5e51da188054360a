"""Steps of Adam: one kernel after the other, or, on a GPU, recorded once and replayed.

A step has many small kernels: to launch them one by one would take a GPU far longer than to run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""(the picked examples, what was drawn for them) -> their mean loss."""


class Steps:
    """Trains parameters in place."""

    def __init__(self, loss: Loss, parameters: Sequence[Tensor], lr: float, batch: int) -> None:
        self._loss, self._parameters, self._lr, self._batch = loss, parameters, lr, batch
        self._optimiser: torch.optim.Adam | None = None
        self.total = torch.zeros((), device=parameters[0].device)
        """The sum of the losses of all examples since the optimiser was renewed."""

    @contextmanager
    def renewed(self) -> Iterator[Callable[[Tensor, Tensor], None]]:
        """Steps from here on, by an optimiser without a past."""
        for each in self._parameters:
            each.requires_grad_(True)
        self._renew()
        try:
            yield self.step
        finally:
            for each in self._parameters:
                each.requires_grad_(False)
                each.grad = None

    def _renew(self) -> None:
        self.total.zero_()
        self._optimiser = torch.optim.Adam(self._parameters, lr=self._lr, fused=True)

    def step(self, picked: Tensor, drawn: Tensor) -> None:
        """One step."""
        assert self._optimiser is not None
        loss = self._loss(picked, drawn)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self.total += loss.detach() * len(picked)


class Recorded(Steps):
    """The step of a full batch is recorded the first time, and replayed from then on."""

    _graph: Any = None

    def _renew(self) -> None:
        """The recording knows this optimiser's memory: the past is erased in place."""
        self.total.zero_()
        if self._optimiser is None:
            self._optimiser = torch.optim.Adam(self._parameters, lr=self._lr, fused=True, capturable=True)
        for state in self._optimiser.state.values():
            for value in state.values():
                value.zero_()

    def step(self, picked: Tensor, drawn: Tensor) -> None:
        """One step; the last one of an epoch may have fewer examples, and is run as it is."""
        if len(picked) < self._batch:
            super().step(picked, drawn)
            return
        if self._graph is None:
            self._record(picked, drawn)
        self._picked.copy_(picked)
        self._drawn.copy_(drawn)
        self._graph.replay()

    def _record(self, picked: Tensor, drawn: Tensor) -> None:
        assert self._optimiser is not None
        self._picked, self._drawn = picked.clone(), drawn.clone()
        before = [each.detach().clone() for each in self._parameters]
        total = self.total.clone()
        past = [[value.clone() for value in state.values()] for state in self._optimiser.state.values()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # whatever is compiled or allocated once is not recorded
            for _ in range(3):
                super().step(self._picked, self._drawn)
        torch.cuda.current_stream().wait_stream(stream)
        self._optimiser.zero_grad()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            super().step(self._picked, self._drawn)
        with torch.no_grad():
            self.total.copy_(total)
            for each, value in zip(self._parameters, before, strict=True):
                each.copy_(value)
            for i, state in enumerate(self._optimiser.state.values()):
                for j, value in enumerate(state.values()):
                    value.copy_(past[i][j]) if past else value.zero_()
