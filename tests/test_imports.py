"""Importing secea is quick, and brings in nothing that only an engine or a learning task needs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "nvflare", "flwr", "numba", "pykeen", "gensim", "matplotlib")

SCRIPT = f"""
import sys, time
import numpy, cryptography

class Watch:
    tried = set()
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            self.tried.add(name)

sys.meta_path.insert(0, Watch())
start = time.process_time()
import secea
print(time.process_time() - start, *Watch.tried, *sys.modules.keys() & set({HEAVY}))
"""


def import_secea() -> tuple[float, list[str]]:
    """How many seconds of CPU it takes beyond numpy and cryptography, and what it tried to import that it must not."""
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  # our own script
    seconds, *heavy = ran.stdout.split()
    return float(seconds), heavy


def test_importing_takes_less_than_half_a_second_and_nothing_heavy() -> None:
    seconds, heavy = zip(*(import_secea() for _ in range(5)), strict=True)
    assert min(seconds) < 0.5
    assert heavy == ([],) * 5
