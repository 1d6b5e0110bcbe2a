"""The stand-in for CuPy, for the tests of this folder that need no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cupy_standin import Machine, installed
from cupy_standin.rawkernel import compiler

import weft as wf


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """One GPU of the stand-in, or as many and as large as the marker `gpus` says."""
    if compiler() is None:
        pytest.skip("no C compiler for the stand-in's kernels")
    marker = request.node.get_closest_marker("gpus")
    with installed(Machine(*(marker.args if marker else ()))) as found:
        yield found


@pytest.fixture
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made
