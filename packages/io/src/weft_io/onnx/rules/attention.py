"""Multi-head attention, the fused ops of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.node import Output
from weft_graph.ops.array import zeros_like
from weft_graph.ops.comparison import equal, greater, greater_equal, less, logical_and
from weft_graph.ops.join import concat, split, stack, unstack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.matmul import matmul
from weft_graph.ops.nn import softmax
from weft_graph.ops.permutation import transpose
from weft_graph.ops.powers import rsqrt
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.fused_ops import RUNTIME
from weft_io.onnx.rules.integer_products import exact_product
from weft_tensor import dtypes, errors


@importer("Attention", domain=RUNTIME)
def _attention(operation: Operation) -> Sequence[Output | None]:
    """Import attention with one product for queries, keys and values."""
    if operation.attribute("do_rotary", 0) or operation.attribute("past_present_share_buffer", 0):
        raise errors.UnimplementedError(
            "Attention with rotary embedding or shared key/value buffers is not supported"
        )
    x, bias = operation[0], operation.get(2)
    rows = matmul(reshape(x, [-1, shape(x)[2]]), operation[1])
    total = reshape(rows, stack([shape(x)[0], shape(x)[1], shape(rows)[1]]))
    total = total if bias is None else total + bias
    return _split(operation, total, operation.get(3), operation.get(4), operation.get(5))


@importer("QAttention", domain=RUNTIME)
def _q_attention(operation: Operation) -> Sequence[Output | None]:
    """Import attention with an 8-bit product for queries, keys and values."""
    if operation.attribute("do_rotary", 0) or operation.attribute("past_present_share_buffer", 0):
        raise errors.UnimplementedError(
            "QAttention with rotary embedding or shared key/value buffers is not supported"
        )
    product = cast(exact_product(operation, (0, 6), (1, 7)), dtypes.float32)
    total = product * (operation[3] * operation[4]) + operation[2]
    return _split(operation, total, operation.get(5), operation.get(8), None)


def _split(
    operation: Operation,
    total: Output,
    mask: Output | None,
    past: Output | None,
    bias: Output | None,
) -> Sequence[Output | None]:
    """Import attention from queries, keys and values concatenated to (batch, steps, widths)."""
    sizes = operation.attribute("qkv_hidden_sizes") or 3
    parts = [_heads(operation, part) for part in split(total, sizes, -1)]
    present = None
    num_past = 0 if past is None else shape(past)[3]
    if past is not None:
        parts[1:] = [concat([past[i], parts[1 + i]], 2) for i in range(2)]
    if operation.num_outputs > 1:
        present = stack(parts[1:])
    result = _attend(operation, parts, mask, bias, num_past)
    return [result, present][: max(operation.num_outputs, 1)]


@importer("MultiHeadAttention", domain=RUNTIME)
def _multi_head_attention(operation: Operation) -> Sequence[Output | None]:
    if operation.num_outputs > 3:
        raise errors.UnimplementedError("MultiHeadAttention does not support the output qk")
    heads = _split_heads(operation)
    position = shape(heads[1])[2]
    for i in range(2):
        past = operation.get(6 + i)
        if past is not None:
            heads[1 + i] = concat([past, heads[1 + i]], 2)
    result = _attend(
        operation, heads, operation.get(4), operation.get(5), shape(heads[1])[2] - position
    )
    return [result, *heads[1:]][: max(operation.num_outputs, 1)]


def _split_heads(operation: Operation) -> list[Output]:
    """Return queries, keys and values, (batch, heads, steps, head size), from any input form.

    The forms are three tensors (batch, steps, width), of which the last two may already be split
    into heads, or packed tensors (batch, steps, heads, 3 or 2, head size).
    """
    count = next((i for i in (1, 2) if operation.get(i) is None), 3)
    projected, bias = [operation[i] for i in range(count)], operation.get(3)
    ranks = [operation.rank(i) for i in range(count)]
    if (ranks[-1], count) in ((5, 1), (5, 2)) and ranks[0] in (3, 5) and bias is None:
        parts = unstack(projected[-1], 4 - count, axis=3)
        plain = [_heads(operation, projected[0])] if count == 2 else []
        return [*plain, *(transpose(item, [0, 2, 1, 3]) for item in parts)]
    if ranks == [3, 4, 4] and bias is None:
        return [_heads(operation, projected[0]), *projected[1:]]
    if ranks != [3, 3, 3]:
        raise errors.UnimplementedError(
            f"MultiHeadAttention of inputs of ranks {ranks} "
            f"{'without' if bias is None else 'with'} a bias is not supported"
        )
    if bias is not None:
        sizes = [shape(item)[-1] for item in projected]
        parts = split(bias, stack(sizes), 0, 3)
        projected = [value + part for value, part in zip(projected, parts, strict=True)]
    return [_heads(operation, item) for item in projected]


def _heads(operation: Operation, x: Output) -> Output:
    """Reshape (batch, steps, width) to (batch, heads, steps, width / heads)."""
    sizes, count = shape(x), operation.required("num_heads")
    parts = reshape(x, stack([sizes[0], sizes[1], count, sizes[2] // count]))
    return transpose(parts, [0, 2, 1, 3])


def _attend(
    operation: Operation,
    parts: Sequence[Output],
    mask: Output | None,
    bias: Output | None,
    num_past: Output | int,
) -> Output:
    """Return the result of attention, (batch, steps, width).

    Args:
      parts: queries, keys and values, (batch, heads, steps, width / heads).
      num_past: number of keys from the past.
    """
    query, key, value = parts
    scale: Any = operation.attribute("scale")
    if not scale:
        scale = rsqrt(cast(shape(query)[3], query.dtype))
    scores = matmul(query, key, transpose_b=True) * scale
    if bias is not None:
        scores = scores + bias
    filled = operation.attribute("mask_filter_value", -10000.0)
    steps, total = shape(query)[2], shape(key)[2]
    if mask is not None:
        scores = scores + _hide_masked(_mask(mask, shape(query)[0], total), scores, filled)
    if operation.attribute("unidirectional", 0):
        step_index = sequence(steps)
        last = equal(step_index, steps - 1)  # sees all keys, of another sequence too
        position = expand_dims(where_v2(last, total, step_index + num_past), 1)
        visible = greater_equal(position, expand_dims(sequence(total), 0))
        lowest = like(scores.dtype.min, scores)
        scores = where_v2(visible, scores, lowest)
    result = transpose(matmul(softmax(scores), value), [0, 2, 1, 3])
    sizes = shape(result)
    return reshape(result, stack([sizes[0], sizes[1], sizes[2] * sizes[3]]))


def _hide_masked(visible: Output, scores: Output, filled: float) -> Output:
    return where_v2(visible, like(0, scores), like(filled, scores))


def _mask(mask: Output, batch: Output, total: Output) -> Output:
    """Convert a mask of any form to a boolean mask (batch, 1, 1 or steps, keys).

    Raises: UnimplementedError: the form is not supported.
    """
    if mask.dims is None:
        raise errors.UnimplementedError("attention requires a mask of known rank, got <unknown>")
    rank = len(mask.dims)
    mask = cast(mask, dtypes.int32)
    if rank == 1:  # the ends of keys, and maybe their starts or other lengths
        keys = expand_dims(sequence(total), 0)
        second_half = concat([mask, zeros_like(mask)], 0)[batch : 2 * batch]
        first = second_half * cast(equal(shape(mask)[0], 2 * batch), dtypes.int32)
        visible = logical_and(
            less(keys, expand_dims(mask[:batch], 1)), greater_equal(keys, expand_dims(first, 1))
        )
    elif rank in (2, 3):
        visible = greater(mask, 0)
    else:
        raise errors.UnimplementedError(f"attention does not support a mask of rank {rank}")
    return expand_dims(expand_dims(visible, 1), 1) if rank < 3 else expand_dims(visible, 1)
