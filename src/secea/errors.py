"""All errors and warnings that secea raises on purpose, and who is to blame.

* An error that the caller made is also a `ValueError` or a `TypeError`.
* A `ProtocolError` is a peer's fault. Its `suspects` are the parties that could have caused it. The party that raises
  it has not changed its state.
* An `AssertionError` from this package is a bug in secea.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SERVER: Final = 0xFFFF
"""The server's number where a party is named by number (clients are 0, 1, ..., N-1)."""


def party(number: int) -> str:
    """The name of a party in messages for people."""
    return "the server" if number == SERVER else f"client {number}"


class SecEAError(Exception):
    """The root of all errors that this package raises on purpose."""


class ParamsError(SecEAError, ValueError):
    """A parameter, or a combination of them, that no federation can run with."""


class TableError(SecEAError, ValueError):
    """A table of embeddings that cannot be used. The text names the entity."""


class TableTypeError(TableError, TypeError):
    """A name or an embedding of a type that cannot be used."""


class FederationError(SecEAError):
    """The federation cannot continue as asked: too few parties, no union, a call out of order."""


class RoundLost(FederationError):
    """A round gives no means, since somebody vanished in the middle of it. Continue training; the next round works."""


class CallError(FederationError, ValueError):
    """A call that does not fit: out of order, to a busy federation, for a client that does not exist."""


class SnapshotError(SecEAError, ValueError):
    """Saved state that cannot be restored: damaged, another version, or another party's."""


class DataError(SecEAError, ValueError):
    """Data, or the folder of a run, that cannot be used. The text names the file, and the line if there is one."""


class NothingMeasured(SecEAError):
    """A run came to its end, and nobody had anything to test its embeddings on."""


class MissingExtra(SecEAError, ImportError):
    """Libraries for a part of the package are not installed. The text says what to install."""


class SlowKernels(UserWarning):
    """The compiled loops are missing. Everything works, but many times slower."""


class ProtocolError(SecEAError):
    """A message, or its absence, that a correct party would not have produced."""

    def __init__(self, suspects: Iterable[int], fault: str) -> None:
        self.suspects: tuple[int, ...] = tuple(dict.fromkeys(suspects))
        self.fault = fault
        super().__init__(f"{' or '.join(party(s) for s in self.suspects)}: {fault}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.suspects, self.fault)


class FaultyPeer(ProtocolError):
    """Only the sender can have caused this: the message is authentic but wrong."""

    def __init__(self, sender: int, fault: str) -> None:
        super().__init__((sender,), fault)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.suspects[0], self.fault)


class FaultyPeerOrRelay(ProtocolError):
    """The sender, or the server that relayed the message, caused this: it is not authentic."""

    def __init__(self, sender: int, fault: str) -> None:
        super().__init__((sender, SERVER), fault)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.suspects[0], self.fault)


class Stale(ProtocolError):
    """The message was taken before, or its time has passed. Ignore it.

    A restarted party sends its messages again, and a slow one sends them late. Or somebody replays them.
    """


class TwoClients(UserWarning):
    """With two clients, each learns the other's rows of common entities by subtraction. With three it learns less."""


class NothingShared(UserWarning):
    """No entity is in two tables, so that each client gets its own rows back: mostly names are spelled differently."""


class Uncovered(UserWarning):
    """With this many drop-outs allowed, there is no protection against a server that deviates from the protocol."""
