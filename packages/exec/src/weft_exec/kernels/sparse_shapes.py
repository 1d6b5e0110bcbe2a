"""Kernels that concatenate, slice, reshape and fill sparse tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import Array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.sparse_parts import (
    Sparse,
    check_indices,
    check_sparse,
    flatten_positions,
    lookup,
    rank_rows,
    row_order,
)
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_MOST: Final = 2**63 - 1


@kernel("SparseConcat")
def _concat(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["N"]
    concat_dim: int = node.attrs["concat_dim"]

    def run(*inputs: Any) -> Any:
        parts = [check_sparse(*inputs[i::count], argument=f"input {i}: ") for i in range(count)]
        sizes = parts[0].sizes
        axis = normal_axis(concat_dim, len(sizes), "concat_dim")
        for part in parts[1:]:
            _check_fits(sizes, part.sizes, axis)
        lengths = [part.sizes[axis] for part in parts]
        total = sum(lengths)
        if total > _MOST:
            raise errors.InvalidArgumentError(
                f"the sizes of axis {axis} add up to {total}, which exceeds the maximum"
            )
        starts = [sum(lengths[:i]) for i in range(count)]
        indices = np.concatenate([part.places for part in parts])
        indices[:, axis] += np.repeat(starts, [len(part.values) for part in parts])
        values = np.concatenate([part.values for part in parts])
        order = row_order(indices)
        shape = np.array((*sizes[:axis], total, *sizes[axis + 1 :]), np.int64)
        return indices[order], values[order], shape

    return run


def _check_fits(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> None:
    if len(a) != len(b) or any(
        n != m for i, (n, m) in enumerate(zip(a, b, strict=True)) if i != axis
    ):
        raise errors.InvalidArgumentError(
            f"sparse tensors joined along axis {axis} must agree in all others, got shapes "
            f"{format_dims(a)} and {format_dims(b)}"
        )


@kernel("SparseReshape", alias=True)
def _reshape(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, shape: Any, expected: Any) -> Any:
        if indices.ndim != 2 or shape.ndim != 1 or indices.shape[1] != len(shape):
            raise errors.InvalidArgumentError(
                "a sparse tensor requires indices [n,rank] and shape [rank], got "
                f"{format_dims(indices.shape)} and {format_dims(shape.shape)}"
            )
        old = check_indices(indices, shape, "input_")
        new = _infer_shape(old, expected.tolist())
        if old == new:
            return indices, expected if (expected >= 0).all() else np.array(new, np.int64)
        if math.prod(old) > _MOST:
            raise errors.InvalidArgumentError(
                f"a sparse tensor of shape {format_dims(old)} has too many elements for a reshape"
            )
        remaining = flatten_positions(indices, old)
        places = np.empty((len(remaining), len(new)), np.int64)
        for axis in range(len(new) - 1, -1, -1):
            remaining, places[:, axis] = np.divmod(remaining, max(new[axis], 1))
        return places, np.array(new, np.int64)

    return run


def _infer_shape(old: tuple[int, ...], new: list[int]) -> tuple[int, ...]:
    """Return the new shape with the size for -1 inferred.

    Raises: InvalidArgumentError: the new shape has another number of elements, or negative sizes.
    """
    unknown = [i for i, n in enumerate(new) if n == -1]
    if len(unknown) > 1 or any(n < -1 for n in new):
        raise errors.InvalidArgumentError(
            f"new_shape must have sizes of at least 0, and at most one -1, got {new}"
        )
    total, known_size = math.prod(old), math.prod([n for n in new if n != -1])
    if unknown and known_size and total % known_size == 0:
        new[unknown[0]] = total // known_size
    elif unknown or total != known_size:
        raise errors.InvalidArgumentError(
            f"a sparse tensor of shape {format_dims(old)} has {total} elements, which cannot be "
            f"reshaped to {new}"
        )
    return tuple(new)


@kernel("SparseSlice")
def _slice(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> Any:
        sparse = check_sparse(indices, values, shape)
        for bound, label in ((start, "start"), (size, "size")):
            if bound.shape != shape.shape or (bound < 0).any():
                raise errors.InvalidArgumentError(
                    f"{label} must be at least 0 for each of the {len(shape)} axes, got "
                    f"{bound.tolist()}"
                )
        # Sizes may be the largest integers, so they are compared with differences.
        selected = (indices >= start) & (indices - start < size)
        mask = selected.all(1)
        available = np.maximum(shape - np.minimum(start, shape), 0)
        return sparse.places[mask] - start, sparse.values[mask], np.minimum(size, available)

    return run


@kernel("SparseSliceGrad")
def _slice_grad(node: Node, device: Device) -> KernelFunction:
    def run(grad: Any, indices: Any, start: Any, kept_axes: Any) -> Any:
        if grad.shape != kept_axes.shape[:1] or not (
            indices.shape[1:] == kept_axes.shape[1:] == start.shape
        ):
            raise errors.InvalidArgumentError(
                "there must be one gradient per output index, and all indices must be as long as "
                f"start, got shapes {format_dims(grad.shape)}, {format_dims(kept_axes.shape)}, "
                f"{format_dims(indices.shape)} and {format_dims(start.shape)}"
            )
        if not len(grad):
            return np.zeros(len(indices), grad.dtype)
        expected, table = rank_rows(indices, kept_axes + start)
        places, result = lookup(expected, table)
        return np.where(result, grad[places], grad.dtype.type(0))

    return run


@kernel("SparseSplit")
def _split(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_split"]

    def run(split_dim: Any, indices: Any, values: Any, shape: Any) -> Any:
        sparse = check_sparse(indices, values, shape)
        axis = normal_axis(int(np.asarray(split_dim).reshape(-1)[0]), len(shape), "split_dim")
        size = sparse.sizes[axis]
        if count > size:
            raise errors.InvalidArgumentError(
                f"num_split must be at most the size {size} of axis {axis}, got {count}"
            )
        ends = [size // count * i + min(i, size % count) for i in range(count + 1)]
        owner = np.searchsorted(ends, indices[:, axis], side="right") - 1
        parts = [_part(sparse, owner == i, axis, ends[i], ends[i + 1]) for i in range(count)]
        return tuple([part for kind in zip(*parts, strict=True) for part in kind])

    return run


def _part(
    sparse: Sparse, array: Array, axis: int, start: int, end: int
) -> tuple[Array, Array, Array]:
    indices = sparse.places[array]
    indices[:, axis] -= start
    sizes = (*sparse.sizes[:axis], end - start, *sparse.sizes[axis + 1 :])
    return indices, sparse.values[array], np.array(sizes, np.int64)


@kernel("SparseFillEmptyRows")
def _fill(node: Node, device: Device) -> KernelFunction:
    empty_array = device.empty

    def run(indices: Any, values: Any, shape: Any, default: Any) -> Any:
        sparse = check_sparse(indices, values, shape)
        if not sparse.sizes:
            raise errors.InvalidArgumentError("a sparse tensor of rank 0 has no rows")
        rows = indices[:, 0]
        empty = empty_array((sparse.sizes[0],), np.dtype(np.bool_))
        empty[...] = True
        empty[rows] = False
        missing = np.flatnonzero(empty)
        added = np.zeros((len(missing), len(sparse.sizes)), np.int64)
        added[:, 0] = missing
        order = np.argsort(np.concatenate((rows, missing)), kind="stable")
        order_back = np.empty(len(order), np.int64)
        order_back[order] = np.arange(len(order))
        new = np.empty(len(missing), sparse.values.dtype)
        new[...] = default
        filled = np.concatenate((sparse.values, new))
        places = np.concatenate((sparse.places, added))
        return places[order], filled[order], empty, order_back[: len(rows)]

    return run


@kernel("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")
def _fill_grad(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"].numpy

    def run(reverse_index_map: Any, grad: Any) -> Any:
        if reverse_index_map.ndim != 1 or grad.ndim != 1:
            raise errors.InvalidArgumentError(
                f"reverse_index_map and grad_values must be vectors, got shapes "
                f"{list(reverse_index_map.shape)} and {list(grad.shape)}"
            )
        if reverse_index_map.size and (
            reverse_index_map.min() < 0 or reverse_index_map.max() >= len(grad)
        ):
            raise errors.InvalidArgumentError(
                f"reverse_index_map must be in [0, {len(grad)}), got {reverse_index_map.tolist()}"
            )
        remaining = np.ones(len(grad), np.bool_)
        remaining[reverse_index_map] = False
        return grad[reverse_index_map], np.asarray(
            grad[remaining].sum(dtype=_sum_type(dtype))
        ).astype(dtype)

    return run


def _sum_type(dtype: np.dtype[Any]) -> Any:
    return np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
