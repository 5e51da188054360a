"""A claim about new names that find no room, in the form "keyed": nobody sees how many they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.claims.counts import form_of
from secea.audit.mutants import waiting as mutants
from secea.engines.driver import Driver
from secea.engines.host import Host, Participant
from secea.engines.port import Failure, Order, Reply, Task, Terms, asked, orders
from secea.errors import FederationError
from secea.table import Table
from secea.testing import Parties
from secea.wire.messages import Buffer

CLIENTS: Final = 3
ROOM: Final = 4
"""max_new_entities."""
ALL: Final = tuple(f"name {i}" for i in range(24))
"""What the others own: the union stays as it is, whatever client 0 brings."""
NEW: Final = (3, 4, 5, 9, 23)
"""So many new names: less than there is room for, just as many, and more, up to six epochs of them."""


@dataclass
class World:
    """Hosts, and what an honest server sees of them."""

    parties: Parties
    sets: list[list[str]]

    def __post_init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        """For each order its client, its task, the sizes of all messages, and where the client stands."""
        self.hosts = {n: self.host(n) for n in range(CLIENTS)}
        self.driver = Driver(self.parties.server, self)

    def host(self, n: int) -> Host:
        """A new life of a client, from its saved state if it has one."""
        host = Host(
            self.parties.session, n, self.parties.identities[n], Participant(lambda: self.sets[n], self._train(n))
        )
        host.client = self.parties.clients[n]
        return host

    def _train(self, n: int) -> Callable[[Table | None, int], Table]:
        def train(_: Table | None, number: int) -> Table:
            return Table(self.sets[n], np.full((len(self.sets[n]), 1), float(number)))

        return train

    def restart(self, n: int) -> None:
        """Save, and begin again."""
        self.parties.restart(n)
        self.hosts[n] = self.host(n)

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`."""
        for n, order in orders(tasks, round, inboxes()).items():
            for reply in asked(order, partial(self._obeyed, n)):
                yield n, reply

    def _obeyed(self, n: int, order: Order) -> Reply:
        reply = self.hosts[n].obey(order)
        stands = self.hosts[n].client.standing
        place = stands.settled, stands.union, stands.names, stands.named, stands.round
        self.seen.append((n, order.task.name, [*map(len, order.messages)], [*map(len, reply.messages)], place))
        return reply


def seen_of(subject: Subject, new: int) -> list[tuple[Any, ...]]:
    """What an honest server sees if client 0 brings so many names; others change later, and client 0 restarts."""
    form = replace(form_of(subject), max_new_entities=ROOM, max_updates=20)
    sets = [[ALL[0]], *([*ALL] for _ in range(CLIENTS - 1))]
    tables = [{name: [1.0] for name in own} for own in sets]
    world = World(replace(subject, form=form).parties(tables, max_union=2 * len(ALL)), sets)
    parties = world.parties
    world.driver.setup()

    def rounds(what: str, count: int) -> None:
        for _ in range(count):
            try:
                world.driver.round()
            except FederationError as error:
                raise Objection(f"{new} new names, {what}: {error}") from None
            world.seen.append((what, parties.server.at.named, parties.server.at.size))

    rounds("before anything changes", 1)
    sets[0] = [*ALL[: 1 + new]]
    rounds("client 0 brought them", 3)
    waiting = len(parties.clients[0].part.waiting)
    assert waiting == max(0, new - ROOM) or parties.server.at.named > 2, "nothing waits: the attack sees nothing"
    world.restart(0)
    world.driver.setup()
    rounds("client 0 restarted", 2)
    sets[1] = sets[1][1:]
    rounds("client 1 changed something", 2)
    sets[0] = sets[0][1:]
    rounds("client 0 changed something", 2)
    return world.seen


@claim("attack", KEYED, mutants=(mutants.DUE_FOR_THE_REST, mutants.UNSETTLED_BY_THE_REST))
def epochs_of_names(subject: Subject) -> int:
    """Keyed: an honest server does not see how many new names a client has: one change, one epoch, whatever has room.

    Others own them all, so that the union stays. It sees the same epochs, orders, sizes and standings in each world.
    """
    few, *more = (seen_of(subject, new) for new in NEW)
    for new, found in zip(NEW[1:], more, strict=True):
        if found != few:
            place = next((i for i, pair in enumerate(zip(few, found, strict=False)) if pair[0] != pair[1]), len(few))
            raise Objection(
                f"a server tells {new} new names from {NEW[0]}:"
                f" {found[place : place + 1]}, not {few[place : place + 1]}"
            )
    return len(NEW) * len(few)
