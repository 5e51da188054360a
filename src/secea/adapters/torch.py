"""An adapter for PyTorch: rows of embeddings, parameters and biases, joined into one row per entity and split back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from secea.adapters import in_order
from secea.adapters.weights import Weighing, Weights
from secea.atomic import replace_files
from secea.errors import CallError, DataError, MissingExtra, TableError, TableTypeError
from secea.extras import installing
from secea.table import Name, Table, TableLike, canonical_names

try:
    import torch
    from torch import Tensor, nn
    from torch.optim import Adagrad, Optimizer
except ModuleNotFoundError as missing:
    raise MissingExtra(f"secea.adapters.torch needs PyTorch: {installing('torch')}") from missing

State: TypeAlias = Literal["keep", "reset"]
"""What happens to the optimizer's state of these rows when means are loaded."""

PER_ROW: Final = frozenset(
    {
        "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg", "acc_delta", "momentum_buffer",
        "sum",
    }
)  # fmt: skip
"""What PyTorch's optimizers keep for each number of a parameter. All of it starts at zero, except Adagrad's sum."""


class TorchRows:
    """Some entities of a PyTorch model. An entity's row joins one row from each of `tensors`.

    `names` are the entities of all rows in order, or a mapping from names to row numbers for some of them. The row of a
    `padding_idx` belongs to nobody and is left out. `tensors` is an `nn.Embedding` or `nn.EmbeddingBag`, or a parameter
    or tensor with one entry per row, or a list of several. A vector of biases is one column, a complex number is two
    (real, imaginary), and further dimensions are flattened. All clients must join the same tensors in the same order.

    Give the `optimizer` that trains these rows, and `state`: what happens to its state of these rows (for example
    Adam's moments) when means are loaded. "keep" leaves it as it is, "reset" sets it back to its start. Without an
    optimizer nothing but the rows is touched.

    `weights` says what rows weigh in a round, for `Params(partial=True)` or `max_weight`: see `Weights`. For example
    `weights="trained"` leaves out rows that did not change since the last means.

    >>> e, bias = nn.Embedding(2, 3), nn.Parameter(torch.zeros(2))
    >>> rows = TorchRows(["aspirin", "codeine"], [e, bias])
    >>> rows.width
    4
    >>> rows.load({"aspirin": [1.0, 2.0, 3.0, 4.0], "codeine": [5.0, 6.0, 7.0, 8.0]})
    >>> e.weight.tolist(), bias.tolist()
    ([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], [4.0, 8.0])
    """

    def __init__(
        self,
        names: Iterable[object] | Mapping[Any, int],
        tensors: nn.Module | Tensor | Sequence[nn.Module | Tensor],
        *,
        optimizer: Optimizer | None = None,
        state: State | None = None,
        weights: Weights | None = None,
    ) -> None:
        if state not in ("keep", "reset", None):
            raise CallError(f'state must be "keep" or "reset", got {state!r}')
        if state == "reset" and optimizer is None:
            raise CallError('state="reset" needs the optimizer: give optimizer=, or leave state out')
        if state is None and optimizer is not None:
            raise CallError(
                "with an optimizer, say what becomes of its state of these rows (for example Adam's moments) when means"
                ' are loaded: state="reset" sets it back to its start, state="keep" leaves it'
            )
        if isinstance(tensors, Tensor | nn.Module):
            tensors = (tensors,)
        if not isinstance(tensors, Sequence) or not tensors:
            got = type(tensors).__name__ if tensors else "nothing"
            raise TableTypeError(f"expected an nn.Embedding, a parameter or a tensor, or a list of them, got {got}")
        self._sources, self._optimizer, self._state = tuple(tensors), optimizer, state
        self.names: tuple[Name, ...] = canonical_names(names)
        rows = self._count()
        padding = self._padding(rows)
        self._index = torch.tensor(_indices(names, len(self.names), rows, padding), dtype=torch.int64)
        self._whole = len(self._index) + len(padding) == rows
        self._weighing = Weighing(weights)
        if state == "reset":
            self._groups()

    @property
    def width(self) -> int:
        """Numbers per entity, over all tensors."""
        return sum(_columns(tensor) for tensor in self._tensors)

    def table(self) -> Table:
        """A copy of the rows: float64 if one of the tensors is float64, otherwise float32; and their weights."""
        return self._weighing.weighed(self._copy())

    def _copy(self) -> Table:
        parts = [_flat(tensor.detach()[self._index.to(tensor.device)]).cpu() for tensor in self._tensors]
        wide = torch.float64 if torch.float64 in [part.dtype for part in parts] else torch.float32
        return Table.trusted(self.names, torch.cat([part.to(wide) for part in parts], dim=1).numpy())

    @torch.no_grad()
    def load(self, means: TableLike) -> None:
        """Write means into the rows. Tensors keep their types and devices. `state` decides on the optimizer's state."""
        matrix = torch.from_numpy(np.array(in_order(self.names, self.width, means)))  # a copy: it may be read-only
        tensors = self._tensors
        parts = torch.split(matrix, [_columns(tensor) for tensor in tensors], dim=1)
        rows = [self._narrowed(part, tensor) for part, tensor in zip(parts, tensors, strict=True)]
        groups = self._groups() if self._state == "reset" else None  # refuses before anything changes
        with self._weighing.loading(self._copy):
            for number, (tensor, own) in enumerate(zip(tensors, rows, strict=True)):
                tensor[self._index.to(tensor.device)] = own
                if groups:
                    self._reset(tensor, groups[number])

    @property
    def _tensors(self) -> list[Tensor]:
        """The tensors as they are now, since a module's weight may have been replaced."""
        return [_tensor(source) for source in self._sources]

    def _count(self) -> int:
        """How many rows the tensors have."""
        tensors = self._tensors
        for tensor in tensors:
            if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.ndim == 0:
                raise TableTypeError(
                    f"a tensor of {tensor.dtype} and shape {tuple(tensor.shape)} has no rows of numbers"
                )
            if tensor.requires_grad and not tensor.is_leaf:
                raise TableTypeError("a tensor was computed from others: give the parameter itself")
        if len({id(tensor) for tensor in tensors}) != len(tensors):
            raise TableError("one of the tensors is given twice")
        counts = [len(tensor) for tensor in tensors]
        if len(set(counts)) != 1:
            raise TableError(f"the tensors have {', '.join(map(str, counts))} rows; each needs one row per entity")
        return counts[0]

    def _padding(self, rows: int) -> set[int]:
        given = [getattr(source, "padding_idx", None) for source in self._sources]
        return {index % rows for index in given if index is not None}

    def _narrowed(self, part: Tensor, tensor: Tensor) -> Tensor:
        """New rows for one tensor. Refuses numbers that its type cannot hold."""
        shape = (len(part), *tensor.shape[1:])
        if tensor.is_complex():
            rows = torch.view_as_complex(part.to(tensor.real.dtype).reshape(*shape, 2).clone())  # a view starts evenly
        else:
            rows = part.to(tensor.dtype).reshape(shape)
        fine = torch.isfinite(_flat(rows)).all(dim=1)
        if not fine.all():
            name = self.names[int(fine.int().argmin())]
            raise TableError(f"the mean of {name!r} is not a finite number in the model's type, {tensor.dtype}")
        return rows.to(tensor.device)

    def _groups(self) -> list[dict[str, Any]]:
        """The optimizer's group of each tensor. Refuses a state that cannot be reset row by row."""
        assert self._optimizer is not None
        groups = {id(each): group for group in self._optimizer.param_groups for each in group["params"]}
        for number, tensor in enumerate(self._tensors):
            if id(tensor) not in groups:
                raise CallError(f"tensor {number} is not among the optimizer's parameters: its state cannot be reset")
            for what, value in self._optimizer.state.get(tensor, {}).items():
                shared = isinstance(value, Tensor) and value.numel() > 1 and what not in PER_ROW
                if shared and not self._whole:
                    kind = type(self._optimizer).__name__
                    raise CallError(
                        f'{kind} keeps {what!r} in its own way: it can only be reset for all rows; use state="keep"'
                    )
        return [groups[id(tensor)] for tensor in self._tensors]

    def _reset(self, tensor: Tensor, group: Mapping[str, Any]) -> None:
        """Set the state of these rows back to its start. If these are all rows, reset the step count too."""
        assert self._optimizer is not None
        if self._whole and not isinstance(self._optimizer, Adagrad):
            self._optimizer.state.pop(tensor, None)  # the next step makes it again; Adagrad makes it only once
            return
        for what, value in self._optimizer.state.get(tensor, {}).items():
            if what in PER_ROW and isinstance(value, Tensor):
                start = group.get("initial_accumulator_value", 0.0) if what == "sum" else 0.0
                fresh = complex(start, start) if value.is_complex() else start
                value[self._index.to(value.device)] = torch.tensor(fresh, dtype=value.dtype, device=value.device)
            elif self._whole and isinstance(value, Tensor):
                value.zero_()


