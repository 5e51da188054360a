"""Claims about what is signed: a signature holds for what it was made for, and for nothing else."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.mutants import signed as mutants
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed import masking
from secea.party.phases import Agreement
from secea.wire.keys import Hello, Identity, Roster
from secea.wire.messages import DIGEST_BYTES

IDENTITIES: Final = tuple(Identity(bytes([n]) * 32) for n in range(1, 5))
ROSTER: Final = Roster(tuple(each.public for each in IDENTITIES[:3]), IDENTITIES[3].public)
SESSION: Final = bytes(range(32))


def _hellos() -> int:
    """Change every byte of a hello, and its sender."""
    cases = 0
    for sender, identity in ((0, IDENTITIES[0]), (2, IDENTITIES[2]), (SERVER, IDENTITIES[3])):
        extra = b"" if sender == SERVER else b"what a form adds"
        life = bytes(range(DIGEST_BYTES, 2 * DIGEST_BYTES))
        real = Hello.make(identity, sender, SESSION, life, bytes(range(32)), extra).to_bytes()
        Hello.verify(real, sender, ROSTER, SESSION, len(extra))
        for at in range(len(real)):
            spoilt = real[:at] + bytes([real[at] ^ 1]) + real[at + 1 :]
            for session in (SESSION, spoilt[: len(SESSION)]):  # of whatever session it says
                with suppress(ProtocolError):
                    Hello.verify(spoilt, sender, ROSTER, session, len(extra))
                    raise Objection(f"a hello whose byte {at} was changed on its way is taken")
                cases += 1
        for other in {0, 1, 2, SERVER} - {sender}:
            with suppress(ProtocolError):
                Hello.verify(real, other, ROSTER, SESSION, len(extra) if other != SERVER else 0)
                raise Objection(f"a hello of {sender} is taken as one of {other}")
            cases += 1
    return cases


def _votes() -> int:
    """Change each part of what a vote is for. No two of these may be one statement."""
    at = Agreement(members=(0, 1, 2), participants=(0, 1, 2, 3), context=bytes(range(DIGEST_BYTES)), round=3)
    others = {
        "the session": (bytes(32), at, (0, 1)),
        "the list L, or the round q": (SESSION, replace(at, context=bytes(DIGEST_BYTES)), (0, 1)),
        "who contributed": (SESSION, replace(at, members=(0, 1)), (0, 1)),
        "who contributed, by one number": (SESSION, replace(at, members=(0, 1, 3)), (0, 1)),
        "the members": (SESSION, replace(at, participants=(0, 1, 2)), (0, 1)),
        "the noise list": (SESSION, at, (0, 2)),
        "how many noise clients there are": (SESSION, at, (0,)),
        "where a list ends": (SESSION, replace(at, members=(0, 1, 2, 0)), (1,)),
    }
    identity = IDENTITIES[0]
    said = masking.statement(SESSION, at, (0, 1))
    vote = identity.sign(said)
    if not masking.voted(identity.public, vote, said):
        raise Objection("a vote does not count for what was signed")
    for what, parts in others.items():
        if masking.voted(identity.public, vote, masking.statement(*parts)):
            raise Objection(f"a vote counts for another opening, which differs in {what}")
    for n, bit in ((0, 0), (31, 7), (32, 0), (63, 2)):
        spoilt = vote[:n] + bytes([vote[n] ^ 1 << bit]) + vote[n + 1 :]
        if masking.voted(identity.public, spoilt, said):
            raise Objection("a vote that was changed on its way counts")
    if masking.voted(IDENTITIES[1].public, vote, said):
        raise Objection("a vote counts as another client's")
    return len(others) + 6


@claim(
    "attack",
    KEYED,
    mutants=(
        mutants.HELLO_WITHOUT_KEY, mutants.HELLO_OF_ANY_LIFE, mutants.VOTES_OF_ANY_ROUND, mutants.VOTES_FOR_ANY_NOISE,
    ),
)  # fmt: skip
def signatures_cover(subject: Subject) -> int:
    """Keyed: a signature covers every byte of a hello, and a vote all that an opening is about: nothing else counts.

    Else a server could put its own keys into hellos, or show groups of clients different sums by votes of others.
    """
    del subject  # what stands in for it is in place
    return _hellos() + _votes()
