"""The core of a client in a process of its own: whatever becomes of it, its holder gets a reply or a reason."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cores import run
from secea.engines.core import Core, CoreError
from secea.engines.port import Order, Reply, Task
from secea.params import Params
from secea.wire.messages import Buffer, Header
from sites import Sites
from trial import Fault

HELLO = Order(Task.HELLO).to_bytes()
HOLDER = """
import sys, time
from cores import run
from secea.engines.core import Core
from secea.engines.port import Order, Task
core = Core(sys.argv[1])
core.obey(Order(Task.HELLO).to_bytes(), 30)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path / "sites", Params(clients=3, dim=2, max_entities=30, max_union=40))


@pytest.mark.parametrize(
    "scene",
    [
        [(4, "secret", "before"), (2, "table", "after")],
        [(4, "table", "before"), (2, "query", "after")],
        [(4, "query", "before"), (2, "opening", "after")],
    ],
)
def test_a_core_that_is_killed_in_the_set_up_comes_back_to_a_later_round(tmp_path: Path, scene: list[Fault]) -> None:
    params = Params(clients=5, dim=2, dropouts=2, max_entities=20, max_union=30)
    sites = Sites(tmp_path / "sites", params, [scene])
    for name in sites.names:
        sites.argue(name, first=0)
    run(sites, 4)
    assert not sites.scenes_left()
    assert sites.rounds()[0]["clients"] == [0, 1, 3]
    assert sites.rounds()[-1]["clients"] == [0, 1, 2, 3, 4]
    sites.check_means()


@pytest.fixture
def core(sites: Sites) -> Iterator[Core]:
    core = Core(sites.folder / "site-1" / "site.toml")
    yield core
    core.close()


def core_of(holder: int) -> psutil.Process:
    (core,) = [each for each in psutil.Process(holder).children() if "secea.engines.core" in each.cmdline()]
    return core


def incarnation(reply: Buffer) -> bytes:
    (hello,) = Reply.parse(reply, 0).messages
    return Header.parse(hello, 0).salt


def test_a_core_that_was_killed_between_orders_is_replaced_and_goes_on(core: Core) -> None:
    first = incarnation(core.obey(HELLO, 30))
    core_of(os.getpid()).kill()
    time.sleep(0.2)
    assert incarnation(core.obey(HELLO, 30)) == first


def test_a_core_that_dies_under_an_order_says_so_and_the_next_one_goes_on(sites: Sites, core: Core) -> None:
    sites.argue("site-1", scenes=[[[0, "hello", "after"]]], first=0)
    with pytest.raises(CoreError, match="ended by SIGKILL"):
        core.obey(HELLO, 30)
    first = incarnation(core.obey(HELLO, 30))
    assert incarnation(core.obey(HELLO, 30)) == first


def test_a_core_that_hangs_is_killed_when_its_time_is_over(sites: Sites, core: Core) -> None:
    first = incarnation(core.obey(HELLO, 30))
    core_of(os.getpid()).suspend()
    started = time.monotonic()
    with pytest.raises(CoreError, match=r"did not reply within 0\.5 s, and was killed"):
        core.obey(HELLO, 0.5)
    assert time.monotonic() - started < 3
    assert incarnation(core.obey(HELLO, 30)) == first


def test_of_what_the_users_code_raises_the_kind_is_told(sites: Sites, core: Core) -> None:
    sites.argue("site-1", entities="many")
    with pytest.raises(CoreError, match="TypeError at its own side"):
        core.obey(HELLO, 30)
    sites.argue("site-1", entities=30)
    assert incarnation(core.obey(HELLO, 30))


def test_a_site_that_is_not_described_well_is_told_what_is_wrong(sites: Sites, core: Core) -> None:
    sites.write("site-1", identity="nobody.pem")
    with pytest.raises(CoreError, match=r"nobody\.pem cannot be read"):
        core.obey(HELLO, 30)


def test_a_core_ends_with_the_process_that_holds_it(sites: Sites) -> None:
    command: list[str | Path] = [sys.executable, "-c", HOLDER, sites.folder / "site-1" / "site.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as holder:  # noqa: S603
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        core = core_of(holder.pid)
        holder.kill()
        core.wait(5)
