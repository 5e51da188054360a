"""The form "keyed" with lists, bounds and keys of names that bind for less long than they should."""

from __future__ import annotations

import hmac
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np

from secea.arithmetic.ristretto import Rows, Tick, multiply, multiply_base, scalar_rows, total
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.derivations import replaced
from secea.engines.federation import Federation
from secea.errors import ParamsError
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.handover import Following, Handover
from secea.forms.keyed.names import Naming
from secea.params import Params
from secea.party.client import _next
from secea.party.form import Got
from secea.party.phases import Agreement, Row
from secea.party.session import Session
from secea.steps import oprf
from secea.steps.oprf import Blinding, blind
from secea.wire.keys import Roster
from secea.wire.messages import Header


def within(name: str, missing: str, owner: object, attribute: str, other: Any) -> Mutant:
    """A mutant with another method."""
    return Mutant(name, missing, {KEYED: Subject(Overheard(), within=((owner, attribute, other),))})


def _checks_names(inputs: Any, size: int, seed: bytes) -> Blinding:
    """A list whose check point has its names alone."""
    whole, names = blind(inputs, size, seed), len(inputs)
    points = whole.points.copy()
    own = points[whole._places[:names]]
    parts = [multiply_base(scalar_rows([whole._offset])), multiply(own, whole._weights[:names])]
    points[whole._places[-1]] = total(np.concatenate(parts))
    return replace(whole, points=points)


def _checked_names(blinding: Blinding, answers: Rows, factor: int, public: bytes, tick: Tick | None = None) -> bool:
    """Whether the answers to its names fit."""
    answers, names = answers[blinding._places], len(blinding._inputs)
    key = np.frombuffer(public, np.uint8)[None]
    own = multiply(key, scalar_rows([factor * blinding._offset]))
    expected = total(np.concatenate([own, multiply(answers[:names], blinding._weights[:names])]))
    return hmac.compare_digest(expected.tobytes(), answers[-1].tobytes())


_got_marks, _receivers, _got_evaluations = Naming._got_marks, Following.receivers, Naming._got_evaluations


def _marks_of_this_attempt(self: Naming, at: Agreement, got: Got) -> Agreement:
    after = _got_marks(self, at, got)
    self.names = replace(self.names, marks={v: mark for v, mark in self.names.marks.items() if v in at.members})
    return after


