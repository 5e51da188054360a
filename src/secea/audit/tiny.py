"""The keyed form over a field of a few elements, with given draws in the place of key streams: for `secea.audit.views`.

Nothing of a round is left out or copied: the parts of `secea.forms.keyed` run as they are. Replaced are the ring, the
sizes of chunks and batches, and what `secea.arithmetic.streams` computes with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import discrete, portable, streams
from secea.arithmetic._kernels import ffi
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import Noise
from secea.audit.attacks.keyed import Overheard
from secea.audit.standing import attributes_stand_in
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.server import KeyedServer
from secea.params import Params
from secea.wire.messages import Layout

NOBODY: Final = -2
"""Asks for variables, but belongs to no coalition: the audit itself."""


# --------------------------------------------------------------------------------------------------------- tiny fields


class Copies(Ring):
    """One tiny field many times, in the place of several primes: as many rounds are played side by side. Insecure."""

    def __init__(self, p: int) -> None:
        super().__init__((p,))
        self.p = p

    def resize(self, copies: int) -> None:
        """Play this many copies from now on."""
        self.primes, self.size = (self.p,) * copies, copies
        self.element_bytes = copies * self.dtype.itemsize
        self.table = ffi.new("uint32_t[]", self.primes)

    def constant(self, values: object) -> Residues:
        """The same in all copies."""
        one = np.asarray(np.array(values, object) % self.p, self.dtype)
        return np.repeat(one[None], self.size, axis=0)


@dataclass(frozen=True)
class TinyNumbers(Numbers):
    """Numbers of a tiny field. There is no room for fixed point or fill, and nothing to read."""

    columns: int = 1

    @property
    def checks(self) -> int:
        """Check columns."""
        return self.columns

    def read(self, x: Residues, noisy: int, planned: int | None = None) -> NDArray[np.float64]:
        """Nothing: who can compute a mean is told by what it knows."""
        return np.zeros(x.shape[1:])


class Summing(KeyedServer):
    """A server that keeps the sums that it opens, and may change them before it divides."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sums: dict[int, Residues] = {}
        self.change: Callable[[Residues], None] = lambda _: None

    def _means(self, chunk: int, come: Any) -> Any:
        self.sums[chunk] = come.total.copy()
        self.change(come.total)
        return super()._means(chunk, come)


@dataclass(frozen=True)
class Small(Overheard):
    """A form over a tiny field, with few slots in a chunk."""

    tiny: TinyNumbers | None = None
    per_chunk: int = 1

    def numbers(self, params: Params) -> Numbers:
        """The tiny ones."""
        assert self.tiny is not None
        return self.tiny

    def _rows(self, *args: Any) -> Layout:
        return replace(super()._rows(*args), per_chunk=self.per_chunk)

    def server(self, params: Any, session: bytes) -> Any:
        """One that keeps its sums."""
        made = super().server(params, session)
        return made if isinstance(made, Summing) else Summing(self, params, session)


def small(form: Overheard, p: int, clients: int, checks: int, per_chunk: int, *, everywhere: bool = False) -> Small:
    """A form, whatever was taken away from it, over a tiny field. `everywhere`: with noise on every slot."""
    C, noise = math.lcm(*range(1, clients + 1)), Noise(1, (1,), 2)
    numbers = TinyNumbers(Copies(p), C, 0, 1, noise, 1, 64.0, 64.0, float(everywhere), columns=checks)
    options = {each.name: getattr(form, each.name) for each in fields(Overheard)} | {"batch": 4}
    made = type("Small", (Small, type(form)), {})(**options, tiny=numbers, per_chunk=per_chunk)
    assert isinstance(made, Small)
    return made


# --------------------------------------------------------------------------------------------------------------- draws


class Variables(NDArray[np.int64]):
    """Numbers that are drawn for every slot: which variables they are."""


