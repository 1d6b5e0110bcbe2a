"""Gradients of reductions and of cumulative sums and products."""

from __future__ import annotations

import numpy as np

from weft_autodiff.grads.common import conj, ints, scalar_like, shape_of, static_axes
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes
from weft_tensor.shape import num_elements

Pair = list[Output | None]


def _keep_dims(node: Node, value: Output) -> Output:
    """Reshape a reduced value so that the reduced axes have size 1."""
    x, axes = node.inputs
    if node.attrs["keep_dims"]:
        return value
    static = static_axes(axes, None if x.dims is None else len(x.dims))
    if static is not None:
        assert x.dims is not None
        if not static:
            return value
        sizes = [1 if i in static else size for i, size in enumerate(x.dims)]
        if sizes.count(None) <= 1 and 0 not in sizes:
            return out("Reshape", [value, ints([-1 if n is None else n for n in sizes])])
    return out("Reshape", [value, _keep_dims_shape(x, axes)])


def _keep_dims_shape(x: Output, axes: Output) -> Output:
    """Return the shape of x with ones for the reduced axes, as a tensor."""
    if axes.dtype is not dtypes.int32:
        axes = out("Cast", [axes], {"DstT": dtypes.int32})
    flat = out("Reshape", [axes, ints([-1])])
    rank = out("Rank", [x])
    positions = out("FloorMod", [out("AddV2", [flat, rank]), rank])
    interval = out("Range", [scalar_int(0), rank, scalar_int(1)])
    unit_sizes = out("OnesLike", [positions])
    return out("DynamicStitch", [[interval, positions], [out("Shape", [x]), unit_sizes]])


def scalar_int(value: int) -> Output:
    """Return a constant of rank 0."""
    return constant_of(np.array(value, np.int32))


def _spread(node: Node, grad: Output) -> Output:
    """Repeat `grad` over the reduced axes."""
    x = node.inputs[0]
    if x.dims == ():
        return grad
    if not (grad.dims == () and not node.attrs["keep_dims"]):
        grad = _keep_dims(node, grad)
    return out("BroadcastTo", [grad, shape_of(x)])


@RegisterGradient("Sum")
def _sum(node: Node, grad: Output) -> Pair:
    return [_spread(node, grad), None]


@RegisterGradient("Mean")
def _mean(node: Node, grad: Output) -> Pair:
    x, axes = node.inputs
    static = static_axes(axes, None if x.dims is None else len(x.dims))
    count = None
    if static is not None and x.dims is not None:
        count = num_elements(tuple(x.dims[axis] for axis in static))
    if count is not None:
        scaled = out("RealDiv", [grad, scalar_like(max(count, 1), grad)])
        return [_spread(node, scaled), None]
    size, reduced = out("Size", [x]), out("Size", [node.outputs[0]])
    ratio = out("FloorDiv", [size, out("Maximum", [reduced, scalar_int(1)])])
    factor = out("Cast", [out("Maximum", [ratio, scalar_int(1)])], {"DstT": grad.dtype})
    return [_spread(node, out("RealDiv", [grad, factor])), None]


@RegisterGradient("Max")
@RegisterGradient("Min")
def _extreme(node: Node, grad: Output) -> Pair:
    x, axes = node.inputs
    is_extreme = out("Equal", [_keep_dims(node, node.outputs[0]), x])
    marks = out("Cast", [is_extreme], {"DstT": grad.dtype})
    ties = out("Sum", [marks, axes], {"keep_dims": True})
    share = out("RealDiv", [_keep_dims(node, grad), ties])
    return [out("Mul", [marks, share]), None]


@RegisterGradient("EuclideanNorm")
def _euclidean_norm(node: Node, grad: Output) -> Pair:
    scaled = out("DivNoNan", [_keep_dims(node, grad), _keep_dims(node, conj(node.outputs[0]))])
    if grad.dtype.is_complex:
        # The norm is real: only the real part of the gradient counts.
        real = out("Real", [scaled], {"Tout": grad.dtype.real_dtype})
        scaled = out("Cast", [real], {"DstT": grad.dtype})
    return [out("Mul", [node.inputs[0], scaled]), None]


