"""What a run is called by whoever looks at its files: running, completed, failed, stopped, silent, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from secea.engines import sight, store
from secea.engines.log import Log
from secea.engines.port import Cause
from secea.engines.progress import Progress
from secea.engines.sight import QUIET_SECONDS, Sight, Verdict
from secea.errors import ParamsError
from secea.forms.keyed.form import Kind

NAMES = ("north", "south")
PLACES = 'federation = "federation.toml"\nidentity = "identity.pem"\nstate = "state"\nlog = "audit.jsonl"\n'


@pytest.fixture
def server(tmp_path: Path) -> Path:
    folder = tmp_path / "server"
    (folder / "state").mkdir(parents=True)
    (folder / "site.toml").write_text(PLACES)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "north"
    (folder / "state").mkdir(parents=True)
    (folder / "site.toml").write_text(f'{PLACES}name = "north"\nparticipant = "mine:participant"\n')
    return folder


def run(server: Path) -> Progress:
    made = Progress(server / "audit.jsonl", Kind, NAMES, server / "state")
    made.noted("start", run="job 7", session="0123", rounds=3)
    return made


def verdict(where: Path, later: float = 0.0) -> Verdict:
    """What a run is called, so many seconds from now."""
    looked = Sight(where, lambda: time.time() + later)
    looked.events()
    return looked.look().verdict


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Another process has the state."""
    code = f"import fcntl, os, sys; fcntl.flock(os.open({str(folder)!r}, os.O_RDONLY), 2); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # noqa: S603
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield
        finally:
            other.kill()


LONG = QUIET_SECONDS + 1


# ---------------------------------------------------------------------------------------------------------- a server


def test_where_nothing_has_begun_there_is_nothing(server: Path) -> None:
    assert verdict(server) is Verdict.NOTHING


def test_a_run_goes_on_until_it_ends(server: Path) -> None:
    made = run(server)
    assert verdict(server) is Verdict.RUNNING
    made.noted("end")
    assert verdict(server) is verdict(server, later=1e6) is Verdict.COMPLETED


def test_a_run_that_failed_has_failed_for_ever(server: Path) -> None:
    run(server).noted("failed", why="the set-up needs 2 clients")
    assert verdict(server) is verdict(server, later=1e6) is Verdict.FAILED


def test_a_run_whose_process_died_is_silent(server: Path) -> None:
    with held(server / "state"):
        run(server)
        assert verdict(server, later=1e6) is Verdict.RUNNING
    assert verdict(server) is Verdict.RUNNING  # it may only just begin
    assert verdict(server, later=LONG) is Verdict.SILENT


def test_signs_of_life_are_enough_where_the_lock_cannot_be_seen(
    server: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "_LOCKS", tmp_path / "missing")
    run(server)
    assert verdict(server, later=QUIET_SECONDS - 5) is Verdict.RUNNING
    assert verdict(server, later=LONG) is Verdict.SILENT


