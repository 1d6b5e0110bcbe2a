"""Values that a session keeps between its steps, by handle."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.resources.resources import Resource, ResourceManager
from weft_tensor import errors
from weft_tensor.memory import copy_array

if TYPE_CHECKING:
    from weft_tensor.dtypes import DType

_NAME = "session_tensors"
_numbers = itertools.count()


class SessionTensors(Resource):
    """Read-only values in the host's memory."""

    kind = "store of session tensors"

    def __init__(self) -> None:
        super().__init__(_NAME)
        self._values: dict[str, Any] = {}

    @classmethod
    def of(cls, resources: ResourceManager) -> SessionTensors:
        """Return the values of the session that uses `resources`."""
        return resources.own.lookup_or_create("", _NAME, cls, cls)

    def keep(self, value: Any, device: str) -> str:
        """Store a copy of a value; return its handle, which is unique in the process."""
        handle = f"GetSessionHandle;{next(_numbers)};{device}"
        self._values[handle] = copy_array(value) if isinstance(value, np.ndarray) else value
        return handle

    def get(self, handle: str, dtype: DType) -> Any:
        """Return a value.

        Raises: InvalidArgumentError: the value does not exist or has another type.
        """
        try:
            value = self._values[handle]
        except KeyError:
            raise _unknown(handle) from None
        result = np.dtype(object) if isinstance(value, bytes) else value.dtype
        if result != dtype.numpy:
            raise errors.InvalidArgumentError(
                f"the tensor of the handle {handle!r} has the type {result}, but was declared as "
                f"{dtype.name}"
            )
        return value

    def delete(self, handle: str) -> None:
        """Delete a value.

        Raises: InvalidArgumentError: the value does not exist.
        """
        if not self.discard(handle):
            raise _unknown(handle)

    def discard(self, handle: str) -> bool:
        """Delete a value if it exists, without a lock; return True if it existed."""
        return self._values.pop(handle, self) is not self

    def close(self) -> None:
        """See the base class."""
        super().close()
        self._values.clear()


def _unknown(handle: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"the session keeps no tensor with the handle {handle!r}: it was deleted, or belongs to "
        "another session or task"
    )
