"""A log that is read while it is written, and what a site's own log comes to: a `SiteState`.

`State` in `secea.engines.progress` is the same for the server. A line that cannot be read is passed over: a full disk
may have torn it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from secea.engines.follow import Follower
from secea.errors import ParamsError

MOST_REFUSED: Final = 5
"""So many refusals are shown, the newest ones; all are counted."""

_FAR: Final = 1e11
"""A time that no clock shows."""


@dataclass(frozen=True)
class Event:
    """One line of a log."""

    what: str
    time: float
    details: Mapping[str, Any]

    def text(self, name: str) -> str:
        """A detail as a text; nothing if it is missing."""
        value = self.details.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> float:
        """A detail as a number; 0 if it is missing, or none."""
        return _number(self.details.get(name))

    def texts(self, name: str) -> list[str]:
        """A detail as a list of texts."""
        value = self.details.get(name)
        return [str(each) for each in value] if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else 0.0


class Journal:
    """The events of a log: first those that are there, with those in logs that were put aside, then what comes."""

    def __init__(self, path: Path) -> None:
        self._path, self._follower = path, Follower(path)

    def skip(self) -> None:
        """What is there already is not new."""
        for _ in self.new():
            pass

    def new(self) -> Iterator[Event]:
        """All events since the last call."""
        try:
            for line in self._follower.lines():
                if event := _event(line):
                    yield event
        except OSError as error:
            raise ParamsError(f"the log {self._path} cannot be read: {error.strerror}") from None


def _event(line: bytes) -> Event | None:
    try:
        details = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(details, dict) or not isinstance(details.get("event"), str):
        return None
    return Event(details["event"], min(max(0.0, _number(details.get("time"))), _FAR), details)


@dataclass(frozen=True)
class Refusal:
    """A message that a site refused."""

    time: float
    kind: str
    sender: str
    why: str
    suspects: list[str]


@dataclass
class SiteState:
    """The present run at a site, as its own log tells it."""

    party: str = ""
    run: str = ""
    session: str = ""
    outcome: str = ""
    """"running", "stopped" or "completed"; nothing if no run has begun."""
    started: float = 0.0
    ended: float = 0.0
    last: float = 0.0
    """When the last event was."""
    said: str = ""
    """The last message, as kind, sender and receiver."""
    said_at: float = 0.0
    training: int = 0
    """The round that is being trained for; 0: none."""
    since: float = 0.0
    """When that began."""
    rounds: list[int] = field(default_factory=list)
    """The rounds that were trained for."""
    seconds: float = 0.0
    """That the last training took."""
    sent: int = 0
    received: int = 0
    """Bytes of messages."""
    left_out: str = ""
    """Why the server says that it went on without this site."""
    left_out_at: float = 0.0
    back_at: float = 0.0
    """When this site took part again after that; 0: not yet."""
    stopped: str = ""
    """Why this site could not go on, the last time."""
    stopped_at: float = 0.0
    refusals: int = 0
    refused: list[Refusal] = field(default_factory=list)
    """The last of them."""
    names_wait: int = 0
    """So many of its new names wait for a later round. Only this site knows that."""

    def take(self, event: Event) -> None:
        """What an event of the log changes."""
        if event.what == "start":
            self._start(event)
        if event.what in ("agreed", "declined"):  # of the roll call, before any run
            return
        if not self.outcome:  # the beginning of this run is in no log any more
            self.outcome, self.started = "running", event.time
        self.last = event.time
        match event.what:
            case "sent" | "accepted":
                self._message(event)
            case "training":
                self._goes_on(event)
                self.training, self.since = int(event.number("round")), event.time
            case "trained":
                self.training, self.seconds = 0, event.number("seconds")
                if (number := int(event.number("round"))) not in self.rounds:
                    self.rounds.append(number)
            case "refused":
                refusal = Refusal(
                    event.time, event.text("kind"), event.text("from"), event.text("why"), event.texts("suspects")
                )
                self.refusals, self.refused = self.refusals + 1, [*self.refused, refusal][-MOST_REFUSED:]
            case "left out":
                self.left_out, self.left_out_at, self.back_at = event.text("why"), event.time, 0.0
            case "names wait":
                self.names_wait = int(event.number("count"))
            case "stopped":
                self.outcome, self.training = "stopped", 0
                self.stopped, self.stopped_at = event.text("why"), event.time
            case "end":
                self.outcome, self.ended, self.training = "completed", event.time, 0

    def _start(self, event: Event) -> None:
        """A core begins: it goes on with the run that there was, or it is a new one."""
        same = (event.text("run"), event.text("session")) == (self.run, self.session)
        if not same or self.outcome not in ("running", "stopped"):
            vars(self).update(vars(SiteState()))
            self.started = event.time
        self.party, self.run, self.session = event.text("party"), event.text("run"), event.text("session")
        self.outcome, self.training = "running", 0

    def _message(self, event: Event) -> None:
        size = int(event.number("bytes"))
        if event.what == "sent":
            self.sent += size
        else:
            self.received += size
            if event.text("kind") != "hello":  # with which everybody is called, also who was left out
                self._goes_on(event)
        receiver = event.text("to")
        self.said = f"{event.text('kind')} from {event.text('from')} to {receiver}"
        self.said_at = event.time

    def _goes_on(self, event: Event) -> None:
        """The site takes part again."""
        self.outcome = "running"
        if self.left_out and not self.back_at:
            self.back_at = event.time

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return asdict(self)
