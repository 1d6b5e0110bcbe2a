"""Values in the memory of an accelerator."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np


class DeviceArray:
    """An array in an accelerator's memory.

    It has a shape and an element type. Computing with it on the host, or reading its elements,
    fails.

    Args:
      memory: where it is.
      content: the elements; for the accelerator alone.
    """

    __slots__ = ("content", "dtype", "memory", "ndim", "shape")

    __array_ufunc__ = None

    def __init__(self, memory: Any, content: np.ndarray[Any, Any]) -> None:
        self.memory = memory
        self.content = content
        self.dtype = content.dtype
        self.shape = content.shape
        self.ndim = content.ndim

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.content.size

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return self.content.nbytes

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise TypeError(f"the host cannot look into {self!r}")

    __array__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} in {self.memory.name}>"
