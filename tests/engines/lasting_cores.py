"""The cores that outlive their callers: where they are, and their end when a test is over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from secea.engines.lasting import LastingCore
from sites import Sites


def address_of(sites: Sites, name: str) -> Path:
    """The file that says where the core of a site listens."""
    return sites.folder / name / "state" / "core.state"


def process_of(sites: Sites, name: str) -> psutil.Process:
    """The process that a site's state says is its core."""
    return psutil.Process(json.loads(address_of(sites, name).read_text())["process"])


def cores_of(sites: Sites, name: str) -> list[psutil.Process]:
    """All processes that are a core of this site."""
    words = {"secea.engines.lasting", str(sites.file(name))}
    return [each for each in psutil.process_iter(["cmdline"]) if words <= set(each.info["cmdline"] or [])]


def waited(until: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def ended(sites: Sites) -> None:
    """No core of these sites is left."""
    for name in sites.names:
        LastingCore(sites.file(name)).close()
        waited(lambda name=name: not cores_of(sites, name))  # type: ignore[misc]
