"""Tables in numpy's files: .npz with names and matrix, and .npy with a file of names beside it."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.fixedpoint import Floats
from secea.arrays import read_arrays, write_arrays
from secea.atomic import Content
from secea.commands.formats.source import Faults, File, Layout, Places, Read, not_for, weight_column
from secea.errors import DataError

FLOATS: Final = (np.float16, np.float32, np.float64)
NAMES: Final = ".names.txt"
"""`vectors.npy` has its names in `vectors.names.txt`, one in each line."""


def _numbers(matrix: NDArray[Any], file: File, names: int) -> Floats:
    """A matrix as a table has it: float16 is read into float32."""
    if matrix.ndim != 2 or len(matrix) != names:
        raise DataError(f"{file.shown}: {names} names need a matrix of as many rows, got the shape {matrix.shape}")
    if matrix.dtype not in FLOATS:
        raise DataError(
            f"{file.shown}: the matrix has dtype {matrix.dtype}; save it as float32 or float64 (float16 is read, too)"
        )
    return matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix


def _like(matrix: NDArray[Any], means: Floats) -> NDArray[Any]:
    """Means in the type of a file; beyond the largest number of float16 there is none."""
    if matrix.dtype == np.float16:
        most = np.finfo(np.float16).max
        means = np.clip(means, -most, most)
    return means.astype(matrix.dtype, copy=False)


def read_npz(file: File, layout: Layout) -> Read:
    """Two arrays, and one of weights."""
    not_for(layout, file.shown, "an .npz")
    arrays = read_arrays(file.path, EXPECTED_NPZ)
    weight_column(layout.weights, list(arrays), file.shown)
    also = {} if layout.weights is None else {layout.weights: arrays.pop(layout.weights)}
    if arrays.keys() != {"names", "matrix"}:
        raise DataError(f"{file.shown} holds the arrays {', '.join(arrays) or 'none'}; {EXPECTED_NPZ}")
    names, matrix = arrays["names"], arrays["matrix"]
    if names.ndim != 1 or names.dtype.kind not in "iuU":
        cure = {"S": "; save names.astype(str)", "f": "; save names.astype(int), if they are integers"}
        raise DataError(
            f"{file.shown}: names must be texts or integers in one dimension, got {names.dtype},"
            f" {names.shape}{cure.get(names.dtype.kind, '')}"
        )
    table = _numbers(matrix, file, len(names))

    def write(means: Floats) -> Content:
        return lambda target: write_arrays(target, {"names": names, "matrix": _like(matrix, means)} | also)

    return Read(
        file, names.tolist(), table, Places(range(len(names))), write, Faults(file.shown),
        also.get(layout.weights or ""), matrix.dtype,
    )  # fmt: skip


EXPECTED_NPZ: Final = "expected two arrays: np.savez(file, names=names, matrix=matrix)"


def read_npy(file: File, layout: Layout) -> Read:
    """One array; its names are in a file beside it, one in each line."""
    not_for(layout, file.shown, "an .npy")
    weight_column(layout.weights, (), file.shown)
    beside = file.path.with_name(file.path.stem + NAMES)
    try:
        data = beside.read_bytes()
        names = data.decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise DataError(
            f"{file.shown} needs its names in {beside}, one in each line, in the order of the rows"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{beside} is no UTF-8 text: byte {error.start}; save it as UTF-8") from None
    try:
        matrix = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{file.shown} is no .npy file of a plain array ({error})") from None
    if not isinstance(matrix, np.ndarray):
        raise DataError(f"{file.shown} is an archive of arrays; let its name end in .npz")
    table = _numbers(matrix, file, len(names))

    def write(means: Floats) -> bytes:
        target = io.BytesIO()
        np.save(target, _like(matrix, means))
        return target.getvalue()

    rows = Places(range(len(names)))
    return Read(file, names, table, rows, write, Faults(file.shown), stored=matrix.dtype, beside={beside.name: data})
