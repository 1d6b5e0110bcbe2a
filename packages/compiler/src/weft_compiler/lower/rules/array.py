"""Ops that move elements between positions known at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from weft_compiler.ir.expressions import INDEX, Expr, apply, cast, index, number, where
from weft_compiler.ir.indices import (
    clamp_index,
    is_inside,
    minus,
    modulo,
    over,
    plus,
    reshape_indices,
    times,
    unflatten_index,
)
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Requirement, Value, broadcast, compute_value, move_elements
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node
from weft_graph.ops.slicing import index_of, masks_of

_MOST_PARTS: Final = 8
"""Maximum number of tensors to join by a select for each element; copying more is faster."""
_MANY_JOINED: Final = f"it joins more than {_MOST_PARTS} tensors"
_MOST_PIECES: Final = 16
"""Maximum number of pieces that a region copies for its users; kernels return views instead."""


@lowers("Reshape", "ExpandDims", known_operands=(1,))
@lowers("Squeeze")
def _reshape(op: Operation) -> Value:
    (x, *_), shape = op.inputs, op.shape()
    return move_elements(
        op.name, x, shape, lambda *position: reshape_indices(position, shape, x.shape), dense=True
    )


@lowers("Transpose", "ConjugateTranspose", known_operands=(1,))
def _transpose(op: Operation) -> Value:
    order = [int(axis) for axis in op.known_value(1)]
    inverse_order = [order.index(axis) for axis in range(len(order))]
    return move_elements(
        op.name,
        op.inputs[0],
        op.shape(),
        lambda *position: [position[axis] for axis in inverse_order],
    )


@lowers("BroadcastTo", known_operands=(1,))
def _broadcast_to(op: Operation) -> Value:
    x = op.inputs[0]
    return move_elements(op.name, x, op.shape(), lambda *position: broadcast(x.shape, position))


@lowers("Fill", known_operands=(0,))
def _fill(op: Operation) -> Value:
    return move_elements(op.name, op.inputs[1], op.shape(), lambda *_: [])


@lowers("Tile", known_operands=(1,))
def _tile(op: Operation) -> Value:
    x = op.inputs[0]
    return move_elements(
        op.name,
        x,
        op.shape(),
        lambda *position: [modulo(i, size) for i, size in zip(position, x.shape, strict=True)],
    )


@lowers("ReverseV2", "Reverse", known_operands=(1,))
def _reverse(op: Operation) -> Value:
    x = op.inputs[0]
    flags = op.node.type == "Reverse"
    axes = np.flatnonzero(op.known_value(1)).tolist() if flags else op.axes()
    return move_elements(
        op.name,
        x,
        x.shape,
        lambda *position: [
            minus(x.shape[axis] - 1, i) if axis in axes else i for axis, i in enumerate(position)
        ],
    )


def _box_operands(node: Node) -> tuple[int, ...]:
    """Return the operands of a Slice that determine its shape; the start need not be known."""
    sizes = constant_value(node.inputs[2])
    return (1, 2) if sizes is None or (np.asarray(sizes) < 0).any() else (2,)


@lowers("Slice", known_operands=_box_operands)
def _slice(op: Operation) -> Value:
    x, shape = op.inputs[0], op.shape()
    begin = constant_value(op.node.inputs[1])
    if begin is not None:
        first = np.asarray(begin).tolist()
        return move_elements(op.name, x, shape, lambda *position: list(map(plus, position, first)))
    indices = [size - count + 1 for size, count in zip(x.shape, shape, strict=True)]
    require(min(indices, default=1) > 0, "the slice is larger than the tensor")
    starts = [cast(op.inputs[1].at(index(axis)), INDEX) for axis in range(x.rank)]
    result = move_elements(
        op.name,
        x,
        shape,
        lambda *position: [
            i if count == 1 else plus(i, clamp_index(start, count))
            for i, start, count in zip(position, starts, indices, strict=True)
        ],
    )
    result.requires = tuple([_starts_inside(*item) for item in zip(starts, indices, strict=True)])
    return result


def _starts_inside(start: Expr, count: int) -> Requirement:
    message = f"a slice that begins in [0, {count}) was required"
    return Requirement((), lambda: is_inside(start, count), message)


@lowers("StridedSlice", known_operands=(1, 2, 3))
def _strided_slice(op: Operation) -> Value:
    x = op.inputs[0]
    begin, end, strides = (op.known_value(operand).tolist() for operand in (1, 2, 3))
    parts = index_of(begin, end, strides, masks_of(op.node.attrs))

    def source(*position: Expr) -> list[Expr]:
        return _map_slice_indices(parts, x.shape, position)

    return move_elements(op.name, x, op.shape(), source)


def _map_slice_indices(
    parts: Sequence[object], shape: Sequence[int], position: Sequence[Expr]
) -> list[Expr]:
    """Map the indices of an element of a basic slice to indices in the sliced tensor."""
    remaining, sizes = iter(position), iter(shape)
    named = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts = [*parts, Ellipsis]
    exprs: list[Expr] = []
    for part in parts:
        if part is None:
            next(remaining)
        elif part is Ellipsis:
            exprs += [next(remaining) for _ in range(len(shape) - named) if next(sizes) is not None]
        elif isinstance(part, slice):
            first, _, step = part.indices(next(sizes))
            exprs.append(plus(first, times(next(remaining), step)))
        else:
            assert isinstance(part, int)
            size = next(sizes)
            exprs.append(index(part % size))
    return exprs


@lowers("StridedSliceGrad", known_operands=(0, 1, 2, 3))
def _strided_slice_grad(op: Operation) -> Value:
    gradient, shape = op.inputs[4], op.shape()
    begin, end, strides = (op.known_value(operand).tolist() for operand in (1, 2, 3))
    parts = index_of(begin, end, strides, masks_of(op.node.attrs))

    def element(*position: Expr) -> Expr:
        result, conditions = _unmap_slice_indices(parts, shape, position)
        if not gradient.size:
            return number(0, op.dtype())
        place = list(map(clamp_index, result, gradient.shape))
        value = gradient.at(*place)
        for condition in conditions:
            value = where(condition, value, number(0, op.dtype()))
        return value

    return compute_value(op.name, op.dtype(), shape, element)


@lowers("TensorStridedSliceUpdate", known_operands=(1, 2, 3))
def _strided_slice_update(op: Operation) -> Value:
    x, value = op.inputs[0], op.inputs[4]
    begin, end, strides = (op.known_value(operand).tolist() for operand in (1, 2, 3))
    parts = index_of(begin, end, strides, masks_of(op.node.attrs))

    def element(*position: Expr) -> Expr:
        result, conditions = _unmap_slice_indices(parts, x.shape, position)
        if not value.size:
            return x.at(*position)
        clamped = result[len(result) - value.rank :]
        new = value.at(*map(clamp_index, clamped, value.shape))
        for condition in conditions:
            new = where(condition, new, x.at(*position))
        return new

    require(value.rank <= x.rank + parts.count(None), "the value has more axes than the slice")
    return compute_value(op.name, x.dtype, x.shape, element)


def _unmap_slice_indices(
    parts: Sequence[object], shape: Sequence[int], position: Sequence[Expr]
) -> tuple[list[Expr], list[Expr]]:
    """Map indices in a tensor to indices in a basic slice; also return True if they are inside."""
    named = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts = [*parts, Ellipsis]
    remaining = iter(zip(position, shape, strict=True))
    exprs: list[Expr] = []
    conditions: list[Expr] = []
    for part in parts:
        if part is None:
            exprs.append(index(0))
        elif part is Ellipsis:
            exprs += [next(remaining)[0] for _ in range(len(shape) - named)]
        elif isinstance(part, slice):
            i, size = next(remaining)
            first, last, step = part.indices(size)
            distance = minus(i, first) if step > 0 else minus(first, i)
            exprs.append(over(distance, abs(step)))
            conditions.append(is_inside(exprs[-1], len(range(first, last, step))))
            if abs(step) > 1:
                conditions.append(apply("equal", modulo(distance, abs(step)), index(0)))
        else:
            assert isinstance(part, int)
            i, size = next(remaining)
            conditions.append(apply("equal", i, index(part % size)))
    return exprs, conditions


def _many_inputs_reason(node: Node) -> str:
    axes = 0 if node.type == "Pack" else 1
    return _MANY_JOINED if len(node.inputs) - axes > _MOST_PARTS else ""


@lowers("ConcatV2", known_operands=(-1,), by_kernel=_many_inputs_reason)
@lowers("Concat", known_operands=(0,), by_kernel=_many_inputs_reason)
@lowers("Pack", by_kernel=_many_inputs_reason)
def _concat(op: Operation) -> Value:
    stacks = op.node.type == "Pack"
    if stacks:
        parts, axis = op.inputs, int(op.attr("axis"))
    elif op.node.type == "ConcatV2":
        parts, axis = op.inputs[:-1], int(op.known_value(len(op.inputs) - 1))
    else:
        parts, axis = op.inputs[1:], int(op.known_value(0))
    shape = op.shape()
    axis %= len(shape)
    ends = []
    total = 0
    for part in parts:
        total += 1 if stacks else part.shape[axis]
        ends.append(total)

    def element(*position: Expr) -> Expr:
        result: Expr | None = None
        for part, end in reversed(list(zip(parts, ends, strict=True))):
            if not part.size:
                continue
            size = 1 if stacks else part.shape[axis]
            place = list(position[:axis])
            if not stacks:
                place.append(clamp_index(minus(position[axis], end - size), size))
            element_of_part = part.at(*place, *position[axis + 1 :])
            selected = apply("less", position[axis], index(end))
            result = element_of_part if result is None else where(selected, element_of_part, result)
        assert result is not None
        return result

    require(sum(part.size > 0 for part in parts) <= _MOST_PARTS, _MANY_JOINED)
    if not math.prod(shape):
        return compute_value(op.name, op.dtype(), shape, lambda *_: number(0, op.dtype()))
    return compute_value(op.name, op.dtype(), shape, element)


def _many_outputs_reason(node: Node) -> str:
    return "its kernel returns views without copying" if len(node.outputs) > _MOST_PIECES else ""


@lowers("Split", known_operands=(0,), by_kernel=_many_outputs_reason)
@lowers("SplitV", known_operands=(1, 2), by_kernel=_many_outputs_reason)
@lowers("Unpack", by_kernel=_many_outputs_reason)
def _split(op: Operation) -> list[Value]:
    removes = op.node.type == "Unpack"
    x = op.inputs[1 if op.node.type == "Split" else 0]
    axis = (
        int(op.attr("axis"))
        if removes
        else int(op.known_value(0 if op.node.type == "Split" else 2))
    )
    axis %= x.rank
    values = []
    first = 0
    for result in range(len(op.node.outputs)):
        shape = op.shape(result)
        values.append(move_elements(f"{op.name}_{result}", x, shape, _part(axis, first, removes)))
        first += 1 if removes else shape[axis]
    return values


def _part(axis: int, first: int, removes: bool) -> Callable[..., list[Expr]]:
    """Map indices in a part that begins at `first` to indices in the tensor."""

    def source(*position: Expr) -> list[Expr]:
        if removes:
            return [*position[:axis], index(first), *position[axis:]]
        return [*position[:axis], plus(position[axis], first), *position[axis + 1 :]]

    return source


@lowers("Pad", "PadV2", known_operands=(1,))
def _pad(op: Operation) -> Value:
    x = op.inputs[0]
    leading = [int(row[0]) for row in op.known_value(1)]
    filler = op.inputs[2].at() if op.node.type == "PadV2" else number(0, x.dtype)

    def element(*position: Expr) -> Expr:
        if not x.size:
            return filler
        place = list(map(minus, position, leading))
        result = x.at(*map(clamp_index, place, x.shape))
        for axis, (i, size) in enumerate(zip(place, x.shape, strict=True)):
            if op.shape()[axis] != size:
                result = where(is_inside(i, size), result, filler)
        return result

    return compute_value(op.name, x.dtype, op.shape(), element)


@lowers("OneHot", known_operands=(1,))
def _one_hot(op: Operation) -> Value:
    indices, _, on_value, off_value = op.inputs
    axis = int(op.attr("axis")) % len(op.shape())

    def element(*position: Expr) -> Expr:
        selected = indices.at(*position[:axis], *position[axis + 1 :])
        result = apply("equal", cast(selected, position[axis].dtype), position[axis])
        return where(result, on_value.at(), off_value.at())

    return compute_value(op.name, op.dtype(), op.shape(), element)


def _unknown_positions_reason(node: Node) -> str:
    known_value = all(
        constant_value(source) is not None for source in node.inputs[: node.attrs["N"]]
    )
    return "" if known_value else "the shapes of its results depend on values"


@lowers("DynamicStitch", "ParallelDynamicStitch", by_kernel=_unknown_positions_reason)
def _stitch(op: Operation) -> Value:
    """Combine rows of several tensors at known positions; the last one wins at equal positions."""
    count, shape = int(op.attr("N")), op.shape()
    require(count <= _MOST_PARTS, _MANY_JOINED)
    sources = np.full((shape[0], 2), -1)
    parts: list[Value] = []
    for part in range(count):
        indices, data = op.known_value(part), op.inputs[count + part]
        require(
            data.shape == (*indices.shape, *shape[1:]),
            "the shapes of data and indices do not match",
        )
        flat = indices.reshape(-1)
        require(not flat.size or int(flat.min()) >= 0, "an index is negative")
        sources[flat] = np.stack([np.full(flat.size, part), np.arange(flat.size)], 1)
        parts.append(data)
    table = Value(f"{op.name}_sources", INDEX, sources.shape, constant=sources)

    def element(*position: Expr) -> Expr:
        result: Expr = number(0, op.dtype())
        part_index, row = table.at(position[0], 0), table.at(position[0], 1)
        for part, data in enumerate(parts):
            rows = math.prod(data.shape[: data.rank - len(position) + 1])
            if not data.size:
                continue
            place = unflatten_index(
                clamp_index(row, rows), data.shape[: data.rank - len(position) + 1]
            )
            result = where(
                apply("equal", part_index, index(part)), data.at(*place, *position[1:]), result
            )
        return result

    return compute_value(op.name, op.dtype(), shape, element)
