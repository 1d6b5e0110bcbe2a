"""A stand-in for CuPy over NumPy, at least as strict as CuPy.

`install` puts it in CuPy's place. Its arrays refuse to be taken for NumPy's, and it refuses
NumPy's arrays; it has those functions, arguments and element types alone that CuPy 14.2 has, as
written down in `surface.json`. Streams and events do nothing but tell who waits for whom: whatever
touches memory that another stream may still be using raises `RaceError`. Kernels in CUDA are
compiled by the system's C compiler. It shows nothing about a real GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from cupy_standin import arrays, cublas, cuda, functions, nccl, rawkernel
from cupy_standin.cuda import Machine, RaceError, machine

__all__ = ["Machine", "RaceError", "install", "installed", "machine"]


def _module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    made.__dict__.update(content)
    return made


def install(found: Machine) -> dict[str, ModuleType]:
    """Make `import cupy` and `import cupyx` find the stand-in, on a simulated machine with GPUs."""
    cuda.plug_in(found)
    special = _module("cupyx.scipy.special", **functions.special_functions())
    cupy = _module(
        "cupy",
        ndarray=arrays.ndarray,
        RawKernel=rawkernel.RawKernel,
        cuda=cuda.namespace(),
        linalg=functions.linear_algebra(),
        fft=functions.transforms(),
        lib=functions.library(),
        **functions.all_functions(),
    )
    scipy = _module("cupyx.scipy", special=special)
    cupyx = _module("cupyx", empty_pinned=cuda.empty_pinned, scipy=scipy)
    modules = {
        "cupy": cupy, "cupyx": cupyx, "cupyx.scipy": scipy, "cupyx.scipy.special": special,
        "cupy.cuda.nccl": _module("cupy.cuda.nccl", **nccl.content(found.nccl)),
    }  # fmt: skip
    sys.modules.update(modules)
    return modules


@contextmanager
def installed(found: Machine | None = None) -> Iterator[Machine]:
    """Install the stand-in inside a block, and make weft detect GPUs again."""
    from weft_exec.gpu import captured_matmul, cudnn, discovery

    found = found or Machine()
    load, captured_matmul.load = captured_matmul.load, cublas.Cublas
    captured_matmul.forget()
    before = {name: sys.modules.get(name) for name in sys.modules if name.split(".")[0] == "cupy"}
    discovery.forget()
    cudnn.forget()
    modules = install(found)
    try:
        yield found
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update({k: v for k, v in before.items() if v is not None})
        captured_matmul.load = load
        captured_matmul.forget()
        discovery.forget()
        cudnn.forget()
