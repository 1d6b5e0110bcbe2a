"""The values that a session keeps between its steps, by their handles."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.resources.resources import Resource, ResourceManager
from weft_tensor import errors
from weft_tensor.memory import copied

if TYPE_CHECKING:
    from weft_tensor.dtypes import DType

_NAME = "session_tensors"
_numbers = itertools.count()


class SessionTensors(Resource):
    """Values in the host's memory, which nobody may write to."""

    kind = "store of session tensors"

    def __init__(self) -> None:
        super().__init__(_NAME)
        self._values: dict[str, Any] = {}

    @classmethod
    def of(cls, resources: ResourceManager) -> SessionTensors:
        """Those of the session that sees some resources."""
        return resources.own.lookup_or_create("", _NAME, cls, cls)

    def keep(self, value: Any, device: str) -> str:
        """Keep a copy of a value; returns its handle, which is unique in the process."""
        handle = f"GetSessionHandle;{next(_numbers)};{device}"
        self._values[handle] = copied(value) if isinstance(value, np.ndarray) else value
        return handle

    def get(self, handle: str, dtype: DType) -> Any:
        """A value.

        Raises: InvalidArgumentError: there is none, or it is of another type.
        """
        try:
            value = self._values[handle]
        except KeyError:
            raise _unknown(handle) from None
        found = np.dtype(object) if isinstance(value, bytes) else value.dtype
        if found != dtype.numpy:
            raise errors.InvalidArgumentError(
                f"the tensor of the handle {handle!r} has the type {found}, and {dtype.name} was "
                "declared"
            )
        return value

    def delete(self, handle: str) -> None:
        """Drop a value.

        Raises: InvalidArgumentError: there is none.
        """
        if not self.discard(handle):
            raise _unknown(handle)

    def discard(self, handle: str) -> bool:
        """Drop a value if it is there; returns whether it was. It takes no lock."""
        return self._values.pop(handle, self) is not self

    def close(self) -> None:
        """As the base's."""
        super().close()
        self._values.clear()


def _unknown(handle: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"the session keeps no tensor with the handle {handle!r}: it was deleted, is of another "
        "session, or of another task, where get_session_tensor finds it"
    )
