"""What the benchmark on engines counts: CPU and memory by role, and marks where the server notes its progress."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import engines
from bench.engines import Found, Stretch
from bench.shapes import Shape
from bench.watch import Watch

WORK = "sum(range(10**7)); print('done', flush=True); input()"


def note(audit: Path, number: int) -> None:
    with audit.open("a") as file:
        file.write(json.dumps({"event": "progress", "rounds": number}) + "\n")


def marked(watch: Watch, count: int) -> None:
    end = time.monotonic() + 30
    while len(watch.marks) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_a_process_used_counts_for_its_role_even_when_it_has_ended(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    watch = Watch({"a-worker": "workers"}, tmp_path, audit)
    with watch.on():
        command = [sys.executable, "-c", WORK, "a-worker"]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"done\n"
        note(audit, 0)
        marked(watch, 2)
        worker.communicate(b"\n")
        note(audit, 1)
        marked(watch, 3)
    before, first, last = watch.marks
    assert "workers" not in before.cpu
    assert 0 < first.cpu["workers"] <= last.cpu["workers"]
    assert watch.memory["workers"] > 1e6
    assert before.loopback <= first.loopback <= last.loopback


def test_a_section_has_every_deployment_beside_the_same_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Stretch(2.0, {"cores of clients": 1.0, "jobs at clients": 2.0}, 10, 20, 60)
    monkeypatch.setattr(engines, "measured", lambda *_, **__: Found([one, one, one], {"cores of clients": 7}))
    monkeypatch.setattr(engines, "in_child", lambda *_, **__: {"rounds": [{"wall": 0.1, "cpu": 0.2}] * 2})
    shape = Shape(clients=3, collusion=1, entities=4, own=2, dim=3)
    found = engines.section([("nvflare", shape), ("flower", shape)], 2, lambda _: None)
    rows = found.grids["round"].rows
    assert list(rows) == ["one process, 3 clients", "NVFlare, 3 sites", "Flower, 3 sites"]
    assert (rows["NVFlare, 3 sites"]["CPU"].median, rows["NVFlare, 3 sites"]["cores busy"].median) == (3.0, 1.5)
    assert list(found.grids) == ["round", "nvflare-3", "flower-3"]
    assert found.grids["flower-3"].rows["cores of clients"]["most memory of one"].median == 7
