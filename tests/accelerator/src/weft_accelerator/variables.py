"""Variables in the memory of an accelerator."""

from __future__ import annotations

from typing import Any, NoReturn

from weft_accelerator.memory import DeviceMemory, stays
from weft_exec.resources.resources import VariableState
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims


class DeviceVariable(VariableState):
    """A variable whose value is in an accelerator's memory.

    Reading it returns an array on the accelerator. Only the accelerator's kernels change it, by
    `inner`, which gives access to the elements.

    Args:
      name, dtype, dims: see VariableState.
      memory: where the value is; that of a variable of rank 0 is kept beside it.
    """

    kind = "variable of an accelerator"

    def __init__(self, name: str, dtype: DType, dims: Dims, memory: DeviceMemory) -> None:
        super().__init__(name, dtype, dims)
        self.memory = memory
        self.inner = VariableState(name, dtype, dims, empty=memory.empty)

    @property
    def is_initialized(self) -> bool:
        """Return True if the variable has a value."""
        return self.inner.is_initialized

    def read(self) -> Any:
        """Return the current value, in the accelerator's memory."""
        value = self.inner.read()
        return value if stays(value) else self.memory.put(value)

    def close(self) -> None:
        """Drop the value."""
        super().close()
        self.inner.close()

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise errors.InvalidArgumentError(
            f"variable {self.name} is in the memory of {self.memory.name}, and cannot be changed "
            "from elsewhere"
        )

    assign = update = replace = _take = _refuse
