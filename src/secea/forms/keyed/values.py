"""The PRF values of a client's names, in one array: there may be millions of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secea.steps.oprf import OUTPUT_BYTES
from secea.table import Name


@dataclass(frozen=True, slots=True, eq=False)
class Values(Mapping[Name, bytes]):
    """F of each name that was ever asked for. To look names up by the thousand, take `of` or `set(values)`."""

    names: tuple[Name, ...] = field(default=(), repr=False)
    rows: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, OUTPUT_BYTES), np.uint8), repr=False)
    """[names, 64]."""

    @classmethod
    def made(cls, names: Sequence[Name], values: Sequence[bytes] | bytes) -> Values:
        """From one value for each name, or from all of them in a row."""
        joined = values if isinstance(values, bytes) else b"".join(values)
        return cls(tuple(names), np.frombuffer(joined, np.uint8).reshape(len(names), OUTPUT_BYTES))

    def plus(self, names: Sequence[Name], values: Sequence[bytes]) -> Values:
        """With values of names that had none."""
        more = Values.made(names, values)
        return Values(self.names + more.names, np.concatenate([self.rows, more.rows])) if self.names else more

    def of(self, names: tuple[Name, ...]) -> NDArray[np.uint8]:
        """The values of these names, in their order. All must be there."""
        if names == self.names:
            return self.rows
        place = {name: i for i, name in enumerate(self.names)}
        return self.rows[[place[name] for name in names]]

    def __getitem__(self, name: Name) -> bytes:
        try:
            return bytes(self.rows[self.names.index(name)])
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[Name]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def each(rows: NDArray[np.uint8]) -> Iterator[bytes]:
    """Row by row, as bytes."""
    data, width = rows.tobytes(), rows.shape[1]
    return (data[start : start + width] for start in range(0, len(data), width))
