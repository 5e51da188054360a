"""Parties that crash in the middle of a stage and go on from their last saved state; and states that are too old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from federation import Floats, Hop, Parties, Tables
from secea.client import Phase as ClientPhase
from secea.errors import SERVER, FederationError, ProtocolError, Stale
from secea.server import Phase, Server
from secea.table import Name
from world import BOTH, Ledger

SETS: Final[list[list[Name]]] = [["a", "b", "c"], ["b", 1], ["c", "d", "a"]]
OLD: Final = "old snapshot"


class Crashing(Parties):
    """Each party saves exactly when it must, and one of them crashes after the k-th delivered message.

    A client saves before it begins to send; the server right after it closed a stage. After a crash everybody sends
    again what it has to send; what comes a second time is stale, and nothing else is ever refused.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.saved = {n: self.party(n).save() for n in (*self.clients, SERVER)}
        self.crash: Callable[[int], int | None] = lambda delivered: None
        self.delivered = self.repeated = 0
        self.given: Tables = []

    def keep(self, n: int) -> None:
        self.saved[n] = self.party(n).save()

    def arrived(self, hop: Hop) -> bool:
        """Deliver a message; whether someone crashed after it."""
        try:
            self.deliver(hop)
        except Stale:
            self.repeated += 1
        self.delivered += 1
        who = self.crash(self.delivered)
        if who is None:
            return False
        self.back_to(who, self.saved[who])
        return True

    def passed(self) -> bool:
        """Everybody sends what it has to send, the server first; or someone crashes on the way."""
        for n, message in [(n, bytes(message)) for n, message in self.server.outbox()]:
            if self.arrived(Hop(SERVER, n, message)):
                return False
        for n in sorted(self.clients):
            client = self.clients[n]
            if self.server.phase is Phase.SHARE and client.phase is ClientPhase.READY and self.given:
                client.contribute(self.given[n], self.server.round)  # it crashed before it had saved the round
            self.keep(n)
            for message in [bytes(message) for message in client.outbox()]:
                if self.arrived(Hop(n, SERVER, message)):
                    return False
        return True

    def finish(self) -> None:
        """Stage by stage, until nothing is left to be sent."""
        while True:
            while not self.passed():
                pass
            if self.server.phase is Phase.READY:
                return
            self.server.close()
            self.keep(SERVER)

    def whole(self, rounds: int = 1) -> Tables:
        """The set-up, and rounds."""
        self.finish()
        for number in range(rounds):
            self.given = self.tables(number)
            self.server.begin_round()
            self.keep(SERVER)
            for n in self.clients:
                self.clients[n].contribute(self.given[n], self.server.round)
            self.finish()
            self.check(self.given)
        return self.given


def means(parties: Parties) -> list[Floats]:
    found = [client.means for client in parties.clients.values()]
    return [each for each in found if each is not None]


def undisturbed(form: str) -> Crashing:
    parties = Crashing(SETS, form=form, dim=2)
    parties.whole()
    return parties


