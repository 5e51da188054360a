"""What every form asks of a client's table."""

from __future__ import annotations

from secea.arithmetic import fixedpoint
from secea.errors import TableError, party
from secea.names import Spelling
from secea.params import Params
from secea.table import Name, Table


def checked(
    given: Table, spelling: Spelling, due: tuple[Name, ...], params: Params, number: int, *, known: bool = False
) -> Table:
    """The table of client `number` with keys as names, if these are due and every value is in range.

    Errors have the client's own spelling of names. `known`: a table with these names was checked before.
    """
    spelled = spelling.table(given)
    if not known and spelled.names != due and set(spelled.names) != set(due):
        unlike = min(set(spelled.names) ^ set(due), key=str)
        where = "the set-up, but not in the table" if unlike in due else "the table, but not in the set-up"
        raise TableError(f"{party(number)}: entity {spelling.names([unlike])[0]!r} is in {where} of this round")
    try:
        fixedpoint.check_range(given.matrix, given.names, params.max_abs)
    except TableError as error:
        raise TableError(f"{party(number)}: {error}") from None
    return spelled
