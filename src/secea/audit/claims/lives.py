"""Claims about whole lives of clients of the form "keyed": what they remember, and what their own users can change.

The lives are those of `begins`: set-ups, epochs of names, unions, rounds and ends, each of them broken off everywhere.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.begins import Life, Said, names_that_change, openings
from secea.audit.mutants import lives as mutants
from secea.errors import SERVER, SecEAError
from secea.forms.keyed.client import KeyedClient
from secea.party.client import Client
from secea.steps import oprf
from secea.table import Name


@dataclass(frozen=True)
class Memory:
    """What a client must not forget, whatever begins or ends."""

    numbers: dict[str, float] = field(default_factory=dict)
    """They only grow."""
    values: dict[Name, bytes] = field(default_factory=dict)
    """The PRF values of names: they stay, and others come."""
    bound: dict[tuple[object, ...], object] = field(default_factory=dict)
    """What was said once: where there is something, it stays what it is."""

    @classmethod
    def of(cls, client: Client) -> Memory:
        """The memory of a client as it is now."""
        part, at = client.part, client.at
        assert isinstance(part, KeyedClient)
        names, union, (bits, step) = part.naming.names, part.union, part.tables.grid or (99, -1.0)
        bound: dict[tuple[object, ...], object] = {
            ("whose list has which hash, in an epoch of names", names.listed, v): mark
            for v, mark in names.marks.items()
        }
        if names.listed:
            bound["the names of its list", names.listed] = names.fresh
        if names.listed and names.blinding is not None:
            bound["its list", names.listed] = oprf.list_hash(names.blinding.points)
        if names.number:
            bound["its share of the key of names",] = part.naming.key.share, part.naming.key.joint
        numbers = {
            "the number of unions": at.union, "the number of rounds": at.round,
            "the epochs of names": at.names, "the epochs of names that it asked in": names.asked,
            "the epochs of names that were answered": names.number, "the last epoch with a list of it": names.listed,
            "how few bits its tables had": -bits, "how wide the step of its tables was": step,
            "the last training round that it uploaded": part.released.round,
        }  # fmt: skip
        if union is not None and union.L:
            numbers[f"whether the union {union.L.hex()} is spent"] = union.spent
        return cls(numbers, dict(names.prf), bound)

    def forgotten(self, now: Memory) -> list[str]:
        """What is less than it was."""
        less = [
            what for what, number in self.numbers.items()
            if what in now.numbers and now.numbers[what] < number
        ]  # fmt: skip
        if not self.values.items() <= now.values.items():
            less.append("keys of names")
        return less + [str(what[0]) for what, said in self.bound.items() if now.bound.get(what, said) != said]


class Remembering(Life):
    """Looks after each step whether a client forgot something."""

    def __init__(self, subject: Subject, **params: Any) -> None:
        super().__init__(subject, **params)
        self._memories: dict[int, Memory] = {}

    def ask(self, then: str = "") -> None:
        """Look at them all."""
        for n, client in self.parties.clients.items():
            now, where = Memory.of(client), f"{len(self.said)}: client {n} in {client.at.phase}{then}"
            for what in self._memories.get(n, now).forgotten(now):
                raise Objection(f"a client forgets {what}, or says something else than before: {where}")
            self._memories[n] = now
            self.said[where] = []


class Meddling(Life):
    """Between all steps, the users of clients bring other tables and other names, and take them back."""

    def ask(self, then: str = "") -> None:
        """Let them all do it."""
        for n, client in self.parties.clients.items():
            where = f"{len(self.said)}: client {n} in {client.at.phase}{then}"
            sent = [bytes(each) for each in client.outbox()]
            if not client.asked:
                other = {name: row + len(self.said) / 99 for name, row in self.tables[n].items()}
                with suppress(SecEAError):
                    client.contribute(other, self.parties.number)
            wanted = client.part.next_names
            with suppress(SecEAError):
                client.part.update(wanted[1:])
            if [bytes(each) for each in client.outbox()] != sent:
                raise Objection(f"a client's own user changes what it has to send, under the same keys: {where}")
            client.part.update(wanted)
            self.said[where] = []


class Waiting(Life):
    """After each step, clients say who may have kept what they wait for."""

    def ask(self, then: str = "") -> None:
        """Hear them all."""
        for n, client in self.parties.clients.items():
            where, missing = f"{len(self.said)}: client {n} in {client.at.phase}{then}", client.overdue()
            if missing is not None and SERVER not in missing.suspects:
                raise Objection(f"a client blames others alone for what did not come, and not the relay: {where}")
            self.said[where] = [str(missing)] if missing else []


def _both(subject: Subject, life: type[Life]) -> Said:
    return names_that_change(subject, life) | {f"with drop-outs {k}": v for k, v in openings(subject, life).items()}


@claim("record", KEYED, mutants=(mutants.GRID_OF_A_RUN, mutants.LISTS_OF_NOW, mutants.UPLOADS_OF_A_UNION))
def remembered(subject: Subject) -> int:
    """Keyed: whatever the server begins or gives up, clients forget nothing that binds them.

    How coarse tables were, what was uploaded and to whom, lists of names and their hashes, keys of names, and numbers
    that only grow. A list that is asked for again is the same, also if entities changed in between.
    """
    return len(_both(subject, Remembering))


@claim("record", KEYED, mutants=(mutants.TABLE_CORRECTED,))
def said_once(subject: Subject) -> int:
    """Keyed: what a client has to send does not change, whatever its own user does: nothing goes out twice.

    Two uploads under the same masks would show which rows changed, and by how much.
    """
    return len(_both(subject, Meddling))


@claim("record", KEYED, mutants=(mutants.RELAY_TRUSTED,))
def withheld(subject: Subject) -> int:
    """Keyed: a client that waits for a message of another one suspects the server, too: it may have kept it."""
    waits = [each for each in _both(subject, Waiting).values() if each]
    assert waits
    return len(waits)
