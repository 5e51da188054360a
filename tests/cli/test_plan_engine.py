"""`secea plan --engine`: what it adds is in the verdict, in the text and in the JSON; bytes are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import secea
from secea.cli import main
from secea.commands.estimate import Machine
from secea.commands.fits import duration, size
from secea.engines.costs import ENGINES, NAMES, PYTHON_BYTES, TITLES
from secea.engines.files import write_session
from secea.params import Params
from test_policy import session

WORDS = ["plan", "--clients", "4", "--collusion", "3", "--entities", "3000", "--per-client", "1500", "--dim", "16"]
PARAMS = Params(clients=4, collusion=3, dim=16, max_entities=1500, max_union=3000)
ENGINE = pytest.mark.parametrize("engine", NAMES)


@pytest.fixture(autouse=True)
def _a_machine_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = {"client": 0.25, "server": 0.125}
    monkeypatch.setattr(Machine, "seconds", lambda *_: {"setup": dict(parties), "round": dict(parties)})


def run(*more: str) -> str:
    ran = CliRunner().invoke(main, [*WORDS, *more])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def planned(*more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*more, "--json"))
    return found


@ENGINE
def test_bytes_are_those_without_an_engine_and_json_has_what_the_library_says(engine: Any) -> None:
    found, plain = planned("--engine", engine), planned()
    plan = secea.plan(PARAMS, entities=3000, engine=engine)
    assert plan.engine is not None
    for name in ("setup_bytes", "round_bytes", "by_kind", "sent_by_clients"):
        assert found[name] == plain[name] == getattr(plan, name)
    assert plain["engine"] is None
    assert (found["engine"]["memory"], found["engine"]["stages"]) == (plan.engine.memory, plan.engine.stages)
    assert {party: found["memory"][party] for party in plan.engine.total} == plan.engine.total
    for phase, each in found["phases"].items():
        for party in ("client", "server"):
            own, before = plan.engine.cpu_seconds[phase][party], plain["phases"][phase][party]
            assert each[party] == before | {"cpu_seconds": pytest.approx(before["cpu_seconds"] + own)}
        assert each["one_process"] == plain["phases"][phase]["one_process"], "no engine is in it"


@ENGINE
def test_times_are_the_parties_and_the_engines_and_waiting(engine: Any) -> None:
    found = planned("--engine", engine)
    for phase, each in found["phases"].items():
        client, server, wait = each["client"], each["server"], found["engine"]["wait_seconds"][phase]
        assert each["seconds"] == pytest.approx(
            wait + client["cpu_seconds"] + server["cpu_seconds"] + server["network_seconds"]
        )
        busy = 4 * client["cpu_seconds"] + server["cpu_seconds"]
        assert each["one_machine"]["cpu_seconds"] == pytest.approx(busy)
        assert each["one_machine"]["seconds"] == pytest.approx(wait + busy / min(5, found["cores"]))
    memory = found["memory"]
    assert memory["one_machine"] == 4 * memory["client"] + memory["server"]
    assert found["engine"]["start_seconds"] == ENGINES[engine].start


@ENGINE
def test_the_text_says_what_the_json_says(engine: Any) -> None:
    text, found = run("--engine", engine), planned("--engine", engine)
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    memory, added, phases = found["memory"], found["engine"], found["phases"]
    assert TITLES[engine] in lines["engine"]
    assert f"the first of {added['stages']['setup']} stages" in lines["engine"]
    assert f"{duration(added['wait_seconds']['setup'])} and {duration(added['wait_seconds']['round'])}" in text
    for party, name in (("client", "each client"), ("server", "the server")):
        parts = ", ".join(f"{process} {size(count)}" for process, count in added["memory"][party].items())
        assert f"{name} {size(memory[party])}: {parts}" in text
    setup, each = phases["setup"]["one_machine"], phases["round"]["one_machine"]
    assert f"set-up {duration(setup['seconds'])} (CPU {duration(setup['cpu_seconds'])})" in lines["together"]
    assert f"a round {duration(each['seconds'])} (CPU {duration(each['cpu_seconds'])})" in lines["together"]
    assert f"{size(memory['one_machine'])} of memory" in lines["together"]
    assert "all in one process" not in text


@ENGINE
def test_whether_it_fits_is_judged_with_the_engine(engine: Any) -> None:
    plain, found = planned(), planned("--engine", engine)
    between = (plain["memory"]["server"] + found["memory"]["server"]) / 2e9
    limits = ("--memory", repr(between))
    assert planned(*limits)["verdict"]["fits"]
    verdict = planned(*limits, "--engine", engine)["verdict"]
    assert not verdict["fits"]
    assert verdict["reasons"][0]["value"] == max(found["memory"][party] for party in ("client", "server"))
    minutes = repr((plain["phases"]["round"]["seconds"] + found["phases"]["round"]["seconds"]) / 120)
    assert planned("--round-minutes", minutes)["verdict"]["fits"]
    assert not planned("--round-minutes", minutes, "--engine", engine)["verdict"]["fits"]


def test_what_is_too_slow_on_flower_is_told_of_nvflare() -> None:
    first, second, *_ = run("--engine", "flower", "--round-minutes", "0.02").splitlines()
    assert first.startswith("Not practical, because a round takes ")
    assert "with engine nvflare" in second
    assert "with engine" not in run("--engine", "nvflare", "--round-minutes", "0.001").splitlines()[1]


@ENGINE
def test_other_choices_have_the_engine_in_them_too(engine: Any) -> None:
    rows = planned("--engine", engine)["choices"]
    for row, plain in zip(rows, planned()["choices"], strict=True):
        assert row["round_seconds"] > plain["round_seconds"]
        assert row["client_memory"] > plain["client_memory"] + PYTHON_BYTES
        assert row["round_bytes"] == plain["round_bytes"]


def test_a_policy_is_planned_on_an_engine(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    write_session(session(collusion=1), file)
    pages = {}
    for words in ((), ("--engine", "nvflare")):
        ran = CliRunner().invoke(main, ["plan", "--policy", str(file), *words, "--json"])
        assert ran.exit_code == 0, ran.output
        pages[words] = json.loads(ran.stdout)
    plain, found = pages.values()
    assert found["engine"]["name"] == "nvflare"
    assert "NVFlare: what it adds is among times and memory." in json.dumps(found["page"])
    assert "NVFlare" not in json.dumps(plain["page"])
    assert (
        f"Each client {size(found['memory']['client'])}, the server {size(found['memory']['server'])}."
        in json.dumps(found["page"])
    )


def test_an_engine_that_is_not_known_is_refused_with_those_that_are() -> None:
    ran = CliRunner().invoke(main, [*WORDS, "--engine", "nvflair"])
    assert ran.exit_code == 2
    assert "'nvflair' is not one of 'nvflare', 'flower'" in ran.output
