"""The clients of a `Federation` as its user calls them: by number, and by name if they came in a mapping.

Inside, parties know each other by number. Names are put in, and into errors, where the user's call ends: as an entity's
own spelling is (`secea.names`). docs/decisions/0021-names-at-the-edge.md
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, TypeVar

from secea.errors import SERVER, CallError, ProtocolError, SecEAError, TableError, TableTypeError
from secea.frames import is_frame

Who: TypeAlias = int | str
"""A client: its number, or its name."""
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

SERVER_NAME: Final = "server"
SAID: Final = re.compile(r"""(?<!\w)(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")(?!\w)|\bclient (\d+)\b""")
"""A quoted text, such as an entity's name; or a client that is called by its number."""
FEW: Final = 20
"""So many names are listed in an error."""


@dataclass(frozen=True)
class Members:
    """Who the clients are. Without names they are their numbers."""

    count: int
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, items: object, count: int) -> Members:
        """The clients for whom something is given: named if it is a mapping."""
        if not isinstance(items, Mapping):
            return cls(count)
        if len(items) != count:
            raise TableError(f"{len(items)} clients were given, the federation has {count}")
        return cls(count, tuple(map(_name, items)))

    def __str__(self) -> str:
        if not self.names:
            return f"0..{self.count - 1}"
        more = f" and {self.count - FEW} more" if self.count > FEW else ""
        return ", ".join(self.names[:FEW]) + more

    def number(self, client: object) -> int:
        """The number of a client that the user calls so."""
        if isinstance(client, str) and client in self.names:
            return self.names.index(client)
        if isinstance(client, str) or client not in range(self.count):
            raise CallError(f"there is no client {client!r}; the clients are {self}")
        return int(client)  # type: ignore[call-overload, no-any-return]  # it is a number, as it is in a range

    def numbers(self, clients: Who | Iterable[Who]) -> list[int]:
        """The numbers of one or of several."""
        return [self.number(client) for client in ([clients] if isinstance(clients, int | str) else clients)]

    def called(self, number: int) -> Who:
        """How results call a party."""
        if number == SERVER:
            return SERVER_NAME
        return self.names[number] if self.names else number

    def each(self, items: object, what: str) -> list[Any]:
        """One item for each client, by number. None for those that a mapping does not have."""
        if isinstance(items, Mapping):
            if not self.names:
                raise TableTypeError(
                    f"expected a list of {self.count} {what}, one per client, got {type(items).__name__}; clients have"
                    " names if those of the set-up come in a mapping"
                )
            if unknown := [name for name in items if name not in self.names]:
                raise CallError(f"there is no client {unknown[0]!r}; the clients are {self}")
            return [items.get(name) for name in self.names]
        if isinstance(items, str | bytes) or is_frame(items) or not isinstance(items, Iterable):
            raise TableTypeError(f"expected a list of {self.count} {what}, one per client, got {type(items).__name__}")
        listed = list(items)
        if len(listed) != self.count:
            raise TableError(f"{len(listed)} {what} were given, the federation has {self.count} clients")
        return listed

    def by_client(self, results: Sequence[T]) -> list[T] | dict[str, T]:
        """Results under the clients' names if they have names, else in their order."""
        return dict(zip(self.names, results, strict=True)) if self.names else list(results)

    def joined_by(self, name: str | None) -> Self:
        """These and a newcomer."""
        if not self.names:
            if name is not None:
                raise CallError(f"the clients of this federation have no names, so none can be called {name!r}")
            return type(self)(self.count + 1)
        if name is None:
            raise CallError(f"the newcomer needs a name, as the others have ({self}): join(..., name=...)")
        if _name(name) in self.names:
            raise CallError(f"there is a client {name!r} already; the clients are {self}")
        return type(self)(self.count + 1, (*self.names, _name(name)))

    def only(self, numbers: Iterable[int]) -> Self:
        """These of them, in this order."""
        kept = list(numbers)
        return type(self)(len(kept), tuple(self.names[n] for n in kept) if self.names else ())

    # --------------------------------------------------------------------------------------------------------- errors

    def said(self, text: str) -> str:
        """A text with names instead of numbers, but for what is quoted in it."""

        def name(found: re.Match[str]) -> str:
            number = int(found[1] or -1) if found[1] else -1
            return f"client {self.names[number]}" if 0 <= number < len(self.names) else found[0]

        return SAID.sub(name, text) if self.names else text

    def told(self, error: E) -> E:
        """An error with names instead of numbers; its `suspects` stay numbers."""
        if self.names:
            if isinstance(error, ProtocolError):
                error.fault = self.said(error.fault)
            error.args = tuple(self.said(each) if isinstance(each, str) else each for each in error.args)
        return error

    def told_of(self, faults: Iterable[ProtocolError]) -> list[ProtocolError]:
        """The same for errors that belong to somebody else: copies."""
        return [self.told(copy.copy(fault)) for fault in faults]

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Errors that leave this block call clients by their names. Not within another such block."""
        try:
            yield
        except SecEAError as error:
            self.told(error)
            raise


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TableTypeError(f"the client name {name!r} is of type {type(name).__name__}; names of clients are texts")
    if not name:
        raise TableError("the name of a client is empty")
    if name == SERVER_NAME:
        raise TableError(f"no client can be called {name!r}: that is the server")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TableError(f"the client name {name!r} holds a lone surrogate and is no valid unicode text") from None
    return str.__str__(name)
