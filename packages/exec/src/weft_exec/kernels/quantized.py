"""Kernels of arithmetic with quantized tensors, by exact sums and products of integers.

Products are summed in float64, which is exact for any sum of 8-bit products, and for up to 2 ** 21
products of 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.pool import Pool, fold_windows
from weft_exec.kernels.quantization import (
    F32,
    dequantize_values,
    limits,
    requantize,
    require_shape,
    round_away,
    to_integers,
)
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.window_functions import pad_spatial, windows
from weft_graph.ops.windows import slide
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _to_integer(value: float, dtype: DType, low: Any, high: Any) -> float:
    """Return the integer that represents a number in a range.

    It may exceed the limits of the type.
    """
    minimum, limit = limits(dtype)
    low, high = np.float64(low), np.float64(high)
    if low == high:
        return minimum
    scale = (limit - minimum) / (high - low)
    return float(round_away(np, value * scale) - round_away(np, low * scale) + minimum)


def _subtract_zero(x: Any, dtype: DType, low: Any, high: Any) -> Any:
    """Return integers minus the integer that represents 0."""
    return x.astype(np.float64) - _to_integer(0.0, dtype, low, high)


def _step(dtype: DType, low: Any, high: Any) -> float:
    minimum, limit = limits(dtype)
    return (float(high) - float(low)) / (limit - minimum)


def _range_of_products(node: Node, types: tuple[DType, DType], ends: Any) -> tuple[Any, Any]:
    """Return the range whose integer step is the product of the operands' steps."""
    minimum, limit = limits(node.outputs[0].dtype)
    step = _step(types[0], *ends[:2]) * _step(types[1], *ends[2:])
    return F32(step * minimum), F32(step * limit)


def _check_ends(op: str, *ends: Any) -> None:
    for end in ends:
        require_shape(op, "ends of ranges", end, ())
    for low, high in zip(ends[::2], ends[1::2], strict=True):
        if low > high:
            raise errors.InvalidArgumentError(
                f"{op} requires ranges whose minimum is not above the maximum, got {low} and {high}"
            )


def _types(node: Node) -> tuple[DType, DType]:
    return node.inputs[0].dtype.base_dtype, node.inputs[1].dtype.base_dtype


@kernel("QuantizedMatMul", heavy=True)
def _matmul(node: Node, device: Device) -> KernelFunction:
    op, types, target = node.type, _types(node), node.outputs[0].dtype
    turn_a, turn_b = node.attrs["transpose_a"], node.attrs["transpose_b"]

    def run(a: Any, b: Any, *ends: Any) -> Any:
        _check_ends(op, *ends)
        a, b = _subtract_zero(a, types[0], *ends[:2]), _subtract_zero(b, types[1], *ends[2:])
        a, b = a.T if turn_a else a, b.T if turn_b else b
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise errors.InvalidArgumentError(
                f"{op} requires matrices of equal inner sizes, got {list(a.shape)} and "
                f"{list(b.shape)}"
            )
        return (to_integers(np, a @ b, target), *_range_of_products(node, types, ends))

    return run


@kernel("QuantizedMul")
def _mul(node: Node, device: Device) -> KernelFunction:
    op, types, target = node.type, _types(node), node.outputs[0].dtype

    def run(x: Any, y: Any, *ends: Any) -> Any:
        _check_ends(op, *ends)
        _check_broadcast(op, x, y)
        product = _subtract_zero(x, types[0], *ends[:2]) * _subtract_zero(y, types[1], *ends[2:])
        return (to_integers(np, product, target), *_range_of_products(node, types, ends))

    return run


def _check_broadcast(op: str, x: Any, y: Any) -> None:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"{op} requires shapes that broadcast, got {list(x.shape)} and {list(y.shape)}"
        ) from None


ROOM = {"QuantizedAdd": 1 << 14, "QuantizedBiasAdd": 1 << 17}
"""Ratio of the range of 32-bit sums to the larger range of the operands."""


@kernel("QuantizedAdd", "QuantizedBiasAdd")
def _add(node: Node, device: Device) -> KernelFunction:
    op, types, target = node.type, _types(node), node.outputs[0].dtype

    def run(x: Any, y: Any, *ends: Any) -> Any:
        _check_ends(op, *ends)
        if op == "QuantizedBiasAdd":
            require_shape(op, "bias", y, x.shape[-1:])
        _check_broadcast(op, x, y)
        high = max(abs(float(end)) for end in ends) * (ROOM[op] if target.size == 4 else 2)
        expected = (F32(-high), F32(high))
        parts = [
            requantize(np, value, dtype, ends_of_range, target, expected).astype(np.float64)
            for value, dtype, ends_of_range in ((x, types[0], ends[:2]), (y, types[1], ends[2:]))
        ]
        return (to_integers(np, parts[0] + parts[1], target), *expected)

    return run


