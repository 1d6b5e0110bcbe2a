"""The viewer page: it is built from its sources, reads traces, and works in a browser."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.browser import chrome
from weft_testing.synthetic_trace import Cluster, Settings, random_settings, write_cluster
from weft_testing.traces import record_two_tasks
from weft_testing.waiting import wait_until
from weft_testing.workspace import ROOT

from weft_trace import (
    EVENT,
    Flag,
    Kind,
    Lane,
    LaneKind,
    Node,
    Process,
    Step,
    TraceError,
    Writer,
    load,
    server,
    writer,
)
from weft_trace.page import server_page, write_page
from weft_trace.server import TraceServer

VIEWER = ROOT / "packages" / "trace" / "viewer"
NODE = shutil.which("node")
HOSTILE = '</script><img src=x onerror="document.title=1">\u202e<b>'
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def viewer() -> str:
    return resources.files("weft_trace.page").joinpath("viewer.html").read_text(encoding="utf-8")


def test_the_page_is_built_from_the_sources() -> None:
    names = [p.relative_to(VIEWER).as_posix() for p in (VIEWER / "src").rglob("*") if p.is_file()]
    digest = hashlib.sha256()
    for name in sorted([*names, "build.mjs", "package-lock.json", "package.json"]):
        digest.update(f"{name}\0".encode() + (VIEWER / name).read_bytes() + b"\0")
    stamp = f"(sources {digest.hexdigest()})"
    advice = "run npm ci and npm run build in packages/trace/viewer"
    assert stamp in viewer(), advice
    assert stamp in (VIEWER / "lib" / "core.mjs").read_text(encoding="utf-8"), advice


@needs_node
@pytest.mark.skipif(not (VIEWER / "node_modules").exists(), reason="npm ci was not run")
def test_types_and_a_new_build(tmp_path: Path) -> None:
    subprocess.run([VIEWER / "node_modules/.bin/tsc", "--noEmit"], cwd=VIEWER, check=True)
    subprocess.run([str(NODE), "build.mjs", str(tmp_path)], cwd=VIEWER, check=True)
    assert (tmp_path / "viewer.html").read_text(encoding="utf-8") == viewer()
    assert (tmp_path / "core.mjs").read_bytes() == (VIEWER / "lib" / "core.mjs").read_bytes()


def test_the_page_makes_no_request() -> None:
    page = viewer()
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert len(policy) == 1
    assert "default-src 'none'" in policy[0]
    assert "connect-src 'none'" in policy[0]
    assert "unsafe-inline" not in policy[0].partition("style-src")[0]
    assert not re.search(r'\b(src|href)="?https?:', page)
    assert len(page) < 300_000
    assert b"connect-src 'self'" in server_page()


def test_strings_are_not_inserted_as_markup() -> None:
    for path in (VIEWER / "src").rglob("*.ts*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write", text), (
            path
        )


def test_a_page_holds_one_or_two_traces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no trace")
    with pytest.raises(TraceError, match="is not a trace of weft"):
        write_page(tmp_path / "page.html", [tmp_path / "a"])
    with pytest.raises(ValueError, match="one or two traces, got 0"):
        write_page(tmp_path / "page.html", [])
    assert not (tmp_path / "page.html").exists()


def write_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a trace that has levels of detail, as those of a million events do."""
    for name, least in (("MIN_EVENTS", 1000), ("MIN_SAMPLES", 1000), ("_ROWS", 1 << 12)):
        monkeypatch.setattr(writer, name, least)
    write_cluster(path, Cluster(Settings(workers=1, nodes=24), 3), steps=8, events=60_000)


