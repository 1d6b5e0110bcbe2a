"""Kernels in CUDA, compiled by the system's C compiler and run thread by thread."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cupy_standin.arrays import ndarray, touched

_SHIM = """
typedef struct { unsigned x, y, z; } weft_dim3;
static weft_dim3 blockIdx, blockDim, threadIdx;
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{ return (unsigned long long)(((unsigned __int128)a * b) >> 64); }
#define __global__
"""


def compiler() -> str | None:
    """The system's C compiler."""
    return shutil.which("cc") or shutil.which("gcc")


@cache
def _compiled(source: str, name: str) -> Any:
    found = re.search(rf'extern "C" __global__ void {name}\((.*?)\)', source, re.S)
    assert found is not None, f"no kernel {name}"
    parameters = [part.strip() for part in found[1].split(",")]
    names = [part.replace("*", " ").split()[-1] for part in parameters]
    loop = (
        f"void weft_run(unsigned blocks, unsigned threads, {', '.join(parameters)}) {{\n"
        "  blockDim.x = threads;\n"
        "  for (unsigned b = 0; b < blocks; b++) for (unsigned t = 0; t < threads; t++)\n"
        f"  {{ blockIdx.x = b; threadIdx.x = t; {name}({', '.join(names)}); }}\n}}\n"
    )
    folder = Path(tempfile.mkdtemp(prefix="weft-cuda-"))
    path = folder / "kernel.c"
    path.write_text(_SHIM + source.replace('extern "C"', "") + loop)
    library = folder / "kernel.so"
    cc = compiler()
    assert cc is not None, "no C compiler"
    subprocess.run([cc, "-O1", "-shared", "-fPIC", "-o", library, path], check=True)
    return ctypes.CDLL(str(library)).weft_run


class RawKernel:
    """As `cupy.RawKernel`."""

    def __init__(self, code: str, name: str, options: Any = (), backend: str = "nvrtc") -> None:
        self._code, self._name = code, name

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        arrays = [arg for arg in args if isinstance(arg, ndarray)]
        touched(self._name, (), arrays)
        values: list[Any] = [ctypes.c_uint(grid[0]), ctypes.c_uint(block[0])]
        for arg in args:
            if isinstance(arg, ndarray):
                values.append(ctypes.c_void_p(arg._a.ctypes.data))
            elif isinstance(arg, np.uint64):
                values.append(ctypes.c_ulonglong(int(arg)))
            else:
                raise TypeError(f"Unsupported type {type(arg)}")
        _compiled(self._code, self._name)(*values)
