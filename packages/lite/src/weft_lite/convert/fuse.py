"""Fusion passes over the lowered graph; each returns the number of fused ops."""

from __future__ import annotations

import numpy as np

from weft_lite.convert.cells import join_cells
from weft_lite.convert.lowered import Array, Lowered, Operation, Value, constant
from weft_lite.convert.patterns import join
from weft_lite.convert.prune import drop_unread
from weft_lite.schema.enums import Activation, DataType, Layout, OpKind

PRODUCTS = (OpKind.Conv2D, OpKind.DepthwiseConv2D, OpKind.FullyConnected)
MOVES = (OpKind.DepthToSpace, OpKind.Slice)
RESHAPES = (OpKind.Reshape, OpKind.Squeeze, OpKind.ExpandDims)
UNARY = frozenset(
    kind for kind in OpKind if OpKind.Abs <= kind <= OpKind.Silu and kind is not OpKind.Cast
)
HOISTED = UNARY | {OpKind.Mul, OpKind.Add}
ACTIVATIONS = {OpKind.Relu: Activation.RELU, OpKind.Relu6: Activation.RELU6}
CLAMPING = (*PRODUCTS, OpKind.Add, OpKind.Sub, OpKind.Mul, OpKind.MaxPool, OpKind.AvgPool)


def fuse(lowered: Lowered) -> int:
    """Fuse patterns to single ops, and factors, biases and activations into preceding products."""
    drop_unread(lowered)  # an unread op must not count as a further reader
    joined = join(lowered)
    for graph in lowered.graphs():
        joined += hoist_over_moves(lowered, graph)
        uses = Uses(lowered)
        joined += fuse_affine(graph, uses)
        joined += fuse_activations(graph, uses)
        joined += join_cells(graph)
    drop_unread(lowered)
    return joined


class Uses:
    """The ops that read each value of a graph and its bodies."""

    def __init__(self, lowered: Lowered) -> None:
        self._users, self._results = lowered.consumers(), lowered.results()

    def has_single_reader(self, op: Operation) -> bool:
        """Return True if a single op reads the first result, and it is not an output."""
        result = op.outputs[0]
        return len(self._users.get(result, ())) == 1 and result not in self._results


def hoist_over_moves(lowered: Lowered, graph: Lowered) -> int:
    """Apply elementwise ops before DepthToSpace, Slice and Reshape, to fuse them with a product.

    relu(depth_to_space(conv(x)) + bias)   →   depth_to_space(relu(conv(x) + tile(bias)))

    A Reshape between a product and its bias comes from convolutions of one dimension.
    """
    hoisted = 0
    while pair := _hoistable_pair(graph, Uses(lowered)):
        _swap(graph, *pair)
        hoisted += 1
    return hoisted


def _hoistable_pair(graph: Lowered, uses: Uses) -> tuple[Operation, Operation] | None:
    """Return the first move that an elementwise op follows, and this op."""
    moves: dict[Value | None, Operation] = {}
    products: set[Value | None] = set()  # and what elementwise ops make of them
    for op in graph.ops:
        before = moves.get(op.inputs[0]) if op.inputs else None
        if before is not None and uses.has_single_reader(before) and _is_hoistable(op, before):
            return before, op
        if op.kind in MOVES or (op.kind in RESHAPES and op.inputs[0] in products):
            moves[op.outputs[0]] = op
        if op.kind in PRODUCTS or (op.kind in HOISTED and op.inputs[0] in products):
            products.add(op.outputs[0])
    return None


def _is_hoistable(op: Operation, before: Operation) -> bool:
    """Return True if an op may run before a move: a unary function, or a constant per channel."""
    moved = before.inputs[0]
    rank = len(before.outputs[0].shape)
    if moved is None or len(op.outputs[0].shape) != rank or not rank:
        return False
    if before.kind in MOVES and rank != 4:
        return False
    if before.kind is not OpKind.DepthToSpace and moved.shape[-1] != before.outputs[0].shape[-1]:
        return False
    if op.kind in UNARY:
        return op.outputs[0].dtype is moved.dtype
    other = op.inputs[1] if op.kind in HOISTED else None
    channels = before.outputs[0].shape[-1]
    return (
        other is not None
        and other.array is not None
        and other.shape in ((channels,), (*[1] * (rank - 1), channels))
    )


