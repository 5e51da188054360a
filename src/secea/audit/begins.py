"""What the server may begin: for every point in the life of a client, the announcements that it would believe.

The lists stand in `begins.json`, to be read beside sections K1 to K5: a phase, then what changes against the numbers of
the client ("union+1"), then who is left out. `python -m secea.audit.begins` writes them after a change of what may be
announced, and only then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Subject
from secea.audit.attacks.names import Next, following
from secea.audit.attacks.stage import announcement
from secea.audit.claims.counts import form_of
from secea.audit.standing import attributes_stand_in
from secea.audit.transcripts import tables_of
from secea.errors import ProtocolError
from secea.party.client import Client
from secea.party.phases import REST
from secea.testing import Parties, insecure_seeded
from secea.wire.link import Link, Opened
from secea.wire.messages import Buffer

FILE: Final = Path(__file__).with_name("begins.json")
CLIENTS: Final = 4
PROBED: Final = (0, CLIENTS - 1)
Said = dict[str, list[str]]
"""For each point the announcements that are believed."""


class _Believed(Exception):
    """The announcement would be taken."""


def believes(client: Client, message: Buffer) -> bool:
    """Whether a client would take an announcement. Nothing changes."""

    def take(self: Link, opened: Opened) -> None:
        raise _Believed

    with attributes_stand_in((Link, "take", take)):
        try:
            client.receive(message)
        except ProtocolError:
            return False
        except _Believed:
            return True
    raise AssertionError("an announcement is taken or refused")


def words(parties: Parties, n: int) -> Iterator[tuple[str, Buffer]]:
    """Announcements of all phases to client n: of now, before and next, with all and without one."""
    at, everyone = parties.clients[n].at, range(CLIENTS)
    steps = product((0, 1), range(max(0, at.names - 2), at.names + 2), (0, 1, -1), (None, 2))
    for union, names, round_, without in steps:
        if round_ < 0 and not (union and at.round):
            continue
        numbers: dict[str, Any] = {"epoch": at.union + union, "weights": names, "round": at.round + round_}
        members = [v for v in everyone if v != without]
        told = f"{' union+1' * union} names {names}{f' round{round_:+}' * bool(round_)}" + (
            f" without {without}" if without else ""
        )
        for row in parties.session.rows:
            yield row.phase + told, announcement(parties, row.phase, members, n, **numbers)


class Life:
    """A federation whose server goes on step by step, and what some clients would believe after each of them."""

    def __init__(self, subject: Subject, **params: Any) -> None:
        self.tables: list[dict[str, Any]] = tables_of(CLIENTS, 5, 1)
        self.parties = self._parties(subject, params)
        self.form, self.server, self.exchange = subject.form, self.parties.server, self.parties.exchange
        self.said: Said = {}
        self.exchange.greet()

    def _parties(self, subject: Subject, params: Mapping[str, Any]) -> Any:
        return subject.parties(self.tables, entropy=insecure_seeded(5), collusion=1, max_union=9, rounds=99, **params)

    def ask(self, then: str = "") -> None:
        """Ask them all."""
        for n in PROBED:
            client = self.parties.clients[n]
            where = f"{len(self.said)}: client {n} in {client.at.phase}{then}"
            self.said[where] = [told for told, message in words(self.parties, n) if believes(client, message)]

    def go(self, phase: str, until: str = REST) -> None:
        """Begin a phase, and go on; in a phase before the end, give up."""
        self.server.begin(phase, range(CLIENTS))
        self.exchange.deliver()
        self.ask()
        while self.server.at.phase not in (until, REST):
            self.exchange.step()
            self.ask()
        if until != REST:
            self.server.give_up()
            self.server.drain()
            self.ask(", given up")

    def other_names(self) -> None:
        """Client 0 has another entity."""
        table = self.tables[0]
        table[f"new {len(self.said)}"] = table.pop(next(iter(table)))
        self.parties.clients[0].part.update(list(table))

    def train(self) -> None:
        """All have a table to contribute."""
        self.parties.contribute(self.tables)
        self.ask(", trained")


def names_that_change(subject: Subject, of: type[Life] = Life) -> Said:
    """Set-ups, epochs of names and unions, and each of them broken off everywhere."""
    life = of(subject)
    for phase, until in ("commit", "deal"), ("commit", "list"), ("list", "confirm"), ("list", "evaluate"):
        life.go(phase, until)
    for phase, until in ("list", "secret"), ("secret", "table"), ("secret", REST):
        life.go(phase, until)
    for until in ("list", "confirm", "evaluate", "secret", "table", REST):
        life.other_names()
        life.go("list", until)
    life.train()
    life.go("upload")
    life.parties.restart(0)
    life.exchange.greet()
    life.ask(", client 0 restarted")
    life.go("secret")
    life.train()
    life.go("upload", "upload")
    life.go("secret")
    life.go("end", "end")
    return life.said


def openings(subject: Subject, of: type[Life] = Life) -> Said:
    """Rounds with drop-outs: with all, without one, and broken off everywhere."""
    life = of(replace(subject, form=replace(form_of(subject), batch=2)), dropouts=1)
    life.go("commit")
    for gone, until in ((), "agree"), ((), "open"), ((2,), "agree"), ((2,), "open"), ((2,), REST), ((), REST):
        life.exchange.here, life.exchange.losses = set(range(CLIENTS)), {}
        life.exchange.greet()
        life.go("secret")
        life.train()
        life.exchange.losses = dict.fromkeys(gone, "upload")
        life.go("upload", until)
    return life.said


class TakenOver(Life):
    """A session that takes over the key of three clients; the last of its clients is new."""

    def _parties(self, subject: Subject, params: Mapping[str, Any]) -> Any:
        old = subject.parties(
            self.tables[:-1], entropy=insecure_seeded(5), collusion=2, max_union=9, rounds=99, **params
        )
        old.setup()
        form = following(old, (0, 1, 2, None), 2)
        assert form is not None
        return Next(old, form, 2, insecure_seeded(6))


def taken_over(subject: Subject) -> Said:
    """The set-up of a session that follows another one, and each part of it broken off everywhere."""
    life = TakenOver(subject)
    for phase, until in ("commit", "deal"), ("commit", "list"), ("list", "confirm"), ("list", "evaluate"):
        life.go(phase, until)
    for phase, until in ("list", "secret"), ("secret", "table"), ("secret", REST), ("list", "confirm"), ("list", REST):
        life.go(phase, until)
    return life.said


def paper(subject: Subject) -> Said:
    """The paper's form: a set-up, rounds, and other names."""
    life = Life(subject)
    life.go("secret")
    life.parties.round(life.tables)
    life.ask(", after a round")
    life.other_names()
    life.go("secret", "query")
    life.go("secret")
    life.parties.round(life.tables)
    life.ask(", after a round")
    return life.said


Story = Callable[[Subject], Said]
STORIES: Final[Mapping[str, tuple[Story, ...]]] = {KEYED: (names_that_change, openings, taken_over), PAILLIER: (paper,)}


def written(said: Said) -> dict[str, Any]:
    """The same in fewer lines: each list once, and the points that have it."""
    lists = list(dict.fromkeys(map(tuple, said.values())))
    return {
        "believed": [list(each) for each in lists],
        "points": {where: lists.index(tuple(each)) for where, each in said.items()},
    }


def main() -> None:
    """Write the file."""
    from secea.audit.registry import product as forms

    stories = {story.__name__: written(story(subject)) for form, subject in forms().items() for story in STORIES[form]}
    FILE.write_text(json.dumps(stories, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
