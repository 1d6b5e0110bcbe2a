"""Handles of values that a session keeps between its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft_tensor.finalizers import call_when_gone
from weft_tensor.memory import copy_array

if TYPE_CHECKING:
    from weft_tensor.dtypes import DType


class HandleStore(Protocol):
    """Interface to the values that a session keeps, by handle."""

    def get(self, handle: str, dtype: DType) -> Any:
        """Return a value.

        Raises: InvalidArgumentError: the value does not exist or has another type.
        """
        ...

    def delete(self, handle: str) -> None:
        """Delete a value. Raises: InvalidArgumentError: the value does not exist."""
        ...

    def discard(self, handle: str) -> object:
        """Delete a value if it exists, now or soon; takes no lock, because finalizers call it."""
        ...


class TensorHandle:
    """A value that a session keeps; it is deleted together with this object.

    Args:
      handle: its name in the session.
      dtype: its element type.
      store: the session's values.
    """

    def __init__(self, handle: bytes, dtype: DType, store: HandleStore) -> None:
        self._handle = handle.decode()
        self._dtype = dtype
        self._store = store
        self._finalizer = call_when_gone(self, store.discard, self._handle)

    @property
    def handle(self) -> str:
        """The name to feed to the ops of `get_session_tensor` or `delete_session_tensor`."""
        return self._handle

    @property
    def dtype(self) -> DType:
        """Its element type."""
        return self._dtype

    def eval(self) -> Any:
        """Return the value, which belongs to the caller.

        Raises: InvalidArgumentError: the value was deleted, or its session no longer exists.
        """
        value = self._store.get(self._handle, self._dtype)
        return copy_array(value) if isinstance(value, np.ndarray) else value

    def to_numpy_array(self) -> Any:
        """Return the value; the same as `eval`."""
        return self.eval()

    def delete(self) -> None:
        """Delete the value.

        Raises: InvalidArgumentError: the value was already deleted.
        """
        self._store.delete(self._handle)
        self._finalizer.cancel()

    def get_raw_handle(self) -> str:
        """Return the name; after that, the value is not deleted together with this object."""
        self._finalizer.cancel()
        return self._handle

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.eval(), dtype)

    def __str__(self) -> str:
        return self._handle

    def __repr__(self) -> str:
        return f"<weft.TensorHandle '{self._handle}' dtype={self._dtype.name}>"
