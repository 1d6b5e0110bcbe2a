"""Gradients of pooling over regions of random sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_autodiff.grads.windows import Positions, side_by_side
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import casting, gather, reduction, sequence, shapes
from weft_graph.ops.arithmetic import minimum
from weft_graph.ops.masks import where_v2 as where

Grads = list[Output | None]


@RegisterGradient("FractionalAvgPool")
def _avg(node: Node, grad: Output | None, *_: Any) -> Grads:
    if grad is None:
        return [None]
    shape = out("Shape", [node.inputs[0]], {"out_type": "int64"})
    attrs = {"overlapping": node.attrs["overlapping"]}
    return [out("FractionalAvgPoolGrad", [shape, grad, *node.outputs[1:]], attrs)]


@RegisterGradient("FractionalMaxPool")
def _max(node: Node, grad: Output | None, *_: Any) -> Grads:
    if grad is None:
        return [None]
    inputs = [node.inputs[0], node.outputs[0], grad, *node.outputs[1:]]
    attrs = {"overlapping": node.attrs["overlapping"]}
    return [out("FractionalMaxPoolGrad", inputs, attrs)]


@RegisterGradient("FractionalAvgPoolGrad")
def _avg_gradient(node: Node, grad: Output) -> Grads:
    """Return the gradient of the averaging gradient: it is linear, so this is an average again."""
    (parts,), in_region = _regions(node, grad)
    in_region = casting.cast(in_region, grad.dtype)
    return [
        None,
        reduction.reduce_sum(parts * in_region, 3) / reduction.reduce_sum(in_region, 2),
        None,
        None,
    ]


@RegisterGradient("FractionalMaxPoolGrad")
def _max_gradient(node: Node, grad: Output) -> Grads:
    """Return the gradient with respect to `grad`: the values at the positions of the maxima."""
    (parts, images), in_region = _regions(node, grad, node.inputs[0])
    lowest = constant_of(np.array(-np.inf, images.dtype.numpy))
    first = reduction.argmax(where(in_region, images, lowest), 3)
    count = shapes.shape(parts)[3]
    is_max = gather.one_hot(first, count, axis=3, dtype=grad.dtype)
    return [None, None, reduction.reduce_sum(parts * is_max, 3), None, None]


def _regions(node: Node, *images: Output) -> tuple[list[Output], Output]:
    """Return the positions of each region side by side; see `side_by_side`."""
    overlapping = node.attrs["overlapping"]
    down, right = [_positions(starts, overlapping) for starts in node.inputs[-2:]]
    return side_by_side(down, right, *images)


def _positions(starts: Output, overlapping: bool) -> Positions:
    """Return the positions of each region along an axis, padded to the longest region."""
    size = starts[-1]
    ends = minimum(starts[1:] + 1, size) if overlapping else starts[1:]
    lengths = ends - starts[:-1]
    offsets = sequence.range(reduction.reduce_max(lengths))
    return minimum(starts[:-1, None] + offsets, size - 1), offsets < lengths[:, None]
