"""A claim about both forms: what people compare before they start leaves no room for another session."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.mutants import common as mutants
from secea.engines.files import key_fingerprint
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Roster

BITS: Final = 160
PARAMS: Final[Mapping[str, Any]] = {
    "dim": 5, "collusion": 2, "dropouts": 1, "max_abs": 32.0, "precision": 23, "sigma": 41, "rounds": 999,
    "key_bits": 4096, "max_entities": 11, "max_union": 31,
}  # fmt: skip
"""Other parameters than those of `session_of`."""
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    KEYED: {"min_participants": 4, "max_new_entities": 3, "max_updates": 15},
    PAILLIER: {"queries": "full"},
}
"""Other options than a form has by itself."""


def key_of(*what: object) -> bytes:
    """A public key of somebody; nobody signs here."""
    return hashlib.sha256(repr(what).encode()).digest()


def session_of(subject: Subject, seed: int = 0, options: Mapping[str, Any] | None = None, **more: Any) -> Session:
    """A session of five clients."""
    given: dict[str, Any] = {"clients": 5, "dim": 4, "collusion": 1, "max_entities": 10, "max_union": 30}
    roster = Roster(tuple(key_of(seed, n) for n in range(5)), key_of(seed, "server"))
    return subject.session(Params(**given | more), roster, replace(subject.form, **options or {}))  # type: ignore[type-var]


def others(subject: Subject, form: str) -> Iterator[tuple[str, Session]]:
    """Sessions that differ from `session_of` in one thing that the parties must agree on."""
    for name, value in PARAMS.items():
        yield name, session_of(subject, **{name: value})
    for name, value in OPTIONS[form].items():
        yield name, session_of(subject, options={name: value})
    if form == KEYED:
        yield "batch", session_of(subject, options={"batch": 3}, dropouts=1)
    made = session_of(subject)
    roster = made.roster
    keys, names = roster.clients, roster.names
    yield "the server", replace(made, roster=replace(roster, server=key_of("another")))
    yield "the order of clients", replace(made, roster=replace(roster, clients=(*keys[1:], keys[0])))
    yield "a name of a client", replace(made, roster=replace(roster, names=(*names[:-1], "another")))
    for n in range(len(keys)):
        clients = (*keys[:n], key_of("another"), *keys[n + 1 :])
        yield f"client {n}", replace(made, roster=replace(roster, clients=clients))


def rank(rows: list[int]) -> int:
    """The rank of a matrix of bits."""
    reduced: list[int] = []
    for row in rows:
        for one in reduced:
            row = min(row, row ^ one)
        if row:
            reduced.append(row)
    return len(reduced)


@claim("record", KEYED, PAILLIER, mutants=(mutants.FEW_DIGITS, mutants.SAME_DIGITS, mutants.SERVER_NOT_PINNED))
def fingerprints(subject: Subject) -> int:
    """Both forms: a fingerprint shows 160 bits of everything that the parties must agree on.

    Two sessions that differ in one thing have other hashes and fingerprints, and the bits of many are independent. The
    same for fingerprints of rosters and of keys.
    """
    sessions = [("nothing", session_of(subject)), *others(subject, subject.form.name)]
    for (_, one), (what, two) in combinations(sessions, 2):
        if one.hash == two.hash or one.fingerprint == two.fingerprint:
            raise Objection(f"two sessions that differ in {what} have one fingerprint")
    kinds: dict[str, Callable[[int], str]] = {
        "a session": lambda seed: session_of(subject, seed).fingerprint,
        "a roster": lambda seed: session_of(subject, seed).roster.fingerprint,
        "a key": lambda seed: key_fingerprint(key_of(seed)),
    }
    for what, fingerprint in kinds.items():
        found = rank([int(fingerprint(seed).replace(" ", ""), 16) for seed in range(BITS + 80)])
        if found < BITS:
            raise Objection(f"a fingerprint of {what} has {found} bits, not {BITS}")
    return len(sessions) + len(kinds) * (BITS + 80)
