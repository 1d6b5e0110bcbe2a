"""Gradients of reductions by segment."""

from __future__ import annotations

from typing import Any

from weft_autodiff.grads.common import conj, ints, scalar_like
from weft_autodiff.grads.reduction import scalar_int
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes

Gradients = list[Output | None]


def _rows(value: Output, ids: Output) -> Output:
    return out("GatherV2", [value, ids, scalar_int(0)])


def _ones_shape(ids: Output, value: Output) -> Output:
    """Return the shape of `ids` followed by ones up to the rank of `value`."""
    if ids.dims is not None and value.dims is not None and None not in ids.dims:
        return ints([*ids.dims, *(1,) * (len(value.dims) - len(ids.dims))])
    count = out("Sub", [out("Rank", [value]), out("Rank", [ids])])
    unit_sizes = out("Fill", [out("Pack", [[count]], {"axis": 0}), scalar_int(1)])
    return out("ConcatV2", [[out("Shape", [ids]), unit_sizes], scalar_int(0)])


# ---------------------------------------------------------------------------------- sorted


@RegisterGradient("SegmentSum")
def _segment_sum(node: Node, grad: Output) -> Gradients:
    return [_rows(grad, node.inputs[1]), None]


@RegisterGradient("SegmentMean")
def _segment_mean(node: Node, grad: Output) -> Gradients:
    data, ids = node.inputs
    row_ones = out("Fill", [_ones_shape(ids, data), scalar_like(1, grad)])
    counts = out("SegmentSum", [row_ones, ids])
    return [_rows(out("DivNoNan", [grad, counts]), ids), None]


@RegisterGradient("SegmentMax")
@RegisterGradient("SegmentMin")
def _segment_extreme(node: Node, grad: Output) -> Gradients:
    data, ids = node.inputs
    is_extreme = out("Equal", [data, _rows(node.outputs[0], ids)])
    marks = out("Cast", [is_extreme], {"DstT": grad.dtype})
    share = out("DivNoNan", [grad, out("SegmentSum", [marks, ids])])
    return [out("Mul", [marks, _rows(share, ids)]), None]


def _products_of_others(data: Output, total: Output, per_segment: Any, ids: Output) -> Output:
    """Return, per element, the product of the other elements of its segment; zeros are counted."""
    is_zero = out("Equal", [data, scalar_like(0, data)])
    marks = out("Cast", [is_zero], {"DstT": dtypes.int32})
    zeros = per_segment("Sum", marks)
    nonzero = out("SelectV2", [is_zero, scalar_like(1, data), data])
    product = _gather_rows(per_segment("Prod", nonzero), ids)
    one_zero = out("Equal", [_gather_rows(zeros, ids), scalar_int(1)])
    # With one zero only the gradient of that element is left; with more there is none.
    at_zero = out("LogicalAnd", [is_zero, one_zero])
    at_zero_value = out("SelectV2", [at_zero, product, scalar_like(0, data)])
    products = out("RealDiv", [_gather_rows(total, ids), nonzero])
    return out("SelectV2", [is_zero, at_zero_value, products])


def _gather_rows(value: Output, ids: Output) -> Output:
    """Gather rows by id; negative ids give the first row, which the caller masks."""
    return _rows(value, out("Maximum", [ids, scalar_like(0, ids)]))


@RegisterGradient("SegmentProd")
def _segment_prod(node: Node, grad: Output) -> Gradients:
    data, ids = node.inputs

    def per_segment(kind: str, value: Output) -> Output:
        return out(f"Segment{kind}", [value, ids])

    products = _products_of_others(data, node.outputs[0], per_segment, ids)
    return [out("Mul", [_rows(grad, ids), conj(products)]), None]


# -------------------------------------------------------------------------------- unsorted


def _rows_or_zero(value: Output, ids: Output) -> Output:
    """Gather rows by id; negative ids give zeros."""
    rows = _gather_rows(value, ids)
    return out("SelectV2", [_mask_nonnegative(ids, rows), rows, scalar_like(0, rows)])


def _mask_nonnegative(ids: Output, rows: Output) -> Output:
    """Return a mask of the ids that are not negative, reshaped to broadcast over the rows."""
    mask = out("GreaterEqual", [ids, scalar_like(0, ids)])
    return out("Reshape", [mask, _ones_shape(ids, rows)])


@RegisterGradient("UnsortedSegmentSum")
def _unsorted_sum(node: Node, grad: Output) -> Gradients:
    return [_rows_or_zero(grad, node.inputs[1]), None, None]


@RegisterGradient("UnsortedSegmentMax")
@RegisterGradient("UnsortedSegmentMin")
def _unsorted_extreme(node: Node, grad: Output) -> Gradients:
    data, ids, count = node.inputs
    extremes = _gather_rows(node.outputs[0], ids)
    is_extreme = out(
        "LogicalAnd", [out("Equal", [data, extremes]), _mask_nonnegative(ids, extremes)]
    )
    marks = out("Cast", [is_extreme], {"DstT": grad.dtype})
    share = out("DivNoNan", [grad, out("UnsortedSegmentSum", [marks, ids, count])])
    return [out("Mul", [marks, _rows_or_zero(share, ids)]), None, None]


@RegisterGradient("UnsortedSegmentProd")
def _unsorted_prod(node: Node, grad: Output) -> Gradients:
    data, ids, count = node.inputs

    def per_segment(kind: str, value: Output) -> Output:
        return out(f"UnsortedSegment{kind}", [value, ids, count])

    products = _products_of_others(data, node.outputs[0], per_segment, ids)
    return [out("Mul", [_rows_or_zero(grad, ids), conj(products)]), None, None]


# ---------------------------------------------------------------------------------- sparse


def _first_size(value: Output) -> Output:
    if value.dims is not None and value.dims and value.dims[0] is not None:
        return scalar_int(value.dims[0])
    parts = [out("Shape", [value]), ints([0]), ints([1]), ints([1])]
    return out("StridedSlice", parts, {"shrink_axis_mask": 1})


def _sparse_sum(node: Node, grad: Output) -> Gradients:
    data, indices, ids = node.inputs[:3]
    rows = _rows(grad, ids)
    to_data = out("UnsortedSegmentSum", [rows, indices, _first_size(data)])
    return [to_data] + [None] * (len(node.inputs) - 1)


def _sparse_scaled(node: Node, grad: Output) -> Gradients:
    data, indices, ids = node.inputs[:3]
    op = node.type.removesuffix("WithNumSegments") + "Grad"
    to_data = out(op, [grad, indices, ids, _first_size(data)])
    return [to_data] + [None] * (len(node.inputs) - 1)


for _tail in ("", "WithNumSegments"):
    RegisterGradient(f"SparseSegmentSum{_tail}")(_sparse_sum)
    for _kind in ("Mean", "SqrtN"):
        RegisterGradient(f"SparseSegment{_kind}{_tail}")(_sparse_scaled)


@RegisterGradient("SparseSegmentMeanGrad")
@RegisterGradient("SparseSegmentSqrtNGrad")
def _sparse_grad(node: Node, grad: Output) -> Gradients:
    forward = node.type.removesuffix("Grad") + "WithNumSegments"
    dy, indices, ids, _ = node.inputs
    to_dy = out(forward, [grad, indices, ids, _first_size(dy)])
    return [to_dy, None, None, None]
