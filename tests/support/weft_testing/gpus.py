"""Detection of GPUs."""

from __future__ import annotations

from functools import cache


@cache
def missing_gpu() -> str | None:
    """Return the reason why there is no usable CUDA device, or None."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device: {error}"
    return None if count else "no CUDA device"
