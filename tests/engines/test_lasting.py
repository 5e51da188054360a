"""A core that outlives its callers: one for each site, whoever comes and whatever becomes of it or of them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from lasting_cores import address_of, cores_of, ended, process_of, waited
from secea.engines import lasting
from secea.engines.core import MOST_SECONDS, Asked, Core, CoreError
from secea.engines.lasting import LastingCore
from secea.engines.port import Order, Reply, Task
from secea.params import Params
from sites import Sites

pytestmark = pytest.mark.slow

HELLO = Order(Task.HELLO).to_bytes()
CALLER = """
import sys
from secea.engines.lasting import LastingCore
from secea.engines.port import Order, Task
LastingCore(sys.argv[1]).obey(Order(Task.HELLO).to_bytes(), float(sys.argv[2]))
"""
SLOW = """
import os, time
from pathlib import Path
import trial

def participant(begun, sleep, fork, **options):
    Path(begun).touch()
    if fork and not os.fork():
        time.sleep(60)
        os._exit(0)
    time.sleep(sleep)
    return trial.participant(**options)
"""


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Three sites, of whose cores nothing is left in the end."""
    made = Sites(tmp_path / "sites", Params(clients=3, dim=2, max_entities=30, max_union=40))
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setenv("TMPDIR", short)
        yield made
        ended(made)
        assert not list(Path(short).iterdir())


@pytest.fixture
def core(sites: Sites) -> LastingCore:
    return LastingCore(sites.file("site-1"))


def called(sites: Sites, timeout: float = 60) -> subprocess.Popen[bytes]:
    """A process that gives one order."""
    return subprocess.Popen([sys.executable, "-c", CALLER, sites.file("site-1"), str(timeout)])  # noqa: S603


def slow(sites: Sites, seconds: float, *, fork: bool = False) -> Path:
    """Let the first order of a core take so long; the file that is there when it has begun."""
    begun = sites.folder / "begun"
    (sites.folder / "site-1" / "slow.py").write_text(SLOW)
    sites.write("site-1", participant="slow:participant")
    sites.argue("site-1", begun=str(begun), sleep=seconds, fork=fork)
    return begun


def connected(sites: Sites) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(json.loads(address_of(sites, "site-1").read_text())["socket"])
    return channel


def is_hello(reply: bytearray) -> bool:
    return len(Reply.parse(reply, 0).messages) == 1


# ---------------------------------------------------------------------------------------------------- one, and the same


def test_processes_that_end_after_one_order_reach_the_same_core(sites: Sites) -> None:
    found = []
    for _ in range(2):
        assert called(sites).wait() == 0
        found.append(process_of(sites, "site-1"))
    assert found[0] == found[1]
    assert found[0].is_running()
    assert found[0].ppid() != os.getpid()


def test_of_many_that_come_at_once_one_starts_the_core_and_all_reach_it(core: LastingCore, sites: Sites) -> None:
    others = [called(sites) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda _: is_hello(core.obey(HELLO, 60)), range(4)))
    assert [other.wait() for other in others] == [0, 0]
    assert cores_of(sites, "site-1") == [process_of(sites, "site-1")]


@pytest.mark.parametrize("left", ["nobody listens", "no socket", "noise", "nothing"])
def test_an_address_at_which_nobody_listens_is_noticed_at_once(core: LastingCore, sites: Sites, left: str) -> None:
    core.obey(HELLO, 60)
    old, address = process_of(sites, "site-1"), address_of(sites, "site-1")
    old.kill()
    old.wait(10)
    path = Path(json.loads(address.read_text())["socket"])
    if left == "no socket":
        path.unlink()
    elif left == "noise":
        address.write_text("{")
    elif left == "nothing":
        address.unlink()
    assert is_hello(core.obey(HELLO, 60))
    assert process_of(sites, "site-1") != old
    assert path.exists() is (left in ("noise", "nothing"))  # what is known is cleared away
    if path.exists():
        path.unlink()
        path.parent.rmdir()


