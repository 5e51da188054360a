"""The interface between the protocol and the engine that carries its messages: exchanges of orders and replies.

The server's side gives each client an `Order`: messages to take, and a task. The client does it and gives a `Reply`:
messages to pass on. An engine carries both as bytes, large ones in parts, so that nobody holds all messages at once.
`secea.engines.driver` gives the orders, and `secea.engines.host` carries them out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from secea.engines.spool import rest
from secea.errors import ProtocolError, party
from secea.party.form import HELD_BYTES
from secea.wire.messages import Buffer

PART_BYTES: Final = HELD_BYTES
"""Of the messages in one part of an order or of a reply; one message, if it is larger."""
REFUSES: Final = "it refuses what came from "
LATE: Final = "its core did not reply within "
MOST_SAID: Final = 500
"""Characters of what the server says in an order: a site's log keeps no more."""


NOTHING: Final[Mapping[int, str]] = MappingProxyType({})


class Task(IntEnum):
    """What a client does after taking its messages and before replying with its outbox."""

    HELLO = 1
    """Say who you are, and where in the protocol."""
    STEP = 2
    """Nothing more."""
    ROUND = 3
    """Train, and begin the round."""
    END = 4
    """The run is over: keep the result, and forget the rest."""
    TAKE = 5
    """Only take the messages, and say nothing: the rest of the order follows."""
    MORE = 6
    """Give another part of the reply; `Order.round` says which."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a client is asked to do. If it comes twice, the reply is the same."""

    task: Task
    round: int = 0
    messages: list[Buffer] = field(default_factory=list, repr=False)
    said: str = ""
    """Why the server left this client out before. Anybody on the way can write it, and nothing but a log reads it."""

    def parts(self) -> Iterator[Order]:
        """The same in parts: messages to be taken, and with the last of them what is to be done."""
        for messages, more in gathered(self.messages):
            yield Order(Task.TAKE, self.round, messages) if more else replace(self, messages=messages)

    def to_bytes(self) -> bytes:
        """The encoded bytes, as they travel."""
        return _pack((self.task, self.round), self.said[:MOST_SAID].encode(), self.messages)

    @classmethod
    def parse(cls, data: Buffer, carrier: int) -> Order:
        """An order, or a `ProtocolError` that names the carrier."""
        (task, round_), text, messages = _parse(data, carrier)
        if task not in set(Task):
            raise ProtocolError((carrier,), f"an order with the unknown task {task}")
        return cls(Task(task), round_, messages, text.decode(errors="replace")[:MOST_SAID])


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client gives back: its outbox, and where it is in the protocol."""

    messages: list[Buffer] = field(default_factory=list, repr=False)
    fault: str = ""
    """Why it cannot continue: what it refused, or what went wrong on its side."""
    more: bool = False
    """Whether this is only a part of the outbox, and the rest follows."""
    standing: bytes = b""
    """Where the client is in the protocol (`secea.party.phases.Standing`)."""

    def to_bytes(self) -> bytes:
        """The encoded bytes, as they travel."""
        return _pack((self.more, 0), self.fault.encode(), [self.standing, *self.messages])

    @classmethod
    def parse(cls, data: Buffer, carrier: int) -> Reply:
        """A reply, or a `ProtocolError` that names the carrier."""
        (more, _), text, messages = _parse(data, carrier)
        if not messages:
            raise ProtocolError((carrier,), "a reply that does not say where its client stands")
        standing, *rest = messages
        return cls(rest, text.decode(errors="replace"), bool(more), bytes(standing))


class Cause(StrEnum):
    """Why a client does not take part, in one word."""

    UNREACHABLE = "unreachable"
    """Nothing at its site answers: it was killed, or has no network."""
    SLOW = "slow"
    """Its site answers, and it was not done in time."""
    FAILED = "failed"
    """Its own side says that it cannot go on: its function raised, its disk is full, its core was killed."""
    REFUSED = "refused"
    """The server refuses what it sent: another key, other parameters, a wrong message."""
    OBJECTS = "objects"
    """It refuses what others, or the server, sent to it."""
    WAITS = "waits"
    """It has to wait for others, or for a new session."""
    ABSENT = "absent"
    """It is not called."""

    @classmethod
    def of(cls, said: str) -> Cause:
        """What a client's own side says about itself. It may be a lie, and then only a log is wrong."""
        if said.startswith(REFUSES):
            return cls.OBJECTS
        return cls.SLOW if said.startswith(LATE) else cls.FAILED


