"""Reference-counted memory: the storage behind tensors, as allocators hand it out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_BYTE = np.dtype(np.uint8)


class Buffer:
    """A contiguous piece of memory that lives as long as anything refers to it.

    A buffer holds one reference to its memory; each array, view or tensor over it holds another.
    When the last reference is dropped, the memory returns to the allocator's pool, or to the owner
    of a borrowed array. `memoryview(buffer.array)` exports it; on Python 3.12 and later
    `memoryview(buffer)` does too.
    """

    __slots__ = ("__weakref__", "_array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        """Refer to the memory of `array`, which must be C-contiguous.

        Raises:
          ValueError: the array is not contiguous, or its elements are Python objects.
        """
        if array.dtype.hasobject:
            raise ValueError(
                "a buffer holds plain memory; an array of Python objects cannot be one"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"a buffer is contiguous, got strides {array.strides}")
        self._array = array.reshape(-1).view(_BYTE)

    @property
    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The memory as uint8, shape (nbytes,); not a copy."""
        return self._array

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._array.nbytes

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._array.ctypes.data if self._array.nbytes else 0

    @property
    def writable(self) -> bool:
        """True if the memory may be written to."""
        return self._array.flags.writeable

    @property
    def ref_count(self) -> int:
        """References to the memory: this buffer's, and one for each array or view of it."""
        # NumPy makes the array that owns the memory the base of every view of it, this buffer's
        # too; getrefcount counts its own argument.
        return sys.getrefcount(self._array.base) - 1

    def view(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0
    ) -> np.ndarray[Any, Any]:
        """Return an array over a part of the memory, which it keeps alive.

        Args:
          shape: sizes of the result.
          dtype: NumPy dtype of the result, without objects.
          offset: offset of the first element in bytes.
        Raises:
          ValueError: the part is not inside the buffer.
        """
        count = 1
        for size in shape:
            count *= size
        end = offset + count * dtype.itemsize
        if offset < 0 or end > self.nbytes:
            raise ValueError(f"bytes {offset} to {end} are not inside a buffer of {self.nbytes}")
        return np.ndarray(shape, dtype, self._array, offset)

    def __len__(self) -> int:
        return self._array.nbytes

    def __buffer__(self, flags: int, /) -> memoryview:
        return self._array.data

    def __repr__(self) -> str:
        return f"<weft.Buffer nbytes={self.nbytes} address={self.address:#x}>"
