"""Claims about both forms: what people compare before they start, and whom the server may call members."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.attacks.stage import word
from secea.audit.mutants import common as mutants
from secea.engines.exchange import Tap
from secea.engines.files import key_fingerprint
from secea.errors import SERVER, ProtocolError
from secea.params import Params
from secea.party.phases import Common
from secea.party.session import Session
from secea.wire.keys import Roster
from secea.wire.messages import Buffer, Header

BITS: Final = 160
PARAMS: Final[Mapping[str, Any]] = {
    "dim": 5, "collusion": 2, "dropouts": 1, "max_abs": 32.0, "precision": 23, "sigma": 41, "rounds": 999,
    "key_bits": 4096, "max_entities": 11, "max_union": 31, "normalize": "strip",
}  # fmt: skip
"""Other parameters than those of `session_of`."""
OF_MEANS: Final[Mapping[str, Any]] = {"min_owners": 2, "max_weight": 9, "partial": True, "noise": 0.5}
"""Parameters of the form "keyed" alone (K11)."""
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    KEYED: {"min_participants": 4, "max_new_entities": 3, "max_updates": 15},
    PAILLIER: {"queries": "full"},
}
"""Other options than a form has by itself."""


def key_of(*what: object) -> bytes:
    """A public key of somebody; nobody signs here."""
    return hashlib.sha256(repr(what).encode()).digest()


def changed(key: bytes, i: int) -> bytes:
    """A key with another byte."""
    return key[:i] + bytes([key[i] ^ 1]) + key[i + 1 :]


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
        for name, value in OF_MEANS.items():
            yield name, session_of(subject, **{name: value})
    made = session_of(subject)
    roster = made.roster
    keys, names = roster.clients, roster.names
    yield "the order of clients", replace(made, roster=replace(roster, clients=(*keys[1:], keys[0])))
    yield "a name of a client", replace(made, roster=replace(roster, names=(*names[:-1], "another")))
    for i in range(len(roster.server)):
        yield f"byte {i} of the server's key", replace(made, roster=replace(roster, server=changed(roster.server, i)))
        for n, key in enumerate(keys):
            clients = (*keys[:n], changed(key, i), *keys[n + 1 :])
            yield f"byte {i} of client {n}'s key", replace(made, roster=replace(roster, clients=clients))


def rank(rows: list[int]) -> int:
    """The rank of a matrix of bits."""
    reduced: list[int] = []
    for row in rows:
        for one in reduced:
            row = min(row, row ^ one)
        if row:
            reduced.append(row)
    return len(reduced)


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(
        mutants.FEW_DIGITS,
        mutants.SAME_DIGITS,
        mutants.SERVER_NOT_PINNED,
        mutants.SHORT_KEYS,
        mutants.RULE_NOT_BOUND,
        mutants.OPTIONS_NOT_BOUND,
    ),
)
def fingerprints(subject: Subject) -> int:
    """Both forms: a fingerprint shows 160 bits of everything that the parties must agree on.

    Two sessions that differ in one thing have other hashes and fingerprints, and the bits of many are independent. The
    same for fingerprints of rosters and of keys.
    """
    sessions = [("nothing", session_of(subject)), *others(subject, subject.form.name)]
    for of in ("hash", "fingerprint"):
        found = dict[object, str]()
        for what, session in sessions:
            if (other := found.setdefault(getattr(session, of), what)) != what:
                raise Objection(f"sessions that differ in {what} and in {other} have one {of}")
    kinds: dict[str, Callable[[int], str]] = {
        "a session": lambda seed: session_of(subject, seed).fingerprint,
        "a roster": lambda seed: session_of(subject, seed).roster.fingerprint,
        "a key": lambda seed: key_fingerprint(key_of(seed)),
    }
    for what, fingerprint in kinds.items():
        bits = rank([int(fingerprint(seed).replace(" ", ""), 16) for seed in range(BITS + 80)])
        if bits < BITS:
            raise Objection(f"a fingerprint of {what} has {bits} bits, not {BITS}")
    return len(sessions) + len(kinds) * (BITS + 80)


# -------------------------------------------------------------------------------------------------------------- members

CLIENTS: Final = 5
WRONG: Final = {
    "somebody twice": ((0, 0, 1, 2, 3, 4), (0, 1, 2, 2, 3, 4), (0, 1, 2, 3, 4, 4)),
    "somebody twice instead of others": ((0, 0, 1, 1, 1), (0, 1, 1), (0, 0, 1, 1, 2, 2), (2, 2, 3, 4)),
    "members in another order": ((1, 0, 2, 3, 4), (0, 1, 2, 4, 3), (4, 3, 2, 1, 0)),
    "somebody who does not exist": ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 300), (0, 1, 2, 3, 4, SERVER)),
    "nobody, or one client alone": ((), (0,), (3,)),
}
"""Members that nobody may believe in."""


def without_words(subject: Subject) -> Tap:
    """Hellos pass, and the server's word on who takes part does not."""

    def tap(sender: int, receiver: int, message: Buffer) -> tuple[Buffer, ...]:
        return () if Header.parse(message, sender, subject.form.kinds).kind.name == Common.BEGIN else (message,)

    return tap


@claim("attack", KEYED, PAILLIER, mutants=(mutants.MEMBERS_TWICE, mutants.ANY_LIFE, mutants.WITHOUT_US))
def announcements(subject: Subject) -> int:
    """Both forms: a client takes part only where each member is named once, in order, in the life that it has met.

    In a set-up, in a union, and in training.
    """
    tables = [{name: [1.0] for name in "abc"}] * CLIENTS
    cases, form = 0, subject.form
    for phase in dict.fromkeys((form.setup_phase, form.union_phase, form.ready_phase)):
        parties = subject.parties(tables, collusion=1)
        if not parties.session.row(phase).announced:
            continue
        if phase == form.setup_phase:
            parties.exchange.tap = without_words(subject)
            parties.exchange.greet()
            parties.server.begin(phase, range(CLIENTS))
            parties.exchange.deliver()
        else:
            parties.setup()
        lives = {n: parties.server.link.incarnation(n) for n in range(CLIENTS)}
        right = [*lives.items()]
        words = [
            (what, [(n, lives.get(n, bytes(16))) for n in members]) for what, some in WRONG.items() for members in some
        ]
        for n in range(CLIENTS):
            fewer = [each for each in right if each[0] != n]
            words += [("members without us", fewer)] if phase != form.end_phase else []
            words += [("another life of somebody", sorted([*fewer, (n, bytes(16))]))]
        for n, client in parties.clients.items():
            numbers: dict[str, Any] = form.next_numbers(phase, client.at, again=False)
            for what, members in words:
                if what == "members without us" and n in dict(members):
                    continue
                cases += 1
                try:
                    client.receive(word(parties, phase, members, n, **numbers))
                except ProtocolError:
                    continue
                raise Objection(f"client {n} takes part in the phase '{phase}' with {what}")
            client.receive(word(parties, phase, right, n, **numbers))
            assert client.at.phase == phase
    return cases
