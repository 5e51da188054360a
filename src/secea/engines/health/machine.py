"""The machine: its clock, its memory, and the versions of what is installed; and what is wrong with them."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import secea
from secea.arithmetic._kernels import MISSING
from secea.engines.health.finding import Finding, ok, warning, wrong
from secea.extras import again, installing

LIBRARIES: Final = ("numpy", "cryptography", "nvflare", "flwr")
LEAST: Final = {"numpy": (2, 0), "cryptography": (48, 0)}
"""The oldest versions that secea runs with."""
ENGINES: Final = {"nvflare": (2, 9), "flwr": (1, 41)}
"""The versions of the engines that secea was tried on."""
CALLED: Final = {"nvflare": "NVFlare", "flwr": "Flower (flwr)"}
OLDEST_PYTHON: Final = (3, 11)


def _memory() -> float | None:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not a name that this system knows
        return None


def _available() -> float | None:
    """What Linux says that programs can have without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return float(found[0]) * 1024 if found else None


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Machine:
    """What is looked at, as values."""

    now: float = field(default_factory=time.time)
    memory: float | None = field(default_factory=_memory)
    """Bytes; None where the system does not say."""
    available: float | None = field(default_factory=_available)
    """Those that other programs leave."""
    python: tuple[int, ...] = tuple(sys.version_info[:3])
    versions: Mapping[str, str] = field(default_factory=_versions)
    """Of the libraries that are installed."""
    slow: str = MISSING
    """Why the compiled loops are missing; nothing if they are there."""


def findings(machine: Machine, engine: str = "") -> Iterator[Finding]:
    """Versions, and the compiled loops. `engine` is the library of the engine that is certain to be used."""
    troubles = list(_unfit(machine, engine))
    yield from troubles
    if not troubles:
        listed = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
        python = ".".join(map(str, machine.python))
        yield ok("versions", f"secea {secea.__version__}, Python {python}, {listed}")
    if machine.slow:
        yield warning("kernels", f"the compiled loops are missing: {machine.slow}; all is many times slower", again())
    else:
        yield ok("kernels", f"the compiled loops are there ({platform.machine()})")


def _unfit(machine: Machine, engine: str) -> Iterator[Finding]:
    if machine.python < OLDEST_PYTHON:
        yield wrong("versions", f"Python {_said(machine.python)} is older than {_said(OLDEST_PYTHON)}")
    for name, least in LEAST.items():
        if name not in machine.versions:
            yield wrong("versions", f"{name} is not installed", "install secea again")
        elif _pair(machine.versions[name]) < least:
            says = f"{name} {machine.versions[name]} is older than {_said(least)}"
            yield wrong("versions", says, "install secea again: it brings a newer one")
    present = [name for name in ENGINES if name in machine.versions]
    if engine and engine not in present:
        yield wrong("versions", f"{CALLED[engine]} is not installed", installing(engine))
    elif not present:
        yield warning(
            "versions", "no engine is installed", f"{installing('nvflare')}, or for Flower: {installing('flwr')}"
        )
    for name in present:
        if _pair(machine.versions[name]) != ENGINES[name]:
            tried = _said(ENGINES[name])
            says = f"{CALLED[name]} {machine.versions[name]} is installed; secea was tried on {tried} alone"
            used = name == engine or present == [name]
            yield (wrong if used else warning)("versions", says, installing(name))


def _pair(text: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split(".")[:2])


def _said(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
