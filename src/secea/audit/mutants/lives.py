"""The form "keyed" with clients that forget in the middle of a life, or change what they are about to send."""

from __future__ import annotations

from dataclasses import replace

from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.epochs import within
from secea.audit.mutants.keyed import mutant
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed.client import KeyedClient, Released
from secea.forms.keyed.names import Naming
from secea.party.client import Client
from secea.party.phases import Agreement
from secea.table import TableLike


class GridOfARun(KeyedClient):
    """The next run begins with another grid."""

    def enter(self, at: Agreement) -> None:
        """Forget it at the end."""
        super().enter(at)
        if at.phase == self.form.end_phase:
            self.tables.grid = None


class UploadsOfAUnion(KeyedClient):
    """With a new union, nothing was uploaded."""

    def enter(self, at: Agreement) -> None:
        """Forget it at the beginning."""
        super().enter(at)
        if at.phase == self.form.union_phase:
            self.released = Released()


_ask = Naming._ask


def _with_names_of_now(self: Naming, at: Agreement) -> None:
    """A client whose entities changed makes another list."""
    if self.names.coming is not None:
        self.names = replace(self.names, listed=0)
    _ask(self, at)


class Corrects(Client):
    """Takes another table as long as the round is not over."""

    def contribute(self, table: TableLike, round: int) -> None:
        """In place of the table that is on its way."""
        part = self.part
        if isinstance(part, KeyedClient) and part.round is not None and part.released.round == part.round.number:
            part.round = replace(part.round, table=part.checked(table))
            return
        super().contribute(table, round)


_overdue = Client.overdue


def _others_alone(self: Client) -> ProtocolError | None:
    """Blames whoever should have sent it."""
    missing = _overdue(self)
    senders = [n for n in missing.suspects if n != SERVER] if missing else []
    return ProtocolError(senders, missing.fault) if missing and senders else missing


GRID_OF_A_RUN = mutant(
    "grid-of-a-run", "At the end of a run a client forgets how coarse its tables were.", Overheard(of_client=GridOfARun)
)
UPLOADS_OF_A_UNION = mutant(
    "uploads-of-a-union",
    "With a new union a client forgets what it uploaded, and to whom.",
    Overheard(of_client=UploadsOfAUnion),
)
LISTS_OF_NOW = within(
    "lists-of-now",
    "A list that is asked for again has the names that came since.",
    Naming,
    "_ask",
    _with_names_of_now,
)
TABLE_CORRECTED = Mutant(
    "table-corrected",
    "A client takes another table while it uploads, under the same masks.",
    {KEYED: Subject(Overheard(), client=Corrects)},
)
RELAY_TRUSTED = within(
    "relay-trusted", "Who waits for a message blames its sender alone.", Client, "overdue", _others_alone
)
