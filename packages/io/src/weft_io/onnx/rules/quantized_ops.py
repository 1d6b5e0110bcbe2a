"""ONNX Runtime's additional 8-bit ops.

Each is the standard op on floats, between a dequantization and a quantization. Products are exact,
like those of the standard ops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.permutation import transpose
from weft_graph.ops.reduction import reduce_mean
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.fused_ops import RUNTIME
from weft_io.onnx.rules.integer_products import exact_product, product_with_weights
from weft_io.onnx.rules.linalg import product
from weft_io.onnx.rules.quantization import quantize_dynamically, requantize
from weft_tensor import dtypes, errors


def _real(operation: Operation, index: int) -> Output:
    """Dequantize input `index` with the scale and zero point that follow it."""
    return operation.of("DequantizeLinear", *operation.inputs[index : index + 3])


def _store(operation: Operation, real: Output, index: int, type_index: int = 0) -> Output:
    """Quantize to 8 bits with the scale and zero point in inputs `index` and after."""
    zero = operation.get(index + 1)
    if zero is None:
        zero = constant(0, operation[type_index].dtype.base_dtype)
    return operation.of("QuantizeLinear", real, operation[index], zero)


@importer("QuantizeLinear", "DequantizeLinear", domain=RUNTIME)
def _import_older_form(operation: Operation) -> Output:
    """Import older forms of standard ops, before these supported 16 bits."""
    return operation.of(operation.op, *operation.inputs, **operation.attributes)


@importer("QLinearAdd", "QLinearMul", domain=RUNTIME)
def _binary(operation: Operation) -> Output:
    op = operation.op.removeprefix("QLinear")
    return _store(operation, operation.of(op, _real(operation, 0), _real(operation, 3)), 6)


@importer("QLinearSigmoid", "QLinearLeakyRelu", domain=RUNTIME)
def _activation(operation: Operation) -> Output:
    op = operation.op.removeprefix("QLinear")
    return _store(operation, operation.of(op, _real(operation, 0), **operation.attributes), 3)


@importer("QLinearSoftmax", domain=RUNTIME)
def _softmax(operation: Operation) -> Output:
    axis, version = operation.attribute("axis", -1), operation.attribute("opset", 13)
    result = operation.of("Softmax", _real(operation, 0), version=version, axis=axis)
    return _store(operation, result, 3)


@importer("QLinearGlobalAveragePool", "QLinearAveragePool", domain=RUNTIME)
def _pool(operation: Operation) -> Output:
    x, last = _real(operation, 0), operation.attribute("channels_last", 0)
    if last:
        count = operation.rank()
        x = operation.transposed(x, [0, count - 1, *range(1, count - 1)])
    attributes = {k: v for k, v in operation.attributes.items() if k != "channels_last"}
    result = operation.of(operation.op.removeprefix("QLinear"), x, **attributes)
    if last:
        result = operation.transposed(result, [0, *range(2, count), 1])
    return _store(operation, result, 3)


@importer("QLinearConcat", domain=RUNTIME)
def _concat(operation: Operation) -> Output:
    parts = [_real(operation, index) for index in range(2, len(operation.inputs), 3)]
    result = operation.of("Concat", *parts, axis=operation.required("axis"))
    return _store(operation, result, 0, type_index=2)


@importer("QLinearWhere", domain=RUNTIME)
def _where(operation: Operation) -> Output:
    result = operation.of("Where", operation[0], _real(operation, 1), _real(operation, 4))
    return _store(operation, result, 7, type_index=1)


@importer("QLinearReduceMean", domain=RUNTIME)
def _reduce_mean(operation: Operation) -> Output:
    x = _real(operation, 0)
    axes = operation.attribute("axes") or list(range(operation.rank()))
    return _store(operation, reduce_mean(x, axes, bool(operation.attribute("keepdims", 1))), 3)


@importer("QGemm", domain=RUNTIME)
def _q_gemm(operation: Operation) -> Output:
    """Import an 8-bit product with a 32-bit bias; the result is float if it has no scale."""
    for index, name in ((0, "transA"), (3, "transB")):
        if operation.attribute(name, 0):
            operation.inputs[index] = _reverse(operation, index)
    result = cast(exact_product(operation, (0, 2), (3, 5)), dtypes.float64)
    bias = operation.get(6)
    if bias is not None:
        result = result + cast(bias, dtypes.float64)
    scale = cast(operation[1], result.dtype) * cast(operation[4], result.dtype)
    scale = scale * operation.attribute("alpha", 1.0)
    if operation.get(7) is None:
        return cast(result * scale, dtypes.float32)
    return requantize(result, scale, operation, 7)


def _reverse(operation: Operation, index: int) -> Output:
    known_value = operation.value(index)
    return transpose(operation[index]) if known_value is None else constant(known_value.T)


@importer("MatMulIntegerToFloat", domain=RUNTIME)
def _to_float(operation: Operation) -> Output:
    result = cast(exact_product(operation, (0, 4), (1, 5)), dtypes.float32)
    return _add_bias(operation, result * (operation[2] * operation[3]), 6)


@importer("DynamicQuantizeMatMul", domain=RUNTIME)
def _dynamic(operation: Operation) -> Output:
    rows, scale, zero = quantize_dynamically(operation[0])
    x, point = cast(rows, dtypes.uint8), cast(zero, dtypes.int32)
    result = cast(product_with_weights(operation, x, point, (1, 3)), dtypes.float32)
    return _add_bias(operation, result * (scale * operation[2]), 4)


@importer("MatMulNBits", domain=RUNTIME)
def _import_few_bits(operation: Operation) -> Output:
    """Import a product in floats with weights of 2, 4 or 8 bits and a scale per block."""
    if operation.get(4) is not None:
        raise errors.UnimplementedError("MatMulNBits does not support g_idx")
    x, bits = operation[0], operation.attribute("bits", 4)
    if bits not in (2, 4, 8):
        raise errors.UnimplementedError(f"MatMulNBits supports 2, 4 or 8 bits, got {bits}")
    depth, width, block = (operation.required(name) for name in ("K", "N", "block_size"))
    count = -(-depth // block)
    packed, scales = operation.known(1, "weights"), operation.known(2, "scales")
    rows = _unpack(packed.reshape(width, -1), bits)[:, : count * block]
    rows = rows.reshape(width, count, block).astype(np.float32)
    points: Any = np.float32(2 ** (bits - 1))
    if operation.get(3) is not None:
        points = operation.known(3, "zero points").reshape(width, -1)
        points = _unpack(points, bits) if points.dtype == np.uint8 else points
        points = points[:, :count, None].astype(np.float32)
    rows = (rows - points) * scales.reshape(width, count, 1).astype(np.float32)
    weights = rows.reshape(width, -1)[:, :depth].T.astype(x.dtype.numpy)
    return _add_bias(operation, product(x, constant(weights)), 5)


def _unpack(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Unpack the numbers in the bytes of each row, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    result = packed[..., None] >> shifts & np.uint8(2**bits - 1)
    return result.reshape(len(packed), -1)


def _add_bias(operation: Operation, real: Output, index: int) -> Output:
    bias = operation.get(index)
    return real if bias is None else real + bias
