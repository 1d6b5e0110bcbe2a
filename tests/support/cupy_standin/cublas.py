"""The cuBLAS functions that weft calls directly, over NumPy; they take addresses."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np

from cupy_standin import arrays, cuda

_TYPES = {0: (np.float32, 68), 1: (np.float64, 70)}
"""Element types by cudaDataType, with the matching cublasComputeType."""
_INVALID = 7


class Cublas:
    """The functions of `libcublas.so`."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._streams: dict[int, Any] = {}
        self._workspaces: set[int] = set()

    def cublasCreate_v2(self, handle: Any) -> int:  # noqa: N802, as the library's
        handle._obj.value = number = next(self._numbers)
        self._streams[number] = None
        return 0

    def cublasDestroy_v2(self, handle: Any) -> int:  # noqa: N802
        del self._streams[handle.value]
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:  # noqa: N802
        self._streams[handle.value] = cuda.streams[stream.value]
        self._workspaces.discard(handle.value)  # as the library forgets it
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, place: Any, size: Any) -> int:  # noqa: N802
        assert place.value in arrays.at and arrays.at[place.value].nbytes >= size.value
        self._workspaces.add(handle.value)
        return 0

    def cublasGemmStridedBatchedEx(  # noqa: N802
        self, handle: Any, turn_a: Any, turn_b: Any, m: Any, n: Any, k: Any, alpha: Any,
        a: Any, kind_a: Any, line_a: Any, step_a: Any, b: Any, kind_b: Any, line_b: Any,
        step_b: Any, beta: Any, c: Any, kind_c: Any, line_c: Any, step_c: Any, count: Any,
        compute: Any, algorithm: Any,
    ) -> int:  # fmt: skip
        dtype, wanted = _TYPES[kind_c.value]
        if compute.value != wanted or not kind_a.value == kind_b.value == kind_c.value:
            return _INVALID
        if handle.value not in self._workspaces:
            return _INVALID  # which is stricter than the library: it would allocate
        rows, columns, depth, batch = m.value, n.value, k.value, count.value
        stored_a = (depth, rows) if turn_a.value else (rows, depth)
        stored_b = (columns, depth) if turn_b.value else (depth, columns)
        if line_a.value < stored_a[0] or line_b.value < stored_b[0] or line_c.value < rows:
            return _INVALID
        first = _matrices(a.value, dtype, stored_a, line_a.value, step_a.value, batch)
        second = _matrices(b.value, dtype, stored_b, line_b.value, step_b.value, batch)
        result = _matrices(c.value, dtype, (rows, columns), line_c.value, step_c.value, batch)
        left = first.swapaxes(1, 2) if turn_a.value else first
        right = second.swapaxes(1, 2) if turn_b.value else second
        assert alpha._obj.value == 1 and beta._obj.value == 0
        stream = self._streams[handle.value]
        sources, target = [arrays.at[a.value], arrays.at[b.value]], arrays.at[c.value]
        held = [array._a for array in (*sources, target)]  # see `modules.py`

        def run() -> None:
            assert held
            np.matmul(left, right, out=result)

        with stream:
            arrays.enqueue("cublas", sources, [target], run)
        return 0


def _matrices(
    place: int, dtype: Any, shape: tuple[int, int], line: int, step: int, count: int
) -> Any:
    """Return the matrices at an address, each in column-major order."""
    size = (step * (count - 1) + line * (shape[1] - 1) + shape[0]) * np.dtype(dtype).itemsize
    memory = (ctypes.c_byte * size).from_address(place)
    strides = tuple(each * np.dtype(dtype).itemsize for each in (step, 1, line))
    return np.ndarray((count, *shape), dtype, memory, 0, strides)
