"""The form "keyed" with clients that forget something when they restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from secea.audit import Mutant
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.keyed import mutant
from secea.forms.keyed.client import KeyedClient


def forgetful(name: str, missing: str, forget: Callable[[dict[str, Any]], None]) -> Mutant:
    """A mutant whose clients save something else."""

    class Forgetful(KeyedClient):
        def plain(self) -> dict[str, Any]:
            """What survives a restart."""
            saved = super().plain()
            forget(saved)
            return saved

    return mutant(name, missing, Overheard(of_client=Forgetful))


GRID_LOST = forgetful(
    "grid-lost", "A client that restarts forgets how coarse its tables were.", lambda saved: saved.update(grid=None)
)
SUCCESSOR_LOST = forgetful(
    "successor-lost", "A client that restarts forgets that its key of names was handed over.",
    lambda saved: saved["naming"].update(successor=b""),
)  # fmt: skip
MARKS_LOST = forgetful(
    "marks-lost", "A client that restarts forgets which lists of names it confirmed.",
    lambda saved: saved["naming"].update(marks={}),
)  # fmt: skip
RELEASED_LOST = forgetful(
    "uploads-forgotten", "A client that restarts forgets what it uploaded, and to whom.",
    lambda saved: saved.update(released=(0, (), (), b"")),
)  # fmt: skip
