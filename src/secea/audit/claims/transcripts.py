"""Claims about both forms as they are installed: they send and believe what the code did that was examined."""

from __future__ import annotations

import json

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit import begins as believed
from secea.audit.mutants import common, epochs
from secea.audit.mutants import derivations as mutants
from secea.audit.transcripts import FILE, STORIES, told


@claim("record", KEYED, PAILLIER, mutants=(mutants.ONE_NONCE, mutants.PUBLIC_NONCE))
def transcripts(subject: Subject) -> int:
    """Both forms: with the same draws all parties send, byte for byte, what is recorded of the code that was examined.

    Set-ups, rounds, other names, absences, restarts, drop-outs, handovers. It does not say that this is right: other
    claims do. It says that nothing else was slipped in.
    """
    recorded, cases = json.loads(FILE.read_text(encoding="utf-8")), 0
    for story in STORIES[subject.form.name]:
        found, right = told(subject, story), recorded[story.__name__]
        if other := sorted(kind for kind in found.keys() | right.keys() if found.get(kind) != right.get(kind)):
            raise Objection(f"{story.__name__}: {', '.join(other).lower()} are not as recorded")
        cases += len(found)
    return cases


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(
        common.ANY_NUMBERS,
        epochs.SPENT_LATE,
        epochs.EARLIER_EPOCH,
        epochs.FIRST_NAMES_LATER,
        epochs.DEALT_AGAIN,
        epochs.ROUNDS_BACK,
        epochs.ANY_PHASE,
    ),
)
def begins(subject: Subject) -> int:
    """Both forms: at every point of its life a client lets the server begin what is recorded, and nothing else.

    Every phase, of now and of the next time, of this epoch of names and of others, with all members and without one; in
    set-ups, epochs of names, unions, rounds and openings, and after each of them was broken off. The record is short
    enough to be read beside the specification.
    """
    recorded, cases = json.loads(believed.FILE.read_text(encoding="utf-8")), 0
    for story in believed.STORIES[subject.form.name]:
        found, right = story(subject), recorded[story.__name__]
        if found.keys() != right["points"].keys():
            raise Objection(f"{story.__name__}: clients come to other points than recorded")
        for where, number in right["points"].items():
            if other := sorted(set(found[where]) ^ set(right["believed"][number])):
                said = "believed" if other[0] in found[where] else "refused"
                raise Objection(f"{story.__name__}, {where}: '{other[0]}' is {said}")
        cases += len(found)
    return cases
