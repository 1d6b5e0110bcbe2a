"""The memory of an accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_accelerator.array import DeviceArray
from weft_tensor import errors
from weft_tensor.allocator import ALIGNMENT, AllocatorStatistics, CpuAllocator

Array = np.ndarray[Any, Any]


def stays(value: Any) -> bool:
    """Return True if a value stays in host memory: single integers and bools, strings, handles."""
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return True
    return bool(dtype.hasobject or (value.ndim == 0 and dtype.kind in "biu"))


class DeviceMemory:
    """One pool of limited size, whose addresses identify its arrays.

    Args:
      name: how messages call it.
      limit: bytes.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self._pool = CpuAllocator(limit + ALIGNMENT, name)
        # Never freed, so that the pool keeps its one region, and its addresses.
        self._first = self._pool.empty((ALIGNMENT,), np.dtype(np.uint8))
        self._start = _address(self._first)
        self._stop = self._start + limit + ALIGNMENT

    def empty(self, shape: tuple[int, ...], dtype: Any, label: str | None = None) -> Array:
        """Return an uninitialized array in this memory, for the accelerator's kernels.

        Raises: ResourceExhaustedError: it does not fit.
        """
        return self._pool.empty(shape, dtype, label)

    def put(self, value: Any) -> DeviceArray:
        """Copy a value of the host, or the result of a kernel, to this memory.

        Raises: ResourceExhaustedError: it does not fit.
        """
        if isinstance(value, np.ndarray) and self._start <= _address(value) < self._stop:
            return DeviceArray(self, value)
        content = self._pool.empty(value.shape, value.dtype)
        np.copyto(content, value)
        return DeviceArray(self, content)

    def look(self, value: Any) -> Any:
        """Return the elements of an array in this memory, for CPU kernels.

        Raises: InternalError: the value is elsewhere.
        """
        if isinstance(value, DeviceArray):
            if value.memory is self:
                return value.content if value.ndim else value.content[()]
        elif stays(value):
            return value
        raise errors.InternalError(f"a kernel on {self.name} got {_place_of(value)}")

    def statistics(self) -> AllocatorStatistics:
        """Return the counters, without the memory's own overhead."""
        found = self._pool.statistics()
        return found._replace(
            bytes_in_use=found.bytes_in_use - ALIGNMENT,
            peak_bytes_in_use=found.peak_bytes_in_use - ALIGNMENT,
            bytes_reserved=found.bytes_reserved - ALIGNMENT,
            bytes_limit=self._stop - self._start - ALIGNMENT,
        )

    @property
    def bytes_in_use(self) -> int:
        """Return the bytes of live arrays."""
        return self.statistics().bytes_in_use


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _place_of(value: Any) -> str:
    if isinstance(value, DeviceArray):
        return repr(value)
    return f"{value.dtype}{list(value.shape)} in the memory of the host"
