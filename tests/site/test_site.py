"""The built site in a browser: navigation, search, pictures, a phone's width, the dark palette.

`hatch run docs:build` writes the site; without it these tests are skipped.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from weft_testing.browser import chrome
from weft_testing.waiting import wait_until
from weft_testing.workspace import ROOT

SITE = ROOT / "site"
GROUPS = ["Start", "Guides", "Train at scale", "Deploy", "Reference", "Internals"]
FIRST = {  # a query, and the entry that the search shows first
    "layers.conv2d": "wf.layers.conv2d",
    "lite.Converter": "wf.lite.Converter",
    "train.Server": "wf.train.Server",
    "Saver": "wf.train.Saver",
}
DRAWING = re.compile(r"\]\([^)]*drawings/")
ILLUSTRATED = {  # the address of each page with a drawing, and the number of its drawings
    f"{path.relative_to(ROOT / 'docs').with_suffix('')}/": len(DRAWING.findall(text))
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if DRAWING.search(text := path.read_text(encoding="utf-8"))
}
PICTURES = """
return [...document.querySelectorAll('article img')].map(image =>
  [image.getAttribute('src'), image.complete && image.naturalWidth > 0, image.clientWidth,
   image.closest('article').clientWidth, image.alt]);
"""
pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="the site is not built: hatch run docs:build"
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chrome(tmp_path_factory.mktemp("chrome")) as opened:
        yield opened


def _all(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def test_each_group_of_the_navigation_opens_a_page(browser: Any, address: str) -> None:
    browser.get(address)
    links = {link.text: link.get_attribute("href") for link in _all(browser, ".md-tabs__link")}
    assert list(links) == GROUPS
    for group, target in links.items():
        browser.get(target)
        active = [tab.text for tab in _all(browser, ".md-tabs__item--active")]
        assert active == [group]
        assert _all(browser, "article h1")


@pytest.mark.parametrize("query", FIRST)
def test_search_finds_a_name_first(browser: Any, address: str, query: str) -> None:
    browser.get(f"{address}/?q={query}")
    wait_until(lambda: _all(browser, ".md-search-result__item"))
    headings = _all(browser, ".md-search-result__item:first-child :is(h1, h2)")
    page, entry = [heading.get_attribute("textContent").strip() for heading in headings[:2]]
    assert entry == FIRST[query]
    assert page == entry.rpartition(".")[0]


@pytest.mark.parametrize("page", ILLUSTRATED)
def test_pictures_load_and_fit_their_page(browser: Any, address: str, page: str) -> None:
    browser.get(f"{address}/{page}")
    complete = "return [...document.querySelectorAll('article img')].every(image => image.complete)"
    wait_until(lambda: browser.execute_script(complete))
    pictures = browser.execute_script(PICTURES)
    assert len(pictures) == ILLUSTRATED[page]
    for source, loaded, width, room, alt in pictures:
        assert loaded, source
        assert 200 < width <= room, source
        assert alt, source


@pytest.mark.parametrize(
    "page", ["", "tutorial/", "compiler/", "differences/", "devices/", "summaries/", "api/graph/"]
)
def test_pages_fit_a_phone(browser: Any, address: str, page: str) -> None:
    browser.set_window_size(500, 900)
    try:
        browser.get(f"{address}/{page}")
        width = "return [document.documentElement.scrollWidth, window.innerWidth]"
        needed, there = browser.execute_script(width)
        assert needed <= there
        assert _all(browser, ".md-header label[for=__drawer]")[0].is_displayed(), (
            "the menu can be opened"
        )
    finally:
        browser.set_window_size(1400, 1000)


def test_the_dark_palette(browser: Any, address: str) -> None:
    def dark(scheme: str) -> Any:
        feature = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
        browser.execute_script("localStorage.clear()")  # the palette of an earlier visit
        browser.get(address)
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    light, shaded = dark("light"), dark("dark")
    assert light == "rgb(255, 255, 255)"
    assert sum(map(int, shaded[4:-1].split(","))) < 200


def test_nothing_comes_from_other_hosts(browser: Any, address: str) -> None:
    browser.get(f"{address}/tutorial/")
    names = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert all(name.startswith(address) for name in browser.execute_script(names))
