"""All claims and all mutants: claims are found in their modules, and mutants in the claims that name them."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from secea.audit import KEYED, PAILLIER, Claim, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.claims import (
    agreed,
    begun,
    chunks,
    common,
    compared,
    conduct,
    counts,
    derivations,
    deviating,
    discrete,
    elements,
    epochs,
    grids,
    histories,
    hosts,
    kept,
    lives,
    masks,
    names,
    numbers,
    options,
    paillier,
    paillier_attacks,
    quorums,
    randomness,
    refused,
    released,
    restarts,
    rogue,
    rolls,
    senders,
    signed,
    silent,
    sites,
    specified,
    spelling,
    streams,
    texts,
    transcripts,
    views,
    waiting,
)
from secea.audit.claims import keyed as keyed_claims
from secea.forms.paillier import Paillier

MODULES: Final[tuple[ModuleType, ...]] = (
    keyed_claims,
    views,
    options,
    discrete,
    masks,
    specified,
    histories,
    transcripts,
    conduct,
    derivations,
    deviating,
    silent,
    restarts,
    lives,
    released,
    kept,
    hosts,
    sites,
    rolls,
    names,
    elements,
    signed,
    epochs,
    waiting,
    quorums,
    spelling,
    numbers,
    counts,
    grids,
    common,
    compared,
    chunks,
    begun,
    senders,
    agreed,
    refused,
    texts,
    rogue,
    streams,
    randomness,
    paillier,
    paillier_attacks,
)


def product(*, thorough: bool = False) -> dict[str, Subject]:
    """Each form as it is installed; the server of "keyed" keeps what it opens."""
    return {KEYED: Subject(Overheard(), thorough=thorough), PAILLIER: Subject(Paillier(), thorough=thorough)}


def gathered() -> dict[str, Claim]:
    """All claims by name, those about the default form first."""
    found: dict[str, Claim] = {}
    for module in MODULES:
        for each in vars(module).values():
            if isinstance(each, Claim):
                assert found.setdefault(each.name, each) is each, f"two claims are named {each.name}"
    return found


def all_mutants() -> dict[str, Mutant]:
    """All mutants that a claim names, by name."""
    found: dict[str, Mutant] = {}
    for each in gathered().values():
        for mutant in each.mutants:
            assert found.setdefault(mutant.name, mutant) is mutant, f"two mutants are named {mutant.name}"
    return found


def caught_by() -> Mapping[str, tuple[str, ...]]:
    """For each mutant the names of the claims that must object to it."""
    return {name: tuple(c.name for c in gathered().values() if m in c.mutants) for name, m in all_mutants().items()}
