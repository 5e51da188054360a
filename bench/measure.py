"""Clocks, memory, and a process of its own for each point."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography.hazmat.backends.openssl import backend

import secea
from bench.figures import Figure
from bench.hashed import hashed_names
from bench.parts import parts
from bench.shapes import Shape
from secea import Federation, Table
from secea.arithmetic.field import keep_freed_memory
from secea.errors import FederationError

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ("flwr", "tenseal", "phe", "python-flint", "galois")
"""Packages that the benchmark compares with; the extra `bench` installs them."""
Tick = Callable[[str], None]
"""Told before each step what comes."""


@dataclass(frozen=True)
class Timing:
    """Seconds on the wall and of all cores, and the bytes that were sent meanwhile, on all hops."""

    wall: float
    cpu: float
    bytes: int = 0

    def __add__(self, other: Timing) -> Timing:
        return Timing(self.wall + other.wall, self.cpu + other.cpu, self.bytes + other.bytes)

    def times(self, factor: float, size: int = 0) -> Timing:
        """So much longer, with bytes that are counted elsewhere."""
        return Timing(self.wall * factor, self.cpu * factor, size)


def timed(work: Callable[[], T]) -> tuple[T, Timing]:
    """What the work gives, and the time that it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Timing(time.perf_counter() - wall, time.process_time() - cpu)


def walls(timings: list[Timing]) -> Figure:
    """Seconds on the wall."""
    return Figure.of([each.wall for each in timings], "s")


def cpus(timings: list[Timing]) -> Figure:
    """Seconds of all cores."""
    return Figure.of([each.cpu for each in timings], "s")


def interleaved(works: Mapping[str, Callable[[], T]], repetitions: int, tick: Tick) -> dict[str, list[T]]:
    """One repetition of each contestant after the other, so that all meet the same changes of the machine's speed."""
    found: dict[str, list[T]] = {name: [] for name in works}
    for number in range(1, repetitions + 1):
        for name, work in works.items():
            tick(f"{name}, {number} of {repetitions}")
            found[name].append(work())
    return found


def memory(field: str) -> int:
    """Bytes of this process: VmRSS now, or VmHWM at most. A child's `ru_maxrss` may be its parent's, so not that."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition(f"{field}:")[2].split()[0]) * 1024
    except (OSError, IndexError):  # not Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """VmHWM begins anew, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


# ------------------------------------------------------------------------------------------------ a point by itself


def point(
    shape: Shape, rounds: int, dropouts: int = 0, *, hashed: bool = False, keep: bool = False, spent: bool = False
) -> dict[str, Any]:
    """Set-up and rounds of one federation in this process; means are checked once the peak of memory is known.

    `hashed`: names get their keys by a hash. `keep`: freed memory, as in the processes that an engine starts. `spent`:
    one more round, whose CPU time is taken apart.
    """
    if keep:
        keep_freed_memory()
    tables, start = shape.tables(), memory("VmRSS")
    forget_peak()
    fed = Federation(shape.params(dropouts=dropouts))
    with hashed_names() if hashed else nullcontext():
        _, setup = timed(lambda: fed.setup([table.names for table in tables]))
    setup_peak, kept, setup_kinds, each = memory("VmHWM"), memory("VmRSS"), by_kind(fed), []
    forget_peak()
    means: list[Table] = []
    for _ in range(rounds):
        means.clear()  # those of the round before would count
        hops = len(fed.traffic)
        _, timing = timed(lambda: means.extend(fed.round(tables)))
        kinds = by_kind(fed, hops)
        each.append({**asdict(timing), "bytes": sum(kinds.values()), "by kind": kinds})
    peak = memory("VmHWM")
    shape.check(means, fed.params.resolution, tables)
    parts_of = parts(lambda: fed.round(tables)) if spent else {}
    return {
        "parts": parts_of,
        "setup": {**asdict(setup), "bytes": sum(setup_kinds.values()), "by kind": setup_kinds},
        "rounds": each,
        "setup stages": stages(fed, "setup"),
        "stages": {name: seconds / (rounds + bool(spent)) for name, seconds in stages(fed, "online").items()},
        "start": start,
        "setup peak": setup_peak,
        "kept": kept,
        "peak": peak,
    }


def by_kind(fed: Federation, since: int = 0) -> dict[str, int]:
    """Bytes of each kind of message, on all hops; of those that passed since then."""
    total: dict[str, int] = {}
    for hop in fed.traffic[since:]:
        total[hop.kind] = total.get(hop.kind, 0) + hop.size
    return total


def stages(fed: Federation, phase: str) -> dict[str, float]:
    """CPU seconds by stage, all parties together."""
    total: dict[str, float] = {}
    for costs in fed.timing.values():
        for stage, seconds in costs[phase].stages.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total


def in_child(shape: Shape, rounds: int, **options: Any) -> dict[str, Any]:
    """The point in a process of its own: nothing else is in its memory."""
    task = json.dumps({"shape": asdict(shape), "rounds": rounds, **options})
    command = [sys.executable, "-m", "bench.measure", task]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # our own module
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise FederationError(f"{shape}: {last}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


# -------------------------------------------------------------------------------------------------------- the machine


def machine() -> dict[str, str]:
    """What the figures depend on; no names of hosts, users or folders."""
    facts = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": platform.system(),
        "python": platform.python_version(),
        "openssl": backend.openssl_version_text().removeprefix("OpenSSL ").split(" ")[0],
        "secea": secea.__version__,
    }
    for name in ("numpy", "cryptography", "gmpy2", *PEERS):
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = "not installed"
    return facts


def _processor() -> str:
    """Its model, and the vector instructions that matter here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = {line.split(":")[0].strip(): line.partition(":")[2].strip() for line in text.splitlines() if ":" in line}
    have = set(fields.get("flags", "").split())
    known = [name for name in ("avx2", "vaes", "avx512f", "avx512ifma") if name in have]
    return f"{fields.get('model name', platform.machine())} ({', '.join(known)})" if known else platform.machine()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    json.dump(point(Shape(**given.pop("shape")), **given), sys.stdout)
