"""Parties that crash in the middle of a stage and go on from their last saved state; and states that are too old."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pytest

from federation import Floats, Hop, Parties, Tables
from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import SERVER, ProtocolError, Stale
from secea.messages import Kind
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


def undisturbed(retrieval: str) -> Crashing:
    parties = Crashing(SETS, retrieval=retrieval, dim=2)
    parties.whole()
    return parties


@pytest.mark.parametrize("who", [0, 1, 2, SERVER])
@pytest.mark.parametrize("retrieval", BOTH)
def test_a_crash_after_any_message_changes_no_mean_and_no_key_seals_two_things(
    retrieval: str, who: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = undisturbed(retrieval).delivered
    ledger, crashes = Ledger(monkeypatch), 0
    step = 1 if who in (1, SERVER) else 4
    for at in range(1, messages + 1, step):
        parties = Crashing(SETS, seed=at, retrieval=retrieval, dim=2)
        parties.crash = lambda delivered, at=at: who if delivered == at else None  # type: ignore[misc]
        parties.whole()
        crashes += parties.delivered > messages
    assert crashes
    assert len(ledger.sealed) > messages
