"""What operators read: the log, the state that follows from it, and how a run ended."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from secea.engines import log as log_module
from secea.engines import progress
from secea.engines.host import told
from secea.engines.log import Log
from secea.engines.port import Cause
from secea.engines.progress import ClientState, Doing, Progress, State
from secea.errors import ParamsError, ProtocolError, SnapshotError, Stale
from secea.forms.keyed.form import Kind
from secea.wire.messages import ALL, NO_CONTEXT, Header

NAMES = ("north", "south", "west")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def message(sender: int = 2) -> bytes:
    return Header(Kind.HELLO, sender, ALL, 0, 0, 0, 0, 0, 1, NO_CONTEXT, bytes(16)).pack()


@pytest.fixture
def run(tmp_path: Path) -> Progress:
    made = Progress(tmp_path / "audit.jsonl", Kind, NAMES, tmp_path)
    made.noted("start", run="job 7", session="0123", rounds=3, secea="1", party="the server", key="ab", form="keyed")
    for n in range(3):
        made.noted("here", client=f"client {n}")
    return made


def stage(run: Progress, *clients: int, training: bool = False, number: int = 1) -> None:
    names = [f"client {n}" for n in clients]
    run.noted("stage", name="ready", round=number, training=training, seconds=60.0, clients=names, called=[])


def finished(run: Progress, number: int, *clients: int) -> None:
    run.noted("round", number=number, clients=[f"client {n}" for n in clients])
    run.noted("progress", rounds=number, seconds=1.0, sent=10, received=20, lost={})


# ------------------------------------------------------------------------------------------------------------ the log


def test_a_log_names_clients_as_the_federation_file_does(tmp_path: Path) -> None:
    log = Log(path := tmp_path / "audit.jsonl", Kind, NAMES)
    log.refused(message(), ProtocolError((2, 0xFFFF), "client 2 says something wrong"))
    log.noted("lost", client="client 1", why="it refuses what came from client 0 or the server")
    refused, lost = lines(path)
    assert (refused["from"], refused["to"], refused["suspects"]) == ("west", "all clients", ["west", "the server"])
    assert refused["why"] == "west says something wrong"
    assert (lost["client"], lost["why"]) == ("south", "it refuses what came from north or the server")


def test_what_came_before_is_no_refusal_and_nobody_is_suspected(tmp_path: Path) -> None:
    log = Log(path := tmp_path / "audit.jsonl", Kind, NAMES)
    log.refused(message(), Stale((2,), "hello came before"))
    (line,) = lines(path)
    assert (line["event"], line["level"]) == ("ignored", "info")
    assert "suspects" not in line


def test_every_event_has_a_level(tmp_path: Path) -> None:
    log = Log(path := tmp_path / "audit.jsonl", Kind, NAMES)
    for event in ("round", "lost", "stopped"):
        log.noted(event)
    assert [line["level"] for line in lines(path)] == ["info", "warning", "error"]


def test_only_its_owner_can_read_a_log(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Log(path := tmp_path / "audit.jsonl").noted("round")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def many(path: Path, who: int) -> None:
    log = Log(path)
    for i in range(200):
        log.noted("round", who=who, number=i, filler="x" * 80)


def test_no_line_is_lost_or_torn_when_several_processes_fill_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MOST_BYTES", 25_000)
    path, fork = tmp_path / "audit.jsonl", multiprocessing.get_context("fork")
    writers = [fork.Process(target=many, args=(path, who)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 2
    found = [(line["who"], line["number"]) for file in files for line in lines(file)]
    assert len(found) == len(set(found)) == 600
    assert all(file.stat().st_size < 25_200 for file in files)


def test_a_line_goes_into_the_new_log_if_another_process_puts_the_old_one_aside_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = Log(tmp_path / "audit.jsonl"), tmp_path / "audit.jsonl"
    log.noted("round", number=1)
    lock, waited = log_module._lock, iter([True])

    def waiting(descriptor: int) -> None:
        if next(waited, False):
            path.rename(tmp_path / "audit.jsonl.1")
        lock(descriptor)

    monkeypatch.setattr(log_module, "_lock", waiting)
    log.noted("round", number=2)
    assert [[line["number"] for line in lines(file)] for file in (path, tmp_path / "audit.jsonl.1")] == [[2], [1]]


def test_the_oldest_log_goes_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MOST_BYTES", 1)
    log = Log(path := tmp_path / "audit.jsonl")
    for i in range(10):
        log.noted("round", number=i)
    kept = [path, *(path.with_name(f"audit.jsonl.{i}") for i in range(1, log_module.KEPT + 1))]
    assert [[line["number"] for line in lines(file)] for file in kept] == [[9], [8], [7], [6], [5]]
    assert len(list(tmp_path.iterdir())) == len(kept)


@pytest.mark.parametrize(
    ("error", "told_"),
    [
        (ParamsError("/srv/my data/north.pem cannot be read: no such file"), "north.pem cannot be read: no such file"),
        (ParamsError("'x' is not in /a/b/c.toml, which names ('y',)"), "'x' is not in c.toml, which names ('y',)"),
        (SnapshotError("state cannot be saved in /srv/s: disk full"), "state cannot be saved in s: disk full"),
        (SnapshotError("/x.state is damaged; 3/4 of it"), "x.state is damaged; 3/4 of it"),
        (ValueError("aspirin"), "ValueError at its own side; its log has the rest"),
    ],
)
def test_no_folder_of_a_site_is_told_to_the_server(error: Exception, told_: str) -> None:
    assert told(error) == told_


# ---------------------------------------------------------------------------------------------------------- the state


def test_the_state_tells_who_trains_who_is_lost_and_why(run: Progress, tmp_path: Path) -> None:
    stage(run, 0, 1, 2, training=True)
    run.noted("replied", client="client 0")
    run.noted("lost", client="client 1", cause=Cause.UNREACHABLE, why="its site does not answer any more")
    state = progress.read(tmp_path / "status.json")
    assert [each.doing for each in state.clients.values()] == [Doing.HERE, Doing.LOST, Doing.TRAINS]
    assert list(state.waited_for()) == ["west"]
    assert (state.clients["south"].cause, state.clients["south"].why) == (
        "unreachable", "its site does not answer any more"
    )  # fmt: skip
    assert (state.run, state.stage, state.number, state.outcome) == ("job 7", "ready", 1, "running")


def test_the_state_follows_from_the_log_alone(run: Progress, tmp_path: Path) -> None:
    stage(run, 0, 1, 2)
    run.noted("lost", client="client 2", cause=Cause.SLOW, why="it did not reply within 3 s")
    finished(run, 1, 0, 1)
    run.noted("end")
    again = State({name: ClientState() for name in NAMES})
    for line in lines(tmp_path / "audit.jsonl"):
        again.take(line["event"], line["time"], line)
    for state in (again, run.state):  # to a millisecond
        state.started = state.since = state.ended = state.last = state.since_round = 0.0
        for each in state.clients.values():
            each.since = each.heard = 0.0
    assert again == run.state


def test_who_is_waited_for_stands_in_the_log_with_the_time_since(
    run: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("secea.engines.progress.time.time", lambda: now)
    stage(run, 0, 2, training=True)
    run.noted("replied", client="client 0")
    now += 50
    run._remind()
    now += 11
    run.alive(2, 61.0)
    now += 5
    run._remind()
    run._remind()
    (waiting,) = [line for line in lines(tmp_path / "audit.jsonl") if line["event"] == "waiting"]
    assert (waiting["client"], waiting["for"], waiting["silent"]) == ("west", "trains", 5)
    assert waiting["since"] == progress.clock(1_000_000.0)
    assert waiting["level"] == "warning"


def test_a_status_is_there_as_a_whole_whenever_somebody_looks(run: Progress, tmp_path: Path) -> None:
    for number in range(1, 30):
        stage(run, 0, 1, 2, number=number)
        assert progress.read(tmp_path / "status.json").number == number
    assert stat.S_IMODE((tmp_path / "status.json").stat().st_mode) == 0o600
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


def test_a_status_is_written_again_while_nothing_happens_as_a_sign_of_life(
    run: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time() + 1000
    monkeypatch.setattr("secea.engines.progress.time.time", lambda: now)
    stage(run, 2, training=True)
    now += progress.SIGN_SECONDS - 1
    run.alive(2, 4.0)
    run._live()
    assert progress.read(tmp_path / "status.json").clients["west"].heard < now
    now += 1
    run._live()
    state = progress.read(tmp_path / "status.json")
    assert state.clients["west"].heard == now - 1
    assert state.last == now - progress.SIGN_SECONDS  # that is no event


def test_what_is_no_state_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"version": 0}')
    with pytest.raises(ValueError, match=r"status\.json is not the state of a run"):
        progress.read(tmp_path / "status.json")


# ------------------------------------------------------------------------------------------------------- how it ended


def test_a_result_says_who_took_part_in_which_round_and_why_the_others_did_not(run: Progress, tmp_path: Path) -> None:
    finished(run, 1, 0, 1)
    run.noted("lost", client="client 1", cause=Cause.UNREACHABLE, why="its site does not answer any more")
    finished(run, 2, 0)
    run.noted("lost", client="client 2", cause=Cause.REFUSED, why="client 2: hello is for another session")
    run.noted("here", client="client 1")
    finished(run, 3, 0, 1)
    run.noted("end")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["text"] == (
        "completed: 3 of 3 rounds; north took part in each of them; south took part in rounds 1, 3; it was lost once,"
        " and came back; west took part in no round; refused at the end: hello is for another session."
    )
    assert result["clients"]["south"]["rounds"] == [1, 3]
    assert run.state.left_out() == ["west"]


def test_where_all_were_there_the_result_is_one_sentence(run: Progress) -> None:
    for number in (1, 2, 3):
        finished(run, number, 0, 1, 2)
    run.noted("end")
    assert run.state.text() == "completed: 3 of 3 rounds; every client took part in each of them."


def test_a_run_that_goes_on_with_an_earlier_one_says_how_many_of_its_rounds_are_its_own(run: Progress) -> None:
    finished(run, 3, 0, 1)
    assert run.state.text() == (
        "running: 3 of 3 rounds, 1 of them in this run; north, south took part in it; west took part in no round."
    )


def test_a_run_that_failed_says_why(run: Progress) -> None:
    run.noted("lost", client="client 2", cause=Cause.FAILED, why="ValueError at its own side; its log has the rest")
    run.noted("failed", why="the set-up needs 3 clients, and only 2 are here")
    assert run.state.text() == (
        "failed: 0 of 3 rounds (the set-up needs 3 clients, and only 2 are here); west took part in no round;"
        " failed at the end: ValueError at its own side; its log has the rest."
    )


def test_the_result_of_an_earlier_run_is_gone_when_another_one_begins(run: Progress, tmp_path: Path) -> None:
    run.noted("end")
    assert (tmp_path / "result.json").exists()
    Progress(None, Kind, NAMES, tmp_path)
    assert not (tmp_path / "result.json").exists()
