"""Elementwise functions."""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Node
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.layouts import NHWC, emit_elementwise, emit_image, image, layout
from weft_lite.convert.lowered import Value, constant
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.tables import ElementwiseOptions

ONE = [
    "Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Exp", "Expm1", "Log", "Log1p", "Sin", "Cos",
    "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Sigmoid",
    "Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "Erf", "Erfc", "Floor", "Ceil", "Rint",
    "Reciprocal", "IsNan", "IsInf", "IsFinite", "LogicalNot",
]  # fmt: skip
TWO = [
    "Sub", "Mul", "Maximum", "Minimum", "Pow", "SquaredDifference", "Atan2", "FloorDiv", "FloorMod",
    "TruncateDiv", "TruncateMod", "Less", "LessEqual", "Greater", "GreaterEqual", "Equal",
    "NotEqual", "LogicalAnd", "LogicalOr",
]  # fmt: skip
RENAMED = {"Inv": "Reciprocal", "Add": "Add", "AddV2": "Add", "RealDiv": "Div", "Div": "Div"}


@rule(*ONE, *TWO, *RENAMED)
def elementwise(node: Node, b: Builder) -> None:
    """Lower to the elementwise op of the same function."""
    kind = OpKind[RENAMED.get(node.type, node.type)]
    emit_elementwise(b, kind, node, b.inputs(node), ElementwiseOptions())


@rule("Round")
def lower_rint(node: Node, b: Builder) -> None:
    """Lower to Rint: `Round` rounds halves to even numbers, too."""
    b.emit(OpKind.Rint, node, b.inputs(node), ElementwiseOptions())


@rule("LeakyRelu")
def leaky_relu(node: Node, b: Builder) -> None:
    """Lower to LeakyRelu."""
    options = ElementwiseOptions(alpha=float(node.attrs["alpha"]))
    b.emit(OpKind.LeakyRelu, node, b.inputs(node), options)


@rule("BiasAdd")
def bias_add(node: Node, b: Builder) -> None:
    """Lower to Add, with the bias reshaped to the axis of the channels."""
    x, bias = b.inputs(node)
    assert x is not None and bias is not None
    if layout(node) == NHWC or len(x.shape) == 4:
        operands = [image(b, node, node.inputs[0]), bias]
        emit_image(b, OpKind.Add, node, [*operands], ElementwiseOptions())
        return
    sizes = b.ints(f"{node.name}/shape", [-1, *[1] * (len(x.shape) - 2)])
    expanded = b.new(f"{node.name}/bias", "float32", (*bias.shape, *[1] * (len(x.shape) - 2)))
    b.add(OpKind.Reshape, [bias, sizes], [expanded], None, node.name)
    b.emit(OpKind.Add, node, [x, expanded], ElementwiseOptions())


@rule("Select", "SelectV2")
def select(node: Node, b: Builder) -> None:
    """Lower to Select; a vector condition is reshaped to select rows."""
    values = b.inputs(node)
    condition, rank = b.value(node.inputs[0]), len(b.value(node.inputs[1]).shape)
    if node.type == "Select" and len(condition.shape) == 1 < rank:  # one truth for each row
        wide = b.new(f"{node.name}/rows", "bool", (*condition.shape, *[1] * (rank - 1)))
        target = b.ints(f"{node.name}/shape", [-1, *[1] * (rank - 1)])
        b.add(OpKind.Reshape, [condition, target], [wide], None, node.name)
        values[0] = wide
    b.emit(OpKind.Select, node, values)


@rule("ClipByValue")
def clip(node: Node, b: Builder) -> None:
    """Lower to Minimum(Maximum(x, low), high)."""
    x, low, high = b.inputs(node)
    minimum = b.new(f"{node.name}/least", node.outputs[0].dtype.name, b.shape_of(node.outputs[0]))
    b.add(OpKind.Maximum, [x, low], [minimum], ElementwiseOptions(), node.name)
    b.emit(OpKind.Minimum, node, [minimum, high], ElementwiseOptions())


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(node: Node, b: Builder) -> None:
    """Lower to x * factor + offset, with factor and offset from the four statistics."""
    if node.attrs["is_training"]:
        raise NotInLiteError(
            "batch normalization is in training mode (is_training=True): convert a graph built "
            "with training=False, or with a placeholder that is bound, values={'training': False}"
        )
    arrays = [
        b.require_array(input_, "a statistic").astype(np.float64) for input_ in node.inputs[1:5]
    ]
    scale, offset, mean, variance = arrays
    factor = scale / np.sqrt(variance + float(node.attrs["epsilon"]))
    shift = (offset - mean * factor).astype(np.float32)
    for result, source in zip(node.outputs[1:3], node.inputs[3:5], strict=True):
        b.same(result, b.value(source))
    x = image(b, node, node.inputs[0])
    scaled = b.like(x, f"{node.name}/scaled")
    factors = constant(f"{node.name}/factor", factor.astype(np.float32))
    b.add(OpKind.Mul, [x, factors], [scaled], ElementwiseOptions(), node.name)
    operands = [scaled, constant(f"{node.name}/offset", shift)]
    emit_image(b, OpKind.Add, node, [*operands], ElementwiseOptions())


@rule("AddN")
def add_n(node: Node, b: Builder) -> None:
    """Lower to a chain of Adds."""
    first, *others = b.inputs(node)
    if not others:
        b.same(node.outputs[0], b.value(node.inputs[0]))
        return
    assert first is not None
    total: Value = first
    for other in others[:-1]:
        dtype, shape = node.outputs[0].dtype.name, b.shape_of(node.outputs[0])
        partial = b.new(f"{node.name}/partial", dtype, shape)
        b.add(OpKind.Add, [total, other], [partial], ElementwiseOptions(), node.name)
        total = partial
    b.emit(OpKind.Add, node, [total, others[-1]], ElementwiseOptions())
