"""Gradients of sums, products and reductions of sparse tensors."""

from __future__ import annotations

from weft_autodiff.grads.common import conj, ints, neg
from weft_autodiff.grads.sparse import gradients_at
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes

Gradients = list[Output | None]


@RegisterGradient("SparseAdd")
def _add(op: Node, _: Output | None, grad: Output, __: Output | None) -> Gradients:
    value_grads = create("SparseAddGrad", [grad, op.inputs[0], op.inputs[3], op.outputs[0]]).outputs
    return gradients_at(7, {1: value_grads[0], 4: value_grads[1]})


@RegisterGradient("SparseAddGrad")
def _add_grad(op: Node, a_grad: Output | None, b_grad: Output | None) -> Gradients:
    _, a, b, total = op.inputs
    # Which place of a sum a place of an operand went to, asked the other way round.
    operand_grads = [
        out("SparseAddGrad", [grad, total, total, indices])
        for grad, indices in ((a_grad, a), (b_grad, b))
        if grad is not None
    ]
    return gradients_at(
        4, {0: operand_grads[0] if len(operand_grads) == 1 else out("AddV2", operand_grads)}
    )


@RegisterGradient("SparseTensorDenseAdd")
def _add_dense(op: Node, grad: Output) -> Gradients:
    return [None, out("GatherNd", [grad, op.inputs[0]]), None, grad]


@RegisterGradient("SparseDenseCwiseAdd")
def _plus_dense(op: Node, grad: Output) -> Gradients:
    indices = _dense_indices(op)
    return [None, grad, None, _scatter_like(op, indices, grad)]


@RegisterGradient("SparseDenseCwiseMul")
def _times_dense(op: Node, grad: Output) -> Gradients:
    values, dense = op.inputs[1], op.inputs[3]
    indices = _dense_indices(op)
    gathered = out("GatherNd", [dense, indices])
    to_dense = out("Mul", [grad, conj(values)])
    return [None, out("Mul", [grad, conj(gathered)]), None, _scatter_like(op, indices, to_dense)]


@RegisterGradient("SparseDenseCwiseDiv")
def _sparse_dense_gradient(op: Node, grad: Output) -> Gradients:
    dense = op.inputs[3]
    indices = _dense_indices(op)
    gathered = conj(out("GatherNd", [dense, indices]))
    to_values = out("RealDiv", [grad, gathered])
    to_dense = neg(out("Mul", [to_values, conj(op.outputs[0])]))
    return [None, to_values, None, _scatter_like(op, indices, to_dense)]


def _dense_indices(op: Node) -> Output:
    """Return the index into the dense operand of each stored element, shape (n, its rank)."""
    indices, dense = op.inputs[0], op.inputs[3]
    sizes = out("Shape", [dense], {"out_type": dtypes.int64})
    rank = out("Size", [sizes])
    first = out("Sub", [out("Gather", [out("Shape", [indices]), 1]), rank])
    begin, zero = out("Pack", [[0, first]]), ints([0, 0])
    bounds = [begin, zero, ints([1, 1])]
    last = out("StridedSlice", [indices, *bounds], {"begin_mask": 1, "end_mask": 3})
    is_wide = out("Cast", [out("NotEqual", [sizes, 1])], {"DstT": dtypes.int64})
    return out("Mul", [last, is_wide])


def _scatter_like(op: Node, output: Output, values: Output) -> Output:
    shape = out("Shape", [op.inputs[3]], {"out_type": dtypes.int64})
    return out("ScatterNd", [output, values, shape])


@RegisterGradient("SparseReduceSum")
def _reduce_sum(op: Node, grad: Output) -> Gradients:
    return gradients_at(4, {1: _spread(op, grad)})


@RegisterGradient("SparseReduceMax")
def _reduce_max(op: Node, grad: Output) -> Gradients:
    indices, values, shape, axes = op.inputs
    is_largest = out("Equal", [values, _spread(op, op.outputs[0])])
    marks = out("Cast", [is_largest], {"DstT": grad.dtype})
    inputs = [indices, marks, shape, axes]
    count = out("SparseReduceSum", inputs, {"keep_dims": op.attrs["keep_dims"]})
    share = _spread(op, out("DivNoNan", [grad, count]))
    return gradients_at(4, {1: out("Mul", [marks, share])})


def _spread(op: Node, reduced: Output) -> Output:
    """Return, for each stored element, the reduced element that it contributed to."""
    indices, _, shape, axes = op.inputs
    rank = out("Size", [shape])
    reduced_axes = out("FloorMod", [out("Reshape", [axes, [-1]]), rank])
    positions = out("ExpandDims", [reduced_axes, 1])
    all_ones = out("OnesLike", [shape])
    # A reduced axis twice is one: the update of a place is the same each time.
    zeros = out("ZerosLike", [out("Cast", [reduced_axes], {"DstT": dtypes.int64})])
    kept_axes = out("TensorScatterUpdate", [all_ones, positions, zeros])
    reduced_shape = out("Add", [out("Mul", [kept_axes, out("Sub", [shape, 1])]), 1])
    reshaped = out("Reshape", [reduced, reduced_shape])
    return out("GatherNd", [reshaped, out("Mul", [indices, kept_axes])])


@RegisterGradient("SparseSoftmax")
def _softmax(op: Node, grad: Output) -> Gradients:
    indices, _, shape = op.inputs
    y = op.outputs[0]
    axis = ints([-1])
    product = out("Mul", [y, grad])
    total = out("SparseReduceSum", [indices, product, shape, axis], {"keep_dims": True})
    row = out("SparseDenseCwiseAdd", [indices, out("ZerosLike", [y]), shape, total])
    return [None, out("Mul", [y, out("Sub", [grad, row])]), None]
