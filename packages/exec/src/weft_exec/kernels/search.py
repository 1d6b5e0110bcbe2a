"""Kernels that search for elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import to_sizes
from weft_exec.kernels.common import widen_value
from weft_exec.kernels.registry import ALL, ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.kernels.sorted_rows import search
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

FEW = 8
"""Minimum ratio of a row's length to k for which the k largest are selected, not sorted."""


def _vector(x: Any, label: str) -> None:
    if x.ndim != 1:
        raise errors.InvalidArgumentError(
            f"{label} must be a vector, got shape {format_dims(x.shape)}"
        )


@kernel("Unique", "UniqueWithCounts", device=ARRAY_DEVICE, host=ALL)
def _unique(node: Node, device: Device) -> KernelFunction:
    has_counts = node.type == "UniqueWithCounts"
    dtype = node.outputs[1].dtype.numpy

    def run(x: Any) -> Any:
        _vector(x, "x")
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        order = np.argsort(first)
        ranks = np.empty(len(order), dtype)
        ranks[order] = np.arange(len(order), dtype=dtype)
        result = values[order], ranks[inverse.reshape(-1)]
        return (*result, counts[order].astype(dtype)) if has_counts else result

    return run


@kernel("ListDiff", device=ARRAY_DEVICE, host=ALL)
def _list_diff(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[1].dtype.numpy

    def run(x: Any, y: Any) -> Any:
        _vector(x, "x")
        _vector(y, "y")
        if x.dtype.kind == "O":
            excluded = set(y.tolist())
            missing = np.array([item not in excluded for item in x.tolist()], np.bool_)
        else:
            missing = ~np.isin(x, y)
        positions = np.flatnonzero(missing)
        return x[positions], positions.astype(dtype)

    return run


@kernel("Bucketize", device=ARRAY_DEVICE)
def _bucketize(node: Node, device: Device) -> KernelFunction:
    boundaries = np.array(node.attrs["boundaries"], np.float32)
    if np.any(boundaries[1:] < boundaries[:-1]):
        raise errors.InvalidArgumentError(f"boundaries must ascend, got {boundaries.tolist()}")
    limits = device.xp.asarray(boundaries.astype(np.float64))

    def run(x: Any) -> Any:
        wide = x if x.dtype.kind == "f" else x.astype(np.float64)
        return device.xp.searchsorted(limits, wide, side="right").astype(np.int32)

    return run


# ------------------------------------------------------------------------------- largest


@kernel("TopK", device=ARRAY_DEVICE)
@kernel("TopKV2", device=ARRAY_DEVICE, host=("k",))
def _top_k(node: Node, device: Device) -> KernelFunction:
    xp, fixed = device.xp, node.attrs.get("k")

    def run(x: Any, k: Any = fixed) -> tuple[Any, Any]:
        count = int(k)
        if x.ndim < 1 or not 0 <= count <= x.shape[-1]:
            raise errors.InvalidArgumentError(
                "k must be between 0 and the size of the last dimension of the input, "
                f"got {count} for shape {format_dims(x.shape)}"
            )
        size = x.shape[-1]
        # The complement reverses the order of integers, signed or not, without overflow.
        # NumPy has no order of bfloat16 where some are no numbers.
        keys = (~x if x.dtype.kind in "iu" else -widen_value(x)).reshape(prod(x.shape[:-1]), size)
        if xp is np and len(keys) and count and size >= FEW * count:
            smallest = _smallest(keys, count)
        else:
            smallest = xp.argsort(keys, axis=-1, kind="stable")[:, :count]
        indices = smallest.reshape(*x.shape[:-1], count)
        return xp.take_along_axis(x, indices, axis=-1), indices.astype(np.int32)

    return run


@kernel("NthElement")
def _nth_element(node: Node, device: Device) -> KernelFunction:
    reverse = node.attrs["reverse"]

    def run(x: Any, n: Any) -> Any:
        if x.ndim < 1 or np.ndim(n) or not 0 <= n < x.shape[-1]:
            raise errors.InvalidArgumentError(
                f"n must be at least 0 and below the last size of shape {format_dims(x.shape)}, "
                f"got {n}"
            )
        index = x.shape[-1] - 1 - int(n) if reverse else int(n)
        result = np.partition(widen_value(x), index, -1)[..., index]
        return result.astype(x.dtype)  # a copy, without the other elements

    return run


def _smallest(keys: Array, count: int) -> Array:
    """Return the positions of the smallest elements of each row, in ascending order.

    Equal elements keep their order.
    """
    result = np.argpartition(keys, count - 1, axis=1)[:, :count]
    limits = np.take_along_axis(keys, result[:, -1:], 1)
    # Where more elements are equal to the last, or some are no numbers, others may come first.
    unclear = np.flatnonzero(np.count_nonzero(keys <= limits, axis=1) != count)
    result.sort(axis=1)
    order = np.argsort(np.take_along_axis(keys, result, 1), axis=1, kind="stable")
    result = np.take_along_axis(result, order, 1)
    for row in unclear:
        result[row] = _smallest_of(keys[row], count)
    return result


def _smallest_of(row: Array, count: int) -> Array:
    """Return the positions of the smallest elements of one row; see `_smallest`."""
    limit = row[np.argpartition(row, count - 1)[count - 1]]
    candidates = np.flatnonzero(row <= limit)
    if len(candidates) < count:  # not a number: the largest by NumPy's order, unequal to itself
        return np.argsort(row, kind="stable")[:count]
    return candidates[np.argsort(row[candidates], kind="stable")[:count]]


@kernel("InTopK", "InTopKV2")
def _in_top_k(node: Node, device: Device) -> KernelFunction:
    fixed = node.attrs.get("k")

    def run(predictions: Any, targets: Any, k: Any = fixed) -> Any:
        if predictions.ndim != 2 or targets.shape != predictions.shape[:1]:
            raise errors.InvalidArgumentError(
                "predictions must have shape [n,classes] and targets [n], got "
                f"{format_dims(predictions.shape)} and {format_dims(targets.shape)}"
            )
        rows, classes = predictions.shape
        valid = (targets >= 0) & (targets < classes)
        if not classes:
            return valid
        target_scores = predictions[np.arange(rows), np.where(valid, targets, 0)]
        num_larger = np.count_nonzero(predictions > target_scores[:, None], axis=1)
        return valid & np.isfinite(predictions).all(axis=1) & (num_larger < int(k))

    return run


# ---------------------------------------------------------------------------------- places


@kernel("LowerBound", "UpperBound")
def _bound(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    right = node.type == "UpperBound"

    def run(keys: Any, values: Any) -> Any:
        if keys.ndim != 2 or values.ndim != 2 or len(keys) != len(values):
            raise errors.InvalidArgumentError(
                "sorted_inputs and values must be matrices with the same number of rows, got "
                "shapes "
                f"{format_dims(keys.shape)} and {format_dims(values.shape)}"
            )
        return search(widen_value(keys), widen_value(values), right).astype(dtype, copy=False)

    return run


@kernel("UnravelIndex")
def _unravel_index(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(indices: Any, dims: Any) -> Any:
        shape = to_sizes(dims)
        try:
            result = np.unravel_index(indices, shape)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"positions must be inside shape {list(shape)}, got {np.asarray(indices).tolist()}"
            ) from None
        return np.array(result, dtype).reshape(len(shape), *indices.shape)

    return run
