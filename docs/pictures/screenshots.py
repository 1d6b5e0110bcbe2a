"""Screenshots of TensorBoard and of the page of `Session.explain`, through Chromium."""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import event_files
import numpy as np
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from weft_testing.browser import chrome
from weft_testing.tensorboard import Page, serve
from weft_testing.traces import PS, WORKER, record_two_tasks
from weft_testing.waiting import wait_until

import weft as wf
from weft_trace.page import write_page

COLORS = 128
MOST_BYTES = 150_000
_PANES = {  # a dashboard, and the expression that is true when it is complete
    "scalars": f"parts('vz-line-chart2', 'path').filter(p => (p.getAttribute('d') || '')"
    f".split(/[LC]/).length >= {event_files.STEPS}).length >= 2",
    "histograms": "parts('vz-histogram-timeseries', 'g.histogram').length >= 40",
    "graphs": "parts('tf-graph-scene', 'g.node').map(n => n.dataset.name).includes('hidden')",
}


_HAS_STEP = "return document.querySelector('.step') !== null"
_HAS_NO_SEARCH = "return document.querySelector('[role=tabpanel] code') !== null"
_IS_SELECTED = "return document.querySelector('.details h2') !== null"
_TAB = (
    "[...document.querySelectorAll('[role=tab]')].find(e => e.textContent == arguments[0]).click()"
)
_ZOOM_OUT = (
    "for (let i = 0; i < 6; i++) document.querySelector('.timeline canvas').dispatchEvent("
    "new WheelEvent('wheel', {deltaY: 200, clientX: 600, clientY: 200, cancelable: true}))"
)


def tensorboard(folder: Path) -> None:
    """Write the pictures of TensorBoard's dashboards."""
    with tempfile.TemporaryDirectory() as scratch:
        logs = Path(scratch) / "logs"
        event_files.write(logs / "run")
        with _browser(Path(scratch)) as browser, serve(logs) as url:
            page = Page(browser, url, Path(scratch))
            for name, complete in _PANES.items():
                page.open(name)
                page.wait(complete)
                page.settle()
                _save(browser, folder / f"tensorboard-{name}.png")


def explain(folder: Path) -> None:
    """Write the picture of the page of `Session.explain`."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "step.html"
        path.write_text(explain_page(), encoding="utf-8")
        with _browser(Path(scratch)) as browser:
            browser.get(path.as_uri())
            _save(browser, folder / "explain.png")


def viewer(folder: Path) -> None:
    """Write the pictures of the page that shows traces."""
    with tempfile.TemporaryDirectory() as scratch:
        traces = [Path(scratch) / f"{name}.weft-trace" for name in ("before", "after")]
        for trace, device in zip(traces, (PS, WORKER), strict=True):
            record_two_tasks(trace, device)
        with _browser(Path(scratch)) as browser:
            browser.set_window_size(1180, 860)
            _show(browser, Path(scratch), traces[:1])
            browser.execute_script("document.querySelector('.step').click()")
            _settle(browser)
            _save(browser, folder / "viewer-step.png")
            browser.find_element("id", "search").send_keys("node:product op:_Recv\n")
            wait_until(lambda: browser.execute_script(_IS_SELECTED))
            browser.find_element("id", "search").send_keys(Keys.CONTROL + "a", Keys.DELETE)
            wait_until(lambda: browser.execute_script(_HAS_NO_SEARCH))
            browser.execute_script("document.activeElement.blur()")
            for key in (",", "f"):
                ActionChains(browser).send_keys(key).perform()
            browser.execute_script(_ZOOM_OUT)
            browser.execute_script(_TAB, "Scopes")
            _settle(browser)
            _save(browser, folder / "viewer-wait.png")
            _show(browser, Path(scratch), traces)
            browser.execute_script("document.querySelector('.step').click()")
            _settle(browser)
            _save(browser, folder / "viewer-compare.png")


def _show(browser: Any, folder: Path, traces: list[Path]) -> None:
    """Open a page with traces."""
    page = folder / f"{len(traces)}.html"
    write_page(page, traces)
    browser.get(page.as_uri())
    wait_until(lambda: browser.execute_script(_HAS_STEP))


def viewer_fingerprint() -> str:
    """Return a hash of the page that shows traces, without the hash of its sources."""
    page = resources.files("weft_trace.page").joinpath("viewer.html").read_text(encoding="utf-8")
    return hashlib.sha256(re.sub(r"sources \w+", "", page).encode()).hexdigest()


def _settle(browser: Any) -> None:
    """Wait for two frames."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


@contextmanager
def _browser(folder: Path) -> Iterator[Any]:
    with chrome(folder) as browser:
        browser.set_window_size(1180, 800)
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        yield browser


def _save(browser: Any, path: Path) -> None:
    """Save the window with few colors.

    Raises:
      ValueError: the file is larger than `MOST_BYTES`.
    """
    image = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    image.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{path.name} has {size:,} bytes, at most {MOST_BYTES:,} are allowed")


def explain_page() -> str:
    """Return the page of a compiled training step, as `docs/compiler.md` builds it."""
    wf.config.optimizer.set_jit(True)
    try:
        with wf.Graph().as_default(), wf.Session() as session:
            wf.set_random_seed(1)
            images = wf.placeholder(wf.float32, [None, 256], name="images")
            weights = wf.get_variable("weights", [256, 64])
            probabilities = wf.nn.softmax(wf.matmul(images, weights))
            loss = wf.reduce_mean(wf.square(probabilities), name="loss")
            train = wf.train.AdamOptimizer().minimize(loss)
            session.run(wf.global_variables_initializer())
            feeds = {"images:0": np.ones([512, 256], np.float32)}
            report = session.explain([train, loss], feed_dict=feeds)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "step.html"
                report.write(path)
                return path.read_text(encoding="utf-8")
    finally:
        wf.config.optimizer.set_jit(None)


def fingerprint(page: str) -> str:
    """Return a hash of an explain page without its numbers, its loops and its assembly."""
    page = re.sub(r"<pre\b.*?</pre>", "<pre></pre>", page, flags=re.S)
    page = re.sub(r"machine code (compiled|read from the disk)", "machine code", page)
    page = re.sub(r"[\d.,]+|–", "#", page)
    return hashlib.sha256(page.encode()).hexdigest()
