"""Gradients of concatenating, slicing and filling sparse tensors."""

from __future__ import annotations

from weft_autodiff.grads.common import neg
from weft_autodiff.grads.sparse import gradients_at
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output

Gradients = list[Output | None]


def _number_values(values: Output) -> Output:
    """Return the index of each value."""
    return out("Range", [0, out("Size", [values]), 1])


@RegisterGradient("SparseConcat")
def _concat(op: Node, *grads: Output | None) -> Gradients:
    count, grad = op.attrs["N"], grads[1]
    indices, values, shapes = (op.inputs[i * count : (i + 1) * count] for i in range(3))
    if grad is None:
        return [None] * (3 * count)
    lengths = [out("Shape", [value]) for value in values]
    # Joining the positions instead of the values shows which input each value came from.
    positions = out("Range", [0, out("Sum", [out("ConcatV2", [lengths, 0]), 0]), 1])
    sizes = out("ConcatV2", [lengths, 0])
    numbers = create("SplitV", [positions, sizes, 0], {"num_split": count}).outputs
    inputs = [list(indices), list(numbers), list(shapes)]
    order = create("SparseConcat", inputs, {"concat_dim": op.attrs["concat_dim"]}).outputs[1]
    reordered = out("GatherV2", [grad, out("InvertPermutation", [order]), 0])
    parts = create("SplitV", [reordered, sizes, 0], {"num_split": count}).outputs
    return [*[None] * count, *parts, *[None] * count]


@RegisterGradient("SparseSplit")
def _split(op: Node, *grads: Output | None) -> Gradients:
    count = op.attrs["num_split"]
    axis, indices, values, shape = op.inputs
    inputs = [axis, indices, _number_values(values), shape]
    numbers = create("SparseSplit", inputs, {"num_split": count}).outputs[count : 2 * count]
    pairs_with_grad = [
        (position, grad)
        for position, grad in zip(numbers, grads[count:], strict=False)
        if grad is not None
    ]
    if not pairs_with_grad:
        return [None] * 4
    position = out("ExpandDims", [_concat_parts([number for number, _ in pairs_with_grad]), 1])
    total = out(
        "ScatterNd",
        [position, _concat_parts([grad for _, grad in pairs_with_grad]), out("Shape", [values])],
    )
    return gradients_at(4, {2: total})


def _concat_parts(parts: list[Output]) -> Output:
    return parts[0] if len(parts) == 1 else out("ConcatV2", [parts, 0])


@RegisterGradient("SparseSlice")
def _slice(op: Node, _: Output | None, grad: Output | None, __: Output | None) -> Gradients:
    if grad is None:
        return [None] * 5
    inputs = [grad, op.inputs[0], op.inputs[3], op.outputs[0]]
    return gradients_at(5, {1: out("SparseSliceGrad", inputs)})


@RegisterGradient("SparseSliceGrad")
def _slice_grad(op: Node, grad: Output) -> Gradients:
    _, indices, start, result_indices = op.inputs
    return gradients_at(4, {0: out("SparseSliceGrad", [grad, result_indices, neg(start), indices])})


@RegisterGradient("SparseFillEmptyRows")
def _fill(op: Node, _: Output | None, grad: Output | None, *__: Output | None) -> Gradients:
    if grad is None:
        return [None] * 4
    fill_grads = create("SparseFillEmptyRowsGrad", [op.outputs[3], grad]).outputs
    return gradients_at(4, {1: fill_grads[0], 3: fill_grads[1]})


@RegisterGradient("RaggedFillEmptyRowsGrad")
@RegisterGradient("SparseFillEmptyRowsGrad")
def _fill_grad(op: Node, values: Output | None, default: Output | None) -> Gradients:
    reverse_index_map, grad = op.inputs
    cleared = out("ZerosLike", [grad])
    if default is not None:
        cleared = out("Fill", [out("Shape", [grad]), default])
    if values is None:
        values = out("ZerosLike", [out("GatherV2", [grad, reverse_index_map, 0])])
    return [
        None,
        out("TensorScatterUpdate", [cleared, out("ExpandDims", [reverse_index_map, 1]), values]),
    ]
