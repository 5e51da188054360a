"""Laws of PyTorch's adapter: which rows, which tensors, and what becomes of the optimizer's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

from secea import Table
from secea.adapters.torch import State, TorchRows
from secea.errors import CallError, SecEAError, TableError, TableTypeError

NAMES = ["a", "b", "c"]


def trained(make: Callable[..., optim.Optimizer], weight: nn.Parameter, **options: Any) -> optim.Optimizer:
    """An optimizer with a past."""
    optimizer = make([weight], **options)
    for step in range(3):
        optimizer.zero_grad()
        (weight.abs().square() * (step + 1)).sum().backward()
        optimizer.step()
    return optimizer


def means(rows: TorchRows) -> Table:
    return Table(rows.names, np.full((len(rows.names), rows.width), 0.5, np.float32))


def parameter() -> nn.Parameter:
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(3, 2))


@pytest.mark.parametrize("make", [nn.Embedding, nn.EmbeddingBag, lambda *of: nn.Parameter(torch.ones(of)), torch.ones])
def test_a_single_tensor_needs_no_list_and_no_word_about_an_optimizer(make: Callable[..., Any]) -> None:
    single = make(3, 2)
    rows, listed = TorchRows(NAMES, single), TorchRows(NAMES, [single], optimizer=None, state="keep")
    assert np.array_equal(rows.table().matrix, listed.table().matrix)
    rows.load(means(rows))
    assert np.array_equal(listed.table().matrix, means(rows).matrix)


def test_an_optimizer_that_nobody_named_keeps_its_state() -> None:
    weight = parameter()
    optimizer = trained(optim.Adam, weight)
    before = {what: value.clone() for what, value in optimizer.state[weight].items()}
    rows = TorchRows(NAMES, weight)
    rows.load(means(rows))
    assert all(torch.equal(optimizer.state[weight][what], value) for what, value in before.items())


def test_adams_moments_are_kept_where_that_was_said() -> None:
    weight = parameter()
    optimizer = trained(optim.Adam, weight)
    before = {what: value.clone() for what, value in optimizer.state[weight].items()}
    rows = TorchRows(NAMES, [weight], optimizer=optimizer, state="keep")
    rows.load(means(rows))
    assert (weight == 0.5).all()
    assert optimizer.state[weight]["exp_avg"].abs().min() > 0
    assert all(torch.equal(optimizer.state[weight][what], value) for what, value in before.items())


def test_adams_moments_and_steps_are_as_at_the_start_where_all_rows_are_reset() -> None:
    weight, other = parameter(), nn.Parameter(torch.ones(2))
    optimizer = trained(optim.Adam, weight)
    optimizer.add_param_group({"params": [other]})
    other.sum().backward()
    optimizer.step()
    rows = TorchRows(NAMES, [weight], optimizer=optimizer, state="reset")
    rows.load(means(rows))
    assert optimizer.state[other]["exp_avg"].abs().min() > 0, "a parameter that is no table keeps its state"
    fresh = nn.Parameter(weight.detach().clone())
    beside = optim.Adam([fresh])
    for each, its in ((weight, optimizer), (fresh, beside)):
        its.zero_grad()
        each.square().sum().backward()
        its.step()
    assert torch.equal(weight, fresh)
    assert torch.equal(optimizer.state[weight]["exp_avg"], beside.state[fresh]["exp_avg"])


@pytest.mark.parametrize(
    ("make", "options", "start"),
    [
        (optim.Adam, {"amsgrad": True}, {"exp_avg": 0.0, "exp_avg_sq": 0.0, "max_exp_avg_sq": 0.0}),
        (optim.SGD, {"lr": 0.1, "momentum": 0.9}, {"momentum_buffer": 0.0}),
        (optim.RMSprop, {"centered": True}, {"square_avg": 0.0, "grad_avg": 0.0}),
        (optim.Adagrad, {"initial_accumulator_value": 0.25}, {"sum": 0.25}),
    ],
)
def test_only_the_state_of_the_rows_that_were_given_is_reset(
    make: Callable[..., optim.Optimizer], options: dict[str, Any], start: dict[str, float]
) -> None:
    weight = parameter()
    optimizer = trained(make, weight, **options)
    before = {what: optimizer.state[weight][what].clone() for what in start}
    rows = TorchRows({"a": 2, "b": 0}, [weight], optimizer=optimizer, state="reset")
    rows.load(means(rows))
    for what, value in start.items():
        now = optimizer.state[weight][what]
        assert (now[[0, 2]] == value).all()
        assert torch.equal(now[1], before[what][1])
        assert (now[1] != value).all()


def test_adagrads_state_of_all_rows_is_as_at_the_start() -> None:
    weight = nn.Parameter(torch.randn(3, 2, dtype=torch.cfloat))
    optimizer = trained(optim.Adagrad, weight, initial_accumulator_value=0.5)
    rows = TorchRows(NAMES, [weight], optimizer=optimizer, state="reset")
    rows.load(means(rows))
    assert (optimizer.state[weight]["sum"] == 0.5 + 0.5j).all()
    assert optimizer.state[weight]["step"] == 0
    weight.abs().sum().backward()
    optimizer.step()


def test_a_sparse_embedding_with_padding_takes_part_without_its_padding() -> None:
    embedding = nn.Embedding(4, 2, padding_idx=0, sparse=True)
    optimizer = optim.SparseAdam(embedding.parameters())
    embedding(torch.tensor([0, 1, 2, 3])).sum().backward()
    optimizer.step()
    rows = TorchRows(NAMES, [embedding], optimizer=optimizer, state="reset")
    rows.load(means(rows))
    assert embedding.weight.tolist() == [[0.0, 0.0], *[[0.5, 0.5]] * 3]
    assert embedding.weight.requires_grad
    assert not optimizer.state[embedding.weight]
    with pytest.raises(TableError, match="4 names for 3 rows beside row 0, which is padding"):
        TorchRows([*NAMES, "d"], [embedding], optimizer=None, state="keep")
    with pytest.raises(TableError, match="'d' has row 0, which is padding"):
        TorchRows({"d": 0}, [embedding], optimizer=None, state="keep")


def test_a_weight_that_was_replaced_is_the_one_that_gets_the_means() -> None:
    embedding = nn.Embedding(3, 2)
    rows = TorchRows(NAMES, [embedding], optimizer=None, state="keep")
    embedding.load_state_dict({"weight": torch.zeros(3, 2)}, assign=True)
    rows.load(means(rows))
    assert (embedding.weight == 0.5).all()


def test_an_error_leaves_weights_and_state_as_they_were() -> None:
    weight, bias = parameter(), nn.Parameter(torch.zeros(3, dtype=torch.float16))
    optimizer = trained(optim.Adam, weight)
    optimizer.add_param_group({"params": [bias]})
    rows = TorchRows(NAMES, [weight, bias], optimizer=optimizer, state="reset")
    before, moments = weight.detach().clone(), optimizer.state[weight]["exp_avg"].clone()
    wrong = np.ones((3, 3))
    wrong[1, 2] = 1e6  # only the last tensor cannot hold it
    with pytest.raises(TableError, match="the mean of 'b'"):
        rows.load(Table(NAMES, wrong))
    optimizer.param_groups.pop()
    with pytest.raises(CallError, match="tensor 1 is not among the optimizer's parameters"):
        rows.load(Table(NAMES, np.ones((3, 3))))
    assert torch.equal(weight, before)
    assert torch.equal(optimizer.state[weight]["exp_avg"], moments)


class Factored(optim.SGD):
    """Keeps something for all rows together."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            self.state[weight]["columns"] = torch.ones(weight.shape[1])


