"""Debian's Chromium without a window, spoken to over a pipe: pages are looked at as people see them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import deque
from pathlib import Path
from typing import Any, Self

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking",
)  # fmt: skip


class Browser:
    """One browser and one page. `said` is what its console and its log had to say, `asked` the addresses it wanted."""

    def __init__(self, profile: Path) -> None:
        found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if found is None:
            pytest.fail("no browser: pages are looked at in Chromium; install it (Debian: apt-get install chromium)")
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        script = f'exec "$0" "$@" 3<&{read} 4>&{write}'  # where Chromium expects them
        command = ["bash", "-c", script, found, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(read, write), stdout=quiet, stderr=quiet)  # noqa: S603
        os.close(read)
        os.close(write)
        self._buffer, self._number, self._session = b"", 0, ""
        self._events: deque[dict[str, Any]] = deque()
        self.said: list[str] = []
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        self._call("Browser.close")
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20)
            assert data, f"the browser ended with code {self._process.wait(5)}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded":
                self.said.append(given["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.said.append(json.dumps(given))
            case "Network.requestWillBeSent":
                self.asked.append(given["request"]["url"])
            case str():
                self._events.append(message)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._out, json.dumps(order).encode() + b"\0")
        while (message := self._message()).get("id") != self._number:
            pass
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def open(self, page: Path | str, width: int, *, dark: bool = False) -> None:
        """Show a file, or an address, in a window of this width."""
        self.said.clear()
        self.asked.clear()
        self._events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=scheme)
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700
        )
        self._call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._message()

    def ask(self, expression: str) -> Any:
        """What a piece of script gives: it is ours, not the page's."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def printed(self) -> str:
        """The page on paper, as PDF in base64."""
        data: str = self._call("Page.printToPDF", printBackground=True)["data"]
        return data
