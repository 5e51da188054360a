"""Importing secea brings in nothing that only an engine, a learning task or Unix has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "nvflare", "flwr", "numba", "pykeen", "gensim", "matplotlib")

SCRIPT = f"""
import sys
from pathlib import Path

class Watch:
    tried = set()
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            self.tried.add(name)

sys.meta_path.insert(0, Watch())
import {{}}
print(*Watch.tried, *sys.modules.keys() & set({HEAVY}))
"""


def tried(module: str) -> list[str]:
    """What importing a module tries to import that takes long."""
    command = [sys.executable, "-c", SCRIPT.format(module)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  # our own script
    return ran.stdout.split()


def test_importing_secea_imports_nothing_heavy() -> None:
    assert tried("secea") == []
    assert tried("secea.adapters.torch") != []  # the watch sees it


ELSEWHERE = """
import os, socket, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"No module named {name!r}")

missing = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline", "_posixsubprocess")
for name in missing:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for name in ("fork", "register_at_fork", "getuid", "geteuid", "sysconf", "O_NONBLOCK", "WIFEXITED"):
    delattr(os, name)
for name in ("AF_UNIX", "SO_PEERCRED"):
    delattr(socket, name)

import secea
tables = [{"a": [1.0, 2.0], "b": [0.0, 1.0]}, {"a": [3.0, 4.0]}, {"b": [2.0, 2.0], "c": [1.0, 1.0]}]
means = secea.aggregate(tables)
assert means[0]["a"].round(4).tolist() == [2.0, 3.0], means
federation = secea.Federation(secea.Params(clients=3, dim=2))
federation.setup([table.keys() for table in tables])
assert federation.round(tables)[2]["c"].round(4).tolist() == [1.0, 1.0]

from secea.engines.store import Store
store = Store(sys.argv[1], secea.Identity.generate(), b"session")
try:
    with store.held(0):
        pass
except secea.SnapshotError as error:
    print(error)
"""


def test_a_federation_in_one_process_needs_nothing_that_only_unix_has_and_an_engine_says_what_it_needs(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  # our own script
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("engines need Linux or macOS")
