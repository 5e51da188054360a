"""The bits below the inputs' own grid (7b): filled, by a private key, and the same in every round.

A sum of c numbers on a grid lies on the grid, so an exact mean would show its count. With a fill as wide as the grid,
what stands below the grid is uniform whatever the count is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.field import PRIMES32, Residues, Ring
from secea.audit import Claim, Objection
from secea.engines.local import Federation
from secea.params import Params
from secea.retrieval.reciprocal import Reciprocal

FILL_BITS = 3
PARAMS = Params(clients=3, dim=1, collusion=1)
INPUTS: dict[str, tuple[NDArray[np.float64], int]] = {
    "multiples of 2^-4": (np.arange(1, 65)[:, None] / 16, 4),
    "bf16 between 1 and 2": (1 + np.arange(128)[:, None] / 128, 7),
    "integers times 0.25, of either sign": (np.arange(-40, 41)[:, None] / 4, 2),
}
"""Numbers on a grid of 2^-bits, and the bits."""


class Scripted:
    """Stands for AES: every block is the same, and has the fill on top."""

    def __init__(self, fill: int) -> None:
        self.block = np.frombuffer((fill << 128 - FILL_BITS).to_bytes(16, "little"), np.uint8)

    def __call__(self, *algorithm_and_mode: object) -> Scripted:
        """As a constructor."""
        return self

    def encryptor(self) -> Scripted:
        """Itself."""
        return self

    def update_into(self, data: memoryview, out: memoryview) -> int:
        """The blocks."""
        size = data.nbytes
        out[:size] = np.tile(self.block, size // 16).data
        return size


def _encoded(matrix: NDArray[np.float64], grid_bits: int) -> NDArray[np.int64]:
    """What is shared of each number under every fill: [fills, numbers]."""
    ring, found = Ring(PRIMES32[:1]), []
    for fill in range(1 << FILL_BITS):
        with patch("secea.arithmetic.grid.Cipher", Scripted(fill)):
            residues = grid.encode(
                ring, matrix, np.zeros(len(matrix), np.uint64), bytes(32), grid_bits + FILL_BITS, PARAMS
            )
        found.append(np.rint(ring.join(residues, 1.0)).astype(np.int64)[:, 0])
    return np.stack(found)


def check_fill() -> int:
    """Over every fill of every owner, the sum of any one to three numbers is uniform below their grid."""
    step, cases = 1 << FILL_BITS, 0
    for title, (matrix, grid_bits) in INPUTS.items():
        shared = _encoded(matrix, grid_bits)
        for count in (1, 2, 3):
            for owners in _some(len(matrix), count):
                fills = product(range(step), repeat=count)
                law = Counter(
                    sum(int(shared[u, i]) for u, i in zip(fill, owners, strict=True)) % step for fill in fills
                )
                if any(law[low] * step != step**count for low in range(step)):
                    values = matrix[list(owners), 0].tolist()
                    raise Objection(f"{title}: the sum of {values} shows its grid: {dict(law)} below it")
                cases += 1
    return cases


def _some(numbers: int, count: int) -> Sequence[tuple[int, ...]]:
    """Equal numbers, neighbours, and others."""
    stride = numbers // 8
    return [tuple((i * stride + j * gap) % numbers for j in range(count)) for i in range(8) for gap in (0, 1, stride)]


def _filled_rounds() -> dict[int, list[Residues]]:
    """What three clients with the same table share in rounds before and after a restart and an update."""
    names = [f"entity {i}" for i in range(40)]
    table = dict(zip(names, np.arange(40)[:, None] / 16 + np.arange(4) / 4, strict=True))
    fed = Federation(Params(clients=3, dim=4), "reciprocal")
    shared: dict[int, list[Residues]] = {n: [] for n in range(3)}
    encode = Reciprocal.rows
    turn = 0

    def recorded(form: Reciprocal, matrix: Any, entity: Any, key: bytes) -> Any:
        nonlocal turn
        rows = encode(form, matrix, entity, key)
        order = np.lexsort(matrix.T)  # the union's order changes with the epoch; the table's rows are all different
        shared[turn % 3].append(rows[:, order])
        turn += 1
        return rows

    fed.setup([names] * 3)
    with patch.object(Reciprocal, "rows", recorded):
        for number in range(4):
            fed.round([table] * 3)
            if number == 1:
                fed.restart()
            if number == 2:
                fed.update(0, names)
    return shared


def check_same_in_every_round() -> int:
    """The same values are shared in every round, after a restart and in a new epoch: an average gains nothing."""
    shared = _filled_rounds()
    for n, rounds in shared.items():
        for number, rows in enumerate(rounds[1:], 2):
            if not np.array_equal(rows, rounds[0]):
                raise Objection(f"client {n} fills the same values otherwise in round {number}: averages take it out")
    return sum(rounds[0].size * (len(rounds) - 1) for rounds in shared.values())


def check_private() -> int:
    """Clients with the same entities and values fill them differently: the fill hangs on a key of their own."""
    shared = _filled_rounds()
    first = [rounds[0] for rounds in shared.values()]
    cases = 0
    for i in range(3):
        equal = float((first[i] == first[(i + 1) % 3]).mean())
        if equal > 0.01:
            raise Objection(f"two clients with the same values share {equal:.0%} of them with the same fill")
        cases += first[i].size
    return cases


CLAIMS = (
    Claim(
        "low-bits",
        "The sum of any number of owners' inputs is uniform below their grid, so that a mean shows no count.",
        "exact view",
        check_fill,
    ),
    Claim(
        "low-bits-in-every-round",
        "An input is filled in the same way in every round, so that averaging over rounds gains nothing.",
        "record",
        check_same_in_every_round,
    ),
    Claim(
        "low-bits-private",
        "Clients with the same input fill it differently, each by a key of its own.",
        "record",
        check_private,
    ),
)
