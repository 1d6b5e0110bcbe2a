"""Activations, softmax and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops import nn
from weft_graph.ops.arithmetic import clip_by_value, minimum
from weft_graph.ops.array import ones_like
from weft_graph.ops.comparison import greater, greater_equal, less, logical_not, logical_or
from weft_graph.ops.elementary import exp, log
from weft_graph.ops.gather import one_hot
from weft_graph.ops.identity import identity
from weft_graph.ops.masks import where_v2
from weft_graph.ops.padding import pad
from weft_graph.ops.random import random_uniform
from weft_graph.ops.reduction import argmax, reduce_max, reduce_prod, reduce_sum
from weft_graph.ops.shapes import reshape, shape
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import exporter, importer
from weft_tensor import dtypes, errors

_PLAIN: Final[dict[str, Callable[[Output], Output]]] = {
    "Softplus": nn.softplus,
    "Softsign": nn.softsign,
}


@importer(*_PLAIN, elementwise=True)
def _import_elementwise(operation: Operation) -> Output:
    return _PLAIN[operation.op](operation[0])


@importer("Relu", elementwise=True)
def _relu(operation: Operation) -> Output:
    x = operation[0]
    return nn.relu(x) if not x.dtype.is_unsigned else x


@importer("LeakyRelu", elementwise=True)
def _leaky_relu(operation: Operation) -> Output:
    return nn.leaky_relu(operation[0], operation.attribute("alpha", 0.01))


@importer("PRelu", elementwise=True)
def _prelu(operation: Operation) -> Output:
    x, slope = operation[0], operation[1]
    if operation.version < 7 and operation.rank(1) == 1 and slope.dims != (1,):
        slope = reshape(slope, [-1, *[1] * (operation.rank() - 2)])
    return where_v2(less(x, like(0, x)), slope * x, x)


@importer("Elu", elementwise=True)
def _elu(operation: Operation) -> Output:
    x, alpha = operation[0], operation.attribute("alpha", 1.0)
    return nn.elu(x) if alpha == 1.0 else selu_of(x, alpha, 1.0)


@importer("Celu", elementwise=True)
def _celu(operation: Operation) -> Output:
    x, alpha = operation[0], operation.attribute("alpha", 1.0)
    if alpha == 1.0:
        return nn.elu(x)
    return nn.elu(x / like(alpha, x)) * like(alpha, x)


@importer("Selu", elementwise=True)
def _selu(operation: Operation) -> Output:
    defaults = (1.6732632423543772, 1.0507009873554805)
    if operation.version < 6:
        defaults = (1.6732, 1.0507)
    return selu_of(
        operation[0],
        operation.attribute("alpha", defaults[0]),
        operation.attribute("gamma", defaults[1]),
    )


def selu_of(x: Output, alpha: float, gamma: float) -> Output:
    """Compute `gamma * x`, and `gamma * alpha * (exp(x) - 1)` for negative x."""
    zero = like(0, x)
    negative = like(alpha, x) * (exp(minimum(x, zero)) - like(1, x))
    return like(gamma, x) * where_v2(greater(x, zero), x, negative)


@importer("HardSigmoid", elementwise=True)
def _hard_sigmoid(operation: Operation) -> Output:
    alpha, beta = operation.attribute("alpha", 0.2), operation.attribute("beta", 0.5)
    return _clip_linear(operation[0], alpha, beta)


@importer("HardSwish", elementwise=True)
def _hard_swish(operation: Operation) -> Output:
    x = operation[0]
    return x * _clip_linear(x, 1 / 6, 0.5)


def _clip_linear(x: Output, slope: float, offset: float) -> Output:
    """Compute `slope * x + offset`, clipped to [0, 1]."""
    line = x * like(slope, x) + like(offset, x)
    clipped: Output = clip_by_value(line, like(0, x), like(1, x))
    return clipped


@importer("ThresholdedRelu", elementwise=True)
def _threshold(operation: Operation) -> Output:
    x = operation[0]
    return where_v2(greater(x, like(operation.attribute("alpha", 1.0), x)), x, like(0, x))


@importer("Softmax", "LogSoftmax", "Hardmax")
def _softmax(operation: Operation) -> Output:
    """Import a softmax: from version 13 over one axis, before over all axes from `axis` on."""
    x = operation[0]
    axis = operation.attribute("axis", -1 if operation.version >= 13 else 1)
    if x.dims is None and (operation.version >= 13 or axis == -1) and operation.op != "Hardmax":
        return _apply_any_rank(operation.op, x, axis)
    axis = operation.axis(-1 if operation.version >= 13 else 1)
    if operation.version >= 13 or axis == operation.rank() - 1:
        x, order = operation.plain()
        return operation.transposed(_hardmax_mask(operation.op, x, order[axis]), order)
    sizes = shape(x)
    rows = reduce_prod(sizes[:axis])
    flat = reshape(x, [rows, -1])
    return reshape(_hardmax_mask(operation.op, flat, 1), sizes)


def _hardmax_mask(op: str, x: Output, axis: int) -> Output:
    if op == "Softmax":
        return nn.softmax(x, axis=axis)
    if op == "LogSoftmax":
        return nn.log_softmax(x, axis=axis)
    size = None if x.dims is None else x.dims[axis]
    padded_input = x if size else _append_one(x, axis)
    return one_hot(argmax(padded_input, axis), shape(x)[axis], axis=axis, dtype=x.dtype.base_dtype)


def _append_one(x: Output, axis: int) -> Output:
    """Append an element to an axis: 0 before the sort of Hardmax."""
    sides = [(0, int(item == axis)) for item in range(len(x.dims or ()))]
    return pad(x, sides, constant_values=like(float("-inf"), x))


def _apply_any_rank(op: str, x: Output, axis: int) -> Output:
    """Apply an op to one axis of a tensor of unknown rank."""
    shifted = x - reduce_max(x, axis, keepdims=True)
    powers = exp(shifted)
    total = reduce_sum(powers, axis, keepdims=True)
    return powers / total if op == "Softmax" else shifted - log(total)


@importer("Dropout")
def _dropout(operation: Operation) -> list[Output]:
    """Import Dropout, which does nothing outside training mode."""
    x, mode = operation[0], operation.get(2)
    mode_value = operation.value(2)
    if mode is None or (mode_value is not None and not mode_value):
        return [identity(x), cast(ones_like(x), dtypes.bool_)][: max(operation.num_outputs, 1)]
    ratio: Any = operation.get(1)
    rate = constant(0.5) if ratio is None else cast(ratio, dtypes.float32)
    noise = random_uniform(shape(x), seed=operation.attribute("seed"))
    keep_mask = logical_or(logical_not(mode), greater_equal(noise, rate))
    factor = cast(where_v2(mode, 1.0 / (1.0 - rate), like(1, rate)), x.dtype)
    return [x * cast(keep_mask, x.dtype) * factor, keep_mask]


@importer("Constant")
def _constant(operation: Operation) -> Output:
    kinds = {
        "value": None,
        "sparse_value": None,
        "value_float": dtypes.float32,
        "value_floats": dtypes.float32,
        "value_int": dtypes.int64,
        "value_ints": dtypes.int64,
        "value_string": dtypes.string,
        "value_strings": dtypes.string,
    }
    for name, dtype in kinds.items():
        result = operation.attribute(name)
        if result is not None:
            return constant(result, dtype)
    raise errors.InvalidArgumentError(f"Constant requires one of {', '.join(kinds)}")


# -------------------------------------------------------------------------------- export


@exporter("Relu", "Elu", "Softplus", "Softsign")
def _export_elementwise(export: NodeExport) -> Value:
    return export.elementwise(export.node.type, export[0])


@exporter("Relu6")
def _write_relu6(export: NodeExport) -> Value:
    x = export[0]
    bounds = export.like(0, x), export.like(6, x)
    return export.elementwise("Clip", x, *bounds)


@exporter("LeakyRelu")
def _write_leaky_relu(export: NodeExport) -> Value:
    return export.elementwise("LeakyRelu", export[0], alpha=float(export.attribute("alpha")))


@exporter("Selu")
def _write_selu(export: NodeExport) -> Value:
    return export.elementwise("Selu", export[0])


@exporter("Softmax", "LogSoftmax")
def _write_softmax(export: NodeExport) -> Value:
    return export.add(
        export.node.type, export[0], axis=-1 if export.opset >= 11 else export.rank() - 1
    )
