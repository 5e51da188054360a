"""The core of a client in a process of its own: whatever becomes of it, whoever gave an order gets a reply or a reason.

One kind of core ends with its holder, the other outlives its callers (`test_lasting`); these laws hold for both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import secea
from cores import run
from lasting_cores import ended, process_of
from secea.engines.core import Core, CoreError
from secea.engines.files import key_fingerprint
from secea.engines.lasting import LastingCore
from secea.engines.port import Order, Reply, Task
from secea.engines.site import Site
from secea.forms.keyed import Keyed
from secea.params import Params
from secea.wire.messages import Buffer, Header
from sites import Sites
from trial import Fault

HELLO = Order(Task.HELLO).to_bytes()
HOLDER = """
import sys, time
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dropouts", "scene"),
    [
        (1, [(4, "commit", "before"), (2, "deal", "after")]),
        (1, [(4, "list", "before"), (2, "confirm", "after")]),
        (1, [(4, "evaluate", "before"), (2, "secret", "after")]),
        (1, [(4, "table", "before"), (2, "batch", "after")]),
        (0, [(4, "deal", "before"), (2, "evaluate", "after")]),
        (0, [(4, "secret", "before"), (2, "table", "after")]),
        (0, [(4, "ready", "before"), (2, "upload", "after")]),
    ],
)
def test_a_core_that_is_killed_in_any_stage_comes_back_to_a_later_round(
    tmp_path: Path, dropouts: int, scene: list[Fault]
) -> None:
    params = Params(clients=5, dim=2, dropouts=dropouts, max_entities=20, max_union=30)
    sites = Sites(tmp_path / "sites", params, [scene])
    for name in sites.names:
        sites.argue(name, first=0)
    run(sites, 4)
    assert not sites.scenes_left()
    assert {client for client, _ in sites.lost()} == {"client 2", "client 4"}
    assert len(sites.log("server", event="round lost")) == sum(stage == "upload" for _, stage, _ in scene)
    assert len(sites.rounds()) == 4
    assert sites.rounds()[-1]["clients"] == [0, 1, 2, 3, 4]
    sites.check_means()


@pytest.fixture(params=["held", "lasting"])
def core(sites: Sites, request: pytest.FixtureRequest) -> Iterator[Core | LastingCore]:
    core = (Core if request.param == "held" else LastingCore)(sites.file("site-1"))
    yield core
    core.close()
    ended(sites)


def core_of(holder: int) -> psutil.Process:
    (core,) = [each for each in psutil.Process(holder).children() if "secea.engines.core" in each.cmdline()]
    return core


def running(core: Core | LastingCore, sites: Sites) -> psutil.Process:
    return core_of(os.getpid()) if isinstance(core, Core) else process_of(sites, "site-1")


def incarnation(reply: Buffer) -> bytes:
    (hello,) = Reply.parse(reply, 0).messages
    return Header.parse(hello, 0, Keyed.kinds).salt


def test_a_core_that_was_killed_between_orders_is_replaced_and_goes_on(core: Core | LastingCore, sites: Sites) -> None:
    first = incarnation(core.obey(HELLO, 60))
    old = running(core, sites)
    old.kill()
    old.wait(10)
    assert incarnation(core.obey(HELLO, 60)) != first  # it says that it is another life
    assert running(core, sites) != old


def test_a_core_that_dies_under_an_order_says_so_and_the_next_one_goes_on(
    core: Core | LastingCore, sites: Sites
) -> None:
    sites.argue("site-1", scenes=[[[0, "hello", "after"]]], first=0)
    with pytest.raises(CoreError, match=r"core was ended by SIGKILL|core ended before it could reply"):
        core.obey(HELLO, 60)
    first = incarnation(core.obey(HELLO, 60))
    assert incarnation(core.obey(HELLO, 60)) == first


def test_a_core_that_hangs_is_killed_when_its_time_is_over(core: Core | LastingCore, sites: Sites) -> None:
    first = incarnation(core.obey(HELLO, 60))
    hung = running(core, sites)
    hung.suspend()
    with pytest.raises(CoreError, match=r"did not reply within 0\.5 s, and was killed"):
        core.obey(HELLO, 0.5)
    hung.wait(10)
    assert incarnation(core.obey(HELLO, 60)) != first