@pytest.mark.parametrize("who", [0, 1, 2, SERVER])
@pytest.mark.parametrize("form", BOTH)
def test_a_crash_after_any_message_changes_no_mean_and_no_key_seals_two_things(
    form: str, who: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = undisturbed(form).delivered
    ledger, crashes = Ledger(monkeypatch), 0
    first, step = {1: (1, 2), SERVER: (2, 2)}.get(
        who, (1, 7)
    )  # a client after every second one, the server after the others
    for at in range(first, messages + 1, step):
        parties = Crashing(SETS, seed=at, form=form, dim=2)
        parties.crash = lambda delivered, at=at: who if delivered == at else None  # type: ignore[misc]
        parties.whole()
        crashes += parties.delivered > messages
    assert crashes
    assert len(ledger.sealed) > messages


# ------------------------------------------------------------------------------------------------- states that are old


class Rolled(Crashing):
    """Everyone keeps all of its saved states; what is refused is noted, and the others go on as they can."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.history: dict[int, list[bytes]] = {}
        super().__init__(*args, **more)
        self.refusals: list[ProtocolError] = []
        self.tolerant = False

    def keep(self, n: int) -> None:
        super().keep(n)
        kept = self.history.setdefault(n, [])
        if not kept or kept[-1] != self.saved[n]:
            kept.append(self.saved[n])

    def deliver(self, hop: Hop) -> None:
        try:
            super().deliver(hop)
        except Stale:
            raise
        except ProtocolError as error:
            if not self.tolerant:
                raise
            self.refusals.append(error)

    def noticed(self) -> bool:
        """Whether someone was told that another, or the server, went back to an old state."""
        return any(OLD in error.fault for error in self.refusals)

    def try_on(self, begin: Callable[[], None]) -> bool:
        """Whether what begins comes to an end with everyone's means; whoever has means has the right ones."""
        self.refusals, self.tolerant, begun = [], True, False
        try:
            begin()
            begun = True
            self.finish()
        except FederationError:
            pass  # too few took part, or someone could not begin
        finally:
            self.tolerant = False
        done = [n for n, client in self.clients.items() if begun and client.phase is ClientPhase.READY]
        done = [n for n in done if self.clients[n].means is not None]
        self.present = set(done)
        self.check(self.given, contributors=self.clients)
        self.present = set(self.clients)
        return len(done) == len(self.clients)

    def next_round(self) -> None:
        self.given = self.tables(self.server.round + 1)
        if self.server.phase is not Phase.READY:
            self.server.close()
        self.server.begin_round()
        self.keep(SERVER)
        for n in self.clients:
            self.clients[n].contribute(self.given[n], self.server.round)

    def next_epoch(self) -> None:
        self.server.begin_epoch(self.clients)
        self.finish()
        self.next_round()

    def all_back_to(self, states: dict[int, bytes]) -> None:
        for n, state in states.items():
            self.back_to(n, state)


@pytest.mark.parametrize("who", [1, SERVER])
@pytest.mark.parametrize("form", BOTH)
def test_whoever_went_back_to_any_old_state_is_refused_or_does_no_harm_and_the_right_state_goes_on(
    form: str, who: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    parties = Rolled(SETS, form=form, dim=2)
    parties.whole(rounds=2)
    for n in (*parties.clients, SERVER):
        parties.keep(n)
    newest = {n: parties.party(n).save() for n in (*parties.clients, SERVER)}
    old = parties.history[who][:-1]
    assert len(old) > 6
    noticed = refused = 0
    for go_on in (parties.next_round, parties.next_epoch):
        for state in old:
            parties.all_back_to({**newest, who: state})
            if not parties.try_on(go_on):
                refused += 1
                noticed += parties.noticed()
            # The right state for the one who went back; the others give up what they tried with it.
            parties.back_to(who, newest[who])
            for client in parties.clients.values():
                client.abandon()
            parties.server.abandon()
    assert refused
    assert noticed
    parties.all_back_to(newest)
    parties.next_round()
    parties.finish()
    parties.check(parties.given)
    assert ledger.sealed


def anew(parties: Parties) -> Parties:
    """Everyone starts without any memory, in the same session: new incarnations."""
    parties.server = Server(parties.session, parties.identities[SERVER], parties.entropy[SERVER])
    parties.clients = {n: parties.new_client(n) for n in parties.clients}
    return parties


class OneTooOld(Rolled):
    """After a crash a party goes on from the state before its newest one."""

    def arrived(self, hop: Hop) -> bool:
        crashed = super().arrived(hop)
        who = self.crash(self.delivered)
        if crashed and who is not None and len(self.history.get(who, ())) > 1:
            self.back_to(who, self.history[who][-2])
        return crashed

    def first_round(self) -> None:
        self.finish()
        self.next_round()


@pytest.mark.parametrize("who", [1, SERVER])
@pytest.mark.parametrize("form", BOTH)
def test_whoever_crashes_after_any_message_and_takes_the_state_before_the_newest_gives_no_wrong_mean(
    form: str, who: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, ledger = undisturbed(form).delivered, Ledger(monkeypatch)
    right = refused = 0
    for at in range(1, messages + 1, 5):
        parties = OneTooOld(SETS, seed=at, form=form, dim=2)
        parties.crash = lambda delivered, at=at: who if delivered == at else None  # type: ignore[misc]
        if parties.try_on(parties.first_round):
            right += 1
            continue
        refused += 1
        anew(parties)
        parties.setup()
        parties.goes_on()
    assert right
    assert refused
    assert ledger.sealed


@pytest.mark.parametrize("form", BOTH)
def test_a_federation_that_forgot_everything_begins_anew_under_the_same_identities(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    parties = Parties(SETS, form=form, dim=2)
    parties.setup()
    parties.goes_on(1)
    anew(parties)
    parties.setup()
    parties.goes_on(2)
    ledger.check()
