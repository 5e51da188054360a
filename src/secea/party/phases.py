"""The table of phases: what is sent in each, to whom, what is awaited, and what follows.

A form lists its `Row`s. Client and server interpret them: what is due, what is missing, what is early or late, and what
a loss costs all follow from the table. `Agreement` is what all parties of a phase agree on; it labels every message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from enum import IntEnum as Kinds
from typing import Any, Final

from secea.wire.keys import digest
from secea.wire.messages import DIGEST_BYTES, NO_CONTEXT, Buffer

REST: Final = "rest"
"""The phase in which nothing is in progress: there is a union, and a round may begin."""
GREETING: Final = "greeting"
"""The phase before the server has said who takes part."""
STOPPED: Final = "stopped"
"""The phase of a client that refused something: it waits for another attempt."""


MOST_ATTEMPTS: Final = 8
"""At a union whose table is too full: each has a larger one."""
UNKNOWN: Final = -1
"""The size of a union that is not complete yet."""


class Common(StrEnum):
    """The names of the kinds of messages that every form has; each gives them numbers of its own."""

    HELLO = "HELLO"
    BEGIN = "BEGIN"
    """The server says who takes part in what begins now, or whose messages count."""
    KEY = "KEY"
    """The server's key of the broadcast that follows. Only where a form has broadcasts."""
    DIGEST = "DIGEST"
    """The tag of that broadcast, for one receiver."""


class Route(Enum):
    """The way that a kind of message takes."""

    SERVER = "client to server, sealed"
    EACH = "client to client, sealed end to end, relayed"
    ALL = "client to all, signed, relayed"
    BROADCAST = "server to all, sealed once"
    SAME = "server to all, sealed for each"
    OWN = "server to each client, what is for it alone"


@dataclass(frozen=True, slots=True)
class Row:
    """One phase: what clients send when it begins, what comes back, what a loss costs, what follows."""

    phase: str
    sends: tuple[Kinds, ...] = ()
    """What clients send; the form's routes say to whom."""
    answers: tuple[Kinds, ...] = ()
    """What the server makes of it and broadcasts."""
    on_loss: str = ""
    """The phase that begins again where this one gives no result; a `Driver` finds out by itself what is due."""
    then: str = REST
    """The phase that follows."""
    announced: bool = False
    """Whether it can begin with the server's word on who takes part."""
    decides: bool = False
    """Whether it always does, also where it follows another phase: who got so far takes part."""
    counts: str = "union"
    """Which number an announcement of it raises: the `union`'s, the `round`'s, or none."""
    tolerates: bool = False
    """Whether it continues if some members are missing: the form's quorum is enough."""
    loses_round: bool = False
    """Whether a round is lost if too many are missing."""
    settles: int = 0
    """Where the server says at the end of the phase whose messages count, the number of that word; 0 where all do.

    What clients sent each other follows that word.
    """
    silent: bool = False
    """Whether it begins without a word of the server's: clients begin it when they contribute."""
    instead: Kinds | None = None
    """What a client sends if it cannot continue: the phase `on_loss` then begins again, as another attempt."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all parties of a phase agree on. A message that was made under another one is refused."""

    phase: str = GREETING
    members: tuple[int, ...] = ()
    participants: tuple[int, ...] = ()
    """Those of the union: members of a later phase may be fewer."""
    union: int = 0
    """Counts all attempts at a union or at what comes before it."""
    attempt: int = 0
    """Counts attempts at a union that stalled: each has a larger table."""
    names: int = 0
    """Counts the epochs in which names are turned into keys."""
    named: int = 0
    """The last of these that was finished."""
    round: int = 0
    """q: counts attempts at a round."""
    base: bytes = NO_CONTEXT
    """The digest of the key of the session's names, once there is one."""
    context: bytes = NO_CONTEXT
    """The digest of everything since the phase was announced."""
    size: int = UNKNOWN
    """M, once the union is complete."""
    word: bytes = b""
    """The server's word on whose messages count in this phase, where it gives one."""

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers, as they are in a header."""
        return {"epoch": self.union, "attempt": self.attempt, "weights": self.names, "round": self.round}

    def plain(self) -> tuple[int | bytes, ...]:
        """What a party keeps of it when it is restarted: numbers that only grow, and the key of the names."""
        return self.union, self.attempt, self.names, self.named, self.round, self.base

    @classmethod
    def resumed(cls, plain: tuple[Any, ...]) -> Agreement:
        """The state of a restarted party: nothing is in progress, and everything it begins is new."""
        union, attempt, names, named, round_, base = plain
        return cls(union=union, attempt=attempt, names=names, named=named, round=round_, base=base)

    def bound(self, *parts: bytes) -> Agreement:
        """With these public facts bound into the context."""
        return replace(self, context=digest(b"bound", self.context, self.phase.encode(), *parts))


_STANDING: Final = struct.Struct(f"<IIIII{DIGEST_BYTES}s")
MOST_AHEAD: Final = 1 << 16
"""The most unions that may have passed since a client took part, so that nobody can use up all numbers at once."""
MOST_BEGUN: Final = 1 << 31
"""Nobody has begun this many unions: a number that says so is a lie."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a client is in the protocol. A server that lost its state learns from it which numbers are used."""

    settled: int = 0
    """The union that it takes part in now; 0 for none."""
    union: int = 0
    names: int = 0
    named: int = 0
    round: int = 0
    base: bytes = NO_CONTEXT

    def to_bytes(self) -> bytes:
        """As it travels."""
        return _STANDING.pack(self.settled, self.union, self.names, self.named, self.round, self.base)

    @classmethod
    def parse(cls, data: Buffer, rounds: int, epochs: int) -> Standing:
        """The inverse of `to_bytes`. A `ValueError` if the numbers exceed the session's rounds or epochs of names."""
        if len(data) != _STANDING.size:
            raise ValueError(f"{len(data)} bytes do not say where a client stands")
        found = cls(*_STANDING.unpack(data))
        counted = found.named <= found.names <= min(epochs, found.union) and found.union < MOST_BEGUN
        if not counted or found.round > rounds or found.settled not in (0, found.union):
            raise ValueError("a client stands where nobody can stand")
        return found


