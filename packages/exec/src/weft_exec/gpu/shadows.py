"""What stands for variables while a CUDA graph is captured, and where they are among values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_exec.gpu.capture import NotCaptured, current
from weft_exec.resources.resources import ResourceHandle, VariableState


class Shadow(VariableState):
    """What stands for a variable while a graph is captured: its memory, and nothing of its state.

    Attributes:
      of: the variable.
      changed: whether it was.
    """

    def __init__(self, of: VariableState, array: Any, empty: Callable[..., Any]) -> None:
        super().__init__(of.name, of.dtype, of.dims, of.container, of.xp, empty)
        self.of = of
        self.changed = False
        self.place = array.data.ptr
        self.end = self.place + array.nbytes
        self.shape = array.shape
        self._memory = array.data
        self._value = of.xp.ndarray(array.shape, array.dtype, self._memory)

    def assign(self, value: Any, validate_shape: bool = True) -> None:
        """As of a variable."""
        self._note()
        super().assign(value, validate_shape)

    def update(self, fn: Callable[..., Any], *args: Any) -> None:
        """As of a variable."""
        self._note()
        super().update(fn, *args)

    def replace(self, fn: Callable[..., Any], *args: Any) -> None:
        """As of a variable."""
        self._note()
        super().replace(fn, *args)

    def _take(self) -> Any:
        self._note()
        return super()._take()

    def _note(self) -> None:
        assert current.capture is not None
        current.capture.note_change()
        self.changed = True

    def holds(self, array: Any) -> bool:
        """Whether an array is in the memory of the variable."""
        return bool(self.place <= array.data.ptr < self.end)

    def put_back(self) -> None:
        """Let the graph end with the value where it was.

        Raises: NotCaptured: it has another shape now.
        """
        value = self._value
        if value.data.ptr != self.place:
            if value.shape != self.shape:
                raise NotCaptured("a variable gets another shape")
            self.xp.copyto(self.xp.ndarray(self.shape, value.dtype, self._memory), value)


def state_in(value: Any) -> VariableState | None:
    """The variable that a value is or leads to."""
    if isinstance(value, ResourceHandle):
        value = value.resource
    return value if isinstance(value, VariableState) else None


def leading_to(handle: ResourceHandle, state: VariableState) -> ResourceHandle:
    """A handle that leads to another variable."""
    return ResourceHandle(handle.device, handle.container, handle.name, state)
