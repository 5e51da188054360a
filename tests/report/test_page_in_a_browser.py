"""What people see: the page in a real browser, wide, dark, on a phone, and on paper."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from made_up import ENDS, make_run, write_json
from secea.audit import Finding
from secea.audit.installation import installation
from secea.audit.report import TITLES
from secea.commands import policy
from secea.commands.plan import report
from secea.forms import form_of
from secea.params import Params
from secea.party.session import Session
from secea.report import certificate, charts, save, write
from secea.report.charts import label
from secea.wire.keys import Identity, Roster

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]
HOSTILE = "</title></script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

OVERLAPS = """
(() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg.chart')) {
    const seen = [...svg.querySelectorAll('text')].filter(t => !t.closest('.tip') && t.getClientRects().length);
    const boxes = seen.map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([a, r], i) => boxes.slice(i + 1).forEach(([b, s]) => {
      const across = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const down = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      if (across > 1 && down > 3) found.push(`${svg.ariaLabel}: ${a} / ${b}`);
    }));
  }
  return found;
})()
"""
OUTSIDE = """
[...document.querySelectorAll('svg.chart, svg.chart text, table, h1, h2, p')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && !e.closest('.scroll') && !e.closest('.tip') && (box.left < 0 || box.right > innerWidth);
}).map(e => e.tagName + ' ' + (e.ariaLabel || e.textContent))
"""
SHOWN = "[...document.querySelectorAll('svg.chart')].filter(e => e.getClientRects().length).length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


KINDS = (
    "one run", "three seeds", "several runs", "options", "hostile names", "unfinished", "worse, and an alarm",
    "untested",
)  # fmt: skip


def changed(run: Path, **values: float | None) -> None:
    """Other final values of the main metric, or none at all."""
    result = json.loads((run / "result.json").read_text())
    for method, value in values.items():
        result["methods"][method]["mrr"] = value
    write_json(run / "result.json", result)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run; several seeds, and another model; options; names and settings that mean harm; what went wrong."""
    folder = tmp_path_factory.mktemp("runs")
    seeds = [make_run(folder / f"seed {seed}", seed=seed) for seed in range(3)]
    other = make_run(folder / "rotate", model="rotate", shift=0.05, clients=40, rounds=300)
    options: dict[str, Any] = {"min_owners": 3, "weights": True, "dp": {"epsilon": 8.0, "clip": 0.1}}
    asked = make_run(folder / "asked", **options)
    hostile = make_run(
        folder / "hostile", names=[f"{HOSTILE} {i}" for i in range(135)], data=HOSTILE, methods=("secea", HOSTILE)
    )
    worse, untested = make_run(folder / "worse"), make_run(folder / "untested")
    changed(worse, local=0.65, secea=0.6, plain=0.7)
    changed(untested, **dict.fromkeys(ENDS))
    log = untested / "metrics.jsonl"
    log.write_text(re.sub(r'"metrics": {.*?}, "clients": {.*?}}', '"metrics": {}, "clients": {}', log.read_text()))
    return {
        "worse, and an alarm": write([worse])[0],
        "untested": write([untested])[0],
        "one run": write(seeds[:1])[0],
        "three seeds": write(seeds, folder / "seeds.html")[0],
        "several runs": write([*seeds, other], folder / "several.html")[0],
        "options": write([seeds[0], asked], folder / "options.html")[0],
        "hostile names": write([hostile])[0],
        "unfinished": write([make_run(folder / "half", finished=False)])[0],
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (800, True), (390, False), (320, True)])
def test_a_page_is_all_in_the_window_and_nothing_overlaps(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, dark: bool
) -> None:
    browser.open(pages[kind], width, dark=dark)
    assert browser.said == []
    assert browser.asked == [pages[kind].resolve().as_uri()]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(OUTSIDE) == []
    assert browser.ask(OVERLAPS) == []
    assert browser.ask(SHOWN) >= (4 if kind == "untested" else 9)
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 22, 26)" if dark else "rgb(251, 250, 247)")


CONTRAST = """
[...document.querySelectorAll('p, th, td, b, span, h1, h2')].filter(e => e.innerText.trim()).map(e => {
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => {
    const [r, g, b] = c.match(/[0-9.]+/g).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let below = e;
  while (/, 0\\)$/.test(getComputedStyle(below).backgroundColor)) below = below.parentElement;
  const pair = [light(getComputedStyle(e).color), light(getComputedStyle(below).backgroundColor)].sort((a, b) => a - b);
  return [(pair[1] + 0.05) / (pair[0] + 0.05), e.innerText];
}).filter(([ratio, text]) => ratio < 4.5)
"""
"""Text that can hardly be read on what is below it."""


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages to sign: with options; with names that mean harm, and much that is not covered; the paper's form."""
    folder = tmp_path_factory.mktemp("policies")
    keys = [Identity(hashlib.sha256(b"%d" % i).digest()).public for i in range(6)]
    chosen: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
        "options": ("keyed", {"clients": 5, "collusion": 1, "dropouts": 1, "min_owners": 3, "max_weight": 1000}, ()),
        "harm": ("keyed", {"clients": 3, "dropouts": 1, "noise": 0.5}, (HOSTILE, "a" * 300, "north")),
        "paper": ("paillier", {"clients": 4}, ()),
    }
    found = {}
    for name, (form, options, names) in chosen.items():
        params = Params(**({"dim": 8, "max_entities": 100, "max_union": 250} | options))
        session = Session(params, Roster(tuple(keys[1 : params.clients + 1]), keys[0], names), form_of(form))
        told = policy.chapters(session, report(session.params, session.form, 1000.0), Path("federation.toml"))
        found[name] = folder / f"{name}.html"
        policy.write(session, told, found[name])
    found["certificate"] = folder / "certificate.html"
    save(certificate.page(_audited()), found["certificate"])
    return found


