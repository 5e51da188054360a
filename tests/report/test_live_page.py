"""The page of `secea watch --html`, in a real browser: wide, dark, on a phone; and loaded again when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser
from secea.report import live, save
from secea.report.live import ClientRow, Level, Note, View, page

EVIL = "</title></script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PLAIN = View(
    subject="the server · session 3f2a 91c0 … · run 8c1f0f5e-1b2c-4d5e-9f00-1234567890ab",
    at="12:03:51",
    level=Level.FINE,
    word="running",
    sentence="12 of 50 rounds are done.",
    stage="Round 13, stage ready (clients train) since 12:03:11: 40 s of at most 61 min.",
    done=12,
    asked=50,
    facts=(("clients connected", "4 of 5"), ("left (an estimate)", "about 14 min"), ("to clients", "631 MB")),
    notes=(
        Note(Level.PLAIN, "waiting for north to train since 12:03:11: its site answers"),
        Note(Level.WARNING, "west is lost since 12:03:40: unreachable: its site does not answer any more"),
        Note(Level.BAD, "the run failed"),
    ),
    clients=(
        ClientRow("west", "lost: unreachable", "12:03:40", "12", "lost 2 times", Level.WARNING),
        ClientRow("a-hospital-with-a-very-long-name-indeed", "has replied", "2026-11-18 12:03:11", "12", ""),
    ),
)
VIEWS = {
    "running": PLAIN,
    "hostile": replace(
        PLAIN, subject=EVIL, word=EVIL, sentence=EVIL, stage=EVIL, at=EVIL, facts=((EVIL, "x" * 40),),
        notes=(Note(Level.BAD, EVIL), Note(Level.BAD, "x" * 400)), clients=(ClientRow(EVIL, EVIL, EVIL, EVIL, EVIL),),
    ),
    "nothing": View("this site", "12:03:51", Level.PLAIN, "nothing", "no run has begun here yet."),
}  # fmt: skip
OUTSIDE = """
[...document.querySelectorAll('svg, table, h1, h2, p, li, b')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && !e.closest('.scroll') && (box.left < 0 || box.right > innerWidth);
}).map(e => e.tagName + ' ' + e.textContent)
"""


def test_a_page_loads_itself_again_while_somebody_watches_a_run_that_goes_on() -> None:
    assert 'http-equiv="refresh"' in page(PLAIN)
    for over in (page(PLAIN, watched=False), page(replace(PLAIN, over=True))):
        assert 'http-equiv="refresh"' not in over
        assert "This page does not change any more." in over


def test_a_page_holds_no_script_and_nothing_to_load() -> None:
    for view in VIEWS.values():
        text = page(view)
        assert "<script" not in text
        assert "<img" not in text
        assert "default-src &#x27;none&#x27;" in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (800, True), (390, False), (320, True)])
def test_a_page_is_all_in_the_window(browser: Browser, tmp_path: Path, kind: str, width: int, dark: bool) -> None:
    save(page(VIEWS[kind]), path := tmp_path / "run.html")
    browser.open(path, width, dark=dark)
    assert browser.said == []
    assert browser.asked == [path.resolve().as_uri()]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(OUTSIDE) == []
    assert browser.ask("document.title") != "owned"
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 22, 26)" if dark else "rgb(251, 250, 247)")


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
def test_a_browser_shows_what_is_new_by_itself(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REFRESH_SECONDS", 1)
    save(page(PLAIN), path := tmp_path / "run.html")
    browser.open(path, 800)
    save(page(replace(PLAIN, sentence="13 of 50 rounds are done.", over=True)), path)
    while len(browser.asked) < 2:
        browser._message()
    while "13 of 50" not in str(browser.ask("document.body ? document.body.textContent : ''")):
        pass
    assert browser.asked == [path.resolve().as_uri()] * 2
