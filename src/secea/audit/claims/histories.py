"""A claim about whole federations of the form "keyed": after whatever happened, a round is what is specified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.histories import Case, Told, lived
from secea.audit.mutants import epochs
from secea.audit.mutants import histories as mutants
from secea.audit.standing import standing_in

ROUNDS: Final = 8
CASES: Final = (
    Case(1, 4, 2, ROUNDS, dim=9, odd=True),
    Case(2, 5, 1, ROUNDS, more={"dropouts": 2}),
    Case(3, 2, 1, ROUNDS, names=5),
    Case(4, 3, 1, ROUNDS, dim=9, more={"min_owners": 2, "max_abs": 1000.0}),
    Case(5, 4, 1, ROUNDS, more={"max_weight": 30, "min_owners": 3}),
    Case(6, 4, 1, ROUNDS, more={"partial": True, "dropouts": 1}),
    Case(7, 5, 2, ROUNDS, more={"noise": 0.125, "precision": 40, "min_owners": 2}),
    Case(8, 5, 1, ROUNDS, more={"noise": 1e-4, "dropouts": 1}),
    Case(9, 3, 1, ROUNDS, names=5, more={"max_weight": 9, "precision": 34, "dropouts": 1, "max_abs": 0.75}),
)
"""Every option, every kind of field, and rows that are long enough for a grid of their own."""


TOGETHER: Final[Mapping[str, Any]] = {
    "CHUNK_BYTES": 300, "BLOCK_VALUES": 8, "NAMES_AT_ONCE": 3, "PEELED_AT_ONCE": 331, "_PIECE": 2, "_PIECE_BYTES": 64,
    "_ZEROS": memoryview(bytes(40)),
}  # fmt: skip
"""What is worked on together: loops fall into blocks in tiny federations as they do in large ones."""


@claim(
    "record",
    KEYED,
    mutants=(
        mutants.ROWS_BY_NUMBER, mutants.GRID_OF_NOW, mutants.LAST_ROW, mutants.MIDDLE_OF_ALL, mutants.NAMES_IN_BLOCKS,
        mutants.LONG_NAMES, mutants.CAP_OF_64, mutants.GRID_ASIDE, epochs.CHANGES_FORGOTTEN,
    ),
)  # fmt: skip
def lives_as_specified(subject: Subject) -> int:
    """Keyed: whatever happened before, every byte of a round and every mean is what the specification makes of it.

    Federations with each option live for some rounds, with other tables, orders and types of them, other names,
    absences, restarts, losses in every phase, lost rounds, and epochs and mask keys that are made again. What happens
    is drawn from a number; what is sent, read and told to users is made again in plain integers.
    """
    rounds = 0
    with standing_in({}, **TOGETHER):
        for case in CASES:
            for more in range(5 if subject.thorough else 1):
                try:
                    rounds += lived(subject, replace(case, seed=case.seed + 99 * more))
                except Told as told:
                    raise Objection(f"{told}; the life of {case}") from None
    return rounds
