"""Tensors of every float type on every device that this machine has: rows out, means back in place, state too.

Run it on a machine with a GPU too: what holds on the CPU holds there. It needs nothing but secea and PyTorch.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import nn, optim

from secea import Federation, Params, Table, aggregate
from secea.adapters import participant
from secea.adapters.private import PrivateRows
from secea.adapters.torch import Checkpoint, TorchRows
from secea.privacy import Mechanism, Private
from secea.table import as_table, like
from truth import true_means

SITES: Final = ([f"e{n}" for n in range(40)], [f"e{n}" for n in range(20, 60)], [f"e{n}" for n in range(10, 50)])
DIM: Final = 4
DTYPES: Final = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DEVICES: Final = ["cpu"] + ["cuda"] * torch.cuda.is_available()

each_device = pytest.mark.parametrize("device", DEVICES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def embedding(device: str, dtype: torch.dtype, seed: int = 0, names: list[str] = SITES[0]) -> nn.Embedding:
    """The same on each device."""
    torch.manual_seed(seed)
    return nn.Embedding(len(names), DIM, dtype=dtype).to(device)


def adam(model: nn.Embedding) -> optim.Adam:
    return optim.Adam(model.parameters(), lr=0.05, eps=1e-3)  # the usual eps is no float16: it would be 0/0


def trained(model: nn.Embedding, optimizer: optim.Optimizer) -> None:
    """A step of training on some rows."""
    optimizer.zero_grad()
    model(torch.arange(len(model.weight) // 2, device=model.weight.device)).float().square().sum().backward()
    optimizer.step()


def step(model: nn.Embedding, optimizer: optim.Optimizer, round: int) -> None:
    trained(model, optimizer)


def error_of(dtype: torch.dtype, largest: float) -> float:
    """Half a step of the coarsest row by the fill, half a step when the mean comes back, and the protocol's own."""
    return 2 * largest * torch.finfo(dtype).eps + 64 * 2.0**-24


@each_device
@each_dtype
def test_rows_are_those_of_the_same_model_on_the_cpu(device: str, dtype: torch.dtype) -> None:
    rows, there = (TorchRows(SITES[0], embedding(place, dtype)) for place in (device, "cpu"))
    assert np.array_equal(rows.table().matrix, there.table().matrix)
    assert rows.table().dtype == (np.float64 if dtype == torch.float64 else np.float32)


@each_device
@each_dtype
def test_means_come_back_in_place_and_are_those_of_the_cpu(device: str, dtype: torch.dtype) -> None:
    means = Table(SITES[0], np.random.default_rng(1).normal(size=(40, DIM)))
    model, there = embedding(device, dtype), embedding("cpu", dtype)
    weight = model.weight
    for each in (model, there):
        TorchRows(SITES[0], each).load(means)
    assert (weight is model.weight, weight.dtype, weight.device.type) == (True, dtype, device)
    assert torch.equal(weight.cpu(), there.weight)
    assert torch.equal(there.weight, torch.from_numpy(means.matrix).to(dtype))


@each_device
@each_dtype
@pytest.mark.parametrize("whole", [True, False])
def test_adams_state_is_reset_where_it_is(device: str, dtype: torch.dtype, whole: bool) -> None:
    model = embedding(device, dtype)
    optimizer = adam(model)
    trained(model, optimizer)
    names: Any = SITES[0] if whole else {"e3": 3, "e5": 5}
    rows = TorchRows(names, model, optimizer=optimizer, state="reset")
    assert optimizer.state[model.weight]["exp_avg"][[3, 5]].any()
    rows.load(Table(rows.names, np.ones((len(rows.names), DIM))))
    state = optimizer.state[model.weight]
    if whole:
        assert not state
    else:
        assert state["exp_avg"].device.type == device
        assert not state["exp_avg"][[3, 5]].any()
        assert not state["exp_avg_sq"][[3, 5]].any()
        assert state["exp_avg"][[0, 1]].all(), "rows that were not given keep theirs"
    trained(model, optimizer)
    assert optimizer.state[model.weight]["exp_avg"].device.type == device