@dataclass(frozen=True, slots=True)
class Failure:
    """No reply came from a client: it crashed, it hangs, it cannot be reached."""

    reason: str
    cause: Cause = Cause.FAILED


@dataclass(frozen=True, slots=True)
class Alive:
    """No reply yet, but a client's site answers, and says that it works on its order. Nothing is built on it."""

    seconds: float
    """How long it has worked, as it says."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for an exchange: how long it may take, and what is said to whom."""

    seconds: float
    """The time after which nobody is waited for."""
    training: float = 0.0
    """So much of it is for training: a call in which nobody trains needs no more than the rest."""
    said: Mapping[int, str] = field(default_factory=dict)
    """Why clients that are called had been left out."""

    @property
    def brief(self) -> float:
        """The time for what is no training."""
        return self.seconds - self.training


def refusal(suspects: Iterable[int]) -> str:
    """What the server's side is told by a client that refuses what one of these parties sent."""
    return REFUSES + " or ".join(map(party, suspects))


class Port(Protocol):
    """An engine, seen from the server's side."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure | Alive]]:
        """Give each client its order, and yield what comes back, in any order. Ends when the time of `terms` is over.

        `inboxes` gives the messages that can be delivered at the time of the call; one call is enough. The caller may
        stop early.
        """
        ...


def orders(
    tasks: Mapping[int, Task], round: int, inboxes: Mapping[int, list[Buffer]], said: Mapping[int, str] = NOTHING
) -> dict[int, Order]:
    """The order for each client. A client that is only called gets no messages, since it may not understand them."""
    return {
        n: Order(Task.HELLO, round, said=said.get(n, ""))
        if task is Task.HELLO
        else Order(task, round, list(inboxes.get(n, [])))
        for n, task in tasks.items()
    }


def asked(order: Order, ask: Callable[[Order], Reply]) -> Iterator[Reply]:
    """The parts of one client's reply to an order, which is given to it in parts. `ask` carries one of them.

    Each part of the reply is asked for when the one before was used.
    """
    reply = Reply()
    for part in order.parts():
        reply = ask(part)
        for message in part.messages:
            rest(message)  # others may get it later
        if reply.fault:
            break
    number = order.round if order.task is Task.MORE else 0
    while reply.more and not reply.fault:
        yield reply
        number += 1
        reply = ask(Order(Task.MORE, number))
    yield reply


def gathered(messages: Iterable[Buffer]) -> Iterator[tuple[list[Buffer], bool]]:
    """Messages in groups of at most `PART_BYTES`, each with whether another group follows. There is at least one."""
    some, size = list[Buffer](), 0
    for message in messages:
        if some and size + len(message) > PART_BYTES:
            yield some, True
            some, size = [], 0
        some.append(message)
        size += len(message)
    yield some, False


_HEAD: Final = struct.Struct("<IIII")
_SIZE: Final = struct.Struct("<Q")


def _pack(numbers: tuple[int, int], text: bytes, messages: list[Buffer]) -> bytes:
    head = _HEAD.pack(*numbers, len(text), len(messages))
    return b"".join([head, *(_SIZE.pack(len(message)) for message in messages), text, *messages])


def _parse(data: Buffer, carrier: int) -> tuple[tuple[int, int], bytes, list[Buffer]]:
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ProtocolError((carrier,), f"{len(view)} bytes are neither an order nor a reply")
    first, second, text_bytes, count = _HEAD.unpack_from(view)
    at = _HEAD.size + count * _SIZE.size
    if len(view) < at + text_bytes:
        raise ProtocolError((carrier,), f"an order or a reply of {count} messages is cut off at {len(view)} bytes")
    sizes = [size for (size,) in _SIZE.iter_unpack(view[_HEAD.size : at])]
    if len(view) != at + text_bytes + sum(sizes):
        raise ProtocolError((carrier,), f"an order or a reply has {len(view)} bytes, but says that it has another size")
    text = bytes(view[at : at + text_bytes])
    at += text_bytes
    messages: list[Buffer] = []
    for size in sizes:
        messages.append(view[at : at + size])
        at += size
    return (first, second), text, messages
