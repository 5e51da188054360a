"""The form "keyed" with parties that compare the beginnings of hashes, tags and proofs."""

from __future__ import annotations

import hmac
import sys
from enum import IntEnum
from typing import Any, Final

from secea.audit import Mutant
from secea.audit.mutants.epochs import within
from secea.forms.keyed.form import Kind
from secea.forms.keyed.handover import Handover
from secea.forms.keyed.names import Naming
from secea.party.form import Got
from secea.party.phases import Agreement

COMPARED: Final = hmac.compare_digest


def beginnings(name: str, missing: str, where: str, size: int) -> Mutant:
    """A mutant that compares so many bytes in the function of this name, also where the audit listens in between."""

    def compared(one: Any, other: Any) -> bool:
        callers = sys._getframe(1).f_code.co_name, sys._getframe(2).f_code.co_name
        return COMPARED(one[:size], other[:size]) if where in callers else COMPARED(one, other)

    return within(name, missing, hmac, "compare_digest", compared)


def _of_sessions(self: Handover, *args: Any) -> None:
    """Takes a session for the one before if their hashes begin alike."""
    before = args[1]
    same = self.session[:8] == before.hash[:8]
    _check(Handover(before.hash if same else self.session, self.joint, self.numbers, self.left, self.updates), *args)


_check = Handover.check


def _of_holders(self: Naming, at: Agreement, got: Got) -> Agreement:
    """Only what holders have seen is compared."""
    ours, holders = self._confirmation(at), self.form.holders(self.params, at)
    others: dict[tuple[IntEnum, int], bytes] = {(Kind.CONFIRM, v): ours for v in at.members if v not in holders}
    return _got(self, at, {**got, **others})


_got = Naming._got_confirmations
CONFIRMED_BY_HOLDERS = within(
    "confirmed-by-holders", "Only holders' confirmations of lists are compared.", Naming, "_got_confirmations",
    _of_holders,
)  # fmt: skip
SHORT_LISTS = beginnings(
    "hashes-of-lists-cut", "Clients compare 8 bytes of the hashes of lists of names.", "_got_confirmations", 8
)
SHORT_COMMITMENTS = beginnings(
    "hashes-of-dealers-cut", "Clients compare 16 bytes of the hash that a dealer sent first.", "_check_hash", 16
)
SHORT_TAGS = beginnings("tags-cut", "A client compares 12 bytes of the tag of a broadcast.", "_got_digest", 12)
SHORT_VALUES = beginnings("values-cut", "A client tells what it uploaded from other values by 15 bytes.", "same", 15)
SHORT_SESSIONS = beginnings(
    "sessions-cut", "A hello is for a session if 4 bytes of its hash are the same.", "verify", 4
)
SHORT_HANDOVERS = within(
    "handovers-cut", "A member hands its key over if the session before has a hash that begins alike.",
    Handover, "check", _of_sessions,
)  # fmt: skip
