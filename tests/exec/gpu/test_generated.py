"""Kernels that are made as text: each of them is CUDA to the compiler that CuPy uses."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from weft_exec.gpu.generated import Source
from weft_exec.gpu.kernels import derived, random
from weft_graph.ir.lazy_modules import PackageModules


def _package(name: str) -> Path | None:
    """The folder of one of NVIDIA's packages, or None where it is not installed."""
    try:
        found = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0])


@cache
def _nvrtc() -> Any:
    folder = _package("cuda_nvrtc")
    libraries = sorted(folder.glob("lib/libnvrtc.so.*")) if folder else []
    return ctypes.CDLL(str(libraries[-1])) if libraries else None


@cache
def _architectures() -> list[int]:
    """The oldest architecture that the compiler knows from Volta on, and the newest of Hopper's."""
    count = ctypes.c_int()
    assert _nvrtc().nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    found = (ctypes.c_int * count.value)()
    assert _nvrtc().nvrtcGetSupportedArchs(found) == 0
    known = [number for number in found if 70 <= number <= 90]
    return [min(known), max(known)]


def complaints(text: str, architecture: int) -> str:
    """Return the compiler's messages about a source; empty if it is valid."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    headers = _package("cuda_runtime")
    # As CuPy's, but for the architecture: it asks for machine code for the GPU that it has.
    options = [f"--gpu-architecture=compute_{architecture}", "-std=c++14"]
    options.append("--device-as-default-execution-space")
    if headers is not None:
        options.append(f"-I{headers / 'include'}")
    given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    source = text.encode()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"weft.cu", 0, None, None)
    assert made == 0
    failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    lines = [line for line in log.value.decode().splitlines() if "are deprecated" not in line]
    return "\n".join(lines) or ("failed" if failed else "")


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if _nvrtc() is None:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    if _package("cuda_runtime") is None:
        pytest.skip("nvidia-cuda-runtime, whose headers float16 needs, is not installed")


def _texts() -> list[Any]:
    if _nvrtc() is None:
        return [pytest.param("", id="all")]  # skipped by name
    PackageModules("weft_exec.gpu.kernels").load()
    sources = [pair for source in Source.every for pair in source.texts()]
    made = [pytest.param(text, id=label) for label, text in (*sources, *derived.texts())]
    return [pytest.param(random.SOURCE, id="philox"), *made]


@pytest.mark.parametrize("text", _texts())
def test_a_text_is_cuda(text: str) -> None:
    for architecture in _architectures():
        assert complaints(text, architecture) == ""


def test_what_is_not_cuda_is_found_out() -> None:
    assert "undefined" in complaints('extern "C" __global__ void f() { missing(); }', 90)
