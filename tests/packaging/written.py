"""What the files of `packaging` say, as tests need it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGING: Final = ROOT / "packaging"
PAGE: Final = (ROOT / "docs" / "packaging.md").read_text(encoding="utf-8")
BLOCKS: Final = dict(re.findall(r'^```sh title="([^"]+)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))
"""The commands of the page by their titles."""


def instructions() -> list[tuple[str, str]]:
    """The Containerfile: each instruction with what follows it, on one line."""
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    return [(first, " ".join(rest.split())) for first, rest in lines]


def health_check() -> str:
    """What a shell runs to learn whether a container is healthy."""
    (check,) = [rest for first, rest in instructions() if first == "HEALTHCHECK"]
    shell, option, command = json.loads(check.partition("CMD ")[2])
    assert (shell, option) == ("sh", "-c")
    return str(command)
