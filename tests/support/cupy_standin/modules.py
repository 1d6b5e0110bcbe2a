"""PTX modules, whose kernels' LLVM IR runs on the host.

PTX itself is not run: who assembles it says in `assembled` what it was made of.
"""

from __future__ import annotations

import ctypes
import re
from functools import partial
from typing import Any, Final

from cupy_standin import cuda
from cupy_standin.arrays import ndarray

assembled: Final[dict[str, Any]] = {}
"""From PTX to what runs it: an object with `kernels`, the number of arguments by name, and
`launch(name, blocks, threads, addresses)`."""


class Module:
    """Like `cupy.cuda.function.Module`."""

    def __init__(self) -> None:
        self._host: Any = None

    def load(self, cubin: bytes) -> None:
        if not isinstance(cubin, bytes):
            raise TypeError(f"bytes were required, got {type(cubin)}")
        major, minor = re.search(r"[.]target sm_(\d+)(\d)", cubin.decode()).groups()  # type: ignore[union-attr]
        if (int(major), int(minor)) > (8, 0):
            raise cuda.CUDARuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
        self._host = assembled[cubin.decode()]

    def get_function(self, name: str) -> Function:
        if name not in self._host.kernels:
            raise cuda.CUDARuntimeError(f"CUDA_ERROR_NOT_FOUND: {name}")
        return Function(self, name)


class Function:
    """Like `cupy.cuda.function.Function`, for kernels that take only arrays."""

    def __init__(self, module: Module, name: str) -> None:
        self._module, self._name = module, name

    def __call__(
        self, grid: Any, block: Any, args: Any, shared_mem: int = 0, stream: Any = None
    ) -> None:
        host = self._module._host
        for arg in args:
            if not isinstance(arg, ndarray):
                raise TypeError(f"{self._name}: an array was required, got {type(arg)}")
            if not arg._a.flags.c_contiguous:
                raise ValueError(f"{self._name}: an array is not in C order")
        if len(args) != host.kernels[self._name]:
            raise TypeError(f"{self._name} takes {host.kernels[self._name]} arguments")
        if (
            len(grid) != 1
            or len(block) != 1
            or not 0 < block[0] <= 1024
            or not 0 < grid[0] < 1 << 31
        ):
            raise cuda.CUDARuntimeError(f"CUDA_ERROR_INVALID_VALUE: {grid}, {block}")
        # As a graph does, this keeps addresses, and not the arrays. What was freed would be NumPy's
        # again, and not the pool's as on a GPU: so it stays, and a graph asks the pool.
        buffers = [arg._buffer for arg in args]
        held = [arg._a for arg in args]
        addresses = [ctypes.c_void_p(arg._a.ctypes.data).value or 0 for arg in args]
        run = partial(self._run, grid[0], block[0], buffers, addresses, held)
        stream = cuda.current_stream()
        if stream.captured is not None:
            stream.capture(run, buffers)
        else:
            run()

    def _run(
        self, blocks: int, threads: int, buffers: list[Any], addresses: list[int], held: list[Any]
    ) -> None:
        stream = cuda.current_stream()
        seq = stream.begin(self._name)
        for buffer in buffers:
            buffer.read(stream, seq)
            buffer.write(stream, seq)
        self._module._host.launch(self._name, blocks, threads, addresses)
