"""Registry of rules that lower nodes to ops of a file; `rules` has one module per op family."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import byref, c_int, c_uint32
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.registry import Registry
from weft_graph.ir.traits import Role
from weft_lite.convert.errors import NotInLiteError, unsupported_type
from weft_lite.convert.lowered import NAMES, TYPES, Lowered, Operation, Value, constant
from weft_lite.library import load
from weft_lite.schema.enums import DataType, Layout, OpKind, Storage

if TYPE_CHECKING:
    from weft_lite.convert.shapes import Shapes

Rule = Callable[[Node, "Builder"], None]
rules: Final[Registry[Rule]] = Registry("lite rule", "weft_lite.convert.rules")
"""The rules by op type."""


def describe_location(node: Node) -> str:
    """Return the suffix of a message about a node: the source line that created it, or ""."""
    return f"; made at {node.line}" if node.line else ""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of some ops.

    Raises: AlreadyExistsError: an op already has a rule.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            rules.register(name, function)
        return function

    return register


@cache
def types_of(kind: OpKind) -> int:
    """Return a bit mask of the types that the runtime's kernel supports for its first operand."""
    types, in_place = c_uint32(), c_int()
    load().wl_kernel_name(int(kind), byref(types), byref(in_place))
    return types.value or ~0


@cache
def in_place(kind: OpKind) -> int:
    """Return the number of operands that the runtime's kernel may overwrite with its result."""
    types, answer = c_uint32(), c_int()
    load().wl_kernel_name(int(kind), byref(types), byref(answer))
    return answer.value


def computes(kind: OpKind, value: Value, first: bool) -> bool:
    """Return True if the runtime's kernel supports the type of an operand.

    Small integers without a scale are moved and compared, but not computed with.
    """
    types = types_of(kind)
    moves = types >> DataType.FLOAT16 & 1 or OpKind.Less <= kind <= OpKind.NotEqual
    is_supported = not first or bool(types >> value.dtype & 1)
    if value.dtype in (DataType.INT8, DataType.UINT8, DataType.INT16, DataType.FLOAT16):
        return is_supported and bool(moves or value.scales)
    return is_supported


