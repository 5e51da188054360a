"""Evidence for the privacy claims, as programs that a reviewer can run: `secea audit`.

A `Claim` is a sentence and a check of it. A check works on the product's own functions and raises an `Objection` where
the claim does not hold. A `Mutant` is the product with one protection taken away: on it the audit must object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from secea.errors import SecEAError


class Objection(SecEAError):
    """A claim does not hold; says in which case."""


@dataclass(frozen=True)
class Claim:
    """What is claimed, how it is checked, and the check: it returns how many cases it tried, or raises `Objection`."""

    name: str
    """A few words with hyphens: how the claim is named in options and tests."""
    claim: str
    """One sentence that a reviewer understands."""
    method: str
    """exact view, attack, statistics, record."""
    check: Callable[[], int]


@dataclass(frozen=True)
class Mutant:
    """A broken variant: `applied()` is a context within which one protection is missing."""

    name: str
    missing: str
    """What is taken away, in a sentence."""
    applied: Callable[[], AbstractContextManager[object]]
    caught_by: tuple[str, ...]
    """Names of claims that must object."""


@dataclass(frozen=True)
class Finding:
    """What the check of one claim found."""

    claim: str
    method: str
    cases: int
    ok: bool
    objection: str = ""
    name: str = ""


def examine(claims: Sequence[Claim], mutant: Mutant | None = None) -> Iterator[Finding]:
    """Check one claim after the other, on the product or on a mutant.

    A protocol that breaks off with an error of its own does not keep what is claimed of it either. A mutant may break
    anything, in any way; the product must not raise what is not its own.
    """
    for claim in claims:
        try:
            with mutant.applied() if mutant else nullcontext():
                cases = claim.check()
        except Objection as objection:
            yield Finding(claim.claim, claim.method, 0, ok=False, objection=str(objection), name=claim.name)
        except SecEAError as error:
            fault = f"the protocol breaks off: {error}"
            yield Finding(claim.claim, claim.method, 0, ok=False, objection=fault, name=claim.name)
        except Exception as error:  # a mutant may break anything
            if mutant is None:
                raise
            fault = f"nothing works any more: {type(error).__name__}: {error}"
            yield Finding(claim.claim, claim.method, 0, ok=False, objection=fault, name=claim.name)
        else:
            yield Finding(claim.claim, claim.method, cases, ok=True, name=claim.name)
