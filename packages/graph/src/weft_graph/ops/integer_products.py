"""Exact 32-bit products of 8-bit integers, as computed by quantized models.

They are ONNX's `MatMulInteger` and `ConvInteger`. A zero point is the integer that represents 0: it
is subtracted from an operand before the product, and images are padded with it.
"""

from __future__ import annotations

__all__: list[str] = []

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules, shape_rules
from weft_graph.ops.conv import WINDOWS, convolution_traits, forward_shape
from weft_graph.ops.shape_rules import with_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, broadcast_dims, format_dims, merge_dims


def _check_zeros(zeros: Dims, x: Dims, axis: int) -> None:
    """Reject zero points that do not broadcast, or vary along the reduced axis."""
    if x is None:
        return
    per_row = (*x[:axis], 1, *x[len(x) + axis + 1 :])
    try:
        merge_dims(broadcast_dims(zeros, per_row), per_row)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"MatMulInteger requires zero points that broadcast with {format_dims(per_row)}, for "
            f"the operand {format_dims(x)}, got {format_dims(zeros)}"
        ) from None


def _product_shape(node: NodeSpec) -> Sequence[Dims]:
    plain = NodeSpec(node.inputs, {**node.attrs, "adj_x": False, "adj_y": False})
    a, b, a_zero, b_zero = [input_.dims for input_ in node.inputs]
    product_dims = shape_rules.batch_matmul(plain)
    _check_zeros(a_zero, a, -1)
    _check_zeros(b_zero, b, -2)
    return product_dims


def _conv_shape(op: str, depthwise: bool) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, filters, zero = node.inputs
        with_rank(zero.dims, 0, f"{op}: input_zero")
        return (forward_shape(op, node, x.dims, filters.dims, depthwise),)

    return rule


_SMALL = {"Ta": "{int8, uint8}", "Tb": "{int8, uint8}"}

register_op(
    "MatMulInteger",
    ("a: Ta", "b: Tb", "a_zero: int32", "b_zero: int32"),
    ("product: int32",),
    _SMALL,
    _product_shape,
    traits=Traits(cost=cost_rules.product("adj_x", "adj_y"), differentiable=False),
    doc="""
    Products of 8-bit matrices after subtracting their zero points; the leading axes broadcast. A
    zero point is a scalar, or has one value per row of `a` (..., M, 1) or per column of `b` (...,
    1, N).
    """,
)
for _op, _depthwise in (("Conv2DInteger", False), ("DepthwiseConv2dInteger", True)):
    register_op(
        _op,
        ("input: Ta", "filter: Tb", "input_zero: int32"),
        ("output: int32",),
        _SMALL | WINDOWS,
        _conv_shape(_op, _depthwise),
        traits=convolution_traits(1, None, _depthwise, differentiable=False),
        doc="""
        Cross-correlation of `input`, minus its zero point, and `filter`, both of 8 bits. Images are
        padded with the zero point.
        """,
    )


def matmul_integer(
    a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0, name: str | None = None
) -> Output:
    """Multiply matrices of 8-bit integers, after subtracting their zero points.

    Args:
      a: int8 or uint8, shape (..., M, K).
      b: int8 or uint8, shape (..., K, N); leading axes broadcast.
      a_zero: int32, zero point of `a`: rank 0, or shape (..., M, 1).
      b_zero: int32, zero point of `b`: rank 0, or shape (..., 1, N).
    Returns: int32, shape (..., M, N); sums of up to 33,000 products cannot overflow.
    Raises: InvalidArgumentError: the inner sizes differ, or zero points do not broadcast.
    """
    zeros = [convert_to_tensor(zero, dtypes.int32) for zero in (a_zero, b_zero)]
    operands = [convert_to_tensor(a), convert_to_tensor(b), *zeros]
    return create("MatMulInteger", operands, {}, name).outputs[0]
