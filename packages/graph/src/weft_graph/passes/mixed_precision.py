"""Mixed precision: matrix products, convolutions and the ops between them in a 16-bit type.

    y = matmul(relu(matmul(x, v)), w)    h = relu(matmul(cast(x, half), cast(v, half)))
                                         y = cast(matmul(h, cast(w, half)), float)

The selection is a simplified form of TensorFlow 1.15's pass `auto_mixed_precision`: products are
always computed in the short type; cheap ops, if they are between two products; all others never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.step_graph import StepGraph, reorder_nodes
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_PRODUCTS: Final = frozenset(
    (
        "BatchMatMul",
        "BatchMatMulV2",
        "Conv2D",
        "Conv2DBackpropFilter",
        "Conv2DBackpropInput",
        "Conv3D",
        "Conv3DBackpropFilterV2",
        "Conv3DBackpropInputV2",
        "MatMul",
    )
)
"""TensorFlow's list of ops that gain most, without recurrent cells."""

_BETWEEN: Final = frozenset(
    (
        "Add",
        "AddN",
        "AddV2",
        "BiasAdd",
        "ConcatV2",
        "Elu",
        "EluGrad",
        "Erf",
        "ExpandDims",
        "Identity",
        "LeakyRelu",
        "LeakyReluGrad",
        "MaxPool",
        "MaxPoolGrad",
        "Mul",
        "Neg",
        "Pad",
        "Relu",
        "Relu6",
        "Relu6Grad",
        "ReluGrad",
        "Reshape",
        "Sigmoid",
        "SigmoidGrad",
        "Slice",
        "Squeeze",
        "StridedSlice",
        "Sub",
        "Tanh",
        "TanhGrad",
        "Transpose",
    )
)
"""Ops of TensorFlow's lists whose results have about the error of their operands.

Exponentials, logarithms, long sums and normalizations are missing: they stay in float32.
"""

_REASON: Final = "mixed precision"


def use_short_type(step: StepGraph, dtype: DType) -> int:
    """Compute products, and the cheap ops between them, in a short type instead of float32.

    Values that other ops and the caller receive are float32. Nodes with control edges are left as
    they are.

    Args:
      step: the graph to edit.
      dtype: float16 or bfloat16.
    Returns: the number of nodes that are computed in the short type.
    """
    nodes = step.live_nodes()
    chosen = _choose(step, nodes)
    if not chosen:
        return 0
    writer = _Writer(step, dtype)
    for node in nodes:
        if node in chosen:
            writer.rewrite(node)
    step.replace_all(writer.replaced, reason=_REASON)
    reorder_nodes(step, step.live_nodes(), {})
    step.drop_unused([*chosen, *writer.widened])
    return len(chosen)


def _choose(step: StepGraph, nodes: Sequence[Node]) -> set[Node]:
    """Return the products, and the cheap nodes that have a product before and behind them."""
    targets = set(step.targets)
    able = [node for node in nodes if node not in targets and _is_able(node)]
    products = {node for node in able if node.type in _PRODUCTS}
    descendants, ancestors = set(products), set(products)
    for node in able:
        if any(source.node in descendants for source in node.inputs):
            descendants.add(node)
    for node in reversed(able):
        if any(user in ancestors for output in node.outputs for user in output.consumers()):
            ancestors.add(node)
    return products | (descendants & ancestors)


def _is_able(node: Node) -> bool:
    """Return True if a node is one of the ops, in float32, without references and control edges."""
    return (
        (node.type in _PRODUCTS or node.type in _BETWEEN)
        and node.attrs.get("T") is dtypes.float32
        and not node.controls
        and not node.control_outputs
        and not any(source.dtype._is_ref_dtype for source in node.inputs)
    )


class _Writer:
    """Adds the nodes of the short type, and casts at its borders.

    Attributes:
      replaced: the new outputs by the old ones.
      widened: the casts back to float32.
    """

    def __init__(self, step: StepGraph, dtype: DType) -> None:
        self.replaced: dict[Output, Output] = {}
        self.widened: list[Node] = []
        self._step = step
        self._dtype = dtype
        self._short: dict[Output, Output] = {}

    def rewrite(self, node: Node) -> None:
        """Add a node of the short type for one of float32."""
        inputs = [self._shorten(source, node) for source in node.inputs]
        types = [self._short_type(output) for output in node.outputs]
        attrs = {**node.attrs, "T": self._dtype}
        dims = [output.dims for output in node.outputs]
        new = self._add(node, node.op_def, inputs, attrs, types, dims)
        for old, value in zip(node.outputs, new.outputs, strict=True):
            self.replaced[old] = value
            if old.dtype is dtypes.float32:
                self._short[old] = value
                wide = self._cast(value, node, dtypes.float32)
                self.widened.append(wide.node)
                self.replaced[old] = wide

    def _short_type(self, value: Output) -> DType:
        return self._dtype if value.dtype is dtypes.float32 else value.dtype

    def _shorten(self, value: Output, user: Node) -> Output:
        if value.dtype is not dtypes.float32:
            return value
        if value not in self._short:
            self._short[value] = self._cast(value, user, self._dtype)
        return self._short[value]

    def _cast(self, value: Output, origin: Node, dtype: DType) -> Output:
        attrs = {"SrcT": value.dtype, "DstT": dtype, "Truncate": False}
        cast = self._add(origin, lookup_op("Cast"), [value], attrs, [dtype], [value.dims])
        return cast.outputs[0]

    def _add(
        self,
        origin: Node,
        op_def: OpDef,
        inputs: Sequence[Output],
        attrs: dict[str, Any],
        types: Sequence[DType],
        dims: Sequence[Any],
    ) -> Node:
        graph = self._step.graph
        name = graph.unique_name(f"{origin.name}/{self._dtype.name}")
        node = graph.add_derived(origin, op_def, name, tuple(inputs), attrs, types, dims)
        node.device, node.forward = origin.device, origin.forward
        return node
