"""The port between the protocol and whatever carries its messages: one exchange of orders and replies.

The server's side gives each client an `Order` (messages to take, and a task); the client does it and gives a `Reply`
(messages to pass on). An engine carries both as bytes; `secea.engines.driver` gives the orders, `secea.engines.host`
obeys them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from secea.errors import ProtocolError
from secea.wire.messages import Buffer


class Task(IntEnum):
    """What a client does after it has taken its messages, and before it replies with its outbox."""

    HELLO = 1
    """Say who and where you are."""
    STEP = 2
    """Nothing more."""
    ROUND = 3
    """Train, and begin the round."""
    END = 4
    """It is over: keep the result, and forget the rest."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a client is asked for. It may come twice: the reply is then the same."""

    task: Task
    round: int = 0
    messages: list[Buffer] = field(default_factory=list, repr=False)

    def to_bytes(self) -> bytes:
        """As it travels."""
        return _pack((self.task, self.round), b"", self.messages)

    @classmethod
    def parse(cls, data: Buffer, carrier: int) -> Order:
        """An order, or a `ProtocolError` that names the carrier."""
        (task, round_), _, messages = _parse(data, carrier)
        if task not in set(Task):
            raise ProtocolError((carrier,), f"an order with the unknown task {task}")
        return cls(Task(task), round_, messages)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client gives back: its outbox, and where it stands."""

    messages: list[Buffer] = field(default_factory=list, repr=False)
    fault: str = ""
    """Why it cannot go on: what it refused, or what went wrong at its side."""
    more: bool = False
    """This is a part of the outbox; the rest follows (within one process alone)."""
    standing: bytes = b""
    """Where it stands (`secea.party.phases.Standing`)."""

    def to_bytes(self) -> bytes:
        """As it travels."""
        return _pack((0, 0), self.fault.encode(), [self.standing, *self.messages])

    @classmethod
    def parse(cls, data: Buffer, carrier: int) -> Reply:
        """A reply, or a `ProtocolError` that names the carrier."""
        _, text, messages = _parse(data, carrier)
        if not messages:
            raise ProtocolError((carrier,), "a reply that does not say where its client stands")
        standing, *rest = messages
        return cls(rest, text.decode(errors="replace"), standing=bytes(standing))


@dataclass(frozen=True, slots=True)
class Failure:
    """No reply came from a client: it crashed, it hangs, it cannot be reached."""

    reason: str


class Port(Protocol):
    """An engine, seen from the server's side."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """Give each client its order; what comes back, in any order, at most `timeout` seconds later. Never hangs.

        `inboxes` gives the messages that can be delivered when it is called; once is enough. The caller may stop early.
        """
        ...


def orders(tasks: Mapping[int, Task], round: int, inboxes: Mapping[int, list[Buffer]]) -> dict[int, Order]:
    """What each client gets. A client that is only called gets no messages: it may not know what they are about."""
    return {n: Order(task, round, [] if task is Task.HELLO else list(inboxes.get(n, []))) for n, task in tasks.items()}


_HEAD: Final = struct.Struct("<IIII")
_SIZE: Final = struct.Struct("<Q")


def _pack(numbers: tuple[int, int], text: bytes, messages: list[Buffer]) -> bytes:
    head = _HEAD.pack(*numbers, len(text), len(messages))
    return b"".join([head, *(_SIZE.pack(len(message)) for message in messages), text, *messages])


def _parse(data: Buffer, carrier: int) -> tuple[tuple[int, int], bytes, list[Buffer]]:
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ProtocolError((carrier,), f"{len(view)} bytes are no order and no reply")
    first, second, text_bytes, count = _HEAD.unpack_from(view)
    at = _HEAD.size + count * _SIZE.size
    if len(view) < at + text_bytes:
        raise ProtocolError((carrier,), f"an order or a reply of {count} messages is cut off at {len(view)} bytes")
    sizes = [size for (size,) in _SIZE.iter_unpack(view[_HEAD.size : at])]
    if len(view) != at + text_bytes + sum(sizes):
        raise ProtocolError((carrier,), f"an order or a reply has {len(view)} bytes, and says that it has others")
    text = bytes(view[at : at + text_bytes])
    at += text_bytes
    messages: list[Buffer] = []
    for size in sizes:
        messages.append(view[at : at + size])
        at += size
    return (first, second), text, messages
