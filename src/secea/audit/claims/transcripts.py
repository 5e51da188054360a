"""A claim about both forms as they are installed: they send what the code sent that was examined."""

from __future__ import annotations

import json

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
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