@RegisterGradient("Prod")
def _prod(node: Node, grad: Output) -> Pair:
    """Return the product of all other elements, without division because of zeros.

    The reduced axes are flattened to the front. The result is the product of the exclusive
    cumulative products from both ends.
    """
    x, axes = node.inputs
    order, inverse, matrix = _permute_reduced_first(x, axes)
    transposed = out("Transpose", [conj(x), order])
    flat = out("Reshape", [transposed, matrix])
    product_before = out("Cumprod", [flat, scalar_int(0)], {"exclusive": True})
    product_after = out("Cumprod", [flat, scalar_int(0)], {"exclusive": True, "reverse": True})
    products = out(
        "Reshape", [out("Mul", [product_before, product_after]), out("Shape", [transposed])]
    )
    return [out("Mul", [_keep_dims(node, grad), out("Transpose", [products, inverse])]), None]


def _permute_reduced_first(x: Output, axes: Output) -> tuple[Output, Output, Output]:
    """Return a permutation with the reduced axes first, its inverse, and the matrix shape."""
    static = static_axes(axes, None if x.dims is None else len(x.dims))
    if static is not None:
        assert x.dims is not None
        order = static + [i for i in range(len(x.dims)) if i not in static]
        rows = num_elements(tuple(x.dims[i] for i in static))
        columns = num_elements(tuple(x.dims[i] for i in order[len(static) :]))
        if rows is not None and columns is not None:
            inverse = [order.index(i) for i in range(len(order))]
            return ints(order), ints(inverse), ints([rows, columns])
    if axes.dtype is not dtypes.int32:
        axes = out("Cast", [axes], {"DstT": dtypes.int32})
    rank = out("Rank", [x])
    flat = out("Reshape", [axes, ints([-1])])
    reduced = out("FloorMod", [out("AddV2", [flat, rank]), rank])
    interval = out("Range", [scalar_int(0), rank, scalar_int(1)])
    remaining_axes = create("ListDiff", [interval, reduced]).outputs[0]
    permutation = out("ConcatV2", [[reduced, remaining_axes], 0])
    shape = out("Shape", [x])
    sizes = [
        out("Prod", [out("GatherV2", [shape, group, 0]), ints([0])])
        for group in (reduced, remaining_axes)
    ]
    matrix = out("Pack", [sizes], {"axis": 0})
    return permutation, out("InvertPermutation", [permutation]), matrix


def _scan(op: str, node: Node, value: Output, *, flip: bool) -> Output:
    reverse = node.attrs["reverse"] is not flip
    attrs = {"exclusive": node.attrs["exclusive"], "reverse": reverse}
    return out(op, [value, node.inputs[1]], attrs)


@RegisterGradient("Cumsum")
def _cumsum(node: Node, grad: Output) -> Pair:
    return [_scan("Cumsum", node, grad, flip=True), None]


@RegisterGradient("Cumprod")
def _cumprod(node: Node, grad: Output) -> Pair:
    # Elements that are 0 get 0, where TensorFlow divides by them.
    x = node.inputs[0]
    weighted = out("Mul", [conj(node.outputs[0]), grad])
    total = _scan("Cumsum", node, weighted, flip=True)
    return [out("DivNoNan", [total, conj(x)]), None]


@RegisterGradient("CumulativeLogsumexp")
def _cumulative_logsumexp(node: Node, grad: Output) -> Pair:
    # exp(x) times sums of grad * exp(-y), in logarithms, separately for grad > 0 and grad < 0.
    x, y = node.inputs[0], node.outputs[0]

    def part(sign: float) -> Output:
        signed = out("Mul", [grad, scalar_like(sign, grad)])
        is_positive = out("Greater", [signed, scalar_like(0, grad)])
        size = out("Log", [out("SelectV2", [is_positive, signed, scalar_like(1, grad)])])
        logs = out("SelectV2", [is_positive, out("Sub", [size, y]), scalar_like(-np.inf, grad)])
        return out("Exp", [out("AddV2", [_scan(node.type, node, logs, flip=True), x])])

    return [out("Sub", [part(1.0), part(-1.0)]), None]
