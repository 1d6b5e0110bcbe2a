"""Stand-ins for variables during the capture of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_exec.gpu.capture import NotCaptured, current
from weft_exec.resources.resources import ResourceHandle, VariableState


class CapturedVariable(VariableState):
    """Stand-in for a variable during a capture, with the variable's memory but its own state.

    Attributes:
      of: the variable.
      changed: True if the capture changes the variable.
    """

    def __init__(self, variable: VariableState, array: Any, empty: Callable[..., Any]) -> None:
        super().__init__(
            variable.name, variable.dtype, variable.dims, variable.container, variable.xp, empty
        )
        self.of = variable
        self.changed = False
        self.place = array.data.ptr
        self.end = self.place + array.nbytes
        self.shape = array.shape
        self._memory = array.data
        self._value = variable.xp.ndarray(array.shape, array.dtype, self._memory)

    def assign(self, value: Any, validate_shape: bool = True) -> None:
        """Assign a value; see `VariableState`."""
        self._note()
        super().assign(value, validate_shape)

    def update(self, fn: Callable[..., Any], *args: Any) -> None:
        """Update in place; see `VariableState`."""
        self._note()
        super().update(fn, *args)

    def replace(self, fn: Callable[..., Any], *args: Any) -> None:
        """Replace the value; see `VariableState`."""
        self._note()
        super().replace(fn, *args)

    def _take(self) -> Any:
        self._note()
        return super()._take()

    def _note(self) -> None:
        assert current.capture is not None
        current.capture.note_change()
        self.changed = True

    def has_memory_of(self, array: Any) -> bool:
        """Return True if an array is in the memory of the variable."""
        return bool(self.place <= array.data.ptr < self.end)

    def put_back(self) -> None:
        """Copy the value back to the variable's memory at the end of the graph.

        Raises: NotCaptured: the shape of the value has changed.
        """
        value = self._value
        if value.data.ptr != self.place:
            if value.shape != self.shape:
                raise NotCaptured("the shape of a variable changes")
            self.xp.copyto(self.xp.ndarray(self.shape, value.dtype, self._memory), value)


def variable_state(value: Any) -> VariableState | None:
    """Return the variable that a value is, or that it refers to."""
    if isinstance(value, ResourceHandle):
        value = value.resource
    return value if isinstance(value, VariableState) else None


def make_handle_to(handle: ResourceHandle, state: VariableState) -> ResourceHandle:
    """Return a handle that refers to another variable."""
    return ResourceHandle(handle.device, handle.container, handle.name, state)