@needs_node
def test_parsing_and_analysis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = []
    for seed in range(8):
        settings = replace(random_settings(seed), clock_offset=0)
        path = tmp_path / f"{seed}.weft-trace"
        truth = write_cluster(path, Cluster(settings, seed), 2)
        read = load(path)
        events = read.events
        sums = {n: str(events[n].astype(object).sum()) for n in EVENT.names or ()}
        paths = [[list(map(int, key)) for key in path] for path in truth.paths]
        cases.append(
            {
                "name": path.name,
                "paths": paths,
                "step_ns": truth.step_ns,
                "sums": {**sums, "count": len(events)},
                "samples": int(read.samples["value"].sum()),
            }
        )
    write_large(tmp_path / "large.weft-trace", monkeypatch)
    (tmp_path / "truth.json").write_text(json.dumps(cases), encoding="utf-8")
    tests = sorted(map(str, (VIEWER / "test").glob("*.test.mjs")))
    environment = os.environ | {"WEFT_TRACES": str(tmp_path)}
    result = subprocess.run(
        [str(NODE), "--test", *tests], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert "# skipped 0" in result.stdout


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chrome(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


class Page:
    """The viewer in a browser."""

    def __init__(self, browser: Any, path: Path | None = None) -> None:
        self.browser = browser
        if path is not None:
            browser.get(path.as_uri())

    def run(self, expression: str, *arguments: Any) -> Any:
        return self.browser.execute_script(f"return {expression}", *arguments)

    def wait(self, expression: str) -> None:
        wait_until(lambda: self.run(expression))

    def wait_for_trace(self) -> None:
        self.wait("Number(document.querySelector('.timeline canvas')?.dataset.end) > 0")

    def text(self, selector: str) -> str:
        return str(self.run("document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def click(self, selector: str, text: str = "") -> None:
        self.run(
            "[...document.querySelectorAll(arguments[0])]"
            ".find(e => e.textContent.includes(arguments[1])).click()",
            selector,
            text,
        )

    def press(self, keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).send_keys(keys).perform()

    def click_at(self, x: float, y: float) -> None:
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.browser)
        actions.pointer_action.move_to_location(round(x), round(y)).click()
        actions.perform()

    def search(self, query: str) -> None:
        field = self.browser.find_element("id", "search")
        field.clear()
        field.send_keys(query + "\n\n")
        self.wait("document.querySelector('.timeline canvas').dataset.selected !== ''")
        self.run("document.activeElement.blur()")

    def span(self) -> float:
        data = self.run("document.querySelector('.timeline canvas').dataset")
        return float(data["end"]) - float(data["begin"])

    def selected(self) -> str:
        return self.text(".details h2")

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


def test_a_recorded_trace_of_two_tasks_with_a_loop(browser: Any, tmp_path: Path) -> None:
    """Opens, zooms, follows an arrow from task to task, and shows the critical path."""
    record_two_tasks(tmp_path / "run.weft-trace", steps=3)
    write_page(tmp_path / "page.html", [tmp_path / "run.weft-trace"])
    page = Page(browser, tmp_path / "page.html")
    page.wait_for_trace()
    wait_until(lambda: page.run("document.querySelectorAll('.path .row.link').length") > 5)
    assert "wire" in page.text(".legend")
    whole = page.span()
    page.click(".step")
    wait_until(lambda: page.span() < whole)
    # Back from a value that the worker received in the loop: its transfer, the Send, the product.
    page.search("node:product op:_Recv")
    assert "rnn" in page.text(".details") and "worker" in page.text(".details")
    steps = []
    for _ in range(3):
        before = page.text(".details")
        page.press(",")
        wait_until(lambda before=before: page.text(".details") != before)
        steps.append(page.text(".details"))
    assert "transfer" in steps[0] and "_Send" in steps[1]
    assert "MatMul" in steps[2] and "job:ps" in steps[2]
    assert page.errors() == []


def test_a_synthetic_trace_of_two_tasks_with_a_loop(browser: Any, tmp_path: Path) -> None:
    """All panels have contents."""
    settings = Settings(servers=1, workers=1, nodes=12, iterations=3)
    write_cluster(tmp_path / "run.weft-trace", Cluster(settings, 3), 4)
    write_page(tmp_path / "page.html", [tmp_path / "run.weft-trace"])
    page = Page(browser, tmp_path / "page.html")
    page.wait_for_trace()
    assert "run.weft-trace" in page.text("header h1")
    # The critical path of the selected step.
    assert "compute" in page.text(".legend")
    assert page.run("document.querySelectorAll('.path .row.link').length") > 5
    # Zoom from the whole trace to a step, and from there to 100 ns.
    whole = page.span()
    page.click(".step")
    wait_until(lambda: page.span() < whole)
    zoom_in = (
        "for (let i = 0; i < 90; i++) document.querySelector('.timeline canvas').dispatchEvent("
        "new WheelEvent('wheel', {deltaY: -200, clientX: 600, clientY: 200, cancelable: true}))"
    )
    browser.execute_script(zoom_in)
    wait_until(lambda: page.span() <= 100)
    page.press("0")
    wait_until(lambda: page.span() >= whole * 0.9)
    # A Receive waited for its transfer, and that for its Send; the arrows lead there.
    page.search("op:_Recv")
    assert page.selected().endswith("_Recv")
    assert "Waited for" in page.text(".details")
    page.press(",")
    wait_until(lambda: page.selected().endswith(";0:0"))
    page.press(",")
    wait_until(lambda: "_Send" in page.selected() or "_Recv" in page.selected())
    # An execution in a loop names its iteration.
    page.search("rnn/cell/MatMul")
    assert "rnn #0" in page.text(".details")
    # All panels have contents.
    for tab, selector in {
        "Steps": ".steps canvas",
        "Scopes": ".flame button:nth-child(4)",
        "Memory": ".halves .row.link",
        "Search": ".row.link",
        "Critical path": ".path .row.link",
    }.items():
        page.click("[role=tab]", tab)
        page.wait(f"document.querySelector({selector!r}) !== null")
    assert page.run("performance.getEntriesByType('resource').length") == 0
    assert page.errors() == []


def test_two_traces_are_aligned_by_step(browser: Any, tmp_path: Path) -> None:
    for name, scale in (("fast", 1.0), ("slow", 3.0)):
        settings = Settings(servers=1, workers=1, nodes=12, scales={"Conv2D": scale})
        write_cluster(tmp_path / name, Cluster(settings, 3), 2)
    write_page(tmp_path / "page.html", [tmp_path / "fast", tmp_path / "slow"])
    page = Page(browser, tmp_path / "page.html")
    page.wait("document.querySelector('[role=tab][aria-selected=true]')?.textContent === 'Compare'")
    page.wait("document.querySelector('.panel .row.link') !== null")
    assert page.text(".panel .row.link .name") == "Conv2D"
    assert page.run("document.querySelector('.panel .row.link .worse') !== null")


def test_strings_of_traces_are_text(browser: Any, tmp_path: Path) -> None:
    """Names, ops, lines, hosts and file names that are markup appear as they are."""
    path = tmp_path / "a&b.weft-trace"
    with Writer(path) as writer:
        process = writer.process(Process(HOSTILE, 7, HOSTILE))
        lane = writer.lane(Lane(process, LaneKind.THREAD, HOSTILE))
        node = writer.node(Node(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (), (HOSTILE,)))
        step = writer.step(Step(process, HOSTILE, 0))
        events = np.zeros(3, EVENT)
        events["kind"] = [Kind.STEP, Kind.KERNEL, Kind.KERNEL]
        events["lane"], events["node"], events["step"] = lane, node, step
        events["flags"] = [0, Flag.ESTIMATED, Flag.FAILED]
        events["start"] = events["ready"] = [1000, 1000, 3000]
        events["end"] = [5000, 2000, 4000]
        writer.events(events)
    write_page(tmp_path / "page.html", [path])
    page = Page(browser, tmp_path / "page.html")
    page.wait_for_trace()
    page.search("onerror")
    shown = HOSTILE.replace("\u202e", "\ufffd")
    wait_until(lambda: shown in page.selected())
    seen = set()
    for _ in range(3):
        seen |= {"estimated" * ("≈" in page.text(".details")), page.text(".badge.failed")}
        page.press("n")
    assert {"estimated", "failed"} <= seen
    for tab in ("Steps", "Scopes", "Memory", "Search", "Compare"):
        page.click("[role=tab]", tab)
    assert page.run("document.title") == "weft trace"
    assert page.run("document.querySelectorAll('img, b b').length") == 0
    assert html.escape(path.name) in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.errors() == []


def test_damage_is_shown(browser: Any, tmp_path: Path) -> None:
    write_cluster(tmp_path / "run", Cluster(Settings(workers=1, nodes=8), 1), 1)
    whole = (tmp_path / "run").read_bytes()
    (tmp_path / "torn").write_bytes(whole[:-20])
    write_page(tmp_path / "torn.html", [tmp_path / "torn"])
    page = Page(browser, tmp_path / "torn.html")
    page.wait("document.querySelector('[role=alert]') !== null")
    assert re.search(r"torn: the last \d+ bytes, .* were not read", page.text("[role=alert]"))
    # A file that became something else after the page was written.
    text = (tmp_path / "torn.html").read_text(encoding="utf-8")
    (tmp_path / "foreign.html").write_text(re.sub(r'(data-name="torn">)\w{4}', r"\1AAAA", text))
    page = Page(browser, tmp_path / "foreign.html")
    page.wait("document.querySelector('[role=alert]') !== null")
    assert "torn is not a trace of weft" in page.text("[role=alert]")


HOVER = """
// Return the place of an event: each call looks at the next place, and for the tooltip of the last.
const canvas = document.querySelector('.timeline canvas');
const box = canvas.getBoundingClientRect();
const last = window.hovered ?? {x: 240, y: 120};
if (document.querySelector('.tooltip')) return [box.left + last.x, box.top + last.y];
const x = last.x + 24;
window.hovered = x < box.width ? {x, y: last.y} : {x: 240, y: 120 + (last.y - 111) % 200};
canvas.dispatchEvent(new PointerEvent('pointermove', {
  clientX: box.left + window.hovered.x, clientY: box.top + window.hovered.y, bubbles: true,
}));
return null;
"""


def check_parts(page: Page, trace: Path) -> None:
    """Check a trace of which the page reads only the visible parts."""
    count = len(load(trace).events)
    page.wait("performance.getEntriesByName('step').length > 0")
    assert f"{count:,} events" in page.text("header h1")
    page.wait("document.querySelectorAll('.path .row.link').length > 5")
    whole = page.span()
    # A step far away is read when it is selected.
    first = page.text(".step")
    for _ in range(3):
        page.press("[")
    wait_until(lambda: page.text(".step") != first and page.span() < whole / 2)
    page.wait("document.querySelectorAll('.path .row.link').length > 5")
    # So is what is visible: events appear after zooming in anywhere, and can be selected.
    page.press("0")
    wait_until(lambda: page.span() >= whole * 0.9)
    page.browser.execute_script(
        "for (let i = 0; i < 10; i++) document.querySelector('.timeline canvas').dispatchEvent("
        "new WheelEvent('wheel', {deltaY: -200, clientX: 230, clientY: 200, cancelable: true}))"
    )
    wait_until(lambda: page.browser.execute_script(HOVER))
    page.click_at(*page.browser.execute_script(HOVER))
    wait_until(page.selected)
    page.search("op:MatMul")
    assert "near the selected step" in page.text(".panel")


def test_a_large_trace_is_read_in_parts(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_large(tmp_path / "run", monkeypatch)
    monkeypatch.setattr("weft_trace.page._PART_BYTES", 1 << 16)
    write_page(tmp_path / "page.html", [tmp_path / "run"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count('id="part-0-') > 3
    assert text.index("<script>") < text.index('id="part-0-0"')
    page = Page(browser, tmp_path / "page.html")
    check_parts(page, tmp_path / "run")
    assert page.errors() == []


def test_a_large_trace_of_the_local_server(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_large(tmp_path / "run", monkeypatch)
    monkeypatch.setattr(server, "_MAX_EXACT_EVENTS", 1000)
    with TraceServer([tmp_path / "run"], server_page()) as opened:
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        try:
            browser.get(opened.url)
            check_parts(Page(browser), tmp_path / "run")
        finally:
            opened.stop()
            thread.join()


def test_a_trace_of_the_local_server(browser: Any, tmp_path: Path) -> None:
    write_cluster(tmp_path / "run", Cluster(Settings(workers=1, nodes=8), 1), 3)
    with TraceServer([tmp_path / "run"], server_page()) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser.get(server.url)
            page = Page(browser)
            page.wait_for_trace()
            page.click("[role=tab]", "Steps")
            page.wait("document.querySelector('.steps canvas') !== null")
            assert "3 steps" in page.text(".steps")
            first = page.text(".step")
            page.press("[")
            wait_until(lambda: page.text(".step") != first)
            missing = "1/info.json"  # the page asks for a second trace
            assert [error for error in page.errors() if missing not in error] == []
        finally:
            server.stop()
            thread.join()