class Draws:
    """In the place of key streams and noise: each element is a variable, with a value in each copy.

    It has the functions of `secea.arithmetic.portable`, which works where the field is not the tiny one.
    """

    def __init__(self, ring: Copies) -> None:
        self.ring, self.who, self.size = ring, NOBODY, 0
        self.streams: dict[tuple[str, bytes, int], list[int]] = {}
        """The variables of each stream: what for, its key, and its lane."""
        self.asked: dict[int, dict[int, None]] = {}
        """The variables that each party asked for, in order."""
        self.nonzero: set[int] = set()
        self.added: dict[int, dict[bytes, int]] = {}
        """The keys whose streams each party added to something, with their signs."""
        self.values: NDArray[np.uint8] | None = None
        """[copies, variables]; None as long as variables are found."""

    @contextmanager
    def of(self, who: int) -> Iterator[None]:
        """A party is at work."""
        before, self.who = self.who, who
        try:
            yield
        finally:
            self.who = before

    def _elements(self, key: tuple[str, bytes, int], shape: Sequence[int], *, nonzero: bool = False) -> Residues:
        """Of one stream, in each copy."""
        mine, count = self.streams.setdefault(key, []), math.prod(shape)
        while len(mine) < count:
            assert self.values is None, "a round that is played again draws something else"
            mine.append(self.size)
            self.size += 1
        ids = mine[:count]
        self.asked.setdefault(self.who, {}).update(dict.fromkeys(ids))
        self.nonzero |= set(ids) if nonzero else set()
        if self.values is None:
            return np.full((self.ring.size, *shape), int(nonzero), self.ring.dtype)
        return np.take(self.values, ids, axis=1).astype(self.ring.dtype).reshape(-1, *shape)

    def add_streams(self, ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        """acc += the sum over k of signs[k] times the stream of keys[k]."""
        self.added.setdefault(self.who, {}).update(zip(keys, signs, strict=True))
        if ring is not self.ring:
            return portable.add_streams(ring, acc, keys, signs, lane)
        for key, sign in zip(keys, signs, strict=True):
            drawn = self._elements(("stream", key, lane), acc.shape[1:])
            (ring.add_into if sign > 0 else ring.subtract_into)(acc, drawn)
        return None

    def stream(self, ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
        """The stream of this key and lane."""
        if ring is not self.ring:
            return portable.stream(ring, key, lane, *shape, nonzero=nonzero)
        return self._elements(("stream", key, lane), shape, nonzero=nonzero)

    def row_streams(self, ring: Ring, keys: NDArray[np.uint8], lane: int, length: int) -> Residues:
        """For each row the stream of its own key."""
        if ring is not self.ring:
            return portable.row_streams(ring, keys, lane, length)
        rows = [self._elements(("stream", key.tobytes(), lane), (length,)) for key in keys]
        return np.stack(rows, axis=1) if rows else ring.empty(0, length)

    def add_noise(self, ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
        """acc += noise, which is uniform here."""
        if ring is not self.ring:
            return portable.add_noise(ring, acc, seed, lane, noise)
        ring.add_into(acc, self._elements(("noise", seed, lane), acc.shape[1:]))
        return None

    encode = staticmethod(portable.encode)

    # ------------------------------------------------------------------------------------------ noise on every slot

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Parties draw from here."""
        others = (discrete, "gaussian", self._gaussian), (streams, "add_scaled", self._add_scaled)
        with streams.use(0, self), attributes_stand_in(*others):
            yield

    def _gaussian(self, draw: Any, count: int, sigma: float) -> NDArray[np.int64]:
        """Uniform numbers: each is a variable of the stream from which it would be drawn."""
        stream = draw.__self__
        self._elements(("everywhere", stream._key, stream._lane), (count,))
        ids = self.streams["everywhere", stream._key, stream._lane][:count]
        return np.array(ids, np.int64).view(Variables)

    def _add_scaled(self, ring: Ring, acc: Residues, x: NDArray[np.int64], factor: int) -> None:
        if not isinstance(x, Variables):
            return _add_scaled(ring, acc, x, factor)
        if self.values is None:
            return None
        drawn = np.take(self.values, np.asarray(x).reshape(-1), axis=1).astype(np.int64).reshape(acc.shape)
        ring.add_into(acc, (drawn * factor % self.ring.p).astype(ring.dtype))
        return None


_add_scaled = streams.add_scaled
