"""TensorBoard on event files, and a browser on it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT = 60  # seconds for anything to appear

# All elements that match, through the shadow roots that web components have.
ALL = """
function all(selector, root, found) {
  found = found || [];
  for (const element of (root || document).querySelectorAll('*')) {
    if (element.matches(selector)) found.push(element);
    if (element.shadowRoot) all(selector, element.shadowRoot, found);
  }
  return found;
}
function parts(selector, inner) {
  return all(selector).flatMap(e => all(inner, e.shadowRoot || e));
}
function text(element) { return element.textContent.trim(); }
function deep(node) {
  if (node.nodeType == Node.TEXT_NODE) return node.data;
  if (node.nodeName == 'STYLE') return '';
  return [...(node.shadowRoot || node).childNodes].map(deep).join('');
}
function click(element) { element.dispatchEvent(new MouseEvent('click', {bubbles: true})); }
"""


class Page:
    """A browser on a TensorBoard."""

    def __init__(self, driver: Any, url: str, pictures: Path) -> None:
        self.driver = driver
        self.url = url
        self.pictures = pictures

    def open(self, name: str) -> None:
        self.driver.get(f"{self.url}#{name}")

    def do(self, script: str) -> Any:
        return self.driver.execute_script(ALL + script)

    def poll(self, expression: str, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        value = None
        while not value and time.monotonic() < deadline:
            value = self.do(f"return {expression}")
            time.sleep(0.05)
        return value

    def wait(self, expression: str, action: str = "") -> Any:
        """Wait until a JavaScript expression is true; return its value.

        Args:
          action: what makes it true; done again if it does not, for a page that builds itself anew
            forgets what was clicked.
        """
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            self.do(action)
            value = self.poll(expression, 4 if action else LIMIT)
            if value:
                return value
        self.picture("failed")
        raise AssertionError(f"not within {LIMIT} s: {expression}; see {self.pictures}/failed.png")

    def settle(self) -> None:
        """Wait until two screenshots in succession are equal: animations have ended."""
        deadline = time.monotonic() + LIMIT
        before = b""
        while before != (before := self.driver.get_screenshot_as_png()):
            assert time.monotonic() < deadline, "the page does not come to rest"
            time.sleep(0.5)

    def picture(self, name: str) -> None:
        assert self.driver.save_screenshot(str(self.pictures / f"{name}.png"))


@contextmanager
def serve(logs: Path) -> Iterator[str]:
    """Start a TensorBoard on a folder of runs, and yield its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logs.name]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0"],
        cwd=logs.parent,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    output = []
    try:
        for line in process.stderr:
            output.append(line)
            if address := re.search(r" at (http://\S+)", line):
                drain = threading.Thread(target=process.stderr.read, daemon=True)
                drain.start()
                yield address[1]
                return
        raise AssertionError("TensorBoard did not start:\n" + "".join(output))
    finally:
        process.terminate()
        process.wait()