def test_a_core_with_other_settings_than_those_of_now_is_replaced(core: LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    before = process_of(sites, "site-1")
    sites.write("site-1")  # the same
    core.obey(HELLO, 60)
    assert process_of(sites, "site-1") == before
    sites.agree("federation.json", Params(clients=3, dim=3, max_entities=30, max_union=40))
    core.obey(HELLO, 60)
    after = process_of(sites, "site-1")
    assert after != before
    assert cores_of(sites, "site-1") == [after]
    sites.argue("site-1", late=1.0)
    core.obey(HELLO, 60)
    assert process_of(sites, "site-1") != after


# ------------------------------------------------------------------------------------------------------------ who comes


def test_nobody_but_its_user_can_reach_a_core_and_it_has_no_port(core: LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    folder = Path(json.loads(address_of(sites, "site-1").read_text())["socket"]).parent
    for each in (folder, address_of(sites, "site-1").parent):
        assert each.stat().st_mode & 0o777 == 0o700
        assert each.stat().st_uid == os.getuid()
    assert process_of(sites, "site-1").net_connections("inet") == []


def test_where_the_path_of_temporary_files_is_long_a_core_listens_elsewhere(
    core: LastingCore, sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    assert is_hello(core.obey(HELLO, 60))
    assert len(json.loads(address_of(sites, "site-1").read_text())["socket"]) < 108
    assert not list(long.iterdir())


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<dQ", 5.0, 1000) + b"the rest does not come",
        struct.pack("<dQ", 5.0, 2**63 - 1),
        struct.pack("<dQ", 5.0, 2**64 - 1),
        struct.pack("<dQ", float("nan"), 0),
        struct.pack("<dQ", float("inf"), 0),
        struct.pack("<dQ", -1.0, 0),
        struct.pack("<dQ", 0.0, 0),
        struct.pack("<dQ", MOST_SECONDS + 1, 0),
    ],
)
def test_whatever_a_process_says_the_core_goes_on(core: LastingCore, sites: Sites, noise: bytes) -> None:
    core.obey(HELLO, 60)
    before = process_of(sites, "site-1")
    with connected(sites) as silent, connected(sites) as gone:
        silent.sendall(noise)
        gone.sendall(noise)
        gone.close()
        assert is_hello(core.obey(HELLO, 60))  # while the other one is still there
    assert process_of(sites, "site-1") == before


def test_who_says_something_impossible_is_not_kept_waiting(core: LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    with connected(sites) as channel:
        channel.settimeout(60)
        channel.sendall(struct.pack("<dQ", float("nan"), 0))
        assert channel.recv(1) == b""


@pytest.mark.parametrize("seconds", [MOST_SECONDS + 1, 5e9, 1e300, float("inf")])
def test_an_order_with_more_time_than_any_needs_is_done(core: LastingCore, sites: Sites, seconds: float) -> None:
    assert is_hello(core.obey(HELLO, seconds))
    core.close()
    with closing(Core(sites.file("site-1"))) as other:
        assert is_hello(other.obey(HELLO, seconds))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("-inf"), float("nan")])
def test_an_order_without_any_time_is_refused_and_starts_nothing(
    core: LastingCore, sites: Sites, seconds: float
) -> None:
    for each in (core, Core(sites.file("site-1"))):
        with pytest.raises(CoreError, match=r"must be a positive number of seconds$"):
            each.obey(HELLO, seconds)
    assert not (sites.folder / "site-1" / "state").exists()


def test_whoever_can_only_read_the_sites_file_cannot_keep_others_from_the_core(core: LastingCore, sites: Sites) -> None:
    state = sites.folder / "site-1" / "state"
    state.mkdir(mode=0o755)  # made by hand
    with sites.file("site-1").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_hello(core.obey(HELLO, 60))
    assert state.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in (state / lasting._LOCK, *state.glob("client.*")))