def test_a_state_without_rows_is_reset_for_all_of_them_or_not_at_all() -> None:
    weight = parameter()
    optimizer = trained(Factored, weight)
    with pytest.raises(CallError, match="Factored keeps 'columns' in its own way"):
        TorchRows({"a": 1}, [weight], optimizer=optimizer, state="reset")
    rows = TorchRows(NAMES, [weight], optimizer=optimizer, state="reset")
    rows.load(means(rows))
    assert not optimizer.state[weight]


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items, self.users = nn.Embedding(3, 2), nn.Sequential(nn.EmbeddingBag(3, 2))


computed = torch.ones(3, 2, requires_grad=True) * 2
MISTAKES: dict[str, tuple[type[SecEAError], Callable[[nn.Parameter], object]]] = {
    'state must be "keep" or "reset", got \'Reset\'': (CallError, lambda w: rows_of(NAMES, [w], "Reset")),
    "needs the optimizer: give optimizer=, or leave": (CallError, lambda w: rows_of(NAMES, [w], "reset")),
    "with an optimizer, say what becomes of its state": (
        CallError,
        lambda w: TorchRows(NAMES, w, optimizer=optim.Adam([w])),
    ),
    "or a list of them, got nothing": (TableTypeError, lambda w: rows_of(NAMES, [])),
    "or a list of them, got dict": (TableTypeError, lambda w: rows_of(NAMES, {"a": w})),
    r"got Whole; give what has the rows: model\.items, model\.users\.0": (
        TableTypeError,
        lambda w: rows_of(NAMES, Whole()),
    ),
    "2 names for 3 rows; to use only some rows, give a mapping": (TableError, lambda w: rows_of(NAMES[:2], [w])),
    r"'a' has row 3, the tensors have rows 0\.\.2": (TableError, lambda w: rows_of({"a": 3}, [w])),
    "'a' and 'b' both have row 1": (TableError, lambda w: rows_of({"a": 1, "b": 1}, [w])),
    "one of the tensors is given twice": (TableError, lambda w: rows_of(NAMES, [w, w])),
    "the tensors have 3, 4 rows": (TableError, lambda w: rows_of(NAMES, [w, nn.Embedding(4, 1)])),
    "a tensor of torch.int64": (TableTypeError, lambda w: rows_of(NAMES, [torch.arange(3)])),
    "computed from others": (TableTypeError, lambda w: rows_of(NAMES, [computed])),
    "expected an nn.Embedding, a parameter or a tensor, got ReLU": (
        TableTypeError,
        lambda w: rows_of(NAMES, [nn.ReLU()]),
    ),
}  # fmt: skip


def rows_of(names: Any, tensors: Any, state: State | Any = "keep") -> TorchRows:
    return TorchRows(names, tensors, optimizer=None, state=state)


@pytest.mark.parametrize("why", MISTAKES)
def test_what_cannot_be_joined_is_refused(why: str) -> None:
    kind, mistake = MISTAKES[why]
    with pytest.raises(kind, match=why):
        mistake(parameter())
