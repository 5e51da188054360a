"""The real command, as people run it: a process, a folder, bytes on its standard output."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def shim(folder: Path) -> Path:
    """A folder with a `secea` that runs this source: to be put in front of PATH."""
    folder.mkdir(exist_ok=True)
    script = folder / "secea"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m secea_command "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return folder


def heed_interrupts() -> None:
    """In a child, before it runs: whoever starts the tests in the background may have it ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def environment(tools: Path, **more: str) -> dict[str, str]:
    """That of this process, with the shim first and no terminal's habits."""
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return kept | {"PATH": path, "PYTHONPATH": source, "TERM": "dumb", "LC_ALL": "C.UTF-8"} | more


def shell(command: str, folder: Path, tools: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """One line of a shell, in a folder."""
    return subprocess.run(  # noqa: S603 - commands of the tests and of the documentation
        ["bash", "-c", command],  # noqa: S607
        cwd=folder, env=environment(tools, **more), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
