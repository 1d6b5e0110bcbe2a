"""What a session gives for a value that it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.resources.session_tensors import SessionTensors
from weft_tensor.memory import copied

if TYPE_CHECKING:
    from weft_exec.resources.resources import ResourceManager
    from weft_tensor.dtypes import DType


class TensorHandle:
    """A value that a session keeps; it is dropped with this object.

    Args:
      handle: by which the session finds it.
      dtype: its element type.
      resources: those that the session sees.
    """

    def __init__(self, handle: bytes, dtype: DType, resources: ResourceManager) -> None:
        self._handle = handle.decode()
        self._dtype = dtype
        self._persistent = False
        self._store = SessionTensors.of(resources)

    @property
    def handle(self) -> str:
        """The name to feed where `get_session_tensor` or `delete_session_tensor` wants one."""
        return self._handle

    @property
    def dtype(self) -> DType:
        """Its element type."""
        return self._dtype

    def eval(self) -> Any:
        """The value, which belongs to the caller.

        Raises: InvalidArgumentError: it was deleted.
        """
        value = self._store.get(self._handle)
        return copied(value) if isinstance(value, np.ndarray) else value

    def to_numpy_array(self) -> Any:
        """As `eval`."""
        return self.eval()

    def delete(self) -> None:
        """Drop the value.

        Raises: InvalidArgumentError: it was deleted before.
        """
        self._store.delete(self._handle)

    def get_raw_handle(self) -> str:
        """The name, without a duty to drop the value with this object."""
        self._persistent = True
        return self._handle

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.eval(), dtype)

    def __del__(self) -> None:
        if not self._persistent:
            self._store.discard(self._handle)

    def __str__(self) -> str:
        return self._handle

    def __repr__(self) -> str:
        return f"<weft.TensorHandle '{self._handle}' dtype={self._dtype.name}>"
