"""Kernels of pooling over regions of random sizes (fractional pooling).

A region is a range of rows times a range of columns, so regions are reduced axis by axis. Gradients
iterate over the positions within a region, and process all regions together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.random import stream_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.fractional_pool import pooled_size
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]
FIXED_KEY = (123, 456)
"""Key of the random stream for nodes whose regions are the same in each run."""


def _runs(draw: np.random.Generator, size: int, count: int, pseudo: bool) -> Array:
    """Return the starts of `count` ranges that cover an axis, and the end of the last one."""
    if not count:
        return np.zeros(1, np.int64)
    short = size // count
    if not pseudo:
        lengths = np.full(count, short)
        lengths[: size % count] += 1
        return np.concatenate([[0], np.cumsum(draw.permutation(lengths))])
    ratio = size / count
    largest = min((short + 2) / ratio - 1, (size + 1 - short) / ratio - (count - 1))
    shift = draw.random() * largest
    inner = np.ceil(ratio * (np.arange(1, count) + shift)).astype(np.int64) - 1
    return np.concatenate([[0], inner, [size]])


def _ends(starts: Array, overlapping: bool) -> Array:
    """Return the ends of the ranges, one past their last position."""
    return np.asarray(np.minimum(starts[1:] + overlapping, starts[-1]))


def _fold(x: Array, axis: int, starts: Array, overlapping: bool, function: Any) -> Array:
    """Apply `function` (maximum or add) over the ranges of an axis."""
    if len(starts) == 1:
        return np.take(x, np.zeros(0, np.intp), axis)
    result = np.asarray(function.reduceat(x, starts[:-1], axis))
    if overlapping:
        inner = (slice(None),) * axis + (slice(0, -1),)
        result[inner] = function(result[inner], x.take(starts[1:-1], axis))
    return result


@kernel("FractionalAvgPool", "FractionalMaxPool", heavy=True)
def _pool(node: Node, device: Device) -> KernelFunction:
    op, attrs, exact = node.type, node.attrs, node.outputs[0].dtype.numpy
    overlapping, mean = attrs["overlapping"], op == "FractionalAvgPool"
    key = (attrs["seed"], attrs["seed2"])
    key = key if any(key) else FIXED_KEY
    stream = None if attrs["deterministic"] else stream_of(node, device.resources)

    def sequences(draw: np.random.Generator, shape: Any) -> list[Array]:
        ratio, pseudo = attrs["pooling_ratio"], attrs["pseudo_random"]
        return [
            _runs(draw, shape[axis], pooled_size(shape[axis], ratio[axis]), pseudo)
            for axis in (1, 2)
        ]

    def run(x: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(
                f"{op} requires a value of rank 4, got shape {list(x.shape)}"
            )
        if stream is None:
            bits = np.random.Philox(key=np.array(key, np.int64).astype(np.uint64))
            rows, columns = sequences(np.random.Generator(bits), x.shape)
        else:
            rows, columns = stream.sample(sequences, x.shape)
        function = np.add if mean else np.maximum
        y = _fold(x, 1, rows, overlapping, function)
        y = _fold(y, 2, columns, overlapping, function)
        if mean:
            count = _counts(rows, columns, overlapping).astype(x.dtype)
            y = y / count if x.dtype.kind == "f" else (y - np.fmod(y, count)) // count
        return y.astype(exact, copy=False), rows, columns

    return run


def _counts(rows: Array, columns: Array, overlapping: bool) -> Array:
    """Return the number of positions of each region, shape (H', W', 1)."""
    sizes = [_ends(starts, overlapping) - starts[:-1] for starts in (rows, columns)]
    return np.asarray(np.multiply.outer(*sizes)[:, :, None])


Region = Any


def _positions(rows: Array, columns: Array, overlapping: bool) -> Iterator[tuple[Region, Region]]:
    """Yield for each position in a region the regions that have it, and its index in each."""
    ends = [_ends(starts, overlapping) for starts in (rows, columns)]
    longest = [int((e - s[:-1]).max(initial=0)) for e, s in zip(ends, (rows, columns), strict=True)]
    for dy in range(longest[0]):
        down = np.flatnonzero(rows[:-1] + dy < ends[0])
        for dx in range(longest[1]):
            right = np.flatnonzero(columns[:-1] + dx < ends[1])
            yield np.ix_(down, right), np.ix_(rows[down] + dy, columns[right] + dx)


def _require(op: str, shape: Any, grad: Any, rows: Any, columns: Any) -> None:
    """Raise InvalidArgumentError unless the sequences match the shape of the gradient."""
    is_valid = len(shape) == 4 and grad.ndim == 4 and rows.ndim == columns.ndim == 1
    is_valid = is_valid and grad.shape == (shape[0], len(rows) - 1, len(columns) - 1, shape[3])
    for starts, size in zip((rows, columns), shape[1:3], strict=True):
        is_valid = is_valid and len(starts) > 0 and starts[0] == 0 and starts[-1] == size
        is_valid = is_valid and bool((np.diff(starts) > 0).all())
    if not is_valid:
        raise errors.InvalidArgumentError(
            f"{op} requires pooling sequences that grow from 0 to the sizes of the image and have "
            f"one entry more than out_backprop has regions, got an image of shape {list(shape)}, "
            f"out_backprop of {list(grad.shape)}, and sequences {rows.tolist()[:20]} and "
            f"{columns.tolist()[:20]}"
        )


@kernel("FractionalMaxPoolGrad", heavy=True)
def _max_gradient(node: Node, device: Device) -> KernelFunction:
    op, overlapping = node.type, node.attrs["overlapping"]

    def run(x: Any, y: Any, grad: Any, rows: Any, columns: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(
                f"{op} requires non-empty images, got shape {list(x.shape)}"
            )
        _require(op, x.shape, grad, rows, columns)
        _require(op, x.shape, y, rows, columns)
        result, unmatched = np.zeros(x.shape, grad.dtype), np.ones(y.shape, np.bool_)
        interval = slice(None)
        for (down, right), (at_row, at_column) in _positions(rows, columns, overlapping):
            outs, ins = (interval, down, right), (interval, at_row, at_column)
            hit = unmatched[outs] & (x[ins] == y[outs])
            result[ins] += np.where(hit, grad[outs], grad.dtype.type(0))
            unmatched[outs] &= ~hit
        return result

    return run


@kernel("FractionalAvgPoolGrad", heavy=True)
def _avg_gradient(node: Node, device: Device) -> KernelFunction:
    op, overlapping, exact = node.type, node.attrs["overlapping"], node.outputs[0].dtype.numpy
    wide = exact if exact.kind == "f" else np.dtype(np.float64)  # integers are rounded once

    def run(shape: Any, grad: Any, rows: Any, columns: Any) -> Any:
        sizes = tuple(np.ravel(shape).tolist())
        if len(sizes) != 4 or min(sizes) < 0:
            raise errors.InvalidArgumentError(
                f"{op} requires the shape of images, with 4 sizes, got {sizes}"
            )
        _require(op, sizes, grad, rows, columns)
        part = grad / _counts(rows, columns, overlapping).astype(wide)
        result = np.zeros(sizes, wide)
        interval = slice(None)
        for (down, right), (at_row, at_column) in _positions(rows, columns, overlapping):
            result[interval, at_row, at_column] += part[interval, down, right]
        return result.astype(exact, copy=False)

    return run
