"""What all tests of clusters share."""

from collections.abc import Iterator

import pytest

import weft as wf


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    """A graph of its own for each test."""
    with wf.Graph().as_default() as graph:
        yield graph
