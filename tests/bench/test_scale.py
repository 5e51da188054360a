"""The simulator foresees bytes and operations of real federations, and its design obeys its own bounds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import secea
from bench import model, scale
from bench.hashed import hashed_names
from bench.measure import by_kind
from bench.model import (
    CLIENT,
    COMMITTEE,
    Setting,
    amount,
    round_messages,
    round_work,
    setup_messages,
    setup_work,
    total,
)
from bench.scale import ITEMS, MOST
from bench.shapes import FB15K, Scale, Shape
from bench.show import BLOCK
from secea import Federation
from secea.arithmetic import streams
from secea.forms.keyed import masking, opening
from secea.steps import masks, oprf

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = [
    (Shape(clients=3, collusion=2, entities=9, own=6, dim=3), 0),
    (Shape(clients=6, collusion=2, entities=30, own=12, dim=5), 0),
    (Shape(clients=6, collusion=1, entities=30, own=12, dim=5), 2),
    (Shape(clients=14, collusion=3, entities=40, own=12, dim=3, bound=16), 2),  # three primes
]
LARGE = [
    (Shape(clients=2, collusion=1, entities=9, own=6, dim=3), 0),
    (FB15K, 0),
    (FB15K.but(collusion=9), 0),
    (FB15K, 1),
    (Scale().fifty, Scale().fifty_dropouts),
    (Scale().hundred, Scale().hundred_dropouts),
]


def ready(shape: Shape, dropouts: int) -> tuple[Federation, list[secea.Table]]:
    fed, tables = Federation(shape.params(dropouts=dropouts)), shape.tables()
    with hashed_names():
        fed.setup([table.names for table in tables])
    return fed, tables


# ------------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(("shape", "dropouts"), SMALL + LARGE)
def test_bytes_are_those_of_the_plan(shape: Shape, dropouts: int) -> None:
    s, plan = Setting.of(shape, dropouts), secea.plan(shape.params(dropouts=dropouts), entities=shape.entities)
    first, each = setup_messages(s), round_messages(s)
    assert (total(first), total(each)) == (plan.setup_bytes, plan.round_bytes)
    assert {"setup": total(first, up=CLIENT), "round": total(each, up=CLIENT)} == dict(plan.sent_by_clients)
    assert model.by_kind(first) + model.by_kind(each) == Counter(plan.by_kind)


@pytest.mark.parametrize(("shape", "dropouts"), SMALL)
def test_bytes_are_those_that_a_federation_sends(shape: Shape, dropouts: int) -> None:
    (fed, tables), s = ready(shape, dropouts), Setting.of(shape, dropouts)
    assert by_kind(fed) == model.by_kind(setup_messages(s))
    hops = len(fed.traffic)
    fed.round(tables)
    assert by_kind(fed, hops) == model.by_kind(round_messages(s))


# --------------------------------------------------------------------------------------------------------- operations


def counting(
    monkeypatch: pytest.MonkeyPatch, what: Counter[str], module: Any, name: str, of: Callable[..., int]
) -> None:
    work = getattr(module, name)

    def counted(*arguments: Any, **more: Any) -> Any:
        what[name] += of(*arguments)
        return work(*arguments, **more)

    monkeypatch.setattr(module, name, counted)


@pytest.mark.parametrize(("shape", "dropouts"), SMALL)
def test_a_round_does_what_is_counted(shape: Shape, dropouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (fed, tables), done = ready(shape, dropouts), Counter[str]()
    counting(
        monkeypatch,
        done,
        streams,
        "add_streams",
        lambda ring, acc, keys, *_: len(keys) * acc[0].size * ring.element_bytes,
    )
    counting(monkeypatch, done, streams, "add_noise", lambda ring, acc, *_: acc[0].size)
    counting(monkeypatch, done, masking, "pair_of", lambda *_: 1)
    counting(monkeypatch, done, masking, "voted", lambda *_: 1)
    counting(monkeypatch, done, opening, "voted", lambda *_: 1)
    counting(monkeypatch, done, masks, "recovered", lambda *_: 1)
    hops = len(fed.traffic)
    fed.round(tables)
    work = round_work(Setting.of(shape, dropouts))
    assert len(fed.traffic) - hops == amount(work, "hop")
    assert done["add_streams"] == amount(work, "mask") + amount(work, "pad")
    assert done["add_noise"] == amount(work, "noise")
    assert done["pair_of"] == amount(work, "exchange")
    assert done["voted"] == amount(work, "verify")
    assert done["recovered"] == amount(work, "recover")


@pytest.mark.parametrize(("shape", "dropouts"), SMALL[1:3])
def test_a_setup_does_what_is_counted(shape: Shape, dropouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Counter[str]()
    counting(monkeypatch, done, oprf, "evaluate", lambda points, *_: len(points))
    counting(monkeypatch, done, oprf, "proven", lambda *_: 1)
    counting(monkeypatch, done, masks, "shares", lambda *_: 1)
    fed = Federation(shape.params(dropouts=dropouts))
    fed.setup([table.names for table in shape.tables()])
    work = setup_work(Setting.of(shape, dropouts))
    assert len(fed.traffic) == amount(work, "hop")
    assert done["evaluate"] == amount(work, "evaluate")
    assert done["proven"] == amount(work, "prove")
    assert done["shares"] == amount(work, "share")


# --------------------------------------------------------------------------------------------------------- the design


def test_in_the_design_a_client_pays_the_same_however_many_there_are() -> None:
    costs = set()
    for clients in (1_000, 100_000, 1_000_000):
        s = Setting.wide(ITEMS.but(clients=clients), 1_000, MOST)
        sent = round_messages(s)
        costs.add((s.element, total(sent, up=CLIENT), total(sent, down=CLIENT), total(sent, up=COMMITTEE)))
    assert len(costs) == 1


def test_a_committee_has_an_honest_quorum_as_often_as_it_says() -> None:
    members, T = model.committee()
    assert members > 3 * T  # of whom T conspire and T vanish: 2D + T < m
    small, most = model.committee(bits=10)
    assert small < members
    drawn = np.random.Generator(np.random.PCG64(1)).binomial(small, model.CORRUPT, 1_000_000)
    assert (drawn > most).mean() < 2**-10


def test_a_bound_on_hidden_counts_shortens_elements() -> None:
    few = ITEMS.but(clients=100, collusion=10)
    bounded, built = Setting.of(few, 10, MOST), Setting.of(few, 10)
    assert bounded.numbers.C < built.numbers.C
    assert bounded.element < built.element
    # Sums over all clients, whose count is shown, still fit.
    assert bounded.numbers.ring.modulus > 2 * bounded.numbers.C * 100 / MOST * 64 * 2.0**bounded.numbers.f


# ----------------------------------------------------------------------------------------------------------- its pages


def test_the_program_fills_a_page_and_prints_json(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = (f"<!-- bench: {name}/table -->\nold\n<!-- /bench -->\n" for name in ("willow", "steps"))
    page.write_text("".join(blocks), encoding="utf-8")
    ran = CliRunner().invoke(scale.main, ["willow", "--json", "--markdown", str(page)])
    assert ran.exit_code == 0, ran.output
    grid = json.loads(ran.stdout)["sections"]["willow"]["grids"]["table"]
    assert set(grid["rows"]) == {f"{length:,} numbers" for length in scale.WILLOW}
    text = page.read_text(encoding="utf-8")
    assert text.count("old") == 1  # in the block of a table that was not made
    assert text.count("\n| ") == 2 + len(grid["rows"])


@pytest.mark.parametrize("page", ["docs/scale.md", "docs/decisions/0018-small-sets-in-a-huge-union.md"])
def test_every_block_of_a_page_is_a_table_of_the_simulator(page: str) -> None:
    blocks = [match[2] for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    assert blocks
    assert set(blocks) <= {"machine", *(f"{name}/table" for name in scale.GRIDS)}
