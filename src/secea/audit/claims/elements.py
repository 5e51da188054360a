"""A claim about points, keys and scalars that are none, or that anybody can compute with: in every kind of message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from secea.arithmetic.ristretto import ORDER, PointError
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.names import begun, corrupt, driven, naming
from secea.audit.claims.common import SETS, made_tables
from secea.audit.mutants import elements as mutants
from secea.errors import SERVER, party
from secea.forms.keyed.form import Kind
from secea.party.phases import REST
from secea.steps import oprf
from secea.testing import Parties

ROGUE: Final = 1
P25519: Final = 2**255 - 19
SMALL_ORDER: Final = (
    0, 1, P25519 - 1, P25519, P25519 + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    (1 << 255) + 1,
)  # fmt: skip
"""Of X25519: what is computed with these keys is known to all. Some are written in another way than usual."""
NO_POINTS: Final = {"the identity": bytes(32), "no point": b"\xff" * 32, "a negative one": b"\x01" + bytes(31)}
NO_SCALARS: Final = {"the order": ORDER, "above the order": (1 << 256) - 1}
Change = Callable[[bytes], bytes]


def _with(new: bytes, at: int) -> Change:
    """The same with these 32 bytes at a place."""
    return lambda payload: payload[:at] + new + payload[at + 32 :]


def _changes() -> Iterator[tuple[str, Kind, Change]]:
    """What a client may send in each kind of message in place of what it should."""
    for what, point in NO_POINTS.items():
        for at, place in ((0, "first"), (32, "second")):
            yield f"{what} as its {place} commitment", Kind.DEALING, _with(point, at)
            yield f"{what} as its {place} blinded name", Kind.LIST, _with(point, at)
            yield f"{what} as its {place} answer", Kind.EVALUATION, _with(point, at)
    for scalar, x in NO_SCALARS.items():
        yield f"{scalar} as a share", Kind.SHARE, _with(x.to_bytes(32, "little"), 0)
        for at in (0, 32, 64):
            yield f"{scalar} as a share of a mask key, at {at}", Kind.SECRETS, _with(x.to_bytes(32, "little"), at)
    for key in SMALL_ORDER:
        yield f"the key {key} for masks of a union", Kind.PART, _with(key.to_bytes(32, "little"), 32)
        for at in (0, 64):
            yield f"the key {key} for masks of a round, at {at}", Kind.BATCH, _with(key.to_bytes(32, "little"), at)


def _lying(parties: Parties, kind: Kind, change: Change) -> None:
    """Client 1 says it, with whatever hash goes with it, and goes on as if it were right."""
    rogue: Any = naming(parties.clients[ROGUE])
    cut = 32 * (parties.session.params.T + 1)
    dealing, blinded = rogue._dealing, rogue._blinded

    def with_points(*given: Any) -> oprf.Blinding:
        whole: oprf.Blinding = blinded(*given)
        points = np.frombuffer(change(whole.points.tobytes()), np.uint8).reshape(-1, 32)
        return replace(whole, points=points)

    if kind is Kind.DEALING:
        rogue._dealing = lambda: change(dealing())
        rogue._own_hash = lambda: oprf.commitments_hash(change(dealing())[:cut])
    elif kind is Kind.LIST:
        rogue._blinded = with_points
    else:
        corrupt(parties.clients[ROGUE], lambda said, _, payload: change(payload) if said is kind else payload)


@claim("attack", KEYED, mutants=(mutants.SMALL_ORDER_TAKEN, mutants.ANY_NUMBER, mutants.ANY_POINT))
def odd_elements(subject: Subject) -> int:
    """Keyed: points, keys and numbers that are none, or that tell nothing, are refused, and whoever sent them is named.

    A mask made with a key of small order is known to everybody: the upload under it would be bare.
    """
    cases = 0
    for what, kind, change in _changes():
        parties = subject.parties(made_tables(SETS), collusion=1, dropouts=1)
        begun(parties)
        _lying(parties, kind, change)
        try:
            errors = {n: each for n, each in driven(parties.server, parties.clients, REST).items() if n != ROGUE}
        except PointError:
            raise Objection(f"{party(ROGUE)} sends {what}, and the others break off without a word") from None
        if not errors:
            raise Objection(f"{party(ROGUE)} sends {what}, and nobody refuses it")
        if any(ROGUE not in each.suspects or not {*each.suspects} <= {ROGUE, SERVER} for each in errors.values()):
            raise Objection(f"{party(ROGUE)} sends {what}, and others are named: {errors}")
        cases += len(errors)
    return cases
