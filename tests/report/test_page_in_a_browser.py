"""What people see: the page in a real browser, wide, dark, on a phone, and on paper."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from made_up import ENDS, make_run
from secea.report import charts, write
from secea.report.charts import label

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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run; several seeds and another model; options; a run with names and settings that mean harm."""
    folder = tmp_path_factory.mktemp("runs")
    seeds = [make_run(folder / f"seed {seed}", seed=seed) for seed in range(3)]
    other = make_run(folder / "rotate", model="rotate", shift=0.05, clients=40, rounds=300)
    options: dict[str, Any] = {"min_owners": 3, "weights": True, "dp": {"epsilon": 8.0, "clip": 0.1}}
    asked = make_run(folder / "asked", **options)
    hostile = make_run(
        folder / "hostile", names=[f"{HOSTILE} {i}" for i in range(135)], data=HOSTILE, methods=("secea", HOSTILE)
    )
    return {
        "one run": write(seeds[:1])[0],
        "several runs": write([*seeds, other], folder / "several.html")[0],
        "options": write([seeds[0], asked], folder / "options.html")[0],
        "hostile names": write([hostile])[0],
        "unfinished": write([make_run(folder / "half", finished=False)])[0],
    }


@pytest.mark.parametrize("kind", ["one run", "several runs", "options", "hostile names", "unfinished"])
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
    assert browser.ask(SHOWN) >= 9
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 22, 26)" if dark else "rgb(251, 250, 247)")


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
    finals = browser.ask("document.querySelector('h1').innerText")
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
