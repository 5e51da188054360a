"""What tests have compiled: with the compiler of this Python or the one that CC names, and CFLAGS."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path


def library(source: str, path: Path, *flags: str) -> Path:
    """A shared library of this source, at this path."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))
    text = path.with_suffix(".c")
    text.write_text(source, encoding="utf-8")
    more = shlex.split(os.environ.get("CFLAGS", ""))
    command = [*compiler, "-shared", "-fPIC", *flags, *more, "-o", str(path), str(text), "-lm"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own source
    assert ran.returncode == 0, ran.stderr
    return path
