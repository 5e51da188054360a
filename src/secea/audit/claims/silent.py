"""Claims about what only an owner notices, in the form "keyed": it keeps it to itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.keyed import Listening
from secea.audit.claims.counts import form_of
from secea.audit.mutants import silent as mutants
from secea.errors import FederationError, ProtocolError
from secea.forms.keyed.client import KeyedClient
from secea.party.phases import Agreement
from secea.testing import Watch, insecure_seeded

SETS = ("abc", "bcd", "ace", "bd")


class Hiding(Listening):
    """A server that calls a slot empty, with all that a bribed client knows."""

    client: KeyedClient
    at: Agreement

    def enter(self, at: Agreement) -> None:
        """Note how many take part."""
        super().enter(at)
        self.at = at

    def _means(self, chunk: int, come: Any) -> Any:
        ring = self.numbers.ring
        shared = self.client.secrets(self.at).of(chunk, come.total.shape[1], ())
        members = ring.constant([len(self.at.members)])
        come.total[:, 0, -2] = 0
        come.total[:, 0, -1] = ring.multiply(members, np.ascontiguousarray(shared.theta[:, :1]))[:, 0]
        return super()._means(chunk, come)


def _tables() -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{name: rng.normal(size=2) for name in own} for own in SETS]


@claim("attack", KEYED, mutants=(mutants.WANTS_ANOTHER_UNION, mutants.STOPS_WITHOUT_MEAN))
def hidden_slots(subject: Subject) -> int:
    """Keyed: the server and a client that call a slot empty do not learn who owns it: owners go on like others."""
    tables = _tables()
    parties = subject.parties(tables, collusion=1)
    server = Hiding(form_of(subject), parties.session.params, parties.session.hash)
    server.link, parties.server.part = parties.server.link, server
    parties.setup()
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    server.client = part
    for number in range(3):
        try:
            parties.round([{name: row + number for name, row in table.items()} for table in tables])
        except (ProtocolError, FederationError) as error:
            raise Objection(f"a slot without a mean shows in what clients do next: {error}") from None
        if not any(client.part.without_mean for client in parties.clients.values()):
            raise AssertionError("no slot was hidden: nothing was checked")
    return 3


@claim("attack", KEYED, mutants=(mutants.WAITS_WITH_NEW_NAMES,))
def who_waits(subject: Subject) -> int:
    """Keyed: a server that withholds answers to lists of names does not learn whose names are new: all wait alike."""
    for renamed in (0, 1):
        parties = subject.parties(_tables(), collusion=1, max_union=9)
        parties.setup()
        everyone = range(len(SETS))
        for n in range(renamed):
            parties.clients[n].part.update([*SETS[n][1:], "new"])
        parties.exchange.run(subject.form.names_phase, everyone, until="evaluate")
        parties.server.give_up()
        parties.server.begin(subject.form.union_phase, everyone)
        refused = []
        for n, inbox in parties.server.drain().items():
            for message in inbox:
                try:
                    parties.clients[n].receive(message)
                except ProtocolError:
                    refused.append(n)
        if sorted(refused) != list(everyone):
            raise Objection(f"clients {sorted(refused)} wait for answers, and the others do not")
    return 2


def _standings(subject: Subject, renamed: bool) -> list[bytes]:
    """Where all clients say that they stand, from the set-up to the end of a round; perhaps one has new names."""
    tables = _tables()
    parties = subject.parties(tables, collusion=1, max_union=9, entropy=insecure_seeded(3))
    parties.setup()
    if renamed:
        tables[1]["new"] = tables[1].pop(SETS[1][0])
        parties.clients[1].part.update(list(tables[1]))
    said: list[bytes] = []

    def say() -> None:
        said.extend(client.standing.to_bytes() for client in parties.clients.values())

    say()
    parties.server.begin(subject.form.ready_phase, range(len(SETS)))
    parties.exchange.deliver()
    say()
    for n, client in parties.clients.items():
        client.contribute(tables[n], 1)
    say()
    parties.exchange.step()
    say()
    parties.exchange.run(subject.form.round_phase, range(len(SETS)))
    say()
    return said


@claim("attack", KEYED, mutants=(mutants.STANDS_APART,))
def standings(subject: Subject) -> int:
    """Keyed: where a client says that it stands, which anybody may read, does not show that its entities change."""
    same, other = _standings(subject, False), _standings(subject, True)
    if same != other:
        raise Objection("a client whose entities change says that it stands elsewhere")
    return len(same)


@claim("attack", KEYED, mutants=(mutants.SAYS_AGAIN,))
def asked_again(subject: Subject) -> int:
    """Keyed: asked again before the same round, a client says what it said, whether or not its entities change.

    Two words under one mask would differ where entities change, and nowhere else.
    """
    kind = subject.form.kinds["READY"]
    for renamed in (False, True):
        tables, watch = _tables(), Watch()
        parties = subject.parties(tables, collusion=1, max_union=9, watch=watch)
        parties.setup()
        if renamed:
            tables[1]["new"] = tables[1].pop(SETS[1][0])
            parties.clients[1].part.update(list(tables[1]))
        for _ in range(3):
            parties.server.begin(subject.form.ready_phase, range(len(SETS)))
            parties.exchange.deliver()
            for n, client in parties.clients.items():
                client.contribute(tables[n], 1)
                assert list(client.outbox())
            parties.server.give_up()
        for n in parties.clients:
            said = {each.payload for each in watch.sealed(kind, sender=n)}
            if len(said) != 1:
                raise Objection(f"client {n} says {len(said)} different things before one round")
    return 6 * len(SETS)
