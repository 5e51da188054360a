"""`secea host` and `secea join` as processes, as people start them: what they print, and what they are told."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from secea.engines.progress import RESULT, STATUS

SECEA = Path(sys.executable).parent / "secea"
FINGERPRINT = re.compile(r"^fingerprint {5}((?:[0-9a-f]{4} ?){10})$", re.MULTILINE)
SECONDS = 240.0
"""So long anything may take on a busy machine."""


def waited(until: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """What `until` gives when it is something; an AssertionError if that takes too long."""
    end = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.1)
    return found


def free_port() -> int:
    """A port on loopback that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass
class Command:
    """A command that runs in a folder."""

    folder: Path
    words: tuple[str, ...]
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603
            [SECEA, *self.words], cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, bufsize=1, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def text(self) -> str:
        """All that it has printed."""
        return "".join(self.lines)

    def says(self, pattern: str, seconds: float = SECONDS) -> re.Match[str]:
        """Wait until it has printed this."""
        found: re.Match[str] = waited(
            lambda: re.search(pattern, self.text, re.MULTILINE) or self._ended(pattern),
            f"{self.words}: {pattern}",
            seconds,
        )
        return found

    def _ended(self, pattern: str) -> re.Match[str] | None:
        if self.process.poll() is None:
            return None
        self._reader.join()
        found = re.search(pattern, self.text, re.MULTILINE)
        assert found, f"{self.words} ended with {self.process.returncode}, without {pattern}:\n{self.text}"
        return found

    def fingerprint(self) -> str:
        """Of the federation file that it shows."""
        return self.says(FINGERPRINT.pattern)[1].strip()

    def answer(self, text: str) -> None:
        """Type a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def code(self, seconds: float = SECONDS) -> int:
        """How it ended."""
        code = self.process.wait(seconds)
        self._reader.join()
        return code

    def kill(self) -> None:
        """SIGKILL it and all that it started, at once."""
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(OSError):  # what was typed for nobody
                stream.close()

    def close(self) -> None:
        """End it, if a test did not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        self.kill()


class Town(ExitStack):
    """A folder in which somebody hosts, and others join."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.port = folder, free_port()
        self.sites: dict[str, Command] = {}

    def run(self, *words: str) -> Command:
        """Start a command."""
        command = Command(self.folder, words)
        self.callback(command.close)
        return command

    def host(self, *words: str) -> Command:
        """Host kg/federation.toml."""
        return self.run("host", "kg/federation.toml", "--address", f"localhost:{self.port}", *words)

    def join(self, name: str, *words: str) -> Command:
        """Join by the invitation that the host has made."""
        self.sites[name] = self.run("join", f"kg/invitations/{name}.invitation", *words)
        return self.sites[name]

    def all_agree(self, host: Command) -> str:
        """All operators compare what they are shown with what the host is shown, and say yes."""
        fingerprint = host.fingerprint()
        for site in self.sites.values():
            assert site.fingerprint() == fingerprint
            site.answer("yes")
        return fingerprint

    def state(self, file: str = STATUS) -> Mapping[str, Any]:
        """What the server has written down of its run."""
        found: dict[str, Any] = json.loads((self.folder / "kg" / "server" / "state" / file).read_bytes())
        return found

    def rounds(self) -> list[list[str]]:
        """Who was there to the end of each round so far."""
        path = self.folder / "kg" / "server" / "audit.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
        return [line["clients"] for line in lines if line["event"] == "round"]


__all__ = ["RESULT", "Command", "Town", "free_port", "waited"]