def test_a_lock_in_a_folder_that_was_removed_keeps_nobody_out(core: LastingCore, sites: Sites) -> None:
    state = sites.folder / "site-1" / "state"
    lock = lasting._lock(state)
    assert lock is not None
    assert lasting._lock(state) is None
    shutil.rmtree(state)
    assert is_hello(core.obey(HELLO, 60))
    os.close(lock)


def test_the_reply_to_a_process_that_died_is_not_given_to_the_next_one(core: LastingCore, sites: Sites) -> None:
    begun = slow(sites, 2.0)
    caller = called(sites)
    waited(begun.exists)
    caller.kill()
    caller.wait()
    assert Reply.parse(core.obey(b"noise", 60), 0).fault == "it refuses what came from the server"
    assert is_hello(core.obey(HELLO, 60))
    assert begun.exists()
    (line,) = sites.log("site-1", event="left out")
    assert line["why"] == "nobody took its reply: the process at its site that had brought the order is gone"


def test_a_state_that_cannot_be_used_is_written_down_whole_and_told_without_its_folder(sites: Sites) -> None:
    sites.write("site-1", state="identity.pem/state")
    with pytest.raises(CoreError, match=r"^the state directory state cannot be used: Not a directory$"):
        LastingCore(sites.file("site-1")).obey(HELLO, 60)
    (line,) = sites.log("site-1", event="stopped")
    assert (
        line["why"] == f"the state directory {sites.folder}/site-1/identity.pem/state cannot be used: Not a directory"
    )
    sites.write("site-1", state="state")


# ----------------------------------------------------------------------------------------------------------- busy, hung


def test_who_waits_behind_another_order_is_told_so_and_the_core_goes_on(core: LastingCore, sites: Sites) -> None:
    begun = slow(sites, 3.0)
    replies: list[bytearray] = []
    first = threading.Thread(target=lambda: replies.append(core.obey(HELLO, 60)))
    first.start()
    waited(begun.exists)
    before = process_of(sites, "site-1")
    with pytest.raises(CoreError, match=r"^it is still busy with an earlier order$"):
        core.obey(HELLO, 0.5)
    first.join()
    assert is_hello(replies[0])
    assert is_hello(core.obey(HELLO, 60))
    assert process_of(sites, "site-1") == before


def test_a_core_that_is_slower_than_its_order_allows_is_killed(core: LastingCore, sites: Sites) -> None:
    with core._reached(time.monotonic() + 60, 60):  # it runs, and has no client yet
        pass
    begun = slow(sites, 60.0)
    with core._reached(time.monotonic() + 60, 60):
        old = process_of(sites, "site-1")
    with pytest.raises(CoreError, match=r"^its core did not reply within 5\.0 s, and was killed$"):
        core.obey(HELLO, 5.0)
    assert begun.exists()
    old.wait(10)
    slow(sites, 0.0)
    assert is_hello(core.obey(HELLO, 60))


def test_a_core_whose_caller_died_gives_up_an_order_when_its_time_is_over(sites: Sites) -> None:
    begun = slow(sites, 60.0)
    with LastingCore(sites.file("site-1"))._reached(time.monotonic() + 60, 60):
        hung = process_of(sites, "site-1")
    caller = called(sites, 3.0)
    waited(begun.exists)
    caller.kill()
    caller.wait()
    hung.wait(30)
    assert sites.log("site-1", event="stopped")[-1]["why"] == "its core did not reply within 3.0 s, and was killed"
    slow(sites, 0.0)
    assert is_hello(LastingCore(sites.file("site-1")).obey(HELLO, 60))


def test_a_child_of_the_users_code_does_not_stand_in_for_a_core_that_is_no_more(
    core: LastingCore, sites: Sites
) -> None:
    slow(sites, 0.0, fork=True)
    core.obey(HELLO, 60)
    killed = process_of(sites, "site-1")
    (child,) = killed.children()
    killed.kill()
    waited(lambda: not killed.is_running())
    address = lasting._Address.read(address_of(sites, "site-1").parent)
    assert address is not None
    assert child.is_running()
    assert lasting._connection(address) is None
    slow(sites, 0.0)
    assert is_hello(core.obey(HELLO, 20))  # nor does it keep the state
    assert child.is_running()
    child.kill()


