"""Matrix products during the capture of a CUDA graph, by direct calls of cuBLAS.

CuPy refuses to call cuBLAS while a stream is captured. Therefore this module creates its own
handle, and a workspace that belongs to the graph. It uses a single function of cuBLAS.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.capture import Capture, NotCaptured, current

_WORKSPACE: Final = 4 << 20
_LARGE_WORKSPACE: Final = 32 << 20
"""Workspace sizes in bytes that NVIDIA recommends, from compute capability 9.0 on and for older
GPUs.
"""
_TYPES: Final = {"float32": (0, 68, ctypes.c_float), "float64": (1, 70, ctypes.c_double)}
"""For each element type: cudaDataType, cublasComputeType, and the C type of scale factors."""
_DEFAULT_ALGORITHM: Final = -1
_NAMES: Final = ("libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so")


def load() -> Any:
    """Return the cuBLAS library that CuPy has loaded.

    Raises: NotCaptured: it was not found under any of its names.
    """
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotCaptured("cuBLAS was not found")


class Cublas:
    """A handle of cuBLAS on one stream.

    Args:
      workspace: an array, which must live as long as the launches.
    Raises: NotCaptured: cuBLAS reports an error.
    """

    def __init__(self, library: Any, stream: Any, workspace: Any) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))
        pointer, size = ctypes.c_void_p(workspace.data.ptr), ctypes.c_size_t(workspace.nbytes)
        self._call("cublasSetWorkspace_v2", self._handle, pointer, size)

    def close(self) -> None:
        """Destroy the handle."""
        self._call("cublasDestroy_v2", self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NotCaptured(f"{name} returned status {status}")

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """Compute `out[i] = a[i] @ b[i]` for 3-D arrays with a valid `_layout`."""
        kind, compute, scalar = _TYPES[out.dtype.name]
        one, zero = scalar(1), scalar(0)
        count, rows, columns = out.shape
        # Row-major arrays are column-major transposes for cuBLAS, so the factors are swapped.
        first, second = _layout(b), _layout(a)
        assert first is not None and second is not None
        self._call(
            "cublasGemmStridedBatchedEx",
            self._handle,
            *map(ctypes.c_int, (first[1], second[1], columns, rows, a.shape[2])),
            ctypes.byref(one),
            *_operand(first, kind),
            *_operand(second, kind),
            ctypes.byref(zero),
            ctypes.c_void_p(out.data.ptr),
            ctypes.c_int(kind),
            ctypes.c_int(columns),
            ctypes.c_longlong(rows * columns),
            ctypes.c_int(count),
            ctypes.c_int(compute),
            ctypes.c_int(_DEFAULT_ALGORITHM),
        )


Layout = tuple[Any, bool, int, int]
"""An array, True if it is transposed, and the strides between its rows and between its matrices, in
elements.
"""


def _layout(x: Any) -> Layout | None:
    """Return the memory layout of an array of matrices; None if cuBLAS cannot read it."""
    of_matrix, of_row, of_column = (stride // x.itemsize for stride in x.strides)
    _, rows, columns = x.shape
    if of_matrix < 0 or of_row < 0 or of_column < 0:
        return None
    if (of_column == 1 or columns == 1) and (of_row >= columns or rows == 1):
        return x, False, max(of_row, columns) if rows > 1 else columns, of_matrix
    if (of_row == 1 or rows == 1) and (of_column >= rows or columns == 1):
        return x, True, max(of_column, rows) if columns > 1 else rows, of_matrix
    return None


def _operand(layout: Layout, kind: int) -> list[Any]:
    array, _, line, matrix = layout
    pointer = ctypes.c_void_p(array.data.ptr)
    return [pointer, ctypes.c_int(kind), ctypes.c_int(line), ctypes.c_longlong(matrix)]


def prepare(capture: Capture, device: BaseGpuDevice) -> None:
    """Create the cuBLAS handle of a capture before it begins: cuBLAS allocates memory for it.

    Raises: NotCaptured: cuBLAS was not found, or reports an error.
    """
    large = device.properties.compute_capability >= (9, 0)
    workspace = device.xp.empty(_LARGE_WORKSPACE if large else _WORKSPACE, np.uint8)
    library = Cublas(_load_library(), capture.stream, workspace)
    capture.kept_alive += [library, workspace]
    capture.at_end.append(library.close)


def _library_of(capture: Capture) -> Cublas:
    for library in capture.kept_alive:
        if isinstance(library, Cublas):
            return library
    raise NotCaptured("it computes a matrix product without a prepared cuBLAS handle")


@cache
def _load_library() -> Any:
    return load()


def forget() -> None:
    """Clear the cached library, for tests."""
    _load_library.cache_clear()


def matmul_of(device: BaseGpuDevice) -> Callable[..., Any]:
    """Return the matrix product on a GPU, `matmul(a, b, out=None)`."""
    cupy = device.xp
    by_cupy = cupy.matmul

    def matmul(a: Any, b: Any, out: Any = None) -> Any:
        if current.capture is not None:
            return _capture_product(current.capture, cupy, a, b, out)
        current.products += 1
        return by_cupy(a, b) if out is None else by_cupy(a, b, out=out)

    return matmul


def _capture_product(capture: Capture, cupy: Any, a: Any, b: Any, out: Any) -> Any:
    """Add a matrix product to a graph.

    Raises: NotCaptured: the operands are not float32 or float64 matrices.
    """
    if a.dtype != b.dtype or a.dtype.name not in _TYPES or min(a.ndim, b.ndim) < 2:
        raise NotCaptured(f"a product of {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise NotCaptured(f"a product of shapes {a.shape} and {b.shape}")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns, depth = a.shape[-2], b.shape[-1], a.shape[-1]
    if out is None:
        out = cupy.empty((*lead, rows, columns), a.dtype)
    if not out.size:
        return out
    if not depth or not out.flags.c_contiguous:
        raise NotCaptured("a matrix product with empty operands, or to an array that is not dense")
    count = math.prod(lead)
    left, right = (_to_3d(cupy, x, lead, count) for x in (a, b))
    _library_of(capture).multiply(left, right, out.reshape(count, rows, columns))
    return out


def _to_3d(cupy: Any, x: Any, lead: tuple[int, ...], count: int) -> Any:
    """Return matrices as a 3-D array that cuBLAS can read, copied if necessary."""
    if x.ndim == 2:
        flat = cupy.lib.stride_tricks.as_strided(x, (count, *x.shape), (0, *x.strides))
        return flat if _layout(flat) is not None else _to_3d(cupy, x.copy(), lead, count)
    if x.shape[:-2] != lead:
        x = cupy.ascontiguousarray(cupy.broadcast_to(x, (*lead, *x.shape[-2:])))
    flat = x if x.ndim == 3 else cupy.ascontiguousarray(x).reshape(count, *x.shape[-2:])
    return flat if _layout(flat) is not None else cupy.ascontiguousarray(flat)
