"""What runs in a folder: one process at a time, which others find and end."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from secea.cli import main
from secea.engines import running
from secea.errors import ParamsError

HOLDS = """
import signal, sys, time
from pathlib import Path
from secea.engines import running
ended = []
signal.signal(signal.SIGUSR1, lambda *_: ended.append("later"))
signal.signal(signal.SIGTERM, lambda *_: ended.append("now"))
with running.alone(Path(sys.argv[1]), "host") as place:
    place.write(int(sys.argv[2]))
    print("there", flush=True)
    while not ended:
        time.sleep(0.05)
print(*ended)
"""


def holder(folder: Path, engine: int = 0) -> subprocess.Popen[str]:
    """A process that runs in a folder, and says how it was ended."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", HOLDS, str(folder), str(engine)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


@pytest.mark.parametrize(("words", "how"), [((), "later"), (("--now",), "now")])
def test_stop_ends_what_runs_in_a_folder(tmp_path: Path, words: tuple[str, ...], how: str) -> None:
    process = holder(tmp_path)
    found = running.running(tmp_path)
    assert found is not None
    assert (found.what, found.pid) == ("host", process.pid)
    said = CliRunner().invoke(main, ["stop", str(tmp_path), *words])
    assert (said.exit_code, said.output) == (0, f"{tmp_path}: ended\n")
    assert process.communicate()[0] == f"{how}\n"
    assert running.running(tmp_path) is None


def test_stop_says_that_something_goes_on(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        said = CliRunner().invoke(main, ["stop", str(tmp_path), "--wait", "0", "--json"])
        assert said.exit_code == 1
        assert json.loads(said.output) == {"where": str(tmp_path), "ended": False}
    finally:
        process.kill()
        process.communicate()


def test_where_nothing_runs_there_is_nothing_to_stop(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["stop", str(tmp_path)])
    assert said.exit_code == 3
    assert f"nothing runs in {tmp_path}" in said.output


def test_a_second_process_in_a_folder_is_refused(tmp_path: Path) -> None:
    with (
        running.alone(tmp_path, "join"),
        pytest.raises(ParamsError, match=f"in use by process {os.getpid()}: end it with `secea stop"),
        running.alone(tmp_path, "join"),
    ):
        pass
    with running.alone(tmp_path, "join"):
        pass


def test_one_who_was_killed_does_not_keep_the_folder(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.kill()
    process.communicate()
    assert running.running(tmp_path) is None
    with running.alone(tmp_path, "host"):
        pass


def test_stop_ends_what_a_killed_one_left_running(tmp_path: Path) -> None:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"{tmp_path}/kit"])  # noqa: S603
    try:
        process = holder(tmp_path, left.pid)
        process.kill()
        process.communicate()
        said = CliRunner().invoke(main, ["stop", str(tmp_path)])
        assert (said.exit_code, said.output) == (0, f"{tmp_path}: ended\n")
        assert not psutil.pid_exists(left.pid)
    finally:
        left.kill()
        left.wait()


def test_those_who_only_look_do_not_keep_anybody_out(tmp_path: Path) -> None:
    (tmp_path / running.FILE).write_text(json.dumps({"what": "host", "pid": 4194304, "since": 1.0, "engine": 0}))
    with (tmp_path / running.FILE).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert running.running(tmp_path) is None
        with pytest.raises(ParamsError, match="is in use"), running.alone(tmp_path, "host"):
            pass
    with running.alone(tmp_path, "host"):
        pass


@pytest.mark.parametrize("said", ["{", "[]", '{"pid": "abc"}', '{"what": "host", "pid": -1, "since": 1.0}'])
def test_what_no_process_wrote_is_never_sent_a_signal(tmp_path: Path, said: str) -> None:
    with (tmp_path / running.FILE).open("w") as file:
        file.write(said)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ParamsError, match="is damaged"):
            running.stop(tmp_path, now=True, patience=0.0)


def test_a_guard_ends_its_process_when_who_started_it_is_gone(tmp_path: Path) -> None:
    """Its standard input closes, however that process ended."""
    (tmp_path / "startup").mkdir()
    script = tmp_path / "startup" / "sub_start.sh"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    script.chmod(0o755)
    words = [sys.executable, "-m", "secea.engines.guard", str(tmp_path)]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE)  # noqa: S603
    assert guard.stdin is not None
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.05)
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    guard.stdin.close()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running()
    guard.wait(20)


def test_what_a_killed_one_left_running_is_ended_but_no_other_process(tmp_path: Path) -> None:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"{tmp_path}/kit"])  # noqa: S603
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        for engine in (left, stranger):
            process = holder(tmp_path, engine.pid)
            process.kill()
            process.communicate()
            with running.alone(tmp_path, "host"):
                pass
        assert not psutil.pid_exists(left.pid)
        assert stranger.poll() is None
    finally:
        for engine in (left, stranger):
            engine.kill()
            engine.wait()


def test_a_process_ends_with_all_that_it_started(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
    while not (children := psutil.Process(process.pid).children()):
        time.sleep(0.05)
    running.end_process(process, patience=0.5)
    assert process.poll() is not None
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        (tmp_path / running.FILE).write_text("{")
        with pytest.raises(ParamsError, match=r"running\.json is damaged: end what runs there"):
            running.running(tmp_path)
    finally:
        process.kill()
        process.communicate()
