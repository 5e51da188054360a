"""The forms of the protocol on the new core, each readable on its own."""

from __future__ import annotations

from typing import Final

from secea.errors import ParamsError
from secea.forms.keyed import Keyed
from secea.party.form import Form

FORMS: Final = {Keyed.name: Keyed}
NAMES: Final = tuple(FORMS)
DEFAULT: Final = Keyed.name
"""The form of whoever names none."""
CHOICES: Final = (*NAMES, "reciprocal", "paillier")
"""All forms that can be named, those of the old core last."""


def form_class(name: str) -> type[Keyed]:
    """The form of this name: a dataclass whose fields are its options."""
    return FORMS[name]


def form_of(choice: str | Form) -> Form:
    """The form that a user named, or chose with options of its own."""
    if isinstance(choice, str) and choice in FORMS:
        return FORMS[choice]()
    if isinstance(choice, str) or not hasattr(choice, "table") or isinstance(choice, type):
        raise ParamsError(f"form must be one of {', '.join(NAMES)}, or a form such as Keyed(), got {choice!r}")
    return choice


def is_new(choice: object) -> bool:
    """Whether a user's choice is a form of the new core; the others are the paper's."""
    return choice in NAMES if isinstance(choice, str) else hasattr(choice, "table")
