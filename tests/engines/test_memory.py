"""How a process handles freed memory is changed in processes of ours alone: cores of clients, and commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import compiled

MALLOPT = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int mallopt(int parameter, int value) {
    FILE *file = fopen(getenv("SECEA_MALLOPT"), "a");
    fprintf(file, "%d\\n", (int)getpid());
    fclose(file);
    return parameter != value;
}
"""
OF_THE_USER = """
import os, sys
from pathlib import Path
import secea
from cores import run
from lasting_cores import ended
from secea.engines.host import Host
from secea.engines.lasting import LastingCore
from secea.engines.port import Order, Task
from secea.engines.site import Site
from sites import Sites

secea.aggregate([{"a": [1.0, 2.0], "b": [0.5, 0.5]}, {"a": [3.0, 4.0]}, {"b": [1.0, 1.0]}])
sites = Sites(Path(sys.argv[1]), secea.Params(clients=3, dim=2, max_entities=30, max_union=40))
assert isinstance(Site.read(sites.file("site-2")).host(), Host)
run(sites, 1)
LastingCore(sites.file("site-1")).obey(Order(Task.HELLO).to_bytes(), 60)
ended(sites)
print(os.getpid())
"""
Ran = tuple[int, list[int]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """Run Python: the number of the process, and those of all processes that called mallopt."""
    shim, log = compiled.library(MALLOPT, tmp_path / "mallopt.so"), tmp_path / "log"
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"LD_PRELOAD": str(shim), "SECEA_MALLOPT": str(log), "PYTHONPATH": path}

    def ran(*arguments: str) -> Ran:
        process = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603
        process.communicate(timeout=120)
        assert process.returncode == 0
        return process.pid, [int(line) for line in log.read_text().split()] if log.exists() else []

    return ran


def test_no_call_of_the_package_changes_the_users_own_process(run: Callable[..., Ran], tmp_path: Path) -> None:
    own, called = run("-c", OF_THE_USER, str(tmp_path / "sites"))
    assert own not in called
    assert len(set(called)) == 3 + 1  # the cores of three clients, and one that lasts


def test_a_command_changes_its_own_process(run: Callable[..., Ran], tmp_path: Path) -> None:
    own, called = run("-m", "secea_command", "keygen", str(tmp_path / "my.key"))
    assert set(called) == {own}
