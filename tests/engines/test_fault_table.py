"""The tables of faults in the documentation; that they show what is seen is what `test_faults` tests."""

from __future__ import annotations

import re

import pytest

from fault_table import HEADS, NOBODY, ROOT, documented, shape
from secea.engines.port import Cause

FLOWERS_OWN = {"its ClientApp is killed"}
"""On NVFlare the process that carries a site's messages takes the whole job with it when it dies."""


def test_every_fault_is_in_the_table_of_both_engines_or_can_only_happen_on_one() -> None:
    faults = {engine: documented(engine).keys() for engine in HEADS}
    assert faults["flower"] - FLOWERS_OWN == set(faults["nvflare"])
    page = (ROOT / "docs" / "deploy-nvflare.md").read_text(encoding="utf-8")
    assert "a client's **job** process dies alone | NVFlare aborts the whole job" in page


@pytest.mark.parametrize("engine", HEADS)
def test_of_every_fault_somebody_says_why_and_when(engine: str) -> None:
    for fault, server, after, site, site_after in documented(engine).values():
        assert not server == site == NOBODY, fault
        for said, when, words in ((server, after, set(Cause)), (site, site_after, {"stopped", "left out", "waiting"})):
            if said == NOBODY:
                assert not when, fault
                continue
            word, why = re.fullmatch(r"`([a-z ]+)`: (.+)", said).groups()  # type: ignore[union-attr]
            assert word in words, (fault, said)
            assert "error " not in why, "Flower's numbers tell nobody anything"
            assert re.fullmatch(r"\d+(\.\d)? s", when), (fault, when)


def test_rows_are_alike_if_they_differ_in_numbers_alone() -> None:
    assert shape(("late", "after 60.0 s of 7")) == shape(("late", "after 3 s of 12.5"))
    assert shape(("late", "site-2")) != shape(("late", "north"))
