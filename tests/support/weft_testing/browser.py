"""Headless Chromium, if it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def chrome(folder: Path) -> Iterator[Any]:
    """Start a browser with its profile in a folder; skip the test if there is none."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium import webdriver

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (
        "--headless=new",
        "--no-sandbox",  # which the root of a container needs
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--disable-quic",
        "--window-size=1400,1000",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        service = webdriver.ChromeService(executable_path=driver)
        with webdriver.Chrome(options=options, service=service) as opened:
            yield opened