def _all_members(self: Following, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
    return at.members if kind is Kind.SHARE else _receivers(self, kind, params, at)


UNCHECKED_PADDING = Mutant(
    "padding-unchecked",
    "The check point of a list has its names alone.",
    {KEYED: Subject(Overheard(), instead={blind: _checks_names, oprf._checked: _checked_names})},
)
MARKS_OF_THE_LAST_ATTEMPT = within(
    "marks-of-the-last-attempt",
    "The list of a client that was absent once does not bind any more.",
    Naming,
    "_got_marks",
    _marks_of_this_attempt,
)
BUDGET_OF_ONE_SESSION = within(
    "epochs-of-one-session",
    "Epochs of names in a session before the last one are forgotten.",
    Naming,
    "updates",
    property(lambda naming: max(0, naming.names.asked - 1)),
)
SHARES_FOR_LEAVERS = within(
    "shares-for-leavers", "Clients that leave get shares of the key that is kept.", Following, "receivers", _all_members
)
WAY_BACK = within(
    "way-back-after-lists",
    "Clients go back to the session before, though they confirmed newcomers' lists.",
    Naming,
    "begun",
    property(lambda naming: bool(naming.names.number or naming.names.asked)),
)


def _dealers_alone(self: Handover, roster: Roster, before: Session, naming: Naming, me: int) -> None:
    """Believes in everybody who does not deal."""
    keys = [*roster.clients]
    for i in set(self.members) - {*self.dealers}:
        keys[i] = before.roster.clients[self.old(i)]
    with suppress(ParamsError):  # two of them have changed places
        roster = replace(roster, clients=tuple(keys))
    check(self, roster, before, naming, me)


def _any_session(self: Handover, roster: Roster, before: Session, naming: Naming, me: int) -> None:
    """Believes what the record says of the session before."""
    check(replace(self, session=before.hash), roster, before, naming, me)


check = Handover.check
DEALERS_ALONE = within(
    "dealers-checked-alone",
    "Before a handover members look at the keys of those who deal.",
    Handover,
    "check",
    _dealers_alone,
)
ANY_SESSION = within(
    "handover-of-any-session",
    "A handover may name another session than the one before.",
    Handover,
    "check",
    _any_session,
)


def _another_key(self: Naming, at: Agreement) -> None:
    """A key may be dealt as long as there was one epoch of names."""
    before = self.names
    if at.phase == self.form.setup_phase and before.asked < 2:
        self.names = replace(before, number=0)
    try:
        checks_begin(self, at)
    finally:
        self.names = before


checks_begin = Naming.check_begin
ANOTHER_KEY = within(
    "another-key", "A session may have another key until names change.", Naming, "check_begin", _another_key
)
MOST_OF_A_SESSION = within(
    "epochs-of-the-busiest-session",
    "A key has seen as many epochs of names as the session with the most.",
    Naming,
    "updates",
    property(lambda self: max(self.names.asked - 1, self.form.taken_over.updates if self.form.taken_over else 0)),
)


_enter, _read, _check_begin = KeyedClient.enter, KeyedClient._read, Naming.check_begin


def _not_spent(self: KeyedClient, at: Agreement) -> None:
    _enter(self, at)
    if at.phase == "agree" and self.union is not None:
        self.union = replace(self.union, spent=False)


def _spent_now(self: KeyedClient, at: Agreement) -> Agreement:
    after = _read(self, at)
    if self.union is not None:
        self.union = replace(self.union, spent=at.members != at.participants)
    return after


def _since_the_last_answers(self: Naming, at: Agreement) -> None:
    """As if the list that waits for answers had not been made."""
    names, self.names = self.names, replace(self.names, asked=self.names.number)
    try:
        _check_begin(self, at)
    finally:
        self.names = names


SPENT_LATE = Mutant(
    "spent-late",
    "A union is spent when the means of fewer clients are read, not when they are agreed on.",
    {KEYED: Subject(Overheard(), within=((KeyedClient, "enter", _not_spent), (KeyedClient, "_read", _spent_now)))},
)
EARLIER_EPOCH = within(
    "earlier-epoch",
    "While a list of names waits for answers, the epoch before may begin again.",
    Naming,
    "check_begin",
    _since_the_last_answers,
)


def _any_first_epoch(self: Naming, at: Agreement) -> None:
    """Names may have their first keys in any epoch."""
    late = at.phase == self.form.names_phase and at.names > 1
    names, self.names = self.names, replace(self.names, number=self.names.number or int(late))
    try:
        _check_begin(self, at)
    finally:
        self.names = names


FIRST_NAMES_LATER = within(
    "first-names-later",
    "A client whose first list got no answers brings its names in the short lists of later epochs.",
    Naming,
    "check_begin",
    _any_first_epoch,
)


_checks = KeyedClient.check_begin


def _with_leavers(self: KeyedClient, at: Agreement) -> None:
    """Looks at the others alone."""
    begins = at.phase == self.form.setup_phase
    stay = at.members if begins else tuple(n for n in at.members if n < self.params.clients)
    _checks(self, replace(at, members=stay, participants=stay if at.participants == at.members else at.participants))


LEAVERS_STAY = within(
    "leavers-stay", "Clients that left may be members of what follows.", KeyedClient, "check_begin", _with_leavers
)


_leave = Federation.leave


def _never_gone(self: Federation, client: int, *, gone: bool = False) -> None:
    """Takes every client that leaves for one that helps."""
    _leave(self, client)


GONE_HELPS = within(
    "gone-like-any-other", "A client that is gone for good leaves the names' key as it is.",
    Federation, "leave", _never_gone,
)  # fmt: skip

DEALT_AGAIN = within(
    "dealt-again",
    "A key that was taken over is dealt again after newcomers have sent their lists.",
    Naming,
    "begun",
    property(lambda self: bool(self.names.number)),
)


def _any_round(row: Row, before: Agreement, header: Header) -> bool:
    """A union may come with any number of rounds."""
    return _next(row, replace(before, round=header.round) if row.counts == "union" else before, header)


ROUNDS_BACK = replaced("rounds-back", "With a union the server may count rounds anew.", {_next: _any_round})


def _forgotten(self: Naming, at: Agreement, got: Got) -> Agreement:
    """What changed meanwhile is not due any more."""
    after = _got_evaluations(self, at, got)
    self.names = replace(self.names, due=False)
    return after


CHANGES_FORGOTTEN = within(
    "changes-forgotten",
    "Entities that change while answers are due make no epoch of names due.",
    Naming,
    "_got_evaluations",
    _forgotten,
)


def _to_any(self: Naming, roster: Roster, before: Session, old: Naming) -> None:
    """Forget whom the key went to before."""
    old.successor = b""
    _inherit(self, roster, before, old)


_inherit = Naming.inherit
TWO_SUCCESSORS = within(
    "two-successors", "A client hands the key of its names over to several sessions.", Naming, "inherit", _to_any
)


def _those_there(self: Handover, roster: Roster, before: Session, naming: Naming, me: int) -> None:
    """Looks at the members that the record has, and not for others."""
    smaller = object.__new__(Session)
    vars(smaller).update(vars(before))
    vars(smaller)["params"] = replace(before.params, clients=min(before.params.clients, len(self.members)))
    check(self, roster, smaller, naming, me)


def _answered(self: Naming) -> int:
    """How many epochs with new names were answered."""
    before = self.form.taken_over
    return max(0, self.names.number - 1) + (before.updates if before else 0)


FEWER_MEMBERS = within(
    "fewer-members", "Members of the session before may be left out of a handover.", Handover, "check", _those_there
)
ANSWERED_EPOCHS = within(
    "answered-epochs", "An epoch of names counts when its answers have come.", Naming, "updates", property(_answered)
)


def _asks_on(self: Naming, at: Agreement) -> None:
    """Forgets that its key was handed over."""
    successor, self.successor = self.successor, b""
    try:
        _check_begin(self, at)
    finally:
        self.successor = successor


_check_begin = Naming.check_begin
NAMES_AFTERWARDS = within(
    "names-afterwards",
    "There are epochs of names in a session whose key was handed over.",
    Naming,
    "check_begin",
    _asks_on,
)


def _all_announced(self: Session) -> tuple[Row, ...]:
    """All phases may be announced, those too that follow by themselves."""
    return tuple(replace(row, announced=True) for row in self.form.table(self.params))


ANY_PHASE = within("any-phase", "A server may announce any phase.", Session, "rows", property(_all_announced))
