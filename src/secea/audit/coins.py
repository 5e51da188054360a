"""All the randomness of a run, under control: labelled streams, of which some are free and all others fixed.

A key of the protocol becomes a *label*, a tuple that says what it is for: its layer, then whose it is. `key_of` makes
bytes of a label, and `expanded` and `Coins.from_key` stand for `keys.expand` and `KeyStream`: the product's own code
derives keys and streams from them, and what it draws comes from `Coins`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring

Elements: TypeAlias = NDArray[np.int64]
Label: TypeAlias = tuple[object, ...]
"""What a stream is for: its layer, then whose it is."""


_labels: dict[bytes, Label] = {bytes(32): ("public",)}


@cache
def key_of(*label: object) -> bytes:
    """A label as a key of 32 bytes."""
    key = hashlib.sha256(repr(label).encode()).digest()
    _labels[key] = label
    return key


def label_of(key: bytes) -> Label:
    """The label of a key."""
    return _labels[key]


@cache
def expanded(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """Stands for `keys.expand`. The layer is the purpose; for shares it is the kind of the stage."""
    of = label_of(secret)
    layer = {"share": str(of[0]), "noise": f"{of[0]} noise"}.get(purpose, purpose)
    return key_of(layer, *of[1:], *label)


def nobody_knows(label: Label) -> bool:
    """The adversary has no coins of its own."""
    return False


@dataclass
class Coins:
    """The randomness of one run. Streams of one label give the same elements, as at both ends of a pair.

    Elements of the layers in `free` are those of `values`, in the order in which they are first asked for, and 0
    beyond; but not where the adversary `knows` the label. Elements that must not be 0 have a layer with a star; the
    first few of a layer may be `enumerated`: they are those of `chosen`. `given` fixes all elements of a label.
    `repeat` is the axis along which a layer repeats its elements. Everything else is a fixed function of label and
    seed.
    """

    free: frozenset[str] = frozenset()
    values: Sequence[int] | Elements = ()
    enumerated: Mapping[str, int] = field(default_factory=dict)
    chosen: Sequence[int] = ()
    seed: int = 0
    knows: Callable[[Label], bool] = nobody_knows
    given: Mapping[str, Callable[[Label], Residues]] = field(default_factory=dict)
    repeat: Mapping[str, int] = field(default_factory=dict)
    columns: list[Label] = field(default_factory=list)
    """The label of each free element."""
    asked: int = 0
    """Enumerated elements that were asked for."""
    _known: dict[tuple[Label, int], list[int]] = field(default_factory=dict)

    def stream(self, *label: object) -> Stream:
        """The stream of a label."""
        return Stream(self, label)

    def from_key(self, key: bytes) -> Stream:
        """Stands for `KeyStream`."""
        return Stream(self, label_of(key))

    def draw(self, label: Label, ring: Ring, shape: tuple[int, ...], call: int) -> Residues:
        """The elements that a stream gives in one call."""
        layer = str(label[0])
        if layer in self.given:
            return self.given[layer](label).reshape(1, -1)[:, : prod(shape)].reshape(1, *shape)
        drawn = list(shape)
        if layer in self.repeat:
            drawn[self.repeat[layer]] = 1
        known = self._known.setdefault((label, call), [])
        if len(known) < prod(drawn):  # who asks for more gets the same, and more
            known += self._drawn(label, layer, ring, len(known), prod(drawn), call)
        part = np.array(known[: prod(drawn)], ring.dtype).reshape(1, *drawn)
        return np.broadcast_to(part, (1, *shape)).copy() if drawn != list(shape) else part

    def _drawn(self, label: Label, layer: str, ring: Ring, start: int, stop: int, call: int) -> list[int]:
        if layer in self.free and not self.knows(label):
            at, count = len(self.columns), stop - start
            self.columns += [label] * count
            return [int(self.values[i]) if i < len(self.values) else 0 for i in range(at, at + count)]
        part = list(_fixed_elements(self.seed, call, label, int(layer.endswith("*")), ring.primes[0], stop))
        some = max(0, min(stop, self.enumerated.get(layer, 0)) - start)
        for i in range(some):
            at = self.asked + i
            part[start + i] = self.chosen[at] if at < len(self.chosen) else 1
        self.asked += some
        return part[start:]


def fixed(seed: int, call: int, label: Label) -> np.random.Generator:
    """What is not free is a function of its label: another for another seed."""
    return np.random.default_rng([seed, call, *repr(label).encode()])


@lru_cache(maxsize=1 << 14)
def _fixed_elements(seed: int, call: int, label: Label, low: int, p: int, count: int) -> tuple[int, ...]:
    return tuple(fixed(seed, call, label).integers(low, p, count).tolist())


@lru_cache(maxsize=1 << 14)
def _fixed_bytes(seed: int, call: int, label: Label, count: int) -> bytes:
    return fixed(seed, call, label).bytes(count)


class Stream:
    """Stands for a `KeyStream`."""

    def __init__(self, coins: Coins, label: Label) -> None:
        self.coins, self.label, self.calls = coins, label, 0

    def lane(self, number: int) -> Stream:
        """A stream of its own."""
        return Stream(self.coins, (*self.label, number))

    def elements(self, ring: Ring, *shape: int) -> Residues:
        """Any elements."""
        self.calls += 1
        return self.coins.draw(self.label, ring, shape, self.calls)

    def nonzero(self, ring: Ring, *shape: int) -> Residues:
        """Their layer has a star, so that it can be told from that of other elements of the stream."""
        self.calls += 1
        return self.coins.draw((f"{self.label[0]}*", *self.label[1:]), ring, shape, self.calls)

    def fill(self, out: memoryview) -> None:
        """Bytes, written to `out`."""
        out[:] = self.bytes(len(out))

    def bytes(self, count: int) -> bytes:
        """Fixed, whatever is free."""
        self.calls += 1
        return _fixed_bytes(self.coins.seed, self.calls, self.label, count)
