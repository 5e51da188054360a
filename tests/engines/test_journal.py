"""A site's log as it is read: while it is written, put aside or torn; and what it comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from secea.engines import log as log_module
from secea.engines.journal import MOST_REFUSED, Event, Journal, SiteState
from secea.engines.log import Log
from secea.errors import ParamsError


def told(*events: tuple[str, dict[str, Any]], begin: float = 1000.0) -> SiteState:
    """The state after these events, a second apart."""
    state = SiteState()
    for i, (what, details) in enumerate(events):
        state.take(Event(what, begin + i, details))
    return state


def start(run: str = "7") -> tuple[str, dict[str, Any]]:
    return "start", {"party": "north", "run": run, "session": "ab cd"}


def trained(number: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    return ("training", {"round": number}), ("trained", {"round": number, "seconds": 2.5})


def message(event: str, kind: str, size: int = 10) -> tuple[str, dict[str, Any]]:
    return event, {"kind": kind, "from": "north", "to": "the server", "bytes": size}


# -------------------------------------------------------------------------------------------------------- the reading


def test_each_event_is_read_once_while_the_log_grows(tmp_path: Path) -> None:
    log, journal = Log(path := tmp_path / "audit.jsonl"), Journal(path)
    assert list(journal.new()) == []
    seen = []
    for i in range(5):
        log.noted("round", number=i)
        seen += [event.number("number") for event in journal.new()]
    assert seen == [0, 1, 2, 3, 4]
    assert list(journal.new()) == []


def test_logs_that_were_put_aside_come_first_and_those_put_aside_later_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MOST_BYTES", 200)
    log, journal = Log(path := tmp_path / "audit.jsonl"), Journal(path)
    for i in range(6):
        log.noted("round", number=i)
    assert (tmp_path / "audit.jsonl.1").exists()
    seen = [event.number("number") for event in journal.new()]
    for i in range(6, 20):
        log.noted("round", number=i)
        seen += [event.number("number") for event in journal.new()]
    assert seen == list(range(20))


def test_a_line_counts_when_it_is_complete_and_a_torn_one_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    whole = json.dumps({"time": 5.0, "event": "end"})
    path.write_text('{"time": 1.0, "event": "sta\n[1]\n{"event": 3}\n\n' + whole[:10])
    journal = Journal(path)
    assert list(journal.new()) == []
    with path.open("a") as file:
        file.write(whole[10:] + "\n")
    assert [(event.what, event.time) for event in journal.new()] == [("end", 5.0)]


def test_a_log_that_was_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, journal = Log(path := tmp_path / "audit.jsonl"), Journal(path)
    for i in range(3):
        log.noted("round", number=i)
    assert len(list(journal.new())) == 3
    path.write_text("")
    log.noted("end")
    assert [event.what for event in journal.new()] == ["end"]


def test_a_log_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    with pytest.raises(ParamsError, match=r"audit\.jsonl cannot be read"):
        list(Journal(tmp_path / "audit.jsonl").new())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400", "-1e300", '"x"', "null", "[]", "true"])
def test_what_is_no_number_becomes_one_that_can_be_shown(tmp_path: Path, value: str) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text(f'{{"time": {value}, "event": "trained", "round": {value}, "seconds": {value}}}\n')
    state = SiteState()
    for event in Journal(path).new():
        state.take(event)
    assert state.rounds in ([0], [1])
    assert 0 <= state.last <= 1e11


# ---------------------------------------------------------------------------------------------------------- the state


def test_before_anything_has_happened_there_is_nothing() -> None:
    assert told().outcome == ""


def test_a_site_trains_since_when_and_has_trained_for_which_rounds() -> None:
    state = told(start(), *trained(1), *trained(2), ("training", {"round": 3}))
    assert (state.outcome, state.training, state.since, state.rounds, state.seconds) == (
        "running", 3, 1005.0, [1, 2], 2.5
    )  # fmt: skip
    assert (state.party, state.run, state.started) == ("north", "7", 1000.0)


def test_bytes_and_the_last_message_are_known() -> None:
    state = told(start(), message("sent", "hello", 5), message("accepted", "begin", 7), message("ignored", "begin", 9))
    assert (state.sent, state.received) == (5, 7)
    assert (state.said, state.said_at) == ("begin from north to the server", 1002.0)


def test_who_was_left_out_is_out_until_more_than_a_hello_comes() -> None:
    out = (start(), ("left out", {"why": "it did not reply in time"}), message("accepted", "hello"))
    assert (told(*out).left_out, told(*out).back_at) == ("it did not reply in time", 0.0)
    assert told(*out, message("accepted", "begin")).back_at == 1003.0


def test_a_site_that_stopped_goes_on_when_it_takes_part_again_and_says_why_it_had_stopped() -> None:
    stopped = (start(), *trained(1), ("stopped", {"why": "ValueError: aspirin"}))
    assert (told(*stopped).outcome, told(*stopped).stopped) == ("stopped", "ValueError: aspirin")
    assert told(*stopped, message("sent", "hello")).outcome == "stopped"
    for on in (message("accepted", "begin"), start(), ("training", {"round": 2})):
        state = told(*stopped, on)
        assert (state.outcome, state.stopped, state.rounds) == ("running", "ValueError: aspirin", [1])


def test_another_run_begins_anew_and_so_does_the_same_one_after_its_end() -> None:
    first = (start("7"), *trained(1), ("stopped", {"why": "x"}))
    assert told(*first, start("8")).rounds == []
    assert told(*first, start("8")).stopped == ""
    assert told(start("7"), *trained(1), ("end", {}), start("7")).rounds == []


def test_the_end_is_an_end() -> None:
    state = told(start(), *trained(1), ("end", {}))
    assert (state.outcome, state.ended) == ("completed", 1003.0)


def test_refusals_are_counted_and_the_last_ones_kept() -> None:
    refused = [
        ("refused", {"kind": "upload", "from": "west", "why": f"wrong {i}", "suspects": ["west", "the server"]})
        for i in range(MOST_REFUSED + 2)
    ]
    state = told(start(), *refused)
    assert state.refusals == MOST_REFUSED + 2
    assert [each.why for each in state.refused] == [f"wrong {i}" for i in range(2, MOST_REFUSED + 2)]
    assert state.refused[0].suspects == ["west", "the server"]


def test_a_log_whose_beginning_is_gone_still_says_that_a_run_goes_on() -> None:
    assert told(*trained(40)).outcome == "running"


def test_names_that_wait_are_told_until_none_waits() -> None:
    assert told(start(), ("names wait", {"count": 3})).names_wait == 3
    assert told(start(), ("names wait", {"count": 3}), ("names wait", {"count": 0})).names_wait == 0
