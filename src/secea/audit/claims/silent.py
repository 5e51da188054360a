"""Claims about what only an owner notices, in the form "keyed": it keeps it to itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.keyed import Listening
from secea.audit.claims.counts import form_of
from secea.audit.mutants import silent as mutants
from secea.errors import FederationError, ProtocolError
from secea.forms.keyed.client import KeyedClient
from secea.party.phases import Agreement
from secea.testing import Parties, Watch, insecure_seeded

SETS = ("abc", "bcd", "ace", "bd")


class Hiding(Listening):
    """A server that calls a slot empty, with all that a bribed client knows."""

    client: KeyedClient
    at: Agreement
    hidden: Sequence[int] = (0,)
    """The slots that it calls empty."""
    left_out: Sequence[int] = ()
    """Tags that it leaves out of a union."""

    def enter(self, at: Agreement) -> None:
        """Note how many take part."""
        super().enter(at)
        self.at = at

    def _means(self, chunk: int, come: Any) -> Any:
        ring = self.numbers.ring
        shared = self.client.secrets(self.at).of(chunk, come.total.shape[1], ())
        members = ring.constant([len(self.at.members)])
        for slot in self.hidden:
            come.total[:, slot, -2] = 0
            theta = np.ascontiguousarray(shared.theta[:, slot : slot + 1])
            come.total[:, slot, -1] = ring.multiply(members, theta)[:, 0]
        return super()._means(chunk, come)

    def _peeled(self, at: Agreement) -> Agreement:
        after = super()._peeled(at)
        self.tags = np.delete(self.tags, self.left_out)
        return replace(after, size=len(self.tags))


def _hiding(subject: Subject, parties: Parties) -> Hiding:
    """Such a server, with the help of client 0."""
    server = Hiding(form_of(subject), parties.session.params, parties.session.hash)
    server.link, parties.server.part = parties.server.link, server
    part = parties.clients[0].part
    assert isinstance(part, KeyedClient)
    server.client = part
    return server


def _tables() -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{name: rng.normal(size=2) for name in own} for own in SETS]


@claim("attack", KEYED, mutants=(mutants.WANTS_ANOTHER_UNION, mutants.STOPS_WITHOUT_MEAN))
def hidden_slots(subject: Subject) -> int:
    """Keyed: the server and a client that call a slot empty do not learn who owns it: owners go on like others."""
    tables = _tables()
    parties = subject.parties(tables, collusion=1)
    _hiding(subject, parties)
    parties.setup()
    for number in range(3):
        try:
            parties.round([{name: row + number for name, row in table.items()} for table in tables])
        except (ProtocolError, FederationError) as error:
            raise Objection(f"a slot without a mean shows in what clients do next: {error}") from None
        if not any(client.part.without_mean for client in parties.clients.values()):
            raise AssertionError("no slot was hidden: nothing was checked")
    return 3


@claim("attack", KEYED, mutants=(mutants.STOPS_WITHOUT_TAGS, mutants.STOPS_WITHOUT_MEANS))
def hidden_sets(subject: Subject) -> int:
    """Keyed: whichever slots a server leaves out of a union or calls empty, all clients go on alike: also their owners.

    Every set of slots: each one, all of a client's, all of them. A client helps the server to call them empty.
    """
    tables, cases = _tables(), 0
    slots = range(len({name for own in SETS for name in own}))
    parties = subject.parties(tables, collusion=1)
    server = _hiding(subject, parties)
    server.hidden = ()
    parties.setup()
    for hidden in chain.from_iterable(combinations(slots, size) for size in range(len(slots) + 1)):
        for what in ("left out of a union", "called empty"):
            server.hidden, server.left_out = (hidden, ()) if what == "called empty" else ((), hidden)
            try:
                parties.union(range(len(SETS)))
                parties.round([{name: row + cases / 99 for name, row in table.items()} for table in tables])
            except (ProtocolError, FederationError) as error:
                raise Objection(f"slots {hidden} are {what}, and clients do not go on alike: {error}") from None
            if len({client.standing for client in parties.clients.values()}) > 1:
                raise Objection(f"slots {hidden} are {what}, and clients stand elsewhere")
            missing = {name for client in parties.clients.values() for name in client.part.without_mean}
            assert len(missing) == len(hidden), "another number of slots was hidden"
            cases += 1
    return cases


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
