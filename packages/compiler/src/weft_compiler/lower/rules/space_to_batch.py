"""Space-to-batch, batch-to-space, and patches of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_compiler.ir.expressions import Expr, number, where
from weft_compiler.ir.indices import (
    clamp_index,
    flatten_indices,
    is_inside,
    minus,
    modulo,
    over,
    plus,
    times,
    unflatten_index,
)
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Body, Buffer, Store
from weft_compiler.lower.registry import Operation, lowers
from weft_compiler.lower.values import StatementDefinition, Value, compute_value, move_elements
from weft_graph.ops.windows import slide


def _inside_or_zero(
    x: Value, position: Sequence[Expr], needs_no_check: Sequence[bool], read: Callable[..., Expr]
) -> Expr:
    """Return an element, or 0 outside the tensor.

    Args:
      needs_no_check: for each axis, True if all positions are inside.
      read: maps indices to an element.
    """
    zero = number(0, x.dtype)
    if not x.size:
        return zero
    result = read(*map(clamp_index, position, x.shape))
    for i, size, sure in zip(position, x.shape, needs_no_check, strict=True):
        if not sure:
            result = where(is_inside(i, size), result, zero)
    return result


@lowers("SpaceToBatchND", known_operands=(1, 2))
def _space_to_batch(op: Operation) -> Value:
    x, shape = op.inputs[0], op.shape()
    blocks = [int(size) for size in op.known_value(1)]
    margins = [(int(leading), int(trailing)) for leading, trailing in op.known_value(2)]
    count = len(blocks)
    unpadded = [True, *[not any(margin) for margin in margins], *[True] * (x.rank - count - 1)]

    def element(*index: Expr) -> Expr:
        *offsets, image = unflatten_index(index[0], [*blocks, x.shape[0]])
        position = [image, *index[1:]]
        for axis, (offset, block, (leading, _)) in enumerate(
            zip(offsets, blocks, margins, strict=True), 1
        ):
            position[axis] = minus(plus(times(index[axis], block), offset), leading)
        return _inside_or_zero(x, position, unpadded, x.at)

    return compute_value(op.name, x.dtype, shape, element)


@lowers("BatchToSpaceND", known_operands=(1, 2))
def _batch_to_space(op: Operation) -> Value:
    x, shape = op.inputs[0], op.shape()
    blocks = [int(size) for size in op.known_value(1)]
    crops = [int(leading) for leading, _ in op.known_value(2)]

    def source(*index: Expr) -> list[Expr]:
        uncropped = [plus(i, crop) for i, crop in zip(index[1:], crops, strict=False)]
        offsets = [modulo(i, block) for i, block in zip(uncropped, blocks, strict=True)]
        image = flatten_indices([*offsets, index[0]], [*blocks, shape[0]])
        indices = [over(i, block) for i, block in zip(uncropped, blocks, strict=True)]
        return [image, *indices, *index[1 + len(blocks) :]]

    return move_elements(op.name, x, shape, source)


@lowers("ExtractImagePatches", "ExtractVolumePatches")
def _patches(op: Operation) -> Value:
    """Return patches of images; elements outside the images are 0."""
    x, shape, inner = op.inputs[0], op.shape(), slice(1, -1)
    sizes, strides = tuple(op.attr("ksizes")[inner]), tuple(op.attr("strides")[inner])
    rates = tuple(op.attr("rates")[inner]) if "rates" in op.node.attrs else (1,) * len(sizes)
    slides = [
        slide(size, window, stride, rate, op.attr("padding"))
        for size, window, stride, rate in zip(x.shape[inner], sizes, strides, rates, strict=True)
    ]
    leading = [first for _, first, _ in slides]
    last = [
        (count - 1) * stride - first + (window - 1) * rate
        for (count, first, _), window, stride, rate in zip(
            slides, sizes, strides, rates, strict=True
        )
    ]
    sure = [
        not first and end < size
        for first, end, size in zip(leading, last, x.shape[inner], strict=True)
    ]

    def write(unique: Unique, result: Buffer, source: Buffer) -> Body:
        def store(image: Expr, *remaining: Expr) -> Body:
            windows, tap, channel = (
                remaining[: len(sizes)],
                remaining[len(sizes) : -1],
                remaining[-1],
            )
            position = [
                minus(plus(times(i, stride), times(step, rate)), first)
                for i, stride, step, rate, first in zip(
                    windows, strides, tap, rates, leading, strict=True
                )
            ]

            def read(*clamped: Expr) -> Expr:
                return load(source, x.shape, clamped)

            value = _inside_or_zero(x, [image, *position, channel], [True, *sure, True], read)
            depth = flatten_indices([*tap, channel], [*sizes, x.shape[-1]])
            return (Store(result.name, (image, *windows, depth), value),)

        return nest(unique, (*shape[:-1], *sizes, x.shape[-1]), store)

    return Value(op.name, x.dtype, shape, StatementDefinition((x,), write))
