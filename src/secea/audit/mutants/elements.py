"""Clients that compute with whatever they are sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import ORDER, valid
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.epochs import within
from secea.forms.keyed.masking import Masking, of_small_order
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


SMALL_ORDER_TAKEN = replaced("small-order-taken", "Mask keys of small order are taken.", {of_small_order: _never})
ANY_NUMBER = within("any-number", "Shares of mask keys may be any numbers.", Masking, "_got_batch", _reduced)
ANY_POINT = replaced("any-point", "It is not looked at whether points of others are any.", {valid: _all_valid})