def _audited() -> certificate.Certificate:
    """An audit with objections, long sentences and a table."""
    held = Finding(
        "names", "keyed", "Form keyed: " + "nobody can test whether a name is there; " * 4, "exact view", 1234567
    )
    rows = [{"what it tried": f"{HOSTILE} {i}", "cases": 10**i, "accepted": "no"} for i in range(9)]
    findings = [
        held,
        replace(held, name="lying-server-ownership-in-two-worlds", title="What a server tried", table=rows),
        replace(held, name="rows", form="paillier", ok=False, objection=HOSTILE * 3),
        replace(held, name="keys", form="paillier", ok=False, broke_off="RoundLost: " + "a" * 200),
    ]
    when = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    return certificate.Certificate(installation(), findings, TITLES, 3, True, when, 75.0)


@pytest.mark.parametrize("kind", ["options", "harm", "paper", "certificate"])
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True), (320, False)])
def test_a_policy_is_all_in_the_window_and_can_be_read(
    browser: Browser, policies: dict[str, Path], kind: str, width: int, dark: bool
) -> None:
    browser.open(policies[kind], width, dark=dark)
    assert browser.said == []
    assert browser.asked == [policies[kind].resolve().as_uri()]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(OUTSIDE) == []
    assert browser.ask(CONTRAST) == []
    assert browser.ask("document.querySelectorAll('script, img, iframe, link, object').length") == 0


def test_a_policy_on_paper_is_a_few_light_pages(browser: Browser, policies: dict[str, Path]) -> None:
    browser.open(policies["options"], 1280, dark=True)
    paper = base64.b64decode(browser.printed())
    assert 1 <= paper.count(b"/Type /Page\n") <= 4


def test_the_search_for_overlaps_and_for_what_is_outside_objects(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    monkeypatch.setattr(charts, "_apart", lambda wanted, gap, low, high: list(wanted))
    browser.open(write([run])[0], 1280)
    assert any("secea" in each and "plain" in each for each in browser.ask(OVERLAPS))
    monkeypatch.undo()
    monkeypatch.setattr(charts, "label", lambda x, *more, **how: label(x * 2, *more, **how))
    browser.open(write([run])[0], 1280)
    assert browser.ask(OUTSIDE)


def test_the_visible_text_has_the_final_numbers_and_every_section(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one run"], 1280)
    seen = browser.ask("document.body.innerText")
    for method in ENDS:
        assert method in seen
    table = browser.ask("[...document.querySelectorAll('tbody tr')].map(row => row.innerText).join('|')")
    finals = browser.ask("document.querySelector('header').innerText")
    for method in ("secea", "local", "central"):
        value = next(row.split("\t")[1] for row in table.split("|") if row.startswith(f"{method}\n"))
        assert value in finals
    headings = browser.ask("[...document.querySelectorAll('h2')].map(each => each.innerText)")
    assert headings == [
        "Learning", "At the end", "Where the time of a round went", "Bytes by phase",
        "How many entities are owned by how many clients", "A picture of the embeddings", "Settings",
    ]  # fmt: skip


def test_the_values_of_a_round_are_shown_where_the_pointer_is(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one run"], 1280)
    box = browser.ask(
        "(r => [r.left, r.top, r.width, r.height])(document.querySelector('svg.chart').getBoundingClientRect())"
    )
    browser.ask(f"scrollTo(0, {box[1]} - 100)")
    browser.point(box[0] + box[2] / 2, 100 + box[3] / 2)
    shown = (
        "[...document.querySelectorAll('.tip')].filter(t => getComputedStyle(t).opacity == 1).map(t => t.textContent)"
    )
    (words,) = browser.ask(shown)
    assert words.startswith("round 2")
    assert all(method in words for method in ENDS)


def test_names_that_mean_harm_are_text_and_nothing_else(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile names"], 1280)
    assert browser.ask("document.title").startswith("secea: </title>")
    assert browser.ask("document.querySelectorAll('script, img, iframe, link, object').length") == 0
    assert HOSTILE in browser.ask("document.querySelector('circle.point title').textContent")


def test_the_policy_of_the_page_stops_what_would_load_or_run(browser: Browser, pages: dict[str, Path]) -> None:
    """Whatever came into the page in spite of everything could do nothing."""
    browser.open(pages["one run"], 1280)
    browser.ask("document.body.append(Object.assign(new Image(), {src: 'data:image/gif;base64,R0lGODlhAQABAAAAACw='}))")
    browser.ask("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))")
    browser.ask("new Promise(done => setTimeout(done, 50))")
    assert browser.ask("document.title") != "1"
    assert browser.ask("[...document.images].map(each => each.naturalWidth)") == [0]
    assert len([each for each in browser.said if "Content Security Policy" in each]) == 2


def test_on_paper_it_is_a_few_light_pages(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one run"], 1280, dark=True)
    paper = base64.b64decode(browser.printed())
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") <= 8
