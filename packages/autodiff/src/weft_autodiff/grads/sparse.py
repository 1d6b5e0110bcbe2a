"""Gradients of sparse tensors."""

from __future__ import annotations

from weft_autodiff.grads.array import all_axes
from weft_autodiff.grads.common import conj, ints, matrix_transpose
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output


def gradients_at(count: int, grads: dict[int, Output | None]) -> list[Output | None]:
    """Return a list of `count` gradients that are None except for some inputs."""
    return [grads.get(i) for i in range(count)]


@RegisterGradient("SparseToDense")
def _sparse_to_dense(op: Node, grad: Output) -> list[Output | None]:
    indices, shape, values, _ = op.inputs
    rank = out("Size", [shape])
    table = out("Reshape", [indices, out("Pack", [[-1, rank]])])
    value_grads = out("GatherNd", [grad, table])
    selected = out("Sum", [value_grads, ints([0])])
    default_grad = out("Sub", [out("Sum", [grad, all_axes(grad)]), selected])
    if values.dims is not None and len(values.dims) == 1:
        return [None, None, value_grads, default_grad]
    # Values of rank 0 stand at all indices; with one value per index only empty axes are summed.
    flat_grads = out("Reshape", [value_grads, ints([-1])])
    axes = out("Range", [0, out("Sub", [1, out("Rank", [values])]), 1])
    return [None, None, out("Sum", [flat_grads, axes]), default_grad]


@RegisterGradient("SparseTensorDenseMatMul")
def _sparse_dense_matmul(op: Node, grad: Output) -> list[Output | None]:
    indices, values, shape, b = op.inputs
    adjoint_a: bool = op.attrs["adjoint_a"]
    adjoint_b: bool = op.attrs["adjoint_b"]
    product = out(
        "SparseTensorDenseMatMul", [indices, values, shape, grad], {"adjoint_a": not adjoint_a}
    )
    dense = matrix_transpose(b, conjugate=True) if adjoint_b else b
    if adjoint_b:
        product = matrix_transpose(product, conjugate=True)
    bounds = [(ints([0, i]), ints([0, i + 1]), ints([1, 1])) for i in range(2)]
    masks = {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}
    rows, columns = [out("StridedSlice", [indices, *bound], masks) for bound in bounds]
    if adjoint_a:
        rows, columns = columns, rows
    left, right = out("GatherV2", [grad, rows, 0]), out("GatherV2", [dense, columns, 0])
    values_grad = out("Sum", [out("Mul", [left, conj(right)]), ints([1])])
    return [None, conj(values_grad) if adjoint_a else values_grad, None, product]


@RegisterGradient("SparseReorder")
def _sparse_reorder(op: Node, _: Output | None, grad: Output) -> list[Output | None]:
    indices, values, shape = op.inputs
    positions = out("Range", [0, out("Size", [values]), 1])
    order = create("SparseReorder", [indices, positions, shape]).outputs[1]
    inverse_order = out("InvertPermutation", [order])
    return [None, out("GatherV2", [grad, inverse_order, 0]), None]
