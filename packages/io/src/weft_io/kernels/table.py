"""Kernels of lookup tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.kernels.dataset_values import elements_in
from weft_io.records.vocabulary import Vocabulary
from weft_io.resources.handles import holder, resource_of
from weft_io.resources.table import DenseTable, StaticTable, Table
from weft_io.resources.values import shape_of
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

# --------------------------------------------------------------------------- holders


def _op_versions(name: str) -> tuple[str, str]:
    return name, name + "V2"


@kernel(*_op_versions("HashTable"))
def _static(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["key_dtype"], node.attrs["value_dtype"]
    return holder(
        node,
        device,
        StaticTable,
        lambda name: StaticTable(name, *types),
        lambda result: result.check_types(*types),
        owns=_is_own(node),
    )


@kernel(*_op_versions("MutableHashTable"), *_op_versions("MutableHashTableOfTensors"))
def _mutable(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["key_dtype"], node.attrs["value_dtype"]
    shape = node.attrs.get("value_shape", ())
    return holder(
        node,
        device,
        Table,
        lambda name: Table(name, *types, shape),
        lambda result: _check(result, node),
        owns=_is_own(node),
    )


@kernel(*_op_versions("MutableDenseHashTable"))
def _dense(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    types = attrs["key_dtype"], attrs["value_dtype"]
    buckets, load = attrs["initial_num_buckets"], attrs["max_load_factor"]
    if buckets < 1 or buckets & (buckets - 1):
        raise errors.InvalidArgumentError(
            f"Number of buckets must be at least 1 and a power of 2, got: {buckets}"
        )
    if not 0 < load < 1:
        raise errors.InvalidArgumentError(f"max_load_factor must be between 0 and 1, got: {load}")

    def run(empty_key: Any, deleted_key: Any) -> Any:
        result = holder(
            node,
            device,
            DenseTable,
            lambda name: DenseTable(name, *types, attrs["value_shape"], empty_key, deleted_key),
            lambda result: _check(result, node),
            owns=_is_own(node),
        )
        return result()

    return run


def _is_own(node: Node) -> bool:
    """Return True if a table without a shared name is private to the session."""
    return not node.attrs["use_node_name_sharing"]


def _check(table: Table, node: Node) -> None:
    table.check_types(node.attrs["key_dtype"], node.attrs["value_dtype"])
    shape = node.attrs.get("value_shape", ())
    if table.value_shape != shape:
        raise errors.InvalidArgumentError(
            f"the table {table.name!r} has values of shape {format_dims(table.value_shape)}, but "
            f"is used with values of shape {format_dims(shape)}"
        )


# --------------------------------------------------------------------------- looking


@kernel(*_op_versions("LookupTableFind"))
def _find(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["Tin"], node.attrs["Tout"]

    def run(handle: Any, keys: Any, default: Any) -> Any:
        table = resource_of(handle, Table)
        table.check_types(*types)
        result = table.find(keys, default)
        return result[()] if not result.ndim and not result.dtype.hasobject else result

    return run


@kernel(*_op_versions("LookupTableSize"))
def _size(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.int64(resource_of(handle, Table).size())


@kernel(*_op_versions("LookupTableExport"))
def _export(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["Tkeys"], node.attrs["Tvalues"]

    def run(handle: Any) -> Any:
        table = resource_of(handle, Table)
        table.check_types(*types)
        return table.export()

    return run


# --------------------------------------------------------------------------- changing


@kernel(*_op_versions("LookupTableInsert"), *_op_versions("LookupTableImport"))
def _change(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["Tin"], node.attrs["Tout"]
    replaces = node.type.startswith("LookupTableImport")

    def run(handle: Any, keys: Any, values: Any) -> None:
        table = resource_of(handle, Table)
        table.check_types(*types)
        (table.replace if replaces else table.insert)(keys, values)

    return run


@kernel("LookupTableRemoveV2")
def _remove(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["Tin"]

    def run(handle: Any, keys: Any) -> None:
        table = resource_of(handle, Table)
        table.check_types(dtype, table.value_dtype)
        table.remove(keys)

    return run


# --------------------------------------------------------------------------- initializing


@kernel(*_op_versions("InitializeTable"))
def _initialize(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["Tkey"], node.attrs["Tval"]

    def run(handle: Any, keys: Any, values: Any) -> None:
        table = resource_of(handle, Table)
        table.check_types(*types)
        if len(shape_of(keys)) != 1:
            raise errors.InvalidArgumentError(
                f"keys must have rank 1, got shape {format_dims(shape_of(keys))}"
            )
        table.initialize(keys, values)

    return run


@kernel(*_op_versions("InitializeTableFromTextFile"), heavy=True)
def _initialize_from_file(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    key, value = attrs["key_index"], attrs["value_index"]
    delimiter = attrs["delimiter"].encode()

    def run(handle: Any, filename: Any) -> None:
        table = resource_of(handle, Table)
        path = os.fsdecode(np.asarray(filename).item())
        lines = Vocabulary(path, attrs["vocab_size"], delimiter, attrs["offset"])
        table.initialize(
            lines.column(key, table.key_dtype),
            lines.column(value, table.value_dtype),
            lines.location,
        )

    return run


@kernel("InitializeTableFromDataset")
def _initialize_from_dataset(node: Node, device: Device) -> KernelFunction:
    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        table = resource_of(inputs[0], Table)
        pairs = [element for element, _ in elements_in(ctx, inputs[1])]
        columns = list(zip(*pairs, strict=True)) or [(), ()]
        if len(columns) != 2:
            raise errors.InvalidArgumentError(
                f"a table's dataset must have pairs (key, value), got {len(columns)} components"
            )
        keys, values = [
            _column(column, dtype.numpy)
            for column, dtype in zip(columns, (table.key_dtype, table.value_dtype), strict=True)
        ]
        table.initialize(keys, values)
        completion()

    return run


def _column(column: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    result = np.empty(len(column), dtype)
    result[:] = column
    return result
