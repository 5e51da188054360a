"""Everything that secea raises on purpose, and who is to blame.

* A mistake of the caller is a `ValueError` or a `TypeError` as well.
* A `ProtocolError` is a peer's fault. It carries the parties that could have caused it as data (`suspects`);
  the party that raises it has not changed its state.
* An `AssertionError` from this package is a bug of ours.
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
    """A table of embeddings that cannot be used; the entity is named."""


class TableTypeError(TableError, TypeError):
    """A name or an embedding of a type that cannot be used."""


class FederationError(SecEAError):
    """The federation cannot go on as asked: too few parties, no union, a call out of order."""


class RoundLost(FederationError):
    """A round that gives no means: somebody vanished in the middle of it. Train on; the next round works."""


class CallError(FederationError, ValueError):
    """A call that does not fit: out of order, to a busy federation, for a client that does not exist."""


class SnapshotError(SecEAError, ValueError):
    """Saved state that cannot be restored: damaged, another version, or another party's."""


class DataError(SecEAError, ValueError):
    """Data, or the folder of a run, that cannot be used; the file is named, and the line where there is one."""


class MissingExtra(SecEAError, ImportError):
    """A part of the package whose libraries are not installed; the text says what to install."""


class SlowKernels(UserWarning):
    """The compiled loops are missing: everything works, and is many times slower."""


class ProtocolError(SecEAError):
    """A message, or its absence, that a correct party would not have produced."""

    def __init__(self, suspects: Iterable[int], fault: str) -> None:
        self.suspects: tuple[int, ...] = tuple(dict.fromkeys(suspects))
        self.fault = fault
        super().__init__(f"{' or '.join(party(s) for s in self.suspects)}: {fault}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.suspects, self.fault)


class FaultyPeer(ProtocolError):
    """Only the sender can have caused this: the message is authentic, and wrong."""

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

    A party that was restarted sends its messages again, and one that is slow sends them late; or someone replays them.
    """


class TwoClients(UserWarning):
    """Two clients learn more of each other than three: by subtraction."""


class Uncovered(UserWarning):
    """So many drop-outs leave no room against a server that deviates."""
