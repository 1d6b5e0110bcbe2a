"""The stand-in for CuPy, for tests that need no GPU, and GPUs for those that do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from cupy_standin import Machine, installed
from cupy_standin.rawkernel import compiler

import weft as wf


@pytest.fixture(autouse=True)
def kernels_of_the_stand_in(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in loads no PTX, so nothing is compiled for it but where a test makes it do so."""
    chosen = getattr(request.node, "callspec", None)
    if "machine" in request.fixturenames or (
        chosen is not None and chosen.params.get("somewhere") == "stand-in"
    ):
        monkeypatch.setenv("WEFT_JIT", "asked")


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """One GPU of the stand-in, or as many and as large as the marker `gpus` says."""
    if compiler() is None:
        pytest.skip("no C compiler for the stand-in's kernels")
    marker = request.node.get_closest_marker("gpus")
    with installed(Machine(*(marker.args if marker else ()))) as found:
        yield found


@pytest.fixture(scope="session")
def gpu_count() -> int:
    """Return the number of GPUs that CuPy finds."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError:
        return 0


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def somewhere(request: pytest.FixtureRequest) -> str:
    """The stand-in, and a GPU where there is one."""
    if request.param == "stand-in":
        request.getfixturevalue("machine")
    elif not request.getfixturevalue("gpu_count"):
        pytest.skip("no GPU")
    return str(request.param)


@pytest.fixture
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made
