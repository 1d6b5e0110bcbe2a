"""The ops of the graphs in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from weft_testing.graphs import declared


@pytest.fixture(scope="module", autouse=True)
def ops() -> Iterator[None]:
    """Declare the ops of `weft_testing.graphs`."""
    with declared():
        yield
