"""A provisioned NVFlare system on the loopback interface: a server, clients, mutual TLS, one process for each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from nvflare.recipe import ProdEnv

from secea.engines import nvflare

ADMIN = "admin@example.com"
JOINED = "Successfully registered client"
"""What a site prints when the server has taken it."""
BUILDERS: dict[str, dict[str, object]] = {
    "workspace.WorkspaceBuilder": {"template_file": ["master_template.yml"]},
    "static_file.StaticFileBuilder": {"config_folder": "config"},
    "cert.CertBuilder": {},
    "signature.SignatureBuilder": {},
}
BIN = Path(sys.executable).parent


class Deployment:
    """The startup kits, and the processes that run them."""

    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        self.folder, self.sites = folder, sites
        self.env: Any = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._provision()

    def _provision(self) -> None:
        participants: list[dict[str, object]] = [
            {"name": "localhost", "type": "server", "fed_learn_port": self.port},
            {"name": ADMIN, "type": "admin", "role": "project_admin"},
        ]
        participants += [{"name": name, "type": "client"} for name in self.sites]
        project = {
            "api_version": 3,
            "name": "trial",
            "participants": [each | {"org": "example"} for each in participants],
            "builders": [{"path": f"nvflare.lighter.impl.{name}", "args": args} for name, args in BUILDERS.items()],
        }
        file = self.folder / "project.yml"
        file.write_text(json.dumps(project))  # JSON is YAML
        command: list[Path | str] = [BIN / "nvflare", "provision", "-p", file, "-w", self.folder / "kits"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603
        self.kits = self.folder / "kits" / "trial" / "prod_00"
        for name in ("localhost", *self.sites):
            nvflare.permit(self.kits / name)

    def use(self, sites: Path) -> None:
        """The sites for the next job: the file of each kit leads to the site's own folder."""
        for name in ("localhost", *self.sites):
            link = self.kits / name / "local" / "secea.toml"
            link.unlink(missing_ok=True)
            link.symlink_to(sites / ("server" if name == "localhost" else name) / "site.toml")

    @contextlib.contextmanager
    def running(self) -> Iterator[Deployment]:
        """The server and the clients, as their start scripts run them."""
        try:
            for name in ("localhost", *self.sites):
                self.start(name)
            for name in self.sites:
                self.joined(name)
            self.env = ProdEnv(str(self.kits / ADMIN), login_timeout=60.0, username=ADMIN)
            yield self
        finally:
            for name in list(self._processes):
                self.kill(name)

    def start(self, name: str) -> None:
        """Start the process of a kit."""
        env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        command: list[Path | str] = [self.kits / name / "startup" / "sub_start.sh", "--once"]
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(  # noqa: S603
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env, start_new_session=True
            )

    def joined(self, name: str, times: int = 1, seconds: float = 120.0) -> None:
        """Wait until a site that was started so often is connected: a job calls those that are when it begins."""
        end = time.monotonic() + seconds
        while self.output(name).count(JOINED) < times:
            assert time.monotonic() < end, f"{name} is not connected after {seconds} s"
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """SIGKILL the process of a kit and all that it started, at once."""
        process = self._processes.pop(name)
        for each in (process, *psutil.Process(process.pid).children(recursive=True)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        process.wait()

    def pid(self, name: str) -> int:
        """The process of a kit."""
        return self._processes[name].pid

    def job_process(self, name: str, job: Any) -> psutil.Process:
        """The process of a job at a site."""
        family = psutil.Process(self.pid(name)).children(recursive=True)
        (process,) = [each for each in family if job.get_job_id() in " ".join(each.cmdline())]
        return process

    def output(self, name: str) -> str:
        """What the process of a kit printed."""
        return (self.folder / f"{name}.out").read_text()

    def status(self, job: Any, timeout: float = 90) -> str:
        """How a job ended."""
        deadline = time.monotonic() + timeout
        while not (status := str(job.get_status())).startswith("FINISHED"):
            assert time.monotonic() < deadline, f"the job is still {status}"
            time.sleep(0.5)
        return status

    def listening(self) -> set[str]:
        """The addresses at which all these processes take connections."""
        family = [psutil.Process(process.pid) for process in self._processes.values()]
        family += [child for parent in family for child in parent.children(recursive=True)]
        connections = [each for process in family for each in process.net_connections("tcp")]
        return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
