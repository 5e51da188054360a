"""What monitoring sees of lines of a log, and a federation file that is like one of three sites."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint

from secea.engines.files import write_identity, write_session
from secea.engines.meters import Meters
from secea.forms import form_of
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

NAMES = ("north", "south", "west")
Seen: TypeAlias = dict[tuple[str, ...], Any]
"""By the name of a metric and the values of its labels: a number, or of a histogram how many and their sum."""


def session(names: tuple[str, ...] = NAMES) -> Session:
    keys = [Identity(bytes([n]) * 32).public for n in range(1, len(names) + 2)]
    params = Params(clients=len(names), dim=2, max_entities=30, max_union=60)
    return Session(params, Roster(tuple(keys[1:]), keys[0], names), form_of("keyed"))


def line(event: str, now: float = 1000.0, **fields: object) -> bytes:
    return json.dumps({"time": now, "level": "info", "event": event} | fields).encode()


def stage(now: float, name: str = "ready", *, clients: Iterable[str] = NAMES, training: bool = False) -> bytes:
    return line("stage", now, name=name, round=1, training=training, seconds=60.0, clients=list(clients), called=[])


def progress(rounds: int, sent: int, received: int, seconds: float = 2.0, **more: int) -> bytes:
    return line("progress", rounds=rounds, seconds=seconds, sent=sent, received=received, lost={}, **more)


class Monitor:
    """The metrics of one party."""

    def __init__(self, of: Session | None = None, *, server: bool = True) -> None:
        self.now = of or session()
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self._meters = Meters(self._provider.get_meter("test"), self.now, server=server, again=lambda: self.now)

    def take(self, *lines: bytes) -> Seen:
        self._meters.take(lines)
        return self.seen()

    def seen(self) -> Seen:
        data = self._reader.get_metrics_data()
        found = Seen()
        assert data is not None
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                labels: Mapping[str, Any] = point.attributes or {}
                assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                value = point.value if isinstance(point, NumberDataPoint) else (point.count, point.sum)
                found[metric.name, *labels.values()] = value
        return found


def written(folder: Path, of: Session, name: str = "") -> Path:
    """A folder as a site or the server has it; the key in it is nobody's, since metrics need none."""
    folder.mkdir(parents=True, exist_ok=True)
    write_session(of, folder / "federation.toml")
    write_identity(Identity.generate(), folder / "identity.pem")
    text = 'federation = "federation.toml"\nidentity = "identity.pem"\nstate = "state"\nlog = "audit.jsonl"\n'
    (folder / "site.toml").write_text(text + (f'name = "{name}"\nparticipant = "mine:site"\n' if name else ""))
    return folder
