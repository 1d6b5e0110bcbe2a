"""Kernels of sums, products, extremes and reductions of sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import Array, accumulation_dtype, as_exact, new_array, widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.scatter import make_scatter
from weft_exec.kernels.sparse_parts import (
    Sparse,
    check_sparse,
    flatten_positions,
    lookup,
    make_keys,
    rank_rows,
    union_positions,
)
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _pair(inputs: Any) -> tuple[Sparse, Sparse]:
    """Return two operands after checking them.

    Raises: InvalidArgumentError: an operand is invalid, or their shapes differ.
    """
    a, b = check_sparse(*inputs[:3], argument="a_"), check_sparse(*inputs[3:6], argument="b_")
    if a.sizes != b.sizes:
        raise errors.InvalidArgumentError(
            f"sparse operands must have the same shape, got {format_dims(a.sizes)} and "
            f"{format_dims(b.sizes)}"
        )
    return a, b


@kernel("SparseAdd", alias=True)
def _add(node: Node, device: Device) -> KernelFunction:
    def run(*inputs: Any) -> Any:
        a, b = _pair(inputs)
        limit = inputs[6]
        if np.array_equal(a.places, b.places):
            indices, total = a.places, a.values + b.values
            single: Any = np.False_
        else:
            joined = union_positions(*make_keys(a.sizes, a.places, b.places))
            indices = np.concatenate((a.places, b.places))[joined.rows]
            total = np.zeros(len(joined), a.values.dtype)
            total[joined.at_a] = a.values
            total[joined.at_b] += b.values
            single = np.bincount(np.concatenate(joined[1:]), minlength=len(joined)) == 1
        mask = (np.abs(total) >= limit) | single  # single elements are kept
        if not mask.all():
            indices, total = indices[mask], total[mask]
        return indices, total, inputs[2]

    return run


@kernel("SparseAddGrad")
def _add_grad(node: Node, device: Device) -> KernelFunction:
    def run(grad: Any, a: Any, b: Any, total: Any) -> Any:
        if len({table.shape[1:] for table in (a, b, total)}) > 1 or len(grad) != len(total):
            raise errors.InvalidArgumentError(
                "a_indices, b_indices and sum_indices must have the same number of columns, and "
                "the gradient one value per row of sum_indices, got shapes "
                f"{format_dims(a.shape)}, {format_dims(b.shape)}, "
                f"{format_dims(total.shape)} and {format_dims(grad.shape)}"
            )
        key_a, key_b, key = rank_rows(a, b, total)
        return _lookup_keys(grad, key_a, key), _lookup_keys(grad, key_b, key)

    return run


def _lookup_keys(values: Array, array: Array, table: Array) -> Array:
    """Look up the values of keys in a table; 0 for missing keys."""
    if not len(values):
        return np.zeros(len(array), values.dtype)
    indices, result = lookup(array, table)
    return np.where(result, values[indices], values.dtype.type(0))


@kernel("SparseTensorDenseAdd")
def _add_dense(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any, b: Any) -> Any:
        a = check_sparse(indices, values, shape, argument="a_")
        if a.sizes != b.shape:
            raise errors.InvalidArgumentError(
                f"the operands must have the same shape, got {format_dims(a.sizes)} and "
                f"{format_dims(b.shape)}"
            )
        result = new_array(device, b.shape, b.dtype)
        result[...] = b
        make_scatter(np.add)(result.reshape(-1), flatten_positions(a.places, a.sizes), a.values)
        return result

    return run


@kernel("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv")
def _with_dense(node: Node, device: Device) -> KernelFunction:
    functions: dict[str, Any] = {"Add": np.add, "Mul": np.multiply, "Div": _quotient}
    function = functions[node.type[-3:]]

    def run(indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        sparse = check_sparse(indices, values, shape, argument="sp_")
        selected = np.asarray(dense)
        return function(
            sparse.values, selected[_columns(sparse, selected)] if selected.ndim else dense
        )

    return run


def _columns(sparse: Sparse, dense: Array) -> tuple[Array, ...]:
    """Return the positions in a dense operand that broadcast to the stored elements."""
    inner = sparse.sizes[len(sparse.sizes) - dense.ndim :]
    if dense.ndim > len(sparse.sizes) or any(
        n not in (1, size) for n, size in zip(dense.shape, inner, strict=True)
    ):
        raise errors.InvalidArgumentError(
            "the dense operand must broadcast to the shape of the sparse one, got shapes "
            f"{format_dims(dense.shape)} and {format_dims(sparse.sizes)}"
        )
    indices = sparse.places[:, -dense.ndim :] * (np.array(dense.shape) != 1)
    return tuple(indices.T)


def _quotient(x: Array, y: Array) -> Any:
    if x.dtype.kind not in "iu":
        return x / y
    if not np.all(y):
        raise errors.InvalidArgumentError("Integer division by zero")
    return (x - np.fmod(x, y)) // y


# ---------------------------------------------------------------------------------- reductions


@kernel("SparseReduceSum", "SparseReduceMax")
def _reduce(node: Node, device: Device) -> KernelFunction:
    dtype: DType = node.attrs["T"]
    keep: bool = node.attrs["keep_dims"]
    ufunc = np.add if node.type == "SparseReduceSum" else np.maximum

    def run(*inputs: Any) -> Any:
        sparse, remaining_axes, shape = _groups(inputs, keep)
        result = new_array(device, shape, accumulation_dtype(dtype))
        result[...] = 0
        sizes = tuple([sparse.sizes[i] for i in remaining_axes])
        index = flatten_positions(sparse.places[:, remaining_axes], sizes)
        flat_result, values = result.reshape(-1), widen_value(sparse.values)
        if ufunc is np.maximum:
            flat_result[index] = values  # one of each group, since 0 might exceed them all
        ufunc.at(flat_result, index, values)
        return as_exact(result, dtype.numpy, device)

    return run


def _groups(inputs: Any, keep: bool) -> tuple[Sparse, list[int], tuple[int, ...]]:
    """Return the operand of a reduction, the remaining axes, and the shape of the result."""
    sparse = check_sparse(*inputs[:3], argument="input_")
    rank = len(sparse.sizes)
    axes = np.asarray(inputs[3]).reshape(-1)
    if axes.size and (axes.min() < -rank or axes.max() >= rank):
        bad = axes[(axes < -rank) | (axes >= rank)][0]
        raise errors.InvalidArgumentError(
            f"a reduction axis must be in [{-rank}, {rank}) for rank {rank}, got {bad}"
        )
    removed = {int(axis) % rank for axis in axes}
    remaining_axes = [i for i in range(rank) if i not in removed]
    shape = [
        1 if i in removed else sparse.sizes[i] for i in range(rank) if keep or i not in removed
    ]
    return sparse, remaining_axes, tuple(shape)


@kernel("SparseReduceSumSparse", "SparseReduceMaxSparse")
def _reduce_sparse(node: Node, device: Device) -> KernelFunction:
    dtype: DType = node.attrs["T"]
    keep: bool = node.attrs["keep_dims"]
    ufunc = np.add if "Sum" in node.type else np.maximum

    def run(*inputs: Any) -> Any:
        sparse, remaining_axes, shape = _groups(inputs, keep)
        group = sparse.places[:, remaining_axes]
        (key,) = make_keys(tuple([sparse.sizes[i] for i in remaining_axes]), group)
        order = np.argsort(key, kind="stable")
        starts = _starts(key[order])
        total = _reduce_runs(ufunc, sparse.values[order], starts)
        result = group[order[starts]]
        indices = np.zeros((len(result), len(shape)), np.int64)
        indices[:, remaining_axes if keep else slice(None)] = result
        return indices, as_exact(total, dtype.numpy, device), np.array(shape, np.int64)

    return run


def _starts(ordered: Array) -> Array:
    """Return the start of each run of equal keys."""
    new = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]
    return np.flatnonzero(new)


def _reduce_runs(ufunc: Any, values: Array, starts: Array) -> Array:
    """Reduce each run of values."""
    if not len(starts):
        return values[:0]
    result: Array = ufunc.reduceat(widen_value(values), starts, dtype=widen_value(values[:0]).dtype)
    return result


@kernel("SparseSoftmax")
def _softmax(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any) -> Any:
        sparse = check_sparse(indices, values, shape, argument="sp_")
        if len(sparse.sizes) < 2:
            raise errors.InvalidArgumentError(
                f"sp_shape must have rank at least 2, got {format_dims(sparse.sizes)}"
            )
        (key,) = make_keys(sparse.sizes[:-1], sparse.places[:, :-1])
        order = np.argsort(key, kind="stable")
        starts = _starts(key[order])
        ordered = widen_value(values[order])
        counts = np.diff(starts, append=len(key))
        powers = np.exp(ordered - np.repeat(_reduce_runs(np.maximum, ordered, starts), counts))
        result = np.empty_like(powers)
        result[order] = powers / np.repeat(_reduce_runs(np.add, powers, starts), counts)
        return result.astype(values.dtype, copy=False)

    return run


@kernel("SparseSparseMaximum", "SparseSparseMinimum")
def _extreme(node: Node, device: Device) -> KernelFunction:
    ufunc = np.maximum if node.type == "SparseSparseMaximum" else np.minimum

    def run(*inputs: Any) -> Any:
        a, b = _pair(inputs)
        joined = union_positions(*make_keys(a.sizes, a.places, b.places))
        x, y = np.zeros((2, len(joined)), a.values.dtype)
        x[joined.at_a], y[joined.at_b] = a.values, b.values
        return np.concatenate((a.places, b.places))[joined.rows], ufunc(x, y)

    return run
