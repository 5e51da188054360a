"""Numbers as people have them: numpy's and PyTorch's, of 16 bits too, on any device. PyTorch itself is not imported.

Who has a tensor has imported PyTorch already. Numbers of 16 bits are widened to float32, which holds each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kind: TypeAlias = tuple[Any, Any] | None
"""The type and the device of what was given; None for whatever becomes an array as it is."""
LARGEST: Final = float(np.finfo(np.float16).max)
"""The mean of numbers up to it may lie beyond it, by the fill."""


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_of(value: Any) -> NDArray[Any]:
    """The value as an array: a tensor from its device and without its gradient, and short floats as float32."""
    if is_tensor(value):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() and value.itemsize < 4 else value).numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def rows_like(given: Iterable[Any], matrix: NDArray[Any]) -> Iterator[Any]:
    """One row of the matrix for each value: a tensor of its type on its device, float16 for float16, else an array."""
    whole: dict[Kind, Any] = {}
    for number, value in enumerate(given):
        kind = _kind(value)
        if kind not in whole:
            whole[kind] = _as_kind(matrix, kind)
        yield whole[kind][number]


def _kind(value: Any) -> Kind:
    if is_tensor(value):
        return (value.dtype, value.device) if value.is_floating_point() else (None, value.device)
    return (np.float16, None) if getattr(value, "dtype", None) == np.float16 else None


def _as_kind(matrix: NDArray[Any], kind: Kind) -> Any:
    if kind is None:
        return matrix
    dtype, device = kind
    if dtype is np.float16:
        return matrix.clip(-LARGEST, LARGEST).astype(dtype)
    torch = sys.modules["torch"]
    if dtype is torch.float16:
        matrix = matrix.clip(-LARGEST, LARGEST)
    return torch.from_numpy(matrix).to(device, dtype)
