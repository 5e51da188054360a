"""The documentation site: built without a warning, loads nothing from elsewhere, and fits a desk and a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from browser import Browser

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*?\s(?:src|href|data)=["']?([^"'\s>]+)"""
)
SEARCH = """
(async () => {
  document.querySelector('[data-md-toggle=search]').click();
  const input = document.querySelector('.md-search__input');
  input.focus();
  input.value = 'rotate revoke';
  for (let i = 0; i < 200; i++) {
    input.dispatchEvent(new Event('keyup', {bubbles: true}));
    await new Promise(done => setTimeout(done, 50));
    const found = [...document.querySelectorAll('.md-search-result__item a')].map(a => a.getAttribute('href'));
    if (found.length) return found;
  }
  return [];
})()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A new one for each test: the site keeps the reader's choice of light or dark."""
    with Browser(tmp_path) as started:
        yield started


def test_no_page_names_anything_from_elsewhere_to_load(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for address in LOADED.findall(page.read_text(encoding="utf-8")):
            assert not re.match(r"[a-z]+:|//", address), f"{page.name} loads {address}"
    for sheet in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text), f"{sheet.name} loads something"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_pages_fit_the_window_and_ask_for_nothing_else(browser: Browser, address: str, width: int, dark: bool) -> None:
    for page in ("index", "tutorial", "operators", "pictures", "protocol", "security", "faq", "api/secea"):
        browser.open(f"{address}/{page}.html", width, dark=dark)
        assert browser.said == [], page
        assert [asked for asked in browser.asked if not asked.startswith((address, "data:"))] == [], page
        assert browser.ask("document.documentElement.scrollWidth") <= width, page
        assert browser.ask("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
        assert browser.ask("[...document.images].filter(image => !image.naturalWidth).length") == 0, page


@pytest.mark.parametrize("served", [True, False])
def test_search_works_without_a_network_on_a_server_and_on_a_disk(
    browser: Browser, address: str, site: Path, served: bool
) -> None:
    browser.open(f"{address}/index.html" if served else site / "index.html", 1280)
    assert any("operators.html" in found for found in browser.ask(SEARCH))
    assert browser.said == []
