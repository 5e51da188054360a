"""What can be seen of a run from the files of one party: what it comes to, and whether anybody still works on it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from secea.engines import progress
from secea.engines.journal import Event, Journal, SiteState
from secea.engines.progress import RESULT, STATUS, State
from secea.engines.site import Site, site_at
from secea.engines.store import in_use
from secea.errors import ParamsError

RUNNING: Final = "running.json"
"""What `secea host` and `secea join` write: `pid`, and `since` when. It is locked as long as the process lives."""
QUIET_SECONDS: Final = 45.0
"""A run from which no sign of life has come for so long, and whose state nobody holds, is over."""


class Verdict(StrEnum):
    """What a run comes to, in one word."""

    NOTHING = "nothing"
    """None has begun here."""
    RUNNING = "running"
    COMPLETED = "completed"
    PAUSED = "paused"
    """It was asked to end after its round: the next run goes on."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The site could not go on. Its engine starts it again with the next order, if the engine still runs."""
    SILENT = "silent"
    """It has not ended, and nobody is there who works on it: its process died."""

    @property
    def fine(self) -> bool:
        """Whether nobody has to do anything."""
        return self in (Verdict.RUNNING, Verdict.COMPLETED, Verdict.PAUSED)


@dataclass(frozen=True)
class Seen:
    """A run, as it was seen at one moment."""

    verdict: Verdict
    now: float
    heard: float
    """When the last sign of life was; 0: there was none."""
    used: bool | None
    """Whether a process holds the state; None if that is not known."""
    pid: int
    """The process that `running.json` names, if it is there; or 0."""
    began: float
    """When that process began."""
    state: State | SiteState
    name: str = ""
    """The site's, as its file has it."""

    @property
    def quiet(self) -> float:
        """For so many seconds nothing has been heard."""
        return max(0.0, self.now - self.heard) if self.heard else 0.0

    @property
    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        if self.verdict is Verdict.STOPPED:
            return not self.used and not self.pid and self.quiet >= QUIET_SECONDS
        if self.pid and self.state.last < self.began:  # the process that is there has not begun a run yet
            return False
        if self.pid and self.verdict is Verdict.PAUSED:  # who hosts goes on with another job
            return False
        return self.verdict not in (Verdict.NOTHING, Verdict.RUNNING)

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        state = self.state.as_json()
        if isinstance(self.state, State) and self.state.ended:
            state["text"] = self.state.text()
        return {
            "verdict": self.verdict, "server": isinstance(self.state, State), "heard": self.heard,
            "quiet_seconds": round(self.quiet, 1), "state_in_use": self.used, "process": self.pid or None,
            "state": state,
        }  # fmt: skip


class Sight:
    """The files of one party, looked at again and again. Nothing is written, and nothing is locked."""

    def __init__(self, where: Path | str, clock: Callable[[], float] = time.time) -> None:
        self.path = site_at(where)
        self.site = Site.read(self.path)
        self.is_server = not self.site.participant
        if not self.is_server and self.site.log is None:
            raise ParamsError(
                f'{self.path} names no log, which is all that can be shown of a site: log = "audit.jsonl"'
            )
        self._clock = clock
        self._journal = Journal(self.site.log) if self.site.log else None
        self._own = SiteState()

    @property
    def has_log(self) -> bool:
        """Whether there are events to tell."""
        return self._journal is not None

    def events(self) -> list[Event]:
        """The events since the last call. A site's state follows from them, so that `look` must come afterwards."""
        new = list(self._journal.new()) if self._journal else []
        if not self.is_server:
            for event in new:
                self._own.take(event)
        return new

    def look(self) -> Seen:
        """What there is to see now."""
        free = in_use(self.site.state) is False
        state, heard = self._server() if self.is_server else (self._own, self._own.last)
        used = in_use(self.site.state)
        if used is False and not free:  # it ended while we looked
            used = None
        now, (pid, began, lives) = self._clock(), self._process()
        # Without locks to look at: a server's run writes its status again and again, a site's has its process.
        gone = used is False or (used is None and (self.is_server or lives is False))
        verdict = _verdict(state)
        if verdict is Verdict.RUNNING and gone and now - heard >= QUIET_SECONDS:
            verdict = Verdict.SILENT
        return Seen(verdict, now, heard, used, pid if lives else 0, began, state, self.site.name)

    def _server(self) -> tuple[State, float]:
        """The server's state, and when it was written."""
        for path in (self.site.state / STATUS, self.site.state / RESULT):
            try:
                state = progress.read(path)
                Verdict(state.outcome)
                return state, path.stat().st_mtime
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ParamsError(f"{path} cannot be read: {error.strerror}") from None
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ParamsError(f"{path} is not the state of a run that this version of secea wrote") from None
        return State({}), 0.0

    def _process(self) -> tuple[int, float, bool | None]:
        """The process that `running.json` names, since when, and whether it is still there; None if none is named."""
        folder = self.path.absolute().parent
        for path in (folder / RUNNING, folder.parent / RUNNING) if self.is_server else (folder / RUNNING,):
            try:
                found = json.loads(path.read_bytes())
                pid, began = int(found["pid"]), float(found.get("since", 0.0))
            except (OSError, ValueError, KeyError, TypeError, OverflowError):
                continue
            held = in_use(path)
            return pid, began, _lives(pid) if held is None else held
        return 0, 0.0, None


def _verdict(state: State | SiteState) -> Verdict:
    if not state.started:
        return Verdict.NOTHING
    return Verdict(state.outcome)


def _lives(pid: int) -> bool:
    """Whether there is a process of this number."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True
