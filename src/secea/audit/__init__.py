"""Evidence for the privacy claims, as programs that a reviewer can run: `secea audit`.

A `Claim` is a sentence about what an adversary cannot learn, and a check of it. The check runs the parties themselves
and raises an `Objection` where the claim does not hold. A `Mutant` is a form with one protection taken away: the claims
that name it must object. A federation that stops early is not an objection.

Claims are functions under `@claim`; `registry` gathers them. A check gets a `Subject`: the product, or a mutant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from secea.audit.standing import Within, attributes_stand_in, standing_in
from secea.forms.paillier import Paillier
from secea.party.client import Client
from secea.party.form import Form
from secea.party.session import Session
from secea.table import TableLike
from secea.testing import Parties, WatchedSession

KEYED: Final = "keyed"
PAILLIER: Final = "paillier"
FORMS: Final = (KEYED, PAILLIER)
METHODS: Final = ("exact view", "attack", "statistics", "record")
SMALL_KEYS: Final[Mapping[str, Any]] = {"key_bits": 256, "insecure_small_keys": True}
"""Paillier keys that cost little: no check here is about their size."""


class Objection(Exception):
    """A claim does not hold. The text says in which case."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What the audit checks: a form and its parties, as they are installed or with a protection taken away."""

    form: Form
    session: type[Session] = WatchedSession
    client: type[Client] = Client
    instead: Mapping[Any, Any] = field(default_factory=dict, repr=False)
    """Functions and classes of the package, and what stands in their place, wherever they are used."""
    within: tuple[Within, ...] = field(default=(), repr=False)
    """What replaces methods, and generators that a form does not choose."""
    thorough: bool = False
    """More cases, where a claim has them."""
    first: tuple[str, ...] = ()
    """Which deviations of a server are tried before all others (`attacks.deviating`)."""

    def parties(self, tables: Sequence[TableLike], **more: Any) -> Parties:
        """All parties of a federation with these tables; `more` is what `Parties.of` takes."""
        small = SMALL_KEYS if isinstance(self.form, Paillier) else {}
        return Parties.of(tables, self.form, **{**small, "session": self.session, "client": self.client, **more})


@dataclass(frozen=True, eq=False)
class Mutant:
    """The product with one protection taken away."""

    name: str
    missing: str
    """What is taken away, in a sentence."""
    subjects: Mapping[str, Subject] = field(repr=False)
    """The subject for each form, by the form's name."""


Check = Callable[[Subject], int]
"""Gives the number of cases that it tried, or raises an `Objection`."""
Rows = Callable[[Subject], Sequence[Mapping[str, str | int]]]
"""Gives the rows of a table: what was tried, in figures."""


@dataclass(frozen=True, eq=False)
class Claim:
    """What is claimed of which forms, how it is checked, the check, and the mutants to which it must object."""

    name: str
    claim: str
    method: str
    forms: tuple[str, ...]
    check: Check = field(repr=False)
    mutants: tuple[Mutant, ...] = field(repr=False)
    title: str = ""
    table: Rows | None = field(default=None, repr=False)
    """What was tried, in figures, under this title."""


def claim(
    method: str, *forms: str, mutants: Sequence[Mutant], title: str = "", table: Rows | None = None
) -> Callable[[Check], Claim]:
    """A function that checks a claim about these forms: its docstring begins with the claim, and names the form."""
    assert method in METHODS, method

    def made(check: Check) -> Claim:
        sentence, name = (inspect.getdoc(check) or "").partition("\n\n")[0], getattr(check, "__name__", "")

        def checked(subject: Subject) -> int:
            with standing_in(subject.instead), attributes_stand_in(*subject.within):
                return check(subject)

        return Claim(name.replace("_", "-"), sentence, method, forms, checked, tuple(mutants), title, table)

    return made


@dataclass(frozen=True)
class Finding:
    """What the check of one claim about one form found."""

    name: str
    form: str
    claim: str
    method: str
    cases: int = 0
    ok: bool = True
    objection: str = ""
    broke_off: str = ""
    """The error with which the federation, or the check, ended before there was a finding."""
    title: str = ""
    table: Sequence[Mapping[str, str | int]] = ()
    """What was tried, in figures, where the claim has a table."""


def examine(claims: Sequence[Claim], subjects: Mapping[str, Subject]) -> Iterator[Finding]:
    """Check one claim after the other, for each of the forms that there is a subject of."""
    for each in claims:
        for form in each.forms:
            if form not in subjects:
                continue
            found = Finding(each.name, form, each.claim, each.method, title=each.title)
            try:
                cases = each.check(subjects[form])
                yield replace(found, cases=cases, table=each.table(subjects[form]) if each.table else ())
            except Objection as objection:
                yield replace(found, ok=False, objection=str(objection))
            except Exception as error:  # whatever it is, the claim was not checked, and that is said
                yield replace(found, ok=False, broke_off=f"{type(error).__name__}: {error}")
