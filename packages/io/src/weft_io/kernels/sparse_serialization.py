"""Kernels that serialize and deserialize sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.sparse_parts import check_sparse
from weft_graph.ir.variants import TensorVariant
from weft_graph.messages.tensor_proto import array_to_proto
from weft_io.kernels.parsing import parse_tensor_proto
from weft_io.resources.sparse_map import SparseValue, check_parts, rows_of_sparse, stack_rows
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def _write(node: Node, values: list[SparseValue]) -> Array:
    """Return serialized sparse tensors, shape (n, 3): strings, or for variants the arrays."""
    types = (dtypes.int64, node.attrs["T"], dtypes.int64)
    as_text = node.attrs["out_type"] is dtypes.string
    result = np.empty((len(values), 3), object)
    for i, value in enumerate(values):
        for j, (part, dtype) in enumerate(zip(value, types, strict=True)):
            contiguous = np.ascontiguousarray(part)
            result[i, j] = (
                array_to_proto(contiguous, dtype).SerializeToString()
                if as_text
                else TensorVariant(contiguous.copy())
            )
    return result


@kernel("SerializeSparse")
def _serialize(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any) -> Any:
        value = SparseValue(indices, values, shape)
        check_parts(value)
        return _write(node, [value])[0]

    return run


@kernel("SerializeManySparse")
def _serialize_many(node: Node, device: Device) -> KernelFunction:
    def run(*inputs: Any) -> Any:
        return _write(node, rows_of_sparse(SparseValue(*inputs)))

    return run


@kernel("DeserializeManySparse", "DeserializeSparse")
def _deserialize(node: Node, device: Device) -> KernelFunction:
    dtype: DType = node.attrs["dtype"]
    is_many = node.type == "DeserializeManySparse"

    def run(serialized: Any) -> Any:
        lead = serialized.shape[:-1]
        if serialized.ndim < 1 or serialized.shape[-1] != 3 or (is_many and serialized.ndim != 2):
            expected = "[n,3]" if is_many else "[...,3]"
            raise errors.InvalidArgumentError(
                f"serialized_sparse must have shape {expected}, got {format_dims(serialized.shape)}"
            )
        if not serialized.size:
            raise errors.InvalidArgumentError(
                "serialized_sparse must have at least one sparse tensor, got shape "
                f"{format_dims(serialized.shape)}"
            )
        rows = [_read(parts, dtype) for parts in serialized.reshape(-1, 3)]
        indices, values, shape = stack_rows(rows, dtype)
        index = np.stack(np.unravel_index(indices[:, 0], lead), 1) if lead else indices[:, :0]
        sizes = np.array([*lead, *shape[1:]], np.int64)
        return np.concatenate((index, indices[:, 1:]), 1), values, sizes

    return run


def _read(parts: Array, dtype: DType) -> SparseValue:
    """Deserialize one sparse tensor from its three parts.

    Raises: InvalidArgumentError: they are malformed, of another type, or inconsistent.
    """
    types = (dtypes.int64, dtype, dtypes.int64)
    result = [
        parse_tensor_proto(part, item) if isinstance(part, bytes) else _to_variant(part, item)
        for part, item in zip(parts.tolist(), types, strict=True)
    ]
    value = SparseValue(*[np.asarray(part) for part in result])
    check_parts(value)
    check_sparse(*value, argument="serialized ")
    return value


def _to_variant(part: Any, dtype: DType) -> Array:
    if not isinstance(part, TensorVariant) or part.array.dtype != dtype.numpy:
        raise errors.InvalidArgumentError(
            f"a part of a sparse tensor must be an array of {dtype.name}, got {part!r}"
        )
    return part.array
