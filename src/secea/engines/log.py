"""A party's audit log, as lines of JSON: events of a run, and each message that was sent, accepted or refused.

It holds no secrets and no contents. docs/deploy.md has the table of all events. `secea.engines.progress` makes from the
same events what an operator is shown.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from secea.errors import ProtocolError, Stale, party
from secea.wire.messages import ALL, Buffer, Header

MOST_BYTES: Final = 1 << 25
"""A log that has grown to this size is put aside, and a new one is begun."""
KEPT: Final = 4
"""So many logs that were put aside are kept: audit.jsonl.1 is the newest of them."""

WARNINGS: Final = frozenset({"refused", "lost", "round lost", "waiting", "left out", "set-up failed"})
ERRORS: Final = frozenset({"stopped", "failed"})
"""Events that an operator should look at, and those after which somebody has to do something."""

_NUMBERED: Final = re.compile(r"\bclient (\d+)\b")


class Log:
    """A party's log. `kinds` are those of the federation's form; `names` those of its clients. No path: no log.

    A line is on its way to the disk when a call returns: it outlives this process.
    """

    def __init__(
        self, path: Path | str | None = None, kinds: type[IntEnum] | None = None, names: tuple[str, ...] = ()
    ) -> None:
        self._path, self._kinds, self._names = None if path is None else Path(path), kinds, names

    def sent(self, messages: Iterable[Buffer]) -> None:
        """Record messages that leave this party."""
        for message in messages:
            self._message("sent", message)

    def accepted(self, message: Buffer) -> None:
        """Record a message that was accepted."""
        self._message("accepted", message)

    def refused(self, message: Buffer, error: ProtocolError) -> None:
        """Record a message that was refused, and who could have caused it. One that came before is just ignored."""
        self._message("ignored" if isinstance(error, Stale) else "refused", message, error)

    def noted(self, what: str, **details: object) -> None:
        """Record an event that is not a message: a client that did not reply, the end of a round."""
        self._line(what, details)

    def alive(self, n: int, seconds: float) -> None:
        """Client n has worked for so long on what it was given. That comes too often for a line."""

    def named(self, text: str) -> str:
        """The same text with the names of clients in place of their numbers."""
        return _NUMBERED.sub(lambda found: self._name(int(found[1])), text)

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else party(number)

    def _named(self, value: object) -> object:
        if isinstance(value, str):
            return self.named(value)
        return [self._named(each) for each in value] if isinstance(value, list | tuple) else value

    def _message(self, event: str, message: Buffer, error: ProtocolError | None = None) -> None:
        if self._path is None:
            return
        assert self._kinds is not None
        line: dict[str, object] = {"bytes": len(message), "sha256": hashlib.sha256(message).hexdigest()}
        try:
            header = Header.parse(message, 0, self._kinds)
        except ProtocolError:
            line["kind"] = "unreadable"
        else:
            receiver = "all clients" if header.receiver == ALL else party(header.receiver)
            line |= {"kind": header.kind.name.lower(), "from": party(header.sender), "to": receiver}
            line |= {
                name: getattr(header, name) for name in ("epoch", "attempt", "weights", "round", "chunk", "chunks")
            }
        if error is not None:
            line["why"] = error.fault
        if event == "refused" and error is not None:
            line["suspects"] = [party(suspect) for suspect in error.suspects]
        self._line(event, line)

    def _line(self, event: str, details: dict[str, Any]) -> None:
        if self._path is None:
            return
        level = "error" if event in ERRORS else "warning" if event in WARNINGS else "info"
        line = {"time": round(time.time(), 3), "level": level, "event": event}
        line |= {name: self._named(value) for name, value in details.items()}
        with _opened(self._path) as descriptor:
            os.write(descriptor, json.dumps(line).encode() + b"\n")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The log, locked for one line; several processes of a party may have some to write. A full one is put aside."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
            if not _is_at(descriptor, path):  # another process has put it aside
                continue
            if os.fstat(descriptor).st_size >= MOST_BYTES:
                _put_aside(path)
                continue
            yield descriptor
            return
        finally:
            os.close(descriptor)  # and is unlocked


def _lock(descriptor: int) -> None:
    with contextlib.suppress(ImportError):  # not on Windows, where no engine runs
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _put_aside(path: Path) -> None:
    aside = [path, *(path.with_name(f"{path.name}.{i}") for i in range(1, KEPT + 1))]
    for older, newer in zip(reversed(aside[1:]), reversed(aside[:-1]), strict=True):
        with contextlib.suppress(FileNotFoundError):
            newer.replace(older)