def test_a_run_that_ends_while_one_looks_is_not_silent(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(server)
    answers = iter([True, False])
    monkeypatch.setattr(sight, "in_use", lambda _: next(answers))
    assert verdict(server) is Verdict.RUNNING


def test_looking_takes_no_lock_and_writes_nothing(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    run(server)
    before = {path: path.stat().st_mtime_ns for path in server.rglob("*")}

    def taken(*_: object) -> None:
        raise AssertionError("a lock was taken")

    monkeypatch.setattr(fcntl, "flock", taken)
    assert verdict(server) is Verdict.RUNNING
    assert {path: path.stat().st_mtime_ns for path in server.rglob("*")} == before


def started(folder: Path, pid: int = 0, since: float = 0.0) -> Path:
    """What a host or a site writes when it begins."""
    path = folder / "running.json"
    path.write_text(json.dumps({"what": "host", "pid": pid or os.getpid(), "since": since}))
    return path


def test_the_folder_of_a_host_is_that_of_its_server(server: Path) -> None:
    run(server)
    running = started(server.parent)
    assert Sight(server.parent).path == server / "site.toml"
    with held(running):
        assert Sight(server.parent).look().pid == os.getpid()
    assert Sight(server.parent).look().pid == 0  # its number may be another process's by now


def test_a_run_that_ended_before_its_host_began_is_not_what_one_waits_for(server: Path) -> None:
    run(server).noted("end")
    assert Sight(server).look().over
    with held(started(server, since=time.time() + 1)):
        assert not Sight(server).look().over
    with held(started(server, since=time.time() - 60)):
        assert Sight(server).look().over


def test_a_paused_run_is_over_and_nobody_has_to_look(server: Path) -> None:
    run(server).noted("end")
    path = server / "state" / "status.json"
    path.write_text(path.read_text().replace('"completed"', '"paused"'))
    seen = Sight(server).look()
    assert (seen.verdict, seen.verdict.fine, seen.over) == (Verdict.PAUSED, True, True)


@pytest.mark.parametrize("text", ['{"pid": "x"}', "[]", "{", "", '{"pid": null}', '{"pid": 1e999}'])
def test_a_process_that_is_none_is_none(server: Path, text: str) -> None:
    run(server)
    (server / "running.json").write_text(text)
    with held(server / "running.json"):
        assert Sight(server).look().pid == 0


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "clients": 3}',
        '{"version": 9}',
        '{"version": 1, "clients": {}, "outcome": "x"}',
    ],
)
def test_what_is_no_state_is_an_error_that_names_the_file(server: Path, text: str) -> None:
    (server / "state" / "status.json").write_text(text)
    with pytest.raises(ParamsError, match=r"status\.json is not the state of a run"):
        Sight(server).look()


def test_the_state_is_as_json_what_it_is_in_its_file_with_the_verdict(server: Path) -> None:
    made = run(server)
    made.noted("lost", client="client 1", cause=Cause.SLOW, why="it did not reply within 3 s")
    made.noted("end")
    found = json.loads(json.dumps(Sight(server).look().as_json()))
    assert (found["verdict"], found["server"], found["process"]) == ("completed", True, None)
    assert found["state"] == json.loads((server / "state" / "result.json").read_text())


# ------------------------------------------------------------------------------------------------------------ a site


def test_a_site_is_what_its_own_log_says(site: Path) -> None:
    assert verdict(site) is Verdict.NOTHING
    log = Log(site / "audit.jsonl")
    for event, expected in (("start", Verdict.RUNNING), ("stopped", Verdict.STOPPED), ("end", Verdict.COMPLETED)):
        log.noted(event)
        assert verdict(site) is expected


def test_a_site_that_trains_for_hours_is_running_and_a_dead_one_is_silent(site: Path) -> None:
    Log(site / "audit.jsonl").noted("training", round=1)
    with held(site / "state"):
        assert verdict(site, later=1e4) is Verdict.RUNNING
    assert verdict(site, later=QUIET_SECONDS - 5) is Verdict.RUNNING
    assert verdict(site, later=LONG) is Verdict.SILENT


def test_without_locks_to_look_at_a_site_is_silent_only_if_its_own_process_is_gone(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "_LOCKS", tmp_path / "missing")
    Log(site / "audit.jsonl").noted("training", round=1)
    assert verdict(site, later=LONG) is Verdict.RUNNING
    started(site)
    assert verdict(site, later=LONG) is Verdict.RUNNING
    started(site, 2**22 + 1)  # more than Linux gives
    assert verdict(site, later=LONG) is Verdict.SILENT


def test_a_site_that_stopped_may_be_called_again_as_long_as_its_engine_runs(site: Path) -> None:
    Log(site / "audit.jsonl").noted("stopped", why="x")

    def over(later: float) -> bool:
        looked = Sight(site, lambda: time.time() + later)
        looked.events()
        return looked.look().over

    assert not over(0)
    assert over(LONG)
    with held(started(site)):
        assert not over(LONG)


def test_a_site_without_a_log_says_what_to_write(site: Path) -> None:
    text = (site / "site.toml").read_text().replace('log = "audit.jsonl"\n', "")
    (site / "site.toml").write_text(text)
    with pytest.raises(ParamsError, match=r'names no log.*log = "audit\.jsonl"'):
        Sight(site)


def test_whether_a_state_is_in_use_is_seen_without_its_lock(tmp_path: Path) -> None:
    assert store.in_use(tmp_path / "missing") is False
    assert store.in_use(tmp_path) is False
    with held(tmp_path):
        assert store.in_use(tmp_path) is True
    assert store.in_use(tmp_path) is False
