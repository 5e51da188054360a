"""Attacks as programs: each uses what one adversary sees, and fails on the product; without a protection it succeeds.

paillier   the owner of a Paillier key divides, and takes logarithms
counts     a client looks for the number of owners behind a mean
streams    the server subtracts what was sent under one key stream, also after rollbacks
relay      the server swaps keys, announces two sets, replays, counts messages
bribe      the server and one client together: no claim, but a documented limit
openings   the same two read what others ask for: another one
"""

from __future__ import annotations

from typing import Final

from secea.audit import Claim, Mutant
from secea.audit.attacks import counts, paillier, relay, streams

_FAMILIES: Final = (paillier, counts, streams, relay)
CLAIMS: Final[tuple[Claim, ...]] = tuple(claim for family in _FAMILIES for claim in family.CLAIMS)
MUTANTS: Final[tuple[Mutant, ...]] = (*paillier.MUTANTS, *streams.MUTANTS, *relay.MUTANTS)
