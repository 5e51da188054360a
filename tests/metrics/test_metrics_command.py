"""`secea metrics` as people run it: a real scrape, a real OTLP receiver, and what goes wrong."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families

from monitor import NAMES, line, progress, session, stage, written
from secea.cli import main
from secea.engines import log as log_module
from secea.engines.log import Log
from secea.engines.meters import METRICS
from secea.engines.telemetry import Address, collector
from secea.errors import ParamsError
from secea.forms.keyed.form import Kind

START = line("start", run="7", session=session().fingerprint, rounds=3, party="the server")
FIRST = [START, stage(1.0), line("round", 2.0, number=1, clients=list(NAMES)), progress(1, 100, 200, memory=1, peak=2)]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])


def until(ready: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server's folder, whose run has one round behind it."""
    folder = written(tmp_path / "server", session())
    (folder / "audit.jsonl").write_bytes(b"\n".join(FIRST) + b"\n")
    return folder


@contextmanager
def metrics(where: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The command, when it has said where its metrics are."""
    command = [sys.executable, "-m", "secea_command", "metrics", str(where), *words]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(where), **more}
    with subprocess.Popen(  # noqa: S603 - our own module
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        over = threading.Timer(120, process.kill)  # whoever waits for a word of it learns that there is none
        over.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("metrics of "), process.stderr and process.stderr.read()
            yield process
        finally:
            over.cancel()
            process.kill()


def ask(port: int, path: str = "/metrics", host: str = "") -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """What Prometheus reads: values by name and labels."""
    status, text = ask(port)
    assert status == 200
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


# --------------------------------------------------------------------------------------------------------- Prometheus


def test_prometheus_reads_what_the_log_says_and_what_it_says_next(server: Path) -> None:
    port, log = free_port(), Log(server / "audit.jsonl", Kind, NAMES)
    with metrics(server, "--listen", f"127.0.0.1:{port}"):
        seen = scraped(port)
        assert seen["secea_rounds_total", "completed"] == 1
        assert seen["secea_network_io_bytes_total", "receive"] == 200
        assert seen["secea_stage_duration_seconds_sum", "ready"] == 1.0
        assert seen["secea_memory_peak_bytes",] == 2
        log.noted("round", number=2, clients=["client 0"])
        log.noted("lost", client="client 2", cause="slow", why="aspirin is too slow")
        until(lambda: scraped(port)["secea_rounds_total", "completed"] == 2, "a new line is not counted")
        until(lambda: scraped(port).get(("secea_losses_total", "slow", "west")) == 1, "a loss is not counted")
        assert "aspirin" not in ask(port)[1]


def test_after_its_own_restart_it_counts_the_same_although_the_log_was_put_aside_meanwhile(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, log = free_port(), Log(server / "audit.jsonl", Kind, NAMES)
    monkeypatch.setattr(log_module, "MOST_BYTES", 1000)

    def rounds(first: int, last: int) -> None:
        for number in range(first, last):
            log.noted("round", number=number, clients=["client 0", "client 1"])

    with metrics(server, "--listen", str(port)) as process:
        rounds(2, 8)
        until(lambda: scraped(port)["secea_rounds_total", "completed"] == 7, "a line is missing")
        rounds(8, 16)
        until(lambda: scraped(port)["secea_rounds_total", "completed"] == 15, "a line is missing")
        before = scraped(port)
        process.terminate()
        assert process.wait(30) == 0
    assert (server / "audit.jsonl.1").exists()
    rounds(16, 20)
    with metrics(server, "--listen", str(port)):
        after = scraped(port)
    assert after["secea_rounds_total", "completed"] == before["secea_rounds_total", "completed"] + 4 == 19
    assert after["secea_client_rounds_total", "south"] == before["secea_client_rounds_total", "south"] + 4


def test_it_listens_on_this_machine_alone_and_answers_nobody_who_calls_it_otherwise(server: Path) -> None:
    port = free_port()
    with metrics(server, "--listen", f"localhost:{port}") as process:
        listening = [
            parts[1]
            for parts in map(str.split, Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:])
            if parts[3] == "0A" and parts[1].endswith(f":{port:04X}")
        ]
        assert listening == [f"0100007F:{port:04X}"]
        assert ask(port, host="metrics.example.org")[0] == 403, "a name that leads here by DNS"
        assert ask(port, host=f"localhost:{port}")[0] == 200
        assert ask(port, path="/federation.toml")[0] == 404


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("9464", "127.0.0.1:9464"),
        ("localhost:1", "127.0.0.1:1"),
        ("[::1]:9465", "[::1]:9465"),
        ("127.1.2.3:5", "127.1.2.3:5"),
    ],
)
def test_an_address_of_this_machine_is_taken(given: str, kept: str) -> None:
    assert str(Address.of(given)) == kept


@pytest.mark.parametrize("given", ["0.0.0.0:9464", "192.168.1.4:9464", "[::]:9464", "example.org:80", "[fe80::1]:9"])
def test_any_other_address_is_refused_in_a_sentence(server: Path, given: str) -> None:
    result = CliRunner().invoke(main, ["metrics", str(server), "--listen", given])
    assert (result.exit_code, "is not this machine alone" in result.output) == (3, True), result.output


@pytest.mark.parametrize(
    "given", ["", "north", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1:9464/metrics", ":9464"]
)
def test_what_is_no_place_to_listen_is_an_error_that_shows_one(given: str) -> None:
    with pytest.raises(ParamsError, match=r"no place to listen: give an address and a port, such as 127\.0\.0\.1:9464"):
        Address.of(given)


# ---------------------------------------------------------------------------------------------------------------- OTLP


class Collector(HTTPServer):
    """Takes what is pushed, as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.got: list[ExportMetricsServiceRequest] = []
        self.paths: list[str] = []
        self.status, self.sends_on = 200, ""

    def last(self) -> dict[tuple[str, ...], float]:
        """The numbers of the newest push by name and labels; of histograms the sums."""
        found = dict[tuple[str, ...], float]()
        for metric in self.got[-1].resource_metrics[0].scope_metrics[0].metrics if self.got else ():
            for point in getattr(metric, str(metric.WhichOneof("data"))).data_points:
                labels = [each.value.string_value for each in sorted(point.attributes, key=lambda each: each.key)]
                found[metric.name, *labels] = point.sum if hasattr(point, "sum") else point.as_int + point.as_double
        return found


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.sends_on:
            self.send_response(307)
            self.send_header("Location", self.server.sends_on)
            self.end_headers()
            return
        if self.server.status == 200:
            self.server.paths.append(self.path)
            self.server.got.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with Collector() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def url(receiver: Collector) -> str:
    return f"http://127.0.0.1:{receiver.server_port}"


def test_a_collector_gets_what_the_log_says_and_the_rest_when_it_ends(server: Path, receiver: Collector) -> None:
    log = Log(server / "audit.jsonl", Kind, NAMES)
    with metrics(server, "--otlp", url(receiver), OTEL_METRIC_EXPORT_INTERVAL="200") as process:
        until(lambda: receiver.last().get(("secea.rounds", "completed")) == 1, "nothing is pushed")
        log.noted("lost", client="client 2", cause="unreachable", why="aspirin")
        until(lambda: receiver.last().get(("secea.losses", "unreachable", "west")) == 1, "a loss is not pushed")
        process.terminate()
        assert process.wait(30) == 0
    got = receiver.got[-1]
    resource = {each.key: each.value.string_value for each in got.resource_metrics[0].resource.attributes}
    assert (resource["service.name"], resource["service.instance.id"]) == ("secea", "server")
    metrics_ = {each.name: each for each in got.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics_.keys() <= METRICS.keys()
    assert {each: metrics_[each].unit for each in metrics_} == {each: METRICS[each].unit for each in metrics_}
    assert set(receiver.paths) == {"/v1/metrics"}
    assert b"aspirin" not in b"".join(each.SerializeToString() for each in receiver.got)


def test_the_last_metrics_are_pushed_although_the_interval_is_long(server: Path, receiver: Collector) -> None:
    with metrics(server, "--otlp", url(receiver), OTEL_METRIC_EXPORT_INTERVAL="3600000") as process:
        assert not receiver.got
        process.terminate()
        assert process.wait(30) == 0
    assert receiver.last()["secea.rounds", "completed"] == 1


def test_a_collector_that_fails_is_told_once_and_loses_nothing(server: Path, receiver: Collector) -> None:
    log, receiver.status = Log(server / "audit.jsonl", Kind, NAMES), 400
    with metrics(server, "--otlp", url(receiver), OTEL_METRIC_EXPORT_INTERVAL="100") as process:
        assert process.stderr is not None
        assert "takes no metrics; nothing is lost, and it is tried again" in process.stderr.readline()
        log.noted("round", number=2, clients=[])
        time.sleep(0.5)  # it fails again, and says nothing
        receiver.status = 200
        assert "takes metrics again" in process.stderr.readline()
        until(lambda: receiver.last().get(("secea.rounds", "completed")) == 2, "a round is lost")


def test_metrics_for_this_machine_go_through_no_proxy(server: Path, receiver: Collector) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    with metrics(server, "--otlp", url(receiver), HTTP_PROXY=proxy, http_proxy=proxy, ALL_PROXY=proxy) as process:
        process.terminate()
        assert process.wait(30) == 0
    assert receiver.last()["secea.rounds", "completed"] == 1


def test_a_collector_that_sends_them_on_to_another_address_is_not_followed(server: Path, receiver: Collector) -> None:
    with Collector() as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        receiver.sends_on = f"{url(other)}/v1/metrics"
        with metrics(server, "--otlp", url(receiver), OTEL_METRIC_EXPORT_INTERVAL="100") as process:
            assert process.stderr is not None
            assert "takes no metrics" in process.stderr.readline()
        assert not other.got
        other.shutdown()


@pytest.mark.slow
def test_a_collector_that_is_not_there_stops_nothing(server: Path) -> None:
    dead, port = free_port(), free_port()
    words = ("--otlp", f"http://127.0.0.1:{dead}", "--listen", str(port))
    with metrics(server, *words, OTEL_METRIC_EXPORT_INTERVAL="100") as process:
        assert process.stderr is not None
        assert f"the collector at http://127.0.0.1:{dead}/v1/metrics takes no metrics" in process.stderr.readline()
        assert scraped(port)["secea_rounds_total", "completed"] == 1
        process.terminate()
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()


def test_what_leaves_this_machine_is_encrypted() -> None:
    assert collector("https://otel.example.org:4318/") == "https://otel.example.org:4318/v1/metrics"
    assert collector("http://[::1]:4318/v1/metrics") == "http://[::1]:4318/v1/metrics"
    with pytest.raises(ParamsError, match=r"would go to otel\.example\.org unencrypted: give https://"):
        collector("http://otel.example.org:4318")
    for wrong in ("", "localhost:4318", "ftp://localhost", "http://", "http://localhost:x", "http://localhost/?a=b"):
        with pytest.raises(ParamsError, match="no collector: give its address"):
            collector(wrong)


# -------------------------------------------------------------------------------------------------- what goes wrong


def test_a_port_that_is_taken_is_an_error_that_says_so(server: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["metrics", str(server), "--listen", str(port)])
    assert result.exit_code == 4
    assert f"127.0.0.1:{port}: address already in use; stop what uses the port, or choose another one" in result.output


def test_a_site_without_a_log_has_no_metrics_and_is_told_the_line_to_add(server: Path) -> None:
    text = (server / "site.toml").read_text()
    (server / "site.toml").write_text(re.sub(r"^log.*$", "", text, flags=re.MULTILINE))
    result = CliRunner().invoke(main, ["metrics", str(server)])
    assert result.exit_code == 3
    assert 'names no log, and metrics come from it: add the line log = "audit.jsonl"' in result.output


def test_it_waits_for_a_log_that_has_not_begun_and_needs_no_key(tmp_path: Path) -> None:
    folder, port = written(tmp_path / "north", session(), "north"), free_port()
    (folder / "identity.pem").unlink()
    with metrics(folder, "--listen", str(port)):
        assert scraped(port)["secea_core_starts_total",] == 0
        Log(folder / "audit.jsonl", Kind, NAMES).noted("start", party="north")
        until(lambda: scraped(port)["secea_core_starts_total",] == 1, "the log's begin is not seen")


def test_ctrl_c_ends_it_with_the_exit_code_of_an_interruption(server: Path) -> None:
    with metrics(server, "--listen", str(free_port())) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_without_opentelemetry_it_says_what_to_install(server: Path) -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import secea_command; secea_command.main()"
    command = [sys.executable, "-c", code, "metrics", str(server)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert ran.returncode == 4
    assert "metrics need OpenTelemetry: pip install 'opentelemetry-sdk>=" in ran.stderr


def test_the_processes_of_the_protocol_import_no_telemetry() -> None:
    code = "import sys, secea.cli, secea.engines.run, secea.engines.core, secea.engines.lasting;"
    code += "print([each for each in sys.modules if 'opentelemetry' in each or 'prometheus' in each])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert ran.stdout.strip() == "[]"
