"""What is seen of a fault is what docs/deploy.md says: every row of both tables, with real processes of the engine.

Each engine has one trial of minutes, in which all of them happen (`faults`). It waits for most of the time: `make slow`
runs it beside its other tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

import faults
from fault_table import HEADS, Seen, documented, shape
from sites import Sites

pytestmark = [
    pytest.mark.engines,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # the engines' own
]

ENGINES = [pytest.param(engine, marks=pytest.mark.xdist_group(engine)) for engine in HEADS]
"""One process has the whole trial of an engine."""
ROWS = [
    pytest.param(engine, fault, marks=pytest.mark.xdist_group(engine), id=f"{engine}: {fault}")
    for engine in HEADS for fault in documented(engine)
]  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """What came of a trial."""

    engine: str
    seen: Mapping[str, Seen]
    sites: Sites
    ends: Mapping[str, Any]


@pytest.fixture(scope="module")
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    engine = request.param
    found, sites, ends = faults.tried(engine, tmp_path_factory.mktemp(engine))
    return Tried(engine, {each.fault: each for each in found}, sites, ends)


@pytest.mark.parametrize(("tried", "fault"), ROWS, indirect=["tried"])
def test_what_server_and_site_say_of_a_fault_is_what_the_page_says(tried: Tried, fault: str) -> None:
    assert shape(tried.seen[fault].row) == shape(documented(tried.engine)[fault])


@pytest.mark.parametrize("tried", ENGINES, indirect=True)
def test_every_fault_that_is_tried_is_on_the_page(tried: Tried) -> None:
    assert tried.seen.keys() == documented(tried.engine).keys()


@pytest.mark.parametrize("tried", ENGINES, indirect=True)
def test_nothing_waits_longer_than_the_stage_and_who_is_known_to_be_gone_not_for_its_end(tried: Tried) -> None:
    stage = faults.PATIENCE[tried.engine]
    seconds = stage.stage + stage.training
    for fault, most in (
        ("its core is killed", seconds / 4),
        ("its function raises", seconds / 4),
        ("the whole site is killed", seconds - 5),
        ("its core hangs", seconds + 15),
        ("it trains too long", seconds + 15),
    ):
        assert tried.seen[fault].after < most, tried.seen[fault]


@pytest.mark.parametrize("tried", ENGINES, indirect=True)
def test_sites_that_are_wrong_cost_the_others_nothing_and_the_result_names_them(tried: Tried) -> None:
    for name, end in tried.ends.items():
        assert end["status"].lower() == "finished:completed", (name, end)
        assert end.get("after", 0.0) < 90, "a job waits for nobody but until NVFlare has noticed who is dead"
    result = tried.ends[faults.WRONG_SITES]["result"]
    for fault, (victim, _) in faults.WRONG.items():
        seen = tried.seen[fault]
        assert f"{tried.sites.names[victim]} took part in no round; {seen.cause} at the end: {seen.server}" in result


@pytest.mark.parametrize("tried", ENGINES, indirect=True)
def test_the_server_is_told_of_no_path_at_a_site(tried: Tried) -> None:
    folder = str(tried.sites.folder)
    assert not [line for line in tried.sites.log("server") if folder in str(line.get("why"))]
