"""Gradients of placeholders and of ops that fill a tensor with one value."""

from __future__ import annotations

import numpy as np

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shapes import rank


@RegisterGradient("PlaceholderWithDefault")
def _with_default(op: Node, grad: Output) -> Output:
    return grad


def all_axes(value: Output) -> Output:
    """Return all axes of a tensor as a vector."""
    if value.dims is not None:
        return constant_of(np.arange(len(value.dims), dtype=np.int32))
    return out("Range", [0, rank(value), 1])


@RegisterGradient("Fill")
def _fill(op: Node, grad: Output) -> list[Output | None]:
    return [None, out("Sum", [grad, all_axes(grad)])]
