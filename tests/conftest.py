"""Settings that every test shares: hypothesis profiles, entropy, skipped GPU tests, and garbage."""

from __future__ import annotations

import gc
import os
import random
import signal
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from weft_testing.gpus import missing_gpu

from weft_exec.kernels import philox

# A shared machine may stall any single example, so there is no deadline per example; the
# timeout per test stays. Examples are derandomised: a failure in one run fails in the next.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# What a program does by default, to compile in the background what repays it, depends on how long
# things took, and so would the last bits of results and what memory is at a peak. Tests of the
# compiler ask for it; `WEFT_JIT=on` and `now` run all others with it.
os.environ.setdefault("WEFT_JIT", "asked")


def seed(name: str) -> None:
    """Seed all random numbers without an explicit seed."""
    draws = random.Random(name)
    philox.random_key = lambda: (draws.getrandbits(64), draws.getrandbits(64))
    random.seed(name)
    np.random.seed(zlib.crc32(name.encode()))


@pytest.fixture(autouse=True)
def entropy(request: pytest.FixtureRequest) -> None:
    """Make each test draw the same random numbers in every run."""
    seed(request.node.nodeid)


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable WEFT_JIT settings for tests of guarantees that only kernels give.

    Kernels return equal bits in every order, thread and graph, and use the estimated memory.
    Compiled code sums in other orders, which depend on the nodes that are compiled together, and
    keeps fewer values.
    """
    if request.node.get_closest_marker("kernels"):
        monkeypatch.setenv("WEFT_JIT", "asked")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> None:
    """Seed fixtures that several tests share."""
    if fixturedef.scope != "function":
        seed(f"{request.node.nodeid} {fixturedef.argname}")


def pytest_configure() -> None:
    """Let SIGINT raise KeyboardInterrupt where the caller ignores it, as shells do in `pytest &`.

    Programs that tests start inherit an ignored signal, and would never end by one that a test
    sends.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := missing_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection during collection, which saves a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude the collected items from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exclude loaded modules and shared fixtures from later garbage collections.

    Sessions and allocators that run out of memory collect all garbage, as many tests do.
    """
    if nextitem is not None and nextitem.path.parent != item.path.parent:
        gc.collect()
        gc.freeze()
