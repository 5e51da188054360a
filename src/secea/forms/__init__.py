"""The forms of the protocol on the new core, each readable on its own."""

from __future__ import annotations

from typing import Final

from secea.errors import ParamsError
from secea.forms.keyed import Keyed
from secea.party.form import Form

NAMES: Final = (Keyed.name,)


def form_of(choice: str | Form) -> Form:
    """The form that a user named, or chose with options of its own."""
    if not isinstance(choice, str):
        return choice
    if choice not in NAMES:
        raise ParamsError(f"form must be one of {', '.join(NAMES)}, got {choice!r}")
    return Keyed()


def is_new(choice: object) -> bool:
    """Whether a user's choice is a form of the new core; the others are the paper's."""
    return choice in NAMES if isinstance(choice, str) else hasattr(choice, "rows")
