"""A claim about messages in parts: whoever has begun one goes on with it, and cannot begin with another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.claims.common import SETS, made_tables
from secea.audit.mutants import begun as mutants
from secea.audit.standing import standing_in
from secea.errors import SERVER, ProtocolError, party
from secea.testing import Parties
from secea.wire.keys import Opener, Sealer
from secea.wire.messages import Buffer, Header

CHUNK: Final[dict[str, int]] = {KEYED: 100, PAILLIER: 1}
LATER: Final = 1000
"""The sender has begun so many other messages meanwhile."""


class BegunAgain:
    """The first message of a kind to a receiver is begun again, by its sender, when its first part was taken."""

    def __init__(self, parties: Parties, kind: IntEnum) -> None:
        self.parties, self.kind = parties, kind
        self.first: tuple[Header, bytes] | None = None
        self.refused: ProtocolError | None = None
        self.tried = ""

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Pass on everything."""
        header = Header.parse(message, sender, self.parties.session.form.kinds)
        if self.tried or header.kind is not self.kind or header.receiver != receiver or header.chunks == 1:
            return (message,)
        ends: dict[int, Any] = {SERVER: self.parties.server, **self.parties.clients}
        channel = ends[header.sender].link.channels[receiver]
        if header.chunk == 0 and self.first is None:
            self.first = header, bytes(Opener(channel.derive("seal", header.label()), header).open(header, message))
        elif self.first and header.salt == self.first[0].salt:
            begun, payload = self.first
            again = replace(begun, sequence=begun.sequence + LATER, salt=bytes(len(begun.salt)))
            sealed = bytes(Sealer(channel.derive("seal", again.label()), again).seal(0, payload))
            self.tried = f"{header.kind.name} of {party(header.sender)} to {party(receiver)}"
            try:
                to: Any = ends[receiver]
                to.receive(*([sender] if receiver == SERVER else []), sealed)
            except ProtocolError as error:
                self.refused = error
                if header.sender not in error.suspects or not {*error.suspects} <= {header.sender, SERVER}:
                    raise Objection(f"{self.tried} is begun a second time, and others are named: {error}") from None
        return (message,)


@claim("attack", KEYED, PAILLIER, mutants=(mutants.CLIENT_BEGINS_AGAIN, mutants.SERVER_BEGINS_AGAIN))
def begun_once(subject: Subject) -> int:
    """Both forms: a message whose parts are used as they come cannot be begun again: nobody can vary it, and compare.

    A client checks each part of its means. A server that could begin again would have a free answer to each guess.
    """
    form, cases = subject.form, 0
    for kind in sorted(form.streamed):
        tables = made_tables(SETS)
        with standing_in({}, CHUNK_BYTES=CHUNK[form.name]):
            parties = subject.parties(tables, collusion=1)
            parties.exchange.tap = again = BegunAgain(parties, kind)
            try:
                parties.setup()
                parties.round(tables)
            except ProtocolError:
                if not again.tried:
                    raise
        if again.tried and again.refused is None:
            raise Objection(f"{again.tried} is begun a second time, and that is taken")
        cases += bool(again.tried)
    if cases < 2:
        raise Objection("no message has several parts")
    return cases
