"""What an operator is shown of a run: a `State`, made from the events of the server's log and from nothing else.

It is written into the state directory after each event that changes it: `status.json` while a run goes on, and at its
end `result.json`. Both have names of clients, rounds, times and bytes; no entity, and no number that only one client
knows. Whoever has the log alone can make the same state: `State.take` is all there is.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Final

from secea.atomic import replace_files
from secea.engines.log import Log

STATUS: Final = "status.json"
RESULT: Final = "result.json"
VERSION: Final = 1
PATIENT_SECONDS: Final = 60.0
"""So long nobody is told that a client is waited for; then again after each such time."""
SIGN_SECONDS: Final = 2.0
"""While a run goes on, its status is written at least so often: it is a sign of life, and says which sites answer."""
_LOOK_SECONDS: Final = 1.0


class Doing(StrEnum):
    """What a client does now, as far as the server knows."""

    UNKNOWN = "unknown"
    """It has not been heard of in this run."""
    HERE = "here"
    """It has replied to what it was asked last."""
    WORKS = "works"
    """It was asked for something that takes no training, and has not replied yet."""
    TRAINS = "trains"
    """It was asked to train, and has not replied yet."""
    LOST = "lost"
    """It takes part again when it answers."""


@dataclass
class ClientState:
    """One client, as the server knows it."""

    doing: Doing = Doing.UNKNOWN
    since: float = 0.0
    """When that began."""
    heard: float = 0.0
    """When its site was heard last."""
    cause: str = ""
    """Of its last loss, as a word (`secea.engines.port.Cause`)."""
    why: str = ""
    """The same as a sentence."""
    rounds: list[int] = field(default_factory=list)
    """In which it took part to the end."""
    losses: int = 0
    """How often it was lost."""


@dataclass
class State:
    """A run, as an operator is shown it."""

    clients: dict[str, ClientState]
    run: str = ""
    session: str = ""
    outcome: str = "running"
    """Or "completed", "paused" (the next run goes on), or "failed"."""
    why: str = ""
    asked: int = 0
    """So many rounds were asked for."""
    done: int = 0
    """So many gave means, in this run and those that it continues."""
    lost: list[str] = field(default_factory=list)
    """Why each lost round was lost."""
    stage: str = ""
    number: int = 0
    """Of the round that goes on, or comes next."""
    since: float = 0.0
    """When this stage began."""
    limit: float = 0.0
    """The seconds that it may take."""
    started: float = 0.0
    ended: float = 0.0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    """That the last round took, or the set-up."""
    since_round: float = 0.0
    """When that was over."""
    last: float = 0.0
    """When the last event was."""
    version: int = VERSION

    def take(self, event: str, now: float, details: Mapping[str, Any]) -> None:
        """What an event of the log changes."""
        self.last = now
        match event:
            case "start":
                self.run, self.session, self.asked = details["run"], details["session"], details["rounds"]
                self.started = now
            case "stage":
                self.stage, self.number, self.since, self.limit = (
                    details["name"], details["round"], now, details["seconds"]
                )  # fmt: skip
                for name in details["clients"]:
                    self._does(name, Doing.TRAINS if details["training"] else Doing.WORKS, now)
            case "replied" | "here":
                self._does(details["client"], Doing.HERE, now)
                self.clients[details["client"]].heard = now
            case "lost":
                client = self.clients[details["client"]]
                client.losses += client.doing is not Doing.LOST
                self._does(details["client"], Doing.LOST, now)
                client.cause, client.why = str(details["cause"]), details["why"]
            case "round":
                for name in details["clients"]:
                    self.clients[name].rounds.append(details["number"])
                    self.clients[name].cause = self.clients[name].why = ""
            case "round lost":
                self.lost.append(details["why"])
            case "progress":
                self.since_round = now
                self.done, self.seconds = details["rounds"], details["seconds"]
                self.sent, self.received = details["sent"], details["received"]
            case "end" | "paused" | "failed":
                self.outcome = "completed" if event == "end" else event
                self.why, self.ended, self.stage = details.get("why", ""), now, ""

    def _does(self, name: str, doing: Doing, now: float) -> None:
        client = self.clients[name]
        if client.doing is not doing:
            client.doing, client.since = doing, now

    def waited_for(self) -> dict[str, ClientState]:
        """Who has not replied yet in this stage."""
        return {name: each for name, each in self.clients.items() if each.doing in (Doing.WORKS, Doing.TRAINS)}

    def text(self) -> str:
        """How it ended, in a paragraph: rounds, who took part in which, and why the others did not."""
        numbers = sorted({number for each in self.clients.values() for number in each.rounds})
        parts = [f"{self.outcome}: {self.done} of {self.asked} rounds"]
        if self.done > len(numbers):
            parts[0] += f", {len(numbers) or 'none'} of them in this run"
        if self.why:
            parts[0] += f" ({self.why})"
        if self.lost:
            parts.append(f"{_counted(len(self.lost), 'round')} lost, and made up for")
        full = [name for name, each in self.clients.items() if numbers and each.rounds == numbers]
        if full:
            who = "every client" if len(full) == len(self.clients) else ", ".join(full)
            parts.append(f"{who} took part in {'each of them' if len(numbers) > 1 else 'it'}")
        for name, each in self.clients.items():
            if name not in full and (numbers or each.why):
                parts.append(f"{name} took part in {_ranges(each.rounds)}{_fate(name, each)}")
        return "; ".join(parts) + "."

    def left_out(self) -> list[str]:
        """Who took part in no round at all."""
        return [name for name, each in self.clients.items() if not each.rounds]

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return asdict(self)


def _fate(name: str, client: ClientState) -> str:
    times = f"; it was lost {client.losses} times" if client.losses > 1 else ""
    if client.why:
        return f"{times}; {client.cause} at the end: {client.why.removeprefix(f'{name}: ')}"
    return times or ("; it was lost once, and came back" if client.losses else "")


def _counted(number: int, what: str) -> str:
    return f"{number} {what} was" if number == 1 else f"{number} {what}s were"


def _ranges(numbers: Iterable[int]) -> str:
    """Rounds 1 to 4 and 7, say."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    if not runs:
        return "no round"
    texts = [" to ".join(map(str, run)) for run in runs]
    return f"round{'s' * (len(texts) > 1 or len(runs[0]) > 1)} {', '.join(texts)}"


