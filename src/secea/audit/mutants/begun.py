"""Parties that let others begin a message again."""

from __future__ import annotations

from secea.audit import PAILLIER, Mutant, Subject
from secea.audit.mutants.common import both
from secea.forms.paillier import Paillier
from secea.party.client import Client
from secea.party.server import Server
from secea.wire.link import Opened
from secea.wire.messages import Buffer, Header

_got, _require_next = Client._got, Server._require_next


def _from_the_beginning(self: Client, opened: Opened, message: Buffer) -> None:
    """Takes the first part of a message at any time."""
    if opened.header.chunk == 0:
        self.due.parts.pop((opened.header.kind, opened.header.sender), None)
    _got(self, opened, message)


def _next_or_first(self: Server, header: Header, size: int) -> None:
    """Takes the first part of a message at any time."""
    if header.chunk == 0:
        self.collected.labels.pop((header.kind, header.sender), None)
        self.collected.progress.pop((header.kind, header.sender, header.receiver), None)
    _require_next(self, header, size)


CLIENT_BEGINS_AGAIN = Mutant(
    "begun-again-to-a-client",
    "A server can begin a message again that a client has used in part.",
    {PAILLIER: Subject(Paillier(), within=((Client, "_got", _from_the_beginning),))},
)
SERVER_BEGINS_AGAIN = both(
    "begun-again-to-the-server",
    "A client can begin a message again of which a part is in the sum.",
    within=((Server, "_require_next", _next_or_first),),
)
