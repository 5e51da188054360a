"""Metrics of a party, made from its audit log. What is not listed here is not exported.

`EVENTS` lists the events and the fields that count; a line that has them otherwise is no line. Labels are names from
the federation file and words of this package, so that nobody else can make new ones. docs/metrics.md says what each
tells.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from secea.engines.port import Cause
from secea.engines.progress import ClientState, Doing, State
from secea.party.phases import GREETING, REST, STOPPED
from secea.party.session import Session

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

OTHER: Final = "other"
"""The label of what is no name and no word that is known here."""
_LONGEST: Final = 30 * 86400.0
_MOST: Final = 1 << 50
_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400)
_ENDS: Final = frozenset({"stage", "round", "round lost", "set-up failed", "end", "failed"})
"""Events with which the stage before them is over."""
_MESSAGES: Final = {"sent": "transmit", "accepted": "receive", "ignored": "receive", "refused": "receive"}


@dataclass(frozen=True, slots=True)
class Metric:
    """What is exported under one name."""

    name: str
    kind: str
    """Of OpenTelemetry's instruments: counter, gauge or histogram."""
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    at: str = "both"
    """Or "server", or "site"."""


METRICS: Final = {
    each.name: each
    for each in (
        Metric("secea.run.starts", "counter", "{run}", "Runs that began.", at="server"),
        Metric("secea.run.ends", "counter", "{run}", "Runs that ended.", ("secea.outcome",)),
        Metric("secea.run.active", "gauge", "1", "1 while a run goes on.", at="server"),
        Metric("secea.run.rounds.asked", "gauge", "{round}", "Rounds that this run was asked for.", at="server"),
        Metric("secea.run.rounds.done", "gauge", "{round}", "Rounds of them that gave means.", at="server"),
        Metric("secea.rounds", "counter", "{round}", "Rounds.", ("secea.outcome",), at="server"),
        Metric(
            "secea.round.duration", "histogram", "s", "From one round's end to the next, training included.",
            at="server",
        ),
        Metric("secea.stage.duration", "histogram", "s", "Stages that ended.", ("secea.stage",), at="server"),
        Metric(
            "secea.client.status", "gauge", "1", "1 for what a client does now, 0 for the rest.",
            ("secea.client", "secea.client.state"), at="server",
        ),
        Metric(
            "secea.client.rounds", "counter", "{round}", "Rounds that a client took part in to the end.",
            ("secea.client",), at="server",
        ),
        Metric(
            "secea.losses", "counter", "{loss}", "Clients that were left out.", ("secea.client", "secea.cause"),
            at="server",
        ),
        Metric("secea.refusals", "counter", "{message}", "Messages that were refused.", ("secea.message.kind",)),
        Metric("secea.network.io", "counter", "By", "Bytes that were sent and received.", ("network.io.direction",)),
        Metric("secea.memory.usage", "gauge", "By", "Memory of the process that runs the protocol."),
        Metric("secea.memory.peak", "gauge", "By", "The most memory that this process had."),
        Metric("secea.log.last_event", "gauge", "s", "When the log's last line was written, in Unix time."),
        Metric("secea.core.starts", "counter", "{core}", "Cores that began.", at="site"),
        Metric("secea.core.stops", "counter", "{core}", "Cores that could not go on, or were killed.", at="site"),
        Metric("secea.training.duration", "histogram", "s", "Calls of the site's own function.", at="site"),
        Metric(
            "secea.exclusions", "counter", "{exclusion}", "Times that the server said it went on without this site.",
            at="site",
        ),
    )
}  # fmt: skip

# ------------------------------------------------------------------------------------------------ what a line may say


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < _LONGEST  # type: ignore[operator]


def _truth(value: object) -> bool:
    return isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


Fields: TypeAlias = Mapping[str, Callable[[object], bool]]
_MEMORY: Final[Fields] = {"memory": _whole, "peak": _whole}
EVENTS: Final[Mapping[str, Fields]] = {
    "start": {"rounds": _whole, "session": _text},
    "stage": {"name": _text, "round": _whole, "training": _truth, "seconds": _seconds, "clients": _texts},
    "here": {"client": _text},
    "replied": {"client": _text},
    "lost": {"client": _text, "cause": _text},
    "round": {"number": _whole, "clients": _texts},
    "round lost": {},
    "set-up failed": {},
    "progress": {"rounds": _whole, "seconds": _seconds, "sent": _whole, "received": _whole, **_MEMORY},
    "end": _MEMORY,
    "failed": {},
    "sent": {"bytes": _whole},
    "accepted": {"bytes": _whole},
    "ignored": {"bytes": _whole},
    "refused": {"bytes": _whole, "kind": _text},
    "trained": {"seconds": _seconds, **_MEMORY},
    "stopped": {},
    "left out": {},
}
"""The events that count, and those of their fields that do. `names wait` is not among them: its number is private."""

