"""A set-up without the group: a keyed hash in place of the oblivious PRF, for unions too large to wait for it.

It is for measuring rounds alone. It hides nothing from the holders of the key, and the product does not contain it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import Rows
from secea.forms.keyed import names
from secea.steps import oprf
from secea.wire.randomness import KeyStream


def _blind(inputs: Sequence[bytes], size: int, seed: bytes) -> oprf.Blinding:
    """A list of the right size, of random bytes."""
    points = np.frombuffer(KeyStream(seed).bytes(32 * (size + 1)), np.uint8).reshape(-1, 32)
    none = np.zeros((0, 32), np.uint8)
    return oprf.Blinding(points, tuple(inputs), (), 0, none, np.zeros(0, np.int64))


def _evaluate(points: Rows, *_: Any, **__: Any) -> Rows:
    return points


def _finish(blinding: oprf.Blinding, answers: Mapping[int, Rows], joint: bytes, **_: Any) -> list[bytes]:
    key = oprf.public_key(joint)
    return [hashlib.blake2b(name, digest_size=oprf.OUTPUT_BYTES, key=key).digest() for name in blinding._inputs]


@contextmanager
def hashed_names() -> Iterator[None]:
    """Within it, set-ups cost what they cost beside the group; messages have their sizes, and rounds are as ever."""

    def valid(points: Rows) -> NDArray[np.bool_]:
        return np.ones(len(points), np.bool_)

    with (
        patch.object(oprf, "blind", _blind),
        patch.object(oprf, "evaluate", _evaluate),
        patch.object(oprf, "finish", _finish),
        patch.object(names, "valid", valid),
    ):
        yield
