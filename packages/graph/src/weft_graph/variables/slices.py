"""Slices of variables, `variable[1:3]`, that can be assigned to."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ops.slicing import strided_slice_assign
from weft_tensor.shape import broadcast_dims


class VariableSlice(Output):
    """A slice of a variable's value that supports assignment."""

    __slots__ = ()

    def assign(self, value: Any, name: str | None = None) -> Output:
        """Assign to the slice of the variable.

        Args:
          value: the variable's element type, and a shape that broadcasts to that of the slice.
        Returns: the variable's value after the assignment.
        Raises: InvalidArgumentError, InvalidTypeError: the shape or type of the value does not
          match.
        """
        variable, key = self.graph.variable_slices[self]
        value = convert_to_tensor(value, self.dtype)
        if value.dims is not None and self.dims is not None:
            broadcast_dims(self.dims, value.dims)
        assigned = strided_slice_assign(variable.handle, key, value, name)
        if isinstance(assigned, Output):
            return assigned
        with self.graph.control_dependencies([assigned]):
            read: Output = variable.read_value()
            return read


def note_slice(variable: Any, key: Any, part: Output) -> Output:
    """Make a slice of a variable assignable; results of masks are not."""
    if "shrink_axis_mask" in part.node.attrs:
        part.__class__ = VariableSlice
        part.graph.variable_slices[part] = (variable, key)
    return part