def _swap(graph: Lowered, move: Operation, op: Operation) -> None:
    """Exchange a move and the elementwise op that reads its result."""
    moved = move.inputs[0]
    assert moved is not None
    early = Value(op.outputs[0].name, moved.dtype, moved.shape, moved.declared)
    if op.kind not in UNARY:
        count = move.options.block**2 if move.kind is OpKind.DepthToSpace else 1
        tiled = np.tile(_array(op.inputs[1]).reshape(-1), count)
        op.inputs[1] = constant(f"{op.name}/tiled", tiled)
    move.outputs, op.outputs = op.outputs, [early]
    op.inputs[0], move.inputs[0] = moved, early
    graph.ops.remove(op)
    graph.ops.insert(graph.ops.index(move), op)


def fuse_affine(graph: Lowered, uses: Uses) -> int:
    """Fuse `Mul` and `Add` by a constant per channel into the preceding product."""
    joined = 0
    operations: dict[Value | None, Operation] = {}
    for op in list(graph.ops):
        before = operations.get(op.inputs[0]) if op.inputs else None
        if before and uses.has_single_reader(before) and _is_affine(op, before):
            array = _array(op.inputs[1]).reshape(-1)
            _scale(before, array) if op.kind is OpKind.Mul else _shift(before, array)
            before.outputs = op.outputs
            before.name = op.name
            graph.ops.remove(op)
            op, joined = before, joined + 1
        for value in op.outputs:
            operations[value] = op
    return joined


def _array(value: Value | None) -> Array:
    """Return the elements of a constant."""
    assert value is not None
    assert value.array is not None
    return value.array


def _channels(product: Operation) -> int:
    """Return the number of output channels of a product."""
    return product.outputs[0].shape[-1]


def _is_affine(op: Operation, before: Operation) -> bool:
    """Return True if an op adds or multiplies a constant per channel to a product."""
    if op.kind not in (OpKind.Mul, OpKind.Add) or before.kind not in PRODUCTS:
        return False
    other = op.inputs[1]
    return (
        before.options.activation == Activation.NONE
        and other is not None
        and other.array is not None
        and other.dtype is DataType.FLOAT32
        and before.outputs[0].dtype is DataType.FLOAT32
        and other.array.size == _channels(before)
        and other.shape[-1:] == (_channels(before),)
        and len(other.shape) <= len(before.outputs[0].shape)
        and op.options.activation == Activation.NONE
        and before.inputs[1] is not None
        and before.inputs[1].array is not None
    )


def _bias(product: Operation) -> Value | None:
    """Return the bias of a product, or None."""
    return product.inputs[2] if len(product.inputs) > 2 else None


def _shift(product: Operation, offset: Array) -> None:
    """Add an offset per channel to the bias of a product."""
    bias = _bias(product)
    total = offset if bias is None or bias.array is None else bias.array + offset
    new_bias = constant(f"{product.name}/bias", np.asarray(total, np.float32))
    product.inputs = [*product.inputs[:2], new_bias]


def _scale(product: Operation, factor: Array) -> None:
    """Multiply the weights and the bias of a product by a factor per channel."""
    weights, bias = product.inputs[1], _bias(product)
    assert weights is not None
    assert weights.array is not None
    if weights.layout is Layout.PANELS:
        padded = np.zeros(weights.shape[0] * 16, np.float32)
        padded[: factor.size] = factor
        scaled = weights.array * padded.reshape(-1, 1, 1, 16)
    else:
        scaled = weights.array * factor
    product.inputs[1] = constant(weights.name, scaled, weights.layout)
    if bias is not None and bias.array is not None:
        product.inputs[2] = constant(bias.name, bias.array * factor)


def fuse_activations(graph: Lowered, uses: Uses) -> int:
    """Fuse `Relu` and `Relu6` into preceding ops that can clamp their results."""
    joined = 0
    operations: dict[Value | None, Operation] = {}
    for op in list(graph.ops):
        before = operations.get(op.inputs[0]) if op.inputs else None
        if (
            op.kind in ACTIVATIONS
            and before is not None
            and before.kind in CLAMPING
            and before.options.activation == Activation.NONE
            and before.outputs[0].dtype is DataType.FLOAT32
            and uses.has_single_reader(before)
        ):
            before.options.activation = ACTIVATIONS[op.kind]
            before.outputs = op.outputs
            graph.ops.remove(op)
            op, joined = before, joined + 1
        for value in op.outputs:
            operations[value] = op
    return joined
