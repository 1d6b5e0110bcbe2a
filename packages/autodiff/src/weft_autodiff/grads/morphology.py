"""Gradients of grayscale morphology."""

from __future__ import annotations

import numpy as np

from weft_autodiff.grads.windows import Positions, side_by_side
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import gather, reduction, sequence, shapes
from weft_graph.ops.arithmetic import maximum, minimum
from weft_graph.ops.masks import where_v2 as where

Grads = list[Output | None]


@RegisterGradient("Dilation2D")
def _dilation(node: Node, grad: Output) -> Grads:
    attrs = {key: node.attrs[key] for key in ("strides", "rates", "padding")}
    inputs = [*node.inputs, grad]
    return [out(f"Dilation2DBackprop{operand}", inputs, attrs) for operand in ("Input", "Filter")]


@RegisterGradient("Dilation2DBackpropInput")
def _input_gradient(node: Node, grad: Output) -> Grads:
    """Return the gradient with respect to `grad`: the values at the maxima of the windows."""
    is_max, values = _mask_of_maximum(node, grad)
    return [None, None, reduction.reduce_sum(values * is_max, 3)]


@RegisterGradient("Dilation2DBackpropFilter")
def _filter_gradient(node: Node, grad: Output) -> Grads:
    """Return the gradient with respect to `grad`: the values at the taps of the maxima."""
    is_max, _ = _mask_of_maximum(node, node.inputs[0])
    return [None, None, reduction.reduce_sum(_flat(grad) * is_max, 3)]


def _mask_of_maximum(node: Node, other_image: Output) -> tuple[Output, Output]:
    """Return a mask of the taps at each window's maximum, and the windows of `other_image`.

    Returns: both of shape (N, H, W, taps, C).
    """
    image, taps, grad = node.inputs
    sizes, window, counts = [shapes.shape(value) for value in (image, taps, grad)]
    down, right = [
        _positions(node, axis, sizes[axis], window[axis - 1], counts[axis]) for axis in (1, 2)
    ]
    (overlap, other_values), in_window = side_by_side(down, right, image, other_image)
    lowest = constant_of(np.array(-np.inf, image.dtype.numpy))
    first = reduction.argmax(where(in_window, overlap + _flat(taps), lowest), 3)
    count = shapes.shape(overlap)[3]
    return gather.one_hot(first, count, axis=3, dtype=image.dtype), other_values


def _positions(node: Node, axis: int, size: Output, taps: Output, count: Output) -> Positions:
    stride, rate = node.attrs["strides"][axis], node.attrs["rates"][axis]
    offsets = sequence.range(taps) * rate
    positions = sequence.range(count)[:, None] * stride + offsets
    if node.attrs["padding"] == "SAME":
        reach = (count - 1) * stride + (taps - 1) * rate + 1
        positions = positions - maximum(reach - size, 0) // 2
    in_range = (positions >= 0) & (positions < size)
    return maximum(minimum(positions, size - 1), 0), in_range


def _flat(taps: Output) -> Output:
    """Return a filter reshaped to (taps, C)."""
    return shapes.reshape(taps, [-1, shapes.shape(taps)[2]])
