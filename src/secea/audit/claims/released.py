"""A claim about the form "keyed": what was trained in one round goes out once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.mutants import released as mutants
from secea.audit.standing import standing_in
from secea.errors import SERVER, RoundLost
from secea.forms.keyed.client import KeyedClient
from secea.table import Table, as_table
from secea.testing import Parties
from secea.wire.messages import Buffer, Header

Tables = list[dict[str, NDArray[np.float64]]]
CLIENTS: Final = 5
ME: Final = 1
"""The client that is asked for something again."""


def _tables(shift: float) -> Tables:
    rng = np.random.default_rng(CLIENTS)
    return [{name: rng.normal(size=2) + shift for name in own} for own in ("abc", "bcd", "ace", "bd", "ae")]


def _asked(parties: Parties, members: Sequence[int], table: dict[str, NDArray[np.float64]], number: int) -> bool:
    """Whether a client contributes this table for training round `number`, in a union of these members."""
    parties.union(members)
    parties.server.begin(parties.session.form.ready_phase, members)
    parties.exchange.deliver()
    try:
        parties.clients[ME].contribute(table, number)
    except RoundLost:
        return False
    return True


def _went_out(subject: Subject, dropouts: int) -> tuple[Parties, Tables, Tables]:
    """Two training rounds with four of five clients."""
    first, second = _tables(0.0), _tables(1.0)
    parties = subject.parties(first, collusion=1, dropouts=dropouts)
    parties.setup()
    parties.union(range(4))
    for tables in (first, second):
        parties.round([*tables[:4], None])
    return parties, first, second


@claim(
    "attack",
    KEYED,
    mutants=(mutants.NUMBER_OF_MEMBERS, mutants.OLDER_ROUNDS, mutants.OTHER_VALUES, mutants.EVERYTHING_AGAIN),
)
def released_once(subject: Subject) -> int:
    """Keyed: what was trained in a round goes out again only unchanged and to the same clients, or not at all.

    Else the difference of two sums is one client's row, to an owner in league with the server.
    """
    first, second = _tables(0.0), _tables(1.0)
    others = {"the same number of other clients": (0, 1, 2, 4), "fewer": (0, 1, 3), "more": (0, 1, 2, 3, 4)}
    cases = {f"to {who}": (members, second, 2) for who, members in others.items()}
    cases["of an earlier round"] = ((0, 1, 2, 3), first, 1)
    cases["of an earlier round to others"] = ((0, 1, 2, 4), first, 1)
    cases["with other values"] = ((0, 1, 2, 3), _tables(2.0), 2)
    for dropouts in (0, 1):
        for how, (members, tables, number) in cases.items():
            parties, _, _ = _went_out(subject, dropouts)
            if len(members) < CLIENTS - dropouts and dropouts:
                continue  # too few to take part
            if _asked(parties, members, tables[ME], number):
                raise Objection(f"D={dropouts}: a client uploads what it trained again, {how}")
        parties, _, _ = _went_out(subject, dropouts)
        if _asked(parties, (0, 1, 2, 3), second[ME], 2) is bool(dropouts):
            raise Objection(
                f"D={dropouts}: unchanged, to the same clients, it {'goes' if dropouts else 'does not go'} out"
            )
    return 2 * len(cases) + 2


def _chunk_of(message: Buffer, kinds: Any) -> int:
    return Header.parse(message, SERVER, kinds).chunk


@claim("record", KEYED, mutants=(mutants.MEANS_GO_OUT, mutants.TABLE_AS_IT_IS_NOW, mutants.FIRST_CHUNK_AGAIN))
def one_upload(subject: Subject) -> int:
    """Keyed: asked as often as the server likes, a client makes one upload, whatever became of its table meanwhile.

    Means take the place of rows as they arrive, and users train on. Another row under the same masks would show the
    difference.
    """
    cases = 0
    with standing_in({}, CHUNK_BYTES=64):
        tables = _tables(0.0)
        given = [as_table(table) for table in tables]
        parties = subject.parties(tables, collusion=1)
        parties.setup()
        parties.contribute(given)
        parties.server.begin(parties.session.form.round_phase, range(CLIENTS))
        parties.exchange.deliver()
        sent = {n: {_chunk_of(m, subject.form.kinds): bytes(m) for m in c.outbox()} for n, c in parties.clients.items()}
        if min(map(len, sent.values())) < 3:
            raise Objection("an upload does not fall into chunks")
        for number in range(len(sent[0])):
            for table in given:
                table.matrix[:] = np.roll(table.matrix, 1, axis=0) + 0.25
            for n, client in parties.clients.items():
                for message in client.outbox():
                    chunk = _chunk_of(message, subject.form.kinds)
                    if bytes(message) != sent[n][chunk]:
                        raise Objection(f"client {n} makes chunk {chunk} of its upload anew when {number} are answered")
                    cases += 1
            for n in parties.clients:
                parties.server.receive(n, sent[n][number])
            if number + 1 < len(sent[0]):
                parties.exchange.deliver()
    return cases


FINE: Final = 2.0**-9
"""The step of a table of eighths in which one number is finer than the others."""


def _coarse(rows: int, dim: int) -> NDArray[np.float64]:
    return np.ldexp(np.random.default_rng(rows).integers(-200, 200, (rows, dim)).astype(np.float64), -3)


def _step(part: KeyedClient, table: Table) -> float:
    """How coarse a table is, if it is the first of a session."""
    part.restore(part.plain() | {"grid": None})
    part.tables.look_at(table)
    assert part.tables.grid is not None
    return part.tables.grid[1]


@claim("record", KEYED, mutants=(mutants.BEGINNING_OF_VALUES, mutants.BEGINNING_OF_GRID))
def every_number(subject: Subject) -> int:
    """Keyed: every number of a table counts, wherever it is: for what went out, and for how coarse the table is.

    Tables are looked at in blocks. One that were left out could change and go out again, or would be filled too widely
    or too little.
    """
    parties = subject.parties(_tables(0.0), collusion=1)
    part = parties.clients[ME].part
    assert isinstance(part, KeyedClient)
    small, large = _coarse(60, 4), _coarse(3, 1 << 16)  # more than one block of the usual size
    places = [(small, 7, row, column) for row in range(60) for column in range(4)]
    places += [(large, grid.BLOCK_VALUES, row, column) for row in range(3) for column in (0, -1)]
    for matrix, together, row, column in places:
        with standing_in({}, BLOCK_VALUES=together):
            names, rows = tuple(range(len(matrix))), np.arange(len(matrix), dtype=np.int32)
            _step(part, Table.trusted(names, matrix))
            before = part.tables.fingerprint(Table.trusted(names, matrix), rows, 1)
            other = matrix.copy()
            other[row, column] += FINE
            if part.tables.fingerprint(Table.trusted(names, other), rows, 1) == before:
                raise Objection(f"a table that differs in row {row}, column {column} counts as the one that went out")
            if _step(part, Table.trusted(names, other)) != FINE:
                raise Objection(f"how fine the number in row {row}, column {column} is goes unnoticed")
    return len(places)
