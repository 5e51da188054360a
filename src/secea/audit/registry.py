"""All claims and all mutants. A module of claims has `CLAIMS`, and `MUTANTS` if it has any; here they are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import ModuleType

from secea.audit import (
    Claim,
    Mutant,
    attacks,
    decryption,
    lowbits,
    mutants,
    noise,
    records,
    server_views,
    statistics,
    views,
)

MODULES: tuple[ModuleType, ...] = (
    views, decryption, server_views, noise, lowbits, records, attacks, statistics, mutants,
)  # fmt: skip


def gathered() -> dict[str, Claim]:
    """By name, in the order of the modules."""
    found: dict[str, Claim] = {}
    for module in MODULES:
        for claim in getattr(module, "CLAIMS", ()):
            assert claim.name not in found, f"two claims are named {claim.name}"
            found[claim.name] = claim
    return found


def all_mutants() -> dict[str, Mutant]:
    """By name. Where several modules know a mutant by one name, all of them break what they know."""
    found: dict[str, Mutant] = {}
    for module in MODULES:
        for mutant in getattr(module, "MUTANTS", ()):
            known = found.get(mutant.name)
            found[mutant.name] = _both(known, mutant) if known else mutant
    return found


def _both(one: Mutant, other: Mutant) -> Mutant:
    def applied() -> AbstractContextManager[object]:
        stack = ExitStack()
        stack.enter_context(one.applied())
        stack.enter_context(other.applied())
        return stack

    caught_by: Sequence[str] = (*one.caught_by, *(name for name in other.caught_by if name not in one.caught_by))
    return Mutant(one.name, one.missing, applied, tuple(caught_by))
