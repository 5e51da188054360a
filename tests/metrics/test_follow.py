"""A log is followed line by line, each once, whatever becomes of its files meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.engines import follow
from secea.engines import log as log_module
from secea.engines.follow import Follower
from secea.engines.log import KEPT, Log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def follower(path: Path) -> Iterator[Follower]:
    with closing(Follower(path)) as made:
        yield made


def numbers(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["number"] for line in lines]


@given(st.lists(st.sampled_from(["write", "look"]), max_size=60))
def test_every_line_comes_once_and_in_order_while_logs_are_put_aside(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_module, "MOST_BYTES", 200)  # two or three lines
        path = tmp_path_factory.mktemp("log") / "audit.jsonl"
        log, follower, seen, unseen, written = Log(path), Follower(path), list[int](), 0, 0
        for step in steps:
            if step == "write" and unseen < 2 * KEPT:
                log.noted("round", number=written)
                written, unseen = written + 1, unseen + 1
            elif step == "look":
                seen += numbers(list(follower.lines()))
                unseen = 0
                assert seen == list(range(written))
        follower.close()


def test_a_new_follower_begins_with_the_oldest_log_that_is_kept(
    path: Path, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MOST_BYTES", 1)
    log = Log(path)
    for i in range(10):
        log.noted("round", number=i)
    assert numbers(list(follower.lines())) == [5, 6, 7, 8, 9]


def test_who_looks_away_for_too_long_goes_on_with_what_is_left(
    path: Path, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MOST_BYTES", 1)
    log = Log(path)
    log.noted("round", number=0)
    assert numbers(list(follower.lines())) == [0]
    for i in range(1, 20):
        log.noted("round", number=i)
    assert numbers(list(follower.lines())) == [15, 16, 17, 18, 19]


def test_a_log_that_is_not_there_yet_is_waited_for_and_one_that_is_removed_begins_anew(
    path: Path, follower: Follower
) -> None:
    assert not list(follower.lines())
    Log(path).noted("round", number=1)
    assert numbers(list(follower.lines())) == [1]
    path.unlink()
    assert not list(follower.lines())
    Log(path).noted("round", number=2)
    assert numbers(list(follower.lines())) == [2]


def test_a_log_that_somebody_empties_is_read_from_its_begin(path: Path, follower: Follower) -> None:
    log = Log(path)
    for i in range(3):
        log.noted("round", number=i)
    assert len(list(follower.lines())) == 3
    os.truncate(path, 0)
    log.noted("round", number=3)
    assert numbers(list(follower.lines())) == [3]


def test_a_part_of_a_line_waits_for_its_end(path: Path, follower: Follower) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(b'{"number"')
        assert not list(follower.lines())
        file.write(b': 1}\n{"num')
        assert list(follower.lines()) == [b'{"number": 1}']
        file.write(b'ber": 2}\n')
        assert list(follower.lines()) == [b'{"number": 2}']


def test_a_line_without_end_takes_no_memory_and_the_next_one_is_read(
    path: Path, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_BYTES", 10)
    path.write_bytes(b"short\n" + b"x" * 1000)
    assert list(follower.lines()) == [b"short"]
    assert len(follower._rest) <= 10
    with path.open("ab") as file:
        file.write(b"y" * 1000 + b"\nnext\n")
    assert list(follower.lines()) == [b"next"]
