"""Values of a file as nodes of a graph, and the registry of rules that add them.

A quantized int8 tensor stays int8; products of such tensors are products of integers, and their
results are rounded as the runtime rounds them. Products of int16 tensors are products of float32,
which are exact as long as sums are below 2 ** 24. Everything else is computed from real numbers and
quantized again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops.array import placeholder
from weft_lite.convert.lowered import NAMES, Array
from weft_lite.convert.packing import PANEL
from weft_lite.convert.sources import Source
from weft_lite.schema import tables as t
from weft_lite.schema.enums import Activation, DataType, Layout, OpKind, Storage
from weft_tensor import dtypes, errors

Rule = Callable[["Reader", t.Op], "Sequence[Output] | Output"]

RULES: Final[dict[OpKind, Rule]] = {}


def reads(*kinds: OpKind) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for some kinds."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


class Reader:
    """Adds the nodes of a file to the default graph."""

    def __init__(self, model: t.Model, weights: bytes) -> None:
        self.model = model
        self.weights = weights
        self.values: dict[int, Output] = {}
        self.made: dict[int, Array] = {}  # constants made by ops that feed weights

    def source(self, graph: Graph) -> Source:
        """Add all nodes of the file to a graph; return it with its inputs and outputs."""
        signature = self.model.signatures[0] if self.model.signatures else None
        ends = self.model.subgraphs[0]
        bindings = signature.inputs if signature else [t.Binding(f"x{i}", i) for i in ends.inputs]
        computed = signature.outputs if signature else [t.Binding(f"y{i}", i) for i in ends.outputs]
        for number in ends.inputs:
            tensor = self.model.tensors[number]
            dims = [None if size < 0 else size for size in tensor.shape]
            self.values[number] = placeholder(NAMES[DataType(tensor.dtype)], dims)
        for op in self.model.ops:
            self._add(op)
        return Source(
            graph,
            {item.name: self.stored(item.tensor) for item in bindings},
            {item.name: self.stored(item.tensor) for item in computed},
        )

    def _add(self, op: t.Op) -> None:
        rules = RULES[OpKind(op.kind)](self, op)
        results = [rules] if isinstance(rules, Output) else rules
        for number, result in zip(op.outputs, results, strict=True):
            self.values[number] = result

    # ------------------------------------------------------------------------- values

    def tensor(self, number: int) -> t.Tensor:
        """Return a tensor's entry in the file."""
        return self.model.tensors[number]

    def has(self, op: t.Op, index: int) -> bool:
        """Return True if an op has an operand at a position."""
        return index < len(op.inputs) and op.inputs[index] >= 0

    def array(self, number: int) -> Array:
        """Return a constant that is stored, or computed from a stored one.

        Raises: UnimplementedError: it is known only when the file runs.
        """
        if number in self.made:
            return self.made[number]
        tensor = self.tensor(number)
        if not self.is_constant(number):
            raise errors.UnimplementedError(f"{tensor.name} must be a constant to be compiled")
        dtype = np.dtype(NAMES[DataType(tensor.dtype)]).newbyteorder("<")
        count = int(np.prod(tensor.shape, dtype=np.int64))
        result = np.frombuffer(self.weights, dtype, count, tensor.offset)
        return result.reshape(tensor.shape).astype(dtype.newbyteorder("="))

    def is_constant(self, number: int) -> bool:
        """Return True if a tensor is stored in the weights."""
        return self.tensor(number).storage == Storage.CONSTANT

    def stored(self, number: int) -> Output:
        """Return a tensor in its stored form."""
        if number not in self.values:
            self.values[number] = convert_to_tensor(self.array(number))
        return self.values[number]

    def real(self, number: int) -> Output:
        """Return the real numbers that a tensor represents."""
        q = self.tensor(number).quantization
        if q is None or not q.scales:
            return self.stored(number)
        if self.is_constant(number):
            return convert_to_tensor(self.real_array(number))
        x = create("Cast", [self.stored(number)], {"DstT": dtypes.float32}).outputs[0]
        zeros = _reshape_along(
            np.array(q.zero_points or [0], np.float32), q, len(self.tensor(number).shape)
        )
        scales = _reshape_along(np.array(q.scales, np.float32), q, len(self.tensor(number).shape))
        return node("Mul", node("Sub", x, zeros), scales)

    def real_array(self, number: int) -> Array:
        """Return the real numbers that a constant represents, in its layout."""
        stored, tensor = self.array(number), self.tensor(number)
        if tensor.quantization is None or not tensor.quantization.scales:
            return stored.astype(np.float32)
        return real_numbers(stored, tensor.quantization, Layout(tensor.layout))

    def result(self, op: t.Op, x: Output, index: int = 0) -> Output:
        """Return a real result in its stored form, after the op's activation."""
        return self.quantized(op.outputs[index], apply_activation(x, activation_of(op)))

    def quantized(self, number: int, x: Output) -> Output:
        """Convert real numbers to the stored form of a tensor."""
        tensor = self.tensor(number)
        q = tensor.quantization
        if q is None or not q.scales:
            return x
        return self.rounded(tensor, node("Div", x, np.float32(q.scales[0])))

    def rounded(
        self, tensor: t.Tensor, x: Output, minimum: float = -np.inf, limit: float = np.inf
    ) -> Output:
        """Quantize numbers in units of a tensor's scale, without its zero point."""
        q = tensor.quantization
        zero = q.zero_points[0] if q and q.zero_points else 0
        kind = np.iinfo(NAMES[DataType(tensor.dtype)])
        low, high = max(minimum, kind.min - zero), min(limit, kind.max - zero)
        cut = node("Minimum", node("Maximum", x, np.float32(low)), np.float32(high))
        shifted = node("Add", node("Rint", cut), np.float32(zero))
        return create("Cast", [shifted], {"DstT": dtypes.as_dtype(kind.dtype)}).outputs[0]


def node(op: str, *inputs: Any, **attrs: Any) -> Output:
    """Add a node and return its first result."""
    tensors = [
        input_ if isinstance(input_, list) else convert_to_tensor(input_) for input_ in inputs
    ]
    return create(op, tensors, attrs).outputs[0]


def _reshape_along(
    values: Array, q: t.Quantization, rank: int, layout: Layout = Layout.PLAIN
) -> Array:
    """Reshape numbers, one per index of an axis or per column of panels, to broadcast."""
    if len(values) == 1:
        return values.reshape(())
    if layout is not Layout.PLAIN:
        return values.reshape(-1, 1, 1, PANEL, *([1] if layout is Layout.PANELS4 else []))
    shape = [1] * rank
    shape[q.axis] = len(values)
    return values.reshape(shape)


def real_numbers(stored: Array, q: t.Quantization, layout: Layout = Layout.PLAIN) -> Array:
    """Dequantize numbers."""
    zeros = _reshape_along(np.array(q.zero_points or [0], np.float32), q, stored.ndim, layout)
    scales = _reshape_along(np.array(q.scales, np.float32), q, stored.ndim, layout)
    return (stored.astype(np.float32) - zeros) * scales


def activation_of(op: t.Op) -> Activation:
    """Return the activation that an op applies to its results."""
    return Activation(getattr(op.options, "activation", 0))


def apply_activation(x: Output, activation: Activation) -> Output:
    """Apply an activation to real numbers."""
    if activation is Activation.RELU:
        return node("Relu", x)
    if activation is Activation.RELU6:
        return node("Relu6", x)
    if activation is Activation.RELU_N1_TO_1:
        return node("Minimum", node("Maximum", x, np.float32(-1)), np.float32(1))
    return x