_OPTIONAL: Final = frozenset({"memory", "peak", "rounds", "session", "bytes", "kind"})
_LEFT_OUT: Final[Mapping[str, Any]] = {"rounds": 0, "session": "", "run": "", "why": "", "bytes": 0, "kind": ""}
"""What stands for fields that a line need not have, and for those that are not read."""


def allowed(line: bytes) -> tuple[str, float, dict[str, Any]] | None:
    """The event of a line, when it was, and what of it counts. None for any other line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str) or found["event"] not in EVENTS:
        return None
    now: Any = found.get("time")
    fields = EVENTS[found["event"]]
    if type(now) not in (int, float) or not 0 <= now < _MOST:
        return None
    given = {name: found[name] for name, right in fields.items() if name in found and right(found[name])}
    return (found["event"], float(now), given) if given.keys() >= fields.keys() - _OPTIONAL else None


# ------------------------------------------------------------------------------------------------------- what it makes


class Meters:
    """The metrics of one party: `take` the lines of its log, in order.

    `again` gives the session of the federation file as it is now: it is asked when a run of another session begins.
    """

    def __init__(self, meter: Meter, session: Session, *, server: bool, again: Callable[[], Session]) -> None:
        self._server, self._session, self._again = server, session, again
        self._made = {name: _instrument(meter, each) for name, each in METRICS.items() if _is_at(each, server)}
        self._state, self._shown = self._new_state(), dict[str, Doing | None]()
        self._stage: tuple[str, float] | None = None
        self._last, self._bytes = 0.0, Counter[str]()
        self._held = False  # whether a round gave means since the last line on progress
        self._zeros()

    def take(self, lines: Iterable[bytes]) -> None:
        """Count what these lines say."""
        for line in lines:
            if (event := allowed(line)) is not None:
                self._last = event[1]
                self._take(*event)
        if self._last:
            self._set("secea.log.last_event", self._last)
        for direction, size in self._bytes.items():
            self._add("secea.network.io", size, direction)
        self._bytes.clear()

    def _take(self, what: str, now: float, fields: dict[str, Any]) -> None:
        if what in _MESSAGES:  # of which there are many: bytes are added up, and at the server progress has them
            self._bytes[_MESSAGES[what]] += 0 if self._server else fields.get("bytes", 0)
            if what != "refused":
                return
        for each in ("memory", "peak"):
            if each in fields:
                self._remember(each, fields[each])
        details = {**_LEFT_OUT, **fields}
        (self._at_server if self._server else self._at_site)(what, now, details)

    # ---------------------------------------------------------------------------------------------------- the server

    def _at_server(self, what: str, now: float, details: dict[str, Any]) -> None:
        self._end_stage(what, now)
        if what == "start":
            self._begin_run(details["session"])
        before = self._state.sent, self._state.received
        if "clients" in details:
            details["clients"] = [name for name in details["clients"] if name in self._state.clients]
        if details.get("client", "") in {"", *self._state.clients}:
            self._state.take(what, now, details)
        match what:
            case "stage":
                self._stage = self._word(details["name"], self._stages), now
            case "lost":
                client, cause = self._word(details["client"], self._state.clients), details["cause"]
                self._add("secea.losses", 1, client, self._word(cause, list(Cause)))
            case "refused":
                self._refused(details)
            case "round":
                self._held = True
                self._add("secea.rounds", 1, "completed")
                for name in details["clients"]:
                    self._add("secea.client.rounds", 1, name)
            case "round lost":
                self._add("secea.rounds", 1, "lost")
            case "progress":
                self._progressed(before, details["seconds"])
            case "end" | "failed":
                self._add("secea.run.ends", 1, self._state.outcome)
        self._show()

    def _begin_run(self, session: str) -> None:
        if session != self._session.fingerprint:
            self._session = self._again()
        for name in self._state.clients.keys() - set(self._session.roster.names):
            self._show_client(name, None)
        self._state, self._held = self._new_state(), False
        self._zeros()
        self._add("secea.run.starts", 1)

    def _end_stage(self, what: str, now: float) -> None:
        if self._stage and what in _ENDS:
            name, began = self._stage
            self._record("secea.stage.duration", min(max(now - began, 0.0), _LONGEST), name)
        if what in _ENDS or what == "start":  # a server that died ended no stage
            self._stage = None

    def _progressed(self, before: tuple[int, int], seconds: float) -> None:
        self._bytes["transmit"] += max(self._state.sent - before[0], 0)
        self._bytes["receive"] += max(self._state.received - before[1], 0)
        if self._held:
            self._record("secea.round.duration", seconds)
        self._held = False

    def _show(self) -> None:
        state = self._state
        self._set("secea.run.active", int(bool(state.started) and state.outcome == "running"))
        self._set("secea.run.rounds.asked", state.asked)
        self._set("secea.run.rounds.done", state.done)
        for name, each in state.clients.items():
            self._show_client(name, each.doing)

    def _show_client(self, name: str, doing: Doing | None) -> None:
        if name in self._shown and self._shown[name] is doing:
            return
        self._shown[name] = doing
        for each in Doing:
            self._set("secea.client.status", int(each is doing), name, each.value)

    def _new_state(self) -> State:
        return State({name: ClientState() for name in self._session.roster.names})

    # ------------------------------------------------------------------------------------------------------- a site

    def _at_site(self, what: str, now: float, details: dict[str, Any]) -> None:
        match what:
            case "start":
                self._add("secea.core.starts", 1)
            case "refused":
                self._refused(details)
            case "trained":
                self._record("secea.training.duration", details["seconds"])
            case "stopped":
                self._add("secea.core.stops", 1)
            case "left out":
                self._add("secea.exclusions", 1)
            case "end":
                self._add("secea.run.ends", 1, "completed")

    # ---------------------------------------------------------------------------------------------------- instruments

    def _refused(self, details: Mapping[str, Any]) -> None:
        kinds = [kind.name.lower() for kind in self._session.form.kinds]
        self._add("secea.refusals", 1, self._word(details["kind"], kinds))

    def _remember(self, what: str, size: int) -> None:
        """At a site memory follows the number of its entities, which is nobody else's business: a power of two."""
        shown = size if self._server else 1 << max(size - 1, 0).bit_length()
        self._set("secea.memory.usage" if what == "memory" else "secea.memory.peak", shown)

    @property
    def _stages(self) -> set[str]:
        return {row.phase for row in self._session.rows} | {GREETING, REST, STOPPED, self._session.form.end_phase}

    def _zeros(self) -> None:
        """What has not happened yet is there, as 0: a first time is then a rise."""
        ends = ("completed", "failed") if self._server else ("completed",)
        self._each_zero("secea.run.ends", ends)
        self._each_zero("secea.network.io", ("transmit", "receive"))
        if self._server:
            self._add("secea.run.starts", 0)
            self._each_zero("secea.rounds", ("completed", "lost"))
            self._each_zero("secea.client.rounds", self._session.roster.names)
            self._show()
        else:
            for name in ("secea.core.starts", "secea.core.stops", "secea.exclusions"):
                self._add(name, 0)

    def _each_zero(self, name: str, values: tuple[str, ...]) -> None:
        for value in values:
            self._add(name, 0, value)

    def _add(self, name: str, amount: int, *values: str) -> None:
        self._made[name](amount, _labels(name, values))

    def _set(self, name: str, value: float, *values: str) -> None:
        self._made[name](value, _labels(name, values))

    def _record(self, name: str, value: float, *values: str) -> None:
        self._made[name](value, _labels(name, values))

    @staticmethod
    def _word(value: str, known: Any) -> str:
        return value if value in known else OTHER


def _labels(name: str, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(METRICS[name].labels, values, strict=True))


def _is_at(metric: Metric, server: bool) -> bool:
    return metric.at in ("both", "server" if server else "site")


def _instrument(meter: Meter, metric: Metric) -> Callable[[float, Mapping[str, str]], None]:
    what = metric.name, metric.unit, metric.about
    match metric.kind:
        case "counter":
            return meter.create_counter(*what).add
        case "gauge":
            return meter.create_gauge(*what).set
    return meter.create_histogram(*what, explicit_bucket_boundaries_advisory=_SECONDS).record
