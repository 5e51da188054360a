"""`secea status` and `secea watch`: what operators are shown of a run, and what programs make of it."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from runs import begun, folder, loses, site_log, trains
from secea.cli import main
from secea.commands import watch as watching
from secea.commands.screen import screen
from secea.commands.view import told, view
from secea.engines.journal import Event
from secea.engines.progress import Progress
from secea.engines.sight import QUIET_SECONDS, Sight
from secea.report.live import View, page
from terminal import environment, heed_interrupts, shim


def status(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["status", *map(str, words)])


def seen(where: Path, later: float = 0.0) -> View:
    """What is shown, so many seconds from now."""
    sight = Sight(where, lambda: time.time() + later)
    sight.events()
    return view(sight.look())


def words(shown: View) -> str:
    """All that is shown."""
    facts = [f"{value} {what}" for what, value in shown.facts]
    rows = [f"{row.name} {row.does} {row.rounds} {row.remark}" for row in shown.clients]
    return "\n".join([shown.word, shown.sentence, shown.stage, *facts, *(note.text for note in shown.notes), *rows])


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return folder(tmp_path / "server")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return folder(tmp_path / "north", site=True)


# --------------------------------------------------------------------------------------------------------- exit codes


def test_a_program_learns_from_the_exit_code_whether_somebody_has_to_look(server: Path) -> None:
    assert status(server).exit_code == 5
    run = begun(server)
    assert status(server).exit_code == 0
    run.noted("end")
    assert status(server).exit_code == 0
    begun(server).noted("failed", why="x")
    assert status(server).exit_code == 1
    assert status(server / "none").exit_code == 3


def test_a_run_that_died_has_the_exit_code_of_a_failure(server: Path) -> None:
    begun(server)
    past = time.time() - QUIET_SECONDS - 1
    os.utime(server / "state" / "status.json", (past, past))
    ran = status(server)
    assert ran.exit_code == 1
    assert "silent: it has not ended, and nothing has been heard since" in ran.output


def test_a_sites_exit_codes_follow_its_log(site: Path) -> None:
    assert status(site).exit_code == 5
    for event, code in (("training", 0), ("stopped", 1), ("end", 0)):
        site_log(site, (event, {"round": 1, "why": "x"}))
        assert status(site).exit_code == code


def test_the_help_has_all_exit_codes() -> None:
    text = CliRunner().invoke(main, ["status", "--help"]).output
    for line in ("0  running, completed, or paused", "1  failed, stopped, or silent", "5  no run has begun here yet"):
        assert line in text


def test_json_has_the_state_and_nothing_else(server: Path) -> None:
    run = begun(server, done=2)
    found = json.loads(status(server, "--json").output)
    assert (found["verdict"], found["state"]["done"], found["state"]["asked"]) == ("running", 2, 50)
    assert found["state"]["clients"].keys() == run.state.clients.keys()


def test_without_a_word_it_is_about_the_current_folder(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(server, done=3)
    monkeypatch.chdir(server.parent)
    assert "3 of 50 rounds are done" in status().output


# ---------------------------------------------------------------------------------------------------------- a server


def test_a_view_says_who_is_connected_what_each_does_the_stage_rounds_and_bytes(server: Path) -> None:
    run = begun(server, done=12)
    trains(run, 0, 1, since=4, heard=1)
    loses(run, 2)
    text = words(seen(server))
    for part in (
        "12 of 50 rounds are done", "Round 13, stage ready (clients train) since", "4 s of at most 61 min",
        "2 of 3 clients connected", "20 s the last round took", "631 MB to clients", "643 MB from clients",
        "west is lost since", "unreachable: its site does not answer any more", "north trains 12",
        "west lost: unreachable 12 lost 1 time",
    ):  # fmt: skip
        assert part in text, text


def test_who_is_waited_for_is_said_with_whether_its_site_answers(server: Path) -> None:
    run = begun(server, done=1)
    trains(run, 0, 1, since=75, heard=3)
    run.state.clients["south"].heard = time.time() - 40
    run.noted("replied", client="client 2")
    text = words(seen(server))
    assert re.search(r"waiting for north to train since \d\d:\d\d:\d\d: its site answers", text)
    assert re.search(r"waiting for south to train since \d\d:\d\d:\d\d: its site is silent for 4[01] s", text)
    assert "waiting for west" not in text


def test_who_has_only_begun_is_not_waited_for(server: Path) -> None:
    trains(begun(server), 0, 1, 2, since=2)
    assert "waiting" not in words(seen(server))


def test_a_lost_client_and_who_is_waited_for_come_first(server: Path) -> None:
    run = begun(server)
    trains(run, 1)
    loses(run, 2)
    assert [row.name for row in seen(server).clients] == ["west", "south", "north"]


@pytest.mark.parametrize(
    ("done", "later", "left"),
    [
        (0, 0, "not known yet"),
        (10, 5, "about 13 min"),  # 39 rounds of 20 s, and 15 s of this one
        (10, 30, "more than 13 min"),
        (49, 5, "about 15 s"),
        (49, 30, "this round"),
    ],
)
def test_what_is_left_is_an_estimate_from_the_last_round(server: Path, done: int, later: float, left: str) -> None:
    run = begun(server, done=done)
    run.state.since_round = time.time()
    run._show()
    facts = dict(seen(server, later).facts)
    assert facts["left (an estimate: rounds like the last)"] == left


def test_lost_rounds_are_said_with_their_reasons_the_last_ones(server: Path) -> None:
    run = begun(server)
    for i in range(5):
        run.noted("round lost", why=f"reason {i}")
    text = words(seen(server))
    assert [f"a round was lost: reason {i}" in text for i in range(5)] == [False, False, True, True, True]
    assert "2 more rounds were lost before" in text


def test_the_end_is_the_paragraph_of_the_result(server: Path) -> None:
    run = begun(server, rounds=2, done=2)
    run.noted("end")
    shown = seen(server)
    assert (shown.word, shown.over) == ("completed", True)
    assert shown.sentence.startswith("2 of 2 rounds; every client took part in each of them. It ended at ")
    assert shown.stage == ""


def test_a_failure_says_why(server: Path) -> None:
    run = begun(server, rounds=2)
    loses(run, 0)
    run.noted("failed", why="the set-up needs 3 clients")
    text = words(seen(server))
    assert "0 of 2 rounds (the set-up needs 3 clients)" in text
    assert "north is lost since" in text


# ------------------------------------------------------------------------------------------------------------ a site


def test_a_site_is_shown_what_it_does_what_it_refused_and_why_it_was_left_out(site: Path) -> None:
    site_log(
        site,
        ("training", {"round": 1}), ("trained", {"round": 1, "seconds": 2.5}),
        ("refused", {"kind": "upload", "from": "west", "why": "a wrong tag", "suspects": ["west", "the server"]}),
        ("left out", {"why": "it did not reply in time"}),
        ("names wait", {"count": 4}),
        ("accepted", {"kind": "begin", "from": "the server", "to": "north", "bytes": 1500}),
        ("training", {"round": 2}),
    )  # fmt: skip
    text = words(seen(site, later=3))
    for part in (
        "running", "has trained for 1 round.", "It trains for round 2 since", ": 3 s.", "2.5 s the last training took",
        "upload from west: a wrong tag; could have caused it: west, the server",
        "as the server says: it did not reply in time. It takes part again since", "4 of its new names wait",
        "1.5 kB accepted", "begin from the server to north",
    ):  # fmt: skip
        assert part in text, text


def test_a_site_that_was_left_out_and_one_that_stopped_say_so(site: Path) -> None:
    site_log(site, ("left out", {"why": "it is absent"}))
    assert "The server goes on without it." in words(seen(site))
    site_log(site, ("stopped", {"why": "ValueError: aspirin"}))
    text = words(seen(site))
    assert "this site could not go on at" in text
    assert "ValueError: aspirin" in text
    assert "the next order of the server starts it again" in text


# --------------------------------------------------------------------------------------------------- texts of others

EVIL = "\x1b[31m[red]</p><script>x</script>\n\u202egnol\x9b2J"


def hostile(server: Path) -> Progress:
    run = begun(server, names=(f"n{EVIL}", "south"))
    loses(run, 0, EVIL * 50)
    run.noted("round lost", why=EVIL)
    run.state.run = EVIL
    trains(run, 1, since=20)
    return run


def test_no_terminal_obeys_what_a_peer_or_a_log_says(server: Path) -> None:
    hostile(server)
    for output in (status(server).output, rendered(seen(server), 80)):
        assert "\x1b" not in output
        assert "\x9b" not in output
        assert "\u202e" not in output
        assert "[red]</p><script>" in output.replace("\n", "")
        assert len(output) < 4000


def test_no_page_obeys_what_a_peer_or_a_log_says(server: Path) -> None:
    hostile(server)
    text = page(seen(server))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not set(text) & set("\x1b\x9b\u202e")


@pytest.mark.parametrize(
    "what", ["lost", "refused", "waiting", "here", "stage", "left out", "start", "round", "failed"]
)
def test_no_line_of_an_event_holds_more_than_one_line(what: str) -> None:
    details: dict[str, Any] = dict.fromkeys(("client", "why", "cause", "kind", "from", "run", "party", "name"), EVIL)
    line = told(Event(what, 1.0, details | {"clients": [EVIL], "since": EVIL, "rounds": EVIL, "seconds": EVIL}))
    assert line is not None
    assert line[1].isprintable()


# ------------------------------------------------------------------------------------------------------- in a terminal


def rendered(shown: View, width: int, height: int | None = None, **more: Any) -> str:
    console = Console(width=width, record=True, file=io.StringIO(), highlight=False, markup=False, **more)
    console.print(screen(shown, console, most=height))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_a_view_fits_into_the_width_of_a_terminal_and_says_all_of_it(server: Path, width: int) -> None:
    run = begun(server, done=12)
    trains(run, 0, 1, since=75, heard=40)
    loses(run, 2)
    text = rendered(seen(server), width)
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.split())
    for part in ("running: 12 of 50 rounds are done.", "631 MB", "lost: unreachable", "silent for 40 s", "has replied"):
        assert part in joined or part == "has replied"
    assert text.count("\n! ") == 3  # what is a warning is marked without colour


def test_of_many_clients_the_most_urgent_ones_are_shown_where_there_is_no_room(server: Path) -> None:
    run = begun(server, names=tuple(f"site-{n:03}" for n in range(200)))
    loses(run, 150)
    text = rendered(seen(server), 80, 24)
    assert len(text.splitlines()) <= 24
    assert "site-150  lost: unreachable" in text
    assert re.search(r"and \d+ more", text)
    assert "site-199" in rendered(seen(server), 80)


def started(tools: Path, *given: str | Path, terminal: str = "dumb", **more: Any) -> subprocess.Popen[Any]:
    command, env = [tools / "secea", "watch", *given], environment(tools, TERM=terminal)
    return subprocess.Popen(command, env=env, preexec_fn=heed_interrupts, **more)  # noqa: S603


@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])
def test_what_is_seen_changes_until_ctrl_c_and_the_run_goes_on(server: Path, tmp_path: Path, terminal: str) -> None:
    run, html = begun(server, done=1), tmp_path / "run.html"
    master, slave = pty.openpty()
    both = {"stdin": slave, "stdout": slave, "stderr": slave}
    process = started(shim(tmp_path / "bin"), server, "--html", html, terminal=terminal, **both)
    os.close(slave)
    output = b""

    def until(part: bytes) -> None:
        nonlocal output
        while part not in output:
            output += os.read(master, 4096)
            print(output)

    until(b"1 of 50 rounds")
    run.noted("progress", rounds=2, seconds=1.0, sent=1, received=1, lost={})
    until(b"2 rounds done" if terminal == "dumb" else b"2 of 50 rounds")
    assert 'http-equiv="refresh"' in html.read_text()
    process.send_signal(signal.SIGINT)
    until(b"interrupted")
    assert process.wait(60) == 130
    os.close(master)
    assert 'http-equiv="refresh"' not in html.read_text()
    assert "This page does not change any more" in html.read_text()
    assert "2 of 50 rounds are done" in html.read_text()
    run.noted("end")
    assert status(server).exit_code == 0


# --------------------------------------------------------------------------------------------------- not in a terminal


def watched(*given: str | Path) -> Result:
    return CliRunner().invoke(main, ["watch", *map(str, given)])


def test_without_a_terminal_there_is_a_line_for_each_event_and_the_result_at_the_end(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, html = begun(server, done=1, rounds=2), tmp_path / "run.html"
    pages = []

    def meanwhile(_: float) -> None:
        pages.append(html.read_text())
        if len(pages) == 1:
            trains(run, 0, 1, 2)
            loses(run, 2)
        else:
            run.noted("round", number=2, clients=["client 0", "client 1"])
            run.noted("progress", rounds=2, seconds=3.0, sent=10, received=20, lost={})
            run.noted("end")

    monkeypatch.setattr(time, "sleep", meanwhile)
    ran = watched(server, "--html", html)
    assert ran.exit_code == 0
    lines = [re.sub(r"\d\d:\d\d:\d\d", "T", line) for line in ran.output.splitlines()]
    assert lines[1] == "running: 1 of 2 rounds are done."
    for line in (
        "T   round 2, stage ready, with training, for 61 min at most: north, south, west",
        "T ! west is lost: unreachable: its site does not answer any more",
        "T   round 2 gave means to north, south",
        "T   2 rounds done; the last step took 3.0 s; 10 B to clients, 20 B from them",
        "T   the run is over",
    ):
        assert lines.count(line) == 1, ran.output
    assert any(line.startswith("completed: 2 of 2 rounds; ") for line in lines)
    assert ['http-equiv="refresh"' in text for text in (*pages, html.read_text())] == [True, True, False]
    assert stat.S_IMODE(html.stat().st_mode) == 0o600


def test_a_run_that_has_ended_is_told_at_once(server: Path) -> None:
    begun(server).noted("failed", why="x")
    ran = watched(server)
    assert (ran.exit_code, "failed: 0 of 50 rounds (x)" in ran.output) == (1, True)


def test_a_watch_that_begins_first_waits_for_the_run(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[list[tuple[str, dict[str, object]]]] = [[], [("training", {"round": 1})], [("end", {})]]

    def meanwhile(_: float) -> None:
        site_log(site, *steps.pop(0))

    monkeypatch.setattr(time, "sleep", meanwhile)
    ran = watched(site)
    assert ran.exit_code == 0
    assert "no run has begun here yet" in ran.output
    assert "training for round 1" in ran.output


def test_a_server_without_a_log_is_told_by_its_state(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (server / "site.toml").write_text((server / "site.toml").read_text().replace('log = "audit.jsonl"\n', ""))
    run = begun(server)
    steps: list[tuple[str, dict[str, object]]] = [
        ("progress", {"rounds": 7, "seconds": 1.0, "sent": 1, "received": 1}), ("end", {})
    ]  # fmt: skip

    def meanwhile(_: float) -> None:
        event, details = steps.pop(0)
        run.noted(event, **details)

    monkeypatch.setattr(time, "sleep", meanwhile)
    ran = watched(server)
    assert ran.exit_code == 0
    assert "7 of 50 rounds are done" in ran.output


def test_whoever_reads_the_lines_may_go_away(server: Path, tmp_path: Path) -> None:
    begun(server)
    with started(shim(tmp_path / "bin"), server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        begun(server).noted("end")
        assert process.wait(60) in (0, 141)


# ------------------------------------------------------------------------------------------------------------ the page


def test_a_page_that_cannot_be_written_is_said_before_anything_else(server: Path, tmp_path: Path) -> None:
    begun(server)
    ran = watched(server, "--html", tmp_path / "none" / "run.html")
    assert ran.exit_code in (3, 4)
    assert "run.html cannot be written" in ran.output


def test_a_disk_that_fills_up_does_not_end_the_watch(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, html, moments = begun(server), tmp_path / "out" / "run.html", []
    html.parent.mkdir()

    def meanwhile(_: float) -> None:
        moments.append(1)
        if len(moments) == 1:
            html.unlink()
            html.parent.rmdir()
        if len(moments) == 3:
            run.noted("end")

    monkeypatch.setattr(time, "sleep", meanwhile)
    ran = watched(server, "--html", html)
    assert ran.exit_code == 0
    assert ran.output.count("the page stays as it was") == 1


def test_a_page_is_there_as_a_whole_whenever_somebody_looks(server: Path, tmp_path: Path) -> None:
    run, html, over, whole = begun(server), tmp_path / "run.html", threading.Event(), []
    shown = watching.Page(html)
    shown.show(seen(server))

    def look() -> None:
        while not over.is_set():
            whole.append(html.read_text().endswith("</html>\n"))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(1, 40):
        run.noted("progress", rounds=number, seconds=1.0, sent=1, received=1, lost={})
        shown.show(seen(server))
    over.set()
    thread.join()
    assert all(whole)
    assert len(whole) > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "server"]


def test_watching_loads_no_library_of_an_engine(server: Path) -> None:
    begun(server).noted("end")
    script = (
        f"import sys\nfrom secea.cli import main\ntry:\n    main(['watch', {str(server)!r}])\nexcept SystemExit:\n"
        "    pass\nsys.exit(', '.join({'torch', 'nvflare', 'flwr', 'pandas'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert ran.returncode == 0, ran.stderr