class Stateful(Protocol):
    """Anything with a state dict: a module, an optimizer, a learning rate schedule, `PrivateRows`."""

    def state_dict(self) -> dict[str, Any]:
        """The whole state."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Load a state."""


class Checkpoint:
    """Saves modules and optimizers in a file at this site, for `participant(..., keep=...)`.

    At the end of a session the file has the final model. Remove it to start the next session from scratch.
    """

    def __init__(self, path: str | Path, **parts: Stateful) -> None:
        self._path, self._parts = Path(path), parts

    def load(self) -> bool:
        """Load what was saved last. Returns whether there was anything."""
        if not self._path.exists():
            return False
        try:
            saved = torch.load(self._path, weights_only=True, map_location="cpu")
            for name, part in self._parts.items():
                part.load_state_dict(saved[name])
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, UnpicklingError) as error:
            why = " ".join(str(error).split())
            raise DataError(f"{self._path} does not fit this model ({why}); remove it to start from scratch") from None
        return True

    def save(self) -> None:
        """Save all parts. If that fails, what was saved before is still there."""
        states = {name: _tensors_for_arrays(part.state_dict()) for name, part in self._parts.items()}
        try:
            replace_files({self._path: lambda file: torch.save(states, file)}, mode=0o600, durable=True)
        except OSError as error:
            raise DataError(f"{self._path} cannot be written: {(error.strerror or str(error)).lower()}") from None