def test_of_what_the_users_code_raises_the_kind_is_told_and_the_rest_is_in_the_sites_log(
    core: Core | LastingCore, sites: Sites
) -> None:
    sites.argue("site-1", entities="many")
    with pytest.raises(CoreError, match=r"^TypeError at its own side; its log has the rest$"):
        core.obey(HELLO, 60)
    (stopped,) = sites.log("site-1", event="stopped")
    assert "cannot be interpreted as an integer" in stopped["why"]
    sites.argue("site-1", entities=30)
    assert incarnation(core.obey(HELLO, 60))


def test_where_the_users_code_failed_stands_in_the_sites_log_before_anybody_is_told(
    core: Core | LastingCore, sites: Sites
) -> None:
    for number in range(3):
        sites.argue("site-1", entities="many")
        with pytest.raises(CoreError):
            core.obey(HELLO, 60)
        stopped = sites.log("site-1", event="stopped")
        assert len(stopped) == number + 1
        assert (stopped[-1]["level"], "trial.py" in stopped[-1]["trace"]) == ("error", True)


def test_a_core_that_was_killed_is_written_down_by_whoever_waited_for_it(
    core: Core | LastingCore, sites: Sites
) -> None:
    core.obey(HELLO, 60)
    running(core, sites).suspend()
    with pytest.raises(CoreError):
        core.obey(HELLO, 0.5)
    (stopped,) = sites.log("site-1", event="stopped")
    assert stopped["why"] == "its core did not reply within 0.5 s, and was killed"


def test_a_core_whose_holder_is_gone_says_so(sites: Sites) -> None:
    command: list[str | Path] = [sys.executable, "-c", HOLDER, sites.folder / "site-1" / "site.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as holder:  # noqa: S603
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        core = core_of(holder.pid)
        holder.kill()
        core.wait(5)
    (stopped,) = sites.log("site-1", event="stopped")
    assert stopped["why"] == "the engine's process at this site has ended: its job is over, or died"


def test_why_the_server_left_a_site_out_is_noted_once_and_as_what_the_server_says(
    core: Core | LastingCore, sites: Sites
) -> None:
    said = Order(Task.HELLO, said="hello is for another session").to_bytes()
    for _ in range(3):
        core.obey(said, 60)
    (line,) = sites.log("site-1", event="left out")
    assert (line["by"], line["why"]) == ("the server, as it says", "hello is for another session")
    core.obey(Order(Task.HELLO, said="it is slow").to_bytes(), 60)
    assert [line["why"] for line in sites.log("site-1", event="left out")][1:] == ["it is slow"]


def test_a_site_says_at_its_start_who_it_is_and_what_runs(core: Core | LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    (start,) = sites.log("site-1", event="start")
    site = Site.read(sites.file("site-1"))
    assert (start["secea"], start["party"]) == (secea.__version__, "site-1")
    assert start["session"] == site.session.fingerprint
    assert start["key"] == key_fingerprint(site.key.public)


def test_a_core_that_is_busy_does_not_keep_its_holder_from_ending(sites: Sites) -> None:
    core = Core(sites.file("site-1"))
    core.obey(HELLO, 60)
    core_of(os.getpid()).suspend()

    def wait() -> None:
        with pytest.raises(CoreError):
            core.obey(HELLO, 3600)

    waits = threading.Thread(target=wait)
    waits.start()
    time.sleep(0.3)
    started = time.monotonic()
    core.close()
    waits.join(10)
    assert time.monotonic() - started < 10
    assert not waits.is_alive()


def test_a_site_that_is_not_described_well_is_told_what_is_wrong(core: Core | LastingCore, sites: Sites) -> None:
    sites.write("site-1", identity="nobody.pem")
    with pytest.raises(CoreError, match=r"nobody\.pem cannot be read"):
        core.obey(HELLO, 60)
    sites.write("site-1", identity="identity.pem", name="elsewhere")
    with pytest.raises(CoreError, match="'elsewhere' is not in"):
        core.obey(HELLO, 60)


def test_what_is_no_order_is_refused_and_the_core_goes_on(core: Core | LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    before = running(core, sites)
    for noise in (b"", b"noise", b"\xff" * 100, HELLO[:-1]):
        assert Reply.parse(core.obey(noise, 60), 0).fault == "it refuses what came from the server"
    assert incarnation(core.obey(HELLO, 60))
    assert running(core, sites) == before


def test_a_core_ends_with_the_process_that_holds_it(sites: Sites) -> None:
    command: list[str | Path] = [sys.executable, "-c", HOLDER, sites.folder / "site-1" / "site.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as holder:  # noqa: S603
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        core = core_of(holder.pid)
        holder.kill()
        core.wait(5)
