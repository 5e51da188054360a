"""A party's audit log, as lines of JSON: what it sent, accepted and refused, with kinds, sizes and hashes.

It holds no secrets and no contents.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from secea.errors import ProtocolError, party
from secea.wire.messages import Buffer, Header


class Log:
    """An audit log of messages. `kinds` are those of the federation's form. Without a path nothing is kept."""

    def __init__(self, path: Path | str | None = None, kinds: type[IntEnum] | None = None) -> None:
        self._path, self._kinds = None if path is None else Path(path), kinds

    def sent(self, messages: Iterable[Buffer]) -> None:
        """Record messages that leave this party."""
        for message in messages:
            self._message("sent", message)

    def accepted(self, message: Buffer) -> None:
        """Record a message that was accepted."""
        self._message("accepted", message)

    def refused(self, message: Buffer, error: ProtocolError) -> None:
        """Record a message that was refused, and why."""
        self._message("refused", message, error)

    def noted(self, what: str, **details: object) -> None:
        """Record an event that is not a message: a corrected fault, a client that did not reply, the end of a round."""
        self._line({"event": what, **details})

    def _message(self, event: str, message: Buffer, error: ProtocolError | None = None) -> None:
        if self._path is None:
            return
        assert self._kinds is not None
        line: dict[str, object] = {"event": event, "bytes": len(message), "sha256": hashlib.sha256(message).hexdigest()}
        try:
            header = Header.parse(message, 0, self._kinds)
        except ProtocolError:
            line["kind"] = "unreadable"
        else:
            line |= {"kind": header.kind.name.lower(), "from": party(header.sender), "to": party(header.receiver)}
            line |= {
                name: getattr(header, name) for name in ("epoch", "attempt", "weights", "round", "chunk", "chunks")
            }
        if error is not None:
            line |= {"why": error.fault, "suspects": [party(suspect) for suspect in error.suspects]}
        self._line(line)

    def _line(self, line: dict[str, object]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": round(time.time(), 3), **line}) + "\n")
