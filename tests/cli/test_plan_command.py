"""`secea plan`: the numbers of `secea.plan`, times that were measured, and other choices."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner

import secea
from planned import SHAPES, shaped
from secea.cli import main
from secea.commands import estimate
from secea.commands.estimate import Line, Machine, timed
from secea.commands.fits import duration, size
from secea.forms.costs import round_costs, setup_costs
from secea.params import Params

WORDS = ["plan", "--clients", "6", "--collusion", "2", "--entities", "300", "--per-client", "120", "--dim", "16"]


@cache
def planned(*more: str) -> dict[str, Any]:
    ran = CliRunner().invoke(main, [*WORDS, *more, "--json"])
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_json_has_the_numbers_of_the_library() -> None:
    params = Params(clients=6, collusion=2, dim=16, max_entities=120, max_union=300)
    plan, found = secea.plan(params, entities=300), planned()
    for name in plan.__dataclass_fields__:
        value = getattr(plan, name)
        assert found[name] == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("--min-owners", "4", "--max-weight", "50"), {"min_owners": 4, "max_weight": 50}),
        (("--noise", "0.5"), {"noise": 0.5}),
        (("--partial",), {"partial": True}),
    ],
)
def test_options_are_planned_and_shown_beside_the_plain_choice(words: tuple[str, ...], options: dict[str, Any]) -> None:
    plain = Params(clients=6, collusion=2, dim=16, max_entities=120, max_union=300)
    before, after = (secea.plan(each, entities=300) for each in (plain, replace(plain, **options)))
    found = planned(*words)
    assert (found["setup_bytes"], found["round_bytes"]) == (after.setup_bytes, after.round_bytes)
    rows = found["options_cost"]
    assert (rows[0]["options"], rows[0]["round_bytes"]) == ({}, before.round_bytes)
    assert (rows[-1]["options"], rows[-1]["round_bytes"]) == (options, after.round_bytes)
    assert len(rows) == (2 if len(options) == 1 else 2 + len(options))
    assert planned()["options_cost"] == []


def test_a_plan_with_weights_says_how_exact_their_means_are() -> None:
    output = " ".join(CliRunner().invoke(main, [*WORDS, "--max-weight", "50"]).output.split())
    assert "What the options cost" in output
    assert "form keyed, max_weight 50" in output
    assert (
        "A weighted mean is exact to within 1.1e-05 * 51 / (w - 1/2), plus 1 / (2w - 1) of the largest distance"
        in output
    )
    assert "at w = 50 that is 1.2e-05 plus 1 %" in output
    ran = CliRunner().invoke(main, [*WORDS, "--max-weight", "50", "--noise", "1"])
    assert (ran.exit_code, "noise does not go together with partial or max_weight" in ran.output) == (3, True)


def test_a_plan_says_how_exact_means_of_numbers_with_few_decimals_are() -> None:
    found = planned("--decimals", "3")
    assert found["decimals"] == 3
    assert found["bound"] == pytest.approx(found["params"]["resolution"] + 5e-4)
    assert found["accuracy"][-1] == "Numbers with 3 decimals: off by up to 5.0e-04 more; all digits avoid that."
    assert "Where numbers are coarser (bf16, a few decimals), the error grows" in " ".join(planned()["accuracy"])
    exact = planned("--decimals", "1", "--form", "paillier", "--key-bits", "2048")
    assert exact["bound"] == exact["params"]["resolution"]
    assert exact["accuracy"][-1] == "Numbers with 1 decimal are as exact."


def test_a_plan_says_whom_you_must_trust() -> None:
    words = ["plan", "--clients", "4", "--entities", "60", "--per-client", "30", "--dim", "4"]
    shown = " ".join(CliRunner().invoke(main, words).output.split())
    assert "The server and all 3 other clients may conspire" in shown
    found = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    plan = secea.plan(Params(clients=4, dim=4, max_entities=30, max_union=60), entities=60)
    assert (found["setup_bytes"], found["round_bytes"]) == (plan.setup_bytes, plan.round_bytes)
    assert found["trust"] == list(plan.trust)
    assert [(row["collusion"], row["dropouts"]) for row in found["choices"]] == [(1, 0), (3, 0), (1, 1)]
    assert found["unprotected_round_bytes"] == 2 * 4 * 30 * 4 * 4
    assert "security holds against" not in shown, "who may conspire stands under trust"


def test_the_bytes_of_the_parties_add_up() -> None:
    found = planned()
    for phase in ("setup", "round"):
        client, server = found["phases"][phase]["client"], found["phases"][phase]["server"]
        assert server["sent"] + server["received"] == found[f"{phase}_bytes"]
        assert 0 <= server["received"] - 6 * client["sent"] < 6
        assert client["cpu_seconds"] > 0
        assert server["network_seconds"] == pytest.approx(found[f"{phase}_bytes"] * 8e-9)


def test_a_small_federation_needs_no_more_memory_than_all_of_its_messages() -> None:
    for more in ((), ("--dropouts", "1")):
        found = planned(*more)
        everything = found["setup_bytes"] + found["round_bytes"]
        assert found["memory"]["client_keeps"] < found["memory"]["client"] < everything
        assert found["memory"]["server"] < everything


def test_other_choices_and_a_size_that_no_machine_holds_are_shown() -> None:
    found = planned()
    assert [(row["collusion"], row["dropouts"]) for row in found["choices"]] == [
        (1, 0), (2, 0), (5, 0), (1, 1), (2, 1), (3, 1),
    ]  # fmt: skip
    chosen = found["choices"][1]
    assert (chosen["setup_bytes"], chosen["round_bytes"]) == (found["setup_bytes"], found["round_bytes"])
    far = found["projection"]
    assert (far["clients"], far["entities"], far["per_client"]) == (50, 10_000_000, 4_000_000)
    assert far["round_seconds"] > 1000 * chosen["round_seconds"]


def test_the_time_of_one_process_is_that_of_all_parties() -> None:
    found = planned()
    for phase in ("setup", "round"):
        cost = found["phases"][phase]
        clients, server = 6 * cost["client"]["cpu_seconds"], cost["server"]["cpu_seconds"]
        assert cost["one_process"]["cpu_seconds"] == pytest.approx(clients + server)
        assert cost["one_process"]["seconds"] == pytest.approx(clients / min(6, found["cores"]) + server)


def test_the_page_says_how_times_were_got() -> None:
    output = " ".join(CliRunner().invoke(main, WORDS).output.split())
    assert output.startswith("Fits: a round takes ")
    for words in (
        "each client",
        "the server",
        "memory",
        "precision",
        "security",
        "trust The server and any 2 clients may conspire",
    ):
        assert words in output
    assert "Bytes are exact. Times are estimates: what samples of each kind of work took on this machine now" in output
    assert "together all in one process, on" in output


def test_a_line_goes_through_both_points_and_has_no_negative_part() -> None:
    assert [Line.through((2, 1.0), (4, 2.0)).at(n) for n in (2, 4, 10)] == [1.0, 2.0, 5.0]
    assert Line.through((2, 3.0), (4, 2.0)) == Line(3.0, 0.0)
    assert Line.through((2, 1.0), (4, 4.0)) == Line(0.0, 1.5)


def test_a_sample_runs_in_as_many_threads_as_it_is_given() -> None:
    threads: set[int] = set()
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait(timeout=60)
        threads.add(threading.get_ident())

    assert timed([work, work]) >= 0
    assert len(threads) == 2


@pytest.mark.parametrize(("name", "clients", "collusion", "dropouts"), SHAPES)
def test_seconds_are_those_of_samples_times_how_often_they_come(
    name: str, clients: int, collusion: int, dropouts: int
) -> None:
    """With 1 s for a sample and for a message, and nothing for ciphers, they are counts."""
    form, params = shaped(name, clients, collusion, dropouts, 30)
    machine, chores = Machine(cores=2), form.chores(params, 30)
    machine.known.update(dict.fromkeys(chores, 1.0))
    machine.known.update({f"{what}, {party}": 0.0 for what in estimate.CIPHERS for party in estimate.PARTIES})
    kind = f"{form.name}, {'some' if dropouts else 'no'} drop-outs"
    machine.lines[kind] = {(at, party): Line(0.0, 1.0) for at in estimate.PHASES for party in estimate.PARTIES}
    found = machine.seconds(params, 30, form)
    for phase, cost in (("setup", setup_costs(form, params, 30)), ("round", round_costs(form, params, 30))):
        for party, share in (("client", clients), ("server", 1)):
            counted = sum(chore.times.get((phase, party), 0) for chore in chores.values())
            assert found[phase][party] == pytest.approx(counted + cost.hops / share)


@pytest.mark.slow
def test_paillier_is_planned_too_and_what_leaves_no_room_is_left_out() -> None:
    words = ["plan", "--clients", "6", "--collusion", "2", "--entities", "12", "--per-client", "4", "--dim", "2"]
    words += ["--form", "paillier", "--key-bits", "2048", "--precision", "52", "--json"]
    found = json.loads(CliRunner().invoke(main, words).stdout)
    assert found["primes"] == 1
    assert found["phases"]["round"]["client"]["cpu_seconds"] > found["phases"]["setup"]["server"]["cpu_seconds"]
    assert [(row["collusion"], row["dropouts"]) for row in found["choices"]] == [(1, 0), (2, 0), (1, 1)]
    assert found["projection"] is None, "fifty clients have no room for 52 bits"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--clients", "3", "--entities", "10", "--per-client", "3", "--dim", "2"], 2, "--entities must be between"),
        (["--clients", "3", "--entities", "10", "--per-client", "11", "--dim", "2"], 2, "--entities must be between"),
        (["--clients", "1", "--entities", "10", "--dim", "2"], 3, "clients must be from 2 to 1024"),
        (["--clients", "2", "--entities", "9", "--dim", "2", "--form", "paillier"], 3, "must be from 3 to 1024"),
        (["--clients", "5", "--entities", "10", "--dim", "2", "--dropouts", "4"], 3, "dropouts must be from 0 to 3"),
        (["--clients", "400", "--entities", "10", "--dim", "2"], 3, "or take fewer clients"),
        (["--clients", "5", "--entities", "10", "--dim", "2", "--queries", "full"], 3, "has no option 'queries'"),
    ],
)
def test_mistakes_are_explained(words: list[str], code: int, text: str) -> None:
    ran = CliRunner().invoke(main, ["plan", *words])
    assert (ran.exit_code, text in ran.output) == (code, True), ran.output


def test_numbers_are_shown_as_people_read_them() -> None:
    assert [size(x) for x in (12, 1234, 54_500_000, 159e6, 1.4e12)] == ["12 B", "1.2 kB", "54.5 MB", "159 MB", "1.4 TB"]
    assert [duration(x) for x in (0.0123, 0.5, 9.12, 90, 7200, 2e5, 1e9)] == [
        "0.012 s", "0.5 s", "9.1 s", "90 s", "2.0 h", "2.3 days", "32 years",
    ]  # fmt: skip
