"""The forms of the protocol, each readable on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Literal, TypeAlias

from secea.errors import ParamsError
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.forms.paillier.form import QueriesName as QueriesName
from secea.party.form import Form

FormName: TypeAlias = Literal["keyed", "paillier"]
"""The names, for editors and type checkers."""
FORMS: Final[Mapping[str, type[Keyed | Paillier]]] = {Keyed.name: Keyed, Paillier.name: Paillier}
NAMES: Final = tuple(FORMS)
DEFAULT: Final[FormName] = Keyed.name
"""The form of whoever names none."""


def options_of(name: str) -> tuple[str, ...]:
    """The options that a form has."""
    return tuple(each.name for each in fields(FORMS[name]))


def form_of(choice: str | Form, **options: Any) -> Form:
    """The form that a user named, with the options that are not None; or the one that was made already."""
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(choice, str) and choice in FORMS:
        if unknown := sorted(given.keys() - options_of(choice)):
            raise ParamsError(f"the form {choice!r} has no option {unknown[0]!r}")
        return FORMS[choice](**given)
    if isinstance(choice, str) or not hasattr(choice, "table") or isinstance(choice, type):
        raise ParamsError(f"form must be one of {', '.join(NAMES)}, or a form such as Keyed(), got {choice!r}")
    if given:
        name = min(given)
        raise ParamsError(f"give the option {name!r} to the form itself: {type(choice).__name__}({name}=...)")
    return choice