def _tensors_for_arrays(state: dict[str, Any]) -> dict[str, Any]:
    """The state with a tensor for each numpy array, which PyTorch would not load as mere data."""
    return {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in state.items()}


def _tensor(source: nn.Module | Tensor) -> Tensor:
    found = source.weight if isinstance(source, nn.Module) and hasattr(source, "weight") else source
    if not isinstance(found, Tensor):
        raise TableTypeError(
            f"expected an nn.Embedding, a parameter or a tensor, got {type(source).__name__}{_layers(source)}"
        )
    return found


def _layers(model: object) -> str:
    """The embeddings of a whole model, which was given in place of one of them."""
    parts = model.named_modules() if isinstance(model, nn.Module) else ()
    found = [f"model.{name}" for name, part in parts if isinstance(part, nn.Embedding | nn.EmbeddingBag)]
    return f"; give what has the rows: {', '.join(found)}" if found else ""


def _columns(tensor: Tensor) -> int:
    return math.prod(tensor.shape[1:]) * (2 if tensor.is_complex() else 1)


def _flat(rows: Tensor) -> Tensor:
    """Each row as one line of real numbers."""
    return (torch.view_as_real(rows) if rows.is_complex() else rows).reshape(len(rows), _columns(rows))


def _indices(names: Iterable[object] | Mapping[Any, int], count: int, rows: int, padding: set[int]) -> list[int]:
    """The row of each name."""
    if not isinstance(names, Mapping):
        free = [row for row in range(rows) if row not in padding]
        if len(free) != count:
            left = f" beside row {min(padding)}, which is padding" if padding else ""
            hint = "to use only some rows, give a mapping from names to row numbers"
            raise TableError(f"{count} names for {len(free)} rows{left}; {hint}")
        return free
    seen: dict[int, object] = {}
    for name, row in names.items():
        if not 0 <= row < rows:
            raise TableError(f"the entity {name!r} has row {row}, the tensors have rows 0..{rows - 1}")
        if row in padding:
            raise TableError(f"the entity {name!r} has row {row}, which is padding")
        if seen.setdefault(row, name) != name:
            raise TableError(f"the entities {seen[row]!r} and {name!r} both have row {row}")
    return [int(row) for row in names.values()]
