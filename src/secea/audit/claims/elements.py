"""Claims about points, keys, scalars and numbers that are none, or that anybody can compute with: in all messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np

from secea.arithmetic.field import RING61
from secea.arithmetic.ristretto import ORDER, PointError
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.names import begun, corrupt, driven, naming
from secea.audit.claims.common import SETS, made_tables
from secea.audit.mutants import elements as mutants
from secea.audit.standing import standing_in
from secea.errors import SERVER, ProtocolError, party
from secea.forms.keyed.form import Keyed, Kind
from secea.party.phases import REST
from secea.steps import oprf, union
from secea.testing import Parties
from secea.wire.keys import Opener, Sealer
from secea.wire.messages import Buffer, Header
from secea.wire.randomness import SEED_BYTES

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


# --------------------------------------------------------------------------------------------------- numbers of a field


class Odd:
    """Client 1 sends each part of its table and upload with a number in it that is none, and then the right one."""

    def __init__(self, parties: Parties) -> None:
        self.parties, self.cases = parties, 0

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Pass on everything, after what is odd."""
        server = self.parties.server
        header = Header.parse(message, sender, Kind)
        if sender != ROGUE or header.kind not in (Kind.TABLE, Kind.UPLOAD):
            return (message,)
        key = self.parties.clients[ROGUE].link.channels[SERVER].derive("seal", header.label())
        payload, before = bytes(Opener(key, header).open(header, message)), server.save()
        for at, number in self._places(header, len(payload)):
            odd = payload[:at] + number + payload[at + len(number) :]
            where = f"byte {at} of part {header.chunk} of {header.kind.name}"
            try:
                server.receive(ROGUE, bytes(Sealer(key, header).seal(header.chunk, odd)))
            except ProtocolError as error:
                if error.suspects != (ROGUE,):
                    raise Objection(f"at {where} of client {ROGUE} is no number, and {error} is named") from None
            else:
                raise Objection(f"at {where} is no number, and the server takes it from client {ROGUE}")
            if server.save() != before:
                raise Objection(f"at {where} is no number: it is refused, and something is changed all the same")
            self.cases += 1
        return (message,)

    def _places(self, header: Header, size: int) -> Iterator[tuple[int, bytes]]:
        """Where the first and the last number of a part are, for each prime, and the least that is none there."""
        form, params, at = self.parties.session.form, self.parties.session.params, self.parties.server.at
        assert isinstance(form, Keyed)
        span, n = form.layout(header.kind, params, at, ROGUE).span(header.chunk), form.numbers(params)
        ring, rows = (RING61, [union.COLUMNS]) if header.kind is Kind.TABLE else (n.ring, [form.width(params)])
        if header.kind is Kind.UPLOAD and ROGUE in form.noise_clients(params, at):
            rows, size = [*rows, n.checks], size - SEED_BYTES
        width, start = ring.element_bytes // ring.size, 0
        assert size == sum(rows) * (span.stop - span.start) * ring.element_bytes
        for each in rows:
            for prime in ring.primes:
                last = start + (each * (span.stop - span.start) - 1) * width
                yield start, prime.to_bytes(width, "little")
                yield last, b"\xff" * width
                start = last + width


@claim("attack", KEYED, mutants=(mutants.LATE, mutants.WRAPPED))
def odd_numbers(subject: Subject) -> int:
    """Keyed: a number outside of its field is refused with the very part it is in, and leaves nothing behind.

    Parts before it would be in the sum already, and one client could spoil a round that goes on without it.
    """
    cases = 0
    for dropouts, precision in product((0, 1), (24, 40)):
        tables = made_tables(SETS)
        with standing_in({}, CHUNK_BYTES=100):
            parties = subject.parties(tables, collusion=1, dropouts=dropouts, precision=precision)
            parties.exchange.tap = odd = Odd(parties)
            parties.setup()
            found = parties.round(tables)
        for n, table in enumerate(tables):
            right = np.array([np.mean([each[name] for each in tables if name in each], axis=0) for name in table])
            if not np.allclose(found[n], right, atol=1e-5):
                raise Objection(f"client {n} has wrong means after numbers that were refused")
        cases += odd.cases
    return cases
