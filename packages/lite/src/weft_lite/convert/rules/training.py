"""Training on the device: losses with their gradients, and update rules of optimizers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Node
from weft_graph.ir.scalar import Scalar
from weft_graph.ops.training import RULES, UpdateRule, op_type
from weft_graph.ops.update_formulas import FORMULAS
from weft_lite.convert.layouts import NHWC, layout
from weft_lite.convert.lowered import Value
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.convert.rules.state import variable
from weft_lite.convert.scalars import lower_scalar
from weft_lite.schema.tables import AxisOptions, ElementwiseOptions, ReduceOptions

_RULES: Final = {
    op_type(rule_.name, False, resource): rule_
    for rule_ in RULES.values()
    for resource in (False, True)
}


@rule(*_RULES)
def apply_update(node: Node, b: Builder) -> None:
    """Compute the new values of the variable and its slots, then assign them."""
    update: UpdateRule = _RULES[node.type]
    count = len(update.states)
    states = [variable(state, b) for state in node.inputs[:count]]
    operands = [*states, *(b.value(operand) for operand in node.inputs[count:])]
    dtypes = [node.attrs["T"]] * count + [x.dtype.base_dtype for x in node.inputs[count:]]
    elements = [Scalar("input", dtype, (), i) for i, dtype in enumerate(dtypes)]
    formulas = FORMULAS[update.name](node.attrs, *elements)
    values = [
        lower_scalar(formula, operands, node.attrs.__getitem__, b, f"{node.name}/{name}")
        for formula, name in zip(formulas, update.states, strict=True)
    ]
    results = [assign(b, state, value, node) for state, value in zip(states, values, strict=True)]
    for output in node.outputs:
        b.same(output, results[0])


def assign(b: Builder, state: Value, value: Value, node: Node) -> Value:
    """Assign a value to a variable; return the new value."""
    result = b.like(state, node.name)
    b.add(OpKind.Assign, [state, value], [result], None, node.name)
    return result


@rule("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
def cross_entropy(node: Node, b: Builder) -> None:
    """Lower to loss = -sum(labels * log_softmax(logits)) and softmax(logits) - labels."""
    logits, labels = b.inputs(node)
    assert logits is not None and labels is not None
    name = node.name
    if node.type == "SparseSoftmaxCrossEntropyWithLogits":
        operands = [labels, *(_number(b, name, n) for n in (np.int32(logits.shape[-1]), 1.0, 0.0))]
        labels = b.like(logits, f"{name}/labels")
        b.add(OpKind.OneHot, [*operands], [labels], AxisOptions(-1), name)
    loss, backprop = (b.result(output) for output in node.outputs)
    logs = b.like(logits, f"{name}/logs")
    b.add(OpKind.LogSoftmax, [logits], [logs], AxisOptions(-1, beta=1.0), name)
    terms = b.like(logits, f"{name}/terms")
    b.add(OpKind.Mul, [labels, logs], [terms], ElementwiseOptions(), name)
    total = b.like(loss, f"{name}/sum")
    b.add(OpKind.Sum, [terms, b.ints(f"{name}/axes", [1])], [total], ReduceOptions(), name)
    b.add(OpKind.Neg, [total], [loss], ElementwiseOptions(), name)
    probabilities = b.like(logits, f"{name}/probabilities")
    b.add(OpKind.Softmax, [logits], [probabilities], AxisOptions(-1, beta=1.0), name)
    b.add(OpKind.Sub, [probabilities, labels], [backprop], ElementwiseOptions(), name)


@rule("BiasAddGrad")
def bias_add_grad(node: Node, b: Builder) -> None:
    """Lower to a Sum over all axes except that of the channels."""
    rank = len(b.value(node.inputs[0]).shape)
    channel = rank - 1 if layout(node) == NHWC else 1
    axes = b.ints(f"{node.name}/axes", [axis for axis in range(rank) if axis != channel])
    b.emit(OpKind.Sum, node, [b.value(node.inputs[0]), axes], ReduceOptions())


@rule("L2Loss")
def l2_loss(node: Node, b: Builder) -> None:
    """Lower to sum(x ** 2) / 2."""
    x = b.value(node.inputs[0])
    squares = b.like(x, f"{node.name}/squares")
    b.add(OpKind.Square, [x], [squares], ElementwiseOptions(), node.name)
    total = b.new(f"{node.name}/sum", "float32", ())
    axes = b.ints(f"{node.name}/axes", range(len(x.shape)))
    b.add(OpKind.Sum, [squares, axes], [total], ReduceOptions(), node.name)
    b.emit(OpKind.Mul, node, [total, _number(b, node.name, 0.5)], ElementwiseOptions())


def _number(b: Builder, name: str, value: Any) -> Value:
    """Create a constant; floats have the type float32."""
    array = np.float32(value) if isinstance(value, float) else np.asarray(value)
    return b.constant(f"{name}/{value}", array)
