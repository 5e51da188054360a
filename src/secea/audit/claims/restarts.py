"""A claim about restarts of the form "keyed": all state survives them but what is named here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.mutants import restarts as mutants
from secea.forms.keyed.client import KeyedClient
from secea.testing import Parties
from secea.wire.keys import Identity, Roster
from secea.wire.link import Link

FORGOTTEN: Final = frozenset(
    {
        "union", "round", "uploaded", "masking.batch",  # what masks are made of: one life only
        "naming.key.seed", "naming.key.hashes",  # an attempt at dealing is made again as a whole
        "naming.names.lists",  # the server sends lists again, and marks say which
        "naming.names.blinding",  # made again from its seed
        "naming._predecessor",  # the part of the session before has a life of its own
    }
)  # fmt: skip
"""What does not survive, by its place in the client's part."""
APART: Final = (
    "form",
    "params",
    "session",
    "numbers",
    "_entropy",
    "_roster",
    "link",
    "tick",
    "_order",
    "_known",
    "_hashed",
    "_last",
)
"""What no message changes, and caches."""


def _leaves(x: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in a part, by its place."""
    if isinstance(x, (Identity, Roster, Link)) or path.rpartition(".")[2] in APART:
        return
    own = type(x).__module__.startswith("secea.")
    slots = (
        {name: getattr(x, name) for each in type(x).__mro__ for name in getattr(each, "__slots__", ())} if own else {}
    )
    inner = {**getattr(x, "__dict__", {}), **slots} if own else {}
    for name, value in inner.items():
        yield from _leaves(value, f"{path}.{name}".lstrip("."))
    if not own:
        yield path, x.tobytes() if isinstance(x, np.ndarray) else x


def _state(part: KeyedClient) -> dict[str, Any]:
    return {place: value for place, value in _leaves(part) if not any(place.startswith(each) for each in FORGOTTEN)}


def _restarted(parties: Parties, n: int, when: str) -> int:
    """Restart a client, and object if it is another one after that."""
    part = parties.clients[n].part
    assert isinstance(part, KeyedClient)
    before, number = _state(part), parties.clients[n].at.numbers
    parties.restart(n)
    again = parties.clients[n].part
    assert isinstance(again, KeyedClient)
    after = _state(again)
    for place in before.keys() | after.keys():
        if before.get(place) != after.get(place):
            raise Objection(f"a client that restarts {when} forgets {place}")
    if parties.clients[n].at.numbers != number:
        raise Objection(f"a client that restarts {when} forgets which rounds and unions there were")
    if again.union is not None or again.masking.batch is not None or again.uploaded:
        raise Objection(f"a client that restarts {when} keeps what masks are made of")
    return len(before)


@claim("record", KEYED, mutants=(mutants.GRID_LOST, mutants.SUCCESSOR_LOST, mutants.MARKS_LOST, mutants.RELEASED_LOST))
def restarts(subject: Subject) -> int:
    """Keyed: a client that restarts, at any time, forgets nothing but what must not survive: what masks are made of."""
    rng = np.random.default_rng(9)
    tables = [{name: rng.normal(size=3).round(1) for name in own} for own in ("abc", "bcd", "ace")]
    parties, form = subject.parties(tables, collusion=1, dropouts=1), subject.form
    parties.setup()
    cases = _restarted(parties, 0, "after the set-up")
    parties.exchange.greet()
    parties.union(range(3))
    parties.round(tables)
    parties.clients[1].part.update(["b", "c", "x"])
    cases += sum(_restarted(parties, n, "after a round") for n in range(3))
    parties.exchange.greet()
    for until in ("confirm", "evaluate"):
        parties.exchange.run(form.names_phase, range(3), until=until)
        cases += sum(_restarted(parties, n, "while names are asked for") for n in range(3))
        parties.exchange.greet()
        parties.server.begin(form.names_phase, range(3))
    for n in range(3):
        naming = parties.clients[n].part.naming  # type: ignore[attr-defined]
        naming.successor, naming.past = os.urandom(32), os.urandom(32)
        cases += _restarted(parties, n, "between two sessions")
    return cases
