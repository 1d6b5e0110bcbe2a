"""Rules: how a node of a graph becomes ops of a file. One module of `rules` for each op family."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import byref, c_int, c_uint32
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.registry import Registry
from weft_graph.ir.traits import Role
from weft_lite.convert.lowered import NAMES, TYPES, Lowered, Operation, Value, constant
from weft_lite.library import load
from weft_lite.schema.enums import DataType, Layout, OpKind, Storage

if TYPE_CHECKING:
    from weft_lite.convert.shapes import Shapes

Rule = Callable[[Node, "Builder"], None]
rules: Final[Registry[Rule]] = Registry("lite rule", "weft_lite.convert.rules")
"""By the type of the op that they lower."""


class NotInLiteError(Exception):
    """A node that lite has no way to compute; `advice` says what to do instead."""


def made_at(node: Node) -> str:
    """The end of a message about a node: the user's line, which nodes of a file do not have."""
    return f"; made at {node.line}" if node.line else ""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator that registers the rule of some ops.

    Raises: AlreadyExistsError: one of them has a rule.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            rules.register(name, function)
        return function

    return register


@cache
def types_of(kind: OpKind) -> int:
    """The types that the runtime's kernel takes as its first operand: a bit for each."""
    types, in_place = c_uint32(), c_int()
    load().wl_kernel_name(int(kind), byref(types), byref(in_place))
    return types.value or ~0


@cache
def in_place(kind: OpKind) -> int:
    """How many operands there are that the runtime's kernel may write its result over."""
    types, answer = c_uint32(), c_int()
    load().wl_kernel_name(int(kind), byref(types), byref(answer))
    return answer.value


def computes(kind: OpKind, value: Value, first: bool) -> bool:
    """Whether the runtime's kernel takes such an operand; of others than the first less is known.

    Small integers without a scale are moved and compared, but not computed with.
    """
    types = types_of(kind)
    moves = types >> DataType.FLOAT16 & 1 or OpKind.Less <= kind <= OpKind.NotEqual
    taken = not first or bool(types >> value.dtype & 1)
    if value.dtype in (DataType.INT8, DataType.UINT8, DataType.INT16, DataType.FLOAT16):
        return taken and bool(moves or value.scales)
    return taken


class Builder:
    """What a rule adds to: values and ops of the file.

    Args:
      shapes: the shapes of outputs, at the bound where sizes are open.
      open_sizes: whether sizes may be open.
    Attributes:
      scope: the graph that ops are added to: the whole, or a branch or a body of it.
      arrays: values that TensorArrays are, whose elements lie along the first axis.
      variables: variables that keep their value between invocations, by name.
      channels_last: images in NHWC, by the values that are the same in NCHW.
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
        """The value of an output that was computed, or is a constant."""
        if output not in self._values:
            array = self.array(output)
            if array is None:
                raise NotInLiteError(f"lite has no output {output.name}, which is for training")
            if array.dtype.name not in TYPES:
                raise NotInLiteError(f"lite has no values of {output.dtype.name}")
            self._values[output] = constant(output.node.name, array)
        return self._values[output]

    def array(self, output: Output) -> Any:
        """What a constant holds, also one that comes into a loop or a branch; None for others."""
        if output.node.role is Role.CONSTANT:
            return np.asarray(output.node.attrs["value"])
        if output in self._folded:
            return self._folded[output]
        value = self._values.get(output)
        return None if value is None or value.storage is Storage.VARIABLE else value.array

    def has(self, output: Output) -> bool:
        """Return True if an output has a value already."""
        known = output in self._values or output in self._folded
        return known or output.node.role is Role.CONSTANT

    def fold(self, output: Output, array: Any) -> None:
        """Let an output be a constant, of any dtype as long as no op of the file takes it."""
        self._folded[output] = array

    def known(self, output: Output) -> Any:
        """The value of shape arithmetic, which static shapes determine; None for others."""
        dtype = output.dtype.base_dtype
        arithmetic = dtype.is_integer or dtype.name not in TYPES
        if self.open or not arithmetic or len(output.dims or ()) > 1:
            return None
        value = self.shapes.value(output)
        return None if value is None else np.asarray(value, dtype.as_numpy_dtype)

    def require_array(self, output: Output, what: str) -> Any:
        """What a constant holds.

        Raises: NotInLiteError: it is computed.
        """
        found = self.array(output)
        if found is None:
            raise NotInLiteError(f"{what} must be a constant")
        return found

    def result(self, output: Output) -> Value:
        """A new value for an output."""
        shape = self.shape_of(output)
        made = self.new(output.name.removesuffix(":0"), output.dtype.base_dtype.name, shape)
        if self.open and output.dims is not None:
            made.declared = tuple(-1 if size is None else size for size in output.dims)
        self._values[output] = made
        return made

    def new(self, name: str, dtype: str, shape: tuple[int, ...]) -> Value:
        """A new value, which no output of the graph has.

        Raises: NotInLiteError: lite has no such type of elements.
        """
        if dtype not in TYPES:
            raise NotInLiteError(f"lite has no values of {dtype}")
        return Value(name, TYPES[dtype], shape, (-1,) * len(shape) if self.open else shape)

    def forget(self, outputs: Iterable[Output]) -> None:
        """Let outputs be computed again."""
        for output in outputs:
            self._values.pop(output, None)
            self._folded.pop(output, None)

    def has_results(self, node: Node) -> bool:
        """Return True if a node has been lowered."""
        return any(output in self._values or output in self._folded for output in node.outputs)

    def constant(self, name: str, array: Any) -> Value:
        """A constant."""
        return constant(name, array)

    def zeros(self, value: Value, scope: Lowered) -> Value:
        """Zeros in the shape of a value at the bound, made in a graph."""
        zero = constant(f"{value.name}/zero", np.zeros((), NAMES[value.dtype]))
        shape = self.ints(f"{value.name}/shape", value.shape)
        made = self.like(value, f"{value.name}/zeros")
        scope.ops.append(Operation(OpKind.Fill, [shape, zero], [made], None, value.name))
        return made

    def like(self, value: Value, name: str) -> Value:
        """A new value of the type and shape of another."""
        made = Value(name, value.dtype, value.shape, value.declared)
        if self.open:
            made.declared = (-1,) * len(value.shape)
        if value in self.arrays:
            self.arrays.add(made)
        return made

    def same(self, output: Output, value: Value) -> None:
        """An output that is another value under a new name."""
        self._values[output] = value

    def emit(
        self, kind: OpKind, node: Node, inputs: list[Value | None], options: Any = None
    ) -> Operation:
        """Add an op whose results are the outputs of a node."""
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

        Raises: NotInLiteError: the runtime does not compute it with elements of that type.
        """
        first = next((value for value in inputs if value is not None), None)
        for value in inputs:
            if value is not None and not computes(kind, value, value is first):
                what = value.dtype.name.lower()
                raise NotInLiteError(f"lite does not compute {kind.name} of {what}")
        op = Operation(kind, inputs, outputs, options, name)
        self.scope.ops.append(op)
        return op

    def ints(self, name: str, values: Any) -> Value:
        """A constant of int32."""
        return constant(name, np.asarray(values, np.int32))

    def inputs(self, node: Node) -> list[Value | None]:
        """The values of all inputs of a node."""
        return [self.value(output) for output in node.inputs]


__all__ = ["Builder", "DataType", "Layout", "NotInLiteError", "OpKind", "rule", "rules"]