_MEMBER: Final = struct.Struct(f"<H{DIGEST_BYTES}s")


@dataclass(frozen=True, slots=True)
class Begin:
    """The server's word on what begins and who takes part, each with its present incarnation."""

    phase: int
    members: tuple[tuple[int, bytes], ...] = field(repr=False)

    @property
    def clients(self) -> tuple[int, ...]:
        """The members' numbers."""
        return tuple(n for n, _ in self.members)

    def to_bytes(self) -> bytes:
        """One byte for the phase, then the members in order."""
        return bytes([self.phase]) + b"".join(_MEMBER.pack(*member) for member in self.members)

    @classmethod
    def parse(cls, data: Buffer, clients: int) -> Begin:
        """What `to_bytes` made; a `ValueError` says what is wrong with it."""
        if len(data) < 1 or (len(data) - 1) % _MEMBER.size:
            raise ValueError(f"{len(data)} bytes are no word on who takes part")
        members = tuple((int(n), bytes(life)) for n, life in _MEMBER.iter_unpack(memoryview(data)[1:]))
        numbers = [n for n, _ in members]
        if numbers != sorted(set(numbers)) or any(n >= clients for n in numbers):
            raise ValueError(f"the members {numbers} are not clients of this federation in order")
        return cls(data[0], members)

    @staticmethod
    def size(members: int) -> int:
        """The size in bytes of a word on this number of members."""
        return 1 + members * _MEMBER.size

    def agreed(self, phase: str, before: Agreement, numbers: dict[str, int], context: bytes) -> Agreement:
        """What the members agree on when the phase begins, in this context."""
        same = numbers["epoch"] == before.union
        size, participants = (before.size, before.participants) if same else (UNKNOWN, self.clients)
        return replace(
            before, phase=phase, size=size, participants=participants, members=self.clients, union=numbers["epoch"],
            attempt=numbers["attempt"], names=numbers["weights"], round=numbers["round"], context=context,
        )  # fmt: skip


def begun(anchor: bytes, phase: str, numbers: dict[str, int], word: bytes) -> bytes:
    """The context in which an announced phase begins: bound to what was agreed on before, and to who takes part."""
    text = b" ".join(b"%d" % value for value in numbers.values())
    return digest(b"begin", anchor, phase.encode(), text, word)


def row_of(rows: tuple[Row, ...], phase: str) -> Row:
    """The row of a phase; phases in which nothing is due have an empty one."""
    return next((row for row in rows if row.phase == phase), Row(phase))
