"""Gradients of slices."""

from __future__ import annotations

import numpy as np

from weft_autodiff.grads.common import sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shape_rules import constant_array
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _masks(op: Node) -> dict[str, int]:
    return {name: op.attrs[name] for name in _MASKS}


def _shape_in(value: Output, dtype: DType) -> Output:
    """Return the shape of a tensor in an integer type: a constant if it is known."""
    dims = value.dims
    if dims is not None and None not in dims:
        return constant_of(np.array(dims, dtype.numpy))
    if dtype in (dtypes.int32, dtypes.int64):
        return out("Shape", [value], {"out_type": dtype})
    return out("Cast", [out("Shape", [value])], {"DstT": dtype})


@RegisterGradient("Slice")
def _slice(op: Node, grad: Output) -> list[Output | None]:
    x, begin, _ = op.inputs
    constant = constant_array(begin)
    dims, part = x.dims, grad.dims
    if (
        constant is not None
        and dims is not None
        and part is not None
        and None not in (*dims, *part)
    ):
        pairs = [
            (b, n - b - count) for b, n, count in zip(constant.tolist(), dims, part, strict=True)
        ]
        paddings = constant_of(np.array(pairs, constant.dtype).reshape(-1, 2))
    else:
        kind = begin.dtype.base_dtype
        sizes = out("Shape", [x], {"out_type": kind})
        slice_sizes = out("Shape", [grad], {"out_type": kind})
        trailing = out("Sub", [out("Sub", [sizes, slice_sizes]), begin])
        paddings = out("Pack", [[begin, trailing]], {"axis": 1})
    return [out("Pad", [grad, paddings]), None, None]


@RegisterGradient("StridedSlice")
def _strided_slice(op: Node, grad: Output) -> list[Output | None]:
    x, begin, end, strides = op.inputs
    shape = _shape_in(x, begin.dtype.base_dtype)
    x_grad = out("StridedSliceGrad", [shape, begin, end, strides, grad], _masks(op))
    return [x_grad, None, None, None]


@RegisterGradient("StridedSliceGrad")
def _strided_slice_grad(op: Node, grad: Output) -> list[Output | None]:
    _, begin, end, strides, _ = op.inputs
    slice_grad = out("StridedSlice", [grad, begin, end, strides], _masks(op))
    return [None, None, None, None, slice_grad]


@RegisterGradient("TensorStridedSliceUpdate")
def _strided_slice_update(op: Node, grad: Output) -> list[Output | None]:
    _, begin, end, strides, value = op.inputs
    bounds = [begin, end, strides]
    part = out("StridedSlice", [grad, *bounds], _masks(op))
    zeros = out("ZerosLike", [value])
    cleared = out("TensorStridedSliceUpdate", [grad, *bounds, zeros], _masks(op))
    return [cleared, None, None, None, sum_to_shape(part, value)]
