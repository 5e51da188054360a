"""Carry metrics out of this process: to whoever asks on this machine (Prometheus), and to a collector (OTLP over HTTP).

Only `secea metrics` runs this, in a process of its own. The processes of the protocol have none of it.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import secea
from secea.errors import MissingExtra, ParamsError
from secea.extras import installing

try:
    import requests
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExportResult,
        MetricReader,
        MetricsData,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import Resource
    from prometheus_client import CollectorRegistry, make_wsgi_app
except ImportError:
    raise MissingExtra(f"metrics need OpenTelemetry: {installing('metrics')}") from None

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from opentelemetry.metrics import Meter

LISTEN: Final = "127.0.0.1:9464"
_PATH: Final = "/v1/metrics"
_SECONDS: Final = 5.0
"""That a collector may take."""


def is_loopback(host: str) -> bool:
    """Whether this name or address is that of this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Address:
    """Where Prometheus can ask: on this machine alone."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """HOST:PORT, or PORT alone."""
        try:
            parts = urlsplit(f"//{text}" if ":" in text else f"//127.0.0.1:{text}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port = "", None
        if not port or not host or parts.path:
            raise ParamsError(f"{text!r} is no place to listen: give an address and a port, such as {LISTEN}")
        if not is_loopback(host):
            raise ParamsError(
                f"metrics are not for the network: {host} is not this machine alone. Listen on {LISTEN.split(':')[0]},"
                " and let a Prometheus on this machine ask there; or push to a collector with --otlp"
            )
        return cls("127.0.0.1" if host == "localhost" else host, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def collector(url: str) -> str:
    """The address to which metrics are pushed. What leaves this machine is encrypted."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise ParamsError(f"{url!r} is no collector: give its address, such as http://127.0.0.1:4318")
    if parts.scheme == "http" and not is_loopback(host):
        raise ParamsError(f"metrics would go to {host} unencrypted: give https://, or a collector on this machine")
    return url if parts.path.endswith(_PATH) else url.rstrip("/") + _PATH


@contextmanager
def metered(
    party: str, listen: Address | None, otlp: str | None, say: Callable[[str], object]
) -> Iterator[tuple[Meter, Callable[[], None]]]:
    """A meter, and a function that begins to carry its metrics out: call it when it has counted what is there already.

    `say` gets a sentence when the collector begins to fail, and when it takes metrics again.
    """
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would say the same with a traceback, each time
    who = {"service.name": "secea", "service.version": secea.__version__, "service.instance.id": party}
    registry, readers = CollectorRegistry(auto_describe=False), list[MetricReader]()
    with ExitStack() as over:
        if listen:
            readers.append(PrometheusMetricReader(registry=registry, scope_info_enabled=False))
            server = over.enter_context(_server(listen, registry))
        if otlp:
            readers.append(PeriodicExportingMetricReader(_Pushed(otlp, say)))
        provider = MeterProvider(readers, Resource.create(who), shutdown_on_exit=False)
        over.callback(provider.shutdown)  # and the last metrics are pushed

        def begin() -> None:
            if listen:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                over.callback(server.shutdown)

        yield provider.get_meter("secea", secea.__version__), begin


class _Pushed(OTLPMetricExporter):
    """Pushes metrics, and says in one sentence when that does not work, and when it works again."""

    def __init__(self, endpoint: str, say: Callable[[str], object]) -> None:
        super().__init__(endpoint=endpoint, timeout=_SECONDS, session=_Direct(endpoint))
        self._say, self._fails = say, False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **more: Any
    ) -> MetricExportResult:
        """Push them. What could not be pushed is in the next ones: they count from the beginning."""
        result = super().export(metrics_data, timeout_millis, **more)
        fails = result is not MetricExportResult.SUCCESS
        if fails and not self._fails:
            self._say(f"the collector at {self._endpoint} takes no metrics; nothing is lost, and it is tried again")
        elif self._fails and not fails:
            self._say(f"the collector at {self._endpoint} takes metrics again")
        self._fails = fails
        return result


class _Direct(requests.Session):
    """Pushes to one address and to no other, whatever it answers. On this machine no proxy is asked."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.trust_env = not is_loopback(urlsplit(endpoint).hostname or "")

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None; and metrics that are sent on to somebody else have not been taken."""
        if resp.is_redirect:
            raise requests.ConnectionError("it names another address")


# ------------------------------------------------------------------------------------------------------ the endpoint


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    timeout = _SECONDS  # for who connects and says nothing

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody needs a line for each time that Prometheus asks."""


@contextmanager
def _server(listen: Address, registry: CollectorRegistry) -> Iterator[WSGIServer]:
    """A server that has its port, and does not answer yet."""
    metrics = make_wsgi_app(registry)

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        asked = urlsplit(f"//{environment.get('HTTP_HOST', '')}").hostname or ""
        if not is_loopback(asked):  # a page in a browser here that has a name of its own lead to this machine
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"ask for this machine by its own name\n"]
        if environment.get("PATH_INFO") not in ("/metrics", "/"):
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        page: Iterable[bytes] = metrics(environment, start)
        return page

    try:
        server = make_server(listen.host, listen.port, answer, _family(listen), _Silent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(listen)) from None
    with server:
        yield server


def _family(listen: Address) -> type[WSGIServer]:
    import socket

    class Family(_Server):
        address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET

    return Family
