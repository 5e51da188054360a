"""Claims about a server that deviates, from everything that the program `attacks.deviating` tries on real clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.attacks.deviating import ADMITTED, Episode, played, table
from secea.audit.mutants import deviating as mutants
from secea.audit.mutants import keyed as keyed_mutants
from secea.audit.mutants import paillier as paillier_mutants
from secea.audit.mutants import views


def objected(subject: Subject, of: Callable[[Episode], Sequence[str]]) -> int:
    """How many clients were lied to. An `Objection` at the first deviation of which there is something to say."""
    cases = 0
    for episode in played(subject):
        if said := of(episode):
            raise Objection(f"{episode.name}: {said[0]}")
        cases += sum(sum(outcomes.values()) for outcomes in episode.did.values())
    return cases


@claim(
    "attack",
    KEYED,
    PAILLIER,
    mutants=(
        keyed_mutants.NO_J,
        views.NO_THETA,
        mutants.NO_Q,
        mutants.JUDGED_TWICE,
        mutants.LIST_FREE,
        mutants.FEW_NOISY,
        mutants.EMPTY_OR_RIGHT,
        paillier_mutants.TWO_SETS,
    ),
    title="A server that deviates",
    table=table,
)
def lying_server_means(subject: Subject) -> int:
    """Both forms: whatever a server tries, no client accepts a wrong mean; with Paillier, unless it scales answers."""
    return objected(subject, lambda episode: () if (subject.form.name, episode.name) in ADMITTED else episode.wrong)


@claim(
    "attack",
    KEYED,
    mutants=(mutants.STOPS, mutants.OWN_SLOTS, mutants.SAME_SECRET, mutants.SLOTS_KEPT, mutants.FEWER),
)
def lying_server_ownership(subject: Subject) -> int:
    """Keyed: whatever a server tries, what clients send and refuse does not depend on who owns what.

    Two worlds that differ in owners alone give the same transcripts; and no slot can be followed from one union to
    another, or be seen to lose its owners twice.
    """
    return objected(subject, lambda e: [*([e.depends] if e.depends else ()), *e.linked])


@claim(
    "attack",
    KEYED,
    mutants=(
        mutants.NO_SELF_MASK,
        mutants.BOTH_SHARES,
        mutants.NO_VOTES,
        mutants.TWO_VOTES,
        mutants.OLD_VOTES,
        mutants.VOTES_AGAIN,
        mutants.UNTRAINED,
        mutants.LOW_T,
        mutants.NOISE_ANEW,
        mutants.TWO,
        mutants.PRESENT,
        mutants.SENT_AGAIN,
    ),
)
def lying_server_sums(subject: Subject) -> int:
    """Keyed: a server with T clients' help gets one sum for each training round, and nobody's two shares.

    The sum is over t clients or more; without drop-outs over all that take part. Nobody signs two sets for one round.
    """
    return objected(subject, lambda episode: episode.sums)


@claim("attack", KEYED, mutants=(mutants.TWO_LISTS, mutants.COPIED, mutants.LISTS_CHANGED))
def lying_server_names(subject: Subject) -> int:
    """Keyed: a server with a client's help has no blinded name answered that its owner did not list, or twice."""
    return objected(subject, lambda episode: episode.names)