@each_device
@each_dtype
def test_rounds_of_participants_give_the_means_to_within_the_grid_of_their_numbers(
    device: str, dtype: torch.dtype
) -> None:
    models = [embedding(device, dtype, seed, names) for seed, names in enumerate(SITES)]
    optimizers = [adam(model) for model in models]
    rows = [
        TorchRows(names, model, optimizer=optimizer, state="reset")
        for names, model, optimizer in zip(SITES, models, optimizers, strict=True)
    ]
    sites = [
        participant(own, partial(step, model, optimizer))
        for own, model, optimizer in zip(rows, models, optimizers, strict=True)
    ]
    fed = Federation(Params(clients=3, dim=DIM))
    fed.setup(SITES)
    means: list[Any] = [None] * 3
    for number in range(2):
        given = [site.train(mean, number) for site, mean in zip(sites, means, strict=True)]
        truth = true_means(as_table(table).as_dict() for table in given)
        means = fed.round(given)
        for site, mean, own in zip(sites, means, rows, strict=True):
            site.done(mean)
            found = own.table().as_dict()
            assert max(np.abs(found[name] - truth[name]).max() for name in found) <= error_of(dtype, 4.0)


@each_device
@each_dtype
@pytest.mark.parametrize("grad", [False, True])
def test_a_mapping_of_tensors_gets_tensors_of_its_type_on_its_device(
    device: str, dtype: torch.dtype, grad: bool
) -> None:
    tables = []
    for seed, names in enumerate(SITES):
        weight = embedding(device, dtype, seed).weight.detach()
        tables.append({name: row.clone().requires_grad_(grad) for name, row in zip(names, weight, strict=True)})
    truth = true_means({n: as_table({n: row}).matrix[0] for n, row in table.items()} for table in tables)
    for table, means in zip(tables, aggregate(tables), strict=True):
        assert means.keys() == table.keys()
        for name, mean in means.items():
            assert (mean.dtype, mean.device.type, mean.requires_grad) == (dtype, device, False)
            assert np.abs(mean.double().cpu().numpy() - truth[name]).max() <= error_of(dtype, 4.0)


@each_device
@each_dtype
def test_a_table_takes_a_tensor_or_a_parameter(device: str, dtype: torch.dtype) -> None:
    weight = embedding(device, dtype).weight
    table = Table(SITES[0], weight)  # type: ignore[arg-type]  # a matrix is what becomes one
    assert np.array_equal(table.matrix, weight.detach().cpu().double().numpy())
    assert table.dtype == (np.float64 if dtype == torch.float64 else np.float32)


@each_device
def test_a_checkpoint_comes_back_on_the_models_device_with_its_privacy(device: str, tmp_path: Path) -> None:
    def site() -> tuple[nn.Embedding, optim.Optimizer, PrivateRows, Checkpoint]:
        model = embedding(device, torch.float32)
        optimizer = adam(model)
        own = PrivateRows(TorchRows(SITES[0], model), Private(Mechanism(0.5, 2.0), 1e-5, 5))
        return model, optimizer, own, Checkpoint(tmp_path / "it.pt", model=model, optimizer=optimizer, privacy=own)

    model, optimizer, own, checkpoint = site()
    trained(model, optimizer)
    left = own.table()
    own.load(Table(SITES[0], left.matrix.round(1)))
    checkpoint.save()
    again, other, rows, saved = site()
    assert saved.load()
    assert torch.equal(again.weight, model.weight)
    assert other.state[again.weight]["exp_avg"].device.type == device
    for what, value in own.state_dict().items():
        assert np.array_equal(rows.state_dict()[what], value), what


@each_device
def test_a_float16_tensor_of_a_mapping_stays_within_its_range(device: str) -> None:
    source = {"a": torch.tensor([1.0, 65504.0], dtype=torch.float16, device=device)}
    result = like(source, as_table(source), np.array([[1.0, 65530.0]]))
    assert result["a"].tolist() == [1.0, 65504.0]
