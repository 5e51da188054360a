"""`secea demo`: what it shows is true."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner

from secea.audit.attacks.keyed import Overheard
from secea.cli import main
from secea.demo import guide
from secea.demo.data import BORDERS, world
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.values import Values
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import oprf
from secea.table import name_bytes
from secea.wire.randomness import SEED_BYTES
from tiers import slow

WORDS = ("demo", "--data", "borders", "--seed", "3")


@cache
def shown(*words: str) -> str:
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def found(*words: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(shown(*words, "--json"))
    return result


def test_all_parts_are_shown() -> None:
    output = shown(*WORDS)
    titles = re.findall(r"^(\d)  ", output, re.MULTILINE)
    assert titles == ["1", "2", "3", "4", "5", "6"]
    for step in ("list", "table", "upload", "mean"):
        assert re.search(rf"^(\S+)? +{step} ", output, re.MULTILINE), step
    rows = re.findall(r"^ +\d  .*?(-?[\d.]+) +(-?[\d.]+)$", output, re.MULTILINE)
    assert len(rows) == 4
    for true, secure in rows:
        assert float(true) == pytest.approx(float(secure), abs=1e-5)


@pytest.mark.parametrize("data", ["borders", "umls"])
def test_the_means_are_the_true_ones_and_point_where_all_data_would(data: str) -> None:
    result = found("demo", "--data", data, "--seed", "3")
    assert result["error"]["largest"] < result["error"]["promised"]
    assert result["gain"]["alone"] < 0.9
    assert result["gain"]["together"] == pytest.approx(1, abs=1e-6)
    assert result["cost"]["round_bytes"] == result["cost"]["planned_round_bytes"]


SIZES = [(), ("--clients", "2"), ("--clients", "3"), ("--clients", "6", "--collusion", "2"), ("--clients", "12")]


@pytest.mark.parametrize("more", [SIZES[0], SIZES[1], *(slow((words,)) for words in SIZES[2:])], ids=" ".join)
def test_a_pool_finds_nothing_and_everything_with_one_secret_more(more: tuple[str, ...]) -> None:
    attacks = found(*WORDS, *more)["attacks"]
    assert len(attacks) == (2 if "2" in more[:2] else 3)  # of two clients all slots are told apart by their counts
    for attack in attacks:
        assert attack["found"] == 0, attack
        assert attack["found_given"] == attack["total"] > 0, attack


@pytest.mark.parametrize("more", SIZES, ids=" ".join)
def test_what_a_pool_is_said_to_see_is_what_it_sees(more: tuple[str, ...]) -> None:
    result = found(*WORDS, *more)
    for each in result["admitted"]:
        assert each["seen"] == each["true"], each
    alone = len(result["admitted"][0]["seen"]) - result["data"]["collusion"] == 1
    its = result["organisations"]["entities"][0]
    assert (result["admitted"][2]["true"] == its) == alone  # all others together see how many client 0 has
    shared = result["steps"][-2]
    assert shared["step"] == "upload"
    row = f"{shared['has']}: its row"  # they see the rows of what they have, too
    assert (shared["pooled"] == row) == alone
    assert alone or ": the sum over clients 0 to " in shared["pooled"]


def test_a_client_that_deviates_is_said_to_guess_a_name_for_each_point_that_is_answered() -> None:
    result = found(*WORDS)
    room = max(result["organisations"]["entities"])
    first, later = (len(oprf.blind([], size, bytes(SEED_BYTES)).points) for size in (room, min(room, 16)))
    assert result["guesses"] == {"first": first, "later": later, "epochs": 16}


def test_what_is_hidden_looks_like_fresh_random_numbers() -> None:
    hidden = found(*WORDS)["hidden"]
    assert hidden["hidden"] != hidden["fresh"]
    for ones in (hidden["ones_hidden"], hidden["ones_fresh"]):  # seven standard deviations
        assert abs(ones - 0.5) < 3.5 / math.sqrt(hidden["bits"])


def test_what_leaves_is_new_in_every_run_and_what_a_client_has_is_not() -> None:
    one, other = (json.loads(CliRunner().invoke(main, [*WORDS, "--json"]).stdout)["steps"] for _ in range(2))
    left = [(a["leaves"], b["leaves"]) for a, b in zip(one, other, strict=True) if a["leaves"]]
    assert len(left) == 4
    assert all(a != b and re.fullmatch("[0-9a-f]{16}", a) for a, b in left)
    rows = [[each["has"] for each in steps if each["step"] in ("list", "upload")] for steps in (one, other)]
    assert rows[0] == rows[1]


# ------------------------------------------------------------------------------------------- a protection is taken away


class Unmasked(Overheard):
    """Uploads have no masks."""

    def degree(self, params: Params) -> int:
        return 0


class KnownKeys(Overheard):
    """Every client can make the keys of all rows."""

    def client(self, *args: Any, **more: Any) -> KeyedClient:
        class Client(KeyedClient):
            def _kappa(self, value: bytes) -> bytes:
                return b""

        return Client(self, *args, **more)


class KeylessNames(Overheard):
    """The PRF of names has no key."""

    def client(self, *args: Any, **more: Any) -> KeyedClient:
        class Client(KeyedClient):
            def finish(self, at: Agreement, got: Got) -> Agreement:
                after = super().finish(at, got)
                if at.phase == "evaluate":
                    inputs = [oprf.input_of(name_bytes(name)) for name in self.names]
                    values = oprf.finalize(inputs, oprf.hash_to_group(inputs))
                    self.naming.names = replace(self.naming.names, prf=Values.made(self.names, values))
                return after

        return Client(self, *args, **more)


@pytest.mark.parametrize(("weak", "broken"), [(KeylessNames, 0), (KnownKeys, 1), (Unmasked, 2)])
def test_without_a_protection_the_demo_says_what_is_found(
    weak: type[Overheard], broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide, "Overheard", weak)
    ran = CliRunner().invoke(main, [*WORDS, "--json"])
    assert (ran.exit_code, "an attack succeeded" in ran.stderr) == (1, True)
    result = json.loads(ran.stdout)
    hits = [attack["found"] for attack in result["attacks"]]
    assert hits[broken] == result["attacks"][broken]["total"] > 0
    assert sum(hits) == hits[broken]
    listed, _, uploaded = result["steps"][:3]
    assert (listed["pooled"] == "its name") == (broken == 0)
    assert uploaded["pooled"].startswith(uploaded["has"]) == (broken == 1)


# ------------------------------------------------------------------------------------------------------- other data


def test_made_up_data_of_any_size_shows_means_and_costs_alone() -> None:
    words = ("demo", "--entities", "60", "--dim", "4", "--seed", "7", "--clients", "7", "--collusion", "2")
    result = found(*words)
    assert result["organisations"]["union"] <= 60
    assert not {"steps", "attacks", "admitted", "gain"} & result.keys()
    assert "secure mean" in shown(*words)


def test_without_pykeen_there_is_data_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen", None)
    assert world(None, clients=3, dim=2, seed=0).name == "borders"
    ran = CliRunner().invoke(main, ["demo", "--data", "umls"])
    assert (ran.exit_code, "pip install 'pykeen>=1.11'" in ran.output) == (4, True)


def test_borders_are_listed_once_and_states_are_spelled_alike() -> None:
    pairs = []
    for line in BORDERS.strip().splitlines():
        state, _, others = line.partition(": ")
        pairs += [tuple(sorted((state, other))) for other in others.split(", ")]
    assert len(pairs) == len(set(pairs))
    assert len({state for pair in pairs for state in pair}) == 48


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--clients", "4", "--collusion", "4"), 3, "collusion must be from 1 to 3 for 4 clients"),
        (("--dim", "1025"), 3, "the guide takes at most 1024 numbers; with --entities it can be more"),
        (("--clients", "13"), 3, "the guide takes at most 12 clients; with --entities it can be more"),
        (("--data", "borders", "--entities", "5"), 2, "leave --data out"),
    ],
)
def test_mistakes_are_explained(words: tuple[str, ...], code: int, text: str) -> None:
    ran = CliRunner().invoke(main, ["demo", *words])
    assert (ran.exit_code, text in ran.output) == (code, True), ran.output