# -------------------------------------------------------------------------------------------------------------- its end


def gone(sites: Sites, process: psutil.Process, listened: Path) -> None:
    """The core ended by itself, and left nothing behind."""
    process.wait(60)
    assert not listened.parent.exists()
    assert not address_of(sites, "site-1").exists()


def listening(sites: Sites) -> tuple[psutil.Process, Path]:
    return process_of(sites, "site-1"), Path(json.loads(address_of(sites, "site-1").read_text())["socket"])


def test_a_core_that_nobody_needs_ends(sites: Sites) -> None:
    core = LastingCore(sites.file("site-1"), idle=1.0)
    with core._reached(time.monotonic() + 60, 60):
        found = listening(sites)
    gone(sites, *found)
    assert sites.log("site-1", event="stopped")[-1]["why"] == "no order has come for 1 s"


def test_a_site_whose_orders_stop_coming_is_told_before_its_core_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else at a site would say that the server's side has died."""
    monkeypatch.setattr(lasting, "_QUIET_SECONDS", 0.7)
    noted = list[tuple[str, str]]()
    ours, theirs = socket.socketpair()
    with closing(lasting._Door(tmp_path, "settings")) as door, ours:
        door._orders.put(Asked(bytearray(), theirs, 0.3, time.monotonic() + 60))
        orders = door.orders(2.5, lambda *line: noted.append(line))
        next(orders)
        assert not noted
        assert not list(orders)
    (waiting, why), stopped = noted
    assert (waiting, why.startswith("no order has come for 1 s: the run is over, or died,")) == ("waiting", True)
    assert stopped == ("stopped", "no order has come for 2 s")


def test_a_core_waits_twice_as_long_as_its_last_order_might_have_taken(sites: Sites) -> None:
    core = LastingCore(sites.file("site-1"), idle=0.5)
    core.obey(HELLO, 60)
    process, _ = listening(sites)
    time.sleep(3)
    assert process.is_running()


def test_a_core_does_not_end_with_a_run_that_is_over_only_by_the_word_of_whoever_carries_messages(
    core: LastingCore, sites: Sites
) -> None:
    core.obey(HELLO, 60)
    before = process_of(sites, "site-1")
    core.obey(Order(Task.END).to_bytes(), 60)  # the server did not seal it; with its word: test_flower_port
    assert is_hello(core.obey(HELLO, 60))
    assert process_of(sites, "site-1") == before


def test_a_core_whose_state_is_removed_ends(core: LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    found = listening(sites)
    state = address_of(sites, "site-1").parent
    for path in state.iterdir():
        path.unlink()
    state.rmdir()
    gone(sites, *found)
    assert sites.log("site-1", event="stopped")[-1]["why"] == "its state directory was removed"
    assert is_hello(core.obey(HELLO, 60))


def test_a_core_that_is_asked_to_end_leaves_nothing(core: LastingCore, sites: Sites) -> None:
    core.obey(HELLO, 60)
    found = listening(sites)
    found[0].terminate()
    gone(sites, *found)


def test_what_the_users_code_prints_is_beside_the_sites_log(core: LastingCore, sites: Sites) -> None:
    (sites.folder / "site-1" / "loud.py").write_text(
        "import trial\ndef participant(**options):\n    print('loaded', flush=True)\n"
        "    return trial.participant(**options)\n"
    )
    sites.write("site-1", participant="loud:participant")
    core.obey(HELLO, 60)
    assert (sites.folder / "site-1" / "audit.out").read_text() == "loaded\n"


def test_where_a_socket_does_not_say_who_is_there_no_core_lasts(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(socket, "SO_PEERCRED")
        with pytest.raises(CoreError, match="needs Linux"):
            LastingCore(sites.file("site-1"))
