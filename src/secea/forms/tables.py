"""What every form asks of a client's table."""

from __future__ import annotations

from secea.arithmetic import fixedpoint
from secea.errors import TableError, party
from secea.params import Params
from secea.table import Name, Table


def checked(given: Table, due: tuple[Name, ...], params: Params, number: int, *, known: bool = False) -> Table:
    """The table of client `number`, if it has the names that are due, and every value is in range.

    `known`: a table with these names was checked before.
    """
    if not known and tuple(given.names) != due and set(given.names) != set(due):
        unlike = min(set(given.names) ^ set(due), key=repr)
        where = "the set-up, but not in the table" if unlike in due else "the table, but not in the set-up"
        raise TableError(f"{party(number)}: entity {unlike!r} is in {where} of this round")
    try:
        fixedpoint.check_range(given.matrix, given.names, params.max_abs)
    except TableError as error:
        raise TableError(f"{party(number)}: {error}") from None
    return given
