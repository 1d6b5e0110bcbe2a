"""Settings that every test shares: hypothesis profiles, entropy, skipped GPU tests, and garbage."""

from __future__ import annotations

import gc
import os
import random

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


@pytest.fixture(autouse=True)
def entropy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops without seeds draw the same in every run of a test: what fails once fails again."""
    draws = random.Random(request.node.nodeid)
    monkeypatch.setattr(philox, "entropy", lambda: (draws.getrandbits(64), draws.getrandbits(64)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := missing_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Take the items out of what later collections of garbage look at; they live to the end."""
    gc.collect()
    gc.freeze()
