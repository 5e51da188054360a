"""Clients that compute with whatever they are sent."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.ristretto import ORDER, valid
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.epochs import within
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import Masking, of_small_order
from secea.forms.keyed.server import KeyedServer
from secea.party.form import Got
from secea.party.phases import Agreement

_got_batch = Masking._got_batch


def _never(public: bytes) -> bool:
    return False


def _reduced(self: Masking, at: Agreement, got: Got) -> Agreement:
    """Shares of mask keys modulo the order, whatever was sent."""

    def scalars(data: bytes) -> bytes:
        parts = (int.from_bytes(data[i : i + 32], "little") % ORDER for i in range(0, len(data), 32))
        return b"".join(x.to_bytes(32, "little") for x in parts)

    return _got_batch(self, at, {k: scalars(v) if k[0].name == "SECRETS" else v for k, v in got.items()})


def _all_valid(points: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.ones(len(points), np.bool_)


_read = Ring._read
_stream = KeyedServer.stream


def _late(self: KeyedServer, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
    """Looks at an upload when all of it is there."""
    if kind is Kind.TABLE or not self.params.dropouts:
        _stream(self, kind, sender, chunk, payload, at)
        return
    layout = self.form.layout(kind, self.params, at, sender)
    if sender not in self._parts:
        self._parts[sender] = self.held(layout.wire_bytes)
    self._parts[sender].put(payload)
    if chunk + 1 == layout.chunks:
        for number, whole in enumerate(self._parts[sender].chunks()):
            self._add(sender, number, whole, at)
        self._parts.pop(sender).close()


def _wrapped(self: Ring, data: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> tuple[Residues, bool]:
    """Numbers modulo the prime, whatever was sent."""
    x, _ = _read(self, data, shape)
    return x % np.array(self.primes, x.dtype).reshape(-1, *[1] * len(shape)), True


SMALL_ORDER_TAKEN = replaced("small-order-taken", "Mask keys of small order are taken.", {of_small_order: _never})
ANY_NUMBER = within("any-number", "Shares of mask keys may be any numbers.", Masking, "_got_batch", _reduced)
ANY_POINT = replaced("any-point", "It is not looked at whether points of others are any.", {valid: _all_valid})
LATE = within("late-look", "A part of an upload is kept before it is looked at.", KeyedServer, "stream", _late)
WRAPPED = within("wrapped-numbers", "Numbers of a field may be any.", Ring, "_read", _wrapped)
