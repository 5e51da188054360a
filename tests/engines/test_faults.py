"""What is seen of a fault is what docs/deploy.md says: every row of both tables, with real processes of the engine.

Each engine has one trial of minutes, in which all of them happen (`faults`). It waits for most of the time: `make slow`
runs it beside its other tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import faults
from fault_table import HEADS, documented, shape

pytestmark = [
    pytest.mark.engines,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # the engines' own
]


@pytest.mark.parametrize("engine", HEADS)
def test_of_each_fault_server_and_site_know_why_and_soon_as_the_page_says(engine: str, tmp_path: Path) -> None:
    found, sites, ends = faults.tried(engine, tmp_path)
    seen, wait = {each.fault: each for each in found}, faults.PATIENCE[engine].seconds(0, training=True)
    assert {fault: shape(each.row) for fault, each in seen.items()} == {
        fault: shape(row) for fault, row in documented(engine).items()
    }
    for fault, most in (  # nothing takes longer than the stage; who is known to be gone is not waited for
        ("its core is killed", wait / 4),
        ("its function raises", wait / 4),
        ("the whole site is killed", wait - 5),
        ("its core hangs", wait + 15),
        ("it trains too long", wait + 15),
    ):
        assert seen[fault].after < most, seen[fault]
    for name, end in ends.items():
        assert end["status"].lower() == "finished:completed", (name, end)
        assert end.get("after", 0.0) < 90, "a job waits for nobody but until NVFlare has noticed who is dead"
    for fault, (victim, _) in faults.WRONG.items():
        name, each = sites.names[victim], seen[fault]
        own = f"{name} took part in no round; {each.cause} at the end: {each.server.removeprefix(f'{name}: ')}"
        assert own in ends[faults.WRONG_SITES]["result"]
    told = [str(line.get("why")) for line in sites.log("server")]
    assert not [why for why in told if str(sites.folder) in why], "the server is told of no path at a site"