class Builder:
    """The file under construction, to which rules add values and ops.

    Args:
      shapes: the shapes of outputs, with open sizes at their bound.
      open_sizes: whether sizes may be open.
    Attributes:
      scope: the graph to which ops are added: the main graph, a branch or a body.
      arrays: values of TensorArrays, whose elements are stored along the first axis.
      variables: variables that keep their value between invocations, by name.
      channels_last: NHWC images, by the equal NCHW values.
    """

    def __init__(self, shapes: Shapes, open_sizes: bool) -> None:
        self.lowered = Lowered()
        self.scope = self.lowered
        self.shapes = shapes
        self.shape_of = shapes
        self.open = open_sizes
        self.arrays: set[Value] = set()
        self.variables: dict[str, Value] = {}
        self.channels_last: dict[Value, Value] = {}
        self._values: dict[Output, Value] = {}
        self._folded: dict[Output, Any] = {}

    def value(self, output: Output) -> Value:
        """Return the value of an output that was computed, or that is a constant."""
        if output not in self._values:
            array = self.array(output)
            if array is None:
                raise NotInLiteError(f"lite has no output {output.name}, which is for training")
            if array.dtype.name not in TYPES:
                raise unsupported_type(output.dtype.name)
            self._values[output] = constant(output.node.name, array)
        return self._values[output]

    def array(self, output: Output) -> Any:
        """Return the value of a constant, also from outside a loop or a branch; otherwise None."""
        if output.node.role is Role.CONSTANT:
            return np.asarray(output.node.attrs["value"])
        if output in self._folded:
            return self._folded[output]
        value = self._values.get(output)
        return None if value is None or value.storage is Storage.VARIABLE else value.array

    def has(self, output: Output) -> bool:
        """Return True if an output already has a value."""
        is_known = output in self._values or output in self._folded
        return is_known or output.node.role is Role.CONSTANT

    def fold(self, output: Output, array: Any) -> None:
        """Replace an output by a constant, of any dtype if no op of the file reads it."""
        self._folded[output] = array

    def known(self, output: Output) -> Any:
        """Return the result of shape arithmetic if static shapes determine it; otherwise None."""
        dtype = output.dtype.base_dtype
        arithmetic = dtype.is_integer or dtype.name not in TYPES
        if self.open or not arithmetic or len(output.dims or ()) > 1:
            return None
        value = self.shapes.value(output)
        return None if value is None else np.asarray(value, dtype.as_numpy_dtype)

    def require_array(self, output: Output, label: str) -> Any:
        """Return the value of a constant.

        Raises: NotInLiteError: the output is not a constant.
        """
        array = self.array(output)
        if array is None:
            raise NotInLiteError(f"{label} must be a constant")
        return array

    def result(self, output: Output) -> Value:
        """Create the value of an output."""
        shape = self.shape_of(output)
        result = self.new(output.name.removesuffix(":0"), output.dtype.base_dtype.name, shape)
        if self.open and output.dims is not None:
            result.declared = tuple(-1 if size is None else size for size in output.dims)
        self._values[output] = result
        return result

    def new(self, name: str, dtype: str, shape: tuple[int, ...]) -> Value:
        """Create a value that does not belong to an output of the graph.

        Raises: NotInLiteError: lite does not support this dtype.
        """
        if dtype not in TYPES:
            raise unsupported_type(dtype)
        return Value(name, TYPES[dtype], shape, (-1,) * len(shape) if self.open else shape)

    def forget(self, outputs: Iterable[Output]) -> None:
        """Forget the values of outputs, so that they are computed again."""
        for output in outputs:
            self._values.pop(output, None)
            self._folded.pop(output, None)

    def has_results(self, node: Node) -> bool:
        """Return True if a node has been lowered."""
        return any(output in self._values or output in self._folded for output in node.outputs)

    def constant(self, name: str, array: Any) -> Value:
        """Create a constant."""
        return constant(name, array)

    def zeros(self, value: Value, scope: Lowered) -> Value:
        """Create zeros in the largest shape of a value, in a certain graph."""
        zero = constant(f"{value.name}/zero", np.zeros((), NAMES[value.dtype]))
        shape = self.ints(f"{value.name}/shape", value.shape)
        like = self.like(value, f"{value.name}/zeros")
        scope.ops.append(Operation(OpKind.Fill, [shape, zero], [like], None, value.name))
        return like

    def like(self, value: Value, name: str) -> Value:
        """Create a value with the type and shape of another."""
        result = Value(name, value.dtype, value.shape, value.declared)
        if self.open:
            result.declared = (-1,) * len(value.shape)
        if value in self.arrays:
            self.arrays.add(result)
        return result

    def same(self, output: Output, value: Value) -> None:
        """Use an existing value for an output."""
        self._values[output] = value

    def emit(
        self, kind: OpKind, node: Node, inputs: list[Value | None], options: Any = None
    ) -> Operation:
        """Add an op for a node; its results are the node's outputs."""
        return self.add(
            kind, inputs, [self.result(out) for out in node.outputs], options, node.name
        )

    def add(
        self,
        kind: OpKind,
        inputs: list[Value | None],
        outputs: list[Value],
        options: Any,
        name: str,
    ) -> Operation:
        """Add an op.

        Raises: NotInLiteError: the runtime does not support the op with that element type.
        """
        first = next((value for value in inputs if value is not None), None)
        for value in inputs:
            if value is not None and not computes(kind, value, value is first):
                label = value.dtype.name.lower()
                raise NotInLiteError(f"lite does not support {kind.name} of {label}")
        op = Operation(kind, inputs, outputs, options, name)
        self.scope.ops.append(op)
        return op

    def ints(self, name: str, values: Any) -> Value:
        """Create an int32 constant."""
        return constant(name, np.asarray(values, np.int32))

    def inputs(self, node: Node) -> list[Value | None]:
        """Return the values of all inputs of a node."""
        return [self.value(output) for output in node.inputs]


__all__ = ["Builder", "DataType", "Layout", "NotInLiteError", "OpKind", "rule", "rules"]
