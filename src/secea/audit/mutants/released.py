"""The form "keyed" with clients that upload again what they should not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.keyed import filling, mutant
from secea.forms.keyed.client import KeyedClient, Released
from secea.forms.keyed.tables import Places, Tables
from secea.party.form import HAD
from secea.party.phases import Agreement
from secea.table import Table, TableLike
from secea.wire.messages import Buffer


class NumberOfMembers(KeyedClient):
    """Looks at how many clients there are."""

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """As if it had uploaded to these, if they are as many."""
        if len(at.members) == len(self.released.members):
            self.released = replace(self.released, members=at.members)
        super().contribute(table, round, at)


class OlderRounds(KeyedClient):
    """Looks at the last round alone."""

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """An earlier round is another one."""
        if round < self.released.round:
            self.released = Released()
        super().contribute(table, round, at)


class AnyValues(Released):
    """Takes all values for those that went out."""

    def same(self, hashed: bytes) -> bool:
        """They are."""
        return True


class OtherValues(KeyedClient):
    """Does not look at the values."""

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """Whatever they are."""
        out = self.released
        self.released = AnyValues(out.round, out.members, out.names, out.hashed)
        super().contribute(table, round, at)


class EverythingAgain(KeyedClient):
    """Forgets what it uploaded when another union begins."""

    def enter(self, at: Agreement) -> None:
        """Begin anew."""
        super().enter(at)
        if at.phase == self.form.union_phase:
            self.released = Released()


class MeansGoOut(KeyedClient):
    """Makes its upload again of the rows that it has now."""

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        assert self.round is not None
        read, self.round = self.round.read, replace(self.round, read=0)
        made = list(super()._upload(at))
        self.round = replace(self.round, read=read)
        yield from made


class TableAsItIsNow(KeyedClient):
    """Keeps no copy of its table."""

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """The table itself is uploaded, whatever becomes of it."""
        self.copied = np.asarray
        super().contribute(table, round, at)


class FirstChunkAgain(KeyedClient):
    """Skips what was answered, but for the first chunk."""

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        assert self.round is not None
        read = self.round.read
        for chunk, parts in enumerate(super()._upload(at)):
            if parts is HAD and not chunk:
                self.round = replace(self.round, read=0)
                yield next(super()._upload(at))
                self.round = replace(self.round, read=read)
            else:
                yield parts


class BeginningOfValues(Tables):
    """Remembers the beginning of what went out."""

    def fingerprint(self, table: Table, rows: Places, round: int) -> bytes:
        """Of the first rows."""
        return super().fingerprint(Table.trusted(table.names[:2], table.matrix[:2]), rows, round)


class BeginningOfGrid(Tables):
    """Looks at the beginning of a table."""

    def look_at(self, table: Table) -> None:
        """All but the last row, which may be finer."""
        super().look_at(Table.trusted(table.names[:-1], table.matrix[:-1]) if len(table) > 1 else table)


NUMBER_OF_MEMBERS = mutant(
    "as-many-participants", "Values go out again to other clients, if they are as many.",
    Overheard(of_client=NumberOfMembers),
)  # fmt: skip
OLDER_ROUNDS = mutant(
    "older-rounds-again", "Values of an earlier round go out again.", Overheard(of_client=OlderRounds)
)
OTHER_VALUES = mutant(
    "other-values-again", "A round goes out again with other values.", Overheard(of_client=OtherValues)
)
EVERYTHING_AGAIN = mutant(
    "uploads-again-in-any-union", "Another union forgets what went out.", Overheard(of_client=EverythingAgain)
)
MEANS_GO_OUT = mutant(
    "means-go-out", "An upload that is asked for again is made of means.", Overheard(of_client=MeansGoOut)
)
TABLE_AS_IT_IS_NOW = mutant(
    "table-as-it-is-now",
    "An upload is made of the user's own table.",
    Overheard(of_client=TableAsItIsNow),
)
FIRST_CHUNK_AGAIN = mutant(
    "first-chunk-again", "The first chunk of an upload is made again of means.", Overheard(of_client=FirstChunkAgain)
)
BEGINNING_OF_VALUES = mutant(
    "beginning-of-values", "Only the first rows of what went out are remembered.", filling(BeginningOfValues)
)
BEGINNING_OF_GRID = mutant(
    "beginning-of-grid", "How coarse a table is depends on its beginning alone.", filling(BeginningOfGrid)
)
