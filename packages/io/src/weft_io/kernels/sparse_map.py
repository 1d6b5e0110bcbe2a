"""Kernels that store sparse tensors in a map, for queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_io.resources.handles import find
from weft_io.resources.sparse_map import SparseMap, SparseValue, rows_of_sparse
from weft_io.resources.values import items_of, keeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _map(node: Node, device: Device) -> Callable[[], SparseMap]:
    result = find(node, device, SparseMap, SparseMap)

    def current() -> SparseMap:
        nonlocal result
        if result.closed:
            result = find(node, device, SparseMap, SparseMap)
        return result

    return current


@kernel("AddSparseToTensorsMap")
def _add(node: Node, device: Device) -> KernelFunction:
    tensors = _map(node, device)
    dtype = node.attrs["T"]
    keep = keeper(node, 0)

    def run(*inputs: Any) -> Any:
        return np.int64(tensors().add(dtype, SparseValue(*keep(inputs))))

    return run


@kernel("AddManySparseToTensorsMap")
def _add_many(node: Node, device: Device) -> KernelFunction:
    tensors = _map(node, device)
    dtype = node.attrs["T"]

    def run(*inputs: Any) -> Any:
        # The rows are copies of what is in the batch, whosever that is; only the shape is not.
        indices, values, shape = inputs
        rows = rows_of_sparse(SparseValue(indices, values, shape.copy()))
        return np.array([tensors().add(dtype, row) for row in rows], np.int64)

    return run


@kernel("TakeManySparseFromTensorsMap")
def _take_many(node: Node, device: Device) -> KernelFunction:
    tensors = _map(node, device)
    dtype = node.attrs["dtype"]

    def run(numbers: Any) -> Any:
        return tuple(tensors().take(dtype, items_of(numbers, "the handles")))

    return run
