"""A Flower deployment on loopback: a SuperLink with TLS, and SuperNodes that it knows by their keys."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from secea.engines.lasting import LastingCore

TOOLS = Path(sys.executable).parent
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3"}
APP = """
[project]
name = "app"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr==1.41.0"]

[tool.flwr.app]
publisher = "secea"

[tool.flwr.app.components]
serverapp = "counted:server"
clientapp = "secea.engines.flower:client"

[tool.flwr.app.config]
rounds = 1
stage-seconds = 120.0
training-seconds = 3600.0
"""
COUNTED = """
import flwr.superlink.grid.http_grid as grid
from secea.engines import flower

server = flower.server
pushed = grid.push_objects

def counting(objects, push_object_fn, **options):
    def push(name, content):
        with open({file!r}, "a") as file:
            file.write(f"{{name}} {{len(content)}}\\n")
        push_object_fn(name, content)
    pushed(objects, push, **options)

grid.push_objects = counting
"""
"""The ServerApp, which writes down what it gives to the SuperLink."""
REGISTER = """
import sys
from flwr.cli.app import app
for key in sys.argv[1:]:
    app(["supernode", "register", key, "loopback"], standalone_mode=False)
"""
"""`flwr supernode register` for several keys; one process, since its start takes seconds."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def waited(what: str, seconds: float, *, until: Callable[[], bool]) -> None:
    """Wait until a condition holds; an AssertionError if it does not in time."""
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.1)


def family(pid: int) -> list[int]:
    """A process's children, and theirs. A SuperLink starts some in sessions of their own, which outlive it."""
    with contextlib.suppress(OSError):
        children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
        return [each for child in map(int, children.split()) for each in (child, *family(child))]
    return []


class Deployment:
    """Starts and stops the processes. `sites` are the TOML files of the clients."""

    def __init__(self, folder: Path, server: Path, sites: Sequence[Path]) -> None:
        self.folder, self.sites = folder, list(sites)
        self.port, self.processes = free_port(), dict[str, subprocess.Popen[bytes]]()
        self.environment = os.environ | QUIET | {
            "FLWR_HOME": str(folder / "flwr"),
            "SECEA_SERVER": str(server),
            "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        (folder / "app").mkdir()
        (folder / "app" / "pyproject.toml").write_text(APP)
        (folder / "pushed").touch()
        (folder / "app" / "counted.py").write_text(COUNTED.format(file=str(folder / "pushed")))
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{folder / "tls.crt"}"\n'
        )

    def __enter__(self) -> Deployment:
        self._make_keys()
        tls = ["--ssl-certfile", "tls.crt", "--ssl-keyfile", "tls.key", "--ssl-ca-certfile", "tls.crt"]
        options = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        try:
            self._start(
                "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), *tls, *options
            )
            waited("a SuperLink that listens", 60, until=self._listens)
            self._call(sys.executable, "-c", REGISTER, *(f"node{n}.pub" for n in range(len(self.sites))))
            for n in range(len(self.sites)):
                self.start_node(n)
            waited("nodes that are online", 120, until=lambda: all(map(self.online, range(len(self.sites)))))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)
        for site in self.sites:  # a core outlives its SuperNode
            LastingCore(site).close()

    def _make_keys(self) -> None:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes", "-days", "2"]
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        self._call("openssl", "req", "-x509", *curve, *names, "-keyout", "tls.key", "-out", "tls.crt")
        for n in range(len(self.sites)):
            self._call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", f"node{n}")

    def _call(self, *command: str) -> str:
        ran = subprocess.run(  # noqa: S603 - our own commands
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, f"{' '.join(command)}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - our own commands
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_node(self, n: int) -> None:
        """SuperNode n, which knows the file of its site and nothing else."""
        link = ["--superlink", f"127.0.0.1:{self.port}", "--root-certificates", "tls.crt"]
        own = ["--auth-supernode-private-key", f"node{n}", "--port", str(free_port())]
        config = ["--node-config", f'secea-site="{self.sites[n]}"']
        self._start(f"node{n}", "flower-supernode", *link, *own, *config)

    def kill(self, name: str) -> None:
        """SIGKILL a process and all that it started."""
        process = self.processes.pop(name)
        for pid in (process.pid, *family(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def kill_app(self, command: str, of: str = "superlink") -> None:
        """SIGKILL what the SuperLink, or a SuperNode, started for a run."""
        for pid in family(self.processes[of].pid):
            if command in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)

    def pushed(self) -> list[tuple[str, int]]:
        """What ServerApps gave to the SuperLink so far: the names of objects, and their bytes."""
        lines = (self.folder / "pushed").read_text().splitlines()
        return [(name, int(size)) for name, size in map(str.split, lines)]

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def online(self, n: int) -> bool:
        """Whether the SuperLink has taken SuperNode n."""
        return "SuperNode ID" in (self.folder / f"node{n}.log").read_text(errors="replace")

    def start(self, **config: float) -> str:
        """Start a run; its number."""
        settings = " ".join(f"{name.replace('_', '-')}={value}" for name, value in config.items())
        out = self._call("flwr", "run", "app", "loopback", "--run-config", settings, "--format", "json")
        return str(json.loads(out)["run-id"])

    def finish(self, run: str, seconds: float) -> str:
        """Wait for the end of a run: "finished:completed", or "finished:failed"."""
        log, line = self.folder / "superlink.log", re.compile(rf"Finished task \d+ of run {run}")
        looks = count(1)

        def over() -> bool:  # to ask takes seconds of a core; a ServerApp that was killed has no line in the log
            if line.search(log.read_text(errors="replace")):
                return True
            return next(looks) % 300 == 0 and self.status(run).startswith("finished")

        waited(f"the end of run {run}", seconds, until=over)
        return self.status(run)

    def status(self, run: str) -> str:
        """What the SuperLink says of a run."""
        out = self._call("flwr", "list", "loopback", "--run-id", run, "--format", "json")
        return str(json.loads(out)["runs"][0]["status"])

    def log(self, run: str) -> str:
        """What the ServerApp of a run wrote."""
        return self._call("flwr", "log", run, "loopback", "--show")
