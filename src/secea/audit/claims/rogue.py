"""Claims about a client that deviates: what it costs the others, who is named, and what they keep of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.attacks.names import corrupt
from secea.audit.attacks.rogue import NOTHING, WITHIN, Result, deviations, results, table, tried
from secea.audit.mutants import rogue as mutants
from secea.errors import RoundLost
from secea.forms.keyed.form import Kind

LIVES_BYTES: Final = 4096
"""For the lives in which a client said hello: they are remembered, so that none comes back."""

TEN, GONE = 10, 3
"""Clients, and how many may drop out: of more than 74 sets of shares each, most have any given client's."""


def _refute(each: Result, calm: Result) -> str:
    """What speaks against the claim."""
    if not each.recovered:
        return "the others do not go on together with it when it stops"
    if each.named == "somebody else":
        return "somebody is blamed, and it is not among the suspects"
    if each.deviation.tolerated and each.dropouts and False in each.rounds:
        return "it costs a round, though one client may drop out"
    if each.deviation.reply is not NOTHING.reply and each.kept > calm.kept + LIVES_BYTES:
        return f"a party keeps {each.kept - calm.kept:,} bytes more of it than of a client that does not deviate"
    return ""


@claim(
    "attack",
    KEYED,
    PAILLIER,
    mutants=(mutants.BLAMING, mutants.HOARDING, mutants.ANY_VOTES, mutants.FIRST_SHARES),
    title="A client that deviates",
    table=table,
)
def rogue_clients(subject: Subject) -> int:
    """Both forms: a client that deviates stops the others only while it does so, and nobody is blamed in its place.

    Nor do they keep more of it than of any other client. Where one may drop out, what is seen to be wrong costs no
    round.
    """
    for each in results(subject):
        if against := _refute(each, tried(subject, NOTHING, each.dropouts)):
            raise Objection(f"{each.deviation.what}, D={each.dropouts}: {against}")
    return len(deviations(subject))


@claim("attack", KEYED, mutants=(mutants.BELIEVING,))
def garbage_in_a_mean(subject: Subject) -> int:
    """Keyed: whatever garbage a client sends, nobody takes a mean with it."""
    for each in results(subject):
        if each.wrong > WITHIN:
            raise Objection(f"{each.deviation.what}: a mean is wrong by {each.wrong:.3g}, and was taken")
    return len(deviations(subject))


@claim("attack", KEYED, mutants=(mutants.IN_ORDER,))
def wrong_shares(subject: Subject) -> int:
    """Keyed: wrong shares of any one client cost no round, as long as there are enough right ones.

    With ten clients, where not all sets of shares can be tried.
    """
    tables = [{"all": np.array([float(n)])} for n in range(TEN)]
    parties = subject.parties(tables, collusion=1, dropouts=GONE)
    parties.setup()
    for rogue in range(TEN):
        part = parties.clients[rogue].part
        honest = part.payloads
        corrupt(parties.clients[rogue], lambda kind, _, data: bytes(len(data)) if kind is Kind.OPENING else data)
        try:
            found = parties.round(tables)
        except RoundLost:
            raise Objection(f"client {rogue} of {TEN} gives out wrong shares, and the round is lost") from None
        finally:
            part.payloads = honest  # type: ignore[method-assign]
        if any(abs(float(each[0, 0]) - (TEN - 1) / 2) > WITHIN for each in found.values()):
            raise Objection(f"client {rogue} of {TEN} gives out wrong shares, and a mean is wrong")
    return TEN
