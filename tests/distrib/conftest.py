"""Fixtures of all tests of clusters."""

from collections.abc import Iterator

import pytest

import weft as wf


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    """Run each test in a new graph."""
    with wf.Graph().as_default() as graph:
        yield graph