class Progress(Log):
    """The server's log, and the `State` that follows from it, which is written into `folder`."""

    def __init__(self, path: Path | None, kinds: type[IntEnum], names: tuple[str, ...], folder: Path) -> None:
        super().__init__(path, kinds, names)
        self.state = State({name: ClientState() for name in names})
        self._folder, self._guard = folder, threading.RLock()
        self._reminded = self._shown = 0.0
        (folder / RESULT).unlink(missing_ok=True)

    def noted(self, what: str, **details: object) -> None:
        """Record an event, and show what it changes."""
        with self._guard:
            super().noted(what, **details)
            self.state.take(what, time.time(), {name: self._named(value) for name, value in details.items()})
            if what != "waiting":
                self._show()

    def alive(self, n: int, seconds: float) -> None:
        """The site of client n answers: it works."""
        with self._guard:
            self.state.clients[self._names[n]].heard = time.time()

    def _show(self) -> None:
        self._shown = time.time()
        over = self.state.outcome != "running"
        files = {self._folder / STATUS: _encoded(self.state.as_json())}
        if over:
            files[self._folder / RESULT] = _encoded(self.state.as_json() | {"text": self.state.text()})
        with suppress(OSError):  # a full disk is told where state is saved; this can be missed
            replace_files(files, mode=0o600)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, the log says whom a stage waits for if it takes long."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_SECONDS):
                self._remind()
                self._live()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _live(self) -> None:
        with self._guard:
            if time.time() - self._shown >= SIGN_SECONDS:
                self._show()

    def _remind(self) -> None:
        with self._guard:
            now, waited = time.time(), self.state.waited_for()
            if waited and now - max(self.state.since, self._reminded) >= PATIENT_SECONDS:
                self._reminded = now
                for name, each in waited.items():
                    silent = round(now - max(each.heard, each.since))
                    self.noted("waiting", client=name, **{"for": each.doing}, since=clock(each.since), silent=silent)
                self._show()


def last(path: Path) -> State | None:
    """A state, if there is one that this version can read."""
    try:
        return read(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def clock(moment: float) -> str:
    """A time of day, for people."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def _encoded(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def read(path: Path | str) -> State:
    """A state as it was written. A `ValueError` if it is none."""
    found = json.loads(Path(path).read_bytes())
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError(f"{path} is not the state of a run that this version of secea wrote")
    found.pop("text", None)
    clients = {name: ClientState(**each | {"doing": Doing(each["doing"])}) for name, each in found["clients"].items()}
    return State(**found | {"clients": clients})
