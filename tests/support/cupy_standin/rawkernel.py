"""Kernels in CUDA, compiled by the system's C++ compiler and run thread by thread.

The threads of a block share memory and wait for each other as `cuda_shim.hpp` says. Arguments must
have exactly the types of the kernel's parameters, which CuPy takes on trust.

With `WEFT_STANDIN_SANITIZE` in the environment, kernels are compiled with AddressSanitizer, whose
library must have been loaded before Python was.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

import numpy as np

from cupy_standin.arrays import enqueue, ndarray

_SHIM: Final = (Path(__file__).parent / "cuda_shim.hpp").read_text()
_KERNEL: Final = re.compile(r'extern "C" __global__ void (\w+)\(')
_THREADS: Final = 1024
_lock = threading.Lock()
_libraries: dict[str, Any] = {}


def compiler() -> str | None:
    """Return the system's C++ compiler."""
    return shutil.which("c++") or shutil.which("g++")


def _entries(source: str) -> str:
    together = "true" if "__syncthreads" in source else "false"
    return "\n".join(
        f'extern "C" int weft_run_{name}(void** args, const unsigned* sizes)\n'
        f"{{ return weft_launch({name}, args, sizes, {together}); }}\n"
        f'extern "C" void weft_sign_{name}(char* to) {{ weft_signature({name}, to); }}'
        for name in _KERNEL.findall(source)
    )


def _folder() -> Path:
    """Return the private folder that caches compiled kernels between runs."""
    folder = Path(tempfile.gettempdir()) / f"weft-cuda-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    assert stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid(), f"{folder} is not ours"
    assert not found.st_mode & 0o077, f"others may look into {folder}"
    return folder


def _build(source: str) -> Any:
    cxx = compiler()
    assert cxx is not None, "no C++ compiler"
    body = source.replace("#include <cuda_fp16.h>", "")
    text = "\n".join([_SHIM, "namespace {", body, "}", _entries(source)])
    options = [cxx, "-O1", "-std=c++14", "-shared", "-fPIC", "-w"]
    if "WEFT_STANDIN_SANITIZE" in os.environ:
        options += ["-fsanitize=address", "-g"]
    key = hashlib.sha256("\n".join([*options, text]).encode()).hexdigest()
    library = _folder() / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as scratch:
            path, made = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
            path.write_text(text)
            subprocess.run([*options, "-o", made, path], check=True)
            made.replace(library)
    return ctypes.CDLL(str(library))


def _compiled(source: str) -> Any:
    with _lock:
        if source not in _libraries:
            _libraries[source] = _build(source)
        return _libraries[source]


class RawKernel:
    """Like `cupy.RawKernel`."""

    def __init__(
        self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc"
    ) -> None:
        self._code, self._name = code, name
        self._signature: list[str] | None = None

    def _parameters(self) -> list[str]:
        """Return for each parameter its use and its type: `<f4`, `=i8`."""
        if self._signature is None:
            text = ctypes.create_string_buffer(1024)
            getattr(_compiled(self._code), f"weft_sign_{self._name}")(text)
            self._signature = re.findall("...", text.value.decode())
        return self._signature

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        wanted = self._parameters()
        if len(args) != len(wanted):
            raise TypeError(f"{self._name} takes {len(wanted)} arguments, got {len(args)}")
        pairs = list(zip(args, wanted, strict=True))
        values = [_argument(self._name, arg, parameter) for arg, parameter in pairs]
        read = [arg for arg, parameter in pairs if parameter[0] == "<"]
        written = [arg for arg, parameter in pairs if parameter[0] == ">"]
        sizes = [*grid, *(1,) * (3 - len(grid)), block[0]]
        if not all(size > 0 for size in sizes) or block[0] > _THREADS or len(block) > 1:
            raise ValueError(f"invalid launch of {self._name}: {grid}, {block}")
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        run = getattr(_compiled(self._code), f"weft_run_{self._name}")

        held = [arg._a for arg in args if isinstance(arg, ndarray)], values

        def launch() -> None:
            assert len(held[1]) == len(wanted)
            with _lock:
                apart = run(pointers, (ctypes.c_uint * 4)(*sizes))
            if apart:
                raise AssertionError(f"threads of a block of {self._name} pass different barriers")

        enqueue(self._name, read, written, launch)


def _argument(kernel: str, value: Any, parameter: str) -> Any:
    """Return the ctypes value of an argument, which must be of the parameter's type."""
    dtype: Any = getattr(value, "dtype", None)
    is_array = isinstance(value, ndarray)
    if not isinstance(value, ndarray | np.generic) or is_array == (parameter[0] == "="):
        raise TypeError(f"{kernel}: requires {parameter}, got {type(value)}")
    if f"{dtype.kind}{dtype.itemsize}" != parameter[1:]:
        raise TypeError(f"{kernel}: requires {parameter}, got {dtype}")
    if isinstance(value, ndarray):
        if not value._a.flags.c_contiguous:
            raise ValueError(f"{kernel}: an array is not in C order")
        return ctypes.c_void_p(value._a.ctypes.data)
    return np.ctypeslib.as_ctypes(np.array(value))