@kernel("QuantizedConv2D", heavy=True)
def _conv2d(node: Node, device: Device) -> KernelFunction:
    op, attrs, types, target = node.type, node.attrs, _types(node), node.outputs[0].dtype
    strides, gaps = attrs["strides"][1:3], attrs["dilations"][1:3]

    def run(x: Any, taps: Any, *ends: Any) -> Any:
        _check_ends(op, *ends)
        if x.ndim != 4 or taps.ndim != 4 or x.shape[3] != taps.shape[2]:
            raise errors.InvalidArgumentError(
                f"{op} requires an input of shape [N, H, W, C] and a filter of shape "
                f"[KH, KW, C, O], got {list(x.shape)} and {list(taps.shape)}"
            )
        matches = [
            slide(n, k, s, d, attrs["padding"])
            for n, k, s, d in zip(x.shape[1:3], taps.shape[:2], strides, gaps, strict=True)
        ]
        counts, before, after = zip(*matches, strict=True)
        image = _subtract_zero(x, types[0], *ends[:2])
        image = pad_spatial(image, before, after, image.dtype, device)
        view = windows(np, image, taps.shape[:2], strides, gaps, counts)
        weights = _subtract_zero(taps, types[1], *ends[2:])
        result = np.tensordot(view, weights, 3)
        return (to_integers(np, result, target), *_range_of_products(node, types, ends))

    return run


@kernel("QuantizedRelu", "QuantizedRelu6", "QuantizedReluX")
def _relu(node: Node, device: Device) -> KernelFunction:
    op, dtype = node.type, node.inputs[0].dtype.base_dtype
    if node.outputs[0].dtype is not dtype:
        raise errors.InvalidArgumentError(
            f"{op} requires an out_type like its features, got {node.outputs[0].dtype.name} for "
            f"{dtype.name}"
        )

    def run(x: Any, *remaining: Any) -> Any:
        low, high = remaining[-2:]
        _check_ends(op, low, high)
        top = remaining[0] if len(remaining) > 2 else F32(6)
        bounds = [
            np.clip(_to_integer(float(v), dtype, low, high), *limits(dtype)) for v in (0, top)
        ]
        y = np.maximum(x, x.dtype.type(bounds[0]))
        if op != "QuantizedRelu":
            y = np.minimum(y, x.dtype.type(bounds[1]))
        return y, low, high

    return run


@kernel("QuantizedMaxPool", "QuantizedAvgPool", heavy=True)
def _pool(node: Node, device: Device) -> KernelFunction:
    op, pool, exact = node.type, Pool(node, device), node.outputs[0].dtype.numpy

    def run(x: Any, low: Any, high: Any) -> Any:
        _check_ends(op, low, high)
        fit = pool.fit(x.shape)
        if 0 in fit.counts:
            return np.empty(fit.counts, exact), low, high
        if op == "QuantizedMaxPool":
            result = fold_windows(fit, x, np.maximum)
            return result.copy() if result is x else result, low, high
        total = fold_windows(fit, x.astype(np.float64), np.add)
        count = fold_windows(fit, np.ones(x.shape), np.add)
        return np.trunc(total / count).astype(exact), low, high

    return run


def _actual(x: Any, dtype: DType, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the actual range of the numbers, extended so that its lower end is at most 0."""
    if not x.size:
        return F32(0), F32(0)
    ends = dequantize_values(np, np.array([x.min(), x.max()]), dtype, low, high)
    return F32(min(ends[0], 0)), F32(ends[1])


@kernel("RequantizationRange")
def _requantization_range(node: Node, device: Device) -> KernelFunction:
    dtype = node.inputs[0].dtype.base_dtype

    def run(x: Any, low: Any, high: Any) -> Any:
        _check_ends("RequantizationRange", low, high)
        return _actual(x, dtype, low, high)

    return run


@kernel("Requantize", "QuantizeDownAndShrinkRange")
def _requantize(node: Node, device: Device) -> KernelFunction:
    op, dtype, target = node.type, node.inputs[0].dtype.base_dtype, node.outputs[0].dtype

    def run(x: Any, low: Any, high: Any, *expected: Any) -> Any:
        _check_ends(op, low, high, *expected)
        ends = expected or _actual(x, dtype, low, high)
        return (requantize(np, x, dtype, (low, high), target, ends), *ends)

    return run
