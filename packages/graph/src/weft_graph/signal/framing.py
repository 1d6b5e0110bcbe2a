"""Splitting signals into overlapping frames, and overlap-add."""

from __future__ import annotations

__all__ = ["frame", "overlap_and_add"]

from math import gcd
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import permutation, reduction, shape_rules
from weft_graph.signal.sizes import (
    Size,
    check_size,
    lead_of,
    max_size,
    pad_at_end,
    reshape_to_parts,
    shape_from,
    size_of,
)
from weft_tensor import errors


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Output:
    """Split an axis into frames of `frame_length` elements that start every `frame_step` elements.

    Args:
      signal: any type, shape (..., N, ...) with N samples along `axis`.
      frame_length, frame_step: integers of rank 0, at least 1.
      pad_end: include frames that extend beyond the end, padded with `pad_value`; otherwise they
        are dropped.
      pad_value: padding value, of the type of `signal`.
      axis: an integer; nonnegative values require a known rank.
    Returns: shape (..., F, frame_length, ...), where F is (N - frame_length) // frame_step + 1, or
      with `pad_end` N / frame_step rounded up.
    Raises: InvalidArgumentError: a length is below 1, or the axis is out of range.

    Examples:
      >>> wf.Session().run(wf.signal.frame([1, 2, 3, 4, 5], 3, 2))
      array([[1, 2, 3],
             [3, 4, 5]], dtype=int32)
    """
    with scope(name, "frame") as scope_name:
        value = convert_to_tensor(signal)
        length = check_size(frame_length, "frame_length")
        step = check_size(frame_step, "frame_step")
        dim = _from_the_end(value, axis)
        size = size_of(value, dim)
        if pad_end:
            frames = -(-size // step)
            value = pad_at_end(
                value, max_size(0, length + step * (frames - 1) - size), dim, pad_value
            )
        else:
            frames = max_size(0, 1 + (size - length) // step)
        return _gather_frames(value, dim, frames, length, step, scope_name)


def _from_the_end(value: Output, axis: int) -> int:
    if value.dims is None:
        if axis >= 0:
            raise errors.InvalidArgumentError(
                f"the axis of a signal of unknown rank must be negative, got {axis}"
            )
        return axis
    shape_rules.with_rank_at_least(value.dims, 1, "signal")
    return shape_rules.normal_axis(axis, len(value.dims)) - len(value.dims)


def _gather_frames(
    value: Output, dim: int, frames: Size, length: Size, step: Size, name: str
) -> Output:
    """Gather the frames in pieces whose length is the gcd of the frame length and the step."""
    piece = gcd(length, step) if isinstance(length, int) and isinstance(step, int) else 1
    starts = out("ExpandDims", [out("Mul", [out("Range", [0, frames, 1]), step // piece]), 1])
    positions = out("AddV2", [starts, out("Range", [0, length // piece, 1])])
    if piece == 1:
        axis = dim if value.dims is None else dim + len(value.dims)
        return out("GatherV2", [value, positions, axis], name=name)
    lead, tail = lead_of(value, -dim), [] if dim == -1 else _tail_of(value, dim)
    pieces = size_of(value, dim) // piece
    used = _take_leading(value, dim, pieces * piece)
    split = reshape_to_parts(used, *lead, pieces, piece, *tail)
    axis = dim - 1 if split.dims is None else dim - 1 + len(split.dims)
    shape = shape_from(*lead, frames, length, *tail)
    return out("Reshape", [out("GatherV2", [split, positions, axis]), shape], name=name)


def _tail_of(value: Output, dim: int) -> list[Any]:
    """Return the sizes of the axes after an axis."""
    static_sizes = None if value.dims is None else value.dims[dim + 1 :]
    if static_sizes is not None and None not in static_sizes:
        return list(static_sizes)
    return [out("Shape", [value])[dim + 1 :]]


def _take_leading(value: Output, dim: int, count: Size) -> Output:
    """Return the first `count` elements of an axis that counts from the end."""
    if value.dims is not None and value.dims[dim] == count:
        return value
    index = (..., slice(count), *[slice(None)] * (-dim - 1))
    output: Output = value[index]
    return output


def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> Output:
    """Add overlapping frames that start every `frame_step` elements.

    Args:
      signal: numeric, shape (..., F, L).
      frame_step: integer of rank 0, at least 1.
    Returns: shape (..., (F - 1) * frame_step + L).
    Raises: InvalidArgumentError: the rank is below 2, or the step is below 1.

    Examples:
      >>> wf.Session().run(wf.signal.overlap_and_add([[1, 1, 1], [2, 2, 2]], 2))
      array([1, 1, 3, 2, 2], dtype=int32)
    """
    with scope(name, "overlap_and_add") as scope_name:
        value = convert_to_tensor(signal)
        shape_rules.with_rank_at_least(value.dims, 2, "signal")
        step = check_size(frame_step, "frame_step")
        lead, frames, length = lead_of(value, 2), size_of(value, -2), size_of(value, -1)
        parts = -(-length // step)
        rows = frames + parts - 1
        split = reshape_to_parts(
            pad_at_end(value, parts * step - length), *lead, frames, parts, step
        )
        # Part p of frame f belongs into row f + p. Where each part has `parts` rows more than there
        # are frames, and the flattened rows are cut to one less, part p moves down by p rows.
        shifted = pad_at_end(_swap_axes(split), parts, -2)
        flat = reshape_to_parts(shifted, *lead, parts * (frames + parts), step)
        skewed = reshape_to_parts(_take_leading(flat, -2, parts * rows), *lead, parts, rows, step)
        summed = reshape_to_parts(reduction.reduce_sum(skewed, -3), *lead, rows * step)
        result_signal = _take_leading(summed, -1, max_size(0, (frames - 1) * step + length))
        return out("Identity", [result_signal], name=scope_name)


def _swap_axes(value: Output) -> Output:
    """Swap the axes -3 and -2."""
    order: Any
    if value.dims is not None:
        num_axes = len(value.dims)
        order = np.array([*range(num_axes - 3), num_axes - 2, num_axes - 3, num_axes - 1], np.int32)
    else:
        rank = out("Rank", [value])
        last = out("Pack", [[rank - 2, rank - 3, rank - 1]])
        order = out("ConcatV2", [[out("Range", [0, rank - 3, 1]), last], 0])
    return permutation.transpose(value, order)
