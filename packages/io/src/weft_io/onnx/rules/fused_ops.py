"""Fused ops of ONNX Runtime, which its optimizer creates from standard ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Output
from weft_graph.ops.comparison import equal
from weft_graph.ops.elementary import sigmoid
from weft_graph.ops.gather import gather
from weft_graph.ops.powers import rsqrt, square
from weft_graph.ops.reduction import reduce_mean, reduce_sum
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, shape
from weft_graph.ops.special import erf
from weft_graph.ops.trigonometry import tanh
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_tensor import dtypes

RUNTIME: Final = "com.microsoft"
"""The domain of these ops."""

# --------------------------------------------------------------------------- activations


@importer("Gelu", domain=RUNTIME, elementwise=True)
def _gelu(operation: Operation) -> Output:
    return _gelu_of(operation[0])


@importer("BiasGelu", domain=RUNTIME)
def _bias_gelu(operation: Operation) -> Output:
    return _gelu_of(operation[0] + operation[1])


@importer("FastGelu", domain=RUNTIME)
def _fast_gelu(operation: Operation) -> Output:
    """Import Gelu by the tanh approximation."""
    x, bias = operation[0], operation.get(1)
    x = x if bias is None else x + bias
    cube = x * (like(0.7978845608028654, x) + like(0.035677408136300125, x) * x * x)
    result: Output = like(0.5, x) * x * (like(1, x) + tanh(cube))
    return result


@importer("QuickGelu", domain=RUNTIME, elementwise=True)
def _quick_gelu(operation: Operation) -> Output:
    x = operation[0]
    result: Output = x * sigmoid(x * like(operation.attribute("alpha", 1.702), x))
    return result


def _gelu_of(x: Output) -> Output:
    result: Output = like(0.5, x) * x * (like(1, x) + erf(x * like(np.sqrt(0.5), x)))
    return result


_PARAMETERS: Final = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}


def _activate(operation: Operation, x: Output, values: Sequence[float]) -> Output:
    """Apply the activation that an op names."""
    name = operation.attribute("activation")
    if not name:
        return x
    if name == "Clip":
        return operation.of("Clip", x, *[like(value, x) for value in values])
    parameters: dict[str, Any] = dict(zip(_PARAMETERS.get(name, ()), values, strict=False))
    return operation.of(name, x, **parameters)


# ------------------------------------------------------------------------------ products


@importer("FusedConv", domain=RUNTIME)
def _fused_conv(operation: Operation) -> Output:
    names = ("activation", "activation_params")
    attributes = {k: v for k, v in operation.attributes.items() if k not in names}
    result = operation.of("Conv", *operation.inputs[:3], **attributes)
    addend = operation.get(3)
    result = result if addend is None else operation.of("Add", result, addend)
    return _activate(operation, result, operation.attribute("activation_params") or ())


@importer("FusedGemm", domain=RUNTIME)
def _fused_gemm(operation: Operation) -> Output:
    names = ("alpha", "beta", "transA", "transB")
    attributes = {k: v for k, v in operation.attributes.items() if k in names}
    result = operation.of("Gemm", *operation.inputs, **attributes)
    parameters = (operation.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma"))
    return _activate(operation, result, [value for value in parameters if value is not None])


@importer("FusedMatMul", "TransposeMatMul", domain=RUNTIME)
def _fused_matmul(operation: Operation) -> Output:
    a, b = (_reverse(operation, index, name) for index, name in enumerate("AB"))
    result = operation.of("MatMul", a, b)
    return result * like(operation.attribute("alpha", 1.0), result)


def _reverse(operation: Operation, index: int, name: str) -> Output:
    """Return an operand of a product, transposed if an attribute says so."""
    x = operation[index]
    matrix, batch = (operation.attribute(f"trans{kind}{name}", 0) for kind in ("", "Batch"))
    if not (matrix or batch) or operation.rank(index) < 2:
        return x
    order = list(range(operation.rank(index)))
    if batch:  # the first axis is that of the matrix
        order = [*order[1:-1], 0, order[-1]]
    if matrix:
        order[-2:] = reversed(order[-2:])
    return operation.transposed(x, order)


# ------------------------------------------------------------------------ normalizations


@importer("SkipLayerNormalization", domain=RUNTIME)
def _skip_layer_normalization(operation: Operation) -> Sequence[Output | None]:
    total, bias = operation[0] + operation[1], operation.get(4)
    total = total if bias is None else total + bias
    epsilon = operation.attribute("epsilon", 1e-12)
    result, mean, factor = _normal(total, operation[2], operation.get(3), epsilon)
    return [result, mean, factor, total][: max(operation.num_outputs, 1)]


@importer("SimplifiedLayerNormalization")
def _simplified_layer_normalization(operation: Operation) -> Sequence[Output | None]:
    x, axis = operation[0], operation.axis(-1)
    wide = cast(x, operation.dtype_of("stash_type", dtypes.float32))
    axes = list(range(axis, operation.rank()))
    factor = _factor(wide, axes, operation.attribute("epsilon", 1e-5))
    return [cast(wide * factor, x.dtype) * operation[1], factor][: max(operation.num_outputs, 1)]


@importer("SkipSimplifiedLayerNormalization", domain=RUNTIME)
def _skip_simplified_layer_normalization(operation: Operation) -> Sequence[Output | None]:
    total, bias = operation[0] + operation[1], operation.get(3)
    total = total if bias is None else total + bias
    factor = _factor(total, [-1], operation.attribute("epsilon", 1e-5))
    return [total * factor * operation[2], None, factor, total][: max(operation.num_outputs, 1)]


def _normal(x: Output, scale: Output, bias: Output | None, epsilon: float) -> list[Output]:
    """Return the normalization over the last axis, the means, and the reciprocal deviations."""
    mean = reduce_mean(x, [-1], True)
    factor = _factor(x - mean, [-1], epsilon)
    result = (x - mean) * factor * scale
    return [result if bias is None else result + bias, mean, factor]


def _factor(x: Output, axes: Sequence[int], epsilon: float) -> Output:
    mean = reduce_mean(square(x), list(axes), True)
    return rsqrt(mean + like(epsilon, x))


@importer("EmbedLayerNormalization", domain=RUNTIME)
def _embed_layer_normalization(operation: Operation) -> Sequence[Output | None]:
    """Import the normalized sum of the embeddings of words, positions and segments."""
    ids, segments, mask = operation[0], operation.get(1), operation.get(7)
    position_ids = operation.get(8)
    if position_ids is None:
        position_ids = expand_dims(sequence(shape(ids)[1]), 0)
    total = gather(operation[2], ids) + gather(operation[3], position_ids)
    if segments is not None and operation.get(4) is not None:
        total = total + gather(operation[4], segments)
    result = _normal(total, operation[5], operation[6], operation.attribute("epsilon", 1e-12))[0]
    counts = cast(equal(cast(ids if mask is None else mask, dtypes.int32), 1), dtypes.int32)
    lengths = reduce_sum(counts if mask is not None else counts * 0, [1])
    return [result, lengths, total][: max(operation.num_outputs, 1)]
