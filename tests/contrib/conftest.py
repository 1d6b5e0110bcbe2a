"""Skip these tests if the optional package is not installed."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import weft as wf

if find_spec("weft_contrib") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    """Run each test in a new graph."""
    with wf.Graph().as_default() as graph:
        yield graph
